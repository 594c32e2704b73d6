//! Multi-document transactions: the transaction of each session, and its end.
//!
//! ```text
//!   startTransaction
//!         │ enter                        leave: Done
//!         ▼              ┌────────────────────────────────────┐
//!   a request runs ──────┤                                    ▼
//!         ▲              │                          parked: open, no request runs
//!         └──────────────│────────────────────────────────────┤ enter
//!                        │ leave: Failed              expired, killed, replaced
//!                        ▼                                    ▼
//!         Committed    Aborted ◄──────────────────────────────┘
//! ```
//!
//! A transaction belongs to a session and has a number, by which its requests name it. The table
//! stores the end of a session's newest transaction, so that a repeated `commitTransaction` gets
//! the same reply; the end of a committed one is in the store too (see [`marula_db::session`]).
//! Source: manual "Transactions"; driver specification "Transactions"; errors and their labels
//! recorded from mongod 6.0.

mod report;
mod slow;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use marula_bson::{Doc, Value};
use marula_db::latencies::{Latency, Took};
use marula_db::session::{Kind, Known, Newest, Sessions as Records};
use marula_db::transaction::Numbered;
use marula_db::{Db, Transaction, TransactionLimits as Limits, Unit};
use marula_error::{Error, Result, errors};
use parking_lot::Mutex;

use crate::concern::{ReadConcern, ReadLevel};
use crate::operation::Operation;
use crate::profiling::Profiling;
use crate::request::{Request, Transaction as Part};
use crate::session::Lsid;
use report::Clock;
pub(crate) use report::{LastCommitted, OpenTransaction, date_text};
pub(crate) use slow::Work;

errors! {
    no_such_transaction(number: i64, active: i64) = NoSuchTransaction, "Given transaction number {number} does not match any in-progress transactions. The active transaction number is {active}";
    aborted(number: i64) = NoSuchTransaction, "Transaction with {{ txnNumber: {number} }} has been aborted.";
    committed(number: i64) = TransactionCommitted, "Transaction with {{ txnNumber: {number} }} has been committed.";
    too_old(number: i64, session: &str, what: &str, newest: i64, counter: i32) = TransactionTooOld, "Cannot start transaction with {{ txnNumber: {number} }} on session {session} because a newer {what} with txnNumberAndRetryCounter {{ txnNumber: {newest}, txnRetryCounter: {counter} }} has already started on this session.";
    number_in_use() = ConflictingOperationInProgress, "Only servers in a sharded cluster can start a new transaction at the active transaction number";
    starts_with(what: &str) = OperationNotSupportedInTransaction, "Cannot start a transaction with {what}";
    kill_first() = OperationNotSupportedInTransaction, "Cannot run killCursors as the first operation in a multi-document transaction.";
    not_in_database(db: &str) = OperationNotSupportedInTransaction, "Cannot run command against the {db} database in a transaction.";
    not_in_collection(ns: &str) = OperationNotSupportedInTransaction, "Cannot run command against the '{ns}' collection in a transaction.";
    level_refused() = InvalidOptions, "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a transaction";
    later_read_concern() = InvalidOptions, "Only the first command in a transaction may specify a readConcern";
    write_concern_inside() = InvalidOptions, "writeConcern is not allowed within a multi-statement transaction";
    level_not_supported(name: &str, concern: &str) = InvalidOptions, "Command {name} does not support this transaction's {{ readConcern: {{ {concern}, provenance: \"clientSupplied\" }} }} :: caused by :: read concern not supported";
    snapshot_too_old(seconds: u64, ordinal: u64) = SnapshotTooOld, "Read timestamp Timestamp({seconds}, {ordinal}) is older than the oldest available timestamp.";
}

/// The label after which a driver starts the whole transaction again.
pub(crate) const TRANSIENT: &str = "TransientTransactionError";

/// The maximum duration of a transaction in seconds: the default of
/// `transactionLifetimeLimitSeconds`.
pub(crate) const LIFETIME_SECONDS: i32 = 60;

/// The time in milliseconds that a transaction waits for a change of the catalogue: the default of
/// `maxTransactionLockRequestTimeoutMillis`.
pub(crate) const LOCK_TIMEOUT_MS: i32 = 5;

