//! Choosing one of several plans, and remembering the choice for queries of the same shape.
//!
//! A query with one plan is not held up. Of several plans, one that leads to at most a few documents of a unique index
//! is taken as it is. Otherwise they are tried ([`crate::trial`]), and the winner serves queries of the same
//! shape until the collection's indexes change or its size has doubled or halved.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use marula_db::collection::State;
use marula_db::{Collection, Db};
use marula_error::{Result, errors};
use marula_query::sort::SortPart;
use parking_lot::Mutex;

use crate::plan::{Plan, Stage};
use crate::query::{Hint, Query, Wanted};
use crate::{planner, trial};

errors! {
    no_indexed_plan() = NoQueryExecutionPlans, "No indexed plans available, and running with 'notablescan'";
    natural_not_allowed() = NoQueryExecutionPlans, "hint $natural is not allowed, because 'notablescan' is enabled";
}

/// How many choices are remembered of one collection; beyond, all are forgotten.
const CHOICES_MAX: usize = 5_000;

/// What is remembered of a collection's plans.
#[derive(Default)]
pub struct PlanCache {
    choices: Mutex<HashMap<u64, Remembered>>,
}

/// The plan that queries of one shape take.
struct Remembered {
    /// The collection's options and indexes when it was chosen.
    state: Weak<State>,
    /// How many documents the collection had.
    count: i64,
    /// Which of the shape's plans.
    number: usize,
    /// The indexes and stages of that plan.
    signature: u64,
}

impl PlanCache {
    /// What is remembered of `collection`.
    pub fn of(collection: &Collection) -> Arc<PlanCache> {
        collection.memory().unwrap_or_default()
    }

    /// Forgets every choice.
    pub fn clear(&self) {
        self.choices.lock().clear();
    }

    fn find(&self, shape: u64, state: &Arc<State>, count: i64, plans: &[Plan]) -> Option<usize> {
        let choices = self.choices.lock();
        let choice = choices.get(&shape)?;
        let is_same_state = std::ptr::eq(choice.state.as_ptr(), Arc::as_ptr(state));
        let is_same_size =
            count <= choice.count.saturating_mul(2) && choice.count <= count.saturating_mul(2);
        let plan = plans.get(choice.number)?;
        (is_same_state && is_same_size && signature(plan) == choice.signature)
            .then_some(choice.number)
    }

    fn remember(&self, shape: u64, choice: Remembered) {
        let mut choices = self.choices.lock();
        if choices.len() >= CHOICES_MAX {
            choices.clear();
        }
        choices.insert(shape, choice);
    }
}

/// Chooses how `query` is answered on `collection`. With `may_wait` false, answers `None` where the plan is not
/// short, or cannot be known without trying.
///
/// Errors: as of [`planner::plan`] and [`trial::run`].
pub fn choose(
    db: &Db,
    collection: &Collection,
    query: Query,
    may_wait: bool,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<(Plan, Query)>> {
    let state = collection.state();
    let mut plans = planner::plans(&state, &query)?;
    check_scan(db, collection, &query, &plans)?;
    let mut number = 0;
    if plans.len() > 1 && !plans[0].is_short() {
        let (cache, shape) = (PlanCache::of(collection), shape(&query));
        let count = collection.count();
        match cache.find(shape, &state, count, &plans) {
            Some(known) => number = known,
            None if !may_wait => return Ok(None),
            None => {
                let trial = trial::run(db, collection, &query, plans, interrupt)?;
                number = trial.winner;
                let signature = signature(&trial.tried[number].plan);
                let state_then = Arc::downgrade(&state);
                cache.remember(shape, Remembered { state: state_then, count, number, signature });
                // Those that were tried stand somewhere in the middle.
                plans = planner::plans(&state, &query)?;
            }
        }
    }
    let plan = plans.swap_remove(number);
    Ok((may_wait || plan.is_short()).then_some((plan, query)))
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
    query: &Query,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Choice> {
    let state = collection.state();
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

/// A number that queries of one shape share: they ask the same of the same fields, in the same order, whatever the
/// constants.
pub fn shape(query: &Query) -> u64 {
    let mut hasher = DefaultHasher::new();
    query.filter.shape_hash().hash(&mut hasher);
    if let Some(sort) = &query.sort {
        for part in sort.parts() {
            match part {
                SortPart::Path { path, descending } => (path, descending).hash(&mut hasher),
                SortPart::Meta(_) => 0_u8.hash(&mut hasher),
            }
        }
    }
    if let Some(shown) = &query.shown {
        (shown.is_simple, &shown.needs).hash(&mut hasher);
    }
    (query.wanted == Wanted::Count, query.limit.is_some(), query.skip > 0).hash(&mut hasher);
    if let Some(collation) = &query.context.collation {
        collation.to_doc().as_bytes().hash(&mut hasher);
    }
    hasher.finish()
}

/// A number that plans of the same stages over the same indexes share.
fn signature(plan: &Plan) -> u64 {
    let mut hasher = DefaultHasher::new();
    plan.root.walk(&mut |node| {
        std::mem::discriminant(&node.stage).hash(&mut hasher);
        if let Stage::Ixscan(scan) = &node.stage {
            scan.index.ident.hash(&mut hasher);
        }
    });
    hasher.finish()
}
