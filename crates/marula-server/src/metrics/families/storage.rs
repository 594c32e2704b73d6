//! The catalogue, the oplog and the engine.
//!
//! Each engine has its own numbers: a family without a number is not exposed.

use crate::metrics::exposition::{Family, Kind, Samples};
use crate::metrics::reading::Reading;

/// The parts of the engine: documents, index entries, everything else.
const SPACES: [&str; 3] = ["catalog", "records", "indexes"];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "marula_databases",
        kind: Kind::Gauge,
        help: "Databases",
        write: |reading, out| out.one(reading.catalog.databases),
    },
    Family {
        name: "marula_collections",
        kind: Kind::Gauge,
        help: "Collections, views and time series",
        write: |reading, out| {
            let catalog = &reading.catalog;
            out.labelled(&[("kind", "collection")], catalog.collections);
            out.labelled(&[("kind", "view")], catalog.views);
            out.labelled(&[("kind", "time_series")], catalog.time_series);
        },
    },
    Family {
        name: "marula_indexes",
        kind: Kind::Gauge,
        help: "Indexes that are complete",
        write: |reading, out| out.one(reading.catalog.indexes),
    },
    Family {
        name: "marula_index_builds",
        kind: Kind::Gauge,
        help: "Indexes that are being built",
        write: |reading, out| out.one(reading.catalog.index_builds),
    },
    Family {
        name: "marula_oplog_bytes",
        kind: Kind::Gauge,
        help: "Size of the oplog, if it is enabled",
        write: |reading, out| {
            let oplog = reading.server.db.oplog().collection();
            out.maybe(oplog.map(|oplog| oplog.size_bytes()));
        },
    },
    Family {
        name: "marula_oplog_entries",
        kind: Kind::Gauge,
        help: "Entries of the oplog",
        write: |reading, out| {
            let oplog = reading.server.db.oplog().collection();
            out.maybe(oplog.map(|oplog| oplog.count()));
        },
    },
    Family {
        name: "marula_oplog_first_timestamp_seconds",
        kind: Kind::Gauge,
        help: "Time of the oldest entry at which a change stream can start, in seconds since 1970",
        write: |reading, out| {
            let oplog = reading.server.db.oplog();
            out.maybe(oplog.is_on().then(|| oplog.since() >> 32));
        },
    },
    Family {
        name: "marula_oplog_last_timestamp_seconds",
        kind: Kind::Gauge,
        help: "Time of the newest entry, in seconds since 1970",
        write: |reading, out| {
            let oplog = reading.server.db.oplog();
            out.maybe(oplog.is_on().then(|| oplog.newest() >> 32));
        },
    },
    Family {
        name: "marula_latch_waits_total",
        kind: Kind::Counter,
        help: "Waits of a write for a concurrent write of the same key, or of a key with the same latch",
        write: |reading, out| out.maybe(reading.engine("latches.waits")),
    },
    Family {
        name: "marula_latch_wait_seconds_total",
        kind: Kind::Counter,
        help: "The time of these waits",
        write: |reading, out| out.maybe(reading.engine_seconds("latches.microseconds waited")),
    },
    Family {
        name: "marula_latch_conflicts_total",
        kind: Kind::Counter,
        help: "Writes that were retried because they did not get a latch in time",
        write: |reading, out| out.maybe(reading.engine("latches.conflicts")),
    },
    Family {
        name: "marula_storage_sync_duration_seconds",
        kind: Kind::Histogram,
        help: "Syncs of the write-ahead log to the disk",
        write: |reading, out| {
            if let Some(times) = reading.server.db.sync_times() {
                out.times(&[], &times.read());
            }
        },
    },
    Family {
        name: "marula_storage_healthy",
        kind: Kind::Gauge,
        help: "1 if the engine accepts writes, 0 after a disk failure in the background",
        write: |reading, out| out.one(reading.server.db.engine_fault().is_none()),
    },
    Family {
        name: "marula_storage_background_errors_total",
        kind: Kind::Counter,
        help: "Failed flushes and compactions",
        write: |reading, out| out.maybe(reading.engine("background.errors")),
    },
    Family {
        name: "marula_storage_log_lost_bytes",
        kind: Kind::Gauge,
        help: "Size of the end of the write-ahead log, cut off by a crash, that was skipped when the data folder was opened",
        write: |reading, out| out.maybe(reading.engine("log.bytes lost at the start")),
    },
    Family {
        name: "marula_storage_cache_bytes",
        kind: Kind::Gauge,
        help: "Size of the block cache and the record cache",
        write: |reading, out| caches(reading, out, "bytes currently in the cache"),
    },
    Family {
        name: "marula_storage_cache_limit_bytes",
        kind: Kind::Gauge,
        help: "Maximum size of these caches",
        write: |reading, out| caches(reading, out, "maximum bytes configured"),
    },
    Family {
        name: "marula_storage_cache_pinned_bytes",
        kind: Kind::Gauge,
        help: "Size of the block cache that is pinned by cursors and memtables",
        write: |reading, out| out.maybe(reading.engine("block cache.bytes pinned")),
    },
    Family {
        name: "marula_storage_flushes_total",
        kind: Kind::Counter,
        help: "Flushes of memtables to files",
        write: |reading, out| out.maybe(reading.engine("background.flushes")),
    },
    Family {
        name: "marula_storage_compactions_total",
        kind: Kind::Counter,
        help: "Completed compactions",
        write: |reading, out| out.maybe(reading.engine("background.compactions")),
    },
    Family {
        name: "marula_storage_compaction_seconds_total",
        kind: Kind::Counter,
        help: "Time spent in compactions",
        write: |reading, out| {
            out.maybe(reading.engine_seconds("background.microseconds of compactions"));
        },
    },
    Family {
        name: "marula_storage_compaction_bytes_total",
        kind: Kind::Counter,
        help: "Bytes that compactions have read and written",
        write: |reading, out| {
            for (direction, name) in [
                ("read", "background.bytes compacted"),
                ("written", "background.bytes written by compactions"),
            ] {
                if let Some(bytes) = reading.engine(name) {
                    out.labelled(&[("direction", direction)], bytes);
                }
            }
        },
    },
    Family {
        name: "marula_storage_background_jobs",
        kind: Kind::Gauge,
        help: "Flushes and compactions in progress",
        write: |reading, out| {
            for (kind, name) in [
                ("flush", "background.flushes running"),
                ("compaction", "background.compactions running"),
            ] {
                if let Some(count) = reading.engine(name) {
                    out.labelled(&[("kind", kind)], count);
                }
            }
        },
    },
    Family {
        name: "marula_storage_write_stalls_total",
        kind: Kind::Counter,
        help: "Write stalls: times that writes were slowed down because flushes or compactions were too slow",
        write: |reading, out| out.maybe(reading.engine("writes.stalls")),
    },
    Family {
        name: "marula_storage_writes_stopped",
        kind: Kind::Gauge,
        help: "1 if writes are stopped until flushes or compactions catch up, otherwise 0",
        write: |reading, out| out.maybe(reading.engine("writes.stopped")),
    },
    Family {
        name: "marula_storage_file_bytes",
        kind: Kind::Gauge,
        help: "Size of the table files in use",
        write: |reading, out| spaces(reading, out, "bytes in live files"),
    },
    Family {
        name: "marula_storage_memtable_bytes",
        kind: Kind::Gauge,
        help: "Size of the memtables",
        write: |reading, out| spaces(reading, out, "bytes in memory"),
    },
    Family {
        name: "marula_storage_index_filter_bytes",
        kind: Kind::Gauge,
        help: "Size of the table files' indexes and filters in memory",
        write: |reading, out| spaces(reading, out, "bytes of indexes and filters in memory"),
    },
    Family {
        name: "marula_storage_pending_compaction_bytes",
        kind: Kind::Gauge,
        help: "Size of the data that compactions still have to rewrite, estimated",
        write: |reading, out| spaces(reading, out, "bytes to compact"),
    },
    Family {
        name: "marula_storage_first_level_files",
        kind: Kind::Gauge,
        help: "Table files in level 0, which no compaction has merged yet",
        write: |reading, out| spaces(reading, out, "files in the first level"),
    },
    Family {
        name: "marula_storage_keys",
        kind: Kind::Gauge,
        help: "Number of keys, estimated; exact if the engine has no files",
        write: |reading, out| {
            for space in SPACES {
                let estimated = reading.engine(&format!("{space}.keys, estimated"));
                let counted = || reading.engine(&format!("{space}.keys"));
                if let Some(keys) = estimated.or_else(counted) {
                    out.labelled(&[("space", space)], keys);
                }
            }
        },
    },
    Family {
        name: "marula_storage_snapshots",
        kind: Kind::Gauge,
        help: "Snapshots that are held by cursors, transactions and snapshot reads",
        write: |reading, out| out.maybe(reading.engine("snapshots.open")),
    },
];

/// Writes a number of each cache.
fn caches(reading: &Reading<'_>, out: &mut Samples<'_>, name: &str) {
    for (cache, section) in [("block", "block cache"), ("record", "record cache")] {
        if let Some(bytes) = reading.engine(&format!("{section}.{name}")) {
            out.labelled(&[("cache", cache)], bytes);
        }
    }
}

/// Writes a number of each space.
fn spaces(reading: &Reading<'_>, out: &mut Samples<'_>, name: &str) {
    for space in SPACES {
        if let Some(value) = reading.engine(&format!("{space}.{name}")) {
            out.labelled(&[("space", space)], value);
        }
    }
}
