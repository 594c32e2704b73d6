//! `findAndModify`: updates, replaces, inserts or removes one document and returns it, using
//! [`FindAndModifyOp`].

use marula_bson::{Doc, DocWriter, Value};
use marula_db::Namespace;
use marula_error::{Result, errors};
use marula_operation::find_and_modify::{FindAndModifyOp, actions};

use super::fields::{self, Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Outcome};
use crate::auth::check::Check;
use crate::auth::pipeline;
use crate::context::Context;
use crate::counters::Counters;
use crate::request::Request;
use crate::statements;
use crate::writes;

errors! {
    system_in_transaction(ns: &Namespace) = 50_781, "Cannot write to system collection {ns} within a transaction.";
}

pub(super) static COMMAND: Command = Command {
    name: "findAndModify",
    aliases: &["findandmodify"],
    help: "Updates or removes one document and returns it in its state before or after the change.",
    place: CommandPlace::Decides,
    writes: true,
    takes_write_concern: true,
    write_concern_is_field: true,
    is_retryable_write: true,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "findAndModify",
        fields: &[
            Field::optional("query", Types::DOCUMENT),
            Field::optional("fields", Types::DOCUMENT),
            Field::optional("sort", Types::DOCUMENT),
            Field::optional("hint", Types::Hint),
            Field::optional("collation", Types::DOCUMENT),
            Field::optional("arrayFilters", Types::Documents),
            Field::optional("remove", Types::FLAG),
            Field::optional("update", Types::Any),
            Field::optional("upsert", Types::FLAG),
            Field::optional("new", Types::FLAG),
            Field::optional("bypassDocumentValidation", Types::FLAG),
            writes::BYPASS_EMPTY_TS_REPLACEMENT,
            Field::optional("let", Types::DOCUMENT),
            fields::RUNTIME_CONSTANTS,
            Field::optional("stmtId", Types::INT),
            // These fields are accepted and have no effect.
            Field::optional("batchSize", Types::INT),
            Field::optional("singleBatch", Types::Any),
            Field::optional("maxTimeMS", Types::NUMBER),
            fields::ENCRYPTION_INFORMATION,
        ],
    },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = request.namespace()?;
    if ctx.entered.is_some() && writes::is_system(&ns) {
        writes::check_writable(&ns)?;
        return Err(system_in_transaction(&ns));
    }
    writes::check_target(ctx, &ns)?;
    let args = FindAndModifyOp::parse(request, statements::read_id(request))?;
    let mut op = writes::begin(ctx, request)?;
    let numbered = op.numbered.as_ref();
    if let Some(done) = numbered.and_then(|numbered| numbered.done(args.statement)) {
        reply.append_elements(args.recorded(done)?.as_doc().elements_bytes());
        reply.append("retriedStmtId", args.statement);
        return Ok(Outcome::Done);
    }
    let answer = args.run(&ctx.env(), &ns, &mut op)?;
    let is_pipeline = args.update.is_some_and(|update| update.as_array().is_some());
    let forms = &ctx.server.counters.find_and_modify_forms;
    forms.note(false, is_pipeline, args.has_array_filters());
    count(&ctx.server.counters, answer.as_doc());
    reply.append_elements(answer.as_doc().elements_bytes());
    Ok(Outcome::Done)
}

/// Counts the document that was updated or removed.
fn count(counters: &Counters, answer: Doc<'_>) {
    let Some(Value::Document(done)) = answer.get("lastErrorObject") else { return };
    match done.get("updatedExisting") {
        Some(updated) => counters.documents_updated.add_if(updated.is_truthy()),
        None => counters.documents_deleted.add_if(done.get("n").is_some_and(|n| n.is_truthy())),
    }
}

/// Requires the privileges to find, and to update or remove.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let ns = request.namespace()?;
    let bypasses = request.flag("bypassDocumentValidation");
    let actions = actions(request.flag("remove"), request.flag("upsert"));
    pipeline::write(ns.db(), ns.collection(), actions, bypasses, check);
    Ok(())
}
