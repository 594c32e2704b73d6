//! From a message to a reply: the frame around every command.
//!
//! ```text
//!   message ─► Request::parse ─► access control ─► Operation::begin ─► the command's `run`
//!                                                                         │
//!      sent, or held until the log is synced ◄── reply completed ◄── Done ┤
//!      called again on a pool thread ◄──────────────────────── postponed ─┤
//!      parked until an event or a deadline, then called again ◄── Retry ──┘
//!
//!   reply completed: `ok`, write concern errors, cluster times
//! ```

mod counts;
mod entry;
mod failure;
mod lane;
mod reply;
mod run;
mod secondary;
mod wait;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use marula_bson::{Value, uuid};
use marula_wire::message::MESSAGE_BYTES_MAX;
use marula_wire::{Message, ReplyBuffer};

use crate::audit::actor::{self, Actor};
use crate::auth::check;
use crate::auth::name::Of;
use crate::command::COMMANDS;
use crate::connection::Connection;
use crate::fail_point::Failure;
use crate::inline;
use crate::log::attributes;
use crate::log::worker::{self, Worker};
use crate::net::CounterReader;
use crate::net::service::{Call, CallThread, Peer, Reason, Service, Step};
use crate::request::{Request, api_version_required, no_such_command};
use crate::server::Server;
use crate::transactions;
use entry::begin_moment;
use failure::{fail, failure_of, has_changed};
use lane::order;
use reply::answer_error;
use run::run;
pub(crate) use wait::{after, pause};

/// The maximum size of a message from a client that is not authenticated: connecting and logging in
/// takes less.
const STRANGER_BYTES_MAX: usize = 16 * 1024;

/// A server as the network layer sees it.
pub struct Frame(pub Arc<Server>);

impl Service for Frame {
    type Connection = Connection;

    fn starting(&self, counters: CounterReader) {
        // A server has one network.
        let _ = self.0.network.set(counters);
    }

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
        let mut request = match Request::parse(message, server.db.feature_version()) {
            Ok(request) if is_there(server, &request) => request,
            refused => {
                let absent = |request: Request<'_>| no_such_command(request.first.name);
                let error = refused.map_or_else(|error| error, absent);
                let error = check::hide(server, connection, message.body(), error);
                if transactions::ends_when_misread(message.body(), &error) {
                    let own = |lsid| check::own_lsid(server, connection, lsid).ok();
                    server.transactions.abort_misread(message.body(), &own);
                }
                server.count_rejected(message, &error, call.arrived.elapsed());
                answer_error(server, None, &error, reply);
                return Step::Reply;
            }
        };
        if !request.api.is_version_1 && server.requires_api_version.load(Ordering::Relaxed) {
            let error = api_version_required();
            server.count_rejected(message, &error, call.arrived.elapsed());
            answer_error(server, Some(&request), &error, reply);
            return Step::Reply;
        }
        request.resolve(&server.db);
        if is_controlled && let Err(error) = check::own_session(connection, &mut request) {
            server.count_rejected(message, &error, call.arrived.elapsed());
            answer_error(server, Some(&request), &error, reply);
            return Step::Reply;
        }
        let permits = request.command.permits_write_concern(request.body);
        if request.write_concern.is_none() && permits {
            request.write_concern = server.default_concerns.write();
        }
        // Each reply of a stream is as of a request of its own.
        let is_new = matches!(call.reason, Reason::Arrived | Reason::Streaming);
        if is_new && server.fail_points.are_enabled() {
            connection.failure = failure_of(server, connection, &request, call.reason);
        }
        // A delayed request starts now.
        let held_up = connection.held_up.take();
        let call = &Call { reason: held_up.unwrap_or(call.reason), ..*call };
        if connection.failure.is_some()
            && let Some(step) = fail(server, connection, &request, call.reason, reply)
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
        let operation = &connection.operation;
        let has_lost_client = connection.peer.disconnected.get() && operation.ends_with_client();
        has_lost_client || operation.interruption().is_some()
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
        let number = |number| Value::whole(number);
        attributes(|out| {
            out.append("remote", address_text(connection.peer.remote).as_str());
            out.append("uuid", uuid::text(&connection.uuid).as_str());
            out.append("connectionId", number(connection.id));
            out.append("connectionCount", number(count));
        })
    }
}

/// Returns whether a command exists on this server: some do on servers of another kind only, test
/// servers or those over a distributed store.
fn is_there(server: &Server, request: &Request<'_>) -> bool {
    let command = request.command;
    (!command.is_for_tests || server.fail_points.are_enabled())
        && (!command.needs_cluster || server.db.engine().is_remote)
}

/// Records the start of an operation.
fn begin(server: &Server, connection: &Connection, request: &Request<'_>) {
    let operation = &connection.operation;
    operation.begin(server.operations.next_id(), request.index, server.now_ms() * 1_000);
    if request.command.writes {
        operation.note_write();
    }
    if request.command.ends_with_client {
        operation.note_for_client();
    }
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

/// Returns whether a call is the first for its reply, and not one after
/// [`Outcome::Retry`](crate::row::Outcome::Retry).
pub(crate) fn is_first(call: &Call) -> bool {
    !matches!(call.reason, Reason::Woken | Reason::Deadline)
}

/// Returns a client's address as `currentOp`, `whatsmyuri` and the log show it.
pub(crate) fn address_text(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "anonymous unix socket".to_owned(), |address| address.to_string())
}
