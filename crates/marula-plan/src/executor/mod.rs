//! The execution of a plan, batch by batch.
//!
//! ```text
//!   Execution::run(emit)                      one batch, until `emit` has enough
//!     └─ unit of work, again and again        returns a document, needs more time, or ends
//!          stage ──► its input ──► … ──► a scan, whose cursor reads the store
//!            ▲                            │
//!            └──── `Found`, borrowed ◄────┘     passed to the closure of the stage above
//! ```
//!
//! An [`Execution`] passes one document after another to the closure `emit`. Documents are in the
//! store's memory; `emit` copies those that it keeps. Between two batches an execution holds no
//! resources of the store, only its position; the next batch reads the current state from there.
//!
//! A plan is a tree of stages. Plans on trial are compared by their units of work (see
//! [`crate::trial`]), and `explain` counts them. The plan is shared and does not change; the state
//! of a run is a separate tree, [`StageRun`].

mod around;
mod density;
mod entry_doc;
mod intersect;
mod kept;
mod late;
mod merge;
mod near;
mod run;
mod scan;
mod short;
mod sort;
mod text;
mod walk;
mod work;

use std::sync::Arc;
use std::time::Instant;

use marula_bson::{Doc, DocBuf};
use marula_db::collection::Renames;
use marula_db::index::entry::{self, Entry};
use marula_db::unit::Examined;
use marula_db::{Collection, Index, RecordKey, Unit};
use marula_error::{Error, Result};

use crate::cache::PROVEN_BY;
use crate::plan::{GeoNear, Ixscan, Plan, Stage};
use crate::query::Query;
use crate::time_budget::TimeLimit;
use crate::trial::Tried;
use crate::{choice, tally};
pub(crate) use kept::{Kept, Room};
use marula_db::plan_cache::Cached;
pub(crate) use near::Round;
pub use run::{StageRun, Stats};
pub(crate) use work::{Env, SizeLimit, Step};

/// The number of units of work between two checks for an interruption.
const INTERRUPT_INTERVAL: u64 = 32;

/// A found document, in the store's memory.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    /// The document. After a scan of an index alone: empty, or the entry's values.
    pub doc: Doc<'a>,
    /// The record key.
    pub record: &'a [u8],
    /// The index entry that led to it.
    pub entry: Option<(&'a Index, Entry<'a>)>,
    /// The key of the entry, if there was a sort since.
    pub key: Option<Doc<'a>>,
    /// Whether `doc` has been read from the collection.
    pub is_fetched: bool,
    /// The record's document, if it was read ahead for the stage that fetches documents.
    pub(crate) ahead: Option<ReadAhead<'a>>,
    /// Whether the entry was read in an earlier run, so that the document may have changed since.
    pub(crate) is_old: bool,
    /// The score of a text search, if the query wants it.
    pub score: Option<f64>,
}

impl Found<'_> {
    /// Returns the index entry that led to the document, with field names: `{ $meta: "indexKey" }`.
    pub fn index_key(&self) -> Option<DocBuf> {
        let Some((index, entry)) = self.entry else { return self.key.map(Doc::to_buf) };
        let mut key = Vec::new();
        entry::shown_key(index, &entry, &mut key)?;
        Some(DocBuf::trusted(key))
    }
}

/// A document that was read before its turn.
#[derive(Clone, Copy)]
pub(crate) struct ReadAhead<'a> {
    pub(crate) doc: Doc<'a>,
    /// Whether there had been a write, since the run began, when it was read.
    pub(crate) is_overtaken: bool,
}

impl<'a> Found<'a> {
    /// Returns a document that has been read from the collection.
    pub(crate) fn fetched(doc: Doc<'a>, record: &'a [u8]) -> Self {
        Found {
            doc,
            record,
            entry: None,
            key: None,
            is_fetched: true,
            ahead: None,
            is_old: false,
            score: None,
        }
    }

