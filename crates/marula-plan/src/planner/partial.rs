//! Partial indexes: whether a query implies an index's filter.

use marula_bson::order;
use marula_query::filter::{CompareOp, Node, Predicate};

/// Returns whether every document that matches the conjuncts matches the partial filter: they
/// contain each of its conditions, or a narrower one.
pub(super) fn covers(partial: &Node, conjuncts: &[&Node]) -> bool {
    let mut wanted = Vec::new();
    flatten(partial, &mut wanted);
    wanted.iter().all(|wanted| conjuncts.iter().any(|given| implies(given, wanted)))
}

/// Returns the conjuncts of a condition.
pub(crate) fn flatten<'n>(node: &'n Node, out: &mut Vec<&'n Node>) {
    match node {
        Node::And(children) => children.iter().for_each(|child| flatten(child, out)),
        other => out.push(other),
    }
}

/// Returns whether every value that matches `given` matches `wanted`.
fn implies(given: &Node, wanted: &Node) -> bool {
    let (Node::Path(given), Node::Path(wanted)) = (given, wanted) else {
        return match (given, wanted) {
            (Node::Or(branches), wanted) => {
                branches.iter().all(|branch| covers(wanted, &conjuncts(branch)))
            }
            (given, Node::Or(wanted)) => wanted.iter().any(|wanted| implies(given, wanted)),
            _ => false,
        };
    };
    if given.path != wanted.path {
        return false;
    }
    match (&given.predicate, &wanted.predicate) {
        (Predicate::Exists, Predicate::Exists) => true,
        (Predicate::Compare(given), Predicate::Exists) => {
            // Only a comparison with null matches a missing field.
            !given.value.get().is_nullish()
        }
        (Predicate::In(list), Predicate::Exists) => !list.has_null(),
        (Predicate::Not(inner), Predicate::Exists) => match &**inner {
            Predicate::Compare(compare) => {
                compare.op == CompareOp::Eq && compare.value.get().is_nullish()
            }
            Predicate::In(list) => list.has_null(),
            _ => false,
        },
        // `$bitsAllSet` would imply it too, but mongod does not use that.
        (
            Predicate::Type(_)
            | Predicate::Regex(_)
            | Predicate::Mod { .. }
            | Predicate::Size(_)
            | Predicate::Geo(_)
            | Predicate::ElemMatchObject(_)
            | Predicate::ElemMatchValue(_),
            Predicate::Exists,
        ) => true,
        (Predicate::In(list), Predicate::Compare(wanted)) => {
            list.regexes().is_empty()
                && list.values().iter().all(|value| compares(CompareOp::Eq, value, wanted))
        }
        (Predicate::Type(given), Predicate::Type(wanted)) => given == wanted,
        (Predicate::Compare(given), Predicate::Compare(wanted)) => {
            compares(given.op, &given.value, wanted)
        }
        _ => false,
    }
}

fn conjuncts(node: &Node) -> Vec<&Node> {
    let mut found = Vec::new();
    flatten(node, &mut found);
    found
}

fn compares(
    op: CompareOp,
    value: &marula_bson::ValueBuf,
    wanted: &marula_query::filter::Compare,
) -> bool {
    use CompareOp::{Eq, Gt, Gte, Lt, Lte};
    if order::canonical_class(value.kind()) != order::canonical_class(wanted.value.kind()) {
        return false;
    }
    let order = order::compare(value.get(), wanted.value.get(), None);
    match (op, wanted.op) {
        (Eq, Eq) => order.is_eq(),
        (Eq | Gte, Gt) => order.is_gt(),
        (Gt, Gt | Gte) | (Eq | Gte, Gte) => order.is_ge(),
        (Eq | Lte, Lt) => order.is_lt(),
        (Lt, Lt | Lte) | (Eq | Lte, Lte) => order.is_le(),
        _ => false,
    }
}
