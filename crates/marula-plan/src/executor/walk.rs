//! A walk over an index that reads documents ahead of their turn.
//!
//! Looking up several records at once costs less than one by one: the store finds neighbours together, and one is fetched
//! from memory while another is looked at. Where the records of an index's order lie side by side, as those of a time
//! that documents are inserted with do, a cursor over the records costs a third of that. So where each entry
//! leads to a document that the next stage reads, the walk goes on a few entries, keeps a copy of them, and has their
//! documents read one way or the other. What the stages count, and where they stand between two runs, is as if each
//! entry had been taken in its turn.
//!
//! How far it goes doubles from batch to batch, so that who wants few documents reads few in vain, and ends where the
//! walk knows how many are wanted. The store bounds the bytes that are held.

use std::ops::Range;

use marula_bson::Doc;
use marula_db::collection::{Documents, EntryCursor, RecordCursor};
use marula_db::index::entry::Entry;
use marula_db::keys::IDENT_BYTES;
use marula_db::{Collection, Index};
use marula_error::Result;
use marula_storage::{Direction, Read};

/// Entries of the first batch that is read ahead; the very first entry is always alone.
const FIRST_BATCH: usize = 4;
/// Entries of the largest one: as many as the store looks up together.
pub(super) const BATCH_MAX: usize = 32;

/// Entries of a batch that are worth opening a cursor over the records for.
const NEIGHBOURS_MIN: usize = 8;
/// Records lie side by side when they are less than so many times as many from the first to the last.
const SPREAD_MAX: u64 = 2;
/// How often a cursor over the records moves on before it is told to seek.
const STEPS_MAX: usize = 3;

/// A cursor over an index, and what it has read ahead.
pub(crate) struct Walk<'r> {
    cursor: EntryCursor<'r>,
    batch: Batch<'r>,
    /// How many entries the next batch has; one is not read ahead.
    size: usize,
    neighbours: Option<Neighbours<'r>>,
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
    /// So many, at once.
    Together(Documents<'r>, usize),
    /// By the cursor over the records, of which these are the ids.
    Neighbours(Vec<i64>),
}

/// A cursor over records that lie side by side.
struct Neighbours<'r> {
    cursor: RecordCursor<'r>,
    direction: Direction,
    /// Whether the cursor stands on a record.
    is_on: bool,
    /// Whether that is the one that was asked for.
    is_found: bool,
}

impl Neighbours<'_> {
    /// Moves to the record with this id.
    fn go(&mut self, id: i64) -> Result<()> {
        let is_before = |at: i64| match self.direction {
            Direction::Forward => at < id,
            Direction::Backward => at > id,
        };
        let mut at = self.at();
        for _ in 0..STEPS_MAX {
            if !at.is_some_and(is_before) {
                break;
            }
            self.is_on = self.cursor.advance()?;
            at = self.at();
        }
        if at != Some(id) {
            self.is_on = self.cursor.seek(&id.to_be_bytes())?;
            at = self.at();
        }
        self.is_found = at == Some(id);
        Ok(())
    }

    /// The id of the record that the cursor stands on.
    fn at(&self) -> Option<i64> {
        let record = self.is_on.then(|| self.cursor.record())?;
        record.try_into().ok().map(i64::from_be_bytes)
    }
}

/// The direction in which records lie side by side, if they do.
fn direction_of(ids: &[i64]) -> Option<Direction> {
    let (first, last) = (ids.first()?, ids.last()?);
    let is_near = first.abs_diff(*last) < SPREAD_MAX * ids.len() as u64;
    if is_near && ids.is_sorted_by(|a, b| a < b) {
        Some(Direction::Forward)
    } else if is_near && ids.is_sorted_by(|a, b| a > b) {
        Some(Direction::Backward)
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
        Walk { cursor, batch: Batch::default(), size: 1, neighbours: None }
    }

    /// Moves to the next entry; answers whether there is one.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool> {
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

    /// Moves on by up to `count` entries that nobody looks at; answers by how many. Fewer than `count` mean that the walk
    /// has ended.
    pub(super) fn pass(&mut self, count: u64) -> Result<u64> {
        let mut passed = 0;
        while passed < count && !self.batch.entries.is_empty() {
            if !self.advance()? {
                return Ok(passed);
            }
            passed += 1;
        }
        Ok(passed + self.cursor.pass(count - passed)?)
    }

    /// [`Walk::advance`], where each of the next `wanted` entries leads to a document that is read next. Stops reading
    /// ahead at an entry that `is_inside` denies, where that is asked.
    pub(super) fn advance_reading(
        &mut self,
        (store, collection): (&'r dyn Read, &Collection),
        wanted: u64,
        mut is_inside: Option<&mut dyn FnMut(&Entry<'_>) -> bool>,
    ) -> Result<bool> {
        if self.batch.at + 1 < self.batch.entries.len() {
            self.batch.at += 1;
            self.go_to_neighbour()?;
            return Ok(true);
        }
        self.batch.clear();
        let size = usize::try_from(wanted).map_or(self.size, |wanted| wanted.min(self.size));
        self.size = (self.size * 2).clamp(FIRST_BATCH, BATCH_MAX);
        if size <= 1 {
            return self.cursor.advance();
        }
        let mut inside = 0;
        while inside < size && self.cursor.advance()? {
            self.batch.keep(self.cursor.stored());
            if let Some(is_inside) = &mut is_inside
                && !is_inside(&self.cursor.entry()?)
            {
                break;
            }
            inside += 1;
        }
        if inside > 1 {
            self.read_ahead(inside, store, collection)?;
        }
        Ok(!self.batch.entries.is_empty())
    }

    /// Reads the documents of the first `count` entries of the batch, or finds out how.
    fn read_ahead(
        &mut self,
        count: usize,
        store: &'r dyn Read,
        collection: &Collection,
    ) -> Result<()> {
        let mut records = Vec::with_capacity(count);
        for entry in &self.batch.entries[..count] {
            let (key, value) = self.batch.show(entry);
            records.push(self.cursor.decode(key, value)?.record);
        }
        let ids: Option<Vec<i64>> = records
            .iter()
            .map(|record| (*record).try_into().ok().map(i64::from_be_bytes))
            .collect();
        if let Some(ids) = ids
            && let Some(direction) = direction_of(&ids)
            && (count >= NEIGHBOURS_MIN || self.neighbours.is_some())
        {
            if self.neighbours.as_ref().is_none_or(|known| known.direction != direction) {
                let cursor = collection.scan(store, direction)?;
                self.neighbours =
                    Some(Neighbours { cursor, direction, is_on: false, is_found: false });
            }
            self.batch.documents = Ahead::Neighbours(ids);
            return self.go_to_neighbour();
        }
        self.batch.documents = Ahead::Together(collection.get_many(store, records)?, count);
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
    pub(super) fn document(&self) -> Option<Doc<'_>> {
        let at = self.batch.at;
        match &self.batch.documents {
            Ahead::Together(documents, count) if at < *count => documents.get(at),
            Ahead::Neighbours(ids) if at < ids.len() => {
                let neighbours = self.neighbours.as_ref().filter(|known| known.is_found)?;
                Some(neighbours.cursor.doc())
            }
            _ => None,
        }
    }

    /// The index that is walked.
    pub(super) fn index(&self) -> &Index {
        self.cursor.index()
    }
}
