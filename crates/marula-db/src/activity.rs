//! What the database does beside its clients, counted for diagnostics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters, since the start.
#[derive(Default, Debug)]
pub struct Activity {
    /// Builds of indexes that sort entries before they are stored.
    pub bulk_builds: Count,
    /// Sorted runs that such builds put aside for want of memory.
    pub spilled_runs: Count,
    /// Bytes of these runs.
    pub spilled_bytes: Count,
    /// How often entries at the oplog's old end were removed.
    pub oplog_trims: Count,
    /// The time that took, in microseconds.
    pub oplog_trim_us: Count,
}

/// One counter.
#[derive(Default, Debug)]
pub struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
