//! `mapReduce`: aggregates the documents of a collection by key, with functions in JavaScript.
//!
//! The command runs as a pipeline: the query, the sort and the limit as stages, then [`MapReduce`],
//! then `$out` or `$merge`.

use std::sync::Arc;

use marula_bson::{ArrayWriter, ByteSlice, Doc, DocBuf, DocWriter, Value};
use marula_db::Namespace;
use marula_error::{Result, codes, errors};
use marula_operation::aggregate::{Prepared, map_reduce_on_view, subject};
use marula_query::stage::map_reduce::MapReduce;
use marula_query::stage::{Pipeline, Stage};

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, OnSecondary, Outcome};
use crate::auth::check::{Check, texts};
use crate::auth::pipeline;
use crate::context::Context;
use crate::pipeline_source::PipelineSource;
use crate::request::Request;
use crate::write_lock::WriteLock;

errors! {
    code_type(field: &str) = BadValue, "'{field}' must be of string or code type";
    scope_type() = BadValue, "'scope' must be an object";
    sort_empty() = 15_976, "The mapReduce sort option must have at least one sort key";
    limit_not_positive() = 15958, "The limit specified to mapReduce must be positive";
    out_type() = BadValue, "'out' must be either a string or an object";
    out_without_mode() = BadValue, "'out' requires 'replace', 'merge' or 'reduce'";
    out_unknown() = BadValue, "'out' supports only output type with collection name, optional 'sharded' and optional 'db'";
    inline_number() = BadValue, "'inline' takes only numeric '1'";
    inline_alone() = InvalidOptions, "'inline' must be specified alone";
    mode_type(mode: &str) = BadValue, "'{mode}' supports only string consisting of output collection name";
    flag_not_true(field: &str) = BadValue, "{field} field value must be true";
    db_type() = BadValue, "db field value must be string";
    invalid_output(ns: &str) = InvalidNamespace, "Invalid output namespace {ns} for MapReduce";
    special_collection(name: &str) = 17385, "Can't output mapReduce results to special collection {name}";
    internal_database() = CommandNotSupported, "cannot target internal database as output";
    replace_sharded() = InvalidOptions, "Combination of 'out.sharded' and 'replace' output mode is not supported. Cannot replace an existing sharded collection or create a new sharded collection. Please create the sharded collection first and use a different output mode or consider using an unsharded collection.";
    results_too_large(size: usize) = BSONObjectTooLarge, "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and 16793600(16MB)";
}

/// The maximum size of the results in a reply, in bytes.
const RESULTS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The prefix of errors of the pipeline.
const EXECUTING: &str = "MapReduce internal error";

/// Returns whether the results are in the reply, whatever else `out` is.
fn is_inline(body: Doc<'_>) -> bool {
    let out = body.get("out").and_then(|out| out.as_doc());
    out.is_some_and(|out| out.get("inline").is_some())
}

