//! `marula backup`: backups made, listed, verified, restored and pruned; and the service that makes
//! them within a server.
//!
//! The program reads and restores folders itself. A server that has its folder open gets the
//! command `backup` and sends the files itself ([`service`]); with `--backup-to` it makes backups
//! on its own and sends its log every few seconds ([`shipping`]).

mod args;
mod create;
mod list;
mod mongo_client;
mod restore;
mod schedule;
mod service;
mod shipping;
mod shown;
mod times;
mod transport;
mod verify;

use std::path::Path;
use std::process::ExitCode;

use marula_backup::{Key, Repository};

use crate::Failure;

pub(crate) use args::BackupArgs;
use args::{BackupCommand, TargetArgs};
pub(crate) use schedule::ScheduleSettings;
pub(crate) use service::Service;

/// Executes one of the commands.
pub(crate) fn run(args: &BackupArgs) -> Result<ExitCode, Failure> {
    crate::process::keep_files_private();
    match &args.command {
        BackupCommand::Create(args) => create::run(args),
        BackupCommand::List(args) => list::run(args),
        BackupCommand::Verify(args) => verify::run(args),
        BackupCommand::Restore(args) => restore::run(args),
        BackupCommand::Prune(args) => list::prune(args),
    }
}

/// Opens the repository that the options name.
fn open(target: &TargetArgs) -> Result<Repository, Failure> {
    let key = read_key(target.key_file.as_deref())?;
    Repository::open(&target.target, key).map_err(|error| error.to_string())
}

fn read_key(path: Option<&Path>) -> Result<Option<Key>, Failure> {
    path.map(Key::read).transpose().map_err(|error| error.to_string())
}

/// Threads for hashing, compressing and sending: a distant target gets several requests at
/// once.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8)
}
