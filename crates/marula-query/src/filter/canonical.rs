//! The canonical form of a filter: equivalent filters get the same form.
//!
//! Nested `$and` and `$or` are flattened, single children replace their parent, constants
//! disappear, equalities of an `$or` on the path of its first equality become an `$in`, and
//! children are sorted: by operator, then path, then their own children. Order and rewritings are
//! those of `parsedQuery` in mongod 6.0.

use std::cmp::Ordering;

use marula_bson::{Collator, FieldPath, ValueBuf};

use super::in_list::InList;
use super::node::{BitsOp, CompareOp, Node, PathNode, Predicate};
use crate::regex::Regex;

/// Converts a filter to canonical form.
pub(super) fn canonical(node: Node, collator: Option<&dyn Collator>) -> Node {
    let mut node = simplified(node, collator);
    sort(&mut node);
    node
}

/// Same as [`canonical`], but keeps the order of the text, with two exceptions: children that an
/// inner `$and` or `$or` passes to the outer one come after the outer one's own, and an `$in` made
/// of equalities comes first.
pub(super) fn simplified(node: Node, collator: Option<&dyn Collator>) -> Node {
    Canonicalizer { collator }.node(node)
}

/// The conditions of a tree that must all hold, in the order of [`simplified`].
pub(super) fn conditions(node: &Node) -> Vec<Node> {
    let Node::And(children) = node else { return vec![node.clone()] };
    let (several, single): (Vec<&Node>, Vec<&Node>) =
        children.iter().partition(|child| is_of_several(child) || matches!(child, Node::And(_)));
    single.into_iter().cloned().chain(several.into_iter().flat_map(conditions)).collect()
}

/// Converts a filter to canonical form.
#[derive(Clone, Copy)]
struct Canonicalizer<'c> {
    collator: Option<&'c dyn Collator>,
}

impl Canonicalizer<'_> {
    fn node(self, node: Node) -> Node {
        match node {
            Node::And(children) => self.and(self.each(children)),
            Node::Or(children) => self.or(self.each(children)),
            Node::Nor(children) => self.nor(self.each(children)),
            Node::Not(child) => Node::Not(Box::new(self.node(*child))),
            Node::Path(PathNode { path, predicate }) => {
                Node::Path(PathNode { path, predicate: self.predicate(predicate) })
            }
            other => other,
        }
    }

    fn each(self, children: Vec<Node>) -> Vec<Node> {
        children.into_iter().map(|child| self.node(child)).collect()
    }

    fn predicate(self, predicate: Predicate) -> Predicate {
        match predicate {
            Predicate::ElemMatchObject(filter) => {
                Predicate::ElemMatchObject(Box::new(self.node(*filter)))
            }
            Predicate::ElemMatchValue(list) => Predicate::ElemMatchValue(self.predicates(list)),
            Predicate::All(list) => Predicate::All(self.predicates(list)),
            Predicate::Not(inner) => Predicate::Not(Box::new(self.predicate(*inner))),
            Predicate::In(list) => Predicate::in_list(list),
            other => other,
        }
    }

    fn predicates(self, list: Vec<Predicate>) -> Vec<Predicate> {
        list.into_iter().map(|inner| self.predicate(inner)).collect()
    }

    fn and(self, children: Vec<Node>) -> Node {
        let mut flat = Vec::with_capacity(children.len());
        let mut absorbed = Vec::new();
        for child in children {
            match child {
                Node::And(inner) => absorbed.extend(inner),
                child if is_of_several(&child) => absorbed.push(child),
                Node::AlwaysTrue => {}
                Node::AlwaysFalse => return Node::AlwaysFalse,
                other => flat.push(other),
            }
        }
        flat.append(&mut absorbed);
        alone_or(flat, Node::And)
    }

    fn or(self, mut children: Vec<Node>) -> Node {
        if children.len() == 1 {
            return children.remove(0);
        }
        let mut flat = Vec::with_capacity(children.len());
        let mut absorbed = Vec::new();
        for child in children {
            match child {
                Node::Or(inner) => absorbed.extend(inner),
                Node::AlwaysFalse => {}
                other if is_always_true(&other) => return Node::AlwaysTrue,
                other => flat.push(other),
            }
        }
        flat.append(&mut absorbed);
        if flat.is_empty() {
            return Node::AlwaysFalse;
        }
        join_equalities(&mut flat, self.collator);
        alone_or(flat, Node::Or)
    }

    fn nor(self, mut children: Vec<Node>) -> Node {
        // A single branch is negated unchanged, even if it is true or false for every document.
        if children.len() == 1 && !matches!(children[0], Node::AlwaysFalse) {
            return negate(children.remove(0));
        }
        if children.iter().any(is_always_true) {
            return Node::AlwaysFalse;
        }
        children.retain(|child| !matches!(child, Node::AlwaysFalse));
        match children.len() {
            0 => Node::And(Vec::new()),
            1 => negate(children.remove(0)),
            _ => Node::Nor(children),
        }
    }
}

