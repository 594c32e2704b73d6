//! The simplest engine: ordered maps in memory.
//!
//! The *state* is one [`Tree`] per space and the stamp of the newest commit, under one
//! lock. A commit applies its writes under the lock; a snapshot or a cursor copies three pointers
//! and then reads without it. Nothing survives the end of the process, so `sync` returns at once.

pub mod tree;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use self::tree::{Bytes, EntryPosition, Tree, Weight};
use crate::latch::{HeldStripes, Latches};
use crate::store::{
    Caps, Cursor, Direction, Error, KeyRange, Looked, RangeStats, Result, Space, Stamp, Store, Txn,
    Values, View,
};

/// A store in memory.
pub struct Memory {
    caps: Caps,
    latches: Latches,
    state: RwLock<State>,
}

#[derive(Clone, Default)]
struct State {
    trees: [Tree; Space::ALL.len()],
    newest: Stamp,
    is_closed: bool,
}

/// A view of one moment.
struct Snapshot {
    state: State,
}

struct MemoryTxn<'s> {
    store: &'s Memory,
    /// The view of a transaction that began since one; `None` means the newest state.
    since: Option<&'s dyn View>,
    held: HeldStripes<'s>,
    writes: Vec<Write>,
    size: usize,
}

enum Write {
    Put(Space, Bytes, Bytes),
    Delete(Space, Bytes),
    Clear(Space, KeyRange),
    Add(Bytes, i64),
}

pub(crate) struct MemoryCursor {
    tree: Tree,
    range: KeyRange,
    direction: Direction,
    position: Position,
}

enum Position {
    BeforeStart,
    On(EntryPosition),
    AfterEnd,
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        let caps = Caps {
            name: "memory",
            key_bytes_max: 1 << 25,
            value_bytes_max: 1 << 30,
            txn_bytes_max: 1 << 30,
            is_remote: false,
            is_persistent: false,
            keeps_deltas: false,
        };
        Memory { caps, latches: Latches::new(), state: RwLock::default() }
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let state = self.state.read();
        state.check_open()?;
        Ok(Snapshot { state: state.clone() })
    }

    fn begin_with<'s>(&'s self, since: Option<&'s dyn View>) -> MemoryTxn<'s> {
        MemoryTxn { store: self, since, held: self.latches.hold(), writes: Vec::new(), size: 0 }
    }

    fn write(&self, apply: impl FnOnce(&mut State)) -> Result<Stamp> {
        let mut state = self.state.write();
        state.check_open()?;
        apply(&mut state);
        state.newest.version += 1;
        Ok(state.newest)
    }
}

impl State {
    fn check_open(&self) -> Result<()> {
        if self.is_closed {
            return Err(Error::Unavailable("the store is closed".into()));
        }
        Ok(())
    }

    fn tree(&self, space: Space) -> &Tree {
        &self.trees[space as usize]
    }

    fn tree_mut(&mut self, space: Space) -> &mut Tree {
        &mut self.trees[space as usize]
    }

    fn get(&self, space: Space, key: &[u8]) -> Option<&Bytes> {
        self.tree(space).get(key)
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> MemoryValues {
        let tree = self.tree(space);
        MemoryValues(keys.iter().map(|key| tree.get(key).cloned()).collect())
    }

    fn apply(&mut self, write: Write) {
        match write {
            Write::Put(space, key, value) => self.tree_mut(space).insert(key, value),
            Write::Delete(space, key) => self.tree_mut(space).remove(&key),
            Write::Clear(space, range) => self.tree_mut(space).clear(&range.start, &range.end),
            Write::Add(key, delta) => {
                let tree = self.tree_mut(Space::Catalog);
                let old = tree.get(&key).and_then(|value| value.as_ref().try_into().ok());
                let new = old.map_or(0, i64::from_le_bytes).wrapping_add(delta);
                tree.insert(key, Bytes::from(&new.to_le_bytes()[..]));
            }
        }
    }
}

/// Values of several keys, shared with the trees that hold them.
struct MemoryValues(Vec<Option<Bytes>>);

impl Values for MemoryValues {
    fn get(&self, place: usize) -> Looked<'_> {
        self.0[place].as_deref().map_or(Looked::Absent, Looked::Found)
    }
}

impl View for Memory {
    fn moment(&self) -> Stamp {
        self.state.read().newest
    }

