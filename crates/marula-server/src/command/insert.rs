//! `insert`: adds documents to a collection, which it creates where there is none.

use marula_bson::{Doc, DocWriter};
use marula_db::write::{InsertReport, check_id, check_in_transaction};
use marula_db::{Collection, Namespace, current};
use marula_error::{Error, Result, errors};
use marula_operation::targets;

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Kind, Outcome, Place};
use crate::auth::check::Check;
use crate::auth::pipeline;
use crate::collection_uuid;
use crate::context::Context;
use crate::request::Request;
use crate::statements;
use crate::write_reply;
use crate::writes;

errors! {
    measurements_in_transaction(ns: &Namespace) = OperationNotSupportedInTransaction, "Cannot insert into a time-series collection in a multi-document transaction: {ns}";
}

pub(super) static COMMAND: Command = Command {
    name: "insert",
    help: "Adds documents to a collection, which it creates where there is none.",
    place: Place::Decides,
    kind: Kind::Insert,
    writes: true,
    takes_write_concern: true,
    is_retryable_write: true,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "insert",
        fields: &[
            Field::required("documents", Types::ARRAY),
            Field::optional("ordered", Types::BOOLEAN),
            Field::optional("bypassDocumentValidation", Types::FLAG),
            writes::BYPASS_EMPTY_TS_REPLACEMENT,
            Field::optional("stmtId", Types::INT),
            Field::optional("stmtIds", Types::ARRAY),
            Field::optional("maxTimeMS", Types::NUMBER),
            Field::optional("collectionUUID", Types::Uuid),
            fields::IS_TIME_SERIES_NAMESPACE,
            fields::ENCRYPTION_INFORMATION,
        ],
    },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

/// Documents that an insert writes on the network worker; more take long enough to delay others.
const INLINE_DOCUMENTS_MAX: usize = 8;
/// Bytes of a message that is handled on the network worker.
const INLINE_BYTES_MAX: usize = 64 * 1024;

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = request.namespace()?;
    let documents = request.documents("documents").expect("the row requires documents");
    // An array of anything else than documents fails as a whole, before any is written.
    let documents: Vec<Doc<'_>> = documents.collect::<Result<_>>()?;
    write_reply::check_batch_size(documents.len())?;
    writes::check_names_buckets(request, &ns)?;
    let is_inline = !ctx.may_wait();
    let bytes: usize = documents.iter().map(|doc| doc.as_bytes().len()).sum();
    let collection = ctx.unit.collection(&ns);
    if is_inline
        && (collection.is_none()
            || documents.len() > INLINE_DOCUMENTS_MAX
            || bytes > INLINE_BYTES_MAX)
    {
        return Ok(Outcome::ToPool);
    }
    ns.check_creatable()?;
    writes::check_target(ctx, &ns)?;
    let ordered = statements::is_ordered(request);
    if let Err(error) = ctx.user_writes().check(ns.db()) {
        return Ok(refuse_each(documents.len(), ordered, &error, reply));
    }
    let collection = match collection {
        Some(collection) => collection,
        None => {
            // Nothing is made where no document can go in.
            let errors = refused_by_id(&documents, ordered);
            if errors.len() == documents.len() || ordered && !errors.is_empty() {
                ctx.server.counters.insert.add(documents.len() as u64);
                reply.append("n", 0);
                ctx.append_op_time(reply);
                write_reply::write_errors(&errors, reply);
                return Ok(Outcome::Done);
            }
            ctx.unit.collection_or_create(&ns)?
        }
    };
    if let Some(buckets) = ctx.server.db.buckets_of(&collection)? {
        if ctx.entered.is_some() {
            let error = measurements_in_transaction(&ns);
            return Err(error.caused_by(&format!("time-series insert failed: {ns}")));
        }
        // Several of them share buckets, which are written one after the other.
        current::end_parking();
        return insert_measurements(ctx, request, &buckets, &documents, ordered, reply);
    }
    let is_meant = collection_uuid::check(ctx, request, &ns);
    let may_write = is_meant
        .and_then(|()| targets::check_not_view(&collection))
        .and_then(|()| check_in_transaction(ctx.unit, &collection));
    if let Err(error) = may_write {
        return Ok(refuse_each(documents.len(), ordered, &error, reply));
    }
    let ids = statements::read_ids(request, documents.len())?;
    let Some(mut op) = writes::begin(ctx, request)? else { return Ok(Outcome::ToPool) };
    op.bypass_validation = request.flag("bypassDocumentValidation");
    op.empty_timestamps = writes::empty_timestamps(request);
    op.may_wait = !is_inline;
    op.ids = ids;
    let mut report = InsertReport::default();
    let outcome = op.insert(&collection, &mut documents.iter().copied(), ordered, &mut report);
    if let Err(error) = outcome {
        if report.inserted == 0 && targets::comes_again(&op, &error) {
            return Ok(Outcome::ToPool);
        }
        return Err(error);
    }
    ctx.server.counters.insert.add(documents.len() as u64);
    ctx.server.counters.documents_inserted.add(report.inserted as u64);
    reply.append(
        "n",
        i32::try_from(report.inserted).expect("a batch has at most 100,000 documents"),
    );
    ctx.append_op_time(reply);
    write_reply::write_errors(&report.errors, reply);
    write_reply::retried(&report.retried, reply);
    Ok(Outcome::Done)
}

/// The documents whose `_id` cannot be one; of an ordered insert the first alone, for those behind
/// it are not looked at.
fn refused_by_id(documents: &[Doc<'_>], ordered: bool) -> Vec<(usize, Error)> {
    let first = if ordered { 1 } else { documents.len() };
    let failure = |(index, doc): (usize, &Doc<'_>)| {
        let error = check_id(doc.get("_id")?).err()?;
        Some((index, error))
    };
    documents.iter().take(first).enumerate().filter_map(failure).collect()
}

/// Answers that each document has failed on its own.
fn refuse_each(
    documents: usize,
    ordered: bool,
    error: &Error,
    reply: &mut DocWriter<'_>,
) -> Outcome {
    let failed = if ordered { 1 } else { documents };
    let errors: Vec<_> = (0..failed).map(|index| (index, error.clone())).collect();
    reply.append("n", 0);
    write_reply::write_errors(&errors, reply);
    Outcome::Done
}

/// Inserts into a time-series collection.
fn insert_measurements(
    ctx: &mut Context<'_>,
    request: &Request<'_>,
    buckets: &Collection,
    documents: &[Doc<'_>],
    ordered: bool,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    if !ctx.may_wait() {
        return Ok(Outcome::ToPool);
    }
    let ids = statements::read_ids(request, documents.len())?;
    let Some(mut op) = writes::begin(ctx, request)? else { return Ok(Outcome::ToPool) };
    op.ids = ids;
    let mut report = InsertReport::default();
    let docs = &mut documents.iter().copied();
    op.insert_measurements(buckets, docs, ordered, &mut report)?;
    ctx.server.counters.insert.add(documents.len() as u64);
    ctx.server.counters.documents_inserted.add(report.inserted as u64);
    // As mongod does, an ordered insert counts the documents that it was given, whatever became of
    // them.
    let count = if ordered { documents.len() } else { report.inserted };
    reply.append("n", i32::try_from(count).expect("a batch has at most 100,000 documents"));
    ctx.append_op_time(reply);
    write_reply::write_errors(&report.errors, reply);
    Ok(Outcome::Done)
}

/// What a user needs to insert.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let ns = request.namespace()?;
    let bypasses = request.flag("bypassDocumentValidation");
    pipeline::write(ns.db(), ns.collection(), &["insert"], bypasses, check);
    Ok(())
}
