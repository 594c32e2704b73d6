//! Sorts any number of rows by the bytes of their keys; the sort is stable.
//!
//! Rows collect in memory. When the memory is full they are written to the disk as a sorted run,
//! and at the end the runs are merged. If only the first rows are wanted, no more than those are
//! kept.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use marula_error::{Result, errors};

use super::stream::{Reader, SpillFile, Stream, Writer, damaged};
use super::{Disk, Pieces, Share};
use crate::context::Context;
use crate::meter;

/// The number of runs merged at once. More runs are first merged into fewer, so that their buffers
/// do not fill the memory.
const FAN_IN: usize = 64;
/// The number of sorted rows prefetched at once: after sorting they lie anywhere in memory.
const TOUCHED: usize = 32;
/// The size of the chunks that hold rows in memory.
const CHUNK_BYTES: usize = 256 * 1024;

errors! {
    /// A sort with a limit needs more memory than may be used, and must not use the disk.
    too_much_memory_for_first(limit: usize) = QueryExceededMemoryLimitNoDiskUseAllowed, "Sort exceeded memory limit of {limit} bytes, but did not opt in to external sorting. Aborting operation. Pass allowDiskUse:true to opt in.";
    /// A sort needs more memory than its limit, and must not use the disk.
    too_much_memory(limit: usize) = QueryExceededMemoryLimitNoDiskUseAllowed, "Sort exceeded memory limit of {limit} bytes, but did not opt in to external sorting.";
}

/// A sort that rows are added to.
pub struct ExternalSort {
    bytes_max: usize,
    wanted: usize,
    disk: Option<Arc<dyn Disk>>,
    rows: Rows,
    /// The head of the greatest key kept, once as many rows as wanted are kept.
    greatest_head: u64,
    bytes: usize,
    share: Share,
    pushed: u64,
    spilled: Option<Spilled>,
}

/// The runs on the disk, in the order of arrival.
struct Spilled {
    file: SpillFile,
    runs: Vec<Stream>,
}

/// Rows in memory.
enum Rows {
    /// All rows added.
    All(Arena),
    /// The least rows so far; the greatest of them is on top.
    Top(BinaryHeap<TopRow>),
}

/// Rows of bytes, one after the other.
#[derive(Default)]
struct Arena {
    chunks: Vec<Vec<u8>>,
    slots: Vec<Slot>,
}

/// The position of a row.
#[derive(Clone, Copy)]
struct Slot {
    /// The first bytes of the key: they order most rows without a read of their memory.
    head: u64,
    chunk: u32,
    start: u32,
    key: u32,
    value: u32,
}

impl Arena {
    fn push(&mut self, key: &[u8], value: &[&[u8]]) {
        let value_len: usize = value.iter().map(|part| part.len()).sum();
        let has_room = |chunk: &Vec<u8>| {
            chunk.is_empty() || chunk.len() + key.len() + value_len <= CHUNK_BYTES
        };
        if !self.chunks.last().is_some_and(has_room) {
            self.chunks.push(Vec::new());
        }
        let number = |len: usize| u32::try_from(len).expect("a row is a document or two");
        let at = self.chunks.len() - 1;
        let chunk = &mut self.chunks[at];
        let slot = Slot {
            head: head(key),
            chunk: number(at),
            start: number(chunk.len()),
            key: number(key.len()),
            value: number(value_len),
        };
        chunk.extend_from_slice(key);
        value.iter().for_each(|part| chunk.extend_from_slice(part));
        self.slots.push(slot);
    }

    fn row(&self, slot: Slot) -> (&[u8], &[u8]) {
        let bytes = &self.chunks[slot.chunk as usize][slot.start as usize..];
        let (key, rest) = bytes.split_at(slot.key as usize);
        (key, &rest[..slot.value as usize])
    }

    fn sort(&mut self) -> Result<()> {
        let mut slots = std::mem::take(&mut self.slots);
        // Equal rows keep their order.
        meter::sort_shared_keys_by(&mut slots, |a, b| {
            a.head.cmp(&b.head).then_with(|| self.compare_after_heads(*a, *b))
        })?;
        self.slots = slots;
        Ok(())
    }

