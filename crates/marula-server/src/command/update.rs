//! `update`: updates documents, or inserts one if none matches and the statement has `upsert`.

use marula_bson::{ByteSlice, Doc, DocBuf, DocWriter, Element, Value, ValueBuf, long};
use marula_db::session::Done;
use marula_db::{Namespace, WriteOp};
use marula_error::{Result, errors};
use marula_operation::update::{UpdateOp, Updated, actions};
use marula_operation::{Env, aggregate};
use marula_query::feature_version::FeatureVersion;
use marula_query::stage::Pipeline;
use marula_query::update::bad_update;

use super::fields::{self, Field, Types};
use super::{Auth, Command, CommandPlace, Fields, Kind, Outcome};
use crate::auth::check::Check;
use crate::auth::pipeline;
use crate::context::Context;
use crate::counters::UpdateForms;
use crate::ended::Counts;
use crate::request::Request;
use crate::statements::{Batch, Statement, show_hint};
use crate::write_reply::{self, clamp};
use crate::writes;

errors! {
    supplied_without_upsert() = FailedToParse, "cannot specify 'upsertSupplied: true' for a non-upsert operation";
    nothing_supplied() = FailedToParse, "the parameter 'upsertSupplied' is set to 'true', but no document was supplied";
    sorted_multi() = FailedToParse, "a sort chooses the one document to change: it does not go with multi: true";
}

pub(super) static COMMAND: Command = Command {
    name: "update",
    help: "Updates documents; each statement has a filter and an update, and may insert a document if none matches.",
    place: CommandPlace::Decides,
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
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

/// The path of a statement in error messages.
const STATEMENT_PLACE: &str = "update.updates";

const STATEMENT_FIELDS: &[Field] = &[
    Field::required("q", Types::DOCUMENT),
    Field::required("u", Types::Update)
        .checked(|_, update| update.as_array().map_or(Ok(()), Pipeline::check_objects)),
    Field::optional("c", Types::DOCUMENT),
    Field::optional("arrayFilters", Types::Documents),
    Field::optional("hint", Types::Hint),
    Field::optional("multi", Types::BOOLEAN),
    Field::optional("upsert", Types::BOOLEAN),
    Field::optional("upsertSupplied", Types::Switch),
    Field::optional("collation", Types::DOCUMENT),
    Field::optional("sort", Types::DOCUMENT).since(FeatureVersion::V8_0),
];

/// Checks the form of a statement. An error fails the whole command before anything is written.
pub(super) fn check_statement(statement: Doc<'_>, version: FeatureVersion) -> Result<()> {
    check_shape(statement, version)?;
    match statement.get("u") {
        Some(Value::Array(stages)) => Pipeline::check_form(stages, version),
        _ => Ok(()),
    }
}

/// Does the same as [`check_statement`], without the check of the stages' names.
fn check_shape(statement: Doc<'_>, version: FeatureVersion) -> Result<()> {
    fields::check_doc_in(version, STATEMENT_PLACE, STATEMENT_FIELDS, statement)?;
    check_parts(statement, "u", |_| Ok(()))
}

/// Checks the names of all stages of the statements' pipelines, including nested pipelines.
///
/// mongod does this after the writes, for its counters: the command fails, and the writes of its
/// statements stay.
fn check_stages(ctx: &Context<'_>, ns: &Namespace, statements: &[Doc<'_>]) -> Result<()> {
    let pipelines = statements.iter().filter_map(|statement| statement.get("u")?.as_array());
    for stages in pipelines {
        let mut context = ctx.env().context(None, None, None)?;
        context.subject = Some(aggregate::subject(ns, false));
        Pipeline::check_outline(stages, &context)?;
    }
    Ok(())
}

/// Checks that a statement's fields are compatible; `update_field` is the name of the field with
/// the update.
pub(super) fn check_update(
    statement: Doc<'_>,
    update_field: &str,
    version: FeatureVersion,
) -> Result<()> {
    check_parts(statement, update_field, |stages| Pipeline::check_form(stages, version))
}

fn check_parts(
    statement: Doc<'_>,
    update_field: &str,
    check_pipeline: impl Fn(Doc<'_>) -> Result<()>,
) -> Result<()> {
    let mut update = None;
    let (mut is_sorted, mut is_multi) = (false, false);
    for Element { name, value } in statement.iter().filter(|it| !it.value.get().is_nullish()) {
        match name.as_bytes() {
            b"sort" => is_sorted = true,
            b"multi" => is_multi = value.get().is_truthy(),
            _ if name == update_field => update = Some(value.get()),
            _ => {}
        }
    }
    if is_sorted && is_multi {
        return Err(sorted_multi());
    }
    match update {
        Some(Value::Document(_)) => Ok(()),
        Some(Value::Array(stages)) => check_pipeline(stages),
        _ => Err(bad_update()),
    }
}

/// A statement whose form has been checked, and its fields as the client wrote them.
pub(super) struct WordedUpdate<'a> {
    fields: Doc<'a>,
    /// The operation.
    pub(super) op: UpdateOp<'a>,
    /// Whether an upsert inserts a document of the client's: `upsertSupplied`.
    is_supplied: bool,
}

