//! `update`: changes documents, or inserts one where none matches and the statement says `upsert`.

use marula_bson::{Doc, DocWriter, Value, ValueBuf};
use marula_db::session::Done;
use marula_error::{Error, Result, errors};
use marula_query::stage::Pipeline;
use marula_query::update::check_array_filters;

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Kind, Outcome, Place};
use crate::context::Context;
use crate::request::Request;
use crate::update_one::{Statement, Updated};
use crate::write_reply::{self, StatementIds, clamp};
use crate::writes::{self, multi_not_retryable};

errors! {
    update_type() = FailedToParse, "Update argument must be either an object or an array";
}

pub(super) static COMMAND: Command = Command {
    name: "update",
    help: "Changes documents; each statement says which and how, and whether to insert where none matches.",
    place: Place::Decides,
    kind: Kind::Update,
    writes: true,
    takes_write_concern: true,
    is_retryable_write: true,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "update",
        fields: &[
            Field::required("updates", Types::ARRAY),
            Field::optional("ordered", Types::BOOLEAN),
            Field::optional("bypassDocumentValidation", Types::FLAG),
            Field::optional("let", Types::DOCUMENT),
            Field::optional("runtimeConstants", Types::DOCUMENT),
            Field::optional("stmtId", Types::Any),
            Field::optional("stmtIds", Types::ARRAY),
            Field::optional("collectionUUID", Types::Any),
            Field::optional("encryptionInformation", Types::DOCUMENT),
        ],
    },
    auth: Auth::Collection(&["update"]),
    run,
    ..Command::DEFAULT
};

/// The place that messages name for a statement.
const STATEMENT_PLACE: &str = "update.updates";

const STATEMENT_FIELDS: &[Field] = &[
    Field::required("q", Types::DOCUMENT),
    Field::required("u", Types::Any),
    Field::optional("c", Types::DOCUMENT),
    Field::optional("arrayFilters", Types::ARRAY),
    Field::optional("hint", Types::Any),
    Field::optional("multi", Types::BOOLEAN),
    Field::optional("upsert", Types::BOOLEAN),
    Field::optional("upsertSupplied", Types::BOOLEAN),
    Field::optional("collation", Types::DOCUMENT),
];

/// Checks the form of a statement. What is wrong in it fails the whole command before anything is written.
fn check_statement(statement: Doc<'_>) -> Result<()> {
    if statement.get("u") == Some(Value::Null) {
        return Err(update_type());
    }
    fields::check_doc(STATEMENT_PLACE, STATEMENT_FIELDS, statement)?;
    match statement.get("u") {
        Some(Value::Document(_)) => {}
        Some(Value::Array(stages)) => Pipeline::check_form(stages)?,
        _ => return Err(update_type()),
    }
    match statement.get("arrayFilters") {
        Some(Value::Array(filters)) => check_array_filters(STATEMENT_PLACE, filters),
        _ => Ok(()),
    }
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = request.namespace()?;
    writes::check_writable(&ns)?;
    let statements = request.documents("updates").expect("the row requires updates");
    let statements: Vec<Doc<'_>> = statements.collect::<Result<_>>()?;
    write_reply::check_batch_size(statements.len())?;
    for statement in &statements {
        check_statement(*statement)?;
    }
    let is_inline = !ctx.may_wait();
    if is_inline && statements.len() > 1 {
        return Ok(Outcome::ToPool);
    }
    let ordered = request.arg("ordered").is_none_or(|ordered| ordered.is_truthy());
    let ids = StatementIds::read(
        request.arg("stmtId").and_then(|id| id.as_exact_i64()),
        request.arg("stmtIds").and_then(|ids| ids.as_array()),
        statements.len(),
    )?;
    let is_multi = |fields: &Doc<'_>| fields.get("multi").is_some_and(|multi| multi.is_truthy());
    let Some(mut op) = writes::begin(ctx, request)? else { return Ok(Outcome::ToPool) };
    op.bypass_validation = request.flag("bypassDocumentValidation");
    op.may_wait = !is_inline;

    let (mut matched, mut modified) = (0i64, 0i64);
    let mut upserted: Vec<(usize, ValueBuf)> = Vec::new();
    let mut errors: Vec<(usize, Error)> = Vec::new();
    let mut retried = Vec::new();
    for (index, fields) in statements.iter().enumerate() {
        let statement = Statement {
            query: fields.get("q").and_then(|query| query.as_doc()).unwrap_or(Doc::EMPTY),
            update: fields.get("u").unwrap_or(Value::Null),
            constants: fields.get("c").and_then(|constants| constants.as_doc()),
            array_filters: fields.get("arrayFilters").and_then(|filters| filters.as_array()),
            hint: fields.get("hint"),
            collation: fields.get("collation"),
            let_variables: request.arg("let"),
            multi: is_multi(fields),
            upsert: fields.get("upsert").is_some_and(|upsert| upsert.is_truthy()),
            number: ids.at(index),
        };
        let outcome = match op
            .numbered
            .as_ref()
            .and_then(|numbered| numbered.done(statement.number))
        {
            Some(Done::Updated { matched, modified, upserted }) => {
                retried.push(statement.number);
                Ok(Updated { matched: *matched, modified: *modified, upserted: upserted.clone() })
            }
            Some(_) => Err(writes::mismatch(&op, statement.number)),
            None if statement.multi && op.numbered.is_some() => Err(multi_not_retryable("true")),
            None => match statement.run(ctx, &ns, &mut op) {
                Ok(Some(updated)) => Ok(updated),
                Ok(None) => return Ok(Outcome::ToPool),
                Err(error) => Err(error),
            },
        };
        match outcome {
            Ok(updated) => {
                matched += updated.matched;
                modified += updated.modified;
                if let Some(id) = updated.upserted {
                    upserted.push((index, id));
                }
            }
            Err(error) if is_inline && writes::would_wait(&error) => return Ok(Outcome::ToPool),
            Err(error) if write_reply::ends_command(&error) => return Err(error),
            Err(error) => {
                errors.push((index, error));
                if ordered {
                    break;
                }
            }
        }
    }
    ctx.server.counters.update.add(statements.len() as u64);
    ctx.server.counters.documents_updated.add(modified.unsigned_abs());
    reply.append("n", clamp(matched));
    write_reply::write_errors(&errors, reply);
    write_reply::retried(&retried, reply);
    if !upserted.is_empty() {
        let mut list = reply.begin_array("upserted");
        for (index, id) in &upserted {
            let mut item = list.begin_doc();
            item.append("index", clamp(i64::try_from(*index).unwrap_or(i64::MAX)));
            item.append("_id", id);
        }
    }
    reply.append("nModified", clamp(modified));
    Ok(Outcome::Done)
}
