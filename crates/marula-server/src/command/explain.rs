//! `explain`: how a command would be carried out, and what that would look at.
//!
//! The plan is the one that would run. For `executionStats` it is run too, without writing anything.
//! Source: manual "explain", "Explain Results"; shapes and errors recorded from mongod 6.0.

use std::sync::Arc;
use std::time::Instant;

use marula_bson::{Doc, DocBuf, DocWriter, FieldPath, Value, doc_fields};
use marula_db::{Collection, Namespace};
use marula_error::{Error, Result, errors};
use marula_plan::choice::{self, Choice};
use marula_plan::explain::{self, Printed, above, append_count, append_stats};
use marula_plan::plan::Stats;
use marula_plan::shape::{Shape, hash_text};
use marula_plan::trial::Tried;
use marula_plan::{Emit, Execution, Node, Plan, Query, Shown, Stage, Wanted, planner};
use marula_query::context::Context as QueryContext;
use marula_query::feature_version::FeatureVersion;
use marula_query::stage::{Kind, Pipeline};
use marula_query::text;

use super::create::bad_enumeration;
use super::fields::{self, Field, Types};
use super::update::sorted_multi;
use super::{Auth, Command, Fields, Outcome, find};
use crate::auth::check::Check;
use crate::context::Context;
use crate::geo_near;
use crate::pipeline_source::{of_first_of_each, push_down};
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
    auth: Auth::Content(demands),
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
            let (answer, _) = asked.answer(ctx, &ns, verbosity)?;
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
    let (version, _) = super::build_info::compatible_version(ctx.server.db.feature_version());
    doc_fields!(reply;
        "serverInfo": {
            "host": host::host_name().as_str(),
            "port": port.unwrap_or(0),
            "version": version,
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
    projection: Doc<'a>,
    verb: Verb,
    /// The field that a `distinct` is about.
    key: Option<FieldPath>,
}

/// What becomes of the documents that are found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Find,
    Count { is_whole: bool, skip: u64, limit: Option<u64> },
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
                let skip = query_args::count_or_zero("skip", request.arg("skip"))?;
                let verb = Verb::Count { is_whole, skip, limit: limit_of(request) };
                (query, whole, request.arg("hint"), request.arg("collation"), verb)
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
                let sort = statement.get("sort").and_then(|sort| sort.as_doc());
                let sort = sort.filter(|_| is_update && request.version >= FeatureVersion::V8_0);
                if sort.is_some() && flag("multi") {
                    return Err(sorted_multi());
                }
                (
                    query,
                    sort.unwrap_or(whole),
                    statement.get("hint"),
                    statement.get("collation"),
                    verb,
                )
            }
            other => return Err(not_explainable(other)),
        };
        let collection = ctx.server.db.collection(ns);
        if let (Some(collection), false) = (&collection, verb == Verb::Find) {
            writes::check_not_view(collection)?;
        }
        let mut context =
            query_args::query_context(ctx, collection.as_deref(), collation, request.arg("let"))?;
        context.has_text_score = text::has_search(filter);
        let mut query = query_args::parse_query(filter, context)?;
        query.hint = query_args::parse_hint(hint)?;
        query_args::apply_sort(&mut query, sort)?;
        query.context.limits = query_args::limits(ctx, request);
        query.wants_score = text::asks_for_score(sort);
        let mut projection = Doc::EMPTY;
        let mut key = None;
        match verb {
            Verb::Find => {
                query.skip = query_args::count_or_zero("skip", request.arg("skip"))?;
                query.limit = limit_of(request);
                let bound = |name: &str| {
                    let bound = request.arg(name).and_then(|bound| bound.as_doc());
                    bound.filter(|bound| !bound.is_empty()).map(Doc::to_buf)
                };
                (query.min, query.max) = (bound("min"), bound("max"));
                projection = doc("projection")?;
                query.wants_score |= text::asks_for_score(projection);
                if let Some(parsed) = find::parse_projection(projection, &query.context)? {
                    query.shown = Some(Shown::of(&parsed, projection));
                }
                if request.flag("returnKey") {
                    query.wanted = Wanted::Key;
                }
                key = request.text("key").map(FieldPath::new);
            }
            Verb::Count { .. } => query.wanted = Wanted::Count,
            // A write looks for one document by stopping at it; only a sort has to know.
            Verb::Update { multi, .. } | Verb::Delete { multi, .. } => {
                query.limit = (!multi && query.sort.is_some()).then_some(1);
            }
        }
        Ok(Asked { query, sort, projection, verb, key })
    }

    /// The answer, and whether the plan gives only the first document of each group that the query speaks of.
    fn answer(
        self,
        ctx: &Context<'_>,
        ns: &Namespace,
        verbosity: Verbosity,
    ) -> Result<(DocBuf, bool)> {
        let Asked { mut query, sort, projection, verb, key } = self;
        let started = Instant::now();
        let printed = Printed { sort, projection, has_run: false };
        let collection = ctx.server.db.collection(ns);
        let mut answer = Answer {
            verb,
            started,
            verbosity,
            printed,
            namespace: ns,
            parsed: Some(query.filter.to_doc()),
            shape: None,
            is_filtered: false,
            has_more_meetings: false,
        };
        let Some(collection) = collection else {
            let eof = || Plan::new(Node::new(Stage::Eof));
            if let Verb::Count { .. } = verb {
                answer.parsed = None;
            }
            let gives_first_of_each = query.first_of_each.is_some();
            return Ok((answer.of_one(ctx, eof(), None, query)?, gives_first_of_each));
        };
        if let Verb::Count { is_whole: true, skip, limit } = verb {
            answer.parsed = None;
            return Ok((answer.of_fast_count(&collection, skip, limit), false));
        }
        let state = collection.state();
        if let Some(key) = key {
            if let Some((plan, _)) = planner::plan_distinct(&state, &query, &key) {
                answer.shape = Some(Shape::of(&query, &state));
                let answer = answer.of_one(ctx, plan, Some(collection.clone()), query)?;
                return Ok((answer, false));
            }
            query.shown = super::distinct::shown(&state, &query, &key);
        }
        let mut interrupt = || ctx.check_interrupt();
        let Choice { plan, rejected, tried } =
            choice::explain(&ctx.server.db, &collection, &mut query, &mut interrupt)?;
        // Only now is known in which language a text search is.
        answer.parsed = Some(query.filter.to_doc());
        answer.has_more_meetings =
            plan.has_more_meetings || rejected.iter().any(|plan| plan.has_more_meetings);
        let is_simple = plan.root.any(&|stage| matches!(stage, Stage::IdHack(_) | Stage::Eof));
        answer.shape = (!is_simple).then(|| Shape::of(&query, &state));
        answer.is_filtered = query.allowed.is_some();
        let rejected: Vec<DocBuf> = rejected.iter().map(|plan| answer.tree(plan, None)).collect();
        let gives_first_of_each = plan.gives_first_of_each();
        let answer =
            answer.of_plan(ctx, plan, &rejected, &tried, Some(collection.clone()), query)?;
        Ok((answer, gives_first_of_each))
    }
}

