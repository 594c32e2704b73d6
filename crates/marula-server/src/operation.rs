//! Running operations: `currentOp` shows them, `killOp` ends them.
//!
//! Each connection has one [`Operation`], since it runs one command at a time. A command that runs
//! inline costs a few plain stores; its request is copied only when it has to wait or moves to the
//! pool, where it may run long enough to be looked at.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicUsize, Ordering,
};

use marula_bson::{Doc, DocBuf};
use marula_db::session::RecordCheck;
use marula_db::unit::{Parking, Tally};
use marula_db::{Db, Unit};
use marula_error::{Error, codes, errors};
use parking_lot::Mutex;

use crate::auth::name::Name;
use crate::net::service::{Peer, Wake};
use crate::row::Command;
use crate::session::Lsid;
use crate::shown_command;

errors! {
    /// The server ends.
    pub shutting_down() = InterruptedAtShutdown, "interrupted at shutdown";
    killed() = Interrupted, "operation was interrupted";
    stepped_down() = InterruptedDueToReplStateChange, "operation was interrupted";
    cursor_killed() = CursorKilled, "operation was interrupted";
}

/// The operation of one connection: its current command, or none.
pub struct Operation {
    /// The connection's number.
    pub connection_id: u64,
    /// The client.
    pub peer: Peer,
    /// The keys and documents that it has examined and written.
    pub tally: Tally,
    /// Whether its writes may be abandoned.
    pub parking: Parking,
    /// The record that its numbered write decides by, where other nodes may write it.
    pub record_check: RecordCheck,
    /// Zero while idle.
    op_id: AtomicU32,
    /// The index of its command in the table.
    command: AtomicUsize,
    /// Whether it writes.
    is_write: AtomicBool,
    /// Whether nobody but its client needs its result.
    is_for_client: AtomicBool,
    /// Whether there is a detail.
    is_described: AtomicBool,
    waits_for_lock: AtomicBool,
    started_us: AtomicI64,
    killed: AtomicI32,
    /// Whether the server ends: then this operation does, and every one that starts later.
    is_ending: Arc<AtomicBool>,
    yields: AtomicU32,
    /// Wakes it while it waits for an event.
    waiting: Mutex<Option<Wake>>,
    detail: Mutex<Option<Detail>>,
    metadata: Mutex<Option<DocBuf>>,
    /// See [`Report::api_versions`].
    api_versions: AtomicU8,
    user: Mutex<Option<Name>>,
}

/// The part of a command on the pool that `currentOp` shows.
#[derive(Clone)]
pub struct Detail {
    /// The command.
    pub command: &'static Command,
    /// The namespace, or the database.
    pub ns: String,
    /// The request, or the start of it if it is long.
    pub body: DocBuf,
    /// The session.
    pub lsid: Option<Lsid>,
    /// Its progress, if it is work that reports it.
    pub progress: Option<Progress>,
}

/// The progress of long work.
#[derive(Clone, Copy)]
pub struct Progress {
    /// The current phase.
    pub what: &'static str,
    /// The amount done.
    pub done: u64,
    /// The total amount.
    pub total: u64,
}

/// A snapshot of an operation.
pub struct Report {
    /// The connection's number.
    pub connection_id: u64,
    /// The client.
    pub peer: Peer,
    /// The number of the operation; zero when the connection is idle.
    pub op_id: u32,
    /// When it started, in microseconds since 1970.
    pub started_us: i64,
    /// Whether it has been killed.
    pub is_killed: bool,
    /// Whether it waits for `fsyncUnlock`.
    pub waits_for_lock: bool,
    /// Its command, if it runs on the pool.
    pub detail: Option<Detail>,
    /// The plan in a line, once there is one.
    pub plan_summary: Option<String>,
    /// The client's metadata.
    pub metadata: Option<DocBuf>,
    /// The versions of the Stable API that its commands have named: [`API_DEFAULT`], [`API_1`].
    pub api_versions: u8,
    /// The user of the connection.
    pub(crate) user: Option<Name>,
}

