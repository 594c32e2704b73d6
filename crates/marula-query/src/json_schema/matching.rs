//! Matches a schema against a value's bytes.

use std::ops::ControlFlow;

use bstr::BStr;
use marula_bson::{Decimal128, Doc, Element, FieldPath, RawValue, Type, Value};

use super::{Additional, Dependency, OtherProperties, Property, Rule, Schema, unordered};
use crate::expression::number::decimal_remainder;
use crate::filter::compares;
use crate::meter;

/// The number of bytes of a value that cost as much as one element: a rule may sort or hash them.
const LOOKED_AT: usize = 16;

impl Schema {
    /// The array index for the positional `$` where a document satisfies the schema: of its
    /// required properties, the last by name that is an array, at its first element.
    pub(super) fn position(&self, doc: Doc<'_>) -> Option<usize> {
        let Schema::Rules(rules) = self else { return None };
        let required = rules.iter().filter_map(|rule| match rule {
            Rule::Required(paths) => Some(paths),
            _ => None,
        });
        let mut last: Option<(&FieldPath, usize)> = None;
        for path in required.flatten() {
            if last.is_none_or(|(known, _)| known.parts() < path.parts())
                && let Some(index) = index_found(path, doc)
            {
                last = Some((path, index));
            }
        }
        last.map(|(_, index)| index)
    }

    /// Returns whether the schema only restricts the number and names of an object's properties,
    /// not their values.
    pub(super) fn is_of_names(&self) -> bool {
        let is_of_names = |rule: &Rule| {
            matches!(
                rule,
                Rule::MinProperties(_) | Rule::MaxProperties(_) | Rule::OtherProperties(_)
            )
        };
        matches!(self, Schema::Rules(rules) if rules.iter().all(is_of_names))
    }

    /// Returns whether the schema consists only of `required`.
    pub(super) fn is_of_required(&self) -> bool {
        matches!(self, Schema::Rules(rules) if rules.iter().all(|rule| matches!(rule, Rule::Required(_))))
    }

    /// Returns whether the schema has more than one condition on an object; each property counts.
    pub(super) fn is_of_several(&self) -> bool {
        let Schema::Rules(rules) = self else { return false };
        let count = |rule: &Rule| match rule {
            Rule::Properties(properties) => properties.len(),
            Rule::Required(paths) => paths.len(),
            _ => 1,
        };
        rules.iter().map(count).sum::<usize>() > 1
    }

    /// Returns whether the value satisfies the schema.
    pub(crate) fn matches(&self, value: RawValue<'_>) -> bool {
        match self {
            Schema::Never => false,
            Schema::Rules(rules) => rules.iter().all(|rule| rule.holds(value)),
        }
    }
}

impl Rule {
    /// Returns whether the rule holds for the value; a rule for one type holds for values of other
    /// types.
    ///
    /// When the operation must end, the rule does not hold here, and the error is returned by the
    /// [next](crate::meter::recall) check.
    pub(crate) fn holds(&self, value: RawValue<'_>) -> bool {
        if meter::spend(meter::CALL + value.bytes().len() / LOOKED_AT).is_err() {
            return false;
        }
        match self {
            Rule::MultipleOf(divisor) => {
                !value.kind().is_number() || is_multiple(value.get(), *divisor)
            }
            Rule::Bound(bound) => !value.kind().is_number() || compares(bound, value, None),
            Rule::Pattern { regex, is_strict } => match value.kind() {
                Type::String => regex.matches_value(value),
                Type::Symbol | Type::Regex if *is_strict => regex.matches_value(value),
                _ => true,
            },
            Rule::MaxLength(max) => string(value).is_none_or(|text| code_points(text) <= *max),
            Rule::MinLength(min) => string(value).is_none_or(|text| code_points(text) >= *min),
            Rule::MinItems(min) => array(value).is_none_or(|array| count(array) >= *min),
            Rule::MaxItems(max) => array(value).is_none_or(|array| count(array) <= *max),
            Rule::UniqueItems => {
                array(value).is_none_or(|array| unordered::first_duplicate(array).is_none())
            }
            Rule::Items(schema) => {
                array(value).is_none_or(|array| array.iter().all(|item| schema.matches(item.value)))
            }
            Rule::ItemsByPlace(schemas) => array(value).is_none_or(|array| {
                schemas.iter().zip(array).all(|(schema, item)| schema.matches(item.value))
            }),
            Rule::AdditionalItems { from, allowed } => array(value).is_none_or(|array| {
                array.iter().skip(*from).all(|item| match allowed {
                    None => false,
                    Some(schema) => schema.matches(item.value),
                })
            }),
            Rule::Properties(properties) => object(value)
                .is_none_or(|object| properties.iter().all(|property| property.holds(object))),
            Rule::OtherProperties(others) => {
                object(value).is_none_or(|object| object.iter().all(|element| others.hold(element)))
            }
            Rule::Required(paths) => {
                object(value).is_none_or(|object| paths.iter().all(|path| exists(path, object)))
            }
            Rule::MinProperties(min) => object(value).is_none_or(|object| count(object) >= *min),
            Rule::MaxProperties(max) => object(value).is_none_or(|object| count(object) <= *max),
            Rule::Dependencies(list) => object(value).is_none_or(|object| {
                list.iter()
                    .all(|(path, dependency)| !exists(path, object) || dependency.holds(object))
            }),
            Rule::AllOf(schemas) => schemas.iter().all(|schema| schema.matches(value)),
            Rule::AnyOf(schemas) => schemas.iter().any(|schema| schema.matches(value)),
            Rule::OneOf(schemas) => {
                schemas.iter().filter(|schema| schema.matches(value)).take(2).count() == 1
            }
            Rule::Not(schema) => !schema.matches(value),
            Rule::Enum(values) => values.iter().any(|allowed| {
                let work = meter::ELEMENT + value.bytes().len() / LOOKED_AT;
                meter::spend(work).is_ok() && unordered::equal(allowed.as_raw(), value)
            }),
            Rule::Encrypt(encryption) => encryption.holds(value),
            Rule::Types { types, .. } => types.contains(value.kind()),
        }
    }
}

