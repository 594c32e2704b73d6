//! Latches: how the transactions of one process exclude each other per key.
//!
//! ```text
//!    key ──hash──► stripe 0 … 65,535           one Mutex<Stripe> each
//!                     │
//!                     ▼
//!              free ──guard──► held ──end of transaction, no waiter──► free
//!                               │ ▲
//!         guard of another       │ │ release, oldest waiter ≥ HANDOFF_AGE: handed over, stays held
//!         transaction            ▼ │ release, younger waiter: free; it is woken and races for it
//!              spin ~10 µs ──► park in the stripe's queue ──deadline──► Error::Conflict
//! ```
//!
//! A key belongs to one of a fixed number of *stripes*, by its hash. A transaction *holds* stripes
//! from the guard of a key to its own end. Two keys may share a stripe and then exclude each other
//! without need; with [`STRIPES`] stripes this is rare, and it is never wrong. Taking and releasing
//! a free stripe costs one short mutex each; no memory is allocated.
//!
//! A thread that finds a stripe held spins for about the time of one commit, then queues. A release
//! is unfair at first: a running thread may take the stripe before the woken one, which saves a
//! context switch. It is fair in the end: a waiter older than [`HANDOFF_AGE`] is handed the stripe.
//! So a thousand writers of one document neither convoy nor starve.
//!
//! Deadlock: one call takes its stripes in ascending order, so single calls cannot form a cycle. A
//! cycle needs a transaction that waits for a stripe below one that it holds from an earlier call.
//! That wait is cut to [`BACKWARD_WAIT`] and then returns [`Error::Conflict`].

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::store::{Error, Result, Space};
use crate::times::Times;

/// The number of stripes. A client's transaction holds its stripes for long, so there are far more
/// stripes than threads: a transaction that has written 1,000 documents blocks 1.5% of the other
/// keys.
pub const STRIPES: usize = 1 << 16;

const _: () = assert!(STRIPES.is_power_of_two(), "a stripe is chosen by masking the hash");

/// The longest wait for a stripe that lies below a held one; such a wait may be part of a deadlock.
pub const BACKWARD_WAIT: Duration = Duration::from_millis(10);

/// A waiter of this age is handed the stripe at its release. Every handover idles the stripe until
/// the waiter is scheduled, which takes milliseconds on a busy machine: with half a millisecond,
/// eight writers of one document formed a convoy that outlasted their timeouts.
const HANDOFF_AGE: Duration = Duration::from_millis(5);

/// Spin rounds before a thread parks. Each round is a few pauses, together about 10 µs: the time
/// the holder needs to write its batch to the log.
const SPINS: u32 = 64;

/// The stripes that the transactions of one store share.
pub struct Latches {
    stripes: Box<[Mutex<Stripe>]>,
    hasher: RandomState,
    /// The durations of waits for a stripe that was held.
    waits: Times,
    /// The number of times a stripe was not obtained.
    conflicts: AtomicU64,
}

/// One stripe: whether a transaction holds it, and its waiters, oldest first.
#[derive(Default)]
struct Stripe {
    is_held: bool,
    /// Boxed, because nearly no stripe has waiters and there are many stripes.
    #[allow(clippy::box_collection)]
    waiters: Option<Box<VecDeque<Arc<Waiter>>>>,
}

/// A thread that waits for a stripe.
struct Waiter {
    thread: Thread,
    since: Instant,
    /// Set, under the stripe's mutex, by a release that handed the stripe over.
    is_granted: AtomicBool,
}

/// The stripes that one transaction holds, ascending. Dropping the value releases them.
pub struct HeldStripes<'l> {
    latches: &'l Latches,
    stripes: Vec<u32>,
}

impl Default for Latches {
    fn default() -> Self {
        Latches::new()
    }
}

