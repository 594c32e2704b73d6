//! The plan cache: which plan has won for queries of one shape, as mongod's classic engine keeps
//! it.
//!
//! An entry is made *inactive* by the first trial. Once another trial needs no more units of work
//! than the entry has, it becomes *active*, and queries of its shape take its plan untried. A trial
//! that needs more doubles what the entry allows. An active plan that comes to need ten times the
//! work is tried anew. Everything is forgotten when the collection's indexes or options change.
//! Source: manual "Query Plans"; numbers as `$planCacheStats` of mongod 6.0 shows them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use marula_bson::{Doc, DocBuf, Value};
use marula_db::Collection;
use marula_db::collection::State;
use marula_db::keys::Ident;
use parking_lot::Mutex;

use crate::explain::{self, Printed, append_count};
use crate::index_filter::IndexFilters;
use crate::plan::{Plan, Stage};
use crate::query::{Query, Wording};
use crate::shape::{Shape, hash_text};
use crate::trial::{Trial, Tried};

/// How many shapes are remembered of one collection; beyond, all are forgotten.
const ENTRIES_MAX: usize = 5_000;

/// An active plan that needs so many times the work it needed is tried anew.
const REPLAN_RATIO: u64 = 10;

/// By so much grows what an inactive entry allows.
const WORKS_GROWTH: u64 = 2;

/// Documents after which a plan has shown that it does. Source: as in a trial.
pub(crate) const PROVEN_BY: u64 = 101;

/// What an entry takes beside its documents, in `estimatedSizeBytes`.
const ENTRY_BYTES: usize = 256;

/// What is remembered of a collection's plans, and the filters that an operator has set.
#[derive(Default)]
pub struct PlanCache {
    entries: Mutex<HashMap<Shape, Entry>>,
    /// Whether some entry has been active since all were forgotten.
    has_active: AtomicBool,
    /// The index filters.
    pub filters: IndexFilters,
    /// How many microseconds queries took last, by their shapes: those that share a place guess
    /// each other's.
    took: [AtomicU32; TOOK],
}

/// Places for what queries of a shape took last.
const TOOK: usize = 32;

/// The plan that did best for a shape.
struct Entry {
    /// The collection's options and indexes then.
    state: Weak<State>,
    is_active: bool,
    works: u64,
    made: SystemTime,
    /// The indexes and stages of the plan.
    signature: u64,
    /// The indexes of the plan.
    indexes: Arc<[Ident]>,
    /// Query, sort, projection and collation of the query that made it.
    asked: DocBuf,
    plan: DocBuf,
    /// What each plan had done in the trial, the winner first.
    tried: Vec<DocBuf>,
    scores: Vec<f64>,
    is_filtered: bool,
    _held: Held,
}

static BYTES: AtomicU64 = AtomicU64::new(0);

/// About how many bytes the plan caches of all collections hold.
pub fn plan_cache_bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

/// Bytes of an entry, counted as long as it is there.
struct Held(u64);

