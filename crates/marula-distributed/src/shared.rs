//! The way to the distributed store, which the store, its views and its transactions share.
//!
//! Every call to the backend passes here, where it is counted as a *round trip* and, when the
//! backend is not reached, tried again for [`REACH_TIMEOUT`].

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use marula_storage::latch::Latches;
use marula_storage::{Caps, Direction, Epoch, Error, KeyRange, Space, Stamp};
use parking_lot::Mutex;

use crate::kv::{Block, BlockLimit, Commit, Conflict, Kv, KvError, Result, Version};
use crate::layout::{KEY_BYTES_MAX, Layout, VALUE_BYTES_MAX};
use crate::nodes::Sharing;
use crate::outcome::Slots;
use crate::pin::{self, Pin, Repeats};

/// The time for which a call tries to reach the store: a cluster that lost its leader has
/// another one by then.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// The first pause before a call is tried again; they double up to [`REACH_PAUSE_MAX`].
const REACH_PAUSE_MIN: Duration = Duration::from_millis(5);
const REACH_PAUSE_MAX: Duration = Duration::from_millis(500);

/// The number of times that a read of the newest state takes a new version, when its own is too
/// old.
pub(crate) const RENEWALS_MAX: usize = 10;

/// Keys whose values are known to lie in parts, at most; others leave parts that
/// `compact` finds.
const KNOWN_IN_PARTS_MAX: usize = 10_000;

/// The state of one adapter.
pub(crate) struct Shared {
    pub(crate) kv: Arc<dyn Kv>,
    pub(crate) layout: Layout,
    pub(crate) caps: Caps,
    pub(crate) latches: Latches,
    pub(crate) slots: Slots,
    pub(crate) trips: Trips,
    /// Where this process has a lease: what every commit claims to have read.
    fence: OnceLock<Fence>,
    /// The newest version at which the fence was seen to be this process's.
    fenced_at: AtomicU64,
    /// Where other processes write to the store too.
    pub(crate) sharing: OnceLock<Sharing>,
    /// The newest commit of this process.
    last_commit: AtomicU64,
    /// The newest version that has been seen.
    newest: AtomicU64,
    is_closed: AtomicBool,
    is_lost: AtomicBool,
    /// Keys whose values lie in parts, and the ids of these, as they were read.
    in_parts: Mutex<HashMap<(Space, Vec<u8>), u64>>,
    /// Parts that are written before the commit that makes them a value.
    pub(crate) staging: Mutex<HashSet<u64>>,
}

/// A key that has a value of this process's own until another process finds that this one has
/// ended. That it is so at the version of a commit, and stays so until the commit, is checked for
/// each.
struct Fence {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// A version of the store, and the epoch at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub(crate) version: Version,
    pub(crate) epoch: Epoch,
}

/// Round trips to the store, and what came of them.
#[derive(Default)]
pub(crate) struct Trips {
    pub(crate) versions: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) multi_gets: AtomicU64,
    pub(crate) ranges: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) unreached: AtomicU64,
    pub(crate) renewed: AtomicU64,
    pub(crate) staged: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The error of a store for a failure of the backend.
pub(crate) fn store_error(error: KvError) -> Error {
    match error {
        KvError::Conflict => Error::Conflict,
        KvError::TooOld => Error::TooOld,
        KvError::TooLarge => Error::TooLarge,
        KvError::Unknown => Error::Unknown,
        KvError::Unavailable(what) => Error::Unavailable(what),
        KvError::Corrupt(what) => Error::Corrupt(what),
    }
}

/// The failure of the backend that becomes an error of the store again.
pub(crate) fn kv_error(error: Error) -> KvError {
    match error {
        Error::Conflict => KvError::Conflict,
        Error::TooOld => KvError::TooOld,
        Error::TooLarge => KvError::TooLarge,
        Error::Unknown => KvError::Unknown,
        Error::Corrupt(what) => KvError::Corrupt(what),
        Error::Full(what) | Error::Unavailable(what) => KvError::Unavailable(what),
        Error::Io(error) => KvError::Unavailable(error.to_string()),
    }
}

