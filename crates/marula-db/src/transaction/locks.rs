//! The keys that open transactions have written or guarded.
//!
//! ```text
//!   ordinary write   latch ─► note: key locked? ─► read ─► commit ─► release latch
//!                                                   │ it was: WriteConflict, waits for its release
//!   transaction      latch ─► lock key ─► release latch … (statements) … commit ─► release locks
//! ```
//!
//! Latches protect writes of one moment and cover stripes of keys; a client's transaction may stay
//! open for a minute and hold a hundred thousand documents. So its keys are locked one by one,
//! here. A transaction holds a key's latch while it locks the key, and an ordinary writer holds it
//! from its guard to its commit, so neither can miss the other. A transaction commits without
//! latches, so the writer looks before it reads. While no transaction is open, it checks one
//! counter.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc;
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use marula_storage::Space;
use parking_lot::Mutex;

use crate::collection::Listener;

/// The number of parts of the table, each with a lock of its own.
const SHARDS: usize = 64;

/// A key of the store: its space and its bytes.
pub type LockedKey = (Space, Arc<[u8]>);

/// A locked key, which its owner and the table share.
#[derive(Clone)]
pub(crate) struct Lock {
    pub(crate) key: LockedKey,
    hash: u64,
    owner: u64,
}

impl Lock {
    fn is_of(&self, (space, key): (Space, &[u8])) -> bool {
        self.key.0 == space && *self.key.1 == *key
    }
}

/// The outcome of [`Locks::claim`].
pub(crate) enum Claim {
    /// The key has been locked.
    New(Lock),
    /// The same transaction has locked it before.
    Own,
    /// Another transaction has locked it.
    Anothers,
}

/// The table of locked keys.
pub(crate) struct Locks {
    count: AtomicUsize,
    shards: [Mutex<HashTable<Lock>>; SHARDS],
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
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Lock>> {
        // A hash table uses the lowest and the highest bits.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// The owner of a locked key.
    fn owner(&self, key: (Space, &[u8])) -> Option<u64> {
        let hash = self.hash(key.1);
        self.shard(hash).lock().find(hash, |lock| lock.is_of(key)).map(|lock| lock.owner)
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

    /// Those of `keys`, whose latches the caller holds, that transactions have locked.
    pub(crate) fn held_of(&self, keys: &[(Space, &[u8])]) -> impl Iterator<Item = LockedKey> {
        let held = keys.iter().filter(|&&key| self.owner(key).is_some());
        held.map(|&(space, key)| (space, Arc::from(key)))
    }

    /// Calls `listener` once the key is released; at once if it is not locked.
    pub(crate) fn when_released(&self, key: LockedKey, listener: Listener) {
        let mut waiting = self.waiting.lock();
        // From now on a release of the key sees that there are listeners.
        self.listeners.fetch_add(1, Ordering::SeqCst);
        if self.owner((key.0, &key.1)).is_some() {
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
    pub(crate) fn is_anothers(&self, owner: u64, key: (Space, &[u8])) -> bool {
        self.owner(key).is_some_and(|other| other != owner)
    }

    /// Locks a key for the transaction `owner`.
    pub(crate) fn claim(&self, owner: u64, key: (Space, &[u8])) -> Claim {
        let hash = self.hash(key.1);
        let mut shard = self.shard(hash).lock();
        match shard.entry(hash, |lock| lock.is_of(key), |lock| lock.hash) {
            Entry::Occupied(held) if held.get().owner != owner => Claim::Anothers,
            Entry::Occupied(_) => Claim::Own,
            Entry::Vacant(place) => {
                let lock = Lock { key: (key.0, Arc::from(key.1)), hash, owner };
                place.insert(lock.clone());
                self.count.fetch_add(1, Ordering::Relaxed);
                Claim::New(lock)
            }
        }
    }

    /// Releases the locks of a transaction.
    pub(crate) fn release(&self, locks: &[Lock]) {
        for lock in locks {
            let mut shard = self.shard(lock.hash).lock();
            let held = shard.find_entry(lock.hash, |held| Arc::ptr_eq(&held.key.1, &lock.key.1));
            held.ok().expect("a key that is released was locked").remove();
        }
        self.count.fetch_sub(locks.len(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.listeners.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut released = Vec::new();
        {
            let mut waiting = self.waiting.lock();
            for lock in locks {
                released.extend(waiting.remove(&lock.key).into_iter().flatten());
            }
        }
        self.listeners.fetch_sub(released.len(), Ordering::SeqCst);
        released.into_iter().for_each(|listener| listener());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(locks: &Locks, owner: u64, key: (Space, &[u8])) -> Lock {
        match locks.claim(owner, key) {
            Claim::New(lock) => lock,
            Claim::Own | Claim::Anothers => panic!("the key is locked"),
        }
    }

    #[test]
    fn a_key_is_one_transactions_until_it_is_released() {
        let locks = Locks::default();
        let key = (Space::Records, &b"k"[..]);
        assert_eq!(locks.held_of(&[key]).next(), None);
        let first = lock(&locks, 1, key);
        assert!(matches!(locks.claim(1, key), Claim::Own));
        assert!(matches!(locks.claim(2, key), Claim::Anothers));
        let other = lock(&locks, 2, (Space::Indexes, b"k"));
        let held: Vec<_> = locks.held_of(&[(Space::Records, b"other"), key]).collect();
        assert_eq!(held, [(Space::Records, Arc::from(&b"k"[..]))]);
        locks.release(&[first]);
        let second = lock(&locks, 2, key);
        assert!(locks.any());
        locks.release(&[other, second]);
        assert!(!locks.any());
    }

    #[test]
    fn who_waits_for_a_key_is_told_of_its_release() {
        let locks = Locks::default();
        let key = || (Space::Records, Arc::from(&b"k"[..]));
        let (tell, released) = mpsc::channel();
        let listener = |number: u32| {
            let tell = tell.clone();
            Box::new(move || tell.send(number).expect("the test listens")) as Listener
        };
        locks.when_released(key(), listener(1));
        assert_eq!(released.try_recv(), Ok(1));
        let held = lock(&locks, 1, (Space::Records, b"k"));
        locks.when_released(key(), listener(2));
        locks.when_released(key(), listener(3));
        assert!(released.try_recv().is_err());
        locks.release(&[held]);
        assert_eq!([released.try_recv(), released.try_recv()], [Ok(2), Ok(3)]);
        assert_eq!(locks.listeners.load(Ordering::SeqCst), 0);
        assert!(locks.waiting.lock().is_empty());
    }
}
