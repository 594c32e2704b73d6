//! Walking a range: blocks of entries, fetched as the walk comes to them.
//!
//! Long keys with the same first 4,000 bytes lie in the order of their hashes; a cursor that comes
//! to one reads all of them and sorts them. A cursor of the newest state goes on at a newer version
//! when its own has become too old, from the key where it stands: a walk that takes longer than the
//! store keeps a version sees later states towards its end.

use marula_storage::{Cursor, Direction, Epoch, KeyRange, Space};

use crate::kv::{Block, BlockLimit, KvError, Result, Version};
use crate::layout::{self, Edge, PartsRef};
use crate::pin;
use crate::read::{Found, Value, open};
use crate::shared::{Shared, count, kv_error, store_error};

/// Entries of the first block: what a look-up of some documents by an index needs.
const FIRST_ENTRIES: usize = 128;

/// Entries of a block at most; each has twice as many as the one before it.
const ENTRIES_MAX: usize = 2_048;

/// Bytes of a block, about.
const BLOCK_BYTES: usize = 512 << 10;

/// Bytes of long keys, and their values, with the same first 4,000 bytes, that can be sorted.
const LONG_BYTES_MAX: usize = 256 << 20;

/// A cursor.
pub(crate) struct RemoteCursor<'r> {
    shared: &'r Shared,
    at: Version,
    /// The epoch at its version, where it goes on at a newer one when its own is too old: as long
    /// as the epoch is the same, for what it walks may have been dropped.
    moving: Option<Epoch>,
    space: Space,
    range: KeyRange,
    direction: Direction,
    /// In the cursor's direction.
    block: Vec<Entry>,
    /// The entry that it stands on, where `state` is [`State::On`].
    index: usize,
    state: State,
    /// Where the next block lies; empty when there is none.
    rest: Option<KeyRange>,
    entries_next: usize,
}

struct Entry {
    key: Vec<u8>,
    value: EntryValue,
}

enum EntryValue {
    Whole(Value),
    Parts(PartsRef),
}

#[derive(Clone, PartialEq, Eq)]
enum State {
    Before,
    On,
    Behind,
    Failed(KvError),
}

impl<'r> RemoteCursor<'r> {
    pub(crate) fn new(
        shared: &'r Shared,
        at: Version,
        moving: Option<Epoch>,
        (space, range, direction): (Space, &KeyRange, Direction),
    ) -> Self {
        let rest = (range.start < range.end).then(|| shared.layout.range(space, range));
        RemoteCursor {
            shared,
            at,
            moving,
            space,
            range: range.clone(),
            direction,
            block: Vec::new(),
            index: 0,
            state: State::Before,
            rest,
            entries_next: FIRST_ENTRIES,
        }
    }

    /// Moves to the entry at `index`, or to the first after the block.
    fn stand(&mut self, mut index: usize) -> Result<bool> {
        loop {
            if index < self.block.len() {
                self.index = index;
                self.state = State::On;
                if self.join_value()? {
                    return Ok(true);
                }
                // Its place was read again, at a newer version.
                index = 0;
                continue;
            }
            if self.rest.is_none() {
                self.state = State::Behind;
                return Ok(false);
            }
            self.fetch()?;
            index = 0;
        }
    }

