//! Choosing one of several plans.
//!
//! A query with one plan is not held up. Of several plans, one that leads to at most a few documents of a unique index
//! is taken as it is. Otherwise the plan that the [`cache`](crate::cache) has for the query's shape is taken, or all are
//! tried ([`crate::trial`]) and the cache is told.

use std::hash::{DefaultHasher, Hash, Hasher};

use marula_db::{Collection, Db};
use marula_error::{Result, errors};

use crate::cache::PlanCache;
use crate::plan::{Plan, Stage};
use crate::query::{Hint, Query, Wording};
use crate::shape::Shape;
use crate::{planner, trial};

errors! {
    no_indexed_plan() = NoQueryExecutionPlans, "No indexed plans available, and running with 'notablescan'";
    natural_not_allowed() = NoQueryExecutionPlans, "hint $natural is not allowed, because 'notablescan' is enabled";
}

/// Chooses how `query` is answered on `collection`; `wording` is how the client put it. With `may_wait` false, answers
/// `None` where the plan is not short, or cannot be known without trying.
///
/// Errors: as of [`planner::plan`] and [`trial::run`].
pub fn choose(
    db: &Db,
    collection: &Collection,
    mut query: Query,
    wording: &Wording<'_>,
    may_wait: bool,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<(Plan, Query)>> {
    let state = collection.state();
    let cache = PlanCache::of(collection);
    query.filter.add_index_conditions(&query.context);
    query.allowed = cache.filters.find(&query);
    let mut plans = planner::plans(&state, &query)?;
    check_scan(db, collection, &query, &plans)?;
    if plans.len() == 1 || plans[0].is_short() {
        let plan = plans.swap_remove(0);
        return Ok((may_wait || plan.is_short()).then_some((plan, query)));
    }
    let shape = Shape::of(&query, &state);
    let known = cache.find(shape, &state).and_then(|(wanted, cached)| {
        let number = plans.iter().position(|plan| signature(plan) == wanted)?;
        Some((number, cached))
    });
    let plan = match known {
        Some((number, cached)) => Plan { cached: Some(cached), ..plans.swap_remove(number) },
        None if !may_wait => return Ok(None),
        None => {
            let number = try_all(db, collection, &query, shape, Some(wording), plans, interrupt)?;
            // Those that were tried stand somewhere in the middle.
            planner::plans(&state, &query)?.swap_remove(number)
        }
    };
    Ok((may_wait || plan.is_short()).then_some((plan, query)))
}

/// Tries the plans of a query whose cached plan has come to cost too much; answers the one that wins now.
///
/// Errors: as of [`choose`].
pub(crate) fn replan(
    db: &Db,
    collection: &Collection,
    query: &Query,
    shape: Shape,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Plan> {
    let state = collection.state();
    PlanCache::of(collection).deactivate(shape);
    let plans = planner::plans(&state, query)?;
    let number = match plans.len() {
        1 => 0,
        _ => try_all(db, collection, query, shape, None, plans, interrupt)?,
    };
    Ok(planner::plans(&state, query)?.swap_remove(number))
}

/// Tries `plans` and notes how that ended; answers which one has won.
fn try_all(
    db: &Db,
    collection: &Collection,
    query: &Query,
    shape: Shape,
    wording: Option<&Wording<'_>>,
    plans: Vec<Plan>,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<usize> {
    let state = collection.state();
    let trial = trial::run(db, collection, query, plans, interrupt)?;
    let signature = signature(&trial.tried[trial.winner].plan);
    PlanCache::of(collection).record(shape, &state, query, wording, &trial, signature);
    Ok(trial.winner)
}

/// Fails where a filter would be tried on every document and that is not allowed.
fn check_scan(db: &Db, collection: &Collection, query: &Query, plans: &[Plan]) -> Result<()> {
    if !db.must_use_indexes() || query.filter.is_always_true() {
        return Ok(());
    }
    let scans = |stage: &Stage| matches!(stage, Stage::Collscan(scan) if scan.records.is_none());
    let is_internal = matches!(collection.namespace().db(), "admin" | "config" | "local");
    if is_internal || plans.iter().any(|plan| !plan.root.any(&scans)) {
        return Ok(());
    }
    let error = match query.hint {
        Some(Hint::Natural { .. }) => natural_not_allowed(),
        _ => no_indexed_plan(),
    };
    Err(error.caused_by("error processing query: planner returned error"))
}

/// A plan beside those that were not chosen.
pub struct Choice {
    /// The plan that is carried out.
    pub plan: Plan,
    /// The others, the better first.
    pub rejected: Vec<Plan>,
    /// What all of them have done when they were tried, the winner first; empty where there was nothing to choose.
    pub tried: Vec<trial::Tried>,
}

/// As [`choose`], with all that was considered. Nothing is remembered and nothing known is relied on.
///
/// Errors: as of [`choose`].
pub fn explain(
    db: &Db,
    collection: &Collection,
    query: &mut Query,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Choice> {
    let state = collection.state();
    query.filter.add_index_conditions(&query.context);
    query.allowed = PlanCache::of(collection).filters.find(query);
    let query = &*query;
    let mut plans = planner::plans(&state, query)?;
    check_scan(db, collection, query, &plans)?;
    if plans.len() == 1 {
        return Ok(Choice { plan: plans.remove(0), rejected: Vec::new(), tried: Vec::new() });
    }
    let tried = trial::run(db, collection, query, planner::plans(&state, query)?, interrupt)?;
    let mut all: Vec<(bool, Plan, trial::Tried)> = plans
        .into_iter()
        .zip(tried.tried)
        .enumerate()
        .map(|(number, (plan, found))| (number == tried.winner, plan, found))
        .collect();
    all.sort_by(|a, b| b.0.cmp(&a.0).then(b.2.score.total_cmp(&a.2.score)));
    let mut plans = Vec::with_capacity(all.len());
    let mut tried = Vec::with_capacity(all.len());
    for (_, plan, found) in all {
        plans.push(plan);
        tried.push(found);
    }
    Ok(Choice { plan: plans.remove(0), rejected: plans, tried })
}

/// A number that plans of the same stages over the same indexes share.
fn signature(plan: &Plan) -> u64 {
    let mut hasher = DefaultHasher::new();
    plan.root.walk(&mut |node| {
        // How many are left out or wanted is no matter of the shape.
        if !matches!(node.stage, Stage::Skip(_) | Stage::Limit(_)) {
            std::mem::discriminant(&node.stage).hash(&mut hasher);
        }
        if let Stage::Ixscan(scan) = &node.stage {
            scan.index.ident.hash(&mut hasher);
        }
    });
    hasher.finish()
}
