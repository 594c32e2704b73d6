//! `find`: documents that match a filter, in batches.

use std::sync::Arc;

use marula_bson::{Doc, DocWriter, Value};
use marula_db::{Collection, Namespace};
use marula_error::{Result, errors};
use marula_plan::{Execution, Query, Shown, Wanted, Wording, choice, planner, query, refusal};
use marula_query::context::Context as QueryContext;
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::{Filter, Purpose};
use marula_query::projection::Projection;
use marula_query::text;

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Kind, Named, Outcome, Place, ReadConcernLevels};
use crate::change_stream::Followed;
use crate::collection_uuid;
use crate::context::Context;
use crate::cursor::{self, Filled, Life, Owner, Parked, Source};
use crate::find_source::{FindSource, Tail};
use crate::pipeline_source::PipelineSource;
use crate::query_args;
use crate::request::Request;

/// The documents of a first batch, unless the client says how many.
const FIRST_BATCH_DOCUMENTS: usize = 101;

errors! {
    oplog_replay_type() = TypeMismatch, "Expected field oplogReplayto be of type object";
    tailable_in_transaction() = InvalidOptions, "It is illegal to open a tailable cursor in a transaction";
    await_without_tailable() = FailedToParse, "Cannot set 'awaitData' without also setting 'tailable'";
    to_return_beside() = BadValue, "'limit' or 'batchSize' fields can not be set with 'ntoreturn' field.";
    no_to_return() = 5_746_102, "the ntoreturn find command parameter is not supported when FCV >= 5.1";
    tailable_single_batch() = BadValue, "cannot use tailable option with the 'singleBatch' option";
    tailable_sort() = BadValue, "cannot use tailable option with a sort other than {{$natural: 1}}";
    tailable_not_capped(asked: &str) = BadValue, "{asked} tailable cursor requested on non capped collection";
    near_natural() = BadValue, "geoNear expression not allowed with $natural sort order";
    tailable_text() = BadValue, "text and tailable cursor not allowed in same query";
    text_natural() = BadValue, "text expression not allowed with $natural sort order";
    min_max_fields() = 51_176, "min and max must have the same field names";
}

/// What stands before an error of a query that runs.
const EXECUTING: &str = "Executor error during find command";

pub(super) static COMMAND: Command = Command {
    name: "find",
    help: "Gives the documents that match a filter, sorted, projected and in batches as asked.",
    place: Place::Decides,
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
    auth: Auth::Collection(&["find"]),
    run,
    ..Command::DEFAULT
};

/// Checks `ntoreturn`, which messages of older clients had.
fn check_to_return(_: FeatureVersion, count: Value<'_>) -> Result<()> {
    query_args::count_or_zero("ntoreturn", Some(count)).map(drop)
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = query_args::readable_namespace(request)?;
    let collection = ctx.unit.touched(&ns)?;
    let args = FindArgs::parse(request)?;
    if ctx.entered.is_some() && args.tail != Tail::No {
        return Err(tailable_in_transaction());
    }
    collection_uuid::check(ctx, request, &ns)?;
    let Some(collection) = collection else {
        args.check_without_collection(ctx, request)?;
        let mut cursor = reply.begin_doc("cursor");
        cursor.append("id", 0_i64).append("ns", ns.as_str());
        cursor.begin_array("firstBatch").finish();
        return Ok(Outcome::Done);
    };
    if collection.state().options.view.is_some() {
        if !ctx.may_wait() {
            return Ok(Outcome::ToPool);
        }
        args.check_on_view(ctx, request)?;
        return super::aggregate::find_on_view(ctx, request, &ns, reply);
    }
    let Some(mut source) = args.open(ctx, request, &collection)? else {
        return Ok(Outcome::ToPool);
    };

    let mut cursor = reply.begin_doc("cursor");
    let mut batch = cursor.begin_array("firstBatch");
    let wanted = args.batch_size.unwrap_or(FIRST_BATCH_DOCUMENTS);
    let filled =
        source.fill(ctx, wanted, &mut batch).map_err(|error| error.caused_by(EXECUTING))?;
    if source.is_overdue() {
        return Ok(Outcome::ToPool);
    }
    let count = batch.count();
    batch.finish();
    ctx.server.counters.documents_returned.add(count as u64);
    // A tailable cursor over a collection that is empty has no place to stand on, and is closed.
    let stays_open = match args.tail {
        Tail::No => filled == Filled::More,
        Tail::Tailable | Tail::AwaitData => count > 0 || collection.count() > 0,
    };
    let id = if stays_open && !args.single_batch {
        let parked = Parked {
            source: Box::new(source),
            namespace: ns.clone(),
            lsid: request.lsid,
            snapshot: ctx.snapshot.cloned(),
            transaction: ctx.entered.map(|entered| entered.number),
            no_timeout: args.no_cursor_timeout,
            origin: request.body.to_buf(),
            owner: Owner::of(ctx),
            life: Life::default(),
        };
        ctx.server.cursors.open(parked, ctx.now_ms)?
    } else {
        0
    };
    cursor.append("id", id).append("ns", ns.as_str());
    ctx.append_snapshot_time(&mut cursor);
    Ok(Outcome::Done)
}

