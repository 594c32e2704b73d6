//! `profile`: the level of a database's profiler and the threshold of slow operations.

use marula_bson::{ByteSlice, Doc, DocWriter, Value, doc};
use marula_error::{Result, errors};
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;
use marula_query::stage::Pipeline;

use super::fields::{self, Types};
use super::{Auth, Command, CommandPlace, Outcome};
use crate::auth::check::{Check, Target};
use crate::context::Context;
use crate::log::attributes;
use crate::profiling::{self, Database};
use crate::request::Request;
use crate::server::Server;

const FILTER_NOTE: &str = "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query log lines.";

errors! {
    bad_sample_rate() = BadValue, "'sampleRate' must be between 0.0 and 1.0 inclusive";
    unknown_fields(names: &str) = 4_910_200, "No such field (or fields) available for profile filter: {names}";
    filter_type() = BadValue, "Expected an object, or the string 'unset'.";
}

pub(super) static COMMAND: Command = Command {
    name: "profile",
    help: "Returns and changes the level of a database's profiler.",
    place: CommandPlace::Reserved,
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    if request.first.value.get().is_nullish() {
        return Err(fields::missing_field("profile", "profile"));
    }
    let level = whole("profile", request.first.value.get())?;
    let slow_ms = request.arg("slowms").map(|ms| whole("slowms", ms)).transpose()?;
    let sample_rate = match request.arg("sampleRate") {
        None => None,
        Some(rate) => {
            let number = rate.as_f64().ok_or_else(|| wrong_type("sampleRate", rate))?;
            if !number.is_nan() && !(0.0..=1.0).contains(&number) {
                return Err(bad_sample_rate());
            }
            Some(number)
        }
    };
    let filter = match request.given("filter") {
        None => None,
        Some(Value::String(text)) if text == "unset" => Some(None),
        Some(Value::Document(filter)) => {
            check_filter(filter)?;
            Some(Some(Filter::parse(filter, &QueryContext::default())?))
        }
        Some(_) => return Err(filter_type()),
    };
    let server = ctx.server;
    let (before, slow_ms_before, sample_rate_before) = {
        let settings = server.profiling.settings();
        (settings.database(request.db), settings.slow_ms, settings.sample_rate)
    };
    // Any other number leaves the level unchanged and returns it.
    let new_level = i32::try_from(level).ok().filter(|level| (0..=2).contains(level));
    if new_level.is_some_and(|level| level > 0) {
        profiling::create_collection(server, request.db)?;
    }
    server.profiling.change(|settings| {
        let level = new_level.unwrap_or(before.level);
        let filter = filter.unwrap_or_else(|| before.filter.clone());
        settings.set_database(request.db, Database { level, filter });
        if let Some(ms) = slow_ms {
            settings.slow_ms = i32::try_from(ms).unwrap_or(i32::MAX);
        }
        if let Some(rate) = sample_rate {
            settings.sample_rate = rate;
        }
    });
    log(server, request.db, (&before, slow_ms_before, sample_rate_before));
    reply.append("was", before.level);
    reply.append("slowms", slow_ms_before);
    reply.append("sampleRate", sample_rate_before);
    if let Some(filter) = &before.filter {
        reply.append("filter", &filter.to_doc());
    }
    if request.arg("filter").is_some() || before.filter.is_some() {
        reply.append("note", FILTER_NOTE);
    }
    Ok(Outcome::Done)
}

/// Logs a change of the settings.
fn log(server: &Server, db: &str, (from, slow_ms, sample_rate): (&Database, i32, f64)) {
    let write = |database: &Database, slow_ms: i32, rate: f64, out: &mut DocWriter<'_>| {
        out.append("level", database.level).append("slowms", slow_ms).append("sampleRate", rate);
        if let Some(filter) = &database.filter {
            out.append("filter", &filter.to_doc());
        }
    };
    let settings = server.profiling.settings();
    let attr = attributes(|out| {
        write(from, slow_ms, sample_rate, &mut out.begin_doc("from"));
        let to = settings.database(db);
        write(&to, settings.slow_ms, settings.sample_rate, &mut out.begin_doc("to"));
    });
    drop(settings);
    tracing::info!(target: "COMMAND", id = 48_742, attr, "Profiler settings changed");
}

/// The fields of a record that a filter may use. Source: mongod 6.0, which was queried for each.
const RECORD_FIELDS: &[&str] = &[
    "allUsers",
    "appName",
    "authorization",
    "client",
    "command",
    "cursorExhausted",
    "cursorid",
    "dataThroughputAverage",
    "dataThroughputLastSecond",
    "docsExamined",
    "durationMillis",
    "errCode",
    "errMsg",
    "errName",
    "execStats",
    "exhaust",
    "flowControl",
    "fromMultiPlanner",
    "hasSortStage",
    "keysDeleted",
    "keysExamined",
    "keysInserted",
    "locks",
    "millis",
    "mongot",
    "nBatches",
    "nMatched",
    "nModified",
    "nShards",
    "nUpserted",
    "ndeleted",
    "ninserted",
    "nreturned",
    "ns",
    "numYield",
    "ok",
    "op",
    "originatingCommand",
    "planCacheKey",
    "planSummary",
    "planningTimeMicros",
    "prepareReadConflicts",
    "protocol",
    "queryFramework",
    "queryHash",
    "remoteOpWaitMillis",
    "replanReason",
    "replanned",
    "responseLength",
    "storage",
    "totalOplogSlotDurationMicros",
    "ts",
    "usedDisk",
    "user",
    "writeConcern",
    "writeConflicts",
];

/// Checks that a filter uses only fields of records.
///
/// Errors: `unknown_fields`, and those of the filter's parser.
fn check_filter(filter: Doc<'_>) -> Result<()> {
    let stages = doc! { "pipeline": [{ "$match": filter }, { "$count": "n" }] };
    let stages = stages.as_doc().get("pipeline").and_then(|stages| stages.as_array());
    let context = QueryContext::default();
    let pipeline = Pipeline::parse(stages.unwrap_or(Doc::EMPTY), &context)?;
    let Some(needed) = pipeline.needs() else { return Ok(()) };
    let unknown: Vec<String> = needed
        .fields
        .names()
        .filter(|name| RECORD_FIELDS.iter().all(|known| known.as_bytes() != *name))
        .map(|name| name.to_str_lossy().into_owned())
        .collect();
    if unknown.is_empty() { Ok(()) } else { Err(unknown_fields(&unknown.join(" "))) }
}

fn wrong_type(field: &str, value: Value<'_>) -> marula_error::Error {
    let expected = Types::NUMBER.expected();
    fields::wrong_type("profile", field.into(), value.kind().alias(), &expected)
}

#[allow(clippy::cast_possible_truncation)]
fn whole(field: &str, value: Value<'_>) -> Result<i64> {
    value.as_f64().map(|number| number as i64).ok_or_else(|| wrong_type(field, value))
}

/// Requires the privilege to change the profiler; users who can read its records may read its
/// settings.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let only_asks = request.args.is_empty() && request.first.value.get().as_f64() == Some(-1.0);
    let records = Target::collection(request.db, profiling::COLLECTION);
    if !(only_asks && check.may(&records, "find")) {
        check.needs(Target::Database(request.db.to_owned()), &["enableProfiler"]);
    }
    Ok(())
}
