//! `bulkWrite`: inserts, updates and deletes in several collections, in one command.
//!
//! MongoDB added it in 8.0. An *operation* refers to its collection by a position in `nsInfo`. The
//! result of each operation is returned through a cursor, and the reply contains the totals.
//! Consecutive inserts into one collection are executed together.
//! Source: manual, "bulkWrite (database command)".

use std::mem;

use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf, long};
use marula_db::session::{Done, StatementIds};
use marula_db::{Namespace, WriteOp};
use marula_error::{Error, Result, errors};
use marula_operation::delete::{self, DeleteOp};
use marula_operation::insert::{self, InsertOp};
use marula_operation::statements::run_one;
use marula_operation::targets;
use marula_operation::update::{self, UpdateOp, Updated};
use marula_query::feature_version::FeatureVersion;

use super::fields::{self, Field, Types};
use super::update::check_update;
use super::{Auth, Command, Fields, Outcome};
use crate::auth::check::Check;
use crate::auth::pipeline;
use crate::context::Context;
use crate::listing;
use crate::request::Request;
use crate::statements;
use crate::write_reply::{self, clamp};
use crate::writes;

errors! {
    unknown_operation(operation: &str) = FailedToParse, "BSON field 'bulkWrite.ops' has an entry that is none of 'insert', 'update' and 'delete': {operation}";
    no_such_namespace(position: i64) = BadValue, "BulkWrite ops entry has an invalid nsInfo index. {position}";
}

pub(super) static COMMAND: Command = Command {
    name: "bulkWrite",
    since: FeatureVersion::V8_0,
    help: "Inserts, updates and deletes documents of several collections; each operation has its kind and its collection.",
    admin_only: true,
    writes: true,
    takes_write_concern: true,
    is_retryable_write: true,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "bulkWrite",
        fields: &[
            Field::required("ops", Types::ARRAY),
            Field::required("nsInfo", Types::ARRAY),
            Field::optional("ordered", Types::BOOLEAN),
            Field::optional("bypassDocumentValidation", Types::FLAG),
            writes::BYPASS_EMPTY_TS_REPLACEMENT,
            Field::optional("let", Types::DOCUMENT),
            Field::optional("errorsOnly", Types::BOOLEAN),
            Field::optional("cursor", Types::DOCUMENT),
            Field::optional("stmtId", Types::Any),
            Field::optional("stmtIds", Types::ARRAY),
        ],
    },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

/// The path of an operation in error messages.
const OPERATION_PLACE: &str = "bulkWrite.ops";

const INSERT_FIELDS: &[Field] =
    &[Field::required("insert", Types::NUMBER), Field::required("document", Types::DOCUMENT)];

const UPDATE_FIELDS: &[Field] = &[
    Field::required("update", Types::NUMBER),
    Field::required("filter", Types::DOCUMENT),
    Field::required("updateMods", Types::Any),
    Field::optional("arrayFilters", Types::Documents),
    Field::optional("multi", Types::BOOLEAN),
    Field::optional("upsert", Types::BOOLEAN),
    Field::optional("hint", Types::Any),
    Field::optional("constants", Types::DOCUMENT),
    Field::optional("collation", Types::DOCUMENT),
    Field::optional("sort", Types::DOCUMENT),
];

const DELETE_FIELDS: &[Field] = &[
    Field::required("delete", Types::NUMBER),
    Field::required("filter", Types::DOCUMENT),
    Field::optional("multi", Types::BOOLEAN),
    Field::optional("hint", Types::Any),
    Field::optional("collation", Types::DOCUMENT),
];

const NAMESPACE_FIELDS: &[Field] = &[
    Field::required("ns", Types::STRING),
    Field::optional("collectionUUID", Types::Any),
    Field::optional("encryptionInformation", Types::DOCUMENT),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Insert,
    Update,
    Delete,
}

/// An operation whose form has been checked.
struct Operation<'a> {
    verb: Verb,
    ns: usize,
    fields: Doc<'a>,
}

/// The result of an operation.
enum OperationResult {
    Inserted,
    Updated(Updated),
    Deleted(i64),
}

