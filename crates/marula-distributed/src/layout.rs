//! How keys and values of the store lie in the distributed one.
//!
//! ```text
//! root 0x01                                  the format's version, one byte
//! root 0x02                                  who serves the store (see lease)
//! root 0x03                                  the owner's heartbeat (see lease)
//! root 0x04 slot(8)                          the newest commit of a slot (see outcome)
//! root 0x05 id(8)                            a value that is being staged: its key (see parts)
//! root 0x06 number(4)                        a node (see nodes)
//! root 0x07 number(4)                        its heartbeat
//! root 0x08                                  the node that changes the catalogue
//! root 0x09                                  the epoch
//! root 0x0A                                  written by each node that is added
//! root 0x0B node(4) from(4) serial(8) part(4)    a request to a node (see requests)
//! root 0x0C node(4)                          the last request to it
//! root 0x0D node(4) serial(8) from(4) part(4)    a reply to its request
//! root 0x0E node(4)                          the last of the requests that were replied to
//! root 0x10+space key                        a key of the store of at most 4,000 bytes
//! root 0x10+space key[..4000] hash(16)       a longer one
//! root 0x20+space escaped key  id(8) part(4) 90,000 bytes of a large value, or the rest of it
//! ```
//!
//! A value starts with a byte that says how it lies; a counter is 8 bytes and nothing else, so no
//! other value may be that long:
//!
//! ```text
//! 0x00 value                                 the value
//! 0x01 0x00 value                            the same, where it would be 8 bytes
//! 0x02 id(8) length(8)                       a value in parts
//! 0x03 lengths(8) rest value                 of a long key: the key after its first 4,000 bytes,
//! the value
//! 0x04 id(8) length(8)                       of a long key, in parts: lengths, rest and value
//! ```
//!
//! Keys keep their order, but for long ones with the same first 4,000 bytes: those lie together, in
//! the order of their hashes, and are sorted when they are read. In front of the id of a part the
//! key is escaped (a zero becomes 0x00 0xFF, the end is 0x00 0x01), so that the parts of the keys
//! of a range are a range.

use std::borrow::Cow;

use marula_storage::{KeyRange, Space};
use sha2::{Digest, Sha256};

use crate::kv::{KvError, Result};

/// The version of this layout.
pub(crate) const FORMAT: u8 = 1;

/// The longest key that is stored as it is.
pub(crate) const SHORT_KEY_BYTES_MAX: usize = 4_000;

/// Bytes of the hash that represents the rest of a long key.
const HASH_BYTES: usize = 16;

/// The longest value that lies with its key, and the size of the parts of others.
pub(crate) const PART_BYTES: usize = 90_000;

/// The longest key: what an index may make of a document of 16 MB.
pub(crate) const KEY_BYTES_MAX: usize = 32 << 20;

/// The longest value.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;

/// Bytes of a counter.
pub(crate) const COUNTER_BYTES: usize = size_of::<i64>();

const INLINE: u8 = 0;
const PADDED: u8 = 1;
const PARTS: u8 = 2;
const LONG_INLINE: u8 = 3;
const LONG_PARTS: u8 = 4;

/// The length of a reference to parts, its kind included.
const PARTS_BYTES: usize = 1 + 8 + 8;

/// Where the keys of one store begin in the distributed one.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: Vec<u8>,
}

/// How a stored value lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored<'v> {
    /// Here it is.
    Here(&'v [u8]),
    /// In parts.
    Parts(PartsRef),
    /// Of a long key: the rest of it and its value, to be split by [`split_long`].
    Long(&'v [u8]),
    /// Of a long key, in parts, to be split when they are joined.
    LongParts(PartsRef),
}

/// Names the parts of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartsRef {
    pub(crate) id: u64,
    pub(crate) length: usize,
}

impl PartsRef {
    /// The number of parts.
    pub(crate) fn count(self) -> usize {
        self.length.div_ceil(PART_BYTES)
    }
}