    /// Reads a byte at both ends of the next rows, so that the memory loads overlap.
    fn touch(&self, from: usize) {
        let mut sum = 0_u8;
        for slot in self.slots.iter().skip(from).take(TOUCHED) {
            let chunk = &self.chunks[slot.chunk as usize];
            let end = slot.start as usize + slot.key as usize + slot.value as usize;
            let ends = chunk.get(slot.start as usize).zip(chunk.get(end.saturating_sub(1)));
            sum ^= ends.map_or(0, |(first, last)| first ^ last);
        }
        std::hint::black_box(sum);
    }

    /// Compares the keys of rows with equal heads.
    fn compare_after_heads(&self, a: Slot, b: Slot) -> Ordering {
        if a.key.max(b.key) as usize <= size_of::<u64>() {
            // The longer key has only zeros more, and these are in the head.
            return a.key.cmp(&b.key);
        }
        self.row(a).0.cmp(self.row(b).0)
    }
}

/// Returns the first eight bytes of a key as a number; missing bytes count as zeros.
#[inline]
fn head(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; size_of::<u64>()];
    head[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(head)
}

#[derive(Default)]
struct TopRow {
    /// The first bytes of the key.
    head: u64,
    number: u64,
    /// The key, followed by the value.
    bytes: Vec<u8>,
    key: usize,
}

impl TopRow {
    /// Replaces the row and reuses its memory.
    fn fill(&mut self, key: &[u8], number: u64, value: &[&[u8]]) {
        (self.head, self.number, self.key) = (head(key), number, key.len());
        self.bytes.clear();
        self.bytes.reserve_exact(key.len() + value.iter().map(|part| part.len()).sum::<usize>());
        self.bytes.extend_from_slice(key);
        value.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }

    fn key(&self) -> &[u8] {
        &self.bytes[..self.key]
    }

    fn value(&self) -> &[u8] {
        &self.bytes[self.key..]
    }

    /// Returns the row's size in memory.
    fn size(&self) -> usize {
        self.bytes.capacity() + ROW_BYTES
    }
}

impl Ord for TopRow {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_key = || self.key().cmp(other.key());
        self.head.cmp(&other.head).then_with(by_key).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for TopRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for TopRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for TopRow {}

/// Returns rows in the order of their keys; those with equal keys in the order of arrival.
fn in_order(heap: BinaryHeap<TopRow>) -> Vec<TopRow> {
    let mut rows = heap.into_vec();
    rows.sort_unstable();
    rows
}

/// The size of a row in addition to its bytes.
const ROW_BYTES: usize = size_of::<TopRow>();

/// The number of rows that a short sort reserves memory for at once.
const ROWS_AT_FIRST: usize = 128;

impl ExternalSort {
    /// Creates a sort that may hold `bytes_max` bytes and returns at most `wanted` rows.
    pub fn new(context: &Context, bytes_max: usize, wanted: Option<u64>) -> Self {
        let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok());
        ExternalSort {
            bytes_max,
            wanted: wanted.unwrap_or(usize::MAX),
            disk: context.limits.disk.clone(),
            rows: match wanted {
                Some(limit) => Rows::Top(BinaryHeap::with_capacity(limit.min(ROWS_AT_FIRST))),
                None => Rows::All(Arena::default()),
            },
            greatest_head: u64::MAX,
            bytes: 0,
            share: Share::new(if wanted.is_some() { Pieces::Small } else { Pieces::Large }),
            pushed: 0,
            spilled: None,
        }
    }

    /// Returns whether a row with this key may be in the result.
    #[inline]
    pub fn wants(&self, key: &[u8]) -> bool {
        match &self.rows {
            Rows::All(_) => true,
            Rows::Top(heap) => {
                heap.len() < self.wanted || heap.peek().is_some_and(|greatest| key < greatest.key())
            }
        }
    }

    /// Returns the greatest [head](marula_bson::key_string::part_head) that a row's key may have to
    /// be in the result.
    #[inline]
    pub fn greatest_head(&self) -> u64 {
        self.greatest_head
    }

