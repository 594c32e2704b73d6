//! A distributed store in one process, with FoundationDB's contract.
//!
//! Reads are at a version that [`Kv::read_version`] gave out, for five seconds of the store's
//! clock; a commit is refused when a later commit has written what it read, when what it read is
//! older than five seconds, and when it or a part of it is too large. Versions go on with the
//! clock, a million a second. [`Faults`] follow from a seed. Several adapters over one [`Sim`] are
//! several processes over one store.
//!
//! The *state* is one ordered map whose copies are free; a copy is kept for each version that was
//! given out. Recent commits are kept with what they wrote, to find conflicts.

mod clock;
mod faults;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use marula_storage::cluster::{Member, MemberState};
use marula_storage::memory::tree::{Bytes, Tree};
use marula_storage::{ClusterStatus, Direction, KeyRange, Stamp};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub use self::clock::{Clock, StepClock, SystemClock};
use self::faults::{Dice, Fate};
pub use self::faults::{Faults, PAUSE, SLOW_READ};
use crate::kv::{
    Block, BlockLimit, Commit, Conflict, Estimate, Kv, KvError, Limits, Mutation, Result, Version,
};

/// Versions of a second. Source: FoundationDB, "Known limitations".
const VERSIONS_PER_SECOND: u64 = 1_000_000;

/// The time for which a version can be read. Source: FoundationDB, "Known limitations", long
/// transactions.
const VERSION_AGE_MAX: Duration = Duration::from_secs(5);

/// Without commits, versions go on after so long: FoundationDB commits nothing now and then.
const IDLE: Duration = Duration::from_secs(1);

/// A late commit is made at one of this number of calls.
const LATE_ONE_IN: u64 = 4;

/// The longest sleep of a watch between two looks.
const WATCH_STEP: Duration = Duration::from_millis(100);

/// The simulated store.
pub struct Sim {
    limits: Limits,
    clock: Box<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    newest: Version,
    tree: Tree,
    /// The states of the versions that were given out.
    given: BTreeMap<Version, Tree>,
    /// The keys that recent commits wrote.
    recent: VecDeque<(Version, Vec<Conflict>)>,
    /// Commits of unknown outcome that are still to come.
    late: Vec<Commit>,
    dice: Dice,
}

impl Sim {
    /// An empty store with FoundationDB's limits.
    pub fn new(clock: impl Clock, faults: Faults) -> Self {
        let limits = Limits {
            key_bytes_max: 10_000,
            value_bytes_max: 100_000,
            commit_bytes_max: 10_000_000,
            mutations_max: usize::MAX,
            version_age_max: VERSION_AGE_MAX,
        };
        let state = State {
            newest: 1,
            tree: Tree::default(),
            given: BTreeMap::new(),
            recent: VecDeque::new(),
            late: Vec::new(),
            dice: Dice::new(faults),
        };
        Sim { limits, clock: Box::new(clock), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Changes what goes wrong from here on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().dice = Dice::new(faults);
    }

    /// The store's clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Makes the commits that are still to come.
    pub fn settle(&self) {
        let now = self.now();
        let mut state = self.state.lock();
        for commit in std::mem::take(&mut state.late) {
            let _ = state.commit(&commit, now);
        }
        self.changed.notify_all();
    }

    /// The version that the clock alone asks for.
    fn now(&self) -> Version {
        self.clock.now().as_micros() as u64 * VERSIONS_PER_SECOND / 1_000_000
    }

    /// Locks the state for a call. A late commit may come first.
    fn enter(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if !state.late.is_empty() && state.dice.next().is_multiple_of(LATE_ONE_IN) {
            let at = state.dice.next() as usize % state.late.len();
            let commit = state.late.swap_remove(at);
            // Nobody learns how it ends.
            let _ = state.commit(&commit, self.now());
            self.changed.notify_all();
        }
        state
    }

    /// The state as a version shows it.
    fn read(&self, at: Version) -> Result<Tree> {
        let mut state = self.enter();
        if state.dice.is_unreached() {
            return Err(KvError::Unavailable("the simulated store is not reached".to_owned()));
        }
        let delay = state.dice.delay();
        let is_too_old = state.dice.is_read_too_old();
        if !delay.is_zero() {
            MutexGuard::unlocked(&mut state, || self.clock.pass(delay));
        }
        state.forget(self.now());
        if is_too_old {
            return Err(KvError::TooOld);
        }
        state.given.get(&at).cloned().ok_or(KvError::TooOld)
    }

    fn check_sizes(&self, commit: &Commit) -> Result<()> {
        let limits = &self.limits;
        if commit.bytes() > limits.commit_bytes_max {
            return Err(KvError::TooLarge);
        }
        let mut sizes = commit.mutations.iter().map(|mutation| match mutation {
            Mutation::Set(key, value) => (key.len(), value.len()),
            Mutation::Clear(key) | Mutation::Add(key, _) => (key.len(), 0),
            // FoundationDB cuts the ends of ranges; the adapter has none that long.
            Mutation::ClearRange(range) => (range.start.len().max(range.end.len()), 0),
            Mutation::SetStamped { prefix, suffix, value } => {
                (prefix.len() + Stamp::BYTES + suffix.len(), value.len())
            }
        });
        let fits = sizes
            .all(|(key, value)| key <= limits.key_bytes_max && value <= limits.value_bytes_max);
        if fits { Ok(()) } else { Err(KvError::TooLarge) }
    }
}

impl State {
    /// Forgets what is too old.
    fn forget(&mut self, now: Version) {
        let window = VERSION_AGE_MAX.as_secs() * VERSIONS_PER_SECOND;
        let oldest = now.max(self.newest).saturating_sub(window);
        while let Some(version) = self.given.first_key_value().map(|(version, _)| *version)
            && version < oldest
        {
            self.given.pop_first();
        }
        while self.recent.front().is_some_and(|(version, _)| *version < oldest) {
            self.recent.pop_front();
        }
    }

