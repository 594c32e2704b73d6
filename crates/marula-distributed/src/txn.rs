//! Transactions: buffered writes, what they guard, and one commit.
//!
//! A guard excludes the writers of this process by latches, as in an engine of one process, so that
//! those do not meet at the commit; it excludes other processes by read conflicts at the version
//! that the first guard takes. Values too large for one key go into parts; where there is much of
//! them they are *staged*: written before the commit, under a note that says so, which the commit
//! removes.

use std::time::Duration;

use marula_storage::latch::HeldStripes;
use marula_storage::{Epoch, Error, Finish, KeyRange, Looked, Result, Space, Stamp, Txn, View};
use rand::RngExt;

use crate::kv::{Commit, Conflict, KvError, Mutation, Version};
use crate::layout::{self, KEY_BYTES_MAX, PART_BYTES, PartsRef, VALUE_BYTES_MAX};
use crate::nodes::Sharing;
use crate::pin;
use crate::read::{self, Found};
use crate::shared::{Shared, count, store_error};
use crate::store::Distributed;
use crate::view::TxnView;

/// The number of times that a commit in turn is tried when others come first, and the pauses
/// between the tries, which grow with their number.
const TURNS_MAX: u32 = 200;
const TURN_PAUSE: Duration = Duration::from_millis(1);
const TURN_PAUSE_MAX: u32 = 20;

/// Values in parts that take more than this of what a commit takes are staged.
const STAGED_FROM: f64 = 0.4;

pub(crate) struct RemoteTxn<'s> {
    store: &'s Distributed,
    shared: &'s Shared,
    view: TxnView<'s>,
    /// The view that it decides by, where that is not the newest state.
    since: Option<&'s dyn View>,
    /// The places of the guarded keys.
    guarded: Vec<Vec<u8>>,
    /// The key of a commit in turn, as it was at the version that it has read at.
    turn: Option<Conflict>,
    /// The epoch at the version that it has read at.
    epoch: Epoch,
    changes_epoch: bool,
    writes: Vec<Write>,
    size: usize,
    // After the writes: latches are let go after the commit.
    held: HeldStripes<'s>,
}

#[derive(Clone)]
enum Write {
    Put(Space, Vec<u8>, Vec<u8>),
    Delete(Space, Vec<u8>),
    Clear(Space, KeyRange),
    Add(Vec<u8>, i64),
}

/// A value on its way into parts.
struct Large {
    space: Space,
    key: Vec<u8>,
    bytes: Vec<u8>,
    parts: PartsRef,
}

impl<'s> RemoteTxn<'s> {
    pub(crate) fn new(store: &'s Distributed, since: Option<&'s dyn View>) -> Self {
        let shared = store.shared();
        RemoteTxn {
            store,
            shared,
            view: TxnView::new(shared),
            since,
            guarded: Vec::new(),
            turn: None,
            epoch: 0,
            changes_epoch: false,
            writes: Vec::new(),
            size: 0,
            held: shared.latches.hold(),
        }
    }

    /// The version that it has read at, taken when it is first needed.
    fn version(&mut self) -> Result<Version> {
        if self.view.at.is_none() {
            let at = self.shared.txn_moment().map_err(store_error)?;
            self.epoch = at.epoch;
            self.view.at = Some(at.version);
        }
        Ok(self.view.at.expect("it was just taken"))
    }

    /// Checks that keys are now, at the version of this transaction, as they were in `view`.
    fn check_unchanged(&mut self, keys: &[(Space, &[u8])], view: &dyn View) -> Result<()> {
        self.version()?;
        for space in Space::ALL {
            let keys: Vec<&[u8]> =
                keys.iter().filter(|(of, _)| *of == space).map(|(_, key)| *key).collect();
            if !keys.is_empty() && !self.store.are_same(space, &keys, &self.view, view)? {
                return Err(Error::Conflict);
            }
        }
        Ok(())
    }

