//! Which of plans that did as well in a trial is taken: by the form of the bounds on their index.
//!
//! The index is preferred of which more leading fields are bounded to one value, then to single
//! values, then to ranges with two ends, then at all; then the plan that has read fewer documents,
//! and then the index with fewer fields. Only plans that walk one index are compared.
//! Source: the winners that mongod 6.0.27 names where all plans do the same work.

use std::cmp::Reverse;

use marula_db::index::IndexKind;

use crate::bounds::Interval;
use crate::plan::{Ixscan, Stage};
use crate::trial::Tried;

/// How well the one index of a plan suits its query; the greater the better, field by field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Fit {
    /// Leading fields with one value.
    values: usize,
    /// Leading fields with single values.
    points: usize,
    /// Leading fields with single values or ranges that the query ends on both sides.
    ranges: usize,
    /// Leading fields that are bounded at all.
    bounded: usize,
    /// Documents that were read.
    docs: Reverse<u64>,
    fields: Reverse<usize>,
}

impl Fit {
    /// The fit of the index that a plan walks; `None` where it walks none, or several.
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
        // What an entry of a wildcard index says in front of the value is the path alone.
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
