//! A write that meets a key locked by a client's open transaction.
//!
//! It waits for the end of the transaction, which may take minutes. As long as its request has
//! written nothing, it is abandoned with [`Error::postponed`](marula_error::Error::postponed), and
//! the request runs again when the key is free: no thread waits. Afterwards it waits on its thread.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::transaction::locks::LockedKey;

/// Whether the writes of an operation may be abandoned, and the locked key that the last one met.
///
/// Only the thread that runs the operation uses it.
#[derive(Default)]
pub struct Parking {
    is_allowed: AtomicBool,
    locked: Mutex<Option<LockedKey>>,
}

impl Parking {
    /// Begins an operation that has written nothing.
    pub fn begin(&self, is_allowed: bool) {
        self.is_allowed.store(is_allowed, Ordering::Relaxed);
        if is_allowed {
            *self.locked.lock() = None;
        }
    }

    /// From now on, writes wait on their thread.
    #[inline]
    pub fn forbid(&self) {
        self.is_allowed.store(false, Ordering::Relaxed);
    }

    /// The locked key for which the operation was abandoned.
    pub fn end(&self) -> Option<LockedKey> {
        self.is_allowed().then(|| self.take_locked()).flatten()
    }

    /// Returns whether a write may be abandoned.
    pub(crate) fn is_allowed(&self) -> bool {
        self.is_allowed.load(Ordering::Relaxed)
    }

    /// Records that a write has met a locked key.
    #[cold]
    pub(crate) fn note_locked(&self, key: LockedKey) {
        *self.locked.lock() = Some(key);
    }

    /// The locked key that the last attempt of a write has met.
    pub(crate) fn take_locked(&self) -> Option<LockedKey> {
        self.locked.lock().take()
    }

    /// Returns whether a write has met a locked key, and may be abandoned.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_allowed() && self.locked.lock().is_some()
    }
}
