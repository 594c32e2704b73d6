//! `getMore`: the next batch of an open cursor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_bson::{DocBuf, DocWriter, Type, Value};
use marula_db::unit::Detail;
use marula_db::{Db, Namespace};
use marula_error::{Code, Error, Result, codes, errors};
use marula_operation::args;
use marula_operation::documents::{FindDocuments, Tail};

use super::fields::{self, Field, Types};
use super::find::followed;
use super::{Auth, Command, CommandPlace, Fields, Kind, OnSecondary, Outcome};
use crate::auth::access::Access;
use crate::auth::check;
use crate::cluster_fields;
use crate::context::Context;
use crate::cursor::{self, Filled, Parked};
use crate::dispatch::is_first;
use crate::error_labels;
use crate::fail_point::{FAIL_GET_MORE, TIME_OUT, out_of_time};
use crate::net::service::{Arm, Reason};
use crate::pipeline_source::PipelineSource;
use crate::request::Request;
use crate::server::Server;
use crate::stable_api;

/// The time that a cursor waits for data, unless the client specifies it. Source: manual "getMore".
const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

errors! {
    collection_empty() = InvalidNamespace, "Collection names cannot be empty";
    not_its_user(id: i64) = Unauthorized, "cursor id {id} was not created by the authenticated user";
    not_allowed(id: i64) = Unauthorized, "not authorized for getMore with cursor id {id}";
    hit(code: Code) = code, "Hit the 'failGetMoreAfterCursorCheckout' failpoint";
    max_time_not_awaiting() = BadValue, "cannot set maxTimeMS on getMore command for a non-awaitData cursor";
}

/// The prefix of errors during the execution of a query or pipeline.
pub(crate) const EXECUTING: &str = "Executor error during getMore";

pub(super) static COMMAND: Command = Command {
    name: "getMore",
    takes_after_cluster_time: false,
    help: "Returns the next batch of a cursor that find, aggregate or a list command has opened.",
    place: CommandPlace::Pool,
    ends_with_client: true,
    kind: Kind::GetMore,
    own_max_time: true,
    in_transaction: true,
    read_concern: super::ReadConcernLevels::Snapshot,
    in_api_v1: true,
    secondary: Some(OnSecondary::Always),
    fields: Fields::Strict {
        place: "getMore",
        fields: &[
            Field::required("collection", Types::STRING),
            Field::optional("batchSize", Types::NUMBER),
            Field::optional("maxTimeMS", Types::NUMBER),
            Field::optional("term", Types::NUMBER),
            Field::optional("lastKnownCommittedOpTime", Types::DOCUMENT)
                .checked(|_, time| cluster_fields::check_op_time(time)),
        ],
    },
    auth: Auth::Content(check::own_term),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let Value::Int64(id) = request.first.value.get() else {
        if request.first.value.get().is_nullish() {
            return Err(fields::missing_field("getMore", "getMore"));
        }
        let kind: Type = request.first.value.kind();
        return Err(fields::wrong_type("getMore", "getMore".into(), kind.alias(), "type 'long'"));
    };
    let collection = request.text("collection").unwrap_or_default().to_string();
    if collection.is_empty() {
        return Err(collection_empty());
    }
    let ns = Namespace::new(request.db, &collection)?;
    let documents_max = match request.arg("batchSize") {
        None => usize::MAX,
        // Zero means no limit.
        size => match args::count_or_zero("batchSize", size)? {
            0 => usize::MAX,
            size => usize::try_from(size).unwrap_or(usize::MAX),
        },
    };
    let cursors = &ctx.server.cursors;
    if let Some(access) = ctx.restrained()
        && !cursors.is_of(id, &access.user)
    {
        return Err(not_its_user(id));
    }
    let mut cursor = cursors.take(
        id,
        &ns,
        request.lsid.as_ref(),
        Some(ctx.connection.operation.on_lost_cursor()),
    )?;
    if let Some(access) = ctx.restrained()
        && let Err(error) = check_owner(id, access, &cursor)
    {
        cursors.park(id, cursor, ctx.now_ms);
        return Err(error);
    }
    let number = ctx.entered.map(|entered| entered.number);
    if let Err(error) = cursor::check_transaction(id, cursor.transaction, number) {
        cursors.park(id, cursor, ctx.now_ms);
        return Err(error);
    }
    if let Err(error) = stable_api::check_cursor(request, cursor.origin.as_doc()) {
        cursors.park(id, cursor, ctx.now_ms);
        return Err(error);
    }
    if ctx.is_profiled || ctx.may_wait() {
        ctx.origin = Some(cursor.origin.clone());
    }
    if ctx.is_profiled {
        ctx.connection
            .operation
            .tally
            .set_detail(Detail::stages(|name| cursor.origin.as_doc().get(name)));
    }
    if let Some(error) = failing(ctx.server, &cursor) {
        let is_stream = followed(&mut *cursor.source).is_some();
        cursors.finish(id);
        return Err(labelled(error, is_stream));
    }
    let tail = cursor.source.tail();
    if request.names_max_time && tail != Tail::AwaitData {
        cursors.park(id, cursor, ctx.now_ms);
        return Err(max_time_not_awaiting());
    }
    // The listener is registered before the cursor is read, so that no document between the two is
    // missed.
    let deadline = ctx.call.arrived + request.max_time.unwrap_or(AWAIT_DEFAULT);
    let listening =
        (tail == Tail::AwaitData).then(|| listen(&ctx.server.db, &mut cursor, deadline)).flatten();

    let tails_on = tails_on(&mut cursor);
    let mut out = reply.begin_doc("cursor");
    let mut batch = out.begin_array("nextBatch");
    let filled = match cursor.source.fill(ctx, documents_max, &mut batch) {
        Ok(filled) => filled,
        Err(error) => {
            cursors.finish(id);
            let is_stream = followed(&mut *cursor.source).is_some();
            let error = labelled(error, is_stream);
            return Err(match error.code() {
                // These errors of a query are returned without the prefix: its collection was
                // dropped between two commands, or its position was removed.
                codes::QueryPlanKilled if is_query(&mut cursor) && is_first(ctx.call) => error,
                codes::CappedPositionLost if !tails_on => error,
                _ => error.caused_by(EXECUTING),
            });
        }
    };
    let count = batch.count();
    batch.finish();
    // The token is built now, because the cursor may already be parked when it is appended, after
    // the batch.
    let token = followed(&mut *cursor.source).map(|it| DocBuf::build(|out| it.append_to(out)));
    ctx.server.counters.documents_returned.add(count as u64);
    let may_wait_longer = ctx.call.reason != Reason::Deadline && Instant::now() < deadline;
    if count == 0
        && filled == Filled::More
        && may_wait_longer
        && let Some(arm) = listening
    {
        cursors.wait(id, cursor, ctx.now_ms, ctx.connection.operation.on_lost_cursor());
        return Ok(Outcome::Retry(arm, deadline));
    }
    let stays_open = match filled {
        Filled::More => {
            cursor.history.add_batch(count);
            cursor.time_left = ctx.time_left();
            cursors.park(id, cursor, ctx.now_ms)
        }
        Filled::Exhausted => {
            cursors.finish(id);
            false
        }
    };
    if let Some(token) = &token {
        out.append_elements(token.as_doc().elements_bytes());
    }
    out.append("id", if stays_open { id } else { 0 }).append("ns", ns.as_str());
    ctx.append_snapshot_time(&mut out);
    drop(out);
    let streams = stays_open && request.message.exhaust_allowed();
    Ok(if streams { Outcome::Stream } else { Outcome::Done })
}

