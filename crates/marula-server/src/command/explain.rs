//! `explain`: how a command would be carried out, and what that would look at.
//!
//! The plan is the one that would run. For `executionStats` it is run too, without writing anything.
//! Source: manual "explain", "Explain Results"; shapes and errors recorded from mongod 6.0.

use std::sync::Arc;
use std::time::Instant;

use marula_bson::{Doc, DocBuf, DocWriter, FieldPath, Value, doc, doc_fields};
use marula_db::{Index, Namespace};
use marula_error::{Result, errors};
use marula_plan::executor::Examined;
use marula_plan::explain::{self, Ran, above, append_count};
use marula_plan::{Access, Emit, Execution, Plan, Query, planner};
use marula_query::context::Context as QueryContext;
use marula_query::projection::Projection;
use marula_query::stage::Pipeline;

use super::create::bad_enumeration;
use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Outcome, find};
use crate::context::Context;
use crate::pipeline_source::push_down;
use crate::query_args;
use crate::request::Request;
use crate::{host, time_series, view, writes};

errors! {
    unknown(name: &str) = CommandNotFound, "Explain failed due to unknown command: {name}";
    not_explainable(name: &str) = IllegalOperation, "Cannot explain cmd: {name}";
    explains_itself() = IllegalOperation, "Explain cannot explain itself.";
    other_db(db: &str, inner: &Value<'_>) = InvalidNamespace, "Mismatched $db in explain command. Expected {db} but got {inner}";
    one_statement() = InvalidLength, "explained write batches must be of size 1";
    explain_twice() = FailedToParse, "The 'explain' option is illegal when a explain verbosity is also provided";
    cursor_required() = FailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument";
}

pub(super) static COMMAND: Command = Command {
    name: "explain",
    help: "Returns how a command would be carried out, and what it would look at on the way.",
    in_api_v1: true,
    read_concern: super::ReadConcernLevels::Snapshot,
    fields: Fields::Strict {
        place: "explain",
        fields: &[Field::optional("verbosity", Types::STRING)],
    },
    auth: Auth::User,
    run,
    ..Command::DEFAULT
};

/// How much is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verbosity {
    QueryPlanner,
    ExecutionStats,
    AllPlansExecution,
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let Value::Document(body) = request.first.value.get() else {
        let kind = request.first.value.kind().alias();
        return Err(fields::wrong_type("explain", "explain".into(), kind, "type 'object'"));
    };
    let verbosity = match request.text("verbosity") {
        None => Verbosity::AllPlansExecution,
        Some(text) if text == "queryPlanner" => Verbosity::QueryPlanner,
        Some(text) if text == "executionStats" => Verbosity::ExecutionStats,
        Some(text) if text == "allPlansExecution" => Verbosity::AllPlansExecution,
        Some(text) => return Err(bad_enumeration(&text.to_string(), "explain.verbosity")),
    };
    if let Some(inner) = body.get("$db")
        && inner != Value::String(request.db.into())
    {
        return Err(other_db(request.db, &inner));
    }
    let name = body.iter().next().map(|first| first.name.to_string()).unwrap_or_default();
    let inner = request.nested(body)?.ok_or_else(|| unknown(&name))?;
    if inner.command.name == "explain" {
        return Err(explains_itself());
    }
    if inner.command.name == "aggregate" {
        if inner.arg("explain").is_some() {
            return Err(explain_twice());
        }
        if inner.arg("cursor").is_none() {
            return Err(cursor_required());
        }
    }
    explain(ctx, &inner, verbosity, reply)?;
    Ok(Outcome::Done)
}

/// Answers an `aggregate` with `explain: true`.
pub(super) fn of_pipeline(
    ctx: &Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    explain(ctx, request, Verbosity::QueryPlanner, reply)
}

