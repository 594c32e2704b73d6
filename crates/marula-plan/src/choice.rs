//! The choice between several plans.
//!
//! ```text
//!   one plan, or few documents of a unique index ──────────────────────────► run it
//!   an active entry of the cache ──► made from the entry's indexes alone ──► run it within a limit
//!   otherwise ──► all plans ──► trial ──► the cache records the result ────► the winner continues
//! ```
//!
//! The cache is [`cache`], a trial is [`trial`]. For a branch of an
//! `$or` the same is done with the branch alone.

use std::sync::Arc;

use marula_bson::Doc;
use marula_db::collection::State;
use marula_db::{Collection, Unit};
use marula_error::{Error, Result, errors};

use crate::cache;
use crate::clustered::{self, ClusteredScan};
use crate::executor::{Execution, Start};
use crate::plan::{Collscan, Plan, Stage};
use crate::planner::subplan::{self, Branch, Branches};
use crate::query::{Hint, Query, Wording};
use crate::shape::{query_shape, shape_of};
use crate::time_budget::{TimeBudget, TimeLimit, may_be_tried};
use crate::trial::Findings;
use crate::{planner, refusal, trial};
use marula_db::plan_cache::{Cached, KnownPlan, PlanCache, QueryShape};

errors! {
    tailable_scan() = NoQueryExecutionPlans, "Running with 'notablescan', so tailable cursors (which always do a table scan) are not allowed";
    no_indexed_plan() = NoQueryExecutionPlans, "No indexed plans available, and running with 'notablescan'";
    natural_not_allowed() = NoQueryExecutionPlans, "hint $natural is not allowed, because 'notablescan' is enabled";
}

/// Chooses a plan for `query` on `collection`; `wording` is the query as the client wrote it. A
/// plan that won a trial continues where the trial stopped.
///
/// Errors: those of [`planner::plan`], and those of a trial. The operation is
/// [postponed](Error::postponed) if the plan does not fit `time_budget`, or if it takes a trial to
/// choose and there is no time for one.
pub fn choose(
    unit: Unit<'_>,
    collection: &Arc<Collection>,
    query: Query,
    wording: &Wording<'_>,
    time_budget: TimeBudget,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Execution> {
    let mut query = prepared(collection, query);
    let may_wait = time_budget.is_long();
    let (state, cache) = (unit.state(collection), collection.plans());
    let begin = |plan: Plan, query| {
        Execution::start(collection.clone(), Start::fresh(Arc::new(plan)), query)
    };
    if let Some(plan) = first_of_each(&state, &mut query) {
        return if may_wait { Ok(begin(plan, query)) } else { Err(Error::postponed()) };
    }
    let known = Known { cache, collection, state: &state, wording, may_wait };
    if let Some(plan) = plan_of_branches(unit, collection, &query, Some(&known), interrupt)? {
        return known.admit(begin(plan, query), None, time_budget);
    }
    if let Some((plan, cached)) = known.plan(unit, &query)? {
        let execution = begin(plan, query).cached(cached);
        return known.admit(execution, Some(cached.shape), time_budget);
    }
    let mut plans = plans_of(unit, collection, &query, wording)?;
    let short = plans.iter().position(Plan::is_short);
    if plans.len() == 1 || short.is_some() {
        let plan = plans.swap_remove(short.unwrap_or(0));
        return known.admit(begin(plan, query), None, time_budget);
    }
    let shape = shape_of(&query, &state);
    if let Some((number, cached)) = known.number(shape, &plans) {
        let execution = begin(plans.swap_remove(number), query).cached(cached);
        return known.admit(execution, Some(shape), time_budget);
    }
    if !may_wait {
        return Err(Error::postponed());
    }
    let winner = try_all(unit, collection, &query, shape, Some(wording), plans, interrupt)?;
    let execution = Execution::start(collection.clone(), Start::won(winner), query);
    known.admit(execution, Some(shape), time_budget)
}

/// Returns a query in the form in which it is planned on `collection`.
fn prepared(collection: &Collection, query: Query) -> Box<Query> {
    let mut query = Box::new(query);
    query.filter.add_index_conditions(&query.context);
    query.allowed = collection.plans().filters.find(|| query_shape(&query));
    query
}

/// Returns the plan that returns only the first document of each group, if that is permitted and
/// there is one. If there is none, planning the whole query reports the reason.
fn first_of_each(state: &State, query: &mut Query) -> Option<Plan> {
    let Some(order) = query.first_by.take() else {
        return planner::plan_first_of_each(state, query).ok().flatten();
    };
    let sort = query.sort.replace(order);
    let plan = planner::plan_first_of_each(state, query).ok().flatten();
    query.sort = sort;
    plan
}

/// The sources of a choice: the plan cache, and the query as the client wrote it.
struct Known<'k> {
    cache: &'k PlanCache,
    collection: &'k Collection,
    state: &'k Arc<State>,
    /// The whole query as the client wrote it.
    wording: &'k Wording<'k>,
    may_wait: bool,
}