    /// The changes of its commit, and the values that go into parts.
    fn encode(&mut self) -> Result<(Vec<Mutation>, Vec<Large>)> {
        let layout = &self.shared.layout;
        let mut mutations = Vec::with_capacity(self.writes.len() + 1);
        let mut large = Vec::new();
        for write in self.writes.drain(..) {
            if let Write::Put(space, key, _) | Write::Delete(space, key) = &write
                && let Some(id) = self.shared.take_in_parts(*space, key)
            {
                mutations.push(Mutation::ClearRange(layout.parts(*space, key, id)));
            }
            match write {
                Write::Put(_, key, value)
                    if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX =>
                {
                    return Err(Error::TooLarge);
                }
                Write::Put(space, key, value) => match layout::encode(&key, &value) {
                    Some(stored) => mutations.push(Mutation::Set(layout.key(space, &key), stored)),
                    None => {
                        let bytes = layout::in_parts(&key, &value).into_owned();
                        let parts = PartsRef { id: rand::rng().random(), length: bytes.len() };
                        let stored = layout::encode_parts(&key, parts);
                        mutations.push(Mutation::Set(layout.key(space, &key), stored));
                        large.push(Large { space, key, bytes, parts });
                    }
                },
                Write::Delete(space, key) => {
                    mutations.push(Mutation::Clear(layout.key(space, &key)))
                }
                Write::Clear(_, range) if range.start >= range.end => {}
                Write::Clear(_, range)
                    if layout::is_long(&range.start) || layout::is_long(&range.end) =>
                {
                    // Long keys do not lie in order. Ranges of the layers above end at idents.
                    return Err(Error::TooLarge);
                }
                Write::Clear(space, range) => {
                    mutations.push(Mutation::ClearRange(layout.range(space, &range)));
                    mutations.push(Mutation::ClearRange(layout.parts_of_range(space, &range)));
                }
                Write::Add(key, delta) => {
                    mutations.push(Mutation::Add(layout.key(Space::Catalog, &key), delta));
                }
            }
        }
        Ok((mutations, large))
    }

    fn commit_all(&mut self) -> Result<Stamp, KvError> {
        let (mut mutations, large) = match self.encode() {
            Ok(encoded) => encoded,
            Err(_) => return Err(KvError::TooLarge),
        };
        let large = self.still_there(large, &mutations);
        let bytes: usize = large.iter().map(|large| large.bytes.len()).sum();
        let limit = (self.shared.kv.limits().commit_bytes_max as f64 * STAGED_FROM) as usize;
        let is_staged = bytes > limit;
        if is_staged {
            self.shared.staging.lock().extend(large.iter().map(|large| large.parts.id));
            if let Err(error) = self.stage(&large, limit) {
                self.end_staging(&large, true);
                return Err(error);
            }
            let notes = large.iter().map(|large| self.shared.layout.staged(large.parts.id));
            mutations.extend(notes.map(Mutation::Clear));
        } else {
            mutations.extend(large.iter().flat_map(|large| self.parts_of(large)));
        }
        let commit = Commit {
            read_version: self.view.at,
            reads: self.guarded.drain(..).map(Conflict::Key).collect(),
            writes: Vec::new(),
            mutations,
        };
        let outcome = match self.shared.sharing.get() {
            None => self.shared.commit(commit),
            Some(sharing) => self.commit_shared(sharing, commit),
        };
        if is_staged {
            let is_undone = outcome.as_ref().is_err_and(|error| *error != KvError::Unknown);
            self.end_staging(&large, is_undone);
        }
        outcome
    }

