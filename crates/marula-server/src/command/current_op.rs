//! `currentOp` and `killOp`: list the running operations, and kill one.

use marula_bson::{ByteSlice, Doc, DocBuf, DocWriter, Value, long};
use marula_error::{Result, errors};
use marula_query::filter::Filter;
use marula_query::validation::allowed;

use super::{Auth, Command, CommandPlace, Outcome};
use crate::auth::check::{self, Check, Target};
use crate::auth::name::Name;
use crate::context::Context;
use crate::cursor::idle;
use crate::operation::{Progress, Report};
use crate::request::Request;
use crate::server::Server;
use crate::transactions::date_text;
use crate::{dispatch, host, nodes, shown_command};

errors! {
    op_too_wide(id: i64) = 26_823, "invalid op : {id}. Op ID cannot be represented with 32 bits";
    no_op() = NoSuchKey, "Missing expected field \"op\"";
    op_type(kind: &str) = TypeMismatch, "Expected field \"op\" to have numeric type, but found {kind}";
    op_not_whole(op: f64) = BadValue, "Expected field \"op\" to have a value exactly representable as a 64-bit integer, but found op: {op}";
}

pub(super) static CURRENT: Command = Command {
    name: "currentOp",
    takes_after_cluster_time: false,
    help: "Lists the running operations.",
    place: CommandPlace::Reserved,
    admin_only: true,
    auth: Auth::Content(demands),
    run: current,
    ..Command::DEFAULT
};

pub(super) static KILL: Command = Command {
    name: "killOp",
    help: "Kills an operation: it ends at its next check for interruption.",
    admin_only: true,
    // The operation may be of another node.
    place: CommandPlace::Reserved,
    auth: Auth::User,
    run: kill,
    ..Command::DEFAULT
};

fn current(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let shows_idle = request.flag("$all");
    let conditions = DocBuf::build(|out| {
        for element in &request.args {
            if !matches!(element.name.as_bytes(), b"$all" | b"$ownOps" | b"$truncateOps") {
                out.append_raw(element.name, element.value);
            }
        }
    });
    allowed::check_on_list(conditions.as_doc())?;
    let filter = Filter::parse(conditions.as_doc(), &context.env().context(None, None, None)?)?;
    let own = context.restrained().filter(|_| request.flag("$ownOps"));
    let own = own.map(|access| access.user.clone());
    let shown = Shown { idle_connections: shows_idle, ..Shown::default() };
    let mut operations = reply.begin_array("inprog");
    let mut listed = list(context.server, shown, context.now_ms);
    listed.extend(nodes::requests::operations(context.server, shown)?);
    for Listed { user, document } in listed {
        if (own.is_none() || user == own) && filter.matches(document.as_doc())? {
            operations.push(&document);
        }
    }
    drop(operations);
    if context.server.write_lock.is_locked() {
        reply.append("fsyncLock", true);
        reply.append("info", "use db.fsyncUnlock() to terminate the fsync write/snapshot lock");
    }
    Ok(Outcome::Done)
}

/// The operations that are shown, in addition to those that run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// Connections without an operation.
    pub(crate) idle_connections: bool,
    /// Open transactions without an operation.
    pub(crate) idle_sessions: bool,
    /// Cursors that no command reads.
    pub(crate) idle_cursors: bool,
    /// Whether long commands are shown as the beginning of their text.
    pub(crate) cuts_long: bool,
}

impl Default for Shown {
    /// As the command `currentOp` shows them.
    fn default() -> Self {
        Shown { idle_connections: false, idle_sessions: true, idle_cursors: false, cuts_long: true }
    }
}

impl Shown {
    /// Writes it as a request to other nodes.
    pub(crate) fn write(self, out: &mut DocWriter<'_>) {
        out.append("idleConnections", self.idle_connections);
        out.append("idleSessions", self.idle_sessions);
        out.append("idleCursors", self.idle_cursors);
        out.append("truncateOps", self.cuts_long);
    }

    /// Reads it from the request of another node.
    pub(crate) fn parse(doc: Doc<'_>) -> Self {
        let flag = |name: &str| matches!(doc.get(name), Some(Value::Boolean(true)));
        Shown {
            idle_connections: flag("idleConnections"),
            idle_sessions: flag("idleSessions"),
            idle_cursors: flag("idleCursors"),
            cuts_long: flag("truncateOps"),
        }
    }
}

/// An operation, an idle transaction or an idle cursor.
pub(crate) struct Listed {
    /// Its user.
    pub(crate) user: Option<Name>,
    /// Its document.
    pub(crate) document: DocBuf,
}

/// Lists the operations of this node.
pub(crate) fn list(server: &Server, shown: Shown, now_ms: i64) -> Vec<Listed> {
    let mut found = Vec::new();
    for report in server.operations.reports() {
        let is_active = report.op_id != 0 && report.detail.is_some();
        if is_active || shown.idle_connections {
            let document = describe(server, &report, now_ms, shown.cuts_long);
            found.push(Listed { user: report.user, document });
        }
    }
    if shown.idle_sessions {
        found.extend(idle_sessions(server));
    }
    if shown.idle_cursors {
        let cursors = idle::list(&server.cursors, &host::name_and_port(server)).into_iter();
        found.extend(cursors.map(|(user, document)| Listed { user, document }));
    }
    found
}

