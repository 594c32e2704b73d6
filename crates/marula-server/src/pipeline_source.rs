//! A running pipeline as the source of a cursor.
//!
//! ```text
//!   collection ─► Execution ─► CollectionSource ─► stages ─► PipelineSource ─► batch of a reply
//!                 the front,   reads ahead a       the rest
//!                 as a query   little at a time
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use marula_bson::{ArrayWriter, Doc, DocBuf, FieldPath, FieldSet, Value};
use marula_db::catalog::time_series::no_buckets;
use marula_db::index::entry;
use marula_db::{Collection, Db, Namespace};
use marula_error::Result;
use marula_operation::args;
use marula_operation::time_series::index::key_of_buckets;
use marula_plan::{
    Emit, End, Execution, Hint, Plan, Query, Reads, Shown, TimeBudget, Wanted, WordedCollation,
    Wording, choice,
};
use marula_query::context::{Context as QueryContext, Interrupt};
use marula_query::filter::{Filter, Node};
use marula_query::known::Known;
use marula_query::projection::Projection;
use marula_query::sort::SortPattern;
use marula_query::stage::source::{Documents, check_result};
use marula_query::stage::world::STAGE_BYTES_MAX;
use marula_query::stage::{
    Env, JoinSide, Kind, Pipeline, Replacement, Report, Source, Stage, Step, World,
};
use marula_query::text;
use marula_query::update::EmptyTimestamps;
use parking_lot::Mutex;

use crate::change_stream::{Events, Followed};
use crate::context::{Context, Watch, Work};
use crate::cursor::{self, Filled, Room};
use crate::geo_near::{self, Search};
use crate::pipeline_writes::Writer;
use crate::report::{self, Sight};
use crate::server::Server;
use crate::time_series;
use crate::view;

/// The size of the documents that are read ahead of the pipeline.
const READ_AHEAD_BYTES: usize = 256 * 1024;

/// The same in a transaction, where it is visible: later writes of the transaction do not change
/// documents that have been read ahead. Source: the behaviour of mongod 6.0.
const READ_AHEAD_BYTES_IN_TRANSACTION: usize = 4 << 20;

/// The amount of documents that is read ahead of the pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// This number of bytes.
    Bytes(usize),
    /// All documents of the batch: in a transaction, if the whole pipeline is one query.
    Batch,
}

/// The environment of a pipeline: its collections, and the conditions that end its operation.
pub(crate) struct Surroundings {
    db: Arc<Db>,
    database: String,
    server: Arc<Server>,
    context: Arc<QueryContext>,
    /// The unit of work of the current command.
    work: Mutex<Work>,
    /// The number of documents that still fit into the current batch.
    room: AtomicUsize,
    writer: Writer,
    sight: Sight,
    /// The plan that reads the pipeline's own collection.
    plan: OnceLock<Arc<Plan>>,
}

impl Surroundings {
    fn new(
        ctx: &Context<'_>,
        ns: &Namespace,
        context: Arc<QueryContext>,
        bypass_validation: bool,
    ) -> Self {
        let db = ctx.server.db.clone();
        Surroundings {
            database: ns.db().to_owned(),
            server: ctx.server.clone(),
            work: Mutex::new(Work::of(ctx)),
            room: AtomicUsize::new(0),
            writer: Writer::new(ctx, context.clone(), bypass_validation),
            db,
            context,
            sight: Sight::of(ctx),
            plan: OnceLock::new(),
        }
    }

    /// Continues the pipeline in another command.
    fn renew(&self, ctx: &Context<'_>) {
        Watch::renew(&self.context, ctx);
        *self.work.lock() = Work::of(ctx);
    }

    /// Returns the unit of work of the current command.
    fn work(&self) -> Work {
        self.work.lock().clone()
    }

    /// Returns the collection of this name, as the operation sees it.
    fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        self.work().unit().collection(ns)
    }

    /// Returns the environment of the pipeline's stages.
    fn env(self: &Arc<Self>) -> Env {
        Env { context: self.context.clone(), world: self.clone(), stage_bytes_max: STAGE_BYTES_MAX }
    }
}