    /// Commits where other processes write too. A transaction that guards keys decides by what this
    /// process keeps in memory, so it commits under the epoch of that alone. One that guards none
    /// is of an owner that nobody competes with.
    fn commit_shared(&mut self, sharing: &Sharing, mut commit: Commit) -> Result<Stamp, KvError> {
        let is_guarding = !commit.reads.is_empty();
        commit.reads.extend(self.turn.clone());
        if !is_guarding && !self.changes_epoch {
            return self.shared.commit(commit);
        }
        if self.version().is_err() {
            return Err(KvError::Unavailable("the store gives no version".to_owned()));
        }
        commit.read_version = self.view.at;
        let key = self.shared.layout.epoch();
        let next: Epoch = rand::rng().random();
        if self.changes_epoch {
            commit.mutations.push(Mutation::Set(key.clone(), next.to_be_bytes().to_vec()));
        }
        let is_current = sharing.accepted() == self.epoch;
        if !is_current {
            sharing.note_seen(self.epoch);
            if is_guarding {
                return Err(KvError::Conflict);
            }
        }
        if !is_guarding && !is_current {
            return self.shared.commit(commit);
        }
        // A commit in turn is tried again by its caller.
        let blind = (!is_guarding && self.turn.is_none()).then(|| commit.clone());
        commit.reads.push(Conflict::Key(key));
        match (self.shared.commit(commit), blind) {
            (Ok(stamp), _) => {
                if self.changes_epoch {
                    sharing.follow(self.epoch, next);
                }
                Ok(stamp)
            }
            // The epoch has changed. This process accepts neither that change nor its own, and
            // reads the catalogue again.
            (Err(KvError::Conflict | KvError::TooOld), Some(mut blind)) => {
                blind.read_version = None;
                let outcome = self.shared.commit(blind);
                sharing.note_seen(next);
                outcome
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Moves on to the newest version, at which all guarded keys must be as they were; returns the
    /// stored value of the key at `place` there.
    ///
    /// Errors: [`KvError::Conflict`] if a guarded key has changed.
    fn move_on(&mut self, place: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let (at, value) = self.shared.now_with(Some(place))?;
        if let Some(before) = self.view.at.filter(|before| *before != at.version) {
            let was = self.shared.kv_get_many(before, &self.guarded)?;
            if was != self.shared.kv_get_many(at.version, &self.guarded)? {
                return Err(KvError::Conflict);
            }
        }
        self.view.at = Some(at.version);
        self.epoch = at.epoch;
        self.turn = Some(Conflict::Key(place.to_vec()));
        Ok(value)
    }

    /// Returns whether it has decided by a memory that is of another epoch: then no try succeeds.
    fn is_outdated(&self) -> bool {
        let sharing = self.shared.sharing.get().filter(|_| !self.guarded.is_empty());
        sharing.is_some_and(|sharing| {
            sharing.note_seen(self.epoch);
            sharing.accepted() != self.epoch
        })
    }

    /// Tries to commit in turn until no other commit comes first, or a guarded key has changed.
    fn commit_in_turns(&mut self, key: &[u8], finish: Finish<'_>) -> Result<Stamp, KvError> {
        let place = self.shared.layout.key(Space::Catalog, key);
        let (writes, guarded, size) = (self.writes.clone(), self.guarded.clone(), self.size);
        for turn in 1..=TURNS_MAX {
            let value = match self.move_on(&place)?.map(read::open).transpose()? {
                Some(Found::Whole(_, value)) => Some(value),
                Some(Found::Parts(_)) => {
                    return Err(KvError::Corrupt("the value of a turn is too large".to_owned()));
                }
                None => None,
            };
            if self.is_outdated() {
                return Err(KvError::Conflict);
            }
            finish(value.as_ref().map(read::Value::as_slice), self);
            match self.commit_all() {
                Err(KvError::Conflict | KvError::TooOld) => {}
                outcome => return outcome,
            }
            self.writes.clone_from(&writes);
            self.guarded.clone_from(&guarded);
            self.size = size;
            let most = TURN_PAUSE * turn.min(TURN_PAUSE_MAX);
            std::thread::sleep(rand::rng().random_range(Duration::ZERO..most));
        }
        Err(KvError::Conflict)
    }

    fn check_open(&self) -> Result<()> {
        self.shared.check_open().map_err(store_error)?;
        self.shared.check_repeats().map_err(store_error)
    }

    /// The outcome of the commit, after which the thread's operation reads a newer moment: also
    /// after a conflict, because something that was read has changed.
    fn ended(&self, outcome: Result<Stamp, KvError>) -> Result<Stamp> {
        pin::forget_moment(self.shared);
        outcome.map_err(|error| match error {
            // A transaction that took longer than the store keeps versions is begun again.
            KvError::TooOld if self.since.is_none() => Error::Conflict,
            error => store_error(error),
        })
    }

    /// Nothing is staged any more: it has become a value, or it is removed.
    fn end_staging(&self, large: &[Large], is_undone: bool) {
        if is_undone {
            // The next owner of the store does it where this fails.
            let _ = self.unstage(large);
        }
        let mut staging = self.shared.staging.lock();
        for large in large {
            staging.remove(&large.parts.id);
        }
    }

    /// Those of the large values that no later write of the transaction takes away again.
    fn still_there(&self, mut large: Vec<Large>, mutations: &[Mutation]) -> Vec<Large> {
        large.retain(|large| {
            let place = self.shared.layout.key(large.space, &large.key);
            let own = layout::encode_parts(&large.key, large.parts);
            mutations
                .iter()
                .rev()
                .find_map(|mutation| match mutation {
                    Mutation::Set(key, value) if *key == place => Some(*value == own),
                    Mutation::Clear(key) if *key == place => Some(false),
                    Mutation::ClearRange(range) if range.start <= place && place < range.end => {
                        Some(false)
                    }
                    _ => None,
                })
                .unwrap_or(false)
        });
        large
    }

    fn parts_of<'l>(&'l self, large: &'l Large) -> impl Iterator<Item = Mutation> + 'l {
        large.bytes.chunks(PART_BYTES).enumerate().map(move |(number, bytes)| {
            let Large { space, key, parts, .. } = large;
            Mutation::Set(self.shared.layout.part(*space, key, parts.id, number), bytes.to_vec())
        })
    }

    /// Writes large values before the commit, in commits of about `limit` bytes.
    fn stage(&self, large: &[Large], limit: usize) -> Result<(), KvError> {
        let mut mutations = Vec::new();
        let mut bytes = 0;
        for large in large {
            let place = self.shared.layout.key(large.space, &large.key);
            let range = self.shared.layout.parts(large.space, &large.key, large.parts.id);
            let note = note(large.space, &place, &range.start);
            mutations.push(Mutation::Set(self.shared.layout.staged(large.parts.id), note));
            for part in self.parts_of(large) {
                bytes += part.bytes();
                mutations.push(part);
                if bytes >= limit {
                    bytes = 0;
                    self.commit_staged(std::mem::take(&mut mutations))?;
                }
            }
        }
        self.commit_staged(mutations)
    }

    fn commit_staged(&self, mutations: Vec<Mutation>) -> Result<(), KvError> {
        if !mutations.is_empty() {
            count(&self.shared.trips.staged);
            self.shared.commit(Commit { mutations, ..Commit::default() })?;
        }
        Ok(())
    }

    fn unstage(&self, large: &[Large]) -> Result<(), KvError> {
        let layout = &self.shared.layout;
        let mutations = large
            .iter()
            .flat_map(|large| {
                [
                    Mutation::ClearRange(layout.parts(large.space, &large.key, large.parts.id)),
                    Mutation::Clear(layout.staged(large.parts.id)),
                ]
            })
            .collect();
        self.shared.commit(Commit { mutations, ..Commit::default() }).map(drop)
    }
}

/// The note of a value that is being staged: its space, where its key lies, and where its
/// parts begin.
fn note(space: Space, place: &[u8], parts: &[u8]) -> Vec<u8> {
    let length = u32::try_from(place.len()).expect("places have at most 10,000 bytes");
    [&[space as u8], &length.to_be_bytes()[..], place, parts].concat()
}

/// Reads back what [`note`] wrote: where the key lies, and where its parts begin.
pub(crate) fn parse_note(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.get(1..)?.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

impl Txn for RemoteTxn<'_> {
    fn view(&self) -> &dyn View {
        self.since.unwrap_or(&self.view)
    }

    fn guard_within(&mut self, keys: &[(Space, &[u8])], timeout: Duration) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        self.held.take(keys, timeout)?;
        // After the latches: it shows what their last holders have committed.
        self.version()?;
        if let Some(view) = self.since
            && let Err(error) = self.check_unchanged(keys, view)
        {
            pin::forget_moment(self.shared);
            return Err(error);
        }
        self.view.expect(keys);
        let layout = &self.shared.layout;
        self.guarded.extend(keys.iter().map(|(space, key)| layout.key(*space, key)));
        Ok(())
    }

    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.size += key.len() + value.len();
        self.writes.push(Write::Put(space, key.to_vec(), value.to_vec()));
    }

    fn delete(&mut self, space: Space, key: &[u8]) {
        self.size += key.len();
        self.writes.push(Write::Delete(space, key.to_vec()));
    }

    fn clear_range(&mut self, space: Space, range: &KeyRange) {
        self.size += range.start.len() + range.end.len();
        self.writes.push(Write::Clear(space, range.clone()));
    }

    fn add(&mut self, key: &[u8], delta: i64) {
        self.size += key.len() + size_of::<i64>();
        self.writes.push(Write::Add(key.to_vec(), delta));
    }

    fn change_epoch(&mut self) {
        self.changes_epoch = true;
    }

    fn size(&self) -> usize {
        self.size
    }

    fn commit(mut self: Box<Self>) -> Result<Stamp> {
        self.check_open()?;
        let outcome = self.commit_all();
        self.ended(outcome)
    }

    fn commit_in_turn(mut self: Box<Self>, key: &[u8], finish: Finish<'_>) -> Result<Stamp> {
        self.check_open()?;
        let outcome = self.commit_in_turns(key, finish);
        self.ended(outcome)
    }
}

impl Distributed {
    /// Whether keys have the same values in two views, or none in both.
    pub(crate) fn are_same(
        &self,
        space: Space,
        keys: &[&[u8]],
        one: &dyn View,
        other: &dyn View,
    ) -> Result<bool> {
        let (left, right) = (one.get_many(space, keys)?, other.get_many(space, keys)?);
        for (place, key) in keys.iter().enumerate() {
            let is_same = match (left.get(place), right.get(place)) {
                (Looked::Unread, _) | (_, Looked::Unread) => {
                    let read = |view: &dyn View| {
                        let mut found = None;
                        view.get(space, key, &mut |value| found = Some(value.to_vec()))?;
                        Ok::<_, Error>(found)
                    };
                    read(one)? == read(other)?
                }
                (left, right) => left == right,
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether keys are as they were in `view`.
    pub(crate) fn check_now(&self, keys: &[(Space, &[u8])], view: &dyn View) -> Result<()> {
        RemoteTxn::new(self, None).check_unchanged(keys, view)
    }
}
