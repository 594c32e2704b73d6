//! The promises of an engine.
//!
//! Nouns: a *key* and a *value* are bytes; a [`Space`] is one of a few fixed key spaces; a [`View`]
//! reads committed data; a [`Txn`] buffers blind writes and commits them atomically; a [`Stamp`]
//! orders commits.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{ClusterStatus, Connections};
use crate::nodes::{Epoch, Nodes};
use crate::times::Times;

/// One of the fixed key spaces of a store. The same key in two spaces is two entries; an engine
/// tunes each space separately.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Space {
    /// The catalogue, counters and session records: few and small.
    Catalog,
    /// Documents.
    Records,
    /// Index entries: small and many; most have no value.
    Indexes,
}

impl Space {
    /// All spaces in declaration order.
    pub const ALL: [Space; 3] = [Space::Catalog, Space::Records, Space::Indexes];
}

/// Orders commits: a commit that starts after another has ended has the greater stamp.
///
/// A distributed store gives one version to all transactions that commit together, and orders them
/// by `order`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// The version of the store that the commit created.
    pub version: u64,
    /// The position among the commits of the same version; zero where each commit creates a
    /// version.
    pub order: u16,
}

impl Stamp {
    /// The size of a stamp as part of a key.
    pub const BYTES: usize = size_of::<u64>() + size_of::<u16>();

    /// The stamp of the only commit of a version.
    pub fn of_version(version: u64) -> Self {
        Stamp { version, order: 0 }
    }

    /// The stamp as part of a key; its byte order is commit order.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (version, order) = bytes.split_at_mut(size_of::<u64>());
        version.copy_from_slice(&self.version.to_be_bytes());
        order.copy_from_slice(&self.order.to_be_bytes());
        bytes
    }

    /// Decodes a stamp written by [`Stamp::to_bytes`].
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, order @ ..] = bytes;
        let version = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Stamp { version, order: u16::from_be_bytes(order) }
    }
}

/// Keys from `start` (inclusive) to `end` (exclusive).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first key of the range.
    pub start: Vec<u8>,
    /// The first key after the range.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// Every key that starts with `prefix`, which must not be empty nor all 0xFF.
    pub fn prefix(prefix: &[u8]) -> Self {
        let end = prefix_end(prefix).expect("a prefix has a byte below 0xFF");
        KeyRange { start: prefix.to_vec(), end }
    }
}

/// The first key after all keys that start with `prefix`; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The direction of a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

impl Direction {
    /// The opposite direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }
}

/// The limits and properties of an engine. An engine with large limits does not pay for engines
/// with small ones.
#[derive(Clone, Debug)]
pub struct Caps {
    /// The engine's name, as `serverStatus.storageEngine.name` shows it.
    pub name: &'static str,
    /// The maximum key length.
    pub key_bytes_max: usize,
    /// The maximum value length.
    pub value_bytes_max: usize,
    /// The maximum total bytes of keys and values in one transaction.
    pub txn_bytes_max: usize,
    /// Whether a read is a network round trip; callers then batch and prefetch.
    pub is_remote: bool,
    /// Whether committed data survives the end of the process.
    pub is_persistent: bool,
    /// Whether [`Txn::change`] stores deltas; otherwise it is of no use to compute them.
    pub keeps_deltas: bool,
}

/// Approximate statistics of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RangeStats {
    /// Approximate number of keys.
    pub keys: u64,
    /// Approximate bytes on disk.
    pub disk_bytes: u64,
}

/// Why an engine operation failed. An enum, because callers decide by it.
#[derive(Debug)]
pub enum Error {
    /// Another transaction holds or changed a guarded key. Retry the whole transaction.
    Conflict,
    /// The snapshot is older than the engine keeps. Take a new one.
    TooOld,
    /// The transaction, a key or a value exceeds a limit of [`Caps`].
    TooLarge,
    /// The outcome of the commit is unknown (a distributed store lost its connection).
    Unknown,
    /// Stored bytes are damaged.
    Corrupt(String),
    /// The disk is full; reads continue to work.
    Full(String),
    /// Another failure of the environment.
    Io(io::Error),
    /// The store is closing or unreachable.
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

/// The data that reads see: a [`Store`] shows the newest committed data at the time of each read, a
/// fixed view ([`Store::view`]) shows one moment.
///
/// Values are visited in place, where the engine holds them (a pinned cache block); `visit` copies
/// what it needs. `visit` must not call the store.
pub trait View: Send + Sync {
    /// The stamp of the newest commit that the view shows, of those whose stamps have been
    /// returned.
    fn moment(&self) -> Stamp;