/// The maximum size of a transaction's writes in bytes: the default of [`BYTES_PARAMETER`].
pub(crate) const BYTES_MAX: i64 = 256 << 20;

/// The maximum size of the writes of all open transactions in bytes: the default of
/// [`TOTAL_BYTES_PARAMETER`].
pub const TOTAL_BYTES_MAX: i64 = 1 << 30;

/// The parameter for [`BYTES_MAX`].
pub const BYTES_PARAMETER: &str = "transactionMemoryBytesMax";

/// The parameter for [`TOTAL_BYTES_MAX`].
pub const TOTAL_BYTES_PARAMETER: &str = "transactionsMemoryBytesMax";

const SHARDS: usize = 16;

/// Returns whether a transaction ends because one of its requests could not be parsed: because of
/// the command's own fields, and if it is not a batch of writes, which is parsed before it enters
/// its transaction.
pub(crate) fn ends_when_misread(body: Doc<'_>, error: &Error) -> bool {
    const OWN_FIELDS: [i32; 4] = [14, 40_413, 40_414, 40_415];
    let name = body.iter().next().map(|first| first.name);
    let is_batch =
        name.is_some_and(|name| name == "insert" || name == "update" || name == "delete");
    let is_generic = error.message().starts_with('$');
    OWN_FIELDS.contains(&error.code().number()) && !is_batch && !is_generic
}

/// The newest transaction of a session.
struct Entry {
    number: i64,
    state: State,
    clock: Clock,
    /// Whether its first request has done nothing yet and will be repeated.
    is_beginning: bool,
    read_concern: ReadConcern,
    /// The cluster time that it reads at, if it asked for one.
    read_time: u64,
    /// The connection of its newest request.
    operation: Arc<Operation>,
    /// The statistics of its requests.
    work: Work,
}

enum State {
    /// It is open; at most one request runs in it.
    Open { transaction: Arc<Transaction>, is_running: bool },
    /// It has been committed.
    Committed,
    /// It has been aborted.
    Aborted,
}

impl Entry {
    /// Returns its report while it is open.
    fn report(&self, lsid: Lsid, lifetime: Duration) -> Option<OpenTransaction> {
        let State::Open { is_running, .. } = self.state else { return None };
        Some(OpenTransaction {
            lsid,
            operation: self.operation.clone(),
            is_running,
            number: self.number,
            read_concern: self.read_concern,
            read_time: self.read_time,
            clock: self.clock,
            lifetime,
        })
    }
}

/// The counters of transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Open ones with a running request.
    pub active: i64,
    /// Open ones that wait for their next request.
    pub inactive: i64,
    /// Started since the server's start.
    pub started: u64,
    /// Committed since then.
    pub committed: u64,
    /// Aborted since then.
    pub aborted: u64,
    /// The committed ones that had written.
    pub committed_writes: u64,
    /// Write commands with a number, outside transactions.
    pub numbered_writes: u64,
    /// Write commands with statements that an earlier attempt had executed.
    pub retried_commands: u64,
    /// Those statements.
    pub retried_statements: u64,
}

/// The transactions of all sessions.
pub struct Transactions {
    profiling: Arc<Profiling>,
    shards: [Mutex<HashMap<Lsid, Entry>>; SHARDS],
    started: AtomicU64,
    committed: AtomicU64,
    aborted: AtomicU64,
    /// The durations of the transactions that have ended.
    latency: Latency,
    committed_writes: AtomicU64,
    numbered_writes: AtomicU64,
    retried_commands: AtomicU64,
    retried_statements: AtomicU64,
    last_committed: Mutex<Option<LastCommitted>>,
    lifetime_seconds: AtomicI64,
    lock_timeout_ms: AtomicI64,
    bytes_max: AtomicI64,
    total_bytes_max: AtomicI64,
}

impl Transactions {
    /// Returns an empty table; `profiling` decides which transactions are slow.
    pub fn new(profiling: Arc<Profiling>) -> Self {
        Transactions {
            profiling,
            shards: std::array::from_fn(|_| Mutex::default()),
            started: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            latency: Latency::default(),
            committed_writes: AtomicU64::new(0),
            numbered_writes: AtomicU64::new(0),
            retried_commands: AtomicU64::new(0),
            retried_statements: AtomicU64::new(0),
            last_committed: Mutex::new(None),
            lifetime_seconds: AtomicI64::new(LIFETIME_SECONDS.into()),
            lock_timeout_ms: AtomicI64::new(LOCK_TIMEOUT_MS.into()),
            bytes_max: AtomicI64::new(BYTES_MAX),
            total_bytes_max: AtomicI64::new(TOTAL_BYTES_MAX),
        }
    }
}

