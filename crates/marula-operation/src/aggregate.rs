//! `aggregate`: a pipeline over a collection, or over documents that its first stage creates.
//!
//! ```text
//!   fields ─parse─► AggregateOp ─prepare─► Prepared ─start─► PipelineDocuments ─fill─► batch
//!                        └──────explained─► Explained ─front─► Query ─► explain
//! ```
//!
//! Commands on views are pipelines as well: they are [prepared](Prepared::of_stages) from their
//! stages.

use std::sync::Arc;

use marula_bson::{ArrayWriter, BStr, Doc, DocBuf, Value};
use marula_db::collection::State;
use marula_db::{Collection, Db, Namespace};
use marula_error::{Result, errors};
use marula_plan::Hint;
use marula_query::context::{Context as QueryContext, Subject};
use marula_query::once::{Once, unknown_field};
use marula_query::stage::{Kind, Pipeline, Stage, over_buckets};

use crate::args::{self, Arguments};
use crate::env::Env;
use crate::pipeline::front::push_down;
use crate::pipeline::{
    Front, PipelineDocuments, PipelineHost, PipelineOptions, check_without_collection, geo_near,
};
use crate::time_series::hint_of_buckets;
use crate::views::{self, Resolved};

/// The prefix of errors during the execution of a pipeline.
pub const EXECUTING: &str = "PlanExecutor error during aggregation";

/// The code of the error for a stage that is only permitted first.
const MISPLACED: i32 = 40_602;

errors! {
    explain_in_transaction() = OperationNotSupportedInTransaction, "Explain for the aggregate command cannot run within a multi-document transaction";
    writer_in_transaction(stage: &BStr) = OperationNotSupportedInTransaction, "{stage} cannot be used in a transaction";
    stage_in_transaction(stage: &BStr) = OperationNotSupportedInTransaction, "Aggregation stage {stage} cannot run within a multi-document transaction.";
    stage_not_supported(stage: &BStr) = OperationNotSupportedInTransaction, "Stage not supported inside of a multi-document transaction: {stage}";
    cursor_required() = FailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument";
    /// A pipeline without a collection has no stage that creates documents.
    pub no_stages() = InvalidNamespace, "{{aggregate: 1}} is not valid for an empty pipeline.";
    collection_required(stage: &BStr) = InvalidNamespace, "{{aggregate: 1}} is not valid for '{stage}'; a collection is required.";
    /// `pipeline` is missing or no array.
    pub pipeline_type() = TypeMismatch, "'pipeline' option must be specified as an array";
    no_exchange() = BadValue, "the exchange initial batch size must be zero";
    batch_size_type(kind: &str) = TypeMismatch, "BSON field 'cursor.batchSize' is the wrong type '{kind}', expected types '[long, int, decimal, double']";
    stream_of_view(ns: &Namespace) = CommandNotSupportedOnView, "Namespace {ns} is a view, not a collection";
    stream_of_time_series(ns: &Namespace) = CommandNotSupportedOnView, "Namespace {ns} is a timeseries collection";
    /// A `mapReduce` reads a view.
    pub map_reduce_on_view() = CommandNotSupportedOnView, "mapReduce on a view is not supported";
}

/// An `aggregate` whose form is checked.
pub struct AggregateOp<'a> {
    /// The stages, an array.
    pub stages: Doc<'a>,
    /// The number of documents in the first batch.
    pub batch_size: Option<usize>,
    /// Whether the pipeline is on no collection: its first stage creates documents.
    is_collectionless: bool,
    hint: Option<Value<'a>>,
    collation: Option<Value<'a>>,
    let_variables: Option<Value<'a>>,
    may_use_disk: Option<bool>,
    bypass_validation: bool,
    is_of_map_reduce: bool,
}

