//! Commands that say little: `features`, `availableQueryOptions`, `lockInfo`, `connPoolStats`, `connPoolSync`,
//! `getLastError`, `driverOIDTest`, `logRotate`, `dropConnections`.
//!
//! Tools and drivers' tests send them; what they ask for is so here, or its answer is short.

use marula_bson::{DocWriter, Value, doc_fields};
use marula_error::{Result, errors};
use marula_query::javascript;

use super::{Auth, Command, Fields, Outcome, Place, Types};
use crate::context::Context;
use crate::request::Request;

errors! {
    no_get_last_error() = 5_739_000, "getLastError command is not supported";
    log_name_type(kind: &str) = TypeMismatch, "BSON field 'logRotate.logRotate' is the wrong type '{kind}', expected types '[bool, string']";
    no_such_log() = NoSuchKey, "Log rotation failed due to one or more errors";
}

const INLINE: Command = Command { place: Place::Inline, auth: Auth::User, ..Command::DEFAULT };
const ADMIN: Command = Command { admin_only: true, ..INLINE };

pub(super) static FEATURES: Command = Command {
    name: "features",
    help: "Returns which features this server was built with.",
    run: |context, _, reply| {
        if javascript::is_enabled() {
            doc_fields!(reply; "js": { "utf8": true });
        }
        // The part of an ObjectId that stands for the machine.
        let [_, _, _, _, a, b, c, d, ..] = context.server.process_id.bytes();
        reply.append("oidMachine", i64::from(u32::from_be_bytes([a, b, c, d])));
        Ok(Outcome::Done)
    },
    ..INLINE
};

pub(super) static AVAILABLE_QUERY_OPTIONS: Command = Command {
    name: "availableQueryOptions",
    help: "Returns the bits of the options that the old query message had.",
    run: |_, _, reply| {
        // Tailable, secondaryOk, noCursorTimeout, awaitData, exhaust, partial.
        const OPTIONS: i32 = 0b1111_0110;
        reply.append("options", OPTIONS);
        Ok(Outcome::Done)
    },
    ..INLINE
};

pub(super) static LOCK_INFO: Command = Command {
    name: "lockInfo",
    help: "Lists the locks that operations hold; documents are latched too shortly to be listed.",
    run: |_, _, reply| {
        reply.begin_array("lockInfo").finish();
        Ok(Outcome::Done)
    },
    auth: Auth::Cluster(&["serverStatus"]),
    ..ADMIN
};

pub(super) static CONN_POOL_STATS: Command = Command {
    name: "connPoolStats",
    help: "Returns the connections that this server has opened to others, of which there are none.",
    run: conn_pool_stats,
    auth: Auth::Cluster(&["connPoolStats"]),
    ..INLINE
};

pub(super) static CONN_POOL_SYNC: Command = Command {
    name: "connPoolSync",
    help: "Closes the connections that this server has opened to others, of which there are none.",
    run: |_, _, _| Ok(Outcome::Done),
    auth: Auth::Cluster(&["connPoolSync"]),
    ..INLINE
};

pub(super) static DROP_CONNECTIONS: Command = Command {
    name: "dropConnections",
    help: "Closes the connections that this server has opened to the named hosts, of which there are none.",
    run: |_, _, _| Ok(Outcome::Done),
    auth: Auth::Cluster(&["dropConnections"]),
    ..ADMIN
};

pub(super) static GET_LAST_ERROR: Command = Command {
    name: "getLastError",
    aliases: &["getlasterror"],
    help: "Was how clients learned of errors; write commands say it themselves.",
    run: |_, _, _| Err(no_get_last_error()),
    auth: Auth::Anyone,
    ..INLINE
};

pub(super) static DRIVER_OID_TEST: Command = Command {
    name: "driverOIDTest",
    help: "Returns the ObjectId that it was sent, for drivers' tests.",
    run: |_, request, reply| {
        let id = request.first.value.get();
        if let Value::ObjectId(oid) = id {
            reply.append("oid", id).append("str", oid.to_string().as_str());
        }
        Ok(Outcome::Done)
    },
    ..INLINE
};

pub(super) static LOG_ROTATE: Command = Command {
    name: "logRotate",
    help: "Rotates the log file: renames it, or opens it again after it was moved away.",
    fields: Fields::Strict { place: "logRotate", fields: &[] },
    run: log_rotate,
    place: Place::Pool,
    auth: Auth::Cluster(&["logRotate"]),
    ..ADMIN
};

fn conn_pool_stats(
    _: &mut Context<'_>,
    _: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    doc_fields!(reply;
        "numClientConnections": 0,
        "numAScopedConnections": 0,
        "totalInUse": 0,
        "totalAvailable": 0,
        "totalLeased": 0,
        "totalCreated": 0,
        "totalRefreshing": 0,
        "totalRefreshed": 0,
        "pools": {},
        "hosts": {},
        "numReplicaSetMonitorsCreated": 0,
        "replicaSets": {},
    );
    Ok(Outcome::Done)
}

/// The only log that can be rotated: there is no audit log.
const SERVER_LOG: &str = "server";

fn log_rotate(
    context: &mut Context<'_>,
    request: &Request<'_>,
    _: &mut DocWriter<'_>,
) -> Result<Outcome> {
    match request.first.value.get() {
        Value::String(name) if name != SERVER_LOG => return Err(no_such_log()),
        Value::String(_) => {}
        flag if Types::FLAG.accepts(flag.kind()) => {}
        other => return Err(log_name_type(other.kind().alias())),
    }
    context.server.rotate_log()?;
    Ok(Outcome::Done)
}