fn explain(
    ctx: &Context<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    let ns = request.namespace()?;
    reply.append("explainVersion", "1");
    let is_view = ctx.server.db.collection(&ns).is_some_and(|it| it.state().options.view.is_some());
    match request.command.name {
        "aggregate" => {
            let stages = request.arg("pipeline").and_then(|it| it.as_array()).unwrap_or(Doc::EMPTY);
            pipeline(ctx, request, &ns, stages, verbosity, reply)?;
        }
        "find" if is_view => {
            let stages = super::aggregate::stages_of_find(request)?;
            pipeline(ctx, request, &ns, stages.as_doc(), verbosity, reply)?;
        }
        _ => {
            let asked = Asked::read(ctx, request, &ns)?;
            let answer = match distinct_index(ctx, request, &ns)? {
                Some(index) => distinct_scan(ctx, &ns, &index, verbosity)?,
                None => asked.answer(ctx, &ns, verbosity)?,
            };
            reply.append_elements(answer.as_doc().elements_bytes());
        }
    }
    reply.append("command", &command_document(request));
    server_info(ctx, reply);
    Ok(())
}

/// The command with its database, without what belongs to its session.
fn command_document(request: &Request<'_>) -> DocBuf {
    DocBuf::build(|out| {
        for element in request.body {
            if !matches!(&**element.name, b"$db" | b"lsid" | b"$clusterTime" | b"$readPreference") {
                out.append_raw(element.name, element.value);
            }
        }
        out.append("$db", request.db);
    })
}

fn server_info(ctx: &Context<'_>, reply: &mut DocWriter<'_>) {
    let port = ctx.server.options.host.rsplit(':').next().and_then(|port| port.parse::<i32>().ok());
    doc_fields!(reply;
        "serverInfo": {
            "host": host::host_name().as_str(),
            "port": port.unwrap_or(0),
            "version": super::build_info::COMPATIBLE_VERSION,
            "gitVersion": super::build_info::GIT_VERSION,
        },
    );
    let mut parameters = reply.begin_doc("serverParameters");
    for row in crate::parameters::ROWS {
        if row.name.starts_with("internalQuery") || row.name.starts_with("internalDocumentSource") {
            parameters.append(row.name, &ctx.server.parameters.get(row));
        }
    }
}

/// What is asked of one collection.
struct Asked<'a> {
    query: Query,
    sort: Doc<'a>,
    projection: Option<(&'static str, Doc<'a>)>,
    verb: Verb,
}

/// What becomes of the documents that are found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Find,
    Count { is_whole: bool },
    Update { multi: bool, upsert: bool, returns: bool },
    Delete { multi: bool, returns: bool },
}

