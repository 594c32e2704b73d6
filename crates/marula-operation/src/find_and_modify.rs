//! `findAndModify`: changes, replaces, inserts or removes one document and returns it.

use std::cell::RefCell;
use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value};
use marula_db::session::Done;
use marula_db::write::{Written, check_in_transaction};
use marula_db::{Change, Collection, Namespace, Shape, WriteOp};
use marula_error::{Code, Error, Result, codes, errors};
use marula_plan::{Query, Wording, query, without_collection};
use marula_query::collation::Collation;
use marula_query::context::Context as QueryContext;
use marula_query::filter::{Draft, Filter, Purpose, TextNode};
use marula_query::projection::{Meta, Metadata, Projection};
use marula_query::text;
use marula_query::update::{EmptyTimestamps, Update, UpdateOptions};

use crate::args::{self, Arguments, Order};
use crate::candidates::{self, Candidate, SORTED_MAX, Sought, write_first};
use crate::env::Env;
use crate::find::draft_projection;
use crate::statements;
use crate::targets::{check_not_view, ends_command};
use crate::update::change_if_matching;
use crate::upsert::{may_match_now, upsert};

errors! {
    nothing_to_do() = FailedToParse, "Either an update or remove=true must be specified";
    update_and_remove() = FailedToParse, "Cannot specify both an update and remove=true";
    upsert_and_remove() = FailedToParse, "Cannot specify both upsert=true and remove=true ";
    new_and_remove() = FailedToParse, "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document";
    array_filters_and_remove() = FailedToParse, "Cannot specify arrayFilters and remove=true";
    position_in_new() = BadValue, "cannot use a positional projection and return the new document";
    sort_key_shown() = BadValue, "Cannot use a $meta sortKey projection in findAndModify commands.";
    array_filters_and_pipeline() = FailedToParse, "Cannot specify arrayFilters and a pipeline update";
    // Of a retry: mongod shows the whole command and the entry of the oplog, too.
    statement_deleted() = 40606, "findAndModify retry request is not compatible with previous write in the transaction of type: d";
    no_deleted_document() = 40607, "No pre-image available for findAndModify retry request";
    statement_inserted() = 40608, "findAndModify retry request is not compatible with previous write in the transaction of type: i";
    no_document_after() = 40611, "findAndModify retry request wants the document after update returned, but only before update document is stored";
    no_document_before() = 40612, "findAndModify retry request wants the document before update returned, but only after update document is stored";
    /// The records of other statements have no documents, and those of an `insert` no `_id`.
    no_inserted_document() = IncompleteTransactionHistory, "No inserted document available for findAndModify retry request";
}

/// The actions on the collection that the user must be allowed.
pub fn actions(removes: bool, upserts: bool) -> &'static [&'static str] {
    match (removes, upserts) {
        (true, false) => &["find", "remove"],
        (true, true) => &["find", "remove", "insert"],
        (false, false) => &["find", "update"],
        (false, true) => &["find", "update", "insert"],
    }
}

/// A `findAndModify` whose form is checked.
pub struct FindAndModifyOp<'a> {
    /// The filter.
    pub query: Doc<'a>,
    /// The projection of the document that is returned.
    pub fields: Doc<'a>,
    /// The order whose first document is changed, if several match.
    pub sort: Doc<'a>,
    hint: Option<Value<'a>>,
    collation: Option<Value<'a>>,
    let_variables: Option<Value<'a>>,
    array_filters: Option<Doc<'a>>,
    /// The update; `None` removes the document.
    pub update: Option<Value<'a>>,
    /// Whether a document is inserted if none matches.
    pub upsert: bool,
    /// Whether the new document is returned, not the old one.
    pub new: bool,
    /// The statement's number in its session.
    pub statement: i32,
}

impl<'a> FindAndModifyOp<'a> {
    /// Reads the fields of a `findAndModify`; `statement` is its number in its session.
    ///
    /// Errors: this module's rows, and those of [`args`].
    pub fn parse(request: &impl Arguments<'a>, statement: i32) -> Result<Self> {
        let op = FindAndModifyOp {
            query: request.doc("query")?,
            fields: request.doc("fields")?,
            sort: request.doc("sort")?,
            hint: request.arg("hint"),
            collation: request.arg("collation"),
            let_variables: request.arg("let"),
            array_filters: request.arg("arrayFilters").and_then(|filters| filters.as_array()),
            update: request.arg("update"),
            upsert: request.flag("upsert"),
            new: request.flag("new"),
            statement,
        };
        match (&op.update, request.flag("remove")) {
            (None, false) => return Err(nothing_to_do()),
            (Some(_), true) => return Err(update_and_remove()),
            (None, true) if op.upsert => return Err(upsert_and_remove()),
            (None, true) if op.new => return Err(new_and_remove()),
            (None, true) if op.array_filters.is_some() => return Err(array_filters_and_remove()),
            (Some(Value::Array(_)), _) if op.array_filters.is_some() => {
                return Err(array_filters_and_pipeline());
            }
            _ => {}
        }
        Ok(op)
    }

