//! The statements of a write command: `insert`, `update` and `delete` read them alike, and the last
//! two execute them alike.

use marula_bson::{Doc, DocBuf, DocWriter, Value};
use marula_db::session::{Done, StatementIds};
use marula_db::{Namespace, WriteOp};
use marula_error::{Error, Result, errors};
use marula_operation::Env;
use marula_operation::statements::{Report, run_all};
use marula_operation::targets::check_not_view;

use crate::context::Context;
use crate::ended::Counts;
use crate::request::Request;
use crate::{collection_uuid, fields, write_reply, writes};

errors! {
    measurements_in_transaction(ns: &Namespace) = OperationNotSupportedInTransaction, "Cannot perform a multi-document transaction on a time-series collection: {ns}";
    statement_ids(ids: usize, statements: usize) = InvalidLength, "Number of statement ids must match the number of batch entries. Got {ids} statement ids but {statements} operations.";
}

/// The statements of a command whose form is checked, and their collection.
pub(crate) struct Batch<'r> {
    pub(crate) ns: Namespace,
    pub(crate) statements: Vec<Doc<'r>>,
    ids: StatementIds,
}

impl<'r> Batch<'r> {
    /// Reads the statements of a command from its field `field`. `check` checks the form of one: an
    /// error in any of them fails the whole command before anything is written.
    ///
    /// Errors: those of the number of statements, their form and their ids, and of the collection.
    pub(crate) fn read(
        ctx: &Context<'_>,
        request: &Request<'r>,
        field: &'static str,
        check: impl Fn(Doc<'r>) -> Result<()>,
    ) -> Result<Self> {
        let ns = request.namespace()?;
        let statements = request.documents(field).expect("the row requires the statements");
        let statements: Vec<Doc<'r>> = statements.collect::<Result<_>>()?;
        write_reply::check_batch_size(statements.len())?;
        statements.iter().try_for_each(|statement| check(*statement))?;
        let ids = read_ids(request, statements.len())?;
        writes::check_names_buckets(request, &ns)?;
        writes::check_target(ctx, &ns)?;
        Ok(Batch { ns, statements, ids })
    }

    /// Starts the write of the statements, as [`writes::begin`] does.
    pub(crate) fn begin<'s>(
        &self,
        ctx: &Context<'s>,
        request: &Request<'r>,
    ) -> Result<WriteOp<'s>> {
        let mut op = writes::begin(ctx, request)?;
        op.ids = self.ids.clone();
        Ok(op)
    }

    /// Executes the statements one after the other; `read` makes each from its document and its
    /// number in the session, and `take` gets its result and whether this attempt has executed it.
    pub(crate) fn execute<S: Statement>(
        &self,
        ctx: &mut Context<'_>,
        request: &Request<'r>,
        read: impl Fn(Doc<'r>, i32) -> Result<S>,
        take: impl FnMut(usize, S::Output, bool),
    ) -> Result<Report> {
        if !ctx.may_wait() && self.statements.len() > 1 {
            return Err(Error::postponed());
        }
        check_in_transaction(ctx, &self.ns)?;
        let mut op = self.begin(ctx, request)?;
        let (ns, count) = (&self.ns, self.statements.len());
        let run = |index: usize, op: &mut WriteOp<'_>| {
            let check_uuid = || collection_uuid::check_buckets(ctx, request, ns);
            // Errors of the collection come before those of the statement.
            let of_view = |error| check_no_view(ctx, ns).err().unwrap_or(error);
            let statement = read(self.statements[index], op.ids.at(index));
            let statement =
                statement.map_err(|error| check_uuid().err().unwrap_or_else(|| of_view(error)))?;
            let outcome =
                check_uuid().and_then(|()| statement.run(&ctx.env(), ns, op).map_err(of_view));
            if let Some(noted) = &mut ctx.statements {
                let counts = outcome.as_ref().map(S::counts);
                let tally = &ctx.connection.operation.tally;
                let shown = DocBuf::build(|out| {
                    statement.show(out);
                    if let Some(comment) = &request.comment {
                        out.append("comment", comment.get());
                    }
                });
                noted.note(shown, counts.map_err(Clone::clone), tally);
            }
            outcome
        };
        run_all(count, is_ordered(request), &mut op, S::recorded, run, take)
    }
}

/// Refuses a view, but not a time series.
fn check_no_view(ctx: &Context<'_>, ns: &Namespace) -> Result<()> {
    let collection = ctx.server.db.collection(ns);
    let collection = collection.filter(|one| one.state().options.time_series.is_none());
    collection.map_or(Ok(()), |collection| check_not_view(&collection))
}

/// Refuses measurements in a transaction. Their buckets may be written in one.
fn check_in_transaction(ctx: &Context<'_>, ns: &Namespace) -> Result<()> {
    if ctx.unit.transaction().is_none() {
        return Ok(());
    }
    let Some(collection) = ctx.server.db.collection(ns) else { return Ok(()) };
    let options = &collection.state().options;
    match options.time_series.is_some() && options.view.is_some() {
        true => Err(measurements_in_transaction(ns)),
        false => Ok(()),
    }
}

/// A statement of an `update` or a `delete`.
pub(crate) trait Statement {
    /// The result.
    type Output;

    /// Reads the result from a session's record. Errors if it is of a write of another kind that
    /// has no result of this one.
    fn recorded(done: &Done) -> Result<Self::Output>;

    /// Executes the statement on the collection of this name.
    fn run(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<Self::Output>;

    /// Appends the statement as the profiler shows it.
    fn show(&self, out: &mut DocWriter<'_>);

    /// The documents of a result, as the profiler counts them.
    fn counts(output: &Self::Output) -> Counts;
}

/// Appends the hint of a statement as the profiler shows it: a name is in a document.
pub(crate) fn show_hint(hint: Option<Value<'_>>, out: &mut DocWriter<'_>) {
    match hint {
        Some(Value::Document(index)) if !index.is_empty() => {
            out.append("hint", index);
        }
        Some(Value::String(name)) => {
            out.begin_doc("hint").append("$hint", name);
        }
        _ => {}
    }
}

/// Returns whether an error ends the statements of a command: `ordered`.
/// In a transaction each error ends it, and the list with it.
pub(crate) fn is_ordered(request: &Request<'_>) -> bool {
    request.transaction.is_some()
        || request.arg("ordered").is_none_or(|ordered| ordered.is_truthy())
}

fn number(id: Value<'_>) -> i32 {
    id.as_exact_i64().and_then(|id| i32::try_from(id).ok()).unwrap_or(0)
}

/// Returns the number of a command's first or only statement: `stmtId`.
pub(crate) fn read_id(request: &Request<'_>) -> i32 {
    request.arg("stmtId").map_or(0, number)
}

/// Returns the numbers of a command's `count` statements: `stmtIds`, or counted up from `stmtId`.
pub(crate) fn read_ids(request: &Request<'_>, count: usize) -> Result<StatementIds> {
    let Some(listed) = request.arg("stmtIds").and_then(|ids| ids.as_array()) else {
        return Ok(StatementIds::From(read_id(request)));
    };
    let mut ids = Vec::new();
    for (at, id) in listed.values().enumerate() {
        match id {
            Value::Int32(id) => ids.push(id),
            Value::Null | Value::Undefined => {}
            other => {
                let (place, kind) = (request.command.name, other.kind().alias());
                return Err(fields::element_type(place, "stmtIds", at, kind, "int"));
            }
        }
    }
    if ids.len() != count {
        return Err(statement_ids(ids.len(), count));
    }
    Ok(StatementIds::Listed(ids))
}
