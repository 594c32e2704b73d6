//! Decides whether the oplog is written, and how long its entries are kept.
//!
//! It is written while it is needed: on a server that presents itself as a member of a replica set,
//! or has a retention time; while a collection stores pre- and post-images; and for a day after the
//! last read of a change stream. After that it is removed with all its entries.

use std::sync::atomic::{AtomicI64, Ordering};

use marula_bson::{Doc, DocBuf, doc, long};
use marula_db::oplog::Retention;
use marula_db::{Db, Namespace};
use marula_error::Result;

use crate::server::Server;

/// The time for which an unused oplog is kept.
const UNUSED_MS: i64 = 24 * 60 * 60 * 1000;
/// The interval at which a use is recorded for other nodes.
const RECORD_EVERY_MS: i64 = 10 * 60 * 1000;
/// The interval at which old images are removed.
const TRIM_EVERY_MS: i64 = 10_000;

/// The cluster parameter with the retention time of images.
pub(crate) const PARAMETER: &str = "changeStreamOptions";

/// The options of the oplog at the start of the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct OplogOptions {
    /// The approximate maximum size in bytes.
    pub bytes_max: Option<i64>,
    /// The minimum retention time of entries, whatever their number; if it is not zero, the oplog
    /// is written from the start.
    pub kept_ms: i64,
}

/// The state of the oplog's retention.
#[derive(Default)]
pub struct OplogKeeper {
    /// The minimum retention time of entries: `minRetentionHours`.
    at_least_ms: AtomicI64,
    /// The retention time of images; zero is that of the entries.
    images_ms: AtomicI64,
    /// The time of its last use, and the last such time that was recorded for other nodes.
    used_ms: AtomicI64,
    recorded_ms: AtomicI64,
    trimmed_ms: AtomicI64,
}

impl OplogKeeper {
    /// Sets the minimum retention time of entries.
    pub fn keep_at_least(&self, ms: i64) {
        self.at_least_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the parameter with the retention time of images, if it was set.
    ///
    /// Errors: those of the store.
    pub fn parameter(&self, db: &Db) -> Result<Option<DocBuf>> {
        db.stored_document(&namespace()?, PARAMETER)
    }

    /// Sets and stores the parameter with the retention time of images.
    ///
    /// Errors: those of the store.
    pub fn set_parameter(&self, db: &Db, parameter: Doc<'_>, now_ms: i64) -> Result<()> {
        db.store_document(&namespace()?, parameter, now_ms)?;
        self.keep_images(images_ms(parameter));
        Ok(())
    }

    /// Sets the retention time of images; `None` is that of the entries.
    fn keep_images(&self, ms: Option<i64>) {
        self.images_ms.store(ms.unwrap_or(0), Ordering::Relaxed);
    }

    /// Records that a change stream is read.
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

    /// Enables the oplog if it is needed from the start.
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

    /// Returns whether it is written independently of its use.
    fn is_always_written(&self, server: &Server) -> bool {
        server.options.repl_set.is_some() || server.options.oplog.kept_ms > 0
    }

    /// Writes a no-op into a set's oplog if nothing was written for a while, so that its readers
    /// know how far they are.
    fn note_time(&self, server: &Server) -> Result<()> {
        let quiet_ms = 1000 * server.parameters.number("periodicNoopIntervalSecs");
        let newest_ms = 1000 * long(server.db.oplog().newest() >> 32);
        let is_wanted = server.options.repl_set.is_some()
            && server.parameters.flag("writePeriodicNoops")
            && server.now_ms() - newest_ms >= quiet_ms;
        if is_wanted {
            server.db.note_in_oplog(doc! { "msg": "periodic noop" }.as_doc())?;
        }
        Ok(())
    }

    /// The time of the last use, on whichever node. Records that of this one for the others.
    fn used_by_all_ms(&self, db: &Db) -> Result<i64> {
        let own_ms = self.used_ms.load(Ordering::Relaxed);
        if !db.is_shared() {
            return Ok(own_ms);
        }
        let used_ms = own_ms.max(db.oplog_used_ms()?);
        if own_ms - self.recorded_ms.load(Ordering::Relaxed) >= RECORD_EVERY_MS {
            self.recorded_ms.store(own_ms, Ordering::Relaxed);
            db.note_oplog_use(used_ms)?;
        }
        Ok(used_ms)
    }

    /// Removes entries and images that need not be kept. Called every few seconds.
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
        let used_ms = self.used_by_all_ms(&server.db)?;
        if !server.db.leads()? {
            return Ok(());
        }
        let is_used = now_ms - used_ms < UNUSED_MS;
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

/// Returns the retention time of images in the parameter.
fn images_ms(parameter: Doc<'_>) -> Option<i64> {
    let images = parameter.get("preAndPostImages")?.as_doc()?;
    images.get("expireAfterSeconds")?.as_exact_i64().map(|seconds| seconds.saturating_mul(1000))
}
