//! Statistics of the storage engine: under its own names and, if there is an equivalent, under the
//! names of WiredTiger.

use marula_bson::{DocWriter, Value, doc_fields};

use super::operations::running;
use super::{Section, count, int, long};
use crate::cluster;
use crate::host;
use crate::net::POOL_THREADS_MAX;

/// Writes that flow control is off: there are no secondaries that could lag.
pub(super) fn flow_control(_: &Section<'_>, out: &mut DocWriter<'_>) {
    doc_fields!(out;
        "enabled": false,
        "targetRateLimit": 1_000_000_000,
        "timeAcquiringMicros": 0_i64,
        "locksPerKiloOp": 0.0,
        "sustainerRate": 0,
        "isLagged": false,
        "isLaggedCount": 0,
        "isLaggedTimeMicros": 0_i64,
    );
}

/// Writes the addresses of a distributed store, as those of config servers. They are the ones that
/// this process was given: nothing is requested of the store.
pub(super) fn sharding(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let hosts = section.server.db.store_connections();
    let addresses: Vec<&str> = hosts.iter().map(|host| host.address.as_str()).collect();
    let name = cluster::shard_name(section.server);
    let all = format!("{name}/{}", addresses.join(","));
    doc_fields!(out; "configsvrConnectionString": all.as_str());
}

pub(super) fn storage_engine(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let caps = section.server.db.engine();
    doc_fields!(out;
        "name": caps.name,
        "supportsCommittedReads": true,
        "oldestRequiredTimestampForCrashRecovery": Value::Timestamp(0),
        "supportsPendingDrops": true,
        "dropPendingIdents": 0_i64,
        "supportsSnapshotReadConcern": true,
        "readOnly": false,
        "persistent": caps.is_persistent,
        "backupCursorOpen": false,
    );
}

/// Writes the fields of WiredTiger that monitoring tools read, with the equivalent numbers of this
/// engine. Bytes read and written are those of the whole process, from the kernel.
pub(super) fn wired_tiger(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let server = section.server;
    let statistics = server.db.engine_statistics();
    let sum = |wanted: &str| -> i64 {
        let fitting = statistics.iter().filter(|(name, _)| name.ends_with(wanted));
        fitting.map(|(_, value)| *value).sum()
    };
    let io = |field: &str| long(host::proc_number("/proc/self/io", field).unwrap_or(0));
    let (read, written) = (io("read_bytes"), io("write_bytes"));
    let transactions = server.transactions.statistics();
    let running = running(section);
    let tickets = int(POOL_THREADS_MAX as u64);
    let available = |out: i32| tickets.saturating_sub(out);
    doc_fields!(out;
        "uri": "statistics:",
        "block-manager": {
            "bytes read": read,
            "bytes written": written,
        },
        "cache": {
            "bytes currently in the cache": sum("cache.bytes currently in the cache"),
            "bytes read into cache": read,
            "bytes written from cache": sum("background.bytes written by compactions"),
            "maximum bytes configured": sum("cache.maximum bytes configured"),
            "tracked dirty bytes in the cache": sum(".bytes in memory"),
        },
        "concurrentTransactions": {
            "write": {
                "out": running.writers, "available": available(running.writers), "totalTickets": tickets,
            },
            "read": {
                "out": running.readers, "available": available(running.readers), "totalTickets": tickets,
            },
        },
        "log": { "log sync operations": sum("log.syncs") },
        "session": { "open session count": int(server.sessions.count() as u64) },
        "transaction": {
            "transaction checkpoints": sum("background.flushes"),
            "transactions committed": sum("transactions.newest stamp"),
            "transactions rolled back": long(transactions.aborted) + count(&server.counters.write_conflicts),
        },
        "oplog": { "visibility timestamp": Value::Timestamp(server.db.newest_timestamp(section.now_ms)) },
    );
}

/// Writes the engine's own counters under their own names.
pub(super) fn engine(section: &Section<'_>, out: &mut DocWriter<'_>) {
    out.append("version", env!("CARGO_PKG_VERSION"));
    out.append("now", Value::DateTime(section.now_ms));
    let network = section.server.network.get().map(|counters| counters.network());
    out.append("lateWorkers", long(network.unwrap_or_default().late));
    let mut engine = out.begin_doc("engine");
    for (name, value) in section.server.db.engine_statistics() {
        engine.append(&name, value);
    }
}
