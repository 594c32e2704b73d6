//! Statistics of the catalogue: collections, indexes and running index builds.

use marula_bson::{DocWriter, doc_fields};
use marula_db::build::Phase;
use marula_db::index::{Geography, IndexKind, IndexSpec};

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

/// A feature of indexes, and whether an index has it.
type Feature = (&'static str, fn(&IndexSpec) -> bool);

/// The features by which indexes are counted. One on `_id` has only that.
const FEATURES: &[Feature] = &[
    ("2d", |spec| matches!(spec.kind, IndexKind::Places(Geography::Flat(_)))),
    ("2dsphere", |spec| matches!(spec.kind, IndexKind::Places(Geography::Sphere { .. }))),
    ("2dsphere_bucket", |spec| matches!(spec.kind, IndexKind::Places(Geography::SphereOfBuckets))),
    ("collation", |spec| spec.collation.is_some()),
    ("compound", |spec| field_count(spec) > 1),
    ("hashed", |spec| matches!(spec.kind, IndexKind::Hashed { .. })),
    ("id", IndexSpec::is_id),
    ("normal", |spec| matches!(spec.kind, IndexKind::Ordinary)),
    ("partial", |spec| spec.partial.is_some()),
    ("prepareUnique", |spec| spec.prepare_unique),
    ("single", |spec| field_count(spec) == 1),
    ("sparse", |spec| spec.sparse),
    ("text", |spec| matches!(spec.kind, IndexKind::Text(_))),
    ("ttl", |spec| spec.expire_after_seconds.is_some()),
    ("unique", |spec| spec.unique),
    ("wildcard", |spec| matches!(spec.kind, IndexKind::Wildcard(_))),
];

/// The number of fields of an index. All texts of a text index are one, which its key shows as two.
fn field_count(spec: &IndexSpec) -> usize {
    let shown = spec.key.as_doc().iter().count();
    shown - usize::from(matches!(spec.kind, IndexKind::Text(_)))
}

/// Writes the number of indexes by their features, and how often those that exist were used.
pub(super) fn index_stats(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let mut counts = [(0_i64, 0_u64); FEATURES.len()];
    let mut total = 0_i64;
    for collection in section.server.db.catalog().all() {
        for index in &collection.state().indexes {
            total += 1;
            let (uses, _) = index.usage();
            let is_id = index.spec.is_id();
            for ((name, has), (count, accesses)) in FEATURES.iter().zip(&mut counts) {
                if has(&index.spec) && (!is_id || *name == "id") {
                    *count += 1;
                    *accesses += uses;
                }
            }
        }
    }
    out.append("count", total);
    let mut features = out.begin_doc("features");
    for ((name, _), (count, accesses)) in FEATURES.iter().zip(counts) {
        let mut feature = features.begin_doc(name);
        doc_fields!(feature; "count": count, "accesses": long(accesses));
    }
}
