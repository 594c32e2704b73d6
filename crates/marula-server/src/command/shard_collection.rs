//! `shardCollection`: gives a collection a shard key.
//!
//! The distributed store places the documents, whatever the key. Two effects remain, and they are
//! those of mongos: the collection and the index of the key are created, the index unique if the
//! key is to be; and `config.collections` shows the key.
//!
//! Source: manual "shardCollection".

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, DocWriter, Value, doc_fields};
use marula_db::collection::{Sharding, State};
use marula_db::index::spec::IndexRequest;
use marula_db::{Collection, Index, IndexSpec, Namespace};
use marula_error::{Result, errors};
use marula_operation::targets;

use super::check_sharding_index::{MultikeyIndexes, namespace, needs_on_named, unsuited};
use super::create_indexes::with_progress;
use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::context::Context;
use crate::request::Request;
use crate::writes;

/// The number of fields of a shard key, at most: that of an index.
const KEY_FIELDS_MAX: usize = 32;

errors! {
    key_empty() = BadValue, "The shard key is empty";
    key_fields() = BadValue, "A shard key has at most 32 fields";
    key_field(field: &str) = BadValue, "A field of a shard key is 1 or 'hashed': {field}";
    two_hashed() = BadValue, "A shard key has at most one hashed field";
    hashed_unique() = InvalidOptions, "Hashed shard keys cannot be declared unique.";
    own_collection(ns: &Namespace) = IllegalOperation, "{ns} is a collection of the server, which cannot have a shard key";
    of_time_series(ns: &Namespace) = CommandNotSupported, "{ns} is a time-series collection, which cannot have a shard key";
    other_key(ns: &Namespace, known: &str) = AlreadyInitialized, "sharding already enabled for collection {ns} with the key {known}";
    no_index() = InvalidOptions, "Please create an index that starts with the proposed shard key before sharding the collection";
    not_unique(name: &str) = InvalidOptions, "the index {name} of the shard key is not unique";
}

pub(super) static COMMAND: Command = Command {
    name: "shardCollection",
    help: "Gives a collection a shard key, which tools show: creates the collection and the index of the key. The distributed store places the documents, whatever the key.",
    admin_only: true,
    needs_cluster: true,
    writes: true,
    takes_write_concern: true,
    fields: Fields::Known {
        place: "shardCollection",
        fields: &[
            Field::required("key", Types::DOCUMENT),
            Field::optional("unique", Types::BOOLEAN),
        ],
    },
    auth: Auth::Content(|request, check| needs_on_named(request, check, "enableSharding")),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = namespace(request)?;
    writes::check_writable(&ns)?;
    if ns.is_system() || matches!(ns.db(), "admin" | "config" | "local") {
        return Err(own_collection(&ns));
    }
    context.check_user_writes(ns.db())?;
    let key = request.arg("key").and_then(|key| key.as_doc()).unwrap_or(Doc::EMPTY);
    let is_unique = request.flag("unique");
    let is_hashed = check_key(key)?;
    if is_hashed && is_unique {
        return Err(hashed_unique());
    }
    let server = context.server.clone();
    if let Some(existing) = server.db.collection(&ns) {
        let state = existing.state();
        if state.options.time_series.is_some() {
            return Err(of_time_series(&ns));
        }
        targets::check_not_view(&existing)?;
        match &state.sharding {
            Some(known) if known.key.as_doc() == key && known.is_unique == is_unique => {
                doc_fields!(reply; "collectionsharded": ns.as_str());
                return Ok(Outcome::Done);
            }
            Some(known) => return Err(other_key(&ns, &known.key.as_doc().to_string())),
            None => {}
        }
    }
    let collection = server.db.collection_or_create(&ns)?;
    if !has_index(&collection.state(), key, is_unique)? {
        if collection.count() > 0 {
            return Err(no_index());
        }
        build_index(context, &collection, key, is_unique)?;
    }
    let sharding = Sharding { key: key.to_buf(), is_unique, at_ms: context.now_ms };
    server.db.shard_collection(&collection, Some(sharding))?;
    doc_fields!(reply; "collectionsharded": ns.as_str());
    Ok(Outcome::Done)
}

/// Checks a shard key; returns whether a field of it is hashed.
fn check_key(key: Doc<'_>) -> Result<bool> {
    let (mut count, mut hashed) = (0, 0);
    for field in key {
        match field.value.get() {
            Value::String(kind) if kind == "hashed" => hashed += 1,
            value if value.as_f64() == Some(1.0) => {}
            _ => return Err(key_field(&field.name.to_string())),
        }
        count += 1;
    }
    match (count, hashed) {
        (0, _) => Err(key_empty()),
        (count, _) if count > KEY_FIELDS_MAX => Err(key_fields()),
        (_, 0 | 1) => Ok(hashed == 1),
        _ => Err(two_hashed()),
    }
}

/// Returns whether an index can serve the key.
///
/// Errors: the key is to be unique, and the only index that begins with it is not.
fn has_index(state: &State, key: Doc<'_>, is_unique: bool) -> Result<bool> {
    if state.options.clustered.is_some() && is_id(key) {
        return Ok(true);
    }
    let suited = |index: &&Arc<Index>| {
        !index.spec.hidden && unsuited(index, key, MultikeyIndexes::Rejected).is_empty()
    };
    let is_whole = |index: &Index| index.spec.key.as_doc().iter().count() == key.iter().count();
    let mut suited = state.indexes.iter().filter(suited).peekable();
    let Some(first) = suited.peek().map(|index| index.spec.name.clone()) else { return Ok(false) };
    if is_unique && !suited.any(|index| (index.spec.unique || index.is_id()) && is_whole(index)) {
        return Err(not_unique(&first));
    }
    Ok(true)
}

fn is_id(key: Doc<'_>) -> bool {
    let mut fields = key.iter();
    fields.next().is_some_and(|field| field.name == "_id") && fields.next().is_none()
}

fn build_index(
    context: &Context<'_>,
    collection: &Collection,
    key: Doc<'_>,
    is_unique: bool,
) -> Result<()> {
    let name = IndexSpec::default_name(key);
    let document = DocBuf::build(|out| {
        doc_fields!(out; "key": key, "name": name.as_str());
        if is_unique {
            out.append("unique", true);
        }
    });
    let state = collection.state();
    let asked = IndexRequest {
        collation: state.options.collation.as_ref(),
        clustered: state.options.clustered.as_ref().map(|clustered| clustered.as_doc()),
        ignores_unknown: false,
        version: context.server.db.feature_version(),
    };
    let specs = asked.specs(&[document])?;
    with_progress(context, &collection.namespace(), |options| {
        context.server.db.build_indexes(collection, &specs, options)
    })?;
    Ok(())
}
