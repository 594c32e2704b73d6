//! `delete`: removes documents. Each statement is executed by a [`DeleteOp`].

use marula_bson::{Doc, DocBuf, DocWriter, Value};
use marula_db::session::Done;
use marula_db::{Namespace, WriteOp};
use marula_error::{Result, errors};
use marula_operation::Env;
use marula_operation::delete::{ACTIONS, DeleteOp, recorded};
use marula_query::expression::short_double_text;

use super::fields::{self, Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Kind, Outcome};
use crate::context::Context;
use crate::counters::Counter;
use crate::ended::Counts;
use crate::request::Request;
use crate::statements::{Batch, Statement, show_hint};
use crate::write_reply::{self, clamp};
use crate::writes;

errors! {
    bad_limit(limit: &str) = FailedToParse, "The limit field in delete objects must be 0 or 1. Got {limit}";
}

pub(super) static COMMAND: Command = Command {
    name: "delete",
    help: "Removes documents; each statement has a filter, and removes one or all matching documents.",
    place: CommandPlace::Decides,
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

/// The path of a statement in error messages.
const STATEMENT_PLACE: &str = "delete.deletes";

const STATEMENT_FIELDS: &[Field] = &[
    Field::required("q", Types::DOCUMENT),
    Field::required("limit", Types::Any).checked(|_, limit| is_multi(limit).map(drop)),
    Field::optional("hint", Types::Hint),
    Field::optional("collation", Types::DOCUMENT),
];

/// Checks the form of a statement.
pub(super) fn check_statement(statement: Doc<'_>) -> Result<()> {
    fields::check_doc(STATEMENT_PLACE, STATEMENT_FIELDS, statement)
}

fn run<'r>(
    ctx: &mut Context<'_>,
    request: &Request<'r>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let check = |statement: Doc<'r>| {
        check_statement(statement)?;
        read_statement(&statement, request).map(drop)
    };
    let batch = Batch::read(ctx, request, "deletes", check)?;
    let mut deleted = 0;
    // A run that is postponed counts nothing.
    let of_many = Counter::default();
    let read = |statement: Doc<'r>, number| {
        let op = read_statement(&statement, request)?;
        of_many.add_if(op.multi);
        Ok(DeleteOp { number, ..op })
    };
    let mut deleted_now = 0;
    let report = batch.execute(ctx, request, read, |_, count: i64, is_executed| {
        deleted += count;
        deleted_now += if is_executed { count } else { 0 };
    })?;
    let counters = &ctx.server.counters;
    counters.delete.add(report.executed);
    counters.deletes_of_many.add_all_of(&of_many);
    counters.documents_deleted.add(deleted_now.unsigned_abs());
    counters.user_errors.add(report.errors.len() as u64);
    if request.is_unacknowledged() {
        reply.append("n", 0);
        return Ok(Outcome::Done);
    }
    reply.append("n", clamp(deleted));
    ctx.append_op_time(reply);
    write_reply::write_errors(&report.errors, reply);
    write_reply::retried(&report.retried, reply);
    Ok(Outcome::Done)
}

/// Returns a statement as the log shows it; `None` if it is not valid.
pub(crate) fn shown<'r>(request: &Request<'r>, statement: Doc<'r>) -> Option<DocBuf> {
    let op = read_statement(&statement, request).ok()?;
    Some(DocBuf::build(|out| op.show(out)))
}

impl Statement for DeleteOp<'_> {
    type Output = i64;

    fn recorded(done: &Done) -> Result<i64> {
        Ok(recorded(done))
    }

    fn run(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<i64> {
        DeleteOp::run(self, env, ns, op)
    }

    fn show(&self, out: &mut DocWriter<'_>) {
        out.append("q", self.query).append("limit", i32::from(!self.multi));
        show_hint(self.hint, out);
        if let Some(collation) = self.collation {
            out.append("collation", collation);
        }
    }

    fn counts(deleted: &i64) -> Counts {
        Counts { matched: *deleted, ..Counts::default() }
    }
}

/// Parses a statement whose form has been checked.
///
/// Errors: `bad_limit`.
pub(super) fn read_statement<'a>(
    statement: &Doc<'a>,
    request: &Request<'a>,
) -> Result<DeleteOp<'a>> {
    let given = |name| fields::given(*statement, name);
    Ok(DeleteOp {
        query: given("q").and_then(|query| query.as_doc()).unwrap_or(Doc::EMPTY),
        hint: given("hint"),
        collation: given("collation"),
        let_variables: request.arg("let"),
        multi: is_multi(given("limit").unwrap_or(Value::Null))?,
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
        Some(number) => Err(bad_limit(&short_double_text(number))),
    }
}