/// The `limit` of a `find` or a `count`; a negative one is the same limit.
fn limit_of(request: &Request<'_>) -> Option<u64> {
    #[allow(clippy::cast_possible_truncation)]
    let limit = request.arg("limit").and_then(|limit| limit.as_f64()).unwrap_or(0.0) as i64;
    Some(limit.unsigned_abs()).filter(|&limit| limit > 0)
}

/// What is made into an answer.
struct Answer<'a> {
    verb: Verb,
    started: Instant,
    verbosity: Verbosity,
    printed: Printed<'a>,
    namespace: &'a Namespace,
    /// The filter as it was understood; `None` where nobody had to understand it.
    parsed: Option<DocBuf>,
    /// The shape of the query, where its plan is one of those that are chosen by shape.
    shape: Option<Shape>,
    /// Whether an index filter says which indexes may be used.
    is_filtered: bool,
    /// Whether there are more pairs of indexes than were looked at.
    has_more_meetings: bool,
}

impl Answer<'_> {
    fn of_one(
        &self,
        ctx: &Context<'_>,
        plan: Plan,
        collection: Option<Arc<Collection>>,
        query: Query,
    ) -> Result<DocBuf> {
        self.of_plan(ctx, plan, &[], &[], collection, query)
    }

    fn of_plan(
        &self,
        ctx: &Context<'_>,
        plan: Plan,
        rejected: &[DocBuf],
        tried: &[Tried],
        collection: Option<Arc<Collection>>,
        query: Query,
    ) -> Result<DocBuf> {
        let mut answer = self.planned(&self.tree(&plan, None), rejected);
        if self.verbosity == Verbosity::QueryPlanner {
            return Ok(answer);
        }
        let (plan, found, failure) = match collection {
            Some(collection) => self.run(ctx, Execution::new(collection, plan, query))?,
            None => {
                let mut plan = plan;
                let stats = &mut plan.root.stats;
                (stats.works, stats.is_eof) = (1, true);
                (plan, 0, None)
            }
        };
        let returned = match self.verb {
            Verb::Find => found,
            Verb::Update { returns: true, .. } | Verb::Delete { returns: true, .. } => found,
            _ => 0,
        };
        let examined = plan.examined();
        let tree = self.tree(&plan, Some(found));
        let stats = DocBuf::build(|out| {
            self.append_totals(failure.as_ref(), returned, (examined.keys, examined.docs), out);
            out.append("executionStages", &tree);
            if self.verbosity == Verbosity::AllPlansExecution {
                let mut all = out.begin_array("allPlansExecution");
                let printed = Printed { has_run: true, ..self.printed };
                for Tried { plan, score, .. } in tried {
                    let examined = plan.examined();
                    let mut one = all.begin_doc();
                    append_count(&mut one, "nReturned", plan.root.stats.advanced);
                    one.append("executionTimeMillisEstimate", 0);
                    append_count(&mut one, "totalKeysExamined", examined.keys);
                    append_count(&mut one, "totalDocsExamined", examined.docs);
                    one.append("score", *score);
                    one.append("executionStages", &explain::tree(plan, &printed));
                }
            }
        });
        answer.push("executionStats", &stats);
        Ok(answer)
    }

    /// Carries a plan out as far as the command would; answers it with what it has done, how many documents it gave,
    /// and why it went no further.
    fn run(
        &self,
        ctx: &Context<'_>,
        mut execution: Execution,
    ) -> Result<(Plan, u64, Option<Error>)> {
        let enough = match self.verb {
            Verb::Find => u64::MAX,
            Verb::Count { skip, limit, .. } => {
                limit.map_or(u64::MAX, |limit| limit.saturating_add(skip))
            }
            Verb::Update { multi, .. } | Verb::Delete { multi, .. } => {
                if multi {
                    u64::MAX
                } else {
                    1
                }
            }
        };
        let mut found = 0;
        let outcome = execution.run(&ctx.server.db, &mut || ctx.check_interrupt(), &mut |_| {
            found += 1;
            Ok(if found < enough { Emit::Taken } else { Emit::Enough })
        });
        // Who is to stop gets no answer; what goes wrong in the query is part of it.
        ctx.check_interrupt()?;
        Ok((execution.into_plan(), found, outcome.err()))
    }

    /// The stages of a plan under what becomes of its documents; `found` says how many there were, if it ran.
    fn tree(&self, plan: &Plan, found: Option<u64>) -> DocBuf {
        let printed = Printed { has_run: found.is_some(), ..self.printed };
        let input = explain::tree(plan, &printed);
        let root = &plan.root.stats;
        let stops_early = found.is_some_and(|found| found > 0) && !root.is_eof;
        let returns = match self.verb {
            Verb::Update { returns, .. } | Verb::Delete { returns, .. } => returns,
            _ => false,
        };
        let stats = found.map(|found| {
            let works = root.works + u64::from(stops_early || (returns && found > 0));
            let advanced = if returns { found } else { 0 };
            let need_time = works.saturating_sub(1).saturating_sub(advanced);
            Stats { works, advanced, need_time, is_eof: true, ..Stats::default() }
        });
        let found_count = found.unwrap_or(0);
        let did = |out: &mut DocWriter<'_>, counts: &[(&str, u64)]| {
            if found.is_some() {
                counts.iter().for_each(|(name, count)| append_count(out, name, *count));
            }
        };
        match self.verb {
            Verb::Find => input,
            Verb::Count { skip, .. } => above("COUNT", stats, input, |out| {
                let skipped = found_count.min(skip);
                did(out, &[("nCounted", found_count - skipped), ("nSkipped", skipped)]);
            }),
            Verb::Update { upsert, .. } => above("UPDATE", stats, input, |out| {
                let upserts = u64::from(upsert && found_count == 0);
                did(
                    out,
                    &[
                        ("nMatched", found_count),
                        ("nWouldModify", found_count),
                        ("nWouldUpsert", upserts),
                    ],
                );
            }),
            Verb::Delete { .. } => {
                above("DELETE", stats, input, |out| did(out, &[("nWouldDelete", found_count)]))
            }
        }
    }

    /// The answer for a `count` of everything, which the collection knows.
    fn of_fast_count(&self, collection: &Collection, skip: u64, limit: Option<u64>) -> DocBuf {
        let all = u64::try_from(collection.count()).unwrap_or(0);
        let skipped = all.min(skip);
        let counted = (all - skipped).min(limit.unwrap_or(u64::MAX));
        let tree = |stats: Option<Stats>| {
            DocBuf::build(|out| {
                out.append("stage", "RECORD_STORE_FAST_COUNT");
                append_stats(stats, out);
                if stats.is_some() {
                    append_count(out, "nCounted", counted);
                    append_count(out, "nSkipped", skipped);
                }
            })
        };
        let mut answer = self.planned(&tree(None), &[]);
        if self.verbosity > Verbosity::QueryPlanner {
            let stats = Stats { works: 1, is_eof: true, ..Stats::default() };
            let stats = DocBuf::build(|out| {
                self.append_totals(None, 0, (0, 0), out);
                out.append("executionStages", &tree(Some(stats)));
                if self.verbosity == Verbosity::AllPlansExecution {
                    out.begin_array("allPlansExecution").finish();
                }
            });
            answer.push("executionStats", &stats);
        }
        answer
    }

    fn append_totals(
        &self,
        failure: Option<&Error>,
        returned: u64,
        (keys, docs): (u64, u64),
        out: &mut DocWriter<'_>,
    ) {
        out.append("executionSuccess", failure.is_none());
        if let Some(failure) = failure {
            out.append("errorMessage", failure.message());
            out.append("errorCode", failure.code().number());
        }
        append_count(out, "nReturned", returned);
        let took = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        append_count(out, "executionTimeMillis", took);
        append_count(out, "totalKeysExamined", keys);
        append_count(out, "totalDocsExamined", docs);
        if failure.is_some() {
            out.append("failed", true);
        }
    }

    fn planned(&self, winning: &DocBuf, rejected: &[DocBuf]) -> DocBuf {
        DocBuf::build(|out| {
            let mut planner = out.begin_doc("queryPlanner");
            planner.append("namespace", self.namespace.as_str());
            planner.append("indexFilterSet", self.is_filtered);
            if let Some(parsed) = &self.parsed {
                planner.append("parsedQuery", parsed);
            }
            if let Some(shape) = self.shape {
                planner.append("queryHash", hash_text(shape.query).as_str());
                planner.append("planCacheKey", hash_text(shape.plan).as_str());
            }
            planner.append("maxIndexedOrSolutionsReached", false);
            planner.append("maxIndexedAndSolutionsReached", self.has_more_meetings);
            planner.append("maxScansToExplodeReached", false);
            planner.append("winningPlan", winning);
            let mut array = planner.begin_array("rejectedPlans");
            rejected.iter().for_each(|plan| {
                array.push(plan);
            });
        })
    }
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
    context.limits = query_args::limits(ctx, request);
    let is_collectionless = request.first.value.get().as_str().is_none();
    context.subject = Some(super::aggregate::subject(ns, is_collectionless));
    let whole = Pipeline::parse(stages, &context)?;
    let (ns, whole) = resolve(ctx, ns.clone(), whole, &context)?;
    let whole = whole.rearranged(&context);
    let sort = first_sort(&whole);
    let below = ctx.server.db.collection(&ns);
    let (mut query, rest, cursor) = match geo_near::take(below.as_deref(), &ns, &whole, &context)? {
        Some((query, _, rest)) => (query, rest, "$geoNearCursor"),
        None => {
            let (query, rest) = push_down(whole, context.clone())?;
            (query, rest, "$cursor")
        }
    };
    let time_series = collection.and_then(|it| it.state().options.time_series.clone());
    query.hint = match &time_series {
        Some(options) => time_series::write::hint_of_buckets(options, request.arg("hint"))?,
        None => query_args::parse_hint(request.arg("hint"))?,
    };
    let sort = sort.as_doc();
    let projection = rest.needs().map(|needed| needed.projection()).unwrap_or_default();
    let asked = Asked { query, sort, projection: projection.as_doc(), verb: Verb::Find, key: None };
    let (front, gives_first_of_each) = asked.answer(ctx, &ns, verbosity)?;
    let rest = if gives_first_of_each { of_first_of_each(rest) } else { rest };
    if rest.stages().is_empty() && cursor == "$cursor" {
        reply.append_elements(front.as_doc().elements_bytes());
        return Ok(());
    }
    let mut out = reply.begin_array("stages");
    out.begin_doc().append(cursor, &front);
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
fn first_sort(pipeline: &Pipeline) -> DocBuf {
    let mut stages = pipeline.stages().iter();
    let sort = stages.find(|stage| matches!(stage.kind(), Kind::Sort(..)));
    let printed = sort.map(|stage| stage.print());
    let printed = printed.as_ref().and_then(|printed| printed.get().as_doc()?.get("sortKey"));
    printed.and_then(|key| key.as_doc()).map(Doc::to_buf).unwrap_or_default()
}

/// What a user needs who asks how a command would be carried out: what that command needs.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let Value::Document(body) = request.first.value.get() else { return Ok(()) };
    match request.nested(body)? {
        Some(inner) if inner.command.name != "explain" => check.request(&inner),
        _ => Ok(()),
    }
}
