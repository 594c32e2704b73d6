//! Commands with a short reply: `_isSelf`, `features`, `shardingState`, `availableQueryOptions`,
//! `lockInfo`, `connPoolStats`, `connPoolSync`, `getLastError`, `driverOIDTest`, `logRotate` and
//! `dropConnections`.
//!
//! Tools and the tests of drivers send them. Most report that a feature of a cluster is absent.

use marula_bson::{Doc, DocWriter, Value, doc_fields};
use marula_error::{Result, errors};
use marula_query::javascript;
use marula_storage::cluster::Connections;

use super::fields::{self, Field};
use super::{Auth, Command, CommandPlace, Fields, Outcome, Types};
use crate::context::Context;
use crate::request::Request;

errors! {
    no_get_last_error() = 5_739_000, "getLastError command is not supported";
    log_name_type(kind: &str) = TypeMismatch, "BSON field 'logRotate.logRotate' is the wrong type '{kind}', expected types '[bool, string']";
    host_empty(text: &str) = FailedToParse, "Empty host component parsing HostAndPort from \"{text}\"";
    two_colons(text: &str) = FailedToParse, "More than one ':' detected. If this is an ipv6 address, it needs to be surrounded by '[' and ']'; {text}";
    port_range(port: i32, text: &str) = FailedToParse, "Port number {port} out of range parsing HostAndPort from \"{text}\"";
    port_no_number() = FailedToParse, "Did not consume whole string.";
    no_such_log() = NoSuchKey, "Log rotation failed due to one or more errors";
}

const INLINE: Command =
    Command { place: CommandPlace::Inline, auth: Auth::User, ..Command::DEFAULT };
const ADMIN: Command = Command { admin_only: true, ..INLINE };

pub(super) static IS_SELF: Command = Command {
    name: "_isSelf",
    help: "Returns the identity of the server's process.",
    auth: Auth::Anyone,
    run: |context, _, reply| {
        reply.append("id", context.server.process_id);
        Ok(Outcome::Done)
    },
    ..INLINE
};

pub(super) static FEATURES: Command = Command {
    name: "features",
    help: "Returns the features that this server was built with.",
    fields: Fields::Strict {
        place: "features",
        fields: &[Field::optional("oidReset", Types::FLAG)],
    },
    run: |context, _, reply| {
        if javascript::is_enabled() {
            doc_fields!(reply; "js": { "utf8": true });
        }
        // The bytes of an ObjectId that identify the machine.
        let [_, _, _, _, a, b, c, d, ..] = context.server.process_id.bytes();
        reply.append("oidMachine", i64::from(u32::from_be_bytes([a, b, c, d])));
        Ok(Outcome::Done)
    },
    ..INLINE
};

pub(super) static AVAILABLE_QUERY_OPTIONS: Command = Command {
    name: "availableQueryOptions",
    help: "Returns the option bits of the old OP_QUERY message.",
    run: |_, _, reply| {
        // Tailable, secondaryOk, noCursorTimeout, awaitData, exhaust, partial.
        const OPTIONS: i32 = 0b1111_0110;
        reply.append("options", OPTIONS);
        Ok(Outcome::Done)
    },
    ..INLINE
};

pub(super) static SHARDING_STATE: Command = Command {
    name: "shardingState",
    help: "Returns whether this server is a shard of a cluster; it never is.",
    run: |_, _, reply| {
        reply.append("enabled", false);
        Ok(Outcome::Done)
    },
    auth: Auth::Cluster(&["shardingState"]),
    ..ADMIN
};

pub(super) static LOCK_INFO: Command = Command {
    name: "lockInfo",
    help: "Lists the locks that operations hold. The list is empty: the latches of a write are held too briefly to be listed.",
    run: |_, _, reply| {
        reply.begin_array("lockInfo").finish();
        Ok(Outcome::Done)
    },
    auth: Auth::Cluster(&["serverStatus"]),
    ..ADMIN
};

pub(super) static CONN_POOL_STATS: Command = Command {
    name: "connPoolStats",
    help: "Returns the connections that this server has opened to other servers: those of a distributed store.",
    run: conn_pool_stats,
    auth: Auth::Cluster(&["connPoolStats"]),
    ..INLINE
};

pub(super) static CONN_POOL_SYNC: Command = Command {
    name: "connPoolSync",
    help: "Closes the connections that this server has opened to other servers; there are none.",
    run: |_, _, _| Ok(Outcome::Done),
    auth: Auth::Cluster(&["connPoolSync"]),
    ..INLINE
};

pub(super) static DROP_CONNECTIONS: Command = Command {
    name: "dropConnections",
    help: "Closes the connections that this server has opened to the named hosts; there are none.",
    fields: Fields::Strict {
        place: "dropConnections",
        fields: &[Field::required("hostAndPort", Types::ARRAY)],
    },
    run: drop_connections,
    auth: Auth::Cluster(&["dropConnections"]),
    ..ADMIN
};

