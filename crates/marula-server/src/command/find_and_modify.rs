//! `findAndModify`: changes, replaces, inserts or removes one document and answers it.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, DocWriter, Value};
use marula_db::session::Done;
use marula_db::write::Written;
use marula_db::{Change, Collection, Namespace, WriteOp};
use marula_error::{Error, Result, codes, errors};
use marula_operation::args;
use marula_operation::find::draft_projection;
use marula_plan::{Execution, Hint, Patience, Query, Wording, choice, query};
use marula_query::collation::Collation;
use marula_query::context::Context as QueryContext;
use marula_query::filter::{Filter, Purpose, TextNode};
use marula_query::projection::{Meta, Metadata, Projection};
use marula_query::sort::SortPattern;
use marula_query::text;
use marula_query::update::{Update, UpdateOptions, check_array_filters};

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, Outcome, Place};
use crate::auth::check::Check;
use crate::auth::pipeline;
use crate::context::Context;
use crate::request::Request;
use crate::statements::{self, Attempt};
use crate::update_one::{change_if_matching, may_match_now, next_record, upsert};
use crate::writes;

errors! {
    nothing_to_do() = FailedToParse, "Either an update or remove=true must be specified";
    update_and_remove() = FailedToParse, "Cannot specify both an update and remove=true";
    upsert_and_remove() = FailedToParse, "Cannot specify both upsert=true and remove=true ";
    new_and_remove() = FailedToParse, "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document";
    array_filters_and_remove() = FailedToParse, "Cannot specify arrayFilters and remove=true";
    position_in_new() = BadValue, "cannot use a positional projection and return the new document";
    sort_key_shown() = BadValue, "Cannot use a $meta sortKey projection in findAndModify commands.";
    array_filters_and_pipeline() = FailedToParse, "Cannot specify arrayFilters and a pipeline update";
}

pub(super) static COMMAND: Command = Command {
    name: "findAndModify",
    aliases: &["findandmodify"],
    help: "Changes or removes one document and answers it as it was, or as it is now.",
    place: Place::Decides,
    writes: true,
    takes_write_concern: true,
    is_retryable_write: true,
    in_transaction: true,
    in_api_v1: true,
    fields: Fields::Strict {
        place: "findAndModify",
        fields: &[
            Field::optional("query", Types::DOCUMENT),
            Field::optional("fields", Types::DOCUMENT),
            Field::optional("sort", Types::DOCUMENT),
            Field::optional("hint", Types::Hint),
            Field::optional("collation", Types::DOCUMENT),
            Field::optional("arrayFilters", Types::ARRAY),
            Field::optional("remove", Types::FLAG),
            Field::optional("update", Types::Any),
            Field::optional("upsert", Types::FLAG),
            Field::optional("new", Types::FLAG),
            Field::optional("bypassDocumentValidation", Types::FLAG),
            writes::BYPASS_EMPTY_TS_REPLACEMENT,
            Field::optional("let", Types::DOCUMENT),
            fields::RUNTIME_CONSTANTS,
            Field::optional("stmtId", Types::INT),
            // Read, and of no meaning.
            Field::optional("batchSize", Types::INT),
            Field::optional("singleBatch", Types::Any),
            Field::optional("maxTimeMS", Types::NUMBER),
            fields::ENCRYPTION_INFORMATION,
        ],
    },
    auth: Auth::Content(demands),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let ns = request.namespace()?;
    writes::check_target(ctx, &ns)?;
    let args = Args::parse(request)?;
    let Some(mut op) = writes::begin(ctx, request)? else { return Ok(Outcome::ToPool) };
    op.bypass_validation = request.flag("bypassDocumentValidation");
    op.empty_timestamps = writes::empty_timestamps(request);
    match op.numbered.as_ref().and_then(|numbered| numbered.done(args.statement)) {
        Some(Done::FoundAndModified(done)) => {
            reply.append_elements(done.as_doc().elements_bytes());
            reply.append("retriedStmtId", args.statement);
            return Ok(Outcome::Done);
        }
        Some(_) => return Err(writes::mismatch(&op, args.statement)),
        None => {}
    }
    match args.run(ctx, &ns, &mut op) {
        Ok(Some(answer)) => {
            reply.append_elements(answer.as_doc().elements_bytes());
            Ok(Outcome::Done)
        }
        Ok(None) => Ok(Outcome::ToPool),
        Err(error) if writes::comes_again(&op, &error) => Ok(Outcome::ToPool),
        Err(error) => Err(error),
    }
}

