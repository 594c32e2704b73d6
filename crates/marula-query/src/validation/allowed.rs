//! The operators permitted in a validator: none that needs an index, runs JavaScript or is random.

use bstr::ByteSlice;
use marula_bson::{Doc, Element, RawValue, Value};
use marula_error::{Result, errors};

use crate::filter::{is_dbref_name, is_operators};

errors! {
    /// An operator that a validator does not support.
    not_in_this_context(name: &str) = BadValue, "{name} is not allowed in this context";
    /// A search by distance.
    pub near_not_allowed() = 5626500, "$geoNear, $near, and $nearSphere are not allowed in this context";
    /// A random expression.
    rand_not_allowed() = 3040500, "$rand not allowed inside collection validators";
    /// An expression in JavaScript.
    function_not_allowed() = 4660800, "$function cannot be used inside a validator.";
    /// An internal expression in JavaScript.
    emit_not_allowed() = 4660801, "$_internalJsEmit cannot be used inside a validator.";
}

/// Checks that a filter is permitted as a validator.
///
/// Errors: those of this module.
pub fn check(filter: Doc<'_>) -> Result<()> {
    check_for(filter, true)
}

/// Checks that a filter is permitted on a list that is made in memory, such as that of the
/// collections: it searches nothing by an index, and does not run JavaScript.
///
/// Errors: `not_in_this_context`, `near_not_allowed`.
pub fn check_on_list(filter: Doc<'_>) -> Result<()> {
    check_for(filter, false)
}

fn check_for(filter: Doc<'_>, is_validator: bool) -> Result<()> {
    for Element { name, value } in filter {
        match (name.as_bytes(), value.get()) {
            (b"$and" | b"$or" | b"$nor", Value::Array(branches)) => {
                let mut branches = branches.values().filter_map(|branch| branch.as_doc());
                branches.try_for_each(|branch| check_for(branch, is_validator))?;
            }
            (b"$where", _) => return Err(not_in_this_context("$where")),
            (b"$text", _) => return Err(not_in_this_context("$text")),
            // Every rate but 0 and 1 uses `$rand`.
            (b"$sampleRate", rate)
                if is_validator && rate.as_f64().is_some_and(|rate| rate > 0.0 && rate < 1.0) =>
            {
                return Err(rand_not_allowed());
            }
            (b"$expr", _) if is_validator => check_expression(value)?,
            (path, Value::Document(operators))
                if (!path.starts_with(b"$") || is_dbref_name(path)) && is_operators(operators) =>
            {
                check_operators(operators)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_operators(operators: Doc<'_>) -> Result<()> {
    for Element { name, value } in operators {
        match (name.as_bytes(), value.get()) {
            (b"$near" | b"$nearSphere" | b"$geoNear", _) => return Err(near_not_allowed()),
            (b"$not", Value::Document(inner)) => check_operators(inner)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_expression(expression: RawValue<'_>) -> Result<()> {
    match expression.get() {
        Value::Array(items) => items.iter().try_for_each(|item| check_expression(item.value)),
        Value::Document(object) => object.iter().try_for_each(|element| {
            match element.name.as_bytes() {
                b"$literal" | b"$const" => return Ok(()),
                b"$rand" => return Err(rand_not_allowed()),
                b"$function" => return Err(function_not_allowed()),
                b"$_internalJsEmit" => return Err(emit_not_allowed()),
                _ => {}
            }
            check_expression(element.value)
        }),
        _ => Ok(()),
    }
}
