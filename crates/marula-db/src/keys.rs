//! The layout of keys in the store.
//!
//! ```text
//! space    key                                 value
//! Catalog  0x01 ident(4)                       catalogue entry, BSON (see catalog::entry)
//! Catalog  0x02 ident(4) 0x01                  counter: documents of a collection
//! Catalog  0x02 ident(4) 0x02                  counter: bytes of its documents
//! Catalog  0x03 space(1) ident(4)              empty: a dropped range, not cleared yet
//! Catalog  0x04                                the next free ident, u32 big-endian
//! Catalog  0x05 lsid                           session record, BSON (see session)
//! Catalog  0x06 ident(4) part(1) component(1)  empty: the index is multikey there
//! Catalog  0x07                                empty: the oplog is complete from its first entry
//! Catalog  0x08                                if nodes share the store: the oplog's newest time
//! Catalog  0x09                                and the time from which on that is complete
//! Catalog  0x0a                                the time of its last use, in ms since 1970
//! Catalog  0x0b lsid page(4)                   a full page of a session record, BSON (see session)
//! Records  ident(4) record-key                 the document
//! Indexes  ident(4) key-string record-key      type bits         (an ordinary index)
//! Indexes  ident(4) key-string                 record-key, type bits (a unique index)
//! Indexes  ident(4) …                          runs and side table of an index build (see build)
//! ```
//!
//! Idents and record ids are big-endian, so that byte order is number order. An ident is never
//! reused, so that clearing a dropped range can never remove new data.

use marula_bson::ByteSlice;
use marula_storage::{KeyRange, Space};

/// The 4-byte name of a collection or an index in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ident(pub u32);

impl Ident {
    /// The bytes at the start of every key of this ident.
    pub const fn bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// The range of this ident in `Records` or `Indexes`.
    pub fn range(self) -> KeyRange {
        KeyRange { start: self.bytes().to_vec(), end: Ident(self.0 + 1).bytes().to_vec() }
    }

    /// The range of the keys that lie in `range` without this ident at their start.
    pub fn range_within(self, range: &KeyRange) -> KeyRange {
        let ident = self.bytes();
        KeyRange {
            start: [&ident[..], &range.start].concat(),
            end: [&ident[..], &range.end].concat(),
        }
    }
}

/// The size of an ident at the start of a key.
pub const IDENT_BYTES: usize = 4;

/// The maximum length of a record key stored without an allocation: a record id has 8 bytes, a
/// clustered `_id` that is an ObjectId 13.
const INLINE_BYTES: usize = 22;

/// The record key identifies a document within its collection and is the end of its store key: a
/// record id, or the key string of `_id` in a clustered collection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordKey(RecordKeyBytes);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum RecordKeyBytes {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl RecordKey {
    /// The record key with these bytes.
    pub fn new(key: &[u8]) -> Self {
        if key.len() <= INLINE_BYTES {
            let mut bytes = [0; INLINE_BYTES];
            bytes[..key.len()].copy_from_slice(key);
            let length = u8::try_from(key.len()).expect("INLINE_BYTES fits a byte");
            RecordKey(RecordKeyBytes::Inline { length, bytes })
        } else {
            RecordKey(RecordKeyBytes::Heap(key.into()))
        }
    }

    /// The record key of a record id.
    pub fn of_record_id(record_id: i64) -> Self {
        assert!(record_id > 0, "record ids start at 1");
        RecordKey::new(&record_id.to_be_bytes())
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            RecordKeyBytes::Inline { length, bytes } => &bytes[..usize::from(*length)],
            RecordKeyBytes::Heap(bytes) => bytes,
        }
    }

    /// The record id, if it is one.
    pub fn record_id(&self) -> Option<i64> {
        self.as_bytes().try_into().ok().map(i64::from_be_bytes)
    }
}

/// Writes the key of a record into `out`, which is cleared first.
pub fn record_key(ident: Ident, record: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&ident.bytes());
    out.extend_from_slice(record);
}

