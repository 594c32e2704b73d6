//! The writes of the stages `$out` and `$merge`, which are the operations of the commands.

use std::sync::Arc;

use marula_bson::{Doc, Value};
use marula_db::time_series::{TimeSeries, buckets_namespace};
use marula_db::write::UserWrites;
use marula_db::{Collection, Db, Namespace, Unit, WriteOp};
use marula_error::{Error, Result, codes, errors};
use marula_plan::TimeBudget;
use marula_query::context::Context as QueryContext;
use marula_query::filter::Filter;
use marula_query::spill::Limits;
use marula_query::stage::{InsertStatement, Replacement};
use marula_query::update::{EmptyTimestamps, Update};

use super::host::{PipelineHost, StageWrites, Work};
use crate::env::{Env, Host};
use crate::insert::{InsertOp, Inserted};
use crate::update::{ParsedUpdate, UpdateOp};
use crate::{statements, targets};

errors! {
    not_time_series(ns: &Namespace) = InvalidOptions, "Cannot create a time-series collection from a non time-series collection or view: {ns}";
    other_time_series(ns: &Namespace) = InvalidOptions, "The time-series options of $out are not those of the collection {ns}";
    target_capped(ns: &Namespace) = 17152, "namespace '{ns}' is capped so it can't be used for $out";
    bad_target(reason: &str) = IllegalOperation, "error with target namespace: {reason}";
}

/// The number of documents that `$out` collects before it inserts them.
const GATHERED_DOCUMENTS_MAX: usize = 1_000;
/// The size of documents that `$out` collects before it inserts them.
const GATHERED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The target and the options of a pipeline's writes.
pub(super) struct Writer {
    host: Arc<dyn PipelineHost>,
    /// The unit of work of the command that starts the pipeline, which writes in it alone.
    work: Arc<dyn Work>,
    context: Arc<QueryContext>,
    bypass_validation: bool,
    user_writes: UserWrites,
}

impl Writer {
    /// Returns a writer for the operation of a command.
    pub(super) fn new(
        host: Arc<dyn PipelineHost>,
        context: Arc<QueryContext>,
        bypass_validation: bool,
    ) -> Self {
        let (work, user_writes) = (host.work(), host.user_writes());
        Writer { host, work, context, bypass_validation, user_writes }
    }

    fn db(&self) -> &Arc<Db> {
        self.host.db()
    }

