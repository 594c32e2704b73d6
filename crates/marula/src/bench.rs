//! `marula bench`: hands over to the program `marula-bench` that lies beside this one.
//!
//! The load generator, the charts and PostgreSQL's protocol are no part of a server's binary.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::Failure;

/// Runs `marula-bench` with these words in place of this process. Returns only if that fails.
pub(crate) fn run(words: &[OsString]) -> Failure {
    let program = match std::env::current_exe() {
        Ok(myself) => myself.with_file_name("marula-bench"),
        Err(error) => return format!("where this program lies: {error}"),
    };
    let error = Command::new(&program).args(words).exec();
    format!("the program '{}' cannot be run: {error}", program.display())
}
