//! The keys that open transactions have written, or decide by.
//!
//! Latches are for writes of one moment and cover stripes of keys; a client's transaction may stay
//! open for a minute and hold a hundred thousand documents. So its keys are locked one by one,
//! here. Whoever claims a key holds its latch for that moment, and so does an ordinary writer from
//! its guard to its commit: the two cannot pass each other by. While no transaction is open, a
//! writer looks at one number.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use marula_storage::Space;
use parking_lot::Mutex;

/// Parts of the table, each behind a lock of its own.
const SHARDS: usize = 64;

/// A key of the store: its space, and its bytes.
pub(crate) type LockedKey = (Space, Box<[u8]>);

/// Who has locked which keys, space by space.
type Shard = [HashMap<Box<[u8]>, u64>; Space::ALL.len()];

/// The table of locked keys.
pub(crate) struct Locks {
    count: AtomicUsize,
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            count: AtomicUsize::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
        }
    }
}

impl Locks {
    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// Whether any key is locked.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Whether a transaction has locked one of `keys`, whose latches the caller holds.
    #[inline]
    pub(crate) fn holds_any(&self, keys: &[(Space, &[u8])]) -> bool {
        self.any()
            && keys
                .iter()
                .any(|&(space, key)| self.shard(key).lock()[space as usize].contains_key(key))
    }

    /// Locks a key for the transaction `owner`. Answers whether it is its own now, and was not
    /// before; `None` where it is another's.
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

    /// Lets go of keys that a transaction has claimed.
    pub(crate) fn release(&self, keys: &[LockedKey]) {
        for (space, key) in keys {
            let held = self.shard(key).lock()[*space as usize].remove(key);
            assert!(held.is_some(), "a key that is released was locked");
        }
        self.count.fetch_sub(keys.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_transactions_until_it_is_released() {
        let locks = Locks::default();
        let key = (Space::Records, &b"k"[..]);
        assert!(!locks.holds_any(&[key]));
        assert_eq!(locks.claim(1, key), Some(true));
        assert_eq!(locks.claim(1, key), Some(false));
        assert_eq!(locks.claim(2, key), None);
        assert_eq!(locks.claim(2, (Space::Indexes, b"k")), Some(true));
        assert!(locks.holds_any(&[(Space::Records, b"other"), key]));
        locks.release(&[(Space::Records, Box::from(&b"k"[..]))]);
        assert_eq!(locks.claim(2, key), Some(true));
        assert!(locks.any());
    }
}
