//! One unit of work of each stage.

use std::cell::Cell;

use marula_bson::{Doc, FieldSet};
use marula_db::index::entry::Entry;
use marula_db::index::{KeyMaker, KeySet};
use marula_db::storage_error::client_error;
use marula_db::{Collection, Index, RecordKey, Unit, current};
use marula_error::{Error, Result};
use marula_query::context::Context;
use marula_query::filter::Filter;
use marula_storage::{Stamp, View};

use super::late::Source;
use super::run::{OrState, StageRun, StageState, Stats};
use super::scan::{Open, UNSEEN_MAX};
use super::sort::Sorter;
use super::walk::Origin;
use super::{Emit, End, Found};
use crate::plan::{Counted, Fetch, Or, Sort, SortedKeys, Stage};
use crate::query::Query;

/// What a unit of work has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A document was shown; this is what the taker answered.
    Advanced(Emit),
    /// Nothing yet.
    NeedTime,
    /// There is nothing more.
    Eof,
}

/// How large a document may be that a run looks at.
#[derive(Debug)]
pub(crate) struct SizeLimit {
    bytes_max: Cell<usize>,
    is_passed: Cell<bool>,
}

impl Default for SizeLimit {
    fn default() -> Self {
        SizeLimit { bytes_max: Cell::new(usize::MAX), is_passed: Cell::new(false) }
    }
}

impl SizeLimit {
    /// The limit of this thread's operation, for the run that begins.
    pub(super) fn renew(&self) {
        self.bytes_max.set(current::document_bytes_max());
    }

    /// Fails where a document is not to be looked at: that ends the run, which is
    /// [overdue](End::Overdue).
    #[inline]
    pub(super) fn check(&self, doc: Doc<'_>) -> Result<()> {
        if doc.as_bytes().len() <= self.bytes_max.get() {
            return Ok(());
        }
        self.is_passed.set(true);
        Err(client_error(marula_storage::Error::Conflict))
    }

    /// Whether one was refused.
    pub(super) fn is_passed(&self) -> bool {
        self.is_passed.get()
    }
}

/// What stages work with during one run.
pub(crate) struct Env<'r> {
    unit: Unit<'r>,
    /// What is read.
    pub(crate) view: &'r dyn View,
    pub(crate) collection: &'r Collection,
    /// What every document that is given must match, whichever stage has seen to it.
    filter: &'r Filter,
    /// What of a document is looked at in the end.
    fields: Option<&'r FieldSet>,
    /// The surroundings of the operation.
    context: &'r Context,
    /// The newest commit when the run began.
    pub(super) opened: Stamp,
    /// Which documents are too large to be looked at here.
    pub(super) size: &'r SizeLimit,
    /// The cursors of the stages that have a place in the store, by their numbers.
    pub(super) open: Vec<Open<'r>>,
    /// What is said where a walk over a capped collection stood at a document that has been
    /// overwritten since; `None` where it just goes on.
    pub(super) place_lost: Option<fn(i64) -> Error>,
}

impl<'r> Env<'r> {
    pub(crate) fn new(
        unit: Unit<'r>,
        collection: &'r Collection,
        query: &'r Query,
        size: &'r SizeLimit,
        place_count: usize,
    ) -> Self {
        let view = unit.view();
        let open = std::iter::repeat_with(|| Open::Closed).take(place_count).collect();
        let (filter, fields, context) = (&query.filter, query.fields.as_ref(), &query.context);
        let (opened, place_lost) = (view.moment(), None);
        Env { unit, view, collection, filter, fields, context, opened, size, open, place_lost }
    }

    /// What a walk reads documents from.
    pub(super) fn origin(&self) -> Origin<'r, 'r> {
        Origin { view: self.view, collection: self.collection, opened: self.opened }
    }

    /// Whether a write has come since the run began, so that what an index said may have been
    /// overtaken.
    pub(super) fn is_overtaken(&self) -> bool {
        self.view.has_moved(self.opened)
    }

    /// What a document must match that is read now: all of the filter, where an index may have been
    /// overtaken.
    pub(super) fn whole_filter_if_overtaken(&self) -> Option<&'r Filter> {
        self.is_overtaken().then_some(self.filter)
    }
}

