//! Events of changes of the catalogue.

use marula_bson::{DocWriter, Value};
use marula_db::Collection;
use marula_db::build::Build;
use marula_db::catalog::event::CatalogEvent;

use super::{Audit, actor};

/// Writes the events of a change.
pub(crate) fn record(audit: &Audit, event: &CatalogEvent<'_>) {
    let actor = actor::current();
    let write = |kind: &str, result: i32, param: &dyn Fn(&mut DocWriter<'_>)| {
        audit.write(&actor, kind, result, |out| param(out));
    };
    let of_build = |collection: &Collection, build: &Build, state: &str, result: i32| {
        for index in &build.indexes {
            write("createIndex", result, &|out| {
                out.append("ns", collection.namespace().as_str());
                out.append("indexName", index.spec.name.as_str());
                out.append("indexSpec", &index.spec.document);
                out.append("indexBuildState", state);
            });
        }
    };
    match event {
        CatalogEvent::Created { collection, is_first } => {
            if *is_first {
                write("createDatabase", 0, &|out| {
                    out.append("ns", collection.namespace().db());
                });
            }
            write("createCollection", 0, &|out| write_collection(collection, out));
        }
        CatalogEvent::Dropped(collection) => {
            write("dropCollection", 0, &|out| write_collection(collection, out));
        }
        CatalogEvent::Renamed { collection, from } => write("renameCollection", 0, &|out| {
            out.append("old", from.as_str()).append("new", collection.namespace().as_str());
        }),
        CatalogEvent::DatabaseDropped(db, _) => write("dropDatabase", 0, &|out| {
            out.append("ns", *db);
        }),
        CatalogEvent::BuildBegun(collection, build) => {
            of_build(collection, build, "IndexBuildStarted", 0);
        }
        CatalogEvent::BuildDone(collection, build) => {
            of_build(collection, build, "IndexBuildSucceeded", 0);
        }
        CatalogEvent::BuildFailed(collection, build, error) => {
            of_build(collection, build, "IndexBuildAborted", error.code().number());
        }
        CatalogEvent::IndexDropped(collection, index) => write("dropIndex", 0, &|out| {
            out.append("ns", collection.namespace().as_str());
            out.append("indexName", index.spec.name.as_str());
        }),
    }
}

fn write_collection(collection: &Collection, out: &mut DocWriter<'_>) {
    out.append("ns", collection.namespace().as_str());
    let state = collection.state();
    if let Some(view) = &state.options.view {
        out.append("viewOn", view.on.as_str());
        out.append("pipeline", Value::Array(view.pipeline.as_doc()));
    }
}
