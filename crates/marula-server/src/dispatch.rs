//! From a message to a reply: the frame around every command.
//!
//! ```text
//!   message ─► Request::parse ─► access control ─► Operation::begin ─► the command's `run`
//!                                                                         │
//!      sent, or held until the log is synced ◄── reply completed ◄── Done ┤
//!      called again on a pool thread ◄─────────────────────────── ToPool ─┤
//!      parked until an event or a deadline, then called again ◄── Retry ──┘
//!
//!   reply completed: `ok`, write concern errors, cluster times
//! ```

use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_bson::{Binary, ByteSlice, Doc, DocWriter, Value, uuid};
use marula_db::latencies::Took;
use marula_db::nodes::Moment;
use marula_db::transaction::locks::LockedKey;
use marula_db::unit::Detail;
use marula_db::usage::Use;
use marula_db::{Unit, current};
use marula_error::{Error, codes, errors};
use marula_operation::targets;
use marula_query::context::Interrupt as QueryInterrupt;
use marula_query::meter;
use marula_query::quick::Cost;
use marula_storage::Stamp;
use marula_wire::message::MESSAGE_BYTES_MAX;
use marula_wire::{Form, Message, ReplyBuffer, reply::write_error};

use crate::audit::actor::{self, Actor};
use crate::audit::administration;
use crate::auth::check;
use crate::auth::name::Of;
use crate::command::COMMANDS;
use crate::connection::Connection;
use crate::context::{Context, Interrupt, Watch};
use crate::ended::{Ended, Statements};
use crate::error_labels::{self, RETRYABLE};
use crate::fail_point::{Ending, Failure};
use crate::inline;
use crate::log::attributes;
use crate::log::worker::{self, Worker};
use crate::net::service::{Arm, Call, CallThread, Lane, Order, Peer, Reason, Service, Step, Wake};
use crate::request::{Request, Transaction, no_such_command};
use crate::row::{CommandPlace, Kind, Outcome, ReadConcernLevels};
use crate::server::Server;
use crate::snapshots::Snapshot;
use crate::transactions::{self, Entrance, Leaving, TRANSIENT, Work};
use crate::write_lock::WriteLock;

errors! {
    op_query_command(name: &str) = UnsupportedOpQueryCommand, "Unsupported OP_QUERY command: {name}. The client driver may require an upgrade. For more details see https://dochub.mongodb.org/core/legacy-opcode-removal";
}

/// The interval at which a request checks again whether another one of its transaction has ended.
const BUSY_STEP: Duration = Duration::from_millis(2);
/// The interval at which a write that waits for a locked key checks again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The maximum size of a message from a client that is not authenticated: connecting and logging in
/// takes less.
const STRANGER_BYTES_MAX: usize = 16 * 1024;

/// A server as the network layer sees it.
pub struct Frame(pub Arc<Server>);

/// Errors of a write that found other data than it needs. A member of a replica set adds whether
/// the write concern is satisfied, because another client may have written that data; it does not
/// for errors in the request itself. NamespaceNotFound, IndexNotFound, NamespaceExists,
/// DuplicateKey.
const STATE_CODES: &[i32] = &[26, 27, 48, 11_000];

impl Service for Frame {
    type Connection = Connection;

    fn open(&self, peer: Peer, id: u64) -> Connection {
        let operation = self.0.operations.open(id, peer.clone());
        let mut connection = Connection::new(id, peer, operation);
        if self.0.options.audit.is_some() {
            let Peer { local, remote, .. } = connection.peer;
            connection.actor = Some(Arc::new(Actor::client(connection.uuid, local, remote)));
        }
        if !self.0.log.is_quiet() {
            let _listener = worker::begin(Worker::Part("listener"));
            let attr = self.connection_attributes(&connection);
            tracing::info!(target: "NETWORK", id = 22_943, attr, "Connection accepted");
        }
        connection
    }