/// What a stage that reads documents remembers while it runs.
#[derive(Default)]
pub(super) struct FetchState {
    /// Whether the record is given without reading its document.
    pub(super) is_unread: bool,
    /// The key of the document that is read.
    key: Vec<u8>,
}

/// What a sort remembers while it runs.
#[derive(Default)]
pub(super) struct Sorting {
    sorter: Option<Box<Sorter>>,
    /// How many rows the stage above passes over from here on.
    pub(super) unseen: u64,
    /// Whether each of them is a unit of work of its own, as where plans are compared.
    pub(super) is_tried: bool,
    /// Whether documents were fetched in the end and were not what was sorted.
    was_overtaken: bool,
}

impl Sorting {
    /// The bytes that were sorted, and how often some of them went to the disk.
    pub(super) fn sorted(&self) -> (u64, u64) {
        self.sorter.as_ref().map_or((0, 0), |sorter| sorter.sorted())
    }
}

impl StageRun {
    /// Has `stage`, whose state this is, do one unit of work; shows what it finds to `out`.
    pub(crate) fn work(
        &mut self,
        stage: &Stage,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        self.stats.works += 1;
        let StageRun { stats, state, inputs } = &mut *self;
        let step = match (stage, state) {
            (Stage::Eof, _) => Step::Eof,
            (Stage::IdHack(stage), StageState::IdHack(lookup)) => {
                stage.work((stats, lookup), env, out)?
            }
            (Stage::Collscan(stage), StageState::Collscan(scan)) => {
                stage.work((stats, scan), env, out)?
            }
            (Stage::Ixscan(stage), StageState::Ixscan(scan)) => {
                stage.work((stats, scan), env, out)?
            }
            (Stage::Fetch(stage), StageState::Fetch(fetch)) => {
                stage.work((stats, fetch, &mut inputs[0]), env, out)?
            }
            (Stage::GeoNear(stage), StageState::GeoNear(search)) => stage.work(search, env, out)?,
            (Stage::AndSorted(stage), StageState::AndSorted(meeting)) => {
                stage.work((meeting, inputs), env, out)?
            }
            (Stage::Or(stage), StageState::Or(or)) => stage.work((stats, or, inputs), env, out)?,
            (Stage::SortMerge(stage), StageState::SortMerge(merging)) => {
                stage.work((stats, merging, inputs), env, out)?
            }
            (Stage::TextOr(stage), StageState::TextOr(scoring)) => {
                stage.work((stats, scoring, inputs), env, out)?
            }
            (Stage::TextMatch(stage), StageState::TextMatch { rejected }) => {
                stage.work((rejected, &mut inputs[0]), env, out)?
            }
            (Stage::Sort(stage), StageState::Sort(sorting)) => {
                stage.work((stats, sorting, &mut inputs[0]), env, out)?
            }
            (Stage::Skip(stage), StageState::Skip { left }) => {
                skip((stage, left), (stats, &mut inputs[0]), env, out)?
            }
            (Stage::Limit(stage), StageState::Limit { left }) => {
                limit((stage, left), (stats, &mut inputs[0]), env, out)?
            }
            (Stage::Projection(stage), _) => {
                follow(&stage.input, (stats, &mut inputs[0]), env, out)?
            }
            _ => unreachable!("a run has the shape of its plan"),
        };
        match step {
            Step::Advanced(Emit::Full) => self.stats.works -= 1,
            Step::Advanced(_) => self.stats.advanced += 1,
            Step::NeedTime => self.stats.need_time += 1,
            Step::Eof => self.stats.is_eof = true,
        }
        if self.is_spent() {
            self.stats.is_eof = true;
        }
        Ok(step)
    }
}

