//! An `$or` at the top of a filter: each branch is planned as an independent query, with the sort
//! and the projection of the whole query, and the best access paths are joined.
//!
//! If a branch has no access path by an index, or is best executed by scanning an index for its
//! order, or by a wildcard index, the query is planned as a whole. Source: the plans and the cache
//! entries that mongod 6.0 shows for such queries.

use marula_db::collection::State;
use marula_db::plan_cache::KnownPlan;
use marula_error::Result;
use marula_query::filter::{Filter, Node as FilterNode};
use marula_query::meter;

use super::access::{self, Access};
use super::{IndexView, finish, has_several_ways, is_subplan, ordered, useful, views_of, wildcard};
use crate::plan::{Plan, Stage};
use crate::query::Query;

/// The cost of finishing a plan, in units of `meter`.
const WAY_WORK: usize = 64;
/// The approximate size of a plan in memory.
const WAY_BYTES: usize = 2048;

/// The result of planning the branches of an `$or`.
pub(crate) enum Branches {
    /// There is no choice: each branch has one access path.
    Joined(Box<Plan>),
    /// The plans of each branch.
    Several(Vec<Branch>),
}

/// A branch of an `$or`, planned on its own.
pub(crate) struct Branch {
    /// The query of the branch.
    pub query: Query,
    /// Its access paths, which can be joined with those of other branches.
    pub ways: Vec<Access>,
    /// Its plans, in mongod's order: those of the access paths, then others.
    pub plans: Vec<Plan>,
}

/// Returns the branches of `query`; `None` if it is planned as a whole. `known` returns the cached
/// plan for the shape of a branch, of which only this plan is made then.
///
/// Errors: those of an operation that must end, or has no memory left; those of a wildcard index.
pub(crate) fn branches(
    state: &State,
    query: &Query,
    known: Option<&dyn Fn(&Query) -> Option<KnownPlan>>,
) -> Result<Option<Branches>> {
    let FilterNode::Or(nodes) = query.filter.root() else { return Ok(None) };
    if !is_subplan(query) || query.filter.text().is_some() || query.filter.near().is_some() {
        return Ok(None);
    }
    wildcard::check(state, query)?;
    let views = useful(state, query);
    let mut all: Vec<Ways> = Vec::with_capacity(nodes.len());
    for node in nodes {
        if let Some(known) = known
            && has_several_ways(state, query, node)
        {
            let branch = query_of(query, node);
            if let Some(plan) = known(&branch)
                && let Some(branch) = known_branch(state, query, node, branch, &plan)?
            {
                all.push(Ways::Known(Box::new(branch)));
                continue;
            }
        }
        let ways = access::branch_ways(state, &views, query, node);
        meter::recall()?;
        if ways.is_empty() {
            return Ok(None);
        }
        meter::check_room(ways.len() * WAY_BYTES)?;
        all.push(Ways::All(ways));
    }
    if query.sort.is_none() && all.iter().all(Ways::is_one) {
        let ways = all.into_iter().flat_map(Ways::into_paths).collect();
        let plan = join_ways(state, &views, query, ways);
        meter::recall()?;
        return Ok(Some(Branches::Joined(Box::new(plan))));
    }
    let mut planned = Vec::with_capacity(all.len());
    for (node, ways) in nodes.iter().zip(all) {
        planned.push(match ways {
            Ways::Known(branch) => *branch,
            Ways::All(ways) => {
                meter::spend(WAY_WORK * ways.len())?;
                meter::check_room(ways.len() * WAY_BYTES)?;
                plan_branch(&views, query_of(query, node), ways)
            }
        });
    }
    Ok(Some(Branches::Several(planned)))
}

/// The access paths of a branch.
enum Ways {
    /// All of them.
    All(Vec<Access>),
    /// The one of the cached plan.
    Known(Box<Branch>),
}

impl Ways {
    /// Returns whether the branch has only one access path.
    fn is_one(&self) -> bool {
        matches!(self, Ways::All(ways) if ways.len() == 1)
    }

    fn into_paths(self) -> Vec<Access> {
        match self {
            Ways::All(ways) => ways,
            Ways::Known(branch) => branch.ways,
        }
    }
}

/// Returns the branch of `node` with its cached plan alone, which is made from the indexes of that
/// plan; `None` if they give another plan for the branch's constants.
fn known_branch(
    state: &State,
    query: &Query,
    node: &FilterNode,
    branch: Query,
    known: &KnownPlan,
) -> Result<Option<Branch>> {
    let used = state.indexes.iter().filter(|index| known.indexes.contains(&index.ident));
    let views: Vec<IndexView<'_>> = used.flat_map(|index| views_of(index, query)).collect();
    let ways = access::branch_ways(state, &views, query, node);
    meter::recall()?;
    let Branch { query, mut ways, mut plans } = plan_branch(&views, branch, ways);
    let number = plans.iter().position(|plan| plan.signature() == known.signature);
    Ok(number.map(|number| {
        // The others, such as a scan in the order of the sort, join with nothing.
        let ways = (number < ways.len()).then(|| ways.swap_remove(number)).into_iter().collect();
        Branch { query, ways, plans: vec![plans.swap_remove(number)] }
    }))
}

/// Returns the plan that joins one access path for each branch of `query`.
///
/// Errors: as of [`branches`].
pub(crate) fn join(state: &State, query: &Query, ways: Vec<Access>) -> Result<Plan> {
    let plan = join_ways(state, &useful(state, query), query, ways);
    meter::recall()?;
    Ok(plan)
}

fn join_ways(state: &State, views: &[IndexView<'_>], query: &Query, ways: Vec<Access>) -> Plan {
    let access = access::join_branches(state, views, query, ways);
    Plan { is_subplan: true, ..finish::finish(access, query, views) }
}

/// The query of a branch, with the sort and the projection of the whole.
fn query_of(query: &Query, node: &FilterNode) -> Query {
    let filter = Filter::of_canonical(node.clone(), &query.context);
    Query {
        sort: query.sort.clone(),
        shown: query.shown.clone(),
        allowed: query.allowed.clone(),
        ..Query::new(filter, query.context.clone())
    }
}

fn plan_branch(views: &[IndexView<'_>], query: Query, ways: Vec<Access>) -> Branch {
    let finished = ways.iter().cloned().map(|way| finish::finish(way, &query, views));
    let mut plans: Vec<Plan> = finished.collect();
    let is_blocking = |stage: &Stage| matches!(stage, Stage::Sort(_));
    if let Some(sort) = &query.sort
        && plans.iter().all(|plan| plan.root.any(&is_blocking))
    {
        plans.extend(ordered(views, &query, sort));
    }
    Branch { query, ways, plans }
}
