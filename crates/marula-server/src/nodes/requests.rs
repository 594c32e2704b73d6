//! Commands on operations and sessions concern every node of a shared store: the node that executes
//! one requests the others to do the same.
//!
//! ```text
//! { currentOp: { <what is shown>: <bool>, … } }  ─► { operations: [{ user?: <name>, operation }] }
//! { killOp: <number>, user?: <name> }            ─► { isOwn: <bool> }
//! { killSessions: [ { lsid?, uid? }, … ] }       ─► { done: true }
//! ```
//!
//! A name is `{ user, db }`. On another node an operation is called `node<number>:<opid>`, as a
//! `mongos` process calls the operations of shards. Each request may be executed again.

use std::sync::Arc;
use std::time::Duration;

use marula_bson::validate::{Limits, validate};
use marula_bson::{Binary, ByteSlice, Doc, DocBuf, DocWriter, Value};
use marula_error::{Result, errors};

use crate::auth::name::{Name, Of};
use crate::command::current_op::{self, Listed, Shown};
use crate::command::sessions::{self, SessionPattern};
use crate::server::Server;
use crate::session::Lsid;

errors! {
    silent(nodes: &str) = HostUnreachable, "no reply from {nodes}: other nodes have done it";
    not_a_node(op: &str) = 28_625, "The op argument to killOp must be of the format shardid:opid but found \"{op}\"";
    no_node(name: &str) = ShardNotFound, "Node {name} not found";
    not_understood(name: &str) = FailedToParse, "{name} has replied in an unknown form: it is of another release";
}

/// The time in which other nodes must reply.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The most bytes of operations in a reply.
const OPERATIONS_BYTES_MAX: usize = 3 << 20;

/// Executes a request of another node.
pub(super) fn execute(server: &Arc<Server>, request: &[u8]) -> Vec<u8> {
    let reply = DocBuf::build(|out| {
        let Ok(request) = validate(request, Limits::MESSAGE) else { return };
        match request.iter().next().map(|element| (element.name.as_bytes(), element.value.get())) {
            Some((b"currentOp", Value::Document(shown))) => {
                list(server, Shown::parse(shown), out);
            }
            Some((b"killOp", Value::Int32(id))) => {
                let user = request.get("user").map(|user| Name::parse(Of::User, user, ""));
                let is_own = match user {
                    Some(Ok(user)) => server.operations.is_of(id, &user),
                    Some(Err(_)) => false,
                    None => true,
                };
                if is_own {
                    current_op::kill_operation(server, id);
                }
                out.append("isOwn", is_own);
            }
            Some((b"killSessions", Value::Array(patterns))) => {
                let patterns: Option<Vec<_>> = patterns.values().map(parse_pattern).collect();
                // No patterns mean all sessions: none that is not understood may be left out.
                if let Some(patterns) = patterns {
                    sessions::kill_here(server, &patterns);
                    out.append("done", true);
                }
            }
            _ => {}
        }
    });
    reply.into_bytes()
}

fn list(server: &Server, shown: Shown, out: &mut DocWriter<'_>) {
    let mut operations = out.begin_array("operations");
    for Listed { user, document } in current_op::list(server, shown, server.now_ms()) {
        if operations.size() + document.as_bytes().len() > OPERATIONS_BYTES_MAX {
            break;
        }
        let mut operation = operations.begin_doc();
        if let Some(user) = &user {
            write_name(user, &mut operation);
        }
        operation.append("operation", &document);
    }
}

/// Returns the operations of the other nodes. A node without a reply is left out: it may have just
/// ended, and an operator who looks for a fault needs the others.
///
/// Errors: those of the store.
pub(crate) fn operations(server: &Server, shown: Shown) -> Result<Vec<Listed>> {
    if !server.db.is_shared() {
        return Ok(Vec::new());
    }
    let request = DocBuf::build(|out| shown.write(&mut out.begin_doc("currentOp")));
    let mut found = Vec::new();
    for (node, reply) in server.db.request_of_nodes(request.as_bytes(), TIMEOUT)? {
        let name = name_of(node.number);
        let Some(reply) = reply else {
            tracing::warn!(node = name, host = node.host, "a node does not list its operations");
            continue;
        };
        let reply = validate(&reply, Limits::MESSAGE).map_err(|_| not_understood(&name))?;
        let Some(Value::Array(operations)) = reply.get("operations") else {
            return Err(not_understood(&name));
        };
        for one in operations.values().filter_map(|one| one.as_doc()) {
            let user = one.get("user").and_then(|user| Name::parse(Of::User, user, "").ok());
            let operation = one.get("operation").and_then(|operation| operation.as_doc());
            let document = with_node(&name, operation.unwrap_or(Doc::EMPTY));
            found.push(Listed { user, document });
        }
    }
    Ok(found)
}

