//! `currentOp` and `killOp`: list the running operations, and kill one.

use marula_bson::{ByteSlice, DocBuf, DocWriter, Value, long};
use marula_error::{Result, errors};
use marula_query::filter::Filter;

use super::{Auth, Command, CommandPlace, Outcome};
use crate::auth::access::Access;
use crate::auth::check::{self, Check, Target};
use crate::context::Context;
use crate::operation::{Progress, Report};
use crate::request::Request;
use crate::server::Server;
use crate::transactions::date_text;
use crate::{dispatch, host, shown_command};

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
    place: CommandPlace::Inline,
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
    let filter = Filter::parse(conditions.as_doc(), &context.env().context(None, None, None)?)?;
    let own = context.restrained().filter(|_| request.flag("$ownOps"));
    let own = own.map(|access| access.user.clone());
    let mut operations = reply.begin_array("inprog");
    for report in context.server.operations.reports() {
        if own.is_some() && report.user != own {
            continue;
        }
        let is_shown = report.op_id != 0 && report.detail.is_some();
        if is_shown || shows_idle {
            let document = describe(context.server, &report, context.now_ms, Long::Cut);
            if filter.matches(document.as_doc())? {
                operations.push(&document);
            }
        }
    }
    for (report, document) in idle_sessions(context.server) {
        if (own.is_none() || report.user == own) && filter.matches(document.as_doc())? {
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

/// Determines whether the commands of operations are shortened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Long {
    /// Commands are shown as they were sent.
    Whole,
    /// Long commands are shown as the beginning of their text.
    Cut,
}

/// Returns an operation in the form of `currentOp`.
pub(crate) fn describe(server: &Server, report: &Report, now_ms: i64, texts: Long) -> DocBuf {
    let is_active = report.op_id != 0;
    DocBuf::build(|out| {
        out.append("type", "op");
        out.append("host", host::name_and_port(server).as_str());
        out.append("desc", format!("conn{}", report.connection_id).as_str());
        out.append("connectionId", long(report.connection_id));
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
        match texts {
            Long::Whole => out.append("command", &detail.body),
            Long::Cut => out.append("command", &shown_command::cut(&detail.body)),
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
pub(crate) fn idle_sessions(server: &Server) -> Vec<(Report, DocBuf)> {
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
            out.append("connectionId", long(report.connection_id));
            write_client(&report, out);
            open.lsid.write(&mut out.begin_doc("lsid"));
            open.write(&mut out.begin_doc("transaction"));
            out.append("waitingForLock", false);
            out.append("active", false);
            out.begin_doc("locks").finish();
            out.begin_doc("lockStats").finish();
        });
        (report, document)
    });
    described.collect()
}

/// Returns whether the operation with this number belongs to the user.
fn is_own(context: &Context<'_>, access: &Access, id: i64) -> bool {
    let reports = context.server.operations.reports();
    let user = reports.into_iter().find(|report| i64::from(report.op_id) == id);
    user.is_some_and(|report| report.user.as_ref() == Some(&access.user))
}

fn kill(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let op = request.args.iter().find(|element| element.name == "op").ok_or_else(no_op)?;
    let op: Value<'_> = op.value.get();
    let number = op.as_f64().ok_or_else(|| op_type(op.kind().alias()))?;
    let id = op.as_exact_i64().ok_or_else(|| op_not_whole(number))?;
    if i32::try_from(id).is_err() {
        return Err(op_too_wide(id));
    }
    // Users may always kill their own operations.
    if let Some(access) = context.restrained()
        && !access.may(&Target::Cluster, "killop")
        && !is_own(context, access, id)
    {
        return Err(check::refusal(request));
    }
    let is_killed = u32::try_from(id).is_ok_and(|id| context.server.operations.kill(id));
    tracing::info!(target: "COMMAND", id = 20_482, opId = id, isKilled = is_killed, "Going to kill op");
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