    /// Returns whether the view always shows the same moment.
    fn is_fixed(&self) -> bool;

    /// Returns whether the view may show newer data than at its earlier moment `since`.
    fn has_moved(&self, since: Stamp) -> bool {
        self.moment() != since
    }

    /// Returns whether a read is a network round trip: callers then read ahead in large batches.
    fn is_far(&self) -> bool {
        false
    }

    /// The moment that every read shows as long as nothing is committed; `None` while each read may
    /// show another one.
    fn still_moment(&self) -> Option<Stamp> {
        self.is_fixed().then(|| self.moment())
    }

    /// Visits the value of `key`; returns whether the key exists. The visit may read this view too.
    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Reads several keys at once and holds their values, indexed as `keys`.
    ///
    /// Keys may come in any order and repeat; ascending order is cheapest. An engine bounds the
    /// memory that it holds: it reads one value whatever its size, and may leave others
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

/// The values read by [`View::get_many`]. They stay where the engine holds them (pinned cache
/// blocks) until this value is dropped, so drop it soon.
pub trait Values {
    /// The result for the key at index `place`. Panics when `place` is out of range.
    fn get(&self, place: usize) -> Looked<'_>;
}

/// The result of looking up one of several keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked<'v> {
    /// The value of the key.
    Found(&'v [u8]),
    /// The key is absent.
    Absent,
    /// The key was not read, because the value would have taken too much memory or the read failed:
    /// call [`View::get`], which returns the error.
    Unread,
}

/// Walks a range in key order. Key and value stay where the engine holds them until the next move.
pub trait Cursor {
    /// Moves to the next key of the range; returns whether there is one. After `false` every call
    /// returns `false`, after an error every call returns an error: unread keys are never reported
    /// as absent.
    fn advance(&mut self) -> Result<bool>;

    /// Moves to the first key at or after `key` in the cursor's direction (forward: the least key ≥
    /// `key`; backward: the greatest key ≤ `key`), within the range; returns whether there is one.
    /// `seek` may move in either direction.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;

    /// Skips up to `count` keys; returns the number skipped. Fewer than `count` means that the
    /// range has ended.
    fn pass(&mut self, count: u64) -> Result<u64> {
        for passed in 0..count {
            if !self.advance()? {
                return Ok(passed);
            }
        }
        Ok(count)
    }

    /// Returns whether the cursor is on a key: not before the first move, after the end, or after
    /// an error.
    fn is_on(&self) -> bool;

    /// The current key. Panics when the cursor is on none.
    fn key(&self) -> &[u8];

    /// The current value. Panics when the cursor is on none.
    fn value(&self) -> &[u8];

    /// The current key and value.
    fn entry(&self) -> (&[u8], &[u8]) {
        (self.key(), self.value())
    }
}

/// The default timeout of [`Txn::guard`], for all keys of a call together.
///
/// A single-document write holds its latch for tens of microseconds, so a thousand clients that
/// write the same document finish within a tenth of a second. Only a guard that meets a client's
/// transaction waits longer.
pub const GUARD_WAIT: Duration = Duration::from_millis(100);

/// Buffered writes that become visible together or not at all. Dropping it without a commit
/// discards them.
///
/// Writes are blind and reads add no conflicts: a key that must not change during the transaction
/// is guarded first, then read through [`Txn::view`].
pub trait Txn: Send {
    /// The view that the transaction reads: guarded keys do not change in it until the transaction
    /// ends.
    fn view(&self) -> &dyn View;

    /// Claims `keys` until the transaction ends: no other transaction that guards one of them
    /// commits in the meantime, and the values that [`Txn::view`] shows for them stay the same.
    ///
    /// In a transaction that began *since* a view ([`Store::begin_since`]) it also checks that the
    /// keys are unchanged since that view, and returns [`Error::Conflict`] for a changed one.
    ///
    /// An engine of one process takes latches here, with a bounded wait for each; a distributed
    /// engine records read conflicts. Guard keys that are known together in one call: a call takes
    /// them in the same order in every transaction. On [`Error::Conflict`] the caller drops the
    /// transaction and starts again.
    fn guard(&mut self, keys: &[(Space, &[u8])]) -> Result<()> {
        self.guard_within(keys, GUARD_WAIT)
    }