/// An operation of another node, under the name that `killOp` takes here.
fn with_node(name: &str, operation: Doc<'_>) -> DocBuf {
    DocBuf::build(|out| {
        for element in operation {
            match element.value.get() {
                Value::Int32(id) if element.name == "opid" => {
                    out.append("opid", format!("{name}:{id}").as_str())
                }
                _ => out.append_raw(element.name, element.value),
            };
        }
    })
}

/// Kills the operation with this name, on whichever node it runs: only if it is of `user`, where
/// there is one. Returns whether it may be killed.
///
/// Errors: `not_a_node`, `no_node`, `silent`, and those of the store.
pub(crate) fn kill_operation(server: &Server, op: &str, user: Option<&Name>) -> Result<bool> {
    let (name, id) = op.split_once(':').ok_or_else(|| not_a_node(op))?;
    let id: i32 = id.parse().map_err(|_| not_a_node(op))?;
    let nodes = server.db.node_list()?;
    let node = nodes.iter().find(|node| name_of(node.number) == name);
    let node = node.ok_or_else(|| no_node(name))?;
    if Some(node.id) == server.db.own_node() {
        let is_own = user.is_none_or(|user| server.operations.is_of(id, user));
        if is_own {
            current_op::kill_operation(server, id);
        }
        return Ok(is_own);
    }
    let request = DocBuf::build(|out| {
        out.append("killOp", id);
        if let Some(user) = user {
            write_name(user, out);
        }
    });
    let replies = server.db.request_of_node(node.number, request.as_bytes(), TIMEOUT)?;
    let reply = replies.ok_or_else(|| silent(name))?;
    let reply = validate(&reply, Limits::MESSAGE).map_err(|_| not_understood(name))?;
    match reply.get("isOwn") {
        Some(Value::Boolean(is_own)) => Ok(is_own),
        _ => Err(not_understood(name)),
    }
}

/// Kills the sessions of all nodes that match one of the patterns; all sessions without patterns.
///
/// Errors: `silent`, and those of the store.
pub(crate) fn kill_sessions(server: &Server, patterns: &[SessionPattern]) -> Result<()> {
    sessions::kill_here(server, patterns);
    if !server.db.is_shared() {
        return Ok(());
    }
    let request = DocBuf::build(|out| {
        let mut list = out.begin_array("killSessions");
        for SessionPattern { lsid, uid } in patterns {
            let mut pattern = list.begin_doc();
            if let Some(lsid) = lsid {
                pattern.append("lsid", Binary { subtype: 0, bytes: lsid.key() });
            }
            if let Some(uid) = uid {
                pattern.append("uid", Binary { subtype: 0, bytes: uid });
            }
        }
    });
    let replies = server.db.request_of_nodes(request.as_bytes(), TIMEOUT)?;
    let is_done = |reply: &[u8]| {
        validate(reply, Limits::MESSAGE).is_ok_and(|reply| reply.get("done").is_some())
    };
    let without = replies.iter().filter(|(_, reply)| !reply.as_deref().is_some_and(is_done));
    let without: Vec<String> = without.map(|(node, _)| name_of(node.number)).collect();
    if without.is_empty() { Ok(()) } else { Err(silent(&without.join(", "))) }
}

fn parse_pattern(pattern: Value<'_>) -> Option<SessionPattern> {
    let mut parsed = SessionPattern::default();
    for element in pattern.as_doc()? {
        match (element.name.as_bytes(), element.value.get()) {
            (b"lsid", Value::Binary(key)) => parsed.lsid = Some(Lsid::of_key(key.bytes)?),
            (b"uid", Value::Binary(uid)) => parsed.uid = Some(uid.bytes.try_into().ok()?),
            _ => return None,
        }
    }
    Some(parsed)
}

fn write_name(user: &Name, out: &mut DocWriter<'_>) {
    let mut name = out.begin_doc("user");
    name.append("user", user.name.as_str()).append("db", user.db.as_str());
}

/// The name of a node in front of the numbers of its operations.
fn name_of(number: u32) -> String {
    format!("node{number}")
}
