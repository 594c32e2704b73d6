//! Losses of the log, and whether a store may be opened in spite of them.
//!
//! | state of the log | opened | logged as |
//! | --- | --- | --- |
//! | ends within the last write, which was not synced | yes | INFO |
//! | is damaged after the last sync | yes, up to the damage | WARN |
//! | is damaged before the last sync, or ends before it | only with [`OnDamage::CutOff`] | ERROR |
//! | damaged before readable writes, last sync unknown | only with [`OnDamage::CutOff`] | ERROR |

use marula_storage::{Error, Result};
use rust_rocksdb::{DB, Options};
use tracing::{error, info, warn};

use crate::error::from_rocksdb;
use crate::folder::Folder;
use crate::log_cut::ReadablePart;
use crate::log_scan::{self, Damage, LogScan, Synced};
use crate::options::{EmbeddedOptions, OnDamage, name_of};

/// The losses of the log found when its store was opened.
#[derive(Default)]
pub(crate) struct Loss {
    /// One line per fault that `check` reports.
    pub(crate) faults: Vec<String>,
    /// Bytes of the log that are not replayed.
    pub(crate) bytes: u64,
    /// Where the log is damaged, if it is.
    pub(crate) damage: Option<Damage>,
}

/// Examines the log of a folder before the store is opened.
///
/// Errors: `Corrupt` when acknowledged writes are lost and the options do not allow that; `Io`.
pub(crate) fn look(folder: &Folder, options: &EmbeddedOptions) -> Result<Loss> {
    let mut faults = Vec::new();
    let synced = Synced::read(folder.path()).unwrap_or_else(|fault| {
        faults.push(fault);
        None
    });
    let scan = log_scan::scan(&folder.store())?;
    let bytes = scan.damage.as_ref().map_or(0, |damage| damage.bytes);
    let is_loss = match (&scan.damage, synced) {
        (_, Some(synced)) if synced > scan.last_sequence => newest(folder, &scan)? < synced,
        (Some(damage), None) => damage.later_writes > 0,
        _ => false,
    };
    let description = scan.damage.as_ref().map(describe);
    if is_loss {
        let description = description.unwrap_or_else(|| {
            let store = folder.store();
            format!(
                "the log in '{}' ends before its last sync: a file of it is missing or was cut off",
                store.display()
            )
        });
        if options.is_read_only {
            faults.push(format!("{description}; writes that were acknowledged are lost"));
        } else if options.on_damage == OnDamage::Refuse {
            return Err(Error::Corrupt(format!(
                "{description}; writes that were acknowledged are lost. Restore a backup, or run 'marula serve --repair' to go on with what comes before"
            )));
        } else {
            error!(
                damage = description,
                "the log is damaged: writes that were acknowledged are lost"
            );
        }
    } else if let (Some(description), Some(damage)) = (description, &scan.damage) {
        match damage.is_cut_short {
            true => {
                info!(
                    damage = description,
                    "the log ends within its last write: the process ended as it wrote it, before it was synced"
                );
            }
            false => {
                warn!(damage = description, "the log is damaged where it was not synced yet");
                faults.push(format!("{description}; it was not synced yet"));
            }
        }
    }
    Ok(Loss { faults, bytes, damage: scan.damage })
}

fn describe(damage: &Damage) -> String {
    let Damage { path, at, bytes, later_writes, .. } = damage;
    format!(
        "the log file '{}' cannot be read from byte {at} on: {bytes} bytes are left out, among them {later_writes} whole writes",
        path.display()
    )
}

/// The newest sequence number of a store, from its tables and the replayable part of its log.
/// Changes nothing.
fn newest(folder: &Folder, scan: &LogScan) -> Result<u64> {
    // Tables may be newer than the rest of the log, but not newer than a log with readable writes
    // after the damage.
    if scan.damage.as_ref().is_some_and(|damage| damage.later_writes > 0) {
        return Ok(scan.last_sequence);
    }
    let mut options = Options::default();
    options.set_uint64add_merge_operator();
    let names = marula_storage::Space::ALL.map(name_of);
    let _readable = ReadablePart::show(&folder.store(), scan.damage.as_ref(), &mut options)?;
    let db = DB::open_cf_for_read_only(&options, folder.store(), names, false);
    Ok(db.map_err(from_rocksdb)?.latest_sequence_number())
}