/// Returns the error that an active fail point specifies.
fn failing(server: &Server, cursor: &Parked) -> Option<Error> {
    let points = &server.fail_points;
    let has_hit = points.enter(FAIL_GET_MORE, |data| {
        let code = i32::try_from(data.get("errorCode")?.as_exact_i64()?).ok()?;
        Some(hit(Code::from_number(code)))
    });
    has_hit.or_else(|| {
        let is_late = cursor.time_left.is_some() && points.enter(TIME_OUT, |_| Some(())).is_some();
        is_late.then(|| out_of_time().caused_by(EXECUTING))
    })
}

/// Adds the label by which a driver resumes a change stream after an error.
fn labelled(error: Error, is_stream: bool) -> Error {
    let label = error_labels::label_of_stream(error.code());
    match label.filter(|_| is_stream && error.labels().is_empty()) {
        Some(label) => error.with_label(label),
        None => error,
    }
}

/// Checks that a cursor belongs to the user, and that the user still has the privileges that were
/// needed to open it.
fn check_owner(id: i64, access: &Access, cursor: &Parked) -> Result<()> {
    match &cursor.owner {
        Some(owner) if owner.user != access.user => Err(not_its_user(id)),
        Some(owner) if !check::still_allows(access, &owner.needs) => Err(not_allowed(id)),
        Some(_) => Ok(()),
        None => Err(not_its_user(id)),
    }
}

/// Returns whether the cursor's documents come directly from a query, not from stages of a
/// pipeline.
fn is_query(cursor: &mut Parked) -> bool {
    let source: Option<&mut PipelineSource> = cursor.source.as_any().downcast_mut();
    source.is_none_or(|source| source.is_query())
}

/// Returns whether the cursor has reached the end of its collection and waits for further
/// documents.
fn tails_on(cursor: &mut Parked) -> bool {
    let source: Option<&mut FindDocuments> = cursor.source.as_any().downcast_mut();
    source.is_some_and(|source| source.tail() != Tail::No && source.execution().has_scanned_all())
}

/// Returns the function that registers the wake-up of the request at the next insert. Only
/// documents after this call wake it.
fn listen(db: &Arc<Db>, cursor: &mut Parked, until: Instant) -> Option<Arm> {
    if let Some(followed) = followed(&mut *cursor.source) {
        let (db, scope, seen) = (db.clone(), followed.scope.clone(), db.oplog().newest());
        return Some(Box::new(move |wake| {
            db.oplog().on_change(scope, seen, until, Box::new(move || wake.wake()));
        }));
    }
    let source: &mut FindDocuments = cursor.source.as_any().downcast_mut()?;
    let collection = source.execution().collection().clone();
    let seen = collection.arrivals();
    Some(Box::new(move |wake| collection.on_insert(seen, until, Box::new(move || wake.wake()))))
}