/// Checks a command that is only explained.
///
/// Errors: what is wrong with its form.
pub(super) fn check_form(request: &Request<'_>) -> Result<()> {
    Args::parse(request).map(drop)
}

/// The arguments, checked for shape.
struct Args<'a> {
    query: Doc<'a>,
    fields: Doc<'a>,
    sort: Doc<'a>,
    hint: Option<Value<'a>>,
    collation: Option<Value<'a>>,
    let_variables: Option<Value<'a>>,
    array_filters: Option<Doc<'a>>,
    /// `None` removes.
    update: Option<Value<'a>>,
    upsert: bool,
    new: bool,
    statement: i32,
}

impl<'a> Args<'a> {
    fn parse(request: &Request<'a>) -> Result<Self> {
        let doc = |name: &str| args::doc_or_empty(name, request.arg(name));
        let args = Args {
            query: doc("query")?,
            fields: doc("fields")?,
            sort: doc("sort")?,
            hint: request.arg("hint"),
            collation: request.arg("collation"),
            let_variables: request.arg("let"),
            array_filters: request.arg("arrayFilters").and_then(|filters| filters.as_array()),
            update: request.arg("update"),
            upsert: request.flag("upsert"),
            new: request.flag("new"),
            statement: statements::read_id(request),
        };
        if let Some(filters) = args.array_filters {
            check_array_filters("findAndModify", filters)?;
        }
        match (&args.update, request.flag("remove")) {
            (None, false) => return Err(nothing_to_do()),
            (Some(_), true) => return Err(update_and_remove()),
            (None, true) if args.upsert => return Err(upsert_and_remove()),
            (None, true) if args.new => return Err(new_and_remove()),
            (None, true) if args.array_filters.is_some() => return Err(array_filters_and_remove()),
            (Some(Value::Array(_)), _) if args.array_filters.is_some() => {
                return Err(array_filters_and_pipeline());
            }
            _ => {}
        }
        Ok(args)
    }

    /// Runs the command; `None` where it is not for a network worker, and nothing was done.
    fn run(
        &self,
        ctx: &Context<'_>,
        ns: &Namespace,
        op: &mut WriteOp<'_>,
    ) -> Result<Option<DocBuf>> {
        let mut collection = ctx.unit.collection(ns);
        if let Some(collection) = &collection {
            ctx.unit.touch(collection)?;
        }
        let is_made = self.upsert && collection.is_none();
        if is_made && !op.may_wait {
            return Ok(None);
        }
        let mut context =
            ctx.env().context(collection.as_deref(), self.collation, self.let_variables)?;
        context.has_text_score = text::has_search(self.query);
        context.has_distance = text::has_near(self.query);
        // In the order in which mongod reads them: of several mistakes, the first is told.
        let hint = args::parse_hint(self.hint)?;
        let options = UpdateOptions {
            array_filters: self.array_filters,
            empty_timestamps: op.empty_timestamps,
            ..UpdateOptions::default()
        };
        let update =
            self.update.map(|update| Update::parse(update, &options, &context)).transpose()?;
        let purpose = if self.upsert { Purpose::Upsert } else { Purpose::Any };
        let draft = Filter::draft(self.query, purpose, &context)?;
        let is_found_by_id = query::id_equality(self.query).is_some()
            && !update.as_ref().is_some_and(Update::needs_position);
        // What one `_id` finds is not sorted, nor is anything read of a collection that is not
        // there: then the rest is not looked at.
        let (sort, fields) = match &collection {
            None if is_found_by_id && !is_made => (Doc::EMPTY, Doc::EMPTY),
            None if is_found_by_id
                && self.fields.is_empty()
                && hint.is_none()
                && context.collation.is_none() =>
            {
                (Doc::EMPTY, self.fields)
            }
            Some(collection)
                if is_found_by_id
                    && self.fields.is_empty()
                    && hint.is_none()
                    && self.has_own_collation(ctx, collection, &context)? =>
            {
                (Doc::EMPTY, self.fields)
            }
            _ => (self.sort, self.fields),
        };
        let mut ordered = Query::new(Filter::everything(&context), context.clone());
        ordered.hint = hint;
        args::apply_sort(&mut ordered, sort)?;
        let filter = draft.finish_for_positions(&context)?;
        if is_made {
            // From here on the collection is there even when the command then fails.
            op.user_writes.check(ns.db()).map_err(executor_error)?;
            collection = Some(ctx.unit.collection_or_create(ns)?);
        }
        // Of a collection that is not there nothing is shown.
        let fields = if collection.is_some() { fields } else { Doc::EMPTY };
        let mut projection = draft_projection(fields, self.query, &context)?;
        if projection.as_ref().is_some_and(|shown| shown.metadata().contains(&Meta::SortKey)) {
            return Err(sort_key_shown());
        }
        if self.new && projection.as_ref().is_some_and(Projection::needs_position) {
            return Err(position_in_new());
        }
        projection.iter_mut().try_for_each(|projection| projection.optimize(&context))?;
        let job = Job {
            args: self,
            update: update.as_ref(),
            filter: &filter,
            sort: ordered.sort,
            hint: ordered.hint,
            projection: projection.as_ref(),
            context: &context,
        };
        let Some(collection) = collection else {
            args::check_text_without_collection(&filter, ns)?;
            return job.nothing(op).map(Some);
        };
        writes::check_not_view(&collection)?;
        let modify = |op: &mut WriteOp<'_>| job.modify(ctx, &collection, op);
        let found = match update.as_ref().filter(|_| self.upsert) {
            None => modify(op)?,
            Some(update) => statements::modify_or_insert(
                op,
                modify,
                |op| job.insert(&collection, update, op).map_err(executor_error),
                |error| may_match_now(error, &filter),
            )?,
        };
        match found {
            Attempt::ToPool => Ok(None),
            Attempt::Nothing => job.nothing(op).map(Some),
            Attempt::Done(answer) => Ok(Some(answer)),
        }
    }
}

