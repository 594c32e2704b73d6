//! Builds indexes over a collection while it is read and written.
//!
//! A *build* fills the indexes of one `createIndexes` in one scan, in three *phases*:
//!
//! ```text
//!            Scan                Load                     Drain
//!   builder  documents ─► runs ─► merge(runs, side 0) ─►  side 1, side 2, … ─► last side, writers
//!                                 └ into the indexes                           held off: indexes
//!                                                                              join the collection
//!   writers  note in side 0       note in side 1          note in side 2, 3, …
//! ```
//!
//! 1. **Scan.** From the start of the build, every write to the collection notes in the build's
//!    [`side`] table which entries it adds and removes. Then the documents are scanned and their
//!    entries gathered in sorted [`run`]s.
//! 2. **Load.** Runs and side table are [`merge`]d in key order and added to the store at once.
//!    Where both have an entry the side table wins, since it has the result of the last write. So
//!    it does not matter at which moment a document was scanned, and the scan needs no snapshot.
//! 3. **Drain.** The notes made since then are applied, *generation* by generation: writers switch
//!    to the next generation, and the previous one is applied without interference. Once a
//!    generation is small, writers are held off, the last one is applied, and the indexes join the
//!    collection.
//!
//! Everything a build writes lies under idents that the store lists as garbage until that last
//! step, so a crash leaves nothing. Duplicate keys are detected where entries are final: in the
//! load and in every drain.

mod drain;
mod merge;
mod run;
pub(crate) mod side;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use marula_bson::uuid;
use marula_error::{Error, Result, errors};
use marula_storage::{Direction, Space};
use parking_lot::{Condvar, Mutex};

use crate::catalog::entry::Uuid;
use crate::collection::Collection;
use crate::db::Db;
use crate::index::{Index, KeyMaker, KeySet, Multikey, entry as index_entry};
use crate::keys::Ident;
use crate::storage_error::ForClient;
use crate::write::duplicate_key;
use merge::{EntrySource, Merge};
use run::{Item, Runs};

errors! {
    aborted() = IndexBuildAborted, "operation was interrupted";
}

/// Documents between two checks for the end of the operation.
const CHECK_EVERY: u64 = 256;

/// The scan reopens its cursor after this number of documents, so that it does not retain
/// overwritten data for long.
const CURSOR_DOCUMENTS_MAX: u64 = 100_000;

/// A generation with at most this number of notes is applied while writers wait; it takes a few
/// milliseconds.
const LAST_DRAIN_NOTES_MAX: u64 = 500;

/// The maximum number of generations that are applied while writers run before they are held off in
/// any case. Each is shorter than the one before, unless writers are faster than the drain.
const DRAINS_MAX: u32 = 12;

/// The maximum memory for sorting, whatever is configured: offsets have 32 bits.
const MEMORY_BYTES_MAX: usize = 1 << 30;

/// Entries of at most this size are written through the log: a file of their own would cost more.
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// The maximum size of one transaction of a build.
const TXN_BYTES_MAX: usize = 1024 * 1024;

/// The phase of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Scans the documents.
    Scan,
    /// Adds sorted entries to the indexes.
    Load,
    /// Applies the writes made since the scan.
    Drain,
}

/// The progress of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The current phase.
    pub phase: Phase,
    /// The number of processed documents or entries of this phase.
    pub done: u64,
    /// Their total number, as far as known.
    pub total: u64,
}

/// The options of a build.
pub struct BuildOptions<'a> {
    /// The maximum bytes of entries sorted in memory; more entries are sorted in runs and merged.
    pub memory_bytes_max: usize,
    /// Whether the collection was created for the indexes.
    pub is_collection_new: bool,
    /// Called with the progress every few hundred documents; an error ends the build.
    pub watch: &'a mut dyn FnMut(Progress) -> Result<()>,
}

