//! What can go wrong with a backup.

use std::fmt;
use std::io;
use std::path::Path;

/// Why a backup could not be made, read or removed. An enum, because callers decide by it.
#[derive(Debug)]
pub enum Error {
    /// The target could not be reached, read or written.
    Target(String),
    /// The data folder could not be read or written.
    Io(String),
    /// Stored bytes are not those that were stored.
    Damaged(String),
    /// The key is wrong, missing, or not wanted.
    Key(String),
    /// What was asked for is not there or not possible.
    Refused(String),
    /// The caller has ended it.
    Ended,
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure with a file, as what was attempted on which file.
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
