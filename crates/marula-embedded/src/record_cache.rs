//! Records that are read one by one, kept unpacked.
//!
//! A look-up in RocksDB goes through the memtables, a file's index, the cache of blocks and a
//! search in a block; each of these waits for memory. A record that was read before lies here under
//! its key, and costs one look. Where data outgrow memory it also holds more of what is wanted: a
//! record is kept alone, a block with all its neighbours.
//!
//! **What is here is what the store says.** A commit takes the records that it writes out before it
//! becomes visible and lets them in again after it: each key belongs to a [`Gate`], which a writer
//! shuts, and whoever has read a record meanwhile, or before, finds that the gate has moved and
//! does not keep it. So a record that is found here is the newest, and was so since a sequence
//! number that it carries: a view of an earlier moment asks RocksDB.
//!
//! **Not everything is kept**, but what is asked for twice within a while: copying what is read
//! once costs more than reading it. A record that is rewritten each time it is read would be copied
//! for nothing, too: it is kept when it is read twice between two writes. Scans pass by.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use marula_storage::KeyRange;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

/// Keys of up to so many bytes can be kept: those of all collections but clustered ones with long
/// ids.
const NAME_BYTES_MAX: usize = 31;

/// A larger record is not kept: one of them would push out hundreds.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// What keeping a record costs beside its bytes: its name, its places in the tables and lists, and
/// the allocation.
const OVERHEAD_BYTES: u64 = 128;

/// How large records are taken to be when the tables are made.
const RECORD_BYTES_GUESSED: usize = 2048;

/// Gates; a power of two.
const GATES: usize = 256;

/// At least, and at most, of so many keys the last reading is remembered: of some more than can be
/// kept.
const HINTS: (usize, usize) = (1 << 14, 1 << 22);

/// The key of a record.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    length: u8,
    bytes: [u8; NAME_BYTES_MAX],
}

/// Bytes of a record that was looked up, and since when they are its newest.
#[derive(Clone)]
struct Kept {
    since: u64,
    bytes: Arc<[u8]>,
}

/// What asking for a record has come to.
pub(crate) enum Asked {
    /// Its bytes.
    Kept(Arc<[u8]>),
    /// It must be read; what is found is worth keeping where there is a ticket.
    Missing(Option<Ticket>),
}

/// Allows to keep what is read next, unless a writer comes in between.
pub(crate) struct Ticket {
    name: Name,
    gate: usize,
    version: u64,
    since: u64,
}

/// Which writers are between taking a key of it out and having written.
#[derive(Default)]
struct Gate {
    writers: u64,
    /// How many writers have come.
    version: u64,
}

/// The cache.
pub(crate) struct RecordCache {
    records: Cache<Name, Kept, Weight, DefaultHashBuilder>,
    hasher: DefaultHashBuilder,
    gates: Box<[Mutex<Gate>]>,
    hints: Box<[AtomicU16]>,
}

/// Writers' hold on the records that they write, until they have written.
pub(crate) struct Overtaken<'c> {
    cache: &'c RecordCache,
    names: &'c [Name],
    is_all: bool,
}

impl Name {
    /// The name of a record by its key; `None` for a key that is too long.
    #[inline]
    pub(crate) fn of(key: &[u8]) -> Option<Name> {
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        Some(Name { length: key.len() as u8, bytes })
    }

    fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Name) -> bool {
        self.length == other.length && self.bytes == other.bytes
    }
}

impl Eq for Name {}

impl Hash for Name {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.key());
    }
}

/// A record's share of the cache.
#[derive(Clone)]
struct Weight;

impl Weighter<Name, Kept> for Weight {
    fn weight(&self, _: &Name, kept: &Kept) -> u64 {
        kept.bytes.len() as u64 + OVERHEAD_BYTES
    }
}

impl RecordCache {
    /// A cache of up to `bytes`.
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

    /// Asks for a record as it is now. `newest` tells the newest sequence number that is visible.
    #[inline]
    pub(crate) fn ask(&self, key: &[u8], newest: impl FnOnce() -> u64) -> Asked {
        let Some(name) = Name::of(key) else { return Asked::Missing(None) };
        match self.records.get(&name) {
            Some(kept) => Asked::Kept(kept.bytes),
            None => Asked::Missing(self.ticket(name, newest)),
        }
    }

    /// A record as it was at a sequence number, where that is known here.
    pub(crate) fn at(&self, key: &[u8], moment: u64) -> Option<Arc<[u8]>> {
        let kept = self.records.get(&Name::of(key)?)?;
        (kept.since <= moment).then_some(kept.bytes)
    }

