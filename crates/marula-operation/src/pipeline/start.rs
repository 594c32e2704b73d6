//! Starts a pipeline: what its first stage reads, and the stages over it.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf};
use marula_db::catalog::time_series::no_buckets;
use marula_db::{Collection, Namespace};
use marula_error::Result;
use marula_plan::{
    Execution, Hint, Query, Reads, TimeBudget, WordedCollation, Wording, choice, without_collection,
};
use marula_query::context::Context as QueryContext;
use marula_query::projection::{Meta, Projection};
use marula_query::stage::source::Documents;
use marula_query::stage::{Kind, Pipeline, Report, Source, Step, World, over_buckets};

use super::collection_source::{
    Ahead, CollectionSource, READ_AHEAD_BYTES, READ_AHEAD_BYTES_IN_TRANSACTION, Wants,
};
use super::front::{Front, front_projection, is_query, over_plan, projection_of, push_down};
use super::geo_near;
use super::host::{Followed, PipelineHost, StreamPosition};
use super::random_documents::Chosen;
use super::world::Surroundings;
use crate::aggregate::check_in_transaction;
use crate::args;
use crate::time_series::index::{self, key_of_buckets};
use crate::views;

/// A started pipeline.
pub(super) struct Started {
    pub(super) source: Box<dyn Source>,
    /// The objects that it reads, if the whole pipeline is one query.
    pub(super) reads: Option<Reads>,
    /// The client's position in the change stream, if it is one.
    pub(super) position: Option<Box<dyn StreamPosition>>,
}

impl From<Box<dyn Source>> for Started {
    fn from(source: Box<dyn Source>) -> Self {
        Started { source, reads: None, position: None }
    }
}

/// The place of a pipeline in its operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// It is the operation's own, whose documents fill the batches of its cursor.
    Operation,
    /// It is that of a stage, such as `$lookup`.
    Stage,
}

/// Starts a pipeline: the front that the planner can execute becomes the query on the collection.
pub(super) fn start(
    surroundings: Arc<Surroundings>,
    ns: &Namespace,
    pipeline: Pipeline,
    hint: Option<Hint>,
    scope: Scope,
) -> Result<Started> {
    let db = surroundings.host.db();
    if scope == Scope::Stage && front_report(&pipeline).is_some_and(Report::is_of_namespace) {
        let below = views::below(db, ns.clone())?;
        return start_resolved(surroundings, &below.ns, pipeline, hint, scope);
    }
    views::check_depth(db, ns)?;
    start_resolved(surroundings, ns, pipeline, hint, scope)
}