impl Latches {
    /// Creates a table of free stripes.
    pub fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::new(Stripe::default())).collect();
        Latches {
            stripes,
            hasher: RandomState::new(),
            waits: Times::default(),
            conflicts: AtomicU64::new(0),
        }
    }

    /// The waits for stripes that were taken, as rows of [`Store::statistics`].
    ///
    /// [`Store::statistics`]: crate::store::Store::statistics
    pub fn statistics(&self) -> [(&'static str, i64); 3] {
        let waits = self.waits.read();
        let long = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        [
            ("latches.waits", long(waits.count())),
            ("latches.microseconds waited", long(waits.us)),
            ("latches.conflicts", long(self.conflicts.load(Ordering::Relaxed))),
        ]
    }

    /// Returns a holder without stripes.
    pub fn hold(&self) -> HeldStripes<'_> {
        HeldStripes { latches: self, stripes: Vec::new() }
    }

    fn stripe_of(&self, space: Space, key: &[u8]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u8(space as u8);
        hasher.write(key);
        (hasher.finish() as usize & (STRIPES - 1)) as u32
    }

    fn try_take(&self, stripe: u32) -> bool {
        let mut state = self.stripes[stripe as usize].lock();
        !std::mem::replace(&mut state.is_held, true)
    }

    /// Takes a stripe that was found held, waiting up to `deadline`; returns whether it was taken.
    fn wait_for(&self, stripe: u32, deadline: Instant) -> bool {
        let mutex = &self.stripes[stripe as usize];
        for _ in 0..SPINS {
            for _ in 0..4 {
                hint::spin_loop();
            }
            if let Some(mut state) = mutex.try_lock()
                && !state.is_held
            {
                state.is_held = true;
                return true;
            }
        }
        let waiter = Arc::new(Waiter {
            thread: thread::current(),
            since: Instant::now(),
            is_granted: Default::default(),
        });
        {
            let mut state = mutex.lock();
            if !state.is_held {
                state.is_held = true;
                return true;
            }
            state.waiters.get_or_insert_default().push_back(waiter.clone());
        }
        loop {
            let now = Instant::now();
            thread::park_timeout(deadline.saturating_duration_since(now));
            let mut state = mutex.lock();
            if waiter.is_granted() {
                return true;
            }
            let is_taken = !state.is_held;
            if is_taken || Instant::now() >= deadline {
                state.is_held = true;
                state.forget(&waiter);
                return is_taken;
            }
        }
    }

    fn release(&self, stripe: u32) {
        let woken = {
            let mut state = self.stripes[stripe as usize].lock();
            assert!(state.is_held, "a released stripe was held");
            let first = state.waiters.as_ref().and_then(|waiters| waiters.front().cloned());
            match &first {
                Some(waiter) if waiter.since.elapsed() >= HANDOFF_AGE => {
                    // The stripe stays held: the waiter is its holder from now on.
                    waiter.is_granted.store(true, Ordering::Relaxed);
                    state.forget(waiter);
                }
                _ => state.is_held = false,
            }
            first
        };
        if let Some(waiter) = woken {
            waiter.thread.unpark();
        }
    }
}

impl Stripe {
    fn forget(&mut self, waiter: &Arc<Waiter>) {
        if let Some(waiters) = &mut self.waiters {
            waiters.retain(|other| !Arc::ptr_eq(other, waiter));
            if waiters.is_empty() {
                self.waiters = None;
            }
        }
    }
}

impl Waiter {
    fn is_granted(&self) -> bool {
        self.is_granted.load(Ordering::Relaxed)
    }
}

