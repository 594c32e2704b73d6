//! Applying the writes of another store's log, up to a moment.
//!
//! ```text
//! write    number of its first entry u64, number of entries u32, entries
//! entry    kind u8; the column family's number varint, where the kind says so; key; value
//! ```
//!
//! Commits that were written together are one write: each ends with the note of its time
//! ([`clock`](crate::clock)), and a write may be cut between two of them.

use marula_storage::{Error, Result, Space, View};
use rust_rocksdb::{FlushOptions, WriteBatch, WriteOptions};

use crate::Embedded;
use crate::clock::time_of;
use crate::error::from_rocksdb;

const HEADER_BYTES: usize = 12;

/// How a write was applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replayed {
    /// All of it, or the store had it before.
    Whole,
    /// It holds a commit that is later than the moment: what comes before that was applied, and
    /// the replay is at its end.
    Cut,
}

/// The part of a write that is not later than a moment.
struct Part {
    bytes: usize,
    entries: u32,
    is_whole: bool,
}

impl Embedded {
    /// Applies a write of a log that goes on from what this store holds, up to the first commit
    /// whose time is later than `until_us`. [`Embedded::finish_replay`] ends it.
    ///
    /// Errors: `Corrupt` when it is no write, or another one comes before it; those of a commit.
    pub fn replay(&self, write: &[u8], until_us: i64) -> Result<Replayed> {
        self.check_open()?;
        let head = write.split_first_chunk::<8>().and_then(|(first, rest)| {
            let count = u32::from_le_bytes(rest.first_chunk().copied()?);
            Some((u64::from_le_bytes(*first), count))
        });
        let Some((first, count)) = head else { return Err(damaged("is cut off")) };
        let part = part(write, until_us)?;
        if part.is_whole && part.entries != count {
            return Err(damaged("has another number of entries than it says"));
        }
        let newest = self.moment().version;
        let last = first.checked_add(count.into()).ok_or_else(|| damaged("has no number"))? - 1;
        if count == 0 || last <= newest {
            return Ok(Replayed::Whole);
        }
        if first != newest + 1 {
            let text = format!("there is a hole in the log: write {first} comes after {newest}");
            return Err(Error::Corrupt(text));
        }
        if part.entries > 0 {
            let mut bytes = write[..part.bytes].to_vec();
            bytes[8..HEADER_BYTES].copy_from_slice(&part.entries.to_le_bytes());
            let mut options = WriteOptions::default();
            // All of it is flushed at the end, before anything says that the store is whole.
            options.disable_wal(true);
            let _writing = Space::ALL.map(|space| self.engine.gaps.fill_all(space));
            let batch = WriteBatch::from_data(&bytes);
            self.engine.db.write_opt(&batch, &options).map_err(from_rocksdb)?;
        }
        Ok(if part.is_whole { Replayed::Whole } else { Replayed::Cut })
    }

    /// Writes what was replayed to files.
    ///
    /// Errors: `Full`, `Io`.
    pub fn finish_replay(&self) -> Result<()> {
        let mut options = FlushOptions::default();
        options.set_wait(true);
        for space in Space::ALL {
            let flushed = self.engine.db.flush_cf_opt(self.engine.column(space), &options);
            flushed.map_err(from_rocksdb)?;
        }
        Ok(())
    }
}

/// As much of a write as is not later than a moment. Every entry is looked at: the bytes come from
/// outside, and RocksDB is given what it will understand.
fn part(write: &[u8], until_us: i64) -> Result<Part> {
    let mut rest = write.get(HEADER_BYTES..).ok_or_else(|| damaged("is cut off"))?;
    let mut entries = 0;
    // The end of the last commit that is not too late.
    let mut before = Part { bytes: HEADER_BYTES, entries: 0, is_whole: false };
    while let Some((&kind, behind)) = rest.split_first() {
        rest = behind;
        let (has_column, runs) = match kind {
            LOG_DATA => {
                let note = take_run(&mut rest)?;
                if let Some(time_us) = time_of(note) {
                    if time_us > until_us {
                        return Ok(before);
                    }
                    before = Part { bytes: write.len() - rest.len(), entries, is_whole: false };
                }
                continue;
            }
            NOOP => continue,
            DELETION | SINGLE_DELETION => (false, 1),
            VALUE | MERGE | RANGE_DELETION => (false, 2),
            COLUMN_DELETION | COLUMN_SINGLE_DELETION => (true, 1),
            COLUMN_VALUE | COLUMN_MERGE | COLUMN_RANGE_DELETION => (true, 2),
            _ => return Err(damaged("has an entry of a kind that is not known")),
        };
        if has_column && take_number(&mut rest)? as usize >= Space::ALL.len() {
            return Err(damaged("names a space that is not there"));
        }
        for _ in 0..runs {
            take_run(&mut rest)?;
        }
        entries += 1;
    }
    Ok(Part { bytes: write.len(), entries, is_whole: true })
}