    fn call(
        &self,
        connection: &mut Connection,
        message: &Message<'_>,
        call: &Call,
        reply: &mut ReplyBuffer,
    ) -> Step {
        let server = &*self.0;
        // First, because it must be dropped last.
        let _work = (call.thread == CallThread::Pool).then(|| server.options.memory.begin_work());
        let _at_work = worker::begin(Worker::Connection(connection.id));
        let _acting = connection.actor.clone().map(actor::begin);
        let _moment = match call.thread == CallThread::Pool && server.db.engine().is_remote {
            false => None,
            true => match begin_moment(server, message, call) {
                Ok(moment) => moment,
                Err(error) => {
                    answer_error(server, None, &error, reply);
                    return Step::Reply;
                }
            },
        };
        let is_controlled = server.options.has_access_control;
        if is_controlled {
            check::renew(server, connection);
        }
        let parsed = Request::parse(message, server.db.feature_version());
        let mut request = match parsed.and_then(|request| is_there(server, request)) {
            Ok(request) => request,
            Err(error) => {
                let error = check::hide(server, connection, message.body(), error);
                if transactions::ends_when_misread(message.body(), &error) {
                    let own = |lsid| check::own_lsid(server, connection, lsid);
                    server.transactions.abort_misread(message.body(), &own);
                }
                server.count_rejected(message, &error);
                answer_error(server, None, &error, reply);
                return Step::Reply;
            }
        };
        request.resolve(&server.db);
        if is_controlled {
            check::own_session(connection, &mut request);
        }
        if request.write_concern.is_none() && request.command.takes_write_concern {
            request.write_concern = server.default_concerns.write();
        }
        if call.reason == Reason::Arrived && server.fail_points.are_enabled() {
            connection.failure = Failure::of(&server.fail_points, connection, &request);
        }
        let was_held_up =
            connection.failure.as_mut().is_some_and(|failure| mem::take(&mut failure.is_held_up));
        // A delayed request starts now.
        let reason = if was_held_up { Reason::OnPool } else { call.reason };
        let call = &Call { reason, ..*call };
        if connection.failure.is_some()
            && let Some(step) = fail(server, connection, &request, reply)
        {
            return step;
        }
        let document_bytes_max = match call.thread {
            CallThread::Pool => Some(usize::MAX),
            CallThread::Inline => inline::document_bytes_max(&request, &server.db),
        };
        let step = match document_bytes_max {
            Some(bytes) => run(&self.0, connection, &request, call, bytes, reply),
            None => {
                begin(server, connection, &request);
                Step::ToPool(order(&request, call))
            }
        };
        match step {
            // It continues, and is shown until it ends.
            Step::Retry(..) | Step::ToPool(_) => describe(connection, &request),
            _ => {
                connection.operation.end();
                connection.failure = None;
                if server.fail_points.are_enabled()
                    && has_changed(&request, reply)
                    && Failure::closes_after(&server.fail_points, &request)
                {
                    reply.abandon();
                    return Step::Close;
                }
            }
        }
        step
    }

    fn close(&self, connection: Connection) {
        self.0.operations.close(connection.id);
        audit_logout(&self.0, &connection, "Client has disconnected");
        if !self.0.log.is_quiet() {
            let _at_work = worker::begin(Worker::Connection(connection.id));
            let attr = self.connection_attributes(&connection);
            tracing::info!(target: "NETWORK", id = 22_944, attr, "Connection ended");
        }
    }

    fn message_bytes_max(&self, connection: &Connection) -> usize {
        let is_stranger = self.0.options.has_access_control && connection.access.is_none();
        if is_stranger { STRANGER_BYTES_MAX } else { MESSAGE_BYTES_MAX }
    }

    fn is_ended(&self, connection: &Connection) -> bool {
        connection.peer.disconnected.get() || connection.operation.interruption().is_some()
    }

    fn give_up(&self, connection: &mut Connection) {
        self.0.counters.user_errors.add(1);
        connection.operation.end();
    }

