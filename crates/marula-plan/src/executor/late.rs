//! Late fetch: a sort with a limit that fetches documents only after sorting.
//!
//! For a page after the first, the sort also holds all earlier pages. Copying their documents, and
//! the documents that are replaced later, would cost more than the rest of the sort. So rows hold
//! keys and records only, and the documents of the page are fetched once all rows are sorted.
//!
//! A document may have been written in between. It must then still match and have the key that it
//! was sorted by. If one does not, the sort starts again and copies the documents.

use std::cell::Cell;
use std::mem;
use std::ops::Range;

use marula_bson::{Doc, FieldSet};
use marula_db::Collection;
use marula_error::Result;
use marula_query::filter::Filter;
use marula_query::sort::{DocMeta, SortPattern};
use marula_storage::View;

use super::sort::SortedRow;
use super::walk::BATCH_MAX;

/// The largest limit with a late fetch: all documents are fetched within one unit of work.
const ROWS_MAX: u64 = 1_000;

/// A row holds a document larger than this, as in other sorts, so that the memory limit of sorts
/// applies to it.
pub(super) const DOCUMENT_BYTES_MAX: usize = 32 << 10;

/// The maximum size of these documents that are copied again with the others; with more, the sort
/// starts again without the late fetch.
pub(super) const LARGE_BYTES_MAX: usize = 4 << 20;

/// Returns whether a late fetch pays off for a sort of `limit` documents, of which the first
/// `unseen` are skipped.
pub(super) fn pays(limit: Option<u64>, unseen: u64, bytes_max: usize) -> bool {
    limit.is_some_and(|limit| {
        limit <= ROWS_MAX
            && limit <= unseen.saturating_mul(2)
            && limit as usize * DOCUMENT_BYTES_MAX <= bytes_max
    })
}

/// The size of the memory that is reused for the next page.
const SPARE_BYTES_MAX: usize = 256 << 10;

thread_local! {
    /// The memory of the last page. Otherwise the allocator would return a page's memory to the
    /// system, and zero other memory for the next page.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The source of the documents, and the conditions on them.
pub(super) struct Source<'r> {
    pub(super) view: &'r dyn View,
    pub(super) collection: &'r Collection,
    /// The fields that are used afterwards.
    pub(super) fields: Option<&'r FieldSet>,
    /// The filter that documents must match.
    pub(super) filter: &'r Filter,
}

/// Sorted rows with their documents.
#[derive(Default)]
pub(super) struct Fetched {
    /// The number of skipped rows at the front; their content is unknown.
    unseen: u64,
    /// Records and documents, one after the other.
    bytes: Vec<u8>,
    rows: std::vec::IntoIter<FetchedRow>,
}

/// The position of a record and its document in `bytes`.
struct FetchedRow {
    record: Range<usize>,
    doc: Range<usize>,
}

impl Fetched {
    /// Fetches the documents of the sorted rows that `rows` passes, after the first `unseen`;
    /// `None` if one has changed since it was sorted.
    pub(super) fn fetch(
        rows: &mut dyn FnMut(&mut dyn FnMut(&[u8], SortedRow<'_>)) -> Result<()>,
        unseen: u64,
        pattern: &SortPattern,
        source: &Source<'_>,
    ) -> Result<Option<Fetched>> {
        let mut fetched = Fetched::default();
        fetched.bytes = SPARE.take();
        let bytes = &mut fetched.bytes;
        let mut found = Vec::new();
        // The keys of rows without documents, and the positions of these rows.
        let (mut keys, mut wanted) = (Vec::new(), Vec::new());
        rows(&mut |key, row| {
            if fetched.unseen < unseen {
                fetched.unseen += 1;
                return;
            }
            if row.doc.is_none() {
                wanted.push((appended(&mut keys, key), found.len()));
            }
            let record = appended(bytes, row.record);
            let doc = appended(bytes, row.doc.map_or(&[], Doc::as_bytes));
            found.push(FetchedRow { record, doc });
        })?;
        let mut scratch = Vec::new();
        let mut left = wanted.len();
        for chunk in wanted.chunks(BATCH_MAX) {
            let records = chunk.iter().map(|(_, row)| &bytes[found[*row].record.clone()]);
            let documents = source.collection.get_many(source.view, records)?;
            for (place, (key, row)) in chunk.iter().enumerate() {
                let FetchedRow { record, doc: range } = &mut found[*row];
                let start = bytes.len();
                let mut is_same = Ok(false);
                let mut see = |doc: Doc<'_>, out: &mut Vec<u8>| {
                    // Documents of a page have about the same size.
                    out.reserve(doc.as_bytes().len() * mem::replace(&mut left, 1));
                    is_same = source.take(doc, &keys[key.clone()], pattern, out);
                };
                match documents.get(place) {
                    Some(doc) => see(doc, bytes),
                    None => {
                        let record = bytes[record.clone()].to_vec();
                        let mut see = |doc: Doc<'_>| see(doc, bytes);
                        source.collection.get(source.view, &record, &mut scratch, &mut see)?;
                    }
                }
                if !is_same? {
                    return Ok(None);
                }
                *range = start..bytes.len();
            }
        }
        fetched.rows = found.into_iter();
        Ok(Some(fetched))
    }

    /// Returns the document at the front, and its record; a skipped one is empty.
    pub(super) fn front(&self) -> Option<(Doc<'_>, &[u8])> {
        if self.unseen > 0 {
            return Some((Doc::EMPTY, &[]));
        }
        let FetchedRow { record, doc } = self.rows.as_slice().first()?;
        Some((Doc::trusted(&self.bytes[doc.clone()]), &self.bytes[record.clone()]))
    }

    /// Moves to the next row.
    pub(super) fn advance(&mut self) {
        self.pass(1);
    }

    /// Skips up to `count` rows; returns their number.
    pub(super) fn pass(&mut self, count: u64) -> u64 {
        let unseen = count.min(self.unseen);
        self.unseen -= unseen;
        let seen = (unseen..count).zip(self.rows.by_ref()).count();
        unseen + seen as u64
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if (1..=SPARE_BYTES_MAX).contains(&self.bytes.capacity()) {
            self.bytes.clear();
            SPARE.set(mem::take(&mut self.bytes));
        }
    }
}

/// Appends `more`; returns its position.
fn appended(bytes: &mut Vec<u8>, more: &[u8]) -> Range<usize> {
    let start = bytes.len();
    bytes.extend_from_slice(more);
    start..bytes.len()
}

impl Source<'_> {
    /// Copies the used fields of a document, if it still is as it was sorted.
    fn take(
        &self,
        doc: Doc<'_>,
        key: &[u8],
        pattern: &SortPattern,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut now = Vec::new();
        pattern.write_key_with_meta(doc, &DocMeta::default(), &mut now)?;
        if now != key || !self.filter.matches(doc)? {
            return Ok(false);
        }
        match self.fields {
            Some(fields) => fields.copy(doc, out),
            None => out.extend_from_slice(doc.as_bytes()),
        }
        Ok(true)
    }
}
