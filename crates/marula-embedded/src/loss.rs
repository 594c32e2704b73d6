//! What a log has lost, and whether a store may be opened without it.
//!
//! | the log | is opened | is told as |
//! | --- | --- | --- |
//! | ends within the last write, which was not synced | yes | INFO |
//! | is damaged after the last sync | yes, up to the damage | WARN |
//! | is damaged before the last sync, or ends before it | only with [`OnDamage::CutOff`] | ERROR |
//! | is damaged, with readable writes after it, and the last sync is not known | only with [`OnDamage::CutOff`] | ERROR |

use marula_storage::{Error, Result};
use rust_rocksdb::{DB, Options};
use tracing::{error, info, warn};

use crate::error::from_rocksdb;
use crate::folder::Folder;
use crate::log_scan::{self, Damage, LogScan, Synced};
use crate::options::{EmbeddedOptions, OnDamage, name_of};

/// What a log had lost when its store was opened.
#[derive(Default)]
pub(crate) struct Loss {
    /// A line for each thing that `check` tells of.
    pub(crate) faults: Vec<String>,
    /// Bytes of the log that are not replayed.
    pub(crate) bytes: u64,
}

/// Looks at the log of a folder before it is opened.
///
/// Errors: `Corrupt` when it has lost what was acknowledged and the options do not allow for it;
/// `Io`.
pub(crate) fn look(folder: &Folder, options: &EmbeddedOptions) -> Result<Loss> {
    let mut faults = Vec::new();
    let synced = match Synced::read(folder.path()) {
        Ok(synced) => synced,
        Err(cause) => {
            let path = folder.path().join(log_scan::SYNCED);
            warn!(
                "'{}' cannot be read, so it is not known how far the log was synced: {cause}",
                path.display()
            );
            faults.push(format!("'{}' cannot be read: {cause}", path.display()));
            None
        }
    };
    let scan = log_scan::scan(&folder.store())?;
    let bytes = scan.damage.as_ref().map_or(0, |damage| damage.bytes);
    let is_loss = match (&scan.damage, synced) {
        (_, Some(synced)) if synced > scan.last_sequence => newest(folder, &scan)? < synced,
        (Some(damage), None) => damage.later_writes > 0,
        _ => false,
    };
    let said = scan.damage.as_ref().map(say);
    if is_loss {
        let said = said.unwrap_or_else(|| {
            let store = folder.store();
            format!(
                "the log in '{}' ends before its last sync: a file of it is missing or was cut off",
                store.display()
            )
        });
        if options.is_read_only {
            faults.push(format!("{said}; writes that were acknowledged are lost"));
        } else if options.on_damage == OnDamage::Refuse {
            return Err(Error::Corrupt(format!(
                "{said}; writes that were acknowledged are lost. Restore a backup, or run 'marula serve --repair' to go on with what comes before"
            )));
        } else {
            error!("{said}; writes that were acknowledged are lost");
        }
    } else if let (Some(said), Some(damage)) = (said, &scan.damage) {
        match damage.is_cut_short {
            true => info!("{said}; the process ended as it wrote it, before it was synced"),
            false => {
                warn!("{said}; it was not synced yet");
                faults.push(format!("{said}; it was not synced yet"));
            }
        }
    }
    Ok(Loss { faults, bytes })
}

fn say(damage: &Damage) -> String {
    let Damage { path, at, bytes, later_writes, .. } = damage;
    format!(
        "the log file '{}' cannot be read from byte {at} on: {bytes} bytes are left out, among them {later_writes} whole writes",
        path.display()
    )
}

/// The newest sequence number of a store, of its files and of the log as far as it is replayed.
/// Nothing is changed.
fn newest(folder: &Folder, scan: &LogScan) -> Result<u64> {
    // What is in files may be newer than what the log still holds, but not than a log that is
    // damaged.
    if scan.damage.as_ref().is_some_and(|damage| damage.later_writes > 0) {
        return Ok(scan.last_sequence);
    }
    let mut options = Options::default();
    options.set_uint64add_merge_operator();
    let names = marula_storage::Space::ALL.map(name_of);
    let db = DB::open_cf_for_read_only(&options, folder.store(), names, false);
    Ok(db.map_err(from_rocksdb)?.latest_sequence_number())
}
