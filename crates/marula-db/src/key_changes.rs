//! How many index keys the writes of one operation have added and removed, summed up where they run.
//!
//! An operation runs on one thread. What tells of it takes the sums at its end, so that nothing is handed through every write
//! for the sake of counters.

use std::cell::Cell;
use std::ops::AddAssign;

/// Index keys that were written: added and removed. `None` where no write was of a kind that does so; an update of indexed
/// fields may do either.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct KeyChanges {
    /// Keys added.
    pub inserted: Option<u64>,
    /// Keys removed.
    pub deleted: Option<u64>,
}

impl AddAssign for KeyChanges {
    fn add_assign(&mut self, more: KeyChanges) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.inserted = sum(self.inserted, more.inserted);
        self.deleted = sum(self.deleted, more.deleted);
    }
}

thread_local! {
    static CHANGES: Cell<KeyChanges> = const { Cell::new(KeyChanges { inserted: None, deleted: None }) };
}

/// What was changed on this thread since it was last asked.
pub fn take() -> KeyChanges {
    CHANGES.take()
}

#[inline]
pub(crate) fn note(inserted: Option<u64>, deleted: Option<u64>) {
    let mut changes = CHANGES.get();
    changes += KeyChanges { inserted, deleted };
    CHANGES.set(changes);
}
