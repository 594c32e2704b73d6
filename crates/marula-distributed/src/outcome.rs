//! Commits that are made exactly once, whatever the store says of their outcome.
//!
//! A commit takes a *slot*: a key of its own while it is in progress, into which it writes its
//! number, and which it claims to have read. When its outcome is unknown the slot is read. If the
//! number is there, the commit was made. If not, the slot is overwritten: a commit that is still
//! in progress then conflicts, and can be tried again in another slot.

use std::sync::atomic::{AtomicU64, Ordering};

use marula_storage::Stamp;
use parking_lot::Mutex;
use rand::RngExt;

use crate::kv::{Commit, Conflict, KvError, Mutation, Result, Version};
use crate::shared::{Shared, shown_at};

/// The number of times that the outcome of a commit is looked for, and that a commit which was not
/// made is tried again.
const TRIES_MAX: usize = 100;

/// In front of a commit's number: it was made.
const MADE: u8 = 1;
/// In front of a commit's number: it was not, and will not be.
const REFUSED: u8 = 0;

/// The slots of a process.
pub(crate) struct Slots {
    /// The upper half of their numbers: two processes never share a slot.
    process: u32,
    next: AtomicU64,
    free: Mutex<Vec<Slot>>,
}

/// A slot that no commit holds.
struct Slot {
    number: u64,
    /// The number of commits that have held it.
    commits: u64,
    /// The last version at which it was written. A commit that has read earlier would conflict.
    written: Version,
}

/// How a commit of unknown outcome ended.
enum Ended {
    Made(Version),
    NotMade(Version),
}

impl Default for Slots {
    fn default() -> Self {
        Slots {
            process: rand::rng().random(),
            next: AtomicU64::new(0),
            free: Mutex::new(Vec::new()),
        }
    }
}

impl Slots {
    /// The upper half of the numbers of this process's slots.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Takes a slot for a commit that has read at `at`.
    fn take(&self, at: Version) -> Slot {
        let mut free = self.free.lock();
        if let Some(place) = free.iter().position(|slot| slot.written <= at) {
            return free.swap_remove(place);
        }
        drop(free);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Slot { number: u64::from(self.process) << 32 | number, commits: 0, written: 0 }
    }

    fn give_back(&self, slot: Slot) {
        self.free.lock().push(slot);
    }
}

impl Shared {
    /// Makes a commit once, or answers why it was not made.
    ///
    /// Errors: [`KvError::Unknown`] when the store gives no answer for long.
    pub(crate) fn commit(&self, mut commit: Commit) -> Result<Stamp> {
        let at = match commit.read_version {
            Some(at) => at,
            None => self.now()?.version,
        };
        commit.read_version = Some(at);
        commit.reads.extend(self.fence_at(at)?);
        for _ in 0..TRIES_MAX {
            let mut slot = self.slots.take(at);
            slot.commits += 1;
            let key = self.layout.slot(slot.number);
            commit.reads.push(Conflict::Key(key.clone()));
            commit.mutations.push(Mutation::Set(key, record(MADE, slot.commits)));
            let outcome = match self.kv_commit(&commit) {
                Err(KvError::Unknown) => self.find_out(&slot),
                Ok(stamp) => {
                    slot.written = stamp.version;
                    self.slots.give_back(slot);
                    return Ok(stamp);
                }
                Err(error) => {
                    self.slots.give_back(slot);
                    return Err(error);
                }
            };
            // A slot whose outcome stays unknown is never used again.
            match outcome? {
                Ended::Made(version) => {
                    slot.written = version;
                    self.slots.give_back(slot);
                    return Ok(shown_at(version));
                }
                Ended::NotMade(version) => {
                    slot.written = version;
                    self.slots.give_back(slot);
                }
            }
            commit.reads.pop();
            commit.mutations.pop();
        }
        Err(KvError::Unavailable("the store loses every commit".to_owned()))
    }

    /// Finds out how the commit in `slot` ended, and sees to it that it stays so.
    fn find_out(&self, slot: &Slot) -> Result<Ended> {
        let key = self.layout.slot(slot.number);
        for _ in 0..TRIES_MAX {
            let (at, value) = self.at_newest(|at| Ok((at, self.kv_get(at, &key)?)))?;
            if value == Some(record(MADE, slot.commits)) {
                return Ok(Ended::Made(at));
            }
            if value == Some(record(REFUSED, slot.commits)) {
                return Ok(Ended::NotMade(at));
            }
            let refusal = Commit {
                read_version: Some(at),
                reads: vec![Conflict::Key(key.clone())],
                writes: Vec::new(),
                mutations: vec![Mutation::Set(key.clone(), record(REFUSED, slot.commits))],
            };
            match self.kv_commit(&refusal) {
                Ok(stamp) => return Ok(Ended::NotMade(stamp.version)),
                // It has just been made, or this is not known either: look again.
                Err(KvError::Conflict | KvError::Unknown | KvError::TooOld) => {}
                Err(error) => return Err(error),
            }
        }
        Err(KvError::Unknown)
    }
}

fn record(outcome: u8, commits: u64) -> Vec<u8> {
    [&[outcome], &commits.to_be_bytes()[..]].concat()
}
