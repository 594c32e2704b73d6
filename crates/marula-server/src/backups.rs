//! Backups, as the server asks for them: how they are made is the binary's to know, which knows the
//! engine and where backups are kept.

use marula_bson::DocWriter;
use marula_error::Result;

/// What a client wants backed up.
#[derive(Clone, Debug, Default)]
pub struct BackupRequest {
    /// Where to; the target that the server was started with when it is not said.
    pub target: Option<String>,
    /// The key file, by its path on the server's machine.
    pub key_file: Option<String>,
    /// Whether everything is sent, also what the target has already.
    pub is_full: bool,
}

/// A backup that was made.
#[derive(Clone, Debug)]
pub struct BackupMade {
    /// Its name.
    pub id: String,
    /// The target, as it may be shown.
    pub target: String,
    /// Every commit that was acknowledged before is in it, in milliseconds since 1970.
    pub moment_ms: i64,
    /// Files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes that travelled.
    pub sent_bytes: u64,
    /// Objects that travelled.
    pub sent_objects: u64,
}

/// What makes the backups of a server.
pub trait Backups: Send + Sync {
    /// Makes a backup and returns when it is there. `go_on` fails once the work must end.
    ///
    /// Errors: those of `go_on`; a sentence for everything else.
    fn create(
        &self,
        wanted: &BackupRequest,
        go_on: &dyn Fn() -> Result<()>,
    ) -> std::result::Result<BackupMade, BackupFailure>;

    /// Appends what is under way and how the schedule does.
    fn status(&self, out: &mut DocWriter<'_>);
}

/// Why a backup was not made.
#[derive(Debug)]
pub enum BackupFailure {
    /// It was told to end.
    Ended(marula_error::Error),
    /// The request cannot be carried out as it is.
    Refused(String),
    /// The target, the folder or the key failed.
    Failed(String),
}