impl Operation {
    /// The reads and writes of its command on the newest state of `db`.
    pub fn unit<'u>(&'u self, db: &'u Db) -> Unit<'u> {
        Unit::new(db).tallied(&self.tally).parked(&self.parking)
    }

    /// Records the start of a command, by its index in the table.
    pub fn begin(&self, op_id: u32, command: usize, started_us: i64) {
        self.end();
        self.is_write.store(false, Ordering::Relaxed);
        self.is_for_client.store(false, Ordering::Relaxed);
        self.killed.store(0, Ordering::Relaxed);
        self.command.store(command, Ordering::Relaxed);
        self.started_us.store(started_us, Ordering::Relaxed);
        self.op_id.store(op_id, Ordering::Release);
    }

    /// Records that the command writes.
    pub fn note_write(&self) {
        self.is_write.store(true, Ordering::Release);
    }

    /// Records that nobody but its client needs the command's result, unless it writes.
    pub fn note_for_client(&self) {
        self.is_for_client.store(true, Ordering::Relaxed);
    }

    /// Returns whether a command that writes has started and not ended.
    fn writes(&self) -> bool {
        self.has_begun() && self.is_write.load(Ordering::Acquire)
    }

    /// Returns whether a command has started that ends when its client disconnects.
    pub fn ends_with_client(&self) -> bool {
        let is_read = !self.is_write.load(Ordering::Acquire);
        is_read && self.is_for_client.load(Ordering::Relaxed) && self.has_begun()
    }

    /// Returns whether a command has started and not ended.
    pub fn has_begun(&self) -> bool {
        self.op_id.load(Ordering::Acquire) != 0
    }

    /// Returns whether the command's detail is recorded.
    pub fn is_described(&self) -> bool {
        self.is_described.load(Ordering::Relaxed)
    }

    /// Records that the command waits for `fsyncUnlock`.
    pub fn wait_for_lock(&self) {
        self.waits_for_lock.store(true, Ordering::Relaxed);
    }

    /// Records that the command waits for an event; a killed command is woken at once.
    pub fn wait(&self, wake: Wake) {
        let mut waiting = self.waiting.lock();
        if self.interruption().is_none() {
            *waiting = Some(wake);
        }
    }

    /// Records that the command continues after a wait.
    pub fn resume(&self) {
        self.waits_for_lock.store(false, Ordering::Relaxed);
        if let Some(wake) = self.waiting.lock().take() {
            wake.forget();
        }
    }

    /// Records the command's detail.
    pub fn describe(
        &self,
        command: &'static Command,
        ns: String,
        body: Doc<'_>,
        lsid: Option<Lsid>,
    ) {
        let body = shown_command::kept(command, body);
        self.is_described.store(true, Ordering::Relaxed);
        *self.detail.lock() = Some(Detail { command, ns, body, lsid, progress: None });
    }

    /// Returns the namespace, or the database, of the running command, if its detail is recorded.
    pub fn namespace(&self) -> Option<String> {
        self.detail.lock().as_ref().map(|detail| detail.ns.clone())
    }

    /// Records the progress of the work.
    pub fn set_progress(&self, progress: Progress) {
        if let Some(detail) = &mut *self.detail.lock() {
            detail.progress = Some(progress);
        }
    }

    /// Records the end of the command.
    pub fn end(&self) {
        self.op_id.store(0, Ordering::Release);
        if self.is_described() {
            self.is_described.store(false, Ordering::Relaxed);
            self.waits_for_lock.store(false, Ordering::Relaxed);
            *self.detail.lock() = None;
        }
    }

    /// Stores the client's metadata.
    pub fn set_metadata(&self, metadata: DocBuf) {
        *self.metadata.lock() = Some(metadata);
    }

    /// Sets the user of the connection.
    pub(crate) fn set_user(&self, user: Option<Name>) {
        *self.user.lock() = user;
    }