impl OperationResult {
    /// Returns the result in a session's record of a retried write. Errors if the record is of a
    /// write of another kind that has no result of this one.
    fn recorded(verb: Verb, done: &Done) -> Result<OperationResult> {
        match verb {
            Verb::Insert => Ok(OperationResult::Inserted),
            Verb::Update => Updated::recorded(done).map(OperationResult::Updated),
            Verb::Delete => Ok(OperationResult::Deleted(delete::recorded(done))),
        }
    }
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let namespaces = read_namespaces(request)?;
    let documents = request.documents("ops").expect("the row requires ops");
    let operations: Vec<Operation<'_>> = documents
        .map(|document| Operation::read(document?, namespaces.len(), request.version))
        .collect::<Result<_>>()?;
    write_reply::check_batch_size(operations.len())?;
    let ids = statements::read_ids(request, operations.len())?;
    let mut op = writes::begin(ctx, request)?;
    op.ids = ids;
    let mut bulk = Bulk {
        ctx,
        request,
        namespaces: &namespaces,
        is_ordered: statements::is_ordered(request),
        results: Results {
            errors_only: request.flag("errorsOnly"),
            entries: Vec::new(),
            counts: Counts::default(),
        },
        retried: Vec::new(),
    };
    let mut start = 0;
    while start < operations.len() {
        let end = start + run_length(&operations[start..]);
        let goes_on = match operations[start].verb {
            Verb::Insert => bulk.insert(&operations[start..end], start, &mut op)?,
            Verb::Update | Verb::Delete => bulk.change(&operations[start], start, &mut op)?,
        };
        if !goes_on {
            break;
        }
        start = end;
    }
    let Bulk { results, retried, .. } = bulk;
    results.counts.add_to(&ctx.server.counters);
    let ns = Namespace::new("admin", "$cmd.bulkWrite")?;
    listing::reply(ctx, request, ns, results.entries, reply)?;
    results.counts.write(reply);
    write_reply::retried(&retried, reply);
    Ok(Outcome::Done)
}

fn read_namespaces(request: &Request<'_>) -> Result<Vec<Namespace>> {
    let documents = request.documents("nsInfo").expect("the row requires nsInfo");
    documents
        .map(|document| {
            let document = document?;
            fields::check_doc("bulkWrite.nsInfo", NAMESPACE_FIELDS, document)?;
            let name = document.get("ns").and_then(|ns| ns.as_str()).unwrap_or_default();
            let ns = Namespace::parse(&name.to_string())?;
            writes::check_writable(&ns)?;
            Ok(ns)
        })
        .collect()
}

/// Returns the number of operations at the start that are executed together: inserts into one
/// collection.
fn run_length(operations: &[Operation<'_>]) -> usize {
    let Some(first) = operations.first().filter(|first| first.verb == Verb::Insert) else {
        return 1;
    };
    operations.iter().take_while(|next| next.verb == Verb::Insert && next.ns == first.ns).count()
}

impl<'a> Operation<'a> {
    /// Checks the form of an operation. An error fails the whole command before anything is
    /// written.
    fn read(fields: Doc<'a>, namespaces: usize, version: FeatureVersion) -> Result<Self> {
        let first = fields.iter().next();
        let name = first.map(|first| first.name.to_string()).unwrap_or_default();
        let (verb, known) = match name.as_str() {
            "insert" => (Verb::Insert, INSERT_FIELDS),
            "update" => (Verb::Update, UPDATE_FIELDS),
            "delete" => (Verb::Delete, DELETE_FIELDS),
            other => return Err(unknown_operation(other)),
        };
        fields::check_doc(OPERATION_PLACE, known, fields)?;
        if verb == Verb::Update {
            check_update(fields, "updateMods", version)?;
        }
        let position = first.and_then(|first| first.value.get().as_exact_i64()).unwrap_or(-1);
        let ns = usize::try_from(position).ok().filter(|&ns| ns < namespaces);
        Ok(Operation { verb, ns: ns.ok_or_else(|| no_such_namespace(position))?, fields })
    }

    fn given(&self, name: &str) -> Option<Value<'a>> {
        fields::given(self.fields, name)
    }

    fn flag(&self, name: &str) -> bool {
        self.given(name).is_some_and(|flag| flag.is_truthy())
    }

    fn doc(&self, name: &str) -> Doc<'a> {
        self.given(name).and_then(|doc| doc.as_doc()).unwrap_or(Doc::EMPTY)
    }
}

