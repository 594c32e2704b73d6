//! The engine: Marula's store over a distributed one.

use std::sync::Arc;

use marula_storage::cluster::Connections;
use marula_storage::{
    Caps, ClusterStatus, Cursor, Direction, Epoch, KeyRange, Nodes, RangeStats, Result, Space,
    Stamp, Store, Txn, Values, View,
};
use parking_lot::Mutex;

use crate::kv::{BlockLimit, Commit, Conflict, Kv, KvError, Mutation};
use crate::layout::{self, FORMAT};
use crate::lease::{Lease, LeaseOptions};
use crate::nodes::{Membership, Sharing};
use crate::pin::{self, Repeats};
use crate::shared::{Shared, shown_at, store_error};
use crate::txn::RemoteTxn;
use crate::view::{self, FixedView};

/// Work over many keys is cut into commits of this size, or an eighth of the largest: keys count
/// more than once.
const CUT_BYTES_MAX: usize = 1 << 20;

/// Entries that are read to learn how large those of a range are.
const SAMPLE: BlockLimit = BlockLimit { entries_max: 200, bytes_max: 64 << 10 };

/// How a distributed store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// In front of every key: several stores may share a cluster.
    pub root: Vec<u8>,
    /// The lease that this process takes; without one it must know that it is alone.
    pub lease: Option<LeaseOptions>,
    /// Whether other processes may serve the store at the same time; needs a lease.
    pub is_shared: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { root: b"marula/".to_vec(), lease: None, is_shared: false }
    }
}

/// A store over a distributed one.
pub struct Distributed {
    shared: Arc<Shared>,
    lease: Mutex<Option<Lease>>,
    /// Where the store is shared.
    membership: Option<Membership>,
}

