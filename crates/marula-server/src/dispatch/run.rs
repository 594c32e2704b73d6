//! The run of one command: from its entry into a transaction to the network's next step.

use std::sync::Arc;
use std::time::Instant;

use marula_bson::{DocBuf, DocWriter};
use marula_db::current;
use marula_db::unit::{Examined, Tally};
use marula_error::{Error, Result, codes};
use marula_operation::statements::FIRST_READS;
use marula_operation::targets;
use marula_query::context::Interrupt as QueryInterrupt;
use marula_query::{meter, usage};
use marula_wire::ReplyBuffer;

use super::counts::{count_read, detail, note_latency};
use super::entry::{bounds_of, enter, leaving};
use super::lane::{lane, order};
use super::reply::{answer_error, append_cluster_time, append_tail, finish, retried};
use super::wait::{BUSY_STEP, after, pause, until_released};
use super::{begin, describe, is_first, secondary};
use crate::audit::administration;
use crate::auth::check;
use crate::command::{delete, get_more, update};
use crate::connection::Connection;
use crate::context::{Context, Interrupt, Watch};
use crate::ended::{Ended, Statements};
use crate::log::attributes;
use crate::net::service::{Call, CallThread, Step, Wake};
use crate::request::Request;
use crate::row::{Kind, Outcome};
use crate::server::Server;
use crate::transactions::{Entrance, Leaving, TRANSIENT, Work};
use crate::write_lock::WriteLock;

/// Runs the command of a request; returns the network's next step.
///
/// `document_bytes_max` is the size of documents that it may process on this thread.
pub(super) fn run(
    server: &Arc<Server>,
    connection: &mut Connection,
    request: &Request<'_>,
    call: &Call,
    document_bytes_max: usize,
    reply: &mut ReplyBuffer,
) -> Step {
    let command = request.command;
    let now_ms = server.now_ms();
    if let Some(lsid) = &request.lsid
        && let Err(error) = connection.use_session(lsid, &server.sessions, now_ms)
    {
        answer_error(server, Some(request), &error, reply);
        return Step::Reply;
    }
    let on_pool = call.thread == CallThread::Pool;
    // On the pool it continues the operation that started before the move, as does a request that
    // has waited.
    match on_pool && connection.operation.has_begun() {
        true => connection.operation.resume(),
        false => begin(server, connection, request),
    }
    if on_pool {
        describe(connection, request);
    }
    // A transaction does not notice a statement that is not permitted.
    let needs = match check::check(server, connection, request) {
        Ok(needs) => needs,
        Err(error) => {
            if let Some(audit) = &server.options.audit {
                administration::record(audit, request, error.code().number());
            }
            refuse_unrun(server, request, call, &error, reply);
            return Step::Reply;
        }
    };
    let entered = enter(server, connection, request, now_ms)
        .and_then(|entered| Ok((entered, bounds_of(server, request, call, now_ms)?)));
    let (entered, (snapshot, deadline)) = match entered {
        Ok(entered) => entered,
        Err(error) => {
            refuse_unrun(server, request, call, &error, reply);
            return Step::Reply;
        }
    };
    let entered = match entered {
        Some(Entrance::In(entered)) => Some(entered),
        Some(Entrance::Busy) => {
            return Step::Retry(Box::new(Wake::forget), after(BUSY_STEP), lane(request));
        }
        None => None,
    };
    let stamp_before = command.takes_write_concern.then(|| server.db.moment());
    let operation = connection.operation.clone();
    // A read that waits for documents is idle meanwhile; a write that waits is slow.
    let is_measured_whole = is_first(call) || command.writes;
    let began = if is_measured_whole { call.arrived } else { Instant::now() };
    let is_profiled = server.profiling.wants_stages(request.db);
    operation.tally.start(detail(request, on_pool, is_profiled));
    let unit = operation.unit(&server.db);
    let transaction = entered.as_ref().and_then(|entered| entered.transaction.as_deref());
    let unit = transaction.map_or(unit, |transaction| unit.within(transaction));
    let unit = snapshot.as_ref().map_or(unit, |snapshot| unit.seeing(&*snapshot.view));
    let interrupt = on_pool.then(|| {
        let disconnected = connection.peer.disconnected.clone();
        QueryInterrupt::new(Interrupt::new(operation.clone(), deadline, disconnected))
    });
    let current = current::enter(interrupt, document_bytes_max);
    let statements = is_profiled && matches!(command.kind, Kind::Update | Kind::Delete);
    let statements = statements.then(Statements::begin);
    let origin = None;
    let mut context = Context {
        server,
        unit,
        snapshot: snapshot.as_ref(),
        entered: entered.as_ref(),
        connection,
        call,
        deadline,
        now_ms,
        statements,
        origin,
        is_profiled,
        needs,
    };
    let mut body = reply.body();
    let outcome = execute(&mut context, request, &mut body);
    drop(current);
    check::note_changes(server, &context.needs);
    let is_refused = outcome.as_ref().is_err_and(|error| !error.is_postponed());
    if let Some(audit) = &server.options.audit {
        match &outcome {
            Ok(Outcome::Done) => administration::record(audit, request, 0),
            Err(error) if is_refused => {
                administration::record(audit, request, error.code().number());
            }
            Ok(_) | Err(_) => {}
        }
    }
    let is_empty_batch = outcome.as_ref().is_err_and(|error| error.code() == codes::InvalidLength);
    let step = match outcome {
        Ok(Outcome::Done) => {
            let failure = context.connection.failure.as_deref();
            finish(server, request, body, stamp_before, failure)
        }
        Ok(Outcome::DoneOnView) => {
            body.append("ok", 1);
            append_cluster_time(server, Some(request), &mut body);
            drop(body);
            Step::Reply
        }
        Ok(Outcome::Failed(message)) => {
            server.counters.of(request.index).failed.add(1);
            body.append("ok", 0.0).append("errmsg", message.as_str());
            append_cluster_time(server, Some(request), &mut body);
            drop(body);
            Step::Reply
        }
        Ok(Outcome::Stream) => {
            append_tail(server, request, &mut body);
            drop(body);
            Step::Stream(lane(request))
        }
        Ok(Outcome::HangUp) => {
            drop(body);
            reply.abandon();
            Step::Close
        }
        Ok(Outcome::Retry(arm, deadline)) => {
            drop(body);
            let waiting = operation.clone();
            let arm = Box::new(move |wake: Wake| {
                waiting.wait(wake.another());
                arm(wake);
            });
            Step::Retry(arm, deadline, lane(request))
        }
        Err(error) if error.is_postponed() => {
            assert!(!on_pool, "a thread of the pool may take its time");
            drop(body);
            Step::ToPool(order(request, call))
        }
        Err(error) => {
            drop(body);
            let is_transient = entered.is_some() && targets::is_transient(error.code());
            let error = if is_transient { error.with_label(TRANSIENT) } else { error };
            refuse(server, request, &error, reply);
            Step::Reply
        }
    };
    if let Some(entered) = &entered {
        let leaving = leaving(&step, is_refused, is_empty_batch, reply);
        let work = reply.written().filter(|_| leaving != Leaving::Undone).map(|(reply, _)| {
            Work::of(request, operation.tally.examined(), operation.tally.changed(), reply)
        });
        server.transactions.leave(entered, leaving, work.unwrap_or_default());
    }
    let has_ended = !matches!(step, Step::ToPool(_) | Step::Retry(..));
    usage::settle(has_ended && !is_refused);
    if has_ended {
        record_end(context, request, reply, began, is_refused);
    }
    step
}