    /// Joins the value that it stands on, where that lies in parts. Returns `false` when the
    /// version was too old for it and the entries from here on must be fetched at a newer one.
    fn join_value(&mut self) -> Result<bool> {
        let entry = &mut self.block[self.index];
        let EntryValue::Parts(parts) = entry.value else { return Ok(true) };
        match self.shared.join(self.at, self.space, &entry.key, parts) {
            Ok(value) => {
                entry.value = EntryValue::Whole(value);
                Ok(true)
            }
            Err(KvError::TooOld) if self.moving.is_some() => {
                let key = std::mem::take(&mut entry.key);
                self.renew()?;
                self.block.clear();
                self.rest = self.rest_from(&key);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn renew(&mut self) -> Result<()> {
        count(&self.shared.trips.renewed);
        pin::forget_moment(self.shared);
        let at = self.shared.reading_moment().map_err(kv_error)?;
        if self.moving != Some(at.epoch) {
            return Err(KvError::TooOld);
        }
        self.at = at.version;
        Ok(())
    }

    /// Where the entries at or after `key` lie, in the cursor's direction.
    fn rest_from(&self, key: &[u8]) -> Option<KeyRange> {
        let KeyRange { start, end } = &self.range;
        if start >= end {
            return None;
        }
        let layout = &self.shared.layout;
        let mut rest = layout.range(self.space, &self.range);
        match self.direction {
            Direction::Forward if key > start.as_slice() => {
                rest.start = layout.bound(self.space, key, Edge::Start);
            }
            Direction::Backward if key < end.as_slice() => {
                rest.end = layout.bound(self.space, key, Edge::End);
                if !layout::is_long(key) {
                    // The key itself is one of them.
                    rest.end.push(0);
                }
            }
            Direction::Forward | Direction::Backward => {}
        }
        (rest.start < rest.end).then_some(rest)
    }

    /// Fetches the next block.
    fn fetch(&mut self) -> Result<()> {
        let rest = self.rest.clone().expect("there is a rest to fetch");
        let limit = BlockLimit { entries_max: self.entries_next, bytes_max: BLOCK_BYTES };
        self.entries_next = (self.entries_next * 2).min(ENTRIES_MAX);
        self.block.clear();
        let block = loop {
            match self.shared.kv_range(self.at, &rest, self.direction, limit) {
                Err(KvError::TooOld) if self.moving.is_some() => self.renew()?,
                outcome => break outcome?,
            }
        };
        self.rest = self.rest_behind(&rest, &block);
        for (place, stored) in block.entries {
            let (key, is_long) = self.shared.layout.parse(self.space, &place)?;
            if is_long {
                let group = self.shared.layout.long_keys(self.space, key);
                let key = key.to_vec();
                self.fetch_long(&key, &group)?;
                // The rest begins after all of them, whatever else this block had.
                let next = match self.direction {
                    Direction::Forward => KeyRange { start: group.end, end: rest.end },
                    Direction::Backward => KeyRange { start: rest.start, end: group.start },
                };
                self.rest = (next.start < next.end).then_some(next);
                return Ok(());
            }
            let value = match open(stored)? {
                Found::Whole(_, value) => EntryValue::Whole(value),
                Found::Parts(parts) => EntryValue::Parts(parts),
            };
            let key_from = place.len() - key.len();
            let mut key = place;
            key.drain(..key_from);
            self.push(Entry { key, value });
        }
        Ok(())
    }

    fn rest_behind(&self, rest: &KeyRange, block: &Block) -> Option<KeyRange> {
        let (last, _) = block.entries.last().filter(|_| block.has_more)?;
        let next = match self.direction {
            Direction::Forward => {
                KeyRange { start: [&last[..], &[0]].concat(), end: rest.end.clone() }
            }
            Direction::Backward => KeyRange { start: rest.start.clone(), end: last.clone() },
        };
        (next.start < next.end).then_some(next)
    }

    /// Adds an entry, if it is one of the range: bounds that are long keys are not exact.
    fn push(&mut self, entry: Entry) {
        if *self.range.start <= *entry.key && *entry.key < *self.range.end {
            self.block.push(entry);
        }
    }

    /// Fetches and sorts all long keys that begin with `prefix`.
    fn fetch_long(&mut self, prefix: &[u8], group: &KeyRange) -> Result<()> {
        let mut entries = loop {
            match self.read_long(prefix, group) {
                Err(KvError::TooOld) if self.moving.is_some() => self.renew()?,
                outcome => break outcome?,
            }
        };
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        if self.direction == Direction::Backward {
            entries.reverse();
        }
        entries.into_iter().for_each(|entry| self.push(entry));
        Ok(())
    }

    fn read_long(&self, prefix: &[u8], group: &KeyRange) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut rest = Some(group.clone());
        let limit = BlockLimit { entries_max: ENTRIES_MAX, bytes_max: BLOCK_BYTES };
        while let Some(range) = rest {
            let block = self.shared.kv_range(self.at, &range, Direction::Forward, limit)?;
            let last = block.entries.last().map(|(key, _)| [&key[..], &[0]].concat());
            rest = last
                .filter(|_| block.has_more)
                .map(|start| KeyRange { start, end: group.end.clone() });
            for (place, stored) in block.entries {
                let (key_rest, value) = match open(stored)? {
                    Found::Whole(rest, value) => (rest, value),
                    Found::Parts(parts) => {
                        let places = self.shared.layout.parts_at(self.space, &place, parts);
                        self.shared.join_long(self.at, &places, parts)?
                    }
                };
                bytes += prefix.len() + key_rest.len() + value.as_slice().len();
                if bytes > LONG_BYTES_MAX {
                    let what = "too many long keys begin with the same 4,000 bytes";
                    return Err(KvError::Unavailable(what.to_owned()));
                }
                let key = [prefix, &key_rest].concat();
                entries.push(Entry { key, value: EntryValue::Whole(value) });
            }
        }
        Ok(entries)
    }

    /// Fails for ever after a failure.
    fn run(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<bool>,
    ) -> marula_storage::Result<bool> {
        let outcome = match &self.state {
            State::Failed(error) => Err(error.clone()),
            _ => step(self),
        };
        outcome.map_err(|error| {
            self.state = State::Failed(error.clone());
            store_error(error)
        })
    }

    fn entry_here(&self) -> &Entry {
        assert!(self.is_on(), "the cursor stands on no key");
        &self.block[self.index]
    }

    /// The index in the block of the first entry at or after `key`, where the block has it.
    fn index_of(&self, key: &[u8]) -> Option<usize> {
        let is_before = |entry: &Entry| match self.direction {
            Direction::Forward => *entry.key < *key,
            Direction::Backward => *entry.key > *key,
        };
        let (first, last) = (self.block.first()?, self.block.last()?);
        let starts_here = is_before(first) || *first.key == *key;
        let ends_here = !is_before(last) || self.rest.is_none();
        (starts_here && ends_here).then(|| self.block.partition_point(is_before))
    }
}

impl Cursor for RemoteCursor<'_> {
    fn advance(&mut self) -> marula_storage::Result<bool> {
        self.run(|cursor| match cursor.state {
            State::Behind => Ok(false),
            State::On => cursor.stand(cursor.index + 1),
            _ => cursor.stand(0),
        })
    }

    fn seek(&mut self, key: &[u8]) -> marula_storage::Result<bool> {
        self.run(|cursor| {
            if let Some(index) = cursor.index_of(key) {
                return cursor.stand(index);
            }
            cursor.block.clear();
            cursor.rest = cursor.rest_from(key);
            cursor.entries_next = FIRST_ENTRIES;
            while cursor.block.is_empty() && cursor.rest.is_some() {
                cursor.fetch()?;
                // Other long keys may come first.
                let (direction, key) = (cursor.direction, key);
                cursor.block.retain(|entry| match direction {
                    Direction::Forward => *entry.key >= *key,
                    Direction::Backward => *entry.key <= *key,
                });
            }
            cursor.stand(0)
        })
    }

    fn is_on(&self) -> bool {
        self.state == State::On
    }

    fn key(&self) -> &[u8] {
        &self.entry_here().key
    }

    fn value(&self) -> &[u8] {
        match &self.entry_here().value {
            EntryValue::Whole(value) => value.as_slice(),
            EntryValue::Parts(_) => unreachable!("a cursor joins the value that it stands on"),
        }
    }
}
