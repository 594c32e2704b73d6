//! The shortcut for a filter of a single `_id`: nothing is parsed and no plan is searched.

use std::sync::Arc;

use marula_bson::{Doc, Value};
use marula_db::Collection;
use marula_plan::{Execution, Query, planner, query};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;

/// Returns the `_id` of a filter `{ _id: <value> }`, if the operation compares strings in the
/// binary order. Another collation needs the planner.
#[inline]
pub fn only_id<'f>(filter: Doc<'f>, context: &QueryContext) -> Option<Value<'f>> {
    query::id_equality(filter).filter(|_| context.collation.is_none())
}

/// Returns the look-up of the document with this `_id`.
pub fn look_up(collection: &Arc<Collection>, id: Value<'_>, context: QueryContext) -> Execution {
    let query = Query::new(Filter::everything(&context), context);
    Execution::new(collection.clone(), planner::plan_id(id.to_buf()), query)
}