/// A running build, as the writers of its collection see it.
pub struct Build {
    uuid: Uuid,
    /// The indexes being built.
    pub indexes: Vec<Arc<Index>>,
    /// The ident of the side table and of runs that did not fit into memory.
    scratch: Ident,
    /// The node that carries it out, where several serve the store: the build is then a part of
    /// the collection's entry.
    owner: Option<i64>,
    /// Whether writers of all nodes wait, because the last notes are being applied.
    is_closed: AtomicBool,
    /// The generation of the side table that writers use. Changes only while no write is in
    /// progress.
    generation: AtomicU32,
    phase: AtomicU8,
    is_aborted: AtomicBool,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Build {
    pub(crate) fn new(
        uuid: Uuid,
        indexes: Vec<Arc<Index>>,
        scratch: Ident,
        owner: Option<i64>,
    ) -> Self {
        Build {
            uuid,
            indexes,
            scratch,
            owner,
            is_closed: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            phase: AtomicU8::new(0),
            is_aborted: AtomicBool::new(false),
            is_over: Mutex::new(false),
            over: Condvar::new(),
        }
    }

    /// The UUID of the build, which errors name.
    pub fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// The node that carries it out, where several serve the store.
    pub(crate) fn owner(&self) -> Option<i64> {
        self.owner
    }

    /// The generation of the side table that writers use.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns whether writers wait for the end of the build.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Holds off the writers of other nodes. The caller holds off those of this one.
    ///
    /// Errors: those of the store.
    pub(crate) fn close(&self, db: &Db, collection: &Collection) -> Result<()> {
        self.is_closed.store(true, Ordering::Release);
        db.publish_state(collection, &collection.state())
    }

    /// Has writers use this generation, or wait.
    pub(crate) fn set_stage(&self, generation: u32, is_closed: bool) {
        self.generation.store(generation, Ordering::Release);
        self.is_closed.store(is_closed, Ordering::Release);
    }

    /// Has writers do as `stored` says, which is this build as the store has it.
    pub(crate) fn follow(&self, stored: &Build) {
        self.set_stage(stored.generation(), stored.is_closed());
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Scan,
            1 => Phase::Load,
            _ => Phase::Drain,
        }
    }

    /// The idents that the build writes to: those of its indexes, and the scratch ident, which is
    /// always cleared afterwards.
    pub(crate) fn idents(&self) -> impl Iterator<Item = Ident> {
        self.indexes.iter().map(|index| index.ident).chain([self.scratch])
    }

    pub(crate) fn scratch(&self) -> Ident {
        self.scratch
    }

    /// Makes the build end soon, with an error.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
    }

    pub(crate) fn check_not_aborted(&self) -> Result<()> {
        if self.is_aborted.load(Ordering::Acquire) { Err(aborted()) } else { Ok(()) }
    }

    /// Marks the build as ended and wakes the threads that wait for that.
    pub(crate) fn end(&self) {
        *self.is_over.lock() = true;
        self.over.notify_all();
    }

    /// Waits until the build has ended, at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut is_over = self.is_over.lock();
        while !*is_over && !self.over.wait_until(&mut is_over, until).timed_out() {}
    }

    /// The error that ended the build, in the form that the client sees.
    pub(crate) fn failure(&self, collection: &Collection, cause: &Error) -> Error {
        failure(&self.uuid, collection, cause)
    }
}

/// The error that ended the build with this UUID, or prevented its start, in the form that the
/// client sees.
pub(crate) fn failure(build: &Uuid, collection: &Collection, cause: &Error) -> Error {
    let ns = collection.namespace();
    let context = format!(
        "Index build failed: {}: Collection {ns} ( {} )",
        uuid::text(build),
        uuid::text(collection.uuid())
    );
    cause.clone().caused_by(&context)
}

/// The work of one build.
pub(crate) struct Builder<'a, 'w> {
    db: &'a Db,
    collection: &'a Collection,
    build: &'a Build,
    options: BuildOptions<'w>,
    progress: Progress,
    /// For each index, the path components with arrays in scanned documents.
    pub(crate) multikey: Vec<Multikey>,
}

