//! The query of an explained command, parsed as the command itself does.

use marula_bson::{Doc, DocBuf};
use marula_db::Namespace;
use marula_error::{Result, errors};
use marula_operation::count::CountOp;
use marula_operation::distinct::DistinctOp;
use marula_operation::find::FindOp;
use marula_operation::find_and_modify::FindAndModifyOp;
use marula_operation::targets;
use marula_plan::choice::{self, Choice};
use marula_plan::shape::shape_of;
use marula_plan::{Execution, Given, Plan, Query, Stage, WordedCollation, Wording, planner, query};
use marula_query::update::Update;

use super::Verbosity;
use super::output::{Found, Output, Trials};
use crate::command::update::WordedUpdate;
use crate::command::{delete, update};
use crate::context::Context;
use crate::environment;
use crate::request::Request;
use crate::write_reply;

errors! {
    no_database(name: &str) = NamespaceNotFound, "database {name} does not exist";
    one_statement() = InvalidLength, "explained write batches must be of size 1";
}

/// The commands with one query on one collection, which can be explained.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryCommand {
    Find,
    Count,
    Distinct,
    Update,
    Delete,
    FindAndModify,
}

impl QueryCommand {
    /// Returns the command of this name; `None` if it cannot be explained by its query.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "find" => QueryCommand::Find,
            "count" => QueryCommand::Count,
            "distinct" => QueryCommand::Distinct,
            "update" => QueryCommand::Update,
            "delete" => QueryCommand::Delete,
            "findAndModify" => QueryCommand::FindAndModify,
            _ => return None,
        })
    }
}

/// The query of an explained command on one collection.
pub(super) struct ExplainedQuery<'a> {
    query: Query,
    sort: Doc<'a>,
    /// The projection of each document; of a `findAndModify`, of the returned one.
    projection: Doc<'a>,
    verb: Verb,
    /// The filter; a pipeline has none.
    filter: Option<Doc<'a>>,
    collation: WordedCollation<'a>,
    batch_size: Option<u64>,
    /// The update of the documents.
    update: Option<Update>,
    /// The operation, if the command is `distinct`.
    distinct: Option<DistinctOp<'a>>,
    /// Whether the query is a pipeline that was pushed down completely.
    pub is_whole_pipeline: bool,
}

/// The use of the documents that are found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// They are returned.
    Find,
    /// They are counted.
    Count { is_whole: bool, skip: u64, limit: Option<u64> },
    /// They are updated, and the updated one may be returned.
    Update { multi: bool, upsert: bool, returns: Option<Returned> },
    /// They are removed, and the removed one may be returned.
    Delete { multi: bool, returns: bool },
}

/// The state of an updated document that is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Returned {
    /// The one before the update; an upsert has none.
    Old,
    /// The one after it.
    New,
}

impl Verb {
    /// Returns whether the written document is returned.
    pub(super) fn returns(self) -> bool {
        matches!(self, Verb::Update { returns: Some(_), .. } | Verb::Delete { returns: true, .. })
    }

    /// Returns whether the documents are written.
    pub(super) fn writes(self) -> bool {
        matches!(self, Verb::Update { .. } | Verb::Delete { .. })
    }
}

