//! The commands that show a distributed store as a sharded cluster: `listShards`, `getShardMap`,
//! `isdbgrid`, `balancerStatus` and others.
//!
//! The store is the one shard, and places data by itself. A command that asks for what is so
//! already succeeds (a database is moved to the shard that it is on); one that asks for more
//! fails, because the store's own tools do it. Only servers over a distributed store have them.
//!
//! Source: manual "Sharding Commands".

use marula_bson::{DocWriter, Value, doc_fields, long};
use marula_db::Namespace;
use marula_db::namespace::is_database_name;
use marula_error::{Result, errors};
use marula_storage::cluster::Placement;

use super::check_sharding_index::{invalid_name, namespace, needs_on_named};
use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::check::{Check, Target};
use crate::cluster;
use crate::context::Context;
use crate::host;
use crate::request::Request;

errors! {
    no_such_shard(name: &str) = ShardNotFound, "shard {name} does not exist";
    left_to_store(command: &str, store: &str) = IllegalOperation, "{command} is not possible: the store '{store}' places the data on its servers itself, and its own tools control that";
    nothing_to_balance(store: &str) = IllegalOperation, "the balancer cannot be started: each server of the store '{store}' has all data, so that nothing can be moved";
    balances_itself(store: &str) = IllegalOperation, "the balancer cannot be stopped: the store '{store}' moves data itself, and its own tools control that";
    not_sharded(ns: &Namespace) = NamespaceNotSharded, "Collection unsharded or undefined: {ns}";
    database_type(kind: &str) = TypeMismatch, "the name of a database is a string, found: {kind}";
}

const BASE: Command = Command { admin_only: true, needs_cluster: true, ..Command::DEFAULT };

pub(super) static LIST_SHARDS: Command = Command {
    name: "listShards",
    help: "Lists the shards: the distributed store is the only one. Its document has the store's servers with state, sizes and lag.",
    run: |context, _, reply| {
        let mut shards = reply.begin_array("shards");
        for shard in &cluster::shards(context.server)? {
            shards.push(shard);
        }
        drop(shards);
        Ok(Outcome::Done)
    },
    auth: Auth::Cluster(&["listShards"]),
    ..BASE
};

pub(super) static GET_SHARD_MAP: Command = Command {
    name: "getShardMap",
    help: "Returns the addresses of the distributed store's servers, in the form of a shard.",
    run: get_shard_map,
    auth: Auth::Cluster(&["getShardMap"]),
    ..BASE
};

pub(super) static IS_DB_GRID: Command = Command {
    name: "isdbgrid",
    help: "Succeeds on a server that stands before a cluster.",
    run: |context, _, reply| {
        let host = host::name_and_port(context.server);
        doc_fields!(reply; "isdbgrid": 1, "hostname": host.as_str());
        Ok(Outcome::Done)
    },
    auth: Auth::User,
    admin_only: false,
    ..BASE
};

pub(super) static BALANCER_STATUS: Command = Command {
    name: "balancerStatus",
    help: "Returns whether the distributed store moves data among its servers. A store whose servers each have all data never does.",
    run: balancer_status,
    auth: Auth::Content(|_, check| {
        check.needs_on("config", "settings", &["find"]);
        Ok(())
    }),
    ..BASE
};

pub(super) static BALANCER_START: Command = Command {
    name: "balancerStart",
    help: "Succeeds if the distributed store moves data among its servers, which it then does anyway.",
    fields: Fields::Known { place: "balancerStart", fields: &[] },
    run: |context, _, _| match placement(context)? {
        Placement::Divided { .. } => Ok(Outcome::Done),
        Placement::Everywhere => Err(nothing_to_balance(cluster::shard_name(context.server))),
    },
    auth: Auth::Content(changes_settings),
    ..BASE
};

pub(super) static BALANCER_STOP: Command = Command {
    name: "balancerStop",
    help: "Succeeds if the distributed store moves no data among its servers, because each has all of it.",
    run: |context, _, _| match placement(context)? {
        Placement::Everywhere => Ok(Outcome::Done),
        Placement::Divided { .. } => Err(balances_itself(cluster::shard_name(context.server))),
    },
    auth: Auth::Content(changes_settings),
    ..BASE
};

pub(super) static BALANCER_COLLECTION_STATUS: Command = Command {
    name: "balancerCollectionStatus",
    help: "Returns that a collection with a shard key is where it should be: the distributed store sees to that.",
    run: |context, request, reply| {
        check_has_key(context, request)?;
        reply.append("balancerCompliant", true);
        Ok(Outcome::Done)
    },
    auth: Auth::Content(|request, check| needs_on_named(request, check, "enableSharding")),
    ..BASE
};

pub(super) static ENABLE_SHARDING: Command = Command {
    name: "enableSharding",
    help: "Succeeds: every database is on the distributed store. A database exists once it has a collection.",
    fields: Fields::Known {
        place: "enableSharding",
        fields: &[Field::optional("primaryShard", Types::STRING)],
    },
    run: |context, request, _| {
        database(request)?;
        check_shard(context, request, "primaryShard")
    },
    auth: Auth::Content(|request, check| {
        check.needs(Target::Database(database(request)?), &["enableSharding"]);
        Ok(())
    }),
    ..BASE
};

pub(super) static MOVE_PRIMARY: Command = Command {
    name: "movePrimary",
    help: "Moves a database to a shard. It succeeds for the only one, on which it is already.",
    fields: Fields::Known { place: "movePrimary", fields: &[Field::required("to", Types::STRING)] },
    run: |context, request, _| {
        database(request)?;
        check_shard(context, request, "to")
    },
    auth: Auth::Content(|request, check| {
        check.needs(Target::Database(database(request)?), &["moveChunk"]);
        Ok(())
    }),
    ..BASE
};

