//! `serverStatus`: the server's numbers, section by section.
//!
//! A section is a row of [`SECTIONS`]. The command's fields leave sections out (`metrics: 0`). A
//! section that this server has nothing to say about is not there.
//! Source: manual "serverStatus"; names, order and types recorded from mongod 6.0.

use std::sync::Arc;

use marula_bson::{DocWriter, Value, doc_fields};
use marula_db::build::Phase;
use marula_db::latencies::{Latencies, Latency};
use marula_error::Result;
use marula_wire::Compressor;

use super::build_info::compatible_version;
use super::{Auth, Command, Outcome, Place};
use crate::context::Context;
use crate::counters::Counter;
use crate::host;
use crate::request::Request;
use crate::server::Server;

pub(super) static COMMAND: Command = Command {
    name: "serverStatus",
    takes_after_cluster_time: false,
    help: "Returns the server's numbers: operations, connections, memory, network, storage engine and more.",
    place: Place::Reserved,
    auth: Auth::Cluster(&["serverStatus"]),
    run,
    ..Command::DEFAULT
};

type Write = fn(&Section<'_>, &mut DocWriter<'_>);

struct Section<'a> {
    server: &'a Arc<Server>,
    now_ms: i64,
}

const SECTIONS: &[(&str, Write)] = &[
    ("activeIndexBuilds", active_index_builds),
    ("asserts", asserts),
    ("catalogStats", catalog_stats),
    ("connections", connections),
    ("defaultRWConcern", default_concerns),
    ("extra_info", extra_info),
    ("featureCompatibilityVersion", feature_compatibility_version),
    ("globalLock", global_lock),
    ("indexStats", index_stats),
    ("logicalSessionRecordCache", logical_sessions),
    ("network", network),
    ("opLatencies", op_latencies),
    ("opcounters", opcounters),
    ("opcountersRepl", opcounters_of_replication),
    ("repl", repl),
    ("security", security),
    ("storageEngine", storage_engine),
    ("transactions", transactions),
    ("transportSecurity", transport_security),
    ("mem", mem),
    ("metrics", metrics),
    ("marula", engine),
];

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    write(context, request, reply);
    Ok(Outcome::Done)
}

