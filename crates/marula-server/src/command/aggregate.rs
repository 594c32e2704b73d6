//! `aggregate`: runs a pipeline over a collection, or over documents that its first stage creates.

use std::sync::Arc;

use marula_bson::{ArrayWriter, BStr, Doc, DocBuf, DocWriter, Type, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};
use marula_operation::args;
use marula_query::context::{Context as QueryContext, Subject};
use marula_query::stage::{Kind as StageKind, Pipeline};

use super::fields::{self, Field, Types};
use super::find::reply_cursor;
use super::map_reduce::on_view;
use super::{Auth, Command, CommandPlace, Fields, Kind, Outcome, ReadConcernLevels};
use crate::auth::pipeline;
use crate::change_stream;
use crate::collection_uuid;
use crate::concern::ReadLevel;
use crate::context::Context;
use crate::environment;
use crate::pipeline_source::{PipelineOptions, PipelineSource};
use crate::request::Request;
use crate::view;
use crate::write_lock::WriteLock;

errors! {
    explain_in_transaction() = OperationNotSupportedInTransaction, "Explain for the aggregate command cannot run within a multi-document transaction";
    writer_in_transaction(stage: &BStr) = OperationNotSupportedInTransaction, "{stage} cannot be used in a transaction";
    stage_in_transaction(stage: &BStr) = OperationNotSupportedInTransaction, "Aggregation stage {stage} cannot run within a multi-document transaction.";
    stage_not_supported(stage: &BStr) = OperationNotSupportedInTransaction, "Stage not supported inside of a multi-document transaction: {stage}";
    cursor_required() = FailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument";
    /// A pipeline without a collection has no stage that creates documents.
    pub(super) no_stages() = InvalidNamespace, "{{aggregate: 1}} is not valid for an empty pipeline.";
    collection_required(stage: &str) = InvalidNamespace, "{{aggregate: 1}} is not valid for '{stage}'; a collection is required.";
    no_option(name: &str) = InvalidPipelineOperator, "Option {name} not supported in aggregation.";
    no_tailable() = InvalidPipelineOperator, "Tailable cursors are not supported in aggregation.";
    bad_target() = FailedToParse, "Invalid command format: the 'aggregate' field must specify a collection name or 1";
    name_type(kind: &str) = TypeMismatch, "collection name has invalid type: {kind}";
    explain_type() = TypeMismatch, "explain must be a boolean";
    merge_without_router() = FailedToParse, "Cannot specify 'needsMerge' without 'fromMongos'";
    reserved_name(ns: &Namespace) = InvalidNamespace, "Invalid namespace specified '{ns}'";
    cursor_type() = TypeMismatch, "cursor field must be missing or an object";
    disk_use_type(kind: &str) = TypeMismatch, "Field 'allowDiskUse' should be a boolean value, but found: {kind}";
    pipeline_type() = TypeMismatch, "'pipeline' option must be specified as an array";
    stream_not_majority(level: &str) = InvalidOptions, "Command aggregate does not support {{ readConcern: {{ level: \"{level}\", provenance: \"clientSupplied\" }} }} :: caused by :: Aggregation stage $changeStream cannot run with a readConcern other than 'majority'. Current readConcern: {level}";
    no_linearizable(stage: &str) = InvalidOptions, "Command aggregate does not support {{ readConcern: {{ level: \"linearizable\", provenance: \"clientSupplied\" }} }} :: caused by :: {stage} cannot be used with a 'linearizable' read concern level";
    unknown_cursor_option(name: &str) = IDLUnknownField, "BSON field 'cursor.{name}' is an unknown field.";
    no_exchange() = BadValue, "the exchange initial batch size must be zero";
    batch_size_type(kind: &str) = TypeMismatch, "cursor.batchSize field must be a number, found {kind}";
}

/// The options that distribute a pipeline's documents to several consumers; members of a cluster
/// use them.
const EXCHANGE_FIELDS: &[Field] = &[
    Field::required("policy", Types::STRING),
    Field::required("consumers", Types::NUMBER),
    Field::optional("orderPreserving", Types::FLAG),
    Field::optional("bufferSize", Types::NUMBER),
    Field::optional("key", Types::DOCUMENT),
    Field::optional("boundaries", Types::ARRAY),
    Field::optional("consumerIds", Types::ARRAY),
];

/// The prefix of errors during the execution of a pipeline.
const EXECUTING: &str = "PlanExecutor error during aggregation";

