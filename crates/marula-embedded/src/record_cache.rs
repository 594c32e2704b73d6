//! A cache of unpacked records that are read one by one.
//!
//! A lookup in RocksDB goes through the memtables, a file's index, the block cache and a search in
//! a block; each of these waits for memory. A record that was read before is found here by its key
//! in one step. When the data outgrows memory, this cache also holds more useful data: a record is
//! cached alone, a block with all its neighbours.
//!
//! ```text
//!   reader   lookup: miss ─► ticket (gate version) ─► read RocksDB ─► keep, if no new version
//!   writer   hold_for_write: close gate, version + 1, remove record ─► commit ─► drop: open gate
//! ```
//!
//! **The cache never disagrees with the store.** A commit removes the records that it writes before
//! it becomes visible and admits them again after it: each key belongs to a [`Gate`], which a
//! writer closes, and a reader that has read a record in the meantime, or before, finds that the
//! gate's version has changed and does not cache the record. So a cached record is the newest one,
//! and has been since the sequence number stored with it: a view of an earlier moment reads
//! RocksDB.
//!
//! **Only records requested twice within a while are cached**: copying a record that is read once
//! costs more than reading it. Copying a record that is rewritten each time it is read would be
//! useless too, so a record is cached only when it is read twice between two writes. Scans do not
//! use the cache.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use marula_storage::KeyRange;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

/// The maximum length of a cached key: long enough for all collections except clustered ones with
/// long ids.
const NAME_BYTES_MAX: usize = 31;

/// The maximum size of a cached record: a larger one would evict hundreds.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// The cost of caching a record in addition to its bytes: its name, its entries in tables and
/// lists, and the allocation.
const OVERHEAD_BYTES: u64 = 128;

/// The assumed size of a record when the tables are allocated.
const RECORD_BYTES_GUESSED: usize = 2048;

/// The number of gates; a power of two.
const GATES: usize = 256;

/// The minimum and maximum number of hints, each of which remembers the last request of a key:
/// somewhat more than the number of records that can be cached.
const HINTS: (usize, usize) = (1 << 14, 1 << 22);

/// The key of a cached record.
#[derive(Clone, Copy)]
pub(crate) struct RecordName {
    length: u8,
    bytes: [u8; NAME_BYTES_MAX],
}

/// The bytes of a cached record, and the sequence number since which they are its newest.
#[derive(Clone)]
struct CachedRecord {
    since: u64,
    bytes: Arc<[u8]>,
}

/// The result of looking up a record.
pub(crate) enum CacheLookup {
    /// The bytes of the cached record.
    Hit(Arc<[u8]>),
    /// The record must be read from RocksDB and, if there is a ticket, offered to the cache.
    Miss(Option<Ticket>),
}

/// Permits caching the next read of a record, unless a writer intervenes.
pub(crate) struct Ticket {
    name: RecordName,
    gate: usize,
    version: u64,
    since: u64,
}

/// The writers between removing a key of the gate from the cache and finishing their commit.
#[derive(Default)]
struct Gate {
    writers: u64,
    /// The number of writers so far.
    version: u64,
}

/// The cache.
pub(crate) struct RecordCache {
    records: Cache<RecordName, CachedRecord, Weight, DefaultHashBuilder>,
    hasher: DefaultHashBuilder,
    gates: Box<[Mutex<Gate>]>,
    hints: Box<[AtomicU16]>,
}

/// A writer's hold on the records that it writes; dropped after the commit.
pub(crate) struct WriteHold<'c> {
    cache: &'c RecordCache,
    names: &'c [RecordName],
    is_all: bool,
}

impl RecordName {
    /// The name of a record with this key; `None` if the key is too long.
    #[inline]
    pub(crate) fn of(key: &[u8]) -> Option<RecordName> {
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        Some(RecordName { length: key.len() as u8, bytes })
    }

    fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl PartialEq for RecordName {
    #[inline]
    fn eq(&self, other: &RecordName) -> bool {
        self.length == other.length && self.bytes == other.bytes
    }
}

impl Eq for RecordName {}

impl Hash for RecordName {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.key());
    }
}

/// Computes a record's share of the cache.
#[derive(Clone)]
struct Weight;

impl Weighter<RecordName, CachedRecord> for Weight {
    fn weight(&self, _: &RecordName, kept: &CachedRecord) -> u64 {
        kept.bytes.len() as u64 + OVERHEAD_BYTES
    }
}