/// Writes the whole status, but for the sections that the request leaves out.
pub(super) fn write(context: &Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) {
    let server = context.server;
    let uptime = server.started.elapsed();
    let uptime_ms = i64::try_from(uptime.as_millis()).unwrap_or(i64::MAX);
    reply.append("host", host::name_and_port(server).as_str());
    let (version, _) = compatible_version(request.version);
    reply.append("version", version);
    let process = if server.options.repl_set.is_some() { "mongod" } else { "mongos" };
    reply.append("process", process);
    reply.append("pid", i64::from(std::process::id()));
    reply.append("uptime", uptime.as_secs_f64().floor());
    reply.append("uptimeMillis", uptime_ms);
    reply.append("uptimeEstimate", uptime_ms / 1000);
    reply.append("localTime", Value::DateTime(context.now_ms));
    let section = Section { server, now_ms: context.now_ms };
    let only_in_set = |name: &str| matches!(name, "repl" | "defaultRWConcern");
    for (name, write) in SECTIONS {
        if request.arg(name).is_some_and(|wanted| !wanted.is_truthy()) {
            continue;
        }
        if only_in_set(name) && server.options.repl_set.is_none() {
            continue;
        }
        write(&section, &mut reply.begin_doc(name));
    }
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn int(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn count(counter: &Counter) -> i64 {
    long(counter.get())
}

fn active_index_builds(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let (mut scan, mut load, mut drain) = (0, 0, 0);
    let catalog = section.server.db.catalog();
    for name in catalog.databases() {
        for collection in catalog.collections(&name) {
            for build in &collection.state().building {
                match build.phase() {
                    Phase::Scan => scan += 1,
                    Phase::Load => load += 1,
                    Phase::Drain => drain += 1,
                }
            }
        }
    }
    // A build loads its sorted entries at the end of what mongod counts as the scan.
    doc_fields!(out;
        "total": scan + load + drain,
        "phases": {
            "scanCollection": scan + load,
            "drainSideWritesTable": drain,
            "drainSideWritesTablePreCommit": 0,
            "waitForCommitQuorum": 0,
            "drainSideWritesTableOnCommit": 0,
            "processConstraintsViolatonTableOnCommit": 0,
            "commit": 0,
        },
    );
}

fn asserts(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let user = int(section.server.counters.user_errors.get());
    doc_fields!(out; "regular": 0, "warning": 0, "msg": 0, "user": user, "tripwire": 0, "rollovers": 0);
}

fn catalog_stats(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let (mut collections, mut capped, mut clustered, mut views) = (0, 0, 0, 0);
    let mut time_series = 0;
    let catalog = section.server.db.catalog();
    for name in catalog.databases() {
        for collection in catalog.collections(&name) {
            let state = collection.state();
            if crate::time_series::is_shown(&collection) {
                time_series += 1;
                continue;
            }
            if state.options.view.is_some() {
                views += 1;
                continue;
            }
            collections += 1;
            capped += i32::from(state.options.capped.is_some());
            clustered += i32::from(state.options.clustered.is_some());
        }
    }
    doc_fields!(out;
        "collections": collections,
        "capped": capped,
        "clustered": clustered,
        "timeseries": time_series,
        "views": views,
        "internalCollections": 0,
        "internalViews": 0,
    );
}

fn connections(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let connections = section.server.network.get().map(|counters| counters.connections());
    let connections = connections.unwrap_or_default();
    let waiting = section.server.topology_waiters.lock().len();
    doc_fields!(out;
        "current": int(connections.current),
        "available": int(connections.available),
        "totalCreated": int(connections.total_created),
        "active": int(connections.active),
        "threaded": 0,
        "exhaustIsMaster": 0,
        "exhaustHello": 0,
        "awaitingTopologyChanges": int(waiting as u64),
    );
}

fn extra_info(_: &Section<'_>, out: &mut DocWriter<'_>) {
    let (user_us, system_us, minor_faults, major_faults) = host::usage();
    let resident_kb = host::proc_bytes("/proc/self/status", "VmHWM").unwrap_or(0) / 1024;
    doc_fields!(out;
        "note": "fields vary by platform",
        "user_time_us": user_us,
        "system_time_us": system_us,
        "maximum_resident_set_kb": long(resident_kb),
        "page_reclaims": minor_faults,
        "page_faults": major_faults,
    );
}

fn feature_compatibility_version(section: &Section<'_>, out: &mut DocWriter<'_>) {
    doc_fields!(out; "major": section.server.db.feature_version().major(), "minor": 0, "transitioning": 0);
}

fn global_lock(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let uptime_us = i64::try_from(section.server.started.elapsed().as_micros()).unwrap_or(i64::MAX);
    let reports = section.server.operations.reports();
    let running = reports.iter().filter(|report| report.op_id != 0);
    let (mut readers, mut writers) = (0, 0);
    for report in running {
        match &report.detail {
            Some(detail) if detail.command.writes => writers += 1,
            _ => readers += 1,
        }
    }
    doc_fields!(out;
        "totalTime": uptime_us,
        "currentQueue": { "total": 0, "readers": 0, "writers": 0 },
        "activeClients": { "total": readers + writers, "readers": readers, "writers": writers },
    );
}

fn index_stats(section: &Section<'_>, out: &mut DocWriter<'_>) {
    const KINDS: [&str; 10] = [
        "collation",
        "compound",
        "id",
        "normal",
        "partial",
        "prepareUnique",
        "single",
        "sparse",
        "ttl",
        "unique",
    ];
    let mut counts = [0_i64; KINDS.len()];
    let mut total = 0_i64;
    let catalog = section.server.db.catalog();
    for name in catalog.databases() {
        for collection in catalog.collections(&name) {
            for index in &collection.state().indexes {
                let spec = &index.spec;
                total += 1;
                let is_normal = !spec.is_id();
                let flags = [
                    spec.collation.is_some(),
                    spec.parts.len() > 1,
                    spec.is_id(),
                    is_normal,
                    spec.partial.is_some(),
                    false,
                    is_normal && spec.parts.len() == 1,
                    spec.sparse,
                    spec.expire_after_seconds.is_some(),
                    spec.unique && is_normal,
                ];
                for (count, flag) in counts.iter_mut().zip(flags) {
                    *count += i64::from(flag);
                }
            }
        }
    }
    out.append("count", total);
    let mut features = out.begin_doc("features");
    for (kind, count) in KINDS.iter().zip(counts) {
        features.begin_doc(kind).append("count", count);
    }
}

fn logical_sessions(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let sessions = int(section.server.sessions.count() as u64);
    doc_fields!(out; "activeSessionsCount": sessions, "sessionCatalogSize": sessions);
}

fn network(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let network = section.server.network.get().map(|counters| counters.network());
    let network = network.unwrap_or_default();
    doc_fields!(out;
        "bytesIn": long(network.bytes_in),
        "bytesOut": long(network.bytes_out),
        "physicalBytesIn": long(network.physical_bytes_in),
        "physicalBytesOut": long(network.physical_bytes_out),
        "numSlowDNSOperations": 0_i64,
        "numSlowSSLOperations": 0_i64,
        "numRequests": long(network.requests),
        "numLateWorkers": long(network.late),
    );
    let mut all = out.begin_doc("compression");
    for compressor in [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib] {
        let Some(counted) = network.compression.get(usize::from(compressor.id())) else { continue };
        let mut one = all.begin_doc(compressor.name());
        doc_fields!(one;
            "compressor": { "bytesIn": long(counted.compressor_in), "bytesOut": long(counted.compressor_out) },
            "decompressor": { "bytesIn": long(counted.decompressor_in), "bytesOut": long(counted.decompressor_out) },
        );
    }
}

fn op_latencies(section: &Section<'_>, out: &mut DocWriter<'_>) {
    write_latencies(&section.server.counters.latencies, false, out);
}

/// Writes latencies as `opLatencies` and `$collStats` show them.
pub(crate) fn write_latencies(
    latencies: &Latencies,
    with_histograms: bool,
    out: &mut DocWriter<'_>,
) {
    let Latencies { reads, writes, commands } = latencies;
    let none = Latency::default();
    let classes =
        [("reads", reads), ("writes", writes), ("commands", commands), ("transactions", &none)];
    for (name, latency) in classes {
        let mut entry = out.begin_doc(name);
        if with_histograms {
            let mut histogram = entry.begin_array("histogram");
            for (us, count) in latency.histogram() {
                histogram.begin_doc().append("micros", long(us)).append("count", long(count));
            }
        }
        entry.append("latency", long(latency.us())).append("ops", long(latency.count()));
    }
}

fn opcounters(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let counters = &section.server.counters;
    doc_fields!(out;
        "insert": count(&counters.insert),
        "query": count(&counters.query),
        "update": count(&counters.update),
        "delete": count(&counters.delete),
        "getmore": count(&counters.get_more),
        "command": count(&counters.command),
    );
}

/// What was written because another member had written it: there is none.
fn opcounters_of_replication(_: &Section<'_>, out: &mut DocWriter<'_>) {
    doc_fields!(out;
        "insert": 0_i64, "query": 0_i64, "update": 0_i64, "delete": 0_i64, "getmore": 0_i64, "command": 0_i64,
    );
}

fn default_concerns(section: &Section<'_>, out: &mut DocWriter<'_>) {
    section.server.default_concerns.append(false, out);
}

fn repl(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let options = &section.server.options;
    let Some(name) = &options.repl_set else { return };
    super::hello::write_member(section.server, out, name, "isWritablePrimary");
    out.append("rbid", 1);
}

fn security(_: &Section<'_>, out: &mut DocWriter<'_>) {
    doc_fields!(out; "authentication": { "saslSupportedMechsReceived": 0_i64, "mechanisms": {} });
}

fn storage_engine(section: &Section<'_>, out: &mut DocWriter<'_>) {
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

fn transactions(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let found = section.server.transactions.statistics();
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    doc_fields!(out;
        "retriedCommandsCount": count(found.retried_commands),
        "retriedStatementsCount": count(found.retried_statements),
        "transactionsCollectionWriteCount": count(found.numbered_writes + found.committed_writes),
        "currentActive": found.active,
        "currentInactive": found.inactive,
        "currentOpen": found.active + found.inactive,
        "totalAborted": count(found.aborted),
        "totalCommitted": count(found.committed),
        "totalStarted": count(found.started),
        "totalPrepared": 0_i64,
        "totalPreparedThenCommitted": 0_i64,
        "totalPreparedThenAborted": 0_i64,
        "currentPrepared": 0_i64,
    );
    if let Some(last) = section.server.transactions.last_committed() {
        let mut out = out.begin_doc("lastCommittedTransaction");
        doc_fields!(out;
            "operationCount": count(last.operations),
            "oplogOperationBytes": count(last.bytes),
            "writeConcern": &last.write_concern,
        );
    }
}

fn transport_security(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let tls = section.server.options.tls.as_ref();
    let (tls12, tls13) = tls.map_or((0, 0), |tls| tls.handshakes());
    let (tls12, tls13) = (long(tls12), long(tls13));
    doc_fields!(out; "1.0": 0_i64, "1.1": 0_i64, "1.2": tls12, "1.3": tls13, "unknown": 0_i64);
}

fn mem(_: &Section<'_>, out: &mut DocWriter<'_>) {
    const MB: u64 = 1024 * 1024;
    let bytes = |field: &str| host::proc_bytes("/proc/self/status", field).unwrap_or(0);
    doc_fields!(out;
        "bits": 64,
        "resident": int(bytes("VmRSS") / MB),
        "virtual": int(bytes("VmSize") / MB),
        "supported": true,
    );
}

fn metrics(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let server = section.server;
    let counters = &server.counters;
    let mut commands = out.begin_doc("commands");
    commands.append("<UNKNOWN>", count(&counters.unknown_commands));
    for (command, counted) in counters.by_command() {
        let mut entry = commands.begin_doc(command.name);
        entry.append("failed", count(&counted.failed));
        if counted.rejected.get() > 0 {
            entry.append("rejected", count(&counted.rejected));
        }
        entry.append("total", count(&counted.total));
    }
    drop(commands);
    let cursors = server.cursors.statistics();
    doc_fields!(out;
        "cursor": {
            "timedOut": long(cursors.timed_out),
            "totalOpened": long(cursors.total_opened),
            "open": {
                "noTimeout": long(cursors.no_timeout),
                "pinned": long(cursors.pinned),
                "total": long(cursors.open),
            },
        },
        "document": {
            "deleted": count(&counters.documents_deleted),
            "inserted": count(&counters.documents_inserted),
            "returned": count(&counters.documents_returned),
            "updated": count(&counters.documents_updated),
        },
        "operation": {
            "scanAndOrder": count(&counters.sorts),
            "writeConflicts": count(&counters.write_conflicts),
        },
        "queryExecutor": {
            "scanned": count(&counters.keys_examined),
            "scannedObjects": count(&counters.documents_examined),
        },
        "ttl": {
            "deletedDocuments": count(&counters.ttl_deleted),
            "passes": count(&counters.ttl_passes),
        },
    );
}

/// The engine's own counters under their own names.
fn engine(section: &Section<'_>, out: &mut DocWriter<'_>) {
    out.append("version", env!("CARGO_PKG_VERSION"));
    out.append("now", Value::DateTime(section.now_ms));
    let mut engine = out.begin_doc("engine");
    for (name, value) in section.server.db.engine_statistics() {
        engine.append(&name, value);
    }
}
