//! An index scan that reads documents ahead of their turn.
//!
//! ```text
//!   index     e1 │ e2 │ e3 │ e4 │ e5 │ e6 │ e7 │ …    1, then 4, 8, 16, 32 entries per batch
//!             └─┘ └────── batch ─────┘
//!                  │ copied, then their documents are read together:
//!   records   neighbouring ids ─► one cursor over the records, which moves along with the scan
//!             scattered ids ────► one lookup of all of them (`View::get_many`)
//! ```
//!
//! A lookup of several records costs less than one by one: the store finds neighbours together, and
//! fetches one from memory while another is processed. If records in the index's order are
//! neighbours, as those of an insertion time are, a cursor over the records costs a third of that.
//! So if the next stage reads the document of each entry, the scan advances a few entries, copies
//! them, and reads their documents in one of the two ways. Once a cursor over the records has found
//! the last of a batch, it moves along with the scan, entry by entry, while the next record is
//! near. The counts of the stages, and their positions between two runs, are the same as without
//! reading ahead.
//!
//! The batch size doubles, so that a query for few documents reads few in vain, and is limited by
//! the known number of wanted documents. The store bounds the bytes that are held.

use std::ops::Range;

use marula_db::collection::{Documents, EntryCursor, RecordCursor};
use marula_db::index::entry::Entry;
use marula_db::keys::IDENT_BYTES;
use marula_db::{Collection, Index};
use marula_error::Result;
use marula_storage::store::Stamp;
use marula_storage::{Direction, KeyRange, View};

use super::ReadAhead;

/// The size of the first batch that is read ahead; the very first entry is always alone.
const FIRST_BATCH: usize = 4;
/// The size of the largest batch: the number that the store looks up together.
pub(super) const BATCH_MAX: usize = 32;

/// The size of every batch where a read is a network round trip.
const FAR_BATCH: usize = 128;

/// The batch size from which a cursor over the records pays: that of the first batch. A lookup of
/// fewer costs as much, and caches the records.
const NEIGHBOURS_MIN: usize = FIRST_BATCH;
/// Records are neighbours if the range of their ids is less than this many times their number.
const SPREAD_MAX: u64 = 2;
/// The number of steps of a cursor over the records before it seeks.
const STEPS_MAX: usize = 3;
/// The range of records of a cursor, beyond which another one replaces it. The store skips files
/// without records in the range, and does not compare with them at each step.
const REACH: i64 = 512;

/// The source of the documents.
pub(super) struct Origin<'r, 'c> {
    pub(super) view: &'r dyn View,
    pub(super) collection: &'c Collection,
    /// The newest commit when the run began.
    pub(super) opened: Stamp,
}

/// A cursor over an index, and the entries and documents read ahead.
pub(crate) struct Walk<'r> {
    cursor: EntryCursor<'r>,
    batch: Batch<'r>,
    /// The size of the next batch; a batch of one is not read ahead.
    size: usize,
    neighbours: Option<Neighbours<'r>>,
    /// Whether the cursor over the records has moved to the current entry's record.
    is_at_record: bool,
}

/// Entries that were read ahead.
#[derive(Default)]
struct Batch<'r> {
    /// Their stored keys and values, one after the other.
    bytes: Vec<u8>,
    entries: Vec<Stored>,
    /// The index of the current entry; at the end, the cursor's entry is current.
    at: usize,
    documents: Ahead<'r>,
}

/// The way to read the documents of the first entries of a batch.
#[derive(Default)]
enum Ahead<'r> {
    /// Each in its turn, by the stage that needs it.
    #[default]
    None,
    /// The documents of this number of entries, read together; and whether there was a write by
    /// then.
    Together(Documents<'r>, usize, bool),
    /// By the cursor over the records, which have these ids.
    Neighbours(Vec<i64>),
}

/// A cursor over neighbouring records.
struct Neighbours<'r> {
    cursor: RecordCursor<'r>,
    direction: Direction,
    /// The ids of the records in the cursor's range.
    reach: Range<i64>,
    /// The id of the current record.
    at: Option<i64>,
    /// Whether that is the requested record.
    is_found: bool,
    /// Whether there was a write when the cursor was opened. It sees that moment.
    is_overtaken: bool,
}

impl<'r> Neighbours<'r> {
    /// Opens a cursor at the record with this id, for it and those after it.
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

    /// Moves to the record with this id, which is in the range.
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

    /// Returns the maximum number of records from the cursor to the record with this id.
    fn distance(&self, id: i64) -> Option<i64> {
        let at = self.at?;
        Some(match self.direction {
            Direction::Forward => id.saturating_sub(at),
            Direction::Backward => at.saturating_sub(id),
        })
    }