impl Property {
    fn holds(&self, object: Doc<'_>) -> bool {
        self.failing(object).is_none()
    }

    /// The value of the property that the schema does not allow.
    pub(crate) fn failing<'a>(&self, object: Doc<'a>) -> Option<RawValue<'a>> {
        if meter::spend_bytes(object.as_bytes().len()).is_err() {
            return None;
        }
        if self.path.is_single() {
            let value = self.path.first_field(object);
            return value.filter(|value| !self.schema.matches(*value));
        }
        // If an array spreads the path, one value that satisfies the schema is sufficient.
        let mut failing = None;
        let found = self.path.walk(object, |leaf| match leaf.value {
            Some(value) if self.schema.matches(value) => ControlFlow::Break(()),
            value => {
                failing = failing.or(value);
                ControlFlow::Continue(())
            }
        });
        failing.filter(|_| found.is_continue())
    }
}

impl OtherProperties {
    fn hold(&self, element: Element<'_>) -> bool {
        let mut is_covered = self.names.find(element.name).is_some();
        for (regex, schema) in &self.patterns {
            if regex.is_match(element.name) {
                is_covered = true;
                if !schema.matches(element.value) {
                    return false;
                }
            }
        }
        is_covered
            || match &self.additional {
                Additional::Anything => true,
                Additional::Nothing => false,
                Additional::Schema(schema) => schema.matches(element.value),
            }
    }

    /// Returns whether neither a name nor a pattern covers the property.
    pub(crate) fn is_additional(&self, name: &BStr) -> bool {
        self.names.find(name).is_none()
            && !self.patterns.iter().any(|(regex, _)| regex.is_match(name))
    }
}

impl Dependency {
    /// Returns whether the object has what an existing property requires.
    pub(crate) fn holds(&self, object: Doc<'_>) -> bool {
        match self {
            Dependency::Properties(paths) => paths.iter().all(|path| exists(path, object)),
            Dependency::Schema(schema) => {
                schema.matches(RawValue::new(Type::Document, object.as_bytes()))
            }
        }
    }
}

/// Returns whether the path leads to a value.
pub(crate) fn exists(path: &FieldPath, object: Doc<'_>) -> bool {
    if meter::spend_bytes(object.as_bytes().len()).is_err() {
        return false;
    }
    if path.is_single() {
        return object.get_raw(path.first()).is_some();
    }
    let found = path.walk(object, |leaf| match leaf.value {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// The index of the array element through which the path leads to a value, if any.
fn index_found(path: &FieldPath, object: Doc<'_>) -> Option<usize> {
    let mut index = None;
    let _ = path.walk(object, |leaf| match leaf.value {
        Some(value) => {
            let is_filled = value.kind() == Type::Array
                && leaf.expands
                && !Doc::trusted(value.bytes()).is_empty();
            index = leaf.outer_index.or(is_filled.then_some(0));
            ControlFlow::Break(())
        }
        None => ControlFlow::Continue(()),
    });
    index
}

/// Returns whether the value is a multiple of `divisor`, in decimal.
fn is_multiple(value: Value<'_>, divisor: Decimal128) -> bool {
    let dividend = match value {
        Value::Int32(number) => Decimal128::from_i64(i64::from(number)),
        Value::Int64(number) => Decimal128::from_i64(number),
        Value::Double(number) => Decimal128::from_f64(number),
        Value::Decimal128(number) => number,
        _ => return false,
    };
    decimal_remainder(dividend, divisor).is_zero()
}

/// The text of a string; a symbol has none.
fn string(value: RawValue<'_>) -> Option<&BStr> {
    value.get().as_str()
}

fn array(value: RawValue<'_>) -> Option<Doc<'_>> {
    (value.kind() == Type::Array).then(|| Doc::trusted(value.bytes()))
}

/// The document of an object value.
pub(crate) fn object(value: RawValue<'_>) -> Option<Doc<'_>> {
    (value.kind() == Type::Document).then(|| Doc::trusted(value.bytes()))
}

/// The number of elements.
pub(crate) fn count(doc: Doc<'_>) -> u64 {
    doc.iter().count() as u64
}

/// The number of characters of the text: every byte except continuation bytes.
fn code_points(text: &[u8]) -> u64 {
    text.iter().filter(|&&byte| byte & 0xC0 != 0x80).count() as u64
}