pub(super) static COMMAND: Command = Command {
    name: "mapReduce",
    aliases: &["mapreduce"],
    takes_after_cluster_time: false,
    takes_write_concern: true,
    write_concern_with: Some(|body| !is_inline(body)),
    help: "Aggregates values by key with functions in JavaScript. Pipelines do the same faster.",
    secondary: Some(OnSecondary::IfPreferred),
    ends_with_client: true,
    fields: Fields::Strict {
        place: "mapReduce",
        fields: &[
            Field::required("map", Types::Any),
            Field::required("reduce", Types::Any),
            Field::required("out", Types::Any),
            Field::optional("finalize", Types::Any),
            Field::optional("query", Types::DOCUMENT),
            Field::optional("sort", Types::DOCUMENT),
            Field::optional("collation", Types::DOCUMENT),
            Field::optional("limit", Types::NUMBER),
            Field::optional("scope", Types::Any),
            Field::optional("verbose", Types::BOOLEAN),
            Field::optional("jsMode", Types::BOOLEAN),
            Field::optional("bypassDocumentValidation", Types::BOOLEAN),
            Field::optional("maxTimeMS", Types::NUMBER),
        ],
    },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

/// The destination of the results.
enum Output {
    /// The reply contains the results.
    Inline,
    /// The results are written to a collection in this mode.
    To { mode: Mode, target: Namespace, names_database: bool },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Replace,
    Merge,
    Reduce,
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = request.namespace()?;
    let functions = Arc::new(MapReduce {
        map: code(request, "map")?.ok_or_else(|| code_type("map"))?,
        reduce: code(request, "reduce")?.ok_or_else(|| code_type("reduce"))?,
        finalize: code(request, "finalize")?,
        scope: match request.given("scope") {
            None | Some(Value::Null) => DocBuf::new(),
            Some(Value::Document(scope)) => scope.to_buf(),
            Some(_) => return Err(scope_type()),
        },
    });
    if request.arg("sort").and_then(|sort| sort.as_doc()).is_some_and(Doc::is_empty) {
        return Err(sort_empty());
    }
    let output = output(request)?;
    let limit = limit(request)?;
    let collection = ctx.server.db.collection(&ns);
    if collection.as_ref().is_some_and(|it| it.state().options.view.is_some()) {
        return Err(map_reduce_on_view());
    }
    if matches!(output, Output::To { .. })
        && let Some(wait) = WriteLock::enter(ctx.server, &ctx.connection.operation, ctx.deadline)
            .map_err(|error| error.caused_by(EXECUTING))?
    {
        return Ok(wait);
    }
    let collation = request.arg("collation");
    let mut context = ctx.env().context(collection.as_deref(), collation, None)?;
    context.subject = Some(subject(&ns, false));
    let internal = |error: marula_error::Error| error.caused_by(EXECUTING);
    let front = Pipeline::parse(front(request, limit).as_doc(), &context).map_err(internal)?;
    let back = Pipeline::parse(back(&output, &functions).as_doc(), &context).map_err(internal)?;
    let middle: Arc<dyn Stage> = functions;
    let stages = front.stages().iter().chain([&middle]).chain(back.stages()).cloned().collect();
    let pipeline = Pipeline::from_stages(stages);
    let bypass_validation = request.flag("bypassDocumentValidation");
    let pipeline = Prepared::new(&ns, pipeline, context, bypass_validation);
    let mut source = PipelineSource::start(ctx, pipeline).map_err(|error| {
        // As for any query, this error has no prefix.
        let is_unplanned = error.code() == codes::NoQueryExecutionPlans;
        if is_unplanned { error } else { internal(error) }
    })?;
    match output {
        Output::Inline => {
            let mut results = reply.begin_array("results");
            let mut take = |doc: Doc<'_>| {
                results.push(doc);
                match results.size() {
                    size if size > RESULTS_BYTES_MAX => Err(results_too_large(size)),
                    _ => Ok(()),
                }
            };
            source.for_each(&mut take).map_err(internal)?;
        }
        Output::To { target, names_database, .. } => {
            source.for_each(&mut |_| Ok(())).map_err(internal)?;
            if names_database {
                let mut result = reply.begin_doc("result");
                result.append("db", target.db()).append("collection", target.collection());
            } else {
                reply.append("result", target.collection());
            }
        }
    }
    Ok(Outcome::Done)
}

/// Returns the source text of a function.
fn code(request: &Request<'_>, field: &str) -> Result<Option<String>> {
    match request.given(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(code) | Value::Code(code)) => Ok(Some(code.to_str_lossy().into_owned())),
        Some(_) => Err(code_type(field)),
    }
}

fn limit(request: &Request<'_>) -> Result<Option<i64>> {
    let Some(limit) = request.arg("limit") else { return Ok(None) };
    #[allow(clippy::cast_possible_truncation)] // towards zero and within a long, as mongod does
    let limit = limit.as_f64().unwrap_or(0.0) as i64;
    if limit > 0 { Ok(Some(limit)) } else { Err(limit_not_positive()) }
}

fn output(request: &Request<'_>) -> Result<Output> {
    let spec = match request.arg("out") {
        Some(Value::String(name)) => {
            return target(Mode::Replace, request.db, &name.to_str_lossy(), false);
        }
        Some(Value::Document(spec)) => spec,
        _ => return Err(out_type()),
    };
    if let Some(inline) = spec.get("inline") {
        if spec.iter().count() > 1 {
            return Err(inline_alone());
        }
        return match inline.as_f64() {
            Some(1.0) => Ok(Output::Inline),
            _ => Err(inline_number()),
        };
    }
    let (mut mode, mut db, mut is_sharded) = (None, None, false);
    for element in spec {
        let (name, value) = (element.name.to_str_lossy(), element.value.get());
        let found = match &*name {
            "replace" => Mode::Replace,
            "merge" => Mode::Merge,
            "reduce" => Mode::Reduce,
            "db" if db.is_some() => return Err(out_unknown()),
            "db" => {
                db = Some(value.as_str().ok_or_else(db_type)?.to_string());
                continue;
            }
            "sharded" | "nonAtomic" => match value {
                Value::Boolean(true) => {
                    is_sharded |= name == "sharded";
                    continue;
                }
                _ => return Err(flag_not_true(&name)),
            },
            _ if mode.is_none() => return Err(out_without_mode()),
            _ => return Err(out_unknown()),
        };
        if mode.is_some() {
            return Err(out_unknown());
        }
        let collection = value.as_str().ok_or_else(|| mode_type(&name))?;
        mode = Some((found, collection.to_string()));
    }
    let (mode, collection) = mode.ok_or_else(out_without_mode)?;
    if is_sharded && mode == Mode::Replace {
        return Err(replace_sharded().caused_by(EXECUTING));
    }
    target(mode, db.as_deref().unwrap_or(request.db), &collection, db.is_some())
}

