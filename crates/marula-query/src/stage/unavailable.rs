//! A pipeline of `$lookup` or `$unionWith` that uses metadata which its documents do not have: as
//! in mongod, it fails when it starts, and a `$lookup` without documents never starts it.

use std::sync::Arc;

use marula_bson::ValueBuf;
use marula_error::{Error, Result};

use super::{Env, Passage, Source, Stage};

/// The only stage of such a pipeline.
#[derive(Debug)]
pub(super) struct Unavailable {
    /// The result of the pipeline's start.
    pub(super) error: Error,
}

impl Stage for Unavailable {
    fn name(&self) -> &'static str {
        "$_internalUnavailable"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|_| {})
    }

    fn passage(&self) -> Passage {
        Passage::closed()
    }

    fn start(self: Arc<Self>, _: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Err(self.error.clone())
    }
}
