//! The shortcut for a filter of a single `_id`: nothing is parsed and no plan is searched.

use std::sync::Arc;

use marula_bson::{Doc, Value};
use marula_db::Collection;
use marula_plan::{Execution, Query, planner, query};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;

/// Returns the `_id` of a filter `{ _id: <value> }`, if neither the operation nor the collection
/// has a collation: with one the planner decides.
#[inline]
pub(crate) fn only_id<'f>(
    collection: &Collection,
    filter: Doc<'f>,
    context: &QueryContext,
) -> Option<Value<'f>> {
    query::id_equality(filter)
        .filter(|_| context.collation.is_none() && collection.state().options.collation.is_none())
}

/// Returns the look-up of the document with this `_id`.
pub(crate) fn look_up(
    collection: &Arc<Collection>,
    id: Value<'_>,
    context: QueryContext,
) -> Execution {
    let query = Query::new(Filter::everything(&context), context);
    Execution::new(collection.clone(), planner::plan_id(id.to_buf()), query)
}
