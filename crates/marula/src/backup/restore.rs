//! `marula backup restore`: the files of a backup, the log up to a moment, and at last the marker
//! that makes it a data folder.
//!
//! ```text
//! <to>/restoring/RESTORE   says that what is here is a restore's; made first
//! <to>/restoring/data/     the data folder, while it is made, opened and brought to its moment
//! <to>/store               moved out of there when all of that is done
//! <to>/MARULA              moved last
//! ```
//!
//! Until then no server takes the folder, and a restore that was cut short can be said again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use marula_backup::log::{self, Run, Segment};
use marula_backup::moment::{Way, way_to};
use marula_backup::{Manifest, Progress, Repository};
use marula_embedded::{Embedded, EmbeddedOptions, Replayed};

use super::args::{RestoreArgs, WhichArgs};
use super::list::report_damage;
use super::{open, shown, threads, times};
use crate::Failure;

const RESTORING: &str = "restoring";
const NOTE: &str = "RESTORE";
const MARKER: &str = "MARULA";
/// The cache of a store that is only brought to its moment.
const CACHE_BYTES: usize = 256 << 20;

pub(super) fn run(args: &RestoreArgs) -> Result<ExitCode, Failure> {
    let repository = open(&args.target)?;
    let found = Found::look(&repository, &args.which)?;
    let way = found.way(&args.which)?;
    let restored = restore(&repository, &way, &args.to)?;
    println!(
        "restored {} into '{}': backup {}{}, as of {}",
        shown::size(way.backup.bytes),
        args.to.display(),
        way.backup.id,
        match restored {
            0 => String::new(),
            writes => format!(" and {writes} writes of the log"),
        },
        times::shown(way.until_us),
    );
    println!("start it with: marula serve --dbpath {}", args.to.display());
    Ok(ExitCode::SUCCESS)
}

/// The backups and logs that a restore may use.
pub(super) struct Found {
    backups: Vec<Manifest>,
    runs: Vec<Run>,
}

impl Found {
    /// Looks for what may be restored.
    pub(super) fn look(repository: &Repository, which: &WhichArgs) -> Result<Found, Failure> {
        let told = |error: marula_backup::Error| error.to_string();
        if let Some(id) = &which.backup {
            let backup = repository.backup(id).map_err(told)?;
            return Ok(Found { backups: vec![backup], runs: Vec::new() });
        }
        let listing = repository.list().map_err(told)?;
        for (name, error) in &listing.unreadable {
            eprintln!("marula: '{name}' cannot be used: {error}");
        }
        let runs = log::runs(repository).map_err(told)?;
        report_damage(&runs);
        Ok(Found { backups: listing.backups, runs })
    }

    /// The way to what is wanted.
    pub(super) fn way(&self, which: &WhichArgs) -> Result<Way<'_>, Failure> {
        let wanted = times::moment(which.at.as_deref().unwrap_or("latest"))?;
        way_to(wanted, &self.backups, &self.runs).map_err(|error| error.to_string())
    }

    /// The backups.
    pub(super) fn backups(&self) -> &[Manifest] {
        &self.backups
    }
}

/// Restores into the new folder `to`; returns how many writes of the log were applied.
pub(super) fn restore(repository: &Repository, way: &Way<'_>, to: &Path) -> Result<u64, Failure> {
    check_whole(way.backup)?;
    let restoring = begin(to)?;
    let data = restoring.join("data");
    let progress = Progress::default();
    shown::with_bar("fetching", &progress, || {
        marula_backup::fetch::fetch(repository, way.backup, &data, threads(), &progress)
    })
    .map_err(|error| error.to_string())?;
    let writes = apply(repository, &way.segments, way.until_us, &data)?;
    finish(to, &restoring, &data).map_err(|error| {
        format!("could not finish the restored folder '{}': {error}", to.display())
    })?;
    Ok(writes)
}

/// A manifest that lists less than a data folder was not written by this program.
fn check_whole(backup: &Manifest) -> Result<(), Failure> {
    let has = |name: &str| backup.files.iter().any(|file| file.name == name);
    match has(MARKER) && has("store/CURRENT") {
        true => Ok(()),
        false => Err(format!("damaged backup: '{}' is not of a whole data folder", backup.id)),
    }
}

