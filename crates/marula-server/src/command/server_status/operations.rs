//! Statistics of operations: their number, latency, and transactions.

use marula_bson::{DocWriter, Value, doc_fields};
use marula_db::latencies::{Latencies, Latency};

use super::{Section, count, int, long};

pub(super) fn asserts(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let user = int(section.server.counters.user_errors.get());
    doc_fields!(out; "regular": 0, "warning": 0, "msg": 0, "user": user, "tripwire": 0, "rollovers": 0);
}

/// Writes zeros: mongod counts here the deletes that it groups in batches, which this server does
/// not do.
pub(super) fn batched_deletes(_: &Section<'_>, out: &mut DocWriter<'_>) {
    doc_fields!(out; "batches": 0, "docs": 0, "stagedSizeBytes": 0, "timeMillis": 0_i64);
}

/// The number of running operations.
pub(super) struct Running {
    pub(super) readers: i32,
    pub(super) writers: i32,
}

/// Counts the running operations, separately for reads and writes.
pub(super) fn running(section: &Section<'_>) -> Running {
    let reports = section.server.operations.reports();
    let mut running = Running { readers: 0, writers: 0 };
    for report in reports.iter().filter(|report| report.op_id != 0) {
        match &report.detail {
            Some(detail) if detail.command.writes => running.writers += 1,
            _ => running.readers += 1,
        }
    }
    running
}

pub(super) fn global_lock(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let uptime_us = long(section.server.started.elapsed().as_micros());
    let Running { readers, writers } = running(section);
    doc_fields!(out;
        "totalTime": uptime_us,
        "currentQueue": { "total": 0, "readers": 0, "writers": 0 },
        "activeClients": { "total": readers + writers, "readers": readers, "writers": writers },
    );
}

/// Writes the locks that mongod would have acquired. This server locks no databases or collections
/// to read or write documents; the numbers are those of reads and of write statements.
pub(super) fn locks(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let counters = &section.server.counters;
    let reads = count(&counters.query) + count(&counters.get_more) + count(&counters.command);
    let writes = count(&counters.insert) + count(&counters.update) + count(&counters.delete);
    for resource in ["Global", "Database", "Collection"] {
        let mut one = out.begin_doc(resource);
        doc_fields!(one; "acquireCount": { "r": reads, "w": writes });
    }
}

pub(super) fn logical_sessions(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let sessions = int(section.server.sessions.count() as u64);
    // No background jobs maintain sessions and their records; operations do so when they use them.
    doc_fields!(out;
        "activeSessionsCount": sessions,
        "sessionsCollectionJobCount": 0,
        "lastSessionsCollectionJobDurationMillis": 0,
        "lastSessionsCollectionJobTimestamp": Value::DateTime(section.started_ms()),
        "lastSessionsCollectionJobEntriesRefreshed": 0,
        "lastSessionsCollectionJobEntriesEnded": 0,
        "lastSessionsCollectionJobCursorsClosed": 0,
        "transactionReaperJobCount": 0,
        "lastTransactionReaperJobDurationMillis": 0,
        "lastTransactionReaperJobTimestamp": Value::DateTime(section.started_ms()),
        "lastTransactionReaperJobEntriesCleanedUp": 0,
        "sessionCatalogSize": sessions,
    );
}

pub(super) fn op_latencies(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let server = section.server;
    write_latencies(&server.counters.latencies, server.transactions.latency(), false, out);
}

/// Writes latencies in the form of `opLatencies` and `$collStats`.
pub(crate) fn write_latencies(
    latencies: &Latencies,
    transactions: &Latency,
    with_histograms: bool,
    out: &mut DocWriter<'_>,
) {
    let Latencies { reads, writes, commands } = latencies;
    let classes = [
        ("reads", reads),
        ("writes", writes),
        ("commands", commands),
        ("transactions", transactions),
    ];
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

pub(super) fn opcounters(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let counters = &section.server.counters;
    doc_fields!(out;
        "insert": count(&counters.insert),
        "query": count(&counters.query),
        "update": count(&counters.update),
        "delete": count(&counters.delete),
        "getmore": count(&counters.get_more),
        "command": count(&counters.command),
        // The messages of the protocol before OP_MSG, which are rejected.
        "deprecated": {
            "total": 0_i64,
            "insert": 0_i64,
            "query": 0_i64,
            "update": 0_i64,
            "delete": 0_i64,
            "getmore": 0_i64,
            "killcursors": 0_i64,
        },
    );
}

pub(super) fn transactions(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let found = section.server.transactions.statistics();
    doc_fields!(out;
        "retriedCommandsCount": long(found.retried_commands),
        "retriedStatementsCount": long(found.retried_statements),
        "transactionsCollectionWriteCount": long(found.numbered_writes + found.committed_writes),
        "currentActive": found.active,
        "currentInactive": found.inactive,
        "currentOpen": found.active + found.inactive,
        "totalAborted": long(found.aborted),
        "totalCommitted": long(found.committed),
        "totalStarted": long(found.started),
        "totalPrepared": 0_i64,
        "totalPreparedThenCommitted": 0_i64,
        "totalPreparedThenAborted": 0_i64,
        "currentPrepared": 0_i64,
    );
    if let Some(last) = section.server.transactions.last_committed() {
        let mut out = out.begin_doc("lastCommittedTransaction");
        doc_fields!(out;
            "operationCount": long(last.operations),
            "oplogOperationBytes": long(last.bytes),
            "writeConcern": &last.write_concern,
        );
    }
}
