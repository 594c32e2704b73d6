//! `delete`: removes documents.

use std::sync::Arc;

use marula_bson::{Doc, DocWriter, Value, doc};
use marula_db::session::Done;
use marula_db::{Collection, Namespace, WriteOp};
use marula_error::{Result, errors};
use marula_operation::args;
use marula_plan::{End, Execution, Patience, Query, Wording, choice, planner, query};
use marula_query::expression::short_double_text;
use marula_query::filter::Filter;

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Kind, Outcome, Place};
use crate::collection_uuid;
use crate::context::Context;
use crate::ended::Counts;
use crate::request::Request;
use crate::statements;
use crate::time_series;
use crate::update_one::{gather, next_record};
use crate::write_reply::{self, clamp};
use crate::writes::{self, multi_not_retryable};

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
    auth: Auth::Collection(&["remove"]),
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
    let mut multi = Vec::with_capacity(statements.len());
    for statement in &statements {
        check_statement(*statement)?;
        multi.push(is_multi(statement.get("limit").unwrap_or(Value::Null))?);
    }
    if !ctx.may_wait() && statements.len() > 1 {
        return Ok(Outcome::ToPool);
    }
    let ids = statements::read_ids(request, statements.len())?;
    let collection = ctx.unit.collection(&ns);
    let Some(mut op) = writes::begin(ctx, request)? else { return Ok(Outcome::ToPool) };
    op.ids = ids;
    let mut deleted = 0;
    let report = statements::run_all(
        statements.len(),
        statements::is_ordered(request),
        &mut op,
        recorded,
        |index, op| {
            let fields = &statements[index];
            let statement = Statement {
                query: fields.get("q").and_then(|query| query.as_doc()).unwrap_or(Doc::EMPTY),
                hint: fields.get("hint"),
                collation: fields.get("collation"),
                let_variables: request.arg("let"),
                multi: multi[index],
                number: op.ids.at(index),
            };
            let outcome = collection_uuid::check(ctx, request, &ns)
                .and_then(|()| statement.run(ctx, &ns, collection.as_ref(), op));
            if let Some(statements) = &mut ctx.statements {
                let command = doc! { "q": statement.query, "limit": i32::from(!statement.multi) };
                let counts = outcome
                    .as_ref()
                    .map(|count| Counts { matched: count.unwrap_or(0), ..Counts::default() });
                let tally = &ctx.connection.operation.tally;
                statements.note(command, counts.map_err(Clone::clone), tally);
            }
            outcome
        },
        |_, count| deleted += count,
    )?;
    let Some(report) = report else { return Ok(Outcome::ToPool) };
    ctx.server.counters.delete.add(statements.len() as u64);
    ctx.server.counters.documents_deleted.add(deleted.unsigned_abs());
    reply.append("n", clamp(deleted));
    ctx.append_op_time(reply);
    write_reply::write_errors(&report.errors, reply);
    write_reply::retried(&report.retried, reply);
    Ok(Outcome::Done)
}

/// Whether a statement's `limit` means all that match.
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

/// What a session's record says that a delete did; `None` where it is of another kind of write.
pub(super) fn recorded(done: &Done) -> Option<i64> {
    match done {
        Done::Deleted(count) => Some(*count),
        _ => None,
    }
}

/// One statement of a `delete`.
pub(super) struct Statement<'a> {
    pub(super) query: Doc<'a>,
    pub(super) hint: Option<Value<'a>>,
    pub(super) collation: Option<Value<'a>>,
    pub(super) let_variables: Option<Value<'a>>,
    pub(super) multi: bool,
    pub(super) number: i32,
}

impl Statement<'_> {
    /// Runs the statement; answers how many documents were deleted, or `None` where it is not for a
    /// network worker.
    pub(super) fn run(
        &self,
        ctx: &Context<'_>,
        ns: &Namespace,
        collection: Option<&Arc<Collection>>,
        op: &mut WriteOp<'_>,
    ) -> Result<Option<i64>> {
        if self.multi && op.numbered.is_some() {
            return Err(multi_not_retryable("true"));
        }
        let context = ctx.env().context(
            collection.map(|collection| &**collection),
            self.collation,
            self.let_variables,
        )?;
        let filter = Filter::parse(self.query, &context)?;
        let Some(collection) = collection else {
            args::check_text_without_collection(&filter, ns)?;
            op.record_only(&[(self.number, Done::Deleted(0))])?;
            return Ok(Some(0));
        };
        if let Some(buckets) = ctx.server.db.buckets_of(collection)? {
            let statement = time_series::write::Delete {
                query: self.query,
                hint: self.hint,
                collation: self.collation,
                let_variables: self.let_variables,
                multi: self.multi,
                number: self.number,
            };
            return match op.may_wait {
                true => time_series::write::delete(ctx, &buckets, &statement, op).map(Some),
                false => Ok(None),
            };
        }
        writes::check_not_view(collection)?;
        if !op.may_wait && self.multi {
            return Ok(None);
        }
        let mut execution = match query::id_equality(self.query) {
            Some(id) if self.hint.is_none() && context.collation.is_none() => {
                let query = Query::new(Filter::everything(&context), context);
                Execution::new(collection.clone(), planner::plan_id(id.to_buf()), query)
            }
            _ => {
                let mut query = Query::new(filter.clone(), context);
                query.hint = args::parse_hint(self.hint)?;
                let mut interrupt = || ctx.check_interrupt();
                let wording = Wording::of(self.query, self.collation);
                let may_wait = op.may_wait;
                let patience = Patience::all_or_none(may_wait);
                let chosen = choice::choose(
                    ctx.unit,
                    collection,
                    query,
                    &wording,
                    patience,
                    &mut interrupt,
                )?;
                let Some(execution) = chosen else { return Ok(None) };
                execution
            }
        };
        if self.multi {
            return delete_all(ctx, &filter, &mut execution, op).map(Some);
        }
        execution.give_candidates();
        let done = || Done::Deleted(1);
        while let Some(record) = next_record(ctx, &mut execution)? {
            let statement = Some((self.number, &done as &dyn Fn() -> Done));
            if op.delete(collection, &record, &mut |doc| filter.matches(doc), statement)? {
                return Ok(Some(1));
            }
        }
        op.record_only(&[(self.number, Done::Deleted(0))])?;
        Ok(Some(0))
    }
}

/// Deletes every document that matches, a batch of records at a time.
fn delete_all(
    ctx: &Context<'_>,
    filter: &Filter,
    execution: &mut Execution,
    op: &mut WriteOp<'_>,
) -> Result<i64> {
    let mut deleted = 0;
    loop {
        let (records, end) = gather(ctx, execution);
        for record in &records {
            let mut is_wanted = |doc: Doc<'_>| filter.matches(doc);
            deleted +=
                i64::from(op.delete(execution.collection(), record, &mut is_wanted, None)?);
            ctx.check_interrupt()?;
        }
        if end? == End::Exhausted {
            return Ok(deleted);
        }
    }
}
