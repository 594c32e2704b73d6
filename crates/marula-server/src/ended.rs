//! A completed operation, for the profiler and the log of slow operations.
//!
//! Its statistics come from its reply, and from the tally of its plans: commands need no code for
//! it. Each statement of `update` and `delete` has a record of its own, as in mongod.
//!
//! Source: manual "Database Profiler Output", "Log Messages"; fields and their order recorded from
//! mongod 6.0.

use std::time::{Duration, Instant};

use marula_bson::{Doc, DocBuf, DocWriter, Value, doc, long};
use marula_db::plan_cache::hash_text;
use marula_db::unit::{Detail, Examined, KeyChanges, PlanReport, Tally};
use marula_error::codes::Code;
use marula_error::{Error, Result};

use crate::connection::Connection;
use crate::dispatch::address_text;
use crate::log::attributes;
use crate::profiling;
use crate::request::Request;
use crate::row::Kind;
use crate::server::Server;

/// A longer command is shown as the start of its text. Source: manual "Database Profiler Output":
/// 50 kilobytes.
const COMMAND_BYTES_MAX: usize = 50 * 1024;

/// A completed statement of a write.
pub(crate) struct Statement {
    command: DocBuf,
    examined: Examined,
    changed: KeyChanges,
    report: Option<PlanReport>,
    took: Duration,
    outcome: Result<Counts, Error>,
}

/// The counts of a statement.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Documents that matched; for a deletion, the deleted ones.
    pub matched: i64,
    /// Documents changed.
    pub modified: i64,
    /// Documents inserted by an upsert.
    pub upserted: i64,
}

/// The statements of a command whose records are wanted.
pub struct Statements {
    done: Vec<Statement>,
    began: Instant,
    /// The keys and documents examined by the statements so far; the tally starts again with each.
    examined: Examined,
    /// The index keys that they have written.
    changed: KeyChanges,
}

impl Statements {
    /// Returns the state before the first statement.
    pub fn begin() -> Self {
        let (examined, changed) = (Examined::default(), KeyChanges::default());
        Statements { done: Vec::new(), began: Instant::now(), examined, changed }
    }

    /// Records the end of a statement, with its `tally`; further work belongs to the next one.
    pub fn note(&mut self, command: DocBuf, outcome: Result<Counts, Error>, tally: &Tally) {
        let (examined, changed) = (tally.examined(), tally.changed());
        self.examined += examined;
        self.changed += changed;
        let (report, took) = (tally.take_plan_report(), self.began.elapsed());
        self.done.push(Statement { command, examined, changed, report, took, outcome });
        tally.start(Detail::stages(|_| None));
        self.began = Instant::now();
    }

    /// Returns the keys and documents that all statements have examined.
    pub fn examined(&self) -> Examined {
        self.examined
    }

    /// Returns the index keys that all statements have written.
    pub fn changed(&self) -> KeyChanges {
        self.changed
    }
}

/// A completed operation.
pub(crate) struct Ended<'a, 'r> {
    /// The server.
    pub server: &'a Server,
    /// The connection.
    pub connection: &'a Connection,
    /// The request.
    pub request: &'a Request<'r>,
    /// The reply, and its size in bytes.
    pub reply: (Doc<'a>, usize),
    /// The duration.
    pub took: Duration,
    /// The time of the end.
    pub now_ms: i64,
    /// The keys and documents that it examined.
    pub examined: Examined,
    /// The index keys that it wrote.
    pub changed: KeyChanges,
    /// Its plan.
    pub report: Option<PlanReport>,
    /// The statement of an update or a delete that has only one, as it is shown, unless statements
    /// are recorded one by one.
    pub only: Option<DocBuf>,
    /// The command that opened its cursor.
    pub origin: Option<DocBuf>,
}

impl Ended<'_, '_> {
    /// Writes the line of the log and the record of the operation, if they are wanted. `statements`
    /// are those of a write whose records are wanted one by one.
    pub(crate) fn report(&self, statements: Option<Statements>) {
        let db = self.request.db;
        let verdict = self.server.profiling.judge(db, self.took, &|| self.entry());
        let statements = statements.map(|statements| statements.done).unwrap_or_default();
        if verdict.is_logged {
            self.log(&statements);
        }
        if !self.request.is_profiled() {
            return;
        }
        for statement in &statements {
            let entry = || self.statement_entry(statement);
            if self.server.profiling.judge(db, statement.took, &entry).is_recorded {
                self.record(&entry());
            }
        }
        if verdict.is_recorded && statements.is_empty() {
            self.record(&self.entry());
        }
    }