/// Checks a `find` on a view that is explained.
pub(super) fn check_on_view(ctx: &Context<'_>, request: &Request<'_>) -> Result<()> {
    FindArgs::parse(request)?.check_on_view(ctx, request)
}

/// The arguments of `find`, checked for shape.
struct FindArgs<'a> {
    filter: Doc<'a>,
    projection: Doc<'a>,
    sort: Doc<'a>,
    hint: Option<Value<'a>>,
    skip: u64,
    limit: u64,
    batch_size: Option<usize>,
    single_batch: bool,
    no_cursor_timeout: bool,
    tail: Tail,
}

impl<'a> FindArgs<'a> {
    fn parse(request: &Request<'a>) -> Result<Self> {
        let tail = match (request.flag("tailable"), request.flag("awaitData")) {
            (true, true) => Tail::AwaitData,
            (true, false) => Tail::Tailable,
            (false, true) => return Err(await_without_tailable()),
            (false, false) => Tail::No,
        };
        let batch_size = match request.arg("batchSize") {
            None => None,
            size => Some(
                usize::try_from(query_args::count_or_zero("batchSize", size)?)
                    .unwrap_or(usize::MAX),
            ),
        };
        let args = FindArgs {
            filter: query_args::doc_or_empty("filter", request.arg("filter"))?,
            projection: query_args::doc_or_empty("projection", request.arg("projection"))?,
            sort: query_args::doc_or_empty("sort", request.arg("sort"))?,
            hint: request.arg("hint"),
            skip: query_args::count_or_zero("skip", request.arg("skip"))?,
            limit: query_args::count_or_zero("limit", request.arg("limit"))?,
            batch_size,
            single_batch: request.flag("singleBatch"),
            no_cursor_timeout: request.flag("noCursorTimeout"),
            tail,
        };
        if request.arg("ntoreturn").is_some() {
            let is_beside = request.arg("limit").or(request.arg("batchSize")).is_some();
            return Err(if is_beside { to_return_beside() } else { no_to_return() });
        }
        if args.tail != Tail::No {
            if args.single_batch {
                return Err(tailable_single_batch());
            }
            if !args.sort.is_empty()
                && args.sort.get("$natural").and_then(|n| n.as_exact_i64()) != Some(1)
            {
                return Err(tailable_sort());
            }
        }
        Ok(args)
    }

    /// Makes the complaints that do not depend on what is stored.
    fn check_without_collection(&self, ctx: &Context<'_>, request: &Request<'_>) -> Result<()> {
        let context =
            query_args::query_context(ctx, None, request.arg("collation"), request.arg("let"))?;
        let (query, _) = self.parse_query(context)?;
        query_args::check_text_without_collection(&query.filter, &request.namespace()?)
    }