impl<'a> AggregateOp<'a> {
    /// Reads the fields of an `aggregate`.
    ///
    /// Errors: this module's rows about fields.
    pub fn parse(request: &impl Arguments<'a>, is_collectionless: bool) -> Result<Self> {
        let stages = stages_of(request)?;
        let Some(Value::Document(cursor)) = request.arg("cursor") else {
            return Err(cursor_required());
        };
        if request.arg("exchange").is_some() {
            return Err(no_exchange());
        }
        let batch_size = batch_size(cursor)?;
        let hint = request.arg("hint");
        let op = AggregateOp::of_stages(request, stages, hint, is_collectionless);
        Ok(AggregateOp { batch_size, ..op })
    }

    /// The operation of these stages, with the other fields of a command: of an `aggregate` that is
    /// explained, or of a command on a view.
    pub fn of_stages<'r: 'a>(
        request: &impl Arguments<'r>,
        stages: Doc<'a>,
        hint: Option<Value<'a>>,
        is_collectionless: bool,
    ) -> Self {
        AggregateOp {
            stages,
            batch_size: None,
            is_collectionless,
            hint,
            collation: request.arg("collation"),
            let_variables: request.arg("let"),
            may_use_disk: request.arg("allowDiskUse").map(|flag| flag.is_truthy()),
            bypass_validation: request.flag("bypassDocumentValidation"),
            is_of_map_reduce: request.flag("isMapReduceCommand"),
        }
    }

    fn context(
        &self,
        env: &Env<'_>,
        ns: &Namespace,
        collection: Option<&Collection>,
    ) -> Result<QueryContext> {
        let mut context = env.context(collection, self.collation, self.let_variables)?;
        context.limits = env.host.limits(self.may_use_disk);
        context.subject = Some(subject(ns, self.is_collectionless));
        Ok(context)
    }

