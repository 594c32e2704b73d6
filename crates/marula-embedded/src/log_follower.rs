//! Reading the log of a store in use, write by write, to keep it elsewhere.
//!
//! Writes are numbered without holes: each entry of a write has the next number. So a follower that
//! knows the number after the last write that it has seen knows whether it misses one. A
//! missed write is lost for good: the log was removed before it was read, and a *run* of the log
//! ends.
//!
//! ```text
//! <folder>/FOLLOWED        the run's name and the marker's device and number: a copy of the folder
//!                          is another run; gone once the store was opened without following it
//! <folder>/store/*.log     the log that the store needs
//! <folder>/store/archive/  log that it does not need any more, kept for a while
//! ```

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use marula_storage::{Error, Result, View};

use crate::Embedded;
use crate::clock::{Clock, system_us};
use crate::folder::MARKER;
use crate::log_scan::{
    BLOCK_BYTES, FIRST, HEADER_BYTES, LAST, MIDDLE, WHOLE, numbered_log_files, record,
};

/// The file that names the run.
const FOLLOWED: &str = "FOLLOWED";
/// The longest write that is read: commits are bounded by a gigabyte, and a few may be written as
/// one.
const WRITE_BYTES_MAX: usize = 4 << 30;
/// The longest name of a run.
const RUN_BYTES_MAX: usize = 64;

/// A write of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged<'l> {
    /// The number of its first entry.
    pub first: u64,
    /// The number of its last entry.
    pub last: u64,
    /// All of it, for [`Embedded::replay`].
    pub bytes: &'l [u8],
}

/// Where a follower has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// To the next write.
    Write,
    /// Nowhere: it has read all that was asked for.
    UpToDate,
    /// Nowhere: the next write is not there any more. The run has ended.
    Hole,
}

/// Reads the log of one store.
pub struct LogFollower {
    store: PathBuf,
    /// The number of the next write.
    next: u64,
    file: Option<LogFile>,
}

/// A log file that is being read.
struct LogFile {
    number: u64,
    file: File,
    /// Where the next record begins.
    at: u64,
    /// The block that was read last: where it begins, and as much of it as there was.
    block: (u64, Vec<u8>),
    /// A write of which the first parts have been read.
    write: Vec<u8>,
    is_in_write: bool,
}

impl Embedded {
    /// Reads the log from the write after the number `after` on. The store must have been opened
    /// with [`EmbeddedOptions::keeps_log`](crate::EmbeddedOptions::keeps_log). Commits have no
    /// times before `not_before_us` from now on: the newest time that was seen of this run.
    ///
    /// Errors: `Unavailable` when the log is not kept.
    pub fn follow_log(&self, after: u64, not_before_us: i64) -> Result<LogFollower> {
        self.check_open()?;
        let clock = self.engine.clock.as_ref().ok_or_else(not_kept)?;
        clock.not_before(not_before_us);
        Ok(LogFollower { store: self.engine.folder.store(), next: after + 1, file: None })
    }

    /// The name of this run of the log.
    ///
    /// Errors: `Unavailable` when the log is not kept.
    pub fn log_run(&self) -> Result<String> {
        self.engine.run.lock().clone().ok_or_else(not_kept)
    }

    /// Begins another run of the log, after a hole in the one before.
    ///
    /// Errors: `Unavailable` when the log is not kept; `Io`.
    pub fn begin_log_run(&self) -> Result<String> {
        let mut run = self.engine.run.lock();
        if run.is_none() {
            return Err(not_kept());
        }
        let begun = begin_run(self.engine.folder.path())?;
        *run = Some(begun.clone());
        Ok(begun)
    }

    /// The time by the clock of commits, in microseconds since 1970, and then the number of the
    /// newest write: every commit that was acknowledged before that time has at most that number.
    pub fn log_position(&self) -> (i64, u64) {
        let now_us = self.engine.clock.as_ref().map_or_else(system_us, Clock::now_us);
        (now_us, self.moment().version)
    }
}

/// The run of a folder whose log is followed: the one that was begun, or a new one.
pub(crate) fn continue_run(folder: &Path) -> io::Result<String> {
    match fs::read_to_string(folder.join(FOLLOWED)) {
        Ok(text) => match text.trim_end().split_once(' ') {
            Some((run, place)) if is_run(run) && place == place_of(folder)? => Ok(run.to_owned()),
            _ => begin_run(folder),
        },
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
            begin_run(folder)
        }
        Err(error) => Err(error),
    }
}

/// Ends the run of a folder whose log is not followed: from now on it has a hole.
pub(crate) fn end_run(folder: &Path) -> io::Result<()> {
    let remove = |outcome: io::Result<()>| match outcome {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    remove(fs::remove_file(folder.join(FOLLOWED)))?;
    remove(fs::remove_dir_all(folder.join("store/archive")))
}

fn begin_run(folder: &Path) -> io::Result<String> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    let random = RandomState::new().hash_one(std::process::id());
    let run = format!("{seconds:010}-{random:016x}");
    let unfinished = folder.join(".FOLLOWED");
    fs::write(&unfinished, format!("{run} {}\n", place_of(folder)?))?;
    File::open(&unfinished)?.sync_all()?;
    fs::rename(&unfinished, folder.join(FOLLOWED))?;
    File::open(folder)?.sync_all()?;
    Ok(run)
}

