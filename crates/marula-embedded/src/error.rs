//! Maps RocksDB's errors to errors of the store.
//!
//! RocksDB's C interface returns text whose first words name the kind of error; a full disk shows
//! only in the operating system's message after them.

use std::io;

use marula_storage::Error;
use rust_rocksdb::ErrorKind;

/// Maps an error of RocksDB.
pub(crate) fn from_rocksdb(error: rust_rocksdb::Error) -> Error {
    let kind = error.kind();
    let text = error.into_string();
    match kind {
        ErrorKind::Corruption => Error::Corrupt(text),
        ErrorKind::ShutdownInProgress => Error::Unavailable(text),
        _ if is_full(&text) => Error::Full(text),
        _ => Error::Io(io::Error::other(text)),
    }
}

/// The error of reads and commits on a closed store.
pub(crate) fn closed() -> Error {
    Error::Unavailable("the store is closed".into())
}

/// Returns whether an error means that there is no room: ENOSPC, EDQUOT, or EFBIG of a limited
/// process.
pub(crate) fn is_full(text: &str) -> bool {
    ["No space left on device", "Disk quota exceeded", "File too large", "Space limit reached"]
        .iter()
        .any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disks_are_told_from_other_failures() {
        assert!(is_full("IO error: No space left on device: While appending to file: /d/1.log"));
        assert!(is_full("IO error: File too large: While appending to file: /d/1.log"));
        assert!(!is_full("IO error: Input/output error: While fsync: /d/1.log"));
    }
}
