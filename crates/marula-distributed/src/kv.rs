//! The trait of a distributed store that the adapter works with.
//!
//! [`Kv`] is the part of FoundationDB's model that Marula needs: ordered byte keys; reads at a
//! *version*; one commit that names what it has read (*read conflicts*) and what it writes, and
//! fails when a commit after its read version has written one of the former. A commit may end with
//! an unknown outcome. Nothing here retries: the adapter does, once for all backends.
//!
//! Each backend is synchronous: a call returns when the store has replied. Calls that need several
//! replies ([`Kv::get_many`]) request all of them at once.

use std::fmt;
use std::time::Duration;

use marula_storage::cluster::Connections;
use marula_storage::{ClusterStatus, Direction, KeyRange, Stamp};

/// Names a state of the store; a later state has a greater version.
pub type Version = u64;

/// The limits of one commit and its parts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest key.
    pub key_bytes_max: usize,
    /// The longest value.
    pub value_bytes_max: usize,
    /// The most bytes of one commit, as [`Commit::bytes`] counts them.
    pub commit_bytes_max: usize,
    /// The most mutations of one commit.
    pub mutations_max: usize,
    /// The time for which a version can be read, and a commit can have read at it.
    pub version_age_max: Duration,
}

/// One change of a commit. The changes of a commit are made in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Sets a key to a value.
    Set(Vec<u8>, Vec<u8>),
    /// Removes a key; removing what is not there does nothing.
    Clear(Vec<u8>),
    /// Removes every key of a range.
    ClearRange(KeyRange),
    /// Adds to a counter: 8 bytes, little-endian, absent is zero, wrapping. Conflicts with readers
    /// of the key, never with other additions.
    Add(Vec<u8>, i64),
    /// Sets `prefix · stamp of the commit (10 bytes) · suffix` to a value.
    SetStamped {
        /// The key's bytes in front of the stamp.
        prefix: Vec<u8>,
        /// The key's bytes after the stamp.
        suffix: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
}

/// Keys that a commit has read, or that it counts as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// One key.
    Key(Vec<u8>),
    /// Every key of a range, also one that is not there.
    Range(KeyRange),
}

/// Everything that is decided and changed at once.
#[derive(Clone, Default, Debug)]
pub struct Commit {
    /// The version at which `reads` were read; must be there when they are not empty.
    pub read_version: Option<Version>,
    /// The keys that must be as they were at the read version.
    pub reads: Vec<Conflict>,
    /// Further keys that count as written, in addition to those of the mutations.
    pub writes: Vec<Conflict>,
    /// The changes.
    pub mutations: Vec<Mutation>,
}

/// Entries of a range, in the direction that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Block {
    /// Keys and values.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the range may hold more after the last entry.
    pub has_more: bool,
}

/// The size limit of a block; the first entry is returned whatever its size.
#[derive(Clone, Copy, Debug)]
pub struct BlockLimit {
    /// Entries, at least one.
    pub entries_max: usize,
    /// Bytes of keys and values, about.
    pub bytes_max: usize,
}