    /// Returns whether a few steps lead to the record with this id.
    fn is_near(&self, id: i64) -> bool {
        self.distance(id).is_some_and(|distance| (0..=STEPS_MAX as i64).contains(&distance))
            && self.reach.contains(&id)
    }

    /// Returns whether the cursor can be used for a batch with these first and last ids, in this
    /// direction.
    fn serves(&self, (first, last): (i64, i64), direction: Direction) -> bool {
        self.direction == direction && [first, last].iter().all(|id| self.reach.contains(id))
    }

    /// Records the position of the cursor.
    fn look(&mut self, is_on: bool) {
        self.at = if is_on { id_of(self.cursor.record()) } else { None };
    }
}

/// Returns the id of a record; `None` in a clustered collection, whose records have other keys.
fn id_of(record: &[u8]) -> Option<i64> {
    record.try_into().ok().map(i64::from_be_bytes)
}

/// Returns the first and the last id, and the direction, of records if they are neighbours.
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

/// The position of a stored entry in its batch.
struct Stored {
    key: Range<usize>,
    value: Range<usize>,
}

impl Batch<'_> {
    /// Returns the current entry.
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
        Walk { cursor, batch: Batch::default(), size: 1, neighbours: None, is_at_record: false }
    }

    /// Moves to the next entry; returns whether there is one.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.is_at_record = false;
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

    /// Skips up to `count` entries; returns their number. If it is less than `count`, the scan has
    /// ended.
    pub(super) fn pass(&mut self, count: u64) -> Result<u64> {
        self.is_at_record = false;
        let mut passed = 0;
        while passed < count && !self.batch.entries.is_empty() {
            if !self.advance()? {
                return Ok(passed);
            }
            passed += 1;
        }
        Ok(passed + self.cursor.pass(count - passed)?)
    }

    /// Like [`Walk::advance`], for a caller that reads the document of each of the next `wanted`
    /// entries. Stops reading ahead at an entry that `is_inside` rejects, if it is given.
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
        self.is_at_record = false;
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
                self.is_at_record = is_inside.is_none_or(|is_inside| is_inside(&entry));
                if self.is_at_record {
                    neighbours.go(id)?;
                }
                return Ok(true);
            }
            // Too far: it becomes the first of a batch.
            is_moved = true;
        }
        let most = if origin.view.is_far() { FAR_BATCH } else { self.size };
        let size = usize::try_from(wanted).map_or(most, |wanted| wanted.min(most));
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

    /// Reads the documents of the first `count` entries of the batch, or decides how to read them.
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

    /// Moves the cursor over the records to the current entry's record, if documents are read by
    /// it.
    fn go_to_neighbour(&mut self) -> Result<()> {
        if let Ahead::Neighbours(ids) = &self.batch.documents
            && let (Some(&id), Some(neighbours)) = (ids.get(self.batch.at), &mut self.neighbours)
        {
            neighbours.go(id)?;
        }
        Ok(())
    }

    /// Moves to the first entry whose key string is at or after `key` in the cursor's direction.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.is_at_record = false;
        self.batch.clear();
        self.cursor.seek(key)
    }

    /// Returns the stored key of the entry, without the ident: the position of a parked cursor.
    #[inline]
    pub(super) fn position(&self) -> &[u8] {
        match self.batch.current() {
            Some((key, _)) => &key[IDENT_BYTES..],
            None => self.cursor.position(),
        }
    }

    /// Returns whether there is a current entry: not after an error.
    pub(super) fn is_on(&self) -> bool {
        self.batch.current().is_some() || self.cursor.is_on()
    }

    /// Returns the current entry.
    #[inline]
    pub(super) fn entry(&self) -> Result<Entry<'_>> {
        match self.batch.current() {
            Some((key, value)) => self.cursor.decode(key, value),
            None => self.cursor.entry(),
        }
    }

    /// Returns the document of the current entry, if it was read ahead.
    #[inline]
    pub(super) fn document(&self) -> Option<ReadAhead<'_>> {
        let at = self.batch.at;
        let is_at_neighbour = match &self.batch.documents {
            Ahead::Together(documents, count, is_overtaken) if at < *count => {
                return Some(ReadAhead { doc: documents.get(at)?, is_overtaken: *is_overtaken });
            }
            Ahead::Neighbours(ids) if at < ids.len() => true,
            _ => self.is_at_record,
        };
        let neighbours =
            self.neighbours.as_ref().filter(|known| is_at_neighbour && known.is_found)?;
        Some(ReadAhead { doc: neighbours.cursor.doc(), is_overtaken: neighbours.is_overtaken })
    }

    /// Returns the index that is scanned.
    pub(super) fn index(&self) -> &Index {
        self.cursor.index()
    }
}
