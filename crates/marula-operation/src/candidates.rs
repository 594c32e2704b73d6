//! The documents that a write may change: the plan that finds them, and their records, one by one
//! or many at a time.

use std::ops::ControlFlow;
use std::sync::Arc;

use marula_bson::{Doc, DocBuf};
use marula_db::{Collection, RecordKey};
use marula_error::Result;
use marula_plan::{Emit, End, Execution, Query, TimeBudget, Wording, choice};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;

use crate::args::Order;
use crate::by_id;
use crate::env::Env;

/// The number of records that a multi-document update or delete gathers before it writes them.
const GATHERED_MAX: usize = 1_000;

/// The number of sorted documents that a write of one gets at once: others may change the first
/// ones before it does. A sort need not keep more.
pub(crate) const SORTED_MAX: u64 = 100;

/// The condition of a write.
#[derive(Clone)]
pub(crate) struct Sought<'s> {
    /// The filter as the client wrote it.
    pub(crate) asked: Doc<'s>,
    /// The filter, parsed.
    pub(crate) filter: &'s Filter,
    /// The hint and the sort.
    pub(crate) order: Order,
    pub(crate) wording: Wording<'s>,
    pub(crate) context: &'s QueryContext,
    /// The maximum number of documents, if not all are wanted.
    pub(crate) limit: Option<u64>,
    /// Whether [`Candidate::index_key`] is read.
    pub(crate) wants_key: bool,
    /// Whether the thread has no time budget.
    pub(crate) may_wait: bool,
}

/// A document that a write may change.
pub(crate) struct Candidate {
    pub(crate) record: RecordKey,
    /// The index entry that led to it, if it is wanted and there is one.
    pub(crate) index_key: Option<DocBuf>,
}

/// Chooses the plan that finds the documents: the look-up of a single `_id`, or the planner's.
///
/// Errors: those of [`choice::choose`].
pub(crate) fn find(
    env: &Env<'_>,
    collection: &Arc<Collection>,
    sought: Sought<'_>,
) -> Result<Execution> {
    let Sought { asked, filter, order, wording, context, limit, wants_key, may_wait } = sought;
    if order.is_free()
        && let Some(id) = by_id::only_id(collection, asked, context)
    {
        return Ok(by_id::look_up(collection, id, context.clone()));
    }
    let mut query = order.query(filter.clone(), context.clone());
    query.limit = limit;
    query.wants_key = wants_key;
    choose(env, collection, query, &wording, may_wait)
}

/// Has the planner choose the plan of a write's query.
///
/// Errors: those of [`choice::choose`].
pub(crate) fn choose(
    env: &Env<'_>,
    collection: &Arc<Collection>,
    query: Query,
    wording: &Wording<'_>,
    may_wait: bool,
) -> Result<Execution> {
    let time_budget = TimeBudget::all_or_none(may_wait);
    let mut interrupt = || env.check_interrupt();
    choice::choose(env.unit, collection, query, wording, time_budget, &mut interrupt)
}

/// Calls `write` for the candidates of an execution, one by one, until it returns a result: the
/// document of a candidate may not match any more when it is written. Returns `None` if there is
/// none.
///
/// Errors: those of `write` and of the execution.
pub(crate) fn write_first<T>(
    env: &Env<'_>,
    mut execution: Execution,
    mut write: impl FnMut(&Candidate) -> Result<Option<T>>,
) -> Result<Option<T>> {
    execution.give_candidates();
    let wants_key = execution.query().wants_key;
    loop {
        let mut candidate = None;
        execution.run(env.unit, &mut || env.check_interrupt(), &mut |found| {
            let record = RecordKey::new(found.record);
            let index_key = if wants_key { found.index_key() } else { None };
            candidate = Some(Candidate { record, index_key });
            Ok(Emit::Enough)
        })?;
        let Some(candidate) = candidate else { return Ok(None) };
        if let Some(done) = write(&candidate)? {
            return Ok(Some(done));
        }
    }
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
