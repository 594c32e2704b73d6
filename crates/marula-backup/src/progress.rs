//! How far a backup or a restore is. Shared between the threads that work and one that shows it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far it is, in bytes of the plain files.
#[derive(Default, Debug)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
    sent: AtomicU64,
    objects: AtomicU64,
    is_ended: AtomicBool,
}

impl Progress {
    /// Bytes of all files.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes that need no more work.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes that have travelled: compressed, encrypted.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Objects that have travelled.
    pub fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// Tells the work to end as soon as it can.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }

    /// Whether the work was told to end.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        for counter in [&self.done, &self.sent, &self.objects] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_done(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        self.objects.fetch_add(1, Ordering::Relaxed);
    }
}
