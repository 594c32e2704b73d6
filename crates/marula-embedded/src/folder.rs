//! The data folder: its layout, and its lock.
//!
//! ```text
//! <folder>/MARULA    the marker: "marula data folder, format 3\n"; locked while the store is open
//! <folder>/store/    RocksDB's files
//! <folder>/RUNNING   there while a store is open to be written; a clean end removes it
//! <folder>/SYNCED    the sequence number of the last sync: `log_scan.rs`
//! <folder>/LISTED    the list of tables and its size: `manifest.rs`
//! <folder>/ingest/   sorted files before they are ingested; emptied at each open
//! <folder>/backup/   checkpoints that a backup is made of; emptied at each open
//! <folder>/FOLLOWED  the run of a log that is followed: `log_follower.rs`
//! ```
//!
//! A folder without the marker is accepted only when it is empty. So a data folder of mongod, or a
//! wrong path, is refused and left unchanged.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use marula_storage::{Error, Result};

pub(crate) const MARKER: &str = "MARULA";

/// Exists while a store is open to be written; a process that did not end cleanly leaves it.
const RUNNING: &str = "RUNNING";

/// The timeout for the lock of a folder.
const LOCK_WAIT: Duration = Duration::from_millis(400);

/// The version of the layout of folder, keys and records. A change that older programs cannot read
/// increments it.
const FORMAT: u32 = 3;

/// The oldest version that this program reads. Opening such a folder upgrades its marker, since
/// older programs cannot read the data written from then on.
const FORMAT_MIN: u32 = 1;

/// A data folder that this process has locked.
pub(crate) struct Folder {
    path: PathBuf,
    /// Whether the last process that wrote to it did not end cleanly.
    pub(crate) was_left_open: bool,
    /// Holds the lock until it is closed.
    _marker: File,
}

impl Folder {
    /// Opens or creates the data folder at `path` and locks it.
    ///
    /// Errors: [`Error::Unavailable`] when another process has it open, when it holds foreign files
    /// or another format; [`Error::Io`] when it cannot be read or written; [`Error::Corrupt`] when
    /// files are missing.
    pub(crate) fn open(path: &Path) -> Result<Folder> {
        fs::create_dir_all(path).map_err(|error| failed("create the data folder", path, error))?;
        let marker_path = path.join(MARKER);
        let is_new = match fs::metadata(&marker_path) {
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(failed("read", &marker_path, error)),
        };
        if is_new {
            refuse_foreign(path)?;
        }
        let mut marker = OpenOptions::new()
            .read(true)
            .write(true)
            .create(is_new)
            .truncate(false)
            .open(&marker_path)
            .map_err(|error| failed("open", &marker_path, error))?;
        lock(&marker, path)?;
        check_or_write_marker(&mut marker, path)?;
        let was_left_open = path.join(RUNNING).exists();
        let folder = Folder { path: path.to_path_buf(), was_left_open, _marker: marker };
        folder.check_store()?;
        folder.empty(&folder.ingest())?;
        folder.empty(&folder.backup())?;
        Ok(folder)
    }

