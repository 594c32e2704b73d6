//! Threads for calls that may be long.
//!
//! ```text
//!            reserved ─┐                        ┌─ kept free, for the reserved lane alone
//!  submit ─►           ├─► threads: eager … usual … with long calls … most
//!            ordinary ─┘            └─ added as the oldest call has waited
//! ```
//!
//! A call that finds no idle thread waits in its lane. A thread is added at once while there are
//! fewer than cores, and after that each time the oldest call has waited [`WAIT_MAX`]: so short
//! work waits for long work at most for that time, and a burst of short work does not create
//! threads that it does not need. There are usually at most `threads_max` threads. One whose call
//! has run for [`LONG`] does not count, so that long calls do not exclude others; but all together
//! are at most [`TIMES_MAX`] times that number, and the last [`RESERVED`] of these run only calls
//! of the reserved lane. An idle thread ends after [`IDLE_MAX`]; the one that became idle last is
//! used first, so that the others may end.
//!
//! A call whose deadline has passed, or whose client has disconnected, does not wait for its turn:
//! it moves to the reserved lane, where it finds that it must end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use marula_wire::{Compressors, OwnedMessage, Refusal, ReplyBuffer};
use parking_lot::{Condvar, Mutex};

use super::counters::Counters;
use super::guard::{self, Verdict};
use super::service::{Call, CallThread, Lane, Order, Reason, Service};
use super::wake::Mailbox;
use super::worker::Mail;

/// The time that a call waits before a thread is added.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// The interval at which waiting calls that must end are searched for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time that a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// The time after which a call counts as long.
const LONG: Duration = Duration::from_millis(200);
/// The maximum number of threads while long calls run, as a multiple of the usual maximum.
const TIMES_MAX: usize = 4;
/// The number of threads for the reserved lane.
const RESERVED: usize = 16;
/// The number of long calls for each thread that is added later: after long calls, new ones are
/// probably not short.
const LONG_CALLS_PER_THREAD: usize = 8;

/// A call on a pool thread, and the worker that receives its outcome.
pub(super) struct Job<S: Service> {
    pub(super) slot: usize,
    pub(super) state: S::Connection,
    pub(super) work: Work,
    pub(super) call: Call,
    pub(super) order: Order,
    pub(super) home: Arc<Mailbox<Mail<S>>>,
}

/// The input of a call.
pub(super) enum Work {
    /// A message.
    Message(OwnedMessage),
    /// A frame so large that parsing it takes long too.
    Frame(Vec<u8>),
}

/// The outcome of a job.
pub(super) struct Outcome<S: Service> {
    pub(super) slot: usize,
    pub(super) state: S::Connection,
    pub(super) message: OwnedMessage,
    pub(super) arrived: Instant,
    /// The complete reply; empty if there is none.
    pub(super) reply: Vec<u8>,
    /// The reply's uncompressed size.
    pub(super) reply_logical_bytes: usize,
    pub(super) reply_id: i32,
    pub(super) verdict: Verdict,
}

/// A frame that was parsed in the pool: its size as received, and uncompressed.
#[derive(Clone, Copy)]
pub(super) struct Read {
    pub(super) physical: usize,
    pub(super) logical: usize,
    pub(super) compressor: Option<marula_wire::Compressor>,
}

/// A frame that is not a valid message.
pub(super) struct Refused<S: Service> {
    pub(super) slot: usize,
    pub(super) state: S::Connection,
    pub(super) physical: usize,
    pub(super) refusal: Refusal,
}

pub(super) struct Pool<S: Service> {
    service: Arc<S>,
    compressors: Compressors,
    /// The maximum number of threads without long calls.
    threads_max: usize,
    /// The maximum number of waiting calls of the ordinary lane.
    queued_max: usize,
    counters: Arc<Counters>,
    /// The number of threads that are added without waiting.
    threads_eager: usize,
    state: Mutex<State<S>>,
    /// Wakes the thread that watches the age of the queue.
    queued: Condvar,
    /// Wakes the thread that waits for the end of the pool.
    ended: Condvar,
}

struct State<S: Service> {
    reserved: VecDeque<(Instant, Job<S>)>,
    ordinary: VecDeque<(Instant, Job<S>)>,
    /// The bells of the idle threads; the last one became idle last.
    idle: Vec<Arc<Condvar>>,
    threads: usize,
    /// The start and the lane of each thread's call, by the thread's number.
    running: Vec<Option<(Instant, Lane)>>,
    /// Numbers without a thread.
    free: Vec<usize>,
    /// The number of running calls of the ordinary lane.
    ordinary_running: usize,
    watcher: Watcher,
    stopping: bool,
}

/// The state of the thread that adds threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watcher {
    None,
    /// It waits for a queued call.
    Asleep,
    /// It checks the queue periodically.
    Awake,
}

impl<S: Service> State<S> {
    fn push(&mut self, job: Job<S>) {
        let queue = match job.order.lane {
            Lane::Ordinary => &mut self.ordinary,
            Lane::Reserved => &mut self.reserved,
        };
        queue.push_back((Instant::now(), job));
    }

