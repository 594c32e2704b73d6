//! `$pull` and `$pullAll`: remove elements from an array by condition or by value.

use marula_bson::{ArrayWriter, Collator, Doc, DocWriter, Element, RawValue, Type, Value};
use marula_error::{Result, errors};

use super::Operation;
use super::value_set::ValueSet;
use crate::context::Context;
use crate::filter::{Filter, Purpose};
use crate::update::walk::{Walk, WriteStep};

errors! {
    /// The operand of `$pullAll` is not an array.
    operand_not_an_array(kind: &str) = BadValue, "$pullAll requires an array argument but was given a {kind}";
    /// The value is not an array.
    not_an_array() = BadValue, "Cannot apply $pull to a non-array value";
}

/// The elements to remove.
#[derive(Debug)]
pub(in crate::update) enum Pull {
    /// Documents that match.
    Documents(Filter),
    /// Values that satisfy operators; the filter sees an element as the field with the empty name.
    Values(Filter),
    /// Values that equal one of these.
    Equal(ValueSet),
}

/// The operators that apply to a value; for an element `$not` is not among them.
const VALUE_OPERATORS: &[&str] = &[
    "$eq",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$ne",
    "$in",
    "$nin",
    "$size",
    "$all",
    "$mod",
    "$exists",
    "$regex",
    "$options",
    "$elemMatch",
    "$type",
    "$near",
    "$nearSphere",
    "$geoNear",
    "$geoWithin",
    "$within",
    "$geoIntersects",
    "$bitsAllSet",
    "$bitsAllClear",
    "$bitsAnySet",
    "$bitsAnyClear",
];

pub(super) fn parse_pull(field: Element<'_>, context: &Context) -> Result<Operation> {
    Ok(Operation::Pull(match field.value.get() {
        Value::Document(condition) if !begins_with_value_operator(condition) => {
            Pull::Documents(parse_condition(condition, context)?)
        }
        Value::Document(_) | Value::Regex { .. } => {
            let mut wrapped = Vec::new();
            wrap(field.value, &mut wrapped);
            Pull::Values(parse_condition(Doc::trusted(&wrapped), context)?)
        }
        _ => Pull::Equal(ValueSet::new(vec![field.value.to_buf()], context.collator())?),
    }))
}

fn parse_condition(condition: Doc<'_>, context: &Context) -> Result<Filter> {
    Filter::draft(condition, Purpose::Element, context)?.finish(context)
}

pub(super) fn parse_pull_all(field: Element<'_>, context: &Context) -> Result<Operation> {
    let Value::Array(values) = field.value.get() else {
        return Err(operand_not_an_array(field.value.kind().alias()));
    };
    let values = values.iter().map(|element| element.value.to_buf()).collect();
    Ok(Operation::Pull(Pull::Equal(ValueSet::new(values, context.collator())?)))
}

fn begins_with_value_operator(condition: Doc<'_>) -> bool {
    condition
        .iter()
        .next()
        .is_some_and(|first| VALUE_OPERATORS.iter().any(|name| first.name == *name))
}

/// Writes a document with the value as its only field, under the empty name.
fn wrap(value: RawValue<'_>, out: &mut Vec<u8>) {
    out.clear();
    DocWriter::new(out).append_raw("", value);
}

impl Pull {
    pub(super) fn change(
        &self,
        walk: &mut Walk<'_>,
        old: RawValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<WriteStep> {
        let Value::Array(array) = old.get() else { return Err(not_an_array()) };
        let mut removed = false;
        let mut writer = ArrayWriter::new(out);
        for element in array {
            if self.takes(element.value, walk.context.collator(), &mut walk.scratch)? {
                removed = true;
            } else {
                writer.push_raw(element.value);
            }
        }
        writer.finish();
        Ok(if removed { WriteStep::Write(Type::Array) } else { WriteStep::Keep })
    }

    fn takes(
        &self,
        value: RawValue<'_>,
        collator: Option<&dyn Collator>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool> {
        match self {
            Pull::Documents(_) if value.kind() != Type::Document => Ok(false),
            Pull::Documents(filter) => filter.matches(Doc::trusted(value.bytes())),
            Pull::Values(filter) => {
                wrap(value, scratch);
                filter.matches(Doc::trusted(scratch))
            }
            Pull::Equal(values) => Ok(values.find(value, collator)?.is_some()),
        }
    }
}