impl Fetch {
    fn work(
        &self,
        (stats, state, run): (&mut Stats, &mut FetchState, &mut StageRun),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let Fetch { filter, input } = self;
        let FetchState { is_unread, key } = state;
        if *is_unread {
            let step = run.work(input, env, out)?;
            // Whoever takes it looks at its document.
            stats.docs += u64::from(matches!(step, Step::Advanced(Emit::Taken | Emit::Enough)));
            return Ok(step);
        }
        if run.stats.is_eof {
            return Ok(Step::Eof);
        }
        let (view, collection, whole, opened) = (env.view, env.collection, env.filter, env.opened);
        let size = env.size;
        let is_overtaken = || view.has_moved(opened);
        // Whether the last document has passed, and how many did before it.
        let (mut has_passed, mut passed) = (false, 0);
        let before = run.stats.works;
        let step = run.work(input, env, &mut |found| {
            passed += u64::from(std::mem::replace(&mut has_passed, false));
            let mut answer = Ok(Emit::Taken);
            let mut see = |doc: Doc<'_>, is_overtaken: bool| {
                if let Err(error) = size.check(doc) {
                    answer = Err(error);
                    return;
                }
                if found.is_old
                    && let Some((index, entry)) = &found.entry
                {
                    match has_entry(doc, index, entry) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => {
                            answer = Err(error);
                            return;
                        }
                    }
                }
                // What an index said may have been overtaken by a write since the walk began.
                let filter = if is_overtaken { Some(whole) } else { filter.as_ref() };
                answer = match filter.map_or(Ok(true), |filter| filter.matches(doc)) {
                    Ok(false) => Ok(Emit::Taken),
                    Ok(true) => {
                        has_passed = true;
                        out(Found { doc, is_fetched: true, ..found })
                    }
                    Err(error) => Err(error),
                };
            };
            if found.is_fetched {
                // Counted as the documents that are there already, and as those that are looked at.
                stats.dups_tested += 1;
                stats.docs += 1;
                see(found.doc, is_overtaken());
            } else if let Some(ahead) = found.ahead {
                stats.docs += 1;
                see(ahead.doc, ahead.is_overtaken);
            } else if collection
                .get(view, found.record, key, &mut |doc| see(doc, is_overtaken()))?
            {
                stats.docs += 1;
            }
            answer
        })?;
        // What has passed before the last unit, which counts by itself.
        if !matches!(step, Step::Advanced(_)) {
            passed += u64::from(has_passed);
        }
        count_more(stats, run.stats.works - before, step, passed);
        Ok(match step {
            Step::Advanced(_) if !has_passed => Step::NeedTime,
            other => other,
        })
    }
}

/// Whether a document still has an entry that has led to it.
fn has_entry(doc: Doc<'_>, index: &Index, entry: &Entry<'_>) -> Result<bool> {
    let mut keys = KeySet::default();
    KeyMaker::default().make(index, doc, &mut keys)?;
    Ok(keys.contains(entry.key_string))
}

impl Or {
    fn work(
        &self,
        (stats, or, runs): (&mut Stats, &mut OrState, &mut [StageRun]),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let OrState { current, given } = or;
        let Some(run) = runs.get_mut(*current) else { return Ok(Step::Eof) };
        let mut has_passed = false;
        let step = run.work(&self.inputs[*current], env, &mut |found| {
            stats.dups_tested += 1;
            let record = RecordKey::new(found.record);
            if given.contains(&record) {
                stats.dups_dropped += 1;
                return Ok(Emit::Taken);
            }
            has_passed = true;
            let answer = out(found)?;
            if answer != Emit::Full {
                given.insert(record);
            }
            Ok(answer)
        })?;
        Ok(match step {
            Step::Advanced(_) if !has_passed => Step::NeedTime,
            Step::Eof => {
                *current += 1;
                if *current < self.inputs.len() { Step::NeedTime } else { Step::Eof }
            }
            other => other,
        })
    }
}

