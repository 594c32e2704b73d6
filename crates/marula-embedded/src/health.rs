//! RocksDB's own reports: background errors, stalls, its log.
//!
//! After a background error RocksDB refuses writes and continues to serve reads. [`Health`] keeps
//! that error for the log, the statistics and the sync thread, which tries to resume once the cause
//! may be gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rust_rocksdb::event_listener::{
    BackgroundErrorRecoveryInfo, BackgroundErrorStatus, CompactionJobInfo, DBBackgroundErrorReason,
    DBWriteStallCondition, EventListener, FlushJobInfo, IngestionInfo, MutableStatus,
    WriteStallInfo,
};
use rust_rocksdb::{InfoLogger, LogLevel};
use tracing::{debug, error, info, warn};

/// The state and the counters of a store's background work.
#[derive(Default)]
pub(crate) struct Health {
    error: Mutex<Option<String>>,
    /// Whether `error` is set; cheap to check often.
    has_error: AtomicBool,
    /// Whether the log has already said that only a restart helps.
    is_restart_told: AtomicBool,
    pub(crate) errors: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compaction_bytes_read: AtomicU64,
    pub(crate) compaction_bytes_written: AtomicU64,
    pub(crate) compaction_us: AtomicU64,
    pub(crate) stalls: AtomicU64,
    /// Changes whenever the set of the store's files changes.
    pub(crate) files_version: AtomicU64,
}

impl Health {
    /// The background error that stops writes, if any.
    pub(crate) fn error(&self) -> Option<String> {
        if !self.has_error.load(Ordering::Relaxed) {
            return None;
        }
        self.error.lock().clone()
    }

    /// Logs, once, that writes stay refused until a restart.
    pub(crate) fn stays_failed(&self, cause: &rust_rocksdb::Error) {
        if !self.is_restart_told.swap(true, Ordering::Relaxed) {
            error!(error = %cause, "writes are refused until the server is started again");
        }
    }

    /// Records that writes work again.
    pub(crate) fn resumed(&self) {
        if self.error.lock().take().is_some() {
            self.has_error.store(false, Ordering::Relaxed);
            self.is_restart_told.store(false, Ordering::Relaxed);
            info!("writing goes on after a background error");
        }
    }
}

/// The listener that RocksDB calls.
pub(crate) struct Listener(pub(crate) Arc<Health>);

impl EventListener for Listener {
    fn on_flush_completed(&self, _: &FlushJobInfo) {
        self.0.flushes.fetch_add(1, Ordering::Relaxed);
        self.0.files_version.fetch_add(1, Ordering::Relaxed);
    }

    fn on_compaction_completed(&self, job: &CompactionJobInfo) {
        self.0.compactions.fetch_add(1, Ordering::Relaxed);
        self.0.compaction_us.fetch_add(job.elapsed_micros(), Ordering::Relaxed);
        self.0.compaction_bytes_read.fetch_add(job.total_input_bytes(), Ordering::Relaxed);
        self.0.compaction_bytes_written.fetch_add(job.total_output_bytes(), Ordering::Relaxed);
        self.0.files_version.fetch_add(1, Ordering::Relaxed);
    }

    fn on_external_file_ingested(&self, _: &IngestionInfo) {
        self.0.files_version.fetch_add(1, Ordering::Relaxed);
    }

    fn on_stall_conditions_changed(&self, stall: &WriteStallInfo) {
        let space = String::from_utf8_lossy(&stall.cf_name().unwrap_or_default()).into_owned();
        if matches!(stall.cur(), DBWriteStallCondition::KNormal) {
            info!(space, "writes go at full speed again");
        } else {
            self.0.stalls.fetch_add(1, Ordering::Relaxed);
            info!(space, "writes are slowed until background work catches up");
        }
    }

    fn on_background_error(&self, _: DBBackgroundErrorReason, status: MutableStatus) {
        let Err(cause) = status.result() else { return };
        error!(error = %cause, "background error: writing stops");
        self.0.errors.fetch_add(1, Ordering::Relaxed);
        *self.0.error.lock() = Some(cause.to_string());
        self.0.has_error.store(true, Ordering::Relaxed);
    }

    fn on_error_recovery_begin(
        &self,
        _: DBBackgroundErrorReason,
        _: &BackgroundErrorStatus,
        is_automatic: &mut bool,
    ) {
        // The sync thread resumes instead. While RocksDB itself waits for room, the writes that it
        // holds back wait too.
        *is_automatic = false;
    }

    fn on_error_recovery_end(&self, info: &BackgroundErrorRecoveryInfo) {
        if info.new_bg_error().result().is_ok() {
            self.0.resumed();
        }
    }
}

/// Forwards RocksDB's log to ours. Most of RocksDB's warnings are routine; data dropped from a
/// damaged log is not.
pub(crate) fn logger() -> InfoLogger {
    InfoLogger::new_callback_logger(LogLevel::Warn, |level, text| {
        let text = text.trim_end();
        match level {
            LogLevel::Error | LogLevel::Fatal => error!(text, "RocksDB message"),
            LogLevel::Warn if is_loss(text) => warn!(text, "the end of the log is damaged"),
            LogLevel::Warn => info!(text, "RocksDB message"),
            _ => debug!(text, "RocksDB message"),
        }
    })
}

/// Returns whether a warning says that recovery dropped part of the log. Failures of background
/// work are reported as background errors.
fn is_loss(text: &str) -> bool {
    let is_background = text.contains("ompaction") || text.contains("error_handler");
    let is_of_damage = ["dropping", "Corruption", "corrupt"].iter().any(|word| text.contains(word));
    !is_background && is_of_damage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_the_log_are_told_from_failures_of_background_work() {
        assert!(is_loss(
            "[db/db_impl/db_impl_open.cc:1] 000004.log: dropping 12 bytes; Corruption"
        ));
        assert!(!is_loss("[db_impl_compaction_flush.cc:1] Compaction error: Corruption: block"));
        assert!(!is_loss(
            "[db/error_handler.cc:449] Background IO error Corruption: block checksum"
        ));
    }
}