    fn is_fixed(&self) -> bool {
        false
    }

    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let state = self.state.read();
        state.check_open()?;
        // Visited without the lock: the caller may wait for a writer meanwhile.
        let value = state.get(space, key).cloned();
        drop(state);
        let value = value.as_deref();
        value.into_iter().for_each(visit);
        Ok(value.is_some())
    }

    fn get_many<'r>(&'r self, space: Space, keys: &[&[u8]]) -> Result<Box<dyn Values + 'r>> {
        let state = self.state.read();
        state.check_open()?;
        Ok(Box::new(state.get_many(space, keys)))
    }

    fn cursor<'r>(
        &'r self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'r>> {
        let state = self.state.read();
        state.check_open()?;
        Ok(Box::new(MemoryCursor::new(state.tree(space), range, direction)))
    }
}

impl View for Snapshot {
    fn moment(&self) -> Stamp {
        self.state.newest
    }

    fn is_fixed(&self) -> bool {
        true
    }

    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.state.get(space, key).map(|value| &**value);
        value.into_iter().for_each(visit);
        Ok(value.is_some())
    }

    fn get_many<'r>(&'r self, space: Space, keys: &[&[u8]]) -> Result<Box<dyn Values + 'r>> {
        Ok(Box::new(self.state.get_many(space, keys)))
    }

    fn cursor<'r>(
        &'r self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'r>> {
        Ok(Box::new(MemoryCursor::new(self.state.tree(space), range, direction)))
    }
}

impl MemoryCursor {
    pub(crate) fn new(tree: &Tree, range: &KeyRange, direction: Direction) -> Self {
        let position = Position::BeforeStart;
        MemoryCursor { tree: tree.clone(), range: range.clone(), direction, position }
    }

    /// Moves to `position` if it is in the range, otherwise to the end.
    fn move_to(&mut self, place: Option<EntryPosition>) -> bool {
        self.position = match place {
            Some(place) if self.contains(place.key()) => Position::On(place),
            _ => Position::AfterEnd,
        };
        matches!(self.position, Position::On(_))
    }

    fn contains(&self, key: &[u8]) -> bool {
        *self.range.start <= *key && *key < *self.range.end
    }

    fn place(&self) -> &EntryPosition {
        match &self.position {
            Position::On(place) => place,
            _ => panic!("the cursor stands on no key"),
        }
    }
}

impl Cursor for MemoryCursor {
    fn advance(&mut self) -> Result<bool> {
        let place = match std::mem::replace(&mut self.position, Position::AfterEnd) {
            Position::AfterEnd => None,
            Position::BeforeStart => match self.direction {
                Direction::Forward => self.tree.at_or_above(&self.range.start, Ordering::Equal),
                Direction::Backward => self.tree.at_or_below(&self.range.end, Ordering::Less),
            },
            Position::On(mut place) => match self.direction {
                Direction::Forward if place.step_up() => Some(place),
                Direction::Backward if place.step_down() => Some(place),
                Direction::Forward => self.tree.at_or_above(place.key(), Ordering::Greater),
                Direction::Backward => self.tree.at_or_below(place.key(), Ordering::Less),
            },
        };
        Ok(self.move_to(place))
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let place = match self.direction {
            Direction::Forward => {
                self.tree.at_or_above(key.max(self.range.start.as_slice()), Ordering::Equal)
            }
            Direction::Backward if *key >= *self.range.end => {
                self.tree.at_or_below(&self.range.end, Ordering::Less)
            }
            Direction::Backward => self.tree.at_or_below(key, Ordering::Equal),
        };
        Ok(self.move_to(place))
    }

    fn is_on(&self) -> bool {
        matches!(self.position, Position::On(_))
    }

    fn key(&self) -> &[u8] {
        self.place().key()
    }

    fn value(&self) -> &[u8] {
        self.place().value()
    }
}

impl Txn for MemoryTxn<'_> {
    fn view(&self) -> &dyn View {
        self.since.unwrap_or(self.store)
    }

    fn guard_within(&mut self, keys: &[(Space, &[u8])], timeout: Duration) -> Result<()> {
        self.held.take(keys, timeout)?;
        match self.since {
            Some(view) => self.store.check_unchanged(keys, view),
            None => Ok(()),
        }
    }

    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.size += key.len() + value.len();
        self.writes.push(Write::Put(space, key.into(), value.into()));
    }

    fn delete(&mut self, space: Space, key: &[u8]) {
        self.size += key.len();
        self.writes.push(Write::Delete(space, key.into()));
    }

    fn clear_range(&mut self, space: Space, range: &KeyRange) {
        self.size += range.start.len() + range.end.len();
        self.writes.push(Write::Clear(space, range.clone()));
    }

    fn add(&mut self, key: &[u8], delta: i64) {
        self.size += key.len() + size_of::<i64>();
        self.writes.push(Write::Add(key.into(), delta));
    }

    fn size(&self) -> usize {
        self.size
    }

    fn commit(self: Box<Self>) -> Result<Stamp> {
        let MemoryTxn { store, held, writes, size, .. } = *self;
        if size > store.caps.txn_bytes_max {
            return Err(Error::TooLarge);
        }
        let stamp = store.write(|state| writes.into_iter().for_each(|write| state.apply(write)));
        drop(held);
        stamp
    }
}