impl<'a> Asked<'a> {
    fn read(ctx: &Context<'_>, request: &Request<'a>, ns: &Namespace) -> Result<Self> {
        let doc = |name: &str| query_args::doc_or_empty(name, request.arg(name));
        let whole = Doc::EMPTY;
        let (filter, sort, hint, collation, verb) = match request.command.name {
            "find" => (
                doc("filter")?,
                doc("sort")?,
                request.arg("hint"),
                request.arg("collation"),
                Verb::Find,
            ),
            "distinct" => {
                (doc("query")?, whole, request.arg("hint"), request.arg("collation"), Verb::Find)
            }
            "count" => {
                let query = doc("query")?;
                let is_whole = query.is_empty() && request.arg("hint").is_none();
                (
                    query,
                    whole,
                    request.arg("hint"),
                    request.arg("collation"),
                    Verb::Count { is_whole },
                )
            }
            "findAndModify" => {
                let verb = match request.arg("update") {
                    Some(_) => {
                        Verb::Update { multi: false, upsert: request.flag("upsert"), returns: true }
                    }
                    None => Verb::Delete { multi: false, returns: true },
                };
                (doc("query")?, doc("sort")?, request.arg("hint"), request.arg("collation"), verb)
            }
            "update" | "delete" => {
                let is_update = request.command.name == "update";
                let list = request.documents(if is_update { "updates" } else { "deletes" });
                let statements = list.into_iter().flatten().collect::<Result<Vec<_>>>()?;
                crate::write_reply::check_batch_size(statements.len())?;
                let [statement] = statements[..] else { return Err(one_statement()) };
                let flag = |name: &str| statement.get(name).is_some_and(|flag| flag.is_truthy());
                let verb = match is_update {
                    true => Verb::Update {
                        multi: flag("multi"),
                        upsert: flag("upsert"),
                        returns: false,
                    },
                    false => Verb::Delete { multi: !flag("limit"), returns: false },
                };
                let query = statement.get("q").and_then(|query| query.as_doc()).unwrap_or(whole);
                (query, whole, statement.get("hint"), statement.get("collation"), verb)
            }
            other => return Err(not_explainable(other)),
        };
        let collection = ctx.server.db.collection(ns);
        if let (Some(collection), false) = (&collection, verb == Verb::Find) {
            writes::check_not_view(collection)?;
        }
        let context =
            query_args::query_context(ctx, collection.as_deref(), collation, request.arg("let"))?;
        let mut query = query_args::parse_query(filter, context)?;
        query.hint = query_args::parse_hint(hint)?;
        query_args::apply_sort(&mut query, sort)?;
        let mut projection = None;
        match verb {
            Verb::Find | Verb::Count { .. } => {
                query.skip = query_args::count_or_zero("skip", request.arg("skip"))?;
                #[allow(clippy::cast_possible_truncation)]
                let limit =
                    request.arg("limit").and_then(|limit| limit.as_f64()).unwrap_or(0.0) as i64;
                query.limit = Some(limit.unsigned_abs()).filter(|&limit| limit > 0);
                let bound = |name: &str| {
                    let bound = request.arg(name).and_then(|bound| bound.as_doc());
                    bound.filter(|bound| !bound.is_empty()).map(Doc::to_buf)
                };
                (query.min, query.max) = (bound("min"), bound("max"));
                let shown = doc("projection")?;
                if let Some(parsed) = find::parse_projection(shown, &query.context)? {
                    projection = Some((projection_stage(&parsed), shown));
                }
            }
            Verb::Update { multi, .. } | Verb::Delete { multi, .. } => {
                query.limit = if multi { None } else { Some(1) };
            }
        }
        Ok(Asked { query, sort, projection, verb })
    }

    fn answer(self, ctx: &Context<'_>, ns: &Namespace, verbosity: Verbosity) -> Result<DocBuf> {
        let parsed = self.query.filter.to_doc();
        let started = Instant::now();
        let collection = ctx.server.db.collection(ns);
        let verb = self.verb;
        if let (Verb::Count { is_whole: true }, Some(collection)) = (verb, &collection) {
            let all = u64::try_from(collection.count()).unwrap_or(0);
            let count =
                all.saturating_sub(self.query.skip).min(self.query.limit.unwrap_or(u64::MAX));
            let tree = |ran: bool| {
                DocBuf::build(|out| {
                    out.append("stage", "RECORD_STORE_FAST_COUNT");
                    if ran {
                        append_count(out, "nCounted", count);
                    }
                })
            };
            let ran = (verbosity > Verbosity::QueryPlanner).then(|| (Ran::default(), tree(true)));
            return Ok(answer(ns, &parsed, &tree(false), ran, started, verbosity));
        }
        let Some(collection) = collection else {
            let plan = Plan { access: Access::Nothing, filter: None, needs_sort: false };
            let tree = wrap(verb, None, explain::stages(&plan, &self.query, self.sort, None, None));
            let ran = (verbosity > Verbosity::QueryPlanner).then(|| (Ran::default(), tree.clone()));
            return Ok(answer(ns, &parsed, &tree, ran, started, verbosity));
        };
        let (plan, mut query) = planner::plan(&collection.state(), self.query)?;
        // A write looks for one document by stopping at it; its plan has no stage for that.
        let stops_at = query.limit.filter(|_| !matches!(verb, Verb::Find | Verb::Count { .. }));
        if stops_at.is_some() && !plan.needs_sort {
            query.limit = None;
        }
        let tree = |plan: &Plan, query: &Query, ran: Option<Ran>| {
            wrap(verb, ran, explain::stages(plan, query, self.sort, self.projection, ran))
        };
        let planned = tree(&plan, &query, None);
        if verbosity == Verbosity::QueryPlanner {
            return Ok(answer(ns, &parsed, &planned, None, started, verbosity));
        }
        let mut execution = Execution::new(collection, plan, query);
        let mut returned = 0;
        execution.run(&ctx.server.db, &mut || ctx.check_interrupt(), &mut |_| {
            returned += 1;
            Ok(if stops_at.is_some_and(|stop| returned >= stop) {
                Emit::Enough
            } else {
                Emit::Taken
            })
        })?;
        let mut ran = Ran { examined: execution.examined, returned };
        let tree = tree(execution.plan(), execution.query(), Some(ran));
        ran.returned = match verb {
            Verb::Find => returned,
            Verb::Update { returns: true, .. } | Verb::Delete { returns: true, .. } => returned,
            _ => 0,
        };
        Ok(answer(ns, &parsed, &planned, Some((ran, tree)), started, verbosity))
    }
}

