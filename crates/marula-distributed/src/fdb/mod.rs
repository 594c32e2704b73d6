//! FoundationDB 7.3 and later, by its own client library.
//!
//! The library is not linked: it is loaded when a store is opened with it. A [`Kv`] call is a
//! transaction of the library that does one thing; none is retried here.

mod library;
mod status;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant};

use marula_storage::{ClusterStatus, Direction, KeyRange, Stamp};

use self::library::{
    ADD, Code, Database, Library, MAYBE_COMMITTED, READ, RETRYABLE_NOT_COMMITTED, SET_STAMPED_KEY,
    WRITE,
};
use crate::kv::{
    Block, BlockLimit, Commit, Conflict, Estimate, Kv, KvError, Limits, Mutation, Result, Version,
};

/// The timeout of a call, in milliseconds: longer than a version lives, so that it is the store
/// that says what is too old.
const TIMEOUT_MS: i64 = 8_000;

/// The sleep of a watch between two looks.
const WATCH_STEP: Duration = Duration::from_millis(50);

/// The pieces that a range is cut into are at least so large: what the store's own samples can
/// tell.
const SPLIT_BYTES_MIN: i64 = 1 << 20;

/// Keys that start with this byte are the system's own; no range reaches there.
const SYSTEM: u8 = 0xFF;

/// A FoundationDB cluster.
pub struct Fdb {
    database: Database,
    limits: Limits,
}

impl Fdb {
    /// The cluster that a file names; without one, the system's own. `library` is where the client
    /// library is, where it is not the system's. Nothing is sent to the cluster yet.
    ///
    /// Errors: one line that says what is missing.
    pub fn open(cluster_file: Option<&Path>, library: Option<&Path>) -> Result<Self, String> {
        if let Some(path) = cluster_file.filter(|path| !path.is_file()) {
            return Err(format!("there is no cluster file '{}'", path.display()));
        }
        let database = Database::open(Library::load(library)?, cluster_file)?;
        // Source: FoundationDB, "Known limitations".
        let limits = Limits {
            key_bytes_max: 10_000,
            value_bytes_max: 100_000,
            commit_bytes_max: 10_000_000,
            mutations_max: usize::MAX,
            version_age_max: Duration::from_secs(5),
        };
        Ok(Fdb { database, limits })
    }

    /// The meaning of an error of a call that changes nothing.
    fn read_error(&self, code: Code) -> KvError {
        match code {
            1007 => KvError::TooOld,
            2101..=2103 => KvError::TooLarge,
            _ => KvError::Unavailable(self.describe(code)),
        }
    }

    /// The meaning of an error of a commit.
    fn commit_error(&self, code: Code) -> KvError {
        let library = self.database.library();
        match code {
            1020 => KvError::Conflict,
            1007 => KvError::TooOld,
            2101..=2103 => KvError::TooLarge,
            // It timed out, or was given up.
            1025 | 1031 => KvError::Unknown,
            _ if library.is(MAYBE_COMMITTED, code) => KvError::Unknown,
            _ if library.is(RETRYABLE_NOT_COMMITTED, code) => {
                KvError::Unavailable(self.describe(code))
            }
            _ => KvError::Unknown,
        }
    }

    fn describe(&self, code: Code) -> String {
        format!("FoundationDB: {} ({code})", self.database.library().text(code))
    }

    /// Runs one call that changes nothing, at a version or without one.
    fn read<T>(
        &self,
        at: Option<Version>,
        call: impl FnOnce(&library::Transaction<'_>) -> Result<T, Code>,
    ) -> Result<T> {
        let run = || {
            let transaction = self.database.begin(TIMEOUT_MS)?;
            if let Some(at) = at {
                transaction.set_read_version(signed(at));
            }
            call(&transaction)
        };
        run().map_err(|code| self.read_error(code))
    }

    fn check_sizes(&self, commit: &Commit) -> Result<()> {
        let limits = &self.limits;
        let fits = commit.mutations.iter().all(|mutation| {
            let (key, value) = match mutation {
                Mutation::Set(key, value) => (key.len(), value.len()),
                Mutation::Clear(key) | Mutation::Add(key, _) => (key.len(), 0),
                Mutation::ClearRange(range) => (range.start.len().max(range.end.len()), 0),
                Mutation::SetStamped { prefix, suffix, value } => {
                    (prefix.len() + Stamp::BYTES + suffix.len(), value.len())
                }
            };
            key <= limits.key_bytes_max && value <= limits.value_bytes_max
        });
        if fits && commit.bytes() <= limits.commit_bytes_max {
            Ok(())
        } else {
            Err(KvError::TooLarge)
        }
    }
}

fn signed(version: Version) -> i64 {
    i64::try_from(version).expect("versions of FoundationDB are positive")
}

/// The end of a key as a range.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// A range without the system's keys; `None` where nothing is left.
fn usual(range: &KeyRange) -> Option<(&[u8], &[u8])> {
    let end = if range.end.first() == Some(&SYSTEM) { &[SYSTEM][..] } else { &range.end };
    (*range.start < *end).then_some((&range.start, end))
}

impl Kv for Fdb {
    fn name(&self) -> &'static str {
        "fdb"
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn read_version(&self) -> Result<Version> {
        let version = self.read(None, |transaction| transaction.read_version().number())?;
        Version::try_from(version)
            .map_err(|_| KvError::Corrupt(format!("FoundationDB gives version {version}")))
    }

