//! `$addToSet` and `$pop`.

use bstr::BStr;
use marula_bson::value::LONG_END;
use marula_bson::{ArrayWriter, Doc, Element, RawValue, Type, Value, ValueBuf};
use marula_error::{Result, errors};

use super::Operation;
use super::value_set::ValueSet;
use crate::context::Context;
use crate::update::stored;
use crate::update::trail::Trail;
use crate::update::walk::{Walk, WriteStep};

errors! {
    /// `$each` is not an array.
    each_not_an_array(kind: &str) = TypeMismatch, "The argument to $each in $addToSet must be an array but it was of type {kind}";
    /// There is another field next to `$each`.
    beside_each(operand: Doc<'_>) = BadValue, "Found unexpected fields after $each in $addToSet: {operand}";
    /// `$addToSet` at a value that is not an array.
    add_to_no_array(name: &BStr, kind: &str) = BadValue, "Cannot apply $addToSet to non-array field. Field named '{name}' has non-array type {kind}";
    /// `$pop` with an operand that is not a number.
    pop_not_a_number(field: Element<'_>) = FailedToParse, "Expected a number in: {field}";
    /// `$pop` with NaN.
    pop_nan(field: Element<'_>) = FailedToParse, "Expected an integer, but found NaN in: {field}";
    /// `$pop` with a number that is not an integer.
    pop_not_an_integer(field: Element<'_>) = FailedToParse, "Expected an integer: {field}";
    /// `$pop` with a number out of the range of a long.
    pop_out_of_range(field: Element<'_>) = FailedToParse, "Cannot represent as a 64-bit integer: {field}";
    /// `$pop` with another integer than 1 and -1.
    pop_other(number: i64) = FailedToParse, "$pop expects 1 or -1, found: {number}";
    /// `$pop` at a value that is not an array.
    pop_no_array(path: &Trail<'_>, kind: &str) = TypeMismatch, "Path '{path}' contains an element of non-array type '{kind}'";
}

/// The values of one `$addToSet`, without duplicates.
#[derive(Debug)]
pub(in crate::update) struct AddToSet {
    added: ValueSet,
    /// The number of parts of the longest path in a value.
    pub(super) inner_depth: usize,
}

pub(super) fn parse_add_to_set(field: Element<'_>, context: &Context) -> Result<Operation> {
    let mut values: Vec<ValueBuf> = Vec::new();
    let mut inner_depth = 0;
    let mut add = |value: RawValue<'_>| {
        inner_depth = inner_depth.max(stored::inner_depth(value));
        values.push(value.to_buf());
    };
    match each(field.value)? {
        Some(array) => array.iter().for_each(|element| add(element.value)),
        None => add(field.value),
    }
    let added = ValueSet::new(values, context.collator())?;
    Ok(Operation::AddToSet(AddToSet { added, inner_depth }))
}

/// Returns the array of `{ $each: […] }`.
fn each(operand: RawValue<'_>) -> Result<Option<Doc<'_>>> {
    let Value::Document(doc) = operand.get() else { return Ok(None) };
    let mut fields = doc.iter();
    let Some(first) = fields.next().filter(|first| first.name == "$each") else { return Ok(None) };
    let Value::Array(array) = first.value.get() else {
        return Err(each_not_an_array(first.value.kind().alias()));
    };
    if fields.next().is_some() {
        return Err(beside_each(doc));
    }
    Ok(Some(array))
}

impl AddToSet {
    pub(super) fn change(
        &self,
        walk: &Walk<'_>,
        old: RawValue<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<WriteStep> {
        let Value::Array(array) = old.get() else {
            return Err(add_to_no_array(at.name().into(), old.kind().alias()));
        };
        let values = self.added.values();
        let (mut is_there, mut left) = (vec![false; values.len()], values.len());
        for element in array {
            if left == 0 {
                break;
            }
            if let Some(place) = self.added.find(element.value, walk.context.collator())?
                && !std::mem::replace(&mut is_there[place], true)
            {
                left -= 1;
            }
        }
        if left == 0 {
            return Ok(WriteStep::Keep);
        }
        let added = values.iter().zip(&is_there).filter(|(_, is_there)| !**is_there);
        append(array, added.map(|(value, _)| value.as_raw()), out);
        Ok(WriteStep::Write(Type::Array))
    }

    pub(super) fn make(&self, out: &mut Vec<u8>) -> Type {
        append(Doc::EMPTY, self.added.values().iter().map(ValueBuf::as_raw), out);
        Type::Array
    }
}

/// Writes an array with further elements after its own, which are copied unchanged.
pub(super) fn append<'v>(
    array: Doc<'_>,
    added: impl Iterator<Item = RawValue<'v>>,
    out: &mut Vec<u8>,
) {
    let mut writer = ArrayWriter::continued(out, array);
    for value in added {
        writer.push_raw(value);
    }
    writer.finish();
}

/// The end from which `$pop` removes an element.
#[derive(Clone, Copy, Debug)]
pub(in crate::update) enum Pop {
    First,
    Last,
}

pub(super) fn parse_pop(field: Element<'_>, _context: &Context) -> Result<Operation> {
    let value = field.value.get();
    if !value.kind().is_number() {
        return Err(pop_not_a_number(field));
    }
    let is_double = value.kind() == Type::Double;
    match value.as_exact_i64() {
        Some(1) => Ok(Operation::Pop(Pop::Last)),
        Some(-1) => Ok(Operation::Pop(Pop::First)),
        Some(other) => Err(pop_other(other)),
        None => Err(match value.as_f64() {
            Some(number) if is_double && number.is_nan() => pop_nan(field),
            Some(number) if is_double && number.abs() < LONG_END => pop_not_an_integer(field),
            _ => pop_out_of_range(field),
        }),
    }
}

impl Pop {
    pub(super) fn change(
        self,
        old: RawValue<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<WriteStep> {
        let Value::Array(array) = old.get() else {
            return Err(pop_no_array(at, old.kind().alias()));
        };
        if array.is_empty() {
            return Ok(WriteStep::Keep);
        }
        let mut writer = ArrayWriter::new(out);
        let mut elements = array.iter().map(|element| element.value);
        match self {
            Pop::First => {
                elements.skip(1).for_each(|value| {
                    writer.push_raw(value);
                });
            }
            Pop::Last => {
                let mut held = elements.next();
                for value in elements {
                    held.replace(value).into_iter().for_each(|value| {
                        writer.push_raw(value);
                    });
                }
            }
        }
        Ok(WriteStep::Write(Type::Array))
    }
}