pub(super) static GET_LAST_ERROR: Command = Command {
    name: "getLastError",
    aliases: &["getlasterror"],
    help: "Returned the error of the previous write to old clients. It always fails; write commands return their errors themselves.",
    run: |_, _, _| Err(no_get_last_error()),
    auth: Auth::Anyone,
    ..INLINE
};

pub(super) static DRIVER_OID_TEST: Command = Command {
    name: "driverOIDTest",
    help: "Returns the ObjectId of the request, for tests of drivers.",
    run: |_, request, reply| {
        let id = request.first.value.get();
        let Value::ObjectId(oid) = id else { return Ok(Outcome::Failed("not oid".to_owned())) };
        reply.append("oid", id).append("str", oid.to_string().as_str());
        Ok(Outcome::Done)
    },
    ..INLINE
};

pub(super) static LOG_ROTATE: Command = Command {
    name: "logRotate",
    help: "Rotates the files of the server log and the audit log: renames them, or opens them again after they were moved.",
    fields: Fields::Strict { place: "logRotate", fields: &[] },
    run: log_rotate,
    place: CommandPlace::Pool,
    auth: Auth::Cluster(&["logRotate"]),
    ..ADMIN
};

fn drop_connections(
    _: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let hosts = request.arg("hostAndPort").and_then(|hosts| hosts.as_array());
    for (at, host) in hosts.unwrap_or(Doc::EMPTY).values().enumerate() {
        match host {
            Value::String(host) => check_host(&host.to_string())?,
            Value::Null | Value::Undefined => {}
            other => {
                let (place, kind) = (request.command.name, other.kind().alias());
                return Err(fields::element_type(place, "hostAndPort", at, kind, "string"));
            }
        }
    }
    Ok(Outcome::Done)
}

/// Checks that a text is a host, or a host and a port.
///
/// Errors: `host_empty`, `two_colons`, `port_range`, `port_no_number`.
fn check_host(text: &str) -> Result<()> {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(two_colons(text)),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(host_empty(text));
    }
    match port.map(str::parse::<i32>) {
        None | Some(Ok(1..=65_535)) => Ok(()),
        Some(Ok(port)) => Err(port_range(port, text)),
        Some(Err(_)) => Err(port_no_number()),
    }
}

/// The name of the one pool that a server has: connections to the servers of its store.
const STORE_POOL: &str = "store";

fn conn_pool_stats(
    context: &mut Context<'_>,
    _: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let hosts = context.server.db.store_connections();
    let long = |number: u64| Value::whole(number);
    let sum = |part: fn(&Connections) -> u64| hosts.iter().map(part).sum();
    let all = Connections {
        address: String::new(),
        in_use: sum(|host| host.in_use),
        available: sum(|host| host.available),
        created: sum(|host| host.created),
    };
    let write = |of: &Connections, out: &mut DocWriter<'_>, prefix: [&str; 5]| {
        let [in_use, available, leased, created, refreshing] = prefix;
        out.append(in_use, long(of.in_use)).append(available, long(of.available));
        out.append(leased, 0).append(created, long(of.created)).append(refreshing, 0);
    };
    const OF_ALL: [&str; 5] =
        ["totalInUse", "totalAvailable", "totalLeased", "totalCreated", "totalRefreshing"];
    const OF_ONE: [&str; 5] = ["inUse", "available", "leased", "created", "refreshing"];
    doc_fields!(reply; "numClientConnections": 0, "numAScopedConnections": 0);
    write(&all, reply, OF_ALL);
    reply.append("totalRefreshed", 0);
    let mut pools = reply.begin_doc("pools");
    if !hosts.is_empty() {
        let mut pool = pools.begin_doc(STORE_POOL);
        write(
            &all,
            &mut pool,
            ["poolInUse", "poolAvailable", "poolLeased", "poolCreated", "poolRefreshing"],
        );
        for host in &hosts {
            write(host, &mut pool.begin_doc(host.address.as_str()), OF_ONE);
        }
    }
    drop(pools);
    let mut each = reply.begin_doc("hosts");
    for host in &hosts {
        write(host, &mut each.begin_doc(host.address.as_str()), OF_ONE);
    }
    drop(each);
    doc_fields!(reply; "numReplicaSetMonitorsCreated": 0, "replicaSets": {});
    Ok(Outcome::Done)
}

/// The names of the logs that can be rotated.
const SERVER_LOG: &str = "server";
const AUDIT_LOG: &str = "audit";

fn log_rotate(
    context: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let server = context.server;
    match request.first.value.get() {
        Value::String(name) if name == SERVER_LOG => server.rotate_log()?,
        Value::String(name) if name == AUDIT_LOG && server.options.audit.is_some() => {
            server.rotate_audit()?;
        }
        Value::String(_) => return Err(no_such_log()),
        flag if Types::FLAG.accepts(flag.kind()) => server.rotate_logs()?,
        other => return Err(log_name_type(other.kind().alias())),
    }
    Ok(Outcome::Done)
}
