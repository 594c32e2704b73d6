//! The part of a damaged log that RocksDB is given.
//!
//! RocksDB ends its replay at most damage, but reads some again and again without end: a record
//! whose kind has become that of a log file that is used again. It is given no damage, therefore.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rust_rocksdb::Options;

use crate::log_scan::{Damage, log_files};

/// Cuts the log off where its damage starts. A crash in the middle leaves the same damage.
pub(crate) fn cut_off(store: &Path, damage: &Damage) -> io::Result<()> {
    let Damage { path, at, bytes, .. } = damage;
    tracing::warn!(path = %path.display(), at, bytes, "the end of the log is damaged");
    for path in log_files(store)?.into_iter().rev() {
        if path == damage.path {
            return File::options().write(true).open(path)?.set_len(damage.at);
        }
        fs::remove_file(path)?;
    }
    Ok(())
}

/// A copy of a log up to its damage, for a store that is opened without a change to its files.
/// Dropping it removes it.
pub(crate) struct ReadablePart {
    folder: PathBuf,
}

impl ReadablePart {
    /// Copies the log if it is damaged, and sets RocksDB's option `wal_dir` to the copy, which must
    /// stay until the store is open.
    pub(crate) fn show(
        store: &Path,
        damage: Option<&Damage>,
        options: &mut Options,
    ) -> io::Result<Option<Self>> {
        let Some(damage) = damage else { return Ok(None) };
        let part = ReadablePart::copy(store, damage)?;
        options.set_wal_dir(&part.folder);
        Ok(Some(part))
    }

    fn copy(store: &Path, damage: &Damage) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("marula-log-{}-{count}", process::id()));
        fs::create_dir(&folder)?;
        let part = ReadablePart { folder };
        for path in log_files(store)? {
            let is_last = path == damage.path;
            let bytes = if is_last { damage.at } else { u64::MAX };
            let copy = part.folder.join(path.file_name().unwrap_or_default());
            io::copy(&mut File::open(path)?.take(bytes), &mut File::create_new(copy)?)?;
            if is_last {
                break;
            }
        }
        Ok(part)
    }
}

impl Drop for ReadablePart {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(path = %self.folder.display(), %error, "a temporary folder stays");
        }
    }
}