    /// Adds a row, its value in parts.
    ///
    /// Errors: `too_much_memory`, `too_much_memory_for_first`; the server is short of memory; those
    /// of the disk.
    pub fn push(&mut self, key: &[u8], value: &[&[u8]]) -> Result<()> {
        self.pushed += 1;
        match &mut self.rows {
            Rows::All(arena) => {
                arena.push(key, value);
                let len: usize = value.iter().map(|part| part.len()).sum();
                self.bytes += key.len() + len + ROW_BYTES;
            }
            Rows::Top(heap) => {
                if heap.len() < self.wanted {
                    let mut row = TopRow::default();
                    row.fill(key, self.pushed, value);
                    self.bytes += row.size();
                    heap.push(row);
                } else if let Some(mut greatest) = heap.peek_mut()
                    && greatest.key() > key
                {
                    self.bytes -= greatest.size();
                    greatest.fill(key, self.pushed, value);
                    self.bytes += greatest.size();
                } else {
                    return Ok(());
                }
                if heap.len() >= self.wanted
                    && let Some(greatest) = heap.peek()
                {
                    self.greatest_head = greatest.head;
                }
            }
        }
        if self.bytes > self.bytes_max {
            return self.spill();
        }
        match &self.disk {
            Some(_) if self.share.has_room(self.bytes) => Ok(()),
            Some(_) => self.spill(),
            None => self.share.require(self.bytes),
        }
    }

    /// Returns the number of times rows go to the disk, including the last rows once all are added.
    pub fn spills(&self) -> usize {
        let last = usize::from(self.bytes > 0);
        self.spilled.as_ref().map_or(0, |spilled| spilled.runs.len() + last)
    }

    /// Writes the rows in memory as a sorted run.
    fn spill(&mut self) -> Result<()> {
        let disk = self.disk.as_ref().ok_or_else(|| match self.rows {
            Rows::All(_) => too_much_memory(self.bytes_max),
            Rows::Top(_) => too_much_memory_for_first(self.bytes_max),
        })?;
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            empty => empty.insert(Spilled { file: SpillFile::create(disk)?, runs: Vec::new() }),
        };
        let mut run = Writer::default();
        match &mut self.rows {
            Rows::All(arena) => {
                let mut arena = std::mem::take(arena);
                arena.sort()?;
                for &slot in &arena.slots {
                    meter::spend(meter::DOCUMENT)?;
                    let (key, value) = arena.row(slot);
                    push_row(&mut run, &mut spilled.file, key, value)?;
                }
            }
            Rows::Top(heap) => {
                self.greatest_head = u64::MAX;
                for row in in_order(std::mem::take(heap)) {
                    push_row(&mut run, &mut spilled.file, row.key(), row.value())?;
                }
            }
        }
        spilled.runs.push(run.finish(&mut spilled.file)?);
        self.bytes = 0;
        self.share.clear();
        Ok(())
    }

    /// Ends the input: the rows can then be read in order.
    ///
    /// Errors: those of the disk.
    pub fn finish(mut self) -> Result<Sorted> {
        let left = self.wanted;
        if self.spilled.is_some() && self.bytes > 0 {
            self.spill()?;
        }
        let rows = match self.spilled {
            Some(spilled) => {
                let disk = self.disk.as_ref().expect("rows went to it");
                Ordered::Merged(reduce(spilled, disk, left)?)
            }
            None => match self.rows {
                Rows::All(mut arena) => {
                    arena.sort()?;
                    Ordered::All { arena, next: 0 }
                }
                Rows::Top(heap) => {
                    let rows = in_order(heap).into_iter();
                    Ordered::Top { rows, current: None }
                }
            },
        };
        Ok(Sorted { rows, left, _share: self.share })
    }
}

fn push_row(run: &mut Writer, file: &mut SpillFile, key: &[u8], value: &[u8]) -> Result<()> {
    let len = u32::try_from(key.len()).expect("a key is at most as large as its document");
    run.push(file, &[&len.to_le_bytes(), key, value])
}

/// Returns the key and the value of a record of a run.
fn row(record: &[u8]) -> Result<(&[u8], &[u8])> {
    let (len, rest) = record.split_first_chunk().ok_or_else(damaged)?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(damaged)
}

