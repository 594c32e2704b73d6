//! The documents that a write may change: the plan that finds them, and their records, one by one
//! or many at a time.

use std::ops::ControlFlow;
use std::sync::Arc;

use marula_bson::{Doc, Value};
use marula_db::{Collection, RecordKey};
use marula_error::Result;
use marula_plan::{Emit, End, Execution, Query, TimeBudget, Wording, choice};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;

use crate::env::{Env, Progress};
use crate::{args, by_id};

/// The number of records that a multi-document update or delete gathers before it writes them.
const GATHERED_MAX: usize = 1_000;

/// The condition of a write.
pub(crate) struct Sought<'s> {
    /// The filter as the client wrote it.
    pub(crate) asked: Doc<'s>,
    /// The filter, parsed.
    pub(crate) filter: &'s Filter,
    pub(crate) hint: Option<Value<'s>>,
    pub(crate) sort: Option<Doc<'s>>,
    pub(crate) wording: Wording<'s>,
    pub(crate) context: &'s QueryContext,
    /// Whether the thread has no time budget.
    pub(crate) may_wait: bool,
}

/// Chooses the plan that finds the documents.
///
/// Errors: those of [`choice::choose`], the hint and the sort.
pub(crate) fn find(
    env: &Env<'_>,
    collection: &Arc<Collection>,
    sought: Sought<'_>,
) -> Result<Progress<Execution>> {
    let Sought { asked, filter, hint, sort, wording, context, may_wait } = sought;
    if hint.is_none()
        && sort.is_none()
        && let Some(id) = by_id::only_id(asked, context)
    {
        return Ok(Progress::Done(by_id::look_up(collection, id, context.clone())));
    }
    let mut query = Query::new(filter.clone(), context.clone());
    query.hint = args::parse_hint(hint)?;
    if let Some(sort) = sort {
        args::apply_sort(&mut query, sort)?;
        query.wants_score = marula_query::text::asks_for(sort, "textScore");
    }
    let time_budget = TimeBudget::all_or_none(may_wait);
    let mut interrupt = || env.check_interrupt();
    choice::choose(env.unit, collection, query, &wording, time_budget, &mut interrupt)
        .map(Progress::of)
}

/// Returns the next record of an execution, if there is one.
pub(crate) fn next_record(
    env: &Env<'_>,
    execution: &mut Execution,
) -> Result<Progress<Option<RecordKey>>> {
    let mut record = None;
    let end = execution.run(env.unit, &mut || env.check_interrupt(), &mut |found| {
        record = Some(RecordKey::new(found.record));
        Ok(Emit::Enough)
    })?;
    Ok(match end {
        End::Overdue => Progress::NeedsPool,
        End::Exhausted | End::Paused => Progress::Done(record),
    })
}

/// Calls `write` for every record of an execution, until one breaks. Records are gathered many at a
/// time, since a write may move its document to another place of the walk. If the execution fails,
/// the records before the failure are still written.
///
/// Errors: those of `write`, of the execution, and the interrupt.
pub(crate) fn for_each_record(
    env: &Env<'_>,
    execution: &mut Execution,
    mut write: impl FnMut(&RecordKey) -> Result<ControlFlow<()>>,
) -> Result<()> {
    loop {
        let (records, end) = gather(env, execution);
        for record in &records {
            if write(record)?.is_break() {
                return Ok(());
            }
            env.check_interrupt()?;
        }
        if end? == End::Exhausted {
            return Ok(());
        }
    }
}

/// Returns the next records of an execution, and whether there are more.
fn gather(env: &Env<'_>, execution: &mut Execution) -> (Vec<RecordKey>, Result<End>) {
    let mut records = Vec::new();
    let end = execution.run(env.unit, &mut || env.check_interrupt(), &mut |found| {
        records.push(RecordKey::new(found.record));
        Ok(if records.len() < GATHERED_MAX { Emit::Taken } else { Emit::Enough })
    });
    (records, end)
}