impl RecordCache {
    /// Creates a cache of up to `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        let hasher = DefaultHashBuilder::default();
        let options = OptionsBuilder::new()
            .estimated_items_capacity((bytes / RECORD_BYTES_GUESSED).max(1))
            .weight_capacity(bytes as u64)
            .build()
            .expect("both capacities are set");
        let records = Cache::with_options(options, Weight, hasher.clone(), Default::default());
        let gates = (0..GATES).map(|_| Mutex::default()).collect();
        let hints = (bytes / RECORD_BYTES_GUESSED * 2).clamp(HINTS.0, HINTS.1);
        let hints = (0..hints).map(|_| AtomicU16::new(0)).collect();
        RecordCache { records, hasher, gates, hints }
    }

    /// Looks up the newest version of a record. `newest` returns the newest visible sequence
    /// number.
    #[inline]
    pub(crate) fn lookup(&self, key: &[u8], newest: impl FnOnce() -> u64) -> CacheLookup {
        let Some(name) = RecordName::of(key) else { return CacheLookup::Miss(None) };
        match self.records.get(&name) {
            Some(kept) => CacheLookup::Hit(kept.bytes),
            None => CacheLookup::Miss(self.ticket(name, newest)),
        }
    }

    /// The version of a record at a sequence number, if the cache has it.
    pub(crate) fn lookup_at(&self, key: &[u8], moment: u64) -> Option<Arc<[u8]>> {
        let kept = self.records.get(&RecordName::of(key)?)?;
        (kept.since <= moment).then_some(kept.bytes)
    }

    fn ticket(&self, name: RecordName, newest: impl FnOnce() -> u64) -> Option<Ticket> {
        let hash = self.hasher.hash_one(name);
        if !self.is_repeated(hash) {
            return None;
        }
        let gate = gate_of(hash);
        let version = {
            let gate = self.gates[gate].lock();
            if gate.writers > 0 {
                return None;
            }
            gate.version
        };
        // Read after the gate: while the gate is unchanged, no writer has changed the record since
        // then.
        Some(Ticket { name, gate, version, since: newest() })
    }

    /// Returns whether a missing record is worth caching: whether it was requested before, within a
    /// while.
    fn is_repeated(&self, hash: u64) -> bool {
        let is_second = self.forget_reading(hash);
        if !is_second {
            self.hint_of(hash).store(hint(hash), Ordering::Relaxed);
        }
        is_second
    }

    /// Forgets that a record was requested; returns whether it was known.
    fn forget_reading(&self, hash: u64) -> bool {
        let place = self.hint_of(hash);
        let is_known = place.load(Ordering::Relaxed) == hint(hash);
        if is_known {
            place.store(0, Ordering::Relaxed);
        }
        is_known
    }

    /// Caches a record that was read with a ticket, unless a writer has intervened.
    pub(crate) fn keep(&self, ticket: Ticket, bytes: &[u8]) {
        if bytes.len() > RECORD_BYTES_MAX {
            return;
        }
        let kept = CachedRecord { since: ticket.since, bytes: Arc::from(bytes) };
        // The gate stays locked during the insertion: a writer that comes then finds the record and
        // removes it.
        let gate = self.gates[ticket.gate].lock();
        if gate.writers == 0 && gate.version == ticket.version {
            self.records.insert(ticket.name, kept);
        }
    }

    /// Removes records from the cache and keeps them out until the returned hold is dropped: called
    /// before they are written. Removes all records in `ranges`.
    pub(crate) fn hold_for_write<'c>(
        &'c self,
        names: &'c [RecordName],
        ranges: &[KeyRange],
    ) -> WriteHold<'c> {
        let is_all = !ranges.is_empty();
        if is_all {
            self.gates.iter().for_each(close);
            self.remove_ranges(ranges);
        }
        for name in names {
            let hash = self.hasher.hash_one(name);
            close(&self.gates[gate_of(hash)]);
            self.records.remove(name);
            self.forget_reading(hash);
        }
        WriteHold { cache: self, names, is_all }
    }

    /// Removes the records of ranges that are no longer read.
    pub(crate) fn remove_ranges(&self, ranges: &[KeyRange]) {
        let is_within = |key: &[u8]| {
            ranges.iter().any(|range| range.start.as_slice() <= key && key < range.end.as_slice())
        };
        if !self.records.is_empty() {
            self.records.retain(|name, _| !is_within(name.key()));
        }
    }

    /// The maximum size in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.records.capacity()
    }

    /// The current size in bytes, including overhead.
    pub(crate) fn bytes(&self) -> u64 {
        self.records.weight()
    }

    /// The number of cached records.
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    fn hint_of(&self, hash: u64) -> &AtomicU16 {
        &self.hints[(hash >> 16) as usize % self.hints.len()]
    }
}

impl Drop for WriteHold<'_> {
    fn drop(&mut self) {
        for name in self.names {
            open(&self.cache.gates[gate_of(self.cache.hasher.hash_one(name))]);
        }
        if self.is_all {
            self.cache.gates.iter().for_each(open);
        }
    }
}

fn gate_of(hash: u64) -> usize {
    hash as usize % GATES
}

