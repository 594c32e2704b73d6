//! How long whoever asks can wait, and which plans are worth a try where that is not long.
//!
//! A command runs first on a thread that other connections wait for. Handing it to another thread
//! costs more than finding a few documents by an index does: two threads are woken, and everything
//! is parsed and planned twice. So a plan that goes by an index is tried where it is, for a time
//! that the others can spare; what is far from done by then begins anew elsewhere. How long queries
//! of its shape took last says whether that is worth it.

use std::time::Duration;

use marula_query::filter::{Node as FilterNode, Predicate};

use crate::plan::{Plan, Stage};
use crate::query::Query;

/// A plan that takes longer than it should is given up after so many times as long: before that,
/// what is done of it is most often worth more than the time that is left.
const OVERTIME: u32 = 2;

/// How long whoever asks can wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// As long as it takes.
    Long,
    /// As long as it takes, which is remembered for those who ask the same and cannot wait.
    Timed,
    /// Not at all: only for plans that are known to be [short](Plan::is_short).
    Short,
    /// So long; also for plans that are most often done by then. One that is not may take
    /// [longer](Patience::longest).
    UpTo(Duration),
}

/// What is to be known of a plan that is tried where there is little time, or that shows how long
/// that takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tried {
    /// The shape by which it is remembered how long the plan takes.
    pub(crate) shape: u64,
    /// How long its first run may take at most, where there is little time.
    pub(crate) spare: Option<Duration>,
}

impl Patience {
    /// Returns whether there is no time limit.
    pub fn is_long(self) -> bool {
        matches!(self, Patience::Long | Patience::Timed)
    }

    /// The longest that a plan takes for which there is patience up to `time`.
    pub fn longest(time: Duration) -> Duration {
        time.saturating_mul(OVERTIME)
    }

    /// That of whoever may wait for as long as it takes, or not at all: what is done is not begun
    /// anew.
    pub fn all_or_none(may_wait: bool) -> Patience {
        if may_wait { Patience::Long } else { Patience::Short }
    }
}

/// Whether a plan may be stopped soon, whenever that is asked: each of its steps is small, and what
/// it has done is not missed.
pub(crate) fn may_be_tried(plan: &Plan, query: &Query) -> bool {
    fn goes_by_indexes(stage: &Stage) -> bool {
        match stage {
            Stage::Ixscan(_) => true,
            Stage::Fetch(_)
            | Stage::Or(_)
            | Stage::SortMerge(_)
            | Stage::Sort(_)
            | Stage::Skip(_)
            | Stage::Limit(_)
            | Stage::Projection(_) => stage.inputs().iter().all(goes_by_indexes),
            _ => false,
        }
    }
    goes_by_indexes(&plan.root)
        && is_quick(query.filter.root())
        && query.shown.as_ref().is_none_or(|shown| shown.computed.is_none())
}

/// Whether a filter takes a time with a document that grows with its size only: it runs no code of
/// the client's.
fn is_quick(node: &FilterNode) -> bool {
    match node {
        FilterNode::And(nodes) | FilterNode::Or(nodes) | FilterNode::Nor(nodes) => {
            nodes.iter().all(is_quick)
        }
        FilterNode::Not(node) => is_quick(node),
        FilterNode::Path(node) => is_quick_predicate(&node.predicate),
        FilterNode::AlwaysTrue | FilterNode::AlwaysFalse => true,
        FilterNode::Expr(_)
        | FilterNode::Schema(_)
        | FilterNode::Where(_)
        | FilterNode::Text(_) => false,
    }
}

fn is_quick_predicate(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(_)
        | Predicate::InternalExpr(_)
        | Predicate::Exists
        | Predicate::Type(_)
        | Predicate::Mod { .. }
        | Predicate::Size(_)
        | Predicate::Bits(_)
        | Predicate::AlwaysFalse => true,
        Predicate::In(list) => list.regexes().is_empty(),
        // An expression may take much longer than the text is long; so may a polygon.
        Predicate::Regex(_) | Predicate::Geo(_) | Predicate::Near(_) => false,
        Predicate::ElemMatchObject(node) => is_quick(node),
        Predicate::ElemMatchValue(all) | Predicate::All(all) => all.iter().all(is_quick_predicate),
        Predicate::Not(inner) => is_quick_predicate(inner),
    }
}
