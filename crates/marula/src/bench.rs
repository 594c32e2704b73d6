//! `marula bench`: runs the program `marula-bench` in the same folder.
//!
//! The load generator, the charts and PostgreSQL's protocol are not part of the server's binary.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::Failure;

/// Replaces this process by `marula-bench` with these arguments. Returns only if that fails.
pub(crate) fn run(words: &[OsString]) -> Failure {
    let program = match std::env::current_exe() {
        Ok(myself) => myself.with_file_name("marula-bench"),
        Err(error) => return format!("where this program lies: {error}"),
    };
    let error = Command::new(&program).args(words).exec();
    format!("the program '{}' cannot be run: {error}", program.display())
}