    fn record(&self, entry: &DocBuf) {
        if let Err(error) = profiling::record(self.server, self.request.db, entry) {
            tracing::warn!(target: "COMMAND", db = self.request.db, %error, "an operation could not be recorded by the profiler");
        }
    }

    /// Writes the lines of the log: for an update or a delete also one for its only statement, or,
    /// where a profiled database has the statements recorded, for each slow one.
    fn log(&self, statements: &[Statement]) {
        let alone = self.only_statement();
        for statement in statements.iter().filter(|it| self.server.profiling.concerns(it.took)) {
            self.log_statement(statement, statement.report.as_ref());
        }
        if let Some(statement) = &alone {
            self.log_statement(statement, self.report.as_ref());
        }
        let is_whole = statements.is_empty() && alone.is_none();
        let report = self.report.as_ref().filter(|_| is_whole);
        let attr = attributes(|out| {
            out.append("type", "command");
            match is_whole {
                true => out.append("ns", self.request.shown_namespace().as_str()),
                false => out.append("ns", format!("{}.$cmd", self.request.db).as_str()),
            };
            self.append_app_name(out);
            out.append("command", &self.request.with_shown_body(command));
            if let Some(origin) = &self.origin {
                out.append("originatingCommand", &command(origin.as_doc()));
            }
            if let Some(report) = report {
                out.append("planSummary", report.summary.as_str());
            }
            if is_whole {
                self.append_work(report, out);
            }
            out.append("numYields", 0);
            self.append_returned(out);
            self.append_hashes(report, out);
            self.append_error(out);
            out.append("reslen", int(self.reply.1));
            out.begin_doc("locks").finish();
            if self.request.concerned().is_some() {
                out.begin_doc("storage").finish();
            }
            out.append("remote", address_text(self.connection.peer.remote).as_str());
            out.append("protocol", "op_msg");
            out.append("durationMillis", millis(self.took));
        });
        tracing::info!(target: "COMMAND", id = 51_803, attr, "Slow query");
    }

    fn log_statement(&self, statement: &Statement, report: Option<&PlanReport>) {
        let attr = attributes(|out| {
            out.append("type", self.request.command.kind.name());
            out.append("ns", self.request.shown_namespace().as_str());
            self.append_app_name(out);
            out.append("command", &command(statement.command.as_doc()));
            if let Some(report) = report {
                out.append("planSummary", report.summary.as_str());
            }
            if let Ok(counts) = &statement.outcome {
                append_examined(statement.examined, out);
                append_trial(report, out);
                self.append_counts(*counts, out);
                append_changes(statement.changed, out);
            }
            out.append("numYields", 0);
            self.append_hashes(report, out);
            if let Err(error) = &statement.outcome {
                append_failure(error, out);
            }
            out.begin_doc("locks").finish();
            out.begin_doc("storage").finish();
            out.append("remote", address_text(self.connection.peer.remote).as_str());
            out.append("durationMillis", millis(statement.took));
        });
        tracing::info!(target: "WRITE", id = 51_803, attr, "Slow query");
    }

    /// Returns the statement of an update or a delete that has only one.
    fn only_statement(&self) -> Option<Statement> {
        let reply = self.reply.0;
        let command = self.only.clone()?;
        let number = |name: &str| reply.get(name).and_then(|value| value.as_exact_i64());
        let errors = reply.get("writeErrors").and_then(|errors| errors.as_array());
        let error = errors.and_then(|errors| errors.values().next()?.as_doc());
        let outcome = match (error, number("n")) {
            (Some(error), _) => {
                let code = error.get("code").and_then(|code| code.as_exact_i64());
                let code = Code::from_number(i32::try_from(code?).ok()?);
                Err(Error::new(code, error.get("errmsg")?.as_str()?.to_string()))
            }
            (None, Some(count)) => {
                let upserted = reply.get("upserted").map_or(0, |_| 1);
                let modified = number("nModified").unwrap_or(0);
                Ok(Counts { matched: count - upserted, modified, upserted })
            }
            // The command has failed.
            (None, None) => return None,
        };
        let Ended { examined, changed, took, .. } = *self;
        Some(Statement { command, examined, changed, report: None, took, outcome })
    }

    /// Appends the counts of a statement.
    fn append_counts(&self, counts: Counts, out: &mut DocWriter<'_>) {
        if self.request.command.kind == Kind::Update {
            append_number("nMatched", counts.matched, out);
            append_number("nModified", counts.modified, out);
            append_number("nUpserted", counts.upserted, out);
        } else {
            append_number("ndeleted", counts.matched, out);
        }
    }