/// The index whose keys alone answer a `distinct`, where there is one.
fn distinct_index(
    ctx: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
) -> Result<Option<Arc<Index>>> {
    if request.command.name != "distinct" || request.arg("hint").is_some() {
        return Ok(None);
    }
    let filter = query_args::doc_or_empty("query", request.arg("query"))?;
    let (Some(collection), true) = (ctx.server.db.collection(ns), filter.is_empty()) else {
        return Ok(None);
    };
    let key = request.text("key").unwrap_or_default();
    let context =
        query_args::query_context(ctx, Some(&collection), request.arg("collation"), None)?;
    Ok(super::distinct::index_for(&collection, &FieldPath::new(key), &context))
}

/// Explains a `distinct` that jumps from key to key through an index.
fn distinct_scan(
    ctx: &Context<'_>,
    ns: &Namespace,
    index: &Arc<Index>,
    verbosity: Verbosity,
) -> Result<DocBuf> {
    let started = Instant::now();
    let tree = |keys: Option<u64>| {
        let scan = DocBuf::build(|out| {
            out.append("stage", "DISTINCT_SCAN");
            explain::describe_index(index, out);
            out.append("direction", "forward");
            if let Some(keys) = keys {
                append_count(out, "keysExamined", keys);
            }
        });
        above("PROJECTION_COVERED", None, scan, |_| ())
    };
    let mut ran = None;
    if verbosity > Verbosity::QueryPlanner
        && let Some(collection) = ctx.server.db.collection(ns)
    {
        let keys = super::distinct::count_keys(ctx, &collection, index.clone())?;
        let examined = Examined { keys, docs: 0 };
        ran = Some((Ran { examined, returned: keys }, tree(Some(keys))));
    }
    Ok(answer(ns, &DocBuf::new(), &tree(None), ran, started, verbosity))
}

fn projection_stage(projection: &Projection) -> &'static str {
    match projection.is_plain_inclusion() {
        true => "PROJECTION_SIMPLE",
        false => "PROJECTION_DEFAULT",
    }
}

/// The stage that does something with what is found, above those that find it.
fn wrap(verb: Verb, ran: Option<Ran>, input: DocBuf) -> DocBuf {
    let found = ran.map_or(0, |ran| ran.returned);
    let did = |out: &mut DocWriter<'_>, counts: &[(&str, u64)]| {
        if ran.is_some() {
            counts.iter().for_each(|(name, count)| append_count(out, name, *count));
        }
    };
    match verb {
        Verb::Find => input,
        Verb::Count { .. } => above("COUNT", None, input, |out| did(out, &[("nCounted", found)])),
        Verb::Update { upsert, .. } => above("UPDATE", None, input, |out| {
            let upserts = u64::from(upsert && found == 0);
            did(out, &[("nMatched", found), ("nWouldModify", found), ("nWouldUpsert", upserts)]);
        }),
        Verb::Delete { .. } => {
            above("DELETE", None, input, |out| did(out, &[("nWouldDelete", found)]))
        }
    }
}