fn target(mode: Mode, db: &str, collection: &str, names_database: bool) -> Result<Output> {
    let target = Namespace::new(db, collection)
        .map_err(|_| invalid_output(&format!("{db}.{collection}")))?;
    if collection.starts_with("system.") {
        return Err(special_collection(collection));
    }
    if matches!(db, "admin" | "config" | "local") {
        return Err(internal_database());
    }
    Ok(Output::To { mode, target, names_database })
}

/// Returns the stages that select the documents to map.
fn front(request: &Request<'_>, limit: Option<i64>) -> DocBuf {
    let mut bytes = Vec::new();
    let mut stages = ArrayWriter::new(&mut bytes);
    let doc = |name: &str| request.arg(name).filter(|doc| !is_empty(*doc));
    let limit = limit.map(Value::Int64);
    let parts = [("$match", doc("query")), ("$sort", doc("sort")), ("$limit", limit)];
    for (name, argument) in parts {
        if let Some(argument) = argument {
            stages.begin_doc().append(name, argument);
        }
    }
    stages.finish();
    DocBuf::trusted(bytes)
}

fn is_empty(value: Value<'_>) -> bool {
    value.as_doc().is_some_and(Doc::is_empty)
}

/// Returns the stages that write the results to the output.
fn back(output: &Output, functions: &MapReduce) -> DocBuf {
    let mut bytes = Vec::new();
    let mut stages = ArrayWriter::new(&mut bytes);
    if let Output::To { mode, target, .. } = output {
        let mut stage = stages.begin_doc();
        match mode {
            Mode::Replace => {
                let mut out = stage.begin_doc("$out");
                out.append("db", target.db()).append("coll", target.collection());
            }
            Mode::Merge | Mode::Reduce => {
                let mut merge = stage.begin_doc("$merge");
                let mut into = merge.begin_doc("into");
                into.append("db", target.db()).append("coll", target.collection());
                into.finish();
                if *mode == Mode::Merge {
                    merge.append("whenMatched", "replace");
                } else {
                    let mut matched = merge.begin_array("whenMatched");
                    matched.push(&reduced_again(functions));
                }
                merge.append("whenNotMatched", "insert");
            }
        }
    }
    stages.finish();
    DocBuf::trusted(bytes)
}

/// Returns the stage that reduces the existing value and the new one to one value.
fn reduced_again(functions: &MapReduce) -> DocBuf {
    let call = |body: &str, value: &dyn Fn(&mut ArrayWriter<'_>)| {
        DocBuf::build(|out| {
            let mut function = out.begin_doc("$function");
            function.append("body", body);
            let mut args = function.begin_array("args");
            args.push("$_id");
            value(&mut args);
            args.finish();
            function.append("lang", "js");
        })
    };
    let reduced = call(&functions.reduce, &|args| {
        let mut values = args.begin_array();
        values.push("$value").push("$$new.value");
    });
    let value = match &functions.finalize {
        None => reduced,
        Some(finalize) => call(finalize, &|args| {
            args.push(&reduced);
        }),
    };
    DocBuf::build(|out| {
        out.begin_doc("$set").append("value", &value);
    })
}

/// Requires the privileges to read the collection and to write the results.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let ns = request.namespace()?;
    check.needs_on(ns.db(), ns.collection(), &["find"]);
    let bypasses = request.flag("bypassDocumentValidation");
    match request.arg("out") {
        Some(Value::String(to)) => {
            pipeline::write(request.db, &to.to_string(), &["insert", "remove"], bypasses, check);
        }
        Some(Value::Document(out)) => {
            let mut dbs = texts(out, "db");
            if dbs.is_empty() {
                dbs.push(request.db.to_owned());
            }
            for field in out {
                let actions: &[&str] = match field.name.as_bytes() {
                    b"replace" => &["insert", "remove"],
                    b"merge" | b"reduce" => &["insert", "update"],
                    _ => continue,
                };
                if let Value::String(to) = field.value.get() {
                    for db in &dbs {
                        pipeline::write(db, &to.to_string(), actions, bypasses, check);
                    }
                }
            }
        }
        _ => {}
    }
    Ok(())
}
