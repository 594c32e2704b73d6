//! Cursors.
//!
//! A cursor is a RocksDB iterator bounded to its range; key and value stay in the pinned block. It
//! steps over [gaps](crate::gaps), and a first step that takes long finds new ones.

use std::time::{Duration, Instant};

use marula_storage::{Cursor, Direction, KeyRange, Result, Space};
use rust_rocksdb::{DBRawIterator, ReadOptions};

use crate::deltas;
use crate::engine::Engine;
use crate::error::from_rocksdb;
use crate::prefetch;

/// The time of a first step that probably walked over many tombstones.
const SLOW_STEP: Duration = Duration::from_micros(20);

/// The time of the same step, repeated without waiting for the disk, that certainly did.
const SLOW_STEP_AGAIN: Duration = Duration::from_micros(10);

/// The sequence number of a view for which no gap counts.
pub(crate) const BEFORE_ALL: u64 = 0;

/// A cursor over one range.
pub(crate) struct EmbeddedCursor<'r> {
    engine: &'r Engine,
    space: Space,
    /// The sequence number of the view, or one before it.
    moment: u64,
    iterator: DBRawIterator<'r>,
    range: KeyRange,
    direction: Direction,
    position: Position,
    /// The current key and value of the iterator, read once per move: each read calls through two
    /// layers of RocksDB. Empty unless `position` is [`Position::On`].
    key: *const [u8],
    value: *const [u8],
    /// Whether to prefetch the next entry: entries are large and usually adjacent.
    fetches_ahead: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    BeforeStart,
    On,
    AfterEnd,
}

/// Moves to the last entry before `key`.
fn move_before(iterator: &mut DBRawIterator<'_>, key: &[u8]) {
    iterator.seek_for_prev(key);
    if iterator.key() == Some(key) {
        iterator.prev();
    }
}

const NOTHING: &[u8] = &[];

/// A cursor over an empty range. RocksDB's bounds must not cross.
struct EmptyCursor;

/// Opens a cursor over the newest state.
pub(crate) fn open_newest<'r>(
    engine: &'r Engine,
    space: Space,
    range: &KeyRange,
    direction: Direction,
) -> Box<dyn Cursor + 'r> {
    let moment = engine.db.latest_sequence_number();
    open_cursor(engine, (moment, ReadOptions::default()), space, range, direction)
}

/// Opens a cursor over a view: a sequence number that is not later, and options that name its
/// snapshot or are the defaults; the bounds are added to them.
pub(crate) fn open_cursor<'r>(
    engine: &'r Engine,
    (moment, mut options): (u64, ReadOptions),
    space: Space,
    range: &KeyRange,
    direction: Direction,
) -> Box<dyn Cursor + 'r> {
    if range.start >= range.end {
        return Box::new(EmptyCursor);
    }
    options.set_iterate_lower_bound(range.start.as_slice());
    options.set_iterate_upper_bound(range.end.as_slice());
    let iterator = engine.db.raw_iterator_cf_opt(engine.column(space), options);
    // Additions to counters put keys that no gap takes account of.
    let moment = if space == Space::Catalog { BEFORE_ALL } else { moment };
    Box::new(EmbeddedCursor {
        engine,
        space,
        moment,
        iterator,
        range: range.clone(),
        direction,
        position: Position::BeforeStart,
        key: NOTHING,
        value: NOTHING,
        fetches_ahead: space == Space::Records && direction == Direction::Forward,
    })
}

