//! Carrying out a plan, batch by batch.
//!
//! An [`Execution`] gives the documents one after the other to a closure, which takes them until
//! its batch is full. Between batches it holds nothing of the store but where it stands; the next
//! batch goes on from there in what is then stored. Documents are shown where the store has them
//! and copied by whoever keeps them.
//!
//! A plan is a tree of stages, and runs by units of work: each unit asks a stage for one document,
//! which it shows to the closure of the stage above, or for nothing yet, or finds the end. Units
//! are what plans on trial are compared by (see [`crate::trial`]) and what `explain` counts. The
//! plan is shared and does not change; the state of a run is beside it, in [`StageRun`].

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

use marula_bson::Doc;
use marula_db::collection::Renames;
use marula_db::index::entry::Entry;
use marula_db::unit::Examined;
use marula_db::{Collection, Index, Namespace, RecordKey, Unit};
use marula_error::{Result, errors};

use crate::cache::PROVEN_BY;
use crate::patience::Tried as Timed;
use crate::plan::{Plan, Stage};
use crate::query::Query;
use crate::trial::Tried;
use crate::{choice, tally};
pub(crate) use kept::{Kept, Room};
use marula_db::plan_cache::Cached;
pub(crate) use near::Round;
pub use run::{StageRun, Stats};
pub(crate) use work::{Env, SizeLimit, Step};

/// Units of work between two looks at whether to go on.
const INTERRUPT_INTERVAL: u64 = 32;

errors! {
    collection_dropped(uuid: &str) = QueryPlanKilled, "collection dropped. UUID {uuid}";
    collection_renamed(from: &Namespace, to: &Namespace, uuid: &str) = QueryPlanKilled, "collection renamed from '{from}' to '{to}'. UUID {uuid}";
}

/// A document that was found, in the store's own memory.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    /// The document. Where only an index was read: empty, or made of the entry's values.
    pub doc: Doc<'a>,
    /// What identifies it in its collection.
    pub record: &'a [u8],
    /// The index entry that led to it.
    pub entry: Option<(&'a Index, Entry<'a>)>,
    /// The key of such an entry, where documents were put in order since.
    pub key: Option<Doc<'a>>,
    /// Whether `doc` has been read from the collection.
    pub is_fetched: bool,
    /// The record's document, where it has been read ahead for the stage that reads documents.
    pub(crate) ahead: Option<ReadAhead<'a>>,
    /// Whether the entry was read in an earlier run, so that the document may have another by now.
    pub(crate) is_old: bool,
    /// How well it meets a text search, where that was asked for.
    pub score: Option<f64>,
}

/// A document that was read before its turn.
#[derive(Clone, Copy)]
pub(crate) struct ReadAhead<'a> {
    pub(crate) doc: Doc<'a>,
    /// Whether a write had come, since the run began, when it was read.
    pub(crate) is_overtaken: bool,
}

impl<'a> Found<'a> {
    /// A document that has been read from the collection.
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

    /// A document that has not been read.
    pub(crate) fn unread(record: &'a [u8]) -> Self {
        Found { is_fetched: false, ..Found::fetched(Doc::EMPTY, record) }
    }
}

/// What the taker of documents answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emit {
    /// It has taken the document and wants more.
    Taken,
    /// It has taken the document and has enough for now.
    Enough,
    /// It has not taken the document, which comes first next time.
    Full,
}

/// Why [`Execution::run`] came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// There are no more documents.
    Exhausted,
    /// The taker had enough.
    Paused,
    /// It would have taken longer than [`Patience::UpTo`](crate::Patience::UpTo) allows, or comes
    /// to a document that is [too large](marula_db::current::document_bytes_max) for the thread.
    /// What was given is incomplete, and the execution is of no more use.
    Overdue,
}

/// A plan under way.
pub struct Execution {
    collection: Arc<Collection>,
    plan: Arc<Plan>,
    run: StageRun,
    query: Query,
    /// That the plan was taken from the plan cache, untried.
    cached: Option<Cached>,
    /// That it runs where there is little time, or shows how long it takes.
    timed: Option<Timed>,
    /// Whether the plan has won against others that were tried.
    has_won: bool,
    /// What it has found while it was tried, and not given yet.
    kept: Kept,
    /// How many stages have a place in the store.
    place_count: usize,
    /// How often the collection had been renamed when the execution was made.
    renames: Renames,
    /// Whether the walk came to the end and looks behind it for more.
    is_reopened: bool,
    /// How many documents the next run is about to take, at most.
    wanted: u64,
    is_exhausted: bool,
    /// Where what is found is only counted: how many are enough.
    enough: Option<u64>,
    /// Whether the collection has been told of what it reads.
    is_noted: bool,
    /// What of its work is in an operation's tally already.
    tallied: Examined,
    /// What was asked for that another plan must do too.
    gives_once: bool,
    gives_candidates: bool,
    size: SizeLimit,
}

impl Execution {
    /// Begins to carry out `plan` for `query` on `collection`.
    pub fn new(collection: Arc<Collection>, plan: impl Into<Arc<Plan>>, query: Query) -> Self {
        Execution::start(collection, Start::fresh(plan.into()), query)
    }

