//! `update`: changes documents, or inserts one if none matches.

use std::ops::ControlFlow;
use std::sync::Arc;

use marula_bson::{Doc, Value, ValueBuf};
use marula_db::session::Done;
use marula_db::write::{Written, check_in_transaction};
use marula_db::{Change, Collection, Namespace, Unit, WriteOp};
use marula_error::{Error, Result, errors};
use marula_plan::{Execution, Query, Wording, query, without_collection};
use marula_query::context::Context as QueryContext;
use marula_query::filter::{Filter, Purpose};
use marula_query::text;
use marula_query::update::{EmptyTimestamps, Matched, Origin, Update, UpdateOptions};

use crate::args::{self, Order};
use crate::candidates::{self, Sought, for_each_record, write_first};
use crate::env::Env;
use crate::targets::{check_not_view, not_retryable};
use crate::upsert::{may_match_now, upserted_document, with_id_first};
use crate::{statements, time_series};

errors! {
    /// mongod shows the whole entry of the oplog, too.
    statement_deleted() = 40638, "update retry request is not compatible with previous write in the transaction of type: d";
    /// The record of an insert has no `_id`, which the reply of an upsert needs.
    statement_inserted() = IncompleteTransactionHistory, "update retry request is not compatible with previous write in the transaction of type: i";
}

/// The actions on the collection that the user must be allowed.
pub fn actions(upserts: bool) -> &'static [&'static str] {
    if upserts { &["update", "insert"] } else { &["update"] }
}

/// An update whose form is checked: one statement of the command.
#[derive(Clone, Copy)]
pub struct UpdateOp<'a> {
    /// The filter.
    pub query: Doc<'a>,
    /// The update: operators, a whole document, or a pipeline.
    pub update: Value<'a>,
    /// Constants for a pipeline.
    pub constants: Option<Doc<'a>>,
    /// Conditions on array elements.
    pub array_filters: Option<Doc<'a>>,
    /// The index to use.
    pub hint: Option<Value<'a>>,
    /// The order whose first document is changed, if several match.
    pub sort: Option<Doc<'a>>,
    /// The collation.
    pub collation: Option<Value<'a>>,
    /// The command's variables.
    pub let_variables: Option<Value<'a>>,
    /// Whether all documents that match are changed.
    pub multi: bool,
    /// Whether a document is inserted if none matches.
    pub upsert: bool,
    /// The document to insert instead of the one that the update creates from nothing.
    pub supplied: Option<Doc<'a>>,
    /// The author of the update: a client, or the oplog.
    pub origin: Origin,
    /// The statement's number in its session.
    pub number: i32,
}

/// The result of a statement.
#[derive(Debug, Default)]
pub struct Updated {
    /// Documents matched, or one upserted.
    pub matched: i64,
    /// Documents changed.
    pub modified: i64,
    /// The `_id` of an upserted document.
    pub upserted: Option<ValueBuf>,
}

impl Updated {
    /// Reads the result of an update from a session's record.
    ///
    /// Errors: `statement_deleted`, `statement_inserted`.
    pub fn recorded(done: &Done) -> Result<Self> {
        match done {
            Done::Updated { matched, modified, upserted } => {
                Ok(Updated { matched: *matched, modified: *modified, upserted: upserted.clone() })
            }
            Done::FoundAndModified(reply) => {
                Self::found_and_modified(reply.as_doc()).ok_or_else(statement_deleted)
            }
            Done::Deleted(_) => Err(statement_deleted()),
            Done::Inserted => Err(statement_inserted()),
        }
    }

    /// Reads the result of an update from the recorded reply of a `findAndModify`; `None` if that
    /// removed a document.
    fn found_and_modified(reply: Doc<'_>) -> Option<Self> {
        let last = reply.get("lastErrorObject")?.as_doc()?;
        let is_update = last.get("updatedExisting")? == Value::Boolean(true);
        let upserted = last.get("upserted").map(ValueBuf::from);
        (is_update || upserted.is_some()).then(|| Updated {
            matched: 1,
            modified: i64::from(is_update),
            upserted,
        })
    }
}

impl<'a> UpdateOp<'a> {
    /// The update of one document, without options.
    pub fn of_one(query: Doc<'a>, update: Value<'a>) -> Self {
        UpdateOp {
            query,
            update,
            constants: None,
            array_filters: None,
            hint: None,
            sort: None,
            collation: None,
            let_variables: None,
            multi: false,
            upsert: false,
            supplied: None,
            origin: Origin::Client,
            number: 0,
        }
    }

