//! What a pipeline needs from outside itself while it runs.

use std::sync::Arc;

use marula_bson::{Doc, Value};
use marula_error::{Result, errors};

use super::{Pipeline, Source};
use crate::context::Context;
use crate::update::EmptyTimestamps;

errors! {
    /// A stage that writes runs where nothing may be written.
    writes_nothing(stage: &str) = IllegalOperation, "{stage} cannot write here";
}

/// How much memory a blocking stage may use before it must spill to disk.
pub const STAGE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// The collections around a pipeline.
pub trait World: Send + Sync {
    /// Runs a pipeline on another collection, as an `aggregate` on it would.
    ///
    /// `database` is the pipeline's own where it is `None`. A collection that is not there is
    /// empty.
    fn aggregate(
        self: Arc<Self>,
        database: Option<&str>,
        collection: &str,
        pipeline: Pipeline,
    ) -> Result<Box<dyn Source>>;

    /// What there is to know of a collection before its documents are joined on `field`; `None`
    /// where that is not known, as of a view.
    fn join_side(&self, _collection: &str, _field: &[u8]) -> Option<JoinSide> {
        None
    }

    /// Begins a collection that takes the place of `collection` when it is complete, for `$out`; a
    /// time-series collection where there are options of such.
    fn replace_collection(
        &self,
        _database: &str,
        _collection: &str,
        _time_series: Option<Doc<'_>>,
    ) -> Result<Box<dyn Replacement>> {
        Err(writes_nothing("$out"))
    }

    /// Whether a unique index has exactly these fields, so that `$merge` may find documents by
    /// them.
    fn has_unique_index(
        &self,
        _database: &str,
        _collection: &str,
        _fields: &[String],
    ) -> Result<bool> {
        Err(writes_nothing("$merge"))
    }

    /// Updates the one document that `filter` finds. Answers whether there was one.
    ///
    /// `update` is what an update command takes: a document or a pipeline; `variables` is its
    /// `let`.
    fn update_one(
        &self,
        _database: &str,
        _collection: &str,
        _filter: Doc<'_>,
        _update: Value<'_>,
        _variables: Doc<'_>,
    ) -> Result<bool> {
        Err(writes_nothing("$merge"))
    }

    /// Inserts a document; an `_id` is made where it has none.
    fn insert_one(
        &self,
        _database: &str,
        _collection: &str,
        _document: Doc<'_>,
        _empty_timestamps: EmptyTimestamps,
    ) -> Result<()> {
        Err(writes_nothing("$merge"))
    }

    /// Answers an error when the operation was killed or ran out of time.
    fn check_interrupt(&self) -> Result<()>;
}

/// The other side of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinSide {
    /// How many documents it has.
    pub documents: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// Whether an index finds documents by the field.
    pub is_indexed: bool,
}

/// A collection that is written to take the place of another.
pub trait Replacement: Send {
    /// Adds a document.
    fn insert(&mut self, document: Doc<'_>) -> Result<()>;

    /// Puts the collection in the other's place, with the other's indexes and options.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// What every running stage holds. It borrows nothing, so that a pipeline can rest between two
/// batches.
#[derive(Clone)]
pub struct Env {
    /// The surroundings of the operation.
    pub context: Arc<Context>,
    /// The collections around.
    pub world: Arc<dyn World>,
    /// How much memory each blocking stage may use.
    pub stage_bytes_max: usize,
}

/// A world without collections: for the pipelines of updates, which touch none.
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
