//! Maps failures of the store to errors for the client, in one place.

use marula_error::{Error, errors};
use marula_storage::Error as StorageError;
use tracing::error;

errors! {
    write_conflict() = WriteConflict, "WriteConflict error: this operation conflicted with another operation. Please retry your operation or multi-document transaction.";
    snapshot_too_old() = SnapshotTooOld, "the snapshot of this operation is no longer available";
    too_large() = TransactionTooLarge, "the write is larger than the storage engine takes at once";
    outcome_unknown() = NetworkTimeout, "it is not known whether the write was done";
    corrupt(what: &str) = 8_000_001, "stored data is corrupt: {what}";
    disk_full(what: &str) = OutOfDiskSpace, "the disk is full: {what}";
    io_failed(what: &str) = 8_000_002, "storage input/output error: {what}";
    unavailable(what: &str) = ShutdownInProgress, "{what}";
}

/// The number of the error `corrupt`.
const CORRUPT: i32 = 8_000_001;

/// Whether an error says that stored data is damaged.
pub(crate) fn is_damage(error: &Error) -> bool {
    error.code().number() == CORRUPT
}

/// Maps a failure of the store to the error that the client sees.
#[cold]
pub fn client_error(error: StorageError) -> Error {
    if let StorageError::Corrupt(what) = &error {
        // The operator must learn of it, whatever the client does with the error.
        error!(%what, "stored data is corrupt");
    }
    match error {
        StorageError::Conflict => write_conflict(),
        StorageError::TooOld => snapshot_too_old(),
        StorageError::TooLarge => too_large(),
        StorageError::Unknown => outcome_unknown(),
        StorageError::Corrupt(what) => corrupt(&what),
        StorageError::Full(what) => disk_full(&what),
        StorageError::Io(error) => io_failed(&error.to_string()),
        StorageError::Unavailable(what) => unavailable(&what),
    }
}

/// Converts results of the store in code that replies to a client.
pub trait ForClient<T> {
    /// The value, or the error for the client.
    fn for_client(self) -> Result<T, Error>;
}

impl<T> ForClient<T> for marula_storage::Result<T> {
    #[inline]
    fn for_client(self) -> Result<T, Error> {
        self.map_err(client_error)
    }
}