impl Known<'_> {
    /// Returns the cached plan for the shape of `query`, made for its constants from that plan's
    /// indexes alone; `None` if the cache has none, or if creating all plans costs less than the
    /// lookup.
    fn plan(&self, unit: Unit<'_>, query: &Query) -> Result<Option<(Plan, Cached)>> {
        if !self.cache.has_active()
            || !planner::has_several_ways(self.state, query, query.filter.root())
        {
            return Ok(None);
        }
        let Some(entry) = self.entry(query) else { return Ok(None) };
        planner::check(self.state, query)?;
        let plans = planner::plans_by(self.state, query, &entry.indexes).map_err(|reason| {
            refusal::not_planned(reason, &self.collection.namespace(), query, self.wording)
        })?;
        let meant = plans.into_iter().find(|plan| plan.signature() == entry.signature);
        // Planning the whole query reports why it must not run.
        let may_run = |plan: &Plan| {
            !must_use_indexes(unit, self.collection, query, self.wording)
                || check_ways(query, self.wording).is_ok() && !scans(plan, self.wording)
        };
        Ok(meant.filter(may_run).map(|plan| (plan, entry.cached)))
    }

    /// Returns the cache's entry for a query of this shape.
    fn entry(&self, query: &Query) -> Option<KnownPlan> {
        self.cache.find(shape_of(query, self.state), self.state)
    }

    /// Returns the number among `plans` of the cached plan for queries of this shape.
    fn number(&self, shape: QueryShape, plans: &[Plan]) -> Option<(usize, Cached)> {
        let entry = self.cache.find(shape, self.state)?;
        let number = plans.iter().position(|plan| plan.signature() == entry.signature)?;
        Some((number, entry.cached))
    }

    /// Returns an execution whose plan fits `time_budget`; measures its time if it may be stopped.
    ///
    /// Errors: it does not fit, and the operation is postponed.
    fn admit(
        &self,
        mut execution: Execution,
        shape: Option<QueryShape>,
        time_budget: TimeBudget,
    ) -> Result<Execution> {
        let (plan, query) = (execution.plan(), execution.query());
        if time_budget == TimeBudget::Long || plan.is_short() {
            return Ok(execution);
        }
        if time_budget == TimeBudget::Short || !may_be_tried(plan, query) {
            return if time_budget.is_long() { Ok(execution) } else { Err(Error::postponed()) };
        }
        let shape = shape.unwrap_or_else(|| shape_of(query, self.state)).plan;
        let time = match time_budget {
            TimeBudget::UpTo(time) => Some(time),
            _ => None,
        };
        execution.limit_time(TimeLimit { shape, spare: time.map(TimeBudget::longest) });
        let fits = time.is_none_or(|time| self.cache.last_duration(shape) <= time);
        if fits { Ok(execution) } else { Err(Error::postponed()) }
    }
}

/// Returns the plan that joins the plans of the branches of an `$or`; `None` if the query is no
/// `$or`, or is planned as a whole.
///
/// Errors: as [`choose_branch`]. If the operation is postponed, nothing is cached.
fn plan_of_branches(
    unit: Unit<'_>,
    collection: &Collection,
    query: &Query,
    known: Option<&Known<'_>>,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<Plan>> {
    let state = unit.state(collection);
    let entry = |branch: &Query| known.and_then(|known| known.entry(branch));
    let has_entries = known.is_some_and(|known| known.cache.has_active());
    let branches = match subplan::branches(&state, query, has_entries.then_some(&entry))? {
        None => return Ok(None),
        Some(Branches::Joined(plan)) => return Ok(Some(*plan)),
        Some(Branches::Several(branches)) => branches,
    };
    let mut chosen = Vec::with_capacity(branches.len());
    for Branch { query: branch, mut ways, plans } in branches {
        let is_expanded =
            |stage: &Stage| matches!(stage, Stage::Ixscan(scan) if scan.wildcard.is_some());
        let is_joinable: Vec<bool> = (plans.iter().enumerate())
            .map(|(number, plan)| number < ways.len() && !plan.root.any(&is_expanded))
            .collect();
        if !is_joinable.contains(&true) {
            return Ok(None);
        }
        let number = match plans.len() {
            1 => 0,
            _ => choose_branch(unit, collection, &branch, plans, known, interrupt)?,
        };
        if !is_joinable[number] {
            return Ok(None);
        }
        chosen.push(ways.swap_remove(number));
    }
    subplan::join(&state, query, chosen).map(Some)
}

