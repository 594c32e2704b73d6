//! Checks and completes documents before they are stored: `_id` comes first and is generated if
//! missing; empty timestamps are filled in.

use std::sync::atomic::{AtomicU64, Ordering};

use marula_bson::{Doc, DocWriter, ObjectId, Type, Value};
use marula_error::{Result, errors};
use marula_query::update::{DEPTH_MAX, EmptyTimestamps, is_deeper};

/// The maximum size of a document. Source: manual "MongoDB Limits and Thresholds": 16 MiB.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

errors! {
    too_deep() = Overflow, "cannot insert document because it exceeds {DEPTH_MAX} levels of nesting";
    insert_too_large(size: usize) = BadValue, "object to insert too large. size in bytes: {size}, max size: {DOCUMENT_BYTES_MAX}";
    id_twice() = BadValue, "can't have multiple _id fields in one document";
    id_type(kind: &str) = InvalidIdField, "The '_id' value cannot be of type {kind}";
    id_dollar_field(field: &str) = DollarPrefixedFieldName, "_id fields may not contain '$'-prefixed fields: {field} is not valid for storage.";
    result_too_large(size: usize) = BSONObjectTooLarge, "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and 16793600(16MB)";
}

static INSERTS_WITH_DOLLARS: AtomicU64 = AtomicU64::new(0);

/// The number of inserted documents with a top-level field name that begins with a dollar sign.
pub fn inserts_with_dollars() -> u64 {
    INSERTS_WITH_DOLLARS.load(Ordering::Relaxed)
}

/// The source of a document to insert.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A client's insert.
    Insert(EmptyTimestamps),
    /// An upsert, which has checked the names within the `_id` by the rules of updates, and has
    /// filled the empty timestamps of a replacement. As in mongod, a replacement may have further
    /// fields of the name `_id`, here as in a document that is there.
    Update,
    /// The catalogue, which has checked the parts of the document.
    Catalogue,
}

/// Writes `doc` in its stored form into `out`, which is cleared first.
///
/// `next_timestamp` makes the replacement of empty top-level timestamps, unless they are kept;
/// `now_ms` dates a new `_id`. Errors: `insert_too_large`, `id_twice`, `id_type`,
/// `id_dollar_field`.
pub(super) fn prepare_insert(
    doc: Doc<'_>,
    now_ms: i64,
    origin: Origin,
    next_timestamp: &mut dyn FnMut() -> u64,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.clear();
    if origin != Origin::Catalogue {
        if doc.as_bytes().len() > DOCUMENT_BYTES_MAX {
            return Err(insert_too_large(doc.as_bytes().len()));
        }
        if is_deeper(doc, DEPTH_MAX) {
            return Err(too_deep());
        }
    }
    let fills = origin == Origin::Insert(EmptyTimestamps::Filled);
    let mut has_empty_timestamp = false;
    let mut has_dollar = false;
    let (mut id, mut id_at) = (None, None);
    for (position, element) in doc.iter().enumerate() {
        if element.name == "_id" {
            match origin {
                Origin::Insert(_) => check_id_value(element.value.get())?,
                Origin::Update | Origin::Catalogue => check_id_type(element.value.get())?,
            }
            if id.is_none() {
                id = Some(element.value);
                id_at = Some(position);
            } else if let Origin::Insert(_) = origin {
                return Err(id_twice());
            }
            continue;
        }
        has_dollar |= element.name.first() == Some(&b'$');
        if element.value.kind() == Type::Timestamp && fills {
            has_empty_timestamp |= element.value.get() == Value::Timestamp(0);
        }
    }
    if has_dollar {
        INSERTS_WITH_DOLLARS.fetch_add(1, Ordering::Relaxed);
    }
    if id_at == Some(0) && !has_empty_timestamp {
        out.extend_from_slice(doc.as_bytes());
        return Ok(());
    }
    let mut writer = DocWriter::new(out);
    match id {
        Some(id) => writer.append_raw("_id", id),
        None => writer.append("_id", new_id(now_ms)),
    };
    for (_, element) in doc.iter().enumerate().filter(|(at, _)| Some(*at) != id_at) {
        if fills && element.value.get() == Value::Timestamp(0) {
            writer.append(element.name, Value::Timestamp(next_timestamp()));
        } else {
            writer.append_raw(element.name, element.value);
        }
    }
    writer.finish();
    if out.len() > DOCUMENT_BYTES_MAX {
        return Err(insert_too_large(out.len()));
    }
    Ok(())
}

