//! The stages that walk the store: by `_id`, over documents, over an index.

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
use super::walk::Walk;
use super::work::{Env, Step};
use super::{Emit, Found};
use crate::bounds::{KeyBounds, Verdict};
use crate::clustered::ClusteredScan;
use crate::plan::{Collscan, IdHack, Ixscan, ScanUse, Stats};

errors! {
    pub(super) place_lost(record: i64) = CappedPositionLost, "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId({record})";
    pub(super) tail_lost(record: i64) = CappedPositionLost, "CollectionScan died due to failure to restore tailable cursor position. Last seen record id: RecordId({record})";
    damaged_key(index: &str) = 8_000_006, "an entry of index '{index}' is not a key string";
}

/// How many documents a walk looks at within one unit of work: few enough to be interrupted
/// between.
const SEEN_MAX: u32 = 32;

/// The cursor of one stage during a run.
pub(crate) enum Open<'r> {
    Closed,
    Records(RecordCursor<'r>),
    Entries(Walk<'r>),
}

/// Where a stage stands, within a run and between two.
#[derive(Default)]
pub(crate) struct Standing {
    /// Which of the run's cursors is its own.
    pub(super) number: usize,
    pub(super) position: Position,
    /// What the cursor stands on has not been taken and comes again.
    pub(super) is_held: bool,
    /// The key of the record that a walk over documents came to last; empty before the first.
    last: Vec<u8>,
    /// The documents given so far, where an index may lead to one twice.
    given: Option<HashSet<RecordKey>>,
    /// Whether a walk may give several within one unit of work. It counts the units that they are.
    pub(super) gives_many: bool,
    /// Whether a walk looks at one document or entry within one unit of work, as it does where
    /// plans are compared.
    pub(super) is_tried: bool,
    /// Whether a walk over documents looks at all that mongod would look at, because it is told how
    /// many these are.
    pub(super) is_told: bool,
    /// Where to go on, for a walk that knows that what comes next is not within its bounds.
    place: Vec<u8>,
    must_seek: bool,
    /// A document made of an entry's values.
    shown: Vec<u8>,
    /// How many documents the stage above reads from here on, at most; none where it does not read
    /// what this one gives.
    pub(super) wanted: u64,
    /// How many entries the stage above only counts from here on, at most. It counts the units that
    /// they are.
    pub(super) unseen: u64,
}

/// Where a stage stands between runs.
#[derive(Default)]
pub(super) enum Position {
    #[default]
    Start,
    /// At this record or entry.
    At(Vec<u8>),
    End,
}

impl Standing {
    pub(super) fn is_at_end(&self) -> bool {
        matches!(self.position, Position::End)
    }

    /// Goes back to where the walk began.
    pub(super) fn begin_anew(&mut self) {
        let given = self.given.take().map(|_| HashSet::new());
        let wanted = if self.wanted > 0 { u64::MAX } else { 0 };
        let Standing { number, gives_many, .. } = *self;
        *self = Standing { number, gives_many, given, wanted, ..Standing::default() };
    }

    /// Moves to what comes after the record that a walk stood at, or to that record where it was
    /// not taken; answers whether there is one.
    pub(super) fn go_on(&self, record: &[u8], cursor: &mut RecordCursor<'_>) -> Result<bool> {
        Ok(cursor.seek(record)?
            && (self.is_held || cursor.record() != record || cursor.advance()?))
    }

    /// The start of a walk over a part of what this one was to walk over.
    pub(crate) fn of_part(&self) -> Standing {
        Standing { given: self.given.as_ref().map(|_| HashSet::new()), ..Standing::default() }
    }

    pub(crate) fn remember(&mut self) {
        self.given.get_or_insert_default();
    }

    /// Lets a walk that has come to the end look for what came since, behind where it was.
    pub(super) fn reopen(&mut self) {
        if self.is_at_end() {
            self.position = match self.last.is_empty() {
                true => Position::Start,
                false => Position::At(self.last.clone()),
            };
        }
    }

    /// Ends the walk: nothing comes any more.
    pub(super) fn end(&mut self, open: &mut Open<'_>) -> Step {
        self.position = Position::End;
        *open = Open::Closed;
        Step::Eof
    }

    /// Notes where the cursor stands and lets go of it.
    pub(super) fn rest(&mut self, env: &mut Env<'_>) {
        let open = std::mem::replace(&mut env.open[self.number], Open::Closed);
        if self.is_at_end() {
            return;
        }
        match open {
            // A walk that could not go on stands nowhere; who is told so does not run it again.
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
        &mut self,
        stats: &mut Stats,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let standing = &mut self.standing;
        if standing.is_at_end() {
            return Ok(Step::Eof);
        }
        let key = &mut standing.place;
        let Some(record) = env.collection.find_id(env.view, self.id.get(), key)? else {
            standing.position = Position::End;
            return Ok(Step::Eof);
        };
        let record = record.as_bytes();
        let mut answer = None;
        if self.is_unread {
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
        standing.position = Position::End;
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
        &mut self,
        stats: &mut Stats,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        if self.standing.is_at_end() {
            return Ok(Step::Eof);
        }
        if self.standing.is_told && self.records.as_ref().is_some_and(ClusteredScan::is_bounded) {
            return self.work_around(stats, env, out);
        }
        let Collscan { direction, filter, records, standing } = self;
        let open = &mut env.open[standing.number];
        let there_is_one = if let Open::Records(cursor) = open {
            standing.is_held || cursor.advance()?
        } else {
            let meets_nothing = |filter: &Filter| matches!(filter.root(), FilterNode::AlwaysFalse);
            if !standing.is_told && filter.as_ref().is_some_and(meets_nothing) {
                standing.position = Position::End;
                return Ok(Step::Eof);
            }
            let mut cursor = match records {
                Some(records) => {
                    env.collection.scan_between(env.view, &records.range, *direction)?
                }
                None => env.collection.scan(env.view, *direction)?,
            };
            let there_is_one = match &standing.position {
                Position::At(record) => {
                    let there_is_one = standing.go_on(record, &mut cursor)?;
                    if let Some(lost) = env.place_lost
                        && env.collection.state().options.capped.is_some()
                        && !env.collection.get(env.view, record, &mut Vec::new(), &mut |_| ())?
                    {
                        let record = RecordKey::new(record).record_id().unwrap_or_default();
                        return Err(lost(record));
                    }
                    there_is_one
                }
                Position::Start | Position::End => cursor.advance()?,
            };
            *open = Open::Records(cursor);
            there_is_one
        };
        let mut there_is_one = there_is_one;
        // What does not match is passed over here, and what follows is given, without a way through
        // the tree for each document.
        for seen in 1.. {
            let Open::Records(cursor) = open else { break };
            if !there_is_one {
                standing.position = Position::End;
                *open = Open::Closed;
                break;
            }
            let was_held = std::mem::replace(&mut standing.is_held, false);
            if !was_held {
                stats.docs += 1;
                standing.last.clear();
                standing.last.extend_from_slice(cursor.record());
            }
            let doc = cursor.doc();
            env.size.check(doc)?;
            if filter.as_ref().map_or(Ok(true), |filter| filter.matches(doc))? {
                let answer = out(Found::fetched(doc, cursor.record()))?;
                standing.is_held = answer == Emit::Full;
                if answer != Emit::Taken || !standing.gives_many || seen >= SEEN_MAX {
                    return Ok(Step::Advanced(answer));
                }
                stats.advanced += 1;
            } else {
                if seen >= SEEN_MAX || standing.is_tried {
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
        &mut self,
        stats: &mut Stats,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let mut step = self.step(stats, env, out)?;
        let more = if self.standing.gives_many { SEEN_MAX - 1 } else { 0 };
        let is_plain = self.is_plain();
        for _ in 0..more {
            if step != Step::Advanced(Emit::Taken) {
                break;
            }
            stats.works += 1;
            stats.advanced += 1;
            step = if is_plain && self.standing.wanted > 0 {
                self.plain_step(stats, env, out)?
            } else {
                self.step(stats, env, out)?
            };
        }
        Ok(step)
    }

    /// Whether a walk under way gives whatever lies within its range, document by document.
    fn is_plain(&self) -> bool {
        matches!(self.bounds.keys, KeyBounds::Range(_))
            && self.used_for == ScanUse::Documents
            && self.filter.is_none()
            && !self.covers
            && self.standing.given.is_none()
    }

    /// [`Ixscan::step`] of a [plain](Ixscan::is_plain) walk that has just given a document which
    /// was taken.
    fn plain_step(
        &mut self,
        stats: &mut Stats,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let standing = &mut self.standing;
        let from = env.origin();
        let open = &mut env.open[standing.number];
        // The only key of a unique index was looked up.
        let Open::Entries(walk) = open else { return Ok(standing.end(open)) };
        let wanted = standing.wanted;
        standing.wanted -= 1;
        if !walk.advance_reading(&from, wanted, None)? {
            return Ok(standing.end(open));
        }
        stats.keys += 1;
        let answer = out(found_at(walk, walk.entry()?, Doc::EMPTY))?;
        standing.is_held = answer == Emit::Full;
        Ok(Step::Advanced(answer))
    }

    /// Looks at one entry, or passes over several.
    fn step(
        &mut self,
        stats: &mut Stats,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let direction = self.direction;
        if self.standing.is_at_end() {
            return Ok(Step::Eof);
        }
        if let Some(key) = self.only_key() {
            let record = env.collection.find_unique(env.view, &key)?;
            env.collection.check_index(&self.index)?;
            let Some(record) = record else {
                stats.seeks += 1;
                self.standing.position = Position::End;
                return Ok(Step::Eof);
            };
            let answer = out(Found::unread(record.as_bytes()))?;
            if answer != Emit::Full {
                stats.seeks += 1;
                stats.keys += 1;
                self.standing.position = Position::End;
            }
            return Ok(Step::Advanced(answer));
        }
        if self.may_pass() && matches!(env.open[self.standing.number], Open::Entries(_)) {
            return self.pass(stats, env);
        }
        let there_is_one = self.advance(stats, env)?;
        let Self { bounds, filter, covers, used_for, standing, .. } = self;
        let open = &mut env.open[standing.number];
        let cursor = match open {
            Open::Entries(cursor) if there_is_one => cursor,
            _ => {
                // Counting stops at the key behind the last, which is looked at too.
                stats.keys += u64::from(*used_for == ScanUse::Count);
                return Ok(standing.end(open));
            }
        };
        let was_held = std::mem::replace(&mut standing.is_held, false);
        stats.keys += u64::from(!was_held);
        let entry = cursor.entry()?;
        let damaged = || damaged_key(&cursor.index().spec.name);
        if let KeyBounds::Fields(fields) = &bounds.keys {
            let verdict = fields.check(entry.key_string, direction, &mut standing.place);
            match verdict.ok_or_else(damaged)? {
                Verdict::Inside => {}
                Verdict::Seek => {
                    standing.must_seek = is_ahead(direction, cursor.position(), &standing.place);
                    return Ok(Step::NeedTime);
                }
                Verdict::Done => {
                    return Ok(standing.end(open));
                }
            }
        }
        let record = standing.given.is_some().then(|| RecordKey::new(entry.record));
        if let (Some(given), Some(record)) = (&standing.given, &record) {
            stats.dups_tested += u64::from(!was_held);
            if given.contains(record) {
                stats.dups_dropped += 1;
                return Ok(Step::NeedTime);
            }
        }
        let index: &Index = cursor.index();
        if *covers || filter.is_some() {
            entry_doc::write(index, &entry, &mut standing.shown).ok_or_else(damaged)?;
            if let Some(filter) = filter
                && !filter.matches(Doc::trusted(&standing.shown))?
            {
                return Ok(Step::NeedTime);
            }
        }
        let doc = if *covers { Doc::trusted(&standing.shown) } else { Doc::EMPTY };
        let answer = out(found_at(cursor, entry, doc))?;
        if answer == Emit::Full {
            standing.is_held = true;
            return Ok(Step::Advanced(answer));
        }
        if let (Some(given), Some(record)) = (&mut standing.given, record) {
            given.insert(record);
        }
        if let ScanUse::Distinct(field) = *used_for {
            let prefix = leading_fields(index, entry.key_string, field + 1).ok_or_else(damaged)?;
            standing.place.clear();
            match direction {
                Direction::Forward => {
                    standing.place.extend(successor(prefix).ok_or_else(damaged)?);
                }
                Direction::Backward => standing.place.extend_from_slice(prefix),
            }
            standing.must_seek = true;
        }
        Ok(Step::Advanced(answer))
    }

    /// Whether the next entries, which the stage above only counts, are known to count without a
    /// look at them.
    fn may_pass(&self) -> bool {
        let Standing { unseen, is_held, must_seek, is_tried, given, .. } = &self.standing;
        *unseen > 1
            && !(*is_held || *must_seek || *is_tried)
            && given.is_none()
            && self.filter.is_none()
            && !matches!(self.bounds.keys, KeyBounds::Fields(_))
            && !matches!(self.used_for, ScanUse::Distinct(_))
    }

    /// Moves over entries that the stage above only counts.
    fn pass(&mut self, stats: &mut Stats, env: &mut Env<'_>) -> Result<Step> {
        let Self { used_for, standing, .. } = self;
        let open = &mut env.open[standing.number];
        let unseen = std::mem::take(&mut standing.unseen);
        let passed = match open {
            Open::Entries(cursor) => cursor.pass(unseen)?,
            _ => 0,
        };
        stats.keys += passed;
        if passed < unseen {
            stats.keys += u64::from(*used_for == ScanUse::Count);
            standing.position = Position::End;
            *open = Open::Closed;
        }
        let Some(more) = passed.checked_sub(1) else { return Ok(Step::Eof) };
        stats.works += more;
        stats.advanced += more;
        Ok(Step::Advanced(Emit::Taken))
    }

    /// The one key of a unique index that the walk is about, where only its record is wanted: it is
    /// looked up, which costs less than a cursor.
    fn only_key(&self) -> Option<Vec<u8>> {
        let KeyBounds::Range(range) = &self.bounds.keys else { return None };
        let is_looked_up = self.index.spec.unique
            && !self.covers
            && self.filter.is_none()
            && self.used_for == ScanUse::Documents
            && self.bounds.fields.as_ref()?.fixed_fields() == self.index.spec.parts.len();
        is_looked_up.then(|| [&self.index.ident.bytes()[..], &range.start].concat())
    }

    /// Moves to the next entry, opening the cursor if this is the run's first; answers whether
    /// there is one.
    fn advance(&mut self, stats: &mut Stats, env: &mut Env<'_>) -> Result<bool> {
        let Self { index, bounds, direction, standing, .. } = self;
        let from = env.origin();
        let open = &mut env.open[standing.number];
        if let Open::Entries(cursor) = open {
            if standing.is_held {
                return Ok(true);
            }
            if std::mem::replace(&mut standing.must_seek, false) {
                stats.seeks += 1;
                return cursor.seek(&standing.place);
            }
            if standing.wanted == 0 {
                return cursor.advance();
            }
            let there_is_one = match &bounds.keys {
                KeyBounds::Fields(fields) => {
                    let mut is_inside = |entry: &Entry<'_>| {
                        let place = &mut standing.place;
                        fields.check(entry.key_string, *direction, place) == Some(Verdict::Inside)
                    };
                    cursor.advance_reading(&from, standing.wanted, Some(&mut is_inside))?
                }
                _ => cursor.advance_reading(&from, standing.wanted, None)?,
            };
            standing.wanted -= 1;
            return Ok(there_is_one);
        }
        // Going on where the walk stood is not a search.
        stats.seeks += u64::from(matches!(standing.position, Position::Start));
        if bounds.keys == KeyBounds::Nothing {
            return Ok(false);
        }
        let range = bounds.keys.walked();
        let cursor = env.collection.scan_index(env.view, index.clone(), &range, *direction)?;
        let mut cursor = Walk::new(cursor);
        standing.wanted = standing.wanted.saturating_sub(1);
        let there_is_one = match (&standing.position, &bounds.keys) {
            _ if std::mem::replace(&mut standing.must_seek, false) => {
                cursor.seek(&standing.place)?
            }
            (Position::At(key), _) => {
                cursor.seek(key)?
                    && (standing.is_held
                        || cursor.position() != key.as_slice()
                        || cursor.advance()?)
            }
            (_, KeyBounds::Fields(fields)) => {
                fields.first(*direction, &mut standing.place);
                cursor.seek(&standing.place)?
            }
            _ => cursor.advance()?,
        };
        *open = Open::Entries(cursor);
        Ok(there_is_one)
    }
}

/// What a walk shows of the entry that it stands on; `doc` is made of the entry's values, or empty.
#[inline]
fn found_at<'a>(walk: &'a Walk<'_>, entry: Entry<'a>, doc: Doc<'a>) -> Found<'a> {
    Found {
        doc,
        entry: Some((walk.index(), entry)),
        ahead: walk.document(),
        ..Found::unread(entry.record)
    }
}

/// Whether `place` lies ahead of `position`, so that going there makes progress.
fn is_ahead(direction: Direction, position: &[u8], place: &[u8]) -> bool {
    match direction {
        Direction::Forward => place > position,
        Direction::Backward => place < position,
    }
}

/// The bytes of the first `count` fields of a key.
fn leading_fields<'k>(index: &Index, key: &'k [u8], count: usize) -> Option<&'k [u8]> {
    let mut end = 0;
    for descending in index.spec.entry_directions().take(count) {
        end += part_length(key.get(end..)?, descending)?;
    }
    key.get(..end)
}
