//! A fixed view with uncommitted writes on top: the reads and writes of a client's transaction.
//!
//! ```text
//!    OverlayCursor ──merges──┬──► own writes   Tree per space, tombstones for removals
//!                            └──► base view    the store at the transaction's moment
//!    statement: buffers writes ──commit──► own writes ──write_into──► one Txn of the store
//! ```
//!
//! The writes are held in ordered maps, a removal as a *tombstone*; a cursor merges them with the
//! base view. A statement buffers its writes in a transaction of its own ([`Overlay::begin`]),
//! which adds them to the maps when it commits and discards them otherwise. At the end all writes
//! go into one transaction of the store: [`Overlay::write_into`].

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::RwLock;

use crate::delta;
use crate::memory::MemoryCursor;
use crate::memory::tree::{Bytes, Tree};
use crate::store::{Cursor, Direction, KeyRange, Looked, Result, Space, Stamp, Txn, Values, View};

/// The value of a removed key, known by its address: a value may have any bytes.
static TOMBSTONE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(&b"tombstone"[..]));

fn tombstone() -> Bytes {
    TOMBSTONE.clone()
}

/// The value of a written key; `None` means removed.
fn present(value: &[u8]) -> Option<&[u8]> {
    (!std::ptr::eq(value.as_ptr(), TOMBSTONE.as_ptr())).then_some(value)
}

/// Claims keys for a client's transaction.
pub trait Claims: Sync {
    /// Claims `keys` until the transaction ends, as [`Txn::guard_within`] does for a transaction
    /// that began since a view.
    fn claim(&self, keys: &[(Space, &[u8])], timeout: Duration) -> Result<()>;
}

/// A fixed view with uncommitted writes on top.
pub struct Overlay {
    base: Arc<dyn View>,
    own: RwLock<Own>,
}

/// The uncommitted writes.
#[derive(Clone, Default)]
struct Own {
    trees: [Tree; Space::ALL.len()],
    added: BTreeMap<Vec<u8>, i64>,
    /// The number of committed statements.
    changes: u16,
    bytes: usize,
}

impl Overlay {
    /// Creates an overlay without writes over `base`, a fixed view.
    pub fn new(base: Arc<dyn View>) -> Self {
        assert!(base.is_fixed(), "the base view is fixed");
        Overlay { base, own: RwLock::default() }
    }

    /// The base view.
    pub fn base(&self) -> &dyn View {
        &*self.base
    }

    /// Begins a statement; its guards go to `claims`.
    pub fn begin<'o>(&'o self, claims: &'o dyn Claims) -> Box<dyn Txn + 'o> {
        Box::new(Statement { overlay: self, claims, writes: Vec::new(), size: 0 })
    }

    /// Returns whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        let own = self.own.read();
        own.added.is_empty() && own.trees.iter().all(|tree| tree.weight().keys == 0)
    }

    /// Bytes of all keys and values written, including values that were overwritten later.
    pub fn bytes(&self) -> usize {
        self.own.read().bytes
    }

    /// Adds all writes to `txn`, in key order. With `keeps_deltas`, those that change little are
    /// deltas from the base: written keys have been claimed, so their values there are the newest.
    pub fn write_into(&self, txn: &mut dyn Txn, keeps_deltas: bool) {
        let mut delta = Vec::new();
        for space in Space::ALL {
            let has_deltas = keeps_deltas && space == Space::Records;
            let mut put = |key: &[u8], value: Option<&[u8]>| {
                match value {
                    None => txn.delete(space, key),
                    Some(value) if has_deltas && self.is_small_change(key, value, &mut delta) => {
                        txn.change(space, key, value, &delta);
                    }
                    Some(value) => txn.put(space, key, value),
                }
                Ok(())
            };
            self.for_each(space, &mut put).expect("putting a write does not fail");
        }
        for (key, delta) in &self.own.read().added {
            txn.add(key, *delta);
        }
    }

    /// Computes the delta of a record from the base's; returns whether it is worth keeping.
    fn is_small_change(&self, key: &[u8], value: &[u8], delta: &mut Vec<u8>) -> bool {
        let mut is_small = false;
        let mut compare = |old: &[u8]| is_small = delta::between(old, value, delta);
        // A record that cannot be read is written as a whole.
        let is_read =
            delta::is_large(value) && self.base.get(Space::Records, key, &mut compare).is_ok();
        is_read && is_small
    }

    /// Visits every written key of a space in order, with its value; `None` means removed.
    pub fn for_each(
        &self,
        space: Space,
        visit: &mut dyn FnMut(&[u8], Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let own = self.own.read();
        let tree = &own.trees[space as usize];
        let mut next = tree.at_or_above(&[], Ordering::Equal);
        while let Some(mut place) = next {
            visit(place.key(), present(place.value()))?;
            while place.step_up() {
                visit(place.key(), present(place.value()))?;
            }
            next = tree.at_or_above(place.key(), Ordering::Greater);
        }
        Ok(())
    }

    fn look(&self, space: Space, key: &[u8]) -> Option<Bytes> {
        self.own.read().trees[space as usize].get(key).cloned()
    }
}

