//! The conditions of a filter on single fields, and which of them one index can support together.

use std::borrow::Cow;

use marula_bson::FieldPath;
use marula_db::index::component_bit;
use marula_query::filter::{Node, Predicate};

use crate::bounds::PartView;

/// The maximum depth at which conditions are searched for within `$elemMatch`.
pub(super) const DEPTH_MAX: usize = 16;

/// A condition on one field.
pub(super) struct Condition<'q> {
    /// The field.
    pub path: Cow<'q, FieldPath>,
    /// The predicate on it.
    pub predicate: &'q Predicate,
    /// The number of its conjunct.
    pub conjunct: usize,
    /// Whether the conjunct has no other condition.
    pub is_whole: bool,
    /// The enclosing `$elemMatch`es, outermost first: their identities, and the lengths of the
    /// paths to their arrays.
    elements: Vec<(*const Predicate, usize)>,
}

/// Returns the conditions of conjuncts, in their order.
pub(super) fn of<'q>(conjuncts: &[&'q Node]) -> Vec<Condition<'q>> {
    let mut conditions = Vec::with_capacity(conjuncts.len());
    for (conjunct, node) in conjuncts.iter().enumerate() {
        gather(node, conjunct, &[], &mut Vec::new(), &mut conditions);
    }
    conditions
}

fn gather<'q>(
    node: &'q Node,
    conjunct: usize,
    prefix: &[Box<[u8]>],
    elements: &mut Vec<(*const Predicate, usize)>,
    out: &mut Vec<Condition<'q>>,
) {
    match node {
        Node::And(children) if !elements.is_empty() => {
            children.iter().for_each(|child| gather(child, conjunct, prefix, elements, out));
        }
        Node::Path(at) => {
            let path = match prefix {
                [] => Cow::Borrowed(&at.path),
                _ => Cow::Owned(FieldPath::new([prefix, at.path.parts()].concat().join(&b'.'))),
            };
            match &at.predicate {
                Predicate::ElemMatchObject(inner) if elements.len() < DEPTH_MAX => {
                    elements.push((&raw const at.predicate, path.parts().len()));
                    gather(inner, conjunct, path.parts(), elements, out);
                    elements.pop();
                }
                predicate => out.push(Condition {
                    path,
                    predicate,
                    conjunct,
                    is_whole: elements.is_empty(),
                    elements: elements.clone(),
                }),
            }
        }
        _ => {}
    }
}

/// Returns whether two conditions can bound two parts of an index together (or one part, if they
/// are on the same). They must share no array, or require one element that matches both. Otherwise
/// different elements could match them, and entries do not contain that information.
pub(super) fn may_combine(
    (a, a_part): (&Condition<'_>, &PartView<'_>),
    (b, b_part): (&Condition<'_>, &PartView<'_>),
) -> bool {
    let common = a_part.path.parts().iter().zip(b_part.path.parts());
    let common = common.take_while(|(a, b)| a == b).count();
    let arrays = a_part.multikey | b_part.multikey;
    let is_array = |component: &usize| arrays & component_bit(*component) != 0;
    let Some(deepest) = (0..common).rfind(is_array) else { return true };
    a.elements.iter().any(|element| element.1 > deepest && b.elements.contains(element))
}