    /// Returns the record of the whole operation.
    fn entry(&self) -> DocBuf {
        DocBuf::build(|out| {
            out.append("op", self.request.command.kind.name());
            out.append("ns", self.request.shown_namespace().as_str());
            out.append("command", &self.request.with_shown_body(command));
            if let Some(origin) = &self.origin {
                out.append("originatingCommand", &command(origin.as_doc()));
            }
            self.append_work(self.report.as_ref(), out);
            out.append("numYield", 0);
            self.append_returned(out);
            self.append_hashes(self.report.as_ref(), out);
            out.begin_doc("locks").finish();
            out.begin_doc("flowControl").finish();
            self.append_error(out);
            out.append("responseLength", int(self.reply.1)).append("protocol", "op_msg");
            self.append_end(self.took, self.report.as_ref(), out);
        })
    }

    /// Returns the record of one statement of a write.
    fn statement_entry(&self, statement: &Statement) -> DocBuf {
        DocBuf::build(|out| {
            out.append("op", self.request.command.kind.name());
            out.append("ns", self.request.shown_namespace().as_str());
            out.append("command", &command(statement.command.as_doc()));
            match &statement.outcome {
                Ok(counts) => {
                    append_examined(statement.examined, out);
                    append_trial(statement.report.as_ref(), out);
                    self.append_counts(*counts, out);
                    append_changes(statement.changed, out);
                    out.append("numYield", 0);
                }
                Err(_) => {
                    out.append("numYield", 0);
                }
            }
            self.append_hashes(statement.report.as_ref(), out);
            out.begin_doc("locks").finish();
            out.begin_doc("flowControl").finish();
            if let Err(error) = &statement.outcome {
                append_failure(error, out);
            }
            self.append_end(statement.took, statement.report.as_ref(), out);
        })
    }

    fn append_app_name(&self, out: &mut DocWriter<'_>) {
        let metadata = self.connection.metadata.as_ref().map(|metadata| metadata.as_doc());
        let name = metadata.and_then(|metadata| metadata.get("application")?.as_doc()?.get("name"));
        if let Some(name) = name {
            out.append("appName", name);
        }
    }

    /// Appends the counts of examined and changed documents.
    fn append_work(&self, report: Option<&PlanReport>, out: &mut DocWriter<'_>) {
        let reply = self.reply.0;
        let cursor = reply.get("cursor").and_then(|cursor| cursor.as_doc());
        let cursor_id = match self.request.command.kind {
            Kind::GetMore => self.request.first.value.get().as_exact_i64(),
            _ => cursor.and_then(|cursor| cursor.get("id")?.as_exact_i64()),
        };
        if let Some(id) = cursor_id.filter(|&id| id != 0) {
            out.append("cursorid", id);
        }
        // Also of a pipeline that begins with no query.
        let has_read =
            report.is_some() || self.request.command.name == "aggregate" && cursor.is_some();
        if has_read {
            append_examined(self.examined, out);
        }
        if report.is_some_and(|report| report.has_sort) {
            out.append("hasSortStage", true);
        }
        append_trial(report, out);
        let number = |name: &str| reply.get(name).and_then(|value| value.as_exact_i64());
        match (self.request.command.name, number("n")) {
            ("insert", Some(inserted)) => {
                append_number("ninserted", inserted, out);
            }
            ("delete", Some(deleted)) => {
                append_number("ndeleted", deleted, out);
            }
            ("update", Some(count)) => {
                let upserted = reply.get("upserted").and_then(|list| list.as_array());
                let upserted = upserted.map_or(0, |list| list.iter().count() as i64);
                append_number("nMatched", count - upserted, out);
                append_number("nModified", number("nModified").unwrap_or(0), out);
                append_number("nUpserted", upserted, out);
            }
            ("findAndModify", _) => append_found_and_modified(reply, out),
            _ => {}
        }
        append_changes(self.changed, out);
        let is_plain = matches!(self.request.command.kind, Kind::Query | Kind::GetMore);
        if is_plain && cursor.is_some() {
            out.append("nBatches", 1);
        }
        let is_over = cursor.and_then(|cursor| cursor.get("id")?.as_exact_i64()) == Some(0);
        if is_over && has_read {
            out.append("cursorExhausted", true);
        }
    }

    fn append_returned(&self, out: &mut DocWriter<'_>) {
        let cursor = self.reply.0.get("cursor").and_then(|cursor| cursor.as_doc());
        let batch = cursor.and_then(|cursor| cursor.get("firstBatch").or(cursor.get("nextBatch")));
        if let Some(batch) = batch.and_then(|batch| batch.as_array()) {
            out.append("nreturned", int(batch.iter().count()));
        }
    }

