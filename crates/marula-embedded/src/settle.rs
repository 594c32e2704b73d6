//! Flushes memtables once writes have become rare.
//!
//! A lookup or a scan step in RocksDB's memtable waits for memory at each level of a skip list; in
//! a file's blocks, keys are adjacent. A store that was loaded and is now read would pay for that
//! until the next load fills the memtable. So a memtable with more than a few keys that has almost
//! stopped growing is flushed. Its log is freed too, so that a restart has little to replay.

use std::time::{Duration, Instant};

use marula_storage::Space;
use rust_rocksdb::{FlushOptions, properties};
use tracing::debug;

use crate::engine::Engine;
use crate::options::name_of;

/// The time between two checks.
const INTERVAL: Duration = Duration::from_secs(1);

/// A smaller memtable fits the processor's caches: a lookup in it is as fast as in a file.
const KEYS_MIN: u64 = 4096;

/// A memtable has settled when it grows by less than this fraction of its size between two checks.
/// Whatever the rate of writes, they then create files at most once a minute.
const GROWTH_PART: u64 = 64;

/// The state of the memtables at the last check.
pub(crate) struct Settle {
    checked_at: Instant,
    keys: [u64; Space::ALL.len()],
}

impl Settle {
    pub(crate) fn new() -> Self {
        Settle { checked_at: Instant::now(), keys: [0; Space::ALL.len()] }
    }

    /// Flushes settled memtables in the background, if a check is due.
    pub(crate) fn check(&mut self, engine: &Engine) {
        if self.checked_at.elapsed() < INTERVAL {
            return;
        }
        self.checked_at = Instant::now();
        // While files are held they stay as they are.
        let Some(_files) = engine.files.try_change() else { return };
        for space in Space::ALL {
            let column = engine.column(space);
            let property = properties::NUM_ENTRIES_ACTIVE_MEM_TABLE;
            let keys =
                engine.db.property_int_value_cf(column, property).ok().flatten().unwrap_or(0);
            let before = std::mem::replace(&mut self.keys[space as usize], keys);
            if !has_settled(before, keys) {
                continue;
            }
            let mut options = FlushOptions::new();
            options.set_wait(false);
            // Concurrent writers have room: the memtable is handed over like a full one.
            options.set_allow_write_stall(true);
            if let Err(cause) = engine.db.flush_cf_opt(column, &options) {
                debug!(space = name_of(space), error = %cause, "a space cannot be flushed now");
            }
        }
    }
}

/// Returns whether a memtable that had `before` keys and now has `keys` should be flushed.
fn has_settled(before: u64, keys: u64) -> bool {
    // A memtable that was flushed in between has fewer keys.
    keys >= KEYS_MIN && before <= keys && keys - before < keys / GROWTH_PART
}

#[cfg(test)]
mod tests {
    use std::thread;

    use marula_storage::contract::Folder;
    use marula_storage::{Store, View};

    use super::*;
    use crate::{Embedded, EmbeddedOptions};

    fn wait_until(what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < Duration::from_secs(60), "not yet: {what}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn what_was_loaded_lies_in_files_soon_after() {
        let folder = Folder::new();
        let store = Embedded::open(EmbeddedOptions::new(folder.path())).expect("the store opens");
        let mut txn = store.begin();
        for key in 0..2 * KEYS_MIN {
            txn.put(Space::Indexes, &key.to_be_bytes(), b"entry");
        }
        txn.put(Space::Records, b"few", b"stay");
        txn.commit().expect("it is written");
        let in_memory = |space| {
            let column = store.engine.column(space);
            let property = properties::NUM_ENTRIES_ACTIVE_MEM_TABLE;
            store.engine.db.property_int_value_cf(column, property).expect("it is known")
        };
        wait_until("the memtable is flushed", || in_memory(Space::Indexes) == Some(0));
        assert_eq!(in_memory(Space::Records), Some(1));
        let is_there = |key: u64| store.get(Space::Indexes, &key.to_be_bytes(), &mut |_| {});
        assert!((0..2 * KEYS_MIN).all(|key| is_there(key).expect("it is read")));
    }

    #[test]
    fn tombstones_of_many_deletes_are_gone_soon_after() {
        let folder = Folder::new();
        let store = Embedded::open(EmbeddedOptions::new(folder.path())).expect("the store opens");
        let keys = || (0..2 * KEYS_MIN).map(u64::to_be_bytes);
        let mut txn = store.begin();
        keys().for_each(|key| txn.put(Space::Indexes, &key, b"entry"));
        txn.commit().expect("it is written");
        let entries = || {
            let files = store.engine.db.live_files().expect("the files are known");
            let files = files.iter().filter(|file| file.column_family_name == "indexes");
            files.map(|file| file.num_entries).sum::<u64>()
        };
        wait_until("the memtable is flushed", || entries() == 2 * KEYS_MIN);
        let mut txn = store.begin();
        keys().for_each(|key| txn.delete(Space::Indexes, &key));
        txn.commit().expect("it is written");
        wait_until("no tombstone is left", || entries() == 0);
    }

    #[test]
    fn a_memtable_settles_when_it_is_large_and_grows_slowly() {
        for (before, keys, expected) in [
            (0, 0, false),
            (KEYS_MIN - 1, KEYS_MIN - 1, false),
            (KEYS_MIN, KEYS_MIN, true),
            (0, KEYS_MIN, false),
            (100_000, 101_000, true),
            (100_000, 102_000, false),
            (200_000, 100_000, false),
        ] {
            assert_eq!(has_settled(before, keys), expected, "{before} keys, then {keys}");
        }
    }
}
