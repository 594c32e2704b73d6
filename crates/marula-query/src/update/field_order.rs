//! The positions of fields that a pipeline removes and sets again.
//!
//! `[{ $unset: "a" }, { $set: { a: 1 } }]` changes the value of `a` and leaves the field at its
//! position: in mongod the position stays reserved while the document goes through stages that only
//! set and remove. Stages here write whole documents, with the field at the end;
//! [`FieldOrder::restore`] moves such fields back. A stage that outputs another document (an
//! inclusion, `$replaceRoot`) reserves nothing.

use std::collections::HashMap;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, RawValue, Type, Value};

/// The fields whose positions are restored.
#[derive(Debug)]
pub(super) struct FieldOrder {
    /// The paths that a stage sets or removes as a whole: the order inside them is that of the new
    /// value.
    whole: Vec<Vec<u8>>,
}

impl FieldOrder {
    /// Returns the fields of these stages; `None` if no field can change its position, or none is
    /// restored.
    pub(super) fn of(stages: Doc<'_>) -> Option<FieldOrder> {
        let mut whole = Vec::new();
        let mut named: Vec<&[u8]> = Vec::new();
        let mut may_move = false;
        for stage in stages.values() {
            let stage = stage.as_doc()?.iter().next()?;
            match (stage.name.as_bytes(), stage.value.get()) {
                (b"$set" | b"$addFields", Value::Document(fields)) => {
                    may_move |= fields.iter().any(|field| named.contains(&first(field.name)));
                    for field in fields {
                        named.push(first(field.name));
                        note_whole(field.name.to_vec(), field.value, &mut whole);
                    }
                }
                (b"$unset", Value::String(path)) => {
                    named.push(first(path));
                    whole.push(path.to_vec());
                }
                (b"$unset", Value::Array(paths)) => {
                    for path in paths.values().filter_map(|path| path.as_str()) {
                        named.push(first(path));
                        whole.push(path.to_vec());
                    }
                }
                (b"$project", Value::Document(fields)) => {
                    for field in fields {
                        if field.value.get().is_truthy() || !is_flag(field.value) {
                            return None;
                        }
                        named.push(first(field.name));
                        whole.push(field.name.to_vec());
                    }
                }
                _ => return None,
            }
        }
        may_move.then_some(FieldOrder { whole })
    }

    /// Returns the stages' result for `old` with its fields at their old positions; `None` if they
    /// are there.
    pub(super) fn restore(&self, old: Doc<'_>, new: Doc<'_>) -> Option<DocBuf> {
        let restored = self.restore_below(&mut Vec::new(), old, new)?;
        (restored.as_bytes() != new.as_bytes()).then_some(restored)
    }

    /// Returns `None` if a name occurs twice, so that its positions are ambiguous.
    fn restore_below(&self, path: &mut Vec<u8>, old: Doc<'_>, new: Doc<'_>) -> Option<DocBuf> {
        let mut values: HashMap<&[u8], RawValue<'_>> = HashMap::new();
        let mut count = 0;
        for element in new {
            values.insert(element.name, element.value);
            count += 1;
        }
        if values.len() != count {
            return None;
        }
        Some(DocBuf::build(|out| {
            for element in old {
                let Some(value) = values.remove(element.name.as_bytes()) else { continue };
                let end = path.len();
                path.extend_from_slice(element.name);
                let inner = self.restore_value(path, element.value, value);
                path.truncate(end);
                match inner {
                    Some(inner) => out.append(element.name, Value::Document(inner.as_doc())),
                    None => out.append_raw(element.name, value),
                };
            }
            for element in new {
                if values.contains_key(element.name.as_bytes()) {
                    out.append_raw(element.name, element.value);
                }
            }
        }))
    }

    fn restore_value(
        &self,
        path: &mut Vec<u8>,
        old: RawValue<'_>,
        new: RawValue<'_>,
    ) -> Option<DocBuf> {
        let is_document = |value: RawValue<'_>| value.kind() == Type::Document;
        if !is_document(old) || !is_document(new) || old.bytes() == new.bytes() {
            return None;
        }
        if self.whole.contains(path) {
            return None;
        }
        path.push(b'.');
        self.restore_below(path, Doc::trusted(old.bytes()), Doc::trusted(new.bytes()))
    }
}

/// Returns the first part of a path.
fn first(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'.').next().unwrap_or(path)
}

/// Records the paths that a field of `$set` sets as a whole: the field, or those of an object
/// without operators.
fn note_whole(path: Vec<u8>, value: RawValue<'_>, whole: &mut Vec<Vec<u8>>) {
    match value.get() {
        Value::Document(doc) if !doc.iter().any(|field| field.name.starts_with(b"$")) => {
            for field in doc {
                note_whole([&path, b".".as_slice(), field.name].concat(), field.value, whole);
            }
        }
        _ => whole.push(path),
    }
}

/// Returns whether a value of `$project` includes or excludes a field.
fn is_flag(value: RawValue<'_>) -> bool {
    value.kind().is_number() || value.kind() == Type::Boolean
}
