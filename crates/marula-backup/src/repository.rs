//! A target with backups, and the key that encrypts them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::key::{Hash, Key, hash_of, hex};
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, place_of};
use crate::sealed;
use crate::target::{Target, shown};
use crate::{Error, Result};

/// The file that identifies a target as a repository.
const DESCRIPTION: &str = "repository.json";
/// The prefix of manifests.
const BACKUPS: &str = "backups/";
/// The version of the repository's layout.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Description {
    marula_backups: u32,
    /// The fingerprint of the key, if the repository is encrypted.
    key: Option<String>,
}

/// A target with backups.
pub struct Repository {
    target: Target,
    key: Option<Key>,
    shown: String,
}

/// The readable and the unreadable backups of a repository.
#[derive(Default, Debug)]
pub struct Listing {
    /// The backups, oldest first.
    pub backups: Vec<Manifest>,
    /// Manifests that cannot be read, with their errors.
    pub unreadable: Vec<(String, Error)>,
}

impl Repository {
    /// Opens an existing repository.
    ///
    /// Errors: `Refused` if there is none; `Key` if it was encrypted with another key; `Target`.
    pub fn open(address: &str, key: Option<Key>) -> Result<Repository> {
        let repository = Repository::at(address, key)?;
        match repository.target.get(DESCRIPTION)? {
            Some(description) => repository.check(&description)?,
            None => {
                return Err(Error::Refused(format!(
                    "there are no backups in '{}'",
                    repository.shown
                )));
            }
        }
        Ok(repository)
    }

    /// Opens a repository; creates it if the target is empty.
    ///
    /// Errors: `Refused` if the target has other contents; `Key`; `Target`.
    pub fn open_or_make(address: &str, key: Option<Key>) -> Result<Repository> {
        let repository = Repository::at(address, key)?;
        if let Some(description) = repository.target.get(DESCRIPTION)? {
            repository.check(&description)?;
            return Ok(repository);
        }
        let stored = repository.target.list("")?;
        if stored.is_empty() {
            let key = repository.key.as_ref().map(|key| key.check().to_owned());
            let description = Description { marula_backups: FORMAT, key };
            let bytes = serde_json::to_vec(&description).expect("it has nothing that JSON has not");
            repository.target.put(DESCRIPTION, bytes)?;
        }
        // Another program may have created it at the same time with another key.
        match (repository.target.get(DESCRIPTION)?, stored.first()) {
            (Some(description), _) => repository.check(&description)?,
            (None, stored) => {
                let name = stored.map_or("", |stored| &stored.name);
                return Err(Error::Refused(format!(
                    "'{}' holds other things ('{name}'): choose an empty folder or prefix for backups",
                    repository.shown
                )));
            }
        }
        Ok(repository)
    }

    fn at(address: &str, key: Option<Key>) -> Result<Repository> {
        Ok(Repository { target: Target::open(address)?, key, shown: shown(address) })
    }

    fn check(&self, description: &[u8]) -> Result<()> {
        let shown = &self.shown;
        let description: Description = serde_json::from_slice(description).map_err(|error| {
            Error::Damaged(format!("'{shown}/{DESCRIPTION}' cannot be understood: {error}"))
        })?;
        if description.marula_backups != FORMAT {
            return Err(Error::Refused(format!(
                "'{shown}' has format {}; this program reads format {FORMAT}",
                description.marula_backups
            )));
        }
        match (description.key, &self.key) {
            (None, None) => Ok(()),
            (Some(wanted), Some(key)) if wanted == key.check() => Ok(()),
            (Some(_), Some(_)) => {
                Err(Error::Key(format!("the backups in '{shown}' are encrypted with another key")))
            }
            (Some(_), None) => Err(Error::Key(format!(
                "the backups in '{shown}' are encrypted: say --key-file FILE"
            ))),
            (None, Some(_)) => Err(Error::Key(format!(
                "the backups in '{shown}' are not encrypted: leave out --key-file, or choose another target"
            ))),
        }
    }

    /// Returns the target's address without secrets, for messages.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Stores content under a name; returns the number of bytes sent.
    pub(crate) fn put(&self, name: &str, content: &[u8]) -> Result<usize> {
        self.put_sealed(name, sealed::seal(self.key(), name, content, None)?)
    }

    /// Stores content as the object that its hash names; returns the number of bytes sent.
    pub(crate) fn put_object(&self, hash: Hash, content: &[u8]) -> Result<usize> {
        let place = place_of(&hex(&hash));
        // Without a key, the hash is the SHA-256 that the stored form needs.
        let digest = self.key().is_none().then_some(hash);
        self.put_sealed(&place, sealed::seal(self.key(), &place, content, digest)?)
    }

    fn put_sealed(&self, name: &str, stored: Vec<u8>) -> Result<usize> {
        let bytes = stored.len();
        self.target.put(name, stored)?;
        Ok(bytes)
    }

    /// Returns the content stored under a name, at most `bytes_max` bytes; `None` if there is none.
    pub(crate) fn get(&self, name: &str, bytes_max: usize) -> Result<Option<Vec<u8>>> {
        let Some(stored) = self.target.get(name)? else { return Ok(None) };
        sealed::open(self.key(), name, &stored, bytes_max).map(|opened| Some(opened.content))
    }

    /// Returns the content of an object, `bytes` bytes, verified against its name.
    ///
    /// Errors: `Damaged` if it is missing or differs from its name; `Target`.
    pub(crate) fn get_object(&self, object: &str, bytes: usize) -> Result<Vec<u8>> {
        let place = place_of(object);
        let stored = self.target.get(&place)?.ok_or_else(|| {
            Error::Damaged(format!("object '{place}' is missing in '{}'", self.shown))
        })?;
        let opened = sealed::open(self.key(), &place, &stored, bytes)?;
        // Without a key, opening has computed the hash.
        let hash = opened.digest.unwrap_or_else(|| hash_of(self.key(), &opened.content));
        match opened.content.len() == bytes && hex(&hash) == object {
            true => Ok(opened.content),
            false => Err(Error::Damaged(format!("object '{place}' is not what its name says"))),
        }
    }

