//! Backups, as commands request them. The binary implements them, because it knows the engine and
//! the targets.

use marula_bson::DocWriter;
use marula_error::Result;

/// A client's request for a backup.
#[derive(Clone, Debug, Default)]
pub struct BackupRequest {
    /// The target; if absent, the one that the server was started with.
    pub target: Option<String>,
    /// The path of the key file on the server's machine.
    pub key_file: Option<String>,
    /// Whether all objects are sent, including those that the target has already.
    pub is_full: bool,
}

/// A finished backup.
#[derive(Clone, Debug)]
pub struct BackupMade {
    /// Its name.
    pub id: String,
    /// The target, without secrets.
    pub target: String,
    /// The time up to which every acknowledged commit is in it, in milliseconds since 1970.
    pub moment_ms: i64,
    /// The number of files.
    pub files: u64,
    /// The size of the files in bytes.
    pub bytes: u64,
    /// The number of bytes sent.
    pub sent_bytes: u64,
    /// The number of objects sent.
    pub sent_objects: u64,
}

/// The implementation of a server's backups.
pub trait Backups: Send + Sync {
    /// Makes a backup and returns once it is complete. `go_on` fails once the work must end.
    ///
    /// Errors: those of `go_on`; a sentence for everything else.
    fn create(
        &self,
        wanted: &BackupRequest,
        go_on: &dyn Fn() -> Result<()>,
    ) -> std::result::Result<BackupMade, BackupFailure>;

    /// Appends the progress of a running backup, and the state of the schedule.
    fn status(&self, out: &mut DocWriter<'_>);
}

/// The reason for which a backup was not made.
#[derive(Debug)]
pub enum BackupFailure {
    /// It was interrupted.
    Ended(marula_error::Error),
    /// The request is invalid.
    Refused(String),
    /// The target, the folder or the key failed.
    Failed(String),
}
