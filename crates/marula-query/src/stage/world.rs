//! What a pipeline needs from outside itself while it runs.

use std::sync::Arc;

use marula_error::Result;

use super::{Pipeline, Source};
use crate::context::Context;

/// How much memory a blocking stage may use before it must spill to disk.
pub const STAGE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// The collections around a pipeline.
pub trait World: Send + Sync {
    /// Runs a pipeline on another collection, as an `aggregate` on it would.
    ///
    /// `database` is the pipeline's own where it is `None`. A collection that is not there is empty.
    fn aggregate(
        self: Arc<Self>,
        database: Option<&str>,
        collection: &str,
        pipeline: Pipeline,
    ) -> Result<Box<dyn Source>>;

    /// Answers an error when the operation was killed or ran out of time.
    fn check_interrupt(&self) -> Result<()>;
}

/// What every running stage holds. It borrows nothing, so that a pipeline can rest between two batches.
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
        pipeline.run(Box::new(super::source::Documents::new(Vec::new())), &env)
    }

    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }
}