impl Layout {
    pub(crate) fn new(root: &[u8]) -> Self {
        Layout { root: root.to_vec() }
    }

    pub(crate) fn format(&self) -> Vec<u8> {
        self.with(0x01, &[])
    }

    pub(crate) fn owner(&self) -> Vec<u8> {
        self.with(0x02, &[])
    }

    pub(crate) fn heartbeat(&self) -> Vec<u8> {
        self.with(0x03, &[])
    }

    pub(crate) fn slot(&self, slot: u64) -> Vec<u8> {
        self.with(0x04, &slot.to_be_bytes())
    }

    pub(crate) fn slots(&self) -> KeyRange {
        KeyRange { start: self.with(0x04, &[]), end: self.with(0x05, &[]) }
    }

    pub(crate) fn staged(&self, id: u64) -> Vec<u8> {
        self.with(0x05, &id.to_be_bytes())
    }

    pub(crate) fn all_staged(&self) -> KeyRange {
        KeyRange { start: self.with(0x05, &[]), end: self.with(0x06, &[]) }
    }

    /// The slots of one process.
    pub(crate) fn slots_of(&self, process: u32) -> KeyRange {
        let bound = |slot: u64| self.with(0x04, &slot.to_be_bytes());
        let first = u64::from(process) << 32;
        KeyRange { start: bound(first), end: bound(first | u64::from(u32::MAX)) }
    }

    pub(crate) fn node(&self, number: u32) -> Vec<u8> {
        self.with(0x06, &number.to_be_bytes())
    }

    /// All nodes and their heartbeats.
    pub(crate) fn nodes(&self) -> KeyRange {
        KeyRange { start: self.with(0x06, &[]), end: self.with(0x08, &[]) }
    }

    pub(crate) fn node_heartbeat(&self, number: u32) -> Vec<u8> {
        self.with(0x07, &number.to_be_bytes())
    }

    /// The number in the key of a node, and whether it is that of its heartbeat.
    pub(crate) fn parse_node(&self, key: &[u8]) -> Option<(u32, bool)> {
        let (&area, number) = key.strip_prefix(self.root.as_slice())?.split_first()?;
        Some((u32::from_be_bytes(number.try_into().ok()?), area == 0x07))
    }

    pub(crate) fn catalogue_lock(&self) -> Vec<u8> {
        self.with(0x08, &[])
    }

    pub(crate) fn epoch(&self) -> Vec<u8> {
        self.with(0x09, &[])
    }

    pub(crate) fn registry(&self) -> Vec<u8> {
        self.with(0x0A, &[])
    }

    /// The requests to a node; the number of a requester and of a request follow.
    pub(crate) fn requests(&self, to: u32) -> Vec<u8> {
        self.with(0x0B, &to.to_be_bytes())
    }

    /// One of them; the number of a part follows.
    pub(crate) fn request(&self, to: u32, from: u32, serial: u64) -> Vec<u8> {
        [&self.requests(to)[..], &from.to_be_bytes(), &serial.to_be_bytes()].concat()
    }

    pub(crate) fn request_signal(&self, to: u32) -> Vec<u8> {
        self.with(0x0C, &to.to_be_bytes())
    }

    /// The replies to one request of a node; the number of another node follows.
    pub(crate) fn replies(&self, to: u32, serial: u64) -> Vec<u8> {
        self.with(0x0D, &[&to.to_be_bytes()[..], &serial.to_be_bytes()].concat())
    }

    /// The reply of one node; the number of a part follows.
    pub(crate) fn reply(&self, to: u32, serial: u64, from: u32) -> Vec<u8> {
        [&self.replies(to, serial)[..], &from.to_be_bytes()].concat()
    }

    pub(crate) fn reply_signal(&self, to: u32) -> Vec<u8> {
        self.with(0x0E, &to.to_be_bytes())
    }