/// `queryPlanner`, and `executionStats` of a plan that ran.
fn answer(
    ns: &Namespace,
    parsed: &DocBuf,
    planned: &DocBuf,
    ran: Option<(Ran, DocBuf)>,
    started: Instant,
    verbosity: Verbosity,
) -> DocBuf {
    let mut answer = doc! {
        "queryPlanner": {
            "namespace": ns.as_str(),
            "indexFilterSet": false,
            "parsedQuery": parsed,
            "maxIndexedOrSolutionsReached": false,
            "maxIndexedAndSolutionsReached": false,
            "maxScansToExplodeReached": false,
            "winningPlan": planned,
            "rejectedPlans": [],
        },
    };
    let Some((ran, tree)) = ran else { return answer };
    let stats = DocBuf::build(|out| {
        out.append("executionSuccess", true);
        append_count(out, "nReturned", ran.returned);
        let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        append_count(out, "executionTimeMillis", took);
        append_count(out, "totalKeysExamined", ran.examined.keys);
        append_count(out, "totalDocsExamined", ran.examined.docs);
        out.append("executionStages", &tree);
        if verbosity == Verbosity::AllPlansExecution {
            out.begin_array("allPlansExecution").finish();
        }
    });
    answer.push("executionStats", &stats);
    answer
}

/// Explains a pipeline: what stands at its front as a query, the rest stage by stage.
fn pipeline(
    ctx: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    stages: Doc<'_>,
    verbosity: Verbosity,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    let collection = ctx.server.db.collection(ns);
    view::check_collation(collection.as_deref(), request.arg("collation"))?;
    let collation = request.arg("collation");
    let mut context =
        query_args::query_context(ctx, collection.as_deref(), collation, request.arg("let"))?;
    let is_collectionless = request.first.value.get().as_str().is_none();
    context.subject = Some(super::aggregate::subject(ns, is_collectionless));
    let whole = Pipeline::parse(stages, &context)?;
    let (ns, whole) = resolve(ctx, ns.clone(), whole, &context)?;
    let (mut query, rest) = push_down(whole, context.clone())?;
    let time_series = collection.and_then(|it| it.state().options.time_series.clone());
    query.hint = match &time_series {
        Some(options) => time_series::write::hint_of_buckets(options, request.arg("hint"))?,
        None => query_args::parse_hint(request.arg("hint"))?,
    };
    let sort = first_sort(stages);
    let asked = Asked { query, sort, projection: None, verb: Verb::Find };
    let front = asked.answer(ctx, &ns, verbosity)?;
    if rest.stages().is_empty() {
        reply.append_elements(front.as_doc().elements_bytes());
        return Ok(());
    }
    let mut out = reply.begin_array("stages");
    out.begin_doc().append("$cursor", &front);
    let printed = rest.print();
    for stage in printed.get().as_array().unwrap_or(Doc::EMPTY).values() {
        out.push(stage);
    }
    out.finish();
    Ok(())
}

/// Puts the pipelines of the views under `ns` in front; answers what they stand on.
fn resolve(
    ctx: &Context<'_>,
    mut ns: Namespace,
    mut pipeline: Pipeline,
    context: &QueryContext,
) -> Result<(Namespace, Pipeline)> {
    view::check_depth(&ctx.server.db, &ns)?;
    while let Some(collection) = ctx.server.db.collection(&ns) {
        let state = collection.state();
        let Some(view) = &state.options.view else { break };
        let inner = Pipeline::parse(view.pipeline.as_doc(), context)?;
        let stages = inner.stages().iter().chain(pipeline.stages()).cloned().collect();
        pipeline = Pipeline::from_stages(stages);
        ns = Namespace::new(ns.db(), &view.on)?;
    }
    Ok((ns, pipeline))
}

/// The sort that may be carried out with the query at the front.
fn first_sort(stages: Doc<'_>) -> Doc<'_> {
    let stages = stages.values().filter_map(|stage| stage.as_doc());
    stages
        .filter_map(|stage| stage.get("$sort"))
        .find_map(|sort| sort.as_doc())
        .unwrap_or(Doc::EMPTY)
}
