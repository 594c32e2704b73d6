//! Limits of the operating system for this process: the permissions of its files, the number of
//! open files.

use marula_server::logging::STARTUP_WARNING;
use rustix::fs::Mode;
use rustix::process::{self, Resource, Rlimit};

use crate::Failure;

/// The number of open files below which the start warns: the minimum that MongoDB's manual
/// recommends.
const FILES_RECOMMENDED: u64 = 64_000;

/// The number of open files below which no server starts.
const FILES_MIN: u64 = 128;

/// Files of the server itself: listeners, polls, the log, temporary files.
const FILES_OWN: u64 = 48;

/// Makes the files and folders that the server creates accessible only to their owner.
pub(crate) fn keep_files_private() {
    process::umask(Mode::RWXG | Mode::RWXO);
}

/// The limit of open files.
#[derive(Clone, Copy)]
pub(crate) struct FileLimit(u64);

/// Raises the limit of open files as far as possible.
///
/// Errors: too few for a server.
pub(crate) fn raise_file_limit() -> Result<FileLimit, Failure> {
    let Rlimit { current, maximum } = process::getrlimit(Resource::Nofile);
    let raised = process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    // No number means no limit.
    let limit = if raised.is_ok() { maximum } else { current }.unwrap_or(u64::MAX);
    match limit {
        FILES_MIN.. => Ok(FileLimit(limit)),
        _ => Err(format!(
            "this process may have only {limit} files open (ulimit -n); it needs at least {FILES_MIN}"
        )),
    }
}

impl FileLimit {
    /// Returns the maximum number of connections, at most `wanted`: if open files are few, half of
    /// them are the engine's.
    pub(crate) fn connections_max(self, wanted: usize) -> usize {
        let room = usize::try_from(self.0 / 2 - FILES_OWN).unwrap_or(usize::MAX);
        wanted.min(room)
    }

    /// Warns of a limit that is low, or too low for the connections.
    pub(crate) fn warn_of_low(self, wanted: usize) {
        let connections = self.connections_max(wanted);
        if self.0 < FILES_RECOMMENDED || connections < wanted {
            tracing::warn!(
                target: STARTUP_WARNING,
                id = 22_184,
                currentValue = self.0,
                recommendedMinimum = FILES_RECOMMENDED,
                connections = connections as u64,
                "Soft rlimits for open file descriptors too low"
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
