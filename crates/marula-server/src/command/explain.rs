//! `explain`: the plan of a command, and statistics of its execution.
//!
//! The plan is the one that the command would use. With `executionStats` it is executed, without
//! writes.
//! Source: manual "explain", "Explain Results"; shapes and errors recorded from mongod 6.0.

mod output;
mod query;

use marula_bson::{BStr, Doc, DocBuf, DocWriter, Type, Value, doc, doc_fields, long};
use marula_db::Namespace;
use marula_error::{Result, errors};
use marula_operation::aggregate::{self, AggregateOp, no_stages};
use marula_operation::count::CountOp;
use marula_operation::distinct::DistinctOp;
use marula_operation::find::FindOp;
use marula_operation::pipeline::front::{front_projection, over_plan, projection_of};
use marula_operation::pipeline::{Front, count_given};
use marula_operation::{on_views, views};
use marula_query::once::duplicate_field;

use super::aggregate::is_collectionless;
use super::create::bad_enumeration;
use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Outcome};
use crate::auth::check::Check;
use crate::context::Context;
use crate::pipeline_source::ServerHost;
use crate::request::{self, Request};
use crate::{host, writes};
use query::{ExplainedQuery, QueryCommand};

errors! {
    not_explainable(name: &str) = IllegalOperation, "Cannot explain cmd: {name}";
    views_are_locked() = 51_070, "Modifications to system.views must take an exclusive lock";
    no_system_update(ns: &Namespace) = 10_156, "cannot update a system namespace: {ns}";
    no_system_delete() = 12_050, "cannot delete from system namespace";
    unknown(name: &str) = CommandNotFound, "Explain failed due to unknown command: {name}";
    explains_itself() = IllegalOperation, "Explain cannot explain itself.";
    other_db(db: &str, inner: &BStr) = InvalidNamespace, "Mismatched $db in explain command. Expected {db} but got {inner}";
    explain_twice() = FailedToParse, "The 'explain' option is illegal when a explain verbosity is also provided";
}

pub(super) static COMMAND: Command = Command {
    name: "explain",
    help: "Returns the plan of a command and, if requested, statistics of its execution.",
    ends_with_client: true,
    in_api_v1: true,
    secondary: Some(super::OnSecondary::IfPreferred),
    fields: Fields::Strict {
        place: "explain",
        fields: &[Field::optional("verbosity", Types::STRING)],
    },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

/// The level of detail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verbosity {
    QueryPlanner,
    ExecutionStats,
    AllPlansExecution,
}

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    ctx.unit = ctx.unit.explained();
    let Value::Document(body) = request.first.value.get() else {
        if request.first.value.get().is_nullish() {
            return Err(fields::missing_field("explain", "explain"));
        }
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
    match body.get("$db") {
        None => {}
        Some(Value::String(db)) if db == request.db => {}
        Some(Value::String(db)) => return Err(other_db(request.db, db)),
        Some(other) => return Err(request::db_not_a_string(other.kind().alias())),
    }
    let name = body.iter().next().map(|first| first.name.to_string()).unwrap_or_default();
    let inner = request.nested(body)?.ok_or_else(|| unknown(&name))?;
    if inner.command.name == "explain" {
        return Err(explains_itself());
    }
    // The command gets the database of `explain` as well.
    if body.get("$db").is_some()
        && let Fields::Known { place, .. } | Fields::Strict { place, .. } = inner.command.fields
    {
        return Err(duplicate_field(place, "$db".into()));
    }
    if inner.command.name == "aggregate" {
        if inner.arg("explain").is_some() {
            return Err(explain_twice());
        }
        aggregate::check_cursor(&inner)?;
    }
    explain(ctx, &inner, verbosity, reply)?;
    Ok(Outcome::Done)
}

/// The form in which a command is explained.
enum Form {
    /// These stages: those of an `aggregate`, or those that a command on a view becomes.
    Pipeline(DocBuf),
    /// The query of this command.
    Query(QueryCommand),
}

/// Executes an `aggregate` with `explain: true`.
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
    // Only an `aggregate` has no query of its own.
    let command = match request.command.name {
        "aggregate" => None,
        name => Some(QueryCommand::of(name).ok_or_else(|| not_explainable(name))?),
    };
    let ns = match command {
        None => super::aggregate::target(request)?,
        Some(_) => request.namespace()?,
    };
    if command.is_none() && request.first.value.kind() != Type::String {
        let stages = request.arg("pipeline").and_then(|stages| stages.as_array());
        if stages.is_none_or(Doc::is_empty) {
            return Err(no_stages());
        }
    }
    check_target(command, &ns)?;
    reply.append("explainVersion", "1");
    let is_view = ctx.server.db.collection(&ns).is_some_and(|it| it.state().options.view.is_some());
    let shown = match form(ctx, request, command, &ns, is_view)? {
        Form::Pipeline(stages) => {
            let explained = pipeline(ctx, request, &ns, stages.as_doc(), verbosity, reply);
            match command {
                Some(QueryCommand::Find) => explained.map_err(on_views::unsupported)?,
                _ => explained?,
            }
            match is_view {
                true => command_below(ctx, request, &ns, stages.as_doc())?,
                false => command_document(request),
            }
        }
        Form::Query(command) => {
            let query = ExplainedQuery::read(ctx, request, command, &ns)?;
            let (output, _) = query.output(ctx, &ns, verbosity)?;
            reply.append_elements(output.as_doc().elements_bytes());
            command_document(request)
        }
    };
    reply.append("command", &shown);
    server_info(ctx, reply);
    Ok(())
}