    /// Makes the changes of a commit, if nothing stands against it.
    fn commit(&mut self, commit: &Commit, now: Version) -> Result<Stamp> {
        self.forget(now);
        if !commit.reads.is_empty() {
            let read = commit.read_version.expect("what was read was read at a version");
            let window = VERSION_AGE_MAX.as_secs() * VERSIONS_PER_SECOND;
            if read < now.max(self.newest).saturating_sub(window) {
                return Err(KvError::TooOld);
            }
            let later = self.recent.iter().rev().take_while(|(version, _)| *version > read);
            let meets = |written: &Conflict| commit.reads.iter().any(|read| read.meets(written));
            if later.flat_map(|(_, written)| written).any(meets) {
                return Err(KvError::Conflict);
            }
        }
        self.newest = now.max(self.newest + 1);
        let stamp = Stamp::of_version(self.newest);
        let mut written = commit.writes.clone();
        for mutation in &commit.mutations {
            written.push(self.apply(mutation, stamp));
        }
        self.recent.push_back((self.newest, written));
        Ok(stamp)
    }

    /// Makes one change; answers what it wrote.
    fn apply(&mut self, mutation: &Mutation, stamp: Stamp) -> Conflict {
        let tree = &mut self.tree;
        match mutation {
            Mutation::Set(key, value) => {
                tree.insert(key.as_slice().into(), Bytes::from(&value[..]));
                Conflict::Key(key.clone())
            }
            Mutation::Clear(key) => {
                tree.remove(key);
                Conflict::Key(key.clone())
            }
            Mutation::ClearRange(range) => {
                tree.clear(&range.start, &range.end);
                Conflict::Range(range.clone())
            }
            Mutation::Add(key, delta) => {
                let old = tree.get(key).and_then(|value| value.as_ref().try_into().ok());
                let new = old.map_or(0, i64::from_le_bytes).wrapping_add(*delta);
                tree.insert(key.as_slice().into(), Bytes::from(&new.to_le_bytes()[..]));
                Conflict::Key(key.clone())
            }
            Mutation::SetStamped { prefix, suffix, value } => {
                let key = [prefix, &stamp.to_bytes()[..], suffix].concat();
                tree.insert(key.as_slice().into(), Bytes::from(&value[..]));
                Conflict::Key(key)
            }
        }
    }
}

impl Kv for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn is_persistent(&self) -> bool {
        false
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn read_version(&self) -> Result<Version> {
        let mut state = self.enter();
        if state.dice.is_unreached() {
            return Err(KvError::Unavailable("the simulated store is not reached".to_owned()));
        }
        let now = self.now();
        if now.saturating_sub(state.newest) > IDLE.as_secs() * VERSIONS_PER_SECOND {
            state.newest = now;
        }
        state.forget(now);
        let State { newest, tree, given, .. } = &mut *state;
        given.entry(*newest).or_insert_with(|| tree.clone());
        Ok(*newest)
    }

