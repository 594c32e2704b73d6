//! The rules for stored documents that an update can violate: depth, size, names.

use bstr::{BStr, ByteSlice};
use marula_bson::{Doc, RawValue, Type, Value};
use marula_error::{Result, errors};

/// The maximum number of parts of the path to a value of a stored document. Source: mongod 6.0,
/// whose limit for stored documents is 20 below that for messages.
pub const DEPTH_MAX: usize = 180;
/// The maximum depth of what a pipeline gives, before it is checked as a document to store.
const RESULT_DEPTH_MAX: usize = 200;
/// The maximum number of parts of an operator's path. A document of that depth cannot be stored;
/// the limit keeps recursion along paths small.
pub(super) const PATH_PARTS_MAX: usize = 250;
/// The maximum size of a stored document. Source: manual "MongoDB Limits and Thresholds".
pub(super) const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The maximum size of a document while it is built: a message may have this much more.
const BUFFER_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + 16 * 1024;

errors! {
    /// The result of a pipeline is too deep for a document of any use.
    too_deep_result() = Overflow, "cannot convert document to BSON because it exceeds the limit of {RESULT_DEPTH_MAX} levels of nesting";
    /// The document nests too deep.
    pub(super) too_deep() = Overflow, "Document exceeds maximum nesting depth of {DEPTH_MAX}";
    /// The document is too large.
    too_large() = 17419, "Resulting document after update is larger than {DOCUMENT_BYTES_MAX}";
    /// The document is larger than the buffer in which documents are built.
    past_buffer(size: usize) = BSONObjectTooLarge, "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {BUFFER_BYTES_MAX}(16MB)";
    /// A name that begins with a dollar sign is at an invalid position.
    dollar_name(name: &BStr, path: &str) = DollarPrefixedFieldName, "The dollar ($) prefixed field '{name}' in '{path}' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith.";
    /// `$ref` or `$db` is not a string.
    dbref_not_a_string(name: &BStr, kind: &str) = InvalidDBRef, "The DBRef {name} field must be a String, not a {kind}";
    /// `$ref` without `$id`.
    dbref_ref_alone() = InvalidDBRef, "The DBRef $ref field must be followed by a $id field";
    /// `$id` without `$ref`.
    dbref_id_alone() = InvalidDBRef, "Found $id field without a $ref before it, which is invalid.";
    /// `$db` without `$id`.
    dbref_db_alone() = InvalidDBRef, "Found $db field without a $id before it, which is invalid.";
    /// The document to insert is too large.
    insert_too_large() = 17420, "Document to upsert is larger than {DOCUMENT_BYTES_MAX}";
    /// `_id` has an invalid type.
    id_type(kind: &str) = InvalidIdField, "The '_id' value cannot be of type {kind}";
    /// `_id` is an array, in a replacement.
    id_array() = NotSingleValueField, "After applying the update to the document, the (immutable) field '_id' was found to be an array or array descendant.";
}

/// Checks the size of a whole document.
pub(super) fn check_size(bytes: usize) -> Result<()> {
    if bytes <= DOCUMENT_BYTES_MAX {
        Ok(())
    } else if bytes <= BUFFER_BYTES_MAX {
        Err(too_large())
    } else {
        Err(past_buffer(bytes))
    }
}

/// Checks the size of a whole document to insert.
pub(super) fn check_insert_size(bytes: usize) -> Result<()> {
    if bytes > DOCUMENT_BYTES_MAX {
        return Err(insert_too_large());
    }
    Ok(())
}

/// Checks a top-level field whose name begins with a dollar sign, after it was written.
///
/// The parts of a DBRef are accepted in their order. A document to insert may have any such fields.
pub(super) fn check_dollar_name(name: &[u8], kind: Type, neighbours: Neighbours<'_>) -> Result<()> {
    check_dollar_part(name, kind, neighbours, "")
}

/// Checks a field whose name begins with a dollar sign, in the document at `parent`, which is empty
/// or ends in a dot.
fn check_dollar_part(
    name: &[u8],
    kind: Type,
    neighbours: Neighbours<'_>,
    parent: &str,
) -> Result<()> {
    match name {
        b"$ref" | b"$db" if kind != Type::String => {
            Err(dbref_not_a_string(name.as_bstr(), kind.alias()))
        }
        b"$ref" if neighbours.next != Some(b"$id") => Err(dbref_ref_alone()),
        b"$id" if neighbours.previous != Some(b"$ref") => Err(dbref_id_alone()),
        b"$db" if neighbours.previous != Some(b"$id") => Err(dbref_db_alone()),
        b"$ref" | b"$id" | b"$db" => Ok(()),
        _ => Err(dollar_name(name.as_bstr(), &format!("{parent}{}", name.as_bstr()))),
    }
}

