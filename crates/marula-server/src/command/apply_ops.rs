//! `applyOps`: applies oplog entries.
//!
//! An entry of kind `i` or `u` is an update by `_id` that inserts if there is no such document. It
//! can be applied twice, and no reader ever misses the document in between. An entry of kind `c`
//! runs its command.
//!
//! Source: manual "applyOps"; forms, results and errors recorded from mongod 6.0.

use std::time::Duration;

use marula_bson::{BStr, ByteSlice, Doc, DocBuf, DocWriter, Type, Value, doc, uuid};
use marula_db::namespace::is_database_name;
use marula_db::{Namespace, Transaction, WriteOp};
use marula_error::codes::Code;
use marula_error::{Error, Result, codes, errors};
use marula_operation::delete::{self, DeleteOp};
use marula_operation::find::{self, FindOp};
use marula_operation::targets;
use marula_operation::update::UpdateOp;
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::Filter;
use marula_query::update::{EmptyTimestamps, Origin};

use super::fields::{self, Field, Types};
use super::{Auth, Command, Outcome, create};
use crate::auth::access::Access;
use crate::auth::check::{Check, Target};
use crate::context::Context;
use crate::request::Request;
use crate::writes;

errors! {
    wrong_type(field: &str, expected: &str, kind: &str) = TypeMismatch, "Wrong type for '{field}'. Expected a {expected}, got a {kind}.";
    missing(expected: &str) = NoSuchKey, "Wrong type for ''. Expected a {expected}, got a missing.";
    no_namespace(position: usize) = IllegalOperation, "op does not contain required \"ns\" field: {position}";
    namespace_type(position: usize) = IllegalOperation, "\"ns\" field is not a string: {position}";
    empty_namespace(position: usize) = IllegalOperation, "\"ns\" field value cannot be empty when op type is not 'n': {position}";
    not_an_object(position: usize) = FailedToParse, "op not an object: {position}";
    no_kind(position: usize) = IllegalOperation, "op does not contain required \"op\" field: {position}";
    kind_type(position: usize) = IllegalOperation, "\"op\" field is not a string: {position}";
    empty_kind(position: usize) = IllegalOperation, "\"op\" field value cannot be empty: {position}";
    embedded_nul() = IllegalOperation, "namespaces cannot have embedded null characters";
    invalid_namespace(ns: &str) = InvalidNamespace, "invalid ns: {ns}";
    no_such_uuid(uuid: &str, entry: &Doc<'_>) = NamespaceNotFound, "Failed to apply operation due to missing collection ({uuid}): {entry}";
    other_not_permitted(ns: &Namespace) = Unauthorized, "not authorized on {ns} to apply an operation by the UUID of its collection";
    system_delete() = 12_050, "cannot delete from system namespace";
    unknown_kind(op: &BStr) = BadValue, "Enumeration value '{op}' for field 'OplogEntryBase.op' is not a valid value.";
    no_id(verb: &str, entry: &str) = NoSuchKey, "Failed to apply {verb} due to missing _id: {entry}";
    nothing_updated(entry: &str) = UpdateOperationFailed, "Failed to apply update: {entry}";
    nothing_replaced(entry: &str) = UpdateOperationFailed, "Update of non-mod failed: {entry}";
    no_collection(ns: &str, entry: &Doc<'_>) = NamespaceNotFound, "cannot apply insert or update operation on a non-existent namespace {ns}: {entry}";
    unknown_command(name: &str, body: &Doc<'_>) = BadValue, "Unknown oplog entry command type: {name} Object field: {body}";
    unsupported_command(name: &str) = CommandNotSupported, "The {name} operation is not supported in applyOps mode";
    too_deep() = FailedToParse, "Too many nested applyOps";
    condition_with_commands() = InvalidOptions, "Cannot use preCondition when operations include commands.";
    condition_without_atomic() = InvalidOptions, "Cannot use preCondition with {{allowAtomic: false}}";
    had_errors() = UnknownError, "applyOps had one or more errors applying ops";
    unmet() = BadValue, "preCondition failed";
    condition_namespace(kind: &str) = InvalidNamespace, "ns in preCondition must be a string, but found type: {kind}";
    condition_database(ns: &Namespace) = NamespaceNotFound, "database in ns does not exist: {ns}";
    condition_collection(ns: &Namespace) = NamespaceNotFound, "collection in ns does not exist: {ns}";
    unknown_mode(mode: &str) = FailedToParse, "Could not parse oplogApplicationMode :: caused by :: Invalid oplog application mode provided: {mode}";
}

/// The fields of an entry, including those of the oplogs of 7.0 and 8.0.
const ENTRY_FIELDS: &[Field] = &[
    Field::optional("op", Types::STRING).checked(check_kind),
    Field::optional("ns", Types::STRING),
    Field::optional("ui", Types::Uuid),
    Field::required("o", Types::DOCUMENT),
    Field::optional("o2", Types::DOCUMENT),
    Field::optional("b", Types::BOOLEAN),
    Field::optional("ts", Types::One(Type::Timestamp)),
    Field::optional("t", Types::One(Type::Int64)),
    Field::optional("v", Types::NUMBER),
    Field::optional("h", Types::One(Type::Int64)),
    Field::optional("wall", Types::One(Type::DateTime)),
    Field::optional("fromMigrate", Types::BOOLEAN),
    Field::optional("lsid", Types::DOCUMENT),
    Field::optional("txnNumber", Types::One(Type::Int64)),
    Field::optional("stmtId", Types::Any),
    Field::optional("prevOpTime", Types::DOCUMENT),
    Field::optional("preImageOpTime", Types::DOCUMENT),
    Field::optional("postImageOpTime", Types::DOCUMENT),
    Field::optional("needsRetryImage", Types::STRING),
    Field::optional("tid", Types::Any),
    Field::optional("_id", Types::Any),
    Field::optional("destinedRecipient", Types::STRING),
    Field::optional("donorOpTime", Types::DOCUMENT),
    Field::optional("fromTenantMigration", Types::Uuid),
    Field::optional("checkExistenceForDiffInsert", Types::BOOLEAN),
    Field::optional("versionContext", Types::DOCUMENT),
    Field::optional("multiOpType", Types::INT),
];
/// The commands that an entry of kind `c` may run.
const COMMANDS: &[&str] =
    &["create", "drop", "dropIndexes", "collMod", "renameCollection", "dropDatabase", "applyOps"];
/// The commands of an oplog that `applyOps` does not accept.
const UNSUPPORTED: &[&str] = &[
    "createIndexes",
    "startIndexBuild",
    "commitIndexBuild",
    "abortIndexBuild",
    "commitTransaction",
    "abortTransaction",
];
const MODES: &[&str] =
    &["InitialSync", "UnstableRecovering", "StableRecovering", "Secondary", "ApplyOps"];
/// The maximum nesting depth of `applyOps` in entries of kind `c`.
const DEPTH_MAX: u32 = 10;

pub(super) static COMMAND: Command = Command {
    name: "applyOps",
    help: "Applies oplog entries: inserts, updates, deletes, commands, and entries without effect.",
    writes: true,
    takes_write_concern: true,
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

/// A parsed `applyOps`.
struct Job<'r> {
    entries: Vec<Doc<'r>>,
    /// Whether an update inserts if no document has the `_id`.
    always_upsert: bool,
    bypass_validation: bool,
    /// Whether entries that all change documents are applied atomically.
    allows_atomic: bool,
    depth: u32,
}

/// The pause after a write conflict, before a list is applied again.
const CONFLICT_PAUSE: Duration = Duration::from_millis(5);

/// The errors of an entry after which the list is applied one entry at a time: its collection does
/// not exist, or cannot be written in a transaction.
const FAILS_ALONE: &[Code] =
    &[codes::NamespaceNotFound, codes::OperationNotSupportedInTransaction, codes::IllegalOperation];

/// Determines whether the entries of a list are applied atomically.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Atomicity {
    /// All entries or none; the first failure ends the list.
    Atomic,
    /// Each entry separately: an update that matches nothing is recorded as failed, and the list
    /// continues.
    OneByOne,
}

/// The results of the entries that were applied, and the error that ended the job.
struct Applied {
    results: Vec<bool>,
    failure: Option<Error>,
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let job = Job {
        entries: entries(request.first.value.get())?,
        always_upsert: request.arg("alwaysUpsert").is_none_or(|flag| flag.is_truthy()),
        bypass_validation: request.flag("bypassDocumentValidation"),
        allows_atomic: request.arg("allowAtomic").is_none_or(|flag| flag.is_truthy()),
        depth: 0,
    };
    check_forms(request)?;
    if let Some(mode) = request.text("oplogApplicationMode")
        && !MODES.iter().any(|known| mode == *known)
    {
        return Err(unknown_mode(&mode.to_string()));
    }
    if let Some(Value::Array(conditions)) = request.arg("preCondition") {
        for condition in conditions.values().filter_map(|condition| condition.as_doc()) {
            check_condition(ctx, condition)?;
        }
    }
    let applied = job.run(ctx, request)?;
    let count = i32::try_from(applied.results.len()).unwrap_or(i32::MAX);
    let Some(error) = applied.failure else {
        reply.append("applied", count);
        let mut results = reply.begin_array("results");
        for result in applied.results {
            results.push(result);
        }
        return Ok(Outcome::Done);
    };
    let fields = DocBuf::build(|fields| {
        fields.append("applied", count);
        let mut results = fields.begin_array("results");
        for result in applied.results {
            results.push(result);
        }
    });
    let elements = [fields.as_doc().elements_bytes(), error.fields()].concat();
    Err(error.with_fields(elements))
}

/// Checks the types of the options.
fn check_forms(request: &Request<'_>) -> Result<()> {
    const FORMS: &[Field] = &[
        Field::optional("preCondition", Types::ARRAY),
        Field::optional("allowAtomic", Types::BOOLEAN),
        Field::optional("alwaysUpsert", Types::BOOLEAN),
    ];
    let within = |error: Error| {
        error.caused_by(&format!("Failed to parse applyOps command: {}", request.body))
    };
    for arg in request.args.iter().filter(|arg| FORMS.iter().any(|form| arg.name == form.name)) {
        fields::check("applyOps", FORMS, arg.name, arg.value.kind()).map_err(within)?;
    }
    let conditions = request.arg("preCondition").and_then(|list| list.as_array());
    for (at, condition) in conditions.unwrap_or(Doc::EMPTY).values().enumerate() {
        if condition.as_doc().is_none() && !condition.is_nullish() {
            let kind = condition.kind().alias();
            let wrong = fields::element_type("applyOps", "preCondition", at, kind, "object");
            return Err(within(wrong));
        }
    }
    let is_refused = request.arg("allowAtomic").is_some_and(|flag| !flag.is_truthy());
    if is_refused && conditions.is_some() {
        return Err(within(condition_without_atomic()));
    }
    let is_command = |entry: Value<'_>| entry.as_doc().is_some_and(|one| text(one, "op") == "c");
    let entries = request.first.value.get().as_array().unwrap_or(Doc::EMPTY);
    if conditions.is_some() && entries.values().any(is_command) {
        return Err(within(condition_with_commands()));
    }
    Ok(())
}

/// Returns whether an entry changes a document, or nothing, and can be applied atomically with
/// others.
fn changes_no_catalogue(entry: Doc<'_>) -> bool {
    ["i", "u", "d", "n"].contains(&&*text(entry, "op"))
}

/// Returns the entries of an `applyOps`: each has a kind, a command its body, and a namespace.
fn entries(value: Value<'_>) -> Result<Vec<Doc<'_>>> {
    let entries = bodies(value, 0)?;
    for (position, entry) in entries.iter().enumerate() {
        match entry.get("op") {
            Some(Value::String(kind)) if kind.is_empty() => return Err(empty_kind(position)),
            Some(Value::String(_)) => {}
            Some(_) => return Err(kind_type(position)),
            None => return Err(no_kind(position)),
        }
        let ns = match entry.get("ns") {
            Some(Value::String(ns)) => ns,
            Some(_) => return Err(namespace_type(position)),
            None => return Err(no_namespace(position)),
        };
        let kind = text(*entry, "op");
        if ns.contains(&0) {
            return Err(embedded_nul());
        }
        if ns.is_empty() && kind != "n" {
            return Err(empty_namespace(position));
        }
        match kind.as_bytes()[0] {
            b'c' if kind == "c" => {
                let body = entry.get("o").and_then(|body| body.as_doc()).unwrap_or(Doc::EMPTY);
                let name = body.iter().next().map(|first| first.name.to_string());
                let name = name.unwrap_or_default();
                if !COMMANDS.iter().chain(UNSUPPORTED).any(|known| name == *known) {
                    return Err(unknown_command(&name, &body));
                }
            }
            b'i' | b'u' | b'd' | b'n' | b'c' => {}
            _ => drop(namespace(*entry)?),
        }
    }
    Ok(entries)
}

/// Returns the entries of a list: each has a kind, and a command its body. Lists in the list have
/// the same form. As in mongod, this is checked up to the first `create` or `renameCollection`.
fn bodies(value: Value<'_>, depth: u32) -> Result<Vec<Doc<'_>>> {
    let Value::Array(list) = value else {
        return Err(wrong_type("applyOps", "array", value.kind().alias()));
    };
    let mut entries = Vec::new();
    let mut is_checked = true;
    for (position, entry) in list.values().enumerate() {
        let entry = match entry {
            Value::Document(entry) => entry,
            _ if !is_checked => return Err(not_an_object(position)),
            other => {
                return Err(wrong_type(&position.to_string(), "object", other.kind().alias()));
            }
        };
        if !is_checked {
            entries.push(entry);
            continue;
        }
        match entry.get("op") {
            Some(Value::String(_)) => {}
            Some(other) => return Err(wrong_type("op", "string", other.kind().alias())),
            None => return Err(missing("string")),
        }
        if text(entry, "op") == "c" {
            let body = match entry.get("o") {
                Some(Value::Document(body)) => body,
                Some(other) => return Err(wrong_type("o", "object", other.kind().alias())),
                None => return Err(missing("object")),
            };
            match body.iter().next() {
                Some(inner) if inner.name == "applyOps" && depth < DEPTH_MAX => {
                    bodies(inner.value.get(), depth + 1)?;
                }
                Some(first) => {
                    is_checked = first.name != "create" && first.name != "renameCollection";
                }
                None => {}
            }
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Checks the kind of an entry as its fields are read.
fn check_kind(_: FeatureVersion, kind: Value<'_>) -> Result<()> {
    match kind.as_str() {
        Some(kind) if !["i", "u", "d", "c", "n"].iter().any(|known| kind == *known) => {
            Err(unknown_kind(kind))
        }
        _ => Ok(()),
    }
}

/// Checks the fields of an entry. Null in place of a time is its absence, which is only permitted
/// for a field that is not there.
fn check_entry(entry: Doc<'_>) -> Result<()> {
    fields::check_doc("OplogEntryBase", ENTRY_FIELDS, entry)?;
    for time in ["ts", "wall"] {
        if entry.get(time).is_some_and(|time| time.is_nullish()) {
            return Err(fields::missing_field("OplogEntryBase", time));
        }
    }
    Ok(())
}

/// Returns whether a list goes on after an entry of this kind failed, and only says so at its end.
fn is_only_counted(kind: &str, error: &Error) -> bool {
    error.code() == codes::UpdateOperationFailed
        || kind == "i" && error.code() == codes::DocumentValidationFailure
}

impl<'r> Job<'r> {
    /// Applies the entries, atomically if none of them is a command.
    fn run(&self, ctx: &mut Context<'_>, request: &Request<'r>) -> Result<Applied> {
        let is_atomic =
            self.allows_atomic && self.entries.iter().copied().all(changes_no_catalogue);
        // Entries of a wrong form fail alone.
        let is_well_formed = || self.entries.iter().all(|entry| check_entry(*entry).is_ok());
        let is_list = self.entries.len() > 1 && ctx.unit.transaction().is_none();
        if is_atomic
            && is_list
            && is_well_formed()
            && let Some(applied) = self.run_together(ctx, request)?
        {
            return Ok(applied);
        }
        let atomicity = if is_atomic && !is_list { Atomicity::Atomic } else { Atomicity::OneByOne };
        self.run_each(ctx, request, atomicity)
    }

    /// Applies all entries in one transaction; returns `None` if that is not possible.
    fn run_together(
        &self,
        ctx: &mut Context<'_>,
        request: &Request<'r>,
    ) -> Result<Option<Applied>> {
        loop {
            let limits = ctx.server.transactions.limits();
            let transaction = Transaction::begin(&ctx.server.db, limits)?;
            let applied =
                ctx.within(&transaction, |ctx| self.run_each(ctx, request, Atomicity::Atomic))?;
            let failure = match applied.failure {
                None => transaction.commit(None).err(),
                failure => failure,
            };
            transaction.abort();
            match failure {
                None => return Ok(Some(Applied { failure: None, ..applied })),
                Some(error) if targets::is_transient(error.code()) => {
                    ctx.check_interrupt()?;
                    std::thread::sleep(CONFLICT_PAUSE);
                }
                // These errors concern single entries: a missing collection, or one that no
                // transaction may write. A collection missing by its UUID fails the list.
                Some(error)
                    if FAILS_ALONE.contains(&error.code())
                        && !self.entries.iter().any(|entry| has_unknown_uuid(ctx, *entry)) =>
                {
                    return Ok(None);
                }
                Some(error) => {
                    let results = vec![false; applied.results.len()];
                    return Ok(Some(Applied { results, failure: Some(error) }));
                }
            }
        }
    }

    /// Applies the entries in order, up to the first that fails and is not only counted.
    fn run_each(
        &self,
        ctx: &mut Context<'_>,
        request: &Request<'r>,
        atomicity: Atomicity,
    ) -> Result<Applied> {
        let mut applied = Applied { results: Vec::new(), failure: None };
        for entry in &self.entries {
            let kind = text(*entry, "op");
            if kind == "n" {
                continue;
            }
            ctx.check_interrupt()?;
            let outcome = self.apply(ctx, request, &kind, *entry, atomicity);
            applied.results.push(outcome.is_ok());
            match outcome {
                Ok(()) => {}
                Err(error)
                    if atomicity == Atomicity::OneByOne && is_only_counted(&kind, &error) =>
                {
                    applied.failure = Some(had_errors());
                }
                Err(error) => {
                    applied.failure = Some(error);
                    break;
                }
            }
        }
        Ok(applied)
    }

    fn apply(
        &self,
        ctx: &mut Context<'_>,
        request: &Request<'r>,
        kind: &str,
        entry: Doc<'r>,
        atomicity: Atomicity,
    ) -> Result<()> {
        check_entry(entry)?;
        let body = entry.get("o").and_then(|body| body.as_doc()).unwrap_or(Doc::EMPTY);
        match kind {
            "c" => self.run_command(ctx, request, entry, body),
            "d" => self.delete(ctx, entry, body, atomicity),
            _ => self.put(ctx, kind, entry, body, atomicity),
        }
    }

    /// Inserts or updates one document, in one commit.
    fn put(
        &self,
        ctx: &Context<'_>,
        kind: &str,
        entry: Doc<'_>,
        body: Doc<'_>,
        atomicity: Atomicity,
    ) -> Result<()> {
        let ns = target(ctx, entry, &["insert", "update"])?;
        let Some(ns) = ns.filter(|ns| ctx.unit.collection(ns).is_some()) else {
            return Err(no_collection(&text(entry, "ns"), &entry));
        };
        writes::check_writable(&ns)?;
        let is_insert = kind == "i";
        let target = match (is_insert, entry.get("o2")) {
            (true, _) => Some(body),
            (false, Some(Value::Document(target))) => Some(target),
            (false, _) => None,
        };
        let verb = if is_insert { "insert" } else { "update" };
        let id = target.and_then(|target| target.get("_id"));
        let id = id.ok_or_else(|| no_id(verb, &shown(entry, atomicity)))?;
        // The `_id` is a condition: its operators are evaluated.
        let query = doc! { "_id": id };
        let upsert = is_insert
            || self.always_upsert
            || entry.get("b").is_some_and(|upsert| upsert.is_truthy());
        let mut write = WriteOp::new(ctx.unit, ctx.now_ms);
        write.bypass_validation = self.bypass_validation;
        write.empty_timestamps = EmptyTimestamps::Kept;
        let statement = UpdateOp {
            upsert,
            origin: if is_insert { Origin::OplogInsert } else { Origin::OplogUpdate },
            ..UpdateOp::of_one(query.as_doc(), Value::Document(body))
        };
        match statement.run(&ctx.env(), &ns, &mut write)?.matched {
            0 if is_modifier(body) => Err(nothing_updated(&shown(entry, atomicity))),
            0 => Err(nothing_replaced(&shown(entry, atomicity))),
            _ => Ok(()),
        }
    }

    /// Removes the document with the `_id`, if there is one.
    fn delete(
        &self,
        ctx: &Context<'_>,
        entry: Doc<'_>,
        body: Doc<'_>,
        atomicity: Atomicity,
    ) -> Result<()> {
        let ns = target(ctx, entry, &["remove"])?;
        let collection = ns.as_ref().and_then(|ns| ctx.server.db.collection(ns));
        if ns.as_ref().is_some_and(is_unknown_system) {
            return Err(system_delete());
        }
        if collection.is_none() && atomicity == Atomicity::OneByOne {
            return Ok(());
        }
        let id = body.get("_id").ok_or_else(|| no_id("delete", &shown(entry, atomicity)))?;
        let (Some(ns), Some(collection)) = (ns, collection) else { return Ok(()) };
        writes::check_writable(&ns)?;
        targets::check_not_view(&collection)?;
        let query = doc! { "_id": id };
        let mut write = WriteOp::new(ctx.unit, ctx.now_ms);
        DeleteOp::of_one(query.as_doc()).run(&ctx.env(), &ns, &mut write)?;
        Ok(())
    }

    /// Runs the command of an entry of kind `c` in the entry's database. An object that already
    /// exists, or was already dropped, is not an error.
    fn run_command(
        &self,
        ctx: &mut Context<'_>,
        request: &Request<'r>,
        entry: Doc<'r>,
        body: Doc<'r>,
    ) -> Result<()> {
        let name = body.iter().next().map(|first| first.name.to_string()).unwrap_or_default();
        namespace(entry)?;
        if UNSUPPORTED.contains(&name.as_str()) {
            return Err(unsupported_command(&name));
        }
        if name == "applyOps" {
            if self.depth == DEPTH_MAX {
                return Err(too_deep());
            }
            let first = body.iter().next().expect("a command has a name");
            let entries = bodies(first.value.get(), self.depth)?;
            let inner = Job { entries, depth: self.depth + 1, ..*self };
            return inner.run(ctx, request)?.failure.map_or(Ok(()), Err);
        }
        let Some(mut nested) = request.nested(body)? else {
            return Err(unknown_command(&name, &body));
        };
        nested.db = database(entry)?;
        let mut reply = Vec::new();
        let out = &mut DocWriter::new(&mut reply);
        let outcome = match (name.as_str(), entry.get("ui")) {
            // A restored collection keeps its UUID.
            ("create", Some(Value::Binary(uuid))) if uuid.bytes.len() == 16 => {
                let uuid = uuid.bytes.try_into().expect("its length is that of a UUID");
                create::create(ctx, &nested, Some(uuid), out)
            }
            _ => (nested.command.run)(ctx, &nested, out),
        };
        let outcome = outcome.map(drop);
        match outcome {
            Err(error)
                if [codes::NamespaceNotFound, codes::NamespaceExists, codes::IndexNotFound]
                    .contains(&error.code()) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}

fn text(entry: Doc<'_>, name: &str) -> String {
    entry.get(name).and_then(|text| text.as_str()).unwrap_or_default().to_string()
}

/// Returns the database of an entry: its namespace up to the first dot.
fn database<'e>(entry: Doc<'e>) -> Result<&'e str> {
    let ns = entry.get("ns").and_then(|ns| ns.as_str()).unwrap_or_default();
    let db = ns.split_str(b".").next().unwrap_or_default();
    db.to_str().map_err(|_| missing("string"))
}

/// Returns the namespace of an entry; `None` if it cannot be that of a collection.
///
/// Errors: `invalid_namespace` if there is no database or no collection in it.
fn namespace(entry: Doc<'_>) -> Result<Option<Namespace>> {
    let ns = text(entry, "ns");
    match ns.split_once('.') {
        Some((db, collection)) if is_database_name(db) && !collection.is_empty() => {
            Ok(Namespace::new(db, collection).ok())
        }
        _ => Err(invalid_namespace(&ns)),
    }
}

/// Returns the namespace of the collection that an entry changes: that with its UUID, if it has
/// one.
///
/// Errors: those of [`namespace`]; a UUID without a collection, or of one that the user may not
/// change.
fn target(ctx: &Context<'_>, entry: Doc<'_>, actions: &[&str]) -> Result<Option<Namespace>> {
    let named = namespace(entry)?;
    let Some(Value::Binary(given)) = entry.get("ui") else { return Ok(named) };
    let bytes = given.bytes.try_into().expect("the form of the UUID was checked");
    let Some(ns) = ctx.server.db.catalog().of_uuid(&bytes) else {
        let entry = DocBuf::build(|out| write_with_times(entry, false, out));
        return Err(no_such_uuid(&uuid::text(&bytes), &entry.as_doc()));
    };
    let own = Target::collection(ns.db(), ns.collection());
    let may = |access: &Access| actions.iter().all(|action| access.may(&own, action));
    match ctx.restrained().is_none_or(may) {
        true => Ok(Some(ns)),
        false => Err(other_not_permitted(&ns)),
    }
}

/// Returns whether no collection has the UUID of an entry.
fn has_unknown_uuid(ctx: &Context<'_>, entry: Doc<'_>) -> bool {
    let Some(Value::Binary(given)) = entry.get("ui") else { return false };
    let uuid = given.bytes.try_into();
    uuid.is_ok_and(|uuid| ctx.server.db.catalog().of_uuid(&uuid).is_none())
}

/// Returns whether it is the name of a system collection that does not exist.
fn is_unknown_system(ns: &Namespace) -> bool {
    ns.is_system() && ns.check_creatable().is_err()
}

/// Returns whether an update consists of operators: a difference or a whole document does not.
fn is_modifier(update: Doc<'_>) -> bool {
    let is_operator = |name: &[u8]| name.starts_with(b"$");
    let is_first_operator = update.iter().next().is_none_or(|first| is_operator(first.name));
    let version = update.get("$v").and_then(|version| version.as_f64());
    let is_difference = version.is_some_and(|version| version.trunc() == 2.0);
    is_first_operator && !is_difference
}

/// Returns an entry in the form of error messages: with its times, and with a hash if it was
/// applied separately.
fn shown(entry: Doc<'_>, atomicity: Atomicity) -> String {
    let shown = DocBuf::build(|out| {
        let has_hash = atomicity == Atomicity::OneByOne;
        write_with_times(entry, has_hash, &mut out.begin_doc("oplogEntry"));
    });
    shown.as_doc().to_string()
}

/// Writes an entry with its times, and with its hash.
fn write_with_times(entry: Doc<'_>, has_hash: bool, out: &mut DocWriter<'_>) {
    out.append_elements(entry.elements_bytes());
    let hash = has_hash.then_some(("h", Value::Int64(0)));
    let (begin, wall) = (("ts", Value::Timestamp(0)), ("wall", Value::DateTime(0)));
    for (name, value) in [Some(begin), hash, Some(wall)].into_iter().flatten() {
        if entry.get(name).is_none() {
            out.append(name, value);
        }
    }
}

/// Checks that the document which a condition's `q` finds in its `ns` matches its `res`.
///
/// Errors: a missing or wrong part; a missing collection; `unmet`.
fn check_condition(ctx: &Context<'_>, condition: Doc<'_>) -> Result<()> {
    let part = |name: &'static str| match condition.get(name) {
        Some(Value::Document(part) | Value::Array(part)) => Ok(part),
        Some(_) => Err(fields::expected_object(name.into())),
        None => Err(fields::expected_object("".into())),
    };
    let ns = condition_target(condition)?;
    let (find, env) = (FindOp::of_one(part("q")?), ctx.env());
    let found = ctx.unit.collection(&ns);
    let got = match &found {
        Some(found) => find.first(&env, found)?.unwrap_or_default(),
        None => find.check_without_collection(&env, &ns).map(|()| DocBuf::new())?,
    };
    let Some(found) = found.filter(|found| found.state().options.view.is_none()) else {
        let has_database = !ctx.server.db.catalog().collections(ns.db()).is_empty();
        return Err(if has_database { condition_collection(&ns) } else { condition_database(&ns) });
    };
    let context = env.context(Some(&found), None, None)?;
    let wanted = Filter::parse_as_written(part("res")?, &context)?;
    if wanted.matches_as_written(got.as_doc())? {
        return Ok(());
    }
    let fields = doc! { "got": &got, "whatFailed": condition };
    Err(unmet().with_fields(fields.as_doc().elements_bytes().to_vec()))
}

/// Returns the namespace of a condition.
fn condition_target(condition: Doc<'_>) -> Result<Namespace> {
    match condition.get("ns") {
        Some(Value::String(_)) => {}
        other => return Err(condition_namespace(other.map_or("missing", |ns| ns.kind().alias()))),
    }
    let ns = text(condition, "ns");
    namespace(condition)?;
    Namespace::parse(&ns)
}

/// Requires the privilege `applyOps` and the privileges of each entry.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    check.needs(Target::Cluster, &["applyOps"]);
    if request.first.value.get().as_array().is_some_and(Doc::is_empty) {
        check.needs(Target::AnyResource, &["anyAction"]);
    }
    let conditions = request.arg("preCondition").and_then(|list| list.as_array());
    for condition in conditions.unwrap_or(Doc::EMPTY).values().filter_map(|one| one.as_doc()) {
        let ns = condition_target(condition)?;
        check.needs_on(ns.db(), ns.collection(), find::ACTIONS);
    }
    match entries(request.first.value.get()) {
        Ok(entries) => demands_of(request, &entries, 0, check),
        // An unknown command is permitted to nobody.
        Err(error) if error.code() == codes::BadValue => {
            check.refuse();
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn demands_of<'r>(
    request: &Request<'r>,
    entries_of: &[Doc<'r>],
    depth: u32,
    check: &mut Check<'_>,
) -> Result<()> {
    for entry in entries_of {
        let actions: &[&str] = match text(*entry, "op").as_str() {
            "i" => &["insert"],
            "u" => &["insert", "update"],
            "d" => delete::ACTIONS,
            "n" => {
                check.needs(Target::Cluster, &["appendOplogNote"]);
                continue;
            }
            "c" => {
                let body = entry.get("o").and_then(|body| body.as_doc()).unwrap_or(Doc::EMPTY);
                let Some(first) = body.iter().next() else { continue };
                if first.name == "applyOps" {
                    if depth == DEPTH_MAX {
                        return Err(too_deep());
                    }
                    demands_of(request, &bodies(first.value.get(), depth)?, depth + 1, check)?;
                } else {
                    if entry.get("ui").is_some() && first.name == "create" {
                        check.needs(Target::Cluster, &["forceUUID"]);
                    }
                    if let Some(mut nested) = request.nested(body)? {
                        nested.db = database(*entry)?;
                        check.request(&nested)?;
                    }
                }
                continue;
            }
            _ => continue,
        };
        if entry.get("ui").is_some() {
            check.needs(Target::Cluster, &["useUUID"]);
        }
        if let Some(ns) = namespace(*entry)? {
            check.needs_on(ns.db(), ns.collection(), actions);
        }
    }
    Ok(())
}
