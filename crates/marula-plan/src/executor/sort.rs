//! Sorting what no index gives in order: all of it in memory, or only the first so many.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use marula_bson::Doc;
use marula_error::{Result, errors};
use marula_query::sort::SortPattern;

use super::{Emit, End, Found};

/// Bytes of documents and keys that one sort may hold. Source: manual "MongoDB Limits and Thresholds".
const SORT_BYTES_MAX: usize = 100 * 1024 * 1024;

errors! {
    sort_too_large() = QueryExceededMemoryLimitNoDiskUseAllowed, "Sort exceeded memory limit of 104857600 bytes, but did not opt in to external sorting.";
}

/// Documents on their way into order. Equal keys keep the order in which they came.
pub(super) struct Sorter {
    pattern: SortPattern,
    /// How many documents are wanted at all.
    wanted: Option<usize>,
    rows: BinaryHeap<Row>,
    sorted: std::vec::IntoIter<Row>,
    /// The row that did not fit the last batch.
    held: Option<Row>,
    bytes: usize,
    count: u64,
    is_filled: bool,
    key: Vec<u8>,
}

/// A document with its sort key. The greatest row is the one to give up first.
struct Row {
    key: Box<[u8]>,
    number: u64,
    record: Box<[u8]>,
    doc: Box<[u8]>,
}

impl Row {
    fn size(&self) -> usize {
        size_of::<Row>() + self.key.len() + self.record.len() + self.doc.len()
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Row {}

impl Sorter {
    pub(super) fn new(pattern: SortPattern, wanted: Option<u64>) -> Self {
        Sorter {
            pattern,
            wanted: wanted.and_then(|wanted| usize::try_from(wanted).ok()),
            rows: BinaryHeap::new(),
            sorted: Vec::new().into_iter(),
            held: None,
            bytes: 0,
            count: 0,
            is_filled: false,
            key: Vec::new(),
        }
    }

    pub(super) fn is_filled(&self) -> bool {
        self.is_filled
    }

    /// Adds a document.
    pub(super) fn push(&mut self, found: Found<'_>) -> Result<()> {
        self.pattern.write_key(found.doc, &mut self.key)?;
        self.count += 1;
        let is_full = self.wanted.is_some_and(|wanted| self.rows.len() >= wanted);
        if is_full && self.rows.peek().is_none_or(|last| *last.key <= *self.key) {
            return Ok(());
        }
        let row = Row {
            key: self.key.as_slice().into(),
            number: self.count,
            record: found.record.into(),
            doc: found.doc.as_bytes().into(),
        };
        if is_full && let Some(given_up) = self.rows.pop() {
            self.bytes -= given_up.size();
        }
        self.bytes += row.size();
        if self.bytes > SORT_BYTES_MAX {
            return Err(sort_too_large());
        }
        self.rows.push(row);
        Ok(())
    }

    /// All documents are in: put them in order.
    pub(super) fn finish(&mut self) {
        self.sorted = std::mem::take(&mut self.rows).into_sorted_vec().into_iter();
        self.is_filled = true;
    }

    /// Gives documents in order.
    pub(super) fn drain(&mut self, take: &mut dyn FnMut(Found<'_>) -> Result<Emit>) -> Result<End> {
        while let Some(row) = self.held.take().or_else(|| self.sorted.next()) {
            match take(Found {
                doc: Doc::trusted(&row.doc),
                record: &row.record,
                entry: None,
                is_fetched: true,
            })? {
                Emit::Taken => {}
                Emit::Enough => return Ok(End::Paused),
                Emit::Full => {
                    self.held = Some(row);
                    return Ok(End::Paused);
                }
            }
        }
        Ok(End::Exhausted)
    }
}
