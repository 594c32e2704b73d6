//! Writes changes of the catalogue to the log, with MongoDB's ids and attributes.

use marula_bson::{Binary, DocWriter};
use marula_db::Collection;
use marula_db::build::Build;
use marula_db::catalog::event::CatalogEvent;

use crate::log::attributes;

/// Writes the lines of a change.
pub(crate) fn log(event: &CatalogEvent<'_>) {
    match event {
        CatalogEvent::Created { collection, .. } => created(collection),
        CatalogEvent::Dropped(collection) => {
            let attr = attributes(|out| {
                out.append("namespace", collection.namespace().as_str());
                append_uuid("uuid", collection.uuid(), out);
            });
            tracing::info!(target: "STORAGE", id = 20_318, attr, "Finishing collection drop");
        }
        CatalogEvent::Renamed { collection, from } => {
            let attr = attributes(|out| {
                append_uuid("uuid", collection.uuid(), out);
                out.append("fromName", from.as_str());
                out.append("toName", collection.namespace().as_str());
            });
            tracing::info!(target: "STORAGE", id = 20_319, attr, "renameCollection");
        }
        CatalogEvent::DatabaseDropped(db, count) => {
            tracing::info!(target: "COMMAND", id = 20_336, db, numCollectionsDropped = count, "dropDatabase");
        }
        CatalogEvent::BuildBegun(collection, build) => begun(collection, build),
        CatalogEvent::BuildDone(collection, build) => done(collection, build),
        CatalogEvent::BuildFailed(collection, build, error) => {
            let attr = attributes(|out| {
                append_uuid("buildUUID", build.uuid(), out);
                append_uuid("collectionUUID", collection.uuid(), out);
                out.append("namespace", collection.namespace().as_str());
                let mut error_doc = out.begin_doc("error");
                error_doc.append("code", error.code().number());
                error_doc.append("codeName", &*error.code().name());
                error_doc.append("errmsg", error.message());
            });
            tracing::info!(target: "STORAGE", id = 20_649, attr, "Index build: failed");
        }
        CatalogEvent::IndexDropped(collection, index) => {
            let attr = attributes(|out| {
                out.append("index", index.spec.name.as_str());
                out.append("namespace", collection.namespace().as_str());
                append_uuid("uuid", collection.uuid(), out);
            });
            tracing::info!(target: "STORAGE", attr, "Finishing index drop");
        }
    }
}

fn created(collection: &Collection) {
    let state = collection.state();
    let attr = attributes(|out| {
        out.append("namespace", collection.namespace().as_str());
        append_uuid("uuid", collection.uuid(), out);
        out.append("options", &state.options.document);
    });
    tracing::info!(target: "STORAGE", id = 20_320, attr, "createCollection");
}

fn begun(collection: &Collection, build: &Build) {
    let indexes = build.indexes.len();
    let first = build.indexes.first().map_or("", |index| index.spec.name.as_str());
    let attr = attributes(|out| {
        append_uuid("buildUUID", build.uuid(), out);
        out.append("namespace", collection.namespace().as_str());
        append_uuid("collectionUUID", collection.uuid(), out);
        out.append("indexes", i32::try_from(indexes).unwrap_or(i32::MAX));
        out.begin_doc("firstIndex").append("name", first);
    });
    tracing::info!(target: "INDEX", id = 20_438, attr, "Index build: registering");
    for index in &build.indexes {
        let attr = attributes(|out| {
            append_uuid("buildUUID", build.uuid(), out);
            append_uuid("collectionUUID", collection.uuid(), out);
            out.append("namespace", collection.namespace().as_str());
            out.append("properties", &index.spec.document);
        });
        tracing::info!(target: "INDEX", id = 20_384, attr, "Index build: starting");
    }
}

fn done(collection: &Collection, build: &Build) {
    for index in &build.indexes {
        let attr = attributes(|out| {
            append_uuid("buildUUID", build.uuid(), out);
            append_uuid("collectionUUID", collection.uuid(), out);
            out.append("namespace", collection.namespace().as_str());
            out.append("index", index.spec.name.as_str());
        });
        tracing::info!(target: "INDEX", id = 20_345, attr, "Index build: done building");
    }
    let after = collection.state().indexes.len();
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let attr = attributes(|out| {
        append_uuid("buildUUID", build.uuid(), out);
        append_uuid("collectionUUID", collection.uuid(), out);
        out.append("namespace", collection.namespace().as_str());
        let mut names = out.begin_array("indexesBuilt");
        build.indexes.iter().for_each(|index| {
            names.push(index.spec.name.as_str());
        });
        drop(names);
        out.append("numIndexesBefore", count(after.saturating_sub(build.indexes.len())));
        out.append("numIndexesAfter", count(after));
    });
    tracing::info!(target: "STORAGE", id = 20_663, attr, "Index build: completed successfully");
}

/// Appends a UUID in the form of mongod's log lines.
pub(crate) fn append_uuid(name: &str, id: &[u8; 16], out: &mut DocWriter<'_>) {
    out.begin_doc(name).append("uuid", Binary { subtype: 4, bytes: id });
}

#[cfg(test)]
mod tests {
    use marula_bson::uuid;

    use super::*;

    #[test]
    fn uuids_are_nested_as_in_mongods_lines() {
        let id = [7; 16];
        let line = attributes(|out| append_uuid("buildUUID", &id, out));
        let text = uuid::text(&id);
        assert_eq!(line, format!("{{\"buildUUID\":{{\"uuid\":{{\"$uuid\":\"{text}\"}}}}}}"));
    }
}
