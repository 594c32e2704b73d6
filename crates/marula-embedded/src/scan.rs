//! Cursors.
//!
//! A cursor is a RocksDB iterator bounded to its range; key and value stay in the pinned block.

use marula_storage::{Cursor, Direction, KeyRange, Result, Space};
use rust_rocksdb::{DBRawIterator, ReadOptions};

use crate::engine::Engine;
use crate::error::from_rocksdb;
use crate::prefetch;

/// A cursor over one range.
pub(crate) struct EmbeddedCursor<'r> {
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

const NOTHING: &[u8] = &[];

/// A cursor over an empty range. RocksDB's bounds must not cross.
struct EmptyCursor;

/// Opens a cursor. `options` name a snapshot or are the defaults; the bounds are added to them.
pub(crate) fn open_cursor<'r>(
    engine: &'r Engine,
    mut options: ReadOptions,
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
    Box::new(EmbeddedCursor {
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
    /// Reads the position after a move.
    #[inline]
    fn update_position(&mut self) -> Result<bool> {
        match self.iterator.item() {
            Some((key, value)) => {
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
            (Position::BeforeStart, Direction::Forward) => self.iterator.seek(&self.range.start),
            (Position::BeforeStart, Direction::Backward) => self.iterator.seek_to_last(),
        }
        let is_on = self.update_position()?;
        if is_on && self.fetches_ahead {
            prefetch::after(self.value());
        }
        Ok(is_on)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        match self.direction {
            Direction::Forward => self.iterator.seek(key.max(self.range.start.as_slice())),
            Direction::Backward if *key >= *self.range.end => self.iterator.seek_to_last(),
            Direction::Backward => self.iterator.seek_for_prev(key),
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
