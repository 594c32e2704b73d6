//! A walk over an index that reads documents ahead of their turn.
//!
//! Looking up several records at once costs less than one by one: the store finds neighbours
//! together, and one is fetched from memory while another is looked at. Where the records of an
//! index's order lie side by side, as those of a time that documents are inserted with do, a cursor
//! over the records costs a third of that. So where each entry leads to a document that the next
//! stage reads, the walk goes on a few entries, keeps a copy of them, and has their documents read
//! one way or the other. Once a cursor over the records has found the last of a batch, it moves
//! beside the walk, entry by entry, for as long as it need not go far. What the stages count, and
//! where they stand between two runs, is as if each entry had been taken in its turn.
//!
//! How far it goes doubles from batch to batch, so that who wants few documents reads few in vain,
//! and ends where the walk knows how many are wanted. The store bounds the bytes that are held.

use std::ops::Range;

use marula_db::collection::{Documents, EntryCursor, RecordCursor};
use marula_db::index::entry::Entry;
use marula_db::keys::IDENT_BYTES;
use marula_db::{Collection, Index};
use marula_error::Result;
use marula_storage::store::Stamp;
use marula_storage::{Direction, KeyRange, View};

use super::ReadAhead;

/// Entries of the first batch that is read ahead; the very first entry is always alone.
const FIRST_BATCH: usize = 4;
/// Entries of the largest one: as many as the store looks up together.
pub(super) const BATCH_MAX: usize = 32;

/// Entries of a batch that are worth opening a cursor over the records for: those of the first one.
/// A look-up of these costs as much, and keeps them for others who look them up.
const NEIGHBOURS_MIN: usize = FIRST_BATCH;
/// Records lie side by side when they are less than so many times as many from the first to the
/// last.
const SPREAD_MAX: u64 = 2;
/// How often a cursor over the records moves on before it is told to seek.
const STEPS_MAX: usize = 3;
/// How many records such a cursor may come to before another takes its place. The store leaves
/// alone whatever holds only others, and compares nothing with them at each step.
const REACH: i64 = 512;

/// What documents are read from.
pub(super) struct Origin<'r, 'c> {
    pub(super) view: &'r dyn View,
    pub(super) collection: &'c Collection,
    /// The newest commit when the run began.
    pub(super) opened: Stamp,
}

/// A cursor over an index, and what it has read ahead.
pub(crate) struct Walk<'r> {
    cursor: EntryCursor<'r>,
    batch: Batch<'r>,
    /// How many entries the next batch has; one is not read ahead.
    size: usize,
    neighbours: Option<Neighbours<'r>>,
    /// Whether the cursor over the records has gone to the entry that the walk stands on.
    is_beside: bool,
}

/// Entries that were read ahead.
#[derive(Default)]
struct Batch<'r> {
    /// Their stored keys and values, one behind the other.
    bytes: Vec<u8>,
    entries: Vec<Stored>,
    /// Which of them the walk stands on; at the end, it stands where the cursor does.
    at: usize,
    documents: Ahead<'r>,
}

/// How the documents of the first entries of a batch are read.
#[derive(Default)]
enum Ahead<'r> {
    /// Each in its turn, by the stage that wants it.
    #[default]
    None,
    /// So many, at once; and whether a write had come by then.
    Together(Documents<'r>, usize, bool),
    /// By the cursor over the records, of which these are the ids.
    Neighbours(Vec<i64>),
}

/// A cursor over records that lie side by side.
struct Neighbours<'r> {
    cursor: RecordCursor<'r>,
    direction: Direction,
    /// The ids of the records that the cursor may come to.
    reach: Range<i64>,
    /// The id of the record that the cursor stands on.
    at: Option<i64>,
    /// Whether that is the one that was asked for.
    is_found: bool,
    /// Whether a write had come when the cursor was opened. It sees that moment.
    is_overtaken: bool,
}

impl<'r> Neighbours<'r> {
    /// Opens a cursor over the record with this id and those that lie behind it.
    fn open(origin: &Origin<'r, '_>, id: i64, direction: Direction) -> Result<Self> {
        let Origin { view, collection, opened } = *origin;
        let reach = match direction {
            Direction::Forward => id..id.saturating_add(REACH),
            Direction::Backward => id.saturating_sub(REACH).max(0)..id.saturating_add(1),
        };
        let [start, end] = [reach.start, reach.end].map(|id| id.to_be_bytes().to_vec());
        let cursor = collection.scan_between(view, &KeyRange { start, end }, direction)?;
        let is_overtaken = view.has_moved(opened);
        Ok(Neighbours { cursor, direction, reach, at: None, is_found: false, is_overtaken })
    }

