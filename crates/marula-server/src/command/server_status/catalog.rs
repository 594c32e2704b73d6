//! Statistics of the catalogue: collections, indexes and running index builds.

use marula_bson::{DocWriter, doc_fields};
use marula_db::build::Phase;

use super::{Section, long};

pub(super) fn active_index_builds(section: &Section<'_>, out: &mut DocWriter<'_>) {
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
    // mongod counts the load of the sorted entries as part of the scan.
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

pub(super) fn catalog_stats(section: &Section<'_>, out: &mut DocWriter<'_>) {
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

pub(super) fn feature_compatibility_version(section: &Section<'_>, out: &mut DocWriter<'_>) {
    doc_fields!(out; "major": section.server.db.feature_version().major(), "minor": 0, "transitioning": 0);
}

/// Writes the statistics of index builds that sort their entries first. The numbers of files are
/// zero: spilled runs have no files of their own.
pub(super) fn index_bulk_builder(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let activity = section.server.db.activity();
    let bytes = long(activity.spilled_bytes.get());
    doc_fields!(out;
        "count": long(activity.bulk_builds.get()),
        "resumed": 0_i64,
        "filesOpenedForExternalSort": 0_i64,
        "filesClosedForExternalSort": 0_i64,
        "spilledRanges": long(activity.spilled_runs.get()),
        "bytesSpilledUncompressed": bytes,
        "bytesSpilled": bytes,
    );
}

pub(super) fn index_stats(section: &Section<'_>, out: &mut DocWriter<'_>) {
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