/// Executes a command. It waits if a lock holds it off, and before it must run again.
fn execute(
    context: &mut Context<'_>,
    request: &Request<'_>,
    body: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let (server, command, deadline) = (context.server, request.command, context.deadline);
    let on_pool = context.may_wait();
    // The time on a network worker is limited separately.
    let metered = on_pool.then(|| meter::begin(QueryInterrupt::new(Watch::new(context))));
    let is_held_off = command.writes && server.write_lock.is_locked();
    // A write that needs a key locked by a transaction waits without a thread.
    let parking = context.unit.parking().expect("a request has an operation");
    parking.begin(command.is_retryable_write && context.entered.is_none());
    let may_run = context
        .check_interrupt()
        .map_err(|error| interrupted(context, request, error))
        .and_then(|()| secondary::check(server, context.connection, request));
    let outcome = match may_run {
        Ok(()) if is_held_off => {
            Ok(WriteLock::wait(server, &context.connection.operation, deadline))
        }
        Ok(()) => (command.run)(context, request, body),
        Err(error) => Err(error),
    };
    let is_postponed = outcome.as_ref().is_err_and(Error::is_postponed);
    let outcome = match is_postponed.then(|| parking.end()).flatten() {
        Some(locked) => Ok(until_released(server, locked, deadline)),
        None => outcome,
    };
    drop(metered);
    match (outcome, must_repeat(context, request, on_pool)) {
        (_, Err(error)) => Err(error),
        (_, Ok(true)) => Ok(pause(BUSY_STEP)),
        (Err(error), _) if begins_again(request, &context.connection.operation.tally, &error) => {
            Ok(pause(BUSY_STEP))
        }
        (outcome, _) => outcome,
    }
}

/// Returns the error of a command that was interrupted before it ran, or while it waited. A
/// `getMore` loses its cursor if the cursor's time is over, or if it had begun to read it.
fn interrupted(context: &Context<'_>, request: &Request<'_>, error: Error) -> Error {
    if request.command.kind != Kind::GetMore {
        return error;
    }
    let is_reading = !is_first(context.call);
    if is_reading || error.code() == codes::MaxTimeMSExpired {
        let id = request.first.value.get().as_exact_i64();
        id.map(|id| context.server.cursors.kill(id));
    }
    if is_reading { error.caused_by(get_more::EXECUTING) } else { error }
}