    /// Checks a `find` on a view, which is carried out as a pipeline: first as any `find`.
    fn check_on_view(&self, ctx: &Context<'_>, request: &Request<'_>) -> Result<()> {
        let (collation, given) = (request.arg("collation"), request.arg("let"));
        self.parse_query(query_args::query_context(ctx, None, collation, given)?)?;
        super::aggregate::check_find_options(request)
    }

    /// Reads filter, projection and sort in mongod's order: of several mistakes, the first is told.
    fn parse_query(&self, mut context: QueryContext) -> Result<(Query, Option<Projection>)> {
        context.has_text_score = text::has_search(self.filter);
        context.has_distance = text::has_near(self.filter);
        let hint = query_args::parse_hint(self.hint)?;
        let draft = Filter::draft(self.filter, Purpose::Any, &context)?;
        query_args::check_natural_sort(self.sort, hint.as_ref())?;
        let mut projection = draft_projection(self.projection, self.filter, &context)?;
        let needs_position = projection.as_ref().is_some_and(Projection::needs_position);
        let mut query = Query::new(Filter::everything(&context), context);
        query.hint = hint;
        query_args::apply_sort(&mut query, self.sort)?;
        query.filter = if needs_position {
            draft.finish_for_positions(&query.context)?
        } else {
            draft.finish(&query.context)?
        };
        projection.iter_mut().try_for_each(|projection| projection.optimize(&query.context))?;
        if let Some(projection) = &projection {
            projection.check_metadata(&query.filter, query.sort.is_some())?;
        }
        Ok((query, projection))
    }

    /// Plans the query; `None` where it is not for a network worker.
    fn open(
        &self,
        ctx: &Context<'_>,
        request: &Request<'_>,
        collection: &Arc<Collection>,
    ) -> Result<Option<FindSource>> {
        let state = collection.state();
        let context = query_args::query_context(
            ctx,
            Some(collection),
            request.arg("collation"),
            request.arg("let"),
        )?;
        if let Some(id) = query::id_equality(self.filter)
            && context.collation.is_none()
            && state.options.collation.is_none()
            && self.is_plain(request)
        {
            let mut query = Query::new(Filter::everything(&context), context);
            query.skip = self.skip;
            query.limit = Some(self.limit).filter(|&limit| limit > 0);
            let execution =
                Execution::new(collection.clone(), planner::plan_id(id.to_buf()), query);
            return Ok(Some(FindSource::new(execution)));
        }
        let (mut query, projection) = self.parse_query(context)?;
        if self.tail != Tail::No && query.filter.text().is_some() {
            return Err(tailable_text());
        }
        let needs_position = projection.as_ref().is_some_and(Projection::needs_position);
        let position_filter = needs_position.then(|| query.filter.clone());
        if query.sort.is_some() {
            query.context.limits = query_args::limits(ctx, request);
        }
        if query.filter.text().is_some() && self.sort.get("$natural").is_some() {
            return Err(text_natural());
        }
        if query.filter.near().is_some() && self.sort.get("$natural").is_some() {
            return Err(near_natural());
        }
        query.wants_score =
            text::asks_for(self.projection, "textScore") || text::asks_for(self.sort, "textScore");
        query.wants_key = text::asks_for(self.projection, "indexKey");
        query.skip = self.skip;
        query.limit = Some(self.limit).filter(|&limit| limit > 0);
        query.min = request
            .arg("min")
            .and_then(|min| min.as_doc())
            .filter(|min| !min.is_empty())
            .map(Doc::to_buf);
        query.max = request
            .arg("max")
            .and_then(|max| max.as_doc())
            .filter(|max| !max.is_empty())
            .map(Doc::to_buf);
        if let (Some(min), Some(max)) = (&query.min, &query.max)
            && !min
                .as_doc()
                .iter()
                .map(|field| field.name)
                .eq(max.as_doc().iter().map(|field| field.name))
        {
            return Err(min_max_fields());
        }
        let projection = projection.map(Arc::new);
        query.shown = projection.as_ref().map(|parsed| Shown::of_shared(parsed, self.projection));
        if request.flag("returnKey") {
            query.wanted = Wanted::Key;
        }
        query.shows_record_id = request.flag("showRecordId");
        let mut interrupt = || ctx.check_interrupt();
        let wording = Wording {
            sort: Some(self.sort),
            projection: Some(self.projection),
            batch_size: self.batch_size.map(|size| size as u64),
            is_tailable: self.tail != Tail::No,
            ..Wording::of(self.filter, request.arg("collation"))
        };
        if self.tail != Tail::No && state.options.capped.is_none() {
            let asked = refusal::asked(&collection.namespace(), &query, &wording);
            return Err(tailable_not_capped(&asked));
        }
        let chosen =
            choice::choose(ctx.unit, collection, query, &wording, ctx.patience(), &mut interrupt)?;
        let Some(execution) = chosen else { return Ok(None) };
        let mut source = FindSource::new(execution);
        if let Some(projection) = projection {
            source.project(projection, position_filter);
        }
        source.return_key = request.flag("returnKey");
        source.show_record_id = request.flag("showRecordId");
        source.tail = self.tail;
        if self.tail != Tail::No {
            collection.note_tailable();
        }
        Ok(Some(source))
    }

