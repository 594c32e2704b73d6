//! What an engine promises.
//!
//! Nouns: a *key* and a *value* are bytes; a [`Space`] is one of a few fixed key spaces; a [`View`]
//! sees committed data; a [`Txn`] buffers blind writes and commits them at once; a [`Stamp`] orders
//! commits.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// One of the fixed key spaces of a store. Keys of different spaces never meet; an engine tunes
/// each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Space {
    /// The catalogue, counters and session records: few and small.
    Catalog,
    /// Documents.
    Records,
    /// Index entries: small, many, most of them without a value.
    Indexes,
}

impl Space {
    /// Every space, in the order of their declaration.
    pub const ALL: [Space; 3] = [Space::Catalog, Space::Records, Space::Indexes];
}

/// Orders commits: a commit that starts after another has ended has the greater stamp.
///
/// A store over several machines gives one version to all that commit together, and an order among
/// them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// The version of the store that the commit has made.
    pub version: u64,
    /// Which of the commits of that version it is; zero where each makes a version of its own.
    pub order: u16,
}

impl Stamp {
    /// How many bytes a stamp takes as part of a key.
    pub const BYTES: usize = size_of::<u64>() + size_of::<u16>();

    /// The stamp of the only commit of a version.
    pub fn of_version(version: u64) -> Self {
        Stamp { version, order: 0 }
    }

    /// The stamp as part of a key: keys are in the order of commits.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (version, order) = bytes.split_at_mut(size_of::<u64>());
        version.copy_from_slice(&self.version.to_be_bytes());
        order.copy_from_slice(&self.order.to_be_bytes());
        bytes
    }

    /// The stamp that was written so.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, order @ ..] = bytes;
        let version = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Stamp { version, order: u16::from_be_bytes(order) }
    }
}

/// Keys from `start`, included, to `end`, excluded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first key of the range.
    pub start: Vec<u8>,
    /// The first key behind the range.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// Every key that starts with `prefix`, which must not be empty nor all 0xFF.
    pub fn prefix(prefix: &[u8]) -> Self {
        let end = prefix_end(prefix).expect("a prefix has a byte below 0xFF");
        KeyRange { start: prefix.to_vec(), end }
    }
}

/// The first key behind all that start with `prefix`; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Which way a cursor goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the least key up.
    Forward,
    /// From the greatest key down.
    Backward,
}

impl Direction {
    /// The other way.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }
}

/// What an engine can take. An engine with large limits pays nothing for those that have small
/// ones.
#[derive(Clone, Debug)]
pub struct Caps {
    /// The engine's name, as `serverStatus.storageEngine.name` shows it.
    pub name: &'static str,
    /// The longest key.
    pub key_bytes_max: usize,
    /// The longest value.
    pub value_bytes_max: usize,
    /// The most bytes, keys and values together, of one transaction.
    pub txn_bytes_max: usize,
    /// Whether a read is a round trip: then batch and prefetch.
    pub is_remote: bool,
    /// Whether committed data survives the end of the process.
    pub is_persistent: bool,
}

/// Approximate statistics of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RangeStats {
    /// Keys, approximately.
    pub keys: u64,
    /// Bytes that the range takes on disk, approximately.
    pub disk_bytes: u64,
}

/// Why the engine could not do as asked. An enum, because callers decide by it.
#[derive(Debug)]
pub enum Error {
    /// Another transaction holds or changed what this one guards. Try the whole again.
    Conflict,
    /// The snapshot is older than the engine keeps. Take a new one.
    TooOld,
    /// The transaction, a key or a value passes a limit of [`Caps`].
    TooLarge,
    /// It is not known whether the commit happened (a distributed store lost its connection).
    Unknown,
    /// Stored bytes are not what was written.
    Corrupt(String),
    /// The disk is full; reads go on.
    Full(String),
    /// Another failure of the environment.
    Io(io::Error),
    /// The store is closing, or cannot be reached.
    Unavailable(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Conflict => write!(f, "conflicts with another transaction"),
            Error::TooOld => write!(f, "the snapshot is too old"),
            Error::TooLarge => write!(f, "the transaction is too large"),
            Error::Unknown => write!(f, "the outcome of the commit is unknown"),
            Error::Corrupt(what) => write!(f, "stored data is corrupt: {what}"),
            Error::Full(what) => write!(f, "the disk is full: {what}"),
            Error::Io(error) => write!(f, "storage input/output error: {error}"),
            Error::Unavailable(what) => write!(f, "the store is unavailable: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::Full(error.to_string())
            }
            _ => Error::Io(error),
        }
    }
}

/// A result of the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a read sees: all that is committed at the time of each read (a [`Store`]), or what was at
/// one moment ([`Store::view`]).
///
/// Values are shown, not handed out: `visit` sees the bytes where the engine holds them (a pinned
/// cache block), and what it keeps it copies. `visit` must not call the store.
pub trait View: Send + Sync {
    /// The stamp of the newest commit that it shows, of those to which stamps have been told.
    fn moment(&self) -> Stamp;

