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
use super::scan::Open;
use super::sort::Sorter;
use super::walk::Origin;
use super::{Emit, End, Found};
use crate::plan::{Counted, Fetch, Node, Or, Projecting, Sort, SortedKeys, Stage, Stats};
use crate::query::Query;

/// How many entries a walk may move over within one unit of work: few enough to be interrupted
/// between.
const UNSEEN_MAX: u64 = 256;

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

/// What a sort remembers while it runs.
#[derive(Default)]
pub(crate) struct Sorting {
    sorter: Option<Sorter>,
    /// How many rows the stage above passes over from here on.
    unseen: u64,
    /// Whether each of them is a unit of work of its own, as where plans are compared.
    is_tried: bool,
    /// Whether documents were fetched in the end and were not what was sorted.
    was_overtaken: bool,
}

impl Sorting {
    /// The bytes that were sorted, and how often some of them went to the disk.
    pub(crate) fn sorted(&self) -> (u64, u64) {
        self.sorter.as_ref().map_or((0, 0), Sorter::sorted)
    }
}

impl Node {
    /// Does one unit of work; shows what it finds to `out`.
    pub(crate) fn work(
        &mut self,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        self.stats.works += 1;
        let stats = &mut self.stats;
        let step = match &mut self.stage {
            Stage::Eof => Step::Eof,
            Stage::IdHack(stage) => stage.work(stats, env, out)?,
            Stage::Collscan(stage) => stage.work(stats, env, out)?,
            Stage::Ixscan(stage) => stage.work(stats, env, out)?,
            Stage::Fetch(stage) => stage.work(stats, env, out)?,
            Stage::GeoNear(stage) => stage.work(env, out)?,
            Stage::AndSorted(stage) => stage.work(env, out)?,
            Stage::Or(stage) => stage.work(stats, env, out)?,
            Stage::SortMerge(stage) => stage.work(stats, env, out)?,
            Stage::TextOr(stage) => stage.work(stats, env, out)?,
            Stage::TextMatch(stage) => stage.work(env, out)?,
            Stage::Sort(stage) => stage.work(stats, env, out)?,
            Stage::Skip(stage) => skip(stage, stats, env, out)?,
            Stage::Limit(stage) => limit(stage, stats, env, out)?,
            Stage::Projection(stage) => follow(&mut stage.input, stats, env, out)?,
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

    /// Whether it has nothing more to give and knows it without another unit of work.
    pub(crate) fn is_spent(&self) -> bool {
        match &self.stage {
            Stage::Limit(stage) => stage.left == 0 || stage.input.is_spent(),
            Stage::Skip(stage) => stage.input.is_spent(),
            Stage::Fetch(stage) => stage.input.is_spent(),
            Stage::Projection(stage) => stage.input.is_spent(),
            Stage::IdHack(stage) => stage.standing.is_at_end(),
            Stage::SortMerge(stage) => stage.is_spent(),
            _ => false,
        }
    }
}

impl Fetch {
    fn work(
        &mut self,
        stats: &mut Stats,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let Fetch { filter, input, is_unread, key } = self;
        if *is_unread {
            let step = input.work(env, out)?;
            // Whoever takes it looks at its document.
            stats.docs += u64::from(matches!(step, Step::Advanced(Emit::Taken | Emit::Enough)));
            return Ok(step);
        }
        if input.stats.is_eof {
            return Ok(Step::Eof);
        }
        let (view, collection, whole, opened) = (env.view, env.collection, env.filter, env.opened);
        let size = env.size;
        let is_overtaken = || view.has_moved(opened);
        // Whether the last document has passed, and how many did before it.
        let (mut has_passed, mut passed) = (false, 0);
        let before = input.stats.works;
        let step = input.work(env, &mut |found| {
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
        count_more(stats, input.stats.works - before, step, passed);
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
        &mut self,
        stats: &mut Stats,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let Or { inputs, current, given } = self;
        let input_count = inputs.len();
        let Some(input) = inputs.get_mut(*current) else { return Ok(Step::Eof) };
        let mut has_passed = false;
        let step = input.work(env, &mut |found| {
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
                if *current < input_count { Step::NeedTime } else { Step::Eof }
            }
            other => other,
        })
    }
}

impl Sort {
    fn work(
        &mut self,
        stats: &mut Stats,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let Sorting { sorter, unseen, is_tried, was_overtaken } = &mut self.sorting;
        let sorter = sorter.get_or_insert_with(|| {
            let (pattern, context) = (self.pattern.clone(), env.context);
            let mut sorter =
                Sorter::new(pattern, self.limit, self.keys, env.filter.near(), context);
            if !*was_overtaken && self.is_simple && may_begin_anew(&self.input) {
                sorter.fetch_late(self.limit, *unseen, self.bytes_max);
            }
            sorter
        });
        if !sorter.is_filled() {
            let fields = env.fields;
            let mut take = |found: Found<'_>| {
                sorter.push(found, fields)?;
                Ok(Emit::Taken)
            };
            if take_in(&mut self.input, stats, env, &mut take)? == Step::Eof {
                sorter.finish()?;
                let (collection, filter) = (env.collection, env.filter);
                // A view of one moment: what a page was sorted out of a moment ago is not worth
                // keeping for the next look.
                let still = env.unit.still()?;
                let view = still.as_deref().unwrap_or(env.view);
                let source = Source { view, collection, filter, fields: env.fields };
                if !sorter.fetch(*unseen, &source)? {
                    *was_overtaken = true;
                    self.sorting.sorter = None;
                    begin_anew(&mut self.input);
                }
            }
            return Ok(Step::NeedTime);
        }
        // One that is passed over alone takes the same unit as one that is given.
        let unseen = std::mem::take(unseen).min(UNSEEN_MAX);
        if unseen > 1 && !*is_tried {
            let Some(more) = sorter.pass(unseen)?.checked_sub(1) else { return Ok(Step::Eof) };
            stats.works += more;
            stats.advanced += more;
            return Ok(Step::Advanced(Emit::Taken));
        }
        let mut step = Step::Eof;
        let is_fetched = self.is_simple && self.keys != SortedKeys::Instead;
        // One unit of work gives one document.
        let end = sorter.drain(&mut |found| {
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
    input: &mut Node,
    stats: &mut Stats,
    env: &mut Env<'_>,
    out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Step> {
    let before = input.stats;
    let step = input.work(env, out)?;
    let is_taken = matches!(step, Step::Advanced(Emit::Taken | Emit::Enough));
    let given = input.stats.advanced - before.advanced - u64::from(is_taken);
    count_more(stats, input.stats.works - before.works, step, given);
    Ok(step)
}

/// A unit of work of a stage that keeps what it gets.
fn take_in(
    input: &mut Node,
    stats: &mut Stats,
    env: &mut Env<'_>,
    out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Step> {
    let before = input.stats.works;
    let step = input.work(env, out)?;
    count_more(stats, input.stats.works - before, step, 0);
    Ok(step)
}

fn skip(
    stage: &mut Counted,
    stats: &mut Stats,
    env: &mut Env<'_>,
    out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Step> {
    if stage.left == 0 {
        return follow(&mut stage.input, stats, env, out);
    }
    let before = stage.input.stats.advanced;
    count_only(&mut stage.input, stage.left);
    let step = take_in(&mut stage.input, stats, env, &mut |_| Ok(Emit::Taken))?;
    stage.left -= stage.input.stats.advanced - before;
    Ok(match step {
        Step::Advanced(_) => Step::NeedTime,
        other => other,
    })
}

/// Tells a stage that of what it gives next, up to `count` are only counted.
pub(super) fn count_only(node: &mut Node, count: u64) {
    match &mut node.stage {
        Stage::Ixscan(scan) => scan.standing.unseen = count.min(UNSEEN_MAX),
        Stage::Sort(sort) => sort.sorting.unseen = count,
        _ => {}
    }
}

/// Whether a stage can give all that it has given once more: a walk over an index whose documents
/// are fetched.
fn may_begin_anew(node: &Node) -> bool {
    let Stage::Fetch(fetch) = &node.stage else { return false };
    matches!(fetch.input.stage, Stage::Ixscan(_)) && !fetch.is_unread
}

/// Has such a stage begin anew. What it has done stays counted.
fn begin_anew(node: &mut Node) {
    node.stats.is_eof = false;
    if let Stage::Ixscan(scan) = &mut node.stage {
        scan.standing.begin_anew();
    }
    node.inputs_mut().iter_mut().for_each(begin_anew);
}

fn limit(
    stage: &mut Counted,
    stats: &mut Stats,
    env: &mut Env<'_>,
    out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
) -> Result<Step> {
    if stage.left == 0 {
        return Ok(Step::Eof);
    }
    let step = follow(&mut stage.input, stats, env, out)?;
    if matches!(step, Step::Advanced(Emit::Taken | Emit::Enough)) {
        stage.left -= 1;
    }
    Ok(step)
}

/// Gives each stage that has a place in the store a number of its own; answers how many there are.
pub(crate) fn number_places(root: &mut Node) -> usize {
    fn number(node: &mut Node, next: &mut usize) {
        let standing = match &mut node.stage {
            Stage::Collscan(stage) => Some(&mut stage.standing),
            Stage::Ixscan(stage) => Some(&mut stage.standing),
            _ => None,
        };
        if let Some(standing) = standing {
            standing.number = *next;
            *next += 1;
        }
        if let Stage::GeoNear(stage) = &mut node.stage {
            stage.take_number(*next);
            *next += 1;
            return;
        }
        node.inputs_mut().iter_mut().for_each(|input| number(input, next));
    }
    let mut next = 0;
    number(root, &mut next);
    next
}

/// Has walks take documents and entries one by one, and all that mongod would, so that their work
/// can be compared.
pub(crate) fn take_one_by_one(root: &mut Node) {
    match &mut root.stage {
        Stage::Collscan(scan) => {
            scan.standing.is_tried = true;
            scan.standing.is_told = true;
        }
        Stage::Ixscan(scan) => scan.standing.is_tried = true,
        Stage::Sort(sort) => sort.sorting.is_tried = true,
        _ => {}
    }
    root.inputs_mut().iter_mut().for_each(take_one_by_one);
}

/// Has walks over documents and searches look at all that mongod would look at.
pub(crate) fn tell_all(root: &mut Node) {
    match &mut root.stage {
        Stage::Collscan(scan) => scan.standing.is_told = true,
        Stage::GeoNear(search) => search.tell_all(),
        _ => {}
    }
    root.inputs_mut().iter_mut().for_each(tell_all);
}

/// Lets a walk give several documents within one unit of work, where whoever takes them does not
/// count by units.
pub(super) fn give_many(root: &mut Node) {
    give_many_unless(root, false);
}

/// [`give_many`], unless a stage above counts units. A sort gives one by one, whatever it takes.
fn give_many_unless(node: &mut Node, is_counted: bool) {
    match &mut node.stage {
        Stage::Skip(Counted { input, .. }) | Stage::Limit(Counted { input, .. }) => {
            give_many_unless(input, true);
        }
        Stage::Sort(Sort { input, .. }) => give_many_unless(input, false),
        Stage::Projection(Projecting { input, .. }) => give_many_unless(input, is_counted),
        Stage::Collscan(scan) if !is_counted => scan.standing.gives_many = true,
        Stage::Fetch(Fetch { input, is_unread: false, .. }) if !is_counted => {
            if let Stage::Ixscan(scan) = &mut input.stage {
                scan.standing.gives_many = true;
            }
        }
        _ => {}
    }
}

/// Tells walks whose documents the stage above reads how many are wanted of them, at most.
pub(super) fn expect(node: &mut Node, wanted: u64) {
    match &mut node.stage {
        Stage::Projection(stage) => expect(&mut stage.input, wanted),
        Stage::Limit(stage) => expect(&mut stage.input, wanted.min(stage.left)),
        Stage::Skip(stage) => expect(&mut stage.input, wanted.saturating_add(stage.left)),
        Stage::Fetch(stage) if !stage.is_unread => {
            // Of what does not match, nobody knows how much comes.
            let wanted = if stage.filter.is_some() { u64::MAX } else { wanted };
            match &mut stage.input.stage {
                Stage::Ixscan(scan) if !scan.covers && scan.filter.is_none() => {
                    scan.standing.wanted = wanted;
                }
                _ => expect(&mut stage.input, u64::MAX),
            }
        }
        _ => node.inputs_mut().iter_mut().for_each(|input| expect(input, u64::MAX)),
    }
}

/// Ends a run: notes where each stage stands, and lets go of the store.
pub(crate) fn rest(node: &mut Node, env: &mut Env<'_>) {
    match &mut node.stage {
        Stage::Collscan(stage) => stage.standing.rest(env),
        Stage::Ixscan(stage) => stage.standing.rest(env),
        // Its inputs have one cursor, the last of them.
        Stage::GeoNear(stage) => {
            stage.inputs.last_mut().into_iter().for_each(|input| rest(input, env))
        }
        _ => node.inputs_mut().iter_mut().for_each(|input| rest(input, env)),
    }
}

/// Never gives a document twice from here on.
pub(super) fn remember(node: &mut Node) {
    match &mut node.stage {
        Stage::Ixscan(stage) => stage.standing.remember(),
        _ => node.inputs_mut().iter_mut().for_each(remember),
    }
}

/// Lets a stage that has come to the end look for more.
pub(super) fn reopen(node: &mut Node) {
    node.stats.is_eof = false;
    if let Stage::Collscan(stage) = &mut node.stage {
        stage.standing.reopen();
    }
    node.inputs_mut().iter_mut().for_each(reopen);
}
