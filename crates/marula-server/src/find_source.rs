//! The documents of a `find`, for its cursor: an execution, and what the reply shows of what it
//! finds.

use std::sync::Arc;

use marula_bson::{ArrayWriter, Doc, DocWriter, FieldPath, Type, Value};
use marula_db::index::entry;
use marula_error::Result;
use marula_plan::{Emit, End, Execution, Found};
use marula_query::filter::{Filter, NearTest};
use marula_query::projection::{Meta, Metadata, Projection};
use marula_query::sort::{DocMeta, SortPattern};

use crate::context::{Context, Watch};
use crate::cursor::{BATCH_BYTES_MAX, Filled, Source};

/// Whether a cursor waits for what is added behind its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// It ends with its documents.
    No,
    /// It stays open at the end.
    Tailable,
    /// It stays open at the end, and `getMore` waits there for a while.
    AwaitData,
}

/// The documents of a `find`.
pub struct FindSource {
    execution: Execution,
    projection: Option<Arc<Projection>>,
    /// The filter, where the projection's positional `$` needs to know which element matched.
    position_filter: Option<Filter>,
    /// Shows index entries in place of documents.
    pub return_key: bool,
    /// Shows each document's record id.
    pub show_record_id: bool,
    /// What happens at the end.
    pub tail: Tail,
    is_overdue: bool,
    scratch: Vec<u8>,
}

impl FindSource {
    /// The documents of `execution`, as they are.
    pub fn new(execution: Execution) -> Self {
        FindSource {
            execution,
            projection: None,
            position_filter: None,
            return_key: false,
            show_record_id: false,
            tail: Tail::No,
            is_overdue: false,
            scratch: Vec::new(),
        }
    }

    /// Shows documents through a projection.
    pub fn project(&mut self, projection: Arc<Projection>, position_filter: Option<Filter>) {
        if !projection.is_identity() {
            self.projection = Some(projection);
            self.position_filter = position_filter;
        }
    }

    /// Whether filling a batch would have taken longer than the execution may.
    pub fn is_overdue(&self) -> bool {
        self.is_overdue
    }

    /// The execution.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }
}

impl Source for FindSource {
    fn fill(
        &mut self,
        ctx: &Context<'_>,
        documents_max: usize,
        batch: &mut ArrayWriter<'_>,
    ) -> Result<Filled> {
        if documents_max == 0 {
            return Ok(Filled::More);
        }
        let Self { execution, projection, position_filter, scratch, .. } = self;
        execution.expect(documents_max);
        if self.tail != Tail::No && execution.is_exhausted() {
            execution.reopen();
        }
        let context = execution.query().context.clone();
        Watch::renew(&context, ctx);
        let near = match projection {
            Some(_) => execution.query().filter.near(),
            None => None,
        };
        let near = near.map(|(path, test)| (path.clone(), test.clone()));
        let sort = match &projection {
            Some(projection) if projection.metadata().contains(&Meta::SortKey) => {
                execution.query().sort.clone()
            }
            _ => None,
        };
        let mut shown = Shown {
            projection: projection.as_deref(),
            position_filter: position_filter.as_ref(),
            near: near.as_ref().map(|(path, test)| (path, test)),
            context: &context,
            sort: sort.as_ref(),
            return_key: self.return_key,
            show_record_id: self.show_record_id,
            scratch,
        };
        let is_plain = shown.projection.is_none() && !shown.return_key && !shown.show_record_id;
        let end = execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |found| {
            let bytes = if is_plain { found.doc.as_bytes() } else { shown.write(found)? };
            if batch.count() > 0 && batch.size() + bytes.len() > BATCH_BYTES_MAX {
                return Ok(Emit::Full);
            }
            batch.push_with(Type::Document, |out| {
                make_room(out, bytes.len());
                out.extend_from_slice(bytes);
            });
            Ok(if batch.count() < documents_max { Emit::Taken } else { Emit::Enough })
        })?;
        self.is_overdue = end == End::Overdue;
        Ok(match end {
            End::Exhausted if self.tail == Tail::No => Filled::Exhausted,
            _ => Filled::More,
        })
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// From this size on a reply gets room for the largest batch at once. Growing by doubling would
/// copy what is there and have memory cleared for it again and again, while room that is not
/// written to costs nothing.
const LARGE_REPLY_BYTES: usize = 512 << 10;

/// Makes room in a reply for a document of `size` bytes.
#[inline]
fn make_room(out: &mut Vec<u8>, size: usize) {
    if out.capacity() - out.len() < size && out.len() >= LARGE_REPLY_BYTES {
        out.reserve(size.max(BATCH_BYTES_MAX.saturating_sub(out.len()) + LARGE_REPLY_BYTES));
    }
}

/// How documents are shown.
struct Shown<'s> {
    projection: Option<&'s Projection>,
    position_filter: Option<&'s Filter>,
    near: Option<(&'s FieldPath, &'s NearTest)>,
    context: &'s marula_query::context::Context,
    sort: Option<&'s SortPattern>,
    return_key: bool,
    show_record_id: bool,
    scratch: &'s mut Vec<u8>,
}