impl View for Overlay {
    /// The base's version, and a number that each statement changes: it shows that the view has
    /// moved, but its order among commits means nothing.
    fn moment(&self) -> Stamp {
        Stamp { order: self.own.read_recursive().changes, ..self.base.moment() }
    }

    fn is_far(&self) -> bool {
        self.base.is_far()
    }

    fn is_fixed(&self) -> bool {
        // The view changes only by its own statements, never during a read.
        true
    }

    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(own) = self.look(space, key) else { return self.base.get(space, key, visit) };
        let own = present(&own);
        own.into_iter().for_each(visit);
        Ok(own.is_some())
    }

    fn get_many<'r>(&'r self, space: Space, keys: &[&[u8]]) -> Result<Box<dyn Values + 'r>> {
        let mut below = Vec::new();
        let mut places = Vec::with_capacity(keys.len());
        for &key in keys {
            places.push(match self.look(space, key) {
                Some(own) => Found::Own(own),
                None => {
                    below.push(key);
                    Found::Below(below.len() - 1)
                }
            });
        }
        let below = self.base.get_many(space, &below)?;
        Ok(Box::new(OverlayValues { below, places }))
    }

    fn cursor<'r>(
        &'r self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'r>> {
        let own = MemoryCursor::new(&self.own.read().trees[space as usize], range, direction);
        let below = self.base.cursor(space, range, direction)?;
        Ok(Box::new(OverlayCursor {
            below,
            is_below_on: false,
            own,
            is_own_on: false,
            direction,
            position: MergePosition::BeforeStart,
        }))
    }
}

/// Values of several keys.
struct OverlayValues<'r> {
    below: Box<dyn Values + 'r>,
    places: Vec<Found>,
}

/// Where the value of a key is found.
enum Found {
    Own(Bytes),
    Below(usize),
}

impl Values for OverlayValues<'_> {
    fn get(&self, place: usize) -> Looked<'_> {
        match &self.places[place] {
            Found::Below(place) => self.below.get(*place),
            Found::Own(value) => present(value).map_or(Looked::Absent, Looked::Found),
        }
    }
}

/// Merges the own writes and the base view. Where both have a key, the own write wins.
struct OverlayCursor<'r> {
    below: Box<dyn Cursor + 'r>,
    is_below_on: bool,
    own: MemoryCursor,
    is_own_on: bool,
    direction: Direction,
    position: MergePosition,
}

/// The position of the merged cursor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergePosition {
    BeforeStart,
    Below,
    Own,
    AfterEnd,
}

impl OverlayCursor<'_> {
    /// Selects the next entry of the two cursors and skips tombstones; returns whether there is
    /// one.
    fn select_next(&mut self) -> Result<bool> {
        loop {
            let order = match (self.is_below_on, self.is_own_on) {
                (false, false) => {
                    self.position = MergePosition::AfterEnd;
                    return Ok(false);
                }
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (true, true) => match self.direction {
                    Direction::Forward => self.below.key().cmp(self.own.key()),
                    Direction::Backward => self.own.key().cmp(self.below.key()),
                },
            };
            if order == Ordering::Less {
                self.position = MergePosition::Below;
                return Ok(true);
            }
            if order == Ordering::Equal {
                // If this fails, the next move repeats it and fails again.
                self.position = MergePosition::Below;
                self.is_below_on = self.below.advance()?;
            }
            if present(self.own.value()).is_some() {
                self.position = MergePosition::Own;
                return Ok(true);
            }
            self.is_own_on = self.own.advance()?;
        }
    }
}