    /// [`Txn::guard`] with an explicit timeout. [`Duration::ZERO`] does not wait at all: for
    /// threads that must not block, and for transactions that return a write conflict at once.
    ///
    /// Two transactions that guard the same keys in several calls and in opposite orders would
    /// deadlock; one of the two gets [`Error::Conflict`] before its timeout.
    fn guard_within(&mut self, keys: &[(Space, &[u8])], timeout: Duration) -> Result<()>;

    /// Sets `key` to `value`.
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]);

    /// Sets `key` to `value` by the [delta](crate::delta) that leads there from its value in this
    /// transaction: the key is guarded and has one. An engine may store the delta instead.
    fn change(&mut self, space: Space, key: &[u8], value: &[u8], delta: &[u8]) {
        let _ = delta;
        self.put(space, key, value);
    }

    /// Removes `key`; does nothing if it is absent.
    fn delete(&mut self, space: Space, key: &[u8]);

    /// Removes every key of `range`.
    fn clear_range(&mut self, space: Space, range: &KeyRange);

    /// Adds `delta` to the counter at `key` in [`Space::Catalog`]: 8 bytes, i64, little-endian,
    /// absent means zero, wrapping. Additions commute and never conflict. A counter's key is
    /// written by `add` alone, or cleared by `clear_range` and `delete`.
    fn add(&mut self, key: &[u8], delta: i64);

    /// Has the commit change the epoch, for it changes what other nodes keep in memory: see
    /// [`crate::nodes`]. Does nothing in a store of one process.
    fn change_epoch(&mut self) {}

    /// Bytes of keys and values buffered so far; callers use it to bound the size of a transaction.
    fn size(&self) -> usize;

    /// Makes the writes visible and safe against the end of the process (the log has been handed to
    /// the operating system). Safety against power failure needs [`Store::sync`].
    fn commit(self: Box<Self>) -> Result<Stamp>;

    /// Commits *in turn*: of the transactions of all nodes that commit in this way with `key`, a
    /// key of [`Space::Catalog`], one is decided and committed after the other.
    ///
    /// `finish` gets the value that the last of them has put, and adds the writes that depend on
    /// it, a new value of `key` among them. It is called again when another one has come first;
    /// the transaction conflicts only if a key that it guards has changed.
    ///
    /// Errors: [`Error::Unavailable`] in a store of one process, where a lock does the same.
    fn commit_in_turn(self: Box<Self>, key: &[u8], finish: Finish<'_>) -> Result<Stamp> {
        let _ = (key, finish);
        Err(Error::Unavailable("commits in turn are for stores of several processes".to_owned()))
    }
}

/// Adds the last writes of a transaction: see [`Txn::commit_in_turn`].
pub type Finish<'f> = &'f mut dyn FnMut(Option<&[u8]>, &mut dyn Txn);

