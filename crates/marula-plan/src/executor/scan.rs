//! The stages that scan the store: by `_id`, over documents, over an index.
//!
//! ```text
//!   during a run:        Env::open[number] = Open::Records(cursor) | Open::Entries(walk) | Closed
//!   at its end (`rest`): the cursor is closed; ScanState::position = Start | At(key) | End
//!   the next run:        opens a cursor and seeks to the position: after it, or at it if the
//!                        document there was not taken (`is_held`)
//! ```

use std::collections::HashSet;

use marula_bson::Doc;
use marula_bson::key_string::{part_length, successor};
use marula_db::collection::RecordCursor;
use marula_db::index::entry::Entry;
use marula_db::{Index, RecordKey};
use marula_error::{Result, errors};
use marula_query::filter::{Filter, Node as FilterNode};
use marula_storage::Direction;

use super::entry_doc;
use super::run::Stats;
use super::walk::Walk;
use super::work::{Env, Step};
use super::{Emit, Found};
use crate::bounds::{KeyBounds, Verdict};
use crate::plan::{Collscan, IdHack, Ixscan, ScanUse};

errors! {
    place_lost(record: i64) = CappedPositionLost, "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId({record})";
    tail_lost(record: i64) = CappedPositionLost, "CollectionScan died due to failure to restore tailable cursor position. Last seen record id: RecordId({record})";
    damaged_key(index: &str) = 8_000_006, "an entry of index '{index}' is not a key string";
}

/// The maximum number of documents examined within one unit of work: few enough for an interruption
/// in between.
const SEEN_MAX: u32 = 32;

/// The maximum number of entries skipped within one unit of work: few enough for an interruption in
/// between.
pub(super) const UNSEEN_MAX: u64 = 256;

