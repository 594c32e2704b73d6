//! The fail points that act on a request before or after it runs.

use marula_bson::Doc;
use marula_wire::ReplyBuffer;

use super::lane::lane;
use super::reply::{append_cluster_time, retried};
use super::wait::after;
use super::{begin, describe};
use crate::command::hello::client_metadata;
use crate::connection::Connection;
use crate::fail_point::{Ending, Failure};
use crate::net::service::{Reason, Step, Wake};
use crate::request::Request;
use crate::server::Server;

/// Returns the failure of a new request, if there is one.
pub(super) fn failure_of(
    server: &Server,
    connection: &mut Connection,
    request: &Request<'_>,
    reason: Reason,
) -> Option<Box<Failure>> {
    if reason == Reason::Arrived {
        // A fail point can be for the clients of one application, also if it fails their first
        // `hello`. Errors come before it, and the command itself reports them.
        if let Some(metadata) = client_metadata(request, connection.has_said_hello).ok()? {
            connection.set_metadata(metadata);
        }
    }
    Failure::of(&server.fail_points, connection, request)
}

/// Applies a fail point to a request, as far as it acts before the request itself; returns the end
/// or the wait that it causes.
#[cold]
pub(super) fn fail(
    server: &Server,
    connection: &mut Connection,
    request: &Request<'_>,
    reason: Reason,
    reply: &mut ReplyBuffer,
) -> Option<Step> {
    let mut failure = connection.failure.take()?;
    if let Some(delay) = failure.delay.take() {
        connection.held_up =
            Some(if reason == Reason::Streaming { reason } else { Reason::OnPool });
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
            append_cluster_time(server, Some(request), &mut body);
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

/// Returns whether a reply reports a commit, or a change that no earlier attempt had made.
pub(super) fn has_changed(request: &Request<'_>, reply: &ReplyBuffer) -> bool {
    let counts = |doc: Doc<'_>| doc.get("n").and_then(|n| n.as_exact_i64()).is_some_and(|n| n > 0);
    let Some((doc, _)) = reply.written() else { return false };
    let found = doc.get("lastErrorObject").and_then(|object| object.as_doc());
    request.command.name == "commitTransaction"
        || retried(reply) == 0 && (counts(doc) || found.is_some_and(counts))
}
