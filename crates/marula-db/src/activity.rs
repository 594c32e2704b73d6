//! Counters of background work, for diagnostics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters since the start of the server.
#[derive(Default, Debug)]
pub struct Activity {
    /// Index builds that sort entries before they are stored.
    pub bulk_builds: Count,
    /// Sorted runs that index builds spilled to the store for lack of memory.
    pub spilled_runs: Count,
    /// Bytes of the spilled runs.
    pub spilled_bytes: Count,
    /// The number of times entries at the start of the oplog were removed.
    pub oplog_trims: Count,
    /// The total time of these removals in microseconds.
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
