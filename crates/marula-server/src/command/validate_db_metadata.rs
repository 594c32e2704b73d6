//! `validateDBMetadata`: the indexes and views that a version of the Stable API does not permit.
//!
//! Source: manual "validateDBMetadata"; replies recorded from mongod 6.0.

use marula_bson::{Doc, DocWriter, Value, doc};
use marula_db::index::IndexKind;
use marula_db::{Collection, IndexSpec};
use marula_error::{Error, Result, errors};

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::check::{Check, Target};
use crate::context::Context;
use crate::request::Request;
use crate::stable_api;

errors! {
    not_boolean(field: &str, kind: &str) = TypeMismatch, "Field '{field}' should be a boolean value, but found: {kind}";
    index_not_allowed(index: &str) = APIStrictError, "The index with name {index} is not allowed in API version 1.";
}

pub(super) static COMMAND: Command = Command {
    name: "validateDBMetadata",
    help: "Lists the indexes and views that a version of the Stable API does not permit.",
    fields: Fields::Strict {
        place: "validateDBMetadata",
        fields: &[
            Field::required("apiParameters", Types::DOCUMENT),
            Field::optional("db", Types::STRING),
            Field::optional("collection", Types::STRING),
        ],
    },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

/// Requires the privilege to validate what is checked: a collection, a database or all of them.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let text = |name: &str| request.text(name).map(|text| text.to_string());
    let target = match (text("db"), text("collection")) {
        (Some(db), Some(collection)) => Target::Collection(db, collection),
        (Some(db), None) => Target::Database(db),
        (None, _) => Target::EveryDatabase,
    };
    check.needs(target, &["validate"]);
    Ok(())
}

const PARAMETERS_PLACE: &str = "validateDBMetadata.apiParameters";

const PARAMETERS: &[Field] = &[
    Field::required("version", Types::STRING),
    Field::optional("strict", Types::BOOLEAN).or(|kind| not_boolean("strict", kind)),
    Field::optional("deprecationErrors", Types::BOOLEAN)
        .or(|kind| not_boolean("deprecationErrors", kind)),
];

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let parameters = request.arg("apiParameters").and_then(|parameters| parameters.as_doc());
    let parameters = parameters.unwrap_or(Doc::EMPTY);
    fields::check_doc(PARAMETERS_PLACE, PARAMETERS, parameters)?;
    let is_strict = parameters.get("strict").is_some_and(|strict| strict.is_truthy());
    let is_version_1 = parameters.get("version") == Some(Value::String("1".into()));
    let mut errors = reply.begin_array("apiVersionErrors");
    if !is_strict || !is_version_1 {
        return Ok(Outcome::Done);
    }
    let text = |name: &str| request.text(name).map(|text| text.to_string());
    let (only_db, only_collection) = (text("db"), text("collection"));
    let catalog = ctx.server.db.catalog();
    let databases = catalog.databases();
    for db in databases.iter().filter(|db| only_db.as_ref().is_none_or(|only| only == *db)) {
        for collection in catalog.collections(db) {
            let ns = collection.namespace();
            let is_asked =
                only_collection.as_ref().is_none_or(|only| only.as_str() == ns.collection());
            if !is_asked {
                continue;
            }
            for error in refused(&collection)? {
                errors.push(&doc! {
                    "ns": ns.as_str(),
                    "code": error.code().number(),
                    "codeName": &*error.code().name(),
                    "errmsg": error.message(),
                });
            }
        }
    }
    Ok(Outcome::Done)
}

/// Returns an error for each index of a collection that version 1 of the Stable API does not
/// permit.
///
/// Errors: a view whose pipeline the API does not permit; it ends the command, as in mongod.
fn refused(collection: &Collection) -> Result<Vec<Error>> {
    let state = collection.state();
    if let Some(view) = &state.options.view {
        stable_api::check_stages(view.pipeline.as_doc())?;
    }
    let is_refused = |spec: &IndexSpec| spec.sparse || matches!(spec.kind, IndexKind::Text(_));
    let indexes = state.indexes.iter().filter(|index| is_refused(&index.spec));
    Ok(indexes.map(|index| index_not_allowed(&index.spec.name)).collect())
}