    /// Returns a record whose document has not been read.
    pub(crate) fn unread(record: &'a [u8]) -> Self {
        Found { is_fetched: false, ..Found::fetched(Doc::EMPTY, record) }
    }
}

/// The reply of the closure that takes documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emit {
    /// It took the document and wants more.
    Taken,
    /// It took the document and has enough for now.
    Enough,
    /// It did not take the document, which is passed first next time.
    Full,
}

/// The reason for which [`Execution::run`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// There are no more documents.
    Exhausted,
    /// The closure had enough.
    Paused,
}

/// A running plan.
pub struct Execution {
    collection: Arc<Collection>,
    plan: Arc<Plan>,
    run: StageRun,
    // Boxed, since an execution is moved several times before it runs.
    query: Box<Query>,
    /// Set if the plan was taken from the plan cache, without a trial.
    cached: Option<Cached>,
    /// Set if the time of the first run is limited or measured.
    time_limit: Option<TimeLimit>,
    /// Whether the plan won a trial.
    has_won: bool,
    /// The documents that it found in the trial and has not returned yet.
    kept: Kept,
    /// The number of stages with a position in the store.
    place_count: usize,
    /// The number of renames of the collection when the execution was created.
    renames: Renames,
    /// The maximum number of documents that the next run takes.
    wanted: u64,
    is_exhausted: bool,
    /// If documents are only counted: the number that is enough.
    enough: Option<u64>,
    /// Whether the reads have been recorded in the collection's statistics.
    is_noted: bool,
    /// The part of its work that is in the operation's tally already.
    tallied: Examined,
    /// Requests that a new plan must fulfil too after replanning.
    gives_once: bool,
    gives_candidates: bool,
}

impl Execution {
    /// Starts `plan` for `query` on `collection`.
    pub fn new(collection: Arc<Collection>, plan: impl Into<Arc<Plan>>, query: Query) -> Self {
        Execution::start(collection, Start::fresh(plan.into()), Box::new(query))
    }

    /// Continues a plan for `query` on `collection` at its position.
    pub(crate) fn start(collection: Arc<Collection>, start: Start, query: Box<Query>) -> Self {
        let Start { plan, run, place_count, kept, has_won } = start;
        let renames = collection.renames();
        Execution {
            collection,
            plan,
            run,
            query,
            cached: None,
            time_limit: None,
            has_won,
            kept,
            place_count,
            renames,
            wanted: u64::MAX,
            is_exhausted: false,
            enough: None,
            is_noted: false,
            tallied: Examined::default(),
            gives_once: false,
            gives_candidates: false,
        }
    }

    /// Marks the plan as one of the plan cache, with a work limit.
    pub(crate) fn cached(mut self, cached: Cached) -> Self {
        self.cached = Some(cached);
        self
    }

    /// Limits or measures the time of the first run.
    pub(crate) fn limit_time(&mut self, limit: TimeLimit) {
        // If part of the work was done in a trial, the time of the rest is not representative.
        self.time_limit = Some(limit).filter(|_| !self.has_won);
    }

    /// Lifts the limit of the first run: the one that it was made for does not take place.
    pub fn lift_time_limit(&mut self) {
        self.time_limit = None;
    }