/// Merges runs into fewer until all can be read at once. Rows after the first `wanted` of a merge
/// are not needed.
fn reduce(mut spilled: Spilled, disk: &Arc<dyn Disk>, wanted: usize) -> Result<Merge> {
    while spilled.runs.len() > FAN_IN {
        let mut fewer = Spilled { file: SpillFile::create(disk)?, runs: Vec::new() };
        let mut runs = spilled.runs.into_iter();
        let mut file = spilled.file;
        loop {
            let some: Vec<Stream> = runs.by_ref().take(FAN_IN).collect();
            if some.is_empty() {
                break;
            }
            let mut merge = Merge::new(file, some)?;
            let mut run = Writer::default();
            let mut count = 0u64;
            while (count as usize) < wanted && merge.advance()? {
                count += 1;
                meter::spend(meter::DOCUMENT)?;
                run.push(&mut fewer.file, &[merge.record()])?;
            }
            fewer.runs.push(run.finish(&mut fewer.file)?);
            file = merge.file;
        }
        spilled = fewer;
    }
    Merge::new(spilled.file, spilled.runs)
}

/// Rows in order.
pub struct Sorted {
    rows: Ordered,
    /// The number of rows that may still be returned.
    left: usize,
    /// The memory of the rows that did not go to the disk.
    _share: Share,
}

enum Ordered {
    All { arena: Arena, next: usize },
    Top { rows: std::vec::IntoIter<TopRow>, current: Option<TopRow> },
    Merged(Merge),
}

impl Sorted {
    /// Moves to the next row; returns `false` if there is none.
    pub fn advance(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        match &mut self.rows {
            Ordered::All { arena, next } => {
                if next.is_multiple_of(TOUCHED) {
                    arena.touch(*next);
                }
                *next += 1;
                Ok(*next <= arena.slots.len())
            }
            Ordered::Top { rows, current } => {
                *current = rows.next();
                Ok(current.is_some())
            }
            Ordered::Merged(merge) => merge.advance(),
        }
    }

    /// Returns the key of the current row; valid after [`Sorted::advance`] returned `true`.
    pub fn key(&self) -> &[u8] {
        self.current().0
    }

    /// Returns the value of the current row.
    pub fn value(&self) -> &[u8] {
        self.current().1
    }

    fn current(&self) -> (&[u8], &[u8]) {
        match &self.rows {
            Ordered::All { arena, next } => arena.row(arena.slots[*next - 1]),
            Ordered::Top { current, .. } => {
                let row = current.as_ref().expect("a row was moved to");
                (row.key(), row.value())
            }
            Ordered::Merged(merge) => row(merge.record()).expect("a head is a row"),
        }
    }
}

/// Runs that are merged.
struct Merge {
    file: SpillFile,
    runs: Vec<Reader>,
    /// The next row of each run, the least on top.
    heads: BinaryHeap<Head>,
    /// The run of the current row.
    current: Option<usize>,
}

struct Head {
    key: Vec<u8>,
    run: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap has its greatest element on top, and equal keys come in the order of the runs.
        other.key.cmp(&self.key).then(other.run.cmp(&self.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

impl Merge {
    fn new(file: SpillFile, runs: Vec<Stream>) -> Result<Self> {
        let runs: Vec<Reader> = runs.into_iter().map(Reader::new).collect();
        let heads = BinaryHeap::with_capacity(runs.len());
        let mut merge = Merge { file, runs, heads, current: None };
        for run in 0..merge.runs.len() {
            merge.next_head(run, Vec::new())?;
        }
        Ok(merge)
    }

    /// Adds the next row of a run to the heads.
    fn next_head(&mut self, run: usize, mut key: Vec<u8>) -> Result<()> {
        let reader = &mut self.runs[run];
        if reader.advance(&self.file)? {
            key.clear();
            key.extend_from_slice(row(reader.record())?.0);
            self.heads.push(Head { key, run });
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<bool> {
        if self.current.take().is_some()
            && let Some(given) = self.heads.pop()
        {
            self.next_head(given.run, given.key)?;
        }
        self.current = self.heads.peek().map(|head| head.run);
        Ok(self.current.is_some())
    }

    /// Returns the record of the current row.
    fn record(&self) -> &[u8] {
        self.runs[self.current.expect("a row was moved to")].record()
    }
}

#[cfg(test)]
mod tests;
