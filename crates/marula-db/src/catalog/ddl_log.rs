//! The oplog entries of catalogue changes.
//!
//! Source of their form: entries written by mongod 6.0.

use std::sync::Arc;

use marula_bson::{Binary, Doc, DocBuf, DocWriter, Value, doc};

use super::entry::Uuid;
use crate::collection::{Collection, State};
use crate::index::Index;
use crate::namespace::Namespace;
use crate::oplog::Entries;

/// Logs the creation of a collection. A view is logged as a document of `system.views`.
pub(crate) fn created(collection: &Collection, entries: &mut Entries) {
    let state = collection.state();
    if state.options.view.is_some() || !collection.is_logged() {
        return;
    }
    let ns = collection.namespace();
    let command = DocBuf::build(|out| {
        out.append("create", ns.collection());
        out.append_elements(state.options.document.as_doc().elements_bytes());
        if let Some(id) = state.indexes.first() {
            out.append("idIndex", Value::Document(id.spec.document.as_doc()));
        }
    });
    entries.command(&ns, Some(collection.uuid()), &command, None);
}

/// Logs the drop of a collection.
pub(super) fn dropped(collection: &Collection, entries: &mut Entries) {
    if collection.state().options.view.is_some() || !collection.is_logged() {
        return;
    }
    let ns = collection.namespace();
    let command = doc! { "drop": ns.collection() };
    let before = DocBuf::build(|out| {
        out.append("numRecords", Value::whole(collection.count()));
    });
    entries.command(&ns, Some(collection.uuid()), &command, Some(&before));
}

/// Logs the drop of a database, after its collections.
pub(super) fn database_dropped(database: &str, entries: &mut Entries) {
    if database == crate::oplog::LOCAL {
        return;
    }
    if let Ok(ns) = Namespace::new(database, "$cmd") {
        entries.command(&ns, None, &doc! { "dropDatabase": 1 }, None);
    }
}

/// Logs the rename of a collection, which still has its old name, to `to`, the name of `target`.
pub(super) fn renamed(
    collection: &Collection,
    to: &Namespace,
    target: Option<&Collection>,
    entries: &mut Entries,
) {
    if !collection.is_logged() {
        return;
    }
    let from = collection.namespace();
    let command = DocBuf::build(|out| {
        out.append("renameCollection", from.as_str()).append("to", to.as_str());
        out.append("stayTemp", false);
        if let Some(target) = target {
            append_uuid("dropTarget", target.uuid(), out);
        }
    });
    let before = target.map(|target| {
        DocBuf::build(|out| {
            out.append("numRecords", Value::whole(target.count()));
        })
    });
    entries.command(&from, Some(collection.uuid()), &command, before.as_ref());
}

/// Logs changed options of a collection or of its indexes.
pub(super) fn changed<'c>(
    collection: &'c Collection,
    old: &State,
    new: &State,
) -> impl FnOnce(&mut Entries) + use<'c> {
    let ns = collection.namespace();
    let (before, after) = (old.options.document.clone(), new.options.document.clone());
    let is_view = new.options.view.is_some();
    let indexes: Vec<(Arc<Index>, Arc<Index>)> =
        old.indexes.iter().cloned().zip(new.indexes.iter().cloned()).collect();
    move |entries| {
        if is_view || !collection.is_logged() {
            return;
        }
        let mut index_before = DocBuf::new();
        let command = DocBuf::build(|out| {
            out.append("collMod", ns.collection());
            for (old, new) in &indexes {
                index_change(
                    old.spec.document.as_doc(),
                    new.spec.document.as_doc(),
                    out,
                    &mut index_before,
                );
            }
            for option in after.as_doc() {
                // A validator has these values also by default.
                let is_default = matches!(
                    (&**option.name, option.value.get()),
                    (b"validationLevel", Value::String(level)) if level == "strict"
                ) || matches!(
                    (&**option.name, option.value.get()),
                    (b"validationAction", Value::String(action)) if action == "error"
                );
                let was = before.as_doc().get_raw(option.name);
                if was != Some(option.value) && !(is_default && was.is_none()) {
                    out.append_raw(option.name, option.value);
                }
            }
            for option in before.as_doc() {
                if after.as_doc().get_raw(option.name).is_none() {
                    match &**option.name {
                        b"changeStreamPreAndPostImages" => {
                            out.begin_doc(option.name).append("enabled", false);
                        }
                        _ => drop(out.begin_doc(option.name)),
                    }
                }
            }
        });
        let state_before = DocBuf::build(|out| {
            let mut options = out.begin_doc("collectionOptions_old");
            append_uuid("uuid", collection.uuid(), &mut options);
            options.append_elements(before.as_doc().elements_bytes());
            drop(options);
            if !index_before.as_doc().is_empty() {
                out.append("indexOptions_old", Value::Document(index_before.as_doc()));
            }
        });
        entries.command(&ns, Some(collection.uuid()), &command, Some(&state_before));
    }
}

/// Logs an index whose options were changed, with the old ones.
fn index_change(old: Doc<'_>, new: Doc<'_>, out: &mut DocWriter<'_>, before: &mut DocBuf) {
    let differing: Vec<_> = ["hidden", "expireAfterSeconds", "unique", "prepareUnique"]
        .into_iter()
        .filter(|name| old.get_raw(name.as_bytes()) != new.get_raw(name.as_bytes()))
        .collect();
    if differing.is_empty() {
        return;
    }
    let mut index = out.begin_doc("index");
    if let Some(name) = new.get("name") {
        index.append("name", name);
    }
    for name in differing {
        index.append(name, new.get(name).unwrap_or(Value::Boolean(false)));
        before.push(name, old.get(name).unwrap_or(Value::Boolean(false)));
    }
}

/// Logs finished indexes.
pub(super) fn indexes_built(
    collection: &Collection,
    build: &Uuid,
    indexes: &[Arc<Index>],
    entries: &mut Entries,
) {
    if !collection.is_logged() {
        return;
    }
    let ns = collection.namespace();
    if collection.count() == 0 {
        for index in indexes {
            index_made(collection, index, entries);
        }
        return;
    }
    let command = DocBuf::build(|out| {
        out.append("commitIndexBuild", ns.collection());
        append_uuid("indexBuildUUID", build, out);
        let mut list = out.begin_array("indexes");
        for index in indexes {
            list.push(Value::Document(index.spec.quoted().as_doc()));
        }
    });
    entries.command(&ns, Some(collection.uuid()), &command, None);
}

/// Logs an index created in an empty collection.
pub(crate) fn index_made(collection: &Collection, index: &Index, entries: &mut Entries) {
    let ns = collection.namespace();
    let command = DocBuf::build(|out| {
        out.append("createIndexes", ns.collection());
        out.append_elements(index.spec.quoted().as_doc().elements_bytes());
    });
    entries.command(&ns, Some(collection.uuid()), &command, None);
}

/// Logs dropped indexes.
pub(super) fn indexes_dropped(
    collection: &Collection,
    indexes: &[&Arc<Index>],
    entries: &mut Entries,
) {
    if !collection.is_logged() {
        return;
    }
    let ns = collection.namespace();
    for index in indexes {
        let command = doc! { "dropIndexes": ns.collection(), "index": index.spec.name.as_str() };
        entries.command(&ns, Some(collection.uuid()), &command, Some(&index.spec.quoted()));
    }
}

fn append_uuid(name: &str, uuid: &Uuid, out: &mut DocWriter<'_>) {
    out.append(name, Binary { subtype: 4, bytes: uuid });
}
