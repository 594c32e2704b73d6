//! Requests of many threads that travel together.
//!
//! A request to etcd costs far more than its contents, and one transaction may have many. So a few
//! are in progress at a time, in *lanes*. A request that finds a lane free is sent at once, by
//! itself. Those that arrive while all lanes are busy wait; when a lane becomes free, the first of
//! those that wait leads: its thread sends one request for itself and for those that can go with
//! it.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::kv::{KvError, Result};

/// Requests `Q` with answers `A`.
pub(super) struct Gather<Q, A> {
    lanes: Mutex<Lanes<Q, A>>,
    count: usize,
    choose: Choose<Q>,
}

/// Says of each request that waits, the first of which is always sent, whether it goes with it.
pub(super) type Choose<Q> = fn(&mut dyn Iterator<Item = &Q>) -> Vec<bool>;

struct Lanes<Q, A> {
    waiting: VecDeque<(Q, Arc<Seat<Q, A>>)>,
    busy: usize,
}

/// The place where a thread waits until it leads, or another has sent its request.
struct Seat<Q, A> {
    call: Mutex<Option<Call<Q, A>>>,
    called: Condvar,
}

enum Call<Q, A> {
    /// To send its own request, which is the first of these, and those of others.
    Lead(Vec<Q>, Vec<Arc<Seat<Q, A>>>),
    Ended(Result<A>),
}

impl<Q, A> Seat<Q, A> {
    fn call(&self, call: Call<Q, A>) {
        *self.call.lock() = Some(call);
        self.called.notify_one();
    }

    fn wait(&self) -> Call<Q, A> {
        let mut call = self.call.lock();
        loop {
            match call.take() {
                Some(call) => return call,
                None => self.called.wait(&mut call),
            }
        }
    }
}

impl<Q, A> Gather<Q, A> {
    pub(super) fn new(lanes: usize, choose: Choose<Q>) -> Self {
        let lanes_free = Lanes { waiting: VecDeque::new(), busy: 0 };
        Gather { lanes: Mutex::new(lanes_free), count: lanes, choose }
    }

    /// Has a request sent, by this thread's `send` or by another's. `send` answers each of the
    /// requests that it is given, in their order.
    pub(super) fn pass(
        &self,
        request: Q,
        send: impl FnOnce(Vec<Q>) -> Vec<Result<A>>,
    ) -> Result<A> {
        let (requests, others) = match self.enter(request) {
            Call::Ended(outcome) => return outcome,
            Call::Lead(requests, others) => (requests, others),
        };
        let _lane = Lane(self);
        let mut followers = Followers(others.into());
        let mut outcomes = send(requests).into_iter();
        let own = outcomes.next().expect("each request has an answer");
        outcomes.for_each(|outcome| followers.end_next(outcome));
        own
    }

    fn enter(&self, request: Q) -> Call<Q, A> {
        let seat = Arc::new(Seat { call: Mutex::new(None), called: Condvar::new() });
        {
            let mut lanes = self.lanes.lock();
            if lanes.busy < self.count {
                lanes.busy += 1;
                return Call::Lead(vec![request], Vec::new());
            }
            lanes.waiting.push_back((request, seat.clone()));
        }
        seat.wait()
    }
}

/// A lane in use. Its end, however it comes, has the next one lead.
struct Lane<'g, Q, A>(&'g Gather<Q, A>);

impl<Q, A> Drop for Lane<'_, Q, A> {
    fn drop(&mut self) {
        let mut lanes = self.0.lanes.lock();
        let chosen = (self.0.choose)(&mut lanes.waiting.iter().map(|(request, _)| request));
        let (mut requests, mut seats) = (Vec::new(), Vec::new());
        for ((request, seat), is_chosen) in mem::take(&mut lanes.waiting).into_iter().zip(chosen) {
            if is_chosen || requests.is_empty() {
                requests.push(request);
                seats.push(seat);
            } else {
                lanes.waiting.push_back((request, seat));
            }
        }
        if seats.is_empty() {
            lanes.busy -= 1;
            return;
        }
        drop(lanes);
        let leader = seats.remove(0);
        leader.call(Call::Lead(requests, seats));
    }
}

/// Those for whom a leader sends. Where it does not end, they do not know what has happened.
struct Followers<Q, A>(VecDeque<Arc<Seat<Q, A>>>);

impl<Q, A> Followers<Q, A> {
    fn end_next(&mut self, outcome: Result<A>) {
        let seat = self.0.pop_front().expect("there is one answer for each");
        seat.call(Call::Ended(outcome));
    }
}

impl<Q, A> Drop for Followers<Q, A> {
    fn drop(&mut self) {
        while !self.0.is_empty() {
            self.end_next(Err(KvError::Unknown));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn evens_together(requests: &mut dyn Iterator<Item = &u32>) -> Vec<bool> {
        requests.map(|request| request.is_multiple_of(2)).collect()
    }

    #[test]
    fn each_has_its_own_answer() {
        let gather: Gather<u32, u32> = Gather::new(2, evens_together);
        let (sent, running) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let send = |requests: Vec<u32>| {
            assert!(running.fetch_add(1, Ordering::SeqCst) < 2, "there are two lanes");
            sent.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            let odd = requests.iter().skip(1).any(|request| !request.is_multiple_of(2));
            assert!(!odd, "{requests:?}");
            running.fetch_sub(1, Ordering::SeqCst);
            requests.into_iter().map(|request| Ok(request + 1)).collect()
        };
        thread::scope(|threads| {
            for thread in 0..16 {
                let (gather, send) = (&gather, &send);
                threads.spawn(move || {
                    for round in 0..50 {
                        let request = thread * 1_000 + round;
                        assert_eq!(gather.pass(request, send), Ok(request + 1));
                    }
                });
            }
        });
        assert!(sent.load(Ordering::SeqCst) < 16 * 50, "some have travelled together");
        let lanes = gather.lanes.lock();
        assert!(lanes.busy == 0 && lanes.waiting.is_empty());
    }

    #[test]
    fn a_leader_that_panics_leaves_nobody_waiting() {
        let gather: Gather<u32, u32> = Gather::new(1, evens_together);
        let is_sending = AtomicUsize::new(0);
        let panics = |_: Vec<u32>| -> Vec<Result<u32>> {
            is_sending.fetch_add(1, Ordering::SeqCst);
            while gather.lanes.lock().waiting.len() < 3 && is_sending.load(Ordering::SeqCst) == 1 {
                thread::sleep(Duration::from_millis(1));
            }
            panic!("on trial");
        };
        let panics = &panics;
        thread::scope(|threads| {
            let first = threads.spawn(|| gather.pass(0, panics));
            while is_sending.load(Ordering::SeqCst) == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            let waiting: Vec<_> =
                (0..3).map(|_| threads.spawn(|| gather.pass(2, panics))).collect();
            assert!(first.join().is_err());
            // One of them led the others, and panicked too.
            let ends: Vec<_> = waiting.into_iter().map(thread::ScopedJoinHandle::join).collect();
            assert_eq!(ends.iter().filter(|end| end.is_err()).count(), 1);
            assert!(ends.iter().flatten().all(|outcome| *outcome == Err(KvError::Unknown)));
        });
        assert_eq!(gather.pass(4, |requests| requests.into_iter().map(Ok).collect()), Ok(4));
    }
}