impl Args<'_> {
    /// Whether the collation is the collection's own.
    fn has_own_collation(
        &self,
        ctx: &Context<'_>,
        collection: &Collection,
        context: &QueryContext,
    ) -> Result<bool> {
        if self.collation.is_none() {
            return Ok(true);
        }
        let own = ctx.env().context(Some(collection), None, None)?.collation;
        let own = own.as_ref().map(Collation::to_doc);
        Ok(own == context.collation.as_ref().map(Collation::to_doc))
    }
}

/// What a retry will be told: of an answer that could not be made, that there is none.
fn recorded(answer: &Result<DocBuf>) -> Done {
    Done::FoundAndModified(answer.as_ref().cloned().unwrap_or_default())
}

/// Says of an error that it came while the plan was carried out, as mongod does.
fn executor_error(error: Error) -> Error {
    if error.code() == codes::WriteConflict || crate::write_reply::ends_command(&error) {
        return error;
    }
    error.caused_by("Plan executor error during findAndModify")
}

/// The command, parsed.
struct Job<'j> {
    args: &'j Args<'j>,
    update: Option<&'j Update>,
    filter: &'j Filter,
    sort: Option<SortPattern>,
    hint: Option<Hint>,
    projection: Option<&'j Projection>,
    context: &'j QueryContext,
}

