//! `--fork`: a server that goes on in a process of its own, and a parent that returns once that is
//! ready.
//!
//! The parent starts this program again with the same options and reads its stdout. The child is
//! the leader of a session of its own; it writes there that it is ready, and has /dev/null for its
//! streams from then on. A failure before goes to the stderr that both share.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, io};

use crate::Failure;

/// Set for the child, which must not fork again.
const MARK: &str = "MARULA_FORKED";
/// The line that the child writes once it is ready.
const READY: &str = "ready";

/// Whether this process is the child.
pub(crate) fn is_child() -> bool {
    env::var_os(MARK).is_some()
}

/// Starts the child and waits until it is ready.
///
/// Errors: it cannot be started; when it fails, it has said why.
pub(crate) fn start_child() -> Result<ExitCode, Failure> {
    println!("about to fork child process, waiting until server is ready for connections.");
    let program = env::current_exe().map_err(|error| format!("cannot fork: {error}"))?;
    let mut child = Command::new(program)
        .args(env::args_os().skip(1))
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot fork: {error}"))?;
    println!("forked process: {}", child.id());
    let said = child.stdout.take().map(BufReader::new);
    let mut lines = said.into_iter().flat_map(BufRead::lines).map_while(Result::ok);
    if lines.any(|line| line == READY) {
        println!("child process started successfully, parent exiting");
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().map_err(|error| format!("cannot wait for the child: {error}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    println!("ERROR: child process failed, exited with {code}");
    Ok(ExitCode::from(code.max(1)))
}

/// Makes the child the leader of a session of its own: a terminal that closes does not end it.
pub(crate) fn detach() -> Result<(), Failure> {
    rustix::process::setsid().map(drop).map_err(|error| format!("cannot detach: {error}"))
}

/// Signals the parent that the server is ready, and closes its streams.
pub(crate) fn report_ready() -> Result<(), Failure> {
    let failed = |error: io::Error| format!("cannot detach: {error}");
    println!("{READY}");
    io::stdout().flush().map_err(failed)?;
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
    let failed = |error: rustix::io::Errno| failed(error.into());
    rustix::stdio::dup2_stdout(&null).map_err(failed)?;
    rustix::stdio::dup2_stderr(&null).map_err(failed)
}