/// Sorts all children.
fn sort(node: &mut Node) {
    match node {
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter_mut().for_each(sort);
            children.sort_by(|a, b| compare(SortItem::Node(a), SortItem::Node(b)));
        }
        Node::Not(child) => sort(child),
        Node::Path(at) => sort_predicate(&mut at.predicate),
        _ => {}
    }
}

fn sort_predicate(predicate: &mut Predicate) {
    match predicate {
        Predicate::ElemMatchObject(filter) => sort(filter),
        Predicate::ElemMatchValue(list) | Predicate::All(list) => {
            list.iter_mut().for_each(sort_predicate);
            list.sort_by(|a, b| compare(SortItem::Predicate(a), SortItem::Predicate(b)));
        }
        Predicate::Not(inner) => sort_predicate(inner),
        _ => {}
    }
}

fn negate(child: Node) -> Node {
    match child {
        Node::Path(at) => {
            let predicate = Predicate::Not(Box::new(at.predicate));
            Node::at(&at.path, predicate)
        }
        other => Node::Not(Box::new(other)),
    }
}

fn alone_or(mut children: Vec<Node>, many: fn(Vec<Node>) -> Node) -> Node {
    if children.len() == 1 { children.remove(0) } else { many(children) }
}

fn is_always_true(node: &Node) -> bool {
    match node {
        Node::AlwaysTrue => true,
        Node::And(children) => children.is_empty(),
        _ => false,
    }
}

/// Returns whether mongod represents the condition as an `$and` of several conditions, which an
/// enclosing `$and` absorbs.
fn is_of_several(node: &Node) -> bool {
    match node {
        Node::Path(PathNode { predicate: Predicate::All(list), .. }) => list.len() > 1,
        Node::Schema(schema) => schema.is_of_several(),
        _ => false,
    }
}

/// Combines the equalities and patterns on the path of the first equality into an `$in`, placed
/// before the other children.
fn join_equalities(children: &mut Vec<Node>, collator: Option<&dyn Collator>) {
    let path_of = |child: &Node| match child {
        Node::Path(at) if is_equality(&at.predicate) => Some(at.path.clone()),
        _ => None,
    };
    let Some(path) = children.iter().find_map(path_of) else { return };
    let is_joined = |child: &Node| matches!(child, Node::Path(at) if at.path == path && is_equality(&at.predicate));
    if children.iter().filter(|child| is_joined(child)).count() < 2 {
        return;
    }
    let (group, rest): (Vec<Node>, Vec<Node>) = children.drain(..).partition(is_joined);
    let predicate = Predicate::In(joined(group, collator));
    children.push(Node::Path(PathNode { path, predicate }));
    children.extend(rest);
}

fn joined(group: Vec<Node>, collator: Option<&dyn Collator>) -> InList {
    let (mut values, mut regexes): (Vec<ValueBuf>, Vec<Regex>) = (Vec::new(), Vec::new());
    for node in group {
        match node {
            Node::Path(PathNode { predicate: Predicate::Compare(constant), .. }) => {
                values.push(constant.value);
            }
            Node::Path(PathNode { predicate: Predicate::Regex(regex), .. }) => regexes.push(regex),
            _ => {}
        }
    }
    InList::new(values, regexes, collator)
}

fn is_equality(predicate: &Predicate) -> bool {
    match predicate {
        // A list distinguishes patterns from values, so equality with a regular expression itself
        // cannot join it.
        Predicate::Compare(constant) => {
            constant.op == CompareOp::Eq && constant.value.kind() != marula_bson::Type::Regex
        }
        Predicate::Regex(_) => true,
        _ => false,
    }
}

