//! The plan cache of a collection: the plan that won for the queries of one shape, as mongod's
//! classic engine stores it.
//!
//! ```text
//!   first trial ──► inactive ── a trial needs no more work than it has ──► active: used untried
//!                    ▲    │                                                  │
//!                    │    └─ a trial needs more: its bound doubles           │
//!                    └────────── its plan needs ten times its work ──────────┘
//! ```
//!
//! An entry holds for one state of the collection: a change of its indexes or options ends it. The
//! layer above chooses plans and makes the entries; this module keeps them with the collection.
//! Source: manual "Query Plans"; numbers as `$planCacheStats` of mongod 6.0 shows them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use marula_bson::{DocBuf, Value, long};
use parking_lot::Mutex;

use crate::collection::State;
use crate::index_filter::IndexFilters;
use crate::keys::Ident;

/// The number of shapes that are remembered of one collection; beyond it all are forgotten.
const ENTRIES_MAX: usize = 5_000;

/// An active plan that needs this many times the work of its trial is tried again.
const REPLAN_RATIO: u64 = 10;

/// The factor by which the bound of an inactive entry grows.
const WORKS_GROWTH: u64 = 2;

/// The size of an entry in addition to its documents, in `estimatedSizeBytes`.
const ENTRY_BYTES: usize = 256;

/// The number of places for the durations of queries.
const DURATIONS: usize = 32;

/// The shape of a query, and the part of it that matters for plans.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueryShape {
    /// Equal for all queries of the shape.
    pub query: u64,
    /// Equal for queries of the shape that the same indexes can serve.
    pub plan: u64,
    /// Documents are counted and not returned.
    pub is_count: bool,
}

/// Formats the hash of a shape as users see it: eight hexadecimal digits.
pub fn hash_text(shape: u64) -> String {
    format!("{:08X}", (shape >> 32) ^ (shape & 0xFFFF_FFFF))
}

/// The plans that are remembered of a collection, and the index filters that an operator has set.
#[derive(Default)]
pub struct PlanCache {
    entries: Mutex<HashMap<QueryShape, Entry>>,
    /// Whether some entry has been active since all were forgotten.
    has_active: AtomicBool,
    /// The index filters.
    pub filters: IndexFilters,
    /// The durations of the last queries in microseconds, by a part of their shapes' hashes.
    durations: [AtomicU32; DURATIONS],
}

/// The result of a trial: the plan that has won, and how all of them did.
pub struct Learned {
    /// The indexes and stages of the plan.
    pub signature: u64,
    /// The indexes of the plan.
    pub indexes: Arc<[Ident]>,
    /// Query, sort, projection and collation of the query that was tried.
    pub asked: DocBuf,
    /// The plan, as `cachedPlan` shows it.
    pub plan: DocBuf,
    /// The work of each plan in the trial, the winner first, as `creationExecStats` shows it.
    pub tried: Vec<DocBuf>,
    /// The scores in the same order.
    pub scores: Vec<f64>,
    /// Whether an index filter applied.
    pub is_filtered: bool,
}

/// The plan that did best for a shape.
struct Entry {
    /// The collection's options and indexes at the time.
    state: Weak<State>,
    is_active: bool,
    works: u64,
    made: SystemTime,
    learned: Learned,
    _held: Held,
}

static BYTES: AtomicU64 = AtomicU64::new(0);

/// Returns the approximate size of the plan caches of all collections in bytes.
pub fn plan_cache_bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

/// The size of an entry, counted while the entry exists.
struct Held(u64);

