//! A target in a folder.
//!
//! A put writes a hidden file, syncs it and renames it, so that a name has complete contents or
//! does not exist, even after a power failure. Hidden files left by a crash are overwritten or
//! pruned.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Stored;
use crate::{Error, Result};

/// The prefix of files that are being written.
const UNFINISHED: &str = ".put-";
/// The age after which an unfinished file is removed, because its process must have ended.
const UNFINISHED_MAX: Duration = Duration::from_hours(24);

pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Folder {
        Folder { path }
    }

    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let path = self.path.join(name);
        let folder = path.parent().expect("a name is below the folder");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let unfinished = folder.join(format!("{UNFINISHED}{}-{count}", std::process::id()));
        let written = make(folder).and_then(|()| write(&unfinished, bytes));
        let put = written.and_then(|()| fs::rename(&unfinished, &path)).and_then(|()| sync(folder));
        put.map_err(|error| {
            // If the removal fails, the rest is never read.
            let _ = fs::remove_file(&unfinished);
            failed("write", &path, &error)
        })
    }

    pub(super) fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path, &error)),
        }
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<Stored>> {
        let mut all = Vec::new();
        self.walk(&self.path.join(prefix), prefix, &mut all)?;
        Ok(all)
    }

    pub(super) fn delete(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed("remove", &path, &error))
            }
            _ => Ok(()),
        }
    }

    fn walk(&self, folder: &Path, prefix: &str, all: &mut Vec<Stored>) -> Result<()> {
        let wrong = |error: io::Error| failed("list", folder, &error);
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(wrong(error)),
        };
        for entry in entries {
            let entry = entry.map_err(wrong)?;
            // A name that is not UTF-8 was not written by a put.
            let Ok(file_name) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // The file was removed or renamed since the listing.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(wrong(error)),
            };
            let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
            if file_name.starts_with('.') {
                let age = SystemTime::now().duration_since(modified).unwrap_or_default();
                if file_name.starts_with(UNFINISHED) && age > UNFINISHED_MAX {
                    let _ = fs::remove_file(entry.path());
                }
                continue;
            }
            let name = format!("{prefix}{file_name}");
            if metadata.is_dir() {
                self.walk(&entry.path(), &format!("{name}/"), all)?;
                continue;
            }
            let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
            let put_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
            all.push(Stored { name, bytes: metadata.len(), put_ms });
        }
        Ok(())
    }
}

/// Creates a folder that only its owner can access, because it will have everyone's data.
fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // The folder itself must survive a power failure, too.
    folder.parent().map_or(Ok(()), sync)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

fn failed(verb: &str, path: &Path, error: &io::Error) -> Error {
    Error::Target(format!("could not {verb} '{}': {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::{Target, check_promises};

    #[test]
    fn a_folder_keeps_what_targets_promise() {
        let folder = crate::work::tests::folder();
        let target = Target::open(folder.path().to_str().expect("a text")).expect("it opens");
        check_promises(&target);
        std::fs::write(folder.path().join("a/.put-1-1"), b"half").expect("it is written");
        assert_eq!(target.list("a/").expect("it is listed").len(), 1, "a put that was cut short");
    }
}
