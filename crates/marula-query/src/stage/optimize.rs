//! Rearranges pipelines: stages that drop or sort documents are moved as early as possible.
//!
//! Pairs of neighbours are examined until no rule applies to any pair:
//!
//! | stage | after | becomes |
//! | --- | --- | --- |
//! | `$match` | `$match` | one `$match` of both |
//! | `$match` | `$lookup` with `$unwind` of its array | its conditions on these move there |
//! | `$unwind` | `$lookup` or `$graphLookup` that adds its array | one stage, without the array |
//! | `$match` of all, `$skip` of zero | next to any stage | nothing |
//! | `$match` | a stage that leaves the tested fields unchanged | its conditions on these come first |
//! | `$match` | `$unionWith` | before it, and at the end of its pipeline |
//! | `$match` | `$redact` | its conditions on values are also tried before it |
//! | `$limit`, `$skip` | itself | one: the minimum, the sum |
//! | `$limit` | `$sort` | a sort with that limit |
//! | `$limit` | `$skip` after `$sort` | before it, and larger by the skipped number |
//! | `$limit`, `$skip`, `$sample` | a stage that outputs one document for each | before it |
//! | `$sort` | `$sort` | only the second |
//! | `$sort` | a stage that outputs this order, such as `$densify` | nothing, or a `$limit` |
//! | `$sort` | `$sort` and windows whose order it extends | the only sort; its limit comes after |
//! | `$sort` | `$lookup` or `$unwind` of other fields | before it |
//!
//! Stages that reach the front become the query that reads the collection, with the existing
//! indexes. No rule reverses another, and each moves a stage towards the front, removes one, or
//! copies conditions once, so the process ends.

use std::sync::Arc;

use super::limit::Limit;
use super::r#match::Match;
use super::skip::Skip;
use super::{Kind, Stage};
use crate::context::Context;
use crate::filter::{Filter, Node};

/// Returns stages with the same output as `stages` and a lower cost.
pub(super) fn rearranged(
    mut stages: Vec<Arc<dyn Stage>>,
    context: &Context,
) -> Vec<Arc<dyn Stage>> {
    let mut at = 0;
    while at + 1 < stages.len() {
        if let Some(count) = matches_from(&stages[at..]) {
            let joined = joined(&stages[at..at + count], context);
            stages.splice(at..at + count, [joined]);
            at = at.saturating_sub(1);
            continue;
        }
        let is_behind_sort = at > 0 && matches!(stages[at - 1].kind(), Kind::Sort(..));
        match two(&stages[at], &stages[at + 1], is_behind_sort, context) {
            None => at += 1,
            Some(instead) => {
                stages.splice(at..at + 2, instead);
                // The change may enable a rule for the stage before.
                at = at.saturating_sub(1);
            }
        }
    }
    stages
}

/// Returns the number of `$match` stages with conditions at the front, if there are several.
fn matches_from(stages: &[Arc<dyn Stage>]) -> Option<usize> {
    let is_match = |stage: &&Arc<dyn Stage>| {
        let kind = stage.kind();
        matches!(kind, Kind::Match(_)) && !is_nothing(&kind)
    };
    let count = stages.iter().take_while(is_match).count();
    (count > 1).then_some(count)
}

/// Returns one `$match` of several.
fn joined(matches: &[Arc<dyn Stage>], context: &Context) -> Arc<dyn Stage> {
    let mut all = Vec::new();
    let last = matches.len() - 1;
    for (number, stage) in matches.iter().enumerate() {
        match stage.kind() {
            Kind::Match(filter) if number == last => all.push(filter.as_written().clone()),
            Kind::Match(filter) => all.extend(filter.conditions()),
            _ => {}
        }
    }
    matching(all, context)
}

/// Returns the replacement of two neighbours, if a rule applies to them.
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
        (_, Kind::Skip(_) | Kind::Limit(_) | Kind::Sample(_)) if first.is_one_to_one() => swapped(),
        (_, Kind::Sort(sort)) if first.gives_order(sort.pattern()) => {
            Some(limited(vec![Arc::clone(first)], sort.limit()))
        }
        (_, Kind::Sort(sort)) if is_behind_sort && first.takes_order(sort.pattern()) => {
            Some(limited(vec![Arc::new(sort.without_limit()), Arc::clone(first)], sort.limit()))
        }
        (Kind::Sort(sort), Kind::Sort(_)) if sort.limit().is_none() => {
            Some(vec![Arc::clone(second)])
        }
        // If a stage outputs several documents for one, or none, a limit cannot move before it.
        (_, Kind::Sort(sort))
            if (sort.limit().is_none() || first.is_one_to_one())
                && first.passage().lets_pass(sort.pattern()) =>
        {
            swapped()
        }
        _ => None,
    }
}

/// Returns whether a stage outputs its whole input unchanged.
fn is_nothing(kind: &Kind<'_>) -> bool {
    match kind {
        Kind::Match(filter) => {
            matches!(filter.as_written(), Node::And(conditions) if conditions.is_empty())
        }
        Kind::Skip(count) => *count == 0,
        _ => false,
    }
}

/// Returns the stages, followed by a `$limit` if there is one.
fn limited(mut stages: Vec<Arc<dyn Stage>>, limit: Option<u64>) -> Vec<Arc<dyn Stage>> {
    stages.extend(limit.map(|limit| -> Arc<dyn Stage> { Arc::new(Limit(limit)) }));
    stages
}

/// Splits a `$match` after `stage` in two: the conditions that can be evaluated before it, and the
/// others.
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

/// Returns a `$match` of all the conditions.
pub(super) fn matching(conditions: Vec<Node>, context: &Context) -> Arc<dyn Stage> {
    Arc::new(Match::new(Filter::written(Node::And(conditions), context)))
}

/// Sets the limit of each sort that a `$limit` follows, so that it keeps no more documents.
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