pub(super) static MOVE_CHUNK: Command = Command {
    name: "moveChunk",
    help: "Moves a chunk to a shard. It succeeds for the only one, on which all chunks are already.",
    fields: Fields::Known { place: "moveChunk", fields: &[Field::required("to", Types::STRING)] },
    run: |context, request, _| check_move(context, request, "to"),
    auth: Auth::Content(|request, check| needs_on_named(request, check, "moveChunk")),
    ..BASE
};

pub(super) static MOVE_RANGE: Command = Command {
    name: "moveRange",
    help: "Moves a range to a shard. It succeeds for the only one, on which all ranges are already.",
    fields: Fields::Known {
        place: "moveRange",
        fields: &[Field::required("toShard", Types::STRING)],
    },
    run: |context, request, _| check_move(context, request, "toShard"),
    auth: Auth::Content(|request, check| needs_on_named(request, check, "moveChunk")),
    ..BASE
};

/// A command that asks for a placement of data.
const fn refused(name: &'static str, help: &'static str, auth: Auth) -> Command {
    Command {
        name,
        help,
        auth,
        run: |context, request, _| {
            Err(left_to_store(request.command.name, cluster::shard_name(context.server)))
        },
        ..BASE
    }
}

pub(super) static ADD_SHARD: Command = refused(
    "addShard",
    "Fails: servers are added to a distributed store with its own tools.",
    Auth::Cluster(&["addShard"]),
);

pub(super) static REMOVE_SHARD: Command = refused(
    "removeShard",
    "Fails: servers are removed from a distributed store with its own tools.",
    Auth::Cluster(&["removeShard"]),
);

pub(super) static ADD_SHARD_TO_ZONE: Command = refused(
    "addShardToZone",
    "Fails: a distributed store has no zones.",
    Auth::Content(changes_settings),
);

pub(super) static REMOVE_SHARD_FROM_ZONE: Command = refused(
    "removeShardFromZone",
    "Fails: a distributed store has no zones.",
    Auth::Content(changes_settings),
);

pub(super) static UPDATE_ZONE_KEY_RANGE: Command = refused(
    "updateZoneKeyRange",
    "Fails: a distributed store has no zones.",
    Auth::Content(changes_settings),
);

pub(super) static SPLIT: Command = refused(
    "split",
    "Fails: a distributed store divides the data itself.",
    Auth::Content(|request, check| needs_on_named(request, check, "splitChunk")),
);

pub(super) static MERGE_CHUNKS: Command = refused(
    "mergeChunks",
    "Fails: a distributed store divides the data itself.",
    Auth::Content(|request, check| needs_on_named(request, check, "splitChunk")),
);

pub(super) static RESHARD_COLLECTION: Command = refused(
    "reshardCollection",
    "Fails: a distributed store places the data itself, whatever the shard key.",
    Auth::Content(|request, check| needs_on_named(request, check, "reshardCollection")),
);

fn get_shard_map(
    context: &mut Context<'_>,
    _: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let name = cluster::shard_name(context.server);
    let status = context.server.db.cluster_status()?;
    let all = status.connection_string(name);
    // The metadata that mongos keeps on config servers is in the same store.
    let mut map = reply.begin_doc("map");
    map.append("config", all.as_str()).append(name, all.as_str());
    drop(map);
    let mut hosts = reply.begin_doc("hosts");
    for member in &status.members {
        hosts.append(member.address.as_str(), name);
    }
    drop(hosts);
    reply.begin_doc("connStrings").append(all.as_str(), name);
    Ok(Outcome::Done)
}

fn placement(context: &Context<'_>) -> Result<Placement> {
    Ok(context.server.db.cluster_status()?.placement)
}

fn balancer_status(
    context: &mut Context<'_>,
    _: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    match placement(context)? {
        Placement::Everywhere => {
            doc_fields!(reply;
                "mode": cluster::balancer_mode(false),
                "inBalancerRound": false,
                "numBalancerRounds": 0_i64,
            );
        }
        // The store does not number its rounds.
        Placement::Divided { moving_bytes } => {
            doc_fields!(reply;
                "mode": cluster::balancer_mode(true),
                "inBalancerRound": moving_bytes > 0,
                "movingBytes": long(moving_bytes),
            );
        }
    }
    Ok(Outcome::Done)
}

/// Returns the database in the first field of the command.
fn database(request: &Request<'_>) -> Result<String> {
    match request.first.value.get() {
        Value::String(name) => {
            let name = name.to_string();
            if is_database_name(&name) { Ok(name) } else { Err(invalid_name(&name)) }
        }
        other => Err(database_type(other.kind().alias())),
    }
}

/// Succeeds if a field names the one shard, or is not there.
fn check_shard(context: &Context<'_>, request: &Request<'_>, field: &str) -> Result<Outcome> {
    match request.text(field) {
        Some(shard) if shard != cluster::shard_name(context.server) => {
            Err(no_such_shard(&shard.to_string()))
        }
        _ => Ok(Outcome::Done),
    }
}

/// The same for a part of a collection, which must have a shard key.
fn check_move(context: &Context<'_>, request: &Request<'_>, field: &str) -> Result<Outcome> {
    check_has_key(context, request)?;
    check_shard(context, request, field)
}

/// Checks that the collection in the first field of the command has a shard key.
fn check_has_key(context: &Context<'_>, request: &Request<'_>) -> Result<()> {
    let ns = namespace(request)?;
    let collection = context.server.db.collection(&ns);
    match collection.is_some_and(|collection| collection.state().sharding.is_some()) {
        true => Ok(()),
        false => Err(not_sharded(&ns)),
    }
}

/// Requires the privilege to change the settings of the cluster.
fn changes_settings(_: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    check.needs_on("config", "settings", &["update"]);
    Ok(())
}
