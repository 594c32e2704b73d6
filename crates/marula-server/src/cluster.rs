//! The collections by which tools of sharded clusters see a distributed store: `config.shards`,
//! `config.mongos` and others, and the parts that commands share with them.
//!
//! The store is the one shard. Its servers are in the shard's document, which is Marula's own
//! addition; the Marula processes are the `mongos` processes. A collection that `shardCollection`
//! was called for has one chunk, because it is on that shard as a whole.
//!
//! Source: manual "Config Database"; the forms are those of mongos 6.0.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use marula_bson::object_id::ObjectId;
use marula_bson::{Binary, DocBuf, DocWriter, Value, doc_fields, long};
use marula_db::Collection;
use marula_db::collection::Sharding;
use marula_error::Result;
use marula_storage::ClusterStatus;
use marula_storage::cluster::{Lag, Member, MemberState, Placement};
use marula_storage::nodes::Node;

use crate::command::compatible_version;
use crate::server::Server;

/// Writes the documents of a collection.
type Write = fn(&Server, i64) -> Result<Vec<DocBuf>>;

/// The collections of the database `config`.
const COLLECTIONS: &[(&str, Write)] = &[
    ("version", |server, _| version(server)),
    ("shards", |server, _| shards(server)),
    ("mongos", routers),
    ("databases", |server, _| Ok(databases(server))),
    ("collections", |server, _| collections(server)),
    ("chunks", |server, _| Ok(chunks(server))),
    ("settings", |server, _| settings(server)),
];

/// Returns the documents of the collection with this name at the time `now_ms`.
///
/// Errors: the store cannot be reached.
pub(crate) fn documents(server: &Server, name: &str, now_ms: i64) -> Result<Vec<DocBuf>> {
    let row = COLLECTIONS.iter().find(|(known, _)| *known == name);
    row.map_or(Ok(Vec::new()), |(_, write)| write(server, now_ms))
}

/// Returns the name of the shard: that of the store.
pub(crate) fn shard_name(server: &Server) -> &'static str {
    server.db.engine().name
}

fn version(server: &Server) -> Result<Vec<DocBuf>> {
    let mut id = [0; 12];
    id[4..].copy_from_slice(&server.db.cluster_status()?.id.to_be_bytes());
    Ok(vec![DocBuf::build(|out| {
        doc_fields!(out;
            "_id": 1,
            "minCompatibleVersion": 5,
            "currentVersion": 6,
            "clusterId": ObjectId::from_bytes(id),
        );
    })])
}

/// Returns the document of the shard.
///
/// Errors: the store cannot be reached.
pub(crate) fn shards(server: &Server) -> Result<Vec<DocBuf>> {
    let (name, status) = (shard_name(server), server.db.cluster_status()?);
    Ok(vec![DocBuf::build(|out| {
        out.append("_id", name);
        out.append("host", status.connection_string(name).as_str());
        out.append("state", 1);
        write_status(&status, out);
    })])
}

/// Writes the store's own state: its servers and its faults.
fn write_status(status: &ClusterStatus, out: &mut DocWriter<'_>) {
    out.append("healthy", status.is_healthy());
    let mut members = out.begin_array("members");
    for member in &status.members {
        write_member(member, &mut members.begin_doc());
    }
    drop(members);
    write_texts("faults", &status.faults, out);
    if let Placement::Divided { moving_bytes } = status.placement {
        out.append("movingBytes", long(moving_bytes));
    }
}

fn write_member(member: &Member, out: &mut DocWriter<'_>) {
    doc_fields!(out;
        "name": member.name.as_str(),
        "host": member.address.as_str(),
        "health": i32::from(member.is_healthy()),
    );
    match &member.state {
        Err(error) => drop(out.append("errmsg", error.as_str())),
        Ok(MemberState { version, role, disk_bytes, used_bytes, lag, faults }) => {
            doc_fields!(out;
                "stateStr": role.as_str(),
                "version": version.as_str(),
                "sizeOnDisk": long(*disk_bytes),
                "sizeInUse": long(*used_bytes),
            );
            match lag {
                None => {}
                Some(Lag::Commits(count)) => drop(out.append("lagCommits", long(*count))),
                Some(Lag::Ms(ms)) => drop(out.append("lagMillis", long(*ms))),
            }
            write_texts("faults", faults, out);
        }
    }
}

fn write_texts(name: &str, texts: &[String], out: &mut DocWriter<'_>) {
    if texts.is_empty() {
        return;
    }
    let mut list = out.begin_array(name);
    for text in texts {
        list.push(text.as_str());
    }
}

