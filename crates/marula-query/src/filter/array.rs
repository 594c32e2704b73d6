//! `$all` and `$elemMatch`.

use bstr::BStr;
use marula_bson::{Doc, RawValue, Value};
use marula_error::{Result, errors};

use super::node::Predicate;
use super::parse::{self, Parser, is_dbref_name, is_path_operator, is_top_operator};
use crate::regex::Regex;

errors! {
    /// The operand of `$elemMatch` is not an object.
    elem_match_not_an_object() = BadValue, "$elemMatch needs an Object";
    /// The operand of `$all` is not an array.
    all_not_an_array() = BadValue, "$all needs an array";
    /// `$all` contains an object of operators.
    all_with_operators() = BadValue, "no $ expressions in $all";
    /// `$all` mixes `$elemMatch` with other elements.
    all_inconsistent() = BadValue, "$all/$elemMatch has to be consistent";
}

/// Parses `$all`: every value must be present, or, for a list of `$elemMatch`, each must match an
/// element.
pub(super) fn parse_all(
    parser: &Parser<'_>,
    path: &BStr,
    operand: RawValue<'_>,
) -> Result<Predicate> {
    let Value::Array(array) = operand.get() else {
        return Err(all_not_an_array());
    };
    let first = array.values().next();
    let of_elements = first.and_then(first_name).is_some_and(|name| name == "$elemMatch");
    let mut list: Vec<Predicate> = array
        .iter()
        .map(|element| match of_elements {
            true => all_element(parser, path, element.value.get()),
            false => all_value(element.value),
        })
        .collect::<Result<_>>()?;
    Ok(match list.len() {
        0 => Predicate::AlwaysFalse,
        1 => list.remove(0),
        _ => Predicate::All(list),
    })
}

fn first_name(value: Value<'_>) -> Option<&BStr> {
    value.as_doc()?.iter().next().map(|first| first.name)
}

fn all_value(value: RawValue<'_>) -> Result<Predicate> {
    let decoded = value.get();
    if first_name(decoded).is_some_and(|name| is_path_operator(name)) {
        return Err(all_with_operators());
    }
    match decoded {
        Value::Regex { pattern, options } => Ok(Predicate::Regex(Regex::new(pattern, options)?)),
        _ => parse::eq(value),
    }
}

fn all_element(parser: &Parser<'_>, path: &BStr, value: Value<'_>) -> Result<Predicate> {
    let first = value.as_doc().and_then(|doc| doc.iter().next());
    match first {
        Some(first) if first.name == "$elemMatch" => parse_elem_match(parser, path, first.value),
        _ => Err(all_inconsistent()),
    }
}

/// Parses `$elemMatch` of both kinds: a filter on elements that are documents, or operators on
/// elements.
pub(super) fn parse_elem_match(
    parser: &Parser<'_>,
    _path: &BStr,
    operand: RawValue<'_>,
) -> Result<Predicate> {
    let Value::Document(doc) = operand.get() else {
        return Err(elem_match_not_an_object());
    };
    let parser = parser.inside_element();
    if is_about_values(doc) {
        // The inner operators have no path; errors show an empty one.
        parser.operators(BStr::new(""), doc).map(Predicate::ElemMatchValue)
    } else {
        Ok(Predicate::ElemMatchObject(Box::new(parser.filter(doc)?)))
    }
}

/// Returns whether the first field is an operator on a value, rather than on a document. A document
/// with a field of a DBRef has no operators.
fn is_about_values(doc: Doc<'_>) -> bool {
    let first = doc.iter().next();
    first.is_some_and(|first| first.name.starts_with(b"$") && !is_top_operator(first.name))
        && !doc.iter().any(|field| is_dbref_name(field.name))
}