/// A store: an engine opened on its data. As a [`View`] it always shows the newest data.
pub trait Store: View + 'static {
    /// The limits and properties of the engine.
    fn caps(&self) -> &Caps;

    /// Returns a view of this moment, which keeps the store alive. The view prevents the removal of
    /// data that is overwritten or dropped later, so drop it soon.
    fn view(self: Arc<Self>) -> Result<Arc<dyn View>>;

    /// Starts a transaction that reads the newest state.
    fn begin(&self) -> Box<dyn Txn + '_>;

    /// Starts a transaction that reads `view`, a view of this store, and guards only keys that are
    /// unchanged since that view.
    fn begin_since<'s>(&'s self, view: &'s dyn View) -> Box<dyn Txn + 's>;

    /// Returns whether the value of a key now differs from its value in `view`, including added and
    /// removed keys.
    fn changed_since(&self, space: Space, key: &[u8], view: &dyn View) -> Result<bool> {
        let mut old = None;
        view.get(space, key, &mut |value| old = Some(value.to_vec()))?;
        let mut is_same = false;
        let is_there = self.get(space, key, &mut |new| is_same = old.as_deref() == Some(new))?;
        Ok(!is_same && (is_there || old.is_some()))
    }

    /// Checks that keys are unchanged since `view`.
    ///
    /// Errors: [`Error::Conflict`].
    fn check_unchanged(&self, keys: &[(Space, &[u8])], view: &dyn View) -> Result<()> {
        // Nothing has been committed since the view.
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

    /// The means to share the store with other processes; `None`, which never changes, in a store
    /// of one process.
    fn nodes(&self) -> Option<&dyn Nodes> {
        None
    }

    /// The machines of the store, as it reports them now: several round trips. Empty in a store
    /// that is in this process.
    fn cluster_status(&self) -> Result<ClusterStatus> {
        Ok(ClusterStatus::default())
    }

    /// The connections to the machines of the store, where this process makes them itself.
    fn connections(&self) -> Vec<Connections> {
        Vec::new()
    }

    /// Has this thread's reads of the newest state show one moment, this one, until the thread
    /// commits, meets a conflict, or calls [`Store::end_operation`]; returns the epoch of that
    /// moment. It moves on when the store no longer keeps it. A store whose reads are no round
    /// trips does nothing here.
    fn begin_operation(&self) -> Result<Epoch> {
        Ok(0)
    }

    /// [`Store::begin_operation`] for an operation that can be repeated from its start: the moment
    /// is that of its first read, and is not asked for before. If it turns out then that memory is
    /// of another epoch, this and all further reads and commits of the operation fail, and
    /// [`Store::must_repeat`] says so.
    fn begin_repeatable(&self) -> Result<()> {
        Ok(())
    }

    /// Returns whether the operation that [`Store::begin_repeatable`] began, and that has come to
    /// its end, must be repeated because memory was of another epoch than the store. It has
    /// written nothing then.
    fn must_repeat(&self) -> Result<bool> {
        Ok(false)
    }

    /// Ends what [`Store::begin_operation`] began; harmless where nothing was begun.
    fn end_operation(&self) {}

    /// Has files stay as they are until [`Store::release_files`], so that they can be copied one by
    /// one. Commits go on. Where there are no files, nothing happens.
    fn hold_files(&self) -> Result<()> {
        Ok(())
    }

    /// Lets go of held files.
    fn release_files(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until every commit up to `stamp` survives a power failure. Concurrent callers share
    /// one sync.
    fn sync(&self, stamp: Stamp) -> Result<()>;

    /// Calls `done` from another thread once [`Store::sync`] of `stamp` would return; at once when
    /// it would not wait. For callers that must not block their thread.
    fn on_sync(&self, stamp: Stamp, done: Box<dyn FnOnce(Result<()>) + Send>);

    /// Adds sorted, unique keys to an empty part of a space at once, without the log (an index
    /// build, a restore). Visible and safe as after [`Txn::commit`]. `next` writes the next key and
    /// value into the buffers and returns `false` at the end; keys must ascend.
    fn ingest(
        &self,
        space: Space,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<()>;

    /// Removes a range that has no readers left (a dropped collection) except views of earlier
    /// moments, where it stays readable. Frees its disk space soon, or once those views are gone.
    /// The time is at worst proportional to the size of the range: call it from the background.
    /// Idempotent.
    fn drop_range(&self, space: Space, range: &KeyRange) -> Result<()>;

    /// Rewrites a range in its most compact form. The time is not bounded; `progress` is called
    /// periodically and returns whether to continue.
    fn compact(
        &self,
        space: Space,
        range: &KeyRange,
        progress: &mut dyn FnMut() -> bool,
    ) -> Result<()>;

    /// Approximate statistics of a range. Takes microseconds.
    fn range_stats(&self, space: Space, range: &KeyRange) -> Result<RangeStats>;

    /// Keys that split a range into about `parts` parts of similar size, ascending; fewer when the
    /// range is small.
    fn split_points(&self, space: Space, range: &KeyRange, parts: usize) -> Result<Vec<Vec<u8>>>;

    /// Engine counters for diagnostics: dotted names and values, such as `("block cache.bytes
    /// currently in the cache", 1024)`.
    fn statistics(&self) -> Vec<(String, i64)>;

    /// The durations of syncs; `None` for an engine without them.
    fn sync_times(&self) -> Option<&Times> {
        None
    }

    /// The reason for which the store refuses writes; `None` if it accepts them.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Checks the engine's invariants and checksums; returns one line per fault.
    fn check(&self) -> Result<Vec<String>>;

    /// Syncs and closes the store; no transaction or read may start afterwards. Idempotent.
    fn close(&self) -> Result<()>;
}