impl EmbeddedCursor<'_> {
    /// Moves to the end of the range at which the cursor begins.
    fn seek_first(&mut self) {
        match self.direction {
            Direction::Forward => {
                let start = std::mem::take(&mut self.range.start);
                self.seek_from(&start);
                self.range.start = start;
            }
            Direction::Backward => {
                let end = std::mem::take(&mut self.range.end);
                self.seek_before(&end);
                self.range.end = end;
            }
        }
    }

    /// Moves to the first entry at or after `key`.
    fn seek_from(&mut self, key: &[u8]) {
        let known = self.engine.gaps.around(self.space, key, self.moment);
        let from = known.as_ref().map_or(key, |known| &known.end);
        let is_slow = self.is_slow(|iterator| iterator.seek(from));
        debug_assert!(self.agrees(|iterator| iterator.seek(key)), "a gap has no keys");
        if is_slow {
            let start = known.map_or_else(|| key.to_vec(), |known| known.start);
            let end = self.iterator.key().unwrap_or(&self.range.end).to_vec();
            self.note_empty(KeyRange { start, end });
        }
    }

    /// Moves to the last entry before `key`.
    fn seek_before(&mut self, key: &[u8]) {
        let known = self.engine.gaps.before(self.space, key, self.moment);
        let before = known.as_ref().map_or(key, |known| &known.start);
        let is_slow = self.is_slow(|iterator| move_before(iterator, before));
        debug_assert!(self.agrees(|iterator| move_before(iterator, key)), "a gap has no keys");
        if is_slow {
            let end = known.map_or_else(|| key.to_vec(), |known| known.end);
            let after = |found: &[u8]| [found, &[0]].concat();
            let start = self.iterator.key().map_or_else(|| self.range.start.clone(), after);
            self.note_empty(KeyRange { start, end });
        }
    }

    /// Returns whether another step from the start leads to the same entry.
    fn agrees(&mut self, step: impl Fn(&mut DBRawIterator<'_>)) -> bool {
        let found = self.iterator.key().map(<[u8]>::to_vec);
        step(&mut self.iterator);
        self.iterator.key() == found.as_deref()
    }

    /// Returns whether a step walks over many tombstones. It is repeated if it took long: the
    /// second time it does not wait for the disk.
    #[inline]
    fn is_slow(&mut self, step: impl Fn(&mut DBRawIterator<'_>)) -> bool {
        let mut times = |limit| {
            let began = Instant::now();
            step(&mut self.iterator);
            began.elapsed() >= limit
        };
        times(SLOW_STEP) && times(SLOW_STEP_AGAIN)
    }

    /// Notes that the view has no entry in a range.
    #[cold]
    fn note_empty(&self, empty: KeyRange) {
        if self.moment != BEFORE_ALL && empty.start < empty.end && self.iterator.status().is_ok() {
            let newest = || self.engine.db.latest_sequence_number();
            self.engine.gaps.note_empty(self.space, empty, self.moment, newest);
        }
    }

    /// Reads the position after a move.
    #[inline]
    fn update_position(&mut self) -> Result<bool> {
        match self.iterator.item() {
            Some((key, value)) => {
                deltas::check_base(self.space, value)?;
                (self.key, self.value) = (key, value);
                self.position = Position::On;
                Ok(true)
            }
            None => self.update_at_end(),
        }
    }

    /// Handles a move that found no entry, possibly because of an error.
    #[cold]
    fn update_at_end(&mut self) -> Result<bool> {
        (self.key, self.value) = (NOTHING, NOTHING);
        self.position = Position::AfterEnd;
        self.iterator.status().map_err(from_rocksdb)?;
        Ok(false)
    }
}

impl Cursor for EmbeddedCursor<'_> {
    fn advance(&mut self) -> Result<bool> {
        match (self.position, self.direction) {
            // If an error led here, it is returned again.
            (Position::AfterEnd, _) => return self.update_at_end(),
            (Position::On, Direction::Forward) => self.iterator.next(),
            (Position::On, Direction::Backward) => self.iterator.prev(),
            (Position::BeforeStart, _) => self.seek_first(),
        }
        let is_on = self.update_position()?;
        if is_on && self.fetches_ahead {
            prefetch::after(self.value());
        }
        Ok(is_on)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        match self.direction {
            Direction::Forward if *key <= *self.range.start => self.seek_first(),
            Direction::Forward => self.seek_from(key),
            Direction::Backward if *key >= *self.range.end => self.seek_first(),
            Direction::Backward => self.seek_before(&[key, &[0]].concat()),
        }
        self.update_position()
    }

    fn pass(&mut self, count: u64) -> Result<u64> {
        let mut passed = 0;
        if self.position == Position::BeforeStart {
            if count == 0 || !self.advance()? {
                return Ok(0);
            }
            passed = 1;
        }
        if self.position == Position::AfterEnd {
            self.update_at_end()?;
            return Ok(passed);
        }
        while passed < count {
            match self.direction {
                Direction::Forward => self.iterator.next(),
                Direction::Backward => self.iterator.prev(),
            }
            if !self.iterator.valid() {
                break;
            }
            passed += 1;
        }
        self.update_position()?;
        Ok(passed)
    }

    fn is_on(&self) -> bool {
        self.position == Position::On
    }

    #[allow(unsafe_code)]
    fn key(&self) -> &[u8] {
        assert!(self.position == Position::On, "the cursor is on a key");
        // SAFETY: the iterator returned these bytes for its position, and they stay valid until it
        // moves; it moves only through `&mut self`, which then updates them, and it lives as long
        // as the cursor.
        unsafe { &*self.key }
    }

    #[allow(unsafe_code)]
    fn value(&self) -> &[u8] {
        assert!(self.position == Position::On, "the cursor is on a value");
        // SAFETY: as for the key.
        unsafe { &*self.value }
    }
}

impl Cursor for EmptyCursor {
    fn advance(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn seek(&mut self, _key: &[u8]) -> Result<bool> {
        Ok(false)
    }

    fn is_on(&self) -> bool {
        false
    }

    fn key(&self) -> &[u8] {
        panic!("the cursor is on no key")
    }

    fn value(&self) -> &[u8] {
        panic!("the cursor is on no value")
    }
}
