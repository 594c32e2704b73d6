//! The counters and latencies of a request, and the detail of its report.

use std::time::Duration;

use marula_db::latencies::{Class, Took};
use marula_db::unit::Detail;
use marula_db::usage::Use;
use marula_error::{Error, codes};
use marula_wire::Message;

use crate::command::{self, COMMANDS};
use crate::request::{Request, Transaction};
use crate::row::{Kind, ReadConcernLevels};
use crate::server::Server;

/// Returns the detail of the plan's statistics: everything for the profiler, a line for operations
/// that may be slow.
pub(super) fn detail(request: &Request<'_>, on_pool: bool, is_profiled: bool) -> Detail {
    match (is_profiled, on_pool) {
        (true, _) => Detail::stages(|name| request.arg(name)),
        (false, true) => Detail::Summary,
        (false, false) => Detail::Nothing,
    }
}

/// Counts the concern and the preference of a read.
pub(super) fn count_read(server: &Server, request: &Request<'_>, is_in_transaction: bool) {
    // A `getMore` has those of the command that opened its cursor.
    if matches!(request.command.read_concern, ReadConcernLevels::Local)
        || request.command.kind == Kind::GetMore
    {
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

/// Counts the latency of an operation, for its command, the server and, unless it was rejected, for
/// its collection.
pub(super) fn note_latency(
    server: &Server,
    request: &Request<'_>,
    took: Duration,
    is_refused: bool,
) {
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

impl Server {
    /// Counts a message that is no valid request. In `metrics.commands` mongod counts a command
    /// only once it has parsed it.
    pub(super) fn count_rejected(&self, message: &Message<'_>, error: &Error, took: Duration) {
        self.counters.user_errors.add(1);
        let first = message.body().iter().next();
        match first.and_then(|first| command::find(first.name, self.db.feature_version())) {
            Some((index, _)) if error.code() != codes::CommandNotFound => {
                self.count_not_run(index, took);
            }
            _ => {
                self.counters.unknown_commands.add(1);
                self.counters.latencies.add(Class::Commands, Took::new(took));
            }
        }
    }

    /// Counts a command that is refused before it runs.
    pub(super) fn count_not_run(&self, index: usize, took: Duration) {
        self.counters.latencies.add(COMMANDS[index].class(), Took::new(took));
        self.counters.of(index).rejected.add(1);
        self.counters.of(index).failed.add(1);
    }
}