/// Generates an `_id`.
pub fn new_id(now_ms: i64) -> ObjectId {
    ObjectId::generate(u32::try_from(now_ms / 1000).unwrap_or(0))
}

/// Checks the `_id` of a document that a client inserts.
///
/// Errors: `id_type`, `id_dollar_field`, `id_twice`.
pub fn check_id(doc: Doc<'_>) -> Result<()> {
    let mut ids = doc.iter().filter(|field| field.name == "_id");
    let Some(id) = ids.next() else { return Ok(()) };
    check_id_value(id.value.get())?;
    match ids.next() {
        Some(_) => Err(id_twice()),
        None => Ok(()),
    }
}

/// Checks that a value is allowed as the `_id` of a document that a client inserts.
fn check_id_value(id: Value<'_>) -> Result<()> {
    check_id_type(id)?;
    id.as_doc().map_or(Ok(()), |doc| check_id_fields(doc, 0))
}

/// Checks that the type of a value is allowed for an `_id`.
pub fn check_id_type(id: Value<'_>) -> Result<()> {
    match id {
        Value::Array(_) | Value::Regex { .. } | Value::Undefined => Err(id_type(id.kind().alias())),
        _ => Ok(()),
    }
}

/// Checks the field names within an `_id`: a document may begin with the fields of a DBRef, whose
/// `$id` may be anything, and has no other names with a dollar sign. Validation has bounded the
/// depth.
fn check_id_fields(doc: Doc<'_>, depth: u32) -> Result<()> {
    let mut fields = doc.iter().skip(dbref_fields(doc));
    fields.try_for_each(|element| match element.value.get() {
        _ if element.name.starts_with(b"$") => Err(id_dollar_field(&element.name.to_string())),
        Value::Document(inner) | Value::Array(inner) if depth < 200 => {
            check_id_fields(inner, depth + 1)
        }
        _ => Ok(()),
    })
}

/// Returns the number of fields at the front of a document that form a DBRef.
fn dbref_fields(doc: Doc<'_>) -> usize {
    let mut front = doc.iter().take(3);
    let mut next_is = |name: &str, is_text: bool| {
        front.next().is_some_and(|field| {
            field.name == name && (!is_text || field.value.kind() == Type::String)
        })
    };
    if !next_is("$ref", true) || !next_is("$id", false) {
        return 0;
    }
    if next_is("$db", true) { 3 } else { 2 }
}

