//! `$sort`: all documents in an order, or the first so many where a `$limit` follows.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Env, Kind, Parser, Place, Row, Source, Stage, Step};
use crate::sort::SortPattern;

pub(super) const ROW: Row = Row { name: "$sort", place: Place::Anywhere, parse };

errors! {
    not_object() = 15973, "the $sort key specification must be an object";
    empty() = 15976, "$sort stage must have at least one sort key";
    /// A blocking sort holds more than it may.
    pub(super) too_much_memory(limit: usize) = QueryExceededMemoryLimitNoDiskUseAllowed, "Sort exceeded memory limit of {limit} bytes, but did not opt in to external sorting.";
}

/// A parsed `$sort`.
#[derive(Debug)]
pub(super) struct Sort {
    pattern: SortPattern,
    spec: DocBuf,
    limit: Option<u64>,
}

impl Sort {
    /// A sort by `spec`, which parses to `pattern`.
    pub(super) fn new(pattern: SortPattern, spec: DocBuf, limit: Option<u64>) -> Self {
        Sort { pattern, spec, limit }
    }
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object());
    };
    if spec.is_empty() {
        return Err(empty());
    }
    let pattern = SortPattern::parse(spec, parser.context)?;
    parser.push(Sort { pattern, spec: spec.to_buf(), limit: None });
    Ok(())
}

impl Stage for Sort {
    fn name(&self) -> &'static str {
        "$sort"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            out.append("sortKey", &self.spec);
            if let Some(limit) = self.limit {
                out.append("limit", i64::try_from(limit).unwrap_or(i64::MAX));
            }
        })
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Sort(&self.pattern, self.limit)
    }

    fn limit_output(&mut self, limit: u64) {
        self.limit = Some(self.limit.map_or(limit, |own| own.min(limit)));
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Sorting {
            input,
            stage: self,
            bytes_max: env.stage_bytes_max,
            heap: BinaryHeap::new(),
            size: 0,
            count: 0,
            sorted: None,
            current: DocBuf::new(),
        }))
    }
}

/// A document and its key; the order of arrival decides between equal keys.
struct Entry {
    key: Box<[u8]>,
    arrival: u64,
    doc: DocBuf,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then(self.arrival.cmp(&other.arrival))
    }
}

struct Sorting {
    input: Box<dyn Source>,
    stage: Arc<Sort>,
    bytes_max: usize,
    /// With a limit, the greatest of the kept documents is on top.
    heap: BinaryHeap<Entry>,
    size: usize,
    count: u64,
    sorted: Option<std::vec::IntoIter<Entry>>,
    current: DocBuf,
}

impl Sorting {
    fn take_in(&mut self, key: &mut Vec<u8>) -> Result<()> {
        let doc = self.input.doc();
        self.stage.pattern.write_key(doc, key)?;
        self.count += 1;
        let is_full = self.stage.limit.is_some_and(|limit| self.heap.len() as u64 >= limit);
        if is_full {
            let Some(greatest) = self.heap.peek() else { return Ok(()) };
            if **key >= *greatest.key {
                return Ok(());
            }
            self.size -= entry_size(greatest);
            self.heap.pop();
        }
        let entry = Entry { key: key.as_slice().into(), arrival: self.count, doc: doc.to_buf() };
        self.size += entry_size(&entry);
        if self.size > self.bytes_max {
            return Err(too_much_memory(self.bytes_max));
        }
        self.heap.push(entry);
        Ok(())
    }
}

fn entry_size(entry: &Entry) -> usize {
    entry.key.len() + entry.doc.len() + size_of::<Entry>()
}

impl Source for Sorting {
    fn advance(&mut self) -> Result<Step> {
        if self.sorted.is_none() {
            let mut key = Vec::new();
            loop {
                match self.input.advance()? {
                    Step::Document => self.take_in(&mut key)?,
                    Step::Pause => return Ok(Step::Pause),
                    Step::End => break,
                }
            }
            let heap = std::mem::take(&mut self.heap);
            self.sorted = Some(heap.into_sorted_vec().into_iter());
        }
        match self.sorted.as_mut().and_then(Iterator::next) {
            Some(entry) => {
                self.current = entry.doc;
                Ok(Step::Document)
            }
            None => Ok(Step::End),
        }
    }

    fn doc(&self) -> Doc<'_> {
        self.current.as_doc()
    }
}
