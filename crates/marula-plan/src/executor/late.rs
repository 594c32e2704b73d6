//! Documents that a short sort fetches in the end.
//!
//! Of a page behind the first, a sort holds all pages before it only to tell what comes first there. Copying their
//! documents, and those that are pushed out again, costs more than the rest of the sort: here rows hold keys and records,
//! and the documents of the page are fetched once all rows are in.
//!
//! A document may have been written meanwhile. Then what is fetched must still match and have the key that it was sorted
//! by; where one does not, the sort begins anew and copies.

use std::collections::VecDeque;

use marula_bson::{Doc, FieldSet};
use marula_db::Collection;
use marula_error::Result;
use marula_query::filter::Filter;
use marula_query::sort::{DocMeta, SortPattern};
use marula_storage::Read;

use super::sort::Row;
use super::walk::BATCH_MAX;

/// The longest sort that does so: all of it is fetched within one unit of work.
const ROWS_MAX: u64 = 1_000;

/// A document that is larger is copied like those of other sorts, so that the limit on the memory of sorts holds for it.
pub(super) const DOCUMENT_BYTES_MAX: usize = 32 << 10;

/// Whether a sort of `limit` documents, of which the first `unseen` are passed over, had better fetch the others in the end.
pub(super) fn pays(limit: Option<u64>, unseen: u64, bytes_max: usize) -> bool {
    limit.is_some_and(|limit| {
        limit <= ROWS_MAX
            && limit <= unseen.saturating_mul(2)
            && limit as usize * DOCUMENT_BYTES_MAX <= bytes_max
    })
}

/// What the documents are fetched from, and what they must be.
pub(super) struct Source<'r> {
    pub(super) store: &'r dyn Read,
    pub(super) collection: &'r Collection,
    /// What of a document is looked at in the end.
    pub(super) fields: Option<&'r FieldSet>,
    /// What a document must match.
    pub(super) filter: &'r Filter,
}

/// Sorted rows with their documents.
#[derive(Default)]
pub(super) struct Fetched {
    /// Rows at the front that are passed over: nothing is known of them any more.
    unseen: u64,
    rows: VecDeque<FetchedRow>,
}

/// One of them.
struct FetchedRow {
    record: Vec<u8>,
    doc: Vec<u8>,
}

impl Fetched {
    /// Fetches the documents of sorted rows behind the first `unseen`; `None` where one is no longer what was sorted.
    pub(super) fn fetch(
        rows: &mut dyn FnMut(&mut dyn FnMut(&[u8], Row<'_>)) -> Result<bool>,
        unseen: u64,
        pattern: &SortPattern,
        source: &Source<'_>,
    ) -> Result<Option<Fetched>> {
        let mut fetched = Fetched::default();
        let mut keys = Vec::new();
        while rows(&mut |key, row| {
            if fetched.unseen < unseen {
                fetched.unseen += 1;
                return;
            }
            keys.push(key.to_vec());
            fetched.rows.push_back(FetchedRow { record: row.record.to_vec(), doc: Vec::new() });
        })? {}
        let wanted = fetched.rows.make_contiguous();
        let mut scratch = Vec::new();
        for (rows, keys) in wanted.chunks_mut(BATCH_MAX).zip(keys.chunks(BATCH_MAX)) {
            let records = rows.iter().map(|row| row.record.as_slice());
            let documents = source.collection.get_many(source.store, records)?;
            for (place, (row, key)) in rows.iter_mut().zip(keys).enumerate() {
                let mut is_same = Ok(false);
                let mut see = |doc: Doc<'_>| {
                    is_same = source.take(doc, key, pattern, &mut row.doc);
                };
                match documents.get(place) {
                    Some(doc) => see(doc),
                    None => {
                        source.collection.get(source.store, &row.record, &mut scratch, &mut see)?;
                    }
                }
                if !is_same? {
                    return Ok(None);
                }
            }
        }
        Ok(Some(fetched))
    }

    /// The document at the front, and its record; one that is passed over is empty.
    pub(super) fn front(&self) -> Option<(Doc<'_>, &[u8])> {
        if self.unseen > 0 {
            return Some((Doc::EMPTY, &[]));
        }
        self.rows.front().map(|row| (Doc::trusted(&row.doc), row.record.as_slice()))
    }

    /// Moves to the next row.
    pub(super) fn advance(&mut self) {
        match self.unseen.checked_sub(1) {
            Some(less) => self.unseen = less,
            None => drop(self.rows.pop_front()),
        }
    }
}

impl Source<'_> {
    /// Copies what is wanted of a document, if it is what was sorted.
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
