//! A running pipeline as the source of a cursor, and the services that it needs from the server.

use std::any::Any;
use std::sync::Arc;

use marula_bson::{ArrayWriter, Doc, DocBuf};
use marula_db::write::UserWrites;
use marula_db::{CollectionOptions, Db, Namespace};
use marula_error::Result;
use marula_operation::aggregate::Prepared;
use marula_operation::documents::Tail;
use marula_operation::pipeline::{self, PipelineDocuments, PipelineHost, StageWrites};
use marula_query::context::Context as QueryContext;
use marula_query::stage::{ChangeStream, Pipeline, Report};
use parking_lot::Mutex;

use crate::change_stream::{Events, Followed};
use crate::context::{Context, Watch, Work};
use crate::cursor::{self, Filled};
use crate::report::{self, Sight};
use crate::server::Server;
use crate::time_series;

/// A running pipeline.
pub(crate) struct PipelineSource {
    documents: PipelineDocuments,
    host: Arc<ServerHost>,
}

impl PipelineSource {
    /// Starts a pipeline.
    ///
    /// Errors: those of its start.
    pub(crate) fn start(ctx: &Context<'_>, pipeline: Prepared<'_>) -> Result<Self> {
        let host = ServerHost::of(ctx);
        Ok(PipelineSource { documents: pipeline.start(host.clone())?, host })
    }

    /// Returns whether the whole pipeline is one query.
    pub(crate) fn is_query(&self) -> bool {
        self.documents.is_query()
    }

    /// Returns the change stream, if it is one.
    pub(crate) fn followed(&self) -> Option<&Followed> {
        self.documents.position()?.as_any().downcast_ref()
    }

    /// Calls `take` with every document.
    pub(crate) fn for_each(&mut self, take: &mut dyn FnMut(Doc<'_>) -> Result<()>) -> Result<()> {
        self.documents.for_each(take)
    }
}

impl cursor::Source for PipelineSource {
    fn tail(&self) -> Tail {
        self.followed().map_or(Tail::No, |_| Tail::AwaitData)
    }

    fn fill(
        &mut self,
        ctx: &Context<'_>,
        documents_max: usize,
        batch: &mut ArrayWriter<'_>,
    ) -> Result<Filled> {
        Watch::renew(self.documents.context(), ctx);
        *self.host.work.lock() = Arc::new(Work::of(ctx));
        if self.documents.position().is_some() {
            ctx.server.oplog_keeper.note_use(ctx.now_ms);
        }
        self.documents.fill(documents_max, batch)
    }

    fn plan_summary(&self) -> Option<String> {
        self.documents.plan_summary()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// The server as a pipeline sees it.
pub(crate) struct ServerHost {
    server: Arc<Server>,
    /// The unit of work of the current command.
    work: Mutex<Arc<Work>>,
    user_writes: UserWrites,
    sight: Sight,
}

impl ServerHost {
    /// Returns that of a command.
    pub(crate) fn of(ctx: &Context<'_>) -> Arc<ServerHost> {
        Arc::new(ServerHost {
            server: ctx.server.clone(),
            work: Mutex::new(Arc::new(Work::of(ctx))),
            user_writes: ctx.user_writes(),
            sight: Sight::of(ctx),
        })
    }
}

impl PipelineHost for ServerHost {
    fn db(&self) -> &Arc<Db> {
        &self.server.db
    }

    fn work(&self) -> Arc<dyn pipeline::Work> {
        self.work.lock().clone()
    }

    fn user_writes(&self) -> UserWrites {
        self.user_writes
    }

    fn count_writes(&self, writes: StageWrites) {
        self.server.counters.add_stage_writes(writes);
    }

    fn report(&self, ns: &Namespace, report: &Report, now_ms: i64) -> Result<Vec<DocBuf>> {
        let db = &self.server.db;
        let about = time_series::data_namespace(db, ns)?;
        report::documents(&self.server, &self.sight, &about, report, now_ms)
    }

    fn follow(
        &self,
        ns: &Namespace,
        stream: &ChangeStream,
        pipeline: &Pipeline,
        context: &QueryContext,
    ) -> Result<pipeline::Followed> {
        let server = &self.server;
        server.oplog_keeper.note_use(server.now_ms());
        let db = server.db.clone();
        let events = Events::start(db, ns, stream, pipeline, &server.feeds, context)?;
        let position = Box::new(Followed::of(&events));
        Ok(pipeline::Followed { events: Box::new(events), position })
    }

    fn bucket_options(
        &self,
        target: &Namespace,
        time_series: Doc<'_>,
    ) -> Result<CollectionOptions> {
        time_series::check_alone(self.server.db.feature_version(), target, time_series)?;
        time_series::bucket_options(None, time_series)
    }
}
