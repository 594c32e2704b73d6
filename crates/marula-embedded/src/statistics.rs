//! The engine's counters, for `serverStatus` and metrics.
//!
//! Each is a row of one of the tables below: a name for users, and the source of its number.
//! RocksDB's own tickers are off: they cost a few percent of every read.

use std::ffi::CStr;
use std::sync::atomic::Ordering;

use marula_storage::Space;

use crate::engine::Embedded;
use crate::health::Health;

/// RocksDB properties of the whole database.
const DATABASE: [(&str, &CStr); 6] = [
    ("background.compactions running", c"rocksdb.num-running-compactions"),
    ("background.flushes running", c"rocksdb.num-running-flushes"),
    ("snapshots.open", c"rocksdb.num-snapshots"),
    ("snapshots.oldest, seconds since the epoch", c"rocksdb.oldest-snapshot-time"),
    ("writes.delayed to bytes per second", c"rocksdb.actual-delayed-write-rate"),
    ("writes.stopped", c"rocksdb.is-write-stopped"),
];

/// RocksDB properties of each space.
const SPACE: [(&str, &CStr); 9] = [
    ("bytes in files", c"rocksdb.total-sst-files-size"),
    ("bytes in live files", c"rocksdb.live-sst-files-size"),
    ("bytes in memory", c"rocksdb.cur-size-all-mem-tables"),
    ("bytes of indexes and filters in memory", c"rocksdb.estimate-table-readers-mem"),
    ("bytes to compact", c"rocksdb.estimate-pending-compaction-bytes"),
    ("compaction pending", c"rocksdb.compaction-pending"),
    ("files in the first level", c"rocksdb.num-files-at-level0"),
    ("keys, estimated", c"rocksdb.estimate-num-keys"),
    ("memtables waiting for a flush", c"rocksdb.num-immutable-mem-table"),
];

/// Counters of the engine itself.
const COUNTED: [(&str, fn(&Health) -> u64); 7] = [
    ("background.errors", |health| health.errors.load(Ordering::Relaxed)),
    ("background.flushes", |health| health.flushes.load(Ordering::Relaxed)),
    ("background.compactions", |health| health.compactions.load(Ordering::Relaxed)),
    ("background.bytes compacted", |health| health.compaction_bytes_read.load(Ordering::Relaxed)),
    ("background.bytes written by compactions", |health| {
        health.compaction_bytes_written.load(Ordering::Relaxed)
    }),
    ("background.microseconds of compactions", |health| {
        health.compaction_us.load(Ordering::Relaxed)
    }),
    ("writes.stalls", |health| health.stalls.load(Ordering::Relaxed)),
];

/// All counters with their names.
pub(crate) fn rows(store: &Embedded) -> Vec<(String, i64)> {
    let engine = &store.engine;
    let mut rows = vec![
        ("block cache.maximum bytes configured".to_owned(), engine.cache.get_capacity() as i64),
        ("block cache.bytes currently in the cache".to_owned(), engine.cache.get_usage() as i64),
        ("block cache.bytes pinned".to_owned(), engine.cache.get_pinned_usage() as i64),
        ("block cache.blocks".to_owned(), engine.cache.get_occupancy_count() as i64),
        ("record cache.maximum bytes configured".to_owned(), engine.records.capacity() as i64),
        ("record cache.bytes currently in the cache".to_owned(), engine.records.bytes() as i64),
        ("record cache.records".to_owned(), engine.records.count() as i64),
        ("log.bytes lost at the start".to_owned(), engine.loss.bytes as i64),
        ("log.syncs".to_owned(), store.sync.times().count() as i64),
        ("transactions.newest stamp".to_owned(), engine.db.latest_sequence_number() as i64),
    ];
    rows.extend(store.latches.statistics().map(|(name, value)| (name.to_owned(), value)));
    for (name, count) in COUNTED {
        rows.push((name.to_owned(), count(&engine.health) as i64));
    }
    for (name, property) in DATABASE {
        if let Ok(Some(value)) = engine.db.property_int_value(property) {
            rows.push((name.to_owned(), value as i64));
        }
    }
    for space in Space::ALL {
        let space_name = format!("{space:?}").to_lowercase();
        for (name, property) in SPACE {
            if let Ok(Some(value)) = engine.db.property_int_value_cf(engine.column(space), property)
            {
                rows.push((format!("{space_name}.{name}"), value as i64));
            }
        }
    }
    rows
}
