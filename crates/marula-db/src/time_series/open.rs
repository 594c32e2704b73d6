//! The open buckets of a collection by meta value, and counters of opened and closed buckets.
//!
//! This state is in memory only: after a restart every meta value begins a new bucket. An entry
//! only says which bucket to try; the bucket's document decides whether a measurement still fits.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};

use marula_bson::long;
use parking_lot::{Mutex, MutexGuard};

use super::bucket::Full;
use crate::keys::RecordKey;

/// The maximum number of open buckets; beyond it, all are forgotten.
const OPEN_MAX: usize = 100_000;
/// The number of meta values that can be inserted concurrently.
const LANES: usize = 64;

/// The open buckets of a collection.
pub struct OpenBuckets {
    records: Mutex<HashMap<Box<[u8]>, RecordKey>>,
    lanes: [Mutex<()>; LANES],
    /// Counters since the start of the server.
    pub counters: Counters,
}

/// Counters of opened and closed buckets since the start of the server, as shown by `collStats`.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Counters {
    pub bucket_inserts: AtomicI64,
    pub bucket_updates: AtomicI64,
    pub opened_due_to_metadata: AtomicI64,
    pub closed_due_to_count: AtomicI64,
    pub closed_due_to_schema: AtomicI64,
    pub closed_due_to_size: AtomicI64,
    pub closed_due_to_time_forward: AtomicI64,
    pub closed_due_to_time_backward: AtomicI64,
    pub closed_due_to_memory: AtomicI64,
    pub measurements: AtomicI64,
}

impl Counters {
    /// Adds to a counter.
    pub fn add(counter: &AtomicI64, count: usize) {
        counter.fetch_add(long(count), Ordering::Relaxed);
    }
}

impl Default for OpenBuckets {
    fn default() -> Self {
        OpenBuckets {
            records: Mutex::default(),
            lanes: std::array::from_fn(|_| Mutex::new(())),
            counters: Counters::default(),
        }
    }
}

impl OpenBuckets {
    /// Locks a meta value against concurrent inserts. Without the lock each of them would begin a
    /// bucket of its own.
    pub fn lane(&self, meta: &[u8]) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        meta.hash(&mut hasher);
        let lane = usize::try_from(hasher.finish() % LANES as u64).unwrap_or(0);
        self.lanes[lane].lock()
    }

    /// The open bucket of this meta value.
    pub fn get(&self, meta: &[u8]) -> Option<RecordKey> {
        self.records.lock().get(meta).cloned()
    }

    /// Registers a new bucket.
    pub fn opened(&self, meta: &[u8], record: RecordKey) {
        let mut records = self.records.lock();
        if records.len() >= OPEN_MAX {
            Counters::add(&self.counters.closed_due_to_memory, records.len());
            records.clear();
        }
        records.insert(meta.into(), record);
    }

    /// Forgets a bucket that is full; `why` is `None` if its document is gone.
    pub fn closed(&self, meta: &[u8], why: Option<Full>) {
        self.records.lock().remove(meta);
        let counters = &self.counters;
        let counter = match why {
            Some(Full::Count) => &counters.closed_due_to_count,
            Some(Full::Schema) => &counters.closed_due_to_schema,
            Some(Full::Size) => &counters.closed_due_to_size,
            Some(Full::TimeForward) => &counters.closed_due_to_time_forward,
            Some(Full::TimeBackward) => &counters.closed_due_to_time_backward,
            None => return,
        };
        Counters::add(counter, 1);
    }
}