/// Chooses one of several plans of a branch.
///
/// Errors: those of a trial. The operation is postponed if a trial is necessary and there is no
/// time for one.
fn choose_branch(
    unit: Unit<'_>,
    collection: &Collection,
    branch: &Query,
    plans: Vec<Plan>,
    known: Option<&Known<'_>>,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<usize> {
    let dropped = Findings::Dropped;
    let Some(known) = known else {
        return Ok(trial::run(unit, collection, branch, plans, dropped, interrupt)?.winner);
    };
    if let Some(short) = plans.iter().position(Plan::is_short) {
        return Ok(short);
    }
    let shape = shape_of(branch, known.state);
    if let Some((number, _)) = known.number(shape, &plans) {
        return Ok(number);
    }
    if !known.may_wait {
        return Err(Error::postponed());
    }
    let trial = trial::run(unit, collection, branch, plans, dropped, interrupt)?;
    // For a branch, one of several equal winners is not worth caching.
    if trial.is_clear() && is_newest(known.state, collection) {
        let wording = Wording { filter: None, ..*known.wording };
        cache::note_trial(known.collection, shape, known.state, branch, Some(&wording), &trial);
    }
    Ok(trial.winner)
}

/// Tries the plans of a query whose cached plan exceeded its work limit; returns the new winner and
/// its position.
///
/// Errors: those of [`choose`].
pub(crate) fn replan(
    unit: Unit<'_>,
    collection: &Collection,
    query: &Query,
    shape: QueryShape,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Start> {
    let state = unit.state(collection);
    collection.plans().deactivate(shape);
    let mut plans = planner::plans(&state, query)?;
    if plans.len() == 1 {
        return Ok(Start::fresh(Arc::new(plans.remove(0))));
    }
    try_all(unit, collection, query, shape, None, plans, interrupt).map(Start::won)
}

/// Tries `plans` and records the result; returns the winner.
fn try_all(
    unit: Unit<'_>,
    collection: &Collection,
    query: &Query,
    shape: QueryShape,
    wording: Option<&Wording<'_>>,
    plans: Vec<Plan>,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<trial::Tried> {
    let state = unit.state(collection);
    let mut trial = trial::run(unit, collection, query, plans, Findings::Kept, interrupt)?;
    if is_newest(&state, collection) {
        cache::note_trial(collection, shape, &state, query, wording, &trial);
    }
    Ok(trial.tried.swap_remove(trial.winner))
}

/// Returns whether an operation sees the collection's current indexes: only then is its result
/// useful to others.
fn is_newest(state: &Arc<State>, collection: &Collection) -> bool {
    Arc::ptr_eq(state, &collection.state())
}

/// Returns the plans for a query, in mongod's order.
///
/// Errors: those of [`planner::plans`] with the query in front, of `check_ways`, `no_indexed_plan`
/// and [`clustered::check_direction`].
fn plans_of(
    unit: Unit<'_>,
    collection: &Collection,
    query: &Query,
    wording: &Wording<'_>,
) -> Result<Vec<Plan>> {
    let state = unit.state(collection);
    planner::check(&state, query)?;
    let must_use_indexes = must_use_indexes(unit, collection, query, wording);
    let is_allowed = if must_use_indexes { check_ways(query, wording) } else { Ok(()) };
    let plans = is_allowed.and_then(|()| planner::plans_of_checked(&state, query));
    let plans = plans.and_then(|plans| {
        let scans = |plan: &Plan| scans(plan, wording);
        match must_use_indexes && query.hint.is_none() && plans.iter().all(scans) {
            true => Err(no_indexed_plan()),
            false => Ok(plans),
        }
    });
    let plans = plans
        .map_err(|reason| refusal::not_planned(reason, &collection.namespace(), query, wording))?;
    clustered::check_direction(query, &plans)?;
    Ok(plans)
}

/// Returns whether a scan of every document is forbidden. The server's internal collections may be
/// scanned.
fn must_use_indexes(
    unit: Unit<'_>,
    collection: &Collection,
    query: &Query,
    wording: &Wording<'_>,
) -> bool {
    if !unit.db().must_use_indexes() {
        return false;
    }
    let says_nothing = wording.filter.map_or(query.filter.is_always_true(), Doc::is_empty);
    let ns = collection.namespace();
    let is_internal =
        matches!(ns.db(), "admin" | "config" | "local") || ns.collection().starts_with("system.");
    !says_nothing && !is_internal
}

/// Fails if indexes are required and the client requests a collection scan.
fn check_ways(query: &Query, wording: &Wording<'_>) -> Result<()> {
    if wording.is_tailable {
        return Err(tailable_scan());
    }
    match query.hint {
        Some(Hint::Natural { .. }) => Err(natural_not_allowed()),
        _ => Ok(()),
    }
}

/// Returns whether a plan scans a collection. A scan of part of a clustered collection is permitted
/// if no stage is above it, not even a limit of one.
fn scans(plan: &Plan, wording: &Wording<'_>) -> bool {
    let is_bounded = |scan: &Collscan| scan.records.as_ref().is_some_and(ClusteredScan::is_bounded);
    match &plan.root {
        Stage::Collscan(scan) => !is_bounded(scan) || wording.limit.is_some(),
        _ => plan.root.any(&|stage| matches!(stage, Stage::Collscan(_))),
    }
}

/// The chosen plan and those that were not chosen.
pub struct Choice {
    /// The chosen plan. After a trial it continues where the trial stopped.
    pub execution: Execution,
    /// Its score; `None` if there was only one plan.
    pub score: Option<f64>,
    /// The other plans, in the order of [`winner_and_rejected`].
    pub rejected: Vec<trial::Tried>,
    /// The winner's number among all plans.
    pub number: usize,
}

impl Choice {
    fn only(execution: Execution) -> Self {
        Choice { execution, score: None, rejected: Vec::new(), number: 0 }
    }
}

/// Like [`choose`], with all plans that were considered. `see` receives each document of a trial,
/// and the number of the plan that found it. The cache is neither read nor written.
///
/// Errors: those of [`choose`].
pub fn explain(
    unit: Unit<'_>,
    collection: &Arc<Collection>,
    query: Query,
    wording: &Wording<'_>,
    see: &mut dyn FnMut(usize, Doc<'_>),
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Choice> {
    let mut query = prepared(collection, query);
    let state = unit.state(collection);
    let only = |plan: Plan, query| {
        let start = Start::fresh(Arc::new(plan));
        Choice::only(Execution::start(collection.clone(), start, query))
    };
    if let Some(plan) = first_of_each(&state, &mut query) {
        return Ok(only(plan, query));
    }
    if let Some(plan) = plan_of_branches(unit, collection, &query, None, interrupt)? {
        return Ok(only(plan, query));
    }
    let mut plans = plans_of(unit, collection, &query, wording)?;
    if plans.len() == 1 {
        return Ok(only(plans.remove(0), query));
    }
    let shown = Findings::Shown(see);
    let trial::Trial { winner, tried } =
        trial::run(unit, collection, &query, plans, shown, interrupt)?;
    let number = winner;
    let (winner, rejected) = winner_and_rejected(winner, tried);
    let score = Some(winner.score);
    let execution = Execution::start(collection.clone(), Start::won(winner), query);
    Ok(Choice { execution, score, rejected, number })
}

/// Returns the winner, and the others in mongod's order: the first plan takes the winner's
/// position. If the winner has to sort and has returned nothing yet, mongod keeps a plan without a
/// sort in reserve, which changes positions with the first of these.
fn winner_and_rejected(
    winner: usize,
    mut tried: Vec<trial::Tried>,
) -> (trial::Tried, Vec<trial::Tried>) {
    tried.swap(0, winner);
    let mut rejected = tried.split_off(1);
    let winner = tried.swap_remove(0);
    let sorts = |plan: &Plan| plan.root.any(&|stage| matches!(stage, Stage::Sort(_)));
    if sorts(&winner.plan)
        && winner.run.stats.advanced == 0
        && let Some(reserve) = rejected.iter().position(|tried| !sorts(&tried.plan))
    {
        rejected.swap(0, reserve);
    }
    (winner, rejected)
}