/// The size of a range, as far as the store knows it without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate {
    /// Bytes of keys and values, about.
    pub bytes: Option<u64>,
    /// Keys, about.
    pub keys: Option<u64>,
}

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KvError {
    /// A commit after the read version has written what this one has read. Nothing has changed.
    Conflict,
    /// The version is older than the store keeps. Nothing has changed.
    TooOld,
    /// The commit, a key or a value passes a limit. Nothing has changed.
    TooLarge,
    /// It is not known whether the commit has been made, or still will be.
    Unknown,
    /// The store cannot be reached, or refuses. Nothing has changed.
    Unavailable(String),
    /// The store returns what it cannot mean.
    Corrupt(String),
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KvError::Conflict => write!(f, "conflicts with another commit"),
            KvError::TooOld => write!(f, "the version is too old"),
            KvError::TooLarge => write!(f, "the commit passes a limit of the store"),
            KvError::Unknown => write!(f, "the outcome of the commit is unknown"),
            KvError::Unavailable(what) => write!(f, "{what}"),
            KvError::Corrupt(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for KvError {}

/// A result of the distributed store.
pub type Result<T, E = KvError> = std::result::Result<T, E>;

/// A distributed store of ordered keys.
pub trait Kv: Send + Sync + 'static {
    /// The store's name, as `serverStatus.storageEngine.name` shows it.
    fn name(&self) -> &'static str;

    /// Whether data outlives this process.
    fn is_persistent(&self) -> bool;

    /// The limits of the store.
    fn limits(&self) -> &Limits;

    /// A version that shows every commit that has ended before this call.
    fn read_version(&self) -> Result<Version>;

    /// A version as [`Kv::read_version`] returns it, and the values of keys at it: one round trip
    /// where the store can do that.
    fn read_newest(&self, keys: &[Vec<u8>]) -> Result<(Version, Vec<Option<Vec<u8>>>)> {
        let at = self.read_version()?;
        Ok((at, self.get_many(at, keys)?))
    }

    /// The value of `key` at a version that [`Kv::read_version`] has returned.
    fn get(&self, at: Version, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The values of several keys, asked for at once, by the places of `keys`.
    fn get_many(&self, at: Version, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>>;

    /// The first entries of a range in a direction. A range may be empty or the wrong way round.
    fn range(
        &self,
        at: Version,
        range: &KeyRange,
        direction: Direction,
        limit: BlockLimit,
    ) -> Result<Block>;

    /// Makes the changes, if nothing has written what was read. Returns the stamp of the commit.
    ///
    /// Errors: of all but [`KvError::Unknown`] nothing has happened, nor ever will.
    fn commit(&self, commit: &Commit) -> Result<Stamp>;

    /// Waits until the value of `key` is another than `seen`, at most for `timeout`; returns
    /// whether it is. It may return too early, not too late.
    fn watch(&self, key: &[u8], seen: Option<&[u8]>, timeout: Duration) -> Result<bool>;

    /// Estimates the size of a range.
    fn estimate(&self, range: &KeyRange) -> Result<Estimate>;

    /// Keys that cut a range into about `parts` parts, as far as the store knows any.
    fn split_points(&self, range: &KeyRange, parts: usize) -> Result<Vec<Vec<u8>>>;

    /// The servers of the store, as they report themselves now. A server that cannot be reached is
    /// a member with an error.
    fn status(&self) -> Result<ClusterStatus>;

    /// The connections to the servers, where this process makes them itself.
    fn connections(&self) -> Vec<Connections> {
        Vec::new()
    }
}

impl Mutation {
    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        match self {
            Mutation::Set(key, value) => key.len() + value.len(),
            Mutation::Clear(key) => key.len(),
            Mutation::ClearRange(range) => range.start.len() + range.end.len(),
            Mutation::Add(key, _) => key.len() + size_of::<i64>(),
            Mutation::SetStamped { prefix, suffix, value } => {
                prefix.len() + Stamp::BYTES + suffix.len() + value.len()
            }
        }
    }
}

impl Conflict {
    /// Whether `key` is meant.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Conflict::Key(own) => own == key,
            Conflict::Range(range) => *range.start <= *key && *key < *range.end,
        }
    }

    /// Whether the two have a key in common.
    pub fn meets(&self, other: &Conflict) -> bool {
        match (self, other) {
            (Conflict::Key(key), other) => other.contains(key),
            (range, Conflict::Key(key)) => range.contains(key),
            (Conflict::Range(one), Conflict::Range(other)) => {
                one.start < one.end
                    && other.start < other.end
                    && one.start < other.end
                    && other.start < one.end
            }
        }
    }

    /// Bytes of its keys, as they count towards the size of a commit.
    pub fn bytes(&self) -> usize {
        match self {
            // A key is sent as the range that ends after it.
            Conflict::Key(key) => 2 * key.len() + 1,
            Conflict::Range(range) => range.start.len() + range.end.len(),
        }
    }
}

impl Commit {
    /// Bytes of keys, values and conflicts, as FoundationDB counts them: what is written counts as
    /// a write conflict too.
    pub fn bytes(&self) -> usize {
        let keys = |mutation: &Mutation| match mutation {
            Mutation::Set(key, _) | Mutation::Clear(key) | Mutation::Add(key, _) => {
                2 * key.len() + 1
            }
            Mutation::ClearRange(range) => range.start.len() + range.end.len(),
            Mutation::SetStamped { prefix, suffix, .. } => {
                2 * (prefix.len() + Stamp::BYTES + suffix.len()) + 1
            }
        };
        self.mutations.iter().map(|mutation| mutation.bytes() + keys(mutation)).sum::<usize>()
            + self.reads.iter().chain(&self.writes).map(Conflict::bytes).sum::<usize>()
    }
}