    /// Returns the number of long calls.
    fn long_running(&self, now: Instant) -> usize {
        let since = self.running.iter().flatten().map(|&(since, _)| since);
        since.filter(|&since| now.saturating_duration_since(since) >= LONG).count()
    }

    fn begin(&mut self, number: usize, lane: Lane) {
        self.end(number);
        self.ordinary_running += usize::from(lane == Lane::Ordinary);
        self.running[number] = Some((Instant::now(), lane));
    }

    fn end(&mut self, number: usize) {
        if let Some((_, Lane::Ordinary)) = self.running[number].take() {
            self.ordinary_running -= 1;
        }
    }
}

impl<S: Service> Pool<S> {
    pub(super) fn new(
        service: Arc<S>,
        threads_max: usize,
        queued_max: usize,
        counters: Arc<Counters>,
        compressors: Compressors,
    ) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let state = State {
            reserved: VecDeque::new(),
            ordinary: VecDeque::new(),
            idle: Vec::new(),
            threads: 0,
            running: Vec::new(),
            free: Vec::new(),
            ordinary_running: 0,
            watcher: Watcher::None,
            stopping: false,
        };
        Pool {
            service,
            compressors,
            threads_max,
            queued_max,
            counters,
            threads_eager: cores.min(threads_max),
            state: Mutex::new(state),
            queued: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// Returns the number of calls of the ordinary lane that may run now.
    fn ordinary_max(&self, state: &State<S>) -> usize {
        if state.ordinary_running < self.threads_max {
            return self.threads_max;
        }
        let with_long = self.threads_max + state.long_running(Instant::now());
        with_long.min(self.threads_max * TIMES_MAX)
    }

    fn may_run(&self, state: &State<S>, lane: Lane) -> bool {
        lane == Lane::Reserved || state.ordinary_running < self.ordinary_max(state)
    }

    /// Returns the maximum number of threads for calls in a lane.
    fn threads_max(&self, state: &State<S>, lane: Lane) -> usize {
        match lane {
            Lane::Ordinary => self.ordinary_max(state),
            Lane::Reserved => self.threads_max * TIMES_MAX + RESERVED,
        }
    }

    /// Returns whether a new call of this lane may wait. Calls of the reserved lane, and those that
    /// end or continue, always may.
    pub(super) fn has_room(&self, lane: Lane) -> bool {
        let has_room = lane == Lane::Reserved || self.state.lock().ordinary.len() < self.queued_max;
        if !has_room {
            self.counters.overloads.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Queues a call.
    pub(super) fn submit(self: &Arc<Self>, job: Job<S>) {
        let mut state = self.state.lock();
        let may_run = self.may_run(&state, job.order.lane);
        state.push(job);
        let bell = if may_run { state.idle.pop() } else { None };
        if let Some(bell) = bell {
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
        let number = state.free.pop().unwrap_or_else(|| {
            state.running.push(None);
            state.running.len() - 1
        });
        let pool = Arc::clone(self);
        let work = move || Thread { pool, number }.work();
        match thread::Builder::new().name("pool".to_owned()).spawn(work) {
            Ok(_) => state.threads += 1,
            // Existing threads go on; if there are none, the request waits for the next attempt.
            Err(error) => {
                state.free.push(number);
                tracing::error!(%error, "could not start a pool thread");
            }
        }
    }

    fn add_watcher(self: &Arc<Self>, state: &mut State<S>) {
        let pool = Arc::clone(self);
        match thread::Builder::new().name("pool-watch".to_owned()).spawn(move || pool.watch()) {
            Ok(_) => state.watcher = Watcher::Awake,
            Err(error) => tracing::error!(%error, "could not start a thread"),
        }
    }

    /// Adds a thread whenever the oldest call has waited too long; sleeps while nothing waits.
    fn watch(self: Arc<Self>) {
        let mut looked = Instant::now();
        let mut state = self.state.lock();
        while !state.stopping {
            if state.reserved.is_empty() && state.ordinary.is_empty() {
                state.watcher = Watcher::Asleep;
                self.queued.wait(&mut state);
                state.watcher = Watcher::Awake;
                continue;
            }
            let now = Instant::now();
            if now.duration_since(looked) >= LOOK_EVERY {
                looked = now;
                self.hasten(&mut state, now);
            }
            self.add_threads(&mut state, now);
            self.queued.wait_for(&mut state, WAIT_MAX);
        }
    }

    /// Adds threads for calls that have waited too long, or wakes one that may run them now.
    fn add_threads(self: &Arc<Self>, state: &mut State<S>, now: Instant) {
        let is_late = |queue: &VecDeque<(Instant, Job<S>)>| {
            queue.front().is_some_and(|&(since, _)| now.duration_since(since) >= WAIT_MAX)
        };
        let lane = if is_late(&state.reserved) {
            Lane::Reserved
        } else if is_late(&state.ordinary) && self.may_run(state, Lane::Ordinary) {
            Lane::Ordinary
        } else {
            return;
        };
        let waiting = state.reserved.len() + state.ordinary.len();
        let wanted = (1 + state.long_running(now) / LONG_CALLS_PER_THREAD).min(waiting);
        for _ in 0..wanted {
            if let Some(bell) = state.idle.pop() {
                bell.notify_one();
            } else if state.threads < self.threads_max(state, lane) {
                self.add_thread(state);
            }
        }
    }

    /// Moves waiting calls that must end to the reserved lane.
    fn hasten(&self, state: &mut State<S>, now: Instant) {
        let must_end = |job: &Job<S>| {
            job.order.deadline.is_some_and(|deadline| deadline <= now)
                || self.service.is_ended(&job.state)
        };
        if !state.ordinary.iter().any(|(_, job)| must_end(job)) {
            return;
        }
        for (since, mut job) in std::mem::take(&mut state.ordinary) {
            match must_end(&job) {
                true => {
                    job.order.lane = Lane::Reserved;
                    state.reserved.push_front((since, job));
                }
                false => state.ordinary.push_back((since, job)),
            }
        }
    }
}

/// A thread. Dropping it removes it from the pool's count.
struct Thread<S: Service> {
    pool: Arc<Pool<S>>,
    number: usize,
}

impl<S: Service> Drop for Thread<S> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.end(self.number);
        state.free.push(self.number);
        state.threads -= 1;
        if state.threads == 0 {
            self.pool.ended.notify_all();
        }
    }
}

impl<S: Service> Thread<S> {
    fn work(self) {
        let bell = Arc::new(Condvar::new());
        let mut reply = ReplyBuffer::new();
        while let Some(mut job) = self.next(&bell) {
            while let Some(again) = self.run(job, &mut reply) {
                match self.go_on(again) {
                    Some(same) => job = same,
                    None => break,
                }
            }
        }
    }

    /// Returns the next job; `None` if the thread should end.
    fn next(&self, bell: &Arc<Condvar>) -> Option<Job<S>> {
        let pool = &*self.pool;
        let mut state = pool.state.lock();
        state.end(self.number);
        loop {
            let job = match state.reserved.pop_front() {
                None if pool.may_run(&state, Lane::Ordinary) => state.ordinary.pop_front(),
                job => job,
            };
            if let Some((_, job)) = job {
                state.begin(self.number, job.order.lane);
                return Some(job);
            }
            if state.stopping {
                return None;
            }
            state.idle.push(Arc::clone(bell));
            let late = bell.wait_for(&mut state, IDLE_MAX).timed_out();
            state.idle.retain(|other| !Arc::ptr_eq(other, bell));
            if late && state.reserved.is_empty() && state.ordinary.is_empty() {
                return None;
            }
        }
    }

    /// A call whose request is known after parsing its frame: it continues here, or waits in its
    /// lane.
    fn go_on(&self, job: Job<S>) -> Option<Job<S>> {
        let pool = &*self.pool;
        let mut state = pool.state.lock();
        let is_next = job.order.lane == Lane::Reserved
            || state.ordinary.is_empty() && pool.may_run(&state, Lane::Ordinary);
        if is_next {
            state.begin(self.number, job.order.lane);
            return Some(job);
        }
        state.push(job);
        None
    }

    /// Executes the call; returns the call that remains.
    fn run(&self, job: Job<S>, reply: &mut ReplyBuffer) -> Option<Job<S>> {
        let Job { slot, mut state, work, mut call, home, .. } = job;
        let message = match work {
            Work::Message(message) => message,
            Work::Frame(frame) => {
                let physical = frame.len();
                match OwnedMessage::parse(frame, self.pool.compressors) {
                    Ok(message) => {
                        let read = message.as_message();
                        let (logical, compressor) =
                            (read.bytes().len(), read.reply_to().compressor);
                        home.send(Mail::Read(Read { physical, logical, compressor }));
                        message
                    }
                    Err(refusal) => {
                        home.send(Mail::Refused(Box::new(Refused {
                            slot,
                            state,
                            physical,
                            refusal,
                        })));
                        return None;
                    }
                }
            }
        };
        let service = &*self.pool.service;
        let (mut verdict, mut reply_logical_bytes) =
            guard::call(service, &mut state, &message.as_message(), &call, reply);
        if let (Verdict::ToPool(order), CallThread::Inline) = (&verdict, call.thread)
            && !self.pool.has_room(order.lane)
        {
            let message = message.as_message();
            reply_logical_bytes = guard::refuse_overload(service, &mut state, &message, reply);
            verdict = Verdict::Done;
        }
        if let (Verdict::ToPool(order), CallThread::Inline) = (&verdict, call.thread) {
            call = Call { thread: CallThread::Pool, reason: Reason::OnPool, ..call };
            let work = Work::Message(message);
            return Some(Job { slot, state, work, call, order: *order, home });
        }
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
        None
    }
}
