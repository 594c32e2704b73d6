//! The parameters with an effect.
//!
//! Source: manual "MongoDB Server Parameters"; names, types, defaults and bounds recorded from
//! mongod 6.0.27, except for those of memory, which are Marula's own.

use marula_bson::{ValueBuf, doc};

use super::row::Initial::{self, Bool, Int, Long, Made, Text};
use super::row::Settable::{self, Always, AtRuntime, AtStartup, Never};
use super::row::{Row, any, at_least, more_than};
use crate::auth::documents::array;
use crate::log::components as log_components;
use crate::{fail_point, host, session, snapshots, transactions};

const MEMORY: i32 = 100 * 1024 * 1024;

const fn row(name: &'static str, default: Initial, settable: Settable, does: &'static str) -> Row {
    Row { name, default, settable, does: Some(does) }
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
pub(super) static ROWS: &[Row] = &[
    row(
        "allowDiskUseByDefault",
        Bool(true),
        Always,
        "whether sorts and groups go on on the disk where a request does not say `allowDiskUse`",
    ),
    row(
        "auditAuthorizationSuccess",
        Bool(false),
        Always,
        "whether the audit log tells of requests that were allowed, too",
    ),
    row(
        "authFailedDelayMs",
        Int(0, at_least(0).at_most(5_000)),
        AtStartup,
        "how long the answer to a failed login is held back",
    ),
    row(
        "authSchemaVersion",
        Int(5, any()),
        Never,
        "tells the form of the documents of users, by which mongodump chooses what it asks for",
    ),
    row(
        "authenticationMechanisms",
        Made(mechanisms),
        AtStartup,
        "the ways to log in that are taken; others are refused",
    ),
    row(
        "cursorTimeoutMillis",
        Long(600_000, any()),
        Always,
        "how long a cursor may lie idle before it is closed",
    ),
    row(
        "enableLocalhostAuthBypass",
        Bool(true),
        AtStartup,
        "whether the first user may be made without logging in, from the same machine",
    ),
    row(
        fail_point::PARAMETER,
        Bool(false),
        AtStartup,
        "whether there is `configureFailPoint`, by which drivers' tests make commands fail",
    ),
    row(
        "featureCompatibilityVersion",
        Made(|| ValueBuf::from(&doc! { "version": "6.0" })),
        Never,
        "tells which version of the language is spoken; `setFeatureCompatibilityVersion` sets it",
    ),
    row(
        "internalDocumentSourceDensifyMaxMemoryBytes",
        Int(MEMORY, more_than(0)),
        Always,
        "bytes of the partitions that `$densify` keeps",
    ),
    row(
        "internalDocumentSourceGroupMaxMemoryBytes",
        Long(MEMORY as i64, more_than(0)),
        Always,
        "bytes of a `$group` before it goes on on the disk",
    ),
    row(
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        Long(MEMORY as i64, more_than(0)),
        Always,
        "bytes of one partition of `$setWindowFields`",
    ),
    row(
        "internalLookupStageIntermediateDocumentMaxSizeBytes",
        Long(MEMORY as i64, at_least(16_793_600)),
        Always,
        "bytes of the documents that a `$lookup` joins to one document",
    ),
    row(
        "internalQueryFacetMaxOutputDocSizeBytes",
        Long(MEMORY as i64, more_than(0)),
        Always,
        "bytes of the document that `$facet` makes",
    ),
    row(
        "internalQueryMaxAddToSetBytes",
        Long(MEMORY as i64, more_than(0)),
        Always,
        "bytes of one set of `$addToSet`",
    ),
    row(
        "internalQueryMaxAllowedDensifyDocs",
        Int(500_000, more_than(0)),
        Always,
        "how many documents one `$densify` may make",
    ),
    row(
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        Int(MEMORY, at_least(0)),
        Always,
        "bytes of a sort before it goes on on the disk",
    ),
    row(
        "internalQueryMaxPushBytes",
        Int(MEMORY, more_than(0)),
        Always,
        "bytes of one list of `$push`",
    ),
    row(
        "internalQueryTopNAccumulatorBytes",
        Int(MEMORY, more_than(0)),
        Always,
        "bytes of one list of `$topN`, `$firstN` and their kin",
    ),
    row(
        "localLogicalSessionTimeoutMinutes",
        Int(session::TIMEOUT_MINUTES, any()),
        Never,
        "tells how long an idle session is kept",
    ),
    row(
        "logComponentVerbosity",
        Made(|| ValueBuf::from(&log_components::initial())),
        Always,
        "how much each part of the server says in the log",
    ),
    row("logLevel", Int(0, any()), Always, "how much is said in the log, from 0 to 5"),
    row("maxBSONDepth", Int(200, any()), Never, "tells how deep documents may be nested"),
    row(
        "maxIndexBuildMemoryUsageMegabytes",
        Int(200, at_least(50)),
        Always,
        "memory of an index build before it goes on on the disk",
    ),
    row(
        "maxTransactionLockRequestTimeoutMillis",
        Int(transactions::LOCK_TIMEOUT_MS, any()),
        Always,
        "how long a transaction waits for a change of the catalogue",
    ),
    row(
        "minSnapshotHistoryWindowInSeconds",
        Int(snapshots::WINDOW_SECONDS, at_least(0)),
        Always,
        "how far back reads of one moment may reach",
    ),
    row("notablescan", Bool(false), Always, "whether queries without an index are refused"),
    row(
        "operationMemoryBytesMax",
        Long(0, at_least(0)),
        Always,
        "bytes that all operations may use together; 0 stands for a share of the machine's. \
         Marula's own",
    ),
    row("quiet", Bool(false), Always, "whether the log says nothing of single connections"),
    row("saslHostName", Made(host_name), Never, "tells the name of the machine"),
    row(
        "scramIterationCount",
        Int(10_000, at_least(5_000)),
        Always,
        "the cost of a password's hash for SCRAM-SHA-1, of users made from now on",
    ),
    row(
        "scramSHA256IterationCount",
        Int(15_000, at_least(5_000)),
        Always,
        "the cost of a password's hash for SCRAM-SHA-256, of users made from now on",
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
        "which connections are taken: from plain ones step by step to TLS alone",
    ),
    row(
        "transactionLifetimeLimitSeconds",
        Int(transactions::LIFETIME_SECONDS, at_least(1)),
        Always,
        "after how long an open transaction is ended",
    ),
    row(
        "transactionMemoryBytesMax",
        Long(transactions::BYTES_MAX, at_least(0)),
        Always,
        "bytes that one open transaction may hold. Marula's own",
    ),
    row(
        "transactionsMemoryBytesMax",
        Long(transactions::TOTAL_BYTES_MAX, at_least(0)),
        Always,
        "bytes that all open transactions may hold together. Marula's own",
    ),
    row("ttlMonitorEnabled", Bool(true), Always, "whether documents that expire are deleted"),
    row(
        "ttlMonitorSleepSecs",
        Int(60, more_than(0)),
        Always,
        "how often documents that expire are looked for",
    ),
];
