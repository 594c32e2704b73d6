//! The binary: `marula serve`, `marula backup`, `marula check`, `marula cluster`, `marula bench`.
//!
//! This is the only place that picks an engine. A failure is one line on stderr and a non-zero
//! exit. Programs that start a mongod name no subcommand: options alone mean `serve`.

mod allocator;
#[cfg(feature = "rocksdb")]
mod backup;
mod banner;
mod bench;
mod build_info;
mod check;
mod check_config;
mod cli;
mod cluster;
mod config_file;
mod engine;
mod fork;
mod memory_plan;
mod mongod_args;
mod process;
mod readiness;
mod serve;
mod settings;
mod signals;
mod tls_settings;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use marula_server::logging;

use cli::{Cli, Command};

/// The time that the end of the process waits for stdout to take the last lines of the log.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);

/// The error, as one line.
type Failure = String;

fn main() -> ExitCode {
    allocator::configure();
    let outcome = match Cli::try_parse_from(with_subcommand(std::env::args_os().collect())) {
        Ok(Cli { command: Command::Serve(options) }) => serve::run(&options),
        #[cfg(feature = "rocksdb")]
        Ok(Cli { command: Command::Backup(options) }) => backup::run(&options),
        Ok(Cli { command: Command::Check(options) }) => check::run(&options),
        Ok(Cli { command: Command::CheckConfig(options) }) => check_config::run(&options),
        Ok(Cli { command: Command::Cluster { command } }) => cluster::run(command),
        Ok(Cli { command: Command::Bench { words } }) => Err(bench::run(&words)),
        Err(error) => return usage(&error),
    };
    logging::drain(LOG_TIMEOUT);
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("marula: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// A command line that begins with an option of a server means `serve`, as it does for mongod.
fn with_subcommand(mut words: Vec<OsString>) -> Vec<OsString> {
    let first = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let is_ours = matches!(first, "-h" | "--help" | "-V" | "--version");
    if first.starts_with('-') && !is_ours {
        words.insert(1, "serve".into());
    }
    words
}

/// Help goes out whole; a mistake is one line.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A reader such as `head` may have seen enough.
        let _ = write!(std::io::stdout(), "{error}");
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprint!("{error}");
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let line: Vec<_> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let line = line.join(" ");
    eprintln!("marula: {} (see --help)", line.trim_start_matches("error: "));
    ExitCode::from(2)
}