    fn ticket(&self, name: Name, newest: impl FnOnce() -> u64) -> Option<Ticket> {
        let hash = self.hasher.hash_one(name);
        if !self.is_worth(hash) {
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
        // Asked for behind the gate: nothing has written the record since, as long as the gate
        // stays as it is.
        Some(Ticket { name, gate, version, since: newest() })
    }

    /// Whether a record that is not here should be, now that it is asked for: whether it was
    /// before, within a while.
    fn is_worth(&self, hash: u64) -> bool {
        let is_second = self.forget_reading(hash);
        if !is_second {
            self.hint_of(hash).store(hint(hash), Ordering::Relaxed);
        }
        is_second
    }

    /// Forgets that a record was asked for; answers whether that was known.
    fn forget_reading(&self, hash: u64) -> bool {
        let place = self.hint_of(hash);
        let is_known = place.load(Ordering::Relaxed) == hint(hash);
        if is_known {
            place.store(0, Ordering::Relaxed);
        }
        is_known
    }

    /// Keeps what was read with a ticket, unless a writer has come since that was given.
    pub(crate) fn keep(&self, ticket: Ticket, bytes: &[u8]) {
        if bytes.len() > RECORD_BYTES_MAX {
            return;
        }
        let kept = Kept { since: ticket.since, bytes: Arc::from(bytes) };
        // The gate is held while the record goes in: a writer who comes then finds it there, and
        // takes it out.
        let gate = self.gates[ticket.gate].lock();
        if gate.writers == 0 && gate.version == ticket.version {
            self.records.insert(ticket.name, kept);
        }
    }

    /// Takes records out and keeps them out until what this answers is dropped: before they are
    /// written. Of `ranges`, all that lie in them.
    pub(crate) fn overtake<'c>(&'c self, names: &'c [Name], ranges: &[KeyRange]) -> Overtaken<'c> {
        let is_all = !ranges.is_empty();
        if is_all {
            self.gates.iter().for_each(shut);
            self.forget(ranges);
        }
        for name in names {
            let hash = self.hasher.hash_one(name);
            shut(&self.gates[gate_of(hash)]);
            self.records.remove(name);
            self.forget_reading(hash);
        }
        Overtaken { cache: self, names, is_all }
    }

    /// Lets go of records that nobody reads any more.
    pub(crate) fn forget(&self, ranges: &[KeyRange]) {
        let is_within = |key: &[u8]| {
            ranges.iter().any(|range| range.start.as_slice() <= key && key < range.end.as_slice())
        };
        if !self.records.is_empty() {
            self.records.retain(|name, _| !is_within(name.key()));
        }
    }

    /// The most bytes that it holds.
    pub(crate) fn capacity(&self) -> u64 {
        self.records.capacity()
    }

    /// The bytes that it holds, with what holding them costs.
    pub(crate) fn bytes(&self) -> u64 {
        self.records.weight()
    }

    /// How many records it holds.
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    fn hint_of(&self, hash: u64) -> &AtomicU16 {
        &self.hints[(hash >> 16) as usize % self.hints.len()]
    }
}

impl Drop for Overtaken<'_> {
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

fn shut(gate: &Mutex<Gate>) {
    let mut gate = gate.lock();
    gate.writers += 1;
    gate.version += 1;
}

fn open(gate: &Mutex<Gate>) {
    gate.lock().writers -= 1;
}

/// What tells that a record was asked for which is not here: some bits of its key's hash, never
/// zero. Others overwrite it, so that it is forgotten after a while.
fn hint(hash: u64) -> u16 {
    (hash >> 48) as u16 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cache: &RecordCache, key: &[u8], newest: u64) -> Option<Option<Ticket>> {
        match cache.ask(key, || newest) {
            Asked::Kept(_) => None,
            Asked::Missing(ticket) => Some(ticket),
        }
    }

    fn ticket(cache: &RecordCache, key: &[u8]) -> Ticket {
        let first = ask(cache, key, 7).expect("it is not kept");
        let second = || ask(cache, key, 7).expect("it is not kept");
        first.or_else(second).expect("what is asked for twice is worth keeping")
    }

    fn is_kept(cache: &RecordCache, key: &[u8]) -> bool {
        cache.at(key, u64::MAX).is_some()
    }

    /// Writes a record, doing `meanwhile` between taking it out and letting it in again.
    fn write(cache: &RecordCache, key: &[u8], meanwhile: impl FnOnce()) {
        let names = [Name::of(key).expect("a short key")];
        let overtaken = cache.overtake(&names, &[]);
        meanwhile();
        drop(overtaken);
    }

    #[test]
    fn what_was_read_is_kept_until_it_is_written() {
        let cache = RecordCache::new(1 << 20);
        cache.keep(ticket(&cache, b"one"), b"bytes");
        assert_eq!(cache.at(b"one", 7).as_deref(), Some(&b"bytes"[..]));
        assert_eq!(cache.at(b"one", 6), None, "an earlier moment may have had another");
        assert!(cache.count() == 1 && cache.bytes() > 5);
        write(&cache, b"one", || assert!(!is_kept(&cache, b"one")));
        assert!(!is_kept(&cache, b"one"));
    }

    #[test]
    fn what_was_read_beside_a_writer_is_not_kept() {
        let cache = RecordCache::new(1 << 20);
        let before = ticket(&cache, b"one");
        write(&cache, b"one", || {
            assert!(ask(&cache, b"one", 7).is_some_and(|ticket| ticket.is_none()));
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
            assert!(ask(&cache, b"one", 7).is_some_and(|ticket| ticket.is_none()));
        }
        // The second reading since the last write.
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
        drop(cache.overtake(&[], &[range]));
        assert_eq!([b"a", b"b", b"c"].map(|key| is_kept(&cache, key)), [true, false, true]);
        cache.keep(other, b"bytes");
        assert!(!is_kept(&cache, b"other"), "a range was cleared meanwhile, whichever");
        assert!(ask(&cache, &[7; NAME_BYTES_MAX + 1], 7).is_some_and(|ticket| ticket.is_none()));
        cache.keep(ticket(&cache, b"large"), &vec![0; RECORD_BYTES_MAX + 1]);
        assert!(!is_kept(&cache, b"large"));
    }

    #[test]
    fn what_is_asked_for_twice_is_kept_while_there_is_room() {
        let cache = RecordCache::new(64 << 10);
        assert!(ask(&cache, b"wanted", 7).is_some_and(|ticket| ticket.is_none()));
        assert!(ask(&cache, b"wanted", 7).is_some_and(|ticket| ticket.is_some()));
        for number in 0..1000_u32 {
            cache.keep(ticket(&cache, &number.to_be_bytes()), &[0; 1000]);
        }
        assert!(cache.count() > 10 && cache.bytes() <= cache.capacity());
    }
}