    /// All requests and replies to a node, and their signals.
    pub(crate) fn messages_to(&self, node: u32) -> [KeyRange; 4] {
        [0x0B, 0x0C, 0x0D, 0x0E].map(|area| {
            let start = self.with(area, &node.to_be_bytes());
            let end = [&start[..], &[0xFF; 17]].concat();
            KeyRange { start, end }
        })
    }

    /// Where a key of the store lies.
    pub(crate) fn key(&self, space: Space, key: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.root.len() + 1 + key.len().min(4016));
        out.extend_from_slice(&self.root);
        out.push(0x10 + space as u8);
        put_key(key, &mut out);
        out
    }

    /// The first place at or after a key that may be the end of a range: before it lies every key
    /// below `bound`, and of those with its first 4,000 bytes, where it is long, all or none.
    pub(crate) fn bound(&self, space: Space, bound: &[u8], edge: Edge) -> Vec<u8> {
        let kept = &bound[..bound.len().min(SHORT_KEY_BYTES_MAX)];
        let mut out = self.with(0x10 + space as u8, kept);
        if bound.len() > SHORT_KEY_BYTES_MAX && edge == Edge::End {
            // After every hash.
            out.extend_from_slice(&[0xFF; HASH_BYTES + 1]);
        }
        out
    }

    /// Where the keys of a range lie, and perhaps long ones next to it.
    pub(crate) fn range(&self, space: Space, range: &KeyRange) -> KeyRange {
        KeyRange {
            start: self.bound(space, &range.start, Edge::Start),
            end: self.bound(space, &range.end, Edge::End),
        }
    }

    /// The key of the store that lies at `key`; of a long one its first 4,000 bytes.
    pub(crate) fn parse<'k>(&self, space: Space, key: &'k [u8]) -> Result<(&'k [u8], bool)> {
        let rest = key.strip_prefix(self.root.as_slice()).and_then(|key| key.split_first());
        match rest {
            Some((&area, rest)) if area == 0x10 + space as u8 => match rest.len() {
                ..=SHORT_KEY_BYTES_MAX => Ok((rest, false)),
                len if len == SHORT_KEY_BYTES_MAX + HASH_BYTES => {
                    Ok((&rest[..SHORT_KEY_BYTES_MAX], true))
                }
                _ => Err(KvError::Corrupt(format!("a key of {} bytes", rest.len()))),
            },
            _ => Err(KvError::Corrupt("a key of another area".to_owned())),
        }
    }

    /// Every long key with these first 4,000 bytes.
    pub(crate) fn long_keys(&self, space: Space, prefix: &[u8]) -> KeyRange {
        assert_eq!(prefix.len(), SHORT_KEY_BYTES_MAX, "long keys share so many bytes");
        // After the key that these bytes are themselves.
        let start = self.with(0x10 + space as u8, &[prefix, &[0][..]].concat());
        KeyRange { start, end: self.bound(space, &[prefix, &[0][..]].concat(), Edge::End) }
    }

    /// Where the parts of one value lie.
    pub(crate) fn parts(&self, space: Space, key: &[u8], id: u64) -> KeyRange {
        let mut start = self.parts_bound(space, key);
        start.extend_from_slice(&id.to_be_bytes());
        let end = [&start[..], &[0xFF; 5]].concat();
        KeyRange { start, end }
    }

    /// Where one part of a value lies.
    pub(crate) fn part(&self, space: Space, key: &[u8], id: u64, number: usize) -> Vec<u8> {
        let mut out = self.parts_bound(space, key);
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&u32::try_from(number).expect("few parts").to_be_bytes());
        out
    }

    /// Where the parts of a value lie whose key lies at `place`.
    pub(crate) fn parts_at(&self, space: Space, place: &[u8], parts: PartsRef) -> Vec<Vec<u8>> {
        let mut bound = self.escaped(space, &place[self.root.len() + 1..], true);
        bound.extend_from_slice(&parts.id.to_be_bytes());
        (0..parts.count() as u32)
            .map(|number| [&bound[..], &number.to_be_bytes()].concat())
            .collect()
    }

    /// Where the parts of the keys of a range lie. A range that ends in the midst of long keys with
    /// the same first bytes has the parts of all of them or of none.
    pub(crate) fn parts_of_range(&self, space: Space, range: &KeyRange) -> KeyRange {
        KeyRange {
            start: self.escaped(space, &range.start, false),
            end: self.escaped(space, &range.end, false),
        }
    }

    /// The id of a part and the place of its key, by the part's own place.
    pub(crate) fn parse_part(&self, space: Space, place: &[u8]) -> Option<(Vec<u8>, u64)> {
        let (&area, escaped) = place.strip_prefix(self.root.as_slice())?.split_first()?;
        if area != 0x20 + space as u8 {
            return None;
        }
        let mut key = self.with(0x10 + space as u8, &[]);
        let mut rest = escaped;
        loop {
            match rest {
                [0, 0xFF, behind @ ..] => {
                    key.push(0);
                    rest = behind;
                }
                [0, 1, behind @ ..] => {
                    let id = behind.first_chunk().copied().map(u64::from_be_bytes)?;
                    return (behind.len() == 12).then_some((key, id));
                }
                [byte, behind @ ..] if *byte != 0 => {
                    key.push(*byte);
                    rest = behind;
                }
                _ => return None,
            }
        }
    }

    fn parts_bound(&self, space: Space, key: &[u8]) -> Vec<u8> {
        let mut short = Vec::new();
        put_key(key, &mut short);
        self.escaped(space, &short, true)
    }

    fn escaped(&self, space: Space, key: &[u8], is_whole: bool) -> Vec<u8> {
        let mut out = self.with(0x20 + space as u8, &[]);
        for &byte in &key[..key.len().min(SHORT_KEY_BYTES_MAX + HASH_BYTES)] {
            out.push(byte);
            if byte == 0 {
                out.push(0xFF);
            }
        }
        if is_whole {
            out.extend_from_slice(&[0, 1]);
        }
        out
    }

    fn with(&self, area: u8, rest: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.root.len() + 1 + rest.len());
        out.extend_from_slice(&self.root);
        out.push(area);
        out.extend_from_slice(rest);
        out
    }
}

