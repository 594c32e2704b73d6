//! What an operation's tally is told of the plans that it runs.

use marula_bson::Doc;
use marula_db::Unit;
use marula_db::unit::{Detail, Examined, Hashes, Told};

use crate::executor::Execution;
use crate::explain::{self, Printed};
use crate::plan::{Plan, Stage};
use crate::shape::shape_of;

/// Notes that a plan begins to run, or goes on.
#[inline]
pub(crate) fn begin(unit: Unit<'_>, plan: &Plan) {
    if let Some(tally) = unit.tally()
        && tally.tells()
    {
        tally.plan_begins(|| plan.summary());
    }
}

/// Adds what a run has looked at.
#[inline]
pub(crate) fn add(unit: Unit<'_>, execution: &Execution, run: Examined) {
    let Some(tally) = unit.tally() else { return };
    tally.add_examined(run);
    if tally.tells() {
        tally.plan_ran(|detail| told(execution, detail));
    }
}

/// What is told of a plan that has run.
fn told(execution: &Execution, detail: &Detail) -> Told {
    let (plan, query) = (execution.plan(), execution.query());
    let has_sort = plan.root.any(&|stage| matches!(stage, Stage::Sort(_)));
    let is_by_id = plan.root.any(&|stage| matches!(stage, Stage::IdHack(_)));
    // The first of each group is planned for beforehand, by the indexes alone.
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
    Told {
        summary: plan.summary(),
        has_sort,
        is_by_id,
        has_won: execution.has_won(),
        hashes: is_planned.then(hashes),
        may_be_remembered: is_planned && !is_by_id && query.has_choice(),
        stages,
    }
}
