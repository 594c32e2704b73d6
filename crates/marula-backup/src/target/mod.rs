//! Targets: storage of bytes under names, in a folder or an object store.
//!
//! Two guarantees: a put is atomic, and a listing shows every completed put. In folders, a synced
//! file is renamed; today's object stores give the same guarantees. Everything else is built on
//! these two.

mod cloud;
mod folder;

use std::path::{Path, PathBuf};

use crate::{Error, Result};
use cloud::Cloud;
use folder::Folder;

/// A stored item in a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Its name, with `/` as the separator.
    pub name: String,
    /// Its stored size in bytes.
    pub bytes: u64,
    /// The time of the put, in milliseconds since 1970 by the target's clock.
    pub put_ms: i64,
}

/// A storage place for backups.
pub struct Target(Storage);

enum Storage {
    Folder(Folder),
    Cloud(Cloud),
}

impl Target {
    /// Opens the target at `address`: a folder's path, `file:///path`, `s3://bucket/prefix`,
    /// `gs://bucket/prefix`, `az://container/prefix`, or another address that `object_store`
    /// supports. Keys and regions come from environment variables with the names of the vendors'
    /// tools (`AWS_ACCESS_KEY_ID`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`).
    ///
    /// Errors: `Refused` if the address is invalid; `Target` if the configuration is incomplete.
    pub fn open(address: &str) -> Result<Target> {
        let storage = match as_folder(address)? {
            Some(path) => Storage::Folder(Folder::new(path)),
            None => Storage::Cloud(Cloud::open(address)?),
        };
        Ok(Target(storage))
    }

    /// Returns whether the target is a folder of this machine, which is as fast as a disk.
    pub fn is_folder(&self) -> bool {
        matches!(self.0, Storage::Folder(_))
    }

    /// Stores `bytes` under `name`; replaces an existing item.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        match &self.0 {
            Storage::Folder(folder) => folder.put(name, &bytes),
            Storage::Cloud(cloud) => cloud.put(name, bytes),
        }
    }

    /// Returns the bytes stored under `name`; `None` if there are none.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match &self.0 {
            Storage::Folder(folder) => folder.get(name),
            Storage::Cloud(cloud) => cloud.get(name),
        }
    }

    /// Returns the items whose names begin with `prefix`, sorted by name. `prefix` ends with `/` or
    /// is empty.
    pub fn list(&self, prefix: &str) -> Result<Vec<Stored>> {
        let mut all = match &self.0 {
            Storage::Folder(folder) => folder.list(prefix)?,
            Storage::Cloud(cloud) => cloud.list(prefix)?,
        };
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Removes the item `name`, if it exists.
    pub fn delete(&self, name: &str) -> Result<()> {
        match &self.0 {
            Storage::Folder(folder) => folder.delete(name),
            Storage::Cloud(cloud) => cloud.delete(name),
        }
    }
}

/// Returns the folder of an address; `None` if it is an object store.
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

/// Returns whether two addresses are of one target, as far as they show it: one folder may be
/// written in several ways. The folder of a target that is in use exists.
pub fn is_same(one: &str, other: &str) -> bool {
    let folders = [one, other].map(|address| as_folder(address).ok().flatten());
    match folders {
        [Some(one), Some(other)] => {
            let real = [one, other].map(|folder| folder.canonicalize().ok());
            real[0].is_some() && real[0] == real[1]
        }
        [None, None] => one.trim_end_matches('/') == other.trim_end_matches('/'),
        _ => false,
    }
}

/// Returns an address for messages: without a password or key that it may contain.
pub fn shown(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // In `abfss://container@account` the part before `@` is a container; a secret follows a colon.
    let host = match host.rsplit_once('@') {
        Some((user, host)) if user.contains(':') => host,
        _ => host,
    };
    format!("{scheme}://{host}{path}")
}

/// Checks the guarantees of a target; each kind of target must pass.
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
    fn one_folder_has_several_addresses() {
        let folder = crate::work::tests::folder();
        let path = folder.path().join("t");
        std::fs::create_dir(&path).expect("it is made");
        let own = path.display().to_string();
        let within = std::path::absolute("x").expect("there is a current folder");
        let ups = "../".repeat(within.components().count() - 2);
        let ways = [
            own.clone(),
            format!("{own}/"),
            format!("{own}/../t"),
            format!("file://{own}"),
            format!("{ups}{}", own.trim_start_matches('/')),
        ];
        for way in &ways {
            assert!(is_same(&own, way), "{way}");
            assert!(!is_same(&folder.path().display().to_string(), way), "{way}");
        }
        assert!(!is_same(&own, "s3://bucket/t"));
        assert!(is_same("s3://bucket/t", "s3://bucket/t/"));
        assert!(!is_same("s3://bucket/t", "s3://bucket/u"));
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
