//! Threads for what may be long.
//!
//! A request that finds no idle thread waits. A thread is added at once while there are fewer than cores, and after
//! that each time the oldest request has waited [`WAIT_MAX`]: short work then does not queue behind long work for
//! more than that, and a burst of short work does not make threads that it does not need. An idle thread ends after
//! [`IDLE_MAX`]; the one that became idle last is used first, so that the others may end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use marula_wire::{OwnedMessage, ReplyBuffer};
use parking_lot::{Condvar, Mutex};

use super::guard::{self, Verdict};
use super::service::{Call, Service};
use super::wake::Mailbox;
use super::worker::Mail;

/// How long a request waits before a thread is added.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// How long a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// One call to be made on a pool thread, and where its outcome goes.
pub(super) struct Job<S: Service> {
    pub(super) slot: usize,
    pub(super) state: S::Connection,
    pub(super) message: OwnedMessage,
    pub(super) call: Call,
    pub(super) home: Arc<Mailbox<Mail<S>>>,
}

/// The outcome of a job.
pub(super) struct Outcome<S: Service> {
    pub(super) slot: usize,
    pub(super) state: S::Connection,
    pub(super) message: OwnedMessage,
    pub(super) arrived: Instant,
    /// The finished reply; empty when there is none.
    pub(super) reply: Vec<u8>,
    /// The reply's bytes uncompressed.
    pub(super) reply_logical_bytes: usize,
    pub(super) reply_id: i32,
    pub(super) verdict: Verdict,
}

pub(super) struct Pool<S: Service> {
    service: Arc<S>,
    threads_max: usize,
    /// Threads that are added without waiting.
    threads_eager: usize,
    state: Mutex<State<S>>,
    /// Wakes the thread that watches the queue's age.
    queued: Condvar,
    /// Wakes who waits for the pool to end.
    ended: Condvar,
}

struct State<S: Service> {
    queue: VecDeque<(Instant, Job<S>)>,
    /// The bells of the idle threads; the last became idle last.
    idle: Vec<Arc<Condvar>>,
    threads: usize,
    watcher: Watcher,
    stopping: bool,
}

/// The thread that adds threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watcher {
    None,
    /// It waits to be told that something is queued.
    Asleep,
    /// It looks at the queue by itself.
    Awake,
}

impl<S: Service> Pool<S> {
    pub(super) fn new(service: Arc<S>, threads_max: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let state = State {
            queue: VecDeque::new(),
            idle: Vec::new(),
            threads: 0,
            watcher: Watcher::None,
            stopping: false,
        };
        Pool {
            service,
            threads_max,
            threads_eager: cores.min(threads_max),
            state: Mutex::new(state),
            queued: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// Queues a call.
    pub(super) fn submit(self: &Arc<Self>, job: Job<S>) {
        let mut state = self.state.lock();
        state.queue.push_back((Instant::now(), job));
        if let Some(bell) = state.idle.pop() {
            bell.notify_one();
        } else if state.threads < self.threads_eager {
            self.add_thread(&mut state);
        } else {
            match state.watcher {
                Watcher::None => self.add_watcher(&mut state),
                Watcher::Asleep => {
                    self.queued.notify_one();
                }
                Watcher::Awake => {}
            }
        }
    }

    /// Lets idle threads end, and waits until all have, or until `until`.
    pub(super) fn stop(&self, until: Instant) {
        let mut state = self.state.lock();
        state.stopping = true;
        for bell in &state.idle {
            bell.notify_one();
        }
        self.queued.notify_one();
        while state.threads > 0 {
            if self.ended.wait_until(&mut state, until).timed_out() {
                tracing::warn!(threads = state.threads, "operations did not end in time");
                return;
            }
        }
    }

    fn add_thread(self: &Arc<Self>, state: &mut State<S>) {
        let pool = Arc::clone(self);
        match thread::Builder::new().name("pool".to_owned()).spawn(move || pool.work()) {
            Ok(_) => state.threads += 1,
            // The threads that there are go on; with none the request waits for the next attempt.
            Err(error) => tracing::error!(%error, "could not start a pool thread"),
        }
    }

    fn add_watcher(self: &Arc<Self>, state: &mut State<S>) {
        let pool = Arc::clone(self);
        match thread::Builder::new().name("pool-watch".to_owned()).spawn(move || pool.watch()) {
            Ok(_) => state.watcher = Watcher::Awake,
            Err(error) => tracing::error!(%error, "could not start a thread"),
        }
    }

    /// Adds a thread whenever the oldest request has waited too long; sleeps while nothing waits.
    fn watch(self: Arc<Self>) {
        let mut state = self.state.lock();
        while !state.stopping {
            let oldest = state.queue.front().map(|&(since, _)| since);
            // No thread ends while requests are queued: with all threads there, the next chance to add one
            // comes after the queue was empty.
            let Some(since) = oldest.filter(|_| state.threads < self.threads_max) else {
                state.watcher = Watcher::Asleep;
                self.queued.wait(&mut state);
                state.watcher = Watcher::Awake;
                continue;
            };
            if since.elapsed() < WAIT_MAX {
                self.queued.wait_until(&mut state, since + WAIT_MAX);
            } else {
                self.add_thread(&mut state);
                // The new thread takes the oldest request; the next one is looked at after a while.
                self.queued.wait_for(&mut state, WAIT_MAX);
            }
        }
    }

    fn work(self: Arc<Self>) {
        let bell = Arc::new(Condvar::new());
        let mut reply = ReplyBuffer::new();
        while let Some(job) = self.next(&bell) {
            self.run(job, &mut reply);
        }
    }

    /// The next job; `None` when the thread, which is no longer counted then, should end.
    fn next(&self, bell: &Arc<Condvar>) -> Option<Job<S>> {
        let mut state = self.state.lock();
        loop {
            if let Some((_, job)) = state.queue.pop_front() {
                return Some(job);
            }
            if state.stopping {
                break;
            }
            state.idle.push(Arc::clone(bell));
            let late = bell.wait_for(&mut state, IDLE_MAX).timed_out();
            state.idle.retain(|other| !Arc::ptr_eq(other, bell));
            if late && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        if state.threads == 0 {
            self.ended.notify_all();
        }
        None
    }

    fn run(&self, job: Job<S>, reply: &mut ReplyBuffer) {
        let Job { slot, mut state, message, call, home } = job;
        let (verdict, reply_logical_bytes) =
            guard::call(&*self.service, &mut state, &message.as_message(), &call, reply);
        let outcome = Outcome {
            slot,
            state,
            message,
            arrived: call.arrived,
            reply: reply.take(),
            reply_logical_bytes,
            reply_id: reply.last_id(),
            verdict,
        };
        home.send(Mail::Outcome(Box::new(outcome)));
    }
}
