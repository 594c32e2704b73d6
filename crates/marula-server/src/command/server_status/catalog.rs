//! Statistics of the catalogue: collections, indexes and running index builds.

use marula_bson::{DocWriter, doc_fields};
use marula_db::build::Phase;

use super::{Section, int, long};

pub(super) fn active_index_builds(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let (mut scan, mut load, mut drain) = (0, 0, 0);
    let catalog = section.server.db.catalog();
    // Without builds, no collection is visited.
    let collections = match catalog.totals().index_builds {
        0 => Vec::new(),
        _ => catalog.all(),
    };
    for collection in collections {
        for build in &collection.state().building {
            match build.phase() {
                Phase::Scan => scan += 1,
                Phase::Load => load += 1,
                Phase::Drain => drain += 1,
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
    let totals = section.server.db.catalog().totals();
    doc_fields!(out;
        "collections": int(totals.collections),
        "capped": int(totals.capped),
        "clustered": int(totals.clustered),
        "timeseries": int(totals.time_series),
        "views": int(totals.views),
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
    for collection in section.server.db.catalog().all() {
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
    out.append("count", total);
    let mut features = out.begin_doc("features");
    for (kind, count) in KINDS.iter().zip(counts) {
        features.begin_doc(kind).append("count", count);
    }
}
