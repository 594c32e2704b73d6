//! The choice between plans that did equally well in a trial: by the form of the bounds of their
//! indexes.
//!
//! The index is preferred that has more leading fields with one value, then with single values,
//! then with ranges that have two ends, then with any bounds; then the plan that has read fewer
//! documents, and then the index with fewer fields. Only plans with one index scan are compared.
//!
//! Source: the winners in mongod 6.0.27 among plans with the same work.

use std::cmp::Reverse;

use marula_db::index::IndexKind;

use crate::bounds::Interval;
use crate::plan::{Ixscan, Stage};
use crate::trial::Tried;

/// The fit of a plan's single index to its query; the greater the better, field by field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Fit {
    /// The number of leading fields with one value.
    values: usize,
    /// The number of leading fields with single values.
    points: usize,
    /// The number of leading fields with single values or ranges with both ends in the query.
    ranges: usize,
    /// The number of leading fields with bounds.
    bounded: usize,
    /// The number of documents read.
    docs: Reverse<u64>,
    fields: Reverse<usize>,
}

impl Fit {
    /// Returns the fit of the index that a plan scans; `None` if it scans none, or several.
    pub(crate) fn of(tried: &Tried) -> Option<Fit> {
        let root = &tried.plan.root;
        let mut scans: Vec<&Ixscan> = Vec::new();
        root.walk(&mut |node| {
            if let Stage::Ixscan(scan) = node {
                scans.push(scan);
            }
        });
        let [scan] = scans.as_slice() else { return None };
        let fields = &scan.bounds.fields.as_ref()?.fields;
        // In a wildcard index only the path precedes the value.
        let path = match &scan.index.spec.kind {
            IndexKind::Wildcard(wildcard) => Some(wildcard.part()),
            _ => None,
        };
        let bounds: Vec<&Vec<Interval>> = (fields.iter().enumerate())
            .filter(|(number, _)| Some(*number) != path)
            .map(|(_, intervals)| intervals)
            .collect();
        let leading = |suits: fn(&Interval) -> bool| {
            bounds.iter().take_while(|intervals| intervals.iter().all(suits)).count()
        };
        let is_one_value =
            |intervals: &&&Vec<Interval>| matches!(intervals.as_slice(), [one] if one.is_point());
        Some(Fit {
            values: bounds.iter().take_while(is_one_value).count(),
            points: leading(Interval::is_point),
            ranges: leading(Interval::is_ended),
            bounded: leading(|interval| !interval.is_all()),
            docs: Reverse(tried.run.examined(root).docs),
            fields: Reverse(fields.len()),
        })
    }
}
