//! The Stable API, version 1: the fields and stages that `apiStrict: true` rejects, and the
//! parameters of a cursor.
//!
//! Source: manual "Stable API", "Stable API Changelog"; errors recorded from mongod 6.0.

use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use crate::request::{Api, Request};

errors! {
    field_not_allowed(place: &str, field: &str) = APIStrictError, "BSON field '{place}.{field}' is not allowed with apiStrict:true.";
    stage_not_allowed(stage: &str) = APIStrictError, "{stage} is not allowed with 'apiStrict: true' in API Version 1";
    coll_stats_option() = APIStrictError, "only the 'count' option to $collStats is supported in API Version 1";
    text_index() = APIStrictError, "text indexes cannot be created with apiStrict: true";
    mismatch(used: &str, created: &str) = APIMismatchError, "API parameter mismatch: getMore used params {used}, the cursor-creating command used {created}";
}

/// The fields of commands of version 1 that do not belong to it: command, its name in messages,
/// fields.
const FIELDS: &[(&str, &str, &[&str])] = &[
    ("aggregate", "aggregate", &["explain", "needsMerge", "fromMongos", "runtimeConstants"]),
    (
        "create",
        "create",
        &["autoIndexId", "size", "max", "capped", "storageEngine", "indexOptionDefaults"],
    ),
    (
        "find",
        "FindCommandRequest",
        &[
            "tailable",
            "awaitData",
            "min",
            "max",
            "returnKey",
            "showRecordId",
            "noCursorTimeout",
            "oplogReplay",
            "term",
            "readOnce",
            "$_requestResumeToken",
            "$_resumeAfter",
        ],
    ),
];

/// The stages that do not belong to version 1.
const STAGES: &[&str] = &[
    "$indexStats",
    "$currentOp",
    "$listSessions",
    "$listLocalSessions",
    "$planCacheStats",
    "$_internalInhibitOptimization",
];

/// Checks the fields of a strict request against version 1.
pub(crate) fn check_strict(request: &Request<'_>) -> Result<()> {
    let name = request.command.name;
    if let Some((_, place, fields)) = FIELDS.iter().find(|row| row.0 == name) {
        let refused = fields.iter().find(|field| request.arg(field).is_some());
        if let Some(field) = refused {
            return Err(field_not_allowed(place, field));
        }
    }
    if let ("aggregate", Some(Value::Array(stages))) = (name, request.arg("pipeline")) {
        check_stages(stages)?;
    }
    if name == "createIndexes" {
        let specs = request.arg("indexes").and_then(|specs| specs.as_array()).unwrap_or(Doc::EMPTY);
        let keys = specs.values().filter_map(|spec| spec.as_doc()?.get("key")?.as_doc());
        if keys.flat_map(Doc::values).any(|kind| kind == Value::String("text".into())) {
            return Err(text_index());
        }
    }
    Ok(())
}

/// Checks the stages of a pipeline against version 1.
pub(crate) fn check_stages(stages: Doc<'_>) -> Result<()> {
    let stages = stages.values().filter_map(|stage| stage.as_doc());
    for stage in stages.filter_map(|stage| stage.iter().next()) {
        if STAGES.iter().any(|name| stage.name == *name) {
            return Err(stage_not_allowed(&stage.name.to_string()));
        }
        let spec = stage.value.get().as_doc().unwrap_or(Doc::EMPTY);
        match &**stage.name {
            b"$collStats" if spec.iter().any(|option| option.name != "count") => {
                return Err(coll_stats_option());
            }
            b"$lookup" | b"$unionWith" => {
                if let Some(inner) = spec.get("pipeline").and_then(|inner| inner.as_array()) {
                    check_stages(inner)?;
                }
            }
            b"$facet" => {
                spec.values().filter_map(|inner| inner.as_array()).try_for_each(check_stages)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a `getMore` names the same version as the command that opened its cursor.
pub(crate) fn check_cursor(request: &Request<'_>, origin: Doc<'_>) -> Result<()> {
    let created = Api::of(origin);
    match request.api == created {
        true => Ok(()),
        false => Err(mismatch(&text(request.api), &text(created))),
    }
}

impl Api {
    /// Returns the parameters of a command that was accepted.
    fn of(body: Doc<'_>) -> Api {
        let is = |name: &str| body.get(name).is_some_and(|flag| flag.is_truthy());
        Api {
            is_version_1: body.get("apiVersion").is_some(),
            is_strict: is("apiStrict"),
            deprecation_errors: is("apiDeprecationErrors"),
        }
    }
}

fn text(api: Api) -> String {
    let mut parts = Vec::new();
    if api.is_version_1 {
        parts.push("apiVersion: \"1\"");
    }
    if api.is_strict {
        parts.push("apiStrict: true");
    }
    if api.deprecation_errors {
        parts.push("apiDeprecationErrors: true");
    }
    if parts.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", parts.join(", ")) }
}