impl Cursor for OverlayCursor<'_> {
    fn advance(&mut self) -> Result<bool> {
        match self.position {
            MergePosition::BeforeStart => {
                self.is_below_on = self.below.advance()?;
                self.is_own_on = self.own.advance()?;
            }
            MergePosition::Below => self.is_below_on = self.below.advance()?,
            MergePosition::Own => self.is_own_on = self.own.advance()?,
            MergePosition::AfterEnd => return Ok(false),
        }
        self.select_next()
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.position = MergePosition::BeforeStart;
        self.is_below_on = self.below.seek(key)?;
        self.is_own_on = self.own.seek(key)?;
        self.select_next()
    }

    fn is_on(&self) -> bool {
        match self.position {
            MergePosition::Below => self.below.is_on(),
            MergePosition::Own => true,
            MergePosition::BeforeStart | MergePosition::AfterEnd => false,
        }
    }

    fn key(&self) -> &[u8] {
        match self.position {
            MergePosition::Own => self.own.key(),
            _ => self.below.key(),
        }
    }

    fn value(&self) -> &[u8] {
        match self.position {
            MergePosition::Own => self.own.value(),
            _ => self.below.value(),
        }
    }
}

/// The writes of one statement until it commits.
struct Statement<'o> {
    overlay: &'o Overlay,
    claims: &'o dyn Claims,
    writes: Vec<Write>,
    size: usize,
}

enum Write {
    Set(Space, Bytes, Bytes),
    Add(Vec<u8>, i64),
    Clear(Space, KeyRange),
}