/// A request inside its transaction.
pub struct Entered {
    lsid: Lsid,
    /// The transaction's number.
    pub number: i64,
    /// The transaction; `None` if it has been committed, and this is a repeated commit.
    pub transaction: Option<Arc<Transaction>>,
    read_concern: ReadConcern,
}

/// The result of entering a transaction.
pub enum Entrance {
    /// The request is inside.
    In(Entered),
    /// Another request of the transaction runs.
    Busy,
}

/// The result with which a request leaves its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// It succeeded.
    Done,
    /// It failed, which ends the transaction.
    Failed,
    /// It has done nothing yet and will be repeated.
    Undone,
}

/// Checks the fields of a request of a transaction, independently of the transaction's state.
///
/// Errors: a command, a database, a collection or a concern that is not permitted in one.
pub(crate) fn check(request: &Request<'_>, part: Part) -> Result<()> {
    let name = request.command.name;
    let ends = matches!(name, "commitTransaction" | "abortTransaction");
    if part == Part::Starts {
        match name {
            "commitTransaction" => return Err(starts_with("a commit")),
            "abortTransaction" => return Err(starts_with("an abort")),
            "killCursors" => return Err(kill_first()),
            _ => {}
        }
    }
    if !ends {
        match request.db {
            "local" => return Err(not_in_database("'local'")),
            "config" => return Err(not_in_database("config")),
            _ => {}
        }
        let collection = request.concerned().and_then(|name| std::str::from_utf8(name).ok());
        if collection == Some("system.profile") {
            return Err(not_in_collection(&format!("{}.system.profile", request.db)));
        }
        if request.body.get("writeConcern").is_some() {
            return Err(write_concern_inside());
        }
    }
    let concern = request.read_concern;
    if part != Part::Starts && request.body.get("readConcern").is_some() {
        return Err(later_read_concern());
    }
    if matches!(concern.level, Some(ReadLevel::Linearizable | ReadLevel::Available)) {
        return Err(level_refused());
    }
    Ok(())
}

impl Transactions {
    fn shard(&self, lsid: &Lsid) -> &Mutex<HashMap<Lsid, Entry>> {
        // A UUID's last byte is random.
        &self.shards[usize::from(lsid.uuid()[15]) % SHARDS]
    }