// The kinds of entries, as RocksDB's log has them.
const DELETION: u8 = 0x0;
const VALUE: u8 = 0x1;
const MERGE: u8 = 0x2;
const LOG_DATA: u8 = 0x3;
const COLUMN_DELETION: u8 = 0x4;
const COLUMN_VALUE: u8 = 0x5;
const COLUMN_MERGE: u8 = 0x6;
const SINGLE_DELETION: u8 = 0x7;
const COLUMN_SINGLE_DELETION: u8 = 0x8;
const NOOP: u8 = 0xD;
const COLUMN_RANGE_DELETION: u8 = 0xE;
const RANGE_DELETION: u8 = 0xF;

/// A number in 7 bits a byte, least first.
fn take_number(rest: &mut &[u8]) -> Result<u32> {
    let mut number = 0_u64;
    for shift in (0..35).step_by(7) {
        let (&byte, behind) = rest.split_first().ok_or_else(|| damaged("is cut off"))?;
        *rest = behind;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return u32::try_from(number).map_err(|_| damaged("has a number that is too large"));
        }
    }
    Err(damaged("has a number that is too large"))
}

/// Bytes with their length before them.
fn take_run<'w>(rest: &mut &'w [u8]) -> Result<&'w [u8]> {
    let bytes = take_number(rest)? as usize;
    let (run, behind) = rest.split_at_checked(bytes).ok_or_else(|| damaged("is cut off"))?;
    *rest = behind;
    Ok(run)
}