    /// Returns whether the update has `arrayFilters`.
    pub fn has_array_filters(&self) -> bool {
        self.array_filters.is_some()
    }

    /// Executes the operation and returns the fields of its reply.
    ///
    /// Errors: those of the update, the filter and their parts, of the execution and of the write.
    pub fn run(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<DocBuf> {
        statements::from_look_up(env, op, |op| self.run_once(env, ns, op))
    }

    fn run_once(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<DocBuf> {
        let mut collection = op.look_up(ns);
        if let Some(collection) = &collection {
            env.unit.touch(collection)?;
        }
        let is_made = self.upsert && collection.is_none();
        if is_made && !op.may_wait {
            return Err(Error::postponed());
        }
        let parts = self.read(env, collection.as_deref(), op.empty_timestamps)?;
        let Parts { update, draft, order, fields, context } = parts;
        let mut filter = draft.finish_for_positions(&context)?;
        filter.add_index_conditions(&context);
        if is_made {
            // The collection exists even if the command fails after this.
            op.user_writes.check(env.unit.db(), ns.db()).map_err(executor_error)?;
            collection = Some(op.look_up_or_create(ns)?);
        }
        // A collection that does not exist has no document to project.
        let fields = if collection.is_some() { fields } else { Doc::EMPTY };
        let projection = self.parse_projection(fields, &context)?;
        let job = Job {
            op: self,
            update: update.as_ref(),
            filter: &filter,
            order,
            projection: projection.as_ref(),
            context: &context,
        };
        let Some(collection) = collection else {
            args::check_text_without_collection(&filter, ns)?;
            without_collection(env.unit);
            return job.nothing();
        };
        check_not_view(&collection)?;
        check_in_transaction(env.unit, &collection)?;
        let modify = |op: &mut WriteOp<'_>| job.modify(env, &collection, op);
        let found = match update.as_ref().filter(|_| self.upsert) {
            None => modify(op)?,
            Some(update) => statements::modify_or_insert(
                op,
                modify,
                |op| job.insert(&collection, update, op).map_err(executor_error),
                |error| may_match_now(error, &filter),
            )?,
        };
        found.map_or_else(|| job.nothing(), Ok)
    }
}

impl FindAndModifyOp<'_> {
    /// Returns the reply if an earlier attempt has done this statement, which may have been of
    /// another command.
    ///
    /// Errors: the record has no document that this command may return.
    pub fn recorded(&self, done: &Done) -> Result<DocBuf> {
        let inserted = |id: Value<'_>, doc: Option<Doc<'_>>| match (self.upsert, self.new) {
            (false, _) => Err(statement_inserted()),
            (true, false) => Ok(reply(None, true, Some(false), Some(id))),
            (true, true) => {
                let doc = doc.ok_or_else(no_inserted_document)?;
                Ok(reply(Some(doc), true, Some(false), Some(id)))
            }
        };
        match done {
            Done::FoundAndModified(recorded) => {
                let recorded = recorded.as_doc();
                let last = recorded.get("lastErrorObject").and_then(|last| last.as_doc());
                let last = last.unwrap_or(Doc::EMPTY);
                if let Some(id) = last.get("upserted") {
                    inserted(id, recorded.get("value").and_then(|value| value.as_doc()))
                } else if last.get("updatedExisting").is_none() && self.update.is_some() {
                    Err(statement_deleted())
                } else {
                    Ok(recorded.to_buf())
                }
            }
            Done::Updated { upserted: Some(id), .. } => inserted(id.get(), None),
            Done::Updated { upserted: None, .. } if self.new => Err(no_document_after()),
            Done::Updated { upserted: None, .. } => Err(no_document_before()),
            Done::Inserted if self.upsert => Err(no_inserted_document()),
            Done::Inserted => Err(statement_inserted()),
            Done::Deleted(_) if self.update.is_some() => Err(statement_deleted()),
            Done::Deleted(_) => Err(no_deleted_document()),
        }
    }
}

impl<'a> FindAndModifyOp<'a> {
    /// Makes the query and the update, if there is one, for `explain`.
    ///
    /// Errors: those of the update, the filter, the sort, the hint and the projection.
    pub fn explained(
        &self,
        env: &Env<'_>,
        ns: &Namespace,
        collection: Option<&Collection>,
    ) -> Result<(Query, Option<Update>)> {
        let parts = self.read(env, collection, EmptyTimestamps::default())?;
        let Parts { update, draft, order, fields, context } = parts;
        let filter = draft.finish(&context)?;
        if collection.is_none() {
            args::check_text_without_collection(&filter, ns)?;
        }
        // A collection that is not created has no document to project.
        let has_document = collection.is_some() || self.upsert;
        self.parse_projection(if has_document { fields } else { Doc::EMPTY }, &context)?;
        Ok((order.query_of_one(filter, context), update))
    }