pub(super) static COMMAND: Command = Command {
    name: "aggregate",
    help: "Runs a pipeline of stages over a collection and returns the resulting documents in batches.",
    place: CommandPlace::Pool,
    kind: Kind::Command,
    takes_write_concern: true,
    write_concern_is_field: true,
    read_concern: ReadConcernLevels::Snapshot,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "aggregate",
        fields: &[
            Field::required("pipeline", Types::ARRAY).or(|_| pipeline_type()),
            Field::optional("cursor", Types::DOCUMENT).or(|_| cursor_type()),
            Field::optional("explain", Types::BOOLEAN).or(|_| explain_type()),
            Field::optional("allowDiskUse", Types::BOOLEAN).or(disk_use_type),
            Field::optional("bypassDocumentValidation", Types::FLAG),
            Field::optional("hint", Types::Hint),
            Field::optional("collation", Types::DOCUMENT),
            Field::optional("let", Types::DOCUMENT),
            Field::optional("needsMerge", Types::Switch),
            Field::optional("fromMongos", Types::Switch),
            fields::RUNTIME_CONSTANTS,
            Field::optional("collectionUUID", Types::Uuid),
            fields::ENCRYPTION_INFORMATION,
            Field::optional("exchange", Types::DOCUMENT).of(EXCHANGE_FIELDS),
            Field::optional("isMapReduceCommand", Types::Switch),
            Field::optional("maxTimeMS", Types::NUMBER),
        ],
    },
    auth: Auth::Content(pipeline::aggregate),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let stages = match request.arg("pipeline") {
        Some(Value::Array(stages)) => stages,
        _ => return Err(pipeline_type()),
    };
    if ctx.entered.is_some() {
        check_in_transaction(stages, request.flag("explain"))?;
    }
    if request.flag("explain") {
        super::explain::of_pipeline(ctx, request, reply)?;
        return Ok(Outcome::Done);
    }
    let Some(Value::Document(cursor)) = request.arg("cursor") else {
        return Err(cursor_required());
    };
    if request.arg("exchange").is_some() {
        return Err(no_exchange());
    }
    let batch_size = batch_size(cursor)?;
    let ns = target(request)?;
    if request.arg("needsMerge").is_some() && request.arg("fromMongos").is_none() {
        return Err(merge_without_router());
    }
    let is_collectionless = request.first.value.kind() != Type::String;
    collection_uuid::check(ctx, request, &ns)?;
    let collection = ctx.unit.touched(&ns)?;
    if ctx.unit.view().is_fixed() {
        let mut joined = Vec::new();
        view::read_collections(stages, &mut joined);
        for name in joined {
            ctx.unit.touched(&Namespace::new(ns.db(), &name)?)?;
        }
    }
    let is_view = collection.as_ref().is_some_and(|it| it.state().options.view.is_some());
    if is_view && request.flag("isMapReduceCommand") {
        return Err(on_view());
    }
    if let Err(error) = view::check_collation(collection.as_deref(), request.arg("collation")) {
        // An unknown stage is reported before the collation of the view.
        Pipeline::check_form(stages, ctx.server.db.feature_version())?;
        return Err(error);
    }
    let mut context =
        ctx.env().context(collection.as_deref(), request.arg("collation"), request.arg("let"))?;
    context.limits = environment::limits(ctx, request);
    context.subject = Some(subject(&ns, is_collectionless));
    view::check_joined(&ctx.server.db, ns.db(), stages, &context)?;
    let below = || view::check_constants(&ctx.server.db, &ns, &context);
    if first_name(stages) == "$changeStream" {
        change_stream::check(&ctx.server.db, &ns)?;
    }
    let pipeline = match Pipeline::parse_after(stages, &context, below) {
        // If the first stage needs a collection, that is reported before the invalid position of
        // another stage.
        Err(error) if is_collectionless && error.code().number() == MISPLACED => {
            check_collectionless(stages, &context)?;
            return Err(error);
        }
        parsed => parsed?,
    };
    view::check_unions(&ctx.server.db, ns.db(), stages, &context)?;
    if pipeline.stages().first().is_some_and(|it| matches!(it.kind(), StageKind::ChangeStream(_))) {
        check_stream_concern(request)?;
    }
    if pipeline.writes() {
        check_write_concerns(request, &pipeline)?;
        if ctx.server.write_lock.is_locked() {
            return Ok(WriteLock::wait(ctx.server, &ctx.connection.operation, ctx.deadline));
        }
    }
    if is_collectionless && !pipeline.is_origin() {
        return Err(match stages.is_empty() {
            true => no_stages(),
            false => collection_required(&first_name(stages)),
        });
    }
    let hint = args::parse_hint(request.arg("hint"))?;
    let bypass_validation = request.flag("bypassDocumentValidation");
    let options = PipelineOptions { hint, bypass_validation };
    let source = PipelineSource::start(ctx, &ns, pipeline, context, options)?;
    reply_cursor(ctx, request, &ns, Box::new(source), batch_size, EXECUTING, reply)?;
    Ok(Outcome::Done)
}

