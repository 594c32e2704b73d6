//! What the operating system lets this process do: the rights of its files, how many of them it may
//! have open.

use marula_server::log::STARTUP_WARNING;
use rustix::fs::Mode;
use rustix::process::{self, Resource, Rlimit};

use crate::Failure;

/// Fewer open files than this are told of at the start: what MongoDB's manual recommends at least.
const FILES_RECOMMENDED: u64 = 64_000;

/// With fewer open files than this no server starts.
const FILES_MIN: u64 = 128;

/// Files of the server itself: listeners, polls, the log, temporary files.
const FILES_OWN: u64 = 48;

/// Makes every file and folder that the server makes its owner's alone.
pub(crate) fn keep_files_private() {
    process::umask(Mode::RWXG | Mode::RWXO);
}

/// How many files the process may have open.
#[derive(Clone, Copy)]
pub(crate) struct FileLimit(u64);

/// Raises the limit of open files as far as the process may.
///
/// Errors: too few for a server.
pub(crate) fn raise_file_limit() -> Result<FileLimit, Failure> {
    let Rlimit { current, maximum } = process::getrlimit(Resource::Nofile);
    let raised = process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    // No number is no limit.
    let limit = if raised.is_ok() { maximum } else { current }.unwrap_or(u64::MAX);
    match limit {
        FILES_MIN.. => Ok(FileLimit(limit)),
        _ => Err(format!(
            "this process may have only {limit} files open (ulimit -n); it needs at least {FILES_MIN}"
        )),
    }
}

impl FileLimit {
    /// The most connections at one time, of those `wanted`: half of the files are the engine's
    /// where they are few.
    pub(crate) fn connections_max(self, wanted: usize) -> usize {
        let room = usize::try_from(self.0 / 2 - FILES_OWN).unwrap_or(usize::MAX);
        wanted.min(room)
    }

    /// Tells of a limit that is low, or below what the connections need.
    pub(crate) fn warn_of_low(self, wanted: usize) {
        let connections = self.connections_max(wanted);
        if self.0 < FILES_RECOMMENDED || connections < wanted {
            tracing::warn!(
                target: STARTUP_WARNING,
                files = self.0,
                recommended = FILES_RECOMMENDED,
                connections = connections as u64,
                "The limit of open files is low, and with it the number of connections"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_follow_the_limit_of_files() {
        for (limit, wanted, expected) in [
            (u64::MAX, 65_536, 65_536),
            (1_048_576, 65_536, 65_536),
            (20_000, 65_536, 9_952),
            (20_000, 100, 100),
            (FILES_MIN, 65_536, 16),
        ] {
            assert_eq!(FileLimit(limit).connections_max(wanted), expected, "of {limit} files");
        }
    }
}
