//! Access paths: the ways to find the documents that match a filter.
//!
//! ```text
//!   conjuncts of the filter ──┬─► one index:            Fetch ─► Ixscan
//!                             ├─► two indexes that meet: Fetch ─► AndSorted ─► Ixscan, Ixscan
//!                             └─► a conjunct `$or`:      Or ─► the access path of each branch
//! ```
//!
//! They are in mongod's order, which decides between plans that do equally well: those of an `$or`
//! first, then the indexes in the order of their creation, then intersections.

use std::cell::Cell;
use std::cmp::{Ordering, Reverse};

use marula_db::collection::State;
use marula_query::filter::{CompareOp, Filter, Node as FilterNode, PathNode, Predicate};
use marula_query::meter;

use super::assign::{Assignment, assignments};
use super::{IndexView, partial, text, wildcard};
use crate::bounds::interval::union;
use crate::bounds::places::is_asked_for_places;
use crate::bounds::{Exactness, IndexBounds, Interval};
use crate::plan::{Fetch, Ixscan, Stage};
use crate::query::Query;

/// The maximum number of branches of an `$or` that are planned one by one.
const BRANCHES_MAX: usize = 10_000;
/// The maximum number of pairs of indexes considered for one conjunction. Source: the pairs that
/// mongod 6.0 shows, one more than its `internalQueryEnumerationMaxIntersectPerAnd`.
const INTERSECTIONS_MAX: usize = 4;
/// The maximum number of combinations of access paths for the branches of one `$or`. Source: mongod
/// 6.0's `internalQueryEnumerationMaxOrSolutions`.
const COMBINATIONS_MAX: usize = 10;
/// The maximum nesting of `$or` within `$and` within `$or` that is planned.
const DEPTH_MAX: usize = 8;

/// An access path.
#[derive(Clone)]
pub(crate) struct Access {
    /// The stages, including the residual filters.
    pub node: Stage,
    /// Its rank.
    pub rank: Rank,
    /// The numbers of the conjuncts outside an `$or` that it checks.
    settled: Vec<usize>,
    /// The number of the first scanned index.
    index: usize,
    /// The numbers of the conjuncts that bound it, in the order of the index's fields.
    by_field: Vec<usize>,
    /// Whether it is one scan for one condition, with no other bounds.
    is_leaf: bool,
    /// Whether some pairs of indexes were not considered.
    pub has_more_intersections: bool,
}

/// The rank of an access path; the greater the better, field by field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Rank {
    /// Whether every field of a unique index has single values: the number of documents is bounded.
    is_unique_point: bool,
    /// The number of leading fields with single values.
    point_fields: usize,
    /// The number of fields with bounds.
    bounded_fields: usize,
    /// Of two that are otherwise equal, the one without a residual filter is better.
    is_exact: bool,
    /// Of two that are otherwise equal, the index with fewer parts is better.
    fewer_parts: Reverse<usize>,
}

impl Access {
    /// Returns the access path of a stage that returns exactly the matching documents.
    pub(super) fn of(node: Stage) -> Self {
        Access {
            node,
            rank: Rank::default(),
            settled: Vec::new(),
            index: 0,
            by_field: Vec::new(),
            is_leaf: false,
            has_more_intersections: false,
        }
    }

    /// Returns the access path of a stage with a residual filter.
    pub(super) fn with_filter(node: Stage, filter: Option<Filter>) -> Self {
        Access::of(match filter {
            Some(filter) => Stage::fetch(node, Some(filter)),
            None => node,
        })
    }
}