    /// Opens the data folder at `path` read-only and locks it: nothing in it is created, changed or
    /// removed.
    ///
    /// Errors: as [`Folder::open`]; [`Error::Unavailable`] also when it holds no store.
    pub(crate) fn open_to_read(path: &Path) -> Result<Folder> {
        let marker_path = path.join(MARKER);
        let mut marker = File::open(&marker_path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Unavailable(format!(
                "the folder '{}' is not a data folder of marula: it has no file '{MARKER}'",
                path.display()
            )),
            _ => failed("open", &marker_path, error),
        })?;
        lock(&marker, path)?;
        let text = read_marker(&mut marker, path)?;
        if format_of(&text).is_none() {
            return Err(foreign_marker(&text, path));
        }
        let was_left_open = path.join(RUNNING).exists();
        let folder = Folder { path: path.to_path_buf(), was_left_open, _marker: marker };
        folder.check_store()?;
        if !folder.store().join("CURRENT").exists() {
            let text = format!("the data folder '{}' holds no data yet", path.display());
            return Err(Error::Unavailable(text));
        }
        Ok(folder)
    }

    /// Notes that the store is open to be written.
    pub(crate) fn note_open(&self) -> Result<()> {
        let running = self.path.join(RUNNING);
        File::create(&running).map(drop).map_err(|error| failed("make", &running, error))
    }

    /// Notes that the store was closed cleanly.
    pub(crate) fn note_clean_end(&self) {
        // Where it stays, the next start says more than it needs to.
        let _ = fs::remove_file(self.path.join(RUNNING));
    }

    /// The path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of RocksDB's files.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// The folder for sorted files before the store ingests them.
    pub(crate) fn ingest(&self) -> PathBuf {
        self.path.join("ingest")
    }

    /// Removes the files of an ingestion or a backup that a crash interrupted.
    pub(crate) fn backup(&self) -> PathBuf {
        self.path.join("backup")
    }

    /// A store that has lost its `CURRENT` file would be taken for a new one, and its files
    /// removed.
    fn check_store(&self) -> Result<()> {
        let store = self.store();
        let entries = match fs::read_dir(&store) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("read", &store, error)),
        };
        let mut has_data = false;
        for entry in entries {
            let name = entry.map_err(|error| failed("read", &store, error))?.file_name();
            if name == OsStr::new("CURRENT") {
                return Ok(());
            }
            has_data |= Path::new(&name).extension() == Some(OsStr::new("sst"));
        }
        if has_data {
            let text =
                format!("the data folder '{}' has lost 'store/CURRENT'", self.path.display());
            return Err(Error::Corrupt(text));
        }
        Ok(())
    }

    /// Removes the files of an ingestion or a backup that a crash interrupted.
    fn empty(&self, path: &Path) -> Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", path, error))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a folder that holds foreign files. Hidden files and `lost+found` are ignored.
fn refuse_foreign(path: &Path) -> Result<()> {
    let entries =
        fs::read_dir(path).map_err(|error| failed("read the data folder", path, error))?;
    for entry in entries {
        let name = entry.map_err(|error| failed("read the data folder", path, error))?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || name == "lost+found" {
            continue;
        }
        let folder = path.display();
        let text = if name.starts_with("WiredTiger") || name == "storage.bson" {
            format!(
                "the folder '{folder}' holds data files of mongod ('{name}'), which marula does \
                not read: dump and restore them, or choose another folder"
            )
        } else {
            format!(
                "the folder '{folder}' is not empty ('{name}') and is not a data folder of marula"
            )
        };
        return Err(Error::Unavailable(text));
    }
    Ok(())
}

/// Locks the marker, with a short timeout: a process that is ending, or a child process that has
/// just inherited the file, releases it soon.
fn lock(marker: &File, path: &Path) -> Result<()> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match marker.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                thread::sleep(LOCK_WAIT / 20);
            }
            Err(TryLockError::WouldBlock) => {
                let text = format!("another process has the data folder '{}' open", path.display());
                return Err(Error::Unavailable(text));
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", path, error)),
        }
    }
}

fn check_or_write_marker(marker: &mut File, path: &Path) -> Result<()> {
    let text = read_marker(marker, path)?;
    match format_of(&text) {
        Some(FORMAT) => return Ok(()),
        Some(_) => {}
        // A crash may have left the marker created but empty; the store does not exist then.
        None if text.is_empty() && !path.join("store").exists() => {}
        None => return Err(foreign_marker(&text, path)),
    }
    // All markers have the same length, so a crash leaves either the old or the new one.
    write_marker(marker, path, &marker_of(FORMAT))
        .map_err(|error| failed("write", &path.join(MARKER), error))
}

fn marker_of(format: u32) -> String {
    format!("marula data folder, format {format}\n")
}

/// The format that a marker names, if this program supports it.
fn format_of(text: &str) -> Option<u32> {
    (FORMAT_MIN..=FORMAT).find(|&format| text == marker_of(format))
}