/// Checks the size of the result of an update.
pub(super) fn check_size(size: usize) -> Result<()> {
    if size > DOCUMENT_BYTES_MAX { Err(result_too_large(size)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marula_bson::{DocBuf, doc};

    const FILLED: Origin = Origin::Insert(EmptyTimestamps::Filled);
    const KEPT: Origin = Origin::Insert(EmptyTimestamps::Kept);

    fn check(given: &DocBuf, expected: &DocBuf) {
        let mut out = Vec::new();
        prepare_insert(given.as_doc(), 0, FILLED, &mut || 42, &mut out).unwrap();
        assert_eq!(DocBuf::trusted(out), *expected);
    }

    #[test]
    fn the_id_comes_first_and_empty_timestamps_are_filled() {
        check(&doc! { "_id": 1, "a": 2 }, &doc! { "_id": 1, "a": 2 });
        check(&doc! { "a": 2, "_id": 1 }, &doc! { "_id": 1, "a": 2 });
        check(
            &doc! { "_id": 1, "t": Value::Timestamp(0), "u": Value::Timestamp(1) },
            &doc! { "_id": 1, "t": Value::Timestamp(42), "u": Value::Timestamp(1) },
        );
        check(
            &doc! { "_id": 1, "n": { "t": Value::Timestamp(0) } },
            &doc! { "_id": 1, "n": { "t": Value::Timestamp(0) } },
        );
        check(&doc! { "_id": Value::Timestamp(0) }, &doc! { "_id": Value::Timestamp(0) });
    }

    #[test]
    fn empty_timestamps_may_be_kept() {
        let mut out = Vec::new();
        let given = doc! { "t": Value::Timestamp(0), "_id": 1 };
        prepare_insert(given.as_doc(), 0, KEPT, &mut || 42, &mut out).unwrap();
        assert_eq!(DocBuf::trusted(out), doc! { "_id": 1, "t": Value::Timestamp(0) });
    }

    #[test]
    fn a_missing_id_is_made() {
        let mut out = Vec::new();
        prepare_insert(doc! { "a": 1 }.as_doc(), 5_000, FILLED, &mut || 0, &mut out).unwrap();
        let Some(Value::ObjectId(id)) = Doc::trusted(&out).get("_id") else {
            panic!("no ObjectId")
        };
        assert_eq!(id.unix_seconds(), 5);
    }

    #[test]
    fn there_is_one_id() {
        for twice in [doc! { "_id": 1, "_id": 1 }, doc! { "a": 1, "_id": 1, "b": 1, "_id": 2 }] {
            let out = &mut Vec::new();
            assert!(prepare_insert(twice.as_doc(), 0, FILLED, &mut || 0, out).is_err());
        }
    }

    #[test]
    fn some_values_may_not_be_ids() {
        for bad in
            [doc! { "_id": [] }, doc! { "_id": { "$a": 1 } }, doc! { "_id": Value::Undefined }]
        {
            let out = &mut Vec::new();
            assert!(prepare_insert(bad.as_doc(), 0, KEPT, &mut || 0, out).is_err());
        }
    }

    #[test]
    fn an_id_may_be_a_dbref() {
        let answer = |id: DocBuf| match check_id_value(id.as_doc().into()) {
            Ok(()) => "accepted".to_owned(),
            Err(error) => error.message().split(": ").nth(1).unwrap_or_default().to_owned(),
        };
        // The answers are mongod's.
        for (id, expected) in [
            (doc! { "$ref": "o", "$id": 1 }, "accepted"),
            (doc! { "$ref": "o", "$id": 1, "$db": "x", "z": 1 }, "accepted"),
            (doc! { "$ref": "o", "$id": { "$q": 1 } }, "accepted"),
            (doc! { "a": { "b": [{ "$ref": "o", "$id": 1 }] } }, "accepted"),
            (doc! { "$ref": 1, "$id": 1 }, "$ref is not valid for storage."),
            (doc! { "$ref": "o" }, "$ref is not valid for storage."),
            (doc! { "$id": 1, "$ref": "o" }, "$id is not valid for storage."),
            (doc! { "a": 1, "$ref": "o", "$id": 1 }, "$ref is not valid for storage."),
            (doc! { "$ref": "o", "$id": 1, "$db": 1 }, "$db is not valid for storage."),
            (doc! { "$ref": "o", "$id": 1, "z": 1, "$db": "x" }, "$db is not valid for storage."),
            (doc! { "$ref": "o", "$id": 1, "z": { "$q": 1 } }, "$q is not valid for storage."),
            (doc! { "a": [{ "$b": 1 }] }, "$b is not valid for storage."),
        ] {
            assert_eq!(answer(id.clone()), expected, "{id:?}");
        }
    }
}
