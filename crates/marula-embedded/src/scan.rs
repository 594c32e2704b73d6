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
    /// Where the key and the value lie that the iterator stands on, asked once for each: asking
    /// costs a call through two layers of RocksDB. Nothing where `position` is not
    /// [`Position::On`].
    key: *const [u8],
    value: *const [u8],
    /// Whether entries are large and most often lie behind one another, so that the next is worth
    /// fetching ahead.
    fetches_ahead: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Before,
    On,
    Behind,
}

const NOTHING: &[u8] = &[];

/// A cursor over a range that holds nothing, whatever is stored. RocksDB's bounds must not cross.
struct EmptyCursor;

/// Opens a cursor. `options` name a snapshot or are the defaults; they get the bounds.
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
        position: Position::Before,
        key: NOTHING,
        value: NOTHING,
        fetches_ahead: space == Space::Records && direction == Direction::Forward,
    })
}

impl EmbeddedCursor<'_> {
    /// Finds out where the last move has led.
    #[inline]
    fn settle(&mut self) -> Result<bool> {
        match self.iterator.item() {
            Some((key, value)) => {
                (self.key, self.value) = (key, value);
                self.position = Position::On;
                Ok(true)
            }
            None => self.settle_behind(),
        }
    }

    /// The last move has led nowhere, which may be for an error.
    #[cold]
    fn settle_behind(&mut self) -> Result<bool> {
        (self.key, self.value) = (NOTHING, NOTHING);
        self.position = Position::Behind;
        self.iterator.status().map_err(from_rocksdb)?;
        Ok(false)
    }
}

impl Cursor for EmbeddedCursor<'_> {
    fn advance(&mut self) -> Result<bool> {
        match (self.position, self.direction) {
            // Where an error has led here, it is told again.
            (Position::Behind, _) => return self.settle_behind(),
            (Position::On, Direction::Forward) => self.iterator.next(),
            (Position::On, Direction::Backward) => self.iterator.prev(),
            (Position::Before, Direction::Forward) => self.iterator.seek(&self.range.start),
            (Position::Before, Direction::Backward) => self.iterator.seek_to_last(),
        }
        let is_on = self.settle()?;
        if is_on && self.fetches_ahead {
            prefetch::behind(self.value());
        }
        Ok(is_on)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        match self.direction {
            Direction::Forward => self.iterator.seek(key.max(self.range.start.as_slice())),
            Direction::Backward if *key >= *self.range.end => self.iterator.seek_to_last(),
            Direction::Backward => self.iterator.seek_for_prev(key),
        }
        self.settle()
    }

    fn pass(&mut self, count: u64) -> Result<u64> {
        let mut passed = 0;
        if self.position == Position::Before {
            if count == 0 || !self.advance()? {
                return Ok(0);
            }
            passed = 1;
        }
        if self.position == Position::Behind {
            self.settle_behind()?;
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
        self.settle()?;
        Ok(passed)
    }

    fn is_on(&self) -> bool {
        self.position == Position::On
    }

    #[allow(unsafe_code)]
    fn key(&self) -> &[u8] {
        assert!(self.position == Position::On, "the cursor stands on a key");
        // SAFETY: the iterator showed these bytes when it came here, and they stay as they are
        // until it moves; it moves only through `&mut self`, which then settles anew, and it lives
        // as long as the cursor.
        unsafe { &*self.key }
    }

    #[allow(unsafe_code)]
    fn value(&self) -> &[u8] {
        assert!(self.position == Position::On, "the cursor stands on a value");
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
        panic!("the cursor stands on no key")
    }

    fn value(&self) -> &[u8] {
        panic!("the cursor stands on no value")
    }
}