impl Held {
    fn new(documents: &[&DocBuf], tried: &[DocBuf]) -> Self {
        let all = documents.iter().copied().chain(tried);
        let bytes = all.map(|doc| doc.as_doc().as_bytes().len() as u64).sum();
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        Held(bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// What an active entry knows of the plan for its shape.
pub(crate) struct KnownPlan {
    /// The indexes and stages of the plan.
    pub(crate) signature: u64,
    /// The indexes of the plan.
    pub(crate) indexes: Arc<[Ident]>,
    /// What it may cost.
    pub(crate) cached: Cached,
}

/// A plan from the cache, with the work limit that has it tried again.
#[derive(Clone, Copy)]
pub struct Cached {
    pub(crate) shape: Shape,
    pub(crate) works_max: u64,
}

impl PlanCache {
    /// What is remembered of `collection`.
    pub fn of(collection: &Collection) -> Arc<PlanCache> {
        collection.memory().unwrap_or_default()
    }

    /// Forgets all plans, or those of one shape of queries.
    pub fn clear(&self, shape: Option<u64>) {
        let mut entries = self.entries.lock();
        entries.retain(|known, _| shape.is_some_and(|shape| known.query != shape));
        let has_active = entries.values().any(|entry| entry.is_active);
        self.has_active.store(has_active, Ordering::Relaxed);
    }

    /// Whether some shape may have a plan that is taken untried.
    #[inline]
    pub(crate) fn has_active(&self) -> bool {
        self.has_active.load(Ordering::Relaxed)
    }

    /// The plan to take untried, and what it may cost.
    pub(crate) fn find(&self, shape: Shape, state: &Arc<State>) -> Option<KnownPlan> {
        let entries = self.entries.lock();
        let entry = entries.get(&shape).filter(|entry| entry.is_active && entry.is_of(state))?;
        let cached = Cached { shape, works_max: entry.works.saturating_mul(REPLAN_RATIO) };
        let Entry { signature, indexes, .. } = entry;
        Some(KnownPlan { signature: *signature, indexes: indexes.clone(), cached })
    }

    /// How long the last query of a shape took; no time where that is not known.
    pub(crate) fn took(&self, shape: u64) -> Duration {
        Duration::from_micros(self.took[shape as usize % TOOK].load(Ordering::Relaxed).into())
    }

    /// Notes how long a query of a shape has taken, or that it would have taken longer.
    pub(crate) fn note_took(&self, shape: u64, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.took[shape as usize % TOOK].store(micros, Ordering::Relaxed);
    }

    /// Has the next query of a shape try its plans.
    pub(crate) fn deactivate(&self, shape: Shape) {
        if let Some(entry) = self.entries.lock().get_mut(&shape) {
            entry.is_active = false;
        }
    }

    /// Notes how a trial has ended.
    pub(crate) fn record(
        &self,
        shape: Shape,
        state: &Arc<State>,
        query: &Query,
        wording: Option<&Wording<'_>>,
        trial: &Trial,
        signature: u64,
    ) {
        let works = trial.tried[trial.winner].run.stats.works;
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
        let asked = match (wording, entries.get(&shape)) {
            (None, Some(entry)) => entry.asked.clone(),
            (wording, _) => asked(query, wording.unwrap_or(&Wording::default())),
        };
        let mut order: Vec<usize> = (0..trial.tried.len()).collect();
        order.sort_by(|&a, &b| {
            let is_winner = |number| number == trial.winner;
            let score = |number: usize| trial.tried[number].score;
            is_winner(b).cmp(&is_winner(a)).then(score(b).total_cmp(&score(a)))
        });
        let sort = asked.as_doc().get("sort").and_then(|sort| sort.as_doc());
        let printed = Printed {
            sort: sort.unwrap_or(Doc::EMPTY),
            projection: Doc::EMPTY,
            has_run: true,
            sorts_records: false,
        };
        let tried = order.iter().map(|&number| {
            let Tried { plan, run, .. } = &trial.tried[number];
            let examined = run.examined(&plan.root);
            DocBuf::build(|out| {
                append_count(out, "nReturned", run.stats.advanced);
                out.append("executionTimeMillisEstimate", 0);
                append_count(out, "totalKeysExamined", examined.keys);
                append_count(out, "totalDocsExamined", examined.docs);
                out.append("executionStages", &explain::tree(plan, Some(run), &printed));
            })
        });
        let winner = &trial.tried[trial.winner].plan;
        let tried: Vec<DocBuf> = tried.collect();
        let plan = explain::tree(winner, None, &Printed { has_run: false, ..printed });
        if is_active {
            self.has_active.store(true, Ordering::Relaxed);
        }
        let entry = Entry {
            _held: Held::new(&[&asked, &plan], &tried),
            state: Arc::downgrade(state),
            is_active,
            works,
            made: SystemTime::now(),
            signature,
            indexes: indexes_of(winner),
            plan,
            tried,
            scores: order.iter().map(|&number| trial.tried[number].score).collect(),
            is_filtered: query.allowed.is_some(),
            asked,
        };
        entries.insert(shape, entry);
    }

    /// The entries as `$planCacheStats` shows them, but for `host`.
    pub fn report(&self, state: &Arc<State>) -> Vec<DocBuf> {
        let entries = self.entries.lock();
        let known = entries.iter().filter(|(_, entry)| entry.is_of(state));
        known.map(|(shape, entry)| entry.describe(*shape)).collect()
    }
}

impl Entry {
    fn is_of(&self, state: &Arc<State>) -> bool {
        std::ptr::eq(self.state.as_ptr(), Arc::as_ptr(state))
    }

    fn describe(&self, shape: Shape) -> DocBuf {
        let long = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let made = self.made.duration_since(UNIX_EPOCH).map_or(0, |made| made.as_millis() as u64);
        let documents = [&self.asked, &self.plan].into_iter().chain(&self.tried);
        let bytes: usize = documents.map(|doc| doc.as_doc().as_bytes().len()).sum();
        DocBuf::build(|out| {
            out.append("version", "1");
            out.append("queryHash", hash_text(shape.query).as_str());
            out.append("planCacheKey", hash_text(shape.plan).as_str());
            out.append("isActive", self.is_active);
            out.append("works", long(self.works));
            out.append("timeOfCreation", Value::DateTime(long(made)));
            out.append("createdFromQuery", &self.asked);
            out.append("cachedPlan", &self.plan);
            let mut tried = out.begin_array("creationExecStats");
            self.tried.iter().for_each(|plan| {
                tried.push(plan);
            });
            tried.finish();
            let mut scores = out.begin_array("candidatePlanScores");
            self.scores.iter().for_each(|score| {
                scores.push(*score);
            });
            scores.finish();
            out.append("indexFilterSet", self.is_filtered);
            out.append("estimatedSizeBytes", long((bytes + ENTRY_BYTES) as u64));
        })
    }
}

/// The indexes that a plan walks, each once.
fn indexes_of(plan: &Plan) -> Arc<[Ident]> {
    let mut idents = Vec::new();
    plan.root.walk(&mut |stage| {
        if let Stage::Ixscan(scan) = stage
            && !idents.contains(&scan.index.ident)
        {
            idents.push(scan.index.ident);
        }
    });
    idents.into()
}

/// What a query asks, as the client wrote it.
///
/// Shape: `{ query, sort, projection, [collation] }`.
pub fn asked(query: &Query, wording: &Wording<'_>) -> DocBuf {
    DocBuf::build(|out| {
        match wording.filter {
            Some(filter) => out.append("query", filter),
            None => out.append("query", &query.filter.to_doc()),
        };
        out.append("sort", wording.sort.unwrap_or(Doc::EMPTY));
        out.append("projection", wording.projection.unwrap_or(Doc::EMPTY));
        if let Some(collation) = &query.context.collation {
            out.append("collation", collation.to_doc());
        }
    })
}
