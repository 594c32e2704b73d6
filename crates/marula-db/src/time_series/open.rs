//! Which bucket of each meta value takes further measurements, and how buckets came and went.
//!
//! This is memory alone: after a start every meta value begins a new bucket. What is remembered is
//! only where to try; the bucket's document decides whether a measurement still fits.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::bucket::Full;
use crate::keys::RecordKey;

/// So many meta values are remembered; beyond, all are forgotten and begin anew.
const OPEN_MAX: usize = 100_000;
/// Inserts of so many meta values go on side by side.
const LANES: usize = 64;

/// The open buckets of a collection.
pub struct OpenBuckets {
    records: Mutex<HashMap<Box<[u8]>, RecordKey>>,
    lanes: [Mutex<()>; LANES],
    /// What has happened since the start.
    pub counters: Counters,
}

/// How buckets came and went since the start, as `collStats` shows it.
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
        counter.fetch_add(i64::try_from(count).unwrap_or(i64::MAX), Ordering::Relaxed);
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
    /// Waits until no one else adds measurements of this meta value. Without it, inserts side by
    /// side would each begin a bucket of their own.
    pub fn lane(&self, meta: &[u8]) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        meta.hash(&mut hasher);
        let lane = usize::try_from(hasher.finish() % LANES as u64).unwrap_or(0);
        self.lanes[lane].lock()
    }

    /// The bucket that takes measurements of this meta value.
    pub fn get(&self, meta: &[u8]) -> Option<RecordKey> {
        self.records.lock().get(meta).cloned()
    }

    /// Notes a new bucket.
    pub fn opened(&self, meta: &[u8], record: RecordKey) {
        let mut records = self.records.lock();
        if records.len() >= OPEN_MAX {
            Counters::add(&self.counters.closed_due_to_memory, records.len());
            records.clear();
        }
        records.insert(meta.into(), record);
    }

    /// Forgets a bucket, which takes no more; `why` is not known where its document is gone.
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