impl Shared {
    /// The store that lies below `root`.
    pub(crate) fn new(kv: Arc<dyn Kv>, root: &[u8]) -> Self {
        let caps = Caps {
            name: kv.name(),
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            txn_bytes_max: kv.limits().commit_bytes_max,
            is_remote: true,
            is_persistent: kv.is_persistent(),
            keeps_deltas: false,
        };
        Shared {
            kv,
            layout: Layout::new(root),
            caps,
            latches: Latches::new(),
            slots: Slots::default(),
            trips: Trips::default(),
            fence: OnceLock::new(),
            fenced_at: AtomicU64::new(0),
            sharing: OnceLock::new(),
            last_commit: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            in_parts: Mutex::new(HashMap::new()),
            staging: Mutex::new(HashSet::new()),
        }
    }

    /// Fails once the store has been closed, or lost to another process.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(KvError::Unavailable("the store is closed".to_owned()));
        }
        if self.is_lost.load(Ordering::Acquire) {
            let what = "another process has taken over from this one, which must be restarted";
            return Err(KvError::Unavailable(what.to_owned()));
        }
        Ok(())
    }

    /// Has all calls fail from here on; answers whether they did already.
    pub(crate) fn close(&self) -> bool {
        self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// Has all calls fail from here on, because the store has another owner.
    pub(crate) fn lose(&self) {
        if !self.is_lost.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "other processes have seen no sign of life of this one for too long: it serves the store no longer, and must be restarted"
            );
        }
    }

    /// The newest state that this process has seen, or the one that this thread's operation reads.
    pub(crate) fn moment(&self) -> Stamp {
        let pinned = pin::of(self).and_then(|pin| pin.at);
        shown_at(pinned.map_or_else(|| self.newest.load(Ordering::Acquire), |at| at.version))
    }

    /// The newest version that has been seen.
    pub(crate) fn newest(&self) -> Version {
        self.newest.load(Ordering::Acquire)
    }

    /// Notes that a version is there.
    pub(crate) fn note(&self, version: Version) {
        self.newest.fetch_max(version, Ordering::AcqRel);
    }

    /// Repeats a call until the store is reached.
    fn retry<T>(
        &self,
        trips: &AtomicU64,
        mut question: impl FnMut(&dyn Kv) -> Result<T>,
    ) -> Result<T> {
        let mut until = None;
        let mut pause = REACH_PAUSE_MIN;
        loop {
            self.check_open()?;
            count(trips);
            match question(&*self.kv) {
                Err(KvError::Unavailable(what)) => {
                    count(&self.trips.unreached);
                    let now = Instant::now();
                    if now >= *until.get_or_insert(now + REACH_TIMEOUT) {
                        return Err(KvError::Unavailable(what));
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(REACH_PAUSE_MAX);
                }
                outcome => return outcome,
            }
        }
    }

    /// A version that shows all that is committed.
    pub(crate) fn version(&self) -> Result<Version> {
        let version = self.retry(&self.trips.versions, |kv| kv.read_version())?;
        self.note(version);
        Ok(version)
    }

    /// Has all commits from here on fail once `key` has not this value any more.
    pub(crate) fn fence_in(&self, key: Vec<u8>, value: Vec<u8>) {
        assert!(self.fence.set(Fence { key, value }).is_ok(), "a process has one lease");
    }

    /// The newest version and its epoch. This process has its lease at it.
    pub(crate) fn now(&self) -> Result<At> {
        self.now_with(None).map(|(at, _)| at)
    }

    /// The same, and the stored value of a key, which lies at `place`, at that version.
    pub(crate) fn now_with(&self, place: Option<&[u8]>) -> Result<(At, Option<Vec<u8>>)> {
        let Some(fence) = self.fence.get() else {
            let version = self.version()?;
            let value = place.map(|place| self.kv_get(version, place)).transpose()?;
            return Ok((At { version, epoch: 0 }, value.flatten()));
        };
        let sharing = self.sharing.get();
        let mut keys = vec![fence.key.clone()];
        keys.extend(sharing.map(|_| self.layout.epoch()));
        keys.extend(place.map(<[u8]>::to_vec));
        for _ in 0..RENEWALS_MAX {
            match self.retry(&self.trips.versions, |kv| kv.read_newest(&keys)) {
                Err(KvError::TooOld) => count(&self.trips.renewed),
                outcome => {
                    let (version, values) = outcome?;
                    let mut values = values.into_iter();
                    if values.next().flatten().as_ref() != Some(&fence.value) {
                        self.lose();
                        self.check_open()?;
                    }
                    self.note(version);
                    self.fenced_at.fetch_max(version, Ordering::AcqRel);
                    let epoch = sharing.and_then(|sharing| {
                        let epoch = values.next().flatten()?.try_into().ok();
                        let epoch = epoch.map(Epoch::from_be_bytes);
                        epoch.into_iter().for_each(|epoch| sharing.note_seen(epoch));
                        epoch
                    });
                    let at = At { version, epoch: epoch.unwrap_or(0) };
                    return Ok((at, values.next().flatten()));
                }
            }
        }
        Err(KvError::TooOld)
    }

    /// The fence, which this process has not lost at a version.
    ///
    /// Errors: it has been lost.
    pub(crate) fn fence_at(&self, at: Version) -> Result<Option<Conflict>> {
        let Some(fence) = self.fence.get() else { return Ok(None) };
        if at > self.fenced_at.load(Ordering::Acquire) {
            // A value that is lost never comes back, so it has been there at all versions before.
            self.now()?;
        }
        Ok(Some(Conflict::Key(fence.key.clone())))
    }

    /// The moment that a transaction of this thread decides by: the operation's, unless this
    /// process has committed since, so that writers that have waited for each other do not meet at
    /// the commit.
    pub(crate) fn txn_moment(&self) -> Result<At> {
        let pinned = pin::of(self);
        if pinned.is_some_and(|pin| pin.repeats != Repeats::No) {
            let at = self.now()?;
            return self.keep_first(at).map(|()| at);
        }
        let own = pinned.and_then(|pin| pin.at);
        if let Some(at) = own.filter(|at| at.version >= self.last_commit.load(Ordering::Acquire)) {
            return Ok(at);
        }
        let at = self.now()?;
        if pinned.is_some() {
            // Later reads of the operation show what the transaction has found.
            let is_current =
                self.sharing.get().is_none_or(|sharing| sharing.accepted() == at.epoch);
            pin::set(self, is_current.then_some(at));
        }
        Ok(at)
    }

    /// The moment that a read of the newest state shows: the one of this thread's operation, or a
    /// new one. The layers above have then brought their memory up to its epoch.
    pub(crate) fn reading_moment(&self) -> Result<At, Error> {
        self.check_repeats().map_err(store_error)?;
        let pinned = pin::of(self);
        if let Some(at) = pinned.and_then(|pin| pin.at) {
            return Ok(at);
        }
        let mut at = self.now().map_err(store_error)?;
        if pinned.is_some_and(|pin| pin.repeats != Repeats::No) {
            return self.keep_first(at).map(|()| at).map_err(store_error);
        }
        if let Some(sharing) = self.sharing.get() {
            for _ in 0..RENEWALS_MAX {
                let is_renewed = sharing.accepted() == at.epoch || sharing.renew()?;
                if !is_renewed || sharing.is_of(at) {
                    break;
                }
                at = self.now().map_err(store_error)?;
            }
        }
        if pinned.is_some() {
            pin::set(self, Some(at));
        }
        Ok(at)
    }

    /// The stored value of a key, which lies at `place`, with the version of an operation that has
    /// read nothing yet; `None` where the version is known, or is to be taken otherwise.
    pub(crate) fn first_read(&self, place: &[u8]) -> Result<Option<(Version, Option<Vec<u8>>)>> {
        let Some(pin) = pin::of(self) else { return Ok(None) };
        // Where the epoch does not matter, or is checked for the operation as a whole.
        let may_come_along = self.sharing.get().is_none() || pin.repeats != Repeats::No;
        if pin.at.is_some() || !may_come_along || self.fence.get().is_none() {
            return Ok(None);
        }
        let (at, value) = self.now_with(Some(place))?;
        self.keep_first(at)?;
        Ok(Some((at.version, value)))
    }

    /// Has the operation of this thread, which has read nothing yet, show a moment.
    ///
    /// Errors: the operation must be repeated, for memory is of another epoch, or was read at a
    /// later moment.
    pub(crate) fn keep_first(&self, at: At) -> Result<()> {
        let began_by = match pin::of(self).map(|pin| pin.repeats) {
            Some(Repeats::Maybe(epoch)) => epoch,
            _ => at.epoch,
        };
        let is_of = |sharing: &Sharing| began_by == at.epoch && sharing.is_of(at);
        if !self.sharing.get().is_none_or(is_of) {
            pin::set_repeats(self, Repeats::Yes);
        }
        self.check_repeats()?;
        pin::set(self, Some(at));
        Ok(())
    }

    /// Fails in an operation that must be repeated.
    pub(crate) fn check_repeats(&self) -> Result<()> {
        match pin::of(self) {
            Some(Pin { repeats: Repeats::Yes, .. }) => {
                let what = "the catalogue has changed: the operation begins again";
                Err(KvError::Unavailable(what.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the operation of this thread must be repeated.
    pub(crate) fn must_repeat(&self) -> Result<bool> {
        match pin::of(self).map(|pin| pin.repeats) {
            Some(Repeats::Yes) => Ok(true),
            // It has decided by memory alone.
            Some(Repeats::Maybe(began_by)) => {
                Ok(self.sharing.get().is_some() && self.now()?.epoch != began_by)
            }
            Some(Repeats::No) | None => Ok(false),
        }
    }

    /// Reads the newest state, or the moment of this thread's operation.
    pub(crate) fn read<T>(&self, mut read: impl FnMut(Version) -> Result<T>) -> Result<T, Error> {
        for _ in 0..RENEWALS_MAX {
            match read(self.reading_moment()?.version) {
                Err(KvError::TooOld) => {
                    count(&self.trips.renewed);
                    pin::forget_moment(self);
                }
                outcome => return outcome.map_err(store_error),
            }
        }
        Err(Error::TooOld)
    }

    /// Reads at the newest version. One that becomes too old on the way is taken again.
    pub(crate) fn at_newest<T>(&self, mut read: impl FnMut(Version) -> Result<T>) -> Result<T> {
        for _ in 0..RENEWALS_MAX {
            match read(self.version()?) {
                Err(KvError::TooOld) => count(&self.trips.renewed),
                outcome => return outcome,
            }
        }
        Err(KvError::TooOld)
    }

    pub(crate) fn kv_get(&self, at: Version, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.retry(&self.trips.gets, |kv| kv.get(at, key))
    }

    pub(crate) fn kv_get_many(
        &self,
        at: Version,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.retry(&self.trips.multi_gets, |kv| kv.get_many(at, keys))
    }

    pub(crate) fn kv_range(
        &self,
        at: Version,
        range: &KeyRange,
        direction: Direction,
        limit: BlockLimit,
    ) -> Result<Block> {
        self.retry(&self.trips.ranges, |kv| kv.range(at, range, direction, limit))
    }

    /// One try to commit. It is sent again while the store is not reached: then nothing has
    /// happened.
    pub(crate) fn kv_commit(&self, commit: &Commit) -> Result<Stamp> {
        let outcome = self.retry(&self.trips.commits, |kv| kv.commit(commit));
        match &outcome {
            Ok(stamp) => {
                self.note(stamp.version);
                self.last_commit.fetch_max(stamp.version, Ordering::AcqRel);
            }
            Err(KvError::Conflict) => count(&self.trips.conflicts),
            Err(KvError::Unknown) => count(&self.trips.unknown),
            Err(_) => {}
        }
        outcome
    }

    /// Notes the id of the parts in which the value of a key lies.
    pub(crate) fn note_in_parts(&self, space: Space, key: &[u8], id: u64) {
        let mut known = self.in_parts.lock();
        if known.len() < KNOWN_IN_PARTS_MAX {
            known.insert((space, key.to_vec()), id);
        }
    }

    /// The id of the parts of a key's value, where that is known; forgets it, for the value is
    /// about to change.
    pub(crate) fn take_in_parts(&self, space: Space, key: &[u8]) -> Option<u64> {
        let mut known = self.in_parts.lock();
        if known.is_empty() { None } else { known.remove(&(space, key.to_vec())) }
    }

    /// The counters, as the store's statistics show them.
    pub(crate) fn statistics(&self) -> Vec<(String, i64)> {
        let trips = &self.trips;
        [
            ("round trips.read versions", &trips.versions),
            ("round trips.gets", &trips.gets),
            ("round trips.gets of several keys", &trips.multi_gets),
            ("round trips.range blocks", &trips.ranges),
            ("round trips.commits", &trips.commits),
            ("commits.conflicts", &trips.conflicts),
            ("commits.unknown outcomes", &trips.unknown),
            ("commits.staged parts", &trips.staged),
            ("calls.store not reached", &trips.unreached),
            ("calls.version renewed", &trips.renewed),
        ]
        .map(|(name, counter)| (name.to_owned(), counter.load(Ordering::Relaxed) as i64))
        .to_vec()
    }
}

/// The stamp of the newest commit that a version shows: there is none later of that version.
pub(crate) fn shown_at(version: Version) -> Stamp {
    Stamp { version, order: u16::MAX }
}