impl Sort {
    fn work(
        &self,
        (stats, sorting, run): (&mut Stats, &mut Sorting, &mut StageRun),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let Sorting { sorter, unseen, is_tried, was_overtaken } = sorting;
        let rows = sorter.get_or_insert_with(|| {
            let (pattern, context) = (self.pattern.clone(), env.context);
            let mut sorter =
                Sorter::new(pattern, self.limit, self.keys, env.filter.near(), context);
            if !*was_overtaken && self.is_simple && run.may_begin_again() {
                sorter.fetch_late(self.limit, *unseen, self.bytes_max);
            }
            Box::new(sorter)
        });
        if !rows.is_filled() {
            let fields = env.fields;
            let mut take = |found: Found<'_>| {
                rows.push(found, fields)?;
                Ok(Emit::Taken)
            };
            if take_in(&self.input, (stats, run), env, &mut take)? == Step::Eof {
                rows.finish()?;
                let (collection, filter) = (env.collection, env.filter);
                // A view of one moment: what a page was sorted out of a moment ago is not worth
                // keeping for the next look.
                let still = env.unit.still()?;
                let view = still.as_deref().unwrap_or(env.view);
                let source = Source { view, collection, filter, fields: env.fields };
                if !rows.fetch(*unseen, &source)? {
                    *was_overtaken = true;
                    *sorter = None;
                    run.begin_again();
                }
            }
            return Ok(Step::NeedTime);
        }
        // One that is passed over alone takes the same unit as one that is given.
        let unseen = std::mem::take(unseen).min(UNSEEN_MAX);
        if unseen > 1 && !*is_tried {
            let Some(more) = rows.pass(unseen)?.checked_sub(1) else { return Ok(Step::Eof) };
            stats.works += more;
            stats.advanced += more;
            return Ok(Step::Advanced(Emit::Taken));
        }
        let mut step = Step::Eof;
        let is_fetched = self.is_simple && self.keys != SortedKeys::Instead;
        // One unit of work gives one document.
        let end = rows.drain(&mut |found| {
            let answer = out(Found { is_fetched, ..found })?;
            step = Step::Advanced(answer);
            Ok(if answer == Emit::Full { Emit::Full } else { Emit::Enough })
        })?;
        debug_assert!(end == End::Paused || step == Step::Eof);
        Ok(step)
    }
}

/// Counts the `units` that the stage below has done at once and that have come to `step`, all but
/// the last, which counts by itself. In `given` of them this stage has given a document.
fn count_more(stats: &mut Stats, units: u64, step: Step, given: u64) {
    // What was not taken comes again, and its unit with it.
    let is_full = step == Step::Advanced(Emit::Full);
    let more = units - u64::from(!is_full);
    stats.works += more;
    stats.advanced += given;
    stats.need_time += more - given;
}

/// A unit of work of a stage that gives all that it gets.
fn follow(
    input: &Stage,
    (stats, run): (&mut Stats, &mut StageRun),
    env: &mut Env<'_>,
    out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Step> {
    let before = run.stats;
    let step = run.work(input, env, out)?;
    let is_taken = matches!(step, Step::Advanced(Emit::Taken | Emit::Enough));
    let given = run.stats.advanced - before.advanced - u64::from(is_taken);
    count_more(stats, run.stats.works - before.works, step, given);
    Ok(step)
}

/// A unit of work of a stage that keeps what it gets.
fn take_in(
    input: &Stage,
    (stats, run): (&mut Stats, &mut StageRun),
    env: &mut Env<'_>,
    out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Step> {
    let before = run.stats.works;
    let step = run.work(input, env, out)?;
    count_more(stats, run.stats.works - before, step, 0);
    Ok(step)
}

/// A unit of work of a stage that leaves out the first of what it gets; `left` of it are still to
/// be left out.
fn skip(
    (stage, left): (&Counted, &mut u64),
    (stats, run): (&mut Stats, &mut StageRun),
    env: &mut Env<'_>,
    out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Step> {
    if *left == 0 {
        return follow(&stage.input, (stats, run), env, out);
    }
    let before = run.stats.advanced;
    run.count_only(*left);
    let step = take_in(&stage.input, (stats, run), env, &mut |_| Ok(Emit::Taken))?;
    *left -= run.stats.advanced - before;
    Ok(match step {
        Step::Advanced(_) => Step::NeedTime,
        other => other,
    })
}

/// A unit of work of a stage that lets only the first of what it gets through; `left` of it may
/// still pass.
fn limit(
    (stage, left): (&Counted, &mut u64),
    (stats, run): (&mut Stats, &mut StageRun),
    env: &mut Env<'_>,
    out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Step> {
    if *left == 0 {
        return Ok(Step::Eof);
    }
    let step = follow(&stage.input, (stats, run), env, out)?;
    if matches!(step, Step::Advanced(Emit::Taken | Emit::Enough)) {
        *left -= 1;
    }
    Ok(step)
}
