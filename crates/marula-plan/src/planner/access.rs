//! The ways to the documents that meet a filter: through one index, or through one for each branch of an `$or`.

use std::cmp::Reverse;

use marula_db::collection::State;
use marula_query::filter::{Filter, Node as FilterNode};

use super::assign::{Assignment, assignments};
use super::{IndexView, partial, text};
use crate::bounds::Exactness;
use crate::bounds::places::is_asked_for_places;
use crate::plan::{Node, Stage};
use crate::query::Query;

/// How many branches of an `$or` are planned one by one.
const BRANCHES_MAX: usize = 10_000;
/// How deep `$or` within `$and` within `$or` is planned.
const DEPTH_MAX: usize = 8;

/// A way to documents.
pub(super) struct Access {
    /// The stages; what is left of the filter is checked within.
    pub node: Node,
    /// How promising it looks.
    pub rank: Rank,
    /// The conjuncts from outside an `$or`, by number, that it sees to.
    settled: Vec<usize>,
}

/// How promising a way looks; the greater the better, field by field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Rank {
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
    pub(super) fn of(node: Node) -> Self {
        Access { node, rank: Rank::default(), settled: Vec::new() }
    }

    /// The way of a stage whose documents are checked.
    pub(super) fn with_filter(node: Node, filter: Option<Filter>) -> Self {
        Access::of(match filter {
            Some(filter) => Node::fetch(node, Some(filter)),
            None => node,
        })
    }
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
    Finder { state, views, query }.find(&conjuncts, &[], 0)
}

struct Finder<'a> {
    state: &'a State,
    views: &'a [IndexView<'a>],
    query: &'a Query,
}

impl Finder<'_> {
    /// The ways to the documents that meet `own`, of which every one meets `outer` too: those conjuncts are
    /// checked elsewhere, but may help to bound an index.
    fn find(&self, own: &[&FilterNode], outer: &[&FilterNode], depth: usize) -> Vec<Access> {
        if own.iter().any(|node| matches!(node, FilterNode::Text(_))) {
            // No other index answers a text search.
            return self.text(own).into_iter().collect();
        }
        let all: Vec<&FilterNode> = own.iter().chain(outer).copied().collect();
        let mut found = Vec::new();
        for view in self.views {
            let spec = &view.index.spec;
            let is_whole =
                spec.partial.as_ref().is_none_or(|partial| partial::covers(partial.root(), &all));
            if !is_whole || !is_asked_for_places(view.index, &all) {
                continue;
            }
            for way in assignments(view, &all) {
                // An index that only the conjuncts from outside bound is no way to this branch.
                if way.used.iter().any(|(conjunct, _)| *conjunct < own.len()) {
                    found.push(self.scan(view, way, own));
                }
            }
        }
        if depth < DEPTH_MAX {
            for (number, conjunct) in own.iter().enumerate() {
                if let FilterNode::Or(branches) = conjunct {
                    found.extend(self.branches(number, branches, own, outer, depth));
                }
            }
        }
        found
    }

    /// The way through the text index.
    fn text(&self, own: &[&FilterNode]) -> Option<Access> {
        let (node, settled) = text::access(self.state, self.query, own)?;
        let rest = self.filter(own, |number| !settled.contains(&number));
        Some(Access::with_filter(node, rest))
    }

    /// The way through one index.
    fn scan(&self, view: &IndexView<'_>, way: Assignment, own: &[&FilterNode]) -> Access {
        let exactness = |conjunct: usize| {
            let found = way.used.iter().find(|(used, _)| *used == conjunct);
            match found?.1 {
                // With an array in it, an entry is not all that the document has there.
                Exactness::OnKeys if view.is_multikey() => Some(Exactness::OnDocument),
                exactness => Some(exactness),
            }
        };
        // What bounds the index comes first in what is left to check; then, as in mongod, what stands under no path,
        // and then the others by their paths.
        let left = |wanted| (0..own.len()).filter(move |&number| exactness(number) == wanted);
        let mut in_order: Vec<&FilterNode> = Vec::with_capacity(own.len());
        in_order.extend(left(Some(Exactness::OnDocument)).map(|number| own[number]));
        let bounding = in_order.len();
        in_order.extend(left(None).map(|number| own[number]));
        in_order[bounding..].sort_by_key(|node| node.path_parts());
        let rest = self.conjunction(&in_order);
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
        let mut scan = view.scan(way.bounds);
        scan.filter = on_keys;
        let node = Access::with_filter(Node::new(Stage::Ixscan(scan)), rest).node;
        Access { node, rank, settled }
    }

    /// The way through the branches of the `$or` that is conjunct `number`, if there is one for each.
    fn branches(
        &self,
        number: usize,
        branches: &[FilterNode],
        own: &[&FilterNode],
        outer: &[&FilterNode],
        depth: usize,
    ) -> Option<Access> {
        if branches.len() > BRANCHES_MAX {
            return None;
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
        let mut inputs = Vec::with_capacity(branches.len());
        let mut rank: Option<Rank> = None;
        let mut settled: Option<Vec<usize>> = None;
        for branch in branches {
            let mut conjuncts = Vec::new();
            partial::flatten(branch, &mut conjuncts);
            let ways = self.find(&conjuncts, &around, depth + 1);
            let best = ways.into_iter().reduce(|a, b| if b.rank > a.rank { b } else { a })?;
            rank = Some(rank.map_or(best.rank, |known| known.min(best.rank)));
            settled = Some(match settled {
                None => best.settled,
                Some(known) => known.into_iter().filter(|it| best.settled.contains(it)).collect(),
            });
            inputs.push(best.node);
        }
        let settled = settled.unwrap_or_default();
        let is_settled = |other: usize| {
            let sibling = siblings.iter().position(|(sibling, _)| *sibling == other);
            other == number || sibling.is_some_and(|sibling| settled.contains(&sibling))
        };
        let rest = self.filter(own, |other| !is_settled(other));
        let settled =
            settled.iter().filter_map(|around| around.checked_sub(siblings.len())).collect();
        let node = Access::with_filter(Node::or(inputs), rest).node;
        Some(Access { node, rank: rank.unwrap_or_default(), settled })
    }

    /// What is left to check of `conjuncts`: those that `is_left` says.
    fn filter(&self, conjuncts: &[&FilterNode], is_left: impl Fn(usize) -> bool) -> Option<Filter> {
        let left = conjuncts.iter().enumerate().filter(|(number, _)| is_left(*number));
        let left: Vec<&FilterNode> = left.map(|(_, &node)| node).collect();
        self.conjunction(&left)
    }

    /// The filter of conjuncts; `None` where there are none.
    fn conjunction(&self, conjuncts: &[&FilterNode]) -> Option<Filter> {
        let root = match conjuncts {
            [] => return None,
            [one] => in_path_order((*one).clone()),
            many => FilterNode::And(many.iter().map(|&node| in_path_order(node.clone())).collect()),
        };
        Some(Filter::of_canonical(root, &self.query.context))
    }
}

/// The node with what it joins in mongod's order beside an index: what stands under no path, then the others by
/// their paths.
fn in_path_order(node: FilterNode) -> FilterNode {
    let ordered = |children: Vec<FilterNode>| {
        let mut children: Vec<_> = children.into_iter().map(in_path_order).collect();
        children.sort_by(|a, b| a.path_parts().cmp(b.path_parts()));
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