impl Job<'_> {
    fn modify(
        &self,
        ctx: &Context<'_>,
        collection: &Arc<Collection>,
        op: &mut WriteOp<'_>,
    ) -> Result<Attempt<DocBuf>> {
        let mut query = Query::new(self.filter.clone(), self.context.clone());
        query.hint = self.hint.clone();
        query.sort = self.sort.clone();
        query.wants_score = text::asks_for(self.args.sort, "textScore");
        let mut interrupt = || ctx.check_interrupt();
        let Args { query: filter, collation, .. } = *self.args;
        let wording = match self.update {
            Some(_) => Wording::of_update(filter, collation),
            None => Wording::of(filter, collation),
        };
        let limit = query.sort.is_some().then_some(1);
        let wording = Wording { sort: Some(self.args.sort), limit, ..wording };
        let may_wait = op.may_wait;
        let patience = Patience::all_or_none(may_wait);
        let chosen =
            choice::choose(ctx.unit, collection, query, &wording, patience, &mut interrupt)?;
        let Some(mut execution) = chosen else { return Ok(Attempt::ToPool) };
        execution.give_candidates();
        self.carry_out(ctx, collection, execution, op).map_err(executor_error)
    }

    fn carry_out(
        &self,
        ctx: &Context<'_>,
        collection: &Arc<Collection>,
        mut execution: Execution,
        op: &mut WriteOp<'_>,
    ) -> Result<Attempt<DocBuf>> {
        while let Some(record) = next_record(ctx, &mut execution)? {
            // A projection that fails does so when the document is written already.
            let answer = std::cell::RefCell::new(Ok(DocBuf::new()));
            let is_done = match self.update {
                Some(update) => {
                    let unit = op.unit;
                    let mut change = |doc: Doc<'_>, out: &mut Vec<u8>| {
                        let change =
                            change_if_matching(unit, self.filter, update, self.context, doc, out)?;
                        let shown = match &change {
                            Change::Skip => return Ok(change),
                            Change::Replace(_) | Change::Delta(..) if self.args.new => {
                                Doc::trusted(out)
                            }
                            Change::Same | Change::Replace(_) | Change::Delta(..) => doc,
                        };
                        *answer.borrow_mut() = self.answer(Some(shown), Some(true), None);
                        Ok(change)
                    };
                    let done = |_: Written| recorded(&answer.borrow());
                    let statement = Some((self.args.statement, &done as &dyn Fn(Written) -> Done));
                    op.update(collection, &record, &mut change, statement)? != Written::Skipped
                }
                None => {
                    let mut is_wanted = |doc: Doc<'_>| {
                        let matches = self.filter.matches(doc)?;
                        if matches {
                            *answer.borrow_mut() = self.answer(Some(doc), None, None);
                        }
                        Ok(matches)
                    };
                    let done = || recorded(&answer.borrow());
                    let statement = Some((self.args.statement, &done as &dyn Fn() -> Done));
                    op.delete(collection, &record, &mut is_wanted, statement)?
                }
            };
            if is_done {
                return answer.into_inner().map(Attempt::Done);
            }
        }
        Ok(Attempt::Nothing)
    }

    fn insert(
        &self,
        collection: &Collection,
        update: &Update,
        op: &mut WriteOp<'_>,
    ) -> Result<DocBuf> {
        let answer = std::cell::RefCell::new(Ok(DocBuf::new()));
        let done = |doc: Doc<'_>| {
            let made =
                self.answer(Some(doc).filter(|_| self.args.new), Some(false), doc.get("_id"));
            *answer.borrow_mut() = made.clone();
            made.ok().map(|made| (self.args.statement, Done::FoundAndModified(made)))
        };
        upsert(collection, update, self.filter, self.context, op, &done)?;
        answer.into_inner()
    }

    /// The answer when there was nothing to modify.
    fn nothing(&self, op: &mut WriteOp<'_>) -> Result<DocBuf> {
        let answer = self.answer(None, self.update.map(|_| false), None)?;
        op.record_only(&[(self.args.statement, Done::FoundAndModified(answer.clone()))])?;
        Ok(answer)
    }

    /// The reply's fields: `updated_existing` is `None` for a removal.
    fn answer(
        &self,
        shown: Option<Doc<'_>>,
        updated_existing: Option<bool>,
        upserted: Option<Value<'_>>,
    ) -> Result<DocBuf> {
        let value = match (shown, self.projection) {
            (None, _) => None,
            (Some(doc), None) => Some(doc.to_buf()),
            (Some(doc), Some(projection)) => {
                let mut position = None;
                if projection.needs_position() {
                    self.filter.matches_noting_as_written(doc, &mut position)?;
                }
                let mut out = Vec::new();
                let text_score = self.filter.text().and_then(TextNode::matcher);
                let text_score = text_score.map(|text| text.score(doc)).transpose()?;
                let metadata = Metadata { text_score, ..Metadata::default() };
                projection.apply(doc, position, &metadata, self.context, &mut out)?;
                Some(DocBuf::trusted(out))
            }
        };
        let is_counted = shown.is_some() || upserted.is_some();
        Ok(DocBuf::build(|reply| {
            let mut last_error = reply.begin_doc("lastErrorObject");
            last_error.append("n", i32::from(is_counted));
            if let Some(updated_existing) = updated_existing {
                last_error.append("updatedExisting", updated_existing);
            }
            if let Some(id) = upserted {
                last_error.append("upserted", id);
            }
            drop(last_error);
            match &value {
                Some(value) => reply.append("value", value),
                None => reply.append("value", Value::Null),
            };
        }))
    }
}

/// What a user needs to find and change or remove.
fn demands(request: &Request<'_>, check: &mut Check<'_>) -> Result<()> {
    let ns = request.namespace()?;
    let bypasses = request.flag("bypassDocumentValidation");
    let mut actions = vec!["find"];
    actions.push(if request.flag("remove") { "remove" } else { "update" });
    if request.flag("upsert") {
        actions.push("insert");
    }
    pipeline::write(ns.db(), ns.collection(), &actions, bypasses, check);
    Ok(())
}
