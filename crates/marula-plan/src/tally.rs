//! The contribution of plans to an operation's statistics.

use marula_bson::Doc;
use marula_db::Unit;
use marula_db::unit::{Detail, Examined, Hashes, PlanReport};

use crate::executor::{Execution, Stats};
use crate::explain::{self, Printed};
use crate::plan::{Plan, Stage};
use crate::shape::shape_of;

/// Records that a plan starts or continues.
#[inline]
pub(crate) fn begin(unit: Unit<'_>, plan: &Plan) {
    if let Some(tally) = unit.tally()
        && tally.reports_plan()
    {
        tally.plan_begins(|| plan.summary());
    }
}

/// Adds the keys and documents that a run has examined.
#[inline]
pub(crate) fn add(unit: Unit<'_>, execution: &Execution, run: Examined) {
    let Some(tally) = unit.tally() else { return };
    tally.add_examined(run);
    if tally.reports_plan() {
        tally.plan_ran(|detail| statistics(execution, detail));
    }
}

/// Records that an operation has no plan because its collection does not exist.
#[inline]
pub fn without_collection(unit: Unit<'_>) {
    without_plan(unit, "EOF", &[]);
}

/// Records that an operation has counted all documents without a plan, in the counter of the
/// collection.
#[inline]
pub fn counted_all(unit: Unit<'_>, counted: u64, skipped: u64) {
    without_plan(unit, explain::FAST_COUNT, &[("nCounted", counted), ("nSkipped", skipped)]);
}

/// Records the only stage of an operation that nothing was planned for, with its counts, unless it
/// is part of an operation whose plan runs.
#[inline]
fn without_plan(unit: Unit<'_>, stage: &str, counts: &[(&str, u64)]) {
    if let Some(tally) = unit.tally()
        && tally.reports_plan()
        && tally.summary().is_none()
    {
        tally.plan_begins(|| stage.to_owned());
        tally.plan_ran(|detail| unplanned(stage, counts, detail));
    }
}

fn unplanned(stage: &str, counts: &[(&str, u64)], detail: &Detail) -> PlanReport {
    let stats = Stats { works: 1, is_eof: true, ..Stats::default() };
    let has_stages = matches!(detail, Detail::Stages { .. });
    PlanReport {
        summary: stage.to_owned(),
        has_sort: false,
        is_by_id: false,
        has_won: false,
        hashes: None,
        may_be_cached: false,
        stages: has_stages.then(|| explain::only_stage(stage, Some((stats, counts)))),
    }
}

/// Returns the statistics of a plan that has run.
fn statistics(execution: &Execution, detail: &Detail) -> PlanReport {
    let (plan, query) = (execution.plan(), execution.query());
    let has_sort = plan.root.any(&|stage| matches!(stage, Stage::Sort(_)));
    let is_by_id = plan.root.any(&|stage| matches!(stage, Stage::IdHack(_)));
    // DISTINCT plans are made from the indexes alone, without the planner.
    let is_planned = !plan.gives_first_of_each();
    let stages = match detail {
        Detail::Stages { sort, projection } => {
            let (sort, projection): (Doc<'_>, Doc<'_>) = (sort.as_doc(), projection.as_doc());
            let printed = Printed { sort, projection, has_run: true, sorts_records: false };
            Some(explain::tree(plan, Some(execution.stages()), &printed))
        }
        Detail::Nothing | Detail::Summary => None,
    };
    let hashes = || {
        let shape = shape_of(query, &execution.collection().state());
        Hashes { query: shape.query, plan: shape.plan }
    };
    PlanReport {
        summary: plan.summary(),
        has_sort,
        is_by_id,
        has_won: execution.has_won(),
        hashes: is_planned.then(hashes),
        may_be_cached: is_planned && !is_by_id && query.has_choice(),
        stages,
    }
}
