//! `aggregate`: runs a pipeline over a collection, or over documents that its first stage creates.

use marula_bson::{Doc, DocWriter, Type, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};
use marula_operation::aggregate::{self, AggregateOp, EXECUTING, Prepared, pipeline_type};
use marula_operation::on_views;

use super::fields::{self, Field, Types};
use super::find::FIRST_BATCH_DOCUMENTS;
use super::{Auth, Command, CommandPlace, Fields, Kind, Outcome, ReadConcernLevels};
use crate::auth::pipeline;
use crate::collection_uuid;
use crate::concern::ReadLevel;
use crate::context::Context;
use crate::cursor::{Filled, Parked, Source};
use crate::pipeline_source::PipelineSource;
use crate::request::{Request, no_explained_concern};
use crate::write_lock::WriteLock;

errors! {
    bad_target() = FailedToParse, "Invalid command format: the 'aggregate' field must specify a collection name or 1";
    name_type(kind: &str) = TypeMismatch, "collection name has invalid type: {kind}";
    explain_type() = TypeMismatch, "explain must be a boolean";
    merge_without_router() = FailedToParse, "Cannot specify 'needsMerge' without 'fromMongos'";
    reserved_name(ns: &Namespace) = InvalidNamespace, "Invalid namespace specified '{ns}'";
    cursor_type() = TypeMismatch, "cursor field must be missing or an object";
    disk_use_type(kind: &str) = TypeMismatch, "Field 'allowDiskUse' should be a boolean value, but found: {kind}";
    stream_not_majority(level: &str) = InvalidOptions, "Command aggregate does not support {{ readConcern: {{ level: \"{level}\", provenance: \"clientSupplied\" }} }} :: caused by :: Aggregation stage $changeStream cannot run with a readConcern other than 'majority'. Current readConcern: {level}";
    explain_not_local(concern: &str, level: &str) = InvalidOptions, "Command aggregate does not support {{ readConcern: {{ {concern}, provenance: \"clientSupplied\" }} }} :: caused by :: Explain for the aggregate command cannot run with a readConcern other than 'local'. Current readConcern level: {level}";
    no_linearizable(stage: &str) = InvalidOptions, "Command aggregate does not support {{ readConcern: {{ level: \"linearizable\", provenance: \"clientSupplied\" }} }} :: caused by :: {stage} cannot be used with a 'linearizable' read concern level";
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

pub(super) static COMMAND: Command = Command {
    name: "aggregate",
    help: "Runs a pipeline of stages over a collection and returns the resulting documents in batches.",
    place: CommandPlace::Pool,
    ends_with_client: true,
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
    let stages = aggregate::stages_of(request)?;
    if ctx.entered.is_some() {
        aggregate::check_in_transaction(stages, request.flag("explain"))?;
    }
    if request.flag("explain") {
        if request.write_concern.is_some() {
            return Err(no_explained_concern());
        }
        match request.read_concern.level {
            None | Some(ReadLevel::Local) => {}
            Some(level) => {
                return Err(explain_not_local(&request.read_concern.shown(), level.name()));
            }
        }
        ctx.unit = ctx.unit.explained();
        super::explain::of_pipeline(ctx, request, reply)?;
        return Ok(Outcome::Done);
    }
    let op = AggregateOp::parse(request, is_collectionless(request))?;
    let ns = target(request)?;
    check_fields(ctx, request, &ns)?;
    let pipeline = op.prepare(&ctx.env(), &ns)?;
    check_read_concern(request, &pipeline)?;
    if pipeline.writer().is_some()
        && let Some(wait) = WriteLock::enter(ctx.server, &ctx.connection.operation, ctx.deadline)
            .map_err(|error| error.caused_by(EXECUTING))?
    {
        return Ok(wait);
    }
    let source = PipelineSource::start(ctx, pipeline)?;
    reply_cursor(ctx, request, &ns, source, op.batch_size, reply)?;
    Ok(Outcome::Done)
}

/// Checks the fields that are about the server rather than about the pipeline.
pub(super) fn check_fields(ctx: &Context<'_>, request: &Request<'_>, ns: &Namespace) -> Result<()> {
    if request.arg("needsMerge").is_some() && request.arg("fromMongos").is_none() {
        return Err(merge_without_router());
    }
    collection_uuid::check(ctx, request, ns)
}

/// Returns whether the pipeline is on no collection.
pub(super) fn is_collectionless(request: &Request<'_>) -> bool {
    request.first.value.kind() != Type::String
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

/// Checks that the read concern is valid for a change stream, and for a pipeline that writes.
fn check_read_concern(request: &Request<'_>, pipeline: &Prepared<'_>) -> Result<()> {
    match (request.read_concern.level, pipeline.writer()) {
        (None | Some(ReadLevel::Majority), _) => Ok(()),
        (Some(level), _) if pipeline.follows_changes() => Err(stream_not_majority(level.name())),
        (Some(ReadLevel::Linearizable), Some(stage)) => Err(no_linearizable(stage)),
        _ => Ok(()),
    }
}

/// Executes a `find` on a view, which was checked as a `find`, as the equivalent pipeline.
pub(super) fn find_on_view(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    batch_size: Option<usize>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let pipeline = on_views::prepare_find(request, &ctx.env(), ns)?;
    let source = PipelineSource::start(ctx, pipeline)?;
    reply_cursor(ctx, request, ns, source, batch_size, reply)?;
    Ok(Outcome::Done)
}

/// Appends the reply's cursor with the first batch of a pipeline's documents.
fn reply_cursor(
    ctx: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    mut source: PipelineSource,
    batch_size: Option<usize>,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    let life = ctx.server.cursors.begin_life();
    let mut cursor = reply.begin_doc("cursor");
    let mut batch = cursor.begin_array("firstBatch");
    let filled = source
        .fill(ctx, batch_size.unwrap_or(FIRST_BATCH_DOCUMENTS), &mut batch)
        .map_err(|error| error.caused_by(EXECUTING))?;
    let count = batch.count();
    ctx.server.counters.documents_returned.add(count as u64);
    batch.finish();
    if let Some(followed) = source.followed() {
        followed.append_to(&mut cursor);
    }
    let id = match filled {
        Filled::Exhausted => 0,
        Filled::More => {
            let (lsid, origin) = (request.lsid, request.body.to_buf());
            let parked = Parked::new(ctx, Box::new(source), ns.clone(), lsid, origin, count);
            ctx.server.cursors.open(Parked { life, ..parked }, ctx.now_ms)?
        }
    };
    cursor.append("id", id).append("ns", ns.as_str());
    ctx.append_snapshot_time(&mut cursor);
    Ok(())
}

/// Runs the pipeline that a command on a view is, and passes each resulting document to `take`.
pub(super) fn scan(
    ctx: &Context<'_>,
    pipeline: Prepared<'_>,
    take: &mut dyn FnMut(Doc<'_>) -> Result<()>,
) -> Result<()> {
    let _life = ctx.server.cursors.begin_life();
    let mut source = PipelineSource::start(ctx, pipeline)?;
    source.for_each(take).map_err(|error| error.caused_by(EXECUTING))
}
