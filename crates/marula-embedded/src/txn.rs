//! Transactions: a write batch, the latches of the guarded keys, and one write to RocksDB.
//!
//! Each thread keeps a few emptied batches, so that a small transaction allocates only its box.

use std::cell::RefCell;
use std::time::Duration;

use marula_storage::latch::HeldStripes;
use marula_storage::{Error, KeyRange, Result, Space, Stamp, Store, Txn, View};
use rust_rocksdb::WriteBatch;

use crate::engine::Embedded;
use crate::error::{closed, from_rocksdb};
use crate::gaps::Writing;
use crate::record_cache::RecordName;

/// The size of an empty batch: its sequence number and count.
const BATCH_HEADER_BYTES: usize = 12;

/// The maximum size of a batch that is kept, so that a thread does not hold much memory forever. A
/// thousand documents of a bulk load fit; growing a new batch for them each time would copy them
/// twice.
const KEPT_BATCH_BYTES_MAX: usize = 4 << 20;

/// The maximum number of batches that a thread keeps; more would serve only threads with many open
/// transactions.
const KEPT_BATCHES_MAX: usize = 2;

thread_local! {
    static BATCHES: RefCell<Vec<(WriteBatch, Vec<RecordName>)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct EmbeddedTxn<'s> {
    store: &'s Embedded,
    /// The view of a transaction that began since one; `None` means the newest state.
    since: Option<&'s dyn View>,
    batch: WriteBatch,
    /// The written records that the cache may hold, and the cleared ranges of records.
    names: Vec<RecordName>,
    cleared: Vec<KeyRange>,
    /// Since the first key that is put. Declared after the batch, as the latches.
    writing: Option<Writing<'s>>,
    // Declared after the batch: the latches are released after the write.
    held: HeldStripes<'s>,
}

impl<'s> EmbeddedTxn<'s> {
    pub(crate) fn new(
        store: &'s Embedded,
        since: Option<&'s dyn View>,
        held: HeldStripes<'s>,
    ) -> Self {
        let kept = BATCHES.with_borrow_mut(Vec::pop);
        let (batch, names) =
            kept.unwrap_or_else(|| (WriteBatch::with_capacity_bytes(4096), Vec::new()));
        EmbeddedTxn { store, since, batch, names, cleared: Vec::new(), writing: None, held }
    }

    /// Records that a key is written.
    #[inline]
    fn note_write(&mut self, space: Space, key: &[u8]) {
        if space == Space::Records {
            self.names.extend(RecordName::of(key));
        }
    }
}

impl Txn for EmbeddedTxn<'_> {
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
        self.note_write(space, key);
        let gaps = &self.store.engine.gaps;
        self.writing.get_or_insert_with(|| gaps.enter());
        gaps.fill(space, key);
        self.batch.put_cf(self.store.engine.column(space), key, value);
    }

    fn change(&mut self, space: Space, key: &[u8], value: &[u8], delta: &[u8]) {
        match space {
            Space::Records => {
                self.note_write(space, key);
                self.batch.merge_cf(self.store.engine.column(space), key, delta);
            }
            Space::Catalog | Space::Indexes => self.put(space, key, value),
        }
    }

    fn delete(&mut self, space: Space, key: &[u8]) {
        self.note_write(space, key);
        self.batch.delete_cf(self.store.engine.column(space), key);
    }

    fn clear_range(&mut self, space: Space, range: &KeyRange) {
        // RocksDB reports an inverted range as an error.
        if range.start < range.end {
            if space == Space::Records {
                self.cleared.push(range.clone());
            }
            self.batch.delete_range_cf(self.store.engine.column(space), &range.start, &range.end);
        }
    }

    fn add(&mut self, key: &[u8], delta: i64) {
        self.batch.merge_cf(self.store.engine.column(Space::Catalog), key, delta.to_le_bytes());
    }

    fn size(&self) -> usize {
        self.batch.size_in_bytes().saturating_sub(BATCH_HEADER_BYTES)
    }

    fn commit(mut self: Box<Self>) -> Result<Stamp> {
        if self.store.is_closed() {
            return Err(closed());
        }
        if self.size() > self.store.caps.txn_bytes_max {
            return Err(Error::TooLarge);
        }
        let engine = &self.store.engine;
        if let Some(clock) = &engine.clock
            && !self.batch.is_empty()
        {
            clock.mark(&mut self.batch);
        }
        let hold = engine.records.hold_for_write(&self.names, &self.cleared);
        engine.db.write_opt(&self.batch, &engine.write_options).map_err(|error| {
            self.store.sync.wake_to_resume();
            from_rocksdb(error)
        })?;
        drop(hold);
        // At least this batch's number, at most that of the newest visible commit.
        Ok(Stamp::of_version(engine.db.latest_sequence_number()))
    }
}

impl Drop for EmbeddedTxn<'_> {
    fn drop(&mut self) {
        if self.batch.size_in_bytes() > KEPT_BATCH_BYTES_MAX {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let mut names = std::mem::take(&mut self.names);
        names.clear();
        BATCHES.with_borrow_mut(|batches| {
            if batches.len() < KEPT_BATCHES_MAX {
                batches.push((batch, names));
            }
        });
    }
}
