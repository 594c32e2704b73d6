//! Intersections: the access paths by two indexes, or by two scans of one index.

use marula_query::filter::Node as FilterNode;

use super::{Access, Finder};
use crate::bounds::Interval;
use crate::plan::Stage;
use crate::planner::IndexView;
use crate::planner::assign::Assignment;

/// The maximum number of pairs of indexes considered for one conjunction. Source: the pairs that
/// mongod 6.0 shows, one more than its `internalQueryEnumerationMaxIntersectPerAnd`.
const INTERSECTIONS_MAX: usize = 4;

/// An index that may support a conjunction, with its assignments.
pub(super) struct Candidate<'a> {
    pub(super) number: usize,
    pub(super) view: &'a IndexView<'a>,
    pub(super) ways: Vec<Assignment>,
}

impl Assignment {
    /// Returns whether the scan is over one key, whose entries are in record order, and all its
    /// conditions are among the first `own`.
    fn is_in_record_order(&self, own: usize) -> bool {
        let is_one_point =
            |intervals: &Vec<Interval>| matches!(intervals.as_slice(), [one] if one.is_point());
        self.bounds.fields.iter().all(is_one_point)
            && self.by_field.iter().all(|conjunct| *conjunct < own)
    }
}

impl Finder<'_> {
    /// Returns the intersections of two indexes, or of two scans of one index whose conditions
    /// arrays separate. Each scan is in record order.
    pub(super) fn intersections(
        &self,
        candidates: &[Candidate<'_>],
        own: &[&FilterNode],
        found: &mut Vec<Option<Access>>,
    ) {
        let mut intersections = 0;
        for (number, first) in candidates.iter().enumerate() {
            if first.view.wildcard.is_some() {
                continue;
            }
            let partners: Vec<Vec<(&IndexView<'_>, &Assignment)>> = match first.ways.as_slice() {
                [] => continue,
                [way] => {
                    let others = candidates[number + 1..].iter().filter_map(|other| {
                        let [its_way] = other.ways.as_slice() else { return None };
                        let shares = |conjunct: &usize| way.by_field.contains(conjunct);
                        let is_apart = !its_way.by_field.iter().any(shares);
                        // One index that supports both conditions is better.
                        let serves_both = |way_of_all: &Assignment| {
                            let both = way.by_field.iter().chain(&its_way.by_field);
                            both.into_iter().all(|it| way_of_all.by_field.contains(it))
                        };
                        let is_outdone = candidates.iter().flat_map(|it| &it.ways).any(serves_both);
                        (is_apart && !is_outdone && other.view.wildcard.is_none())
                            .then(|| vec![(first.view, way), (other.view, its_way)])
                    });
                    others.collect()
                }
                ways => vec![ways.iter().map(|way| (first.view, way)).collect()],
            };
            for walks in partners {
                if intersections == INTERSECTIONS_MAX {
                    self.has_more_intersections.set(true);
                    return;
                }
                let meets = walks.iter().all(|(_, way)| way.is_in_record_order(own.len()));
                found.push(meets.then(|| {
                    let intersection = self.intersection(&walks, own);
                    Access { index: first.number, ..intersection }
                }));
                intersections += 1;
            }
        }
    }

    /// Returns the intersection of scans in record order. All conditions are checked on the
    /// document: it may have changed between the reads of the two indexes.
    fn intersection(&self, walks: &[(&IndexView<'_>, &Assignment)], own: &[&FilterNode]) -> Access {
        let mut by_field: Vec<usize> = Vec::with_capacity(own.len());
        for conjunct in walks.iter().flat_map(|(_, way)| &way.by_field) {
            if !by_field.contains(conjunct) {
                by_field.push(*conjunct);
            }
        }
        let bounding: Vec<&FilterNode> = by_field.iter().map(|&number| own[number]).collect();
        let unbound = (0..own.len()).filter(|number| !by_field.contains(number));
        let unbound: Vec<&FilterNode> = unbound.map(|number| own[number]).collect();
        let scans = walks.iter().map(|(view, way)| Stage::Ixscan(view.scan(way.bounds.clone())));
        let node = Stage::and_sorted(scans.collect());
        let filter = self.conjunction(&bounding, &unbound);
        Access { by_field, ..Access::with_filter(node, filter) }
    }
}
