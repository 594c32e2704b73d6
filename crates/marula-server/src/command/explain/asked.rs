//! What an explained command asks of its collection, read as the command itself reads it.

use marula_bson::{Doc, DocBuf, doc};
use marula_db::Namespace;
use marula_error::{Result, errors};
use marula_operation::args;
use marula_operation::count::CountOp;
use marula_operation::distinct::DistinctOp;
use marula_operation::find::{FindOp, parse_projection};
use marula_plan::choice::{self, Choice};
use marula_plan::shape::Shape;
use marula_plan::{Execution, Plan, Query, Stage, WordedCollation, Wording, planner};
use marula_query::feature_version::FeatureVersion;
use marula_query::filter::{Filter, Purpose};
use marula_query::text;
use marula_query::update::{Update, UpdateOptions};

use super::Verbosity;
use super::answer::{Answer, Found, Trials};
use crate::command::update::{self, sorted_multi};
use crate::command::{delete, find_and_modify};
use crate::context::Context;
use crate::environment;
use crate::request::Request;
use crate::{write_reply, writes};

errors! {
    not_explainable(name: &str) = IllegalOperation, "Cannot explain cmd: {name}";
    one_statement() = InvalidLength, "explained write batches must be of size 1";
}

/// What is asked of one collection.
pub(super) struct Asked<'a> {
    query: Query,
    sort: Doc<'a>,
    /// What is shown of each document; of a `findAndModify`, of the one that it answers.
    projection: Doc<'a>,
    verb: Verb,
    /// The filter; of a pipeline, none.
    filter: Option<Doc<'a>>,
    collation: WordedCollation<'a>,
    batch_size: Option<u64>,
    /// How documents change.
    update: Option<Update>,
    /// The `distinct`, if it is one.
    distinct: Option<DistinctOp<'a>>,
    /// Whether the query is a pipeline, and all of it.
    pub is_whole_pipeline: bool,
}

/// What becomes of the documents that are found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// They are given.
    Find,
    /// They are counted.
    Count { is_whole: bool, skip: u64, limit: Option<u64> },
    /// They are changed, and the one that is may be given.
    Update { multi: bool, upsert: bool, returns: bool },
    /// They are removed, and the one that is may be given.
    Delete { multi: bool, returns: bool },
}

impl Verb {
    /// Whether the document that it is about is given.
    pub(super) fn returns(self) -> bool {
        matches!(self, Verb::Update { returns: true, .. } | Verb::Delete { returns: true, .. })
    }

    /// Whether they are written.
    pub(super) fn writes(self) -> bool {
        matches!(self, Verb::Update { .. } | Verb::Delete { .. })
    }
}

impl<'a> Asked<'a> {
    /// The front of a pipeline.
    pub(super) fn of(query: Query, sort: Doc<'a>, projection: Doc<'a>) -> Self {
        Asked {
            query,
            sort,
            projection,
            verb: Verb::Find,
            filter: None,
            collation: WordedCollation::InFull,
            batch_size: None,
            update: None,
            distinct: None,
            is_whole_pipeline: false,
        }
    }

    /// Reads a command as the command itself reads its fields.
    pub(super) fn read(ctx: &Context<'_>, request: &Request<'a>, ns: &Namespace) -> Result<Self> {
        let collection = ctx.server.db.collection(ns);
        let (env, collection) = (ctx.env(), collection.as_deref());
        match request.command.name {
            "find" => {
                let op = FindOp::parse(request)?;
                let query = op.explained(&env, collection)?;
                Ok(Asked::of(query, op.sort, op.projection).worded(op.wording()))
            }
            "count" => {
                let op = CountOp::parse(request)?;
                collection.map_or(Ok(()), writes::check_not_view)?;
                let asked = Asked::of(op.query(&env, collection)?, Doc::EMPTY, Doc::EMPTY);
                let verb = Verb::Count { is_whole: op.is_whole(), skip: op.skip, limit: op.limit };
                Ok(Asked { verb, ..asked.worded(op.wording()) })
            }
            "distinct" => {
                let op = DistinctOp::parse(request, false)?;
                let asked = Asked::of(op.query(&env, collection)?, Doc::EMPTY, Doc::EMPTY);
                let asked = asked.worded(op.wording());
                Ok(Asked { distinct: Some(op), ..asked })
            }
            _ => Asked::of_write(ctx, request, ns),
        }
    }