fn damaged(what: &str) -> Error {
    Error::Corrupt(format!("a write of the log {what}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;

    use marula_storage::contract::Folder;
    use marula_storage::{KeyRange, Store};

    use super::*;
    use crate::{EmbeddedOptions, Moved};

    fn open(folder: &Path) -> Embedded {
        let mut options = EmbeddedOptions::new(folder);
        options.keeps_log = true;
        options.memtable_bytes = 256 << 10;
        Embedded::open(options).expect("the store opens")
    }

    fn value(store: &Embedded, space: Space, key: &[u8]) -> Option<u64> {
        let mut found = None;
        store
            .get(space, key, &mut |bytes| found = bytes.try_into().ok().map(u64::from_be_bytes))
            .expect("it is read");
        found
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).expect("a folder is made");
        for entry in std::fs::read_dir(from).expect("it is read") {
            let entry = entry.expect("an entry");
            let to = to.join(entry.file_name());
            match entry.file_type().expect("it has a kind").is_dir() {
                true => copy(&entry.path(), &to),
                false => drop(std::fs::copy(entry.path(), to).expect("it is copied")),
            }
        }
    }

    /// Threads write concurrently; each notes when its commits began and were acknowledged.
    /// For many moments the store is brought back from a checkpoint that was made meanwhile: what
    /// was acknowledged before is there, what began after is not, and commits are whole.
    #[test]
    fn a_moment_has_all_that_was_acknowledged_before_and_nothing_that_began_after() {
        const WRITERS: u64 = 4;
        const WRITES: u64 = 400;
        let (folder, copies) = (Folder::new(), Folder::new());
        std::fs::create_dir_all(copies.path()).expect("a folder is made");
        let store = open(folder.path());
        let mut follower = store.follow_log(store.log_position().1, 0).expect("it is followed");
        let now_us = || store.log_position().0;
        let base = copies.path().join("base");
        let mut based_us = 0;
        let times: Vec<Vec<(i64, i64)>> = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let store = &store;
                    scope.spawn(move || {
                        let mut times = Vec::new();
                        for number in 0..WRITES {
                            let began = store.log_position().0;
                            let mut txn = store.begin();
                            let key = writer.to_be_bytes();
                            txn.put(Space::Records, &key, &number.to_be_bytes());
                            txn.put(Space::Indexes, &key, &number.to_be_bytes());
                            let once = [key, number.to_be_bytes()].concat();
                            txn.put(Space::Records, &once, b"once");
                            txn.clear_range(Space::Indexes, &KeyRange::prefix(b"nothing"));
                            txn.add(b"count", 1);
                            txn.commit().expect("it is written");
                            times.push((began, store.log_position().0));
                        }
                        times
                    })
                })
                .collect();
            thread::sleep(std::time::Duration::from_millis(2));
            store.checkpoint(&base).expect("a checkpoint is made");
            based_us = now_us();
            writers.into_iter().map(|writer| writer.join().expect("it ends")).collect()
        });
        let mut writes = Vec::new();
        let (until_us, newest) = store.log_position();
        while follower.advance(newest).expect("it is read") == Moved::Write {
            writes.push(follower.write().bytes.to_vec());
        }
        assert_eq!(follower.last(), newest);
        let mut moments: Vec<i64> =
            times.iter().flatten().step_by(97).flat_map(|&(a, b)| [a, b]).collect();
        moments.extend([based_us, until_us]);
        moments.retain(|&moment| moment >= based_us);
        for (turn, moment) in moments.into_iter().enumerate() {
            let to = copies.path().join(turn.to_string());
            copy(&base, &to);
            let copy = Embedded::open(EmbeddedOptions::new(&to)).expect("the checkpoint opens");
            for write in &writes {
                if copy.replay(write, moment).expect("it is applied") == Replayed::Cut {
                    break;
                }
            }
            copy.finish_replay().expect("it is flushed");
            drop(copy);
            let copy = Embedded::open(EmbeddedOptions::new(&to)).expect("the copy opens");
            let mut count = 0;
            for (writer, times) in (0..WRITERS).zip(&times) {
                let last = value(&copy, Space::Records, &writer.to_be_bytes());
                assert_eq!(last, value(&copy, Space::Indexes, &writer.to_be_bytes()), "whole");
                let has = last.map_or(0, |last| last + 1) as usize;
                let acknowledged = times.iter().filter(|(_, ended)| *ended < moment).count();
                let began = times.iter().filter(|(began, _)| *began <= moment).count();
                assert!(acknowledged <= has, "{has} of {acknowledged} are there at {moment}");
                assert!(has <= began, "{has} are there, and {began} began by {moment}");
                count += has as u64;
            }
            let mut counted = 0;
            copy.get(Space::Catalog, b"count", &mut |bytes| {
                counted = u64::from_le_bytes(bytes.try_into().expect("a counter"));
            })
            .expect("it is read");
            assert_eq!(counted, count, "counters are of the same moment");
            drop(copy);
            std::fs::remove_dir_all(&to).expect("it is removed");
        }
    }

    #[test]
    fn what_is_no_write_is_refused() {
        let folder = Folder::new();
        let store = open(folder.path());
        let mut follower = store.follow_log(0, 0).expect("it is followed");
        let mut txn = store.begin();
        txn.put(Space::Records, b"key", &[7; 300]);
        txn.delete(Space::Indexes, b"other");
        txn.add(b"count", 1);
        txn.commit().expect("it is written");
        let newest = store.log_position().1;
        assert_eq!(follower.advance(newest).expect("it is read"), Moved::Write);
        let write = follower.write().bytes.to_vec();
        let other = Folder::new();
        let empty = open(other.path());
        let hole = [&(newest + 5).to_le_bytes()[..], &write[8..]].concat();
        assert!(matches!(empty.replay(&hole, i64::MAX), Err(Error::Corrupt(_))), "a hole");
        // Without the note at its end it is a whole write that nobody marked.
        let note = write.len() - 11;
        for end in (0..write.len()).filter(|&end| end != note) {
            let cut = empty.replay(&write[..end], i64::MAX);
            assert!(matches!(cut, Err(Error::Corrupt(_))), "cut at {end}: {cut:?}");
        }
        let mut other_kind = write.clone();
        other_kind[HEADER_BYTES] = 0x55;
        assert!(matches!(empty.replay(&other_kind, i64::MAX), Err(Error::Corrupt(_))));
        let mut other_space = write.clone();
        other_space[HEADER_BYTES + 1] = 0x7F;
        assert!(matches!(empty.replay(&other_space, i64::MAX), Err(Error::Corrupt(_))));
        assert_eq!(empty.replay(&write, 0).expect("it is read"), Replayed::Cut);
        assert_eq!(empty.moment().version, 0);
        for _ in 0..2 {
            assert_eq!(empty.replay(&write, i64::MAX).expect("it is applied"), Replayed::Whole);
        }
        assert_eq!(empty.moment().version, newest);
    }
}