    /// Executes the update on the collection of this name.
    ///
    /// Errors: those of the update, the filter and their parts, of the execution and of the write.
    pub fn run(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<Updated> {
        if self.multi && op.numbered.is_some() {
            return Err(not_retryable("multi=true"));
        }
        statements::from_look_up(env, op, |op| self.run_once(env, ns, op))
    }

    fn run_once(&self, env: &Env<'_>, ns: &Namespace, op: &mut WriteOp<'_>) -> Result<Updated> {
        let mut collection = op.look_up(ns);
        if let Some(shown) = &collection
            && let Some(buckets) = env.unit.db().buckets_of(shown)?
        {
            if !op.may_wait {
                return Err(Error::postponed());
            }
            return time_series::update(env, &buckets, self, op);
        }
        if self.upsert && collection.is_none() {
            // The collection exists even if the statement fails after this.
            if !op.may_wait {
                return Err(Error::postponed());
            }
            op.user_writes.check(env.unit.db(), ns.db())?;
            collection = Some(op.look_up_or_create(ns)?);
        }
        let Parsed { update, filter, context } =
            &self.parse(env, collection.as_deref(), op.empty_timestamps)?;
        let Some(collection) = collection else {
            args::check_text_without_collection(filter, ns)?;
            without_collection(env.unit);
            return Ok(Updated::default());
        };
        check_not_view(&collection)?;
        check_in_transaction(env.unit, &collection)?;
        let parsed = ParsedUpdate { statement: self, update, filter, context };
        Ok(parsed.run(env, &collection, op)?.unwrap_or_default())
    }

    /// Parses the update and the filter; `None` is a collection that does not exist.
    ///
    /// Errors: those of the update, the filter, the collation and the variables.
    pub fn parse(
        &self,
        env: &Env<'_>,
        collection: Option<&Collection>,
        empty_timestamps: EmptyTimestamps,
    ) -> Result<Parsed> {
        let mut context = env.context(collection, self.collation, self.let_variables)?;
        context.has_text_score = self.sort.is_some() && text::has_search(self.query);
        context.has_distance = self.sort.is_some() && text::has_near(self.query);
        let is_pipeline = self.update.as_array().is_some();
        let update = context
            .counting(is_pipeline, |context| self.parse_update(context, empty_timestamps))?;
        let counts = query::id_equality(self.query).is_none();
        let filter = context.counting(counts, |context| self.parse_filter(&update, context))?;
        Ok(Parsed { update, filter, context })
    }

    /// Parses the update and the filter in an environment that exists already: a pipeline's.
    ///
    /// Errors: those of the update and the filter.
    pub fn parse_within(
        &self,
        context: &QueryContext,
        empty_timestamps: EmptyTimestamps,
    ) -> Result<(Update, Filter)> {
        let update = self.parse_update(context, empty_timestamps)?;
        let filter = self.parse_filter(&update, context)?;
        Ok((update, filter))
    }

    fn parse_update(
        &self,
        context: &QueryContext,
        empty_timestamps: EmptyTimestamps,
    ) -> Result<Update> {
        let options = UpdateOptions {
            array_filters: self.array_filters,
            constants: self.constants,
            multi: self.multi,
            empty_timestamps,
            origin: self.origin,
        };
        Update::parse(self.update, &options, context)
    }

    fn parse_filter(&self, update: &Update, context: &QueryContext) -> Result<Filter> {
        let purpose = if self.upsert { Purpose::Upsert } else { Purpose::Any };
        let context = update.context().filter(|_| self.constants.is_some()).unwrap_or(context);
        let mut filter = Filter::draft(self.query, purpose, context)?.finish(context)?;
        filter.add_index_conditions(context);
        Ok(filter)
    }

    /// Makes the query and the update for `explain`.
    ///
    /// Errors: those of [`parse`](UpdateOp::parse), the hint and the sort.
    pub fn explained(
        &self,
        env: &Env<'_>,
        ns: &Namespace,
        collection: Option<&Collection>,
    ) -> Result<(Query, Update)> {
        let empty_timestamps = EmptyTimestamps::default();
        let Parsed { update, filter, context } = self.parse(env, collection, empty_timestamps)?;
        if collection.is_none() {
            args::check_text_without_collection(&filter, ns)?;
        }
        let order = self.order(&context)?;
        let query = match self.multi {
            true => order.query(filter, context),
            false => order.query_of_one(filter, context),
        };
        Ok((query, update))
    }

    /// Parses the hint and the sort.
    fn order(&self, context: &QueryContext) -> Result<Order> {
        let hint = args::parse_hint(self.hint)?;
        Order::parse(hint, self.sort.unwrap_or(Doc::EMPTY), context)
    }

    /// The query as the client wrote it.
    pub fn wording(&self, update: &Update) -> Wording<'a> {
        let needs_position = update.needs_position();
        let wording = Wording::of_update(self.query, self.collation, needs_position);
        Wording { sort: self.sort, ..wording }
    }
}

/// The parts of an update, parsed.
pub struct Parsed {
    /// The update.
    pub update: Update,
    /// The filter.
    pub filter: Filter,
    /// The environment of both.
    pub context: QueryContext,
}

/// A statement whose parts are parsed.
#[derive(Clone, Copy)]
pub struct ParsedUpdate<'p> {
    /// The statement.
    pub statement: &'p UpdateOp<'p>,
    /// Its update.
    pub update: &'p Update,
    /// Its filter.
    pub filter: &'p Filter,
    /// The environment of both.
    pub context: &'p QueryContext,
}

