//! What is looked at in all stages of a pipeline before any of them is parsed: their names, and which collections those
//! that join others read.
//!
//! A mistake there is told before any other, wherever it stands.

use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::lookup::no_from_nor_documents;
use super::pipeline::{DEPTH_MAX, find_row, too_deep};
use super::union_with::no_collection;
use crate::context::Context;

errors! {
    from_not_string(stage: &str, kind: &str) = FailedToParse, "{stage} 'from' field must be a string, but found {kind}";
    invalid_from(stage: &str, db: &str) = InvalidNamespace, "invalid {stage} namespace: {db}.";
    from_other_database(stage: &str, db: &str, coll: &str) = FailedToParse, "{stage} with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {db} and coll: {coll}";
    from_unknown_field(name: &str) = IDLUnknownField, "BSON field 'from.{name}' is an unknown field.";
    from_wrong_type(name: &str, kind: &str) = TypeMismatch, "BSON field 'from.{name}' is the wrong type '{kind}', expected type 'string'";
    missing_graph_from(text: &str) = FailedToParse, "missing 'from' option to $graphLookup stage specification: {text}";
}

/// Checks the names of all stages of a pipeline and of those inside them, and what they read from.
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
        let Value::Document(spec) = argument else { continue };
        match row.name {
            "$lookup" => {
                let pipeline = spec.get("pipeline").and_then(|stages| stages.as_array());
                match spec.get("from") {
                    Some(from) => check_from(row.name, from, context)?,
                    None => check_documents(pipeline, no_from_nor_documents)?,
                }
                pipeline.map_or(Ok(()), |stages| check_nested(stages, context, depth + 1))?;
            }
            "$graphLookup" => match spec.get("from") {
                Some(from) => check_from(row.name, from, context)?,
                None => {
                    let text = crate::expression::print::document(spec);
                    return Err(missing_graph_from(&text));
                }
            },
            "$unionWith" => {
                let pipeline = spec.get("pipeline").and_then(|stages| stages.as_array());
                if spec.get("coll").is_none() {
                    check_documents(pipeline, no_collection)?;
                }
                pipeline.map_or(Ok(()), |stages| check_nested(stages, context, depth + 1))?;
            }
            "$facet" => {
                for stages in spec.values().filter_map(|stages| stages.as_array()) {
                    // What is no stage at all is told by `$facet`, in its own words.
                    if stages
                        .values()
                        .all(|stage| stage.as_doc().is_some_and(|doc| !doc.is_empty()))
                    {
                        check_nested(stages, context, depth + 1)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a pipeline without a collection begins with documents of its own.
fn check_documents(pipeline: Option<Doc<'_>>, failure: fn() -> marula_error::Error) -> Result<()> {
    let Some(pipeline) = pipeline else { return Ok(()) };
    let first = pipeline.values().next().and_then(|stage| stage.as_doc());
    match first.is_some_and(|stage| stage.get("$documents").is_some()) {
        true => Ok(()),
        false => Err(failure()),
    }
}

fn check_from(stage: &str, from: Value<'_>, context: &Context) -> Result<()> {
    match from {
        Value::String(name) if name.is_empty() => Err(invalid_from(stage, context.database())),
        Value::String(_) => Ok(()),
        Value::Document(doc) => {
            for element in doc {
                let name = element.name.to_string();
                match &*name {
                    "db" | "coll" if element.value.get().is_nullish() => {}
                    "db" | "coll" if element.value.get().as_str().is_some() => {}
                    "db" | "coll" => {
                        return Err(from_wrong_type(&name, element.value.kind().alias()));
                    }
                    _ => return Err(from_unknown_field(&name)),
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