    /// Stores a manifest.
    pub(crate) fn put_manifest(&self, manifest: &Manifest) -> Result<()> {
        let name = manifest_name(&manifest.id);
        match self.key {
            // An unencrypted manifest stays readable for people.
            None => self.target.put(&name, manifest.write()),
            Some(_) => self.put(&name, &manifest.write()).map(drop),
        }
    }

    /// Returns the backup with this name.
    ///
    /// Errors: `Refused` if there is none; `Damaged`; `Target`.
    pub fn backup(&self, id: &str) -> Result<Manifest> {
        let is_id =
            !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let stored = if is_id { self.target.get(&manifest_name(id))? } else { None };
        let stored = stored.ok_or_else(|| {
            Error::Refused(format!(
                "there is no backup '{id}' in '{}': 'marula backup list' shows them",
                self.shown
            ))
        })?;
        self.read_manifest(&manifest_name(id), stored)
    }

    fn read_manifest(&self, name: &str, stored: Vec<u8>) -> Result<Manifest> {
        let content = match self.key() {
            None => stored,
            key => sealed::open(key, name, &stored, MANIFEST_BYTES_MAX)?.content,
        };
        let manifest = Manifest::read(name, &content)?;
        match manifest_name(&manifest.id) == name {
            true => Ok(manifest),
            false => Err(Error::Damaged(format!("manifest '{name}' is of '{}'", manifest.id))),
        }
    }

    /// Returns all backups. Manifests that cannot be read do not prevent the listing of others.
    ///
    /// Errors: `Target`.
    pub fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        for stored in self.target.list(BACKUPS)? {
            // A backup that was pruned since the listing is skipped.
            let Some(bytes) = self.target.get(&stored.name)? else { continue };
            match self.read_manifest(&stored.name, bytes) {
                Ok(manifest) => listing.backups.push(manifest),
                Err(error) => listing.unreadable.push((stored.name, error)),
            }
        }
        listing.backups.sort_by_key(|manifest| manifest.moment.until_us);
        Ok(listing)
    }

    /// Returns the stored objects with their sizes in bytes.
    pub(crate) fn objects(&self) -> Result<HashMap<String, u64>> {
        let stored = self.target.list("objects/")?;
        let all = stored.into_iter().filter_map(|stored| {
            let object = stored.name.rsplit('/').next()?.to_owned();
            crate::manifest::is_object(&object).then_some((object, stored.bytes))
        });
        Ok(all.collect())
    }

    /// Removes a manifest.
    pub(crate) fn forget(&self, id: &str) -> Result<()> {
        self.target.delete(&manifest_name(id))
    }
}

fn manifest_name(id: &str) -> String {
    format!("{BACKUPS}{id}.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::manifest;
    use crate::work::tests::folder;

    #[test]
    fn a_repository_is_opened_with_its_key_alone() {
        let outer = folder();
        let key = |byte| Some(Key::new(&[byte; 32]));
        for (name, own, others) in
            [("plain", None, [key(1), key(2)]), ("encrypted", key(1), [None, key(2)])]
        {
            let address = outer.path().join(name).display().to_string();
            assert!(matches!(Repository::open(&address, own.clone()), Err(Error::Refused(_))));
            let repository = Repository::open_or_make(&address, own.clone()).expect("it is made");
            let backup = manifest("a", 5, vec!["0".repeat(64)]);
            repository.put_manifest(&backup).expect("it is put");
            let again = Repository::open(&address, own).expect("it is opened");
            assert_eq!(again.backup("a").expect("it is read"), backup);
            assert_eq!(again.list().expect("it is listed").backups, [backup]);
            for id in ["b", "", "../a", "a.json"] {
                assert!(matches!(again.backup(id), Err(Error::Refused(_))), "{id}");
            }
            for other in others {
                for opened in [
                    Repository::open(&address, other.clone()),
                    Repository::open_or_make(&address, other),
                ] {
                    assert!(matches!(opened, Err(Error::Key(_))), "{name}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_repository_is_left_alone() {
        let outer = folder();
        std::fs::write(outer.path().join("notes.txt"), b"x").expect("it is written");
        let address = outer.path().display().to_string();
        assert!(matches!(Repository::open_or_make(&address, None), Err(Error::Refused(_))));
        assert_eq!(std::fs::read_dir(outer.path()).expect("it is read").count(), 1);
        std::fs::write(outer.path().join(DESCRIPTION), b"{").expect("it is written");
        assert!(matches!(Repository::open(&address, None), Err(Error::Damaged(_))));
    }

    #[test]
    fn a_manifest_that_cannot_be_read_does_not_hide_the_others() {
        let outer = folder();
        let address = outer.path().display().to_string();
        let repository = Repository::open_or_make(&address, None).expect("it is made");
        repository.put_manifest(&manifest("a", 5, Vec::new())).expect("it is put");
        repository.put_manifest(&manifest("b", 3, Vec::new())).expect("it is put");
        let (from, to) = (outer.path().join("backups/a.json"), outer.path().join("backups/c.json"));
        std::fs::copy(from, to).expect("it is copied");
        let listing = repository.list().expect("it is listed");
        let ids: Vec<_> = listing.backups.iter().map(|backup| backup.id.as_str()).collect();
        assert_eq!(ids, ["b", "a"]);
        assert!(
            matches!(&listing.unreadable[..], [(name, Error::Damaged(_))] if name == "backups/c.json")
        );
    }
}