/// Returns the form in which a command on `ns` is explained; `command` is `None` for an
/// `aggregate`.
///
/// Errors: those of the command's fields, and of options that a view does not have.
fn form(
    ctx: &Context<'_>,
    request: &Request<'_>,
    command: Option<QueryCommand>,
    ns: &Namespace,
    is_view: bool,
) -> Result<Form> {
    Ok(match command {
        None => {
            super::aggregate::check_fields(ctx, request, ns)?;
            let stages = request.arg("pipeline").and_then(|it| it.as_array());
            Form::Pipeline(stages.unwrap_or(Doc::EMPTY).to_buf())
        }
        Some(QueryCommand::Find) if is_view => {
            FindOp::parse(request)?.check_without_collection(&ctx.env(), ns)?;
            on_views::check_find_options(request)?;
            Form::Pipeline(on_views::stages_of_find(request)?)
        }
        Some(QueryCommand::Count) if is_view => {
            Form::Pipeline(on_views::stages_of_count(&CountOp::parse(request)?))
        }
        Some(QueryCommand::Distinct) if is_view => {
            let op = DistinctOp::parse(request, true)?;
            op.query(&ctx.env(), ns, None)?;
            Form::Pipeline(on_views::stages_of_distinct(&op))
        }
        Some(command) => Form::Query(command),
    })
}

/// Checks that an explained command may write to its collection; the error texts are those of each
/// command.
fn check_target(command: Option<QueryCommand>, ns: &Namespace) -> Result<()> {
    let refused = match command {
        Some(QueryCommand::FindAndModify) => return writes::check_writable(ns),
        Some(QueryCommand::Update) => no_system_update(ns),
        Some(QueryCommand::Delete) => no_system_delete(),
        _ => return Ok(()),
    };
    match ns.collection() {
        "system.views" => Err(views_are_locked()),
        name if name.starts_with("system.") => writes::check_writable(ns).map_err(|_| refused),
        _ => Ok(()),
    }
}

/// Returns the `aggregate` that a command on a view runs on the collection below, with the fields
/// in mongod's order.
fn command_below(
    ctx: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    stages: Doc<'_>,
) -> Result<DocBuf> {
    let collection = ctx.server.db.collection(ns);
    let collation = request.arg("collation");
    let context = ctx.env().context(collection.as_deref(), collation, None)?;
    let below = views::below(&ctx.server.db, ns.clone())?;
    Ok(DocBuf::build(|out| {
        out.append("aggregate", below.ns.collection());
        let mut pipeline = out.begin_array("pipeline");
        let all = below.pipelines.iter().map(DocBuf::as_doc).chain([stages]);
        all.flat_map(Doc::values).for_each(|stage| {
            pipeline.push(stage);
        });
        pipeline.finish();
        out.append("cursor", Doc::EMPTY);
        let mut copy = |name: &str| match request.body.get(name) {
            // mongod shows the parsed number.
            Some(value) if name == "maxTimeMS" => {
                out.append(name, value.as_exact_i64().map_or(value, Value::Int64));
            }
            Some(value) => {
                out.append(name, value);
            }
            None => {}
        };
        ["allowDiskUse", "maxTimeMS", "bypassDocumentValidation", "readConcern"]
            .into_iter()
            .for_each(&mut copy);
        match &context.collation {
            Some(collation) => out.append("collation", collation.to_doc()),
            None => out.append("collation", &doc! { "locale": "simple" }),
        };
        append_hint(on_views::hint(request), out);
        if let Some(constants) = request.body.get("let") {
            out.append("let", constants);
        }
    }))
}

/// Appends a hint in its parsed form: an index name is shown in a document, and an empty hint is
/// omitted.
fn append_hint(hint: Option<Value<'_>>, out: &mut DocWriter<'_>) {
    match hint {
        None => {}
        Some(Value::Document(hint)) if hint.is_empty() => {}
        Some(index @ Value::String(_)) => {
            out.begin_doc("hint").append("$hint", index);
        }
        Some(hint) => {
            out.append("hint", hint);
        }
    }
}

/// The fields of a `findAndModify` that are shown, in this order.
const SHOWN_OF_FIND_AND_MODIFY: &[&str] = &[
    "query",
    "fields",
    "sort",
    "hint",
    "collation",
    "arrayFilters",
    "remove",
    "update",
    "upsert",
    "new",
    "bypassDocumentValidation",
    "let",
    "writeConcern",
];

