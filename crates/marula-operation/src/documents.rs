//! The documents of a `find` on their way into batches: an execution, and the projection of the
//! documents that it finds.

use std::sync::Arc;

use marula_bson::{ArrayWriter, Binary, Doc, DocBuf, DocWriter, FieldPath, Type, Value};
use marula_db::Shape;
use marula_db::index::entry;
use marula_error::Result;
use marula_plan::{Emit, End, Execution, Found, Stage};
use marula_query::filter::{Filter, NearTest};
use marula_query::meter;
use marula_query::projection::{Meta, Metadata, Projection};
use marula_query::sort::{DocMeta, SortPattern};

use crate::env::Env;

/// The most bytes of documents in one batch. Source: manual "Limits": a reply fits a message.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The size of a batch up to which a reply grows by doubling. A larger batch gets the room of the
/// largest one at once: growing would copy the reply and clear memory for it repeatedly, while room
/// that is not written to costs nothing.
const SMALL_BATCH_BYTES_MAX: usize = 512 << 10;

/// The room of a batch. While the server is short of memory, it is that of a small batch, and
/// clients get their documents in more batches.
pub struct Room {
    bytes_max: usize,
}

impl Room {
    /// The room of a batch of a cursor, which continues with the next batch.
    pub fn of_cursor() -> Room {
        Room { bytes_max: SMALL_BATCH_BYTES_MAX }
    }

    /// The room of a batch that is the only one.
    pub fn of_single_batch() -> Room {
        Room { bytes_max: BATCH_BYTES_MAX }
    }

    /// Returns whether there is room for a document of `size` bytes. A batch has one document at
    /// least.
    #[inline]
    pub fn has(&mut self, batch: &ArrayWriter<'_>, size: usize) -> bool {
        batch.count() == 0 || {
            let bytes = batch.size() + size;
            bytes <= self.bytes_max || self.can_grow_to(bytes)
        }
    }

    #[cold]
    #[inline(never)]
    fn can_grow_to(&mut self, bytes: usize) -> bool {
        if self.bytes_max < BATCH_BYTES_MAX && !meter::is_short_of(BATCH_BYTES_MAX) {
            self.bytes_max = BATCH_BYTES_MAX;
        }
        bytes <= self.bytes_max
    }
}

/// Whether there is more after a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// There is nothing more.
    Exhausted,
    /// The batch is full; there may be more.
    More,
}

/// The behaviour of a cursor at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// The cursor is closed.
    No,
    /// The cursor stays open.
    Tailable,
    /// The cursor stays open, and `getMore` waits there for new documents.
    AwaitData,
}

/// The documents of a `find`.
pub struct FindDocuments {
    execution: Execution,
    projection: Option<Arc<Projection>>,
    /// The filter, if the projection has a positional `$`, which needs the element that matched.
    position_filter: Option<Filter>,
    /// Returns index entries in place of documents: `returnKey`.
    pub(crate) return_key: bool,
    /// The behaviour at the end.
    pub(crate) tail: Tail,
    /// Returns one batch and no cursor: `singleBatch`.
    pub(crate) is_single_batch: bool,
    scratch: Vec<u8>,
}

impl FindDocuments {
    /// The documents of `execution`, without a projection.
    pub(crate) fn new(execution: Execution) -> Self {
        FindDocuments {
            execution,
            projection: None,
            position_filter: None,
            return_key: false,
            tail: Tail::No,
            is_single_batch: false,
            scratch: Vec::new(),
        }
    }

    /// Applies a projection to the documents.
    pub(crate) fn project(&mut self, projection: Arc<Projection>, position_filter: Option<Filter>) {
        if !projection.is_identity() {
            self.projection = Some(projection);
            self.position_filter = position_filter;
        }
    }

    /// The execution.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// The behaviour at the end.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Appends documents to a batch until it has `documents_max` or is full.
    ///
    /// Errors: those of the execution.
    pub fn fill(
        &mut self,
        env: &Env<'_>,
        documents_max: usize,
        batch: &mut ArrayWriter<'_>,
    ) -> Result<Filled> {
        if documents_max == 0 {
            self.execution.lift_time_limit();
            return Ok(Filled::More);
        }
        let Self { execution, projection, position_filter, scratch, .. } = self;
        execution.expect(documents_max);
        if self.tail != Tail::No && execution.is_exhausted() {
            execution.reopen();
        }
        let is_plain = projection.is_none() && !self.return_key;
        let query = execution.query();
        let context = (!is_plain).then(|| query.context.clone());
        let shown = projection.as_deref();
        let near = shown.and_then(|_| query.filter.near());
        let near = near.map(|(path, test)| (path.clone(), test.clone()));
        let has_sort_key = |shown: &&Projection| shown.metadata().contains(&Meta::SortKey);
        let sort = shown.filter(has_sort_key).and_then(|_| query.sort.clone());
        let mut shown = context.as_ref().map(|context| Shown {
            projection: shown,
            position_filter: position_filter.as_ref(),
            near: near.as_ref().map(|(path, test)| (path, test)),
            context,
            sort: sort.as_ref(),
            return_key: self.return_key,
            is_by_id: self.return_key
                && execution.plan().root.any(&|stage| matches!(stage, Stage::IdHack(_))),
            shape: execution.collection().shape(),
            scratch,
        });
        let mut room = match self.is_single_batch {
            true => Room::of_single_batch(),
            false => Room::of_cursor(),
        };
        let end = execution.run(env.unit, &mut || env.check_interrupt(), &mut |found| {
            let bytes = match &mut shown {
                None => found.doc.as_bytes(),
                Some(shown) => shown.write(found)?,
            };
            if !room.has(batch, bytes.len()) {
                return Ok(Emit::Full);
            }
            batch.push_with(Type::Document, |out| {
                make_room(out, bytes.len());
                out.extend_from_slice(bytes);
            });
            Ok(if batch.count() < documents_max { Emit::Taken } else { Emit::Enough })
        })?;
        Ok(match end {
            End::Exhausted if self.tail == Tail::No => Filled::Exhausted,
            _ => Filled::More,
        })
    }
}

