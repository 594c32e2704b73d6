//! Carrying out one update statement: find, change, or insert where nothing matched.

use std::sync::Arc;

use marula_bson::{Collator, Doc, DocBuf, Element, Value, ValueBuf, order};
use marula_db::session::Done;
use marula_db::storage_error;
use marula_db::write::{Written, check_id, new_id};
use marula_db::{Change, Collection, Namespace, RecordKey, Unit, WriteOp};
use marula_error::{Error, Result, codes};
use marula_operation::args;
use marula_plan::{Emit, End, Execution, Patience, Query, Wording, choice, planner, query};
use marula_query::context::Context as QueryContext;
use marula_query::filter::{CompareOp, Filter, Node, PathNode, Predicate, Purpose};
use marula_query::text;
use marula_query::update::{Matched, Origin, Update, UpdateOptions};

use crate::context::Context;
use crate::statements::{self, Attempt};
use crate::time_series;
use crate::writes::{self, multi_not_retryable};

/// Records that a multi-document update or delete gathers before it writes them.
pub const GATHERED_MAX: usize = 1_000;

/// One statement of an `update`.
pub struct Statement<'a> {
    /// Which documents.
    pub query: Doc<'a>,
    /// How they change.
    pub update: Value<'a>,
    /// Constants for a pipeline.
    pub constants: Option<Doc<'a>>,
    /// Conditions on array elements.
    pub array_filters: Option<Doc<'a>>,
    /// Which index to use.
    pub hint: Option<Value<'a>>,
    /// Which of several that match is the one to be changed: the first in this order.
    pub sort: Option<Doc<'a>>,
    /// The collation.
    pub collation: Option<Value<'a>>,
    /// The command's variables.
    pub let_variables: Option<Value<'a>>,
    /// Whether all documents that match are changed.
    pub multi: bool,
    /// Whether a document is inserted where none matches.
    pub upsert: bool,
    /// Who wrote the update.
    pub origin: Origin,
    /// The statement's number in its session.
    pub number: i32,
}

/// What a statement did.
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
    /// What a session's record says that an update did; `None` where it is of another kind of
    /// write.
    pub fn recorded(done: &Done) -> Option<Self> {
        match done {
            Done::Updated { matched, modified, upserted } => {
                Some(Updated { matched: *matched, modified: *modified, upserted: upserted.clone() })
            }
            _ => None,
        }
    }
}

impl Statement<'_> {
    /// Runs the statement. `None`: it is not for a network worker, and nothing was done.
    pub fn run(
        &self,
        ctx: &Context<'_>,
        ns: &Namespace,
        op: &mut WriteOp<'_>,
    ) -> Result<Option<Updated>> {
        if self.multi && op.numbered.is_some() {
            return Err(multi_not_retryable("true"));
        }
        let mut collection = ctx.unit.collection(ns);
        if let Some(shown) = &collection
            && let Some(buckets) = ctx.server.db.buckets_of(shown)?
        {
            if !op.may_wait {
                return Ok(None);
            }
            return time_series::write::update(ctx, &buckets, self, op).map(Some);
        }
        if self.upsert && collection.is_none() {
            // The collection is there even when the statement then fails.
            if !op.may_wait {
                return Ok(None);
            }
            op.user_writes.check(ns.db())?;
            collection = Some(ctx.unit.collection_or_create(ns)?);
        }
        let mut context =
            ctx.env().context(collection.as_deref(), self.collation, self.let_variables)?;
        context.has_text_score = self.sort.is_some() && text::has_search(self.query);
        context.has_distance = self.sort.is_some() && text::has_near(self.query);
        let options = UpdateOptions {
            array_filters: self.array_filters,
            constants: self.constants,
            multi: self.multi,
            empty_timestamps: op.empty_timestamps,
            origin: self.origin,
        };
        let update = Update::parse(self.update, &options, &context)?;
        let purpose = if self.upsert { Purpose::Upsert } else { Purpose::Any };
        let filter = Filter::draft(self.query, purpose, &context)?.finish(&context)?;
        let Some(collection) = collection else {
            args::check_text_without_collection(&filter, ns)?;
            let nothing = Done::Updated { matched: 0, modified: 0, upserted: None };
            op.record_only(&[(self.number, nothing)])?;
            return Ok(Some(Updated::default()));
        };
        writes::check_not_view(&collection)?;
        let job = Job { statement: self, update: &update, filter: &filter, context: &context };
        let found = match self.upsert {
            false => job.update_matching(ctx, &collection, op)?,
            true => statements::modify_or_insert(
                op,
                |op| job.update_matching(ctx, &collection, op),
                |op| job.insert(&collection, op),
                |error| may_match_now(error, &filter),
            )?,
        };
        Ok(match found {
            Attempt::ToPool => None,
            Attempt::Nothing => Some(Updated::default()),
            Attempt::Done(updated) => Some(updated),
        })
    }
}

