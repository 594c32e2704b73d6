//! Building indexes over a collection that is read and written meanwhile.
//!
//! A *build* fills the indexes of one `createIndexes` in one scan. It goes through three *phases*:
//!
//! 1. **Scan.** From a moment on, every write to the collection notes in the build's [`side`] table
//!    which entries it adds and removes. Then the documents are walked and their entries gathered
//!    in sorted [`run`]s.
//! 2. **Load.** Runs and side table are [`merge`]d in key order and added to the store at once. Of
//!    an entry that both know the side table is right: it has what the last write left. So it does
//!    not matter at which moment a document was scanned, and the scan needs no snapshot.
//! 3. **Drain.** What was written meanwhile is applied, *generation* by generation: writers move on
//!    to the next one, and the one before is applied in peace. Once a generation is small, writers
//!    are held off, the last one is applied, and the indexes become the collection's.
//!
//! Everything a build writes lies under idents that the store lists as garbage until that last
//! step, so a crash leaves nothing. Duplicate keys are looked for where entries are final: in the
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
use merge::{Merge, Source};
use run::{Item, Runs};

errors! {
    aborted() = IndexBuildAborted, "operation was interrupted";
}

/// Documents between two looks at whether to go on.
const LOOK_EVERY: u64 = 256;

/// Documents after which the scan opens its cursor anew, so that it does not hold what was
/// overwritten since for long.
const CURSOR_DOCUMENTS_MAX: u64 = 100_000;

/// A generation of so few notes is applied while writers wait: in a few milliseconds.
const LAST_DRAIN_NOTES_MAX: u64 = 500;

/// Generations that are applied beside writers before they are held off in any case. Each is
/// shorter than the one before, unless writers are faster than the drain.
const DRAINS_MAX: u32 = 12;

/// The most bytes that are sorted in memory, whatever is asked for: positions are held in 32 bits.
const MEMORY_BYTES_MAX: usize = 1 << 30;

/// Entries of so few bytes are written like others, through the log: a file of their own would cost
/// more.
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// Bytes that one transaction of a build writes.
const TXN_BYTES_MAX: usize = 1024 * 1024;

/// What a build is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Walking the documents.
    Scan,
    /// Adding sorted entries to the indexes.
    Load,
    /// Applying what was written meanwhile.
    Drain,
}

/// How far a build is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Documents or entries of this phase that are done.
    pub done: u64,
    /// How many there are in all, as far as is known.
    pub total: u64,
}

/// How a build is run.
pub struct BuildOptions<'a> {
    /// Bytes of entries that are sorted in memory; more are sorted in parts and merged.
    pub memory_bytes_max: usize,
    /// Whether the collection was made for the indexes.
    pub is_collection_new: bool,
    /// Told of the progress every few hundred documents; its error ends the build.
    pub watch: &'a mut dyn FnMut(Progress) -> Result<()>,
}

/// A build that runs, as its collection's writers see it.
pub struct Build {
    uuid: Uuid,
    /// The indexes that are built.
    pub indexes: Vec<Arc<Index>>,
    /// Where the side table and runs that did not fit into memory lie.
    scratch: Ident,
    /// The generation that writers note in. Changes only while no write is under way.
    generation: AtomicU32,
    phase: AtomicU8,
    is_aborted: AtomicBool,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Build {
    pub(crate) fn new(uuid: Uuid, indexes: Vec<Arc<Index>>, scratch: Ident) -> Self {
        Build {
            uuid,
            indexes,
            scratch,
            generation: AtomicU32::new(0),
            phase: AtomicU8::new(0),
            is_aborted: AtomicBool::new(false),
            is_over: Mutex::new(false),
            over: Condvar::new(),
        }
    }

    /// Its identity, which errors name.
    pub fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// What it is doing now.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Scan,
            1 => Phase::Load,
            _ => Phase::Drain,
        }
    }

    /// The idents under which it writes: those of its indexes, and one that is always cleared
    /// afterwards.
    pub(crate) fn idents(&self) -> impl Iterator<Item = Ident> {
        self.indexes.iter().map(|index| index.ident).chain([self.scratch])
    }

    pub(crate) fn scratch(&self) -> Ident {
        self.scratch
    }

    /// Has it end soon, with an error.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
    }

    pub(crate) fn check_not_aborted(&self) -> Result<()> {
        if self.is_aborted.load(Ordering::Acquire) { Err(aborted()) } else { Ok(()) }
    }

    /// Notes that it has ended, and wakes who waits for that.
    pub(crate) fn end(&self) {
        *self.is_over.lock() = true;
        self.over.notify_all();
    }

    /// Waits until it has ended, at most `patience`.
    pub(crate) fn wait(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut is_over = self.is_over.lock();
        while !*is_over && !self.over.wait_until(&mut is_over, until).timed_out() {}
    }

    /// The error that ended the build, as the client sees it.
    pub(crate) fn failure(&self, collection: &Collection, cause: &Error) -> Error {
        failure(&self.uuid, collection, cause)
    }
}

