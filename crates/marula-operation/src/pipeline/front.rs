//! The query at the front of a pipeline: the stages that the planner can execute.

use std::sync::Arc;

use marula_bson::DocBuf;
use marula_error::Result;
use marula_plan::{Given, Query, Shown, Wanted};
use marula_query::collation::Collation;
use marula_query::context::Context as QueryContext;
use marula_query::filter::{Filter, Node};
use marula_query::projection::Projection;
use marula_query::sort::SortPattern;
use marula_query::stage::{Kind, LatestOfEach, Pipeline, Stage, UnpackBucket};

use super::geo_near::Search;

/// A pipeline whose front is a query on a collection.
pub struct Front {
    /// The query.
    pub query: Query,
    /// Adds distances to its documents.
    pub search: Option<Search>,
    /// The rest of the pipeline.
    pub rest: Pipeline,
}

/// Returns whether the rest of a pipeline is empty, or only the projection of its query.
pub(super) fn is_query(query: &Query, rest: &Pipeline) -> bool {
    match rest.stages() {
        [] => true,
        [_] => front_projection(rest, query.sort.is_some()).is_some(),
        _ => false,
    }
}

/// Returns the fields of a document that a pipeline needs, as a projection.
fn needs_of(rest: &Pipeline) -> DocBuf {
    rest.needs().map(|needed| needed.projection()).unwrap_or_default()
}

/// Returns the `$project` that comes first and counts as the query's own projection: an inclusion
/// without computed fields if the query sorts.
pub fn front_projection(rest: &Pipeline, is_sorted: bool) -> Option<&Projection> {
    let Kind::Project(project) = rest.stages().first()?.kind() else { return None };
    let projection = project.projection();
    let is_meant = if is_sorted { projection.is_plain_inclusion() } else { projection.includes() };
    is_meant.then_some(projection)
}

/// Returns the projection of a pipeline's query; `rest` is the rest of the pipeline: that of the
/// `$project` that comes first, or the fields that all stages need.
pub fn projection_of(rest: &Pipeline, is_sorted: bool) -> DocBuf {
    front_projection(rest, is_sorted).map_or_else(|| needs_of(rest), Projection::print)
}

/// Turns the front of a pipeline into a query: `$match`, then `$sort`, `$skip` and `$limit`. The
/// fields that the rest needs are the query's projection. `collation` is the collection's own.
pub fn push_down(
    pipeline: Pipeline,
    collation: Option<&Collation>,
    context: QueryContext,
) -> Result<(Query, Pipeline)> {
    let mut filter: Option<Filter> = None;
    let mut sort: Option<SortPattern> = None;
    let mut part = Part::default();
    let mut taken = 0;
    if let [first, after @ ..] = pipeline.stages()
        && let Kind::Unpack(unpack) = first.kind()
    {
        let (query, is_fulfilled) = query_of_buckets(unpack, after, collation, context)?;
        return Ok((query, if is_fulfilled { pipeline.without_stage(1) } else { pipeline }));
    }
    for stage in pipeline.stages() {
        match stage.kind() {
            Kind::Match(found) if filter.is_none() && sort.is_none() && part.is_all() => {
                filter = Some(found.clone());
            }
            Kind::Sort(wanted) if sort.is_none() && part.is_all() => {
                sort = Some(wanted.pattern_in_query().clone());
                part.limit = wanted.limit();
            }
            Kind::Skip(count) if part.skip(count) => {}
            Kind::Limit(count) => part.limit(count),
            _ => break,
        }
        taken += 1;
    }
    let (_, rest) = pipeline.split_at(taken);
    rest.check_needs()?;
    let wants_score = filter.as_ref().is_some_and(|filter| filter.text().is_some())
        && (sort.as_ref().is_some_and(SortPattern::is_by_score) || rest.asked().text_score);
    let wants_key = rest.asked().index_key;
    let mut query = Query::new(filter.unwrap_or_else(|| without_conditions(&context)), context);
    query.sort = sort;
    query.wants_score = wants_score;
    query.wants_key = wants_key;
    query.skip = part.skip;
    query.limit = part.limit;
    // The keys of index entries are returned only with whole documents.
    if let Some(needed) = rest.needs().filter(|_| query.filter.text().is_none() && !wants_key) {
        let is_all = query.sort.is_none() && part.is_all();
        let projection = front_projection(&rest, query.sort.is_some());
        match projection {
            Some(projection) => {
                query.shown = Some(Shown::of(projection, projection.print().as_doc()));
            }
            None if needed.paths.is_empty() && is_all => query.wanted = Wanted::Count,
            None => query.shown = Some(Shown::paths(needed.paths)),
        }
        query.fields = Some(needed.fields);
    }
    let first = rest.stages().first().filter(|_| part.is_all() && !wants_key);
    let first = first.and_then(|stage| Arc::clone(stage).first_of_each());
    let is_sorted = query.sort.is_some();
    query.first_of_each =
        first.filter(|first| !(is_sorted && first.uses_sort_key)).map(|first| first.field);
    Ok((query, rest))
}

