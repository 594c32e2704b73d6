//! The parameters with an effect.
//!
//! Source: manual "MongoDB Server Parameters"; names, types, defaults and bounds recorded from
//! mongod 6.0.27, except for those of memory, which are Marula's own.

use marula_bson::{ValueBuf, doc};

use super::row::Initial::{self, Bool, Int, Long, Made, Text};
use super::row::Settable::{self, Always, AtRuntime, AtStartup, Never};
use super::row::{ParameterRow, any, at_least, more_than};
use crate::auth::documents::array;
use crate::log::components as log_components;
use crate::{host, session, snapshots, transactions};

const MEMORY: i32 = 100 * 1024 * 1024;

const fn row(
    name: &'static str,
    default: Initial,
    settable: Settable,
    does: &'static str,
) -> ParameterRow {
    ParameterRow { name, default, settable, does: Some(does) }
}

fn mechanisms() -> ValueBuf {
    array(|out| {
        crate::command::MECHANISMS.iter().for_each(|name| {
            out.push(*name);
        });
    })
}

fn host_name() -> ValueBuf {
    ValueBuf::from(host::host_name().as_str())
}

/// The rows, by name.
pub(super) static ROWS: &[ParameterRow] = &[
    row(
        "allowDiskUseByDefault",
        Bool(true),
        Always,
        "whether sorts and groups may use temporary files if a request does not set `allowDiskUse`",
    ),
    row(
        "auditAuthorizationSuccess",
        Bool(false),
        Always,
        "whether the audit log also records authorization checks that succeeded",
    ),
    row(
        "authFailedDelayMs",
        Int(0, at_least(0).at_most(5_000)),
        AtStartup,
        "the delay of the reply to a failed login, in milliseconds",
    ),
    row(
        "authSchemaVersion",
        Int(5, any()),
        Never,
        "the schema version of user documents, which mongodump reads",
    ),
    row(
        "authenticationMechanisms",
        Made(mechanisms),
        AtStartup,
        "the enabled authentication mechanisms",
    ),
    row(
        "cursorTimeoutMillis",
        Long(600_000, any()),
        Always,
        "the time after which an idle cursor is closed, in milliseconds",
    ),
    row(
        "enableLocalhostAuthBypass",
        Bool(true),
        AtStartup,
        "whether a client on the same machine may create the first user without authentication",
    ),
    row(
        "enableTestCommands",
        Bool(false),
        AtStartup,
        "whether `configureFailPoint` is available, with which tests of drivers make commands fail",
    ),
    row(
        "featureCompatibilityVersion",
        Made(|| ValueBuf::from(&doc! { "version": "6.0" })),
        Never,
        "the version of the query language; `setFeatureCompatibilityVersion` sets it",
    ),
    row(
        "internalDocumentSourceDensifyMaxMemoryBytes",
        Int(MEMORY, more_than(0)),
        Always,
        "the memory limit of the partitions of `$densify`, in bytes",
    ),
    row(
        "internalDocumentSourceGroupMaxMemoryBytes",
        Long(MEMORY as i64, more_than(0)),
        Always,
        "the memory limit of a `$group` before it uses temporary files, in bytes",
    ),
    row(
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        Long(MEMORY as i64, more_than(0)),
        Always,
        "the memory limit of a partition of `$setWindowFields`, in bytes",
    ),
    row(
        "internalLookupStageIntermediateDocumentMaxSizeBytes",
        Long(MEMORY as i64, at_least(16_793_600)),
        Always,
        "the size limit of the documents that a `$lookup` joins to one document, in bytes",
    ),
    row(
        "internalQueryFacetMaxOutputDocSizeBytes",
        Long(MEMORY as i64, more_than(0)),
        Always,
        "the size limit of the document that `$facet` returns, in bytes",
    ),
    row(
        "internalQueryMaxAddToSetBytes",
        Long(MEMORY as i64, more_than(0)),
        Always,
        "the size limit of a set of `$addToSet`, in bytes",
    ),
    row(
        "internalQueryMaxAllowedDensifyDocs",
        Int(500_000, more_than(0)),
        Always,
        "the maximum number of documents that a `$densify` may generate",
    ),
    row(
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        Int(MEMORY, at_least(0)),
        Always,
        "the memory limit of a sort before it uses temporary files, in bytes",
    ),
    row(
        "internalQueryMaxPushBytes",
        Int(MEMORY, more_than(0)),
        Always,
        "the size limit of an array of `$push`, in bytes",
    ),
    row(
        "internalQueryTopNAccumulatorBytes",
        Int(MEMORY, more_than(0)),
        Always,
        "the size limit of an array of `$topN`, `$firstN` and similar accumulators, in bytes",
    ),
    row(
        "localLogicalSessionTimeoutMinutes",
        Int(session::TIMEOUT_MINUTES, any()),
        Never,
        "the time after which an idle session is removed, in minutes",
    ),
    row(
        "logComponentVerbosity",
        Made(|| ValueBuf::from(&log_components::initial())),
        Always,
        "the verbosity of each component of the log",
    ),
    row("logLevel", Int(0, any()), Always, "the verbosity of the log, from 0 to 5"),
    row("maxBSONDepth", Int(200, any()), Never, "the maximum nesting depth of documents"),
    row(
        "maxIndexBuildMemoryUsageMegabytes",
        Int(200, at_least(50)),
        Always,
        "the memory limit of an index build before it uses temporary files, in megabytes",
    ),
    row(
        "maxTransactionLockRequestTimeoutMillis",
        Int(transactions::LOCK_TIMEOUT_MS, any()),
        Always,
        "the time that a transaction waits for a DDL operation, in milliseconds",
    ),
    row(
        "minSnapshotHistoryWindowInSeconds",
        Int(snapshots::WINDOW_SECONDS, at_least(0)),
        Always,
        "the maximum age of the snapshot of a read, in seconds",
    ),
    row("notablescan", Bool(false), Always, "whether queries without an index are rejected"),
    row(
        "operationMemoryBytesMax",
        Long(0, at_least(0)),
        Always,
        "the memory limit of all operations together, in bytes; 0 means a share of the \
         machine's memory. Marula's own",
    ),
    row("quiet", Bool(false), Always, "whether the log omits messages about single connections"),
    row(
        "requireApiVersion",
        Bool(false),
        Always,
        "whether requests without a version of the Stable API are rejected",
    ),
    row("saslHostName", Made(host_name), Never, "the host name of the machine"),
    row(
        "scramIterationCount",
        Int(10_000, at_least(5_000)),
        Always,
        "the iteration count of SCRAM-SHA-1 for new passwords",
    ),
    row(
        "scramSHA256IterationCount",
        Int(15_000, at_least(5_000)),
        Always,
        "the iteration count of SCRAM-SHA-256 for new passwords",
    ),
    row(
        "sslMode",
        Text("disabled"),
        AtRuntime,
        "the older name of `tlsMode`, with `SSL` in its values",
    ),
    row(
        "tlsMode",
        Text("disabled"),
        AtRuntime,
        "whether connections use TLS; it can be changed step by step from optional to required",
    ),
    row(
        "transactionLifetimeLimitSeconds",
        Int(transactions::LIFETIME_SECONDS, at_least(1)),
        Always,
        "the time after which an open transaction is aborted, in seconds",
    ),
    row(
        "transactionMemoryBytesMax",
        Long(transactions::BYTES_MAX, at_least(0)),
        Always,
        "the memory limit of one open transaction, in bytes. Marula's own",
    ),
    row(
        "transactionsMemoryBytesMax",
        Long(transactions::TOTAL_BYTES_MAX, at_least(0)),
        Always,
        "the memory limit of all open transactions together, in bytes. Marula's own",
    ),
    row(
        "ttlMonitorEnabled",
        Bool(true),
        Always,
        "whether the TTL monitor deletes expired documents",
    ),
    row(
        "ttlMonitorSleepSecs",
        Int(60, more_than(0)),
        Always,
        "the interval between passes of the TTL monitor, in seconds",
    ),
];
