//! A request enters its transaction, or the moment that it reads at, and leaves the transaction.

use std::time::{Duration, Instant};

use marula_bson::Value;
use marula_db::nodes::Moment;
use marula_error::Result;
use marula_wire::{Message, ReplyBuffer};

use super::{is_first, secondary};
use crate::connection::Connection;
use crate::net::service::{Call, Step};
use crate::request::Request;
use crate::row::Kind;
use crate::server::Server;
use crate::snapshots::Snapshot;
use crate::transactions::{self, Entrance, Leaving, Work};

/// Commands that may start with a catalogue that may not be the newest: they read before they
/// write.
const REPEATABLE: &[&str] = &["find", "count", "distinct", "insert", "update", "delete"];

/// Fixes the moment that a request's reads see, in a store whose reads are round trips. In a store
/// of one process, requests that may not be repeated see the newest state: they compare it with the
/// end of the oplog or the number of inserts, which may be newer than a moment.
///
/// Errors: those of the store.
pub(super) fn begin_moment<'s>(
    server: &'s Server,
    message: &Message<'_>,
    call: &Call,
) -> Result<Option<Moment<'s>>> {
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

/// Enters a request into its transaction; ends a transaction that a newer retryable write replaces.
///
/// Errors: those of requests that are not permitted in a transaction, and those of
/// [`Transactions::enter`].
///
/// [`Transactions::enter`]: crate::transactions::Transactions::enter
pub(super) fn enter(
    server: &Server,
    connection: &Connection,
    request: &Request<'_>,
    now_ms: i64,
) -> Result<Option<Entrance>> {
    let Some(part) = request.transaction else {
        if let (Some(lsid), Some(number)) = (&request.lsid, request.txn_number) {
            server.transactions.abort_before(lsid, number);
        }
        return Ok(None);
    };
    secondary::check(server, connection, request)?;
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

/// Returns the moment that a request reads at outside transactions, and the time by which it must
/// end: its own, or for a `getMore` those of the command that opened its cursor.
///
/// Errors: as of [`Snapshots::of`](crate::snapshots::Snapshots::of).
pub(super) fn bounds_of(
    server: &Server,
    request: &Request<'_>,
    call: &Call,
    now_ms: i64,
) -> Result<(Option<Snapshot>, Option<Instant>)> {
    let by = |time: Duration| call.arrived + time;
    if request.command.kind == Kind::GetMore {
        let id = request.first.value.get().as_exact_i64();
        let inherited = id.map(|id| server.cursors.inherited(id)).unwrap_or_default();
        return Ok((inherited.snapshot, inherited.time_left.map(by)));
    }
    Ok((server.snapshots.of(&server.db, request, now_ms)?, request.max_time.map(by)))
}

/// Returns the result with which a request leaves its transaction: an error of any statement ends
/// it.
pub(super) fn leaving(
    step: &Step,
    is_refused: bool,
    is_empty_batch: bool,
    reply: &ReplyBuffer,
) -> Leaving {
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
