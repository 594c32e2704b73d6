//! Access paths: the ways to find the documents that match a filter.
//!
//! ```text
//!   conjuncts of the filter ──┬─► one index:            Fetch ─► Ixscan
//!                             ├─► an intersection:      Fetch ─► AndSorted ─► Ixscan, Ixscan
//!                             └─► a conjunct `$or`:      Or ─► the access path of each branch
//! ```
//!
//! They are in mongod's order, which decides between plans that do equally well: those of an `$or`
//! first, then the indexes in the order of their creation, then intersections.

mod condition_order;
mod intersection;
mod or;

use std::cell::Cell;
use std::cmp::Reverse;

use marula_db::collection::State;
use marula_query::filter::{CompareOp, Filter, Node as FilterNode, PathNode, Predicate};
use marula_query::meter;

use super::assign::{Assignment, assignments};
use super::{IndexView, partial, text};
use crate::bounds::Exactness;
use crate::bounds::places::has_all_places;
use crate::plan::{Ixscan, Stage};
use crate::query::Query;
use condition_order::in_order;
use intersection::Candidate;

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
        && has_all_places(view.index, conjuncts)
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
            let found = way.used.binary_search_by_key(&conjunct, |(used, _)| *used).ok();
            match way.used[found?].1 {
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
