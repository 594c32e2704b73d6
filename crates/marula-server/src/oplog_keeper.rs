//! Whether the oplog is written, and how far back it goes.
//!
//! It is written while someone needs it: on a server that presents itself as a member of a replica
//! set, or was asked to keep what has changed for some time, while a collection keeps images of its
//! documents, and for a day after a change stream was read last. Then it goes, with all that it
//! has.

use std::sync::atomic::{AtomicI64, Ordering};

use marula_bson::{Doc, DocBuf, doc};
use marula_db::oplog::Retention;
use marula_db::{Db, Namespace};
use marula_error::Result;

use crate::server::Server;

/// How long an oplog stays that nobody reads.
const UNUSED_MS: i64 = 24 * 60 * 60 * 1000;
/// How often images are looked through for those that are too old.
const TRIM_EVERY_MS: i64 = 10_000;

/// The parameter of the cluster that says how long images are kept.
pub(crate) const PARAMETER: &str = "changeStreamOptions";

/// What is said of the oplog when the server is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct OplogOptions {
    /// About how many bytes it may have.
    pub bytes_max: Option<i64>,
    /// How long entries are kept however many they are; where that is any time, it is written from
    /// the start.
    pub kept_ms: i64,
}

/// What is decided about the oplog.
#[derive(Default)]
pub struct OplogKeeper {
    /// How long entries are kept however many they are: `minRetentionHours`.
    at_least_ms: AtomicI64,
    /// How long images are kept; zero is as long as the entries.
    images_ms: AtomicI64,
    /// When it was used last.
    used_ms: AtomicI64,
    trimmed_ms: AtomicI64,
}

impl OplogKeeper {
    /// Sets how long entries are kept at least.
    pub fn keep_at_least(&self, ms: i64) {
        self.at_least_ms.store(ms, Ordering::Relaxed);
    }

    /// The parameter that says how long images are kept, where it was set.
    ///
    /// Errors: those of the store.
    pub fn parameter(&self, db: &Db) -> Result<Option<DocBuf>> {
        db.stored_document(&namespace()?, PARAMETER)
    }

    /// Sets and stores the parameter that says how long images are kept.
    ///
    /// Errors: those of the store.
    pub fn set_parameter(&self, db: &Db, parameter: Doc<'_>, now_ms: i64) -> Result<()> {
        db.store_document(&namespace()?, parameter, now_ms)?;
        self.keep_images(images_ms(parameter));
        Ok(())
    }

    /// Sets how long images are kept; `None` is as long as the entries.
    fn keep_images(&self, ms: Option<i64>) {
        self.images_ms.store(ms.unwrap_or(0), Ordering::Relaxed);
    }

    /// Notes that a change stream is read.
    pub fn note_use(&self, now_ms: i64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
    }

    fn retention(&self) -> Retention {
        let images_ms = self.images_ms.load(Ordering::Relaxed);
        Retention {
            at_least_ms: self.at_least_ms.load(Ordering::Relaxed),
            images_ms: (images_ms > 0).then_some(images_ms),
        }
    }

    /// Has the oplog written where it is needed from the start.
    ///
    /// Errors: those of the store.
    pub fn start(&self, server: &Server) -> Result<()> {
        self.note_use(server.now_ms());
        let parameter = self.parameter(&server.db)?;
        self.keep_images(parameter.and_then(|parameter| images_ms(parameter.as_doc())));
        let OplogOptions { bytes_max, kept_ms } = server.options.oplog;
        self.keep_at_least(kept_ms);
        if let Some(bytes_max) = bytes_max {
            server.db.resize_oplog(bytes_max)?;
        }
        if self.is_always_written(server) { server.db.start_oplog() } else { Ok(()) }
    }

    /// Whether it is written whoever needs it.
    fn is_always_written(&self, server: &Server) -> bool {
        server.options.repl_set.is_some() || server.options.oplog.kept_ms > 0
    }

    /// Notes in a set's oplog that nothing was written for a while, so that who follows it knows
    /// how far it has come.
    fn note_time(&self, server: &Server) -> Result<()> {
        let quiet_ms = 1000 * server.parameters.number("periodicNoopIntervalSecs");
        let newest_ms = 1000 * i64::try_from(server.db.oplog().newest() >> 32).unwrap_or(i64::MAX);
        let is_wanted = server.options.repl_set.is_some()
            && server.parameters.flag("writePeriodicNoops")
            && server.now_ms() - newest_ms >= quiet_ms;
        if is_wanted {
            server.db.note_in_oplog(doc! { "msg": "periodic noop" }.as_doc())?;
        }
        Ok(())
    }

    /// Forgets what need not be kept. Called every few seconds.
    ///
    /// Errors: those of the store.
    pub fn tend(&self, server: &Server) -> Result<()> {
        let now_ms = server.now_ms();
        let last_ms = self.trimmed_ms.load(Ordering::Relaxed);
        if !server.db.oplog().is_on() {
            return Ok(());
        }
        self.note_time(server)?;
        if now_ms - last_ms < TRIM_EVERY_MS {
            return Ok(());
        }
        self.trimmed_ms.store(now_ms, Ordering::Relaxed);
        let is_used = now_ms - self.used_ms.load(Ordering::Relaxed) < UNUSED_MS;
        if !is_used && !self.is_always_written(server) && !server.db.has_images() {
            tracing::info!(
                "no change stream was read for a day: the oplog is not written any more"
            );
            return server.db.stop_oplog();
        }
        server.db.trim_oplog(self.retention())
    }
}

fn namespace() -> Result<Namespace> {
    Namespace::new("config", "clusterParameters")
}

/// How long images are kept, as the parameter says.
fn images_ms(parameter: Doc<'_>) -> Option<i64> {
    let images = parameter.get("preAndPostImages")?.as_doc()?;
    images.get("expireAfterSeconds")?.as_exact_i64().map(|seconds| seconds.saturating_mul(1000))
}