impl ParsedUpdate<'_> {
    /// Changes the documents that match or, in an upsert, inserts one if there are none. Returns
    /// `None` if nothing matches and nothing is inserted.
    ///
    /// Errors: those of the hint and the sort, of the execution and of the write.
    pub fn run(
        &self,
        env: &Env<'_>,
        collection: &Arc<Collection>,
        op: &mut WriteOp<'_>,
    ) -> Result<Option<Updated>> {
        if !self.statement.upsert {
            return self.update_matching(env, collection, op);
        }
        statements::modify_or_insert(
            op,
            |op| self.update_matching(env, collection, op),
            |op| self.insert(collection, op),
            |error| may_match_now(error, self.filter),
        )
    }

    /// Changes the documents that match; returns `None` if there are none.
    fn update_matching(
        &self,
        env: &Env<'_>,
        collection: &Arc<Collection>,
        op: &mut WriteOp<'_>,
    ) -> Result<Option<Updated>> {
        if !op.may_wait && self.statement.multi {
            return Err(Error::postponed());
        }
        let mut execution = self.find(env, collection, op.may_wait)?;
        if self.statement.multi {
            return self.update_all(env, collection, &mut execution, op);
        }
        let number = self.statement.number;
        let done = || Done::Updated { matched: 1, modified: 1, upserted: None };
        let found = write_first(env, execution, |candidate| {
            let unit = op.unit;
            let mut change = |doc: Doc<'_>, out: &mut Vec<u8>| self.change(unit, doc, out);
            let written =
                op.update(collection, &candidate.record, &mut change, Some((number, &done)))?;
            let modified = i64::from(written == Written::Changed);
            let updated = Updated { matched: 1, modified, upserted: None };
            Ok((written != Written::Skipped).then_some(updated))
        })?;
        Ok(found)
    }

    /// Inserts the document of the upsert.
    fn insert(&self, collection: &Collection, op: &mut WriteOp<'_>) -> Result<Updated> {
        let number = self.statement.number;
        let done = |doc: Doc<'_>| {
            let upserted = doc.get("_id").map(|id| id.to_buf());
            Some((number, Done::Updated { matched: 1, modified: 0, upserted }))
        };
        let doc = match self.statement.supplied {
            Some(doc) => with_id_first(doc, op.now_ms)?,
            None => upserted_document(self.update, self.filter, self.context, op.now_ms)?,
        };
        op.upsert(collection, doc.as_doc(), done(doc.as_doc()))?;
        let upserted = doc.as_doc().get("_id").map(|id| id.to_buf());
        Ok(Updated { matched: 1, modified: 0, upserted })
    }

    /// Changes every document that matches; returns `None` if there are none.
    fn update_all(
        &self,
        env: &Env<'_>,
        collection: &Collection,
        execution: &mut Execution,
        op: &mut WriteOp<'_>,
    ) -> Result<Option<Updated>> {
        let mut updated = Updated::default();
        execution.give_once();
        for_each_record(env, execution, |record| {
            let unit = op.unit;
            let mut change = |doc: Doc<'_>, out: &mut Vec<u8>| self.change(unit, doc, out);
            let written = op.update(collection, record, &mut change, None)?;
            updated.matched += i64::from(written != Written::Skipped);
            updated.modified += i64::from(written == Written::Changed);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((updated.matched > 0).then_some(updated))
    }

    /// Chooses the plan that finds the documents.
    fn find(
        &self,
        env: &Env<'_>,
        collection: &Arc<Collection>,
        may_wait: bool,
    ) -> Result<Execution> {
        let ParsedUpdate { statement, update, filter, context } = *self;
        let (asked, wording) = (statement.query, statement.wording(update));
        let order = statement.order(context)?;
        let (limit, wants_key) = (None, false);
        let sought = Sought { asked, filter, order, wording, context, limit, wants_key, may_wait };
        candidates::find(env, collection, sought)
    }

    /// Changes one document if it still matches.
    fn change(&self, unit: Unit<'_>, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<Change> {
        change_if_matching(unit, self.filter, self.update, self.context, doc, out)
    }
}

/// Changes a document if it matches.
pub fn change_if_matching(
    unit: Unit<'_>,
    filter: &Filter,
    update: &Update,
    context: &QueryContext,
    doc: Doc<'_>,
    out: &mut Vec<u8>,
) -> Result<Change> {
    let mut matched = Matched::default();
    let matches = if update.needs_position() {
        filter.matches_noting(doc, &mut matched.position)?
    } else {
        filter.matches(doc)?
    };
    if !matches {
        return Ok(Change::Skip);
    }
    let applied = update.apply(doc, &matched, context, out)?;
    if !applied.changed {
        return Ok(Change::Same);
    }
    if !unit.logs_changes() {
        return Ok(Change::Replace(applied.touched));
    }
    let difference = update.difference(doc, Doc::trusted(out), &matched)?;
    Ok(match difference {
        Some(difference) => Change::Delta(applied.touched, difference),
        None => Change::Replace(applied.touched),
    })
}