/// Checks that the stages of a pipeline, including nested pipelines, may run in a transaction.
fn check_in_transaction(stages: Doc<'_>, is_explained: bool) -> Result<()> {
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

/// Checks the field `cursor` of an explained pipeline.
pub(super) fn check_cursor(request: &Request<'_>) -> Result<()> {
    let cursor = request.arg("cursor").and_then(|cursor| cursor.as_doc()).unwrap_or(Doc::EMPTY);
    batch_size(cursor).map(drop)
}

/// Returns the number of documents in the first batch, if it is specified.
fn batch_size(cursor: Doc<'_>) -> Result<Option<usize>> {
    if let Some(other) = cursor.iter().find(|option| option.name != "batchSize") {
        return Err(unknown_cursor_option(&other.name.to_string()));
    }
    match cursor.get("batchSize").filter(|size| !size.is_nullish()) {
        None => Ok(None),
        Some(size) if size.kind().is_number() => {
            let size = args::count_or_zero("batchSize", Some(size))?;
            Ok(Some(usize::try_from(size).unwrap_or(usize::MAX)))
        }
        Some(other) => Err(batch_size_type(other.kind().alias())),
    }
}

/// Returns the namespace of the pipeline: a collection, or the special name for none.
pub(super) fn target(request: &Request<'_>) -> Result<Namespace> {
    let ns = match request.first.value.get() {
        Value::String(_) => request.namespace()?,
        value if value.as_exact_i64() == Some(1) => {
            return Namespace::new(request.db, "$cmd.aggregate");
        }
        value if value.kind().is_number() => return Err(bad_target()),
        value => return Err(name_type(value.kind().alias())),
    };
    if ns.collection() == "$cmd.aggregate" { Err(reserved_name(&ns)) } else { Ok(ns) }
}

/// The code of the error for a stage that is only permitted first.
const MISPLACED: i32 = 40_602;

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
        false => Err(collection_required(&first_name(stages))),
    }
}

/// Returns the name of the first stage.
fn first_name(stages: Doc<'_>) -> String {
    let first = stages.values().next().and_then(|stage| stage.as_doc());
    let name = first.and_then(|stage| stage.iter().next().map(|element| element.name.to_string()));
    name.unwrap_or_default()
}

/// Returns the description of the pipeline's input, for stages.
pub(super) fn subject(ns: &Namespace, is_collectionless: bool) -> Arc<Subject> {
    let collection = (!is_collectionless).then(|| ns.collection().to_owned());
    Arc::new(Subject { database: ns.db().to_owned(), collection })
}

/// Checks that the read concern is valid for a change stream.
fn check_stream_concern(request: &Request<'_>) -> Result<()> {
    match request.read_concern.level {
        None | Some(ReadLevel::Majority) => Ok(()),
        Some(level) => Err(stream_not_majority(level.name())),
    }
}

/// Checks that the read concern is valid for a pipeline that writes.
fn check_write_concerns(request: &Request<'_>, pipeline: &Pipeline) -> Result<()> {
    let stage = pipeline.stages().last().map_or("", |stage| stage.name());
    match request.read_concern.level {
        Some(ReadLevel::Linearizable) => Err(no_linearizable(stage)),
        _ => Ok(()),
    }
}

/// Executes a `find` on a view, which was checked as a `find`, as the equivalent pipeline.
pub(super) fn find_on_view(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let collection = ctx.unit.collection(ns);
    view::check_collation(collection.as_deref(), request.arg("collation"))?;
    let mut context =
        ctx.env().context(collection.as_deref(), request.arg("collation"), request.arg("let"))?;
    context.limits = environment::limits(ctx, request);
    context.subject = Some(subject(ns, false));
    let stages = stages_of_find(request)?;
    let below = || view::check_constants(&ctx.server.db, ns, &context);
    let pipeline = Pipeline::parse_after(stages.as_doc(), &context, below)?;
    let hint = args::parse_hint(request.arg("hint"))?;
    let options = PipelineOptions { hint, ..PipelineOptions::default() };
    let source = PipelineSource::start(ctx, ns, pipeline, context, options)?;
    let batch_size = match request.arg("batchSize") {
        None => None,
        size => {
            Some(usize::try_from(args::count_or_zero("batchSize", size)?).unwrap_or(usize::MAX))
        }
    };
    reply_cursor(ctx, request, ns, Box::new(source), batch_size, EXECUTING, reply)?;
    Ok(Outcome::Done)
}