impl<'a> ExplainedQuery<'a> {
    /// Returns the query that was pushed down from a pipeline.
    pub(super) fn of(query: Query, sort: Doc<'a>, projection: Doc<'a>) -> Self {
        ExplainedQuery {
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

    /// Parses a command's fields with the command's own parser.
    pub(super) fn read(
        ctx: &Context<'_>,
        request: &Request<'a>,
        command: QueryCommand,
        ns: &Namespace,
    ) -> Result<Self> {
        let collection = ctx.server.db.collection(ns);
        let (env, collection) = (ctx.env(), collection.as_deref());
        let mut query = match command {
            QueryCommand::Find => {
                let op = FindOp::parse(request)?;
                let query = op.explained(&env, ns, collection)?;
                ExplainedQuery::of(query, op.sort, op.projection).worded(op.wording())
            }
            QueryCommand::Count => {
                let op = CountOp::parse(request)?;
                collection.map_or(Ok(()), targets::check_not_view)?;
                let query = ExplainedQuery::of(op.query(&env, collection)?, Doc::EMPTY, Doc::EMPTY);
                let verb = Verb::Count { is_whole: op.is_whole(), skip: op.skip, limit: op.limit };
                ExplainedQuery { verb, ..query.worded(op.wording()) }
            }
            QueryCommand::Distinct => {
                let op = DistinctOp::parse(request, false)?;
                let query = op.query(&env, ns, collection)?;
                let query = ExplainedQuery::of(query, Doc::EMPTY, Doc::EMPTY).worded(op.wording());
                ExplainedQuery { distinct: Some(op), ..query }
            }
            QueryCommand::Update => {
                let statement = only_statement(request, "updates")?;
                update::check_statement(statement, request.version)?;
                let statement = WordedUpdate::read(statement, request, 0);
                collection.map_or(Ok(()), targets::check_not_view)?;
                statement.check_supplied()?;
                let op = statement.op;
                let (query, update) = op.explained(&env, ns, collection)?;
                let wording = op.wording(&update);
                let verb = Verb::Update { multi: op.multi, upsert: op.upsert, returns: None };
                let query = ExplainedQuery::of(query, op.sort.unwrap_or(Doc::EMPTY), Doc::EMPTY);
                ExplainedQuery { verb, update: Some(update), ..query.worded(wording) }
            }
            QueryCommand::Delete => {
                let statement = only_statement(request, "deletes")?;
                delete::check_statement(statement)?;
                let op = delete::read_statement(&statement, request)?;
                collection.map_or(Ok(()), targets::check_not_view)?;
                let query = op.explained(&env, ns, collection)?;
                let verb = Verb::Delete { multi: op.multi, returns: false };
                let query = ExplainedQuery::of(query, Doc::EMPTY, Doc::EMPTY);
                ExplainedQuery { verb, ..query.worded(op.wording()) }
            }
            QueryCommand::FindAndModify => {
                let op = FindAndModifyOp::parse(request, 0)?;
                collection.map_or(Ok(()), targets::check_not_view)?;
                let (query, update) = op.explained(&env, ns, collection)?;
                if ctx.server.db.catalog().collections(ns.db()).is_empty() {
                    return Err(no_database(ns.db()));
                }
                let returns = if op.new { Returned::New } else { Returned::Old };
                let verb = match update {
                    Some(_) => {
                        Verb::Update { multi: false, upsert: op.upsert, returns: Some(returns) }
                    }
                    None => Verb::Delete { multi: false, returns: true },
                };
                let wording = op.wording(update.as_ref());
                let query = ExplainedQuery::of(query, op.sort, op.fields);
                ExplainedQuery { verb, update, ..query.worded(wording) }
            }
        };
        query.query.context.limits = environment::limits(ctx, request);
        Ok(query)
    }

    /// Adds the client's wording of the query.
    fn worded(self, wording: Wording<'a>) -> Self {
        let Wording { filter, collation, batch_size, .. } = wording;
        ExplainedQuery { filter, collation, batch_size, ..self }
    }

    /// Returns the result for the collection of this name, and the properties of the plan's result
    /// that the stages over it use.
    pub(super) fn output(
        self,
        ctx: &Context<'_>,
        ns: &Namespace,
        verbosity: Verbosity,
    ) -> Result<(DocBuf, Given)> {
        let ExplainedQuery {
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
        let transform = match query.shows_record_id {
            true => query::with_record_id(projection),
            false => projection.to_buf(),
        };
        let collection = ctx.server.db.collection(ns);
        let mut output = Output::new(verb, verbosity, sort, transform.as_doc(), ns);
        output.printed.sorts_records |= query.shows_record_id;
        output.parsed = Some(query.filter.to_doc());
        output.is_whole_pipeline = is_whole_pipeline;
        let Some(collection) = collection else {
            if verb != Verb::Find {
                output.parsed = None;
            }
            if verb.writes() {
                // As in mongod, a write to a missing collection is shown without the stage of the
                // write.
                output.verb = Verb::Find;
                output.printed.projection = Doc::EMPTY;
            }
            let given = Given { first_of_each: query.first_of_each.is_some(), order: None };
            return Ok((output.of_nothing(&Plan::new(Stage::Eof))?, given));
        };
        if let Verb::Count { is_whole: true, skip, limit } = verb {
            output.parsed = None;
            return Ok((output.of_fast_count(&collection, skip, limit), Given::default()));
        }
        let state = collection.state();
        output.collation = query.context.collation.clone();
        let mut shown_of_key = None;
        if let Some(op) = distinct {
            if let Some((plan, _)) = planner::plan_distinct(&state, &query, &op.path) {
                output.shape = Some(shape_of(&query, &state));
                let execution = Execution::new(collection, plan, query);
                return Ok((
                    output.of_plan(ctx, execution, Trials::default(), None)?,
                    Given::default(),
                ));
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
        // The language of a text search is known only after planning.
        output.parsed = Some(query.filter.to_doc());
        let is_by_id = matches!(plan.root, Stage::IdHack(_))
            && !update.as_ref().is_some_and(Update::needs_position);
        // mongod does not parse the filter of a write by `_id`, which so has no shape either.
        let is_parsed = !(is_by_id && verb.writes() && projection.is_empty());
        if !is_parsed {
            output.parsed = None;
        }
        output.has_more_intersections = plan.has_more_intersections
            || rejected.iter().any(|tried| tried.plan.has_more_intersections);
        output.has_more_walks =
            plan.has_more_walks || rejected.iter().any(|tried| tried.plan.has_more_walks);
        // A text search without words has a shape although its plan is EOF.
        let has_search = query.filter.text().is_some();
        let is_nothing = !has_search && plan.root.any(&|stage| matches!(stage, Stage::Eof));
        output.shape = (is_parsed && !is_nothing).then(|| shape_of(query, &state));
        output.is_filtered = query.allowed.is_some();
        let found = if number < seen.len() { seen.swap_remove(number) } else { Found::default() };
        let trials = Trials { score, rejected, found };
        let given = plan.given();
        let output = output.of_plan(ctx, execution, trials, update)?;
        Ok((output, given))
    }
}

/// Returns the only statement of a write.
///
/// Errors: `one_statement`, and those of the batch's size.
fn only_statement<'a>(request: &Request<'a>, field: &'static str) -> Result<Doc<'a>> {
    let list = request.documents(field);
    let statements = list.into_iter().flatten().collect::<Result<Vec<_>>>()?;
    write_reply::check_batch_size(statements.len())?;
    let [statement] = statements[..] else { return Err(one_statement()) };
    Ok(statement)
}
