//! The progress of a backup or a restore, shared between the working threads and a thread that
//! shows it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::pace::Pace;

/// The progress in bytes of the plain files.
#[derive(Default, Debug)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
    sent: AtomicU64,
    objects: AtomicU64,
    is_ended: AtomicBool,
    pace: Option<Pace>,
}

impl Progress {
    /// The progress of a backup that rests while the process is busy with other work.
    pub fn beside_others() -> Progress {
        Progress { pace: Some(Pace::default()), ..Progress::default() }
    }

    /// Returns the total size of the files in bytes.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that are finished.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes sent, compressed and encrypted.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of objects sent.
    pub fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// Cancels the work; it ends as soon as possible.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }

    /// Returns whether the work was cancelled.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    pub(crate) fn pace(&self) -> Option<&Pace> {
        self.pace.as_ref()
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
