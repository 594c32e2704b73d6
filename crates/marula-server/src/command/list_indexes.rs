//! `listIndexes`: the indexes of a collection.

use marula_bson::{DocBuf, DocWriter, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};
use marula_operation::targets;
use marula_operation::time_series::index;

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Named, OnSecondary, Outcome};
use crate::context::Context;
use crate::listing;
use crate::request::Request;

errors! {
    not_together() = InvalidOptions, "The includeBuildUUIDs flag and includeBuildIndexInfo flag cannot both be set to true";
    no_collection(ns: &Namespace) = NamespaceNotFound, "ns does not exist: {ns}";
}

pub(super) static COMMAND: Command = Command {
    name: "listIndexes",
    help: "Lists the indexes of a collection.",
    place: CommandPlace::Reserved,
    in_api_v1: true,
    secondary: Some(OnSecondary::IfPreferred),
    fields: Fields::Strict {
        place: "listIndexes",
        fields: &[
            Field::optional("cursor", Types::DOCUMENT),
            Field::optional("isTimeseriesNamespace", Types::FLAG),
            Field::optional("includeBuildUUIDs", Types::FLAG),
            Field::optional("includeIndexBuildInfo", Types::FLAG),
        ],
    },
    named: Named::BY_UUID,
    auth: Auth::Collection(&["listIndexes"]),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = request.namespace()?;
    if request.flag("includeBuildUUIDs") && request.flag("includeIndexBuildInfo") {
        return Err(not_together());
    }
    let collection = context.server.db.collection(&ns).ok_or_else(|| no_collection(&ns))?;
    let buckets = context.server.db.buckets_of(&collection)?;
    let is_shown = buckets.is_some();
    let collection = buckets.unwrap_or(collection);
    targets::check_not_view(&collection)?;
    let state = collection.state();
    let mut documents: Vec<DocBuf> = Vec::new();
    if let Some(clustered) = &state.options.clustered
        && state.options.time_series.is_none()
    {
        // The clustered index of a collection is not a separate index.
        let mut document = clustered.clone();
        let expire_after = state.options.document.as_doc().get("expireAfterSeconds");
        if let Some(seconds) = expire_after.and_then(|seconds| seconds.as_exact_i64()) {
            document.push("expireAfterSeconds", Value::whole(seconds));
        }
        if let Some(collation) = &state.options.collation {
            document.push("collation", collation.to_doc());
        }
        document.push("clustered", Value::Boolean(true));
        documents.push(document);
    }
    let building = state.building.iter().flat_map(|build| &build.indexes);
    // A rebuilt index is listed once, not also as a build.
    let building = building.filter(|index| state.index(&index.spec.name).is_none());
    let specs = state.indexes.iter().chain(building).map(|index| index.spec.listed());
    match state.options.time_series.as_ref().filter(|_| is_shown) {
        Some(options) => {
            documents.extend(specs.filter_map(|spec| index::shown(options, spec.as_doc())));
        }
        None => documents.extend(specs),
    }
    if request.flag("includeIndexBuildInfo") {
        documents = documents.iter().map(|spec| marula_bson::doc! { "spec": spec }).collect();
    }
    listing::reply(context, request, ns, documents, reply)?;
    Ok(Outcome::Done)
}
