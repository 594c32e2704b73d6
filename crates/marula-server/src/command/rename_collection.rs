//! `renameCollection`: renames a collection, within its database or into another.

use marula_bson::{Binary, DocWriter, Type, Value};
use marula_db::Namespace;
use marula_db::catalog::ddl::rename_to_itself;
use marula_db::time_series::BUCKETS_PREFIX;
use marula_error::{Error, Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::check::{Check, Target};
use crate::collection_uuid;
use crate::context::Context;
use crate::request::Request;
use crate::session;
use crate::writes;

errors! {
    users_stay() = IllegalOperation, "renaming system.users collection or renaming to system.users is not allowed";
    version_stays() = IllegalOperation, "renaming the server configuration collection (admin.system.version) is not allowed";
    oplog_stays() = IllegalOperation, "can't rename live oplog while replicating";
    drop_target_type(kind: &str) = TypeMismatch, "BSON field 'renameCollection.dropTarget' is the wrong type '{kind}', expected types '[bool, binData']";
    uuid_across_databases() = InvalidOptions, "Cannot provide an expected collection UUID when renaming between databases";
    invalid_target(to: &str) = InvalidNamespace, "Invalid target namespace: {to}";
    bad_source(reason: &str) = IllegalOperation, "error with source namespace: {reason}";
    bad_target(reason: &str) = IllegalOperation, "error with target namespace: {reason}";
    buckets_to_other(from: &Namespace, to: &Namespace) = IllegalOperation, "Cannot rename time-series buckets collection {{{from}}} to a non-time-series buckets namespace {{{to}}}";
    source_is_view(ns: &Namespace) = CommandNotSupportedOnView, "cannot rename view: {ns}";
    target_is_view(ns: &Namespace) = NamespaceExists, "a view already exists with that name: {ns}";
}

pub(super) static COMMAND: Command = Command {
    name: "renameCollection",
    help: "Renames a collection, within its database or into another.",
    admin_only: true,
    writes: true,
    takes_write_concern: true,
    fields: Fields::Strict {
        place: "renameCollection",
        fields: &[
            Field::required("to", Types::STRING),
            Field::optional("dropTarget", Types::Of(&[Type::Boolean, Type::Binary]))
                .or(drop_target_type),
            Field::optional("stayTemp", Types::BOOLEAN),
            Field::optional("collectionUUID", Types::Uuid),
        ],
    },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

fn run(context: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let from = source(request)?;
    let to = request.text("to").map(|to| to.to_string()).unwrap_or_default();
    let to = Namespace::parse(&to).map_err(|_| invalid_target(&to))?;
    if [&from, &to].iter().any(|ns| ns.collection() == "system.users") {
        return Err(users_stay());
    }
    if from.as_str() == "admin.system.version" {
        return Err(version_stays());
    }
    if from == to {
        return Err(rename_to_itself());
    }
    if from.as_str() == "local.oplog.rs" && context.server.db.oplog().is_on() {
        return Err(oplog_stays());
    }
    writes::check_writable(&from).map_err(|error| bad_source(error.message()))?;
    to.check_creatable().map_err(|error: Error| bad_target(error.message()))?;
    writes::check_writable(&to).map_err(|error| bad_target(error.message()))?;
    if request.arg("collectionUUID").is_some() && from.db() != to.db() {
        return Err(uuid_across_databases());
    }
    collection_uuid::check(context, request, &from)?;
    if let Some(Value::Binary(uuid)) = request.arg("dropTarget") {
        let uuid: [u8; 16] = match uuid {
            Binary { subtype: 4, bytes } => bytes.try_into().map_err(|_| session::bad_uuid())?,
            _ => return Err(session::bad_uuid()),
        };
        collection_uuid::check_is(context, &to, &uuid)?;
    }
    let db = &context.server.db;
    let is_view = |ns: &Namespace| {
        db.collection(ns).is_some_and(|collection| collection.state().options.view.is_some())
    };
    let (has_source, changes_name) = (db.collection(&from).is_some(), from != to);
    if is_view(&from) && changes_name {
        return Err(source_is_view(&from));
    }
    if is_view(&to) && changes_name && has_source {
        return Err(target_is_view(&to));
    }
    let is_of_buckets = |ns: &Namespace| ns.collection().starts_with(BUCKETS_PREFIX);
    if is_of_buckets(&from) && !is_of_buckets(&to) {
        return Err(buckets_to_other(&from, &to));
    }
    if has_source {
        context.check_user_writes(from.db())?;
        context.check_user_writes(to.db())?;
    }
    let drops = request.flag("dropTarget");
    let drops_text = if drops { "yes" } else { "no" };
    tracing::info!(target: "COMMAND", id = 20_400, sourceNamespace = %from, targetNamespace = %to, dropTarget = drops_text, "renameCollectionForCommand");
    db.rename_collection(&from, &to, drops)?;
    Ok(Outcome::Done)
}

/// Returns the namespace of the collection to rename.
fn source(request: &Request<'_>) -> Result<Namespace> {
    let name = request.collection_name()?;
    Namespace::parse(name).map_err(|error| match name.split_once('.') {
        Some((db, collection)) if !db.is_empty() && !collection.is_empty() => {
            bad_source(error.message())
        }
        _ => error,
    })
}

/// Requires the privileges to rename a collection.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let from = source(request)?;
    let to = request.text("to").map(|to| to.to_string()).unwrap_or_default();
    let to = Namespace::parse(&to).map_err(|_| invalid_target(&to))?;
    let target = |ns: &Namespace| Target::collection(ns.db(), ns.collection());
    let drops = request.flag("dropTarget");
    if drops {
        check.needs(target(&to), &["dropCollection"]);
    }
    let database = Target::Database(from.db().to_owned());
    // The new name must not give access to documents that the user could not read under the old
    // name.
    let hides = check.may(&target(&from), "find") || !check.may(&target(&to), "find");
    let stays = from.db() == to.db() && !from.is_system() && !to.is_system();
    if stays && hides && check.may(&database, "renameCollectionSameDB") {
        check.needs(database, &["renameCollectionSameDB"]);
    } else {
        check.needs(target(&from), &["find", "dropCollection"]);
        check.needs(target(&to), &["insert", "createIndex"]);
    }
    Ok(())
}
