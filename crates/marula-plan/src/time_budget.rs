//! The time that a caller has for a query, and the plans that may be attempted within it.
//!
//! A command first runs on a network worker, which other connections wait for. To hand it to a pool
//! thread costs more than to find a few documents by an index: two threads are woken, and the
//! command is parsed and planned twice. So a plan by an index is attempted on the worker for a
//! limited time; if it is far from its end by then, the command starts again in the pool. The time
//! of the last query of the shape decides whether the attempt is worthwhile.

use std::time::Duration;

use marula_query::filter::{Node as FilterNode, Predicate};

use crate::plan::{Plan, Stage};
use crate::query::Query;

/// A plan is stopped after this many times its budget: before that, the work done is most often
/// worth more than the time saved.
const OVERTIME: u32 = 2;

/// The time that a caller has for a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeBudget {
    /// Unlimited.
    Long,
    /// Unlimited, and measured for later queries of the shape with a limited time.
    Timed,
    /// None: only for plans that are known to be [short](Plan::is_short).
    Short,
    /// A limited time, also for plans that most often end within it. A plan that does not may take
    /// up to the [hard limit](TimeBudget::longest).
    UpTo(Duration),
}

/// The time limit of a plan that is attempted, and the measurement of its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit {
    /// The shape for which the time is recorded.
    pub(crate) shape: u64,
    /// The maximum time of the first run, if it is limited.
    pub(crate) spare: Option<Duration>,
}

impl TimeBudget {
    /// Returns whether there is no time limit.
    pub fn is_long(self) -> bool {
        matches!(self, TimeBudget::Long | TimeBudget::Timed)
    }

    /// Returns the hard limit of a plan with a budget of `time`.
    pub fn longest(time: Duration) -> Duration {
        time.saturating_mul(OVERTIME)
    }

    /// Returns the budget of a caller that may wait, or needs a short plan: work must not be
    /// repeated.
    pub fn all_or_none(may_wait: bool) -> TimeBudget {
        if may_wait { TimeBudget::Long } else { TimeBudget::Short }
    }
}

/// Returns whether a plan may be stopped soon at any time: each of its steps is small, and it is
/// not costly to repeat.
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

/// Returns whether a filter's time with a document grows with the document's size alone: it runs no
/// client code.
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
        | Predicate::BucketGeo(_)
        | Predicate::AlwaysFalse => true,
        Predicate::In(list) => list.regexes().is_empty(),
        // An expression may take much longer than its text is long, and so may a polygon.
        Predicate::Regex(_) | Predicate::Geo(_) | Predicate::Near(_) => false,
        Predicate::ElemMatchObject(node) => is_quick(node),
        Predicate::ElemMatchValue(all) | Predicate::All(all) => all.iter().all(is_quick_predicate),
        Predicate::Not(inner) => is_quick_predicate(inner),
    }
}