    /// Makes a pipeline on `ns` that can be started.
    ///
    /// Errors: those of the stages, the options, and the views.
    pub fn prepare(&self, env: &Env<'_>, ns: &Namespace) -> Result<Prepared<'a>> {
        let (pipeline, context) = self.parse_pipeline(env, ns)?;
        Ok(Prepared {
            ns: ns.clone(),
            pipeline,
            context,
            hint: HintField::Written(self.hint),
            bypass_validation: self.bypass_validation,
            collectionless: self.is_collectionless.then_some(self.stages),
        })
    }

    /// Parses the pipeline for `ns`, with the views that it reads.
    fn parse_pipeline(&self, env: &Env<'_>, ns: &Namespace) -> Result<(Pipeline, QueryContext)> {
        let AggregateOp { stages, is_collectionless, .. } = *self;
        let db = env.unit.db();
        let collection = env.unit.touched(ns)?;
        if env.unit.view().is_fixed() {
            let mut joined = Vec::new();
            views::read_collections(stages, &mut joined);
            for name in joined {
                let joined = Namespace::new(ns.db(), &name)?;
                env.unit.touched(&joined)?;
                if env.unit.transaction().is_some() {
                    check_views_in_transaction(db, joined)?;
                }
            }
        }
        let is_view = collection.as_ref().is_some_and(|it| it.state().options.view.is_some());
        if is_view && self.is_of_map_reduce {
            return Err(map_reduce_on_view());
        }
        if let Err(error) = views::check_collation(collection.as_deref(), self.collation) {
            // An unknown stage is reported before the collation of the view.
            Pipeline::check_form(stages, db.feature_version())?;
            return Err(error);
        }
        let mut context = self.context(env, ns, collection.as_deref())?;
        let pipeline = context.counting(true, |context| {
            views::check_joined(db, ns.db(), stages, context)?;
            let below = || views::check_resolved(db, ns, stages, context);
            if first_name(stages) == "$changeStream" {
                check_followed(db, ns)?;
            }
            match Pipeline::parse_after(stages, context, below) {
                // If the first stage needs a collection, that is reported before the invalid
                // position of another stage.
                Err(error) if is_collectionless && error.code().number() == MISPLACED => {
                    check_collectionless(stages, context)?;
                    Err(error)
                }
                parsed => parsed,
            }
        })?;
        views::check_unions(db, ns.db(), stages, &context)?;
        Ok((pipeline, context))
    }

    /// Parses the pipeline for `explain`, and finds the collection below the views of `ns`.
    ///
    /// Errors: as [`prepare`](AggregateOp::prepare); a first stage that needs a collection.
    pub fn explained(&self, env: &Env<'_>, ns: &Namespace) -> Result<Explained<'a>> {
        let db = env.unit.db();
        let (whole, context) = self.parse_pipeline(env, ns)?;
        if self.is_collectionless {
            check_origin(&whole, self.stages)?;
        }
        let collection = db.collection(ns);
        if collection.is_none() {
            check_without_collection(&whole, ns)?;
        }
        let Resolved { ns, pipelines: views, .. } = views::below(db, ns.clone())?;
        let (mut stages, mut asked) = (Vec::new(), whole.asked());
        for view in &views {
            let inner = Pipeline::parse(view.as_doc(), &context)?;
            stages.extend_from_slice(inner.stages());
            asked = asked.and(inner.asked());
        }
        stages.extend_from_slice(whole.stages());
        let whole = Pipeline::from_stages(stages).asking(asked).rearranged(&context);
        let whole = over_buckets(whole, &context)?;
        let below = db.collection(&ns).map(|below| env.unit.state(&below));
        let time_series = collection.and_then(|it| it.state().options.time_series.clone());
        Ok(Explained { ns, whole, context, below, time_series, hint: self.hint })
    }
}

/// Checks that the stages of a pipeline, including nested pipelines, may run in a transaction.
///
/// Errors: this module's rows about transactions.
pub fn check_in_transaction(stages: Doc<'_>, is_explained: bool) -> Result<()> {
    const PREFIX: &str = "Operation not permitted in transaction";
    if is_explained {
        return Err(explain_in_transaction().caused_by(PREFIX));
    }
    for stage in stages.values().filter_map(|stage| stage.as_doc()?.iter().next()) {
        let inner = stage.value.get().as_doc();
        match &**stage.name {
            name @ (b"$out" | b"$merge") => return Err(writer_in_transaction(BStr::new(name))),
            name @ (b"$currentOp"
            | b"$listLocalSessions"
            | b"$planCacheStats"
            | b"$changeStream") => {
                return Err(stage_in_transaction(BStr::new(name)).caused_by(PREFIX));
            }
            name @ (b"$collStats" | b"$indexStats" | b"$unionWith" | b"$listCatalog") => {
                return Err(stage_not_supported(BStr::new(name)));
            }
            b"$facet" => {
                let inner = inner.into_iter().flat_map(|facets| facets.iter());
                for pipeline in inner.filter_map(|facet| facet.value.get().as_array()) {
                    check_in_transaction(pipeline, false)?;
                }
            }
            b"$lookup" => {
                let pipeline = inner.and_then(|lookup| lookup.get("pipeline")?.as_array());
                pipeline.map_or(Ok(()), |stages| check_in_transaction(stages, false))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks the stages of the views under a name like [`check_in_transaction`].
fn check_views_in_transaction(db: &Db, ns: Namespace) -> Result<()> {
    let Resolved { pipelines, .. } = views::below(db, ns)?;
    pipelines.iter().try_for_each(|stages| check_in_transaction(stages.as_doc(), false))
}

/// A pipeline that can be started.
pub struct Prepared<'a> {
    ns: Namespace,
    pipeline: Pipeline,
    context: QueryContext,
    hint: HintField<'a>,
    bypass_validation: bool,
    /// The stages, if the first must create documents.
    collectionless: Option<Doc<'a>>,
}

/// A hint: as the client gave it, whose errors come last, or parsed.
enum HintField<'a> {
    Written(Option<Value<'a>>),
    Parsed(Option<Hint>),
}

impl Prepared<'_> {
    /// A pipeline that is parsed already; `context` is the one that it was parsed in.
    pub fn new(
        ns: &Namespace,
        pipeline: Pipeline,
        context: QueryContext,
        bypass_validation: bool,
    ) -> Self {
        let hint = HintField::Parsed(None);
        Prepared {
            ns: ns.clone(),
            pipeline,
            context,
            hint,
            bypass_validation,
            collectionless: None,
        }
    }

    /// The pipeline that a command on the view `ns` is.
    ///
    /// Errors: those of the stages and their positions.
    pub fn of_stages(
        db: &Db,
        ns: &Namespace,
        stages: Doc<'_>,
        mut context: QueryContext,
        hint: Option<Hint>,
    ) -> Result<Self> {
        context.subject = Some(subject(ns, false));
        let pipeline = context.counting(true, |context| {
            let below = || views::check_resolved(db, ns, stages, context);
            Pipeline::parse_after(stages, context, below)
        })?;
        let hint = HintField::Parsed(hint);
        Ok(Prepared { hint, ..Prepared::new(ns, pipeline, context, false) })
    }

    /// Returns the name of the stage that writes, if there is one.
    pub fn writer(&self) -> Option<&str> {
        let last = self.pipeline.stages().last().filter(|_| self.pipeline.writes());
        last.map(|stage| stage.name())
    }

    /// Returns whether it is a change stream.
    pub fn follows_changes(&self) -> bool {
        let first = self.pipeline.stages().first();
        first.is_some_and(|stage| matches!(stage.kind(), Kind::ChangeStream(_)))
    }

    /// Parses the hint, so that nothing of the command is borrowed.
    ///
    /// Errors: those of the hint.
    pub(crate) fn with_hint(self) -> Result<Prepared<'static>> {
        let hint = match self.hint {
            HintField::Written(hint) => args::parse_hint(hint)?,
            HintField::Parsed(hint) => hint,
        };
        let Prepared { ns, pipeline, context, bypass_validation, .. } = self;
        let hint = HintField::Parsed(hint);
        Ok(Prepared { ns, pipeline, context, hint, bypass_validation, collectionless: None })
    }

    /// Starts it.
    ///
    /// Errors: those of the hint, the plan, and of what the first stages read.
    pub fn start(self, host: Arc<dyn PipelineHost>) -> Result<PipelineDocuments> {
        if let Some(stages) = self.collectionless {
            check_origin(&self.pipeline, stages)?;
        }
        let hint = match self.hint {
            HintField::Written(hint) => args::parse_hint(hint)?,
            HintField::Parsed(hint) => hint,
        };
        let options = PipelineOptions { hint, bypass_validation: self.bypass_validation };
        PipelineDocuments::start(host, &self.ns, self.pipeline, self.context, options)
    }
}

/// Checks that a pipeline on no collection begins with a stage that creates documents.
fn check_origin(pipeline: &Pipeline, stages: Doc<'_>) -> Result<()> {
    match pipeline.is_origin() {
        true => Ok(()),
        false if stages.is_empty() => Err(no_stages()),
        false => Err(collection_required(first_name(stages))),
    }
}

/// A pipeline as `explain` shows it: on the collection below the views, with their stages.
pub struct Explained<'a> {
    /// The collection.
    pub ns: Namespace,
    /// All stages.
    pub whole: Pipeline,
    context: QueryContext,
    below: Option<Arc<State>>,
    time_series: Option<marula_db::time_series::TimeSeries>,
    hint: Option<Value<'a>>,
}

impl Explained<'_> {
    /// Parts it into the query at its front and the rest.
    ///
    /// Errors: those of `$geoNear` without its index, and of the hint.
    pub fn front(&self) -> Result<Front> {
        let Explained { ns, whole, context, .. } = self;
        let mut front = match geo_near::take(self.below.as_deref(), ns, whole, context)? {
            Some((query, search, rest)) => Front { query, search: Some(search), rest },
            None => {
                let collation = self.below.as_ref().and_then(|it| it.options.collation.as_ref());
                let (query, rest) = push_down(whole.clone(), collation, context.clone())?;
                Front { query, search: None, rest }
            }
        };
        front.query.hint = match &self.time_series {
            Some(options) => hint_of_buckets(options, self.hint)?,
            None => args::parse_hint(self.hint)?,
        };
        Ok(front)
    }

    /// Returns whether the first stage does not read the documents of its collection.
    pub fn makes_documents(&self) -> bool {
        let makes = |stage: &dyn Stage| {
            matches!(stage.kind(), Kind::Origin | Kind::ChangeStream(_) | Kind::Report(_))
        };
        self.whole.stages().first().is_some_and(|stage| makes(&**stage))
    }

    /// Returns the key of the first sort, which the query may do.
    pub fn first_sort(&self) -> DocBuf {
        let mut stages = self.whole.stages().iter();
        let sort = stages.find(|stage| matches!(stage.kind(), Kind::Sort(..)));
        let printed = sort.map(|stage| stage.print());
        let printed = printed.as_ref().and_then(|printed| printed.get().as_doc()?.get("sortKey"));
        printed.and_then(|key| key.as_doc()).map(Doc::to_buf).unwrap_or_default()
    }
}

/// Returns the stages, an array.
///
/// Errors: `pipeline_type`.
pub fn stages_of<'a>(request: &impl Arguments<'a>) -> Result<Doc<'a>> {
    request.arg("pipeline").and_then(|stages| stages.as_array()).ok_or_else(pipeline_type)
}