/// A statement, parsed.
struct Job<'j> {
    statement: &'j Statement<'j>,
    update: &'j Update,
    filter: &'j Filter,
    context: &'j QueryContext,
}

impl Job<'_> {
    /// Changes what matches.
    fn update_matching(
        &self,
        ctx: &Context<'_>,
        collection: &Arc<Collection>,
        op: &mut WriteOp<'_>,
    ) -> Result<Attempt<Updated>> {
        if !op.may_wait && self.statement.multi {
            return Ok(Attempt::ToPool);
        }
        let Some(mut execution) = self.execution(ctx, collection, op.may_wait)? else {
            return Ok(Attempt::ToPool);
        };
        if self.statement.multi {
            return self.update_all(ctx, &mut execution, op);
        }
        execution.give_candidates();
        let number = self.statement.number;
        let done = |written| Done::Updated {
            matched: 1,
            modified: i64::from(written == Written::Changed),
            upserted: None,
        };
        while let Some(record) = next_record(ctx, &mut execution)? {
            let unit = op.unit;
            let mut change = |doc: Doc<'_>, out: &mut Vec<u8>| self.change(unit, doc, out);
            match op.update(collection, &record, &mut change, Some((number, &done)))? {
                Written::Skipped => {}
                written => {
                    let modified = i64::from(written == Written::Changed);
                    return Ok(Attempt::Done(Updated { matched: 1, modified, upserted: None }));
                }
            }
        }
        if !self.statement.upsert {
            let nothing = Done::Updated { matched: 0, modified: 0, upserted: None };
            op.record_only(&[(number, nothing)])?;
        }
        Ok(Attempt::Nothing)
    }

    /// Inserts what the update makes of nothing.
    fn insert(&self, collection: &Collection, op: &mut WriteOp<'_>) -> Result<Updated> {
        let number = self.statement.number;
        let done = |doc: Doc<'_>| {
            let upserted = doc.get("_id").map(|id| id.to_buf());
            Some((number, Done::Updated { matched: 1, modified: 0, upserted }))
        };
        let doc = upsert(collection, self.update, self.filter, self.context, op, &done)?;
        let upserted = doc.as_doc().get("_id").map(|id| id.to_buf());
        Ok(Updated { matched: 1, modified: 0, upserted })
    }

    /// Changes every document that matches, a batch of records at a time.
    fn update_all(
        &self,
        ctx: &Context<'_>,
        execution: &mut Execution,
        op: &mut WriteOp<'_>,
    ) -> Result<Attempt<Updated>> {
        let mut updated = Updated::default();
        execution.give_once();
        loop {
            let (records, end) = gather(ctx, execution);
            for record in &records {
                let unit = op.unit;
                let mut change = |doc: Doc<'_>, out: &mut Vec<u8>| self.change(unit, doc, out);
                let written = op.update(execution.collection(), record, &mut change, None)?;
                updated.matched += i64::from(written != Written::Skipped);
                updated.modified += i64::from(written == Written::Changed);
                ctx.check_interrupt()?;
            }
            if end? == End::Exhausted {
                return Ok(match updated.matched {
                    0 => Attempt::Nothing,
                    _ => Attempt::Done(updated),
                });
            }
        }
    }

    /// The way to the documents; `None` where it takes longer than the thread may wait.
    fn execution(
        &self,
        ctx: &Context<'_>,
        collection: &Arc<Collection>,
        may_wait: bool,
    ) -> Result<Option<Execution>> {
        let statement = self.statement;
        if let Some(id) = query::id_equality(statement.query)
            && statement.hint.is_none()
            && statement.sort.is_none()
            && self.context.collation.is_none()
        {
            let query = Query::new(Filter::everything(self.context), self.context.clone());
            let plan = planner::plan_id(id.to_buf());
            return Ok(Some(Execution::new(collection.clone(), plan, query)));
        }
        let mut query = Query::new(self.filter.clone(), self.context.clone());
        query.hint = args::parse_hint(statement.hint)?;
        if let Some(sort) = statement.sort {
            args::apply_sort(&mut query, sort)?;
            query.wants_score = text::asks_for(sort, "textScore");
        }
        let mut interrupt = || ctx.check_interrupt();
        let wording = Wording {
            sort: statement.sort,
            ..Wording::of_update(statement.query, statement.collation)
        };
        let patience = Patience::all_or_none(may_wait);
        choice::choose(ctx.unit, collection, query, &wording, patience, &mut interrupt)
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

/// The next record that an execution gives.
///
/// Errors: `WriteConflict` where it takes longer than the thread may.
pub fn next_record(ctx: &Context<'_>, execution: &mut Execution) -> Result<Option<RecordKey>> {
    let mut record = None;
    let end = execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |found| {
        record = Some(RecordKey::new(found.record));
        Ok(Emit::Enough)
    })?;
    match end {
        // Nothing is done yet, and it begins anew where there is time.
        End::Overdue => Err(storage_error::client_error(marula_storage::Error::Conflict)),
        _ => Ok(record),
    }
}

