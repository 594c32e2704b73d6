//! What commands count, for `serverStatus` and `top`.
//!
//! Counters are relaxed atomics: exact in sum, free of order.

mod reads;

use std::sync::atomic::{AtomicU64, Ordering};

use marula_db::unit::Examined;

use marula_db::latencies::Latencies;
use marula_storage::times::Times;

use crate::command::COMMANDS;
use crate::row::{Command, Kind};

pub(crate) use reads::{Concerns, ReadCounters};

/// One counter.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often a command ran and failed.
#[derive(Default, Debug)]
pub struct CommandCounter {
    /// How long it took from the request's arrival until its reply was made, each time that its own
    /// code ran. A reply that is held back until the disk has synced is made before that.
    pub times: Times,
    /// Failures.
    pub failed: Counter,
    /// Refusals before the command's own code ran; each is a failure, too.
    pub rejected: Counter,
}

impl CommandCounter {
    /// How often it was asked for.
    pub fn total(&self) -> u64 {
        self.times.count() + self.rejected.get()
    }
}

/// The counters of a server.
pub struct Counters {
    /// `opcounters`; a statement of a write counts by itself.
    pub insert: Counter,
    /// See `insert`.
    pub query: Counter,
    /// See `insert`.
    pub update: Counter,
    /// See `insert`.
    pub delete: Counter,
    /// See `insert`.
    pub get_more: Counter,
    /// See `insert`.
    pub command: Counter,
    /// `opLatencies`.
    pub latencies: Latencies,
    /// `metrics.document.inserted`.
    pub documents_inserted: Counter,
    /// `metrics.document.returned`.
    pub documents_returned: Counter,
    /// `metrics.document.updated`.
    pub documents_updated: Counter,
    /// `metrics.document.deleted`.
    pub documents_deleted: Counter,
    /// `metrics.queryExecutor.scanned`: index entries looked at.
    pub keys_examined: Counter,
    /// `metrics.queryExecutor.scannedObjects`: documents looked at.
    pub documents_examined: Counter,
    /// `metrics.queryExecutor.collectionScans`.
    pub scans: Counter,
    /// What reads asked for.
    pub reads: ReadCounters,
    /// `metrics.operation.scanAndOrder`: sorts that no index did.
    pub sorts: Counter,
    /// `metrics.operation.writeConflicts`.
    pub write_conflicts: Counter,
    /// `metrics.ttl.deletedDocuments`.
    pub ttl_deleted: Counter,
    /// `metrics.ttl.passes`: how often the TTL monitor went through all collections.
    pub ttl_passes: Counter,
    /// `metrics.commands.<UNKNOWN>`.
    pub unknown_commands: Counter,
    /// `asserts.user`: errors that clients were answered with.
    pub user_errors: Counter,
    /// `metrics.commands`, in the order of [`COMMANDS`].
    by_command: Box<[CommandCounter]>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            insert: Counter::default(),
            query: Counter::default(),
            update: Counter::default(),
            delete: Counter::default(),
            get_more: Counter::default(),
            command: Counter::default(),
            latencies: Latencies::default(),
            documents_inserted: Counter::default(),
            documents_returned: Counter::default(),
            documents_updated: Counter::default(),
            documents_deleted: Counter::default(),
            keys_examined: Counter::default(),
            documents_examined: Counter::default(),
            scans: Counter::default(),
            reads: ReadCounters::default(),
            sorts: Counter::default(),
            write_conflicts: Counter::default(),
            ttl_deleted: Counter::default(),
            ttl_passes: Counter::default(),
            unknown_commands: Counter::default(),
            user_errors: Counter::default(),
            by_command: COMMANDS.iter().map(|_| CommandCounter::default()).collect(),
        }
    }
}

impl Counters {
    /// The counter of the command with this index in [`COMMANDS`].
    pub fn of(&self, index: usize) -> &CommandCounter {
        &self.by_command[index]
    }

    /// Every command and its counter, by name.
    pub fn by_command(&self) -> impl Iterator<Item = (&'static Command, &CommandCounter)> {
        COMMANDS.iter().copied().zip(&self.by_command)
    }

    /// Counts what an operation has looked at.
    pub fn examined(&self, examined: Examined) {
        if examined.keys > 0 {
            self.keys_examined.add(examined.keys);
        }
        if examined.docs > 0 {
            self.documents_examined.add(examined.docs);
        }
        if examined.scans > 0 {
            self.scans.add(examined.scans);
        }
        if examined.sorts > 0 {
            self.sorts.add(examined.sorts);
        }
    }

    /// Counts a command that starts; the statements of writes are counted by the commands
    /// themselves.
    pub fn start(&self, kind: Kind) {
        match kind {
            Kind::Query => self.query.add(1),
            Kind::GetMore => self.get_more.add(1),
            Kind::Command => self.command.add(1),
            Kind::Insert | Kind::Update | Kind::Delete => {}
        }
    }
}