    /// Whether documents are given as they are, by no way that the client names.
    fn is_plain(&self, request: &Request<'_>) -> bool {
        self.projection.is_empty()
            && self.skip == 0
            && self.hint.is_none()
            && self.tail == Tail::No
            && self.sort.is_empty()
            && request.arg("min").is_none()
            && request.arg("max").is_none()
            && !request.flag("returnKey")
            && !request.flag("showRecordId")
    }
}

/// Parses a projection; `None` shows documents as they are.
pub(super) fn parse_projection(
    doc: Doc<'_>,
    filter: Doc<'_>,
    context: &QueryContext,
) -> Result<Option<Projection>> {
    let mut projection = draft_projection(doc, filter, context)?;
    projection.iter_mut().try_for_each(|projection| projection.optimize(context))?;
    Ok(projection)
}

/// As [`parse_projection`], with constant expressions left as they are.
pub(super) fn draft_projection(
    doc: Doc<'_>,
    filter: Doc<'_>,
    context: &QueryContext,
) -> Result<Option<Projection>> {
    if doc.is_empty() {
        return Ok(None);
    }
    Projection::draft_for(doc, filter, context).map(Some)
}

/// Appends the reply's cursor for documents that a source gives; `doing` stands before the source's
/// errors.
pub(super) fn reply_cursor(
    ctx: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    mut source: Box<dyn Source>,
    batch_size: Option<usize>,
    doing: &str,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    let mut cursor = reply.begin_doc("cursor");
    let mut batch = cursor.begin_array("firstBatch");
    let filled = source
        .fill(ctx, batch_size.unwrap_or(FIRST_BATCH_DOCUMENTS), &mut batch)
        .map_err(|error| error.caused_by(doing))?;
    ctx.server.counters.documents_returned.add(batch.count() as u64);
    batch.finish();
    if let Some(followed) = followed(&mut *source) {
        followed.append_to(&mut cursor);
    }
    let id = match filled {
        Filled::Exhausted => 0,
        Filled::More => {
            let parked = cursor::Parked {
                source,
                namespace: ns.clone(),
                lsid: request.lsid,
                snapshot: ctx.snapshot.cloned(),
                transaction: ctx.entered.map(|entered| entered.number),
                no_timeout: false,
                origin: request.body.to_buf(),
                owner: Owner::of(ctx),
                life: Life::default(),
            };
            ctx.server.cursors.open(parked, ctx.now_ms)?
        }
    };
    cursor.append("id", id).append("ns", ns.as_str());
    ctx.append_snapshot_time(&mut cursor);
    Ok(())
}

/// What a cursor follows, where it is a change stream's.
pub(super) fn followed(source: &mut dyn Source) -> Option<&Followed> {
    source.as_any().downcast_mut::<PipelineSource>()?.followed()
}
