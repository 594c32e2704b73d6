//! `dropIndexes`: removes indexes by name, by key pattern, or all but the one on `_id`.

use marula_bson::{DocWriter, Type, Value};
use marula_db::catalog::indexes::DropSelector;
use marula_db::{Collection, Db, Namespace};
use marula_error::{Result, errors};
use marula_operation::targets;
use marula_operation::time_series::index::key_of_buckets;
use marula_query::feature_version::FeatureVersion;

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::catalog_log::append_uuid;
use crate::collection_uuid;
use crate::context::Context;
use crate::log::attributes;
use crate::request::Request;
use crate::time_series;

errors! {
    views_are_locked() = 51_070, "Modifications to system.views must take an exclusive lock";
    no_collection(ns: &Namespace) = NamespaceNotFound, "ns not found {ns}";
    wrong_type(kind: &str) = TypeMismatch, "BSON field 'dropIndexes.index' is the wrong type '{kind}', expected types '[string, object']";
    not_strings() = TypeMismatch, "BSON field 'dropIndexes.index' is the wrong type 'array', expected types '[string']";
    not_a_string(at: usize, kind: &str) = TypeMismatch, "BSON field 'dropIndexes.index.{at}' is the wrong type '{kind}', expected type 'string'";
}

pub(super) static COMMAND: Command = Command {
    name: "dropIndexes",
    aliases: &["deleteIndexes"],
    help: "Removes indexes of a collection: by name, by key pattern, or all but the one on _id.",
    writes: true,
    takes_write_concern: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "dropIndexes",
        fields: &[
            Field::optional("collectionUUID", Types::Uuid),
            Field::required("index", INDEX).or(wrong_type).checked(check_names),
            // mongos sends this field; it has no effect here.
            Field::optional("isTimeseriesNamespace", Types::BOOLEAN),
        ],
    },
    auth: Auth::Collection(&["dropIndex"]),
    run,
    ..Command::DEFAULT
};

const INDEX: Types = Types::Of(&[Type::String, Type::Document, Type::Array]);

/// Checks a list of index names. The first element decides whether it is one; null among the others
/// is ignored, as in mongod.
fn check_names(_: FeatureVersion, index: Value<'_>) -> Result<()> {
    let Some(names) = index.as_array() else { return Ok(()) };
    for (at, name) in names.values().enumerate() {
        match name {
            Value::String(_) => {}
            _ if at == 0 => return Err(not_strings()),
            _ if name.is_nullish() => {}
            _ => return Err(not_a_string(at, name.kind().alias())),
        }
    }
    Ok(())
}

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let selector = selector(request);
    let ns = request.namespace()?;
    collection_uuid::check_buckets(context, request, &ns)?;
    let db = &context.server.db;
    if ns.collection() == "system.views" {
        return Err(views_are_locked());
    }
    let collection = db.collection(&ns).ok_or_else(|| no_collection(&ns))?;
    if collection.state().indexes.len() > 1 {
        context.check_user_writes(ns.db())?;
    }
    log(&ns, &collection, request);
    let was = match db.buckets_of(&collection)? {
        Some(buckets) => drop_of_buckets(db, &buckets, &selector, request)?,
        None => {
            targets::check_not_view(&collection)?;
            db.drop_indexes(&collection, &selector)?
        }
    };
    reply.append("nIndexesWas", i32::try_from(was).expect("a collection has at most 64 indexes"));
    if matches!(selector, DropSelector::All) {
        reply.append("msg", "non-_id indexes dropped for collection");
    }
    Ok(Outcome::Done)
}

fn log(ns: &Namespace, collection: &Collection, request: &Request<'_>) {
    let attr = attributes(|out| {
        out.append("namespace", ns.as_str());
        append_uuid("uuid", collection.uuid(), out);
        if let Some(indexes) = request.arg("index") {
            out.append("indexes", indexes);
        }
    });
    tracing::info!(target: "COMMAND", id = 51_806, attr, "CMD: dropIndexes");
}

fn selector<'a>(request: &Request<'a>) -> DropSelector<'a> {
    let names: Vec<String> = match request.arg("index") {
        Some(Value::Document(key)) => return DropSelector::Key(key),
        Some(Value::Array(names)) => {
            names.values().filter_map(|name| name.as_str()).map(|name| name.to_string()).collect()
        }
        name => {
            name.and_then(|name| name.as_str()).map(|name| name.to_string()).into_iter().collect()
        }
    };
    match names.first() {
        Some(first) if first == "*" => DropSelector::All,
        _ => DropSelector::Names(names),
    }
}

/// Drops indexes of a time-series collection, which are indexes of its buckets.
fn drop_of_buckets(
    db: &Db,
    buckets: &Collection,
    selector: &DropSelector<'_>,
    request: &Request<'_>,
) -> Result<usize> {
    let state = buckets.state();
    match (selector, &state.options.time_series) {
        (DropSelector::Key(key), Some(options)) => {
            let key = key_of_buckets(options, *key);
            let key = key.map_err(|error| time_series::not_found(error, request))?;
            db.drop_indexes(buckets, &DropSelector::Key(key.as_doc()))
        }
        (selector, _) => db.drop_indexes(buckets, selector),
    }
}