impl<'a> WordedUpdate<'a> {
    /// Reads a statement, in one walk over its fields.
    pub(super) fn read(fields: Doc<'a>, request: &Request<'a>, number: i32) -> Self {
        let mut op = UpdateOp {
            let_variables: request.arg("let"),
            number,
            ..UpdateOp::of_one(Doc::EMPTY, Value::Null)
        };
        let mut is_supplied = false;
        // Null counts as absent, also next to a value.
        for Element { name, value } in fields.iter().filter(|it| !it.value.get().is_nullish()) {
            let value = value.get();
            match name.as_bytes() {
                b"q" => op.query = value.as_doc().unwrap_or(Doc::EMPTY),
                b"u" => op.update = value,
                b"c" => op.constants = value.as_doc(),
                b"arrayFilters" => op.array_filters = value.as_array(),
                b"hint" => op.hint = Some(value),
                b"sort" => op.sort = value.as_doc(),
                b"collation" => op.collation = Some(value),
                b"multi" => op.multi = value.is_truthy(),
                b"upsert" => op.upsert = value.is_truthy(),
                b"upsertSupplied" => is_supplied = value.is_truthy(),
                _ => {}
            }
        }
        if is_supplied {
            op.supplied = op.constants.and_then(|constants| constants.get("new")?.as_doc());
        }
        WordedUpdate { fields, op, is_supplied }
    }

    /// Checks that `upsertSupplied` comes with a document and with `upsert`.
    pub(super) fn check_supplied(&self) -> Result<()> {
        match self.op.supplied {
            _ if !self.is_supplied => Ok(()),
            _ if !self.op.upsert => Err(supplied_without_upsert()),
            None => Err(nothing_supplied()),
            Some(_) => Ok(()),
        }
    }
}

fn run<'r>(
    ctx: &mut Context<'_>,
    request: &Request<'r>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let check = |statement: Doc<'_>| check_shape(statement, request.version);
    let batch = Batch::read(ctx, request, "updates", check)?;
    let (mut matched, mut modified) = (0i64, 0i64);
    let mut upserted: Vec<(usize, ValueBuf)> = Vec::new();
    // A run that is postponed counts nothing.
    let forms = UpdateForms::default();
    let read = |fields: Doc<'r>, number| {
        let worded = WordedUpdate::read(fields, request, number);
        let op = &worded.op;
        forms.note(op.multi, op.update.as_array().is_some(), op.array_filters.is_some());
        Ok(worded)
    };
    let mut matched_now = 0;
    let report = batch.execute(ctx, request, read, |index, updated: Updated, is_executed| {
        matched += updated.matched;
        modified += updated.modified;
        let is_match = is_executed && updated.upserted.is_none();
        matched_now += if is_match { updated.matched } else { 0 };
        upserted.extend(updated.upserted.map(|id| (index, id)));
    })?;
    check_stages(ctx, &batch.ns, &batch.statements)?;
    let counters = &ctx.server.counters;
    counters.update.add(report.executed);
    counters.update_forms.add(&forms);
    counters.documents_updated.add(matched_now.unsigned_abs());
    counters.user_errors.add(report.errors.len() as u64);
    if request.is_unacknowledged() {
        reply.append("n", 0).append("nModified", 0);
        return Ok(Outcome::Done);
    }
    reply.append("n", clamp(matched));
    ctx.append_op_time(reply);
    write_reply::write_errors(&report.errors, reply);
    write_reply::retried(&report.retried, reply);
    if !upserted.is_empty() {
        let mut list = reply.begin_array("upserted");
        for (index, id) in &upserted {
            let mut item = list.begin_doc();
            item.append("index", clamp(long(*index)));
            item.append("_id", id);
        }
    }
    reply.append("nModified", clamp(modified));
    Ok(Outcome::Done)
}

impl Statement for WordedUpdate<'_> {
    type Output = Updated;

    fn recorded(done: &Done) -> Result<Updated> {
        Updated::recorded(done)
    }

    fn run(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<Updated> {
        self.check_supplied()?;
        self.op.run(env, ns, op)
    }

    fn show(&self, out: &mut DocWriter<'_>) {
        let append = |name: &str, out: &mut DocWriter<'_>| {
            if let Some(value) = self.fields.get(name) {
                out.append(name, value);
            }
        };
        out.append("q", self.op.query).append("u", self.op.update);
        append("c", out);
        append("arrayFilters", out);
        show_hint(self.fields.get("hint"), out);
        out.append("multi", self.op.multi).append("upsert", self.op.upsert);
        append("upsertSupplied", out);
        append("collation", out);
    }

    fn counts(updated: &Updated) -> Counts {
        let upserted = i64::from(updated.upserted.is_some());
        Counts { matched: updated.matched - upserted, modified: updated.modified, upserted }
    }
}

/// Returns a statement as the log shows it.
pub(crate) fn shown<'r>(request: &Request<'r>, statement: Doc<'r>) -> DocBuf {
    DocBuf::build(|out| WordedUpdate::read(statement, request, 0).show(out))
}

/// Requires the privileges to update, and to insert if a statement may do so.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let ns = request.namespace()?;
    let bypasses = request.flag("bypassDocumentValidation");
    let mut upserts = false;
    for statement in request.documents("updates").into_iter().flatten() {
        let inserts = |field: Element<'_>| field.name == "upsert" && field.value.get().is_truthy();
        upserts |= statement?.iter().any(inserts);
    }
    pipeline::write(ns.db(), ns.collection(), actions(upserts), bypasses, check);
    Ok(())
}