/// Like [`start`], after the chain of views under the namespace has been checked.
fn start_resolved(
    surroundings: Arc<Surroundings>,
    ns: &Namespace,
    pipeline: Pipeline,
    hint: Option<Hint>,
    scope: Scope,
) -> Result<Started> {
    let env = surroundings.env();
    let pipeline = pipeline.rearranged(&surroundings.context);
    let pipeline = over_buckets(pipeline, &surroundings.context)?;
    if let Some(report) = front_report(&pipeline) {
        let (subject, of_measurements) =
            match report.needs_collection() && !report.is_of_namespace() {
                true => {
                    let below = views::resolve(surroundings.host.db(), ns.clone())?;
                    (below.ns, below.unpacks && matches!(report, Report::IndexStats))
                }
                false => (ns.clone(), false),
            };
        let input = Reported {
            wanted: Some((subject, report.clone())),
            of_measurements,
            surroundings: surroundings.clone(),
            documents: Documents::new(Vec::new()),
        };
        return pipeline.run(Box::new(input), &env).map(Started::from);
    }
    if let Some(Kind::ChangeStream(stream)) = pipeline.stages().first().map(|it| it.kind()) {
        let followed = surroundings.host.follow(ns, stream, &pipeline, &surroundings.context)?;
        let Followed { events, position } = followed;
        let source = pipeline.run(events, &env)?;
        return Ok(Started { source, reads: None, position: Some(position) });
    }
    if pipeline.is_origin() {
        return pipeline.run(Box::new(Documents::new(Vec::new())), &env).map(Started::from);
    }
    let work = surroundings.host.work();
    let collection = work.unit().touched(ns)?;
    let state = collection.as_ref().map(|found| work.unit().state(found));
    if let Some((mut query, search, rest)) =
        geo_near::take(state.as_deref(), ns, &pipeline, &surroundings.context)?
        && let Some(collection) = &collection
    {
        query.hint = hint;
        let rest = geo_near::push_down(&mut query, rest);
        let front = Front { query, search: Some(search), rest };
        let (input, rest) = start_front(surroundings, collection.clone(), front)?;
        return rest.run(Box::new(input), &env).map(Started::from);
    }
    let Some(collection) = collection else {
        check_without_collection(&pipeline, ns)?;
        without_collection(work.unit());
        return pipeline.run(Box::new(Documents::new(Vec::new())), &env).map(Started::from);
    };
    let state = collection.state();
    if let Some(view) = &state.options.view {
        if work.unit().transaction().is_some() {
            check_in_transaction(view.pipeline.as_doc(), false)?;
        }
        let inner = Pipeline::parse(view.pipeline.as_doc(), &surroundings.context)?;
        let whole = inner.stages().iter().chain(pipeline.stages()).cloned().collect();
        let on = Namespace::new(ns.db(), &view.on)?;
        if state.options.time_series.is_some() && surroundings.collection(&on).is_none() {
            return Err(no_buckets(&on));
        }
        let hint = match (&state.options.time_series, hint) {
            (Some(options), Some(Hint::Key(key))) => {
                let of_buckets = key_of_buckets(options, key.as_doc());
                Some(Hint::Key(of_buckets.unwrap_or(key)))
            }
            (_, hint) => hint,
        };
        let whole = Pipeline::from_stages(whole).asking(inner.asked()).asking(pipeline.asked());
        return start_resolved(surroundings, &on, whole, hint, scope);
    }
    if let Some(chosen) = Chosen::of(&pipeline, &collection, &surroundings)? {
        return pipeline.run(Box::new(chosen), &env).map(Started::from);
    }
    let context = QueryContext::clone(&surroundings.context);
    let (mut query, rest) = push_down(pipeline, state.options.collation.as_ref(), context)?;
    query.hint = hint;
    if let Some(projection) = own_projection(&query, &rest) {
        projection.check_sorted(query.sort.is_some())?;
    }
    let is_query = scope == Scope::Operation && is_query(&query, &rest);
    let front = Front { query, search: None, rest };
    let is_in_transaction = work.unit().transaction().is_some();
    let (mut input, rest) = start_front(surroundings, collection, front)?;
    input.ahead = match (is_in_transaction, is_query) {
        (_, true) => Ahead::Batch,
        (false, false) => Ahead::Bytes(READ_AHEAD_BYTES),
        (true, false) => Ahead::Bytes(READ_AHEAD_BYTES_IN_TRANSACTION),
    };
    let reads = is_query.then(|| input.execution.reads());
    Ok(Started { source: rest.run(Box::new(input), &env)?, reads, position: None })
}

/// Returns the report at the front of a pipeline.
fn front_report(pipeline: &Pipeline) -> Option<&Report> {
    match pipeline.stages().first()?.kind() {
        Kind::Report(report) => Some(report),
        _ => None,
    }
}

/// Returns the `$project` that the query itself does: the first stage after it, if it gives all of
/// its documents.
fn own_projection<'r>(query: &Query, rest: &'r Pipeline) -> Option<&'r Projection> {
    let gives_all = query.skip == 0 && query.limit.is_none();
    front_projection(rest, query.sort.is_some()).filter(|_| gives_all)
}

