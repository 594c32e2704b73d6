//! The stored form of a specification: version first, no deprecated fields, the collation
//! completed.

use marula_bson::{ByteSlice, Doc, DocBuf, Value};
use marula_query::collation::Collation;

use super::{PARALLEL_ARRAYS, expire_seconds};
use crate::index::kind::{IndexKind, write_place_options};
use crate::index::pattern::Plugin;
use crate::index::text::TextIndex;

/// Options of some kinds of indexes that other kinds do not store.
const NOT_KEPT: &[&str] = &["min", "max", "bits", "2dsphereIndexVersion", "textIndexVersion"];

/// The stored form of a specification: version first, no deprecated fields, the collation
/// completed.
pub(super) fn canonical_document(
    spec: Doc<'_>,
    name: &str,
    (kind, key): (&IndexKind, Doc<'_>),
    is_id: bool,
    unique: bool,
    collation: Option<&Collation>,
    plugin: Plugin,
) -> DocBuf {
    DocBuf::build(|out| {
        match spec.get("v").and_then(|v| v.as_exact_i64()) {
            Some(1) => out.append("v", 1),
            _ => out.append("v", 2),
        };
        for element in spec {
            match element.name.as_bytes() {
                b"v" | b"ns" | b"collation" | b"dropDups" | b"prepareUnique" => {}
                b"key" => {
                    out.append("key", key);
                }
                name if matches!(kind, IndexKind::Text(_)) && TextIndex::is_option(name) => {}
                b"finestIndexedLevel" | b"coarsestIndexedLevel" => {}
                name if NOT_KEPT.iter().any(|option| name == option.as_bytes()) => {}
                b"expireAfterSeconds" => {
                    let seconds = expire_seconds(element.value.get());
                    out.append("expireAfterSeconds", Value::whole(seconds));
                }
                b"bucketSize" => {
                    let size = element.value.get().as_f64().filter(|size| !size.is_nan());
                    out.append("bucketSize", size.unwrap_or(0.0));
                }
                b"sparse" | b"background" if element.value.get().is_truthy() => {
                    out.append(element.name, true);
                }
                b"unique" if is_id || !unique => {}
                b"unique" => {
                    out.append("unique", true);
                }
                b"sparse" | b"hidden" | b"background" if !element.value.get().is_truthy() => {
                    // listIndexes shows `sparse: false` and `background: false`, but never `hidden:
                    // false`.
                    if element.name != "hidden" {
                        out.append(element.name, false);
                    }
                }
                b"name" => {
                    out.append("name", name);
                }
                name if name == PARALLEL_ARRAYS.as_bytes() => {
                    if element.value.get().is_truthy() {
                        out.append(PARALLEL_ARRAYS, true);
                    }
                }
                b"originalSpec" => {
                    out.append("originalSpec", &original(element.value.get()));
                }
                _ => {
                    out.append_raw(element.name, element.value);
                }
            }
        }
        write_place_options(plugin, spec, out);
        if let IndexKind::Text(text) = kind {
            text.write_options(out);
        }
        if let Some(collation) = collation {
            out.append("collation", collation.to_doc());
        }
        if spec.get("prepareUnique").is_some_and(|flag| flag.is_truthy()) {
            out.append("prepareUnique", true);
        }
    })
}

/// The client's original specification, with a version.
pub(super) fn original(spec: Value<'_>) -> DocBuf {
    let spec = spec.as_doc().unwrap_or(Doc::EMPTY);
    let mut original = spec.to_buf();
    if spec.get("v").is_none() {
        original.push("v", 2);
    }
    original
}