/// Checks the field `cursor` of an explained pipeline.
///
/// Errors: a missing field, and its wrong parts.
pub fn check_cursor<'a>(request: &impl Arguments<'a>) -> Result<()> {
    let cursor = request.arg("cursor").ok_or_else(cursor_required)?;
    batch_size(cursor.as_doc().unwrap_or(Doc::EMPTY)).map(drop)
}

/// Returns the number of documents in the first batch, if it is specified.
fn batch_size(cursor: Doc<'_>) -> Result<Option<usize>> {
    let (mut size, mut once) = (None, Once::of("cursor"));
    for option in cursor {
        let value = option.value.get();
        if option.name != "batchSize" {
            return Err(unknown_field("cursor", option.name));
        }
        if value.is_nullish() {
            continue;
        }
        if !value.kind().is_number() {
            return Err(batch_size_type(value.kind().alias()));
        }
        once.note(option.name)?;
        let number = args::count_or_zero("batchSize", Some(value))?;
        size = Some(usize::try_from(number).unwrap_or(usize::MAX));
    }
    Ok(size)
}

/// Checks that a namespace can have a change stream.
fn check_followed(db: &Db, ns: &Namespace) -> Result<()> {
    let Some(collection) = db.collection(ns) else { return Ok(()) };
    let options = &collection.state().options;
    match (&options.view, &options.time_series) {
        (Some(_), Some(_)) => Err(stream_of_time_series(ns)),
        (Some(_), None) => Err(stream_of_view(ns)),
        _ => Ok(()),
    }
}

/// Checks that the first stage of a pipeline creates its documents itself.
fn check_collectionless(stages: Doc<'_>, context: &QueryContext) -> Result<()> {
    let mut bytes = Vec::new();
    let mut first = ArrayWriter::new(&mut bytes);
    stages.values().take(1).for_each(|stage| {
        first.push(stage);
    });
    first.finish();
    match Pipeline::parse(Doc::trusted(&bytes), context)?.is_origin() {
        true => Ok(()),
        false => Err(collection_required(first_name(stages))),
    }
}

/// Returns the name of the first stage; of none, if there is no stage.
pub(crate) fn first_name(stages: Doc<'_>) -> &BStr {
    let first = stages.values().next().and_then(|stage| stage.as_doc()?.iter().next());
    first.map_or(BStr::new(""), |stage| stage.name)
}

/// Returns the description of the pipeline's input, for stages.
pub fn subject(ns: &Namespace, is_collectionless: bool) -> Arc<Subject> {
    let collection = (!is_collectionless).then(|| ns.collection().to_owned());
    Arc::new(Subject { database: ns.db().to_owned(), collection })
}
