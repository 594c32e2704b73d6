//! The privileges for a pipeline: to read every collection that its stages name, and to write to
//! its target.
//!
//! The stages are read before they are parsed: every field that could name a collection counts,
//! even if it occurs twice.

use marula_bson::{ByteSlice, Doc, Element, Value};
use marula_db::Namespace;
use marula_error::Result;

use super::check::{Check, Target, named};
use super::name::Name;
use crate::request::Request;

/// `aggregate`.
pub(crate) fn aggregate(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let stages = request.arg("pipeline").and_then(|stages| stages.as_array()).unwrap_or(Doc::EMPTY);
    let collection = match request.first.value.get() {
        Value::String(_) => Some(request.namespace()?.collection().to_owned()),
        _ => None,
    };
    pipeline(request.db, collection.as_deref(), stages, request, check);
    Ok(())
}

/// The needs of a pipeline over a collection, or over none.
pub(crate) fn pipeline(
    db: &str,
    collection: Option<&str>,
    stages: Doc<'_>,
    request: &Request<'_>,
    check: &mut Check<'_>,
) {
    let first = stages.values().next().and_then(|stage| stage.as_doc());
    let first = first.and_then(|stage| stage.iter().next());
    let starts_with = |name: &str| first.is_some_and(|first| first.name == name);
    if let Some(collection) = collection {
        // Some stages report on the collection instead of reading it.
        let actions: &[&str] = if starts_with("$collStats") {
            &["collStats"]
        } else if starts_with("$indexStats") {
            &["indexStats"]
        } else if starts_with("$planCacheStats") {
            &["planCacheRead"]
        } else if starts_with("$changeStream") {
            &["changeStream", "find"]
        } else if starts_with("$listCatalog") {
            &["listCollections", "listIndexes"]
        } else if starts_with("$listSessions") {
            // The stage returns the user's own; it adds a need if it is to return others'.
            &[]
        } else {
            &["find"]
        };
        check.needs_on(db, collection, actions);
    } else if starts_with("$listCatalog") {
        check.needs(Target::Cluster, &["listDatabases"]);
        check.needs(Target::AnyResource, &["listCollections", "listIndexes"]);
    } else if starts_with("$changeStream") {
        let stage = first.map(|first| first.value.get());
        let target = match stage.is_some_and(|stage| is_set(stage, "allChangesForCluster")) {
            true => Target::EveryDatabase,
            false => Target::Database(db.to_owned()),
        };
        check.needs(target, &["changeStream", "find"]);
    } else if !WITHOUT_COLLECTION.iter().any(|name| starts_with(name)) {
        check.needs(Target::Database(db.to_owned()), &["find"]);
    }
    walk(db, collection, stages, request, check);
}

/// Further stages that read no collection.
const WITHOUT_COLLECTION: &[&str] = &["$currentOp", "$documents", "$listLocalSessions", "$queue"];

fn walk(
    db: &str,
    collection: Option<&str>,
    stages: Doc<'_>,
    request: &Request<'_>,
    check: &mut Check<'_>,
) {
    let reports = |actions: &[&'static str], check: &mut Check<'_>| match collection {
        Some(collection) => check.needs_on(db, collection, actions),
        None => check.needs(Target::Database(db.to_owned()), actions),
    };
    let bypasses = request.flag("bypassDocumentValidation");
    for stage in stages.values().filter_map(|stage| stage.as_doc()).flat_map(Doc::iter) {
        let value = stage.value.get();
        match stage.name.as_bytes() {
            b"$lookup" | b"$graphLookup" => read(db, value, "from", request, check),
            b"$unionWith" => match value {
                Value::String(collection) => {
                    check.needs_on(db, &collection.to_string(), &["find"]);
                }
                value => read(db, value, "coll", request, check),
            },
            b"$facet" => {
                for branch in value.as_doc().into_iter().flatten() {
                    let stages = branch.value.get().as_array().unwrap_or(Doc::EMPTY);
                    walk(db, collection, stages, request, check);
                }
            }
            // Wherever they stand: later stages and those of inner pipelines count too.
            b"$collStats" => reports(&["collStats"], check),
            b"$indexStats" => reports(&["indexStats"], check),
            b"$planCacheStats" => reports(&["planCacheRead"], check),
            b"$out" => {
                for (db, collection) in named(value, db) {
                    write(&db, &collection, &["insert", "remove"], bypasses, check);
                }
            }
            b"$merge" => merge(db, value, bypasses, check),
            b"$listSessions" | b"$listLocalSessions" if of_others(value, check) => {
                check.needs(Target::Cluster, &["listSessions"]);
            }
            b"$listSessions" | b"$listLocalSessions" => check.refuse_anonymous(),
            b"$currentOp" if is_set(value, "allUsers") => check.needs(Target::Cluster, &["inprog"]),
            _ => {}
        }
    }
}

/// Returns whether an option of a stage is true, in any of its occurrences.
fn is_set(stage: Value<'_>, option: &str) -> bool {
    stage.as_doc().is_some_and(|doc| {
        doc.iter().any(|field| field.name == option && field.value.get().is_truthy())
    })
}

/// Returns whether the field `users` of a stage has elements.
fn names_users(value: Value<'_>) -> bool {
    let users = value.as_doc().and_then(|doc| doc.get("users")?.as_array());
    users.is_some_and(|users| !users.is_empty())
}

/// Returns whether a stage asks for sessions of other users.
fn of_others(value: Value<'_>, check: &Check<'_>) -> bool {
    let text = |of: Doc<'_>, name: &str| {
        of.get(name).and_then(|text| text.as_str()).unwrap_or_default().to_string()
    };
    let is_own = |item: Value<'_>| {
        item.as_doc().is_some_and(|of| check.is(&Name::new(&text(of, "user"), &text(of, "db"))))
    };
    let fields = value.as_doc().into_iter().flatten();
    let mut lists = fields.filter(|field| field.name == "users");
    if is_set(value, "allUsers") && names_users(value) {
        // The stage is rejected, for every user.
        return false;
    }
    is_set(value, "allUsers")
        || lists
            .any(|list| list.value.get().as_array().is_none_or(|list| !list.values().all(is_own)))
}

