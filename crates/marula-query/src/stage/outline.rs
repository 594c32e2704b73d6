//! The checks of all stages of a pipeline before any of them is parsed: their names, and the
//! arguments that determine which collections and server data are read or written.
//!
//! mongod needs these for the privileges before it parses the rest. So an error there is reported
//! before any other, wherever it is in the pipeline.

use bstr::ByteSlice;
use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::pipeline::{DEPTH_MAX, find_row, stage_not_object, too_deep};
use super::{
    change_stream, coll_stats, facet, graph_lookup, lookup, merge, out, report, union_with,
};
use crate::context::Context;
use crate::once::unknown_field;

errors! {
    from_not_string(stage: &str, kind: &str) = FailedToParse, "{stage} 'from' field must be a string, but found {kind}";
    invalid_from(stage: &str, db: &str) = InvalidNamespace, "invalid {stage} namespace: {db}.";
    from_other_database(stage: &str, db: &str, coll: &str) = FailedToParse, "{stage} with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {db} and coll: {coll}";
    from_wrong_type(name: &str, kind: &str) = TypeMismatch, "BSON field 'from.{name}' is the wrong type '{kind}', expected type 'string'";
    missing_graph_from(text: &str) = FailedToParse, "missing 'from' option to $graphLookup stage specification: {text}";
}

/// Checks the names of all stages of a pipeline and of inner pipelines, and their targets.
///
/// Errors: those of `find_row`, `too_deep`, and of the module.
pub(super) fn check(array: Doc<'_>, context: &Context) -> Result<()> {
    check_nested(array, context, 0)
}

fn check_nested(array: Doc<'_>, context: &Context, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    for item in array.values() {
        let (row, argument) = find_row(item, context.version)?;
        let inside = |stages| check_nested(stages, context, depth + 1);
        match row.name {
            "$lookup" => check_lookup(argument, context)?.map_or(Ok(()), inside)?,
            "$graphLookup" => check_graph_lookup(argument, context)?,
            "$unionWith" => {
                let (collection, stages) = union_with::read(argument)?;
                check_objects(stages)?;
                if collection.is_none() {
                    check_documents(stages, union_with::no_collection)?;
                }
                inside(stages)?;
            }
            "$facet" => {
                facet::read(argument)?.into_iter().try_for_each(|(_, stages)| inside(stages))?;
            }
            "$merge" => merge::read(argument, context)?.stages.map_or(Ok(()), inside)?,
            "$out" => out::read(argument, context).map(drop)?,
            "$collStats" => coll_stats::read(argument).map(drop)?,
            "$changeStream" => change_stream::read(argument).map(drop)?,
            name => report::check(name, argument, context)?,
        }
    }
    Ok(())
}

/// Checks the target of a `$lookup`. Returns its pipeline.
fn check_lookup<'v>(argument: Value<'v>, context: &Context) -> Result<Option<Doc<'v>>> {
    let Value::Document(spec) = argument else {
        return Err(lookup::not_object(argument.kind().alias()));
    };
    let (from, pipeline) = (spec.get("from"), spec.get("pipeline"));
    match from {
        Some(from) => check_from("$lookup", from, context)?,
        None if pipeline.is_none() => return Err(lookup::no_from()),
        None => {}
    }
    let Some(pipeline) = pipeline else { return Ok(None) };
    let pipeline = pipeline.as_array().ok_or_else(lookup::pipeline_not_array)?;
    check_objects(pipeline)?;
    if from.is_none() {
        check_documents(pipeline, lookup::no_from_nor_documents)?;
    }
    Ok(Some(pipeline))
}

fn check_graph_lookup(argument: Value<'_>, context: &Context) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(graph_lookup::not_object(argument.kind().alias()));
    };
    match spec.get("from") {
        Some(from) => check_from("$graphLookup", from, context),
        None => Err(missing_graph_from(&crate::expression::print::document(spec))),
    }
}

/// Checks that all stages are documents, which is reported before other errors of any of them.
fn check_objects(pipeline: Doc<'_>) -> Result<()> {
    match pipeline.values().all(|stage| stage.as_doc().is_some()) {
        true => Ok(()),
        false => Err(stage_not_object()),
    }
}

/// Checks that a pipeline without a collection begins with a stage that produces documents.
fn check_documents(pipeline: Doc<'_>, failure: fn() -> marula_error::Error) -> Result<()> {
    let first = pipeline.values().next().and_then(|stage| stage.as_doc());
    match first.is_some_and(|stage| stage.get("$documents").is_some()) {
        true => Ok(()),
        false => Err(failure()),
    }
}

/// Checks the collection that a stage reads: another database's cannot be.
pub(super) fn check_from(stage: &str, from: Value<'_>, context: &Context) -> Result<()> {
    match from {
        Value::String(name) if name.is_empty() => Err(invalid_from(stage, context.database())),
        Value::String(name) => out::check_target_name("", &name.to_str_lossy()),
        Value::Document(doc) => {
            for element in doc {
                let name = element.name.to_string();
                match &*name {
                    "db" | "coll" if element.value.get().is_nullish() => {}
                    "db" | "coll" if element.value.get().as_str().is_some() => {}
                    "db" | "coll" => {
                        return Err(from_wrong_type(&name, element.value.kind().alias()));
                    }
                    _ => return Err(unknown_field("from", element.name)),
                }
            }
            let part = |name: &str| {
                doc.get(name).and_then(|part| part.as_str()).unwrap_or_default().to_string()
            };
            Err(from_other_database(stage, &part("db"), &part("coll")))
        }
        _ => Err(from_not_string(stage, from.kind().alias())),
    }
}
