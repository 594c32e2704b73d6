//! Errors of backups.

use std::fmt;
use std::io;
use std::path::Path;

/// The reason why a backup could not be created, read or removed. An enum, because callers decide
/// by it.
#[derive(Debug)]
pub enum Error {
    /// The target could not be reached, read or written.
    Target(String),
    /// The data folder could not be read or written.
    Io(String),
    /// Stored bytes differ from those that were written.
    Damaged(String),
    /// The key is wrong, missing, or given for an unencrypted repository.
    Key(String),
    /// The requested thing does not exist or is not possible.
    Refused(String),
    /// The caller cancelled the operation.
    Ended,
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns the error of a file operation, with the operation and the path.
    pub(crate) fn file(verb: &str, path: &Path, error: &io::Error) -> Error {
        Error::Io(format!("could not {verb} '{}': {error}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Damaged(text) => write!(f, "damaged backup: {text}"),
            Error::Target(text) | Error::Io(text) | Error::Key(text) | Error::Refused(text) => {
                f.write_str(text)
            }
            Error::Ended => f.write_str("it was told to end"),
        }
    }
}

impl std::error::Error for Error {}
