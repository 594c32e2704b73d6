//! Reads of a collection: documents by record key or `_id`, and cursors over documents and index
//! entries. All of them read the view that the caller hands in.

use std::sync::Arc;

use marula_bson::{Doc, Value, key_string};
use marula_error::{Result, errors};
use marula_storage::{Cursor, Direction, KeyRange, Looked, Space, Values, View};

use super::{Collection, Shape};
use crate::index::Index;
use crate::index::entry::{self, Entry};
use crate::keys::{self, IDENT_BYTES, Ident, RecordKey};
use crate::storage_error::ForClient;

errors! {
    index_dropped(name: &str) = QueryPlanKilled, "query plan killed :: index '{name}' dropped";
    corrupt_index(index: &str) = 8_000_004, "an entry of index '{index}' is not of an index's shape";
}

impl Collection {
    /// Visits the document of `record`; returns whether it exists. `scratch` is a buffer for the
    /// key.
    #[inline]
    pub fn get(
        &self,
        store: &dyn View,
        record: &[u8],
        scratch: &mut Vec<u8>,
        visit: &mut dyn FnMut(Doc<'_>),
    ) -> Result<bool> {
        keys::record_key(self.ident, record, scratch);
        store.get(Space::Records, scratch, &mut |bytes| visit(Doc::trusted(bytes))).for_client()
    }

    /// Reads the documents of several records at once.
    pub fn get_many<'r, 'k>(
        &self,
        store: &'r dyn View,
        records: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<Documents<'r>> {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for record in records {
            bytes.extend_from_slice(&self.ident.bytes());
            bytes.extend_from_slice(record);
            ends.push(bytes.len());
        }
        let keys: Vec<&[u8]> = ends.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        store.get_many(Space::Records, &keys).for_client().map(Documents)
    }

    /// The record key of the document with this `_id`.
    pub fn find_id(
        &self,
        store: &dyn View,
        id: Value<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<RecordKey>> {
        let state = self.state();
        let collator = state.options.collation.as_ref().map(|collation| collation.collator());
        scratch.clear();
        match self.shape {
            Shape::Clustered => {
                key_string::encode_part(id, false, collator, scratch);
                Ok(Some(RecordKey::new(scratch)))
            }
            Shape::RecordId => {
                let Some(index) = state.indexes.first() else { return Ok(None) };
                scratch.extend_from_slice(&index.ident.bytes());
                key_string::encode_part(id, false, collator, scratch);
                self.find_unique(store, scratch)
            }
        }
    }

    /// The record key in a unique index's entry with this store key.
    pub fn find_unique(&self, store: &dyn View, key: &[u8]) -> Result<Option<RecordKey>> {
        let mut found = None;
        let shape = self.shape;
        let mut read = |value: &[u8]| found = entry::record_of_unique(shape, value);
        store.get(Space::Indexes, key, &mut read).for_client()?;
        Ok(found)
    }

    /// Scans the documents in record order.
    pub fn scan<'r>(&self, store: &'r dyn View, direction: Direction) -> Result<RecordCursor<'r>> {
        let cursor = store.cursor(Space::Records, &self.ident.range(), direction).for_client()?;
        Ok(RecordCursor { cursor, ident: self.ident, key: Vec::new() })
    }

    /// Scans the documents whose record keys lie in `range`.
    pub fn scan_between<'r>(
        &self,
        store: &'r dyn View,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<RecordCursor<'r>> {
        let range = self.ident.range_within(range);
        let cursor = store.cursor(Space::Records, &range, direction).for_client()?;
        Ok(RecordCursor { cursor, ident: self.ident, key: Vec::new() })
    }

    /// Returns an error if an index has been dropped: a scan would miss entries that are being
    /// cleared.
    ///
    /// Errors: `index_dropped`.
    pub fn check_index(&self, index: &Index) -> Result<()> {
        if index.is_dropped() { Err(index_dropped(&index.spec.name)) } else { Ok(()) }
    }

    /// Scans the entries of `index` whose key strings lie in `range` (without the ident).
    ///
    /// Errors: `index_dropped`.
    pub fn scan_index<'r>(
        &self,
        store: &'r dyn View,
        index: Arc<Index>,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<EntryCursor<'r>> {
        let range = index.ident.range_within(range);
        let cursor = store.cursor(Space::Indexes, &range, direction).for_client()?;
        // Checked after the cursor was opened: its snapshot is then complete.
        self.check_index(&index)?;
        Ok(EntryCursor { cursor, index, shape: self.shape, key: Vec::new() })
    }
}