/// Makes room in a reply for a document of `size` bytes.
#[inline]
fn make_room(out: &mut Vec<u8>, size: usize) {
    if out.capacity() - out.len() < size && out.len() >= SMALL_BATCH_BYTES_MAX {
        out.reserve(size.max(BATCH_BYTES_MAX.saturating_sub(out.len()) + SMALL_BATCH_BYTES_MAX));
    }
}

/// The form in which documents are returned.
struct Shown<'s> {
    projection: Option<&'s Projection>,
    position_filter: Option<&'s Filter>,
    near: Option<(&'s FieldPath, &'s NearTest)>,
    context: &'s marula_query::context::Context,
    sort: Option<&'s SortPattern>,
    return_key: bool,
    /// Whether the key that is returned is the `_id`, by which the document was found without a
    /// plan.
    is_by_id: bool,
    /// The form of the collection's record ids.
    shape: Shape,
    scratch: &'s mut Vec<u8>,
}

impl Shown<'_> {
    /// Returns the bytes that the reply has for a document.
    fn write(&mut self, found: Found<'_>) -> Result<&[u8]> {
        self.scratch.clear();
        let record_id = record_id(self.shape, found.record);
        if self.return_key {
            self.write_key(found);
            self.add_sort_key(found)?;
        } else if let Some(projection) = self.projection {
            let mut position = None;
            if let Some(filter) = self.position_filter {
                filter.matches_noting_as_written(found.doc, &mut position)?;
            }
            let nearest = self.near.and_then(|(path, test)| test.measure(path, found.doc));
            let shows_index_key = projection.metadata().contains(&Meta::IndexKey);
            let index_key = if shows_index_key { found.index_key() } else { None };
            let sort_key = self.sort_key(projection, found)?;
            let metadata = Metadata {
                record_id: record_id.filter(|_| projection.metadata().contains(&Meta::RecordId)),
                index_key: index_key.as_ref().map(DocBuf::as_doc),
                sort_key: sort_key.as_ref().map(|key| Value::Array(key.as_doc())),
                geo_near_distance: nearest.map(|(distance, _)| distance),
                geo_near_point: nearest.map(|(_, place)| place.get()),
                text_score: found.score,
                ..Metadata::default()
            };
            projection.apply(found.doc, position, &metadata, self.context, self.scratch)?;
        } else {
            self.scratch.extend_from_slice(found.doc.as_bytes());
        }
        Ok(self.scratch)
    }

    /// Adds the values that a document is sorted by to its key, in the projection's fields of them.
    /// Its other fields are not shown.
    fn add_sort_key(&mut self, found: Found<'_>) -> Result<()> {
        let Some(projection) = self.projection else { return Ok(()) };
        let Some(sort_key) = self.sort_key(projection, found)? else { return Ok(()) };
        let key = std::mem::take(self.scratch);
        let sort_key = Value::Array(sort_key.as_doc());
        projection.add_metadata(Doc::trusted(&key), Meta::SortKey, sort_key, self.scratch);
        Ok(())
    }

    /// Returns the values that a document is sorted by, if the projection has them.
    fn sort_key(&self, projection: &Projection, found: Found<'_>) -> Result<Option<DocBuf>> {
        let Some(sort) = self.sort.filter(|_| projection.metadata().contains(&Meta::SortKey))
        else {
            return Ok(None);
        };
        let nearest = self.near.and_then(|(path, test)| test.measure(path, found.doc));
        let geo_near_distance = nearest.map(|(distance, _)| distance);
        let known = DocMeta { text_score: found.score, geo_near_distance, ..DocMeta::default() };
        Ok(Some(sort.key_array(found.doc, &known)?))
    }

    fn write_key(&mut self, found: Found<'_>) {
        match (found.entry, found.key.filter(|key| !key.is_empty())) {
            (Some((index, entry)), _) => {
                // A damaged entry has no fields here; `validate` reports it.
                if entry::shown_key(index, &entry, self.scratch).is_none() {
                    self.scratch.clear();
                    DocWriter::new(self.scratch).finish();
                }
            }
            // After a sort the key is next to the document, or in its place.
            (None, Some(key)) => self.scratch.extend_from_slice(key.as_bytes()),
            (None, None) if self.is_by_id => {
                let mut key = DocWriter::new(self.scratch);
                if let Some(id) = found.doc.get_raw(b"_id") {
                    key.append_raw("_id", id);
                }
                key.finish();
            }
            (None, None) if !found.is_fetched => {
                self.scratch.extend_from_slice(found.doc.as_bytes())
            }
            (None, None) => DocWriter::new(self.scratch).finish(),
        }
    }
}

/// The record id as clients see it: a number, or the key of a clustered collection as binary data.
/// `None` if the document does not come from a record.
pub(crate) fn record_id(shape: Shape, record: &[u8]) -> Option<Value<'_>> {
    match shape {
        Shape::RecordId => record.try_into().ok().map(i64::from_be_bytes).map(Value::Int64),
        Shape::Clustered if record.is_empty() => None,
        Shape::Clustered => Some(Value::Binary(Binary { subtype: 0, bytes: record })),
    }
}