    /// Whether it shows one moment for ever; another shows more with each commit.
    fn is_fixed(&self) -> bool;

    /// Whether it may show more now than it did at its moment `since`.
    fn has_moved(&self, since: Stamp) -> bool {
        self.moment() != since
    }

    /// Shows the value of `key`; answers whether there is one.
    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Reads the values of several keys at once and holds them, by the places of `keys`.
    ///
    /// Keys may come in any order and twice; in ascending order they cost least. An engine bounds
    /// the memory that it holds: it reads one value whatever its size, and may leave others
    /// [`Looked::Unread`].
    fn get_many<'r>(&'r self, space: Space, keys: &[&[u8]]) -> Result<Box<dyn Values + 'r>>;

    /// Opens a cursor over `range`, before its first key. The cursor sees one moment.
    fn cursor<'r>(
        &'r self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'r>>;
}

/// The values that [`View::get_many`] has read. They stay where the engine holds them (pinned cache
/// blocks) until this is dropped: let it go soon.
pub trait Values {
    /// What was found of the key at `place`. Panics when there was no such key.
    fn get(&self, place: usize) -> Looked<'_>;
}

/// What looking up one of several keys has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked<'v> {
    /// Its value.
    Found(&'v [u8]),
    /// It is not stored.
    Absent,
    /// It was not read, because it would have taken too much memory or failed: ask [`View::get`],
    /// which tells why.
    Unread,
}

/// Walks a range in key order. Key and value stay where the engine holds them until the next move.
pub trait Cursor {
    /// Moves to the next key of the range; answers whether there is one. After `false` it stays
    /// `false`, and after an error an error: what lies behind it is never taken for nothing.
    fn advance(&mut self) -> Result<bool>;

    /// Moves to the first key at or behind `key` in the cursor's direction (forward: the least key
    /// ≥ `key`; backward: the greatest key ≤ `key`), within the range; answers whether there is
    /// one. `seek` may go either way.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;

    /// Moves on by up to `count` keys that nobody looks at; answers by how many there were. Fewer
    /// than `count` mean that the range has ended.
    fn pass(&mut self, count: u64) -> Result<u64> {
        for passed in 0..count {
            if !self.advance()? {
                return Ok(passed);
            }
        }
        Ok(count)
    }

    /// Whether the cursor stands on a key: not before the first move, at the end, or after an
    /// error.
    fn is_on(&self) -> bool;

    /// The key that the cursor stands on. Panics when it stands on none.
    fn key(&self) -> &[u8];

    /// The value that the cursor stands on. Panics when it stands on none.
    fn value(&self) -> &[u8];

    /// Both at once.
    fn entry(&self) -> (&[u8], &[u8]) {
        (self.key(), self.value())
    }
}

/// How long [`Txn::guard`] waits for another transaction, all keys together.
///
/// A single-document write holds its latch for tens of microseconds, so a thousand clients that
/// write the same document are through within a tenth of a second; who waits longer waits for a
/// client's transaction.
pub const GUARD_WAIT: Duration = Duration::from_millis(100);

/// Buffered writes that become visible together, or not at all. Dropping it without a commit undoes
/// it.
///
/// Writes are blind. Reads add no conflicts: what must not change under the transaction is guarded
/// first, then read in [`Txn::view`].
pub trait Txn: Send {
    /// What the transaction decides by: what it shows of guarded keys stays so until the
    /// transaction ends.
    fn view(&self) -> &dyn View;

    /// Claims `keys` until the transaction ends: no other transaction that guards one of them
    /// commits meanwhile, and what [`Txn::view`] shows of them after this call stays so.
    ///
    /// In a transaction that was begun *since* a view ([`Store::begin_since`]) it also claims that
    /// the keys are as they were there, and answers [`Error::Conflict`] where one is not.
    ///
    /// An engine of one process takes latches here, waiting a bounded time for each; a distributed
    /// one notes read conflicts. Several keys that are known together go in one call: it takes them
    /// in one order for all transactions. Answers [`Error::Conflict`] rather than wait for long;
    /// the caller drops the transaction and starts again.
    fn guard(&mut self, keys: &[(Space, &[u8])]) -> Result<()> {
        self.guard_within(keys, GUARD_WAIT)
    }

    /// [`Txn::guard`] with a patience of the caller's own. [`Duration::ZERO`] does not wait at all:
    /// for threads that must not be held, and for transactions that answer a write conflict at
    /// once.
    ///
    /// Whoever guards in several calls may meet another that does so in the opposite order; then
    /// one of the two is answered [`Error::Conflict`] before its patience ends.
    fn guard_within(&mut self, keys: &[(Space, &[u8])], patience: Duration) -> Result<()>;