    /// Moves to the record with this id, which is within reach.
    fn go(&mut self, id: i64) -> Result<()> {
        for _ in 0..STEPS_MAX {
            if self.distance(id).is_none_or(|distance| distance <= 0) {
                break;
            }
            let is_on = self.cursor.advance()?;
            self.look(is_on);
        }
        if self.at != Some(id) {
            let is_on = self.cursor.seek(&id.to_be_bytes())?;
            self.look(is_on);
        }
        self.is_found = self.at == Some(id);
        Ok(())
    }

    /// How far ahead of the cursor the record with this id is at most.
    fn distance(&self, id: i64) -> Option<i64> {
        let at = self.at?;
        Some(match self.direction {
            Direction::Forward => id.saturating_sub(at),
            Direction::Backward => at.saturating_sub(id),
        })
    }

    /// Whether moving on leads to the record with this id soon.
    fn is_near(&self, id: i64) -> bool {
        self.distance(id).is_some_and(|distance| (0..=STEPS_MAX as i64).contains(&distance))
            && self.reach.contains(&id)
    }

    /// Whether the cursor serves a batch of records that begins and ends with these ids, in this
    /// direction.
    fn serves(&self, (first, last): (i64, i64), direction: Direction) -> bool {
        self.direction == direction && [first, last].iter().all(|id| self.reach.contains(id))
    }

    /// Notes where the cursor has come to.
    fn look(&mut self, is_on: bool) {
        self.at = if is_on { id_of(self.cursor.record()) } else { None };
    }
}

/// The id of a record; `None` in a clustered collection, whose records have other keys.
fn id_of(record: &[u8]) -> Option<i64> {
    record.try_into().ok().map(i64::from_be_bytes)
}

/// The first and the last id, and the direction, of records that lie side by side, if they do.
fn neighbours_of(ids: &[i64]) -> Option<((i64, i64), Direction)> {
    let (&first, &last) = (ids.first()?, ids.last()?);
    let is_near = first.abs_diff(last) < SPREAD_MAX * ids.len() as u64;
    if is_near && ids.is_sorted_by(|a, b| a < b) {
        Some(((first, last), Direction::Forward))
    } else if is_near && ids.is_sorted_by(|a, b| a > b) {
        Some(((first, last), Direction::Backward))
    } else {
        None
    }
}

/// Where a stored entry lies in its batch.
struct Stored {
    key: Range<usize>,
    value: Range<usize>,
}

impl Batch<'_> {
    /// The entry that the walk stands on.
    fn current(&self) -> Option<(&[u8], &[u8])> {
        self.entries.get(self.at).map(|entry| self.show(entry))
    }

    fn show(&self, entry: &Stored) -> (&[u8], &[u8]) {
        (&self.bytes[entry.key.clone()], &self.bytes[entry.value.clone()])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.documents = Ahead::None;
        self.at = 0;
    }

    fn keep(&mut self, (key, value): (&[u8], &[u8])) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push(Stored { key: start..middle, value: middle..self.bytes.len() });
    }
}

impl<'r> Walk<'r> {
    pub(super) fn new(cursor: EntryCursor<'r>) -> Self {
        Walk { cursor, batch: Batch::default(), size: 1, neighbours: None, is_beside: false }
    }

