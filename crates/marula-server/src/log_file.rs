//! The log file, and its rotation.
//!
//! A rotation either renames the file, adding the time to its name, and starts a new one, or opens
//! the path again, for programs such as logrotate that have moved the file away themselves.
//! Source: manual "Rotate Log Files"; errors recorded from mongod 6.0.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Zoned;
use marula_error::{Result, errors};

errors! {
    /// The new name exists: a second rotation within one second.
    name_taken() = FileRenameFailed, "Log rotation failed due to one or more errors";
    /// The file cannot be renamed or opened again.
    not_rotated() = InternalError, "Log rotation failed due to one or more errors";
}

/// The action of a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rotation {
    /// Renames the file and starts a new one.
    #[default]
    Rename,
    /// Opens the path again.
    Reopen,
}

/// The treatment of an existing file when the server starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Earlier {
    /// It is renamed as by a rotation.
    #[default]
    Renamed,
    /// New lines are appended to it.
    Extended,
}

/// The log file.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// Its path.
    pub path: PathBuf,
    /// The action of a rotation.
    pub rotation: Rotation,
}

impl LogFile {
    /// Opens the file for a server that starts.
    pub fn start(&self, earlier: Earlier) -> io::Result<File> {
        // A device or a pipe is not renamed.
        if earlier == Earlier::Renamed && self.path.is_file() {
            fs::rename(&self.path, renamed(&self.path))?;
        }
        open(&self.path)
    }

    /// Rotates the file and returns the one in which the log continues.
    ///
    /// Errors: `name_taken`, `not_rotated`; the log then continues in the old file.
    pub fn rotate(&self) -> Result<File> {
        let failed = |error: io::Error| {
            tracing::error!(%error, path = %self.path.display(), "the log cannot be rotated");
            not_rotated()
        };
        if self.rotation == Rotation::Rename && self.path.is_file() {
            let new = renamed(&self.path);
            if new.exists() {
                tracing::error!(path = %new.display(), "the log cannot be rotated: the new name is taken");
                return Err(name_taken());
            }
            fs::rename(&self.path, &new).map_err(failed)?;
        }
        open(&self.path).map_err(failed)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Returns the name of a rotated file: its own, and the local time to the second.
fn renamed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(Zoned::now().strftime(".%Y-%m-%dT%H-%M-%S").to_string());
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("the folder is there");
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.expect("an entry").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_rotation_renames_or_opens_again() {
        let folder = std::env::temp_dir().join(format!("marula-log-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder is made");
        let path = folder.join("log");
        let renaming = LogFile { path: path.clone(), rotation: Rotation::Rename };
        writeln!(renaming.start(Earlier::Renamed).expect("it is made"), "first").expect("written");
        renaming.start(Earlier::Extended).expect("it is opened");
        assert_eq!(names(&folder), ["log"]);
        renaming.rotate().expect("it is renamed");
        assert_eq!(names(&folder).len(), 2, "{:?}", names(&folder));
        assert_eq!(fs::read_to_string(&path).expect("a new file"), "");
        let reopening = LogFile { path: path.clone(), rotation: Rotation::Reopen };
        reopening.rotate().expect("it is opened");
        assert_eq!(names(&folder).len(), 2);
        fs::remove_file(&path).expect("it is moved away");
        reopening.rotate().expect("a new one is made");
        assert!(path.exists());
        fs::remove_dir_all(&folder).expect("it is removed");
    }
}