/// The next records that an execution gives, and whether there are more. Where it fails, the
/// records before are to be written all the same.
pub fn gather(ctx: &Context<'_>, execution: &mut Execution) -> (Vec<RecordKey>, Result<End>) {
    let mut records = Vec::new();
    let end = execution.run(ctx.unit, &mut || ctx.check_interrupt(), &mut |found| {
        records.push(RecordKey::new(found.record));
        Ok(if records.len() < GATHERED_MAX { Emit::Taken } else { Emit::Enough })
    });
    (records, end)
}

/// Inserts what an upsert makes where nothing matched; answers its `_id`.
pub fn upsert(
    collection: &Collection,
    update: &Update,
    query: &Filter,
    context: &QueryContext,
    op: &mut WriteOp<'_>,
    done: &dyn Fn(Doc<'_>) -> Option<(i32, Done)>,
) -> Result<DocBuf> {
    let doc = upserted_document(update, query, context, op.now_ms)?;
    let statement = done(doc.as_doc());
    op.upsert(collection, doc.as_doc(), statement)?;
    Ok(doc)
}

/// The document that an upsert inserts, with its `_id` at the front.
pub fn upserted_document(
    update: &Update,
    query: &Filter,
    context: &QueryContext,
    now_ms: i64,
) -> Result<DocBuf> {
    let mut made = Vec::new();
    update.upsert(query, context, &mut made)?;
    let made = Doc::trusted(&made);
    let id = made.get("_id");
    if let Some(id) = id {
        check_id(id)?;
    }
    Ok(DocBuf::build(|doc| {
        match id {
            Some(id) => doc.append("_id", id),
            None => doc.append("_id", new_id(now_ms)),
        };
        for element in made.iter().filter(|element| element.name != "_id") {
            doc.append_raw(element.name, element.value);
        }
    }))
}

/// Whether the document that was in the way of an upsert's insert is one that the upsert's filter
/// asks for by equality: then trying again finds it, instead of failing for ever.
pub fn may_match_now(error: &Error, filter: &Filter) -> bool {
    if error.code() != codes::DuplicateKey {
        return false;
    }
    let fields = [error.fields(), &[0]].concat();
    let length = i32::try_from(fields.len() + 4).unwrap_or(i32::MAX).to_le_bytes();
    let fields = [&length[..], &fields].concat();
    let Some(Value::Document(key)) = Doc::trusted(&fields).get("keyValue") else { return false };
    // A condition beside the key's may be what did not match: then trying again would not help.
    let conditions = match filter.root() {
        Node::And(children) => children.as_slice(),
        only => std::slice::from_ref(only),
    };
    let collator = filter.collator();
    conditions.len() == key.iter().count()
        && key.iter().all(|field| conditions.iter().any(|node| asks_for(node, field, collator)))
}

/// Whether a condition asks, by equality, for what a field of a key holds.
fn asks_for(node: &Node, field: Element<'_>, collator: Option<&dyn Collator>) -> bool {
    match node {
        Node::Path(PathNode { path, predicate: Predicate::Compare(compare) }) => {
            compare.op == CompareOp::Eq
                && path.to_string().as_bytes() == field.name
                && order::equal(compare.value.get(), field.value.get(), collator)
        }
        _ => false,
    }
}