    /// Kills the operation with the given code.
    pub fn kill(&self, code: i32) {
        let mut waiting = self.waiting.lock();
        self.killed.store(code, Ordering::Relaxed);
        if let Some(wake) = waiting.take() {
            wake.wake();
        }
    }

    /// Returns a function that ends its current command, if that still runs, because its cursor was
    /// closed.
    pub fn on_lost_cursor(self: &Arc<Self>) -> Box<dyn FnOnce() + Send> {
        let (operation, op_id) = (self.clone(), self.op_id.load(Ordering::Acquire));
        Box::new(move || {
            if operation.op_id.load(Ordering::Acquire) == op_id {
                operation.kill(codes::CursorKilled.number());
            }
        })
    }

    /// Returns the error with which the operation must end, if it must.
    #[inline]
    pub fn interruption(&self) -> Option<Error> {
        match self.killed.load(Ordering::Relaxed) {
            // An operation that started after all were killed ends here.
            0 if self.is_ending.load(Ordering::Relaxed) => Some(shutting_down()),
            0 => None,
            code if code == codes::InterruptedAtShutdown.number() => Some(shutting_down()),
            code if code == codes::CursorKilled.number() => Some(cursor_killed()),
            code if code == codes::InterruptedDueToReplStateChange.number() => Some(stepped_down()),
            _ => Some(killed()),
        }
    }

    /// Returns the number of yields.
    pub fn yields(&self) -> u32 {
        self.yields.load(Ordering::Relaxed)
    }

    /// Counts a yield.
    pub fn count_yield(&self) {
        self.yields.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the version of the Stable API that a command names: none or the first.
    #[inline]
    pub fn note_api_version(&self, is_version_1: bool) {
        let noted = self.api_versions.load(Ordering::Relaxed);
        let version = if is_version_1 { API_1 } else { API_DEFAULT };
        if noted & version == 0 {
            self.api_versions.store(noted | version, Ordering::Relaxed);
        }
    }

    /// Returns a snapshot of the operation.
    pub fn report(&self) -> Report {
        Report {
            connection_id: self.connection_id,
            peer: self.peer.clone(),
            op_id: self.op_id.load(Ordering::Acquire),
            started_us: self.started_us.load(Ordering::Relaxed),
            is_killed: self.killed.load(Ordering::Relaxed) != 0,
            waits_for_lock: self.waits_for_lock.load(Ordering::Relaxed),
            detail: self.detail.lock().clone(),
            plan_summary: self.tally.summary(),
            metadata: self.metadata.lock().clone(),
            user: self.user.lock().clone(),
            api_versions: self.api_versions.load(Ordering::Relaxed),
        }
    }
}

/// Some command has named no version of the Stable API.
pub(crate) const API_DEFAULT: u8 = 1;
/// Some command has named version 1.
pub(crate) const API_1: u8 = 2;

/// The operations of all connections.
#[derive(Default)]
pub struct Operations {
    by_connection: Mutex<HashMap<u64, Arc<Operation>>>,
    is_ending: Arc<AtomicBool>,
    last_id: AtomicU32,
}

impl Operations {
    /// Adds a connection.
    pub fn open(&self, connection_id: u64, peer: Peer) -> Arc<Operation> {
        let operation = Arc::new(Operation {
            connection_id,
            peer,
            tally: Tally::default(),
            parking: Parking::default(),
            record_check: RecordCheck::default(),
            op_id: AtomicU32::new(0),
            command: AtomicUsize::new(0),
            is_write: AtomicBool::new(false),
            is_for_client: AtomicBool::new(false),
            is_described: AtomicBool::new(false),
            waits_for_lock: AtomicBool::new(false),
            api_versions: AtomicU8::new(0),
            started_us: AtomicI64::new(0),
            killed: AtomicI32::new(0),
            is_ending: self.is_ending.clone(),
            yields: AtomicU32::new(0),
            waiting: Mutex::new(None),
            detail: Mutex::new(None),
            metadata: Mutex::new(None),
            user: Mutex::new(None),
        });
        self.by_connection.lock().insert(connection_id, operation.clone());
        operation
    }