/// The state of the running command.
struct Bulk<'b, 'c, 'r> {
    ctx: &'b Context<'c>,
    request: &'b Request<'r>,
    namespaces: &'b [Namespace],
    is_ordered: bool,
    results: Results,
    retried: Vec<i32>,
}

impl Bulk<'_, '_, '_> {
    /// Inserts documents into one collection; `start` is the index of the first operation. Returns
    /// whether the command continues.
    fn insert(
        &mut self,
        operations: &[Operation<'_>],
        start: usize,
        op: &mut WriteOp<'_>,
    ) -> Result<bool> {
        let documents: Vec<Doc<'_>> =
            operations.iter().map(|operation| operation.doc("document")).collect();
        let insert = InsertOp { is_ordered: self.is_ordered, ..InsertOp::ordered(&documents) };
        let own = StatementIds::Listed(
            (start..start + operations.len()).map(|at| op.ids.at(at)).collect(),
        );
        let all = mem::replace(&mut op.ids, own);
        let ns = &self.namespaces[operations[0].ns];
        let inserted = insert.run(&self.ctx.env(), ns, op);
        op.ids = all;
        let report = match inserted {
            Ok(inserted) => inserted.report,
            Err(error) if targets::ends_command(&error) => return Err(error),
            // An error of the whole insert, such as that of a view, is reported for each document.
            Err(error) => insert.refused(&error).report,
        };
        self.retried.extend(report.retried);
        let mut errors = report.errors.into_iter().peekable();
        for position in 0..operations.len() {
            match errors.next_if(|(failed, _)| *failed == position) {
                None => {
                    self.results.take(start + position, Verb::Insert, Ok(OperationResult::Inserted))
                }
                Some((_, error)) => {
                    self.results.take(start + position, Verb::Insert, Err(error));
                    if self.is_ordered {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Executes an update or a delete; returns whether the command goes on.
    fn change(
        &mut self,
        operation: &Operation<'_>,
        index: usize,
        op: &mut WriteOp<'_>,
    ) -> Result<bool> {
        let (ctx, verb, number) = (self.ctx, operation.verb, op.ids.at(index));
        let ns = &self.namespaces[operation.ns];
        let let_variables = self.request.arg("let");
        let run = |op: &mut WriteOp<'_>| match verb {
            Verb::Delete => {
                let statement = DeleteOp {
                    query: operation.doc("filter"),
                    hint: operation.given("hint"),
                    collation: operation.given("collation"),
                    let_variables,
                    multi: operation.flag("multi"),
                    number,
                };
                statement.run(&ctx.env(), ns, op).map(OperationResult::Deleted)
            }
            Verb::Insert | Verb::Update => {
                let update = operation.given("updateMods").unwrap_or(Value::Null);
                let array = |name: &str| operation.given(name).and_then(|value| value.as_array());
                let doc = |name: &str| operation.given(name).and_then(|value| value.as_doc());
                let statement = UpdateOp {
                    constants: doc("constants"),
                    array_filters: array("arrayFilters"),
                    hint: operation.given("hint"),
                    sort: doc("sort"),
                    collation: operation.given("collation"),
                    let_variables,
                    multi: operation.flag("multi"),
                    upsert: operation.flag("upsert"),
                    number,
                    ..UpdateOp::of_one(operation.doc("filter"), update)
                };
                statement.run(&ctx.env(), ns, op).map(OperationResult::Updated)
            }
        };
        let earlier = |done: &Done| OperationResult::recorded(verb, done);
        let outcome = run_one(number, op, &mut self.retried, earlier, run)?;
        let goes_on = outcome.is_ok() || !self.is_ordered;
        self.results.take(index, verb, outcome);
        Ok(goes_on)
    }
}

/// The results of the operations.
struct Results {
    errors_only: bool,
    entries: Vec<DocBuf>,
    counts: Counts,
}

impl Results {
    fn take(&mut self, index: usize, verb: Verb, outcome: Result<OperationResult>) {
        self.counts.take(verb, &outcome);
        if outcome.is_err() || !self.errors_only {
            self.entries.push(entry(index, verb, &outcome));
        }
    }
}

/// Returns the document of the cursor for one operation.
fn entry(index: usize, verb: Verb, outcome: &Result<OperationResult>) -> DocBuf {
    DocBuf::build(|entry| {
        entry.append("ok", f64::from(u8::from(outcome.is_ok())));
        entry.append("idx", clamp(long(index)));
        match outcome {
            Ok(OperationResult::Inserted) => {
                entry.append("n", 1);
            }
            Ok(OperationResult::Deleted(count)) => {
                entry.append("n", clamp(*count));
            }
            Ok(OperationResult::Updated(updated)) => {
                entry.append("n", clamp(updated.matched));
                entry.append("nModified", clamp(updated.modified));
                append_upserted(updated.upserted.as_ref(), entry);
            }
            Err(error) => append_error(error, verb, entry),
        }
    })
}

fn append_upserted(id: Option<&ValueBuf>, entry: &mut DocWriter<'_>) {
    if let Some(id) = id {
        entry.begin_doc("upserted").append("_id", id);
    }
}

fn append_error(error: &Error, verb: Verb, entry: &mut DocWriter<'_>) {
    entry.append("code", error.code().number());
    entry.append("errmsg", error.message());
    entry.append_elements(error.fields());
    entry.append("n", 0);
    if verb == Verb::Update {
        entry.append("nModified", 0);
    }
}

/// The totals of the reply.
#[derive(Default)]
struct Counts {
    operations: [u64; 3],
    errors: i64,
    inserted: i64,
    matched: i64,
    modified: i64,
    upserted: i64,
    deleted: i64,
}

impl Counts {
    fn take(&mut self, verb: Verb, outcome: &Result<OperationResult>) {
        self.operations[verb as usize] += 1;
        match outcome {
            Err(_) => self.errors += 1,
            Ok(OperationResult::Inserted) => self.inserted += 1,
            Ok(OperationResult::Deleted(count)) => self.deleted += count,
            Ok(OperationResult::Updated(updated)) if updated.upserted.is_some() => {
                self.upserted += 1
            }
            Ok(OperationResult::Updated(updated)) => {
                self.matched += updated.matched;
                self.modified += updated.modified;
            }
        }
    }

    /// Adds the operations to the server's counters of inserts, updates and deletes.
    fn add_to(&self, counters: &crate::counters::Counters) {
        let [inserts, updates, deletes] = self.operations;
        counters.insert.add(inserts);
        counters.update.add(updates);
        counters.delete.add(deletes);
        counters.documents_inserted.add(self.inserted.unsigned_abs());
        counters.documents_updated.add(self.matched.unsigned_abs());
        counters.documents_deleted.add(self.deleted.unsigned_abs());
    }

    fn write(&self, reply: &mut DocWriter<'_>) {
        reply.append("nErrors", clamp(self.errors));
        reply.append("nInserted", clamp(self.inserted));
        reply.append("nMatched", clamp(self.matched));
        reply.append("nModified", clamp(self.modified));
        reply.append("nUpserted", clamp(self.upserted));
        reply.append("nDeleted", clamp(self.deleted));
    }
}

/// Requires the privileges of each operation on its collection.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let namespaces = read_namespaces(request)?;
    let bypasses = request.flag("bypassDocumentValidation");
    for operation in request.documents("ops").into_iter().flatten() {
        let operation = operation?;
        let Some(verb) = operation.iter().next() else { continue };
        let upserts = fields::given(operation, "upsert").is_some_and(|upsert| upsert.is_truthy());
        let actions: &[&str] = match verb.name as &[u8] {
            b"insert" => insert::ACTIONS,
            b"update" => update::actions(upserts),
            b"delete" => delete::ACTIONS,
            _ => continue,
        };
        let at = verb.value.get().as_f64().unwrap_or(-1.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        if let Some(ns) = namespaces.get(at as usize) {
            pipeline::write(ns.db(), ns.collection(), actions, bypasses, check);
        }
    }
    Ok(())
}
