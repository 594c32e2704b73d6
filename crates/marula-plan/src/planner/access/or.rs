//! The access paths of an `$or`: one for each of its branches, joined.
//!
//! ```text
//!   Or ─┬─► access path of branch 1
//!       ├─► access path of branch 2
//!       └─► one index scan for all branches that are single conditions on that index
//! ```

use std::cmp::Ordering;

use marula_query::filter::{Filter, Node as FilterNode};
use marula_query::meter;

use super::condition_order::{compare_all, in_order, in_path_order};
use super::{Access, Finder, scan_of};
use crate::bounds::interval::union;
use crate::bounds::{Exactness, IndexBounds};
use crate::plan::{Fetch, Stage};
use crate::planner::{partial, wildcard};

/// The maximum number of branches of an `$or` that are planned one by one.
const BRANCHES_MAX: usize = 10_000;

/// The maximum number of combinations of access paths for the branches of one `$or`. Source: mongod
/// 6.0's `internalQueryEnumerationMaxOrSolutions`.
const COMBINATIONS_MAX: usize = 10;

/// Returns the number of the access path with the best rank; the first of several.
fn most_promising(ways: &[Option<Access>]) -> usize {
    let ranks = ways.iter().map(|way| way.as_ref().map(|way| way.rank)).enumerate();
    ranks.reduce(|a, b| if b.1 > a.1 { b } else { a }).map_or(0, |(number, _)| number)
}

