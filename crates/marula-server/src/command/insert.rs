//! `insert`: inserts documents into a collection, which it creates if it does not exist.

use marula_bson::DocWriter;
use marula_error::Result;
use marula_operation::insert::{ACTIONS, InsertOp, Inserted};

use super::fields::{self, Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Kind, Outcome};
use crate::auth::check::Check;
use crate::auth::pipeline;
use crate::collection_uuid;
use crate::context::Context;
use crate::request::Request;
use crate::statements::{self, Batch};
use crate::write_reply;
use crate::writes;

pub(super) static COMMAND: Command = Command {
    name: "insert",
    help: "Inserts documents into a collection, which it creates if it does not exist.",
    place: CommandPlace::Decides,
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

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let batch = Batch::read(ctx, request, "documents", |_| Ok(()))?;
    let mut op = batch.begin(ctx, request)?;
    let Batch { ns, statements: documents, .. } = &batch;
    let check_uuid: &dyn Fn() -> Result<()> = &|| collection_uuid::check(ctx, request, ns);
    let is_ordered = statements::is_ordered(request);
    let insert = InsertOp { documents, is_ordered, check_uuid: Some(check_uuid) };
    let Inserted { report, counted } = insert.run(&ctx.env(), ns, &mut op)?;
    let counters = &ctx.server.counters;
    let stopped = report.errors.last().filter(|_| is_ordered).map(|(position, _)| position + 1);
    let reached = stopped.unwrap_or(documents.len());
    counters.insert.add(reached.saturating_sub(report.retried.len()) as u64);
    counters.documents_inserted.add(report.inserted.saturating_sub(report.retried.len()) as u64);
    counters.user_errors.add(report.errors.len() as u64);
    if request.is_unacknowledged() {
        reply.append("n", 0);
        return Ok(Outcome::Done);
    }
    reply.append("n", i32::try_from(counted).expect("a batch has at most 100,000 documents"));
    ctx.append_op_time(reply);
    write_reply::write_errors(&report.errors, reply);
    write_reply::retried(&report.retried, reply);
    Ok(Outcome::Done)
}

/// Requires the privileges to insert.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let ns = request.namespace()?;
    let bypasses = request.flag("bypassDocumentValidation");
    pipeline::write(ns.db(), ns.collection(), ACTIONS, bypasses, check);
    Ok(())
}