    /// Appends the hashes of the query and its plan.
    fn append_hashes(&self, report: Option<&PlanReport>, out: &mut DocWriter<'_>) {
        let Some(report) = report else { return };
        let command = self.request.command;
        // A write by `_id` is not planned.
        let Some(hashes) = report.hashes.filter(|_| !(report.is_by_id && command.writes)) else {
            return;
        };
        out.append("queryHash", hash_text(hashes.query).as_str());
        if report.may_be_cached {
            out.append("planCacheKey", hash_text(hashes.plan).as_str());
        }
        if matches!(command.name, "find" | "aggregate" | "distinct") {
            out.append("queryFramework", "classic");
        }
    }

    fn append_error(&self, out: &mut DocWriter<'_>) {
        let reply = self.reply.0;
        if reply.get("ok").is_none_or(|ok| ok.is_truthy()) {
            return;
        }
        out.append("ok", 0.0);
        if let Some(text) = reply.get("errmsg") {
            out.append("errMsg", text);
        }
        if let Some(Value::Int32(code)) = reply.get("code") {
            out.append("errName", &*Code::from_number(code).name()).append("errCode", code);
        }
    }

    fn append_end(&self, took: Duration, report: Option<&PlanReport>, out: &mut DocWriter<'_>) {
        append_number("millis", millis(took), out);
        if let Some(report) = report {
            out.append("planSummary", report.summary.as_str());
            if let Some(stages) = &report.stages
                && self.request.command.name != "aggregate"
            {
                out.append("execStats", stages);
            }
        }
        out.append("ts", Value::DateTime(self.now_ms));
        let client = self.connection.peer.remote.map(|remote| remote.ip().to_string());
        out.append("client", client.as_deref().unwrap_or(""));
        self.append_app_name(out);
        let user = self.connection.access.as_ref().map(|access| &access.user);
        let mut users = out.begin_array("allUsers");
        if let Some(user) = user {
            users.begin_doc().append("user", user.name.as_str()).append("db", user.db.as_str());
        }
        users.finish();
        out.append("user", user.map(|user| user.to_string()).unwrap_or_default().as_str());
    }
}

/// Appends a number as mongod does: as a 32-bit integer if it is one.
fn append_number(name: &str, number: i64, out: &mut DocWriter<'_>) {
    out.append(name, Value::whole(number));
}

fn append_failure(error: &Error, out: &mut DocWriter<'_>) {
    out.append("ok", 0.0).append("errMsg", error.message());
    out.append("errName", &*error.code().name()).append("errCode", error.code().number());
}

fn append_examined(examined: Examined, out: &mut DocWriter<'_>) {
    append_number("keysExamined", long(examined.keys), out);
    append_number("docsExamined", long(examined.docs), out);
}

fn append_trial(report: Option<&PlanReport>, out: &mut DocWriter<'_>) {
    if report.is_some_and(|report| report.has_won) {
        out.append("fromMultiPlanner", true);
    }
}

fn append_changes(changed: KeyChanges, out: &mut DocWriter<'_>) {
    for (name, count) in [("keysInserted", changed.inserted), ("keysDeleted", changed.deleted)] {
        if let Some(count) = count {
            append_number(name, long(count), out);
        }
    }
}

fn append_found_and_modified(reply: Doc<'_>, out: &mut DocWriter<'_>) {
    let Some(last) = reply.get("lastErrorObject").and_then(|last| last.as_doc()) else { return };
    let count = last.get("n").and_then(|count| count.as_exact_i64()).unwrap_or(0);
    match last.get("updatedExisting") {
        Some(existing) => {
            let matched = if existing.is_truthy() { count } else { 0 };
            let upserted = i64::from(last.get("upserted").is_some());
            append_number("nMatched", matched, out);
            append_number("nModified", matched, out);
            append_number("nUpserted", upserted, out);
        }
        None => {
            append_number("ndeleted", count, out);
        }
    }
}

/// Returns a command as it is shown: whole, or the start of its text.
fn command(body: Doc<'_>) -> DocBuf {
    if body.as_bytes().len() <= COMMAND_BYTES_MAX {
        return body.to_buf();
    }
    let mut text = body.to_string();
    let mut end = COMMAND_BYTES_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    doc! { "$truncated": text.as_str() }
}

fn int(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn millis(took: Duration) -> i64 {
    long(took.as_millis())
}
