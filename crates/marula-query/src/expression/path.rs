//! Field paths of expressions: `a.b` over documents, and over the documents in arrays.
//!
//! Unlike in a filter, a part is never an array index, and an array inside an array is not entered.

use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::Arena;

/// The maximum number of parts of a path: the nesting limit of BSON.
pub(crate) const PARTS_MAX: usize = 200;

errors! {
    /// The path is empty.
    path_empty() = 40352, "FieldPath cannot be constructed with empty string";
    /// The path ends with a dot.
    path_ends_with_dot() = 40353, "FieldPath must not end with a '.'.";
    /// The path has more parts than BSON may nest.
    pub(crate) path_too_long() = Overflow, "FieldPath is too long";
    /// The path has an empty part.
    path_part_empty() = 15998, "FieldPath field names may not be empty strings.";
    /// A part of the path starts with a dollar sign.
    path_part_dollar() = 16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.";
    /// A part of the path contains a NUL, at which mongod's message ends.
    path_part_nul() = 16411, "FieldPath field names may not contain '";
}

/// A dotted path, split during parsing; an empty path is the whole value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Path {
    parts: Box<[Box<[u8]>]>,
}

impl Path {
    /// Same as [`parse`](Path::parse), for the path of an expression: its variable counts as a part
    /// too.
    pub(crate) fn parse_of_expression(text: &[u8]) -> Result<Path> {
        Path::parse_up_to(text, PARTS_MAX - 1)
    }

    /// Splits and checks `text` like mongod does for a path of an aggregation.
    pub fn parse(text: &[u8]) -> Result<Path> {
        Path::parse_up_to(text, PARTS_MAX)
    }

    fn parse_up_to(text: &[u8], parts_max: usize) -> Result<Path> {
        if text.is_empty() {
            return Err(path_empty());
        }
        if text.ends_with(b".") {
            return Err(path_ends_with_dot());
        }
        let parts: Box<[Box<[u8]>]> = text.split(|&byte| byte == b'.').map(Into::into).collect();
        if parts.len() > parts_max {
            return Err(path_too_long());
        }
        parts.iter().try_for_each(|part| check_field_name(part))?;
        Ok(Path { parts })
    }

    /// Checks the length of a path that nested documents of a specification form together.
    pub(crate) fn check_length(parts: usize) -> Result<()> {
        if parts > PARTS_MAX { Err(path_too_long()) } else { Ok(()) }
    }

    /// Splits `text` without checking the names of its parts.
    pub(crate) fn split(text: &[u8]) -> Path {
        Path { parts: text.split(|&byte| byte == b'.').map(Into::into).collect() }
    }

    /// The parts of the path.
    pub fn parts(&self) -> &[Box<[u8]>] {
        &self.parts
    }

    /// Returns whether the path is the whole value.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The dotted path.
    pub fn text(&self) -> Vec<u8> {
        self.parts.join(&b'.')
    }

    /// The value at the path; `None` if there is none.
    #[inline]
    pub fn eval<'a>(&self, doc: Doc<'a>, arena: &'a Arena) -> Result<Option<Value<'a>>> {
        match &*self.parts {
            [name] => Ok(doc.get(name)),
            [] => Ok(Some(Value::Document(doc))),
            parts => walk(doc, parts, arena),
        }
    }

    /// The value at the path inside `value`: a document, or an array of documents.
    pub(crate) fn eval_value<'a>(
        &self,
        value: Value<'a>,
        arena: &'a Arena,
    ) -> Result<Option<Value<'a>>> {
        step_into(value, &self.parts, arena)
    }
}

/// Checks a part of a path, or the name of a field that an expression creates.
pub(crate) fn check_field_name(name: &[u8]) -> Result<()> {
    match name.first() {
        None => Err(path_part_empty()),
        Some(b'$') if !may_start_with_dollar(name) => Err(path_part_dollar()),
        Some(_) if name.contains(&0) => Err(path_part_nul()),
        Some(_) => Ok(()),
    }
}

/// Returns whether a name may start with a dollar sign: a field of a DBRef, or a name for metadata
/// of a document.
pub(crate) fn may_start_with_dollar(name: &[u8]) -> bool {
    matches!(
        name,
        b"$id"
            | b"$ref"
            | b"$db"
            | b"$recordId"
            | b"$sortKey"
            | b"$searchScore"
            | b"$searchSortValues"
    )
}

fn walk<'a>(mut doc: Doc<'a>, parts: &[Box<[u8]>], arena: &'a Arena) -> Result<Option<Value<'a>>> {
    let Some((last, init)) = parts.split_last() else {
        return Ok(Some(Value::Document(doc)));
    };
    for (index, part) in init.iter().enumerate() {
        match doc.get(part) {
            Some(Value::Document(inner)) => doc = inner,
            Some(value @ Value::Array(_)) => return step_into(value, &parts[index + 1..], arena),
            _ => return Ok(None),
        }
    }
    Ok(doc.get(last))
}

/// Follows `parts` from a value; for an array, returns the array of its documents' values.
fn step_into<'a>(
    value: Value<'a>,
    parts: &[Box<[u8]>],
    arena: &'a Arena,
) -> Result<Option<Value<'a>>> {
    match value {
        Value::Document(doc) => walk(doc, parts, arena),
        Value::Array(items) => {
            let found = arena.array_of(|out| {
                for item in items.values() {
                    if let Value::Document(doc) = item
                        && let Some(value) = walk(doc, parts, arena)?
                    {
                        out.push(value)?;
                    }
                }
                Ok(())
            });
            found.map(Some)
        }
        _ => Ok(None),
    }
}
