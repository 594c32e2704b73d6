//! `metrics`: statistics of commands, cursors and documents, and the usage of stages and operators.

use std::collections::BTreeMap;

use marula_bson::{DocWriter, doc_fields};
use marula_db::plan_cache::plan_cache_bytes;
use marula_db::write::inserts_with_dollars;
use marula_query::usage::{self, Usage};

use super::{Section, count, long};
use crate::cursor::LIFESPANS;
use crate::operation::{API_1, API_DEFAULT};

pub(super) fn metrics(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let server = section.server;
    let counters = &server.counters;
    let mut commands = out.begin_doc("commands");
    commands.append("<UNKNOWN>", count(&counters.unknown_commands));
    for (command, counted) in counters.by_command() {
        let mut entry = commands.begin_doc(command.name);
        let forms = counters.forms_of(command);
        if let Some(forms) = forms {
            entry.append("arrayFilters", count(&forms.array_filters));
        }
        entry.append("failed", long(counted.failed_in_run()));
        if let Some(forms) = forms {
            entry.append("pipeline", count(&forms.pipelines));
        }
        entry.append("total", long(counted.times.count()));
        if let Some(validators) = counters.validators_of(command) {
            let mut entry = entry.begin_doc("validator");
            doc_fields!(entry;
                "failed": count(&validators.failed),
                "jsonSchema": count(&validators.json_schemas),
                "total": count(&validators.all),
            );
        }
    }
    drop(commands);
    write_used(&usage::STAGES, &mut out.begin_doc("aggStageCounters"));
    let mut operators = out.begin_doc("operatorCounters");
    write_used(&usage::EXPRESSIONS, &mut operators.begin_doc("expressions"));
    write_used(&usage::ACCUMULATORS, &mut operators.begin_doc("groupAccumulators"));
    write_used(&usage::MATCHES, &mut operators.begin_doc("match"));
    write_used(&usage::WINDOW_FUNCTIONS, &mut operators.begin_doc("windowAccumulators"));
    drop(operators);
    write_api_versions(section, &mut out.begin_doc("apiVersions"));
    let cursors = server.cursors.statistics();
    let mut out_cursor = out.begin_doc("cursor");
    let lives = server.cursors.lives();
    doc_fields!(out_cursor;
        "moreThanOneBatch": count(&lives.more_than_one_batch),
        "timedOut": long(cursors.timed_out),
        "totalOpened": long(cursors.total_opened),
    );
    let mut lifespans = out_cursor.begin_doc("lifespan");
    for ((name, _), counter) in LIFESPANS.iter().zip(&lives.by_lifespan) {
        lifespans.append(*name, count(counter));
    }
    drop(lifespans);
    doc_fields!(out_cursor;
        "open": {
            "noTimeout": long(cursors.no_timeout),
            "pinned": long(cursors.pinned),
            "total": long(cursors.open),
        },
    );
    drop(out_cursor);
    let fragments = marula_query::stage::split_events();
    doc_fields!(out;
        "abortExpiredTransactions": { "passes": 0_i64 },
        "changeStreams": { "largeEventsFailed": 0_i64, "largeEventsSplit": long(fragments) },
        "document": {
            "deleted": count(&counters.documents_deleted),
            "inserted": count(&counters.documents_inserted),
            "returned": count(&counters.documents_returned),
            "updated": count(&counters.documents_updated),
        },
        "operation": {
            "scanAndOrder": count(&counters.sorts),
            "temporarilyUnavailableErrors": 0_i64,
            "temporarilyUnavailableErrorsConvertedToWriteConflict": 0_i64,
            "temporarilyUnavailableErrorsEscaped": 0_i64,
            "transactionTooLargeForCacheErrors": 0_i64,
            "transactionTooLargeForCacheErrorsConvertedToWriteConflict": 0_i64,
            "writeConflicts": count(&counters.write_conflicts),
        },
        // A set of one member never waits for others; a write concern of more members fails
        // immediately.
        "getLastError": {
            "wtime": { "num": 0, "totalMillis": 0 },
            "wtimeouts": 0_i64,
            "default": { "unsatisfiable": 0_i64, "wtimeouts": 0_i64 },
        },
        "queryExecutor": {
            "scanned": count(&counters.keys_examined),
            "scannedObjects": count(&counters.documents_examined),
            "collectionScans": {
                "nonTailable": count(&counters.scans),
                "total": count(&counters.scans),
            },
        },
        "dotsAndDollarsFields": { "inserts": long(inserts_with_dollars()), "updates": 0_i64 },
        "mongos": { "cursor": { "moreThanOneBatch": 0_i64, "totalOpened": 0_i64 } },
        "query": {
            "deleteManyCount": count(&counters.deletes_of_many),
            "externalRetryableWriteCount": long(server.transactions.statistics().numbered_writes),
            "internalRetryableWriteCount": 0_i64,
            "planCacheTotalSizeEstimateBytes": long(plan_cache_bytes()),
            "updateManyCount": count(&counters.update_forms.many),
            "updateOneOpStyleBroadcastWithExactIDCount": 0_i64,
        },
        "queryStats": {
            "numEvicted": 0_i64,
            "numHmacApplicationErrors": 0_i64,
            "numQueryStatsStoreWriteErrors": 0_i64,
            "numRateLimitedRequests": 0_i64,
            "queryStatsStoreSizeEstimateBytes": 0_i64,
        },
        "ttl": {
            "deletedDocuments": count(&counters.ttl_deleted),
            "passes": count(&counters.ttl_passes),
        },
    );
    write_replication(&mut out.begin_doc("repl"));
}