impl World for Surroundings {
    fn aggregate(
        self: Arc<Self>,
        database: Option<&str>,
        collection: &str,
        pipeline: Pipeline,
    ) -> Result<Box<dyn Source>> {
        let ns = Namespace::new(database.unwrap_or(&self.database), collection)?;
        start(self, &ns, pipeline, None).map(|started| started.source)
    }

    fn join_side(&self, collection: &str, field: &[u8]) -> Option<JoinSide> {
        let ns = Namespace::new(&self.database, collection).ok()?;
        let collection = self.collection(&ns)?;
        let state = self.work().unit().state(&collection);
        if state.options.view.is_some() {
            return None;
        }
        let path = FieldPath::new(field);
        let leads = |index: &&Arc<marula_db::Index>| {
            let spec = &index.spec;
            let has_order = spec.collation == self.context.collation && spec.partial.is_none();
            let first = spec.parts.first();
            has_order && !spec.hidden && first.is_some_and(|part| part.path == path)
        };
        Some(JoinSide {
            documents: u64::try_from(collection.count()).unwrap_or(0),
            bytes: u64::try_from(collection.size_bytes()).unwrap_or(0),
            is_indexed: state.indexes.iter().any(|index| leads(&index)),
        })
    }

    fn replace_collection(
        &self,
        database: &str,
        collection: &str,
        time_series: Option<Doc<'_>>,
    ) -> Result<Box<dyn Replacement>> {
        self.writer.replace(Namespace::new(database, collection)?, time_series)
    }

    fn has_unique_index(
        &self,
        database: &str,
        collection: &str,
        fields: &[String],
    ) -> Result<bool> {
        Ok(self.writer.has_unique_index(&Namespace::new(database, collection)?, fields))
    }

    fn update_one(
        &self,
        database: &str,
        collection: &str,
        filter: Doc<'_>,
        update: Value<'_>,
        variables: Doc<'_>,
        creates: bool,
    ) -> Result<bool> {
        let ns = Namespace::new(database, collection)?;
        self.writer.update_one(&ns, filter, update, variables, creates)
    }

    fn upsert_one(
        &self,
        database: &str,
        collection: &str,
        filter: Doc<'_>,
        update: Value<'_>,
    ) -> Result<()> {
        let ns = Namespace::new(database, collection)?;
        self.writer.upsert_one(&ns, filter, update)
    }

    fn insert_one(
        &self,
        database: &str,
        collection: &str,
        document: Doc<'_>,
        empty_timestamps: EmptyTimestamps,
    ) -> Result<()> {
        let ns = Namespace::new(database, collection)?;
        self.writer.insert(&ns, document, empty_timestamps)
    }

    fn check_interrupt(&self) -> Result<()> {
        self.context.interrupt.as_ref().map_or(Ok(()), Interrupt::check)
    }
}

/// A client's options for a pipeline.
#[derive(Default)]
pub(crate) struct PipelineOptions {
    /// The hint for the plan.
    pub hint: Option<marula_plan::Hint>,
    /// Whether `$out` and `$merge` ignore the validator of their target.
    pub bypass_validation: bool,
}

/// A running pipeline.
pub(crate) struct PipelineSource {
    source: Box<dyn Source>,
    surroundings: Arc<Surroundings>,
    /// Whether the last document did not fit the last batch and is still in the source.
    is_held: bool,
    /// The objects that it reads, if the whole pipeline is one query.
    reads: Option<Reads>,
    /// The change stream, if it is one.
    followed: Option<Followed>,
}

/// A started pipeline.
struct Started {
    source: Box<dyn Source>,
    /// The objects that it reads, if the whole pipeline is one query.
    reads: Option<Reads>,
    /// The change stream, if it is one.
    followed: Option<Followed>,
}

impl From<Box<dyn Source>> for Started {
    fn from(source: Box<dyn Source>) -> Self {
        Started { source, reads: None, followed: None }
    }
}

