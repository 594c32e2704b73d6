//! Merges sorted sources of entries: runs in memory, runs in the store, and the side table.

use std::cmp::Ordering;

use marula_error::{Result, errors};
use marula_storage::{Cursor, Direction, KeyRange, Space, Store};

use super::run::{Item, PREFIX_BYTES, Runs};
use crate::storage_error::ForClient;

errors! {
    corrupt_scratch() = 8_000_005, "an entry of an index build is not of an entry's shape";
}

/// Entries in key order, each with whether it is present or removed.
pub(super) enum EntrySource<'r> {
    /// A sorted run in memory, and the number of entries consumed.
    Memory(&'r Runs, usize),
    /// Entries in the store.
    Stored(Box<dyn Cursor + 'r>),
}

impl<'r> EntrySource<'r> {
    pub(super) fn memory(runs: &'r Runs) -> Self {
        EntrySource::Memory(runs, 0)
    }

    pub(super) fn stored(store: &'r dyn Store, range: &KeyRange) -> Result<Self> {
        let cursor = store.cursor(Space::Indexes, range, Direction::Forward).for_client()?;
        Ok(EntrySource::Stored(cursor))
    }

    pub(super) fn advance(&mut self) -> Result<bool> {
        match self {
            EntrySource::Memory(runs, taken) => {
                *taken += 1;
                Ok(runs.get(*taken - 1).is_some())
            }
            EntrySource::Stored(cursor) => cursor.advance().for_client(),
        }
    }

    /// The current entry of the source.
    pub(super) fn item(&self) -> Result<(Item<'_>, bool)> {
        match self {
            EntrySource::Memory(runs, taken) => {
                Ok((runs.get(*taken - 1).expect("the source is on an entry"), true))
            }
            EntrySource::Stored(cursor) => {
                let key = cursor.key().get(PREFIX_BYTES..).ok_or_else(corrupt_scratch)?;
                Item::decode(key, cursor.value()).ok_or_else(corrupt_scratch)
            }
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            EntrySource::Memory(runs, taken) => runs.get(*taken - 1).map_or(&[], |item| item.key),
            EntrySource::Stored(cursor) => cursor.key().get(PREFIX_BYTES..).unwrap_or(&[]),
        }
    }
}

/// Merges several sources in key order. Where two have the same entry, the later source wins.
pub(super) struct Merge<'r> {
    /// The sources that are not at their end.
    sources: Vec<EntrySource<'r>>,
    /// The source of the entry that [`Merge::advance`] returned last.
    current: Option<usize>,
}

impl<'r> Merge<'r> {
    pub(super) fn new(sources: Vec<EntrySource<'r>>) -> Result<Self> {
        let mut live = Vec::with_capacity(sources.len());
        for mut source in sources {
            if source.advance()? {
                live.push(source);
            }
        }
        Ok(Merge { sources: live, current: None })
    }

    /// The next entry that is present.
    pub(super) fn advance(&mut self) -> Result<Option<Item<'_>>> {
        if let Some(current) = self.current.take() {
            self.advance_one(current)?;
        }
        while let Some(least) = self.least()? {
            if self.sources[least].item()?.1 {
                self.current = Some(least);
                break;
            }
            self.advance_one(least)?;
        }
        match self.current {
            Some(current) => Ok(Some(self.sources[current].item()?.0)),
            None => Ok(None),
        }
    }

    /// The source with the least entry, after sources with the same but overridden entry have
    /// advanced.
    fn least(&mut self) -> Result<Option<usize>> {
        let mut least: Option<usize> = None;
        let mut number = 0;
        while number < self.sources.len() {
            let order =
                least.map(|least| self.sources[number].key().cmp(self.sources[least].key()));
            match (order, least) {
                (Some(Ordering::Equal), Some(other)) => {
                    // A source at its end is removed, and those after it move up.
                    let is_over = !self.advance_one(other)?;
                    number -= usize::from(is_over);
                    least = Some(number);
                }
                (Some(Ordering::Greater), _) => {}
                _ => least = Some(number),
            }
            number += 1;
        }
        Ok(least)
    }

    /// Advances one source and removes it at its end; returns whether it has another entry.
    fn advance_one(&mut self, number: usize) -> Result<bool> {
        let goes_on = self.sources[number].advance()?;
        if !goes_on {
            self.sources.remove(number);
        }
        Ok(goes_on)
    }
}