impl Store for Memory {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn view(self: Arc<Self>) -> Result<Arc<dyn View>> {
        Ok(Arc::new(self.snapshot()?))
    }

    fn begin(&self) -> Box<dyn Txn + '_> {
        Box::new(self.begin_with(None))
    }

    fn begin_since<'s>(&'s self, view: &'s dyn View) -> Box<dyn Txn + 's> {
        Box::new(self.begin_with(Some(view)))
    }

    fn sync(&self, _stamp: Stamp) -> Result<()> {
        Ok(())
    }

    fn on_sync(&self, _stamp: Stamp, done: Box<dyn FnOnce(Result<()>) + Send>) {
        done(Ok(()));
    }

    fn ingest(
        &self,
        space: Space,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let mut entries: Vec<(Bytes, Bytes)> = Vec::new();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value)? {
            assert!(entries.last().is_none_or(|(last, _)| **last < *key), "ingested keys ascend");
            entries.push((Bytes::from(key.as_slice()), Bytes::from(value.as_slice())));
        }
        self.write(|state| {
            let tree = state.tree_mut(space);
            entries.into_iter().for_each(|(key, value)| tree.insert(key, value));
        })?;
        Ok(())
    }

    fn drop_range(&self, space: Space, range: &KeyRange) -> Result<()> {
        self.write(|state| state.tree_mut(space).clear(&range.start, &range.end))?;
        Ok(())
    }

    fn compact(&self, _: Space, _: &KeyRange, progress: &mut dyn FnMut() -> bool) -> Result<()> {
        progress();
        self.state.read().check_open()
    }

    fn range_stats(&self, space: Space, range: &KeyRange) -> Result<RangeStats> {
        let weight = weight_of(&self.snapshot()?, space, range);
        Ok(RangeStats { keys: weight.keys, disk_bytes: weight.bytes })
    }

    fn split_points(&self, space: Space, range: &KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
        let view = self.snapshot()?;
        let tree = view.state.tree(space);
        let keys = weight_of(&view, space, range).keys;
        let parts = keys.min(parts as u64);
        let first = tree.weight_below(&range.start).keys;
        let ranks = (1..parts).map(|part| first + keys * part / parts);
        Ok(ranks.filter_map(|rank| tree.key_of_rank(rank)).map(|key| key.to_vec()).collect())
    }

    fn statistics(&self) -> Vec<(String, i64)> {
        let state = self.state.read();
        let mut rows: Vec<_> =
            self.latches.statistics().map(|(name, value)| (name.to_owned(), value)).into();
        rows.push(("transactions.commits".to_owned(), state.newest.version as i64));
        for space in Space::ALL {
            let name = format!("{space:?}").to_lowercase();
            let weight = state.tree(space).weight();
            rows.push((format!("{name}.keys"), weight.keys as i64));
            rows.push((format!("{name}.bytes"), weight.bytes as i64));
        }
        rows
    }

    fn check(&self) -> Result<Vec<String>> {
        let view = self.snapshot()?;
        Ok(view.state.trees.iter().flat_map(Tree::check).collect())
    }

    fn close(&self) -> Result<()> {
        self.state.write().is_closed = true;
        Ok(())
    }
}

/// The weight of a range, which may be empty or inverted.
fn weight_of(view: &Snapshot, space: Space, range: &KeyRange) -> Weight {
    if range.start >= range.end {
        return Weight::default();
    }
    let tree = view.state.tree(space);
    tree.weight_below(&range.end).minus(tree.weight_below(&range.start))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::contract;

    fn open(_folder: &Path) -> Arc<dyn Store> {
        Arc::new(Memory::new())
    }

    macro_rules! promises {
        ($($promise:ident)*) => { $(#[test] fn $promise() { contract::$promise(&open); })* };
    }

    crate::for_each_promise!(promises);
}