/// The error that ended the build with this identity, or kept it from beginning, as the client sees
/// it.
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
    /// For each index, where scanned documents have arrays.
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

    /// Fills the indexes up to what was written until a moment ago; [`Builder::finish`] does the
    /// rest.
    pub(crate) fn fill(&mut self) -> Result<()> {
        let runs = self.scan()?;
        self.enter(Phase::Load, runs.iter().map(Runs::len).sum());
        // From here on writers note in the next generation, and what the first holds is final.
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
        let last = self.build.generation.load(Ordering::Acquire);
        self.drain(last)?;
        self.build.check_not_aborted()
    }

    /// Moves writers on to the next generation; answers the one before, in which nobody writes any
    /// more.
    fn next_generation(&self) -> Result<u32> {
        let _alone = self.collection.change()?;
        Ok(self.build.generation.fetch_add(1, Ordering::AcqRel))
    }

    fn enter(&mut self, phase: Phase, total: u64) {
        self.build.phase.store(phase as u8, Ordering::Relaxed);
        self.progress = Progress { phase, done: 0, total };
    }

    /// Counts one document or entry, and asks now and then whether to go on.
    #[inline]
    fn step(&mut self) -> Result<()> {
        self.progress.done += 1;
        if self.progress.done.is_multiple_of(LOOK_EVERY) { self.look() } else { Ok(()) }
    }

    fn look(&mut self) -> Result<()> {
        self.build.check_not_aborted()?;
        (self.options.watch)(self.progress)
    }

    /// Walks the documents; answers the sorted entries of each index.
    fn scan(&mut self) -> Result<Vec<Runs>> {
        let (collection, build) = (self.collection, self.build);
        self.enter(Phase::Scan, u64::try_from(collection.count()).unwrap_or(0));
        self.look()?;
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
                // The position itself was scanned: its successor is the least key behind it.
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

    /// Moves the entries in memory to the store, a sorted run for each index.
    fn spill(&self, runs: &mut [Runs]) -> Result<()> {
        for (number, runs) in runs.iter_mut().enumerate() {
            self.db.activity().spilled_runs.add(1);
            self.db.activity().spilled_bytes.add(runs.memory_bytes() as u64);
            runs.spill(self.db.store(), self.build.scratch, number)?;
        }
        Ok(())
    }

    /// Adds the entries of one index: its runs, and what the first generation says of them.
    fn load(&mut self, position: usize, runs: Runs) -> Result<()> {
        let db = self.db;
        let store = db.store();
        let index = self.build.indexes[position].clone();
        db.activity().bulk_builds.add(1);
        let is_small = runs.spilled() == 0 && runs.memory_bytes() <= SMALL_BYTES_MAX;
        let mut sources = Vec::new();
        for number in 0..runs.spilled() {
            let range = run::range(self.build.scratch, position, number);
            sources.push(Source::stored(store, &range)?);
        }
        sources.push(Source::memory(&runs));
        // The last source is right where two have the same entry.
        sources.push(Source::stored(store, &side::range(self.build.scratch, 0, position))?);
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

/// The next key and value of what is written.
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
