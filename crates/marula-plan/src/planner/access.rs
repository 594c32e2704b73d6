//! The ways to the documents that meet a filter: through one index, through two that meet, or
//! through one for each branch of an `$or`.
//!
//! They come in mongod's order, which tells which of several that do as well is taken: those of an
//! `$or` first, then the indexes in the order of their creation, then what meets.

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

/// How many branches of an `$or` are planned one by one.
const BRANCHES_MAX: usize = 10_000;
/// How many pairs of indexes that could meet are looked at for one conjunction. Source: the pairs
/// that mongod 6.0 shows, one more than its `internalQueryEnumerationMaxIntersectPerAnd`.
const MEETINGS_MAX: usize = 4;
/// How many ways through the branches of one `$or` are looked at. Source: mongod 6.0's
/// `internalQueryEnumerationMaxOrSolutions`.
const COMBINATIONS_MAX: usize = 10;
/// How deep `$or` within `$and` within `$or` is planned.
const DEPTH_MAX: usize = 8;

/// A way to documents.
#[derive(Clone)]
pub(crate) struct Access {
    /// The stages; what is left of the filter is checked within.
    pub node: Stage,
    /// How promising it looks.
    pub rank: Rank,
    /// The conjuncts from outside an `$or`, by number, that it sees to.
    settled: Vec<usize>,
    /// The number of the index that it walks first.
    index: usize,
    /// The conjuncts that bound it, by number, in the order of the fields.
    by_field: Vec<usize>,
    /// Whether it is one walk for one condition, bounded by nothing else.
    is_leaf: bool,
    /// Whether some pairs of indexes were not looked at.
    pub has_more_meetings: bool,
}

/// How promising a way looks; the greater the better, field by field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Rank {
    /// Every field of a unique index has single values: at most so many documents as there are.
    is_unique_point: bool,
    /// Leading fields that have single values.
    point_fields: usize,
    /// Fields that are bounded at all.
    bounded_fields: usize,
    /// Of two that are alike, the one that leaves nothing to check.
    is_exact: bool,
    /// Of two that are alike, the narrower index.
    fewer_parts: Reverse<usize>,
}

impl Access {
    /// The way of a stage that gives just the documents that match.
    pub(super) fn of(node: Stage) -> Self {
        Access {
            node,
            rank: Rank::default(),
            settled: Vec::new(),
            index: 0,
            by_field: Vec::new(),
            is_leaf: false,
            has_more_meetings: false,
        }
    }

    /// The way of a stage whose documents are checked.
    pub(super) fn with_filter(node: Stage, filter: Option<Filter>) -> Self {
        Access::of(match filter {
            Some(filter) => Stage::fetch(node, Some(filter)),
            None => node,
        })
    }
}

/// The ways to the documents that meet one branch of the `$or` that `query` is.
pub(super) fn branch_ways(
    state: &State,
    views: &[IndexView<'_>],
    query: &Query,
    branch: &FilterNode,
) -> Vec<Access> {
    Finder::new(state, views, query).branch(branch, &[], 0).into_iter().flatten().collect()
}

/// The way that goes these ways one after the other, for the branches of the `$or` that `query` is.
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

/// What it costs to look at an index for conditions.
const INDEX_WORK: usize = 32;

/// An index that may serve a conjunction, with the ways to use it.
struct Candidate<'a> {
    number: usize,
    view: &'a IndexView<'a>,
    ways: Vec<Assignment>,
}

impl Assignment {
    /// Whether the walk is over one key, whose entries are in record order, for conditions that all
    /// are among the first `own`.
    fn is_in_record_order(&self, own: usize) -> bool {
        let is_one_point =
            |intervals: &Vec<Interval>| matches!(intervals.as_slice(), [one] if one.is_point());
        self.bounds.fields.iter().all(is_one_point)
            && self.by_field.iter().all(|conjunct| *conjunct < own)
    }
}

/// The walk of an index that a way is, with or without its documents.
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

/// Whether a node is one condition on one path, so that its bounds say what they can of it alone.
fn is_leaf(node: &FilterNode) -> bool {
    matches!(node, FilterNode::Path(at) if !matches!(at.predicate, Predicate::ElemMatchObject(_) | Predicate::All(_)))
}

