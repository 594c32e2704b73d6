//! The order of the conditions in a residual filter. It is mongod's.

use std::cmp::Ordering;

use marula_query::filter::{Node as FilterNode, PathNode, Predicate};

/// Returns conditions in mongod's order: those that bound an index, unchanged, then the others by
/// their paths.
pub(super) fn in_order(bounding: &[&FilterNode], unbound: &[&FilterNode]) -> Vec<FilterNode> {
    let ordered = |nodes: &[&FilterNode]| -> Vec<FilterNode> {
        nodes.iter().map(|&node| in_path_order(node.clone())).collect()
    };
    let mut unbound = ordered(unbound);
    unbound.sort_by(compare_residual);
    let mut all = ordered(bounding);
    all.append(&mut unbound);
    all
}

pub(super) fn compare_all(a: &[FilterNode], b: &[FilterNode]) -> Ordering {
    let pairs = a.iter().zip(b).map(|(a, b)| compare_residual(a, b));
    pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
}

/// Mongod's order of residual conditions: those without a path, then the others by their paths and
/// kinds; those that join others, by their children.
fn compare_residual(a: &FilterNode, b: &FilterNode) -> Ordering {
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
pub(super) fn in_path_order(node: FilterNode) -> FilterNode {
    let ordered = |children: Vec<FilterNode>| {
        let mut children: Vec<_> = children.into_iter().map(in_path_order).collect();
        children.sort_by(compare_residual);
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