    /// Parses everything but the projection, in mongod's order: of several errors, the first
    /// counts.
    fn read(
        &self,
        env: &Env<'_>,
        collection: Option<&Collection>,
        empty_timestamps: EmptyTimestamps,
    ) -> Result<Parts<'a>> {
        let is_made = self.upsert && collection.is_none();
        let mut context = env.context(collection, self.collation, self.let_variables)?;
        context.has_text_score = text::has_search(self.query);
        context.has_distance = text::has_near(self.query);
        let hint = args::parse_hint(self.hint)?;
        let is_pipeline = self.update.is_some_and(|update| update.as_array().is_some());
        let update = context
            .counting(is_pipeline, |context| self.parse_update(empty_timestamps, context))?;
        let is_one_id = query::id_equality(self.query).is_some();
        let purpose = if self.upsert { Purpose::Upsert } else { Purpose::Any };
        let draft =
            context.counting(!is_one_id, |context| Filter::draft(self.query, purpose, context))?;
        let is_found_by_id = is_one_id && !update.as_ref().is_some_and(Update::needs_position);
        let is_clustered = collection.is_some_and(|one| one.shape() == Shape::Clustered);
        let is_plain = is_found_by_id && self.fields.is_empty() && hint.is_none() && !is_clustered;
        // The document of a single `_id` is not sorted, and nothing is read from a collection that
        // does not exist: then sort and projection are not parsed.
        let (sort, fields) = match collection {
            None if is_found_by_id && !is_made => (Doc::EMPTY, Doc::EMPTY),
            None if is_plain && context.collation.is_none() => (Doc::EMPTY, self.fields),
            Some(collection)
                if is_plain && self.has_own_collation(env, collection, &context)? =>
            {
                (Doc::EMPTY, self.fields)
            }
            _ => (self.sort, self.fields),
        };
        let order = Order::parse(hint, sort, &context)?;
        // As in mongod, a projection may show a score or a distance without a search: there is none
        // then.
        (context.has_text_score, context.has_distance) = (true, true);
        Ok(Parts { update, draft, order, fields, context })
    }

    fn parse_update(
        &self,
        empty_timestamps: EmptyTimestamps,
        context: &QueryContext,
    ) -> Result<Option<Update>> {
        let array_filters = self.array_filters;
        let options = UpdateOptions { array_filters, empty_timestamps, ..UpdateOptions::default() };
        self.update.map(|update| Update::parse(update, &options, context)).transpose()
    }

    /// Parses the projection, `fields`.
    fn parse_projection(
        &self,
        fields: Doc<'_>,
        context: &QueryContext,
    ) -> Result<Option<Projection>> {
        let mut projection = draft_projection(fields, self.query, context)?;
        if projection.as_ref().is_some_and(|shown| shown.metadata().contains(&Meta::SortKey)) {
            return Err(sort_key_shown());
        }
        if self.new && projection.as_ref().is_some_and(Projection::needs_position) {
            return Err(position_in_new());
        }
        projection.iter_mut().try_for_each(|projection| projection.optimize(context))?;
        Ok(projection)
    }

    /// The query as the client wrote it.
    pub fn wording(&self, update: Option<&Update>) -> Wording<'a> {
        let wording = match update.map(Update::needs_position) {
            Some(needs_position) => Wording::of_update(self.query, self.collation, needs_position),
            None => Wording::of(self.query, self.collation),
        };
        Wording { sort: Some(self.sort), ..wording }
    }

    /// Returns whether the collation is the collection's own.
    fn has_own_collation(
        &self,
        env: &Env<'_>,
        collection: &Collection,
        context: &QueryContext,
    ) -> Result<bool> {
        if self.collation.is_none() {
            return Ok(true);
        }
        let own = env.context(Some(collection), None, None)?.collation;
        let own = own.as_ref().map(Collation::to_doc);
        Ok(own == context.collation.as_ref().map(Collation::to_doc))
    }
}

