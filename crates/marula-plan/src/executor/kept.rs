//! Documents that a plan found during a trial; they are returned first when the plan continues.
//!
//! Source: mongod 6.0, whose winner returns the documents found in the trial, and counts them once.

use std::collections::VecDeque;
use std::sync::Arc;

use marula_bson::{Doc, DocBuf};
use marula_db::index::entry::Entry;
use marula_db::{Index, RecordKey};
use marula_error::Result;

use super::{Emit, Found};
use crate::plan::{Plan, Stage};
use crate::query::{Query, Wanted};

/// The bytes that all plans of one trial may store. A plan that finds more starts again if it wins.
const BYTES_MAX: usize = 16 << 20;

/// The approximate size of an entry in addition to its document.
const OVERHEAD_BYTES: usize = 128;

/// The bytes that the plans of a trial may still store.
pub(crate) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Room(BYTES_MAX)
    }
}

/// The documents that a plan has found and not returned yet.
#[derive(Default)]
pub(crate) struct Kept(VecDeque<KeptDocument>);

/// A found document.
struct KeptDocument {
    record: RecordKey,
    /// Empty if documents are only counted.
    doc: DocBuf,
    is_fetched: bool,
    score: Option<f64>,
    /// The index entry that led to it, if the query wants it.
    entry: Option<KeptEntry>,
    /// The key of the entry, if there was a sort since.
    key: Option<DocBuf>,
}

struct KeptEntry {
    index: Arc<Index>,
    key_string: Box<[u8]>,
    type_bits: Box<[u8]>,
}

impl KeptDocument {
    /// Copies a document that `plan` has found for `query`.
    fn of(found: &Found<'_>, plan: &Plan, query: &Query) -> Self {
        let wants_key = query.wants_key || query.wanted == Wanted::Key;
        let entry = found.entry.filter(|_| wants_key).and_then(|(index, entry)| {
            Some(KeptEntry {
                index: walked(plan, index)?,
                key_string: entry.key_string.into(),
                type_bits: entry.type_bits.into(),
            })
        });
        KeptDocument {
            record: RecordKey::new(found.record),
            doc: match query.wanted {
                Wanted::Count => DocBuf::new(),
                _ => found.doc.to_buf(),
            },
            is_fetched: found.is_fetched,
            score: found.score,
            entry,
            key: found.key.map(Doc::to_buf),
        }
    }

    fn bytes(&self) -> usize {
        let key = self.key.as_ref().map_or(0, |key| key.as_doc().as_bytes().len());
        let entry = self.entry.as_ref();
        let entry = entry.map_or(0, |entry| entry.key_string.len() + entry.type_bits.len());
        OVERHEAD_BYTES
            + self.record.as_bytes().len()
            + self.doc.as_doc().as_bytes().len()
            + key
            + entry
    }

    fn found(&self) -> Found<'_> {
        let record = self.record.as_bytes();
        let entry = self.entry.as_ref().map(|kept| {
            let KeptEntry { index, key_string, type_bits } = kept;
            (&**index, Entry { key_string, record, type_bits })
        });
        Found {
            doc: self.doc.as_doc(),
            entry,
            key: self.key.as_ref().map(DocBuf::as_doc),
            is_fetched: self.is_fetched,
            score: self.score,
            ..Found::unread(record)
        }
    }
}

/// Returns the index of an entry, as the plan that scans it has it.
fn walked(plan: &Plan, index: &Index) -> Option<Arc<Index>> {
    let mut found = None;
    plan.root.walk(&mut |stage| {
        if let Stage::Ixscan(scan) = stage
            && std::ptr::eq(&*scan.index, index)
        {
            found = Some(Arc::clone(&scan.index));
        }
    });
    found
}

impl Kept {
    /// Adds a document that `plan` has found for `query`; returns whether there was room for it.
    pub(crate) fn add(
        &mut self,
        found: &Found<'_>,
        plan: &Plan,
        query: &Query,
        room: &mut Room,
    ) -> bool {
        let document = KeptDocument::of(found, plan, query);
        match room.0.checked_sub(document.bytes()) {
            Some(left) => {
                room.0 = left;
                self.0.push_back(document);
                true
            }
            None => {
                room.0 += self.0.iter().map(KeptDocument::bytes).sum::<usize>();
                false
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the records of the documents.
    pub(super) fn records(&self) -> impl Iterator<Item = &RecordKey> {
        self.0.iter().map(|document| &document.record)
    }

    /// Passes the documents to `emit` until it has enough; `None` if it took all and wants more.
    pub(super) fn give(
        &mut self,
        emit: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Option<Emit>> {
        while let Some(document) = self.0.front() {
            let answer = emit(document.found())?;
            if answer != Emit::Full {
                self.0.pop_front();
            }
            if answer != Emit::Taken {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }
}
