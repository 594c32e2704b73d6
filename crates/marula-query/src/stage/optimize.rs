//! Rearranging pipelines: what leaves documents out, or puts them in order, comes as early as it
//! may.
//!
//! Neighbours are looked at again and again until no rule applies to any two of them:
//!
//! | stage | behind | becomes |
//! | --- | --- | --- |
//! | `$match` | `$match` | one of both |
//! | `$match` | `$lookup` with `$unwind` of its array | its conditions on what was found are asked there |
//! | `$unwind` | `$lookup` or `$graphLookup` whose array it is of | one stage, without the array |
//! | `$match` of everything, `$skip` of none | before or behind any stage | nothing |
//! | `$match` | a stage that leaves the fields asked for as they are | its conditions on these stand before |
//! | `$match` | `$unionWith` | before it, and at the end of its pipeline |
//! | `$limit`, `$skip` | itself | one: the lesser, the sum |
//! | `$limit` | `$sort` | a sort that gives no more |
//! | `$limit` | `$skip` behind `$sort` | before it, and larger by what is left out |
//! | `$limit`, `$skip`, `$sample` | a stage that makes one document of each | before it |
//! | `$sort` | `$sort` | alone |
//! | `$sort` | a stage that gives this order, as `$densify` | nothing, or a `$limit` |
//! | `$sort` | `$sort` and windows whose order it goes on from | in place of the other, and perhaps a `$limit` behind |
//! | `$sort` | `$lookup` or `$unwind` of other fields | before it |
//!
//! What reaches the front becomes the query that the collection is read by, with the indexes there
//! are. No rule has another for its reverse, and each moves something towards the front or leaves a
//! stage less, so that there is an end.

use std::sync::Arc;

use super::limit::Limit;
use super::r#match::Match;
use super::skip::Skip;
use super::{Kind, Stage};
use crate::context::Context;
use crate::filter::{Filter, Node};

/// The stages that give the same as `stages` and cost less.
pub(super) fn rearranged(
    mut stages: Vec<Arc<dyn Stage>>,
    context: &Context,
) -> Vec<Arc<dyn Stage>> {
    let mut at = 0;
    while at + 1 < stages.len() {
        let is_behind_sort = at > 0 && matches!(stages[at - 1].kind(), Kind::Sort(..));
        match two(&stages[at], &stages[at + 1], is_behind_sort, context) {
            None => at += 1,
            Some(instead) => {
                stages.splice(at..at + 2, instead);
                // What has changed here may be something for the stage before.
                at = at.saturating_sub(1);
            }
        }
    }
    stages
}

/// What takes the place of two neighbours, if some rule applies to them.
fn two(
    first: &Arc<dyn Stage>,
    second: &Arc<dyn Stage>,
    is_behind_sort: bool,
    context: &Context,
) -> Option<Vec<Arc<dyn Stage>>> {
    let swapped = || Some(vec![Arc::clone(second), Arc::clone(first)]);
    match (first.kind(), second.kind()) {
        (_, kind) if is_nothing(&kind) => Some(vec![Arc::clone(first)]),
        (kind, _) if is_nothing(&kind) => Some(vec![Arc::clone(second)]),
        (Kind::Match(first), Kind::Match(second)) => {
            let mut both = first.conditions();
            both.push(second.as_written().clone());
            Some(vec![matching(both, context)])
        }
        (_, Kind::Match(filter)) => split(first, filter, context)
            .or_else(|| Arc::clone(first).taking_in(&filter.conditions(), context)),
        (_, Kind::Unwind(unwind)) => Some(vec![Arc::clone(first).unwound(unwind)?]),
        (Kind::Skip(one), Kind::Skip(other)) => Some(vec![Arc::new(Skip(one.checked_add(other)?))]),
        (Kind::Limit(one), Kind::Limit(other)) => Some(vec![Arc::new(Limit(one.min(other)))]),
        (Kind::Sort(..), Kind::Limit(limit)) => {
            Some(vec![first.limited(limit).unwrap_or_else(|| Arc::clone(first))])
        }
        (Kind::Skip(skip), Kind::Limit(limit)) if is_behind_sort => {
            Some(vec![Arc::new(Limit(skip.checked_add(limit)?)), Arc::clone(first)])
        }
        (_, Kind::Skip(_) | Kind::Limit(_) | Kind::Sample) if first.is_one_to_one() => swapped(),
        (_, Kind::Sort(sort)) if first.gives_order(sort.pattern()) => {
            Some(limited(vec![Arc::clone(first)], sort.limit()))
        }
        (_, Kind::Sort(sort)) if is_behind_sort && first.takes_order(sort.pattern()) => {
            Some(limited(vec![Arc::new(sort.without_limit()), Arc::clone(first)], sort.limit()))
        }
        (Kind::Sort(sort), Kind::Sort(_)) if sort.limit().is_none() => {
            Some(vec![Arc::clone(second)])
        }
        // Of a stage that gives several for one, or none, the first so many are not those of as
        // many.
        (_, Kind::Sort(sort))
            if (sort.limit().is_none() || first.is_one_to_one())
                && first.passage().lets_pass(sort.pattern()) =>
        {
            swapped()
        }
        _ => None,
    }
}

/// Whether a stage gives what comes to it, all of it.
fn is_nothing(kind: &Kind<'_>) -> bool {
    match kind {
        Kind::Match(filter) => {
            matches!(filter.as_written(), Node::And(conditions) if conditions.is_empty())
        }
        Kind::Skip(count) => *count == 0,
        _ => false,
    }
}

/// The stages, and a `$limit` behind them where there is one.
fn limited(mut stages: Vec<Arc<dyn Stage>>, limit: Option<u64>) -> Vec<Arc<dyn Stage>> {
    stages.extend(limit.map(|limit| -> Arc<dyn Stage> { Arc::new(Limit(limit)) }));
    stages
}

/// A `$match` behind `stage` in two: the conditions that may be asked before it, and the others.
fn split(
    stage: &Arc<dyn Stage>,
    filter: &Filter,
    context: &Context,
) -> Option<Vec<Arc<dyn Stage>>> {
    let passage = stage.passage();
    let conditions = filter.conditions();
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for condition in &conditions {
        match passage.before(condition) {
            Some(condition) => before.push(condition),
            None => behind.push(condition.clone()),
        }
    }
    if before.is_empty() {
        return None;
    }
    let mut instead = vec![matching(before, context), Arc::clone(stage)];
    if !behind.is_empty() {
        instead.push(matching(behind, context));
    }
    Some(instead)
}

/// A `$match` of all the conditions.
fn matching(conditions: Vec<Node>, context: &Context) -> Arc<dyn Stage> {
    Arc::new(Match::new(Filter::written(Node::And(conditions), context)))
}

/// Tells each sort how many documents a `$limit` behind it leaves, so that it keeps no more.
pub(super) fn limit_sorts(stages: &mut [Arc<dyn Stage>]) {
    for at in 1..stages.len() {
        let Kind::Limit(limit) = stages[at].kind() else { continue };
        let mut wanted = limit;
        let mut sort = at - 1;
        while let (Kind::Skip(count), Some(before)) = (stages[sort].kind(), sort.checked_sub(1)) {
            wanted = wanted.saturating_add(count);
            sort = before;
        }
        if let Some(limited) = stages[sort].limited(wanted) {
            stages[sort] = limited;
        }
    }
}