/// Rejects a `find` on a view with options that a pipeline does not have.
///
/// Errors: `no_tailable`, `no_option`.
pub(super) fn check_find_options(request: &Request<'_>) -> Result<()> {
    let bounds = |name: &str| {
        request.arg(name).and_then(|bound| bound.as_doc()).is_some_and(|bound| !bound.is_empty())
    };
    if let Some(name) = ["min", "max"].into_iter().find(|name| bounds(name)) {
        return Err(no_option(name));
    }
    let asked = |names: &[&'static str]| match names.iter().find(|name| request.flag(name)) {
        Some(name) => Err(no_option(name)),
        None => Ok(()),
    };
    asked(&["returnKey", "showRecordId"])?;
    if request.flag("tailable") {
        return Err(no_tailable());
    }
    asked(&["noCursorTimeout", "allowPartialResults"])?;
    // A driver sends `singleBatch` with a limit of 1, where it makes no difference.
    if args::count_or_zero("limit", request.arg("limit"))? != 1 {
        asked(&["singleBatch"])?;
    }
    asked(&["readOnce", "allowSpeculativeMajorityRead"])
}

/// Returns the pipeline, an array of stages, that is equivalent to a `find`.
pub(super) fn stages_of_find(request: &Request<'_>) -> Result<DocBuf> {
    let doc = |name: &str| args::doc_or_empty(name, request.arg(name));
    let (filter, sort, projection) = (doc("filter")?, doc("sort")?, doc("projection")?);
    // `$natural` is the order of a view's documents without a sort.
    let sort = if sort.get("$natural").is_some() { Doc::EMPTY } else { sort };
    let skip = args::count_or_zero("skip", request.arg("skip"))?;
    let limit = args::count_or_zero("limit", request.arg("limit"))?;
    let mut bytes = Vec::new();
    let mut stages = ArrayWriter::new(&mut bytes);
    let mut stage = |name: &str, argument: Option<Value<'_>>| {
        if let Some(argument) = argument {
            stages.begin_doc().append(name, argument);
        }
    };
    stage("$match", Some(Value::Document(filter)).filter(|_| !filter.is_empty()));
    stage("$sort", Some(Value::Document(sort)).filter(|_| !sort.is_empty()));
    stage("$skip", Some(Value::whole(skip)).filter(|_| skip > 0));
    stage("$limit", Some(Value::whole(limit)).filter(|_| limit > 0));
    stage("$project", Some(Value::Document(projection)).filter(|_| !projection.is_empty()));
    stages.finish();
    Ok(DocBuf::trusted(bytes))
}

/// Executes a `count` on a view, with the equivalent `stages`.
pub(super) fn count_on_view(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    stages: &DocBuf,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    if !ctx.may_wait() {
        return Ok(Outcome::ToPool);
    }
    let collection = ctx.unit.collection(ns);
    view::check_collation(collection.as_deref(), request.arg("collation"))?;
    let mut context = ctx.env().context(collection.as_deref(), request.arg("collation"), None)?;
    context.limits = environment::limits(ctx, request);
    let hint = args::parse_hint(request.arg("hint"))?;
    let options = PipelineOptions { hint, ..PipelineOptions::default() };
    let mut counted = 0;
    scan(ctx, ns, stages, context, options, &mut |doc| {
        counted = doc.get(super::count::COUNTED).and_then(|n| n.as_exact_i64()).unwrap_or(0);
        Ok(())
    })?;
    super::count::append_count(u64::try_from(counted).unwrap_or(0), reply);
    Ok(Outcome::DoneOnView)
}

/// Runs a pipeline over a view or another namespace, and passes each resulting document to `take`.
pub(super) fn scan(
    ctx: &Context<'_>,
    ns: &Namespace,
    stages: &DocBuf,
    mut context: QueryContext,
    options: PipelineOptions,
    take: &mut dyn FnMut(Doc<'_>) -> Result<()>,
) -> Result<()> {
    context.subject = Some(subject(ns, false));
    let pipeline = Pipeline::parse(stages.as_doc(), &context)?;
    PipelineSource::start(ctx, ns, pipeline, context, options)?
        .for_each(take)
        .map_err(|error| error.caused_by(EXECUTING))
}