/// Starts the query at the front of a pipeline; returns the pipeline over its documents.
fn start_front(
    surroundings: Arc<Surroundings>,
    collection: Arc<Collection>,
    front: Front,
) -> Result<(CollectionSource, Pipeline)> {
    let Front { query, search, rest } = front;
    let own = own_projection(&query, &rest).filter(|_| search.is_none());
    let record_id = own.is_some_and(|it| it.metadata().contains(&Meta::RecordId));
    let execution = plan_front(&surroundings, &collection, query, &rest)?;
    let given = execution.plan().given();
    let rest = over_plan(rest, given);
    let mut source = CollectionSource::new(execution, surroundings, search);
    // The metadata ends where documents are grouped.
    if !given.first_of_each {
        source.wants =
            Wants { index_key: rest.asked().index_key, record_id, sort_key: rest.asked().sort_key };
    }
    Ok((source, rest))
}

/// Runs a pipeline on a collection without its writes. Returns the number of documents from the
/// query at its front, and then from each of the other stages.
///
/// Errors: those of the query and the stages.
pub fn count_given(host: Arc<dyn PipelineHost>, ns: &Namespace, front: Front) -> Result<Vec<u64>> {
    let context = Arc::new(front.query.context.clone());
    let surroundings = Arc::new(Surroundings::new(host, ns, context, false));
    let env = surroundings.env();
    let Some(collection) = surroundings.collection(ns) else {
        return front.rest.count(Box::new(Documents::new(Vec::new())), &env);
    };
    let (input, rest) = start_front(surroundings, collection, front)?;
    rest.count(Box::new(input), &env)
}

/// Checks a pipeline on a collection that does not exist.
///
/// Errors: it searches for text.
pub(crate) fn check_without_collection(pipeline: &Pipeline, ns: &Namespace) -> Result<()> {
    match pipeline.stages().first().map(|stage| stage.kind()) {
        Some(Kind::Match(filter)) => args::check_text_without_collection(filter, ns),
        _ => Ok(()),
    }
}

/// Plans the query at the front of a pipeline; `rest` is the rest of it.
fn plan_front(
    surroundings: &Surroundings,
    collection: &Arc<Collection>,
    query: Query,
    rest: &Pipeline,
) -> Result<Execution> {
    let mut interrupt = || surroundings.check_interrupt();
    let is_sorted = query.sort.is_some();
    // A search by distance is planned without the pipeline's projection.
    let is_search = query.filter.near().is_some();
    let needs = || match is_search {
        true => DocBuf::new(),
        false => projection_of(rest, is_sorted),
    };
    let collation = WordedCollation::InFull;
    let wording = Wording { collation, needs: Some(&needs), ..Wording::default() };
    let work = surroundings.host.work();
    let unit = work.unit();
    choice::choose(unit, collection, query, &wording, TimeBudget::Long, &mut interrupt)
}

/// The documents of a stage that reports on the server, created when the first is read.
struct Reported {
    /// The subject; taken with the first pull.
    wanted: Option<(Namespace, Report)>,
    /// Whether the indexes of buckets are shown as those of the measurements.
    of_measurements: bool,
    surroundings: Arc<Surroundings>,
    documents: Documents,
}

impl Source for Reported {
    fn pull(&mut self) -> Result<Step> {
        if let Some((ns, wanted)) = self.wanted.take() {
            let Surroundings { host, context, .. } = &*self.surroundings;
            let mut documents = host.report(&ns, &wanted, context.now_ms)?;
            if self.of_measurements
                && let Some(buckets) = host.db().collection(&ns)
                && let Some(options) = &buckets.state().options.time_series
            {
                let shown = |stats: &DocBuf| index::shown_stats(options, stats.as_doc());
                documents = documents.iter().filter_map(shown).collect();
            }
            self.documents = Documents::new(documents);
        }
        self.documents.advance()
    }

    fn doc(&self) -> Doc<'_> {
        self.documents.doc()
    }
}