impl Txn for Statement<'_> {
    fn view(&self) -> &dyn View {
        self.overlay
    }

    fn guard_within(&mut self, keys: &[(Space, &[u8])], timeout: Duration) -> Result<()> {
        self.claims.claim(keys, timeout)
    }

    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.size += key.len() + value.len();
        self.writes.push(Write::Set(space, key.into(), value.into()));
    }

    fn delete(&mut self, space: Space, key: &[u8]) {
        self.size += key.len();
        self.writes.push(Write::Set(space, key.into(), tombstone()));
    }

    fn clear_range(&mut self, space: Space, range: &KeyRange) {
        self.size += range.start.len() + range.end.len();
        self.writes.push(Write::Clear(space, range.clone()));
    }

    fn add(&mut self, key: &[u8], delta: i64) {
        self.size += key.len() + size_of::<i64>();
        self.writes.push(Write::Add(key.to_vec(), delta));
    }

    fn size(&self) -> usize {
        self.size
    }

    fn commit(self: Box<Self>) -> Result<Stamp> {
        let Statement { overlay, writes, size, .. } = *self;
        let mut own = overlay.own.write();
        for write in writes {
            match write {
                Write::Set(space, key, value) => own.trees[space as usize].insert(key, value),
                Write::Add(key, delta) => {
                    let sum = own.added.entry(key).or_default();
                    *sum = sum.wrapping_add(delta);
                }
                Write::Clear(space, range) => {
                    drop(own);
                    let mut keys = Vec::new();
                    let mut cursor = overlay.cursor(space, &range, Direction::Forward)?;
                    while cursor.advance()? {
                        keys.push(Bytes::from(cursor.key()));
                    }
                    drop(cursor);
                    own = overlay.own.write();
                    let tree = &mut own.trees[space as usize];
                    keys.into_iter().for_each(|key| tree.insert(key, tombstone()));
                }
            }
        }
        own.changes = own.changes.wrapping_add(1);
        own.bytes += size;
        drop(own);
        Ok(overlay.moment())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::store::Store;

    struct All;

    impl Claims for All {
        fn claim(&self, _: &[(Space, &[u8])], _: Duration) -> Result<()> {
            Ok(())
        }
    }

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    fn write(txn: &mut dyn Txn, state: &mut u64) {
        let key = |state: &mut u64| [b'k', (random(state) % 40) as u8];
        match random(state) % 5 {
            0 | 1 => txn.put(Space::Records, &key(state), &random(state).to_le_bytes()),
            2 => txn.delete(Space::Records, &key(state)),
            3 => txn.put(Space::Records, &key(state), b""),
            _ => txn.add(b"count", (random(state) % 9) as i64 - 4),
        }
    }

    fn walk(view: &dyn View, range: &KeyRange, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut cursor = view.cursor(Space::Records, range, direction).expect("a cursor opens");
        let mut found = Vec::new();
        while cursor.advance().expect("a cursor advances") {
            let (key, value) = cursor.entry();
            found.push((key.to_vec(), value.to_vec()));
        }
        assert!(!cursor.advance().expect("a cursor advances") && !cursor.is_on());
        found
    }

    fn compare(overlay: &dyn View, model: &dyn View, state: &mut u64) {
        let from = (random(state) % 40) as u8;
        let all = KeyRange { start: vec![b'k'], end: vec![b'l'] };
        let part = KeyRange { start: vec![b'k', from], end: vec![b'k', from.saturating_add(15)] };
        for direction in [Direction::Forward, Direction::Backward] {
            for range in [&all, &part] {
                assert_eq!(walk(overlay, range, direction), walk(model, range, direction));
                let mut cursors = [overlay, model].map(|view| {
                    view.cursor(Space::Records, range, direction).expect("a cursor opens")
                });
                for _ in 0..12 {
                    let target = [b'k', (random(state) % 42) as u8];
                    let seeks = random(state).is_multiple_of(3);
                    let position = cursors.each_mut().map(|cursor| {
                        let is_on = if seeks { cursor.seek(&target) } else { cursor.advance() };
                        is_on.expect("it moves").then(|| cursor.entry().0.to_vec())
                    });
                    assert_eq!(position[0], position[1]);
                }
            }
        }
        let keys: Vec<[u8; 2]> = (0..42).map(|n| [b'k', n]).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let both =
            [overlay, model].map(|view| view.get_many(Space::Records, &keys).expect("it reads"));
        for (place, key) in keys.iter().enumerate() {
            assert_eq!(both[0].get(place), both[1].get(place));
            let one = [overlay, model].map(|view| {
                let mut value = None;
                let mut see = |found: &[u8]| value = Some(found.to_vec());
                view.get(Space::Records, key, &mut see).expect("it reads");
                value
            });
            assert_eq!(one[0], one[1]);
        }
    }

    #[test]
    fn an_overlay_shows_what_a_store_would_and_writes_the_same_in_the_end() {
        for seed in 1_u64..30 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let (store, model) = (Arc::new(Memory::new()), Arc::new(Memory::new()));
            for _ in 0..30 {
                let mut again = state;
                for (store, state) in [(&store, &mut state), (&model, &mut again)] {
                    let mut txn = store.begin();
                    write(&mut *txn, state);
                    txn.commit().expect("it commits");
                }
            }
            let overlay = Overlay::new(store.clone().view().expect("a view opens"));
            for _ in 0..12 {
                let before = overlay.moment();
                let count = random(&mut state) % 5;
                let mut again = state;
                let mut statement = overlay.begin(&All);
                let mut txn = model.begin();
                for _ in 0..count {
                    write(&mut *statement, &mut state);
                    write(&mut *txn, &mut again);
                }
                // A statement is invisible until it commits; one that is dropped leaves nothing.
                if random(&mut state).is_multiple_of(4) {
                    drop(statement);
                    drop(txn);
                    assert!(!overlay.has_moved(before));
                } else {
                    statement.commit().expect("it joins");
                    txn.commit().expect("it commits");
                    assert!(overlay.has_moved(before));
                }
                compare(&overlay, &*model, &mut state);
            }
            let mut txn = store.begin();
            overlay.write_into(&mut *txn, true);
            txn.commit().expect("it commits");
            compare(&*store, &*model, &mut state);
            let count = |view: &dyn View| {
                let mut value = None;
                let mut see = |found: &[u8]| value = Some(found.to_vec());
                view.get(Space::Catalog, b"count", &mut see).expect("it reads");
                value
            };
            assert_eq!(count(&*store), count(&*model));
        }
    }
}
