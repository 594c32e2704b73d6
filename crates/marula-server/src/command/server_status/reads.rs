//! Counters of the read concerns and read preferences of requests.

use marula_bson::{DocWriter, doc_fields};

use super::{Section, count};
use crate::counters::{Concerns, Counter};
use crate::read_preference::NAMES;

pub(super) fn concerns(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let reads = &section.server.counters.reads;
    write_concerns(&reads.outside, true, &mut out.begin_doc("nonTransactionOps"));
    write_concerns(&reads.inside, false, &mut out.begin_doc("transactionOps"));
}

/// Writes the counters of the read concern levels. `has_all` is false for transactions, which do
/// not permit `available` and `linearizable`.
fn write_concerns(concerns: &Concerns, has_all: bool, out: &mut DocWriter<'_>) {
    let none = count(&concerns.none);
    out.append("none", none);
    let mut of_none = out.begin_doc("noneInfo");
    let mut by_default = of_none.begin_doc("CWRC");
    for level in ["local", "available", "majority"] {
        if has_all || level != "available" {
            by_default.append(level, 0_i64);
        }
    }
    drop(by_default);
    let mut implicit = of_none.begin_doc("implicitDefault");
    implicit.append("local", none);
    if has_all {
        implicit.append("available", 0_i64);
    }
    drop(implicit);
    drop(of_none);
    out.append("local", count(&concerns.local));
    if has_all {
        out.append("available", count(&concerns.available));
    }
    doc_fields!(out;
        "majority": count(&concerns.majority),
        "snapshot": {
            "withClusterTime": count(&concerns.snapshot_with_cluster_time),
            "withoutClusterTime": count(&concerns.snapshot_without_cluster_time),
        },
    );
    if has_all {
        out.append("linearizable", count(&concerns.linearizable));
    }
}

/// Writes the counters of read preferences. All reads run on the primary, because this server
/// always is.
pub(super) fn preferences(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let none = Counter::default();
    let counters = &section.server.counters.reads.by_preference;
    for (name, is_primary) in [("executedOnPrimary", true), ("executedOnSecondary", false)] {
        let mut all = out.begin_doc(name);
        for (name, counter) in NAMES.iter().zip(counters) {
            let counter = if is_primary { counter } else { &none };
            let mut one = all.begin_doc(name);
            doc_fields!(one; "internal": 0_i64, "external": count(counter));
        }
    }
}