impl Distributed {
    /// Opens the store that lies below [`Options::root`]; makes it where there is none.
    ///
    /// Errors: the store cannot be reached, is of another format, or has an owner that lives.
    pub fn open(kv: Arc<dyn Kv>, options: Options) -> Result<Self> {
        let limits = kv.limits();
        assert!(limits.key_bytes_max >= 9_000, "places of keys take so much");
        assert!(limits.value_bytes_max > layout::PART_BYTES, "a part is a value");
        let shared = Arc::new(Shared::new(kv, &options.root));
        let (lease, membership) = match (options.lease, options.is_shared) {
            (None, is_shared) => {
                assert!(!is_shared, "who shares a store shows that it lives");
                (None, None)
            }
            (Some(lease), false) => {
                (Some(Lease::take(&shared, &lease).map_err(store_error)?), None)
            }
            (Some(lease), true) => {
                (None, Some(Membership::join(&shared, &lease).map_err(store_error)?))
            }
        };
        check_format(&shared).map_err(store_error)?;
        Ok(Distributed { shared, lease: Mutex::new(lease), membership })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Removes parts that belong to no value: of values that were overwritten unseen.
    fn collect(
        &self,
        space: Space,
        range: &KeyRange,
        progress: &mut dyn FnMut() -> bool,
    ) -> Result<(), KvError> {
        let shared = &*self.shared;
        let mut rest = shared.layout.parts_of_range(space, range);
        let limit = BlockLimit { entries_max: 1, bytes_max: 1 };
        while rest.start < rest.end && progress() {
            let first = |at| {
                let block = shared.kv_range(at, &rest, Direction::Forward, limit)?;
                let Some((part, _)) = block.entries.into_iter().next() else { return Ok(None) };
                let wrong = || KvError::Corrupt("a part has a key of no known form".to_owned());
                let (place, id) = shared.layout.parse_part(space, &part).ok_or_else(wrong)?;
                let stored = shared.kv_get(at, &place)?;
                Ok(Some((at, part, place, id, stored)))
            };
            let Some((at, part, place, id, stored)) = shared.at_newest(first)? else { break };
            // The number of the part is the last four bytes.
            let start = part[..part.len() - 4].to_vec();
            let end = [&start[..], &[0xFF; 5]].concat();
            rest.start = end.clone();
            let is_named = stored.is_some_and(|stored| layout::names_parts(&stored, id));
            if is_named || shared.staging.lock().contains(&id) {
                continue;
            }
            // Another process may be staging it.
            match shared.kv_get(at, &shared.layout.staged(id)) {
                Ok(None) => {}
                Ok(Some(_)) | Err(KvError::TooOld) => continue,
                Err(error) => return Err(error),
            }
            let outcome = shared.commit(Commit {
                read_version: Some(at),
                reads: vec![Conflict::Key(place)],
                writes: Vec::new(),
                mutations: vec![Mutation::ClearRange(KeyRange { start, end })],
            });
            match outcome {
                // A value that has just been written is left to another compaction.
                Ok(_) | Err(KvError::Conflict | KvError::TooOld) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn stats(&self, space: Space, range: &KeyRange) -> Result<RangeStats, KvError> {
        if range.start >= range.end {
            return Ok(RangeStats::default());
        }
        let shared = &*self.shared;
        let places = shared.layout.range(space, range);
        let sample =
            |direction| shared.at_newest(|at| shared.kv_range(at, &places, direction, SAMPLE));
        let first = sample(Direction::Forward)?;
        let weigh = |entries: &[(Vec<u8>, Vec<u8>)]| -> u64 {
            entries.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
        };
        let parts = shared.kv.estimate(&shared.layout.parts_of_range(space, range))?;
        let parts_bytes = parts.bytes.unwrap_or(0);
        if !first.has_more {
            let keys = first.entries.len() as u64;
            return Ok(RangeStats { keys, disk_bytes: weigh(&first.entries) + parts_bytes });
        }
        let last = sample(Direction::Backward)?;
        let count = (first.entries.len() + last.entries.len()) as u64;
        let entry_bytes = (weigh(&first.entries) + weigh(&last.entries)) / count;
        let estimate = shared.kv.estimate(&places)?;
        // A store without estimates has at least the entries that were seen.
        let (keys, bytes) = match (estimate.keys, estimate.bytes) {
            (Some(keys), Some(bytes)) => (keys, bytes),
            (Some(keys), None) => (keys, keys * entry_bytes),
            (None, Some(bytes)) => (bytes / entry_bytes.max(1), bytes),
            (None, None) => (count, count * entry_bytes),
        };
        Ok(RangeStats { keys: keys.max(count / 2), disk_bytes: bytes + parts_bytes })
    }
}

/// Notes the format of a new store; refuses one of another format.
fn check_format(shared: &Shared) -> Result<(), KvError> {
    let key = shared.layout.format();
    loop {
        let (at, found) = shared.at_newest(|at| Ok((at, shared.kv_get(at, &key)?)))?;
        match found.as_deref() {
            Some([FORMAT]) => return Ok(()),
            Some(other) => {
                let what = format!("the store has format {other:?}, and this is format {FORMAT}");
                return Err(KvError::Unavailable(what));
            }
            None => {}
        }
        let noted = shared.commit(Commit {
            read_version: Some(at),
            reads: vec![Conflict::Key(key.clone())],
            writes: Vec::new(),
            mutations: vec![Mutation::Set(key.clone(), vec![FORMAT])],
        });
        match noted {
            // Another process has been quicker, or it took too long: look again.
            Ok(_) | Err(KvError::Conflict | KvError::TooOld) => {}
            Err(error) => return Err(error),
        }
    }
}

impl View for Distributed {
    fn moment(&self) -> Stamp {
        self.shared.moment()
    }

    fn is_fixed(&self) -> bool {
        false
    }

    fn is_far(&self) -> bool {
        true
    }

    fn still_moment(&self) -> Option<Stamp> {
        pin::of(&self.shared).and_then(|pin| pin.at).map(|at| shown_at(at.version))
    }

    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        view::get(&self.shared, None, space, key, visit)
    }

    fn get_many<'r>(&'r self, space: Space, keys: &[&[u8]]) -> Result<Box<dyn Values + 'r>> {
        view::get_many(&self.shared, None, space, keys)
    }

    fn cursor<'r>(
        &'r self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'r>> {
        view::cursor(&self.shared, None, (space, range, direction))
    }
}

impl Store for Distributed {
    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn view(self: Arc<Self>) -> Result<Arc<dyn View>> {
        // A new moment, which the store keeps for long.
        pin::forget_moment(&self.shared);
        let at = self.shared.reading_moment()?.version;
        Ok(Arc::new(FixedView { shared: self.shared.clone(), at }))
    }

    fn nodes(&self) -> Option<&dyn Nodes> {
        self.membership.as_ref().map(|membership| membership as &dyn Nodes)
    }

    fn cluster_status(&self) -> Result<ClusterStatus> {
        self.shared.kv.status().map_err(store_error)
    }

    fn connections(&self) -> Vec<Connections> {
        self.shared.kv.connections()
    }

    fn begin_operation(&self) -> Result<Epoch> {
        if self.membership.is_none() {
            // There is no epoch to compare: the first read brings the version along.
            pin::set(&self.shared, None);
            return Ok(0);
        }
        pin::end();
        let mut at = self.shared.now().map_err(store_error)?;
        if self.shared.sharing.get().is_some_and(|sharing| !sharing.is_of(at)) {
            // Another operation may have just read the catalogue, at a later moment.
            at = self.shared.now().map_err(store_error)?;
        }
        pin::set(&self.shared, Some(at));
        Ok(at.epoch)
    }

