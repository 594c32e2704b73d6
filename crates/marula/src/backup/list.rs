//! `marula backup list` and `marula backup prune`.

use std::process::ExitCode;

use marula_backup::log::Run;
use marula_backup::moment::restore_ranges;
use marula_backup::prune::{Pruned, Retention};
use marula_backup::{Progress, log};

use super::args::{ListArgs, PruneArgs};
use super::{open, shown, times};
use crate::Failure;

pub(super) fn run(args: &ListArgs) -> Result<ExitCode, Failure> {
    let repository = open(&args.target)?;
    let told = |error: marula_backup::Error| error.to_string();
    let listing = repository.list().map_err(told)?;
    let runs = log::runs(&repository).map_err(told)?;
    for (name, error) in &listing.unreadable {
        eprintln!("marula: '{name}' cannot be used: {error}");
    }
    if args.json {
        for backup in &listing.backups {
            println!(
                "{}",
                serde_json::json!({
                    "id": backup.id, "from_us": backup.moment.from_us,
                    "until_us": backup.moment.until_us, "bytes": backup.bytes,
                    "sent_bytes": backup.sent_bytes, "sent_objects": backup.sent_objects,
                    "files": backup.files.len(), "origin": backup.origin,
                    "program": backup.program, "has_log": backup.log.is_some(),
                })
            );
        }
    } else {
        println!("{:<26} {:<30} {:>11} {:>11}  of", "backup", "moment", "files", "sent");
        for backup in &listing.backups {
            println!(
                "{:<26} {:<30} {:>11} {:>11}  {}",
                backup.id,
                times::shown(backup.moment.from_us),
                shown::size(backup.bytes),
                shown::size(backup.sent_bytes),
                backup.origin,
            );
        }
        for range in restore_ranges(&listing.backups, &runs) {
            if range.from_us < range.until_us {
                let (from, until) = (times::shown(range.from_us), times::shown(range.until_us));
                println!("every moment from {from} to {until}");
            }
        }
    }
    let is_whole = listing.unreadable.is_empty() & report_damage(&runs);
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints which runs of the log are damaged; returns whether none is.
pub(super) fn report_damage(runs: &[Run]) -> bool {
    let damages: Vec<&String> = runs.iter().filter_map(|run| run.damage.as_ref()).collect();
    for damage in &damages {
        eprintln!("marula: the end of a log is not known: {damage}");
    }
    damages.is_empty()
}

pub(super) fn prune(args: &PruneArgs) -> Result<ExitCode, Failure> {
    let window_us = times::duration_us("--keep", &args.keep)?;
    let retention = Retention { window_us, count_min: args.keep_last };
    let repository = open(&args.target)?;
    let now_us = jiff::Timestamp::now().as_microsecond();
    let progress = Progress::default();
    let pruned = marula_backup::prune(&repository, retention, now_us, args.dry_run, &progress)
        .map_err(|error| error.to_string())?;
    let Pruned { backups, kept, objects, bytes, segments, left } = pruned;
    for id in &backups {
        println!("{} {id}", if args.dry_run { "would remove" } else { "removed" });
    }
    println!(
        "{} backups {}, {kept} kept; {objects} objects ({}) and {segments} pieces of log {}",
        backups.len(),
        if args.dry_run { "would go" } else { "went" },
        shown::size(bytes),
        if args.dry_run { "would go" } else { "went" },
    );
    if let Some(reason) = left {
        println!("objects and log were left alone: {reason}");
    }
    Ok(ExitCode::SUCCESS)
}