/// Returns the access paths for one branch of the top-level `$or` of `query`.
pub(super) fn branch_ways(
    state: &State,
    views: &[IndexView<'_>],
    query: &Query,
    branch: &FilterNode,
) -> Vec<Access> {
    Finder::new(state, views, query).branch(branch, &[], 0).into_iter().flatten().collect()
}

/// Returns the union of access paths for the branches of the top-level `$or` of `query`.
pub(super) fn join_branches(
    state: &State,
    views: &[IndexView<'_>],
    query: &Query,
    ways: Vec<Access>,
) -> Access {
    let FilterNode::Or(branches) = query.filter.root() else {
        return Access::of(Stage::or(Vec::new()));
    };
    let branches: Vec<&FilterNode> = branches.iter().collect();
    Finder::new(state, views, query).join((0, &branches), &[], ways, &[query.filter.root()])
}

/// The cost of checking whether an index supports conditions, in units of `meter`.
const INDEX_WORK: usize = 32;

/// An index that may support a conjunction, with its assignments.
struct Candidate<'a> {
    number: usize,
    view: &'a IndexView<'a>,
    ways: Vec<Assignment>,
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

/// Returns the index scan of an access path, with or without a fetch.
fn scan_of(node: &Stage) -> Option<&Ixscan> {
    match node {
        Stage::Ixscan(scan) => Some(scan),
        Stage::Fetch(fetch) => match &*fetch.input {
            Stage::Ixscan(scan) => Some(scan),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether a node is one condition on one path, so that its bounds are independent of
/// others.
fn is_leaf(node: &FilterNode) -> bool {
    matches!(node, FilterNode::Path(at) if !matches!(at.predicate, Predicate::ElemMatchObject(_) | Predicate::All(_)))
}

/// Returns whether an index has an entry for every document that matches `conjuncts`, as far as its
/// partial filter is concerned.
fn may_serve(view: &IndexView<'_>, conjuncts: &[&FilterNode]) -> bool {
    let partial = view.index.spec.partial.as_ref();
    partial.is_none_or(|partial| partial::covers(partial.root(), conjuncts))
        && is_asked_for_places(view.index, conjuncts)
}

/// Returns the number of the access path with the best rank; the first of several.
fn most_promising(ways: &[Option<Access>]) -> usize {
    let ranks = ways.iter().map(|way| way.as_ref().map(|way| way.rank)).enumerate();
    ranks.reduce(|a, b| if b.1 > a.1 { b } else { a }).map_or(0, |(number, _)| number)
}

/// Returns the access paths for the documents that match `root`.
pub(super) fn accesses(
    state: &State,
    views: &[IndexView<'_>],
    query: &Query,
    root: &FilterNode,
) -> Vec<Access> {
    let mut conjuncts = Vec::new();
    partial::flatten(root, &mut conjuncts);
    let finder = Finder::new(state, views, query);
    let mut found = finder.find(&conjuncts, &[], 0);
    let has_more_intersections = finder.has_more_intersections.get();
    found.iter_mut().for_each(|access| access.has_more_intersections = has_more_intersections);
    found
}

struct Finder<'a> {
    state: &'a State,
    views: &'a [IndexView<'a>],
    query: &'a Query,
    /// Whether some pairs of indexes were not considered.
    has_more_intersections: Cell<bool>,
}

impl<'a> Finder<'a> {
    fn new(state: &'a State, views: &'a [IndexView<'a>], query: &'a Query) -> Self {
        Finder { state, views, query, has_more_intersections: Cell::new(false) }
    }

    /// Returns the access paths for the documents that match `own`. All of these match `outer` too:
    /// those conjuncts are checked elsewhere, but may bound an index.
    fn find(&self, own: &[&FilterNode], outer: &[&FilterNode], depth: usize) -> Vec<Access> {
        self.options(own, outer, depth).into_iter().flatten().collect()
    }

    /// Like [`find`](Self::find), with `None` for each pair of indexes that does not meet: mongod
    /// counts these pairs.
    fn options(
        &self,
        own: &[&FilterNode],
        outer: &[&FilterNode],
        depth: usize,
    ) -> Vec<Option<Access>> {
        // The result is not used once the operation must end: the caller checks the meter again.
        if meter::spend(INDEX_WORK * (1 + self.views.len())).is_err() {
            return Vec::new();
        }
        if own.iter().any(|node| matches!(node, FilterNode::Text(_))) {
            // No other index supports a text search.
            return self.text(own).into_iter().map(Some).collect();
        }
        let all: Vec<&FilterNode> = own.iter().chain(outer).copied().collect();
        if let Some(only) = self.to_one_document(own, &all) {
            return vec![Some(only)];
        }
        let mut found = Vec::new();
        if depth < DEPTH_MAX {
            for (number, conjunct) in own.iter().enumerate() {
                if let FilterNode::Or(branches) = conjunct {
                    self.branches(number, branches, own, outer, depth, &mut found);
                }
            }
        }
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        for (number, view) in self.views.iter().enumerate() {
            if !may_serve(view, &all) {
                continue;
            }
            let mut ways = assignments(view, &all);
            // An index that only the outer conjuncts bound is no access path for this branch.
            ways.retain(|way| way.used.iter().any(|(conjunct, _)| *conjunct < own.len()));
            found.extend(ways.iter().map(|way| Some(self.scan(number, way, own))));
            candidates.push(Candidate { number, view, ways });
        }
        if depth < DEPTH_MAX {
            self.intersections(&candidates, own, &mut found);
        }
        found
    }

    /// Returns the access path by a unique index of one field to the single document with a value.
    /// As in mongod, if one of several conditions is an equality on such a field, no other access
    /// path is considered, unless there is a projection that an index may cover.
    fn to_one_document(&self, own: &[&FilterNode], all: &[&FilterNode]) -> Option<Access> {
        let asks_for_value = |number: &usize| match own[*number] {
            FilterNode::Path(PathNode { predicate: Predicate::Compare(compare), .. }) => {
                compare.op == CompareOp::Eq
            }
            _ => false,
        };
        let mut asking: Vec<usize> = (0..own.len()).filter(asks_for_value).collect();
        let shows_fields = self.query.shown.as_ref().is_some_and(|shown| !shown.is_nothing());
        if own.len() < 2 || asking.is_empty() || shows_fields {
            return None;
        }
        asking.sort_by_key(|&number| own[number].path_parts());
        asking.into_iter().find_map(|number| {
            let FilterNode::Path(at) = own[number] else { return None };
            let mut leading = self.views.iter().enumerate().filter(|(_, view)| {
                view.index.spec.unique
                    && matches!(view.parts.as_slice(), [part] if part.is_on(&at.path))
                    && may_serve(view, all)
            });
            leading.find_map(|(index, view)| {
                // Other predicates on this field become residual filters on the fetched document.
                let mut way = assignments(view, &own[number..=number]).into_iter().next()?;
                way.by_field = vec![number];
                way.used.iter_mut().for_each(|(conjunct, _)| *conjunct = number);
                Some(self.scan(index, &way, own))
            })
        })
    }

    /// Returns the access path by the text index.
    fn text(&self, own: &[&FilterNode]) -> Option<Access> {
        let (node, settled) = text::access(self.state, self.query, own)?;
        let rest = self.filter(own, |number| !settled.contains(&number));
        Some(Access::with_filter(node, rest))
    }

    /// Returns the access path by one index.
    fn scan(&self, index: usize, way: &Assignment, own: &[&FilterNode]) -> Access {
        let view = &self.views[index];
        let exactness = |conjunct: usize| {
            let found = way.used.iter().find(|(used, _)| *used == conjunct);
            match found?.1 {
                // If there is an array, an entry is not the whole value of the field.
                Exactness::OnKeys if view.is_multikey() => Some(Exactness::OnDocument),
                exactness => Some(exactness),
            }
        };
        // The conditions that bound the index come first in the residual filter, by the index's
        // fields.
        let bounding: Vec<&FilterNode> = (way.by_field.iter())
            .filter(|&&number| exactness(number) == Some(Exactness::OnDocument))
            .filter_map(|&number| own.get(number).copied())
            .collect();
        let unbound = (0..own.len()).filter(|&number| exactness(number).is_none());
        let unbound: Vec<&FilterNode> = unbound.map(|number| own[number]).collect();
        let rest = self.conjunction(&bounding, &unbound);
        let on_keys = self.filter(own, |number| exactness(number) == Some(Exactness::OnKeys));
        let rank = Rank {
            is_unique_point: view.index.spec.unique && way.point_fields == view.parts.len(),
            point_fields: way.point_fields,
            bounded_fields: way.bounded_fields,
            is_exact: rest.is_none(),
            fewer_parts: Reverse(view.parts.len()),
        };
        let outer = way.used.iter().filter(|(conjunct, exactness)| {
            *conjunct >= own.len() && *exactness == Exactness::Exact
        });
        let settled = outer.map(|(conjunct, _)| conjunct - own.len()).collect();
        let mut scan = view.scan(way.bounds.clone());
        scan.filter = on_keys;
        let node = Access::with_filter(Stage::Ixscan(scan), rest).node;
        let is_leaf = way.used.len() == 1 && matches!(own, [only] if is_leaf(only));
        let by_field = way.by_field.clone();
        Access { rank, settled, index, by_field, is_leaf, ..Access::of(node) }
    }

    /// Returns the intersections of two indexes, or of two scans of one index whose conditions
    /// arrays separate. Each scan is in record order.
    fn intersections(
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

    /// Returns the access paths by the branches of the `$or` that is conjunct `number`, if each
    /// branch has one.
    fn branches(
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
    fn branch(
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
    fn join(
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

    /// Returns the residual filter: those of `conjuncts` for which `is_left` is true.
    fn filter(&self, conjuncts: &[&FilterNode], is_left: impl Fn(usize) -> bool) -> Option<Filter> {
        let left = conjuncts.iter().enumerate().filter(|(number, _)| is_left(*number));
        let left: Vec<&FilterNode> = left.map(|(_, &node)| node).collect();
        self.conjunction(&left, &[])
    }

    /// Returns the filter of conjuncts, the unbound ones in mongod's order; `None` if there are
    /// none.
    fn conjunction(&self, bounding: &[&FilterNode], unbound: &[&FilterNode]) -> Option<Filter> {
        let mut all = in_order(bounding, unbound);
        let root = match all.len() {
            0 => return None,
            1 => all.swap_remove(0),
            _ => FilterNode::And(all),
        };
        Some(Filter::of_canonical(root, &self.query.context))
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

/// Returns conditions in mongod's order: those that bound an index, unchanged, then the others by
/// their paths.
fn in_order(bounding: &[&FilterNode], unbound: &[&FilterNode]) -> Vec<FilterNode> {
    let ordered = |nodes: &[&FilterNode]| -> Vec<FilterNode> {
        nodes.iter().map(|&node| in_path_order(node.clone())).collect()
    };
    let mut unbound = ordered(unbound);
    unbound.sort_by(beside_an_index);
    let mut all = ordered(bounding);
    all.append(&mut unbound);
    all
}

fn compare_all(a: &[FilterNode], b: &[FilterNode]) -> Ordering {
    let pairs = a.iter().zip(b).map(|(a, b)| beside_an_index(a, b));
    pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
}

/// Mongod's order of residual conditions: those without a path, then the others by their paths and
/// kinds; those that join others, by their children.
fn beside_an_index(a: &FilterNode, b: &FilterNode) -> Ordering {
    let by_path = a.path_parts().cmp(b.path_parts());
    by_path.then_with(|| a.rank().cmp(&b.rank())).then_with(|| match (a, b) {
        (FilterNode::And(a), FilterNode::And(b)) | (FilterNode::Or(a), FilterNode::Or(b)) => {
            compare_all(a, b)
        }
        // A negation is ordered by its operand.
        (FilterNode::Path(a), FilterNode::Path(b)) => {
            let negated = |node: &PathNode| match &node.predicate {
                Predicate::Not(inner) => inner.rank(),
                other => other.rank(),
            };
            let by_path = a.path.parts().cmp(b.path.parts());
            by_path.then_with(|| negated(a).cmp(&negated(b)))
        }
        _ => Ordering::Equal,
    })
}

/// Returns the node with its children in mongod's order of residual conditions.
fn in_path_order(node: FilterNode) -> FilterNode {
    let ordered = |children: Vec<FilterNode>| {
        let mut children: Vec<_> = children.into_iter().map(in_path_order).collect();
        children.sort_by(beside_an_index);
        children
    };
    match node {
        FilterNode::And(children) => FilterNode::And(ordered(children)),
        FilterNode::Or(children) => FilterNode::Or(ordered(children)),
        FilterNode::Nor(children) => FilterNode::Nor(ordered(children)),
        FilterNode::Not(child) => FilterNode::Not(Box::new(in_path_order(*child))),
        other => other,
    }
}
