//! The manifest of a backup.
//!
//! A manifest is two lines of JSON: the backup, and the SHA-256 of the first line. So people can
//! read it, and damage is detected. With a key it is sealed like an object. It is written last: an
//! interrupted backup has no manifest and does not exist.

use std::path::{Component, Path};

use ring::digest;
use serde::{Deserialize, Serialize};

use crate::key::hex;
use crate::{Error, Result};

/// The version of the manifest's format. It is incremented by changes that older programs cannot
/// read.
pub(crate) const FORMAT: u32 = 1;

/// The maximum size of a manifest: enough for some millions of objects.
pub(crate) const MANIFEST_BYTES_MAX: usize = 1 << 30;

/// The maximum size of the content of an object.
pub(crate) const OBJECT_BYTES: usize = 16 << 20;

/// One backup.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The name: the start time and four random digits.
    pub id: String,
    /// The time of the backup's contents.
    pub moment: Moment,
    /// The program that created it.
    pub program: String,
    /// The machine and the data folder.
    pub origin: String,
    /// The start of the log that continues from it, if the log is sent.
    pub log: Option<LogStart>,
    /// The files.
    pub files: Vec<FileEntry>,
    /// The total size of the files in bytes.
    pub bytes: u64,
    /// The number of bytes sent for it, compressed and encrypted.
    pub sent_bytes: u64,
    /// The number of objects sent for it.
    pub sent_objects: u64,
}

/// The time of a backup's contents. The backup has every commit that was acknowledged before
/// `from_us`, and no commit that began after `until_us`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Moment {
    /// Microseconds since 1970.
    pub from_us: i64,
    /// Microseconds since 1970.
    pub until_us: i64,
}

/// The position in the log at which a backup ends.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct LogStart {
    /// The run of the log.
    pub run: String,
    /// The sequence number of the last write in the backup.
    pub sequence: u64,
}

/// A file of a backup.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct FileEntry {
    /// Its path relative to the data folder, with `/` as the separator.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its content: objects of [`OBJECT_BYTES`] bytes, and one with the rest.
    pub objects: Vec<String>,
}

/// The second line.
#[derive(Serialize, Deserialize)]
struct Checksum {
    sha256: String,
}

impl Manifest {
    /// Encodes the manifest.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = json(self);
        out.push(b'\n');
        let sha256 = hex(digest::digest(&digest::SHA256, &out).as_ref());
        out.extend_from_slice(&json(&Checksum { sha256 }));
        out.push(b'\n');
        out
    }

    /// Decodes a manifest that is stored under `name`.
    ///
    /// Errors: `Damaged`; `Refused` if a later version of the program wrote it.
    pub(crate) fn read(name: &str, bytes: &[u8]) -> Result<Manifest> {
        let damaged = |what: String| Error::Damaged(format!("manifest '{name}' {what}"));
        let end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let (line, rest) = bytes.split_at(end.ok_or_else(|| damaged("is cut off".to_owned()))?);
        let checksum: Checksum =
            serde_json::from_slice(rest).map_err(|_| damaged("has no checksum".to_owned()))?;
        if checksum.sha256 != hex(digest::digest(&digest::SHA256, line).as_ref()) {
            return Err(damaged("has a wrong checksum".to_owned()));
        }
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        match serde_json::from_slice(line) {
            Ok(Format { format: FORMAT }) => {}
            Ok(Format { format }) => {
                return Err(Error::Refused(format!(
                    "manifest '{name}' has format {format}; this program reads format {FORMAT}"
                )));
            }
            Err(error) => return Err(damaged(format!("cannot be understood: {error}"))),
        }
        let manifest: Manifest = serde_json::from_slice(line)
            .map_err(|error| damaged(format!("cannot be understood: {error}")))?;
        manifest.check().map_err(damaged)?;
        Ok(manifest)
    }

    /// Checks the properties that a restore relies on: files stay below the folder, and the number
    /// of objects matches the size.
    fn check(&self) -> Result<(), String> {
        for file in &self.files {
            let is_below = Path::new(&file.name).components().all(|part| match part {
                Component::Normal(part) => !part.is_empty(),
                _ => false,
            });
            if file.name.is_empty() || !is_below || file.name.ends_with('/') {
                return Err(format!("names a file '{}'", file.name.escape_default()));
            }
            if file.bytes.div_ceil(OBJECT_BYTES as u64) != file.objects.len() as u64 {
                return Err(format!("has a wrong number of objects for '{}'", file.name));
            }
            if let Some(object) = file.objects.iter().find(|object| !is_object(object)) {
                return Err(format!("names an object '{}'", object.escape_default()));
            }
        }
        Ok(())
    }

    /// Returns the names of all objects; names may be repeated.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &str> {
        self.files.iter().flat_map(|file| file.objects.iter().map(String::as_str))
    }
}

/// Returns whether a string is a valid object name.
pub(crate) fn is_object(name: &str) -> bool {
    name.len() == 64
        && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns the path of an object in the target.
pub(crate) fn place_of(object: &str) -> String {
    let fan = object.get(..2).unwrap_or(object);
    format!("objects/{fan}/{object}")
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("it has nothing that JSON has not")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn manifest(id: &str, until_us: i64, objects: Vec<String>) -> Manifest {
        let bytes = (objects.len() * OBJECT_BYTES) as u64;
        Manifest {
            format: FORMAT,
            id: id.to_owned(),
            moment: Moment { from_us: until_us, until_us },
            program: "test".to_owned(),
            origin: "here:/data".to_owned(),
            log: Some(LogStart { run: "r".to_owned(), sequence: 7 }),
            files: vec![FileEntry { name: "store/000001.sst".to_owned(), bytes, objects }],
            bytes,
            sent_bytes: 1,
            sent_objects: 2,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let manifest = manifest("a", 5, vec!["0".repeat(64), "f".repeat(64)]);
        let bytes = manifest.write();
        assert_eq!(Manifest::read("a", &bytes).expect("it is read"), manifest);
        for at in 0..bytes.len() - 1 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Manifest::read("a", &changed).is_err(), "byte {at}");
            assert!(Manifest::read("a", &bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn what_would_leave_the_folder_is_refused() {
        for name in ["", "/etc/passwd", "../x", "store/../../x", "store/", "./x"] {
            let mut manifest = manifest("a", 5, vec!["0".repeat(64)]);
            manifest.files[0].name = name.to_owned();
            assert!(Manifest::read("a", &manifest.write()).is_err(), "{name}");
        }
        for object in ["", "../../x", &"0".repeat(63), &"G".repeat(64)] {
            let manifest = manifest("a", 5, vec![object.to_owned()]);
            assert!(Manifest::read("a", &manifest.write()).is_err(), "{object}");
        }
        let mut wrong = manifest("a", 5, vec!["0".repeat(64)]);
        wrong.files[0].bytes += 1;
        assert!(Manifest::read("a", &wrong.write()).is_err(), "a size without its object");
        let mut newer = manifest("a", 5, Vec::new());
        newer.format += 1;
        assert!(matches!(Manifest::read("a", &newer.write()), Err(Error::Refused(_))));
    }
}