    /// Counts the documents of the plan, up to `enough`: see [`Execution::run`].
    pub fn count(
        &mut self,
        unit: Unit<'_>,
        enough: u64,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<u64> {
        self.enough = Some(enough);
        // A scan may return several documents within one unit of work, before the limit is checked.
        let mut given = 0;
        self.run(unit, interrupt, &mut |_| {
            given += 1;
            Ok(if given >= enough { Emit::Enough } else { Emit::Taken })
        })?;
        Ok(self.run.stats.advanced.min(enough))
    }

    /// Returns the collection that is read.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// Returns the objects that it reads, to check later whether they still exist.
    pub fn reads(&self) -> Reads {
        let mut indexes = Vec::new();
        self.plan.root.walk(&mut |stage| {
            if let Stage::Ixscan(scan) = stage {
                indexes.push(scan.index.clone());
            }
        });
        Reads { collection: self.collection.clone(), renames: self.renames, indexes }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the state and the statistics of the plan's stages.
    pub fn stages(&self) -> &StageRun {
        &self.run
    }

    /// Returns whether the plan won a trial.
    pub(crate) fn has_won(&self) -> bool {
        self.has_won
    }

    /// Returns the query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Returns the numbers of keys and documents examined so far.
    pub fn examined(&self) -> Examined {
        self.run.examined(&self.plan.root)
    }

    /// Makes sure that no document is returned twice, though writes between batches move its
    /// entries in the scanned index.
    pub fn give_once(&mut self) {
        self.gives_once = true;
        let given: Vec<RecordKey> = self.kept.records().cloned().collect();
        self.run.give_once(&given);
    }

    /// From now on returns candidates: the records that the plan finds, without reading or checking
    /// their documents. The caller does that under a guard. If the plan sorts, the documents have
    /// been read and checked before the sort.
    pub fn give_candidates(&mut self) {
        self.gives_candidates = true;
        self.run.leave_unread();
    }

    /// Makes scans read everything that mongod would read, because their counts are reported.
    pub fn examine_all(&mut self) {
        self.run.examine_all();
    }

    /// Sets the maximum number of documents that each run takes; at most this number is read ahead.
    pub fn expect(&mut self, documents: usize) {
        self.wanted = documents as u64;
    }

    /// Returns whether the execution is at its end. One over a capped collection may find more
    /// later: see [`Execution::reopen`].
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Returns whether a collection scan of it is at its end, and not only a limit reached.
    pub fn has_scanned_all(&self) -> bool {
        self.is_exhausted && self.run.has_scanned_all()
    }

    /// Lets an execution at its end look for documents added since: for a tailable cursor.
    pub fn reopen(&mut self) {
        self.is_exhausted = false;
        self.run.reopen();
    }

    /// Passes documents to `emit` until it has enough or there are no more. `interrupt` is called
    /// from time to time; its error ends the run. `emit` must not call the store.
    ///
    /// Errors: those of the query's execution. The operation is [postponed](Error::postponed) if
    /// the run would take longer than [`TimeBudget::UpTo`](crate::TimeBudget::UpTo) allows, or
    /// reaches a document that is [too large](marula_db::current::document_bytes_max) for the
    /// thread; the execution cannot be continued.
    pub fn run(
        &mut self,
        unit: Unit<'_>,
        interrupt: &mut dyn FnMut() -> Result<()>,
        emit: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<End> {
        if self.is_exhausted {
            return Ok(End::Exhausted);
        }
        self.collection.check_there(self.renames)?;
        unit.touch(&self.collection)?;
        tally::begin(unit, &self.plan);
        let timed =
            self.time_limit.as_mut().map(|limit| (limit.shape, Instant::now(), limit.spare.take()));
        let until = timed.and_then(|(_, began, spare)| Some(began + spare?));
        let mut end = self.run_plan(unit, until, interrupt, emit);
        if matches!(end, Ok(None)) && until.is_some() {
            end = Err(Error::postponed());
        }
        let is_postponed = end.as_ref().is_err_and(Error::is_postponed);
        if let Some((shape, began, _)) = timed
            && (end.is_ok() || is_postponed)
        {
            let took = began.elapsed();
            let took = if is_postponed { took * 2 } else { took };
            self.collection.plans().note_duration(shape, took);
        }
        if is_postponed {
            return Err(Error::postponed());
        }
        if !unit.is_explained() {
            self.note_reads();
        }
        if let (Ok(None), Some(cached)) = (&end, self.cached) {
            self.replan(unit, cached, interrupt)?;
            end = self.run_plan(unit, until, interrupt, emit);
        }
        let examined = self.examined();
        let before = std::mem::replace(&mut self.tallied, examined);
        let run = examined - before;
        tally::add(unit, self, run);
        self.is_exhausted = end?.is_none_or(|end| end == End::Exhausted);
        self.check_whole()?;
        self.check_cached();
        Ok(if self.is_exhausted { End::Exhausted } else { End::Paused })
    }
}

impl Execution {
    /// Runs the plan; `None` if it comes from the plan cache, has returned nothing, and exceeds its
    /// work limit.
    fn run_plan(
        &mut self,
        unit: Unit<'_>,
        until: Option<Instant>,
        interrupt: &mut dyn FnMut() -> Result<()>,
        emit: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Option<End>> {
        match self.kept.give(emit)? {
            Some(Emit::Enough) if self.kept.is_empty() && self.run.stats.is_eof => {
                return Ok(Some(End::Exhausted));
            }
            Some(_) => return Ok(Some(End::Paused)),
            None => {}
        }
        let mut env =
            Env::new(unit, &self.collection, &self.query, SizeLimit::of_thread(), self.place_count);
        // The operation itself may have removed the document at a scan's position.
        if !self.gives_once {
            self.run.check_places(&env)?;
        }
        self.run.expect(&self.plan.root, self.wanted);
        let barren_works_max = self.cached.map_or(u64::MAX, |cached| cached.works_max);
        let asks_first = self.plan.is_subplan;
        let (enough, renames) = (self.enough, self.renames);
        let limits = Limits { barren_works_max, enough, until, asks_first, renames };
        let end = run_stages((&self.plan.root, &mut self.run), &mut env, limits, interrupt, emit);
        self.run.rest(&mut env);
        end
    }

    /// Checks that nothing that it reads was dropped in the meantime: then the store may have
    /// cleared it before it was read.
    fn check_whole(&self) -> Result<()> {
        if self.collection.is_dropped() {
            return self.collection.check_there(self.renames);
        }
        let mut whole = Ok(());
        self.plan.root.walk(&mut |stage| {
            if let Stage::Ixscan(Ixscan { index, .. }) | Stage::GeoNear(GeoNear { index, .. }) =
                stage
                && whole.is_ok()
            {
                whole = self.collection.check_index(index);
            }
        });
        whole
    }

    /// Records the reads in the collection's statistics, once.
    fn note_reads(&mut self) {
        if std::mem::replace(&mut self.is_noted, true) {
            return;
        }
        // A plan may scan an index several times, which is one use. Most plans have one index.
        let (mut first, mut others) = (None::<&Arc<Index>>, Vec::new());
        let mut note = |index| {
            if first.iter().chain(&others).any(|noted| Arc::ptr_eq(noted, index)) {
                return;
            }
            index.note_use();
            match first {
                None => first = Some(index),
                Some(_) => others.push(index),
            }
        };
        self.plan.root.walk(&mut |stage| match stage {
            Stage::Collscan(scan) if scan.records.is_none() => self.collection.note_scan(),
            Stage::IdHack(_) => self.collection.note_id_use(),
            Stage::Ixscan(scan) => note(&scan.index),
            Stage::GeoNear(search) => note(&search.index),
            _ => {}
        });
    }

    /// Replaces a cached plan that exceeded its work limit by the best plan now. Nothing has been
    /// returned yet.
    fn replan(
        &mut self,
        unit: Unit<'_>,
        cached: Cached,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let (collection, query) = (&self.collection, &self.query);
        let start = choice::replan(unit, collection, query, cached.shape, interrupt)?;
        let Start { plan, run, place_count, kept, has_won } = start;
        (self.plan, self.run, self.place_count) = (plan, run, place_count);
        (self.kept, self.has_won) = (kept, has_won);
        (self.cached, self.tallied) = (None, Examined::default());
        if self.gives_once {
            self.give_once();
        }
        if self.gives_candidates {
            self.give_candidates();
        }
        Ok(())
    }

    /// A cached plan that has returned enough documents has proven itself; one that exceeds its
    /// limit before is deactivated in the cache.
    fn check_cached(&mut self) {
        let Some(cached) = self.cached else { return };
        let stats = &self.run.stats;
        if stats.advanced < PROVEN_BY && stats.works > cached.works_max {
            self.collection.plans().deactivate(cached.shape);
        } else if stats.advanced < PROVEN_BY {
            return;
        }
        self.cached = None;
    }
}

/// The objects that an execution reads.
pub struct Reads {
    collection: Arc<Collection>,
    renames: Renames,
    indexes: Vec<Arc<Index>>,
}

impl Reads {
    /// Fails if any of them no longer exists: the collection, its name, or an index.
    pub fn check(&self) -> Result<()> {
        self.collection.check_there(self.renames)?;
        self.indexes.iter().try_for_each(|index| self.collection.check_index(index))
    }
}

/// A plan, and the position of its run.
pub(crate) struct Start {
    plan: Arc<Plan>,
    run: StageRun,
    place_count: usize,
    kept: Kept,
    has_won: bool,
}

impl Start {
    /// Returns the start of a plan.
    pub(crate) fn fresh(plan: Arc<Plan>) -> Self {
        let run = StageRun::new(&plan.root);
        Start::of(plan, run, Kept::default(), false)
    }

    /// Returns the position at which a trial stopped the winner. A winner that found more than
    /// could be stored starts again.
    pub(crate) fn won(winner: Tried) -> Self {
        let Tried { plan, mut run, kept, .. } = winner;
        match kept {
            Some(kept) => {
                run.take_many();
                Start::of(plan, run, kept, true)
            }
            None => Start { has_won: true, ..Start::fresh(plan) },
        }
    }

    fn of(plan: Arc<Plan>, mut run: StageRun, kept: Kept, has_won: bool) -> Self {
        let place_count = run.number_places();
        run.give_many();
        Start { plan, run, place_count, kept, has_won }
    }
}

/// The conditions that end a run before its plan ends.
#[derive(Clone, Copy)]
struct Limits {
    /// The maximum number of units of work without a result.
    barren_works_max: u64,
    /// The number of documents that is enough, if they are only counted.
    enough: Option<u64>,
    /// The time at which the run must end, finished or not.
    until: Option<Instant>,
    /// Whether the plan is called once more when it is known to have no more documents.
    asks_first: bool,
    /// The number of renames of the collection when the execution was created.
    renames: Renames,
}

/// Runs a plan until it has returned enough or ends; `None` if it comes from the plan cache, has
/// returned nothing, and exceeds its work limit.
fn run_stages(
    (root, run): (&Stage, &mut StageRun),
    env: &mut Env<'_>,
    limits: Limits,
    interrupt: &mut dyn FnMut() -> Result<()>,
    emit: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Option<End>> {
    let Limits { barren_works_max, enough, until, asks_first, renames } = limits;
    let mut works = 0_u64;
    loop {
        if let Some(enough) = enough {
            match enough.saturating_sub(run.stats.advanced) {
                0 => return Ok(Some(End::Paused)),
                left => run.count_only(left),
            }
        }
        works += 1;
        if let Some(until) = until
            && Instant::now() >= until
        {
            return Err(Error::postponed());
        }
        if works.is_multiple_of(INTERRUPT_INTERVAL) {
            interrupt()?;
            env.collection.check_there(renames)?;
        }
        match run.work(root, env, emit)? {
            Step::NeedTime if run.stats.works > barren_works_max && run.stats.advanced == 0 => {
                return Ok(None);
            }
            Step::Advanced(Emit::Taken) | Step::NeedTime if asks_first && run.is_spent() => {
                return Ok(Some(End::Exhausted));
            }
            Step::Advanced(Emit::Taken) | Step::NeedTime => {}
            Step::Advanced(Emit::Enough) => {
                // After the limit is reached, the end need not be searched for.
                return Ok(Some(if run.is_spent() { End::Exhausted } else { End::Paused }));
            }
            Step::Advanced(Emit::Full) => return Ok(Some(End::Paused)),
            Step::Eof => return Ok(Some(End::Exhausted)),
        }
    }
}
