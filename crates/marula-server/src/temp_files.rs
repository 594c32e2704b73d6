//! Temporary files of sorts and groups that outgrow memory, in the folder `_tmp` of the data
//! folder.
//!
//! A file is unlinked as soon as it is open, so that it disappears with its handle, even if the
//! process is killed. Files left by a crash in between are removed at the next start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use marula_db::storage_error::client_error;
use marula_error::Result;
use marula_query::spill::memory::MemoryDisk;
use marula_query::spill::{Disk, TempFile};

/// The folder's name in the data folder.
const FOLDER: &str = "_tmp";

/// Returns the place for temporary files of a server with this data folder; memory, without a
/// folder.
pub(crate) fn disk(dbpath: Option<&str>) -> Arc<dyn Disk> {
    match dbpath {
        Some(dbpath) => Arc::new(Folder::new(Path::new(dbpath))),
        None => Arc::new(MemoryDisk),
    }
}

struct Folder {
    path: PathBuf,
    count: AtomicU64,
}

impl Folder {
    /// Returns the folder, emptied.
    fn new(dbpath: &Path) -> Self {
        let path = dbpath.join(FOLDER);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %path.display(), "temporary files of an earlier run could not be removed");
            }
            _ => {}
        }
        Folder { path, count: AtomicU64::new(0) }
    }

    fn open(&self) -> io::Result<File> {
        fs::create_dir_all(&self.path)?;
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("spill-{}-{number}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    }
}

impl Disk for Folder {
    fn create(&self) -> Result<Box<dyn TempFile>> {
        let file = self.open().map_err(failed)?;
        Ok(Box::new(Nameless(file)))
    }
}

/// An unlinked file.
struct Nameless(File);

impl TempFile for Nameless {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(failed)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.0.read_exact_at(bytes, offset).map_err(failed)
    }
}

fn failed(error: io::Error) -> marula_error::Error {
    client_error(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_leave_nothing_and_leftovers_go() {
        let dbpath = std::env::temp_dir().join(format!("marula-spill-test-{}", std::process::id()));
        let folder = dbpath.join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("spill-1-1"), "left by a crash").unwrap();
        let disk = disk(dbpath.to_str());
        assert!(!folder.exists());
        let mut file = disk.create().unwrap();
        file.append(b"some ").unwrap();
        file.append(b"bytes").unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let mut bytes = [0; 5];
        file.read_at(5, &mut bytes).unwrap();
        assert_eq!(&bytes, b"bytes");
        assert!(file.read_at(6, &mut bytes).is_err(), "there is no sixth byte behind");
        drop((file, disk));
        fs::remove_dir_all(&dbpath).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_is_told_of() {
        let disk = disk(Some("/dev/null"));
        assert!(disk.create().is_err());
    }
}