    fn get(&self, at: Version, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(Some(at), |transaction| transaction.get(key).value())
    }

    fn get_many(&self, at: Version, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        self.read(Some(at), |transaction| {
            // All are requested before one is waited for.
            let futures: Vec<_> = keys.iter().map(|key| transaction.get(key)).collect();
            futures.iter().map(|future| future.value()).collect()
        })
    }

    fn range(
        &self,
        at: Version,
        range: &KeyRange,
        direction: Direction,
        limit: BlockLimit,
    ) -> Result<Block> {
        let Some(range) = usual(range) else { return Ok(Block::default()) };
        let int = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        // Zero means that there is no limit.
        let limit = (int(limit.entries_max), int(limit.bytes_max).max(1));
        let is_reverse = direction == Direction::Backward;
        let (entries, has_more) = self.read(Some(at), |transaction| {
            transaction.get_range(range, limit, is_reverse).entries()
        })?;
        Ok(Block { entries, has_more })
    }

    fn commit(&self, commit: &Commit) -> Result<Stamp> {
        self.check_sizes(commit)?;
        let not_begun = |code| KvError::Unavailable(self.describe(code));
        let transaction = self.database.begin(TIMEOUT_MS).map_err(not_begun)?;
        if let Some(at) = commit.read_version {
            transaction.set_read_version(signed(at));
        }
        for (kind, conflicts) in [(READ, &commit.reads), (WRITE, &commit.writes)] {
            for conflict in conflicts {
                let added = match conflict {
                    Conflict::Key(key) => transaction.add_conflict(kind, key, &behind(key)),
                    Conflict::Range(range) => match usual(range) {
                        Some((start, end)) => transaction.add_conflict(kind, start, end),
                        None => Ok(()),
                    },
                };
                added.map_err(not_begun)?;
            }
        }
        for mutation in &commit.mutations {
            match mutation {
                Mutation::Set(key, value) => transaction.set(key, value),
                Mutation::Clear(key) => transaction.clear(key),
                Mutation::ClearRange(range) => {
                    if let Some((start, end)) = usual(range) {
                        transaction.clear_range(start, end);
                    }
                }
                Mutation::Add(key, delta) => transaction.atomic(ADD, key, &delta.to_le_bytes()),
                Mutation::SetStamped { prefix, suffix, value } => {
                    // The place of the stamp is in four bytes after the key.
                    let offset = u32::try_from(prefix.len()).expect("keys are short");
                    let key = [prefix, &[0; Stamp::BYTES][..], suffix, &offset.to_le_bytes()];
                    transaction.atomic(SET_STAMPED_KEY, &key.concat(), value);
                }
            }
        }
        let stamp = transaction.stamp();
        transaction.commit().wait().map_err(|code| self.commit_error(code))?;
        // It has been made: an error from here on is no refusal.
        let stamp = stamp.key().map_err(|_| KvError::Unknown)?;
        let bytes = stamp.as_slice().try_into().map_err(|_| KvError::Unknown)?;
        Ok(Stamp::from_bytes(bytes))
    }

    fn watch(&self, key: &[u8], seen: Option<&[u8]>, timeout: Duration) -> Result<bool> {
        // FoundationDB's watches are limited in number and may be lost; what waits here looks at
        // one key once a second or so.
        let until = Instant::now() + timeout;
        loop {
            let value = self.read(None, |transaction| transaction.get(key).value())?;
            if value.as_deref() != seen {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(WATCH_STEP));
        }
    }

    fn estimate(&self, range: &KeyRange) -> Result<Estimate> {
        let Some((start, end)) = usual(range) else {
            return Ok(Estimate { bytes: Some(0), keys: Some(0) });
        };
        let bytes =
            self.read(None, |transaction| transaction.estimated_bytes(start, end).number())?;
        Ok(Estimate { bytes: u64::try_from(bytes).ok(), keys: None })
    }

    fn split_points(&self, range: &KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
        let Some((start, end)) = usual(range).filter(|_| parts > 1) else { return Ok(Vec::new()) };
        let bytes = self.estimate(range)?.bytes.unwrap_or(0);
        let piece = i64::try_from(bytes / parts as u64).unwrap_or(i64::MAX).max(SPLIT_BYTES_MIN);
        let points =
            self.read(None, |transaction| transaction.split_points(start, end, piece).keys())?;
        // The ends of the range are among them.
        let is_inside = |point: &Vec<u8>| **point > *start && **point < *end;
        Ok(points.into_iter().filter(is_inside).collect())
    }

    fn status(&self) -> Result<ClusterStatus> {
        let found = self.read(None, |transaction| transaction.get(status::KEY).value())?;
        let missing = || KvError::Unavailable("FoundationDB reports no status".to_owned());
        status::parse(&found.ok_or_else(missing)?)
    }
}