/// The parts of a `findAndModify`, parsed.
struct Parts<'a> {
    update: Option<Update>,
    draft: Draft,
    order: Order,
    /// The projection, if it counts.
    fields: Doc<'a>,
    context: QueryContext,
}

/// A reply, and the one for a retry if that differs: it has the whole document, as in mongod.
struct Answer {
    reply: Result<DocBuf>,
    retried: Option<DocBuf>,
}

impl Answer {
    /// No reply yet.
    fn none() -> RefCell<Self> {
        RefCell::new(Answer { reply: Ok(DocBuf::new()), retried: None })
    }

    fn done(&self) -> Done {
        let retried = self.retried.as_ref().or(self.reply.as_ref().ok());
        Done::FoundAndModified(retried.cloned().unwrap_or_default())
    }
}

/// The fields of a reply; `updated_existing` is `None` for a removal.
fn reply(
    value: Option<Doc<'_>>,
    is_counted: bool,
    updated_existing: Option<bool>,
    upserted: Option<Value<'_>>,
) -> DocBuf {
    DocBuf::build(|reply| {
        let mut last_error = reply.begin_doc("lastErrorObject");
        last_error.append("n", i32::from(is_counted));
        if let Some(updated_existing) = updated_existing {
            last_error.append("updatedExisting", updated_existing);
        }
        if let Some(id) = upserted {
            last_error.append("upserted", id);
        }
        drop(last_error);
        match value {
            Some(value) => reply.append("value", value),
            None => reply.append("value", Value::Null),
        };
    })
}

/// Adds mongod's prefix for errors of an execution.
fn executor_error(error: Error) -> Error {
    const BEFORE_EXECUTION: [Code; 2] =
        [codes::WriteConflict, codes::OperationNotSupportedInTransaction];
    if BEFORE_EXECUTION.contains(&error.code()) || ends_command(&error) {
        return error;
    }
    error.caused_by("Plan executor error during findAndModify")
}

/// The parsed command.
struct Job<'j> {
    op: &'j FindAndModifyOp<'j>,
    update: Option<&'j Update>,
    filter: &'j Filter,
    order: Order,
    projection: Option<&'j Projection>,
    context: &'j QueryContext,
}