/// Writes zeros: a set of one member applies no entries of others, and chooses no member to copy.
fn write_replication(out: &mut DocWriter<'_>) {
    doc_fields!(out;
        "executor": {
            "pool": { "inProgressCount": 0 },
            "queues": { "networkInProgress": 0, "sleepers": 0 },
            "unsignaledEvents": 0,
            "shuttingDown": false,
            "networkInterface": "",
        },
        "apply": {
            "attemptsToBecomeSecondary": 0_i64,
            "batchSize": 0_i64,
            "batches": { "num": 0, "totalMillis": 0 },
            "ops": 0_i64,
        },
        "buffer": { "count": 0_i64, "maxSizeBytes": 0_i64, "sizeBytes": 0_i64 },
        "initialSync": { "completed": 0_i64, "failedAttempts": 0_i64, "failures": 0_i64 },
        "network": {
            "bytes": 0_i64,
            "getmores": { "num": 0, "totalMillis": 0, "numEmptyBatches": 0_i64 },
            "notPrimaryLegacyUnacknowledgedWrites": 0_i64,
            "notPrimaryUnacknowledgedWrites": 0_i64,
            "oplogGetMoresProcessed": { "num": 0, "totalMillis": 0 },
            "ops": 0_i64,
            "readersCreated": 0_i64,
            "replSetUpdatePosition": { "num": 0_i64 },
        },
        "reconfig": { "numAutoReconfigsForRemovalOfNewlyAddedFields": 0_i64 },
        "stateTransition": {
            "lastStateTransition": "",
            "userOperationsKilled": 0_i64,
            "userOperationsRunning": 0_i64,
        },
        "syncSource": {
            "numSelections": 0_i64,
            "numSyncSourceChangesDueToSignificantlyCloserNode": 0_i64,
            "numTimesChoseDifferent": 0_i64,
            "numTimesChoseSame": 0_i64,
            "numTimesCouldNotFind": 0_i64,
        },
        "waiters": { "opTime": 0_i64, "replication": 0_i64 },
    );
}

/// Writes the number of uses of each stage or operator.
fn write_used(usage: &Usage, out: &mut DocWriter<'_>) {
    for (name, count) in usage.counts() {
        out.append(name, long(count));
    }
}

/// Writes the names of the connected applications, and the versions of the Stable API that each has
/// used.
fn write_api_versions(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let mut versions: BTreeMap<String, u8> = BTreeMap::new();
    for report in section.server.operations.reports() {
        let application = report.metadata.as_ref().and_then(|metadata| {
            let application = metadata.as_doc().get("application")?.as_doc()?;
            Some(application.get("name")?.as_str()?.to_string())
        });
        *versions.entry(application.unwrap_or_default()).or_default() |= report.api_versions;
    }
    for (application, noted) in versions.iter().filter(|(_, noted)| **noted != 0) {
        let mut list = out.begin_array(application);
        for (version, name) in [(API_DEFAULT, "default"), (API_1, "1")] {
            if noted & version != 0 {
                list.push(name);
            }
        }
    }
}