    fn note_late(&self, connection: u64, late: Duration) {
        let command = self.0.operations.command_of(connection);
        let command = command.and_then(|index| COMMANDS.get(index)).map(|command| command.name);
        let late_ms = late.as_millis() as u64;
        let _at_work = worker::begin(Worker::Connection(connection));
        tracing::warn!(command, late_ms, "a network worker is held up by one connection");
    }
}

/// Writes a logout to the audit log.
pub(crate) fn audit_logout(server: &Server, connection: &Connection, reason: &str) {
    let (Some(audit), Some(actor)) = (&server.options.audit, &connection.actor) else { return };
    if actor.users().is_empty() {
        return;
    }
    audit.write(actor, "logout", 0, |param| {
        param.append("reason", reason);
        actor::write_names("initialUsers", Of::User, actor.users(), param);
        actor::write_names("updatedUsers", Of::User, &[], param);
    });
}

impl Frame {
    /// Returns the attributes of the log lines about a connection's start and end.
    fn connection_attributes(&self, connection: &Connection) -> String {
        let counters = self.0.network.get().map(|counters| counters.connections());
        let count = counters.map_or(0, |counters| counters.current);
        let number = |number| Value::whole(i64::try_from(number).unwrap_or(i64::MAX));
        attributes(|out| {
            out.append("remote", address_text(connection.peer.remote).as_str());
            out.append("uuid", uuid::text(&connection.uuid).as_str());
            out.append("connectionId", number(connection.id));
            out.append("connectionCount", number(count));
        })
    }
}

/// Rejects a command that only servers of another kind have: test servers, or those over a
/// distributed store.
fn is_there<'a>(server: &Server, request: Request<'a>) -> marula_error::Result<Request<'a>> {
    let command = request.command;
    let is_missing = command.is_for_tests && !server.fail_points.are_enabled()
        || command.needs_cluster && !server.db.engine().is_remote;
    if is_missing { Err(no_such_command(request.first.name)) } else { Ok(request) }
}

/// Returns whether a reply reports a commit, or a change that no earlier attempt had made.
fn has_changed(request: &Request<'_>, reply: &ReplyBuffer) -> bool {
    let counts = |doc: Doc<'_>| doc.get("n").and_then(|n| n.as_exact_i64()).is_some_and(|n| n > 0);
    let Some((doc, _)) = reply.written() else { return false };
    let found = doc.get("lastErrorObject").and_then(|object| object.as_doc());
    request.command.name == "commitTransaction"
        || retried(reply) == 0 && (counts(doc) || found.is_some_and(counts))
}

/// Applies a fail point to a request, as far as it acts before the request itself; returns the end
/// or the wait that it causes.
#[cold]
fn fail(
    server: &Server,
    connection: &mut Connection,
    request: &Request<'_>,
    reply: &mut ReplyBuffer,
) -> Option<Step> {
    let mut failure = connection.failure.take()?;
    if let Some(delay) = failure.delay.take() {
        failure.is_held_up = true;
        connection.failure = Some(failure);
        begin(server, connection, request);
        describe(connection, request);
        let operation = connection.operation.clone();
        let arm = move |wake: Wake| operation.wait(wake);
        return Some(Step::Retry(Box::new(arm), after(delay), lane(request)));
    }
    connection.operation.resume();
    let step = match &failure.ending {
        Some(Ending::Close) => {
            reply.abandon();
            Step::Close
        }
        Some(Ending::Error(error)) => {
            let mut body = reply.body();
            failure.write_error(server, request, error, &mut body);
            append_cluster_time(server, &mut body);
            drop(body);
            Step::Reply
        }
        None => {
            connection.failure = Some(failure);
            return None;
        }
    };
    connection.operation.end();
    Some(step)
}

/// Commands that may start with a catalogue that may not be the newest: they read before they
/// write.
const REPEATABLE: &[&str] = &["find", "count", "distinct", "insert", "update", "delete"];