fn read_marker(marker: &mut File, path: &Path) -> Result<String> {
    let mut text = String::new();
    // The marker is short; a longer file is not read into memory.
    let mut start = marker.take(1024);
    let marker_path = path.join(MARKER);
    start.read_to_string(&mut text).map_err(|error| failed("read", &marker_path, error))?;
    Ok(text)
}

fn foreign_marker(text: &str, path: &Path) -> Error {
    let text = text.trim_end();
    Error::Unavailable(format!(
        "the data folder '{}' is marked {text:?}; this program reads formats {FORMAT_MIN} to {FORMAT}",
        path.display()
    ))
}

fn write_marker(marker: &mut File, path: &Path, text: &str) -> io::Result<()> {
    marker.rewind()?;
    marker.write_all(text.as_bytes())?;
    marker.sync_all()?;
    File::open(path)?.sync_all()
}

/// An input/output error of the same kind that says which operation failed on which file.
fn failed(verb: &str, path: &Path, error: io::Error) -> Error {
    io::Error::new(error.kind(), format!("could not {verb} '{}': {error}", path.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use marula_storage::contract;

    fn refusal(path: &Path) -> String {
        match Folder::open(path) {
            Ok(_) => panic!("the folder is taken"),
            Err(error) => error.to_string(),
        }
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(path)
            .expect("the folder is there")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn foreign_folders_are_left_as_they_are() {
        for (file, words) in [
            ("WiredTiger.wt", "data files of mongod"),
            ("storage.bson", "data files of mongod"),
            ("notes.txt", "is not empty ('notes.txt')"),
            ("CURRENT", "is not empty"),
        ] {
            let folder = contract::Folder::new();
            fs::write(folder.path().join(file), b"x").expect("a file is written");
            let text = refusal(folder.path());
            assert!(text.contains(words), "{file}: {text}");
            assert_eq!(names(folder.path()), [file]);
        }
    }

    #[test]
    fn an_empty_folder_is_taken_and_locked() {
        let outer = contract::Folder::new();
        let path = outer.path().join("new/data");
        let folder = Folder::open(&path).expect("a folder is made");
        assert_eq!(names(&path), [MARKER]);
        assert!(refusal(&path).contains("another process"));
        drop(folder);
        fs::write(path.join("notes.txt"), b"x").expect("a file is written");
        Folder::open(&path).expect("files beside the marker are nobody's business");
    }

    #[test]
    fn other_formats_and_damage_are_told() {
        let folder = contract::Folder::new();
        let path = folder.path();
        for format in [0, FORMAT + 1] {
            fs::write(path.join(MARKER), marker_of(format)).expect("it is written");
            assert!(refusal(path).contains(&format!("format {format}")));
        }
        for format in FORMAT_MIN..=FORMAT {
            fs::write(path.join(MARKER), marker_of(format)).expect("it is written");
            drop(Folder::open(path).expect("older formats are read"));
            let marker = fs::read_to_string(path.join(MARKER)).expect("it is read");
            assert_eq!(marker, marker_of(FORMAT), "and marked as what is written from now on");
        }
        fs::write(path.join(MARKER), [0xFF; 10]).expect("it is written");
        refusal(path);
        fs::write(path.join(MARKER), "").expect("it is written");
        drop(Folder::open(path).expect("a marker that was not written yet is written"));
        fs::create_dir(path.join("store")).expect("it is made");
        drop(Folder::open(path).expect("an empty store is a new one"));
        fs::write(path.join("store/000012.sst"), "").expect("it is written");
        assert!(refusal(path).contains("has lost 'store/CURRENT'"));
        fs::write(path.join("store/CURRENT"), "").expect("it is written");
        drop(Folder::open(path).expect("the rest is RocksDB's to judge"));
        fs::write(path.join(MARKER), "").expect("it is written");
        refusal(path);
    }

    #[test]
    fn what_cannot_be_a_folder_is_told() {
        let folder = contract::Folder::new();
        let path = folder.path().join("file");
        fs::write(&path, b"x").expect("a file is written");
        assert!(refusal(&path).contains("could not create the data folder"));
        fs::create_dir(folder.path().join(MARKER)).expect("a folder is made");
        assert!(refusal(folder.path()).contains("could not open"));
    }
}