/// Documents read at once, held where the store has them: see [`Collection::get_many`].
pub struct Documents<'r>(Box<dyn Values + 'r>);

impl Documents<'_> {
    /// The document of the record at index `place`; `None` if it is absent or must be read by
    /// [`Collection::get`].
    #[inline]
    pub fn get(&self, place: usize) -> Option<Doc<'_>> {
        match self.0.get(place) {
            Looked::Found(bytes) => Some(Doc::trusted(bytes)),
            Looked::Absent | Looked::Unread => None,
        }
    }
}

/// Scans documents in record order.
pub struct RecordCursor<'r> {
    cursor: Box<dyn Cursor + 'r>,
    ident: Ident,
    key: Vec<u8>,
}

impl RecordCursor<'_> {
    /// Moves to the next document; returns whether there is one.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.cursor.advance().for_client()
    }

    /// Moves to `record`, or to the next document after it in the cursor's direction.
    pub fn seek(&mut self, record: &[u8]) -> Result<bool> {
        keys::record_key(self.ident, record, &mut self.key);
        self.cursor.seek(&self.key).for_client()
    }

    /// Returns whether the cursor is on a document; `false` after an error.
    pub fn is_on(&self) -> bool {
        self.cursor.is_on()
    }

    /// The record key of the current document.
    #[inline]
    pub fn record(&self) -> &[u8] {
        &self.cursor.key()[IDENT_BYTES..]
    }

    /// The current document.
    #[inline]
    pub fn doc(&self) -> Doc<'_> {
        Doc::trusted(self.cursor.value())
    }
}

/// Scans the entries of an index in key order.
pub struct EntryCursor<'r> {
    cursor: Box<dyn Cursor + 'r>,
    index: Arc<Index>,
    shape: Shape,
    key: Vec<u8>,
}

impl EntryCursor<'_> {
    /// Moves to the next entry; returns whether there is one.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.cursor.advance().for_client()
    }

    /// Moves to the first entry whose key string is at or after `key` in the cursor's direction.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        keys::record_key(self.index.ident, key, &mut self.key);
        self.cursor.seek(&self.key).for_client()
    }

    /// Skips up to `count` entries; returns the number skipped: see [`Cursor::pass`].
    pub fn pass(&mut self, count: u64) -> Result<u64> {
        self.cursor.pass(count).for_client()
    }

    /// Returns whether the cursor is on an entry; `false` after an error.
    pub fn is_on(&self) -> bool {
        self.cursor.is_on()
    }

    /// The stored key of the entry, without the ident: the position where a parked cursor resumes.
    #[inline]
    pub fn position(&self) -> &[u8] {
        &self.cursor.key()[IDENT_BYTES..]
    }

    /// The current entry.
    ///
    /// Errors: `corrupt_index`.
    #[inline]
    pub fn entry(&self) -> Result<Entry<'_>> {
        let (key, value) = self.stored();
        self.decode(key, value)
    }

    /// The entry's stored key and value.
    #[inline]
    pub fn stored(&self) -> (&[u8], &[u8]) {
        self.cursor.entry()
    }

    /// Decodes a stored entry of the index.
    ///
    /// Errors: `corrupt_index`.
    #[inline]
    pub fn decode<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<Entry<'a>> {
        entry::decode(&self.index, self.shape, key, value)
            .ok_or_else(|| corrupt_index(&self.index.spec.name))
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }
}
