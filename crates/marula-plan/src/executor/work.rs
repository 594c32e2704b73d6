//! One unit of work of each stage.

use marula_bson::{Doc, FieldSet};
use marula_db::index::entry::Entry;
use marula_db::index::{KeyMaker, KeySet};
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

/// The result of a unit of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A document was passed on; this is the reply.
    Advanced(Emit),
    /// No document yet.
    NeedTime,
    /// There are no more documents.
    Eof,
}

/// The maximum size of documents that a run may examine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeLimit {
    bytes_max: usize,
}

impl SizeLimit {
    /// No limit.
    pub(crate) const NONE: SizeLimit = SizeLimit { bytes_max: usize::MAX };

    /// The limit of this thread's operation.
    pub(super) fn of_thread() -> Self {
        SizeLimit { bytes_max: current::document_bytes_max() }
    }

    /// Postpones the operation if a document is too large to be examined here.
    #[inline]
    pub(super) fn check(self, doc: Doc<'_>) -> Result<()> {
        if doc.as_bytes().len() <= self.bytes_max { Ok(()) } else { Err(Error::postponed()) }
    }
}

/// The environment of the stages during one run.
pub(crate) struct Env<'r> {
    unit: Unit<'r>,
    /// The view that is read.
    pub(crate) view: &'r dyn View,
    pub(crate) collection: &'r Collection,
    /// The filter that every returned document must match, whichever stage checks it.
    filter: &'r Filter,
    /// The fields that are used afterwards.
    fields: Option<&'r FieldSet>,
    /// Whether the entries that lead to documents are used, too.
    pub(super) wants_entries: bool,
    /// The context of the operation.
    context: &'r Context,
    /// The newest commit at the start of the run.
    pub(super) opened: Stamp,
    /// The limit on the size of documents.
    pub(super) size: SizeLimit,
    /// The cursors of the stages with a position in the store, by their numbers.
    pub(super) open: Vec<Open<'r>>,
}

impl<'r> Env<'r> {
    pub(crate) fn new(
        unit: Unit<'r>,
        collection: &'r Collection,
        query: &'r Query,
        size: SizeLimit,
        place_count: usize,
    ) -> Self {
        let view = unit.view();
        let open = std::iter::repeat_with(|| Open::Closed).take(place_count).collect();
        let (filter, fields, context) = (&query.filter, query.fields.as_ref(), &query.context);
        let opened = view.moment();
        Env {
            unit,
            view,
            collection,
            filter,
            fields,
            wants_entries: query.wants_key,
            context,
            opened,
            size,
            open,
        }
    }

    /// Returns the source of documents for a scan.
    pub(super) fn origin(&self) -> Origin<'r, 'r> {
        Origin { view: self.view, collection: self.collection, opened: self.opened }
    }

    /// Returns whether there was a write since the run began, so that index entries may be out of
    /// date.
    pub(super) fn is_overtaken(&self) -> bool {
        self.view.has_moved(self.opened)
    }

    /// Returns the filter that a document read now must match: the whole filter, if index entries
    /// may be out of date.
    pub(super) fn whole_filter_if_overtaken(&self) -> Option<&'r Filter> {
        self.is_overtaken().then_some(self.filter)
    }
}

/// The state of a stage that fetches documents.
#[derive(Default)]
pub(super) struct FetchState {
    /// Whether the record is returned without reading its document.
    pub(super) is_unread: bool,
    /// The key of the lookup.
    key: Vec<u8>,
}

/// The state of a sort.
#[derive(Default)]
pub(super) struct Sorting {
    sorter: Option<Box<Sorter>>,
    /// The number of rows that the stage above skips from here on.
    pub(super) unseen: u64,
    /// Whether each skipped row is a unit of work, as during a trial.
    pub(super) is_tried: bool,
    /// Whether a late fetch found a document that had changed.
    was_overtaken: bool,
}

impl Sorting {
    /// Returns the bytes that were sorted, and the number of spills to disk.
    pub(super) fn sorted(&self) -> (u64, u64) {
        self.sorter.as_ref().map_or((0, 0), |sorter| sorter.sorted())
    }
}

impl StageRun {
    /// Lets `stage`, whose state this is, do one unit of work; passes the found document to `out`.
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
            // The taker examines its document.
            stats.docs += u64::from(matches!(step, Step::Advanced(Emit::Taken | Emit::Enough)));
            return Ok(step);
        }
        if run.stats.is_eof {
            return Ok(Step::Eof);
        }
        let (view, collection, whole, opened) = (env.view, env.collection, env.filter, env.opened);
        let size = env.size;
        let is_overtaken = || view.has_moved(opened);
        // Whether the last document passed the filter, and the number of those before it.
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
                let passes = || filter.as_ref().map_or(Ok(true), |filter| filter.matches(doc));
                let matches = match is_overtaken {
                    false => passes(),
                    true => matches_now(doc, whole, found.entry.as_ref(), &passes),
                };
                answer = match matches {
                    Ok(false) => Ok(Emit::Taken),
                    Ok(true) => {
                        has_passed = true;
                        out(Found { doc, is_fetched: true, ..found })
                    }
                    Err(error) => Err(error),
                };
            };
            if found.is_fetched {
                // Counted as documents that are present already, and as examined documents.
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
        // The documents that passed before the last unit, which is counted separately.
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

/// Returns whether a document matches after a write since the run began, which may have changed it:
/// as a whole, or because it still has the entry that led to it. The two differ for some bounds: by
/// its entries, a document with an empty array is `$gte` MinKey at a path into the array.
fn matches_now(
    doc: Doc<'_>,
    whole: &Filter,
    entry: Option<&(&Index, Entry<'_>)>,
    passes: &dyn Fn() -> Result<bool>,
) -> Result<bool> {
    if whole.matches(doc)? {
        return Ok(true);
    }
    match entry {
        Some((index, entry)) if has_entry(doc, index, entry)? => passes(),
        _ => Ok(false),
    }
}

/// Returns whether a document still has the entry that led to it.
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
                // A view of one moment: the page's documents are not worth caching.
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
        // A single skipped row takes the same unit as a returned one.
        let unseen = std::mem::take(unseen).min(UNSEEN_MAX);
        if unseen > 1 && !*is_tried {
            let Some(more) = rows.pass(unseen)?.checked_sub(1) else { return Ok(Step::Eof) };
            stats.works += more;
            stats.advanced += more;
            return Ok(Step::Advanced(Emit::Taken));
        }
        let mut step = Step::Eof;
        let is_fetched = self.is_simple && self.keys != SortedKeys::Instead;
        // One unit of work returns one document.
        let end = rows.drain(&mut |found| {
            let answer = out(Found { is_fetched, ..found })?;
            step = Step::Advanced(answer);
            Ok(if answer == Emit::Full { Emit::Full } else { Emit::Enough })
        })?;
        debug_assert!(end == End::Paused || step == Step::Eof);
        Ok(step)
    }
}

/// Counts `units` of the stage below, which ended with `step`, without the last one, which is
/// counted separately. In `given` of them this stage returned a document.
fn count_more(stats: &mut Stats, units: u64, step: Step, given: u64) {
    // A document that was not taken is returned again, and its unit is counted then.
    let is_full = step == Step::Advanced(Emit::Full);
    let more = units - u64::from(!is_full);
    stats.works += more;
    stats.advanced += given;
    stats.need_time += more - given;
}

/// A unit of work of a stage that passes on all documents.
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

/// A unit of work of a stage that stores its input.
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

/// A unit of work of a stage that skips the first documents; `left` are still to be skipped.
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

/// A unit of work of a stage that limits the number of documents; `left` may still pass.
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
