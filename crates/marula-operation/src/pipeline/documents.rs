//! The documents of a running pipeline on their way into batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use marula_bson::{ArrayWriter, Doc};
use marula_db::Namespace;
use marula_error::Result;
use marula_plan::{Hint, Reads};
use marula_query::context::Context as QueryContext;
use marula_query::stage::source::check_result;
use marula_query::stage::{Pipeline, Source, Step};

use super::host::{PipelineHost, StreamPosition};
use super::start::{Scope, Started, start};
use super::world::Surroundings;
use crate::documents::{Filled, Room};

/// The options of a pipeline.
#[derive(Default)]
pub(crate) struct PipelineOptions {
    /// The hint for the plan.
    pub(crate) hint: Option<Hint>,
    /// Whether `$out` and `$merge` ignore the validator of their target.
    pub(crate) bypass_validation: bool,
}

/// The documents of a running pipeline.
pub struct PipelineDocuments {
    source: Box<dyn Source>,
    surroundings: Arc<Surroundings>,
    /// Whether the last document did not fit the last batch and is still in the source.
    is_held: bool,
    /// The objects that it reads, if the whole pipeline is one query.
    reads: Option<Reads>,
    /// The client's position in the change stream, if it is one.
    position: Option<Box<dyn StreamPosition>>,
}

impl PipelineDocuments {
    /// Starts a pipeline on a collection.
    pub(crate) fn start(
        host: Arc<dyn PipelineHost>,
        ns: &Namespace,
        pipeline: Pipeline,
        context: QueryContext,
        options: PipelineOptions,
    ) -> Result<Self> {
        let PipelineOptions { hint, bypass_validation } = options;
        let surroundings = Surroundings::new(host, ns, Arc::new(context), bypass_validation);
        let surroundings = Arc::new(surroundings);
        let Started { source, reads, position } =
            start(surroundings.clone(), ns, pipeline, hint, Scope::Operation)?;
        Ok(PipelineDocuments { source, surroundings, is_held: false, reads, position })
    }

    /// Returns whether the whole pipeline is one query: it then fails as soon as one of the objects
    /// that it reads no longer exists, even if documents have been read ahead.
    pub fn is_query(&self) -> bool {
        self.reads.is_some()
    }

    /// Returns the client's position in the change stream, if it is one.
    pub fn position(&self) -> Option<&dyn StreamPosition> {
        self.position.as_deref()
    }

    /// The environment of the query language that it was parsed with.
    pub fn context(&self) -> &QueryContext {
        &self.surroundings.context
    }

    /// Returns the one-line summary of the plan, if a collection is read.
    pub fn plan_summary(&self) -> Option<String> {
        self.surroundings.plan.get().map(|plan| plan.summary())
    }

    /// Calls `take` with every document.
    pub fn for_each(&mut self, take: &mut dyn FnMut(Doc<'_>) -> Result<()>) -> Result<()> {
        while self.source.advance()? == Step::Document {
            take(self.source.doc())?;
        }
        Ok(())
    }

    /// Appends the next documents to a batch, at most `documents_max` of them.
    ///
    /// Errors: those of the stages, and of objects that no longer exist.
    pub fn fill(&mut self, documents_max: usize, batch: &mut ArrayWriter<'_>) -> Result<Filled> {
        self.reads.as_ref().map_or(Ok(()), Reads::check)?;
        let room = documents_max.saturating_sub(batch.count() + usize::from(self.is_held));
        self.surroundings.room.store(room, Ordering::Relaxed);
        let mut batch_room = Room::of_cursor();
        while batch.count() < documents_max {
            if !self.is_held {
                match self.source.advance()? {
                    Step::Document => {}
                    Step::Pause => {
                        self.position.iter_mut().for_each(|position| position.pause());
                        return Ok(Filled::More);
                    }
                    Step::End => {
                        self.position.iter_mut().for_each(|position| position.end());
                        return Ok(Filled::Exhausted);
                    }
                }
                if let Some(position) = &self.position {
                    position.check(self.source.doc())?;
                }
            }
            let doc = self.source.doc();
            check_result(doc)?;
            self.is_held = !batch_room.has(batch, doc.as_bytes().len());
            if self.is_held {
                break;
            }
            batch.push(doc);
            if let Some(position) = &mut self.position {
                position.pass(doc);
            }
        }
        Ok(Filled::More)
    }
}