/// The needs of a stage that reads another collection, perhaps through a pipeline of its own.
fn read(db: &str, stage: Value<'_>, field: &str, request: &Request<'_>, check: &mut Check<'_>) {
    let fields = || stage.as_doc().into_iter().flatten();
    let sources = fields().filter(|element| element.name == field);
    let sources: Vec<_> = sources.flat_map(|element| named(element.value.get(), db)).collect();
    for (db, collection) in &sources {
        check.needs_on(db, collection, &["find"]);
    }
    for element in fields().filter(|element| element.name == "pipeline") {
        let stages = element.value.get().as_array().unwrap_or(Doc::EMPTY);
        for (db, collection) in &sources {
            walk(db, Some(collection), stages, request, check);
        }
        if sources.is_empty() {
            walk(db, None, stages, request, check);
        }
    }
}

fn merge(db: &str, stage: Value<'_>, bypasses: bool, check: &mut Check<'_>) {
    let Value::Document(stage) = stage else {
        for (db, collection) in named(stage, db) {
            write(&db, &collection, &["insert", "update"], bypasses, check);
        }
        return;
    };
    let fields = |name: &'static str| stage.iter().filter(move |field| field.name == name);
    let says = |field: Element<'_>, text: &str| field.value.get() == Value::from(text);
    // The defaults are to merge and to insert.
    let mut matches = fields("whenMatched").peekable();
    let matched = matches.peek().is_none() || matches.any(|field| !says(field, "fail"));
    let mut others = fields("whenNotMatched").peekable();
    let not_matched = others.peek().is_none() || others.any(|field| says(field, "insert"));
    let actions: &[&str] = match (matched, not_matched) {
        (true, true) => &["insert", "update"],
        (true, false) => &["update"],
        (false, true) => &["insert"],
        (false, false) => &[],
    };
    for (db, collection) in fields("into").flat_map(|into| named(into.value.get(), db)) {
        write(&db, &collection, actions, bypasses, check);
    }
}

/// The needs of writing to a collection, perhaps without its validator.
pub(crate) fn write(
    db: &str,
    collection: &str,
    actions: &[&'static str],
    bypasses: bool,
    check: &mut Check<'_>,
) {
    check.needs_on(db, collection, actions);
    if bypasses {
        check.needs_on(db, collection, &["bypassDocumentValidation"]);
    }
}

/// The needs of creating or changing a view: a user who may read the view must also be permitted to
/// read its collections, or the view would show data that its creator may not see.
pub(crate) fn view(request: &Request<'_>, ns: &Namespace, check: &mut Check<'_>) {
    let Some(Value::String(shown)) = request.arg("viewOn") else { return };
    if check.may(&Target::collection(ns.db(), ns.collection()), "find") {
        let stages = request.arg("pipeline").and_then(|stages| stages.as_array());
        let stages = stages.unwrap_or(Doc::EMPTY);
        pipeline(request.db, Some(&shown.to_string()), stages, request, check);
    }
}