impl Shown<'_> {
    /// What the reply shows of a document.
    fn write(&mut self, found: Found<'_>) -> Result<&[u8]> {
        self.scratch.clear();
        let record_id = record_id(found.record);
        if self.return_key {
            self.write_key(found);
        } else if let Some(projection) = self.projection {
            let mut position = None;
            if let Some(filter) = self.position_filter {
                filter.matches_noting_as_written(found.doc, &mut position)?;
            }
            let nearest = self.near.and_then(|(path, test)| test.measure(path, found.doc));
            let mut keys = Vec::new();
            let index_key = self.index_key(projection, found, &mut keys);
            let mut values = Vec::new();
            let sort_key = self.sort_key(projection, found, &mut values)?;
            let metadata = Metadata {
                record_id,
                index_key,
                sort_key,
                geo_near_distance: nearest.map(|(distance, _)| distance),
                geo_near_point: nearest.map(|(_, place)| place.get()),
                text_score: found.score,
                ..Metadata::default()
            };
            projection.apply(found.doc, position, &metadata, self.context, self.scratch)?;
        } else {
            self.scratch.extend_from_slice(found.doc.as_bytes());
        }
        if self.show_record_id
            && !self.return_key
            && let Some(id) = record_id
        {
            let mut doc = marula_bson::DocBuf::trusted(std::mem::take(self.scratch));
            doc.push("$recordId", id);
            *self.scratch = doc.into_bytes();
        }
        Ok(self.scratch)
    }

    /// The index entry that led to a document, where the projection shows it.
    fn index_key<'k>(
        &self,
        projection: &Projection,
        found: Found<'_>,
        out: &'k mut Vec<u8>,
    ) -> Option<Doc<'k>> {
        if !projection.metadata().contains(&Meta::IndexKey) {
            return None;
        }
        match (found.entry, found.key) {
            (Some((index, entry)), _) => entry::decode_values(index, &entry, out)?,
            (None, key) => out.extend_from_slice(key?.as_bytes()),
        }
        Some(Doc::trusted(out))
    }

    /// The values that a document is sorted by, where the projection shows them.
    fn sort_key<'k>(
        &self,
        projection: &Projection,
        found: Found<'_>,
        out: &'k mut Vec<u8>,
    ) -> Result<Option<Value<'k>>> {
        let Some(sort) = self.sort.filter(|_| projection.metadata().contains(&Meta::SortKey))
        else {
            return Ok(None);
        };
        let nearest = self.near.and_then(|(path, test)| test.measure(path, found.doc));
        let geo_near_distance = nearest.map(|(distance, _)| distance);
        let known = DocMeta { text_score: found.score, geo_near_distance, ..DocMeta::default() };
        let values = sort.values(found.doc, &known)?;
        let mut list = ArrayWriter::new(out);
        for value in values {
            list.push(value);
        }
        list.finish();
        Ok(Some(Value::Array(Doc::trusted(out))))
    }

    fn write_key(&mut self, found: Found<'_>) {
        match found.entry {
            Some((index, entry)) => {
                // An entry that is damaged shows as no fields; `validate` says what is wrong.
                if entry::decode_values(index, &entry, self.scratch).is_none() {
                    self.scratch.clear();
                    DocWriter::new(self.scratch).finish();
                }
            }
            // Behind a sort the key stands in the document's place.
            None if !found.is_fetched => self.scratch.extend_from_slice(found.doc.as_bytes()),
            None => DocWriter::new(self.scratch).finish(),
        }
    }
}

fn record_id(record: &[u8]) -> Option<i64> {
    record.try_into().ok().map(i64::from_be_bytes)
}
