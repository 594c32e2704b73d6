//! Group durability: one thread syncs the log for all waiting callers.
//!
//! ```text
//!   commit ── log handed to the operating system ──► on_sync(stamp, done)
//!                                                         │  waiters of one round
//!   sync thread: next_round ──► flush_wal(true) ──► every waiter's done(result) ──► next_round
//!                └ wakes for waiters, or every `interval` when there is something new
//! ```
//!
//! A commit has handed its log to the operating system; a *sync* makes it survive a power failure.
//! The thread syncs when a caller waits, and otherwise every interval when there is something new.
//! One sync serves all callers that waited when it started. The same thread tries to resume writes
//! after a background error, such as a full disk, and flushes memtables that have settled.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use marula_storage::times::Times;
use marula_storage::{Result, Stamp};
use parking_lot::{Condvar, Mutex};
use rust_rocksdb::ErrorKind;
use tracing::{debug, error};

use crate::engine::Engine;
use crate::error::{closed, from_rocksdb, is_full};
use crate::settle::Settle;

/// Called with the result when the sync of a waiter has ended.
type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// The time between two attempts to resume writing.
const RESUME_INTERVAL: Duration = Duration::from_millis(500);

/// The sync thread of a store.
pub(crate) struct Sync {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    engine: Arc<Engine>,
    state: Mutex<State>,
    wake: Condvar,
    interval: Duration,
    /// The duration of each sync, including failed ones.
    times: Times,
}

#[derive(Default)]
struct State {
    /// Every commit up to this sequence number survives a power failure.
    synced: u64,
    waiters: Vec<Done>,
    is_stopping: bool,
    /// A write failed: check whether the store can resume.
    is_failing: bool,
}

impl Sync {
    /// Starts the thread; commits up to `synced` are already durable.
    pub(crate) fn start(engine: Arc<Engine>, interval: Duration, synced: u64) -> Result<Self> {
        let state = Mutex::new(State { synced, ..State::default() });
        let shared = Arc::new(Shared {
            engine,
            state,
            wake: Condvar::new(),
            interval,
            times: Times::default(),
        });
        let worker = shared.clone();
        let thread = thread::Builder::new().name("sync".into()).spawn(move || worker.run())?;
        Ok(Sync { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Calls `done` once everything up to `stamp` is synced.
    pub(crate) fn on_sync(&self, stamp: Stamp, done: Done) {
        let mut state = self.shared.state.lock();
        let outcome = if stamp.version <= state.synced {
            Ok(())
        } else if state.is_stopping {
            Err(closed())
        } else {
            state.waiters.push(done);
            self.shared.wake.notify_one();
            return;
        };
        drop(state);
        done(outcome);
    }

    /// Waits until everything up to `stamp` is synced.
    pub(crate) fn wait(&self, stamp: Stamp) -> Result<()> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Sending fails only without a receiver, and the receiver waits below.
        self.on_sync(stamp, Box::new(move |outcome| drop(sender.send(outcome))));
        receiver.recv().unwrap_or_else(|_| Err(closed()))
    }

    /// The durations of the syncs so far.
    pub(crate) fn times(&self) -> &Times {
        &self.shared.times
    }

    /// Asks the thread to check whether a store that refuses writes can resume them.
    pub(crate) fn wake_to_resume(&self) {
        self.shared.state.lock().is_failing = true;
        self.shared.wake.notify_one();
    }

    /// Syncs a last time and ends the thread; returns the result of the last sync.
    pub(crate) fn stop(&self) -> Result<()> {
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        let newest = Stamp::of_version(self.shared.engine.db.latest_sequence_number());
        let outcome = self.wait(newest);
        self.shared.state.lock().is_stopping = true;
        self.shared.wake.notify_one();
        if thread.join().is_err() {
            error!("the sync thread has panicked");
        }
        outcome
    }
}

impl Drop for Sync {
    fn drop(&mut self) {
        if let Err(cause) = self.stop() {
            error!(error = %cause, "the last sync of the log failed");
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut resume_at = Instant::now();
        let mut settle = Settle::new();
        loop {
            let (waiters, is_stopping, is_failing) = self.next_round();
            if (is_failing || self.engine.health.error().is_some()) && Instant::now() >= resume_at {
                self.resume();
                resume_at = Instant::now() + RESUME_INTERVAL;
            }
            let newest = self.engine.db.latest_sequence_number();
            let is_new = newest > self.state.lock().synced;
            if is_new || !waiters.is_empty() {
                self.sync(newest, waiters);
            }
            if is_stopping {
                return;
            }
            settle.check(&self.engine);
        }
    }

    /// Sleeps until a caller waits or the interval is over.
    fn next_round(&self) -> (Vec<Done>, bool, bool) {
        let mut state = self.state.lock();
        if state.waiters.is_empty() && !state.is_stopping && !state.is_failing {
            self.wake.wait_for(&mut state, self.interval);
        }
        let is_failing = std::mem::take(&mut state.is_failing);
        (std::mem::take(&mut state.waiters), state.is_stopping, is_failing)
    }

    fn sync(&self, newest: u64, waiters: Vec<Done>) {
        let began = Instant::now();
        let outcome = self.engine.db.flush_wal(true);
        self.times.add(began.elapsed());
        // A copy of held files may have been made of the log as it was when they were held.
        if outcome.is_ok()
            && self.engine.files.try_change().is_some()
            && let Some(synced) = &self.engine.synced
            && let Err(cause) = synced.note(newest)
        {
            debug!(error = %cause, "the sync cannot be noted");
        }
        if outcome.is_ok() {
            self.state.lock().synced = newest;
        }
        // A background error was logged when it occurred; every sync fails until it is resolved.
        if let Err(cause) = &outcome
            && waiters.is_empty()
            && self.engine.health.error().is_none()
        {
            error!(error = %cause, "could not sync the log");
        }
        for done in waiters {
            done(outcome.clone().map_err(from_rocksdb));
        }
        if outcome.is_ok() {
            self.note_list();
        }
    }

    /// Records the list of tables, after the waiters are served: it may have to be synced.
    fn note_list(&self) {
        if let Some(_changing) = self.engine.files.try_change()
            && let Some(list) = &self.engine.list
            && let Err(cause) = list.note()
        {
            debug!(error = %cause, "the list of tables cannot be noted");
        }
    }

    fn resume(&self) {
        // Resuming while the memtables cannot be flushed may turn the error into a permanent one.
        let was_full = self.engine.health.error().is_some_and(|cause| is_full(&cause));
        if was_full && !self.engine.has_room_for_memtables() {
            debug!("writing cannot go on yet: there is no room");
            return;
        }
        match self.engine.db.resume() {
            Ok(()) => self.engine.health.resumed(),
            Err(cause) if is_full(cause.as_ref()) || cause.kind() == ErrorKind::Busy => {
                debug!(error = %cause, "writing cannot go on yet");
            }
            // Resume only from a full disk: any other failure may have left an incomplete file.
            Err(cause) => self.engine.health.stays_failed(&cause),
        }
    }
}
