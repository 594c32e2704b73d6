//! `drop`: removes a collection or a view.

use marula_bson::DocWriter;
use marula_db::Namespace;
use marula_db::time_series::{BUCKETS_PREFIX, shown_namespace};
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::collection_uuid;
use crate::context::Context;
use crate::profiling;
use crate::request::Request;

errors! {
    profiler_on() = IllegalOperation, "turn off profiling before dropping system.profile collection";
    system_collection(ns: &Namespace) = IllegalOperation, "can't drop system collection {ns}";
}

pub(super) static COMMAND: Command = Command {
    name: "drop",
    help: "Removes a collection with its documents and indexes, or a view.",
    writes: true,
    takes_write_concern: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "drop",
        fields: &[Field::optional("collectionUUID", Types::Uuid)],
    },
    auth: Auth::Collection(&["dropCollection"]),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = request.namespace()?;
    let db = &context.server.db;
    if is_kept(&ns) && db.collection(&ns).is_some() {
        return Err(system_collection(&ns));
    }
    let is_profile = ns.collection() == profiling::COLLECTION;
    if is_profile && context.server.profiling.settings().database(ns.db()).level > 0 {
        return Err(profiler_on());
    }
    collection_uuid::check(context, request, &ns)?;
    let buckets = match db.collection(&ns) {
        Some(collection) => db.buckets_of(&collection).ok().flatten(),
        None => None,
    };
    if db.collection(&ns).is_some() {
        context.check_user_writes(ns.db())?;
    }
    tracing::info!(target: "COMMAND", id = 518_070, namespace = %ns, "CMD: drop");
    let dropped = db.drop_collection(&ns)?;
    let ns = match dropped.state().options.time_series {
        // The time-series collection is dropped with its buckets; the reply names the collection
        // that clients know.
        Some(_) => shown_namespace(&ns).unwrap_or(ns),
        None => ns,
    };
    let state = buckets.unwrap_or(dropped).state();
    if state.options.view.is_none() {
        let indexes =
            i32::try_from(state.indexes.len()).expect("a collection has at most 64 indexes");
        reply.append("nIndexesWas", indexes);
    }
    reply.append("ns", ns.as_str());
    Ok(Outcome::Done)
}

/// Returns whether a collection is a system collection that may not be dropped. Permitted are those
/// that the server creates again or can do without.
fn is_kept(ns: &Namespace) -> bool {
    let may_go = match (ns.db(), ns.collection()) {
        ("admin", _) => false,
        (_, "system.views" | "system.profile") => true,
        ("config", "system.sessions" | "system.preimages") | ("local", "system.healthlog") => true,
        (_, name) => name.starts_with(BUCKETS_PREFIX),
    };
    ns.is_system() && !may_go
}
