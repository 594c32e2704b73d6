//! The collections and the server as the stages of a pipeline see them.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use marula_bson::{Doc, FieldPath, Value};
use marula_db::{Collection, Namespace};
use marula_error::Result;
use marula_plan::Plan;
use marula_query::context::{Context as QueryContext, Interrupt};
use marula_query::stage::world::STAGE_BYTES_MAX;
use marula_query::stage::{Env, InsertStatement, JoinSide, Pipeline, Replacement, Source, World};

use super::host::PipelineHost;
use super::start::{Scope, start};
use super::writes::Writer;

/// The environment of a pipeline: its collections, and the conditions that end its operation.
pub(super) struct Surroundings {
    pub(super) host: Arc<dyn PipelineHost>,
    database: String,
    pub(super) context: Arc<QueryContext>,
    /// The number of documents that still fit into the current batch of the operation's cursor.
    pub(super) room: AtomicUsize,
    writer: Writer,
    /// The plan that reads the pipeline's own collection.
    pub(super) plan: OnceLock<Arc<Plan>>,
}

impl Surroundings {
    pub(super) fn new(
        host: Arc<dyn PipelineHost>,
        ns: &Namespace,
        context: Arc<QueryContext>,
        bypass_validation: bool,
    ) -> Self {
        Surroundings {
            database: ns.db().to_owned(),
            room: AtomicUsize::new(usize::MAX),
            writer: Writer::new(host.clone(), context.clone(), bypass_validation),
            host,
            context,
            plan: OnceLock::new(),
        }
    }

    /// Returns the collection of this name, as the operation sees it.
    pub(super) fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        self.host.work().unit().collection(ns)
    }

    /// Returns the environment of the pipeline's stages.
    pub(super) fn env(self: &Arc<Self>) -> Env {
        Env { context: self.context.clone(), world: self.clone(), stage_bytes_max: STAGE_BYTES_MAX }
    }
}

impl World for Surroundings {
    fn aggregate(
        self: Arc<Self>,
        database: Option<&str>,
        collection: &str,
        pipeline: Pipeline,
    ) -> Result<Box<dyn Source>> {
        let ns = Namespace::new(database.unwrap_or(&self.database), collection)?;
        start(self, &ns, pipeline, None, Scope::Stage).map(|started| started.source)
    }

    fn join_side(&self, collection: &str, field: &[u8]) -> Option<JoinSide> {
        let ns = Namespace::new(&self.database, collection).ok()?;
        let collection = self.collection(&ns)?;
        let state = self.host.work().unit().state(&collection);
        if state.options.view.is_some() {
            return None;
        }
        let path = FieldPath::new(field);
        let leads = |index: &&Arc<marula_db::Index>| {
            let spec = &index.spec;
            let has_order = spec.collation == self.context.collation && spec.partial.is_none();
            let first = spec.parts.first();
            has_order && !spec.hidden && first.is_some_and(|part| part.path == path)
        };
        Some(JoinSide {
            documents: u64::try_from(collection.count()).unwrap_or(0),
            bytes: u64::try_from(collection.size_bytes()).unwrap_or(0),
            is_indexed: state.indexes.iter().any(|index| leads(&index)),
        })
    }

    fn replace_collection(
        &self,
        database: &str,
        collection: &str,
        time_series: Option<Doc<'_>>,
    ) -> Result<Box<dyn Replacement>> {
        self.writer.replace(Namespace::new(database, collection)?, time_series)
    }

    fn has_unique_index(
        &self,
        database: &str,
        collection: &str,
        fields: &[String],
    ) -> Result<bool> {
        Ok(self.writer.has_unique_index(&Namespace::new(database, collection)?, fields))
    }

    fn update_one(
        &self,
        database: &str,
        collection: &str,
        filter: Doc<'_>,
        update: Value<'_>,
        variables: Doc<'_>,
        creates: bool,
    ) -> Result<bool> {
        let ns = Namespace::new(database, collection)?;
        self.writer.update_one(&ns, filter, update, variables, creates)
    }

    fn upsert_one(
        &self,
        database: &str,
        collection: &str,
        filter: Doc<'_>,
        update: Value<'_>,
    ) -> Result<()> {
        let ns = Namespace::new(database, collection)?;
        self.writer.upsert_one(&ns, filter, update)
    }

    fn insert_one(
        &self,
        database: &str,
        collection: &str,
        document: Doc<'_>,
        statement: InsertStatement,
    ) -> Result<()> {
        let ns = Namespace::new(database, collection)?;
        self.writer.insert(&ns, document, statement)
    }

    fn check_interrupt(&self) -> Result<()> {
        self.context.interrupt.as_ref().map_or(Ok(()), Interrupt::check)
    }
}
