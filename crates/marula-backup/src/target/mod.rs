//! Where backups are kept: bytes under names, in a folder or an object store.
//!
//! A put is whole or not there, a listing shows every put that has ended: folders rename a synced
//! file into place, and the object stores of today promise the same. Everything else is built on
//! these two.

mod cloud;
mod folder;

use std::path::{Path, PathBuf};

use crate::{Error, Result};
use cloud::Cloud;
use folder::Folder;

/// One stored thing, as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Its name, with `/` between the parts.
    pub name: String,
    /// How many bytes are stored.
    pub bytes: u64,
    /// When it was put, in milliseconds since 1970 by the target's own clock.
    pub put_ms: i64,
}

/// A place for backups.
pub struct Target(Place);

enum Place {
    Folder(Folder),
    Cloud(Cloud),
}

impl Target {
    /// The target at `address`: a folder's path, `file:///path`, `s3://bucket/prefix`,
    /// `gs://bucket/prefix`, `az://container/prefix` and the other addresses that `object_store`
    /// knows. Keys and regions come from the environment, by the names of the makers' tools
    /// (`AWS_ACCESS_KEY_ID`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`).
    ///
    /// Errors: `Refused` when the address is none; `Target` when what it needs is missing.
    pub fn open(address: &str) -> Result<Target> {
        let place = match as_folder(address)? {
            Some(path) => Place::Folder(Folder::new(path)),
            None => Place::Cloud(Cloud::open(address)?),
        };
        Ok(Target(place))
    }

    /// Whether it is a folder of this machine: then it is as quick as a disk.
    pub fn is_folder(&self) -> bool {
        matches!(self.0, Place::Folder(_))
    }

    /// Stores `bytes` under `name`, in place of what was there.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        match &self.0 {
            Place::Folder(folder) => folder.put(name, &bytes),
            Place::Cloud(cloud) => cloud.put(name, bytes),
        }
    }

    /// What is stored under `name`; `None` where nothing is.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match &self.0 {
            Place::Folder(folder) => folder.get(name),
            Place::Cloud(cloud) => cloud.get(name),
        }
    }

    /// Everything whose name begins with `prefix`, which ends with `/` or is empty, by name.
    pub fn list(&self, prefix: &str) -> Result<Vec<Stored>> {
        let mut all = match &self.0 {
            Place::Folder(folder) => folder.list(prefix)?,
            Place::Cloud(cloud) => cloud.list(prefix)?,
        };
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Removes what is stored under `name`, if anything is.
    pub fn delete(&self, name: &str) -> Result<()> {
        match &self.0 {
            Place::Folder(folder) => folder.delete(name),
            Place::Cloud(cloud) => cloud.delete(name),
        }
    }
}

/// The folder that an address names; `None` where it names an object store.
fn as_folder(address: &str) -> Result<Option<PathBuf>> {
    if address.is_empty() {
        return Err(Error::Refused(
            "a target is a folder or an address such as s3://bucket/prefix".to_owned(),
        ));
    }
    let Some((scheme, rest)) = address.split_once("://") else {
        return Ok(Some(PathBuf::from(address)));
    };
    if scheme != "file" {
        return Ok(None);
    }
    match Path::new(rest).is_absolute() {
        true => Ok(Some(PathBuf::from(rest))),
        false => Err(Error::Refused(format!("'{address}' has no absolute path: file:///path"))),
    }
}

/// An address as it stands where others read it: without a password or key that someone put into
/// it.
pub fn shown(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // `abfss://container@account` names a container; a secret stands after a colon.
    let host = match host.rsplit_once('@') {
        Some((user, host)) if user.contains(':') => host,
        _ => host,
    };
    format!("{scheme}://{host}{path}")
}

/// A repository and everything in it of its own: what every kind of target must keep.
#[cfg(test)]
pub(crate) fn check_promises(target: &Target) {
    assert_eq!(target.list("").expect("it is listed"), []);
    assert_eq!(target.get("a/b").expect("it is read"), None);
    target.put("a/b", b"one".to_vec()).expect("it is put");
    target.put("a/c/d", vec![7; 100_000]).expect("it is put");
    target.put("ab", Vec::new()).expect("it is put");
    target.put("a/b", b"another".to_vec()).expect("it is put again");
    assert_eq!(target.get("a/b").expect("it is read").as_deref(), Some(&b"another"[..]));
    let names = |prefix: &str| -> Vec<(String, u64)> {
        let all = target.list(prefix).expect("it is listed");
        assert!(all.iter().all(|stored| stored.put_ms > 0));
        all.into_iter().map(|stored| (stored.name, stored.bytes)).collect()
    };
    assert_eq!(names("a/"), [("a/b".to_owned(), 7), ("a/c/d".to_owned(), 100_000)]);
    assert_eq!(names("").len(), 3);
    assert_eq!(names("none/"), []);
    target.delete("a/b").expect("it is removed");
    target.delete("a/b").expect("it may be gone");
    assert_eq!(target.get("a/b").expect("it is read"), None);
    assert_eq!(names("a/"), [("a/c/d".to_owned(), 100_000)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_folders_or_stores() {
        for (address, path) in [("/x", "/x"), ("x/y", "x/y"), ("file:///x", "/x")] {
            assert_eq!(as_folder(address).expect("it is one"), Some(PathBuf::from(path)));
        }
        for address in ["", "file://x"] {
            assert!(as_folder(address).is_err(), "{address}");
        }
        assert_eq!(as_folder("s3://x/y").expect("it is one"), None);
        for address in ["nope://x", "s3://", "http://", "://"] {
            assert!(Target::open(address).is_err(), "{address}");
        }
    }

    #[test]
    fn secrets_of_an_address_are_not_shown() {
        for (address, expected) in [
            ("/a/b", "/a/b"),
            ("s3://bucket/prefix", "s3://bucket/prefix"),
            ("s3://key:secret@bucket/prefix?token=x", "s3://bucket/prefix"),
            (
                "abfss://container@account.dfs.core.windows.net/x",
                "abfss://container@account.dfs.core.windows.net/x",
            ),
        ] {
            assert_eq!(shown(address), expected);
        }
    }
}
