//! Merges inputs that have the same order.
//!
//! ```text
//!   input 1 ──► row ─┐
//!   input 2 ──► row ─┼─► binary heap ──► the first row; then its input reads the next one
//!   input 3 ──► row ─┘
//! ```
//!
//! The heap also determines the order of equal rows, which clients see.

use std::collections::{HashSet, VecDeque};

use marula_bson::Doc;
use marula_db::index::entry::Entry;
use marula_db::{Index, RecordKey};
use marula_error::Result;
use marula_storage::store::Stamp;

use super::run::{StageRun, Stats};
use super::work::{Env, Step};
use super::{Emit, Found};
use crate::plan::{SortMerge, Stage};

/// The state of a merge during a run.
#[derive(Default)]
pub(crate) struct Merging {
    /// The last row of each input.
    rows: Vec<MergeRow>,
    /// The inputs whose next row is not known yet, in the order in which they are read.
    waiting: VecDeque<usize>,
    /// The inputs whose row is in the heap. See [`push`].
    heap: Vec<usize>,
    /// The records of all rows so far.
    seen: HashSet<RecordKey>,
}

#[derive(Default)]
struct MergeRow {
    /// The sort key.
    key: Vec<u8>,
    record: Vec<u8>,
    doc: Vec<u8>,
    is_fetched: bool,
    /// The entry that led to it, if its document has not been fetched.
    key_string: Vec<u8>,
    type_bits: Vec<u8>,
    /// The newest commit at the start of the run that read it.
    opened: Option<Stamp>,
}

impl MergeRow {
    fn set(&mut self, found: &Found<'_>, opened: Stamp) {
        self.record.clear();
        self.record.extend_from_slice(found.record);
        self.doc.clear();
        self.doc.extend_from_slice(found.doc.as_bytes());
        self.is_fetched = found.is_fetched;
        self.key_string.clear();
        self.type_bits.clear();
        if let Some((_, entry)) = &found.entry {
            self.key_string.extend_from_slice(entry.key_string);
            self.type_bits.extend_from_slice(entry.type_bits);
        }
        self.opened = Some(opened);
    }
}

impl SortMerge {
    pub(super) fn work(
        &self,
        (stats, merging, runs): (&mut Stats, &mut Merging, &mut [StageRun]),
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let SortMerge { pattern, inputs } = self;
        let Merging { rows, waiting, heap, seen } = merging;
        if rows.is_empty() {
            rows.resize_with(inputs.len(), MergeRow::default);
            waiting.extend(0..inputs.len());
        }
        let opened = env.opened;
        if let Some(&number) = waiting.front() {
            let row = &mut rows[number];
            let mut is_new = false;
            let step = runs[number].work(&inputs[number], env, &mut |found| {
                stats.dups_tested += 1;
                is_new = seen.insert(RecordKey::new(found.record));
                if !is_new {
                    stats.dups_dropped += 1;
                    return Ok(Emit::Taken);
                }
                row.key.clear();
                pattern.write_key(found.doc, &mut row.key)?;
                row.set(&found, opened);
                Ok(Emit::Taken)
            })?;
            if is_new || step == Step::Eof {
                waiting.pop_front();
            }
            if is_new {
                heap.push(number);
                push(heap, &|a, b| rows[a].key < rows[b].key);
            }
            return Ok(Step::NeedTime);
        }
        let Some(&number) = heap.first() else { return Ok(Step::Eof) };
        let row = &rows[number];
        let index = if row.is_fetched { None } else { index_of(&inputs[number]) };
        let (key_string, type_bits) = (&*row.key_string, &*row.type_bits);
        let entry = |index| (index, Entry { key_string, record: &row.record, type_bits });
        let answer = out(Found {
            doc: Doc::trusted(&row.doc),
            record: &row.record,
            entry: index.map(entry),
            key: None,
            is_fetched: row.is_fetched,
            ahead: None,
            is_old: row.opened != Some(opened),
            score: None,
        })?;
        if answer != Emit::Full {
            pop(heap, &|a, b| rows[a].key < rows[b].key);
            waiting.push_back(number);
        }
        Ok(Step::Advanced(answer))
    }
}

impl Merging {
    /// Returns whether every input has ended.
    pub(super) fn is_spent(&self) -> bool {
        let Merging { rows, waiting, heap, .. } = self;
        !rows.is_empty() && waiting.is_empty() && heap.is_empty()
    }
}

/// Returns the index that an input scans.
fn index_of(input: &Stage) -> Option<&Index> {
    match input {
        Stage::Ixscan(scan) => Some(&scan.index),
        _ => input.inputs().first().and_then(|input| index_of(input)),
    }
}

/// Moves the last item of a heap up. An item precedes another only if `is_before` returns true:
/// equal ones keep their positions.
fn push(heap: &mut [usize], is_before: &dyn Fn(usize, usize) -> bool) {
    let mut at = heap.len() - 1;
    while at > 0 && is_before(heap[at], heap[(at - 1) / 2]) {
        heap.swap(at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

/// Removes the first item of a heap. The gap moves down to a leaf; of two equal items the second
/// moves up. The last item then fills the gap and moves up.
fn pop(heap: &mut Vec<usize>, is_before: &dyn Fn(usize, usize) -> bool) {
    let Some(last) = heap.pop() else { return };
    let mut at = 0;
    while 2 * at + 1 < heap.len() {
        let (first, second) = (2 * at + 1, 2 * at + 2);
        let is_first = second >= heap.len() || is_before(heap[first], heap[second]);
        let below = if is_first { first } else { second };
        heap[at] = heap[below];
        at = below;
    }
    if at < heap.len() {
        heap[at] = last;
        push(&mut heap[..=at], is_before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_gives_the_least_first() {
        let (mut heap, mut given) = (Vec::new(), Vec::new());
        for item in [5, 3, 8, 1, 9, 2, 7, 3, 6] {
            heap.push(item);
            push(&mut heap, &|a, b| a < b);
        }
        while let Some(&first) = heap.first() {
            given.push(first);
            pop(&mut heap, &|a, b| a < b);
        }
        assert_eq!(given, [1, 2, 3, 3, 5, 6, 7, 8, 9]);
    }

    /// The order in which mongod returns the rows of five inputs whose first rows are all equal.
    #[test]
    fn equal_items_come_by_their_places() {
        let (mut heap, mut given) = (vec![0, 1, 2, 3, 4], Vec::new());
        for _ in 0..4 {
            given.push(heap[0]);
            pop(&mut heap, &|_, _| false);
        }
        assert_eq!(given, [0, 2, 4, 1]);
    }
}