/// The end of a range that a bound is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Edge {
    Start,
    End,
}

fn put_key(key: &[u8], out: &mut Vec<u8>) {
    if key.len() <= SHORT_KEY_BYTES_MAX {
        out.extend_from_slice(key);
    } else {
        out.extend_from_slice(&key[..SHORT_KEY_BYTES_MAX]);
        out.extend_from_slice(&Sha256::digest(key)[..HASH_BYTES]);
    }
}

/// Whether a key lies under a hash.
pub(crate) fn is_long(key: &[u8]) -> bool {
    key.len() > SHORT_KEY_BYTES_MAX
}

/// A value as it is stored with its key; `None` where it goes into parts.
pub(crate) fn encode(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    if is_long(key) {
        let bytes = long_bytes(key, value);
        return (bytes.len() <= PART_BYTES).then(|| {
            let mut out = vec![LONG_INLINE];
            out.extend_from_slice(&bytes);
            out
        });
    }
    if value.len() > PART_BYTES {
        return None;
    }
    let mut out = Vec::with_capacity(value.len() + 2);
    if value.len() + 1 == COUNTER_BYTES {
        out.push(PADDED);
    }
    out.push(INLINE);
    out.extend_from_slice(value);
    Some(out)
}

/// The bytes that go into parts.
pub(crate) fn in_parts<'v>(key: &[u8], value: &'v [u8]) -> Cow<'v, [u8]> {
    match is_long(key) {
        true => long_bytes(key, value).into(),
        false => value.into(),
    }
}

/// A reference to parts, as it is stored with the key.
pub(crate) fn encode_parts(key: &[u8], parts: PartsRef) -> Vec<u8> {
    let mut out = Vec::with_capacity(PARTS_BYTES);
    out.push(if is_long(key) { LONG_PARTS } else { PARTS });
    out.extend_from_slice(&parts.id.to_be_bytes());
    out.extend_from_slice(&(parts.length as u64).to_be_bytes());
    out
}