/// Returns whether a request that failed must run again: its collection or an index was dropped
/// between its plan and its first reads, which in mongod exclude a drop until the plan yields.
fn begins_again(request: &Request<'_>, tally: &Tally, error: &Error) -> bool {
    let command = request.command;
    // A `getMore` goes on with a plan, and the statements of a write begin again one by one.
    let may_begin_again = command.name != "getMore" && !command.writes;
    let Examined { keys, docs, .. } = tally.examined();
    error.code() == codes::QueryPlanKilled && may_begin_again && keys + docs <= FIRST_READS
}

/// Returns whether a request that ran must run again, because another process has changed what it
/// has read.
fn must_repeat(context: &Context<'_>, request: &Request<'_>, on_pool: bool) -> Result<bool> {
    let db = &context.server.db;
    match on_pool && db.is_shared() {
        false => Ok(false),
        true => match (db.must_repeat(), request.txn_number) {
            (Ok(false), Some(_)) => {
                db.must_repeat_numbered(&context.connection.operation.record_check)
            }
            (must_repeat, _) => must_repeat,
        },
    }
}

/// Counts a request that has ended, and reports it to the profiler and the log if they want it.
fn record_end(
    context: Context<'_>,
    request: &Request<'_>,
    reply: &ReplyBuffer,
    began: Instant,
    is_refused: bool,
) {
    let Context { server, unit, entered, connection, statements, origin, .. } = context;
    let operation = &connection.operation;
    let mut examined = operation.tally.examined();
    if let Some(statements) = &statements {
        examined += statements.examined();
    }
    if !unit.is_explained() && !is_refused {
        server.counters.examined(examined);
    }
    let took = began.elapsed();
    if server.profiling.concerns(took)
        && let Some(written) = reply.written()
    {
        let changed =
            statements.as_ref().map_or_else(|| operation.tally.changed(), Statements::changed);
        // A plan that is explained is in the reply.
        let shows_plan = request.command.name != "explain";
        let ended = Ended {
            server,
            connection,
            request,
            reply: written,
            took,
            now_ms: server.now_ms(),
            examined,
            changed,
            report: operation.tally.take_plan_report().filter(|_| shows_plan),
            only: if statements.is_none() { only_statement(request) } else { None },
            origin,
        };
        ended.report(statements);
    }
    if request.txn_number.is_some() && request.transaction.is_none() {
        server.transactions.count_numbered(retried(reply));
    }
    server.counters.start(request.command.kind);
    count_read(server, request, entered.is_some());
    operation.note_api_version(request.api.is_version_1);
    note_latency(server, request, took, is_refused);
}

/// Returns the statement of an update or a delete that has only one.
fn only_statement(request: &Request<'_>) -> Option<DocBuf> {
    let list = match request.command.kind {
        Kind::Update => "updates",
        Kind::Delete => "deletes",
        _ => return None,
    };
    let mut all = request.documents(list)?;
    let (Some(Ok(only)), None) = (all.next(), all.next()) else { return None };
    match request.command.kind {
        Kind::Update => Some(update::shown(request, only)),
        _ => delete::shown(request, only),
    }
}

/// Counts, logs and answers a request that may not run.
fn refuse_unrun(
    server: &Server,
    request: &Request<'_>,
    call: &Call,
    error: &Error,
    reply: &mut ReplyBuffer,
) {
    server.count_not_run(request.index, call.arrived.elapsed());
    answer_failure(server, request, error, reply);
}

/// Counts, logs and answers a request that failed.
fn refuse(server: &Server, request: &Request<'_>, error: &Error, reply: &mut ReplyBuffer) {
    server.counters.of(request.index).failed.add(1);
    answer_failure(server, request, error, reply);
}

fn answer_failure(server: &Server, request: &Request<'_>, error: &Error, reply: &mut ReplyBuffer) {
    server.counters.user_errors.add(1);
    log_failure(request, error);
    answer_error(server, Some(request), error, reply);
}

/// Logs at verbosity 1 the command that failed, and the error.
fn log_failure(request: &Request<'_>, error: &Error) {
    if !tracing::enabled!(target: "COMMAND", tracing::Level::DEBUG) {
        return;
    }
    let attr = attributes(|out| {
        out.append("command", request.command.name).append("db", request.db);
        request.with_shown_body(|body| {
            out.append("commandArgs", body);
        });
        let text = format!("{}: {}", error.code().name(), error.message());
        out.append("error", text.as_str());
    });
    tracing::debug!(target: "COMMAND", id = 21_962, attr, "Assertion while executing command");
}
