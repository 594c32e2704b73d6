//! Creates a backup: sends the objects that the target does not have yet, then the manifest.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};

use crate::key::{hash_of, hex};
use crate::manifest::{FORMAT, FileEntry, LogStart, Manifest, Moment, OBJECT_BYTES};
use crate::repository::Repository;
use crate::underway::{Announcement, Work};
use crate::{Error, Progress, Result, work};

/// A file to back up. It must not change until the backup is complete.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path relative to the data folder, with `/` as the separator.
    pub name: String,
    /// The path to read it from.
    pub path: PathBuf,
}

/// The contents of a backup.
pub struct Source {
    /// The files.
    pub files: Vec<SourceFile>,
    /// The time of the files' contents.
    pub moment: Moment,
    /// The start of the log that continues from the files.
    pub log: Option<LogStart>,
    /// The program that creates the backup, for the manifest.
    pub program: String,
    /// The machine and the data folder, for the manifest.
    pub origin: String,
}

/// The objects that a backup sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Only objects that the target does not have.
    Incremental,
    /// All objects, also those that the target has. This repairs damaged objects.
    Full,
}

/// A cache of the objects of files that were read before. An unchanged file is not read again. A
/// cache belongs to one repository.
#[derive(Default)]
pub struct Known(Mutex<HashMap<Identity, Vec<String>>>);

/// The identity of a file in the file system. Table files are written once, so files with the same
/// identity have the same contents.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// A part of a file that becomes one object.
struct Part {
    file: usize,
    number: usize,
    bytes: usize,
}

/// Creates a backup on at most `threads` threads.
///
/// Errors: `Io` if a file cannot be read; `Target`; `Refused` if a pruning takes too long; `Ended`
/// if `progress` was cancelled.
pub fn create(
    repository: &Repository,
    source: &Source,
    extent: Extent,
    known: &Known,
    threads: usize,
    progress: &Progress,
) -> Result<Manifest> {
    let mut files = Vec::new();
    let mut opened = Vec::new();
    for SourceFile { name, path } in &source.files {
        let wrong = |error: io::Error| Error::file("read", path, &error);
        let file = File::open(path).map_err(wrong)?;
        let metadata = file.metadata().map_err(wrong)?;
        files.push(FileEntry { name: name.clone(), bytes: metadata.len(), objects: Vec::new() });
        opened.push((path, file, Identity::of(&metadata)));
    }
    let bytes = files.iter().map(|file| file.bytes).sum();
    progress.begin(bytes);
    let id = new_id(source.moment.from_us)?;
    let announcement = Announcement::make(repository, Work::Backup, &id)?;
    announcement.wait_for_prunings(progress)?;
    // The listing comes after the announcement: from then on, no pruning removes objects until this
    // backup is complete.
    let present = repository.objects()?;
    let sent: Mutex<HashSet<String>> = Mutex::default();
    let names: Vec<Mutex<Vec<String>>> = files
        .iter()
        .map(|file| {
            Mutex::new(vec![String::new(); file.bytes.div_ceil(OBJECT_BYTES as u64) as usize])
        })
        .collect();
    let mut parts = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let known = known.0.lock().get(&opened[number].2).cloned();
        if let Some(objects) = known
            && extent == Extent::Incremental
            && objects.iter().all(|object| present.contains_key(object))
        {
            *names[number].lock() = objects;
            progress.add_done(usize::try_from(file.bytes).unwrap_or(usize::MAX));
            continue;
        }
        parts.extend(parts_of(number, file.bytes));
    }
    work::each(&parts, threads, progress, |part| {
        announcement.renew()?;
        let (path, file, _) = &opened[part.file];
        let mut content = vec![0; part.bytes];
        file.read_exact_at(&mut content, (part.number * OBJECT_BYTES) as u64)
            .map_err(|error| Error::file("read", path, &error))?;
        let hash = hash_of(repository.key(), &content);
        let object = hex(&hash);
        let is_there = extent == Extent::Incremental && present.contains_key(&object);
        // Of equal parts only one is sent.
        if !is_there && sent.lock().insert(object.clone()) {
            progress.add_sent(repository.put_object(hash, &content)?);
        }
        names[part.file].lock()[part.number] = object;
        progress.add_done(part.bytes);
        Ok(())
    })?;
    let mut remembered = HashMap::new();
    for ((file, names), (_, _, identity)) in files.iter_mut().zip(names).zip(opened) {
        file.objects = names.into_inner();
        if file.name.ends_with(".sst") {
            remembered.insert(identity, file.objects.clone());
        }
    }
    let manifest = Manifest {
        format: FORMAT,
        id,
        moment: source.moment,
        program: source.program.clone(),
        origin: source.origin.clone(),
        log: source.log.clone(),
        files,
        bytes,
        sent_bytes: progress.sent(),
        sent_objects: progress.objects(),
    };
    if progress.is_ended() {
        return Err(Error::Ended);
    }
    repository.put_manifest(&manifest)?;
    *known.0.lock() = remembered;
    Ok(manifest)
}