fn long_bytes(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = &key[SHORT_KEY_BYTES_MAX..];
    let length = u32::try_from(rest.len()).expect("keys have at most 32 MB");
    let value_length = u32::try_from(value.len()).expect("values have at most 64 MB");
    [&length.to_be_bytes()[..], &value_length.to_be_bytes(), rest, value].concat()
}

/// The rest of a long key and its value.
pub(crate) fn split_long(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let split = || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (value_length, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        (rest.len() == u32::from_be_bytes(*value_length) as usize).then_some((key, rest))
    };
    split().ok_or_else(|| KvError::Corrupt("a long key is cut short".to_owned()))
}

/// How a stored value lies.
pub(crate) fn decode(stored: &[u8]) -> Result<Stored<'_>> {
    if stored.len() == COUNTER_BYTES {
        return Ok(Stored::Here(stored));
    }
    let parts = |bytes: &[u8]| {
        let (id, length) = bytes.split_first_chunk::<8>()?;
        let length = u64::from_be_bytes(length.try_into().ok()?);
        let most = (KEY_BYTES_MAX + VALUE_BYTES_MAX + 8) as u64;
        let length = usize::try_from(length).ok().filter(|&length| length as u64 <= most)?;
        Some(PartsRef { id: u64::from_be_bytes(*id), length })
    };
    let decoded = match stored {
        [INLINE, value @ ..] | [PADDED, INLINE, value @ ..] => Some(Stored::Here(value)),
        [PARTS, bytes @ ..] => parts(bytes).map(Stored::Parts),
        [LONG_INLINE, bytes @ ..] => Some(Stored::Long(bytes)),
        [LONG_PARTS, bytes @ ..] => parts(bytes).map(Stored::LongParts),
        _ => None,
    };
    decoded.ok_or_else(|| KvError::Corrupt("a value of no known form".to_owned()))
}