impl Job<'_> {
    fn modify(
        &self,
        env: &Env<'_>,
        collection: &Arc<Collection>,
        op: &mut WriteOp<'_>,
    ) -> Result<Option<DocBuf>> {
        let (filter, context, order) = (self.filter, self.context, self.order.clone());
        let counted = order.has_sort.then_some(1);
        let wording = Wording { limit: counted, ..self.op.wording(self.update) };
        let (asked, may_wait) = (self.op.query, op.may_wait);
        let limit = order.sort.is_some().then_some(SORTED_MAX);
        let shown = self.projection.map_or(&[][..], Projection::metadata);
        let wants_key = shown.contains(&Meta::IndexKey);
        let sought = Sought { asked, filter, order, wording, context, limit, wants_key, may_wait };
        loop {
            let execution = candidates::find(env, collection, sought.clone())?;
            let mut tried = 0;
            let done = write_first(env, execution, |candidate| {
                tried += 1;
                self.write(collection, candidate, op)
            });
            match done.map_err(executor_error)? {
                None if limit == Some(tried) => {}
                done => return Ok(done),
            }
        }
    }

    /// Changes or removes the document of a candidate and returns the reply; `None` if the document
    /// does not match any more.
    fn write(
        &self,
        collection: &Collection,
        candidate: &Candidate,
        op: &mut WriteOp<'_>,
    ) -> Result<Option<DocBuf>> {
        // A projection fails only after the document is written.
        let answer = Answer::none();
        let is_numbered = op.numbered.is_some();
        let (record, key) = (&candidate.record, candidate.index_key.as_ref().map(DocBuf::as_doc));
        let is_done = match self.update {
            Some(update) => {
                let unit = op.unit;
                let mut change = |doc: Doc<'_>, out: &mut Vec<u8>| {
                    let change =
                        change_if_matching(unit, self.filter, update, self.context, doc, out)?;
                    let shown = match &change {
                        Change::Skip => return Ok(change),
                        Change::Replace(_) | Change::Delta(..) if self.op.new => Doc::trusted(out),
                        Change::Same | Change::Replace(_) | Change::Delta(..) => doc,
                    };
                    *answer.borrow_mut() = self.written((doc, key), shown, Some(true), is_numbered);
                    Ok(change)
                };
                let done = || answer.borrow().done();
                let statement = Some((self.op.statement, &done as &dyn Fn() -> Done));
                op.update(collection, record, &mut change, statement)? != Written::Skipped
            }
            None => {
                let mut is_wanted = |doc: Doc<'_>| {
                    let matches = self.filter.matches(doc)?;
                    if matches {
                        *answer.borrow_mut() = self.written((doc, key), doc, None, is_numbered);
                    }
                    Ok(matches)
                };
                let done = || answer.borrow().done();
                let statement = Some((self.op.statement, &done as &dyn Fn() -> Done));
                op.delete(collection, record, &mut is_wanted, statement)?
            }
        };
        if is_done { answer.into_inner().reply.map(Some) } else { Ok(None) }
    }

    fn insert(
        &self,
        collection: &Collection,
        update: &Update,
        op: &mut WriteOp<'_>,
    ) -> Result<DocBuf> {
        let answer = RefCell::new(Ok(DocBuf::new()));
        let is_numbered = op.numbered.is_some();
        let done = |doc: Doc<'_>| {
            let (shown, id) = (Some(doc).filter(|_| self.op.new), doc.get("_id"));
            *answer.borrow_mut() = self.answer(shown, Metadata::default(), Some(false), id);
            // A retry may request the document even if this attempt does not.
            let retried = is_numbered.then(|| reply(Some(doc), true, Some(false), id));
            retried.map(|retried| (self.op.statement, Done::FoundAndModified(retried)))
        };
        upsert(collection, update, self.filter, self.context, op, &done)?;
        answer.into_inner()
    }

    /// Returns the reply if nothing was modified.
    fn nothing(&self) -> Result<DocBuf> {
        self.answer(None, Metadata::default(), self.update.map(|_| false), None)
    }

    /// Returns the metadata that the projection shows, of a document as it was found by an index
    /// entry: those of the new document are the same.
    fn metadata<'d>(&self, (found, index_key): (Doc<'d>, Option<Doc<'d>>)) -> Result<Metadata<'d>> {
        let asked = self.projection.map_or(&[][..], Projection::metadata);
        let mut metadata = Metadata { index_key, ..Metadata::default() };
        if asked.contains(&Meta::TextScore) {
            let matcher = self.filter.text().and_then(TextNode::matcher);
            metadata.text_score = matcher.map(|matcher| matcher.score(found)).transpose()?;
        }
        if asked.iter().any(|meta| matches!(meta, Meta::GeoNearDistance | Meta::GeoNearPoint))
            && let Some((path, near)) = self.filter.near()
        {
            let nearest = near.measure(path, found);
            metadata.geo_near_distance = nearest.map(|(distance, _)| distance);
            metadata.geo_near_point = nearest.map(|(_, place)| place.get());
        }
        Ok(metadata)
    }

    /// Returns the reply's fields; `updated_existing` is `None` for a removal.
    fn answer(
        &self,
        shown: Option<Doc<'_>>,
        metadata: Metadata<'_>,
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
                // As in mongod, a record id is known, but null.
                let metadata = Metadata { record_id: Some(Value::Null), ..metadata };
                projection.apply(doc, position, &metadata, self.context, &mut out)?;
                Some(DocBuf::trusted(out))
            }
        };
        let is_counted = shown.is_some() || upserted.is_some();
        Ok(reply(value.as_ref().map(DocBuf::as_doc), is_counted, updated_existing, upserted))
    }

    /// Returns the replies, now and for a retry, about a document that is changed or removed:
    /// `found` is the document as it was found, and the index entry that led to it.
    fn written(
        &self,
        found: (Doc<'_>, Option<Doc<'_>>),
        shown: Doc<'_>,
        updated_existing: Option<bool>,
        is_numbered: bool,
    ) -> Answer {
        let differs = is_numbered && self.projection.is_some();
        let metadata = self.metadata(found);
        Answer {
            reply: metadata.and_then(|it| self.answer(Some(shown), it, updated_existing, None)),
            retried: differs.then(|| reply(Some(shown), true, updated_existing, None)),
        }
    }
}