impl Held {
    fn new(learned: &Learned) -> Self {
        let bytes = learned.documents_bytes() as u64;
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        Held(bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// The plan that an active entry has for its shape.
pub struct KnownPlan {
    /// The indexes and stages of the plan.
    pub signature: u64,
    /// The indexes of the plan.
    pub indexes: Arc<[Ident]>,
    /// The shape, and the amount of work from which on the plan is tried again.
    pub cached: Cached,
}

/// The origin of a plan that was taken from the cache.
#[derive(Clone, Copy)]
pub struct Cached {
    /// The shape that it was cached for.
    pub shape: QueryShape,
    /// The units of work from which on it is tried again.
    pub works_max: u64,
}

impl PlanCache {
    /// Forgets all plans, or those of one shape of queries.
    pub fn clear(&self, shape: Option<u64>) {
        let mut entries = self.entries.lock();
        entries.retain(|known, _| shape.is_some_and(|shape| known.query != shape));
        let has_active = entries.values().any(|entry| entry.is_active);
        self.has_active.store(has_active, Ordering::Relaxed);
    }

    /// Returns whether some shape may have a plan that is taken untried.
    #[inline]
    pub fn has_active(&self) -> bool {
        self.has_active.load(Ordering::Relaxed)
    }

    /// The plan to take untried.
    pub fn find(&self, shape: QueryShape, state: &Arc<State>) -> Option<KnownPlan> {
        let entries = self.entries.lock();
        let entry = entries.get(&shape).filter(|entry| entry.is_active && entry.is_of(state))?;
        let cached = Cached { shape, works_max: entry.works.saturating_mul(REPLAN_RATIO) };
        let Learned { signature, indexes, .. } = &entry.learned;
        Some(KnownPlan { signature: *signature, indexes: indexes.clone(), cached })
    }

    /// The duration of the last query whose shape has this hash, or of one that shares its place;
    /// zero if there was none.
    pub fn last_duration(&self, shape: u64) -> Duration {
        let micros = self.durations[shape as usize % DURATIONS].load(Ordering::Relaxed);
        Duration::from_micros(micros.into())
    }

    /// Notes the duration of a query, or a bound that it would have exceeded.
    pub fn note_duration(&self, shape: u64, duration: Duration) {
        let micros = u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        self.durations[shape as usize % DURATIONS].store(micros, Ordering::Relaxed);
    }

    /// Makes the next query of a shape try its plans.
    pub fn deactivate(&self, shape: QueryShape) {
        if let Some(entry) = self.entries.lock().get_mut(&shape) {
            entry.is_active = false;
        }
    }

    /// Notes a trial whose winner needed `works` units of work. `learn` is called if the cache
    /// takes its result; it gets the query that the shape's entry was made for, if there is one.
    pub fn note_trial(
        &self,
        shape: QueryShape,
        state: &Arc<State>,
        works: u64,
        learn: impl FnOnce(Option<&DocBuf>) -> Learned,
    ) {
        let mut entries = self.entries.lock();
        let known = entries.get_mut(&shape).filter(|entry| entry.is_of(state));
        let is_active = match known {
            Some(entry) if works > entry.works => {
                entry.works = entry.works.saturating_mul(WORKS_GROWTH).max(entry.works + 1);
                entry.made = SystemTime::now();
                return;
            }
            Some(_) => true,
            None => false,
        };
        if entries.len() >= ENTRIES_MAX {
            entries.clear();
        }
        let learned = learn(entries.get(&shape).map(|entry| &entry.learned.asked));
        if is_active {
            self.has_active.store(true, Ordering::Relaxed);
        }
        let entry = Entry {
            _held: Held::new(&learned),
            state: Arc::downgrade(state),
            is_active,
            works,
            made: SystemTime::now(),
            learned,
        };
        entries.insert(shape, entry);
    }

    /// The entries as `$planCacheStats` shows them, without `host`.
    pub fn report(&self, state: &Arc<State>) -> Vec<DocBuf> {
        let entries = self.entries.lock();
        let known = entries.iter().filter(|(_, entry)| entry.is_of(state));
        known.map(|(shape, entry)| entry.describe(*shape)).collect()
    }
}

impl Learned {
    fn documents_bytes(&self) -> usize {
        let documents = [&self.asked, &self.plan].into_iter().chain(&self.tried);
        documents.map(|doc| doc.as_doc().as_bytes().len()).sum()
    }
}

impl Entry {
    fn is_of(&self, state: &Arc<State>) -> bool {
        std::ptr::eq(self.state.as_ptr(), Arc::as_ptr(state))
    }

    fn describe(&self, shape: QueryShape) -> DocBuf {
        let made = self.made.duration_since(UNIX_EPOCH).map_or(0, |made| made.as_millis() as u64);
        let learned = &self.learned;
        DocBuf::build(|out| {
            out.append("version", "1");
            out.append("queryHash", hash_text(shape.query).as_str());
            out.append("planCacheKey", hash_text(shape.plan).as_str());
            out.append("isActive", self.is_active);
            out.append("works", long(self.works));
            out.append("timeOfCreation", Value::DateTime(long(made)));
            out.append("createdFromQuery", &learned.asked);
            out.append("cachedPlan", &learned.plan);
            let mut tried = out.begin_array("creationExecStats");
            learned.tried.iter().for_each(|plan| {
                tried.push(plan);
            });
            tried.finish();
            let mut scores = out.begin_array("candidatePlanScores");
            learned.scores.iter().for_each(|score| {
                scores.push(*score);
            });
            scores.finish();
            out.append("indexFilterSet", learned.is_filtered);
            let bytes = (learned.documents_bytes() + ENTRY_BYTES) as u64;
            out.append("estimatedSizeBytes", long(bytes));
        })
    }
}
