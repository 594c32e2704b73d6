//! `$type`: sets of BSON types, by number and by alias.

use bstr::{BStr, ByteSlice};
use marula_bson::{RawValue, Type, Value};
use marula_error::{Result, errors};

use super::node::{Predicate, TypeSet};
use crate::expression::short_double_text;

errors! {
    /// A type is neither a number nor a string.
    type_bad_operand() = TypeMismatch, "type must be represented as a number or a string";
    /// A string is not the alias of a type.
    type_unknown_alias(name: &BStr) = BadValue, "Unknown type name alias: {name}";
    /// The type is `"missing"`, which exists in expressions but not in documents.
    type_missing() = BadValue, "'missing' is not a legal type name. To query for non-existence of a field, use {{$exists:false}}.";
    /// A number is not the number of a type.
    type_unknown_number(shown: &str) = BadValue, "Invalid numerical type code: {shown}";
    /// The type is zero, the old end of a document.
    type_zero(shown: &str) = BadValue, "Invalid numerical type code: {shown}. Instead use {{$exists:false}}.";
    /// The array of types is empty.
    type_empty(path: &BStr) = FailedToParse, "{path} must match at least one type";
}

/// Parses one type or an array of them.
pub(super) fn parse(path: &BStr, operand: RawValue<'_>) -> Result<Predicate> {
    let mut types = TypeSet::EMPTY;
    match operand.get() {
        Value::Array(array) => {
            for value in array.values() {
                insert(&mut types, value)?;
            }
            if array.is_empty() {
                return Err(type_empty(path));
            }
        }
        value => insert(&mut types, value)?,
    }
    Ok(Predicate::Type(types))
}

/// Adds the type that `value` names by number or alias.
pub(crate) fn insert(types: &mut TypeSet, value: Value<'_>) -> Result<()> {
    match value {
        Value::String(alias) => insert_alias(types, alias),
        number if number.kind().is_number() => {
            types.insert(of_number(number)?);
            Ok(())
        }
        _ => Err(type_bad_operand()),
    }
}

/// Adds the type with this alias, or the four number types.
pub(crate) fn insert_alias(types: &mut TypeSet, alias: &BStr) -> Result<()> {
    if alias == "number" {
        types.insert_numbers();
        return Ok(());
    }
    let kind = every_type().find(|kind| alias == kind.alias());
    types.insert(kind.ok_or_else(|| match alias.as_bytes() {
        b"missing" => type_missing(),
        _ => type_unknown_alias(alias),
    })?);
    Ok(())
}

fn of_number(number: Value<'_>) -> Result<Type> {
    let code = number.as_exact_i64();
    let shown = || short_double_text(number.as_f64().unwrap_or(f64::NAN));
    if code == Some(0) {
        return Err(type_zero(&shown()));
    }
    every_type()
        .find(|&kind| code == Some(i64::from(code_of(kind))))
        .ok_or_else(|| type_unknown_number(&shown()))
}

/// The number of a type in `$type` and `explain`: `MinKey` is −1.
pub(crate) fn code_of(kind: Type) -> i32 {
    match kind {
        Type::MinKey => -1,
        other => i32::from(other.tag()),
    }
}

fn every_type() -> impl Iterator<Item = Type> {
    (0..=u8::MAX).filter_map(Type::from_tag)
}