/// The names of the fields before and after one.
#[derive(Clone, Copy)]
pub(super) struct Neighbours<'d> {
    previous: Option<&'d [u8]>,
    next: Option<&'d [u8]>,
}

impl<'d> Neighbours<'d> {
    /// Returns the neighbours of a field; if there is none of that name, those that it would have
    /// at the end.
    pub(super) fn of(name: &[u8], doc: Doc<'d>) -> Self {
        let mut previous = None;
        let mut names = doc.iter().map(|element| element.name.as_bytes());
        while let Some(other) = names.next() {
            if other == name {
                return Neighbours { previous, next: names.next() };
            }
            previous = Some(other);
        }
        Neighbours { previous, next: None }
    }
}

/// Checks the top-level names of a replacement.
pub(super) fn check_dollar_names(doc: Doc<'_>) -> Result<()> {
    doc.iter().filter(|element| element.name.starts_with(b"$")).try_for_each(|element| {
        let neighbours = Neighbours::of(element.name, doc);
        check_dollar_name(element.name, element.value.kind(), neighbours)
    })
}

/// Checks the depth of a whole document.
pub(super) fn check_depth(doc: Doc<'_>) -> Result<()> {
    if is_deeper(doc, DEPTH_MAX) { Err(too_deep()) } else { Ok(()) }
}

/// Checks the depth of what a pipeline makes of a document.
pub(super) fn check_result_depth(doc: Doc<'_>) -> Result<()> {
    check_depth(doc)
        .map_err(|error| if is_deeper(doc, RESULT_DEPTH_MAX) { too_deep_result() } else { error })
}

/// Checks the names of an `_id`'s fields: those with a dollar sign are the parts of a DBRef.
pub(super) fn check_id_names(id: RawValue<'_>) -> Result<()> {
    let Value::Document(id) = id.get() else { return Ok(()) };
    id.iter().filter(|element| element.name.starts_with(b"$")).try_for_each(|element| {
        let neighbours = Neighbours::of(element.name, id);
        check_dollar_part(element.name, element.value.kind(), neighbours, "_id.")
    })
}

/// Checks the `_id` of a document to insert.
pub(super) fn check_id(id: RawValue<'_>) -> Result<()> {
    check_id_kind(id)?;
    check_id_names(id)
}

/// Checks the type of an `_id`.
pub(super) fn check_id_kind(id: RawValue<'_>) -> Result<()> {
    match id.kind() {
        kind @ (Type::Array | Type::Regex | Type::Undefined) => Err(id_type(kind.alias())),
        _ => Ok(()),
    }
}

/// Checks that the `_id` of a replacement is not an array.
pub(super) fn check_id_no_array(id: RawValue<'_>) -> Result<()> {
    if id.kind() == Type::Array {
        return Err(id_array());
    }
    Ok(())
}

/// Returns the number of parts of the longest path inside a value: zero for a scalar.
pub(super) fn inner_depth(value: RawValue<'_>) -> usize {
    match value.get() {
        Value::Document(doc) | Value::Array(doc) => depth_of(doc),
        _ => 0,
    }
}

/// Returns whether a document has a path of more than `parts` parts.
pub fn is_deeper(doc: Doc<'_>, parts: usize) -> bool {
    if parts == 0 {
        return !doc.is_empty();
    }
    doc.iter().any(|element| match element.value.get() {
        Value::Document(inner) | Value::Array(inner) => is_deeper(inner, parts - 1),
        _ => false,
    })
}

/// Returns the number of parts of the longest path in a document.
fn depth_of(doc: Doc<'_>) -> usize {
    /// Messages nest less; this bounds the recursion on bytes that are not from a message.
    const SCAN_MAX: usize = 256;
    fn below(doc: Doc<'_>, depth: usize) -> usize {
        if depth > SCAN_MAX {
            return depth;
        }
        let deepest = doc.iter().map(|element| match element.value.get() {
            Value::Document(inner) | Value::Array(inner) => below(inner, depth + 1),
            _ => depth + 1,
        });
        deepest.max().unwrap_or(depth)
    }
    below(doc, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use marula_bson::doc;

    #[test]
    fn depth_counts_the_parts_of_the_longest_path() {
        for (built, expected) in [
            (doc! {}, 0),
            (doc! { "a": 1 }, 1),
            (doc! { "a": {}, "b": 1 }, 1),
            (doc! { "a": [1] }, 2),
            (doc! { "a": [{ "b": [] }], "c": 1 }, 3),
        ] {
            assert_eq!(depth_of(built.as_doc()), expected, "{built:?}");
            for parts in 0..4 {
                assert_eq!(is_deeper(built.as_doc(), parts), expected > parts, "{built:?}");
            }
        }
    }
}
