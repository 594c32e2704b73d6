//! Merging sorted sources of entries: runs in memory and in the store, and the side table.

use std::cmp::Ordering;

use marula_error::{Result, errors};
use marula_storage::{Cursor, Direction, KeyRange, Space, Store};

use super::run::{Item, PREFIX_BYTES, Runs};
use crate::storage_error::ForClient;

errors! {
    corrupt_scratch() = 8_000_005, "an entry of an index build is not of an entry's shape";
}

/// Entries in key order, each with whether it is to be there.
pub(super) enum Source<'r> {
    /// A sorted run in memory; the number of entries that were taken.
    Memory(&'r Runs, usize),
    /// Entries in the store.
    Stored(Box<dyn Cursor + 'r>),
}

impl<'r> Source<'r> {
    pub(super) fn memory(runs: &'r Runs) -> Self {
        Source::Memory(runs, 0)
    }

    pub(super) fn stored(store: &'r dyn Store, range: &KeyRange) -> Result<Self> {
        let cursor = store.cursor(Space::Indexes, range, Direction::Forward).for_client()?;
        Ok(Source::Stored(cursor))
    }

    pub(super) fn advance(&mut self) -> Result<bool> {
        match self {
            Source::Memory(runs, taken) => {
                *taken += 1;
                Ok(runs.get(*taken - 1).is_some())
            }
            Source::Stored(cursor) => cursor.advance().for_client(),
        }
    }

    /// The entry that the source stands on.
    pub(super) fn item(&self) -> Result<(Item<'_>, bool)> {
        match self {
            Source::Memory(runs, taken) => {
                Ok((runs.get(*taken - 1).expect("the source stands on an entry"), true))
            }
            Source::Stored(cursor) => {
                let key = cursor.key().get(PREFIX_BYTES..).ok_or_else(corrupt_scratch)?;
                Item::decode(key, cursor.value()).ok_or_else(corrupt_scratch)
            }
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Source::Memory(runs, taken) => runs.get(*taken - 1).map_or(&[], |item| item.key),
            Source::Stored(cursor) => cursor.key().get(PREFIX_BYTES..).unwrap_or(&[]),
        }
    }
}

/// Walks several sources in key order. Where two have the same entry, the later source is right.
pub(super) struct Merge<'r> {
    /// The sources that are not at their end.
    sources: Vec<Source<'r>>,
    /// Which of them holds what [`Merge::advance`] has answered.
    current: Option<usize>,
}

impl<'r> Merge<'r> {
    pub(super) fn new(sources: Vec<Source<'r>>) -> Result<Self> {
        let mut live = Vec::with_capacity(sources.len());
        for mut source in sources {
            if source.advance()? {
                live.push(source);
            }
        }
        Ok(Merge { sources: live, current: None })
    }

    /// The next entry that is to be there.
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

    /// The source with the least entry, once those that hold the same and are not right have moved
    /// on.
    fn least(&mut self) -> Result<Option<usize>> {
        let mut least: Option<usize> = None;
        let mut number = 0;
        while number < self.sources.len() {
            let order =
                least.map(|least| self.sources[number].key().cmp(self.sources[least].key()));
            match (order, least) {
                (Some(Ordering::Equal), Some(other)) => {
                    // A source that ends is taken out, and those behind it move up.
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

    /// Moves one source on, and takes it out at its end; answers whether it goes on.
    fn advance_one(&mut self, number: usize) -> Result<bool> {
        let goes_on = self.sources[number].advance()?;
        if !goes_on {
            self.sources.remove(number);
        }
        Ok(goes_on)
    }
}