/// Where a folder is, so that a copy of it is distinguished from it.
fn place_of(folder: &Path) -> io::Result<String> {
    let marker = fs::metadata(folder.join(MARKER))?;
    Ok(format!("{}:{}", marker.dev(), marker.ino()))
}

fn is_run(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= RUN_BYTES_MAX && text.bytes().all(is_plain)
}

fn not_kept() -> Error {
    Error::Unavailable("the log of this store is not kept".to_owned())
}

impl LogFollower {
    /// The number of the last write that was read.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    /// Moves to the next write, if its number is at most `until`.
    ///
    /// Errors: `Io`.
    pub fn advance(&mut self, until: u64) -> Result<Moved> {
        if self.next <= until && self.file.is_none() {
            self.file = first_file(&self.store, self.next)?;
        }
        while self.next <= until {
            let Some(file) = &mut self.file else { return Ok(Moved::Hole) };
            if !file.read_write()? {
                let number = file.number;
                self.file = next_file(&self.store, number)?;
                continue;
            }
            let Some((first, count)) = numbers(&file.write) else { return Ok(Moved::Hole) };
            // Notes alone have no number.
            let Some(last) = (first + count).checked_sub(1).filter(|_| count > 0) else { continue };
            if last < self.next {
                continue;
            }
            if first != self.next {
                return Ok(Moved::Hole);
            }
            self.next = last + 1;
            return Ok(Moved::Write);
        }
        Ok(Moved::UpToDate)
    }

    /// The write that [`LogFollower::advance`] has moved to. Panics when it has moved to none.
    pub fn write(&self) -> Logged<'_> {
        let bytes = &self.file.as_ref().expect("it has moved to a write").write[..];
        let (first, count) = numbers(bytes).expect("the write was looked at");
        Logged { first, last: first + count - 1, bytes }
    }
}

impl LogFile {
    fn open(number: u64, path: &Path) -> io::Result<LogFile> {
        let file = File::open(path)?;
        let block = (0, Vec::new());
        Ok(LogFile { number, file, at: 0, block, write: Vec::new(), is_in_write: false })
    }

    /// Reads the next write into `write`; answers whether there is one that is whole.
    fn read_write(&mut self) -> Result<bool> {
        loop {
            let in_block = (self.at % BLOCK_BYTES as u64) as usize;
            let begin = self.at - in_block as u64;
            if BLOCK_BYTES - in_block < HEADER_BYTES {
                self.at = begin + BLOCK_BYTES as u64;
                continue;
            }
            if self.block.0 != begin || self.found(in_block).is_none() {
                self.read_block(begin)?;
            }
            let Some((kind, from, to)) = self.found(in_block) else { return Ok(false) };
            self.at = begin + to as u64;
            let payload = &self.block.1[from..to];
            match kind {
                WHOLE | FIRST => {
                    self.write.clear();
                    self.write.extend_from_slice(payload);
                    self.is_in_write = kind == FIRST;
                    if kind == WHOLE {
                        return Ok(true);
                    }
                }
                MIDDLE | LAST if self.is_in_write => {
                    if self.write.len() + payload.len() > WRITE_BYTES_MAX {
                        return Err(Error::TooLarge);
                    }
                    self.write.extend_from_slice(payload);
                    self.is_in_write = kind == MIDDLE;
                    if kind == LAST {
                        return Ok(true);
                    }
                }
                // Notes of RocksDB's own, and parts of nothing: what is missed is noticed by its
                // number.
                _ => {}
            }
        }
    }

    /// The kind of the record at this place of the block, and where its payload begins and ends.
    fn found(&self, in_block: usize) -> Option<(u8, usize, usize)> {
        let (kind, payload) = record(self.block.1.get(in_block..)?)?;
        let from = in_block + HEADER_BYTES;
        Some((kind, from, from + payload.len()))
    }