    /// Moves to the next entry; answers whether there is one.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.is_beside = false;
        if self.batch.entries.is_empty() {
            return self.cursor.advance();
        }
        self.batch.at += 1;
        if self.batch.at < self.batch.entries.len() {
            self.go_to_neighbour()?;
            return Ok(true);
        }
        self.batch.clear();
        self.cursor.advance()
    }

    /// Moves on by up to `count` entries that nobody looks at; answers by how many. Fewer than
    /// `count` mean that the walk has ended.
    pub(super) fn pass(&mut self, count: u64) -> Result<u64> {
        self.is_beside = false;
        let mut passed = 0;
        while passed < count && !self.batch.entries.is_empty() {
            if !self.advance()? {
                return Ok(passed);
            }
            passed += 1;
        }
        Ok(passed + self.cursor.pass(count - passed)?)
    }

    /// [`Walk::advance`], where each of the next `wanted` entries leads to a document that is read
    /// next. Stops reading ahead at an entry that `is_inside` denies, where that is asked.
    pub(super) fn advance_reading(
        &mut self,
        origin: &Origin<'r, '_>,
        wanted: u64,
        mut is_inside: Option<&mut dyn FnMut(&Entry<'_>) -> bool>,
    ) -> Result<bool> {
        if !self.batch.entries.is_empty() {
            if self.batch.at + 1 < self.batch.entries.len() {
                self.batch.at += 1;
                self.go_to_neighbour()?;
                return Ok(true);
            }
            self.batch.clear();
        }
        self.is_beside = false;
        let mut is_moved = false;
        if let Some(neighbours) = &mut self.neighbours
            && neighbours.is_found
        {
            if !self.cursor.advance()? {
                return Ok(false);
            }
            let entry = self.cursor.entry()?;
            if let Some(id) = id_of(entry.record)
                && neighbours.is_near(id)
            {
                self.is_beside = is_inside.is_none_or(|is_inside| is_inside(&entry));
                if self.is_beside {
                    neighbours.go(id)?;
                }
                return Ok(true);
            }
            // Too far: it is the first of a batch.
            is_moved = true;
        }
        let size = usize::try_from(wanted).map_or(self.size, |wanted| wanted.min(self.size));
        self.size = (self.size * 2).clamp(FIRST_BATCH, BATCH_MAX);
        if size <= 1 {
            return Ok(is_moved || self.cursor.advance()?);
        }
        let mut inside = 0;
        while inside < size && (std::mem::take(&mut is_moved) || self.cursor.advance()?) {
            self.batch.keep(self.cursor.stored());
            if let Some(is_inside) = &mut is_inside
                && !is_inside(&self.cursor.entry()?)
            {
                break;
            }
            inside += 1;
        }
        if inside > 1 {
            self.read_ahead(inside, origin)?;
        }
        Ok(!self.batch.entries.is_empty())
    }

    /// Reads the documents of the first `count` entries of the batch, or finds out how.
    fn read_ahead(&mut self, count: usize, origin: &Origin<'r, '_>) -> Result<()> {
        let Origin { view, collection, opened } = *origin;
        let mut records = Vec::with_capacity(count);
        for entry in &self.batch.entries[..count] {
            let (key, value) = self.batch.show(entry);
            records.push(self.cursor.decode(key, value)?.record);
        }
        let ids: Option<Vec<i64>> = records.iter().map(|record| id_of(record)).collect();
        if let Some(ids) = ids
            && let Some((ends, direction)) = neighbours_of(&ids)
            && (count >= NEIGHBOURS_MIN || self.neighbours.is_some())
        {
            if self.neighbours.as_ref().is_none_or(|known| !known.serves(ends, direction)) {
                self.neighbours = Some(Neighbours::open(origin, ends.0, direction)?);
            }
            self.batch.documents = Ahead::Neighbours(ids);
            return self.go_to_neighbour();
        }
        let documents = collection.get_many(view, records)?;
        let is_overtaken = view.has_moved(opened);
        self.batch.documents = Ahead::Together(documents, count, is_overtaken);
        Ok(())
    }

    /// Has the cursor over the records stand where the walk does, where documents are read so.
    fn go_to_neighbour(&mut self) -> Result<()> {
        if let Ahead::Neighbours(ids) = &self.batch.documents
            && let (Some(&id), Some(neighbours)) = (ids.get(self.batch.at), &mut self.neighbours)
        {
            neighbours.go(id)?;
        }
        Ok(())
    }

    /// Moves to the first entry whose key string is at or behind `key` in the cursor's direction.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.is_beside = false;
        self.batch.clear();
        self.cursor.seek(key)
    }

    /// The stored key of the entry, without the ident: where a parked cursor goes on.
    #[inline]
    pub(super) fn position(&self) -> &[u8] {
        match self.batch.current() {
            Some((key, _)) => &key[IDENT_BYTES..],
            None => self.cursor.position(),
        }
    }

    /// Whether the walk stands on an entry: not after an error.
    pub(super) fn is_on(&self) -> bool {
        self.batch.current().is_some() || self.cursor.is_on()
    }

    /// The entry that the walk stands on.
    #[inline]
    pub(super) fn entry(&self) -> Result<Entry<'_>> {
        match self.batch.current() {
            Some((key, value)) => self.cursor.decode(key, value),
            None => self.cursor.entry(),
        }
    }

    /// The document of that entry, where it was read ahead.
    #[inline]
    pub(super) fn document(&self) -> Option<ReadAhead<'_>> {
        let at = self.batch.at;
        let is_at_neighbour = match &self.batch.documents {
            Ahead::Together(documents, count, is_overtaken) if at < *count => {
                return Some(ReadAhead { doc: documents.get(at)?, is_overtaken: *is_overtaken });
            }
            Ahead::Neighbours(ids) if at < ids.len() => true,
            _ => self.is_beside,
        };
        let neighbours =
            self.neighbours.as_ref().filter(|known| is_at_neighbour && known.is_found)?;
        Some(ReadAhead { doc: neighbours.cursor.doc(), is_overtaken: neighbours.is_overtaken })
    }

    /// The index that is walked.
    pub(super) fn index(&self) -> &Index {
        self.cursor.index()
    }
}
