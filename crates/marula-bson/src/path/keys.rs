//! The values of a path as index keys and sort keys.
//!
//! Unlike a query condition, every document has a key: a missing field is null, and an empty array
//! at the end of the path is undefined. An array gives one key per element.

use std::fmt;

use bstr::{BStr, ByteSlice};

use super::{DEPTH_MAX, FieldPath, Tail};
use crate::{Doc, RawValue, Type, Value};

/// A number in a path is both an index of an array and a field name in one of its elements.
///
/// Displays as mongod's message for code 16746.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AmbiguousField<'a> {
    /// The part of the path.
    pub field: &'a BStr,
    /// The array.
    pub array: Doc<'a>,
}

impl fmt::Display for AmbiguousField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Ambiguous field name found in array (do not use numeric field names in embedded \
             elements in an array), field: '{}' for array: {}",
            self.field, self.array
        )
    }
}

impl FieldPath {
    /// Visits every value that an index on this path alone has for `doc`; at least one.
    ///
    /// - A missing field, and a scalar where parts remain, is null.
    /// - An array at the end gives its elements, which are not entered; an empty one gives
    ///   undefined.
    /// - In an array with parts remaining, a part that is the index of an element selects that
    ///   element, and an array selected by the last part is one value; any other part is a field of
    ///   each element that is a document, and null for the other elements (and for an array without
    ///   elements).
    ///
    /// A value may be visited more than once.
    /// Errors: [`AmbiguousField`].
    /// Source: mongod 6.0, queried through sort keys and `returnKey`.
    pub fn keys<'a>(
        &'a self,
        doc: Doc<'a>,
        mut visit: impl FnMut(Value<'a>),
    ) -> Result<(), AmbiguousField<'a>> {
        let tail = Tail { parts: self.parts(), indexes: self.indexes() };
        keys_of_doc(doc, tail, 0, &mut visit)
    }
}

fn keys_of_doc<'a>(
    mut doc: Doc<'a>,
    mut tail: Tail<'a>,
    depth: u32,
    visit: &mut impl FnMut(Value<'a>),
) -> Result<(), AmbiguousField<'a>> {
    loop {
        let Some(value) = doc.get_raw(tail.name()) else {
            visit(Value::Null);
            return Ok(());
        };
        let Some(rest) = tail.rest() else {
            keys_of_leaf(value, visit);
            return Ok(());
        };
        tail = rest;
        match value.kind() {
            Type::Document => doc = Doc::trusted(value.bytes()),
            Type::Array => {
                return keys_of_array(Doc::trusted(value.bytes()), tail, depth + 1, visit);
            }
            _ => {
                visit(Value::Null);
                return Ok(());
            }
        }
    }
}

fn keys_of_leaf<'a>(value: RawValue<'a>, visit: &mut impl FnMut(Value<'a>)) {
    let Some(array) = value.get().as_array() else { return visit(value.get()) };
    if array.is_empty() {
        return visit(Value::Undefined);
    }
    array.values().for_each(visit);
}

fn keys_of_array<'a>(
    array: Doc<'a>,
    tail: Tail<'a>,
    depth: u32,
    visit: &mut impl FnMut(Value<'a>),
) -> Result<(), AmbiguousField<'a>> {
    let chosen = tail.index().and_then(|index| array.iter().nth(index));
    if let Some(chosen) = chosen {
        return keys_of_chosen(array, chosen.value, tail, depth, visit);
    }
    if array.is_empty() || depth > DEPTH_MAX {
        visit(Value::Null);
        return Ok(());
    }
    for element in array {
        match element.value.kind() {
            Type::Document => {
                keys_of_doc(Doc::trusted(element.value.bytes()), tail, depth, visit)?;
            }
            _ => visit(Value::Null),
        }
    }
    Ok(())
}

/// The keys of the element that a part of the path selected by its index.
fn keys_of_chosen<'a>(
    array: Doc<'a>,
    chosen: RawValue<'a>,
    tail: Tail<'a>,
    depth: u32,
    visit: &mut impl FnMut(Value<'a>),
) -> Result<(), AmbiguousField<'a>> {
    let is_ambiguous = array.iter().any(|element| {
        element.value.kind() == Type::Document
            && Doc::trusted(element.value.bytes()).get_raw(tail.name()).is_some()
    });
    if is_ambiguous {
        return Err(AmbiguousField { field: tail.name().as_bstr(), array });
    }
    let inner = Doc::trusted(chosen.bytes());
    match (tail.rest(), chosen.kind()) {
        (Some(rest), Type::Document) => return keys_of_doc(inner, rest, depth, visit),
        (Some(rest), Type::Array) => return keys_of_array(inner, rest, depth + 1, visit),
        (Some(_), _) => visit(Value::Null),
        (None, Type::Array) if inner.is_empty() => visit(Value::Undefined),
        (None, _) => visit(chosen.get()),
    }
    Ok(())
}