/// Whether a stored value lies in the parts of this id.
pub(crate) fn names_parts(stored: &[u8], id: u64) -> bool {
    match decode(stored) {
        Ok(Stored::Parts(parts) | Stored::LongParts(parts)) => parts.id == id,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Space = Space::Indexes;

    fn layout() -> Layout {
        Layout::new(b"m/")
    }

    /// Keys of all kinds in order: with zeros, prefixes of each other, and around the limit.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = ["", "\0", "\0\0", "\0\u{1}", "a", "a\0", "a\0b", "ab", "b"]
            .iter()
            .map(|key| key.as_bytes().to_vec())
            .collect();
        for len in [3_999, 4_000, 4_001, 5_000, 200_000] {
            keys.push(vec![0; len]);
            keys.push(vec![b'k'; len]);
            keys.push([&vec![b'k'; len][..], b"\xFF"].concat());
        }
        keys.sort();
        keys
    }

    #[test]
    fn keys_keep_their_order_but_for_long_ones() {
        let keys = keys();
        for pair in keys.windows(2) {
            let [one, other] = [&pair[0], &pair[1]].map(|key| layout().key(SPACE, key));
            let is_group = pair.iter().all(|key| is_long(key))
                && pair[0][..SHORT_KEY_BYTES_MAX] == pair[1][..SHORT_KEY_BYTES_MAX];
            assert!(one != other && (is_group || one < other));
            for key in [&one, &other] {
                assert!(key.len() < 2 + 1 + 4_016 + 1);
            }
        }
        for key in keys {
            let place = layout().key(SPACE, &key);
            let kept = &key[..key.len().min(SHORT_KEY_BYTES_MAX)];
            assert_eq!(layout().parse(SPACE, &place), Ok((kept, is_long(&key))));
            layout().parse(Space::Records, &place).expect_err("it is of another space");
            if is_long(&key) {
                let group = layout().long_keys(SPACE, kept);
                assert!(group.start <= place && place < group.end);
                let short = layout().key(SPACE, kept);
                assert!(short < group.start);
            }
        }
    }

    #[test]
    fn ranges_hold_their_keys_and_the_parts_of_these() {
        let keys = keys();
        for start in &keys {
            for end in keys.iter().filter(|end| *end > start) {
                let range = KeyRange { start: start.clone(), end: end.clone() };
                let place = layout().range(SPACE, &range);
                let parts = layout().parts_of_range(SPACE, &range);
                for key in &keys {
                    let is_in = start <= key && key < end;
                    let at = layout().key(SPACE, key);
                    let is_there = place.start <= at && at < place.end;
                    assert!(is_there || !is_in, "a key of the range is outside");
                    if !is_long(start) && !is_long(end) {
                        assert_eq!(is_there, is_in);
                        let part = layout().part(SPACE, key, u64::MAX, 7);
                        assert_eq!(parts.start <= part && part < parts.end, is_in);
                    }
                }
            }
        }
    }

    #[test]
    fn parts_lie_with_their_value() {
        let keys = keys();
        for key in &keys {
            let own = layout().parts(SPACE, key, 5);
            for (id, number) in [(4, 0), (5, 0), (5, 1000), (6, 0), (u64::MAX, 1)] {
                let part = layout().part(SPACE, key, id, number);
                assert_eq!(own.start <= part && part < own.end, id == 5);
                assert!(keys.iter().filter(|other| *other != key).all(|other| {
                    let range = layout().parts(SPACE, other, id);
                    part < range.start || part >= range.end
                }));
                let parsed = layout().parse_part(SPACE, &part);
                assert_eq!(parsed, Some((layout().key(SPACE, key), id)));
            }
            assert!(own.end.len() < 9_000, "FoundationDB takes keys of 10,000 bytes");
        }
        assert_eq!(layout().parse_part(SPACE, b"m/\x22a"), None);
        assert_eq!(layout().parse_part(Space::Records, &layout().part(SPACE, b"", 1, 1)), None);
    }

    #[test]
    fn values_come_back_and_none_but_counters_have_eight_bytes() {
        for len in (0..20).chain([PART_BYTES]) {
            let value = vec![1; len];
            let stored = encode(b"key", &value).expect("it lies beside its key");
            assert_ne!(stored.len(), COUNTER_BYTES);
            assert_eq!(decode(&stored), Ok(Stored::Here(&value)));
        }
        assert_eq!(encode(b"key", &vec![0; PART_BYTES + 1]), None);
        let counter = 5i64.to_le_bytes();
        assert_eq!(decode(&counter), Ok(Stored::Here(&counter)));
        for rest in [1, 7, 300] {
            let key = vec![b'k'; SHORT_KEY_BYTES_MAX + rest];
            for value in [&b""[..], b"value"] {
                let stored = encode(&key, value).expect("it lies beside its key");
                assert_ne!(stored.len(), COUNTER_BYTES);
                let Ok(Stored::Long(bytes)) = decode(&stored) else { panic!("it is long") };
                assert_eq!(split_long(bytes), Ok((&key[SHORT_KEY_BYTES_MAX..], value)));
                for cut in 0..bytes.len() {
                    split_long(&bytes[..cut]).expect_err("it is cut short");
                }
            }
        }
        let parts = PartsRef { id: 7, length: 2 * PART_BYTES + 1 };
        assert_eq!(parts.count(), 3);
        assert_eq!(decode(&encode_parts(b"key", parts)), Ok(Stored::Parts(parts)));
        let long = vec![0; SHORT_KEY_BYTES_MAX + 1];
        assert_eq!(decode(&encode_parts(&long, parts)), Ok(Stored::LongParts(parts)));
        let huge = PartsRef { id: 7, length: 1 << 40 };
        for wrong in [&[][..], &[9], &[PARTS, 0], &encode_parts(b"key", huge)] {
            decode(wrong).expect_err("no such value is written");
        }
    }
}