    /// Carries out a plan for `query` on `collection` from where it stands.
    pub(crate) fn start(collection: Arc<Collection>, start: Start, query: Query) -> Self {
        let Start { plan, run, place_count, kept, has_won } = start;
        let renames = collection.renames();
        Execution {
            collection,
            plan,
            run,
            query,
            cached: None,
            timed: None,
            has_won,
            kept,
            place_count,
            renames,
            is_reopened: false,
            wanted: u64::MAX,
            is_exhausted: false,
            enough: None,
            is_noted: false,
            tallied: Examined::default(),
            gives_once: false,
            gives_candidates: false,
            size: SizeLimit::default(),
        }
    }

    /// The plan is one of the plan cache, which is not to cost too much.
    pub(crate) fn cached(mut self, cached: Cached) -> Self {
        self.cached = Some(cached);
        self
    }

    /// The first run ends early where it takes too long, or shows how long it takes.
    pub(crate) fn time(&mut self, timed: Timed) {
        // Where part of the work was done in a trial, the rest does not show how long it takes.
        self.timed = Some(timed).filter(|_| !self.has_won);
    }

    /// Only counts what the plan gives, up to `enough`: see [`Execution::run`]. `None` where it is
    /// [overdue](End::Overdue).
    pub fn count(
        &mut self,
        unit: Unit<'_>,
        enough: u64,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<u64>> {
        self.enough = Some(enough);
        // A walk may give several documents within one unit of work, before anyone looks at how
        // many there are.
        let mut given = 0;
        let end = self.run(unit, interrupt, &mut |_| {
            given += 1;
            Ok(if given >= enough { Emit::Enough } else { Emit::Taken })
        })?;
        Ok((end != End::Overdue).then_some(self.run.stats.advanced.min(enough)))
    }

    /// The collection that is read.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// What it reads, to see later whether that is still there.
    pub fn reads(&self) -> Reads {
        let mut indexes = Vec::new();
        self.plan.root.walk(&mut |stage| {
            if let Stage::Ixscan(scan) = stage {
                indexes.push(scan.index.clone());
            }
        });
        Reads { collection: self.collection.clone(), renames: self.renames, indexes }
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What the stages of the plan have done.
    pub fn stages(&self) -> &StageRun {
        &self.run
    }

    /// Whether the plan has won against others that were tried.
    pub(crate) fn has_won(&self) -> bool {
        self.has_won
    }

    /// The query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// What it has looked at so far.
    pub fn examined(&self) -> Examined {
        self.run.examined(&self.plan.root)
    }

    /// Never gives a document twice, though writes between batches move its entries in the index
    /// that is walked.
    pub fn give_once(&mut self) {
        self.gives_once = true;
        let given: Vec<RecordKey> = self.kept.records().cloned().collect();
        self.run.give_once(&given);
    }

    /// From now on gives candidates instead: the records that the plan leads to, without reading or
    /// checking their documents, which the taker does itself under a guard. Where the plan sorts,
    /// what is given has been read and checked all the same.
    pub fn give_candidates(&mut self) {
        self.gives_candidates = true;
        self.run.leave_unread();
    }

    /// Has walks look at all that mongod would look at: what they have looked at will be told.
    pub fn tell_all(&mut self) {
        self.run.tell_all();
    }

    /// Says how many documents each run is about to take, at most: so many are worth reading ahead.
    pub fn expect(&mut self, documents: usize) {
        self.wanted = documents as u64;
    }

    /// Whether the execution stands at the end for good. One over a capped collection may get more
    /// later: see [`Execution::reopen`].
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Lets an execution that came to the end look again for what has been added since: a tailable
    /// cursor.
    pub fn reopen(&mut self) {
        self.is_exhausted = false;
        self.is_reopened = true;
        self.run.reopen();
    }

    /// Gives documents to `emit` until it has enough or there are no more. `interrupt` is asked now
    /// and then whether to go on; its error ends the run. `emit` must not call the store.
    pub fn run(
        &mut self,
        unit: Unit<'_>,
        interrupt: &mut dyn FnMut() -> Result<()>,
        emit: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<End> {
        if self.is_exhausted {
            return Ok(End::Exhausted);
        }
        check_there(&self.collection, self.renames)?;
        unit.touch(&self.collection)?;
        tally::begin(unit, &self.plan);
        self.size.renew();
        let timed =
            self.timed.as_mut().map(|timed| (timed.shape, Instant::now(), timed.spare.take()));
        let until = timed.and_then(|(_, began, spare)| Some(began + spare?));
        let mut end = self.run_plan(unit, until, interrupt, emit);
        if matches!(end, Ok(None)) && until.is_some() || self.size.is_passed() {
            end = Ok(Some(End::Overdue));
        }
        if let Some((shape, began, _)) = timed
            && let Ok(end) = &end
        {
            let took = began.elapsed();
            let took = if *end == Some(End::Overdue) { took * 2 } else { took };
            self.collection.plans().note_duration(shape, took);
        }
        if let Ok(Some(End::Overdue)) = end {
            return Ok(End::Overdue);
        }
        self.note_reads();
        if let (Ok(None), Some(cached)) = (&end, self.cached) {
            self.replan(unit, cached, interrupt)?;
            end = self.run_plan(unit, until, interrupt, emit);
        }
        let examined = self.examined();
        let before = std::mem::replace(&mut self.tallied, examined);
        let run = examined - before;
        tally::add(unit, self, run);
        self.is_exhausted = end?.is_none_or(|end| end == End::Exhausted);
        self.check_cached();
        Ok(if self.is_exhausted { End::Exhausted } else { End::Paused })
    }
}

impl Execution {
    /// Runs the plan; `None` where it comes from the plan cache, has given nothing, and costs too
    /// much.
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
        let mut env = Env::new(unit, &self.collection, &self.query, &self.size, self.place_count);
        env.place_lost = match (self.gives_once, std::mem::take(&mut self.is_reopened)) {
            // What a write has come to, it may have removed itself.
            (true, _) => None,
            (false, true) => Some(scan::tail_lost),
            (false, false) => Some(scan::place_lost),
        };
        self.run.expect(&self.plan.root, self.wanted);
        let barren_works_max = self.cached.map_or(u64::MAX, |cached| cached.works_max);
        let asks_first = self.plan.is_subplan;
        let (enough, renames) = (self.enough, self.renames);
        let limits = Limits { barren_works_max, enough, until, asks_first, renames };
        let end = run_stages((&self.plan.root, &mut self.run), &mut env, limits, interrupt, emit);
        self.run.rest(&mut env);
        end
    }

    /// Tells the collection what is read, once.
    fn note_reads(&mut self) {
        if std::mem::replace(&mut self.is_noted, true) {
            return;
        }
        self.plan.root.walk(&mut |stage| match stage {
            Stage::Collscan(scan) if scan.records.is_none() => self.collection.note_scan(),
            Stage::Ixscan(scan) => scan.index.note_use(),
            Stage::GeoNear(search) => search.index.note_use(),
            _ => {}
        });
    }

    /// Goes on with the plan that does best now, where that of the plan cache has come to cost too
    /// much. Nothing has been given yet.
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

    /// Once a plan from the plan cache has given enough, it has shown that it does; one that costs
    /// too much before is not taken untried again.
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

/// What an execution reads.
pub struct Reads {
    collection: Arc<Collection>,
    renames: Renames,
    indexes: Vec<Arc<Index>>,
}

impl Reads {
    /// Fails where any of it is gone: the collection, its name, or an index.
    pub fn check(&self) -> Result<()> {
        check_there(&self.collection, self.renames)?;
        self.indexes.iter().try_for_each(|index| self.collection.check_index(index))
    }
}

/// A plan, and where its run stands.
pub(crate) struct Start {
    plan: Arc<Plan>,
    run: StageRun,
    place_count: usize,
    kept: Kept,
    has_won: bool,
}

impl Start {
    /// At the beginning of a plan.
    pub(crate) fn fresh(plan: Arc<Plan>) -> Self {
        let run = StageRun::new(&plan.root);
        Start::of(plan, run, Kept::default(), false)
    }

    /// Where a trial has left the plan that won. One that has found more than could be kept begins
    /// again.
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

/// Where a run ends before its plan does.
#[derive(Clone, Copy)]
struct Limits {
    /// How many units of work may give nothing.
    barren_works_max: u64,
    /// How many documents are enough, where they are only counted.
    enough: Option<u64>,
    /// When it must end, done or not.
    until: Option<Instant>,
    /// Whether the plan is asked for more once it is known that there is none.
    asks_first: bool,
    /// How often the collection had been renamed when the execution was made.
    renames: Renames,
}

/// Checks that a collection is there, and under the name that it had.
///
/// Errors: `collection_dropped`, `collection_renamed`.
fn check_there(collection: &Collection, renames: Renames) -> Result<()> {
    if !collection.is_dropped() && collection.renames() == renames {
        return Ok(());
    }
    let uuid = marula_bson::uuid::text(collection.uuid());
    match collection.former_name() {
        Some(from) if !collection.is_dropped() => {
            Err(collection_renamed(&from, &collection.namespace(), &uuid))
        }
        _ => Err(collection_dropped(&uuid)),
    }
}

/// Has a plan work until it has given enough or come to its end; `None` where it comes from the
/// plan cache, has given nothing, and costs too much.
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
            return Ok(Some(End::Overdue));
        }
        if works.is_multiple_of(INTERRUPT_INTERVAL) {
            interrupt()?;
            check_there(env.collection, renames)?;
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
                // A limit that is reached has nothing more to find out.
                return Ok(Some(if run.is_spent() { End::Exhausted } else { End::Paused }));
            }
            Step::Advanced(Emit::Full) => return Ok(Some(End::Paused)),
            Step::Eof => return Ok(Some(End::Exhausted)),
        }
    }
}