    fn get(&self, at: Version, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.read(at)?.get(key).map(|value| value.to_vec()))
    }

    fn get_many(&self, at: Version, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let tree = self.read(at)?;
        Ok(keys.iter().map(|key| tree.get(key).map(|value| value.to_vec())).collect())
    }

    fn range(
        &self,
        at: Version,
        range: &KeyRange,
        direction: Direction,
        limit: BlockLimit,
    ) -> Result<Block> {
        let tree = self.read(at)?;
        let mut block = Block::default();
        let mut bytes = 0;
        let mut next = match direction {
            Direction::Forward => tree.at_or_above(&range.start, Ordering::Equal),
            Direction::Backward => tree.at_or_below(&range.end, Ordering::Less),
        };
        while let Some(place) = next {
            let (key, value) = (place.key(), place.value());
            if *key < *range.start || *key >= *range.end {
                break;
            }
            if block.entries.len() >= limit.entries_max || bytes >= limit.bytes_max {
                block.has_more = true;
                break;
            }
            bytes += key.len() + value.len();
            block.entries.push((key.to_vec(), value.to_vec()));
            next = match direction {
                Direction::Forward => tree.at_or_above(key, Ordering::Greater),
                Direction::Backward => tree.at_or_below(key, Ordering::Less),
            };
        }
        Ok(block)
    }

    fn commit(&self, commit: &Commit) -> Result<Stamp> {
        self.check_sizes(commit)?;
        let mut state = self.enter();
        let fate = state.dice.commit();
        match fate {
            Fate::Unreached => {
                return Err(KvError::Unavailable("the simulated store is not reached".to_owned()));
            }
            Fate::TooOld if !commit.reads.is_empty() => return Err(KvError::TooOld),
            Fate::Conflicts if !commit.reads.is_empty() => return Err(KvError::Conflict),
            Fate::UnknownNotDone => return Err(KvError::Unknown),
            Fate::UnknownLate => {
                state.late.push(commit.clone());
                return Err(KvError::Unknown);
            }
            Fate::Done | Fate::TooOld | Fate::Conflicts | Fate::UnknownDone => {}
        }
        let stamp = state.commit(commit, self.now())?;
        drop(state);
        self.changed.notify_all();
        if fate == Fate::UnknownDone { Err(KvError::Unknown) } else { Ok(stamp) }
    }

    fn watch(&self, key: &[u8], seen: Option<&[u8]>, timeout: Duration) -> Result<bool> {
        let until = Instant::now() + timeout;
        let mut state = self.enter();
        loop {
            if state.tree.get(key).map(|value| &**value) != seen {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.changed.wait_for(&mut state, left.min(WATCH_STEP));
        }
    }

    fn estimate(&self, range: &KeyRange) -> Result<Estimate> {
        if range.start >= range.end {
            return Ok(Estimate { bytes: Some(0), keys: None });
        }
        let tree = self.state.lock().tree.clone();
        let weight = tree.weight_below(&range.end).minus(tree.weight_below(&range.start));
        // FoundationDB estimates bytes alone.
        Ok(Estimate { bytes: Some(weight.bytes), keys: None })
    }

    fn split_points(&self, range: &KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
        if range.start >= range.end {
            return Ok(Vec::new());
        }
        let tree = self.state.lock().tree.clone();
        let first = tree.weight_below(&range.start).keys;
        let keys = tree.weight_below(&range.end).keys - first;
        let parts = keys.min(parts as u64);
        let ranks = (1..parts).map(|part| first + keys * part / parts);
        Ok(ranks.filter_map(|rank| tree.key_of_rank(rank)).map(|key| key.to_vec()).collect())
    }

    fn status(&self) -> Result<ClusterStatus> {
        let disk_bytes = self.state.lock().tree.weight_below(&[0xFF; 4]).bytes;
        let state = MemberState {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: "storage".to_owned(),
            disk_bytes,
            used_bytes: disk_bytes,
            ..MemberState::default()
        };
        let member =
            Member { name: "sim".to_owned(), address: "localhost:0".to_owned(), state: Ok(state) };
        Ok(ClusterStatus { members: vec![member], ..ClusterStatus::default() })
    }
}