/// The prefix of every catalogue entry.
pub const ENTRY_PREFIX: [u8; 1] = [0x01];
/// The prefix of every counter.
pub const COUNTER_PREFIX: [u8; 1] = [0x02];
/// The prefix of every dropped range that has not been cleared yet.
pub const DROPPED_PREFIX: [u8; 1] = [0x03];
/// The key of the next free ident.
pub const NEXT_IDENT: [u8; 1] = [0x04];
/// The prefix of every session record.
pub const SESSION_PREFIX: [u8; 1] = [0x05];

/// The key that marks the oplog as complete since its first entry.
pub const OPLOG_BEGUN: [u8; 1] = [0x07];
/// The key of the time of the newest entry of an oplog that several nodes write.
pub const OPLOG_CLOCK: [u8; 1] = [0x08];
/// The key of the time from which on such an oplog is complete.
pub const OPLOG_SINCE: [u8; 1] = [0x09];
/// The key of the time when a node last used such an oplog.
pub const OPLOG_USED: [u8; 1] = [0x0a];

/// The prefix of every multikey mark.
pub const MULTIKEY_PREFIX: [u8; 1] = [0x06];

/// The key of a collection's catalogue entry.
pub fn entry(ident: Ident) -> [u8; 5] {
    prefixed(ENTRY_PREFIX[0], ident)
}

/// The key of the counter of a collection's documents.
pub fn count(ident: Ident) -> [u8; 6] {
    counter(ident, 0x01)
}

/// The key of the counter of the bytes of a collection's documents.
pub fn size(ident: Ident) -> [u8; 6] {
    counter(ident, 0x02)
}

/// The collection of a counter's key, and which of its counters it is: 0 for documents, 1 for their
/// bytes.
pub(crate) fn parse_counter(key: &[u8]) -> Option<(Ident, usize)> {
    let [_, ident @ .., kind @ 1..=2] = key else { return None };
    let ident = u32::from_be_bytes(ident.try_into().ok()?);
    Some((Ident(ident), usize::from(kind - 1)))
}

/// The key that marks the range of `ident` in `space` as dropped but not cleared.
pub fn dropped(space: Space, ident: Ident) -> [u8; 6] {
    let [a, b, c, d] = ident.bytes();
    [DROPPED_PREFIX[0], space_byte(space), a, b, c, d]
}

/// Decodes a key made by [`dropped`].
pub fn parse_dropped(key: &[u8]) -> Option<(Space, Ident)> {
    let [prefix, space, ident @ ..] = key else { return None };
    let space = Space::ALL.into_iter().find(|&candidate| space_byte(candidate) == *space)?;
    let ident = u32::from_be_bytes(ident.try_into().ok()?);
    (*prefix == DROPPED_PREFIX[0]).then_some((space, Ident(ident)))
}

/// The key of a session's record.
pub fn session(lsid: &[u8]) -> Vec<u8> {
    [SESSION_PREFIX.as_bytes(), lsid].concat()
}

/// The key of a full page of a session's record.
pub fn session_page(lsid: &[u8], page: u32) -> Vec<u8> {
    [&session_pages(lsid)[..], &page.to_be_bytes()].concat()
}

/// The prefix of the pages of a session's record.
pub fn session_pages(lsid: &[u8]) -> Vec<u8> {
    [&[0x0b], lsid].concat()
}

fn space_byte(space: Space) -> u8 {
    match space {
        Space::Catalog => 0,
        Space::Records => 1,
        Space::Indexes => 2,
    }
}

fn prefixed(prefix: u8, ident: Ident) -> [u8; 5] {
    let [a, b, c, d] = ident.bytes();
    [prefix, a, b, c, d]
}

fn counter(ident: Ident, kind: u8) -> [u8; 6] {
    let [a, b, c, d] = ident.bytes();
    [0x02, a, b, c, d, kind]
}
