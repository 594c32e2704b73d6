//! The binary: `marula serve`, `marula backup`, `marula check`, `marula bench`.
//!
//! This crate is the only one that chooses an engine. A failure is one line on stderr and a
//! non-zero exit status.

mod allocator;
#[cfg(feature = "rocksdb")]
mod backup;
mod bench;
mod build_info;
mod check;
mod cli;
mod config_file;
mod engine;
mod memory_plan;
mod process;
mod readiness;
mod serve;
mod settings;
mod signals;
mod tls_settings;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::{Cli, Command};

/// The error, as one line.
type Failure = String;

fn main() -> ExitCode {
    allocator::configure();
    let outcome = match Cli::try_parse() {
        Ok(Cli { command: Command::Serve(options) }) => serve::run(&options),
        #[cfg(feature = "rocksdb")]
        Ok(Cli { command: Command::Backup(options) }) => backup::run(&options),
        Ok(Cli { command: Command::Check(options) }) => check::run(&options),
        Ok(Cli { command: Command::Bench { words } }) => Err(bench::run(&words)),
        Err(error) => return usage(&error),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("marula: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Prints help as a whole, and an error as one line.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        print!("{error}");
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
