//! The environment of a running pipeline.

use std::sync::Arc;

use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::{Pipeline, Source};
use crate::context::Context;

errors! {
    /// A stage that writes runs in a pipeline that may not write.
    writes_nothing(stage: &str) = IllegalOperation, "{stage} cannot write here";
}

/// The memory limit of a blocking stage, beyond which it spills to disk.
pub const STAGE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// The statement of a command that an insert of `$merge` counts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertStatement {
    /// An insert of its own.
    Insert,
    /// The second half of an upsert, after an update that has counted.
    Upsert,
}

/// Access to other collections for a pipeline.
pub trait World: Send + Sync {
    /// Runs a pipeline on another collection, as an `aggregate` on it does.
    ///
    /// If `database` is `None`, it is the pipeline's own. A collection that does not exist is
    /// empty.
    fn aggregate(
        self: Arc<Self>,
        database: Option<&str>,
        collection: &str,
        pipeline: Pipeline,
    ) -> Result<Box<dyn Source>>;

    /// Returns the facts about a collection that matter for a join on `field`; `None` if they are
    /// unknown, as for a view.
    fn join_side(&self, _collection: &str, _field: &[u8]) -> Option<JoinSide> {
        None
    }

    /// Creates a collection that replaces `collection` once it is complete, for `$out`; a
    /// time-series collection if its options are given.
    fn replace_collection(
        &self,
        _database: &str,
        _collection: &str,
        _time_series: Option<Doc<'_>>,
    ) -> Result<Box<dyn Replacement>> {
        Err(writes_nothing("$out"))
    }

    /// Returns whether a unique index has exactly these fields, so that `$merge` may find documents
    /// by them.
    fn has_unique_index(
        &self,
        _database: &str,
        _collection: &str,
        _fields: &[String],
    ) -> Result<bool> {
        Err(writes_nothing("$merge"))
    }

    /// Updates the one document that matches `filter`. Returns whether there was one.
    ///
    /// `update` has the form of an update command's: a document or a pipeline; `variables` is its
    /// `let`. With `creates` the collection exists after this, even if the update fails.
    fn update_one(
        &self,
        _database: &str,
        _collection: &str,
        _filter: Doc<'_>,
        _update: Value<'_>,
        _variables: Doc<'_>,
        _creates: bool,
    ) -> Result<bool> {
        Err(writes_nothing("$merge"))
    }

    /// Updates the one document that matches `filter`, or inserts the one that the update creates
    /// from nothing.
    fn upsert_one(
        &self,
        _database: &str,
        _collection: &str,
        _filter: Doc<'_>,
        _update: Value<'_>,
    ) -> Result<()> {
        Err(writes_nothing("$merge"))
    }

    /// Inserts a document; a missing `_id` is generated.
    fn insert_one(
        &self,
        _database: &str,
        _collection: &str,
        _document: Doc<'_>,
        _statement: InsertStatement,
    ) -> Result<()> {
        Err(writes_nothing("$merge"))
    }

    /// Returns an error if the operation was killed or ran out of time.
    fn check_interrupt(&self) -> Result<()>;
}

/// The other side of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinSide {
    /// The number of documents.
    pub documents: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Whether an index on the field exists.
    pub is_indexed: bool,
}

/// A collection that is written to replace another.
pub trait Replacement: Send {
    /// Adds a document.
    fn insert(&mut self, document: Doc<'_>) -> Result<()>;

    /// Replaces the other collection and takes over its indexes and options.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// The environment of every running stage. It borrows nothing, so that a pipeline can be suspended
/// between two batches.
#[derive(Clone)]
pub struct Env {
    /// The context of the operation.
    pub context: Arc<Context>,
    /// Access to other collections.
    pub world: Arc<dyn World>,
    /// The memory limit of each blocking stage.
    pub stage_bytes_max: usize,
}

/// A world without collections, for the pipelines of updates, which use none.
pub struct Nowhere;

impl World for Nowhere {
    fn aggregate(
        self: Arc<Self>,
        _: Option<&str>,
        _: &str,
        pipeline: Pipeline,
    ) -> Result<Box<dyn Source>> {
        let env = Env {
            context: Arc::new(Context::default()),
            world: self,
            stage_bytes_max: STAGE_BYTES_MAX,
        };
        let pipeline = pipeline.rearranged(&env.context);
        pipeline.run(Box::new(super::source::Documents::new(Vec::new())), &env)
    }

    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }
}