/// Makes the folder `to`, which must not hold anything but a restore that was cut short.
fn begin(to: &Path) -> Result<PathBuf, Failure> {
    let wrong = |error: io::Error| format!("cannot restore into '{}': {error}", to.display());
    fs::create_dir_all(to).map_err(wrong)?;
    let restoring = to.join(RESTORING);
    // One that was cut short at its first step has a folder and no note.
    let is_begun = || fs::read_dir(&restoring).is_ok_and(|mut entries| entries.next().is_none());
    let is_cut_short = !to.join(MARKER).exists() && (restoring.join(NOTE).is_file() || is_begun());
    for entry in fs::read_dir(to).map_err(wrong)? {
        let name = entry.map_err(wrong)?.file_name();
        let is_own = is_cut_short && (name == "store" || name == RESTORING);
        if !is_own && name != "lost+found" {
            return Err(format!(
                "cannot restore into '{}': it holds '{}'. Choose a folder that is new or empty",
                to.display(),
                name.to_string_lossy()
            ));
        }
    }
    if is_cut_short {
        let remove = |path: PathBuf| match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(wrong(error)),
            _ => Ok(()),
        };
        remove(to.join("store"))?;
        remove(restoring.join("data"))?;
    } else {
        fs::create_dir(&restoring).map_err(wrong)?;
    }
    let note = "A restore is under way, or was cut short: say it again.\n";
    fs::write(restoring.join(NOTE), note).map_err(wrong)?;
    Ok(restoring)
}

/// Opens the data, applies the log up to `until_us` and closes it again.
fn apply(
    repository: &Repository,
    segments: &[&Segment],
    until_us: i64,
    data: &Path,
) -> Result<u64, Failure> {
    let mut options = EmbeddedOptions::new(data);
    options.cache_bytes = CACHE_BYTES;
    let opening = |error| format!("the restored files cannot be opened: {error}");
    let store = Embedded::open(options).map_err(opening)?;
    let mut count = 0;
    let bar = shown::bar("applying");
    thread::scope(|scope| {
        let read = read_ahead(scope, repository, segments);
        for writes in read {
            for write in writes? {
                let replayed = store.replay(&write, until_us);
                let replayed =
                    replayed.map_err(|error| format!("the log cannot be applied: {error}"))?;
                if replayed == Replayed::Cut {
                    return Ok(());
                }
                count += 1;
                bar.inc(write.len() as u64);
            }
        }
        Ok::<(), Failure>(())
    })?;
    bar.finish_and_clear();
    store
        .finish_replay()
        .map_err(|error| format!("the restored files cannot be written: {error}"))?;
    use marula_storage::Store as _;
    store.close().map_err(|error| format!("the restored files cannot be closed: {error}"))?;
    Ok(count)
}

/// Reads segments in a thread of its own, while the one before is applied. It ends at the first
/// that cannot be read, or when nobody receives them any more.
fn read_ahead<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    repository: &'scope Repository,
    segments: &'scope [&Segment],
) -> Receiver<Result<Vec<Vec<u8>>, Failure>> {
    let (sender, receiver) = sync_channel(0);
    scope.spawn(move || {
        for segment in segments {
            let read = log::read_segment(repository, segment).map_err(|error| error.to_string());
            let is_last = read.is_err();
            if sender.send(read).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// Moves what was restored into place, the marker last.
fn finish(to: &Path, restoring: &Path, data: &Path) -> io::Result<()> {
    let sync = |folder: &Path| File::open(folder)?.sync_all();
    sync(&data.join("store"))?;
    sync(data)?;
    fs::rename(data.join("store"), to.join("store"))?;
    sync(to)?;
    fs::rename(data.join(MARKER), to.join(MARKER))?;
    sync(to)?;
    fs::remove_dir_all(restoring)?;
    sync(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_and_empty_folders_are_taken() {
        let outer = std::env::temp_dir().join(format!("marula-restore-{}", std::process::id()));
        let to = outer.join("new/data");
        let restoring = begin(&to).expect("it is made");
        fs::create_dir(restoring.join("data")).expect("it is made");
        fs::create_dir(to.join("store")).expect("it is made");
        begin(&to).expect("one that was cut short is begun again");
        assert!(!to.join("store").exists() && !restoring.join("data").exists());
        fs::write(to.join("MARULA"), b"").expect("it is written");
        assert!(begin(&to).is_err(), "it is finished");
        fs::remove_file(to.join("MARULA")).expect("it is removed");
        fs::write(to.join("notes.txt"), b"").expect("it is written");
        assert!(begin(&to).expect_err("it is not empty").contains("notes.txt"));
        assert!(begin(&to.join("notes.txt")).is_err(), "a file");
        fs::remove_dir_all(&restoring).expect("it is removed");
        fs::remove_file(to.join("notes.txt")).expect("it is removed");
        fs::write(to.join(".hidden"), b"").expect("it is written");
        assert!(begin(&to).is_err(), "hidden files are data, too");
        fs::remove_dir_all(outer).expect("it is removed");
    }
}