    /// The unit of the writes, which are no part of a snapshot that the pipeline reads.
    fn unit(&self) -> Unit<'_> {
        self.work.unit().at_newest()
    }

    fn env(&self) -> Env<'_> {
        Env { unit: self.unit(), host: self }
    }

    fn op(&self) -> WriteOp<'_> {
        let mut op = WriteOp::new(self.unit(), self.context.now_ms);
        op.bypass_validation = self.bypass_validation;
        op.user_writes = self.user_writes;
        op
    }

    /// Creates the collection that will replace `target`.
    ///
    /// Errors: a target that is a view, is capped, or has a name that is not permitted.
    pub(super) fn replace(
        &self,
        target: Namespace,
        time_series: Option<Doc<'_>>,
    ) -> Result<Box<dyn Replacement>> {
        target.check_creatable().map_err(|error| bad_target(error.message()))?;
        self.user_writes.check(self.db(), target.db())?;
        if let Some(options) = time_series {
            return self.replace_buckets(target, options);
        }
        if let Some(known) = self.db().collection(&target) {
            targets::check_not_view(&known)?;
            if known.state().options.capped.is_some() {
                return Err(target_capped(&target));
            }
        }
        let collection = self.db().create_temporary(&target)?;
        Ok(Box::new(self.beside(collection, target, None)))
    }

    /// Creates the buckets that will replace those of a time-series collection, which is created if
    /// it does not exist.
    ///
    /// Errors: those of the options; an existing target that has other options.
    fn replace_buckets(&self, target: Namespace, options: Doc<'_>) -> Result<Box<dyn Replacement>> {
        let of_buckets = self.host.bucket_options(&target, options)?;
        let wanted = TimeSeries::parse(options).expect("the options have been checked");
        let known = self.db().collection(&target);
        match known.as_ref().map(|known| known.state()) {
            None => self.db().create_time_series(&target, of_buckets).map(drop)?,
            Some(state) => {
                let known =
                    state.options.time_series.as_ref().filter(|_| state.options.view.is_some());
                let known = known.ok_or_else(|| not_time_series(&target))?;
                let says_buckets = ["granularity", "bucketMaxSpanSeconds"]
                    .iter()
                    .any(|name| options.get(name).is_some());
                if known.time_field != wanted.time_field
                    || known.meta_field != wanted.meta_field
                    || says_buckets && known.bucketing != wanted.bucketing
                {
                    return Err(other_time_series(&target));
                }
            }
        }
        let buckets = buckets_namespace(&target)?;
        let collection = self.db().create_temporary(&buckets)?;
        let made = known.is_none().then_some(target);
        Ok(Box::new(self.beside(collection, buckets, made)))
    }

    fn beside(
        &self,
        collection: Arc<Collection>,
        target: Namespace,
        made: Option<Namespace>,
    ) -> Beside {
        let writer = Writer {
            host: self.host.clone(),
            work: self.work.clone(),
            context: self.context.clone(),
            bypass_validation: self.bypass_validation,
            user_writes: self.user_writes,
        };
        let gathered = Gathered::default();
        Beside { writer, collection, target, made, gathered, is_in_place: false }
    }

    /// Returns whether a unique index of `ns` has exactly these fields, in any order, for every
    /// document and with the collation of the operation.
    pub(super) fn has_unique_index(&self, ns: &Namespace, fields: &[String]) -> bool {
        let is_id = matches!(fields, [only] if only == "_id");
        let Some(collection) = self.db().collection(ns) else { return is_id };
        let state = collection.state();
        let suits = |index: &&Arc<marula_db::Index>| {
            let spec = &index.spec;
            let key = spec.key.as_doc();
            (spec.unique || index.is_id())
                && spec.partial.is_none()
                && spec.collation == self.context.collation
                && key.iter().count() == fields.len()
                && key.iter().all(|part| fields.iter().any(|field| part.name == field.as_str()))
        };
        // A clustered collection has no index on _id, and a view is rejected later.
        let is_view = state.options.view.is_some();
        state.indexes.iter().any(|index| suits(&index))
            || (is_id && is_view && state.options.collation == self.context.collation)
    }

    /// Updates the single document that matches `filter`; returns whether there was one. With
    /// `creates` the collection is created first if it does not exist.
    pub(super) fn update_one(
        &self,
        ns: &Namespace,
        filter: Doc<'_>,
        update: Value<'_>,
        variables: Doc<'_>,
        creates: bool,
    ) -> Result<bool> {
        if creates {
            self.user_writes.check(self.db(), ns.db())?;
            self.db().collection_or_create(ns)?;
        }
        let constants = Some(variables).filter(|variables| !variables.is_empty());
        let statement = UpdateOp { constants, ..UpdateOp::of_one(filter, update) };
        let parsed = statement.parse_within(&self.context, EmptyTimestamps::default())?;
        if self.db().collection(ns).is_none() {
            ns.check_creatable()?;
            return Ok(false);
        }
        self.run(ns, &statement, &parsed)
    }

    /// Updates the single document that matches `filter`, or inserts the one that the update
    /// creates, into a collection that is created if it does not exist.
    pub(super) fn upsert_one(
        &self,
        ns: &Namespace,
        filter: Doc<'_>,
        update: Value<'_>,
    ) -> Result<()> {
        let statement = UpdateOp { upsert: true, ..UpdateOp::of_one(filter, update) };
        self.user_writes.check(self.db(), ns.db())?;
        self.db().collection_or_create(ns)?;
        let parsed = statement.parse_within(&self.context, EmptyTimestamps::default())?;
        self.run(ns, &statement, &parsed).map(drop)
    }

    /// Executes an update; returns whether a document matched or was inserted.
    fn run(
        &self,
        ns: &Namespace,
        statement: &UpdateOp<'_>,
        (update, filter): &(Update, Filter),
    ) -> Result<bool> {
        let (env, mut op) = (self.env(), self.op());
        let parsed = ParsedUpdate { statement, update, filter, context: &self.context };
        let updated = statements::from_look_up(&env, &mut op, |op| {
            let collection = match statement.upsert {
                true => Some(op.look_up_or_create(ns)?),
                false => op.look_up(ns),
            };
            let Some(collection) = collection else { return Ok(None) };
            targets::check_not_view(&collection)?;
            parsed.run(&env, &collection, op)
        });
        let has_matched = matches!(&updated, Ok(Some(updated)) if updated.upserted.is_none());
        let updates = StageWrites { updates: 1, updated: has_matched.into(), ..Default::default() };
        self.host.count_writes(updates);
        Ok(updated?.is_some())
    }

    /// Inserts a document into a collection, which is created if it does not exist.
    pub(super) fn insert(
        &self,
        ns: &Namespace,
        document: Doc<'_>,
        statement: InsertStatement,
    ) -> Result<()> {
        if let Some(collection) = self.db().collection(ns) {
            targets::check_not_view(&collection)?;
        }
        let mut op = self.op();
        let insert = InsertOp::ordered(std::slice::from_ref(&document));
        let inserted = insert.run(&self.env(), ns, &mut op);
        match statement {
            InsertStatement::Insert => self.counted(1, inserted),
            InsertStatement::Upsert => inserted?.into_result(),
        }
    }

    /// Counts an insert of this number of documents; returns the error of the first that failed.
    fn counted(&self, documents: usize, inserted: Result<Inserted>) -> Result<()> {
        let count = inserted.as_ref().map_or(0, |inserted| inserted.report.inserted);
        self.host.count_writes(StageWrites {
            inserts: documents as u64,
            inserted: count as u64,
            ..StageWrites::default()
        });
        inserted?.into_result()
    }
}