impl PipelineSource {
    /// Starts a pipeline on a collection.
    pub(crate) fn start(
        ctx: &Context<'_>,
        ns: &Namespace,
        pipeline: Pipeline,
        context: QueryContext,
        options: PipelineOptions,
    ) -> Result<Self> {
        let bypass_validation = options.bypass_validation;
        let surroundings = Surroundings::new(ctx, ns, Arc::new(context), bypass_validation);
        let surroundings = Arc::new(surroundings);
        let started = start(surroundings.clone(), ns, pipeline, options.hint)?;
        let Started { source, reads, followed } = started;
        Ok(PipelineSource { source, surroundings, is_held: false, reads, followed })
    }

    /// Returns whether the whole pipeline is one query: it then fails as soon as one of the objects
    /// that it reads no longer exists, even if documents have been read ahead.
    pub(crate) fn is_query(&self) -> bool {
        self.reads.is_some()
    }

    /// Returns the change stream, if it is one.
    pub(crate) fn followed(&self) -> Option<&Followed> {
        self.followed.as_ref()
    }
}

impl PipelineSource {
    /// Calls `take` with every document.
    pub(crate) fn for_each(&mut self, take: &mut dyn FnMut(Doc<'_>) -> Result<()>) -> Result<()> {
        while self.source.advance()? == Step::Document {
            take(self.source.doc())?;
        }
        Ok(())
    }
}

impl cursor::Source for PipelineSource {
    fn fill(
        &mut self,
        ctx: &Context<'_>,
        documents_max: usize,
        batch: &mut ArrayWriter<'_>,
    ) -> Result<Filled> {
        self.surroundings.renew(ctx);
        if self.followed.is_some() {
            ctx.server.oplog_keeper.note_use(ctx.now_ms);
        }
        self.reads.as_ref().map_or(Ok(()), Reads::check)?;
        let room = documents_max.saturating_sub(batch.count() + usize::from(self.is_held));
        self.surroundings.room.store(room, Ordering::Relaxed);
        let mut batch_room = Room::of_cursor();
        while batch.count() < documents_max {
            if !self.is_held {
                match self.source.advance()? {
                    Step::Document => {}
                    Step::Pause => {
                        self.followed.iter_mut().for_each(Followed::pause);
                        return Ok(Filled::More);
                    }
                    Step::End => {
                        self.followed.iter_mut().for_each(Followed::end);
                        return Ok(Filled::Exhausted);
                    }
                }
                if let Some(followed) = &self.followed {
                    followed.check(self.source.doc())?;
                }
            }
            let doc = self.source.doc();
            check_result(doc)?;
            self.is_held = !batch_room.has(batch, doc.as_bytes().len());
            if self.is_held {
                break;
            }
            batch.push(doc);
            if let Some(followed) = &mut self.followed {
                followed.pass(doc);
            }
        }
        Ok(Filled::More)
    }

