//! The error of a write that would add a key to a unique index twice.

use marula_bson::{Doc, DocBuf, Element, Type, Value, doc, hex};
use marula_error::{Error, errors};

use crate::index::Index;
use crate::index::entry::{self, Entry};
use crate::namespace::Namespace;

errors! {
    duplicate_key(ns: &Namespace, index: &str, key: &str) = DuplicateKey, "E11000 duplicate key error collection: {ns}{index} dup key: {key}";
}

/// The error for a key that `index` already has, with the key in `keyPattern` and `keyValue`.
///
/// Under a collation the index holds sort keys instead of strings: they are shown in hexadecimal,
/// and `hexEncoded` marks those fields.
pub(crate) fn error(ns: &Namespace, index: &Index, entry: &Entry<'_>) -> Error {
    let mut values = Vec::new();
    if entry::decode_values(index, entry, &mut values).is_none() {
        values = DocBuf::new().into_bytes();
    }
    let values = Doc::trusted(&values);
    let pattern = index.spec.key.as_doc();
    let Some(collation) = &index.spec.collation else {
        let name = format!(" index: {}", index.spec.name);
        let fields = doc! { "keyPattern": pattern, "keyValue": values };
        return duplicate_key(ns, &name, &values.to_string()).with_fields(elements(&fields));
    };
    let collation = collation.to_doc();
    let is_hex = |element: &Element<'_>| element.value.kind() == Type::String;
    let hex = |prefix: &str| {
        DocBuf::build(|out| {
            for element in values {
                match element.value.get() {
                    Value::String(key) => {
                        out.append(element.name, &format!("{prefix}{}", hex::text(key)))
                    }
                    other => out.append(element.name, other),
                };
            }
        })
    };
    let fields = DocBuf::build(|fields| {
        fields.append("keyPattern", pattern).append("keyValue", &hex(""));
        if values.iter().any(|element| is_hex(&element)) {
            let mut flags = fields.begin_array("hexEncoded");
            values.iter().for_each(|element| {
                flags.push(is_hex(&element));
            });
        }
        fields.append("collation", collation);
    });
    let name = format!(" index: {} collation: {}", index.spec.name, collation);
    duplicate_key(ns, &name, &hex("0x").as_doc().to_string()).with_fields(elements(&fields))
}

/// The error for an `_id` that a clustered collection already has.
pub(super) fn clustered_error(ns: &Namespace, doc: Doc<'_>) -> Error {
    let values = doc! { "_id": doc.get("_id").unwrap_or(Value::Null) };
    let fields = doc! { "keyPattern": { "_id": 1 }, "keyValue": &values };
    duplicate_key(ns, "", &values.as_doc().to_string()).with_fields(elements(&fields))
}

fn elements(fields: &DocBuf) -> Vec<u8> {
    fields.as_doc().elements_bytes().to_vec()
}