/// The environment of the operations that a pipeline's stages run. They run on the pool, and end
/// when their pipeline must.
impl Host for Writer {
    fn check_interrupt(&self) -> Result<()> {
        self.context.interrupt.as_ref().map_or(Ok(()), |interrupt| interrupt.check())
    }

    fn time_budget(&self) -> TimeBudget {
        TimeBudget::Timed
    }

    fn language(&self) -> QueryContext {
        QueryContext::clone(&self.context)
    }

    fn limits(&self, _may_use_disk: Option<bool>) -> Limits {
        self.context.limits.clone()
    }
}

/// Documents collected for one insert.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Gathered {
    fn docs(&self) -> impl Iterator<Item = Doc<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| Doc::trusted(&self.bytes[start..end]))
    }
}

/// A temporary collection that will replace another. It is removed if it is dropped before.
struct Beside {
    writer: Writer,
    collection: Arc<Collection>,
    target: Namespace,
    /// The time-series collection that was created for the target.
    made: Option<Namespace>,
    gathered: Gathered,
    is_in_place: bool,
}

impl Beside {
    fn flush(&mut self) -> Result<()> {
        let documents: Vec<Doc<'_>> = self.gathered.docs().collect();
        let insert = InsertOp::ordered(&documents);
        let mut op = self.writer.op();
        let inserted = match self.collection.state().options.time_series {
            Some(_) => insert.insert_measurements(&self.collection, &mut op),
            None => insert.insert_into(&self.collection, &mut op),
        };
        self.writer.counted(documents.len(), inserted)?;
        drop(documents);
        self.gathered.bytes.clear();
        self.gathered.ends.clear();
        Ok(())
    }
}

impl Replacement for Beside {
    fn insert(&mut self, document: Doc<'_>) -> Result<()> {
        self.gathered.bytes.extend_from_slice(document.as_bytes());
        self.gathered.ends.push(self.gathered.bytes.len());
        let is_full = self.gathered.ends.len() >= GATHERED_DOCUMENTS_MAX
            || self.gathered.bytes.len() >= GATHERED_BYTES_MAX;
        if is_full { self.flush() } else { Ok(()) }
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.flush()?;
        self.writer.db().put_in_place(&self.collection.namespace(), &self.target)?;
        self.is_in_place = true;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.is_in_place {
            return;
        }
        for ns in self.made.take().into_iter().chain([self.collection.namespace()]) {
            match self.writer.db().drop_collection(&ns) {
                Err(error) if !is_gone(&error) => {
                    tracing::warn!(%error, %ns, "dropping a temporary collection failed; the next start tries again");
                }
                _ => {}
            }
        }
    }
}

/// Returns whether another client dropped the collection, or its database, before.
fn is_gone(error: &Error) -> bool {
    error.code() == codes::NamespaceNotFound
}
