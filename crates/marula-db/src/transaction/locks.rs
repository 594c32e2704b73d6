//! The keys that open transactions have written or guarded.
//!
//! ```text
//!   ordinary write   latch ─► check: key locked? ─► commit ─► release latch
//!                                    │ yes: WriteConflict, waits for the lock's release
//!   transaction      latch ─► lock the key ─► release latch … (statements) … commit ─► release locks
//! ```
//!
//! Latches protect writes of one moment and cover stripes of keys; a client's transaction may stay
//! open for a minute and hold a hundred thousand documents. So its keys are locked one by one,
//! here. A transaction holds a key's latch while it locks the key, and an ordinary writer holds it
//! from its guard to its commit, so neither can miss the other. While no transaction is open, a
//! writer checks one counter.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc;
use std::time::Duration;

use marula_storage::Space;
use parking_lot::Mutex;

use crate::collection::Listener;

/// The number of parts of the table, each with a lock of its own.
const SHARDS: usize = 64;

/// A key of the store: its space and its bytes.
pub type LockedKey = (Space, Box<[u8]>);

/// The owner of each locked key, by space.
type Shard = [HashMap<Box<[u8]>, u64>; Space::ALL.len()];

/// The table of locked keys.
pub(crate) struct Locks {
    count: AtomicUsize,
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    /// The number of listeners that wait for keys.
    listeners: AtomicUsize,
    /// The number of waits so far.
    waits: AtomicU64,
    waiting: Mutex<HashMap<LockedKey, Vec<Listener>>>,
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            count: AtomicUsize::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            listeners: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }
}

impl Locks {
    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// The number of waits for keys so far.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Returns whether any key is locked.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// The first of `keys`, whose latches the caller holds, that a transaction has locked.
    #[inline]
    pub(crate) fn held_of(&self, keys: &[(Space, &[u8])]) -> Option<LockedKey> {
        if self.any() { self.find_held(keys) } else { None }
    }

    fn find_held(&self, keys: &[(Space, &[u8])]) -> Option<LockedKey> {
        let held = keys.iter().find(|&&(space, key)| self.holds(space, key));
        held.map(|&(space, key)| (space, Box::from(key)))
    }

    fn holds(&self, space: Space, key: &[u8]) -> bool {
        self.shard(key).lock()[space as usize].contains_key(key)
    }

    /// Calls `listener` once the key is released; at once if it is not locked.
    pub(crate) fn when_released(&self, key: LockedKey, listener: Listener) {
        let mut waiting = self.waiting.lock();
        // From now on a release of the key sees that there are listeners.
        self.listeners.fetch_add(1, Ordering::SeqCst);
        if self.holds(key.0, &key.1) {
            self.waits.fetch_add(1, Ordering::Relaxed);
            waiting.entry(key).or_default().push(listener);
            return;
        }
        self.listeners.fetch_sub(1, Ordering::SeqCst);
        drop(waiting);
        listener();
    }

    /// Waits until the key is released, or until the timeout.
    pub(crate) fn wait(&self, key: LockedKey, time: Duration) {
        let (tell, released) = mpsc::sync_channel::<()>(1);
        self.when_released(key, Box::new(move || drop(tell)));
        // The caller checks again in either case.
        let _ = released.recv_timeout(time);
    }

    /// Returns whether a transaction other than `owner` has locked a key.
    pub(crate) fn is_anothers(&self, owner: u64, (space, key): (Space, &[u8])) -> bool {
        self.shard(key).lock()[space as usize].get(key).is_some_and(|&other| other != owner)
    }

    /// Locks a key for the transaction `owner`. Returns whether the lock is new, and `None` if
    /// another transaction holds it.
    pub(crate) fn claim(&self, owner: u64, (space, key): (Space, &[u8])) -> Option<bool> {
        let shard = &mut self.shard(key).lock()[space as usize];
        match shard.get(key) {
            Some(&other) if other != owner => None,
            Some(_) => Some(false),
            None => {
                shard.insert(Box::from(key), owner);
                self.count.fetch_add(1, Ordering::Relaxed);
                Some(true)
            }
        }
    }

    /// Releases keys that a transaction has locked.
    pub(crate) fn release(&self, keys: &[LockedKey]) {
        for (space, key) in keys {
            let held = self.shard(key).lock()[*space as usize].remove(key);
            assert!(held.is_some(), "a key that is released was locked");
        }
        self.count.fetch_sub(keys.len(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.listeners.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut released = Vec::new();
        {
            let mut waiting = self.waiting.lock();
            for key in keys {
                released.extend(waiting.remove(key).into_iter().flatten());
            }
        }
        self.listeners.fetch_sub(released.len(), Ordering::SeqCst);
        released.into_iter().for_each(|listener| listener());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_transactions_until_it_is_released() {
        let locks = Locks::default();
        let key = (Space::Records, &b"k"[..]);
        assert_eq!(locks.held_of(&[key]), None);
        assert_eq!(locks.claim(1, key), Some(true));
        assert_eq!(locks.claim(1, key), Some(false));
        assert_eq!(locks.claim(2, key), None);
        assert_eq!(locks.claim(2, (Space::Indexes, b"k")), Some(true));
        let held = locks.held_of(&[(Space::Records, b"other"), key]);
        assert_eq!(held, Some((Space::Records, Box::from(&b"k"[..]))));
        locks.release(&[(Space::Records, Box::from(&b"k"[..]))]);
        assert_eq!(locks.claim(2, key), Some(true));
        assert!(locks.any());
    }

    #[test]
    fn who_waits_for_a_key_is_told_of_its_release() {
        let locks = Locks::default();
        let key = || (Space::Records, Box::from(&b"k"[..]));
        let (tell, released) = mpsc::channel();
        let listener = |number: u32| {
            let tell = tell.clone();
            Box::new(move || tell.send(number).expect("the test listens")) as Listener
        };
        locks.when_released(key(), listener(1));
        assert_eq!(released.try_recv(), Ok(1));
        assert_eq!(locks.claim(1, (Space::Records, b"k")), Some(true));
        locks.when_released(key(), listener(2));
        locks.when_released(key(), listener(3));
        assert!(released.try_recv().is_err());
        locks.release(&[key()]);
        assert_eq!([released.try_recv(), released.try_recv()], [Ok(2), Ok(3)]);
        assert_eq!(locks.listeners.load(Ordering::SeqCst), 0);
        assert!(locks.waiting.lock().is_empty());
    }
}