impl Finder<'_> {
    /// Returns the access paths by the branches of the `$or` that is conjunct `number`, if each
    /// branch has one.
    pub(super) fn branches(
        &self,
        number: usize,
        branches: &[FilterNode],
        own: &[&FilterNode],
        outer: &[&FilterNode],
        depth: usize,
        found: &mut Vec<Option<Access>>,
    ) {
        if branches.len() > BRANCHES_MAX {
            return;
        }
        // A condition on all branches may bound an index in each.
        let is_plain = |node: &&FilterNode| matches!(node, FilterNode::Path(_));
        let siblings: Vec<(usize, &FilterNode)> = own
            .iter()
            .copied()
            .enumerate()
            .filter(|(other, node)| *other != number && is_plain(node))
            .collect();
        let around: Vec<&FilterNode> =
            siblings.iter().map(|(_, node)| *node).chain(outer.iter().copied()).collect();
        // Nested combinations would be too many.
        let combinations_max = if depth == 0 { COMBINATIONS_MAX } else { 1 };
        for combination in 0..combinations_max {
            // The first branch's access path changes the fastest.
            let mut left = combination;
            let nodes: Vec<&FilterNode> = branches.iter().collect();
            let mut chosen = Vec::with_capacity(branches.len());
            for branch in branches {
                let mut ways = self.branch(branch, &around, depth + 1);
                if depth > 0 {
                    ways.retain(Option::is_some);
                }
                if ways.is_empty() {
                    return;
                }
                let way = match depth {
                    0 => left % ways.len(),
                    _ => most_promising(&ways),
                };
                left /= ways.len();
                chosen.push(ways.swap_remove(way));
            }
            if left > 0 {
                return;
            }
            let chosen: Option<Vec<Access>> = chosen.into_iter().collect();
            let join = |chosen| self.join((number, &nodes), &siblings, chosen, own);
            found.extend(chosen.map(join).map(Some));
        }
    }

    /// Returns the access paths for one branch of an `$or` and the conjuncts in `around`.
    pub(super) fn branch(
        &self,
        branch: &FilterNode,
        around: &[&FilterNode],
        depth: usize,
    ) -> Vec<Option<Access>> {
        let mut conjuncts = Vec::new();
        partial::flatten(branch, &mut conjuncts);
        self.options(&conjuncts, around, depth)
    }

    /// Returns the union of access paths for the branches of the `$or` that is conjunct `number`.
    /// As in mongod, those of several conditions come first, then those of one condition, each by
    /// the order of the indexes. Single conditions on one index share a scan.
    pub(super) fn join(
        &self,
        (number, branches): (usize, &[&FilterNode]),
        siblings: &[(usize, &FilterNode)],
        ways: Vec<Access>,
        own: &[&FilterNode],
    ) -> Access {
        let rank = ways.iter().map(|way| way.rank).min().unwrap_or_default();
        let (first, others) = ways
            .split_first()
            .map_or((&[][..], &[][..]), |(first, others)| (first.settled.as_slice(), others));
        let is_in_all = |it: &&usize| others.iter().all(|way| way.settled.contains(it));
        let settled: Vec<usize> = first.iter().filter(is_in_all).copied().collect();
        let is_settled = |other: usize| {
            let sibling = siblings.iter().position(|(sibling, _)| *sibling == other);
            other == number || sibling.is_some_and(|sibling| settled.contains(&sibling))
        };
        let rest = self.filter(own, |other| !is_settled(other));
        let settled =
            settled.iter().filter_map(|around| around.checked_sub(siblings.len())).collect();
        let mut pairs: Vec<(Access, &FilterNode)> =
            ways.into_iter().zip(branches.iter().copied()).collect();
        pairs.sort_by(|(a, a_node), (b, b_node)| {
            let by_index = (a.is_leaf, a.index).cmp(&(b.is_leaf, b.index));
            by_index.then_with(|| a.compare_conditions(a_node, b, b_node))
        });
        let index = pairs.iter().map(|(way, _)| way.index).min().unwrap_or(0);
        let mut inputs: Vec<Stage> = Vec::with_capacity(pairs.len());
        let mut pairs = pairs.into_iter().peekable();
        while let Some((way, branch)) = pairs.next() {
            if !way.is_leaf {
                self.add_walk(way.node, &mut inputs);
                continue;
            }
            let mut leaves = vec![(way, branch)];
            while let Some(next) = pairs.next_if(|(next, _)| next.index == leaves[0].0.index) {
                leaves.push(next);
            }
            self.add_walk(self.walk_together(leaves), &mut inputs);
        }
        let node = match inputs.len() {
            1 => inputs.swap_remove(0),
            _ => Stage::or(inputs),
        };
        let node = Access::with_filter(node, rest).node;
        Access { rank, settled, index, ..Access::of(node) }
    }

    /// Adds a scan to those of an `$or`. Two scans of the same part of an index become one,
    /// whatever their residual filters are.
    fn add_walk(&self, node: Stage, inputs: &mut Vec<Stage>) {
        if meter::spend(inputs.len()).is_err() {
            return;
        }
        let same = inputs.iter_mut().find_map(|known| match (scan_of(known), scan_of(&node)) {
            (Some(ours), Some(theirs)) if ours.walks_as(theirs) => Some(known),
            _ => None,
        });
        let Some(known) = same else {
            inputs.push(node);
            return;
        };
        match (&mut *known, node) {
            (Stage::Fetch(known), Stage::Fetch(fetch)) => {
                known.filter = known.filter.take().zip(fetch.filter).map(|(ours, theirs)| {
                    let mut either = match ours.root() {
                        FilterNode::Or(nodes) => nodes.clone(),
                        node => vec![node.clone()],
                    };
                    match theirs.root() {
                        FilterNode::Or(nodes) => either.extend(nodes.iter().cloned()),
                        node => either.push(node.clone()),
                    }
                    Filter::of_canonical(FilterNode::Or(either), &self.query.context)
                });
            }
            // A document that one of them returns unchecked is returned.
            (Stage::Fetch(known), Stage::Ixscan(_)) => known.filter = None,
            (Stage::Ixscan(_), Stage::Fetch(fetch)) => {
                *known = Stage::Fetch(Fetch { filter: None, ..fetch });
            }
            _ => {}
        }
    }

    /// Returns one scan for the union of conditions.
    fn walk_together(&self, leaves: Vec<(Access, &FilterNode)>) -> Stage {
        let view = &self.views[leaves[0].0.index];
        let lead = view.lead();
        let (mut exactness, mut walks) = (Exactness::Exact, Vec::with_capacity(leaves.len()));
        let mut conditions = Vec::with_capacity(leaves.len());
        for (leaf, condition) in leaves {
            let (scan, is_checked) = match leaf.node {
                Stage::Fetch(fetch) => (*fetch.input, true),
                stage => (stage, false),
            };
            let Stage::Ixscan(scan) = scan else { continue };
            exactness = exactness.max(match (&scan.filter, is_checked) {
                (_, true) => Exactness::OnDocument,
                (Some(_), false) => Exactness::OnKeys,
                (None, false) => Exactness::Exact,
            });
            walks.extend(scan.bounds.fields);
            conditions.push(in_path_order(condition.clone()));
        }
        let mut intervals = Vec::new();
        for walk in &mut walks {
            intervals.append(&mut walk.fields[lead]);
        }
        let mut bounds = IndexBounds::whole(view.parts.len());
        bounds.fields[lead] = union(intervals, view.parts[lead].order);
        wildcard::bound_path(view, &mut bounds);
        let filter = Filter::of_canonical(FilterNode::Or(conditions), &self.query.context);
        let mut scan = view.scan(bounds);
        match exactness {
            Exactness::Exact => Stage::Ixscan(scan),
            Exactness::OnKeys => {
                scan.filter = Some(filter);
                Stage::Ixscan(scan)
            }
            Exactness::OnDocument => Stage::fetch(Stage::Ixscan(scan), Some(filter)),
        }
    }
}

impl Access {
    /// Compares two access paths that scan the same index first: by their conditions, bounding ones
    /// first.
    fn compare_conditions(
        &self,
        node: &FilterNode,
        other: &Access,
        others: &FilterNode,
    ) -> Ordering {
        let conditions = |access: &Access, node: &FilterNode| -> Vec<FilterNode> {
            let mut conjuncts = Vec::new();
            partial::flatten(node, &mut conjuncts);
            let bounding = access.by_field.iter().filter_map(|&number| conjuncts.get(number));
            let bounding: Vec<&FilterNode> = bounding.copied().collect();
            let unbound = (0..conjuncts.len()).filter(|number| !access.by_field.contains(number));
            in_order(&bounding, &unbound.map(|number| conjuncts[number]).collect::<Vec<_>>())
        };
        match (self.is_leaf, self.by_field.is_empty() || other.by_field.is_empty()) {
            (false, false) => compare_all(&conditions(self, node), &conditions(other, others)),
            _ => Ordering::Equal,
        }
    }
}