fn close(gate: &Mutex<Gate>) {
    let mut gate = gate.lock();
    gate.writers += 1;
    gate.version += 1;
}

fn open(gate: &Mutex<Gate>) {
    gate.lock().writers -= 1;
}

/// The hint for a requested record: some bits of its key's hash, never zero. Other keys overwrite
/// it, so it is forgotten after a while.
fn hint(hash: u64) -> u16 {
    (hash >> 48) as u16 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(cache: &RecordCache, key: &[u8], newest: u64) -> Option<Option<Ticket>> {
        match cache.lookup(key, || newest) {
            CacheLookup::Hit(_) => None,
            CacheLookup::Miss(ticket) => Some(ticket),
        }
    }

    fn ticket(cache: &RecordCache, key: &[u8]) -> Ticket {
        let first = look_up(cache, key, 7).expect("it is not kept");
        let second = || look_up(cache, key, 7).expect("it is not kept");
        first.or_else(second).expect("what is asked for twice is worth keeping")
    }

    fn is_kept(cache: &RecordCache, key: &[u8]) -> bool {
        cache.lookup_at(key, u64::MAX).is_some()
    }

    /// Writes a record and calls `meanwhile` between its removal and its readmission.
    fn write(cache: &RecordCache, key: &[u8], meanwhile: impl FnOnce()) {
        let names = [RecordName::of(key).expect("a short key")];
        let overtaken = cache.hold_for_write(&names, &[]);
        meanwhile();
        drop(overtaken);
    }

    #[test]
    fn what_was_read_is_kept_until_it_is_written() {
        let cache = RecordCache::new(1 << 20);
        cache.keep(ticket(&cache, b"one"), b"bytes");
        assert_eq!(cache.lookup_at(b"one", 7).as_deref(), Some(&b"bytes"[..]));
        assert_eq!(cache.lookup_at(b"one", 6), None, "an earlier moment may have had another");
        assert!(cache.count() == 1 && cache.bytes() > 5);
        write(&cache, b"one", || assert!(!is_kept(&cache, b"one")));
        assert!(!is_kept(&cache, b"one"));
    }

    #[test]
    fn what_was_read_beside_a_writer_is_not_kept() {
        let cache = RecordCache::new(1 << 20);
        let before = ticket(&cache, b"one");
        write(&cache, b"one", || {
            assert!(look_up(&cache, b"one", 7).is_some_and(|ticket| ticket.is_none()));
            cache.keep(before, b"old");
            assert!(!is_kept(&cache, b"one"), "while it is written");
        });
        let before = ticket(&cache, b"one");
        write(&cache, b"one", || {});
        cache.keep(before, b"old");
        assert!(!is_kept(&cache, b"one"), "after it was written");
    }

    #[test]
    fn a_record_that_is_written_as_often_as_read_is_not_kept() {
        let cache = RecordCache::new(1 << 20);
        cache.keep(ticket(&cache, b"one"), b"bytes");
        for _ in 0..3 {
            write(&cache, b"one", || {});
            assert!(look_up(&cache, b"one", 7).is_some_and(|ticket| ticket.is_none()));
        }
        // The second read since the last write.
        cache.keep(ticket(&cache, b"one"), b"bytes");
        assert!(is_kept(&cache, b"one"));
    }

    #[test]
    fn cleared_ranges_long_keys_and_large_records_are_not_kept() {
        let cache = RecordCache::new(1 << 20);
        for key in [b"a", b"b", b"c"] {
            cache.keep(ticket(&cache, key), b"bytes");
        }
        let range = KeyRange { start: b"b".to_vec(), end: b"c".to_vec() };
        let other = ticket(&cache, b"other");
        drop(cache.hold_for_write(&[], &[range]));
        assert_eq!([b"a", b"b", b"c"].map(|key| is_kept(&cache, key)), [true, false, true]);
        cache.keep(other, b"bytes");
        assert!(!is_kept(&cache, b"other"), "a range was cleared meanwhile, whichever");
        assert!(
            look_up(&cache, &[7; NAME_BYTES_MAX + 1], 7).is_some_and(|ticket| ticket.is_none())
        );
        cache.keep(ticket(&cache, b"large"), &vec![0; RECORD_BYTES_MAX + 1]);
        assert!(!is_kept(&cache, b"large"));
    }

    #[test]
    fn what_is_asked_for_twice_is_kept_while_there_is_room() {
        let cache = RecordCache::new(64 << 10);
        assert!(look_up(&cache, b"wanted", 7).is_some_and(|ticket| ticket.is_none()));
        assert!(look_up(&cache, b"wanted", 7).is_some_and(|ticket| ticket.is_some()));
        for number in 0..1000_u32 {
            cache.keep(ticket(&cache, &number.to_be_bytes()), &[0; 1000]);
        }
        assert!(cache.count() > 10 && cache.bytes() <= cache.capacity());
    }
}