/// Whether an index knows of all documents that meet `conjuncts`, as far as its own conditions go.
fn may_serve(view: &IndexView<'_>, conjuncts: &[&FilterNode]) -> bool {
    let partial = view.index.spec.partial.as_ref();
    partial.is_none_or(|partial| partial::covers(partial.root(), conjuncts))
        && is_asked_for_places(view.index, conjuncts)
}

/// Which of some ways looks the most promising; the first of those that look the same.
fn most_promising(ways: &[Option<Access>]) -> usize {
    let ranks = ways.iter().map(|way| way.as_ref().map(|way| way.rank)).enumerate();
    ranks.reduce(|a, b| if b.1 > a.1 { b } else { a }).map_or(0, |(number, _)| number)
}

/// The ways to the documents that meet `root`.
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
    let has_more_meetings = finder.has_more_meetings.get();
    found.iter_mut().for_each(|access| access.has_more_meetings = has_more_meetings);
    found
}

struct Finder<'a> {
    state: &'a State,
    views: &'a [IndexView<'a>],
    query: &'a Query,
    /// Whether some pairs of indexes were not looked at.
    has_more_meetings: Cell<bool>,
}

impl<'a> Finder<'a> {
    fn new(state: &'a State, views: &'a [IndexView<'a>], query: &'a Query) -> Self {
        Finder { state, views, query, has_more_meetings: Cell::new(false) }
    }

    /// The ways to the documents that meet `own`, of which every one meets `outer` too: those
    /// conjuncts are checked elsewhere, but may help to bound an index.
    fn find(&self, own: &[&FilterNode], outer: &[&FilterNode], depth: usize) -> Vec<Access> {
        self.options(own, outer, depth).into_iter().flatten().collect()
    }

    /// What [`find`](Self::find) gives, with a gap for each pair of indexes that does not meet:
    /// mongod counts those where it counts ways.
    fn options(
        &self,
        own: &[&FilterNode],
        outer: &[&FilterNode],
        depth: usize,
    ) -> Vec<Option<Access>> {
        // What is found once the operation must end is not used: whoever asks for plans recalls it.
        if meter::spend(INDEX_WORK * (1 + self.views.len())).is_err() {
            return Vec::new();
        }
        if own.iter().any(|node| matches!(node, FilterNode::Text(_))) {
            // No other index answers a text search.
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
            // An index that only the conjuncts from outside bound is no way to this branch.
            ways.retain(|way| way.used.iter().any(|(conjunct, _)| *conjunct < own.len()));
            found.extend(ways.iter().map(|way| Some(self.scan(number, way, own))));
            candidates.push(Candidate { number, view, ways });
        }
        if depth < DEPTH_MAX {
            self.meetings(&candidates, own, &mut found);
        }
        found
    }

    /// The way through a unique index of one field to the document that has a value there. As in
    /// mongod, where one of several conditions asks for that, no other way is looked at; unless
    /// fields are shown, which an index may cover.
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
                // What else is asked of the field is checked on that one.
                let mut way = assignments(view, &own[number..=number]).into_iter().next()?;
                way.by_field = vec![number];
                way.used.iter_mut().for_each(|(conjunct, _)| *conjunct = number);
                Some(self.scan(index, &way, own))
            })
        })
    }

    /// The way through the text index.
    fn text(&self, own: &[&FilterNode]) -> Option<Access> {
        let (node, settled) = text::access(self.state, self.query, own)?;
        let rest = self.filter(own, |number| !settled.contains(&number));
        Some(Access::with_filter(node, rest))
    }

    /// The way through one index.
    fn scan(&self, index: usize, way: &Assignment, own: &[&FilterNode]) -> Access {
        let view = &self.views[index];
        let exactness = |conjunct: usize| {
            let found = way.used.iter().find(|(used, _)| *used == conjunct);
            match found?.1 {
                // With an array in it, an entry is not all that the document has there.
                Exactness::OnKeys if view.is_multikey() => Some(Exactness::OnDocument),
                exactness => Some(exactness),
            }
        };
        // What bounds the index comes first in what is left to check, by the index's fields.
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

    /// The ways through two indexes, or through the ways of one that arrays keep apart, each of
    /// which gives its records in order.
    fn meetings(
        &self,
        candidates: &[Candidate<'_>],
        own: &[&FilterNode],
        found: &mut Vec<Option<Access>>,
    ) {
        let mut meetings = 0;
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
                        // One index that serves what the two serve is better.
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
                if meetings == MEETINGS_MAX {
                    self.has_more_meetings.set(true);
                    return;
                }
                let meets = walks.iter().all(|(_, way)| way.is_in_record_order(own.len()));
                found.push(meets.then(|| {
                    let meeting = self.meeting(&walks, own);
                    Access { index: first.number, ..meeting }
                }));
                meetings += 1;
            }
        }
    }

    /// The way through walks whose records are in order. All conditions are checked: what an index
    /// said of a document need not hold any more when another index is asked.
    fn meeting(&self, walks: &[(&IndexView<'_>, &Assignment)], own: &[&FilterNode]) -> Access {
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

    /// The ways through the branches of the `$or` that is conjunct `number`, if there is one for
    /// each.
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
        // What holds for all branches may bound an index in each.
        let is_plain = |node: &&FilterNode| matches!(node, FilterNode::Path(_));
        let siblings: Vec<(usize, &FilterNode)> = own
            .iter()
            .copied()
            .enumerate()
            .filter(|(other, node)| *other != number && is_plain(node))
            .collect();
        let around: Vec<&FilterNode> =
            siblings.iter().map(|(_, node)| *node).chain(outer.iter().copied()).collect();
        // Ways within ways would be more than anyone can look at.
        let combinations_max = if depth == 0 { COMBINATIONS_MAX } else { 1 };
        for combination in 0..combinations_max {
            // The first branch goes through its ways the fastest.
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

    /// The ways to the documents that meet one branch of an `$or`, and `around` too.
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

    /// The way that goes these ways one after the other, for the branches of the `$or` that is
    /// conjunct `number`: as in mongod first those of several conditions, then those of one, each
    /// by the order of the indexes. Conditions that walk one index do so together.
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

    /// Adds a walk to those of an `$or`. One over the same part of an index as another is one with
    /// it, whatever is checked of its documents.
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
            // What is not checked by one of them is not checked.
            (Stage::Fetch(known), Stage::Ixscan(_)) => known.filter = None,
            (Stage::Ixscan(_), Stage::Fetch(fetch)) => {
                *known = Stage::Fetch(Fetch { filter: None, ..fetch });
            }
            _ => {}
        }
    }

    /// One walk for conditions any of which is enough.
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

    /// What is left to check of `conjuncts`: those that `is_left` says.
    fn filter(&self, conjuncts: &[&FilterNode], is_left: impl Fn(usize) -> bool) -> Option<Filter> {
        let left = conjuncts.iter().enumerate().filter(|(number, _)| is_left(*number));
        let left: Vec<&FilterNode> = left.map(|(_, &node)| node).collect();
        self.conjunction(&left, &[])
    }

    /// The filter of conjuncts, the unbound ones in mongod's order; `None` where there are none.
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
    /// In which order two ways come that walk one index first: by their conditions, those first
    /// that bound it.
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

/// Conditions in mongod's order: those that bound an index as they are, then the others by their
/// paths.
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

/// Mongod's order of nodes beside an index: what stands under no path, then the others by their
/// paths, and by their kinds; of what joins others, by what it joins.
fn beside_an_index(a: &FilterNode, b: &FilterNode) -> Ordering {
    let by_path = a.path_parts().cmp(b.path_parts());
    by_path.then_with(|| a.rank().cmp(&b.rank())).then_with(|| match (a, b) {
        (FilterNode::And(a), FilterNode::And(b)) | (FilterNode::Or(a), FilterNode::Or(b)) => {
            compare_all(a, b)
        }
        // A negation counts with what it negates.
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

/// The node with what it joins in mongod's order beside an index.
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