    /// Enters a request into its transaction, and starts the transaction if the request says so.
    ///
    /// Errors: `no_such_transaction`, `aborted`, `committed`, `too_old`, `number_in_use`.
    pub fn enter(
        &self,
        db: &Arc<Db>,
        request: &Request<'_>,
        part: Part,
        operation: &Arc<Operation>,
        now_ms: i64,
    ) -> Result<Entrance> {
        let (Some(lsid), Some(number)) = (request.lsid, request.txn_number) else {
            unreachable!("a transaction has a session and a number")
        };
        let is_commit = request.command.name == "commitTransaction";
        let newest = match db.sessions().newest(Unit::new(db).view(), lsid.key())? {
            Known::Newest(newest) => newest,
            Known::Running => return Ok(Entrance::Busy),
        };
        if is_commit && db.is_shared() && newest.is_none_or(|newest| newest.number < number) {
            // It is open on another node, or has ended there.
            return match db.settle_transaction(lsid.key(), number, now_ms)? {
                true => Ok(Entrance::In(Entered {
                    lsid,
                    number,
                    transaction: None,
                    read_concern: ReadConcern::default(),
                })),
                false => Err(aborted(number).with_label(TRANSIENT)),
            };
        }
        let mut shard = self.shard(&lsid).lock();
        if let (Some(newest), Some(known)) = (newest, shard.get_mut(&lsid))
            && db.is_shared()
            && newest.kind == Kind::Write
            && newest.number >= known.number
        {
            // Another node has ended it.
            self.abort(&lsid, known);
        }
        let known = shard.get_mut(&lsid).filter(|known| {
            // A newer retryable write has ended it.
            newest.is_none_or(|newest| newest.kind != Kind::Write && newest.number == known.number)
        });
        match newest {
            Some(newest) if number < newest.number => return Err(behind(number, &lsid, newest)),
            Some(newest) if number > newest.number && part == Part::Starts => {}
            Some(newest) if number > newest.number => {
                return Err(no_such_transaction(number, newest.number).with_label(TRANSIENT));
            }
            Some(newest) => {
                let comes_again = known.as_ref().is_some_and(|known| known.is_beginning);
                if part == Part::Starts && !comes_again {
                    return Err(number_in_use());
                }
                let read_concern = known.as_ref().map(|known| known.read_concern);
                let read_concern = read_concern.unwrap_or_default();
                let inside = |transaction| {
                    Ok(Entrance::In(Entered { lsid, number, transaction, read_concern }))
                };
                let Some(known) = known else {
                    return match newest.kind {
                        Kind::Committed if is_commit => inside(None),
                        Kind::Committed => Err(committed(number)),
                        Kind::Transaction => Err(aborted(number).with_label(TRANSIENT)),
                        Kind::Write => {
                            Err(no_such_transaction(number, number).with_label(TRANSIENT))
                        }
                    };
                };
                return match &mut known.state {
                    State::Open { is_running: true, .. } => Ok(Entrance::Busy),
                    State::Open { transaction, is_running } => {
                        *is_running = true;
                        known.clock.run();
                        if !Arc::ptr_eq(&known.operation, operation) {
                            known.operation = operation.clone();
                        }
                        inside(Some(transaction.clone()))
                    }
                    State::Committed if is_commit => inside(None),
                    State::Committed => Err(committed(number)),
                    State::Aborted => Err(aborted(number).with_label(TRANSIENT)),
                };
            }
            None if part == Part::Starts => {}
            None => return Err(no_such_transaction(number, -1).with_label(TRANSIENT)),
        }
        if let Some(at) = request.read_concern.at_cluster_time
            && at < db.newest_timestamp(now_ms)
        {
            return Err(snapshot_too_old(at >> 32, at & 0xFFFF_FFFF).with_label(TRANSIENT));
        }
        if !db.sessions().begin_transaction(lsid.key(), number, now_ms) {
            return Ok(Entrance::Busy);
        }
        // The session's open transaction ends when a new one starts.
        if let Some(mut open) = shard.remove(&lsid) {
            self.abort(&lsid, &mut open);
        }
        let transaction = Arc::new(Transaction::begin(db, self.limits())?);
        let state = State::Open { transaction: transaction.clone(), is_running: true };
        let read_concern = request.read_concern;
        let is_fixed = read_concern.level == Some(ReadLevel::Snapshot);
        let read_time = if is_fixed { db.newest_timestamp(now_ms) } else { 0 };
        let (clock, operation) = (Clock::start(now_ms), operation.clone());
        let entry = Entry {
            number,
            state,
            clock,
            is_beginning: true,
            read_concern,
            read_time,
            operation,
            work: Work::default(),
        };
        shard.insert(lsid, entry);
        self.started.fetch_add(1, Ordering::Relaxed);
        let transaction = Some(transaction);
        Ok(Entrance::In(Entered { lsid, number, transaction, read_concern }))
    }

    /// Returns the durations of the transactions that have ended.
    pub(crate) fn latency(&self) -> &Latency {
        &self.latency
    }

    /// Ends a request in its transaction.
    pub fn leave(&self, entered: &Entered, how: Leaving, work: Work) {
        let mut shard = self.shard(&entered.lsid).lock();
        let Some(entry) = shard.get_mut(&entered.lsid) else { return };
        let State::Open { is_running, .. } = &mut entry.state else { return };
        if entry.number != entered.number {
            return;
        }
        *is_running = false;
        entry.clock.rest();
        entry.work += work;
        entry.is_beginning &= how == Leaving::Undone;
        if how == Leaving::Failed {
            self.abort(&entered.lsid, entry);
        }
    }

    /// Records the end of the transaction of a request: it was committed, or aborted by a command.
    pub(crate) fn ended(&self, entered: &Entered, is_committed: bool) {
        let mut shard = self.shard(&entered.lsid).lock();
        if let Some(entry) = shard.get_mut(&entered.lsid)
            && entry.number == entered.number
        {
            if is_committed {
                self.committed.fetch_add(1, Ordering::Relaxed);
                entry.state = State::Committed;
                self.note_end(&entered.lsid, entry, "committed");
            } else {
                self.abort(&entered.lsid, entry);
            }
        }
    }