/// Fixes the moment that a request's reads see, in a store whose reads are round trips. In a store
/// of one process, requests that may not be repeated see the newest state: they compare it with the
/// end of the oplog or the number of inserts, which may be newer than a moment.
///
/// Errors: those of the store.
fn begin_moment<'s>(
    server: &'s Server,
    message: &Message<'_>,
    call: &Call,
) -> marula_error::Result<Option<Moment<'s>>> {
    let body = message.body();
    let name = body.iter().next().map(|first| first.name);
    let is_repeatable = name.is_some_and(|name| REPEATABLE.iter().any(|known| name == *known));
    let is_in_transaction = body.get("autocommit").is_some();
    // With access control the user's rights must be the newest from the start. A repeated request
    // starts at a moment, so that it is not repeated a second time.
    let may_repeat = is_first(call) && !server.options.has_access_control;
    match is_repeatable && may_repeat && !is_in_transaction {
        true => server.db.begin_repeatable().map(Some),
        false if server.db.is_shared() => server.db.begin_operation().map(Some),
        false => Ok(None),
    }
}

/// Records the start of an operation.
fn begin(server: &Server, connection: &Connection, request: &Request<'_>) {
    let operation = &connection.operation;
    operation.begin(server.operations.next_id(), request.index, server.now_ms() * 1_000);
}

/// Records the operation's command, unless that is done.
fn describe(connection: &Connection, request: &Request<'_>) {
    let operation = &connection.operation;
    if !operation.is_described() {
        let ns = request.shown_namespace();
        request.with_shown_body(|body| {
            operation.describe(request.command, ns, body, request.lsid);
        });
    }
}

/// Counts the concern and the preference of a read.
fn count_read(server: &Server, request: &Request<'_>, is_in_transaction: bool) {
    if matches!(request.command.read_concern, ReadConcernLevels::Local) {
        return;
    }
    let (concern, preference) = (&request.read_concern, request.read_preference);
    if is_in_transaction {
        let begins = matches!(request.transaction, Some(Transaction::Starts));
        server.counters.reads.note_in_transaction(begins.then_some(concern), preference);
    } else {
        server.counters.reads.note(concern, preference);
    }
}

fn order(request: &Request<'_>, call: &Call) -> Order {
    let max_time = request.max_time.filter(|_| !request.command.own_max_time);
    Order { lane: lane(request), deadline: max_time.map(|max| call.arrived + max) }
}

/// Returns the lane in which a request waits for a pool thread.
fn lane(request: &Request<'_>) -> Lane {
    match request.command.place {
        CommandPlace::Inline => Lane::Reserved,
        CommandPlace::Reserved if inline::is_quick(request) => Lane::Reserved,
        CommandPlace::Pool if shows_operations(request) => Lane::Reserved,
        _ => Lane::Ordinary,
    }
}

/// Returns whether a pipeline is the shells' form of `currentOp`: that stage, and conditions that
/// are quick.
fn shows_operations(request: &Request<'_>) -> bool {
    let stages = || request.arg("pipeline")?.as_array();
    let Some(stages) = stages().filter(|_| request.command.name == "aggregate") else {
        return false;
    };
    let mut cost = Cost::default();
    !stages.is_empty()
        && stages.iter().enumerate().all(|(number, stage)| {
            let stage = stage.value.get().as_doc().and_then(|stage| stage.iter().next());
            stage.is_some_and(|stage| match (number, stage.name.as_bytes()) {
                (0, name) => name == b"$currentOp",
                (_, b"$match") => cost.add_filter(stage.value.get()),
                _ => false,
            })
        })
}