    fn begin_repeatable(&self) -> Result<()> {
        let accepted = self.shared.sharing.get().map_or(0, Sharing::accepted);
        pin::set_repeats(&self.shared, Repeats::Maybe(accepted));
        Ok(())
    }

    fn must_repeat(&self) -> Result<bool> {
        self.shared.must_repeat().map_err(store_error)
    }

    fn end_operation(&self) {
        pin::end();
    }

    fn begin(&self) -> Box<dyn Txn + '_> {
        Box::new(RemoteTxn::new(self, None))
    }

    fn begin_since<'s>(&'s self, view: &'s dyn View) -> Box<dyn Txn + 's> {
        Box::new(RemoteTxn::new(self, Some(view)))
    }

    fn changed_since(&self, space: Space, key: &[u8], view: &dyn View) -> Result<bool> {
        Ok(!self.are_same(space, &[key], self, view)?)
    }

    fn check_unchanged(&self, keys: &[(Space, &[u8])], view: &dyn View) -> Result<()> {
        self.check_now(keys, view)
    }

    fn sync(&self, _stamp: Stamp) -> Result<()> {
        // A commit is durable on a quorum when it ends.
        Ok(())
    }

    fn on_sync(&self, _stamp: Stamp, done: Box<dyn FnOnce(Result<()>) + Send>) {
        done(Ok(()));
    }

    fn ingest(
        &self,
        space: Space,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let (mut first, mut last): (Option<Vec<u8>>, Vec<u8>) = (None, Vec::new());
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let limits = self.shared.kv.limits();
        let cut_bytes = CUT_BYTES_MAX.min(limits.commit_bytes_max / 8);
        let mut run = || {
            let mut txn = self.begin();
            let mut count = 0;
            while next(&mut key, &mut value)? {
                assert!(first.is_none() || last < key, "ingested keys ascend");
                first.get_or_insert_with(|| key.clone());
                last.clone_from(&key);
                txn.put(space, &key, &value);
                count += 1;
                if txn.size() >= cut_bytes || count >= limits.mutations_max / 2 {
                    txn.commit()?;
                    txn = self.begin();
                    count = 0;
                }
            }
            if txn.size() > 0 {
                txn.commit()?;
            }
            Ok(())
        };
        let outcome = run();
        if let (Err(_), Some(start)) = (&outcome, first) {
            // That part of the space was empty before.
            let range = KeyRange { start, end: [&last[..], &[0]].concat() };
            self.drop_range(space, &range)?;
        }
        outcome
    }

    fn drop_range(&self, space: Space, range: &KeyRange) -> Result<()> {
        let mut txn = self.begin();
        txn.clear_range(space, range);
        txn.commit().map(drop)
    }

    fn compact(
        &self,
        space: Space,
        range: &KeyRange,
        progress: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        self.shared.check_open().map_err(store_error)?;
        if !progress() || range.start >= range.end {
            return Ok(());
        }
        self.collect(space, range, progress).map_err(store_error)
    }

    fn range_stats(&self, space: Space, range: &KeyRange) -> Result<RangeStats> {
        self.stats(space, range).map_err(store_error)
    }

    fn split_points(&self, space: Space, range: &KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
        if range.start >= range.end || parts < 2 {
            return Ok(Vec::new());
        }
        let layout = &self.shared.layout;
        let places = self.shared.kv.split_points(&layout.range(space, range), parts);
        let mut points: Vec<Vec<u8>> = Vec::new();
        for place in places.map_err(store_error)? {
            let (key, _) = layout.parse(space, &place).map_err(store_error)?;
            let is_in = *key > *range.start && *key < *range.end;
            if is_in && points.last().is_none_or(|last| **last < *key) {
                points.push(key.to_vec());
            }
        }
        Ok(points)
    }

    fn statistics(&self) -> Vec<(String, i64)> {
        self.shared.statistics()
    }

    fn check(&self) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for space in Space::ALL {
            let everything = KeyRange { start: Vec::new(), end: vec![0xFF; 64] };
            let mut cursor = self.cursor(space, &everything, Direction::Forward)?;
            loop {
                match cursor.advance() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(marula_storage::Error::Corrupt(what)) => {
                        wrong.push(format!("{space:?}: {what}"));
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(wrong)
    }

    fn close(&self) -> Result<()> {
        if let Some(lease) = self.lease.lock().take() {
            lease.give_up();
        }
        if let Some(membership) = &self.membership {
            membership.leave();
        }
        self.shared.close();
        Ok(())
    }
}
