//! What a backup consists of.
//!
//! A manifest is two lines of JSON: the backup, and the SHA-256 of the first line, so that a person
//! can read it and damage is found. With a key it is sealed as objects are. It is put last: a
//! backup that was cut short has none, and is not there.

use std::path::{Component, Path};

use ring::digest;
use serde::{Deserialize, Serialize};

use crate::key::hex;
use crate::{Error, Result};

/// The version of the form of manifests. A change that older programs cannot read raises it.
pub(crate) const FORMAT: u32 = 1;

/// The largest manifest that is read: some millions of objects.
pub(crate) const MANIFEST_BYTES_MAX: usize = 1 << 30;

/// How much of a file one object holds at most.
pub(crate) const OBJECT_BYTES: usize = 16 << 20;

/// One backup.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Its name: when it was begun, and four random digits.
    pub id: String,
    /// Of which moment it is.
    pub moment: Moment,
    /// The program that made it.
    pub program: String,
    /// The machine and the folder that it was made of.
    pub origin: String,
    /// The log that goes on from it, where one is kept.
    pub log: Option<LogStart>,
    /// The files.
    pub files: Vec<FileEntry>,
    /// Bytes of all files.
    pub bytes: u64,
    /// What travelled for it, compressed and encrypted.
    pub sent_bytes: u64,
    /// Objects that travelled for it.
    pub sent_objects: u64,
}

/// The moment of a backup. Every commit that was acknowledged before `from_us` is in it, and none
/// that began after `until_us`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Moment {
    /// Microseconds since 1970.
    pub from_us: i64,
    /// Microseconds since 1970.
    pub until_us: i64,
}

/// Where the log goes on from a backup.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct LogStart {
    /// The run of the log.
    pub run: String,
    /// Every write up to this number is in the backup.
    pub sequence: u64,
}

/// A file of a backup.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct FileEntry {
    /// Its path below the data folder, with `/` between the parts.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its content: objects of [`OBJECT_BYTES`] and what is left over.
    pub objects: Vec<String>,
}

/// The second line.
#[derive(Serialize, Deserialize)]
struct Checksum {
    sha256: String,
}

impl Manifest {
    /// The bytes of the manifest.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = json(self);
        out.push(b'\n');
        let sha256 = hex(digest::digest(&digest::SHA256, &out).as_ref());
        out.extend_from_slice(&json(&Checksum { sha256 }));
        out.push(b'\n');
        out
    }

    /// The manifest of these bytes, stored under `name`.
    ///
    /// Errors: `Damaged`; `Refused` when a later program wrote it.
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

    /// Checks what a restore relies upon: files stay below the folder, and have as many objects as
    /// their sizes say.
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

    /// The names of all its objects; some may come twice.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &str> {
        self.files.iter().flat_map(|file| file.objects.iter().map(String::as_str))
    }
}

/// Whether it is a name as objects have them.
pub(crate) fn is_object(name: &str) -> bool {
    name.len() == 64
        && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Where an object is stored.
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
