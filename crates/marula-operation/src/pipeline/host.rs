//! The services that a pipeline needs from the server. A pipeline may outlive the command that
//! started it: its cursor continues in other commands.

use std::any::Any;
use std::sync::Arc;

use marula_bson::{Doc, DocBuf};
use marula_db::write::UserWrites;
use marula_db::{CollectionOptions, Db, Namespace, Unit};
use marula_error::Result;
use marula_query::context::Context;
use marula_query::stage::{ChangeStream, Pipeline, Report, Source};

/// The services of the server for a pipeline.
pub trait PipelineHost: Send + Sync {
    /// Returns the databases.
    fn db(&self) -> &Arc<Db>;

    /// Returns the unit of work of the command that the pipeline is run by now.
    fn work(&self) -> Arc<dyn Work>;

    /// Returns whether the user may write, for `$out` and `$merge`.
    fn user_writes(&self) -> UserWrites;

    /// Counts statements of `$out` and `$merge` like those of the commands that write.
    fn count_writes(&self, writes: StageWrites);

    /// Returns the documents of a stage that reports on the server or on `ns`.
    ///
    /// Errors: those of the stage.
    fn report(&self, ns: &Namespace, report: &Report, now_ms: i64) -> Result<Vec<DocBuf>>;

    /// Starts a change stream on `ns`; `pipeline` is the whole pipeline.
    ///
    /// Errors: those of a token that cannot be resumed from.
    fn follow(
        &self,
        ns: &Namespace,
        stream: &ChangeStream,
        pipeline: &Pipeline,
        context: &Context,
    ) -> Result<Followed>;

    /// Returns the options of the buckets of a time-series collection that `$out` creates with the
    /// options `time_series`.
    ///
    /// Errors: those of the options.
    fn bucket_options(&self, target: &Namespace, time_series: Doc<'_>)
    -> Result<CollectionOptions>;
}

/// The numbers of statements that a stage has executed, and of the documents that they wrote.
#[derive(Clone, Copy, Default, Debug)]
pub struct StageWrites {
    /// Documents to insert, also those that were rejected.
    pub inserts: u64,
    /// Documents inserted.
    pub inserted: u64,
    /// Updates, also those that failed.
    pub updates: u64,
    /// Documents that updates have matched, changed or not.
    pub updated: u64,
}

/// A unit of work, for what outlives the borrow of a command.
pub trait Work: Send + Sync {
    /// Returns the unit of work.
    fn unit(&self) -> Unit<'_>;
}

/// A started change stream.
pub struct Followed {
    /// Its events.
    pub events: Box<dyn Source>,
    /// Its position for the client.
    pub position: Box<dyn StreamPosition>,
}

/// The position of a change stream for its client: the events that the client has received.
pub trait StreamPosition: Send {
    /// Records that there is no event for now.
    fn pause(&mut self);

    /// Records that there are no more events.
    fn end(&mut self);

    /// Records that an event is returned.
    fn pass(&mut self, event: Doc<'_>);

    /// Checks that the pipeline has not changed an event's token.
    ///
    /// Errors: a changed token.
    fn check(&self, event: Doc<'_>) -> Result<()>;

    /// For callers that know the concrete type.
    fn as_any(&self) -> &dyn Any;
}
