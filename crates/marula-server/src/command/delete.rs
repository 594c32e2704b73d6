//! `delete`: removes documents. Each statement is a [`DeleteOp`].

use marula_bson::{Doc, DocWriter, Value, doc};
use marula_error::{Result, errors};
use marula_operation::Progress;
use marula_operation::delete::{ACTIONS, DeleteOp, recorded};
use marula_operation::statements::run_all;
use marula_query::expression::short_double_text;

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Kind, Outcome, Place};
use crate::collection_uuid;
use crate::context::Context;
use crate::ended::Counts;
use crate::request::Request;
use crate::statements;
use crate::write_reply::{self, clamp};
use crate::writes;

errors! {
    bad_limit(limit: &str) = FailedToParse, "The limit field in delete objects must be 0 or 1. Got {limit}";
}

pub(super) static COMMAND: Command = Command {
    name: "delete",
    help: "Removes documents; each statement says which, and whether one or all that match.",
    place: Place::Decides,
    kind: Kind::Delete,
    writes: true,
    takes_write_concern: true,
    is_retryable_write: true,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "delete",
        fields: &[
            Field::required("deletes", Types::ARRAY),
            Field::optional("ordered", Types::BOOLEAN),
            Field::optional("bypassDocumentValidation", Types::FLAG),
            writes::BYPASS_EMPTY_TS_REPLACEMENT,
            Field::optional("let", Types::DOCUMENT),
            fields::RUNTIME_CONSTANTS,
            Field::optional("stmtId", Types::INT),
            Field::optional("stmtIds", Types::ARRAY),
            Field::optional("collectionUUID", Types::Uuid),
            fields::IS_TIME_SERIES_NAMESPACE,
            fields::ENCRYPTION_INFORMATION,
        ],
    },
    auth: Auth::Collection(ACTIONS),
    run,
    ..Command::DEFAULT
};

/// The place that messages name for a statement.
const STATEMENT_PLACE: &str = "delete.deletes";

const STATEMENT_FIELDS: &[Field] = &[
    Field::required("q", Types::DOCUMENT),
    Field::required("limit", Types::Any),
    Field::optional("hint", Types::Hint),
    Field::optional("collation", Types::DOCUMENT),
];

/// Checks the form of a statement.
pub(super) fn check_statement(statement: Doc<'_>) -> Result<()> {
    fields::check_doc(STATEMENT_PLACE, STATEMENT_FIELDS, statement)
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = request.namespace()?;
    writes::check_names_buckets(request, &ns)?;
    writes::check_target(ctx, &ns)?;
    let statements = request.documents("deletes").expect("the row requires deletes");
    let statements: Vec<Doc<'_>> = statements.collect::<Result<_>>()?;
    write_reply::check_batch_size(statements.len())?;
    let mut deletes = Vec::with_capacity(statements.len());
    for statement in &statements {
        check_statement(*statement)?;
        deletes.push(read_statement(statement, request)?);
    }
    if !ctx.may_wait() && statements.len() > 1 {
        return Ok(Outcome::ToPool);
    }
    let ids = statements::read_ids(request, statements.len())?;
    let collection = ctx.unit.collection(&ns);
    let Some(mut op) = writes::begin(ctx, request)? else { return Ok(Outcome::ToPool) };
    op.ids = ids;
    let mut deleted = 0;
    let report = run_all(
        statements.len(),
        statements::is_ordered(request),
        &mut op,
        recorded,
        |index, op| {
            let statement = DeleteOp { number: op.ids.at(index), ..deletes[index] };
            let outcome = collection_uuid::check(ctx, request, &ns)
                .and_then(|()| statement.run(&ctx.env(), &ns, collection.as_ref(), op));
            if let Some(statements) = &mut ctx.statements {
                let command = doc! { "q": statement.query, "limit": i32::from(!statement.multi) };
                let counts = outcome.as_ref().map(|deleted| match deleted {
                    Progress::Done(count) => Counts { matched: *count, ..Counts::default() },
                    Progress::NeedsPool => Counts::default(),
                });
                let tally = &ctx.connection.operation.tally;
                statements.note(command, counts.map_err(Clone::clone), tally);
            }
            outcome
        },
        |_, count| deleted += count,
    )?;
    let Progress::Done(report) = report else { return Ok(Outcome::ToPool) };
    ctx.server.counters.delete.add(statements.len() as u64);
    ctx.server.counters.documents_deleted.add(deleted.unsigned_abs());
    reply.append("n", clamp(deleted));
    ctx.append_op_time(reply);
    write_reply::write_errors(&report.errors, reply);
    write_reply::retried(&report.retried, reply);
    Ok(Outcome::Done)
}

/// Reads a statement whose form is checked.
///
/// Errors: `bad_limit`.
pub(super) fn read_statement<'a>(fields: &Doc<'a>, request: &Request<'a>) -> Result<DeleteOp<'a>> {
    Ok(DeleteOp {
        query: fields.get("q").and_then(|query| query.as_doc()).unwrap_or(Doc::EMPTY),
        hint: fields.get("hint"),
        collation: fields.get("collation"),
        let_variables: request.arg("let"),
        multi: is_multi(fields.get("limit").unwrap_or(Value::Null))?,
        number: 0,
    })
}

/// Returns whether a statement's `limit` means all documents that match.
///
/// Errors: `bad_limit`.
fn is_multi(limit: Value<'_>) -> Result<bool> {
    match limit.as_f64() {
        None => Ok(true),
        Some(0.0) => Ok(true),
        Some(1.0) => Ok(false),
        Some(number) => Err(bad_limit(&match limit {
            Value::Double(_) => short_double_text(number),
            other => other.to_string(),
        })),
    }
}