    fn read_block(&mut self, begin: u64) -> Result<()> {
        let (at, block) = &mut self.block;
        *at = begin;
        block.resize(BLOCK_BYTES, 0);
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match self.file.read_at(&mut block[filled..], begin + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        block.truncate(filled);
        Ok(())
    }
}

/// The number of a write's first entry, and how many it has.
fn numbers(write: &[u8]) -> Option<(u64, u64)> {
    let first = u64::from_le_bytes(write.get(..8)?.try_into().ok()?);
    let count = u32::from_le_bytes(write.get(8..12)?.try_into().ok()?);
    first.checked_add(count.into())?;
    Some((first, count.into()))
}

/// The log files that there are, needed or not, by their numbers.
fn all_files(store: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut files = numbered_log_files(&store.join("archive"))?;
    files.extend(numbered_log_files(store)?);
    files.sort();
    Ok(files)
}

/// Opens a file that may be moved to the archive at this moment; `None` when it is gone.
fn open_moving(store: &Path, number: u64, path: &Path) -> Result<Option<LogFile>> {
    let name = path.file_name().expect("a log file has a name");
    for path in [path, &store.join("archive").join(name)] {
        match LogFile::open(number, path) {
            Ok(file) => return Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The file that holds the write of this number, or will: the last one that begins before it.
fn first_file(store: &Path, number: u64) -> Result<Option<LogFile>> {
    let mut oldest = None;
    for (file_number, path) in all_files(store)?.into_iter().rev() {
        let Some(mut file) = open_moving(store, file_number, &path)? else { continue };
        if file.read_write()? && numbers(&file.write).is_some_and(|(first, _)| first <= number) {
            return Ok(Some(LogFile::open_again(file)));
        }
        oldest = Some(LogFile::open_again(file));
    }
    Ok(oldest)
}

fn next_file(store: &Path, number: u64) -> Result<Option<LogFile>> {
    for (next, path) in all_files(store)? {
        if next > number
            && let Some(file) = open_moving(store, next, &path)?
        {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

impl LogFile {
    /// The same file, read from its beginning.
    fn open_again(file: LogFile) -> LogFile {
        LogFile { at: 0, is_in_write: false, ..file }
    }
}

#[cfg(test)]
mod tests {
    use marula_storage::contract::Folder;
    use marula_storage::{Space, Store};

    use super::*;
    use crate::EmbeddedOptions;

    fn open(folder: &Path, keeps_log: bool) -> Embedded {
        let mut options = EmbeddedOptions::new(folder);
        options.keeps_log = keeps_log;
        // Memtables fill every few hundred writes: the log has many files.
        options.memtable_bytes = 64 << 10;
        Embedded::open(options).expect("the store opens")
    }

    fn write(store: &Embedded, number: u64, bytes: usize) {
        let mut txn = store.begin();
        txn.put(Space::Records, &number.to_be_bytes(), &vec![number as u8; bytes]);
        txn.put(Space::Indexes, &number.to_be_bytes(), b"");
        txn.commit().expect("it is written");
    }

    /// Reads all that there is; returns how many writes that were, or nothing where there is a
    /// hole.
    fn read(store: &Embedded, follower: &mut LogFollower) -> Option<usize> {
        let (mut count, mut next) = (0, follower.last() + 1);
        let newest = store.log_position().1;
        loop {
            match follower.advance(newest).expect("it is read") {
                Moved::Hole => return None,
                Moved::UpToDate => return Some(count),
                Moved::Write => {
                    assert_eq!(follower.write().first, next);
                    next = follower.write().last + 1;
                    count += 1;
                }
            }
        }
    }

    #[test]
    fn every_write_is_read_once_over_files_and_restarts() {
        let folder = Folder::new();
        let store = open(folder.path(), true);
        let run = store.log_run().expect("it has a run");
        let mut follower = store.follow_log(store.log_position().1, 0).expect("it is followed");
        let mut number = 0;
        for round in 0..40_usize {
            for bytes in [1, 100, 3000, 40_000, round * 977] {
                write(&store, number, bytes);
                number += 1;
            }
            assert_eq!(read(&store, &mut follower), Some(5), "round {round}");
        }
        let last = follower.last();
        for _ in 0..50 {
            write(&store, number, 3000);
            number += 1;
        }
        drop(store);
        let store = open(folder.path(), true);
        assert_eq!(store.log_run().expect("it has a run"), run);
        write(&store, number, 10);
        let mut follower = store.follow_log(last, 0).expect("it is followed");
        assert_eq!(read(&store, &mut follower), Some(51));
        assert_eq!(read(&store, &mut follower), Some(0));
        let mut all = store.follow_log(0, 0).expect("it is followed");
        assert_eq!(read(&store, &mut all), Some(251));
    }

    #[test]
    fn a_hole_ends_the_run() {
        let folder = Folder::new();
        let store = open(folder.path(), true);
        let run = store.log_run().expect("it has a run");
        write(&store, 1, 10);
        drop(store);
        let store = open(folder.path(), false);
        assert!(store.log_run().is_err() && store.follow_log(0, 0).is_err());
        for number in 0..100 {
            write(&store, number, 3000);
        }
        drop(store);
        let store = open(folder.path(), true);
        let second = store.log_run().expect("it has a run");
        assert_ne!(second, run);
        let mut follower = store.follow_log(0, 0).expect("it is followed");
        write(&store, 1, 10);
        assert_eq!(read(&store, &mut follower), None, "what it begins with is gone");
        assert_ne!(store.begin_log_run().expect("it is begun"), second);
        fs::write(folder.path().join(FOLLOWED), "../x").expect("it is written");
        drop(store);
        let store = open(folder.path(), true);
        let third = store.log_run().expect("it has a run");
        assert!(is_run(&third));
        drop(store);
        let marker = folder.path().join(MARKER);
        fs::copy(&marker, folder.path().join("copy")).expect("it is copied");
        fs::rename(folder.path().join("copy"), marker).expect("it is renamed");
        let store = open(folder.path(), true);
        assert_ne!(store.log_run().expect("it has a run"), third, "a copy is another run");
    }
}
