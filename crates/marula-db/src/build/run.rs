//! Sorted runs: the entries of a build, sorted in memory, and in the store once memory is full.
//!
//! A run in the store lies under the build's scratch ident:
//!
//! ```text
//! key    ident(4) 0x00 index(1) run(4) key-string record-key
//! value  0x01 record-key length(4) type bits
//! ```
//!
//! The value has the form of a note in the [side](super::side) table that adds an entry, so that
//! both are decoded alike.

use marula_error::Result;
use marula_storage::{KeyRange, Space, Store};

use crate::keys::Ident;
use crate::storage_error::ForClient;

/// The prefix of a build's runs, after its scratch ident.
const RUNS: u8 = 0x00;
/// The first byte of a value that adds an entry.
pub(super) const PRESENT: u8 = 0x01;
/// The first byte of a value that removes an entry.
pub(super) const ABSENT: u8 = 0x00;

/// An entry before it is added to an index.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    /// The key string followed by the record key: the order of items.
    pub(super) key: &'a [u8],
    /// The length of the record key at the end of `key`.
    pub(super) record_bytes: usize,
    /// The type information that the key string loses.
    pub(super) type_bits: &'a [u8],
}

impl<'a> Item<'a> {
    pub(super) fn key_string(self) -> &'a [u8] {
        &self.key[..self.key.len() - self.record_bytes]
    }

    pub(super) fn record(self) -> &'a [u8] {
        &self.key[self.key.len() - self.record_bytes..]
    }

    /// Decodes an item and whether it is present from a stored key (without the prefix before the
    /// key string) and value; `None` if they are malformed.
    pub(super) fn decode(key: &'a [u8], value: &'a [u8]) -> Option<(Self, bool)> {
        let (flag, value) = value.split_first()?;
        let (length, type_bits) = value.split_first_chunk::<4>()?;
        let record_bytes = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let item = Item { key, record_bytes, type_bits };
        (record_bytes <= key.len()).then_some((item, *flag == PRESENT))
    }
}

/// Writes the value that [`Item::decode`] reads into `out`, which is cleared first.
pub(super) fn encode_value(flag: u8, record_bytes: usize, type_bits: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(record_bytes).expect("a record key is shorter than a document");
    out.clear();
    out.push(flag);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(type_bits);
}

/// The scanned entries of one index.
#[derive(Default)]
pub(super) struct Runs {
    bytes: Vec<u8>,
    entries: Vec<Slot>,
    spilled: u32,
    spilled_entries: u64,
}

/// The position of an entry in [`Runs::bytes`]: key string, record key, type bits.
#[derive(Clone, Copy)]
struct Slot {
    /// The first bytes of the key string, which decide most comparisons without another memory
    /// access.
    prefix: u64,
    start: u32,
    record: u32,
    type_bits: u32,
    end: u32,
}

/// The size of an entry of a number or an ObjectId with its record id.
const SHORT_ENTRY_BYTES: usize = 24;

impl Runs {
    /// Creates runs with a capacity for one short entry per document, within `bytes_max`: growing
    /// them step by step would copy them repeatedly.
    pub(super) fn with_room(documents: usize, bytes_max: usize) -> Self {
        let documents = documents.min(bytes_max / (size_of::<Slot>() + SHORT_ENTRY_BYTES));
        Runs {
            bytes: Vec::with_capacity(documents * SHORT_ENTRY_BYTES),
            entries: Vec::with_capacity(documents),
            ..Runs::default()
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> u64 {
        self.spilled_entries + self.entries.len() as u64
    }

    /// The number of runs in the store.
    pub(super) fn spilled(&self) -> u32 {
        self.spilled
    }

    /// The size of the entries in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Slot>()
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, (key_string, type_bits): (&[u8], &[u8]), record: &[u8]) {
        let offset = |at: usize| u32::try_from(at).expect("runs are spilled before they are 4 GB");
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key_string);
        let record_start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        let bits_start = self.bytes.len();
        self.bytes.extend_from_slice(type_bits);
        self.entries.push(Slot {
            prefix: prefix(&self.bytes[start..bits_start]),
            start: offset(start),
            record: offset(record_start),
            type_bits: offset(bits_start),
            end: offset(self.bytes.len()),
        });
    }

    /// Sorts the entries in memory.
    pub(super) fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |slot: &Slot| &bytes[slot.start as usize..slot.type_bits as usize];
        self.entries
            .sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(key(b))));
    }

    /// The entry in memory at `position`.
    pub(super) fn get(&self, position: usize) -> Option<Item<'_>> {
        let slot = self.entries.get(position)?;
        Some(Item {
            key: &self.bytes[slot.start as usize..slot.type_bits as usize],
            record_bytes: (slot.type_bits - slot.record) as usize,
            type_bits: &self.bytes[slot.type_bits as usize..slot.end as usize],
        })
    }

    /// Moves the entries in memory to the store, as the next run of the index at `position` of its
    /// build.
    pub(super) fn spill(
        &mut self,
        store: &dyn Store,
        scratch: Ident,
        position: usize,
    ) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.sort();
        let prefix = key_prefix(scratch, position, self.spilled);
        let mut next = 0;
        store
            .ingest(Space::Indexes, &mut |key, value| {
                let Some(item) = self.get(next) else { return Ok(false) };
                key.clear();
                key.extend_from_slice(&prefix);
                key.extend_from_slice(item.key);
                encode_value(PRESENT, item.record_bytes, item.type_bits, value);
                next += 1;
                Ok(true)
            })
            .for_client()?;
        self.spilled += 1;
        self.spilled_entries += self.entries.len() as u64;
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }
}

/// The first eight bytes of `key` as a number with the same order.
fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

fn key_prefix(scratch: Ident, position: usize, run: u32) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = scratch.bytes();
    let [e, f, g, h] = run.to_be_bytes();
    [a, b, c, d, RUNS, byte(position), e, f, g, h]
}

/// The bytes before the key string in a stored run and in the side table.
pub(super) const PREFIX_BYTES: usize = 10;

/// The number of an index within its build, as a byte.
pub(super) fn byte(position: usize) -> u8 {
    u8::try_from(position).expect("a collection has at most 64 indexes")
}

/// The range of keys of one run in the store.
pub(super) fn range(scratch: Ident, position: usize, run: u32) -> KeyRange {
    KeyRange::prefix(&key_prefix(scratch, position, run))
}