impl SourceFile {
    /// Returns the files directly in `folder`; their names begin with `prefix`.
    ///
    /// Errors: `Io`.
    pub fn in_folder(folder: &Path, prefix: &str) -> Result<Vec<SourceFile>> {
        let wrong = |error: io::Error| Error::file("read", folder, &error);
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            if entry.file_type().map_err(wrong)?.is_file() {
                let name = entry.file_name();
                let name = name.to_str().ok_or_else(|| {
                    Error::Refused(format!(
                        "'{}' has a name that is no text",
                        entry.path().display()
                    ))
                })?;
                files.push(SourceFile { name: format!("{prefix}{name}"), path: entry.path() });
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }
}

impl Identity {
    fn of(metadata: &fs::Metadata) -> Identity {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

fn parts_of(file: usize, bytes: u64) -> impl Iterator<Item = Part> {
    let count = bytes.div_ceil(OBJECT_BYTES as u64);
    (0..count).map(move |number| {
        let bytes = (bytes - number * OBJECT_BYTES as u64).min(OBJECT_BYTES as u64) as usize;
        Part { file, number: number as usize, bytes }
    })
}

/// Returns a new name from the time and random digits.
fn new_id(now_us: i64) -> Result<String> {
    let mut random = [0; 2];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| Error::Io("the system gives no random bytes".to_owned()))?;
    let now = jiff::Timestamp::from_microsecond(now_us).unwrap_or_default();
    Ok(format!("{}-{}", now.strftime("%Y-%m-%dT%H%M%SZ"), hex(&random)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fetch::fetch;
    use crate::key::Key;
    use crate::work::tests::{OwnFolder, folder, repository_in};

    pub(crate) fn source(folder: &Path, until_us: i64) -> Source {
        Source {
            files: SourceFile::in_folder(folder, "store/").expect("it is read"),
            moment: Moment { from_us: until_us, until_us },
            log: None,
            program: "test".to_owned(),
            origin: "here:/data".to_owned(),
        }
    }

    fn write(folder: &OwnFolder, name: &str, bytes: &[u8]) {
        fs::write(folder.path().join(name), bytes).expect("it is written");
    }

    #[test]
    fn what_was_backed_up_comes_back_and_only_new_files_travel() {
        for key in [None, Some(Key::new(&[1; 32]))] {
            let (data, target, back) = (folder(), folder(), folder());
            let address = target.path().join("t").display().to_string();
            let repository = Repository::open_or_make(&address, key).expect("it is made");
            let large: Vec<u8> = (0..OBJECT_BYTES as u32 / 3).flat_map(u32::to_le_bytes).collect();
            write(&data, "000001.sst", &large);
            write(&data, "CURRENT", b"x");
            write(&data, "empty", b"");
            let known = Known::default();
            let backup = |extent, now| {
                let progress = Progress::default();
                let source = source(data.path(), now);
                create(&repository, &source, extent, &known, 2, &progress).expect("it is made")
            };
            let first = backup(Extent::Incremental, 1);
            assert_eq!((first.sent_objects, first.bytes), (3, large.len() as u64 + 1));
            write(&data, "000002.sst", b"new");
            let second = backup(Extent::Incremental, 2);
            assert_eq!(second.sent_objects, 1);
            assert!(second.sent_bytes < 200);
            assert_eq!(backup(Extent::Full, 3).sent_objects, 4);
            for (backup, count) in [(&first, 3), (&second, 4)] {
                let to = back.path().join(&backup.id);
                fetch(&repository, backup, &to, 2, &Progress::default()).expect("it comes back");
                assert_eq!(fs::read_dir(to.join("store")).expect("it is read").count(), count);
                assert!(fs::read(to.join("store/000001.sst")).expect("it is read") == large);
                assert_eq!(fs::read(to.join("store/empty")).expect("it is read"), b"");
            }
        }
    }

    #[test]
    fn a_backup_that_is_ended_is_not_there() {
        let (data, target) = (folder(), folder());
        let repository = repository_in(&target);
        write(&data, "CURRENT", b"x");
        let progress = Progress::default();
        progress.end();
        let source = source(data.path(), 1);
        let ended =
            create(&repository, &source, Extent::Incremental, &Known::default(), 2, &progress);
        assert!(matches!(ended, Err(Error::Ended)));
        assert!(repository.list().expect("it is listed").backups.is_empty());
        assert_eq!(repository.target().list("underway/").expect("it is listed"), []);
    }
}