/// Returns the Marula processes that serve the store.
fn routers(server: &Server, now_ms: i64) -> Result<Vec<DocBuf>> {
    let (mongo_version, _) = compatible_version(server.db.feature_version());
    let router = |host: &str, version: &str, started_ms: i64, ping_ms: i64| {
        DocBuf::build(|out| {
            doc_fields!(out;
                "_id": host,
                "advisoryHostFQDNs": [],
                "created": Value::DateTime(started_ms),
                "mongoVersion": mongo_version,
                "ping": Value::DateTime(ping_ms),
                "up": ping_ms.saturating_sub(started_ms).max(0) / 1_000,
                "waiting": true,
                "marula": version,
            );
        })
    };
    if !server.db.is_shared() {
        let up_ms = long(server.started.elapsed().as_millis());
        let (host, version) = (&server.options.host, env!("CARGO_PKG_VERSION"));
        return Ok(vec![router(host, version, now_ms.saturating_sub(up_ms), now_ms)]);
    }
    let mut nodes = server.db.node_list()?;
    // A process that was killed may have been started again under the same name.
    nodes.sort_by_key(|node| Reverse(node.ping_ms));
    let mut seen = HashSet::new();
    nodes.retain(|node| seen.insert(node.host.clone()));
    nodes.sort_by(|one, other| one.host.cmp(&other.host));
    let document = |node: &Node| router(&node.host, &node.version, node.started_ms, node.ping_ms);
    Ok(nodes.iter().map(document).collect())
}

/// Returns the databases, without those that are not on shards in a cluster of mongod.
fn databases(server: &Server) -> Vec<DocBuf> {
    let mut names = server.db.catalog().databases();
    names.retain(|name| !matches!(name.as_str(), "admin" | "config" | "local"));
    names.sort();
    let database = |name: &String| {
        DocBuf::build(|out| {
            doc_fields!(out;
                "_id": name.as_str(),
                "primary": shard_name(server),
                "partitioned": true,
            );
        })
    };
    names.iter().map(database).collect()
}

/// Returns the collections with a shard key, in the order of their names.
fn sharded(server: &Server) -> Vec<(Arc<Collection>, Sharding)> {
    let with_key = |collection: Arc<Collection>| {
        let sharding = collection.state().sharding.clone();
        sharding.map(|sharding| (collection, sharding))
    };
    let mut found: Vec<_> = server.db.catalog().all().into_iter().filter_map(with_key).collect();
    found.sort_by_key(|(collection, _)| collection.namespace());
    found
}

fn collections(server: &Server) -> Result<Vec<DocBuf>> {
    let found = sharded(server);
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let is_balanced = is_balanced(server)?;
    let document = |(collection, sharding): &(Arc<Collection>, Sharding)| {
        let Sharding { key, is_unique, at_ms } = sharding;
        DocBuf::build(|out| {
            doc_fields!(out;
                "_id": collection.namespace().as_str(),
                "lastmodEpoch": id_of(collection),
                "lastmod": Value::DateTime(*at_ms),
                "timestamp": timestamp(*at_ms),
                "uuid": Binary { subtype: 4, bytes: collection.uuid() },
                "key": key,
                "unique": *is_unique,
                "noBalance": !is_balanced,
            );
        })
    };
    Ok(found.iter().map(document).collect())
}

/// Returns one chunk for each collection with a shard key: all of it is on the one shard.
fn chunks(server: &Server) -> Vec<DocBuf> {
    let document = |(collection, sharding): &(Arc<Collection>, Sharding)| {
        DocBuf::build(|out| {
            out.append("_id", id_of(collection));
            out.append("uuid", Binary { subtype: 4, bytes: collection.uuid() });
            for (name, bound) in [("min", Value::MinKey), ("max", Value::MaxKey)] {
                let mut bounds = out.begin_doc(name);
                for field in sharding.key.as_doc() {
                    bounds.append(field.name, bound);
                }
            }
            doc_fields!(out; "shard": shard_name(server), "lastmod": Value::Timestamp(1 << 32));
        })
    };
    sharded(server).iter().map(document).collect()
}

/// Returns the settings: the store's own balancing, and no splitting of chunks.
fn settings(server: &Server) -> Result<Vec<DocBuf>> {
    let is_balanced = is_balanced(server)?;
    let balancer = DocBuf::build(|out| {
        let mode = balancer_mode(is_balanced);
        doc_fields!(out; "_id": "balancer", "stopped": !is_balanced, "mode": mode);
    });
    let splits = DocBuf::build(|out| {
        doc_fields!(out; "_id": "autosplit", "enabled": false);
    });
    Ok(vec![balancer, splits])
}

/// Returns whether the store moves data among its servers.
fn is_balanced(server: &Server) -> Result<bool> {
    Ok(server.db.cluster_status()?.placement != Placement::Everywhere)
}

/// Returns the mode of a balancer that runs, or that there is not.
pub(crate) fn balancer_mode(runs: bool) -> &'static str {
    if runs { "full" } else { "off" }
}

/// An id that belongs to the collection: the beginning of its UUID.
fn id_of(collection: &Collection) -> ObjectId {
    ObjectId::from_bytes(*collection.uuid().first_chunk().expect("a UUID has 16 bytes"))
}

fn timestamp(at_ms: i64) -> Value<'static> {
    Value::Timestamp(u64::try_from(at_ms / 1_000).unwrap_or(0) << 32 | 1)
}