    /// The query as the client wrote it.
    fn worded(self, wording: Wording<'a>) -> Self {
        let Wording { filter, collation, batch_size, .. } = wording;
        Asked { filter, collation, batch_size, ..self }
    }

    fn of_write(ctx: &Context<'_>, request: &Request<'a>, ns: &Namespace) -> Result<Self> {
        let doc = |name: &str| args::doc_or_empty(name, request.arg(name));
        let whole = Doc::EMPTY;
        // How documents change: the update, and the conditions on elements of arrays.
        let change;
        let (filter, sort, hint, collation, verb) = match request.command.name {
            "findAndModify" => {
                find_and_modify::check_form(request)?;
                change = request.arg("update").zip(Some((request.arg("arrayFilters"), None)));
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
                write_reply::check_batch_size(statements.len())?;
                let [statement] = statements[..] else { return Err(one_statement()) };
                match is_update {
                    true => update::check_statement(statement, request.version)?,
                    false => delete::check_statement(statement)?,
                }
                let flag = |name: &str| statement.get(name).is_some_and(|flag| flag.is_truthy());
                change = statement
                    .get("u")
                    .filter(|_| is_update)
                    .zip(Some((statement.get("arrayFilters"), statement.get("c"))));
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
        if let Some(collection) = &collection {
            writes::check_not_view(collection)?;
        }
        let mut context =
            ctx.env().context(collection.as_deref(), collation, request.arg("let"))?;
        context.has_text_score = text::has_search(filter);
        context.has_distance = text::has_near(filter);
        let update = match change {
            Some((update, (array_filters, constants))) => {
                let options = UpdateOptions {
                    array_filters: array_filters.and_then(|filters| filters.as_array()),
                    constants: constants.and_then(|constants| constants.as_doc()),
                    multi: matches!(verb, Verb::Update { multi: true, .. }),
                    ..UpdateOptions::default()
                };
                Some(Update::parse(update, &options, &context)?)
            }
            None => None,
        };
        let purpose = match verb {
            Verb::Update { upsert: true, .. } => Purpose::Upsert,
            _ => Purpose::Any,
        };
        let Wording { collation, filter: worded, .. } = match verb {
            Verb::Update { .. } => Wording::of_update(filter, collation),
            _ => Wording::of(filter, collation),
        };
        let parsed = Filter::draft(filter, purpose, &context)?.finish(&context)?;
        let mut query = Query::new(parsed, context);
        query.hint = args::parse_hint(hint)?;
        args::apply_sort(&mut query, sort)?;
        query.context.limits = environment::limits(ctx, request);
        query.wants_score = text::asks_for(sort, "textScore");
        let mut projection = Doc::EMPTY;
        // A write stops at the one document that it looks for; only a sort has to know.
        if let Verb::Update { multi, .. } | Verb::Delete { multi, .. } = verb {
            query.limit = (!multi && query.sort.is_some()).then_some(1);
        }
        if verb.returns() {
            projection = doc("fields")?;
            parse_projection(projection, filter, &query.context)?;
        }
        Ok(Asked {
            query,
            sort,
            projection,
            verb,
            filter: worded,
            collation,
            batch_size: None,
            update,
            distinct: None,
            is_whole_pipeline: false,
        })
    }

    /// The answer on the collection of this name, and whether the plan gives only the first
    /// document of each group that the query speaks of.
    pub(super) fn answer(
        self,
        ctx: &Context<'_>,
        ns: &Namespace,
        verbosity: Verbosity,
    ) -> Result<(DocBuf, bool)> {
        let Asked {
            mut query,
            sort,
            projection,
            verb,
            filter: worded,
            collation,
            batch_size,
            update,
            distinct,
            is_whole_pipeline,
        } = self;
        let shown_beside_id =
            query.shows_record_id.then(|| doc! { "$recordId": { "$meta": "recordId" } });
        let transform = DocBuf::build(|out| {
            out.append_elements(projection.elements_bytes());
            if let Some(more) = &shown_beside_id {
                out.append_elements(more.as_doc().elements_bytes());
            }
        });
        let collection = ctx.server.db.collection(ns);
        let mut answer = Answer::new(verb, verbosity, sort, transform.as_doc(), ns);
        answer.printed.sorts_records |= query.shows_record_id;
        answer.parsed = Some(query.filter.to_doc());
        answer.is_whole_pipeline = is_whole_pipeline;
        let Some(collection) = collection else {
            if verb != Verb::Find {
                answer.parsed = None;
            }
            if verb.writes() {
                // What is written to a collection that is not there is not looked at.
                answer.verb = Verb::Find;
                answer.printed.projection = Doc::EMPTY;
            }
            let gives_first_of_each = query.first_of_each.is_some();
            return Ok((answer.of_nothing(&Plan::new(Stage::Eof))?, gives_first_of_each));
        };
        if let Verb::Count { is_whole: true, skip, limit } = verb {
            answer.parsed = None;
            return Ok((answer.of_fast_count(&collection, skip, limit), false));
        }
        let state = collection.state();
        answer.collation = query.context.collation.clone();
        let mut shown_of_key = None;
        if let Some(op) = distinct {
            if let Some((plan, _)) = planner::plan_distinct(&state, &query, &op.path) {
                answer.shape = Some(Shape::of(&query, &state));
                let execution = Execution::new(collection, plan, query);
                return Ok((answer.of_plan(ctx, execution, Trials::default(), None)?, false));
            }
            shown_of_key = op.show(&state, &mut query);
        }
        let mut interrupt = || ctx.check_interrupt();
        let mut seen: Vec<Found> = Vec::new();
        let (filter, context) = (query.filter.clone(), query.context.clone());
        let mut see = |number: usize, doc: Doc<'_>| {
            if seen.len() <= number {
                seen.resize_with(number + 1, Found::default);
            }
            seen[number].add(ctx.unit, update.as_ref(), &filter, &context, doc);
        };
        let given = || projection.to_buf();
        let wording = Wording {
            filter: worded,
            sort: worded.map(|_| sort),
            projection: match &shown_of_key {
                Some(shown) => Some(shown.as_doc()),
                None => (!verb.writes()).then_some(projection),
            },
            collation,
            batch_size,
            needs: worded.is_none().then_some(&given as &dyn Fn() -> DocBuf),
            ..Wording::default()
        };
        let Choice { execution, score, rejected, number } =
            choice::explain(ctx.unit, &collection, query, &wording, &mut see, &mut interrupt)?;
        let (plan, query) = (execution.plan(), execution.query());
        // Only now is known in which language a text search is.
        answer.parsed = Some(query.filter.to_doc());
        let is_by_id = matches!(plan.root, Stage::IdHack(_))
            && !update.as_ref().is_some_and(Update::needs_position);
        if is_by_id && verb.writes() && projection.is_empty() {
            // Nobody had to understand such a filter.
            answer.parsed = None;
        }
        answer.has_more_meetings =
            plan.has_more_meetings || rejected.iter().any(|tried| tried.plan.has_more_meetings);
        answer.has_more_walks =
            plan.has_more_walks || rejected.iter().any(|tried| tried.plan.has_more_walks);
        // A search without words has a shape all the same.
        let has_search = query.filter.text().is_some();
        let is_simple = plan.root.any(&|stage| match stage {
            Stage::IdHack(_) => true,
            Stage::Eof => !has_search,
            _ => false,
        });
        answer.shape = (!is_simple).then(|| Shape::of(query, &state));
        answer.is_filtered = query.allowed.is_some();
        let found = if number < seen.len() { seen.swap_remove(number) } else { Found::default() };
        let trials = Trials { score, rejected, found };
        let gives_first_of_each = plan.gives_first_of_each();
        let answer = answer.of_plan(ctx, execution, trials, update)?;
        Ok((answer, gives_first_of_each))
    }
}