/// The cursor of a stage during a run.
pub(crate) enum Open<'r> {
    Closed,
    Records(RecordCursor<'r>),
    Entries(Walk<'r>),
}

/// The state of the lookup of one `_id`.
#[derive(Default)]
pub(super) struct LookupState {
    /// Whether the document has been returned, or does not exist.
    pub(super) is_done: bool,
    /// Whether the record is returned without reading its document.
    pub(super) is_unread: bool,
    /// The key of the lookup.
    key: Vec<u8>,
}

/// The position of a scan, within a run and between two.
#[derive(Default)]
pub(super) struct ScanState {
    /// The number of its cursor in the run.
    pub(super) number: usize,
    pub(super) position: Position,
    /// Whether the current document or entry was not taken and is returned again.
    pub(super) is_held: bool,
    /// The key of the last record that a collection scan reached; empty before the first.
    last: Vec<u8>,
    /// Whether the scan had ended when it was last reopened.
    was_at_end: bool,
    /// The documents returned so far, if an index may lead to one twice.
    given: Option<HashSet<RecordKey>>,
    /// Whether a scan may return several documents within one unit of work. It counts the units
    /// that these would have taken.
    pub(super) gives_many: bool,
    /// Whether a scan examines only one document or entry within one unit of work, as it does
    /// during a trial.
    pub(super) is_tried: bool,
    /// Whether a collection scan reads everything that mongod would read, because its counts are
    /// reported.
    pub(super) examines_all: bool,
    /// The next position, if the following entries are known to be outside the bounds.
    place: Vec<u8>,
    must_seek: bool,
    /// A document with an entry's values.
    shown: Vec<u8>,
    /// The maximum number of documents that the stage above reads from here on; zero if it does not
    /// read the documents.
    pub(super) wanted: u64,
    /// The maximum number of entries that the stage above only counts from here on. The stage
    /// counts their units of work.
    pub(super) unseen: u64,
}

/// The position of a stage between runs.
#[derive(Default)]
pub(super) enum Position {
    #[default]
    Start,
    /// At the record or entry with this key.
    At(Vec<u8>),
    End,
}

impl ScanState {
    /// Returns the state of a scan of an index, which may have to return each document once.
    pub(super) fn of_index(gives_once: bool) -> Self {
        ScanState { given: gives_once.then(HashSet::new), ..ScanState::default() }
    }

    pub(super) fn is_at_end(&self) -> bool {
        matches!(self.position, Position::End)
    }

    /// Checks at the start of a run that the document at the scan's position has not been removed
    /// from a capped collection since.
    ///
    /// Errors: `place_lost`, `tail_lost`.
    pub(super) fn check_place(&mut self, env: &Env<'_>) -> Result<()> {
        let was_at_end = std::mem::take(&mut self.was_at_end);
        if let Position::At(record) = &self.position
            && env.collection.state().options.capped.is_some()
            && !env.collection.get(env.view, record, &mut Vec::new(), &mut |_| ())?
        {
            let record = RecordKey::new(record).record_id().unwrap_or_default();
            return Err(if was_at_end { tail_lost(record) } else { place_lost(record) });
        }
        Ok(())
    }

    /// Up to `count` of the next entries are only counted by the stage above.
    pub(super) fn count_only(&mut self, count: u64) {
        self.unseen = count.min(UNSEEN_MAX);
    }

    /// Moves back to the start of the scan.
    pub(super) fn begin_again(&mut self) {
        let given = self.given.take().map(|_| HashSet::new());
        let wanted = if self.wanted > 0 { u64::MAX } else { 0 };
        let ScanState { number, gives_many, .. } = *self;
        *self = ScanState { number, gives_many, given, wanted, ..ScanState::default() };
    }

    /// Moves to the record after `record`, or to that record if it was not taken; returns whether
    /// there is one.
    pub(super) fn go_on(&self, record: &[u8], cursor: &mut RecordCursor<'_>) -> Result<bool> {
        Ok(cursor.seek(record)?
            && (self.is_held || cursor.record() != record || cursor.advance()?))
    }

    /// Makes sure that no document is returned twice from here on, nor any of `given`.
    pub(super) fn give_once(&mut self, given: &[RecordKey]) {
        self.given.get_or_insert_default().extend(given.iter().cloned());
    }

    /// Lets a scan at its end continue with records added after it.
    pub(super) fn reopen(&mut self) {
        if self.is_at_end() {
            self.was_at_end = true;
            self.position = match self.last.is_empty() {
                true => Position::Start,
                false => Position::At(self.last.clone()),
            };
        }
    }

    /// Ends the scan.
    pub(super) fn end(&mut self, open: &mut Open<'_>) -> Step {
        self.position = Position::End;
        *open = Open::Closed;
        Step::Eof
    }

    /// Records the cursor's position and closes the cursor.
    pub(super) fn rest(&mut self, env: &mut Env<'_>) {
        let open = std::mem::replace(&mut env.open[self.number], Open::Closed);
        if self.is_at_end() {
            return;
        }
        match open {
            // A scan that failed has no position; its caller does not run it again.
            Open::Records(cursor) if !cursor.is_on() => {}
            Open::Entries(walk) if !walk.is_on() => {}
            Open::Closed => {}
            Open::Records(cursor) => self.position = Position::At(cursor.record().to_vec()),
            Open::Entries(walk) => self.position = Position::At(walk.position().to_vec()),
        }
    }
}

impl IdHack {
    pub(super) fn work(
        &self,
        (stats, lookup): (&mut Stats, &mut LookupState),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let LookupState { is_done, is_unread, key } = lookup;
        if *is_done {
            return Ok(Step::Eof);
        }
        let Some(record) = env.collection.find_id(env.view, self.id.get(), key)? else {
            *is_done = true;
            return Ok(Step::Eof);
        };
        let record = record.as_bytes();
        let mut answer = None;
        if *is_unread {
            answer = Some(out(Found::unread(record))?);
        } else {
            let (mut result, size) = (Ok(()), env.size);
            env.collection.get(env.view, record, key, &mut |doc| match size
                .check(doc)
                .and_then(|()| out(Found::fetched(doc, record)))
            {
                Ok(given) => answer = Some(given),
                Err(error) => result = Err(error),
            })?;
            result?;
        }
        if answer == Some(Emit::Full) {
            return Ok(Step::Advanced(Emit::Full));
        }
        *is_done = true;
        Ok(match answer {
            Some(answer) => {
                stats.keys += 1;
                stats.docs += 1;
                Step::Advanced(answer)
            }
            None => Step::Eof,
        })
    }
}

impl Collscan {
    pub(super) fn work(
        &self,
        (stats, scan): (&mut Stats, &mut ScanState),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        if scan.is_at_end() {
            return Ok(Step::Eof);
        }
        if scan.examines_all
            && let Some(records) = self.records.as_ref().filter(|records| records.is_bounded())
        {
            return self.work_around(records, (stats, scan), env, out);
        }
        let Collscan { direction, filter, records } = self;
        let open = &mut env.open[scan.number];
        let there_is_one = if let Open::Records(cursor) = open {
            scan.is_held || cursor.advance()?
        } else {
            let meets_nothing = |filter: &Filter| matches!(filter.root(), FilterNode::AlwaysFalse);
            if !scan.examines_all && filter.as_ref().is_some_and(meets_nothing) {
                scan.position = Position::End;
                return Ok(Step::Eof);
            }
            let mut cursor = match records {
                Some(records) => {
                    env.collection.scan_between(env.view, &records.range, *direction)?
                }
                None => env.collection.scan(env.view, *direction)?,
            };
            let there_is_one = match &scan.position {
                Position::At(record) => scan.go_on(record, &mut cursor)?,
                Position::Start | Position::End => cursor.advance()?,
            };
            *open = Open::Records(cursor);
            there_is_one
        };
        let mut there_is_one = there_is_one;
        // Documents that do not match are skipped here and the following ones returned, without
        // passing through the tree of stages for each document.
        for seen in 1.. {
            let Open::Records(cursor) = open else { break };
            if !there_is_one {
                scan.position = Position::End;
                *open = Open::Closed;
                break;
            }
            let was_held = std::mem::replace(&mut scan.is_held, false);
            if !was_held {
                stats.docs += 1;
                scan.last.clear();
                scan.last.extend_from_slice(cursor.record());
            }
            let doc = cursor.doc();
            env.size.check(doc)?;
            if filter.as_ref().map_or(Ok(true), |filter| filter.matches(doc))? {
                let answer = out(Found::fetched(doc, cursor.record()))?;
                scan.is_held = answer == Emit::Full;
                if answer != Emit::Taken || !scan.gives_many || seen >= SEEN_MAX {
                    return Ok(Step::Advanced(answer));
                }
                stats.advanced += 1;
            } else {
                if seen >= SEEN_MAX || scan.is_tried {
                    return Ok(Step::NeedTime);
                }
                stats.need_time += 1;
            }
            stats.works += 1;
            there_is_one = cursor.advance()?;
        }
        Ok(Step::Eof)
    }
}

impl Ixscan {
    pub(super) fn work(
        &self,
        (stats, scan): (&mut Stats, &mut ScanState),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let mut step = self.step(stats, scan, env, out)?;
        let more = if scan.gives_many { SEEN_MAX - 1 } else { 0 };
        let is_plain = self.is_plain(scan);
        for _ in 0..more {
            if step != Step::Advanced(Emit::Taken) {
                break;
            }
            stats.works += 1;
            stats.advanced += 1;
            step = if is_plain && scan.wanted > 0 {
                Ixscan::plain_step(stats, scan, env, out)?
            } else {
                self.step(stats, scan, env, out)?
            };
        }
        Ok(step)
    }

    /// Returns whether a running scan returns everything within its range, document by document.
    fn is_plain(&self, scan: &ScanState) -> bool {
        matches!(self.bounds.keys, KeyBounds::Range(_))
            && self.used_for == ScanUse::Documents
            && self.filter.is_none()
            && !self.covers
            && scan.given.is_none()
    }

    /// [`Ixscan::step`] of a [plain](Ixscan::is_plain) scan whose last document was taken.
    fn plain_step(
        stats: &mut Stats,
        scan: &mut ScanState,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let from = env.origin();
        let open = &mut env.open[scan.number];
        // The only key of a unique index was looked up.
        let Open::Entries(walk) = open else { return Ok(scan.end(open)) };
        let wanted = scan.wanted;
        scan.wanted -= 1;
        if !walk.advance_reading(&from, wanted, None)? {
            return Ok(scan.end(open));
        }
        stats.keys += 1;
        let answer = out(found_at(walk, walk.entry()?, Doc::EMPTY))?;
        scan.is_held = answer == Emit::Full;
        Ok(Step::Advanced(answer))
    }

    /// Examines one entry, or skips several.
    fn step(
        &self,
        stats: &mut Stats,
        scan: &mut ScanState,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let direction = self.direction;
        if scan.is_at_end() {
            return Ok(Step::Eof);
        }
        if let Some(key) = self.only_key().filter(|_| !env.wants_entries) {
            let record = env.collection.find_unique(env.view, &key)?;
            env.collection.check_index(&self.index)?;
            let Some(record) = record else {
                stats.seeks += 1;
                scan.position = Position::End;
                return Ok(Step::Eof);
            };
            let answer = out(Found::unread(record.as_bytes()))?;
            if answer != Emit::Full {
                stats.seeks += 1;
                stats.keys += 1;
                scan.position = Position::End;
            }
            return Ok(Step::Advanced(answer));
        }
        if self.may_pass(scan) && matches!(env.open[scan.number], Open::Entries(_)) {
            return self.pass(stats, scan, env);
        }
        let there_is_one = self.advance(stats, scan, env)?;
        let Self { bounds, filter, covers, used_for, .. } = self;
        let open = &mut env.open[scan.number];
        let cursor = match open {
            Open::Entries(cursor) if there_is_one => cursor,
            _ => {
                // A count also examines the key after the last one.
                stats.keys += u64::from(*used_for == ScanUse::Count);
                return Ok(scan.end(open));
            }
        };
        let was_held = std::mem::replace(&mut scan.is_held, false);
        stats.keys += u64::from(!was_held);
        let entry = cursor.entry()?;
        let damaged = || damaged_key(&cursor.index().spec.name);
        if let KeyBounds::Fields(fields) = &bounds.keys {
            let verdict = fields.check(entry.key_string, direction, &mut scan.place);
            match verdict.ok_or_else(damaged)? {
                Verdict::Inside => {}
                Verdict::Seek => {
                    scan.must_seek = is_ahead(direction, cursor.position(), &scan.place);
                    return Ok(Step::NeedTime);
                }
                Verdict::Done => {
                    return Ok(scan.end(open));
                }
            }
        }
        let record = scan.given.is_some().then(|| RecordKey::new(entry.record));
        if let (Some(given), Some(record)) = (&scan.given, &record) {
            stats.dups_tested += u64::from(!was_held);
            if given.contains(record) {
                stats.dups_dropped += 1;
                return Ok(Step::NeedTime);
            }
        }
        let index: &Index = cursor.index();
        if *covers || filter.is_some() {
            entry_doc::write(index, &entry, &mut scan.shown).ok_or_else(damaged)?;
            if let Some(filter) = filter
                && !filter.matches(Doc::trusted(&scan.shown))?
            {
                return Ok(Step::NeedTime);
            }
        }
        let doc = if *covers { Doc::trusted(&scan.shown) } else { Doc::EMPTY };
        let answer = out(found_at(cursor, entry, doc))?;
        if answer == Emit::Full {
            scan.is_held = true;
            return Ok(Step::Advanced(answer));
        }
        if let (Some(given), Some(record)) = (&mut scan.given, record) {
            given.insert(record);
        }
        if let ScanUse::Distinct(field) = *used_for {
            let prefix = leading_fields(index, entry.key_string, field + 1).ok_or_else(damaged)?;
            scan.place.clear();
            match direction {
                Direction::Forward => {
                    scan.place.extend(successor(prefix).ok_or_else(damaged)?);
                }
                Direction::Backward => scan.place.extend_from_slice(prefix),
            }
            scan.must_seek = true;
        }
        Ok(Step::Advanced(answer))
    }

    /// Returns whether the next entries, which the stage above only counts, need not be examined.
    fn may_pass(&self, scan: &ScanState) -> bool {
        let ScanState { unseen, is_held, must_seek, is_tried, given, .. } = scan;
        *unseen > 1
            && !(*is_held || *must_seek || *is_tried)
            && given.is_none()
            && self.filter.is_none()
            && !matches!(self.bounds.keys, KeyBounds::Fields(_))
            && !matches!(self.used_for, ScanUse::Distinct(_))
    }

    /// Skips entries that the stage above only counts.
    fn pass(&self, stats: &mut Stats, scan: &mut ScanState, env: &mut Env<'_>) -> Result<Step> {
        let open = &mut env.open[scan.number];
        let unseen = std::mem::take(&mut scan.unseen);
        let passed = match open {
            Open::Entries(cursor) => cursor.pass(unseen)?,
            _ => 0,
        };
        stats.keys += passed;
        if passed < unseen {
            stats.keys += u64::from(self.used_for == ScanUse::Count);
            scan.position = Position::End;
            *open = Open::Closed;
        }
        let Some(more) = passed.checked_sub(1) else { return Ok(Step::Eof) };
        stats.works += more;
        stats.advanced += more;
        Ok(Step::Advanced(Emit::Taken))
    }

    /// Returns the single key that a scan of a unique index needs if only the record is wanted: a
    /// lookup costs less than a cursor.
    fn only_key(&self) -> Option<Vec<u8>> {
        let KeyBounds::Range(range) = &self.bounds.keys else { return None };
        let is_looked_up = self.index.spec.unique
            && !self.covers
            && self.filter.is_none()
            && self.used_for == ScanUse::Documents
            && self.bounds.fields.as_ref()?.fixed_fields() == self.index.spec.parts.len();
        is_looked_up.then(|| [&self.index.ident.bytes()[..], &range.start].concat())
    }

    /// Moves to the next entry, opening the cursor if it is the first of the run; returns whether
    /// there is one.
    fn advance(&self, stats: &mut Stats, scan: &mut ScanState, env: &mut Env<'_>) -> Result<bool> {
        let Self { index, bounds, direction, .. } = self;
        let from = env.origin();
        let open = &mut env.open[scan.number];
        if let Open::Entries(cursor) = open {
            if scan.is_held {
                return Ok(true);
            }
            if std::mem::replace(&mut scan.must_seek, false) {
                stats.seeks += 1;
                return cursor.seek(&scan.place);
            }
            if scan.wanted == 0 {
                return cursor.advance();
            }
            let there_is_one = match &bounds.keys {
                KeyBounds::Fields(fields) => {
                    let mut is_inside = |entry: &Entry<'_>| {
                        let place = &mut scan.place;
                        fields.check(entry.key_string, *direction, place) == Some(Verdict::Inside)
                    };
                    cursor.advance_reading(&from, scan.wanted, Some(&mut is_inside))?
                }
                _ => cursor.advance_reading(&from, scan.wanted, None)?,
            };
            scan.wanted -= 1;
            return Ok(there_is_one);
        }
        // Resuming at the scan's position is not counted as a seek.
        stats.seeks += u64::from(matches!(scan.position, Position::Start));
        if bounds.keys == KeyBounds::Nothing {
            return Ok(false);
        }
        let range = bounds.keys.walked();
        let cursor = env.collection.scan_index(env.view, index.clone(), &range, *direction)?;
        let mut cursor = Walk::new(cursor);
        scan.wanted = scan.wanted.saturating_sub(1);
        let there_is_one = match (&scan.position, &bounds.keys) {
            _ if std::mem::replace(&mut scan.must_seek, false) => cursor.seek(&scan.place)?,
            (Position::At(key), _) => {
                cursor.seek(key)?
                    && (scan.is_held || cursor.position() != key.as_slice() || cursor.advance()?)
            }
            (_, KeyBounds::Fields(fields)) => {
                fields.first(*direction, &mut scan.place);
                cursor.seek(&scan.place)?
            }
            _ => cursor.advance()?,
        };
        *open = Open::Entries(cursor);
        Ok(there_is_one)
    }
}

/// Returns the scan's current entry; `doc` has the entry's values, or is empty.
#[inline]
fn found_at<'a>(walk: &'a Walk<'_>, entry: Entry<'a>, doc: Doc<'a>) -> Found<'a> {
    Found {
        doc,
        entry: Some((walk.index(), entry)),
        ahead: walk.document(),
        ..Found::unread(entry.record)
    }
}

/// Returns whether `place` is after `position` in this direction, so that moving there is progress.
fn is_ahead(direction: Direction, position: &[u8], place: &[u8]) -> bool {
    match direction {
        Direction::Forward => place > position,
        Direction::Backward => place < position,
    }
}

/// Returns the bytes of the first `count` fields of a key.
fn leading_fields<'k>(index: &Index, key: &'k [u8], count: usize) -> Option<&'k [u8]> {
    let mut end = 0;
    for descending in index.spec.entry_directions().take(count) {
        end += part_length(key.get(end..)?, descending)?;
    }
    key.get(..end)
}
