//! Field paths of expressions: `a.b` over documents, and over the documents in arrays.
//!
//! Unlike in a filter, a part is never an array index, and an array inside an array is not entered.

use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::Arena;

/// How many parts a path may have: the nesting depth of BSON.
const PARTS_MAX: usize = 200;

errors! {
    /// A path has no text.
    path_empty() = 40352, "FieldPath cannot be constructed with empty string";
    /// A path ends with a dot.
    path_ends_with_dot() = 40353, "FieldPath must not end with a '.'.";
    /// A path has more parts than BSON may be deep.
    path_too_long() = Overflow, "FieldPath is too long";
    /// A path has an empty part.
    path_part_empty() = 15998, "FieldPath field names may not be empty strings.";
    /// A part of a path starts with a dollar sign.
    path_part_dollar() = 16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.";
    /// A part of a path has a NUL byte, at which mongod's message ends.
    path_part_nul() = 16411, "FieldPath field names may not contain '";
}

/// A dotted path, split at parse time; it may have no parts and then is the whole value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Path {
    parts: Box<[Box<[u8]>]>,
}

impl Path {
    /// As [`parse`](Path::parse), of a path that an expression reads: the variable that it is read
    /// from is a part, too.
    pub(crate) fn parse_of_expression(text: &[u8]) -> Result<Path> {
        Path::parse_up_to(text, PARTS_MAX - 1)
    }

    /// Splits and checks `text`, as mongod checks a path of an aggregation.
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

    /// Splits `text` and leaves unchecked what its parts are called.
    pub(crate) fn split(text: &[u8]) -> Path {
        Path { parts: text.split(|&byte| byte == b'.').map(Into::into).collect() }
    }

    /// The parts in order.
    pub fn parts(&self) -> &[Box<[u8]>] {
        &self.parts
    }

    /// Whether the path is the whole value.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The path with its dots.
    pub fn text(&self) -> Vec<u8> {
        self.parts.join(&b'.')
    }

    /// The value at the path, `None` where there is none.
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

/// Checks one part of a path, or the name of a field that an expression makes.
pub(crate) fn check_field_name(name: &[u8]) -> Result<()> {
    match name.first() {
        None => Err(path_part_empty()),
        Some(b'$') if !is_of_reference(name) => Err(path_part_dollar()),
        Some(_) if name.contains(&0) => Err(path_part_nul()),
        Some(_) => Ok(()),
    }
}

/// Whether a name is one of the fields of a reference to another document, which alone may start
/// with a dollar sign.
pub(crate) fn is_of_reference(name: &[u8]) -> bool {
    matches!(name, b"$id" | b"$ref" | b"$db")
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

/// Follows `parts` from a value; an array answers the array of what its documents have there.
fn step_into<'a>(
    value: Value<'a>,
    parts: &[Box<[u8]>],
    arena: &'a Arena,
) -> Result<Option<Value<'a>>> {
    match value {
        Value::Document(doc) => walk(doc, parts, arena),
        Value::Array(items) => {
            let mut found = arena.values_growing();
            for item in items.values() {
                if let Value::Document(doc) = item
                    && let Some(value) = walk(doc, parts, arena)?
                {
                    found.push(value)?;
                }
            }
            arena.array(found.into_values()).map(Some)
        }
        _ => Ok(None),
    }
}