    fn plan_summary(&self) -> Option<String> {
        self.surroundings.plan.get().map(|plan| plan.summary())
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Starts a pipeline: the front that the planner can execute becomes the query on the collection.
fn start(
    surroundings: Arc<Surroundings>,
    ns: &Namespace,
    pipeline: Pipeline,
    hint: Option<marula_plan::Hint>,
) -> Result<Started> {
    view::check_depth(&surroundings.db, ns)?;
    start_resolved(surroundings, ns, pipeline, hint)
}

/// Like [`start`], after the chain of views under the namespace has been checked.
fn start_resolved(
    surroundings: Arc<Surroundings>,
    ns: &Namespace,
    pipeline: Pipeline,
    hint: Option<marula_plan::Hint>,
) -> Result<Started> {
    let env = surroundings.env();
    let pipeline = pipeline.rearranged(&surroundings.context);
    if let Some(Kind::Report(report)) = pipeline.stages().first().map(|stage| stage.kind()) {
        let view = surroundings.collection(ns).and_then(|it| it.state().options.view.clone());
        let about = match (view, report) {
            (Some(view), Report::IndexStats | Report::PlanCacheStats) => {
                Namespace::new(ns.db(), &view.on)?
            }
            _ => time_series::data_namespace(&surroundings.db, ns)?,
        };
        let input = Reported {
            wanted: Some((about, report.clone())),
            surroundings: surroundings.clone(),
            documents: Documents::new(Vec::new()),
        };
        return pipeline.run(Box::new(input), &env).map(Started::from);
    }
    if let Some(Kind::ChangeStream(stream)) = pipeline.stages().first().map(|it| it.kind()) {
        let interrupt = surroundings.context.interrupt.clone();
        let db = surroundings.db.clone();
        surroundings.server.oplog_keeper.note_use(surroundings.server.now_ms());
        let feeds = &surroundings.server.feeds;
        let events = Events::start(db, ns, stream, &pipeline, feeds, interrupt)?;
        let followed = Some(Followed::of(&events));
        return Ok(Started {
            source: pipeline.run(Box::new(events), &env)?,
            reads: None,
            followed,
        });
    }
    if pipeline.is_origin() {
        return pipeline.run(Box::new(Documents::new(Vec::new())), &env).map(Started::from);
    }
    let collection = surroundings.work().unit().touched(ns)?;
    let state = collection.as_ref().map(|found| surroundings.work().unit().state(found));
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
        if let Some(Kind::Match(filter)) = pipeline.stages().first().map(|stage| stage.kind()) {
            args::check_text_without_collection(filter, ns)?;
        }
        return pipeline.run(Box::new(Documents::new(Vec::new())), &env).map(Started::from);
    };
    let state = collection.state();
    if let Some(view) = &state.options.view {
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
        return start_resolved(surroundings, &on, Pipeline::from_stages(whole), hint);
    }
    let context = QueryContext::clone(&surroundings.context);
    let (mut query, rest) = push_down(pipeline, context)?;
    query.hint = hint;
    let is_query = is_query(&query, &rest);
    let front = Front { query, search: None, rest };
    let is_in_transaction = surroundings.work().unit().transaction().is_some();
    let (mut input, rest) = start_front(surroundings, collection, front)?;
    input.ahead = match (is_in_transaction, is_query) {
        (false, _) => Ahead::Bytes(READ_AHEAD_BYTES),
        (true, false) => Ahead::Bytes(READ_AHEAD_BYTES_IN_TRANSACTION),
        (true, true) => Ahead::Batch,
    };
    let reads = is_query.then(|| input.execution.reads());
    Ok(Started { source: rest.run(Box::new(input), &env)?, reads, followed: None })
}

/// Returns whether the rest of a pipeline is empty, or only the projection of its query.
fn is_query(query: &Query, rest: &Pipeline) -> bool {
    match rest.stages() {
        [] => true,
        [_] => front_projection(rest, query.sort.is_some()).is_some(),
        _ => false,
    }
}

/// A pipeline whose front is a query on a collection.
pub(crate) struct Front {
    /// The query.
    pub query: Query,
    /// Adds distances to its documents.
    pub search: Option<Search>,
    /// The rest of the pipeline.
    pub rest: Pipeline,
}

/// Starts the query at the front of a pipeline; returns the pipeline over its documents.
fn start_front(
    surroundings: Arc<Surroundings>,
    collection: Arc<Collection>,
    front: Front,
) -> Result<(CollectionSource, Pipeline)> {
    let Front { query, search, rest } = front;
    let execution = plan_front(&surroundings, &collection, query, &rest)?;
    let gives_first_of_each = execution.plan().gives_first_of_each();
    let rest = if gives_first_of_each { of_first_of_each(rest) } else { rest };
    let mut source = CollectionSource::new(execution, surroundings, search);
    source.wants_key = asks_for(&rest, "indexKey");
    Ok((source, rest))
}

/// Runs a pipeline on a collection without its writes. Returns the number of documents from the
/// query at its front, and then from each of the other stages.
pub(crate) fn count_given(ctx: &Context<'_>, ns: &Namespace, front: Front) -> Result<Vec<u64>> {
    let context = Arc::new(front.query.context.clone());
    let surroundings = Arc::new(Surroundings::new(ctx, ns, context, false));
    let env = surroundings.env();
    let Some(collection) = surroundings.collection(ns) else {
        return front.rest.count(Box::new(Documents::new(Vec::new())), &env);
    };
    let (input, rest) = start_front(surroundings, collection, front)?;
    rest.count(Box::new(input), &env)
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
    let needs = || projection_of(rest, is_sorted);
    let collation = WordedCollation::InFull;
    let wording = Wording { collation, needs: Some(&needs), ..Wording::default() };
    let work = surroundings.work();
    let unit = work.unit();
    let chosen =
        choice::choose(unit, collection, query, &wording, TimeBudget::Long, &mut interrupt)?;
    Ok(chosen.expect("who may wait gets a plan"))
}

/// Returns the fields of a document that a pipeline needs, as a projection.
fn needs_of(rest: &Pipeline) -> DocBuf {
    rest.needs().map(|needed| needed.projection()).unwrap_or_default()
}

/// Returns the `$project` that comes first and counts as the query's own projection: an inclusion
/// without computed fields if the query sorts.
pub(crate) fn front_projection(rest: &Pipeline, is_sorted: bool) -> Option<&Projection> {
    let Kind::Project(project) = rest.stages().first()?.kind() else { return None };
    let projection = project.projection();
    let is_meant = if is_sorted { projection.is_plain_inclusion() } else { projection.includes() };
    is_meant.then_some(projection)
}

/// Returns the projection of a pipeline's query; `rest` is the rest of the pipeline: that of the
/// `$project` that comes first, or the fields that all stages need.
pub(crate) fn projection_of(rest: &Pipeline, is_sorted: bool) -> DocBuf {
    front_projection(rest, is_sorted).map_or_else(|| needs_of(rest), Projection::print)
}

/// Turns the front of a pipeline into a query: `$match`, then `$sort`, `$skip` and `$limit`. The
/// fields that the rest needs are the query's projection.
pub(crate) fn push_down(pipeline: Pipeline, context: QueryContext) -> Result<(Query, Pipeline)> {
    let mut filter: Option<Filter> = None;
    let mut sort: Option<SortPattern> = None;
    let mut part = Part::default();
    let mut taken = 0;
    if let [first, second, ..] = pipeline.stages()
        && let (Kind::Unpack(unpack), Kind::Match(wanted)) = (first.kind(), second.kind())
    {
        // It selects buckets; their measurements are checked again after the stage.
        let filter = unpack.bucket_filter(wanted, &context);
        return Ok((Query::new(filter, context), pipeline));
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
        && (sort.as_ref().is_some_and(SortPattern::is_by_score) || asks_for(&rest, "textScore"));
    let wants_key = asks_for(&rest, "indexKey");
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
    query.first_of_each =
        first.and_then(|stage| Arc::clone(stage).first_of_each()).map(|first| first.field);
    Ok((query, rest))
}

/// Returns the rest of a pipeline over a plan that returns only the first document of each group.
pub(crate) fn of_first_of_each(rest: Pipeline) -> Pipeline {
    match rest.stages().first().and_then(|stage| Arc::clone(stage).first_of_each()) {
        Some(first) => rest.with_first(first.stage),
        None => rest,
    }
}

/// Returns whether some stage uses metadata of this name.
fn asks_for(pipeline: &Pipeline, name: &str) -> bool {
    let asks = |stage: &Arc<dyn Stage>| {
        stage.print().get().as_doc().is_some_and(|stage| text::asks_for(stage, name))
    };
    pipeline.stages().iter().any(asks)
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

/// The documents of a stage that reports on the server, created when the first is read.
struct Reported {
    /// The subject; taken with the first pull.
    wanted: Option<(Namespace, Report)>,
    surroundings: Arc<Surroundings>,
    documents: Documents,
}

impl Source for Reported {
    fn pull(&mut self) -> Result<Step> {
        if let Some((ns, wanted)) = self.wanted.take() {
            let now_ms = self.surroundings.context.now_ms;
            let Surroundings { server, sight, .. } = &*self.surroundings;
            let documents = report::documents(server, sight, &ns, &wanted, now_ms)?;
            self.documents = Documents::new(documents);
        }
        self.documents.advance()
    }

    fn doc(&self) -> Doc<'_> {
        self.documents.doc()
    }
}

/// The documents of an execution, read ahead a little at a time.
struct CollectionSource {
    execution: Execution,
    /// Adds distances to the documents.
    search: Option<Search>,
    /// The fields that the pipeline uses, if not all.
    fields: Option<FieldSet>,
    surroundings: Arc<Surroundings>,
    bytes: Vec<u8>,
    /// The end of each document that was read ahead, in `bytes`.
    ends: Vec<usize>,
    /// The metadata of the documents at the front; the others have none.
    known: Vec<Option<Known>>,
    /// Whether the keys of the documents' index entries are wanted.
    wants_key: bool,
    ahead: Ahead,
    next: usize,
    is_exhausted: bool,
}

impl CollectionSource {
    fn new(execution: Execution, surroundings: Arc<Surroundings>, search: Option<Search>) -> Self {
        // The first one reads the pipeline's own collection; others are those of `$lookup` and
        // similar stages.
        surroundings.plan.get_or_init(|| Arc::clone(execution.plan()));
        CollectionSource {
            fields: execution.query().fields.clone(),
            execution,
            search,
            surroundings,
            bytes: Vec::new(),
            ends: Vec::new(),
            known: Vec::new(),
            wants_key: false,
            ahead: Ahead::Bytes(READ_AHEAD_BYTES),
            next: 0,
            is_exhausted: false,
        }
    }

    fn read_ahead(&mut self) -> Result<()> {
        self.bytes.clear();
        self.ends.clear();
        self.known.clear();
        self.next = 0;
        let (bytes, ends, known) = (&mut self.bytes, &mut self.ends, &mut self.known);
        let wants_key = self.wants_key;
        let (bytes_max, documents_max) = match self.ahead {
            Ahead::Bytes(bytes) => (bytes, usize::MAX),
            Ahead::Batch => (READ_AHEAD_BYTES, self.surroundings.room.load(Ordering::Relaxed)),
        };
        let (search, fields) = (&self.search, &self.fields);
        let surroundings = &self.surroundings;
        let work = surroundings.work();
        let end = self.execution.run(
            work.unit(),
            &mut || surroundings.check_interrupt(),
            &mut |found| {
                let mut nearest = None;
                match (search, fields) {
                    (Some(search), _) => nearest = search.write(found.doc, bytes)?,
                    (None, Some(fields)) => fields.copy(found.doc, bytes),
                    (None, None) => bytes.extend_from_slice(found.doc.as_bytes()),
                }
                let index_key = found.entry.filter(|_| wants_key).and_then(|(index, entry)| {
                    let mut key = Vec::new();
                    entry::decode_values(index, &entry, &mut key)?;
                    Some(DocBuf::trusted(key))
                });
                let index_key = index_key.or_else(|| found.key.map(Doc::to_buf));
                if found.score.is_some() || nearest.is_some() || index_key.is_some() {
                    known.resize(ends.len(), None);
                    known.push(Some(Known { text_score: found.score, nearest, index_key }));
                }
                ends.push(bytes.len());
                let has_more = bytes.len() < bytes_max && ends.len() < documents_max;
                Ok(if has_more { Emit::Taken } else { Emit::Enough })
            },
        )?;
        if self.ahead == Ahead::Batch {
            let left = documents_max.saturating_sub(self.ends.len());
            self.surroundings.room.store(left, Ordering::Relaxed);
        }
        self.is_exhausted = end == End::Exhausted;
        Ok(())
    }
}

impl Source for CollectionSource {
    fn pull(&mut self) -> Result<Step> {
        if self.next == self.ends.len() {
            if self.is_exhausted {
                return Ok(Step::End);
            }
            self.read_ahead()?;
            if self.ends.is_empty() {
                return Ok(Step::End);
            }
        }
        self.next += 1;
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        let start = if self.next < 2 { 0 } else { self.ends[self.next - 2] };
        Doc::trusted(&self.bytes[start..self.ends[self.next - 1]])
    }

    fn order(&self) -> Option<&SortPattern> {
        self.execution.query().sort.as_ref()
    }

    fn known(&self) -> Option<&Known> {
        self.known.get(self.next.checked_sub(1)?)?.as_ref()
    }
}