    /// Aborts a transaction, unless it has ended.
    fn abort(&self, lsid: &Lsid, entry: &mut Entry) {
        if let State::Open { transaction, .. } = &entry.state {
            transaction.abort();
            self.aborted.fetch_add(1, Ordering::Relaxed);
            entry.state = State::Aborted;
            self.note_end(lsid, entry, "aborted");
        }
    }

    /// Counts the duration of a transaction that ends, and logs it if it was slow.
    fn note_end(&self, lsid: &Lsid, entry: &Entry, cause: &str) {
        let took = entry.clock.began.elapsed();
        self.latency.add(Took::new(took));
        if self.profiling.is_slow(took) {
            slow::log(lsid, entry, cause);
        }
    }

    /// Aborts the open transactions for which `condemned` is true.
    fn abort_where(&self, condemned: &dyn Fn(&Lsid, &Entry) -> bool) {
        for shard in &self.shards {
            for (lsid, entry) in shard.lock().iter_mut() {
                if condemned(lsid, entry) {
                    self.abort(lsid, entry);
                }
            }
        }
    }

    /// Aborts the open transactions of sessions.
    pub fn abort_of(&self, condemned: &dyn Fn(&Lsid) -> bool) {
        self.abort_where(&|lsid, _| condemned(lsid));
    }

    /// Aborts a session's transaction that is older than the retryable write of this number.
    pub(crate) fn abort_before(&self, lsid: &Lsid, number: i64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        if count(&self.started) == count(&self.committed) + count(&self.aborted) {
            return;
        }
        let mut shard = self.shard(lsid).lock();
        if let Some(entry) = shard.get_mut(lsid)
            && entry.number < number
        {
            self.abort(lsid, entry);
        }
    }

    /// Returns whether a transaction of a session is open.
    pub fn is_open(&self, lsid: &Lsid, number: i64) -> bool {
        self.shard(lsid).lock().get(lsid).is_some_and(|entry| {
            entry.number == number && matches!(entry.state, State::Open { .. })
        })
    }

    /// Aborts the transaction of a request that could not be parsed.
    pub(crate) fn abort_misread(&self, body: Doc<'_>, own: &dyn Fn(Lsid) -> Option<Lsid>) {
        let is_inside = matches!(body.get("autocommit"), Some(Value::Boolean(false)));
        let number = body.get("txnNumber").and_then(|number| number.as_exact_i64());
        let lsid = body.get("lsid").and_then(|lsid| lsid.as_doc());
        let lsid = lsid.and_then(|lsid| Lsid::parse("lsid", lsid).ok()).and_then(own);
        if let (true, Some(number), Some(lsid)) = (is_inside, number, lsid) {
            let read_concern = ReadConcern::default();
            let entered = Entered { lsid, number, transaction: None, read_concern };
            self.leave(&entered, Leaving::Failed, Work::default());
        }
    }

    /// Aborts transactions that have been open for too long, and removes the ends of old ones.
    pub fn expire(&self, is_known: &dyn Fn(&Lsid) -> bool) {
        let lifetime = self.lifetime();
        self.abort_where(&|_, entry| entry.clock.began.elapsed() >= lifetime);
        for shard in &self.shards {
            shard
                .lock()
                .retain(|lsid, entry| matches!(entry.state, State::Open { .. }) || is_known(lsid));
        }
    }

    /// Returns the limits of a transaction that starts.
    pub(crate) fn limits(&self) -> Limits {
        let number = |value: &AtomicI64| u64::try_from(value.load(Ordering::Relaxed)).unwrap_or(0);
        Limits {
            lock_timeout: Duration::from_millis(number(&self.lock_timeout_ms)),
            bytes_max: number(&self.bytes_max),
            total_bytes_max: number(&self.total_bytes_max),
        }
    }

    /// Returns the maximum duration of a transaction.
    pub(crate) fn lifetime(&self) -> Duration {
        let seconds = self.lifetime_seconds.load(Ordering::Relaxed);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// Returns reports of the open transactions.
    pub fn open(&self) -> Vec<OpenTransaction> {
        let lifetime = self.lifetime();
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(
                shard.lock().iter().filter_map(|(lsid, entry)| entry.report(*lsid, lifetime)),
            );
        }
        all
    }