fn run(
    server: &Arc<Server>,
    connection: &mut Connection,
    request: &Request<'_>,
    call: &Call,
    document_bytes_max: usize,
    reply: &mut ReplyBuffer,
) -> Step {
    let command = request.command;
    let now_ms = server.now_ms();
    if request.message.reply_to().form != Form::Msg && !is_hello(request) {
        answer_error(server, Some(request), &op_query_command(command.name), reply);
        return Step::Reply;
    }
    if let Some(lsid) = &request.lsid
        && let Err(error) = connection.use_session(lsid, &server.sessions, now_ms)
    {
        answer_error(server, Some(request), &error, reply);
        return Step::Reply;
    }
    let entered = enter(server, connection, request, now_ms)
        .and_then(|entered| Ok((entered, snapshot_of(server, request, now_ms)?)));
    let (entered, snapshot) = match entered {
        Ok(entered) => entered,
        Err(error) => {
            server.counters.of(request.index).failed.add(1);
            answer_error(server, Some(request), &error, reply);
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
    let deadline = request.max_time.filter(|_| !command.own_max_time).map(|max| call.arrived + max);
    let stamp_before = command.takes_write_concern.then(|| server.db.moment());
    let operation = connection.operation.clone();
    // The time of a call after a wait is measured from here.
    let began = if is_first(call) { call.arrived } else { Instant::now() };
    let is_profiled = server.profiling.wants_stages(request.db);
    operation.tally.start(detail(request, on_pool, is_profiled));
    let unit = Unit::new(&server.db).tallied(&operation.tally);
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
    let needs = Vec::new();
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
    // The time on a network worker is limited separately.
    let metered = on_pool.then(|| meter::begin(QueryInterrupt::new(Watch::new(&context))));
    let mut body = reply.body();
    let is_held_off = command.writes && server.write_lock.is_locked();
    // A write that needs a key locked by a transaction waits without a thread.
    let may_park = command.is_retryable_write && entered.is_none();
    if may_park {
        current::begin_parking();
    }
    let outcome = context
        .check_interrupt()
        .and_then(|()| check::check(&mut context, request))
        .and_then(|()| match is_held_off {
            true => Ok(WriteLock::wait(server, &operation, deadline)),
            false => (command.run)(&mut context, request, &mut body),
        });
    let outcome = match may_park.then(current::end_parking).flatten() {
        Some(locked) => Ok(until_released(server, locked, deadline)),
        None if current::take_postponed() && !on_pool => Ok(Outcome::ToPool),
        None => outcome,
    };
    let must_repeat = match on_pool && server.db.is_shared() {
        false => Ok(false),
        true => match (server.db.must_repeat(), request.txn_number) {
            (Ok(false), Some(_)) => server.db.must_repeat_numbered(),
            (must_repeat, _) => must_repeat,
        },
    };
    let outcome = match must_repeat {
        Ok(false) => outcome,
        Ok(true) => Ok(pause(BUSY_STEP)),
        Err(error) => Err(error),
    };
    drop(metered);
    drop(current);
    check::note_changes(server, &context.needs);
    if let Some(audit) = &server.options.audit {
        match &outcome {
            Ok(Outcome::Done) => administration::tell(audit, request, 0),
            Err(error) => administration::tell(audit, request, error.code().number()),
            Ok(_) => {}
        }
    }
    let is_refused = outcome.is_err();
    let is_empty_batch = outcome.as_ref().is_err_and(|error| error.code() == codes::InvalidLength);
    let step = match outcome {
        Ok(Outcome::Done) => {
            let failure = context.connection.failure.as_deref();
            finish(server, request, body, stamp_before, failure)
        }
        Ok(Outcome::DoneOnView) => {
            body.append("ok", 1);
            append_cluster_time(server, &mut body);
            drop(body);
            Step::Reply
        }
        Ok(Outcome::Failed(message)) => {
            server.counters.of(request.index).failed.add(1);
            body.append("ok", 0.0).append("errmsg", message.as_str());
            append_cluster_time(server, &mut body);
            drop(body);
            Step::Reply
        }
        Ok(Outcome::Stream) => {
            append_tail(server, &mut body);
            drop(body);
            Step::Stream(lane(request))
        }
        Ok(Outcome::HangUp) => {
            drop(body);
            reply.abandon();
            Step::Close
        }
        Ok(Outcome::ToPool) => {
            drop(body);
            Step::ToPool(order(request, call))
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
        Err(error) => {
            drop(body);
            server.counters.of(request.index).failed.add(1);
            server.counters.user_errors.add(1);
            log_failure(request, &error);
            let is_transient = entered.is_some() && targets::is_transient(error.code());
            let error = if is_transient { error.with_label(TRANSIENT) } else { error };
            answer_error(server, Some(request), &error, reply);
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
    let Context { connection, statements, origin, .. } = context;
    if !matches!(step, Step::ToPool(_) | Step::Retry(..)) {
        let mut examined = operation.tally.examined();
        if let Some(statements) = &statements {
            examined += statements.examined();
        }
        server.counters.examined(examined);
        let spent = began.elapsed();
        if server.profiling.concerns(spent)
            && let Some(written) = reply.written()
        {
            let report = operation.tally.take_plan_report();
            let now_ms = server.now_ms();
            let (took, reply) = (spent, written);
            let changed =
                statements.as_ref().map_or_else(|| operation.tally.changed(), Statements::changed);
            let ended = Ended {
                server,
                connection,
                request,
                reply,
                took,
                now_ms,
                examined,
                changed,
                report,
                origin,
            };
            ended.tell(statements);
        }
        if request.txn_number.is_some() && request.transaction.is_none() {
            server.transactions.count_numbered(retried(reply));
        }
        let took = call.arrived.elapsed();
        server.counters.start(command.kind);
        count_read(server, request, entered.is_some());
        operation.note_api_version(request.api.is_version_1);
        note_latency(server, request, took, is_refused);
    }
    step
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

/// Parks a write until no transaction has locked a key that it needs.
fn until_released(server: &Arc<Server>, key: LockedKey, deadline: Option<Instant>) -> Outcome {
    let server = server.clone();
    let arm = move |wake: Wake| server.db.when_released(key, Box::new(move || wake.wake()));
    let look_again = after(LOOK_AGAIN);
    Outcome::Retry(Box::new(arm), deadline.map_or(look_again, |deadline| deadline.min(look_again)))
}

/// Returns the number of a write's statements that an earlier attempt had executed.
fn retried(reply: &ReplyBuffer) -> u64 {
    let Some((reply, _)) = reply.written() else { return 0 };
    let many = reply.get("retriedStmtIds").and_then(|ids| ids.as_array());
    let one = || u64::from(reply.get("retriedStmtId").is_some());
    many.map_or_else(one, |ids| ids.iter().count() as u64)
}

/// Counts the latency of an operation, for its command, the server and, unless it was rejected, for
/// its collection.
fn note_latency(server: &Server, request: &Request<'_>, took: Duration, is_refused: bool) {
    let class = request.command.class();
    let spent = Took::new(took);
    server.counters.of(request.index).times.add_us(spent.us());
    server.counters.latencies.add(class, spent);
    if is_refused {
        return;
    }
    let name = request.concerned().and_then(|name| str::from_utf8(name).ok());
    if let Some(collection) = name.and_then(|name| server.db.catalog().get(request.db, name)) {
        collection.latencies().add(class, spent);
        let (kind, operations) = use_of(request);
        collection.usage().add(kind, operations, spent.us());
    }
}

/// Returns the kind of use that a request makes of its collection, and its count: each statement of
/// an update or a delete counts.
fn use_of(request: &Request<'_>) -> (Use, u64) {
    let statements = |name| request.documents(name).map_or(1, |all| all.count() as u64);
    match request.command.kind {
        Kind::Query => (Use::Query, 1),
        Kind::GetMore => (Use::GetMore, 1),
        Kind::Insert => (Use::Insert, 1),
        Kind::Update => (Use::Update, statements("updates")),
        Kind::Delete => (Use::Remove, statements("deletes")),
        Kind::Command if request.command.writes => (Use::WriteCommand, 1),
        Kind::Command => (Use::ReadCommand, 1),
    }
}

/// Returns the detail of the plan's statistics: everything for the profiler, a line for operations
/// that may be slow.
fn detail(request: &Request<'_>, on_pool: bool, is_profiled: bool) -> Detail {
    match (is_profiled, on_pool) {
        (true, _) => Detail::stages(|name| request.arg(name)),
        (false, true) => Detail::Summary,
        (false, false) => Detail::Nothing,
    }
}

/// Enters a request into its transaction; ends a transaction that a newer retryable write replaces.
///
/// Errors: those of requests that are not permitted in a transaction, and those of
/// [`Transactions::enter`].
///
/// [`Transactions::enter`]: crate::transactions::Transactions::enter
fn enter(
    server: &Server,
    connection: &Connection,
    request: &Request<'_>,
    now_ms: i64,
) -> marula_error::Result<Option<Entrance>> {
    let Some(part) = request.transaction else {
        if let (Some(lsid), Some(number)) = (&request.lsid, request.txn_number) {
            server.transactions.abort_before(lsid, number);
        }
        return Ok(None);
    };
    transactions::check(request, part)?;
    let operation = &connection.operation;
    let entrance = server.transactions.enter(&server.db, request, part, operation, now_ms)?;
    if let Entrance::In(entered) = &entrance
        && let Err(error) = entered.check_level(request)
    {
        server.transactions.leave(entered, Leaving::Failed, Work::default());
        return Err(error);
    }
    Ok(Some(entrance))
}

/// Returns the moment that a request reads at outside transactions: its own, or that of the command
/// that opened its cursor.
///
/// Errors: as of [`Snapshots::of`](crate::snapshots::Snapshots::of).
fn snapshot_of(
    server: &Server,
    request: &Request<'_>,
    now_ms: i64,
) -> marula_error::Result<Option<Snapshot>> {
    if request.command.kind == Kind::GetMore {
        let id = request.first.value.get().as_exact_i64();
        return Ok(id.and_then(|id| server.cursors.snapshot_of(id)));
    }
    server.snapshots.of(&server.db, request, now_ms)
}

/// Returns the result with which a request leaves its transaction: an error of any statement ends
/// it.
fn leaving(step: &Step, is_refused: bool, is_empty_batch: bool, reply: &ReplyBuffer) -> Leaving {
    if matches!(step, Step::ToPool(_) | Step::Retry(..)) {
        return Leaving::Undone;
    }
    let counts = |errors: Value<'_>| errors.as_exact_i64().is_some_and(|count| count > 0);
    let has_errors = || {
        let reply = reply.written().map(|(reply, _)| reply);
        reply.is_some_and(|reply| {
            reply.get("writeErrors").is_some() || reply.get("nErrors").is_some_and(counts)
        })
    };
    // A batch without statements is rejected before it enters its transaction.
    if is_refused && !is_empty_batch || has_errors() { Leaving::Failed } else { Leaving::Done }
}

/// Completes a written reply; waits for the disk if the write concern asks for it.
fn finish(
    server: &Arc<Server>,
    request: &Request<'_>,
    mut body: DocWriter<'_>,
    stamp_before: Option<Stamp>,
    failure: Option<&Failure>,
) -> Step {
    let concern = request.awaited_concern();
    match failure.and_then(|failure| failure.write_concern_error.as_ref()) {
        Some(error) => {
            body.append("writeConcernError", error);
        }
        None => {
            if let Some(concern) = concern
                && let Some(error) = concern.unsatisfied()
            {
                concern.write_error(&error, &mut body);
            }
        }
    }
    body.append("ok", 1.0);
    if let Some(failure) = failure {
        failure.label_concern(request, &mut body);
    }
    append_cluster_time(server, &mut body);
    drop(body);
    let stamp = server.db.moment();
    match concern {
        // A write that changed nothing may depend on another's write that is not yet on disk; only
        // if there never was a write is there nothing to wait for.
        Some(concern) if concern.wants_sync() && stamp_before.is_some() => {
            Step::Hold(wait_for_sync(server.clone(), stamp))
        }
        _ => Step::Reply,
    }
}

fn wait_for_sync(server: Arc<Server>, stamp: Stamp) -> Arm {
    Box::new(move |wake| {
        let done = move |outcome: marula_storage::Result<()>| match outcome {
            Ok(()) => wake.wake(),
            Err(error) => {
                // The write is in the log, but may not be on disk: it must not be acknowledged.
                tracing::error!(%error, "a write that was to be on disk could not be synced");
                wake.hang_up();
            }
        };
        server.db.on_sync(stamp, Box::new(done));
    })
}

/// Appends the common end of all successful replies.
fn append_tail(server: &Server, body: &mut DocWriter<'_>) {
    body.append("ok", 1.0);
    append_cluster_time(server, body);
}

/// Appends the times of a replica set's member, at which a change stream can start; also if an
/// oplog is written without a set.
fn append_cluster_time(server: &Server, body: &mut DocWriter<'_>) {
    const NO_KEY: [u8; 20] = [0; 20];
    if server.options.repl_set.is_none() && !server.db.oplog().is_on() {
        return;
    }
    let timestamp = Value::Timestamp(server.db.newest_timestamp(server.now_ms()));
    let mut cluster_time = body.begin_doc("$clusterTime");
    cluster_time.append("clusterTime", timestamp);
    let mut signature = cluster_time.begin_doc("signature");
    signature.append("hash", Binary { subtype: 0, bytes: &NO_KEY });
    signature.append("keyId", 0_i64);
    drop(signature);
    drop(cluster_time);
    body.append("operationTime", timestamp);
}

fn answer_error(
    server: &Server,
    request: Option<&Request<'_>>,
    error: &Error,
    reply: &mut ReplyBuffer,
) {
    let is_retryable =
        request.is_some_and(|request| error_labels::is_retryable(request, error.code()));
    let labelled = is_retryable.then(|| error.clone().with_label(RETRYABLE));
    let mut body = reply.body();
    if let Some(request) = request
        && STATE_CODES.contains(&error.code().number())
        && let Some(concern) = &request.write_concern
        && let Some(error) = concern.unsatisfied()
    {
        concern.write_error(&error, &mut body);
    }
    write_error(&mut body, labelled.as_ref().unwrap_or(error));
    append_cluster_time(server, &mut body);
}

fn is_hello(request: &Request<'_>) -> bool {
    matches!(request.command.name, "hello" | "isMaster")
}

impl Server {
    fn count_rejected(&self, message: &Message<'_>, error: &Error) {
        self.counters.user_errors.add(1);
        if error.code() == codes::CommandNotFound {
            self.counters.unknown_commands.add(1);
            return;
        }
        let first = message.body().iter().next();
        if let Some((index, _)) =
            first.and_then(|first| crate::command::find(first.name, self.db.feature_version()))
        {
            self.counters.of(index).rejected.add(1);
            self.counters.of(index).failed.add(1);
        }
    }
}

/// Returns whether a call is the first for its reply, and not one after [`Outcome::Retry`].
pub(crate) fn is_first(call: &Call) -> bool {
    !matches!(call.reason, Reason::Woken | Reason::Deadline)
}

/// Returns a client's address as `currentOp`, `whatsmyuri` and the log show it.
pub(crate) fn address_text(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "anonymous unix socket".to_owned(), |address| address.to_string())
}

/// The maximum wait for a client without a limit of its own.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Calls the command again after `wait`, without a thread meanwhile.
pub(crate) fn pause(wait: Duration) -> Outcome {
    // A wake that is dropped would ring at once.
    Outcome::Retry(Box::new(Wake::forget), after(wait))
}

/// Returns the time after `wait`, or after the maximum wait.
pub(crate) fn after(wait: Duration) -> Instant {
    Instant::now() + wait.min(WAIT_MAX)
}