    /// Sets `key` to `value`.
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]);

    /// Removes `key`; removing what is not there does nothing.
    fn delete(&mut self, space: Space, key: &[u8]);

    /// Removes every key of `range`.
    fn clear_range(&mut self, space: Space, range: &KeyRange);

    /// Adds `delta` to the counter at `key` in [`Space::Catalog`]: 8 bytes, i64, little-endian,
    /// absent is zero, wrapping. Commutes: it conflicts with nothing. A counter's key is written by
    /// `add` alone, or cleared by `clear_range` and `delete`.
    fn add(&mut self, key: &[u8], delta: i64);

    /// Bytes of keys and values buffered so far, to cut work into transactions of bounded size.
    fn size(&self) -> usize;

    /// Makes the writes visible and safe against the end of the process (the log has been handed to
    /// the operating system). Power-fail safety is [`Store::sync`]'s.
    fn commit(self: Box<Self>) -> Result<Stamp>;
}

/// A store: an engine opened on some data. As a [`View`] it is the newest one, which moves.
pub trait Store: View + 'static {
    /// What the engine can take.
    fn caps(&self) -> &Caps;

    /// A view of this moment, which keeps the store alive. It holds back the removal of what is
    /// overwritten and dropped from now on, so let it go soon.
    fn view(self: Arc<Self>) -> Result<Arc<dyn View>>;

    /// Starts a transaction that decides by the newest state.
    fn begin(&self) -> Box<dyn Txn + '_>;

    /// Starts a transaction that decides by `view`, a view of this store: it guards only keys that
    /// are as they were there.
    fn begin_since<'s>(&'s self, view: &'s dyn View) -> Box<dyn Txn + 's>;

    /// Whether a key has another value now than in `view`, or has one where it had none, or the
    /// other way round.
    fn changed_since(&self, space: Space, key: &[u8], view: &dyn View) -> Result<bool> {
        let mut old = None;
        view.get(space, key, &mut |value| old = Some(value.to_vec()))?;
        let mut is_same = false;
        let is_there = self.get(space, key, &mut |new| is_same = old.as_deref() == Some(new))?;
        Ok(!is_same && (is_there || old.is_some()))
    }

    /// Checks that keys are as they were in `view`.
    ///
    /// Errors: [`Error::Conflict`].
    fn check_unchanged(&self, keys: &[(Space, &[u8])], view: &dyn View) -> Result<()> {
        // Nothing has been committed since: nothing has changed.
        if !self.has_moved(view.moment()) {
            return Ok(());
        }
        for (space, key) in keys {
            if self.changed_since(*space, key, view)? {
                return Err(Error::Conflict);
            }
        }
        Ok(())
    }

    /// Waits until every commit up to `stamp` survives a power failure. All who wait share one
    /// sync.
    fn sync(&self, stamp: Stamp) -> Result<()>;

    /// Calls `done` from another thread once [`Store::sync`] of `stamp` would return; at once when
    /// it would not wait. For those who must not hold their thread.
    fn on_sync(&self, stamp: Stamp, done: Box<dyn FnOnce(Result<()>) + Send>);

    /// Adds sorted, unique keys to an empty part of a space at once, past the log (an index build,
    /// a restore). Visible and safe as after [`Txn::commit`]. `next` writes the next key and value
    /// into the buffers and answers `false` at the end; keys must ascend.
    fn ingest(
        &self,
        space: Space,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<()>;

    /// Removes a range that nobody reads any more (a dropped collection) but in views of earlier
    /// moments, where it stays readable; gives its disk space back soon, or once those are gone.
    /// Takes time with the size of the range at worst: call it from the background. Idempotent.
    fn drop_range(&self, space: Space, range: &KeyRange) -> Result<()>;

    /// Rewrites a range in its most compact form; as long as it takes. `progress` is called now and
    /// then and answers whether to go on.
    fn compact(
        &self,
        space: Space,
        range: &KeyRange,
        progress: &mut dyn FnMut() -> bool,
    ) -> Result<()>;

    /// Approximate statistics of a range, in microseconds.
    fn range_stats(&self, space: Space, range: &KeyRange) -> Result<RangeStats>;

    /// Keys that cut a range into about `parts` parts of like size, ascending; fewer when it is
    /// small.
    fn split_points(&self, space: Space, range: &KeyRange, parts: usize) -> Result<Vec<Vec<u8>>>;

    /// The engine's counters for diagnostics: dotted names and values, such as
    /// `("block cache.bytes currently in the cache", 1024)`.
    fn statistics(&self) -> Vec<(String, i64)>;

    /// Checks the engine's own invariants and checksums; answers what is wrong, one line each.
    fn check(&self) -> Result<Vec<String>>;

    /// Syncs and closes: no transaction or read may start after it. Idempotent.
    fn close(&self) -> Result<()>;
}