/// Returns an operation in the form of `currentOp`.
fn describe(server: &Server, report: &Report, now_ms: i64, cuts_long: bool) -> DocBuf {
    let is_active = report.op_id != 0;
    DocBuf::build(|out| {
        out.append("type", "op");
        out.append("host", host::name_and_port(server).as_str());
        out.append("desc", format!("conn{}", report.connection_id).as_str());
        out.append("connectionId", Value::whole(long(report.connection_id)));
        out.append("client", dispatch::address_text(report.peer.remote).as_str());
        write_client(report, out);
        out.append("active", is_active);
        out.append("currentOpTime", date_text(now_ms).as_str());
        if let Some(user) = &report.user {
            let mut users = out.begin_array("effectiveUsers");
            users.begin_doc().append("user", user.name.as_str()).append("db", user.db.as_str());
        }
        out.append("threaded", true);
        let Some(detail) = report.detail.as_ref().filter(|_| is_active) else { return };
        out.append("opid", i32::try_from(report.op_id).unwrap_or(i32::MAX));
        if let Some(lsid) = &detail.lsid {
            lsid.write(&mut out.begin_doc("lsid"));
            let running = server.transactions.open_of(lsid);
            let running = running.filter(|open| {
                open.is_running && open.operation.connection_id == report.connection_id
            });
            if let Some(open) = running {
                open.write(&mut out.begin_doc("transaction"));
            }
        }
        let running_us = (now_ms * 1_000 - report.started_us).max(0);
        out.append("secs_running", running_us / 1_000_000);
        out.append("microsecs_running", running_us);
        out.append("op", detail.command.kind.name());
        out.append("ns", detail.ns.as_str());
        match cuts_long {
            false => out.append("command", &detail.body),
            true => out.append("command", &shown_command::cut(&detail.body)),
        };
        if let Some(summary) = &report.plan_summary {
            out.append("planSummary", summary.as_str());
        }
        if let Some(Progress { what, done, total }) = detail.progress {
            let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100);
            out.append("msg", format!("{what} {what}: {done}/{total} {percent}%").as_str());
            let mut progress = out.begin_doc("progress");
            progress.append("done", long(done)).append("total", long(total));
        }
        if report.is_killed {
            out.append("killPending", true);
        }
        out.append("numYields", 0);
        out.begin_doc("locks").finish();
        out.append("waitingForLock", report.waits_for_lock);
        out.begin_doc("lockStats").finish();
        out.append("waitingForFlowControl", false);
        out.begin_doc("flowControlStats").finish();
    })
}

/// Writes the client's application name and metadata.
fn write_client(report: &Report, out: &mut DocWriter<'_>) {
    let metadata = report.metadata.as_ref().map(|metadata| metadata.as_doc());
    let application =
        metadata.and_then(|metadata| metadata.get("application")?.as_doc()?.get("name"));
    if let Some(name) = application {
        out.append("appName", name);
    }
    if let Some(metadata) = metadata {
        out.append("clientMetadata", metadata);
    }
}

/// Returns the open transactions without a running request in the form of `currentOp`, each with
/// the connection of its last request.
fn idle_sessions(server: &Server) -> Vec<Listed> {
    let mut all = server.transactions.open();
    all.retain(|open| !open.is_running);
    all.sort_by_key(|open| open.lsid);
    let described = all.iter().map(|open| {
        let report = open.operation.report();
        let document = DocBuf::build(|out| {
            out.append("type", "idleSession");
            out.append("host", host::name_and_port(server).as_str());
            out.append("desc", "inactive transaction");
            out.append("client", dispatch::address_text(report.peer.remote).as_str());
            out.append("connectionId", Value::whole(long(report.connection_id)));
            write_client(&report, out);
            open.lsid.write(&mut out.begin_doc("lsid"));
            open.write(&mut out.begin_doc("transaction"));
            out.append("waitingForLock", false);
            out.append("active", false);
            out.begin_doc("locks").finish();
            out.begin_doc("lockStats").finish();
        });
        Listed { user: report.user, document }
    });
    described.collect()
}

/// Kills the operation of this node with this number, if there is one.
pub(crate) fn kill_operation(server: &Server, id: i32) {
    let is_killed = u32::try_from(id).is_ok_and(|id| server.operations.kill(id));
    tracing::info!(target: "COMMAND", id = 20_482, opId = id, isKilled = is_killed, "Going to kill op");
}

fn kill(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let op = request.args.iter().find(|element| element.name == "op").ok_or_else(no_op)?;
    let op: Value<'_> = op.value.get();
    // Users may always kill their own operations.
    let restrained = context.restrained();
    let own = restrained.filter(|access| !access.may(&Target::Cluster, "killop"));
    let own = own.map(|access| &access.user);
    let server = context.server;
    if let (Value::String(op), true) = (op, server.db.is_shared()) {
        if !nodes::requests::kill_operation(server, &op.to_str_lossy(), own)? {
            return Err(check::refusal(request));
        }
    } else {
        let number = op.as_f64().ok_or_else(|| op_type(op.kind().alias()))?;
        let id = op.as_exact_i64().ok_or_else(|| op_not_whole(number))?;
        let id = i32::try_from(id).map_err(|_| op_too_wide(id))?;
        if own.is_some_and(|user| !server.operations.is_of(id, user)) {
            return Err(check::refusal(request));
        }
        kill_operation(server, id);
    }
    reply.append("info", "attempting to kill op");
    Ok(Outcome::Done)
}

/// Requires the privilege to see all operations, unless the request is for the user's own.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    if !request.flag("$ownOps") {
        check.needs(Target::Cluster, &["inprog"]);
    }
    Ok(())
}