impl HeldStripes<'_> {
    /// Takes the stripes of `keys` that are not held yet, waiting up to `timeout` for all of them
    /// together.
    ///
    /// Errors: [`Error::Conflict`] on timeout. The stripes of this call are released again; stripes
    /// of earlier calls stay held.
    pub fn take(&mut self, keys: &[(Space, &[u8])], timeout: Duration) -> Result<()> {
        if let [(space, key)] = keys {
            let stripe = self.latches.stripe_of(*space, key);
            return match self.stripes.binary_search(&stripe) {
                Ok(_) => Ok(()),
                Err(at) => {
                    self.take_one(stripe, at == self.stripes.len(), &mut None, timeout)?;
                    self.stripes.insert(at, stripe);
                    Ok(())
                }
            };
        }
        let mut wanted: Vec<u32> =
            keys.iter().map(|(space, key)| self.latches.stripe_of(*space, key)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|stripe| self.stripes.binary_search(stripe).is_err());
        let highest = self.stripes.last().copied();
        let mut deadline = None;
        for (index, &stripe) in wanted.iter().enumerate() {
            let is_ascending = highest.is_none_or(|highest| stripe > highest);
            if let Err(error) = self.take_one(stripe, is_ascending, &mut deadline, timeout) {
                for &taken in wanted[..index].iter().rev() {
                    self.latches.release(taken);
                }
                return Err(error);
            }
        }
        self.stripes.extend_from_slice(&wanted);
        self.stripes.sort_unstable();
        Ok(())
    }

    fn take_one(
        &self,
        stripe: u32,
        is_ascending: bool,
        deadline: &mut Option<Instant>,
        timeout: Duration,
    ) -> Result<()> {
        if self.latches.try_take(stripe) {
            return Ok(());
        }
        let conflict = || {
            self.latches.conflicts.fetch_add(1, Ordering::Relaxed);
            Err(Error::Conflict)
        };
        if timeout.is_zero() {
            return conflict();
        }
        let now = Instant::now();
        let mut until = *deadline.get_or_insert(now + timeout);
        if !is_ascending {
            until = until.min(now + BACKWARD_WAIT);
        }
        let is_taken = self.latches.wait_for(stripe, until);
        self.latches.waits.add(now.elapsed());
        if is_taken { Ok(()) } else { conflict() }
    }
}

impl Drop for HeldStripes<'_> {
    fn drop(&mut self) {
        for &stripe in self.stripes.iter().rev() {
            self.latches.release(stripe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (Space, &[u8]) = (Space::Records, b"k");

    #[test]
    fn a_table_takes_two_megabytes() {
        assert!(size_of::<Mutex<Stripe>>() * STRIPES <= 2 << 20);
    }

    #[test]
    fn taking_again_is_free_and_dropping_releases() {
        let latches = Latches::new();
        let mut first = latches.hold();
        let mut second = latches.hold();
        first.take(&[KEY, KEY], Duration::ZERO).expect("it is free");
        first.take(&[KEY], Duration::ZERO).expect("it is held already");
        assert_eq!(first.stripes.len(), 1);
        assert!(matches!(second.take(&[KEY], Duration::ZERO), Err(Error::Conflict)));
        drop(first);
        second.take(&[KEY], Duration::ZERO).expect("it is free again");
    }

    #[test]
    fn a_failed_call_keeps_what_earlier_ones_took() {
        let latches = Latches::new();
        let mut holder = latches.hold();
        holder.take(&[KEY], Duration::ZERO).expect("it is free");
        let names: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        let mut keys: Vec<(Space, &[u8])> =
            names.iter().map(|name| (Space::Indexes, name.as_bytes())).collect();
        let mut other = latches.hold();
        other.take(&keys[..1], Duration::ZERO).expect("it is free");
        keys.push(KEY);
        assert!(other.take(&keys, Duration::from_millis(1)).is_err());
        assert_eq!(other.stripes.len(), 1);
        holder.take(&keys[1..], Duration::ZERO).expect("a failed call lets go");
        assert!(holder.take(&keys, Duration::ZERO).is_err());
        drop(other);
        holder.take(&keys, Duration::ZERO).expect("an ended transaction lets go");
    }

    #[test]
    fn a_waiter_gets_its_turn_in_a_crowd() {
        let latches = Latches::new();
        let sum = Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let mut held = latches.hold();
                        held.take(&[KEY], Duration::from_secs(20)).expect("the turn comes");
                        *sum.try_lock().expect("nobody else is here") += 1;
                    }
                });
            }
        });
        assert_eq!(*sum.lock(), 1000);
        assert!(latches.stripes.iter().all(|stripe| stripe.lock().waiters.is_none()));
    }

    #[test]
    fn a_wait_ends() {
        let latches = Latches::new();
        let mut holder = latches.hold();
        holder.take(&[KEY], Duration::ZERO).expect("it is free");
        let started = Instant::now();
        assert!(latches.hold().take(&[KEY], Duration::from_millis(5)).is_err());
        assert!(started.elapsed() >= Duration::from_millis(5));
        assert!(latches.stripes.iter().all(|stripe| stripe.lock().waiters.is_none()));
    }
}
