//! `find`: the documents that match a filter, in batches. [`FindOp`] is the operation; this module
//! creates the cursor.

use marula_bson::{DocWriter, Value};
use marula_error::{Error, Result, errors};
use marula_operation::documents::Tail;
use marula_operation::find::{ACTIONS, EXECUTING, FindOp};
use marula_operation::{args, on_views};
use marula_plan::without_collection;
use marula_query::feature_version::FeatureVersion;

use super::fields::{self, Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Kind, Named, Outcome, ReadConcernLevels};
use crate::auth::check::{self, Check};
use crate::change_stream::Followed;
use crate::collection_uuid;
use crate::context::Context;
use crate::cursor::{Filled, Parked, Source};
use crate::environment;
use crate::pipeline_source::PipelineSource;
use crate::request::Request;

/// The number of documents in the first batch, unless the client specifies it.
pub(super) const FIRST_BATCH_DOCUMENTS: usize = 101;

errors! {
    oplog_replay_type() = TypeMismatch, "Expected field oplogReplayto be of type object";
    tailable_in_transaction() = InvalidOptions, "It is illegal to open a tailable cursor in a transaction";
}

pub(super) static COMMAND: Command = Command {
    name: "find",
    help: "Returns the documents that match a filter, sorted, projected and in batches.",
    place: CommandPlace::Decides,
    ends_with_client: true,
    kind: Kind::Query,
    read_concern: ReadConcernLevels::Snapshot,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "FindCommandRequest",
        fields: &[
            Field::optional("filter", Types::Object),
            Field::optional("projection", Types::Object),
            Field::optional("sort", Types::Object),
            Field::optional("hint", Types::Hint),
            Field::optional("collation", Types::Object),
            Field::optional("skip", Types::NUMBER),
            Field::optional("limit", Types::NUMBER),
            Field::optional("batchSize", Types::NUMBER),
            Field::optional("ntoreturn", Types::NUMBER).checked(check_to_return),
            Field::optional("singleBatch", Types::Switch),
            Field::optional("allowDiskUse", Types::Switch),
            Field::optional("min", Types::Object),
            Field::optional("max", Types::Object),
            Field::optional("returnKey", Types::Switch),
            Field::optional("showRecordId", Types::Switch),
            Field::optional("$queryOptions", Types::Object),
            Field::optional("tailable", Types::Switch),
            Field::optional("oplogReplay", Types::Switch).or(|_| oplog_replay_type()),
            Field::optional("noCursorTimeout", Types::Switch),
            Field::optional("awaitData", Types::Switch),
            Field::optional("allowPartialResults", Types::Switch),
            Field::optional("let", Types::DOCUMENT),
            fields::RUNTIME_CONSTANTS,
            Field::optional("options", Types::DOCUMENT),
            Field::optional("term", Types::NUMBER),
            Field::optional("readOnce", Types::Switch),
            Field::optional("allowSpeculativeMajorityRead", Types::Switch),
            Field::optional("$_requestReshardingResumeToken", Types::FLAG),
            Field::optional("$_requestResumeToken", Types::FLAG),
            Field::optional("$_resumeAfter", Types::DOCUMENT),
            Field::optional("maxTimeMS", Types::NUMBER),
            Field::optional("collectionUUID", Types::Uuid),
            fields::ENCRYPTION_INFORMATION,
        ],
    },
    named: Named::BY_UUID,
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

/// Checks `ntoreturn`, a field of old clients.
fn check_to_return(_: FeatureVersion, count: Value<'_>) -> Result<()> {
    args::count_or_zero("ntoreturn", Some(count)).map(drop)
}

fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    check.needs_on_its_collection(request, ACTIONS)?;
    check::own_term(request, check)
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = environment::readable_namespace(request)?;
    let collection = ctx.unit.touched(&ns)?;
    let op = FindOp::parse(request)?;
    if ctx.entered.is_some() && op.tail != Tail::No {
        return Err(tailable_in_transaction());
    }
    collection_uuid::check(ctx, request, &ns)?;
    let Some(collection) = collection else {
        op.check_without_collection(&ctx.env(), &ns)?;
        without_collection(ctx.unit);
        let mut cursor = reply.begin_doc("cursor");
        cursor.append("id", 0_i64).append("ns", ns.as_str());
        cursor.begin_array("firstBatch").finish();
        return Ok(Outcome::Done);
    };
    if collection.state().options.view.is_some() {
        if !ctx.may_wait() {
            return Err(Error::postponed());
        }
        op.check_without_collection(&ctx.env(), &ns)?;
        on_views::check_find_options(request)?;
        return super::aggregate::find_on_view(ctx, request, &ns, op.batch_size, reply);
    }
    let mut documents = op.prepare(&ctx.env(), &collection)?;

    let mut cursor = reply.begin_doc("cursor");
    let mut batch = cursor.begin_array("firstBatch");
    let wanted = op.batch_size.unwrap_or(FIRST_BATCH_DOCUMENTS);
    let filled = documents
        .fill(&ctx.env(), wanted, &mut batch)
        .map_err(|error| error.caused_by(EXECUTING))?;
    let count = batch.count();
    batch.finish();
    ctx.server.counters.documents_returned.add(count as u64);
    // A tailable cursor over an empty collection has no position and is closed.
    let stays_open = match op.tail {
        Tail::No => filled == Filled::More,
        Tail::Tailable | Tail::AwaitData => count > 0 || ctx.unit.count(&collection)? > 0,
    };
    let id = if stays_open && !op.single_batch {
        let (lsid, origin) = (request.lsid, request.body.to_buf());
        let parked = Parked::new(ctx, Box::new(documents), ns.clone(), lsid, origin, count);
        let parked = Parked { no_timeout: op.no_cursor_timeout, ..parked };
        ctx.server.cursors.open(parked, ctx.now_ms)?
    } else {
        0
    };
    cursor.append("id", id).append("ns", ns.as_str());
    ctx.append_snapshot_time(&mut cursor);
    Ok(Outcome::Done)
}

/// Returns the part of the oplog that a change stream's cursor follows; `None` for other cursors.
pub(super) fn followed(source: &mut dyn Source) -> Option<&Followed> {
    source.as_any().downcast_mut::<PipelineSource>()?.followed()
}
