//! `$in`: a sorted list of distinct values, and regular expressions.

use std::cmp::Ordering;
use std::sync::OnceLock;

use marula_bson::order::compare;
use marula_bson::{Collator, RawValue, Type, Value, ValueBuf};
use marula_error::{Result, errors};

use super::node::{Compare, CompareOp, Predicate};
use super::parse::Parser;
use crate::expression::set::Table;
use crate::meter;
use crate::regex::Regex;

errors! {
    /// The operand of `$in` or `$nin` is not an array.
    in_not_an_array(name: &str) = BadValue, "{name} needs an array";
    /// An element is an object that begins with an operator.
    in_nested_operator() = BadValue, "cannot nest $ under $in";
    /// An element is undefined.
    pub(crate) in_undefined() = BadValue, "InMatchExpression equality cannot be undefined";
}

/// The operand of `$in`: sorted, distinct values, and patterns.
#[derive(Clone, Debug, Default)]
pub struct InList {
    values: Vec<ValueBuf>,
    regexes: Vec<Regex>,
    /// The values by their hashes, once a value has been looked up in many.
    table: OnceLock<Table>,
}

/// The number of values from which on a hash is faster than a binary search.
const HASHED_MIN: usize = 32;

impl InList {
    /// Sorts the values and removes duplicates.
    pub fn new(
        mut values: Vec<ValueBuf>,
        regexes: Vec<Regex>,
        collator: Option<&dyn Collator>,
    ) -> Self {
        let order = |a: &ValueBuf, b: &ValueBuf| compare(a.get(), b.get(), collator);
        values.sort_by(order);
        values.dedup_by(|later, kept| order(later, kept).is_eq());
        InList { values, regexes, table: OnceLock::new() }
    }

    /// The values in ascending order, without duplicates.
    pub fn values(&self) -> &[ValueBuf] {
        &self.values
    }

    /// The regular expressions, in the order given.
    pub fn regexes(&self) -> &[Regex] {
        &self.regexes
    }

    /// Returns whether the list contains null; it then also matches missing and undefined.
    pub fn has_null(&self) -> bool {
        // Only MinKey sorts before null.
        self.values.iter().take(2).any(|value| value.kind() == Type::Null)
    }

    /// Returns whether the list contains the value or a pattern that matches it.
    pub(super) fn contains(&self, value: RawValue<'_>, collator: Option<&dyn Collator>) -> bool {
        let found = match value.kind() {
            Type::Undefined => self.has_null(),
            _ => self.contains_value(value, collator),
        };
        found || self.regexes.iter().any(|regex| regex.matches_value(value))
    }

    fn contains_value(&self, value: RawValue<'_>, collator: Option<&dyn Collator>) -> bool {
        let decoded = value.get();
        if self.values.len() >= HASHED_MIN {
            let table = self.table.get_or_init(|| Table::of(&self.values, collator));
            return table.contains(&self.values, decoded, collator);
        }
        let order = |kept: &ValueBuf| -> Ordering { compare(kept.get(), decoded, collator) };
        self.values.binary_search_by(order).is_ok()
    }
}

/// The cost of storing a value and sorting it among many.
const VALUE_WORK: usize = 16;

/// Parses the list of `$in` or `$nin`.
pub(super) fn parse(parser: &Parser<'_>, name: &str, operand: RawValue<'_>) -> Result<Predicate> {
    let Value::Array(array) = operand.get() else {
        return Err(in_not_an_array(name));
    };
    let (mut values, mut regexes) = (Vec::new(), Vec::new());
    for element in array {
        meter::spend(VALUE_WORK)?;
        match element.value.get() {
            Value::Regex { pattern, options } => {
                meter::spend(meter::MATCH)?;
                regexes.push(Regex::new(pattern, options)?);
            }
            Value::Undefined => return Err(in_undefined()),
            Value::Document(doc) if super::parse::begins_with_operator(doc) => {
                return Err(in_nested_operator());
            }
            _ => values.push(element.value.to_buf()),
        }
    }
    Ok(Predicate::in_list(InList::new(values, regexes, parser.context.collator())))
}

impl Predicate {
    /// The predicate for a list in its simplest form: a list of one is a comparison or a pattern.
    pub(super) fn in_list(mut list: InList) -> Predicate {
        match (list.values.len(), list.regexes.len()) {
            (1, 0) => {
                let value = list.values.remove(0);
                Predicate::Compare(Compare { op: CompareOp::Eq, value })
            }
            (0, 1) => Predicate::Regex(list.regexes.remove(0)),
            _ => Predicate::In(list),
        }
    }
}