    /// Removes a connection.
    pub fn close(&self, connection_id: u64) {
        self.by_connection.lock().remove(&connection_id);
    }

    /// Returns the number of the next operation; never zero.
    pub fn next_id(&self) -> u32 {
        // Clients store it in an i32.
        self.last_id.fetch_add(1, Ordering::Relaxed) % i32::MAX.unsigned_abs() + 1
    }

    /// Returns a snapshot of every connection's operation.
    pub fn reports(&self) -> Vec<Report> {
        let all: Vec<_> = self.by_connection.lock().values().cloned().collect();
        let mut reports: Vec<_> = all.iter().map(|operation| operation.report()).collect();
        reports.sort_by_key(|report| report.connection_id);
        reports
    }

    /// Returns whether an operation with this number runs and is of this user.
    pub(crate) fn is_of(&self, op_id: i32, user: &Name) -> bool {
        let all = self.by_connection.lock();
        let mut all = all.values();
        let found =
            all.find(|one| i64::from(one.op_id.load(Ordering::Acquire)) == i64::from(op_id));
        found.is_some_and(|operation| operation.user.lock().as_ref() == Some(user))
    }

    /// Kills the operation with this number; returns whether it runs.
    pub fn kill(&self, op_id: u32) -> bool {
        let all = self.by_connection.lock();
        let found = all.values().find(|operation| operation.op_id.load(Ordering::Acquire) == op_id);
        if let Some(operation) = found {
            operation.kill(codes::Interrupted.number());
        }
        found.is_some()
    }

    /// Kills the operations that write, because the server is no longer the primary; returns
    /// whether there are any.
    pub fn kill_writes(&self) -> bool {
        let all = self.by_connection.lock();
        let writes = all.values().filter(|operation| operation.writes());
        let killed = writes.map(|it| it.kill(codes::InterruptedDueToReplStateChange.number()));
        killed.count() > 0
    }

    /// Kills all operations because the server ends: those that run, and those that start later.
    pub fn end_all(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        for operation in self.by_connection.lock().values() {
            operation.kill(codes::InterruptedAtShutdown.number());
        }
    }

    /// Returns the index of a connection's current command; `None` if it runs none.
    pub fn command_of(&self, connection_id: u64) -> Option<usize> {
        let operation = self.by_connection.lock().get(&connection_id).cloned()?;
        operation.has_begun().then(|| operation.command.load(Ordering::Relaxed))
    }

    /// Kills the operations of the sessions for which `condemned` is true.
    pub fn kill_sessions(&self, condemned: impl Fn(&Lsid) -> bool) {
        for operation in self.by_connection.lock().values() {
            let lsid = operation.detail.lock().as_ref().and_then(|detail| detail.lsid);
            if lsid.is_some_and(|lsid| condemned(&lsid)) {
                operation.kill(codes::Interrupted.number());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::service::Disconnected;

    #[test]
    fn what_begins_while_the_server_ends_is_told_too() {
        let operations = Operations::default();
        let peer =
            || Peer { remote: None, local: None, disconnected: Disconnected::default(), tls: None };
        let told = |operation: &Operation| operation.interruption().map(|error| error.code());
        let early = operations.open(1, peer());
        early.begin(operations.next_id(), 0, 0);
        assert_eq!(told(&early), None);
        operations.end_all();
        assert_eq!(told(&early), Some(codes::InterruptedAtShutdown));
        early.begin(operations.next_id(), 0, 0);
        let late = operations.open(2, peer());
        late.begin(operations.next_id(), 0, 0);
        for operation in [&early, &late] {
            assert_eq!(told(operation), Some(codes::InterruptedAtShutdown));
        }
    }
}
