//! Carrying out a plan, batch by batch.
//!
//! An [`Execution`] gives the documents one after the other to a closure, which takes them until
//! its batch is full. Between batches it holds nothing of the store but where it stands; the next
//! batch goes on from there in what is then stored. Documents are shown where the store has them
//! and copied by whoever keeps them.
//!
//! A plan is a tree of stages, and runs by units of work: each unit asks a stage for one document,
//! which it shows to the closure of the stage above, or for nothing yet, or finds the end. Units
//! are what plans on trial are compared by (see [`crate::trial`]) and what `explain` counts.

mod around;
mod density;
mod entry_doc;
mod intersect;
mod late;
mod merge;
mod near;
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
use marula_db::{Collection, Index, Namespace, Unit};
use marula_error::{Result, errors};

use crate::cache::{PROVEN_BY, PlanCache};
use crate::plan::{Node, Plan, Stage};
use crate::query::Query;
use crate::{choice, tally};
pub(crate) use intersect::Meeting;
pub(crate) use merge::Merging;
pub(crate) use near::{Round, Searching};
pub(crate) use scan::Standing;
pub(crate) use text::Scoring;
pub(crate) use work::{Env, SizeLimit, Sorting, Step, number_places, rest, take_one_by_one};

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
    plan: Plan,
    query: Query,
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
    pub fn new(collection: Arc<Collection>, mut plan: Plan, query: Query) -> Self {
        let place_count = work::number_places(&mut plan.root);
        work::give_many(&mut plan.root);
        let renames = collection.renames();
        Execution {
            collection,
            plan,
            query,
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
        Ok((end != End::Overdue).then_some(self.plan.root.stats.advanced))
    }

    /// The collection that is read.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// What it reads, to see later whether that is still there.
    pub fn reads(&self) -> Reads {
        let mut indexes = Vec::new();
        self.plan.root.walk(&mut |node| {
            if let Stage::Ixscan(scan) = &node.stage {
                indexes.push(scan.index.clone());
            }
        });
        Reads { collection: self.collection.clone(), renames: self.renames, indexes }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan, with what its stages have done.
    pub fn into_plan(self) -> Plan {
        self.plan
    }

    /// The query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// What it has looked at so far.
    pub fn examined(&self) -> Examined {
        self.plan.examined()
    }

    /// Never gives a document twice, though writes between batches move its entries in the index
    /// that is walked.
    pub fn give_once(&mut self) {
        self.gives_once = true;
        work::remember(&mut self.plan.root);
    }

    /// From now on gives candidates instead: the records that the plan leads to, without reading or
    /// checking their documents, which the taker does itself under a guard. Where the plan sorts,
    /// what is given has been read and checked all the same.
    pub fn give_candidates(&mut self) {
        self.gives_candidates = true;
        match &mut self.plan.root.stage {
            Stage::IdHack(stage) => stage.is_unread = true,
            Stage::Fetch(stage) => stage.is_unread = true,
            _ => {}
        }
    }

    /// Has walks look at all that mongod would look at: what they have looked at will be told.
    pub fn tell_all(&mut self) {
        work::tell_all(&mut self.plan.root);
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
        work::reopen(&mut self.plan.root);
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
            self.plan.tried.as_mut().map(|tried| (tried.shape, Instant::now(), tried.spare.take()));
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
            PlanCache::of(&self.collection).note_took(shape, took);
        }
        if let Ok(Some(End::Overdue)) = end {
            return Ok(End::Overdue);
        }
        self.note_reads();
        if let (Ok(None), Some(cached)) = (&end, self.plan.cached) {
            let shape = cached.shape;
            let plan = choice::replan(unit, &self.collection, &self.query, shape, interrupt)?;
            self.replace_plan(plan);
            end = self.run_plan(unit, until, interrupt, emit);
        }
        let examined = self.plan.examined();
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
        let mut env = Env::new(unit, &self.collection, &self.query, &self.size, self.place_count);
        env.place_lost = match (self.gives_once, std::mem::take(&mut self.is_reopened)) {
            // What a write has come to, it may have removed itself.
            (true, _) => None,
            (false, true) => Some(scan::tail_lost),
            (false, false) => Some(scan::place_lost),
        };
        work::expect(&mut self.plan.root, self.wanted);
        let barren_works_max = self.plan.cached.map_or(u64::MAX, |cached| cached.works_max);
        let asks_first = self.plan.is_subplan;
        let (enough, renames) = (self.enough, self.renames);
        let limits = Limits { barren_works_max, enough, until, asks_first, renames };
        let end = run_node(&mut self.plan.root, &mut env, limits, interrupt, emit);
        work::rest(&mut self.plan.root, &mut env);
        end
    }

    /// Tells the collection what is read, once.
    fn note_reads(&mut self) {
        if std::mem::replace(&mut self.is_noted, true) {
            return;
        }
        self.plan.root.walk(&mut |node| match &node.stage {
            Stage::Collscan(scan) if scan.records.is_none() => self.collection.note_scan(),
            Stage::Ixscan(scan) => scan.index.note_use(),
            _ => {}
        });
    }

    /// Begins anew with another plan. Nothing has been given yet.
    fn replace_plan(&mut self, mut plan: Plan) {
        self.place_count = work::number_places(&mut plan.root);
        work::give_many(&mut plan.root);
        self.plan = plan;
        self.tallied = Examined::default();
        if self.gives_once {
            self.give_once();
        }
        if self.gives_candidates {
            self.give_candidates();
        }
    }

    /// Once a plan from the plan cache has given enough, it has shown that it does; one that costs
    /// too much before is not taken untried again.
    fn check_cached(&mut self) {
        let Some(cached) = self.plan.cached else { return };
        let stats = &self.plan.root.stats;
        if stats.advanced < PROVEN_BY && stats.works > cached.works_max {
            PlanCache::of(&self.collection).deactivate(cached.shape);
        } else if stats.advanced < PROVEN_BY {
            return;
        }
        self.plan.cached = None;
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

fn run_node(
    root: &mut Node,
    env: &mut Env<'_>,
    limits: Limits,
    interrupt: &mut dyn FnMut() -> Result<()>,
    emit: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Option<End>> {
    let Limits { barren_works_max, enough, until, asks_first, renames } = limits;
    let mut works = 0_u64;
    loop {
        if let Some(enough) = enough {
            match enough.saturating_sub(root.stats.advanced) {
                0 => return Ok(Some(End::Paused)),
                left => work::count_only(root, left),
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
        match root.work(env, emit)? {
            Step::NeedTime if root.stats.works > barren_works_max && root.stats.advanced == 0 => {
                return Ok(None);
            }
            Step::Advanced(Emit::Taken) | Step::NeedTime if asks_first && root.is_spent() => {
                return Ok(Some(End::Exhausted));
            }
            Step::Advanced(Emit::Taken) | Step::NeedTime => {}
            Step::Advanced(Emit::Enough) => {
                // A limit that is reached has nothing more to find out.
                return Ok(Some(if root.is_spent() { End::Exhausted } else { End::Paused }));
            }
            Step::Advanced(Emit::Full) => return Ok(Some(End::Paused)),
            Step::Eof => return Ok(Some(End::Exhausted)),
        }
    }
}

impl Plan {
    /// What the stages have looked at so far.
    pub fn examined(&self) -> Examined {
        let mut examined = Examined::default();
        self.root.walk(&mut |node| {
            examined.keys += node.stats.keys;
            examined.docs += node.stats.docs;
            match &node.stage {
                Stage::Collscan(scan) if scan.records.is_none() => examined.scans += 1,
                Stage::Sort(_) => examined.sorts += 1,
                _ => {}
            }
        });
        examined
    }
}