/// Those of them that are flags; they are shown as booleans.
const FLAGS_OF_FIND_AND_MODIFY: &[&str] = &["remove", "upsert", "new", "bypassDocumentValidation"];

/// Returns the command with its database, without the fields of its session. As in mongod, a
/// `findAndModify` is shown in its parsed form.
fn command_document(request: &Request<'_>) -> DocBuf {
    DocBuf::build(|out| {
        if request.command.name == "findAndModify" {
            out.append_raw(request.command.name, request.first.value);
            for name in SHOWN_OF_FIND_AND_MODIFY {
                match request.body.get(*name) {
                    None if *name == "query" => {
                        out.append(*name, &DocBuf::new());
                    }
                    None => {}
                    hint if *name == "hint" => append_hint(hint, out),
                    Some(value) if FLAGS_OF_FIND_AND_MODIFY.contains(name) => {
                        out.append(*name, value.is_truthy());
                    }
                    Some(value) => {
                        out.append(*name, value);
                    }
                }
            }
            return;
        }
        for element in request.body {
            if !matches!(&**element.name, b"$db" | b"lsid" | b"$clusterTime" | b"$readPreference") {
                out.append_raw(element.name, element.value);
            }
        }
        out.append("$db", request.db);
    })
}

/// The parameters that the reply shows.
const SHOWN_PARAMETERS: &[&str] = &[
    "internalQueryFacetBufferSizeBytes",
    "internalQueryFacetMaxOutputDocSizeBytes",
    "internalLookupStageIntermediateDocumentMaxSizeBytes",
    "internalDocumentSourceGroupMaxMemoryBytes",
    "internalQueryMaxBlockingSortMemoryUsageBytes",
    "internalQueryProhibitBlockingMergeOnMongoS",
    "internalQueryMaxAddToSetBytes",
    "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
];

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
    let mut shown = reply.begin_doc("serverParameters");
    for name in SHOWN_PARAMETERS {
        let row =
            crate::parameters::find(name.as_bytes()).expect("explain shows parameters there are");
        let value = ctx.server.parameters.get(row);
        // mongod shows each as a number of the smallest type that has room for it: the flag too,
        // and a parameter of 64 bits.
        let number = value.get().as_exact_i64().unwrap_or(i64::from(value.get().is_truthy()));
        shown.append(*name, Value::whole(number));
    }
}

/// Explains a pipeline: the stages that were pushed down as a query, and the others one by one.
fn pipeline(
    ctx: &Context<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    stages: Doc<'_>,
    verbosity: Verbosity,
    reply: &mut DocWriter<'_>,
) -> Result<()> {
    let hint = on_views::hint(request);
    let op = AggregateOp::of_stages(request, stages, hint, is_collectionless(request));
    let explained = op.explained(&ctx.env(), ns)?;
    let ns = &explained.ns;
    let sort = explained.first_sort();
    let Front { query, search, rest } = explained.front()?;
    let is_search = search.is_some();
    let sort = sort.as_doc();
    let is_sorted = query.sort.is_some();
    let projection = projection_of(&rest, is_sorted);
    // The stage that is shown as the query's projection is not shown again.
    let is_hidden = !is_search && front_projection(&rest, is_sorted).is_some();
    let hidden = usize::from(is_hidden);
    let is_whole = rest.stages().len() == hidden && !is_search;
    let is_counted =
        verbosity > Verbosity::QueryPlanner && !is_whole && !explained.makes_documents();
    let mut counts = match is_counted {
        true => count_given(ServerHost::of(ctx), ns, explained.front()?)?.into_iter(),
        false => Vec::new().into_iter(),
    };
    let mut query = ExplainedQuery::of(query, sort, projection.as_doc());
    query.is_whole_pipeline = is_whole;
    let (front, given) = query.output(ctx, ns, verbosity)?;
    let rest = over_plan(rest, given);
    if is_whole {
        reply.append_elements(front.as_doc().elements_bytes());
        return Ok(());
    }
    let mut out = reply.begin_array("stages");
    let mut append = |stage: Doc<'_>, count: Option<u64>| {
        let mut one = out.begin_doc();
        one.append_elements(stage.elements_bytes());
        if let Some(count) = count {
            one.append("nReturned", long(count));
            // Time is not measured per document.
            one.append("executionTimeMillisEstimate", 0_i64);
        }
    };
    let cursor = if is_search { "$geoNearCursor" } else { "$cursor" };
    let front = DocBuf::build(|one| {
        one.append(cursor, &front);
    });
    append(front.as_doc(), counts.next());
    let printed = rest.print();
    let printed = printed.get().as_array().unwrap_or(Doc::EMPTY);
    let mut counts = counts.skip(hidden);
    for stage in printed.values().skip(hidden).filter_map(|stage| stage.as_doc()) {
        append(stage, counts.next());
    }
    out.finish();
    Ok(())
}

/// Requires the privileges of the explained command.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let Value::Document(body) = request.first.value.get() else { return Ok(()) };
    match request.nested(body)? {
        Some(inner) if inner.command.name != "explain" => check.request(&inner),
        _ => Ok(()),
    }
}