/// Returns the query of the buckets of the measurements that `after` reads first, and whether it
/// fulfils the condition at the front of `after`; else their measurements are checked again.
fn query_of_buckets(
    unpack: &UnpackBucket,
    after: &[Arc<dyn Stage>],
    collation: Option<&Collation>,
    context: QueryContext,
) -> Result<(Query, bool)> {
    let orders = unpack.orders(after, &context)?;
    let latest = unpack.latest_of_each(after, &context)?;
    let wanted = after.first().and_then(|stage| match stage.kind() {
        Kind::Match(wanted) => Some(wanted),
        _ => None,
    });
    let filter = wanted.map(|wanted| unpack.bucket_filter(wanted, collation, &context));
    let is_fulfilled = unpack.after_meta_condition(after).len() < after.len();
    let mut query = Query::new(filter.unwrap_or_else(|| without_conditions(&context)), context);
    query.free_orders = orders;
    if let Some(LatestOfEach { key, order }) = latest {
        (query.first_of_each, query.first_by) = (Some(key), Some(order));
    }
    Ok((query, is_fulfilled))
}

/// Returns the rest of a pipeline over a plan with a result that has more properties than were
/// asked for.
pub fn over_plan(rest: Pipeline, given: Given) -> Pipeline {
    let rest = if given.first_of_each { of_first_of_each(rest) } else { rest };
    match given.order {
        Some(number) => rest.over_ordered_buckets(number),
        None => rest,
    }
}

/// Returns the rest of a pipeline over a plan that returns only the first document of each group.
fn of_first_of_each(rest: Pipeline) -> Pipeline {
    match rest.stages().first().and_then(|stage| Arc::clone(stage).first_of_each()) {
        Some(first) => rest.with_first(first.stage),
        None => rest,
    }
}

/// Returns the filter of a query without conditions.
fn without_conditions(context: &QueryContext) -> Filter {
    Filter::from_node(Node::And(Vec::new()), context)
}

/// A part of all documents: those after the first `skip`, at most `limit`.
#[derive(Default)]
struct Part {
    skip: u64,
    limit: Option<u64>,
}

impl Part {
    fn is_all(&self) -> bool {
        self.skip == 0 && self.limit.is_none()
    }

    /// Skips the first `count` of it; returns false if none would be left, or the sum is too large.
    fn skip(&mut self, count: u64) -> bool {
        let (Some(skip), left) =
            (self.skip.checked_add(count), self.limit.map(|it| it.checked_sub(count)))
        else {
            return false;
        };
        match left {
            None => self.skip = skip,
            Some(Some(left)) if left > 0 => *self = Part { skip, limit: Some(left) },
            Some(_) => return false,
        }
        true
    }

    /// Limits it to the first `count`.
    fn limit(&mut self, count: u64) {
        self.limit = Some(self.limit.unwrap_or(u64::MAX).min(count));
    }
}
