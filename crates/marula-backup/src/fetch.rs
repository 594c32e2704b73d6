//! Restores the files of a backup.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::manifest::{Manifest, OBJECT_BYTES};
use crate::repository::Repository;
use crate::{Error, Progress, Result, work};

/// Writes the files of a backup into the folder `to`, on at most `threads` threads, and syncs them.
/// The content of each object is verified against its name.
///
/// Errors: `Damaged` if an object is missing or differs from its name; `Io`; `Target`; `Ended`.
pub fn fetch(
    repository: &Repository,
    backup: &Manifest,
    to: &Path,
    threads: usize,
    progress: &Progress,
) -> Result<()> {
    progress.begin(backup.bytes);
    let mut parts = Vec::new();
    for file in &backup.files {
        let path = to.join(&file.name);
        let folder = path.parent().expect("a file is below the folder");
        fs::create_dir_all(folder).map_err(|error| Error::file("make", folder, &error))?;
        File::create(&path)
            .and_then(|created| created.set_len(file.bytes))
            .map_err(|error| Error::file("write", &path, &error))?;
        parts.extend(file.objects.iter().enumerate().map(|(number, object)| {
            let at = number as u64 * OBJECT_BYTES as u64;
            (file, object, at, (file.bytes - at).min(OBJECT_BYTES as u64) as usize)
        }));
    }
    work::each(&parts, threads, progress, |&(file, object, at, bytes)| {
        let content = repository.get_object(object, bytes)?;
        let path = to.join(&file.name);
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.write_all_at(&content, at))
            .map_err(|error| Error::file("write", &path, &error))?;
        progress.add_done(bytes);
        Ok(())
    })?;
    sync(backup, to)
}

/// Verifies every object of a backup against its name without writing files.
///
/// Errors: those of [`fetch`].
pub fn compare(
    repository: &Repository,
    backup: &Manifest,
    threads: usize,
    progress: &Progress,
) -> Result<()> {
    progress.begin(backup.bytes);
    let mut parts = BTreeSet::new();
    for file in &backup.files {
        parts.extend(file.objects.iter().enumerate().map(|(number, object)| {
            let at = number as u64 * OBJECT_BYTES as u64;
            (object, (file.bytes - at).min(OBJECT_BYTES as u64) as usize)
        }));
    }
    let parts: Vec<_> = parts.into_iter().collect();
    work::each(&parts, threads, progress, |&(object, bytes)| {
        repository.get_object(object, bytes)?;
        progress.add_done(bytes);
        Ok(())
    })
}

fn sync(backup: &Manifest, to: &Path) -> Result<()> {
    let mut folders = BTreeSet::from([to.to_path_buf()]);
    for file in &backup.files {
        let path = to.join(&file.name);
        sync_one(&path)?;
        folders.extend(path.parent().map(Path::to_path_buf));
    }
    folders.iter().try_for_each(|folder| sync_one(folder))
}

fn sync_one(path: &Path) -> Result<()> {
    let synced: io::Result<()> = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| Error::file("sync", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::tests::source;
    use crate::create::{Extent, Known, create};
    use crate::key::Key;
    use crate::manifest::place_of;
    use crate::work::tests::folder;

    #[test]
    fn missing_and_damaged_objects_are_told() {
        for key in [None, Some(Key::new(&[1; 32]))] {
            let (data, target, back) = (folder(), folder(), folder());
            let address = target.path().join("t").display().to_string();
            let repository = Repository::open_or_make(&address, key).expect("it is made");
            fs::write(data.path().join("000001.sst"), b"some content").expect("it is written");
            let (source, progress) = (source(data.path(), 1), Progress::default());
            let backup =
                create(&repository, &source, Extent::Incremental, &Known::default(), 1, &progress)
                    .expect("it is made");
            compare(&repository, &backup, 2, &progress).expect("it is whole");
            let object = target.path().join("t").join(place_of(&backup.files[0].objects[0]));
            let whole = fs::read(&object).expect("it is read");
            let check = |words: &str| {
                for outcome in [
                    compare(&repository, &backup, 2, &progress),
                    fetch(&repository, &backup, &back.path().join("b"), 2, &progress),
                ] {
                    match outcome {
                        Err(Error::Damaged(text)) => assert!(text.contains(words), "{text}"),
                        other => panic!("{words}: {other:?}"),
                    }
                }
            };
            let mut damaged = whole.clone();
            *damaged.last_mut().expect("it has bytes") ^= 1;
            fs::write(&object, &damaged).expect("it is written");
            check("objects/");
            fs::write(&object, &whole[..whole.len() - 1]).expect("it is written");
            check("is cut off");
            fs::remove_file(&object).expect("it is removed");
            check("is missing");
            // A valid object with other content under this name.
            let other = repository.put(&place_of(&"0".repeat(64)), b"some content").map(drop);
            other.expect("it is put");
            fs::copy(target.path().join("t").join(place_of(&"0".repeat(64))), &object)
                .expect("it is copied");
            if repository.key().is_some() {
                check("was changed");
            }
            repository
                .put(&place_of(&backup.files[0].objects[0]), b"Some content")
                .expect("it is put");
            check("is not what its name says");
        }
    }
}