impl<'a, 'w> Builder<'a, 'w> {
    pub(crate) fn new(
        db: &'a Db,
        collection: &'a Collection,
        build: &'a Build,
        options: BuildOptions<'w>,
    ) -> Self {
        let multikey = build.indexes.iter().map(|index| Multikey::of_new(&index.spec)).collect();
        let progress = Progress { phase: Phase::Scan, done: 0, total: 0 };
        let memory_bytes_max = options.memory_bytes_max.min(MEMORY_BYTES_MAX);
        let options = BuildOptions { memory_bytes_max, ..options };
        Builder { db, collection, build, options, progress, multikey }
    }

    /// Fills the indexes with everything up to a recent moment; [`Builder::finish`] does the rest.
    pub(crate) fn fill(&mut self) -> Result<()> {
        let runs = self.scan()?;
        self.enter(Phase::Load, runs.iter().map(Runs::len).sum());
        // From here on writers use the next generation, and the first one is final.
        self.next_generation()?;
        for (position, runs) in runs.into_iter().enumerate() {
            self.load(position, runs)?;
        }
        self.enter(Phase::Drain, 0);
        for _ in 0..DRAINS_MAX {
            let generation = self.next_generation()?;
            if self.drain(generation)? <= LAST_DRAIN_NOTES_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Applies the last notes. The caller holds writers off.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.build.check_not_aborted()?;
        if self.build.owner.is_some() {
            self.build.close(self.db, self.collection)?;
        }
        let last = self.build.generation.load(Ordering::Acquire);
        self.drain(last)?;
        self.build.check_not_aborted()
    }

    /// Switches writers to the next generation; returns the previous one, which is no longer
    /// written to.
    fn next_generation(&self) -> Result<u32> {
        if self.build.owner.is_some() {
            let _quiet = self.collection.quiesce()?;
            let _lock = self.db.lock_catalog()?;
            self.build.check_not_aborted()?;
            let _alone = self.collection.hold_off()?;
            let last = self.build.generation.fetch_add(1, Ordering::AcqRel);
            self.db.publish_state(self.collection, &self.collection.state())?;
            return Ok(last);
        }
        let _quiet = self.collection.quiesce()?;
        let _alone = self.collection.hold_off()?;
        self.build.check_not_aborted()?;
        Ok(self.build.generation.fetch_add(1, Ordering::AcqRel))
    }

    fn enter(&mut self, phase: Phase, total: u64) {
        self.build.phase.store(phase as u8, Ordering::Relaxed);
        self.progress = Progress { phase, done: 0, total };
    }

    /// Counts one document or entry, and periodically checks whether to continue.
    #[inline]
    fn step(&mut self) -> Result<()> {
        self.progress.done += 1;
        if self.progress.done.is_multiple_of(CHECK_EVERY) { self.check() } else { Ok(()) }
    }

    fn check(&mut self) -> Result<()> {
        self.build.check_not_aborted()?;
        (self.options.watch)(self.progress)
    }

    /// Scans the documents; returns the sorted entries of each index.
    fn scan(&mut self) -> Result<Vec<Runs>> {
        let (collection, build) = (self.collection, self.build);
        self.enter(Phase::Scan, u64::try_from(collection.count()).unwrap_or(0));
        self.check()?;
        let room = self.options.memory_bytes_max / build.indexes.len();
        let documents = usize::try_from(self.progress.total).unwrap_or(usize::MAX);
        let mut runs: Vec<Runs> =
            build.indexes.iter().map(|_| Runs::with_room(documents, room)).collect();
        let mut key_maker = KeyMaker::default();
        let mut keys = KeySet::default();
        let mut position = Vec::new();
        loop {
            let mut cursor = collection.scan(self.db.store(), Direction::Forward)?;
            let mut is_there = match position.is_empty() {
                true => cursor.advance()?,
                // The document at `position` has been scanned: continue with the least key after
                // it.
                false => cursor.seek(&[&position[..], &[0]].concat())?,
            };
            let mut count = 0;
            while is_there && count < CURSOR_DOCUMENTS_MAX {
                count += 1;
                for (number, index) in build.indexes.iter().enumerate() {
                    key_maker.make(index, cursor.doc(), &mut keys)?;
                    self.multikey[number].merge(&keys.multikey);
                    for entry in keys.iter() {
                        runs[number].push(entry, cursor.record());
                    }
                }
                if runs.iter().map(Runs::memory_bytes).sum::<usize>()
                    >= self.options.memory_bytes_max
                {
                    self.spill(&mut runs)?;
                }
                self.step()?;
                if count == CURSOR_DOCUMENTS_MAX {
                    position = cursor.record().to_vec();
                }
                is_there = cursor.advance()?;
            }
            if !is_there {
                break;
            }
        }
        runs.iter_mut().for_each(Runs::sort);
        Ok(runs)
    }

    /// Moves the entries in memory to the store, one sorted run per index.
    fn spill(&self, runs: &mut [Runs]) -> Result<()> {
        for (number, runs) in runs.iter_mut().enumerate() {
            self.db.activity().spilled_runs.add(1);
            self.db.activity().spilled_bytes.add(runs.memory_bytes() as u64);
            runs.spill(self.db.store(), self.build.scratch, number)?;
        }
        Ok(())
    }

    /// Adds the entries of one index: its runs, and the notes of the first generation.
    fn load(&mut self, position: usize, runs: Runs) -> Result<()> {
        let db = self.db;
        let store = db.store();
        let index = self.build.indexes[position].clone();
        db.activity().bulk_builds.add(1);
        let is_small = runs.spilled() == 0 && runs.memory_bytes() <= SMALL_BYTES_MAX;
        let mut sources = Vec::new();
        for number in 0..runs.spilled() {
            let range = run::range(self.build.scratch, position, number);
            sources.push(EntrySource::stored(store, &range)?);
        }
        sources.push(EntrySource::memory(&runs));
        // The last source wins where two have the same entry.
        sources.push(EntrySource::stored(store, &side::range(self.build.scratch, 0, position))?);
        let mut merge = Merge::new(sources)?;
        let shape = self.collection.shape();
        let mut last = Vec::new();
        let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| -> Result<bool> {
            let Some(item) = merge.advance()? else { return Ok(false) };
            if index.spec.unique {
                if last == item.key_string() {
                    return Err(self.duplicate(&index, item));
                }
                last.clear();
                last.extend_from_slice(item.key_string());
            }
            index_entry::encode_key(&index, item.key_string(), item.record(), key);
            index_entry::encode_value(&index, shape, item.record(), item.type_bits, value);
            self.step()?;
            Ok(true)
        };
        if is_small { write_all(db, &mut next) } else { ingest_all(db, &mut next) }
    }

    fn duplicate(&self, index: &Index, item: Item<'_>) -> Error {
        let entry = index_entry::Entry {
            key_string: item.key_string(),
            record: item.record(),
            type_bits: item.type_bits,
        };
        duplicate_key(&self.collection.namespace(), index, &entry)
    }
}

/// Writes the next key and value into the buffers; returns `false` at the end.
type Next<'n> = &'n mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Result<bool>;

/// Adds sorted entries in files of their own.
fn ingest_all(db: &Db, next: Next<'_>) -> Result<()> {
    let mut failure = None;
    let outcome = db.store().ingest(Space::Indexes, &mut |key, value| {
        next(key, value).map_err(|error| {
            failure = Some(error);
            marula_storage::Error::Unavailable("what is to be added could not be made".into())
        })
    });
    match failure {
        Some(error) => Err(error),
        None => outcome.for_client(),
    }
}

/// Adds entries through the log.
fn write_all(db: &Db, next: Next<'_>) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut is_more = true;
    while is_more {
        let mut txn = db.store().begin();
        while txn.size() < TXN_BYTES_MAX {
            is_more = next(&mut key, &mut value)?;
            if !is_more {
                break;
            }
            txn.put(Space::Indexes, &key, &value);
        }
        if txn.size() > 0 {
            txn.commit().for_client()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