    /// Returns the report of a session's open transaction.
    pub fn open_of(&self, lsid: &Lsid) -> Option<OpenTransaction> {
        self.shard(lsid).lock().get(lsid)?.report(*lsid, self.lifetime())
    }

    /// Counts a write command with a number; an earlier attempt had executed `retried` of its
    /// statements.
    pub(crate) fn count_numbered(&self, retried: u64) {
        self.numbered_writes.fetch_add(1, Ordering::Relaxed);
        if retried > 0 {
            self.retried_commands.fetch_add(1, Ordering::Relaxed);
            self.retried_statements.fetch_add(retried, Ordering::Relaxed);
        }
    }

    /// Records the transaction that has just been committed.
    pub(crate) fn note_committed(&self, committed: LastCommitted) {
        let has_written = u64::from(committed.operations > 0);
        self.committed_writes.fetch_add(has_written, Ordering::Relaxed);
        *self.last_committed.lock() = Some(committed);
    }

    /// Returns the transaction that was committed last.
    pub fn last_committed(&self) -> Option<LastCommitted> {
        self.last_committed.lock().clone()
    }

    /// Sets the maximum duration of a transaction.
    pub fn set_lifetime_seconds(&self, seconds: i64) {
        self.lifetime_seconds.store(seconds, Ordering::Relaxed);
    }

    /// Sets the time that a transaction waits for a change of the catalogue.
    pub fn set_lock_timeout_ms(&self, ms: i64) {
        self.lock_timeout_ms.store(ms, Ordering::Relaxed);
    }

    /// Sets the maximum size of a transaction's writes in bytes.
    pub fn set_bytes_max(&self, bytes: i64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Sets the maximum size of the writes of all open transactions in bytes.
    pub fn set_total_bytes_max(&self, bytes: i64) {
        self.total_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Returns the counters.
    pub fn statistics(&self) -> Statistics {
        let mut found = Statistics {
            started: self.started.load(Ordering::Relaxed),
            committed: self.committed.load(Ordering::Relaxed),
            aborted: self.aborted.load(Ordering::Relaxed),
            committed_writes: self.committed_writes.load(Ordering::Relaxed),
            numbered_writes: self.numbered_writes.load(Ordering::Relaxed),
            retried_commands: self.retried_commands.load(Ordering::Relaxed),
            retried_statements: self.retried_statements.load(Ordering::Relaxed),
            ..Statistics::default()
        };
        for shard in &self.shards {
            for entry in shard.lock().values() {
                match entry.state {
                    State::Open { is_running: true, .. } => found.active += 1,
                    State::Open { .. } => found.inactive += 1,
                    State::Committed | State::Aborted => {}
                }
            }
        }
        found
    }
}

impl Entered {
    /// Checks that a request permits the read concern level of its transaction: the two that change
    /// the catalogue read the newest state.
    ///
    /// Errors: `level_not_supported`.
    pub(crate) fn check_level(&self, request: &Request<'_>) -> Result<()> {
        let name = request.command.name;
        match self.read_concern.level {
            Some(ReadLevel::Majority | ReadLevel::Snapshot)
                if matches!(name, "create" | "createIndexes") =>
            {
                Err(level_not_supported(name, &self.read_concern.shown()))
            }
            _ => Ok(()),
        }
    }

    /// Commits the transaction; does nothing if that has been done.
    ///
    /// Errors: as of [`Transaction::commit`].
    pub(crate) fn commit(&self, records: &Records, now_ms: i64) -> Result<()> {
        let Some(transaction) = &self.transaction else { return Ok(()) };
        let lsid = self.lsid.key();
        transaction.commit(Some(Numbered { lsid, number: self.number, now_ms }))?;
        records.note_committed(self.lsid.key(), self.number);
        Ok(())
    }
}

fn behind(number: i64, lsid: &Lsid, newest: Newest) -> Error {
    let (what, counter) = match newest.kind {
        Kind::Write => ("retryable write", -1),
        Kind::Transaction | Kind::Committed => ("transaction", 0),
    };
    too_old(number, &lsid.shown(), what, newest.number, counter)
}