/// A node or a predicate, for sorting.
#[derive(Clone, Copy)]
enum SortItem<'n> {
    Node(&'n Node),
    At(&'n FieldPath, &'n Predicate),
    Predicate(&'n Predicate),
}

fn compare(a: SortItem<'_>, b: SortItem<'_>) -> Ordering {
    let (a, b) = (a.resolve(), b.resolve());
    a.rank().cmp(&b.rank()).then_with(|| a.path().cmp(b.path())).then_with(|| {
        let (a, b) = (a.children(), b.children());
        let differing = a.iter().zip(&b).map(|(a, b)| compare(*a, *b)).find(|order| order.is_ne());
        differing.unwrap_or_else(|| a.len().cmp(&b.len()))
    })
}

impl<'n> SortItem<'n> {
    /// Replaces a path's node by its predicate with the path.
    fn resolve(self) -> SortItem<'n> {
        match self {
            SortItem::Node(Node::Path(at)) => SortItem::At(&at.path, &at.predicate),
            other => other,
        }
    }

    fn rank(self) -> u8 {
        match self {
            SortItem::Node(node) => match node {
                Node::And(_) => 0,
                Node::Or(_) => RANK_OR,
                Node::Not(_) => RANK_NOT,
                Node::Nor(_) => RANK_NOT + 1,
                Node::Text(_) => RANK_NOT + 3,
                Node::Where(_) => RANK_NOT + 4,
                Node::Expr(_) => RANK_NOT + 5,
                Node::Schema(schema) if schema.is_of_names() => RANK_NOT + 8,
                // mongod represents it as several conditions: an `$or` for each property.
                Node::Schema(schema) if schema.is_of_required() => RANK_EXISTS,
                Node::Schema(_) => RANK_OR,
                Node::AlwaysFalse => RANK_NOT + 6,
                Node::AlwaysTrue => RANK_NOT + 7,
                Node::Path(at) => rank_of(&at.predicate),
            },
            SortItem::At(_, predicate) | SortItem::Predicate(predicate) => rank_of(predicate),
        }
    }

    /// The path; that of a negation counts for its child.
    fn path(self) -> &'n [Box<[u8]>] {
        match self {
            SortItem::At(path, predicate) if !matches!(predicate, Predicate::Not(_)) => {
                path.parts()
            }
            _ => &[],
        }
    }

    fn children(self) -> Vec<SortItem<'n>> {
        match self {
            SortItem::Node(Node::And(list) | Node::Or(list) | Node::Nor(list)) => {
                list.iter().map(SortItem::Node).collect()
            }
            SortItem::Node(Node::Not(child)) => vec![SortItem::Node(child)],
            SortItem::At(path, Predicate::Not(inner)) => vec![SortItem::At(path, inner)],
            SortItem::Node(_) => Vec::new(),
            SortItem::At(_, predicate) | SortItem::Predicate(predicate) => match predicate {
                Predicate::ElemMatchObject(filter) => vec![SortItem::Node(filter)],
                Predicate::ElemMatchValue(list) | Predicate::All(list) => {
                    list.iter().map(SortItem::Predicate).collect()
                }
                Predicate::Not(inner) => vec![SortItem::Predicate(inner)],
                _ => Vec::new(),
            },
        }
    }
}

const RANK_OR: u8 = 1;
const RANK_EXISTS: u8 = 12;
const RANK_NOT: u8 = 18;

/// The rank of a node in mongod's order of conditions.
pub(super) fn rank(node: &Node) -> u8 {
    SortItem::Node(node).rank()
}

/// Same as [`rank`], for a predicate.
pub(super) fn rank_of(predicate: &Predicate) -> u8 {
    match predicate {
        Predicate::All(_) => 0,
        Predicate::ElemMatchObject(_) => 2,
        Predicate::ElemMatchValue(_) => 3,
        Predicate::Size(_) => 4,
        Predicate::Compare(constant) => 5 + constant.op as u8,
        Predicate::Regex(_) => 10,
        Predicate::Mod { .. } => 11,
        Predicate::Exists => RANK_EXISTS,
        Predicate::In(_) => 13,
        Predicate::Bits(test) => match test.op {
            BitsOp::AllSet => 14,
            BitsOp::AllClear => 15,
            BitsOp::AnySet => 16,
            BitsOp::AnyClear => 17,
        },
        Predicate::Not(_) => RANK_NOT,
        Predicate::Type(_) => RANK_NOT + 2,
        Predicate::Geo(_) | Predicate::BucketGeo(_) => RANK_NOT + 3,
        Predicate::AlwaysFalse => RANK_NOT + 6,
        Predicate::Near(_) => RANK_NOT + 8,
        Predicate::InternalExpr(constant) => RANK_NOT + 9 + rank_in_expressions(constant.op),
    }
}

/// The rank among comparisons that follow from those of an expression.
fn rank_in_expressions(op: CompareOp) -> u8 {
    match op {
        CompareOp::Eq => 0,
        CompareOp::Gt => 1,
        CompareOp::Gte => 2,
        CompareOp::Lt => 3,
        CompareOp::Lte => 4,
    }
}
