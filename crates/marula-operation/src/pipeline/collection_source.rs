//! The documents of a collection, read ahead of the stages of a pipeline.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use marula_bson::{Doc, DocBuf, FieldSet};
use marula_error::Result;
use marula_plan::{Emit, End, Execution};
use marula_query::known::Known;
use marula_query::sort::{DocMeta, SortPattern};
use marula_query::stage::{Source, Step, World};

use super::geo_near::Search;
use super::world::Surroundings;
use crate::documents::record_id;

/// The size of the documents that are read ahead of the pipeline.
pub(super) const READ_AHEAD_BYTES: usize = 256 * 1024;

/// The same in a transaction, where it is visible: later writes of the transaction do not change
/// documents that have been read ahead. Source: the behaviour of mongod 6.0.
pub(super) const READ_AHEAD_BYTES_IN_TRANSACTION: usize = 4 << 20;

/// The amount of documents that is read ahead of the pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ahead {
    /// This number of bytes.
    Bytes(usize),
    /// The documents of the batch: if the whole pipeline is one query.
    Batch,
}

/// The metadata that a pipeline uses.
#[derive(Clone, Copy, Default)]
pub(super) struct Wants {
    /// The keys of the documents' index entries.
    pub(super) index_key: bool,
    pub(super) record_id: bool,
    /// The values that the query sorts by.
    pub(super) sort_key: bool,
}

/// The documents of an execution, read ahead a little at a time.
pub(super) struct CollectionSource {
    pub(super) execution: Execution,
    /// Adds distances to the documents.
    search: Option<Search>,
    /// The fields that the pipeline uses, if not all.
    fields: Option<FieldSet>,
    surroundings: Arc<Surroundings>,
    bytes: Vec<u8>,
    /// The end of each document that was read ahead, in `bytes`.
    ends: Vec<usize>,
    /// The metadata of the documents at the front; the others have none.
    known: Vec<Option<Known>>,
    /// The metadata that the pipeline uses, of those that cost something.
    pub(super) wants: Wants,
    pub(super) ahead: Ahead,
    next: usize,
    is_exhausted: bool,
}

impl CollectionSource {
    pub(super) fn new(
        execution: Execution,
        surroundings: Arc<Surroundings>,
        search: Option<Search>,
    ) -> Self {
        // The first one reads the pipeline's own collection; others are those of `$lookup` and
        // similar stages.
        surroundings.plan.get_or_init(|| Arc::clone(execution.plan()));
        CollectionSource {
            fields: execution.query().fields.clone(),
            execution,
            search,
            surroundings,
            bytes: Vec::new(),
            ends: Vec::new(),
            known: Vec::new(),
            wants: Wants::default(),
            ahead: Ahead::Bytes(READ_AHEAD_BYTES),
            next: 0,
            is_exhausted: false,
        }
    }

    fn read_ahead(&mut self) -> Result<()> {
        self.bytes.clear();
        self.ends.clear();
        self.known.clear();
        self.next = 0;
        let (bytes, ends, known) = (&mut self.bytes, &mut self.ends, &mut self.known);
        let wants = self.wants;
        let sort = self.execution.query().sort.as_ref().filter(|_| wants.sort_key).cloned();
        let (bytes_max, documents_max) = match self.ahead {
            Ahead::Bytes(bytes) => (bytes, usize::MAX),
            Ahead::Batch => (READ_AHEAD_BYTES, self.surroundings.room.load(Ordering::Relaxed)),
        };
        let (search, fields) = (&self.search, &self.fields);
        let shape = self.execution.collection().shape();
        let surroundings = &self.surroundings;
        let work = surroundings.host.work();
        let end = self.execution.run(
            work.unit(),
            &mut || surroundings.check_interrupt(),
            &mut |found| {
                let mut nearest = None;
                match (search, fields) {
                    (Some(search), _) => nearest = search.write(found.doc, bytes)?,
                    (None, Some(fields)) => fields.copy(found.doc, bytes),
                    (None, None) => bytes.extend_from_slice(found.doc.as_bytes()),
                }
                let index_key = if wants.index_key { found.index_key() } else { None };
                let record_id = record_id(shape, found.record).filter(|_| wants.record_id);
                let record_id = record_id.map(|id| id.to_buf());
                let text_score = found.score;
                let sort_key = match (wants.sort_key, &sort) {
                    (true, Some(sort)) => {
                        let meta = DocMeta { text_score, ..DocMeta::default() };
                        Some(sort.key_array(found.doc, &meta)?)
                    }
                    (true, None) => Some(DocBuf::new()),
                    (false, _) => None,
                };
                let one =
                    Known { text_score, nearest, index_key, record_id, sort_key, bound_ms: None };
                if one != Known::default() {
                    known.resize(ends.len(), None);
                    known.push(Some(one));
                }
                ends.push(bytes.len());
                let has_more = bytes.len() < bytes_max && ends.len() < documents_max;
                Ok(if has_more { Emit::Taken } else { Emit::Enough })
            },
        )?;
        if self.ahead == Ahead::Batch {
            let left = documents_max.saturating_sub(self.ends.len());
            self.surroundings.room.store(left, Ordering::Relaxed);
        }
        self.is_exhausted = end == End::Exhausted;
        Ok(())
    }
}

impl Source for CollectionSource {
    fn pull(&mut self) -> Result<Step> {
        if self.next == self.ends.len() {
            if self.is_exhausted {
                return Ok(Step::End);
            }
            self.read_ahead()?;
            if self.ends.is_empty() {
                return Ok(Step::End);
            }
        }
        self.next += 1;
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        let start = if self.next < 2 { 0 } else { self.ends[self.next - 2] };
        Doc::trusted(&self.bytes[start..self.ends[self.next - 1]])
    }

    fn order(&self) -> Option<&SortPattern> {
        self.execution.query().sort.as_ref()
    }

    fn known(&self) -> Option<&Known> {
        self.known.get(self.next.checked_sub(1)?)?.as_ref()
    }
}
