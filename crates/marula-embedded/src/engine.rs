//! The store: opening, reading, and the state that its parts share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use marula_storage::latch::Latches;
use marula_storage::times::Times;
use marula_storage::{
    Caps, Cursor, Direction, KeyRange, RangeStats, Result, Space, Stamp, Store, Txn, Values, View,
};
use parking_lot::Mutex;
use rust_rocksdb::{Cache, ColumnFamily, DB, Options, ReadOptions, WriteOptions, properties};

use crate::check;
use crate::clock::Clock;
use crate::deltas;
use crate::error::{closed, from_rocksdb};
use crate::estimate::Estimates;
use crate::fixed_view::{FixedView, OpenViews};
use crate::folder::Folder;
use crate::gaps::Gaps;
use crate::health::Health;
use crate::held_files::{self, Files};
use crate::log_cut::{self, ReadablePart};
use crate::log_follower;
use crate::log_scan::{self, Synced};
use crate::loss::{self, Loss};
use crate::manifest::{self, ListKeeper};
use crate::many;
use crate::opened::Opened;
use crate::options::EmbeddedOptions;
use crate::record_cache::{CacheLookup, RecordCache};
use crate::scan::open_newest;
use crate::statistics;
use crate::sync::Sync;
use crate::txn::EmbeddedTxn;
use crate::upkeep;

/// A store over RocksDB in one data folder.
pub struct Embedded {
    // Declared before the engine: the sync thread must end first.
    pub(crate) sync: Sync,
    pub(crate) engine: Arc<Engine>,
    pub(crate) caps: Caps,
    pub(crate) estimates: Estimates,
    pub(crate) latches: Latches,
    is_closed: AtomicBool,
}

/// RocksDB and the objects that live as long as it.
pub(crate) struct Engine {
    pub(crate) db: Opened,
    pub(crate) cache: Cache,
    pub(crate) records: RecordCache,
    /// Ranges without keys, which scans step over.
    pub(crate) gaps: Gaps,
    pub(crate) health: Arc<Health>,
    pub(crate) read_options: ReadOptions,
    pub(crate) write_options: WriteOptions,
    /// The options of each space for files that are ingested.
    pub(crate) spaces: [Options; Space::ALL.len()],
    /// Serializes compactions on demand.
    pub(crate) compaction: Mutex<()>,
    /// The clock of the times in the log, if the log is followed.
    pub(crate) clock: Option<Clock>,
    /// The run of the log, if the log is followed.
    pub(crate) run: Mutex<Option<String>>,
    /// The threads that change files, and whether files are held.
    pub(crate) files: Files,
    /// The open fixed views, and the ranges dropped while they are open.
    pub(crate) views: Mutex<OpenViews>,
    // Declared after the database: the folder stays locked until the database is closed.
    pub(crate) folder: Folder,
    /// The losses of the log found when the store was opened.
    pub(crate) loss: Loss,
    /// The record of the last sync; `None` for a read-only store.
    pub(crate) synced: Option<Synced>,
    /// The record of the list of tables; `None` for a read-only store.
    pub(crate) list: Option<ListKeeper>,
}

impl Embedded {
    /// Opens the store in a data folder; creates the folder if it does not exist.
    ///
    /// Errors: `Unavailable` when another process has the folder open or it is not a data folder of
    /// Marula; `Corrupt` when files are damaged; `Full` and `Io` for failures of the environment.
    pub fn open(options: EmbeddedOptions) -> Result<Embedded> {
        let folder = match options.is_read_only {
            true => Folder::open_to_read(&options.path)?,
            false => Folder::open(&options.path)?,
        };
        let fault = manifest::check(&folder)?;
        let mut loss = loss::look(&folder, &options)?;
        loss.faults.extend(fault);
        let run = match (options.is_read_only, options.keeps_log) {
            (true, _) => None,
            (false, true) => Some(log_follower::continue_run(folder.path())?),
            (false, false) => {
                log_follower::end_run(folder.path())?;
                None
            }
        };
        let health = Arc::new(Health::default());
        let cache = options.cache();
        let mut database = options.database(health.clone());
        let columns = options.spaces(&cache);
        let (log_bytes, began) = (log_scan::log_bytes(&folder.store()), Instant::now());
        let (store, damage) = (folder.store(), loss.damage.as_ref());
        let db = if options.is_read_only {
            let _readable = ReadablePart::show(&store, damage, &mut database)?;
            DB::open_cf_descriptors_read_only(&database, store, columns, false)
        } else {
            if let Some(damage) = damage {
                log_cut::cut_off(&store, damage)?;
            }
            DB::open_cf_descriptors(&database, store, columns)
        };
        let db = Opened::of(db.map_err(from_rocksdb)?);
        if !options.is_read_only {
            if folder.was_left_open {
                tracing::warn!(
                    target: "RECOVERY",
                    path = %folder.path().display(),
                    logBytes = log_bytes,
                    durationMillis = began.elapsed().as_millis() as u64,
                    "Detected unclean shutdown: what the log held is recovered"
                );
            }
            folder.note_open()?;
        }
        let synced = match options.is_read_only {
            true => None,
            false => {
                let synced = Synced::open(folder.path())?;
                // The loss has been reported; later starts must not report it again.
                synced.note(0)?;
                Some(synced)
            }
        };
        let list = synced.is_some().then(|| ListKeeper::open(&folder)).transpose()?;
        list.iter().try_for_each(ListKeeper::note)?;
        let spaces = Space::ALL.map(|space| options.ingested(space, &cache));
        let engine = Arc::new(Engine {
            db,
            cache,
            records: options.record_cache(),
            gaps: Gaps::default(),
            health,
            read_options: many::read_options(),
            write_options: WriteOptions::default(),
            spaces,
            compaction: Mutex::default(),
            clock: run.is_some().then(Clock::default),
            run: Mutex::new(run),
            files: Files::default(),
            views: Mutex::default(),
            folder,
            loss,
            synced,
            list,
        });
        // A read-only store has nothing to sync.
        let synced = if options.is_read_only { engine.db.latest_sequence_number() } else { 0 };
        let sync = Sync::start(engine.clone(), options.sync_interval, synced)?;
        let caps = Caps {
            name: "embedded",
            key_bytes_max: 32 << 20,
            value_bytes_max: 256 << 20,
            txn_bytes_max: 1 << 30,
            is_remote: false,
            is_persistent: true,
            keeps_deltas: true,
        };
        let estimates = Estimates::default();
        let is_closed = AtomicBool::new(false);
        Ok(Embedded { sync, engine, caps, estimates, latches: Latches::new(), is_closed })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }
}

impl Engine {
    /// The column family of a space.
    pub(crate) fn column(&self, space: Space) -> &ColumnFamily {
        self.db.column(space)
    }

    /// Returns whether the disk has room for the memtables; `true` if this cannot be determined.
    pub(crate) fn has_room_for_memtables(&self) -> bool {
        let bytes = |space: Space| {
            let property = properties::SIZE_ALL_MEM_TABLES;
            self.db.property_int_value_cf(self.column(space), property).ok().flatten().unwrap_or(0)
        };
        let wanted: u64 = Space::ALL.into_iter().map(bytes).sum();
        rustix::fs::statvfs(self.db.path())
            .map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= wanted)
    }
}

/// Visits the newest value of a key, from the record cache (records only) or from RocksDB.
fn get_newest(
    engine: &Engine,
    space: Space,
    key: &[u8],
    visit: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    let options = &engine.read_options;
    if space != Space::Records {
        return get_with(engine, options, space, key, visit);
    }
    match engine.records.lookup(key, || engine.db.latest_sequence_number()) {
        CacheLookup::Hit(bytes) => {
            visit(&bytes);
            Ok(true)
        }
        CacheLookup::Miss(None) => get_with(engine, options, space, key, visit),
        CacheLookup::Miss(Some(ticket)) => {
            let mut ticket = Some(ticket);
            get_with(engine, options, space, key, &mut |bytes| {
                if let Some(ticket) = ticket.take() {
                    engine.records.keep(ticket, bytes);
                }
                visit(bytes);
            })
        }
    }
}

/// Visits the value of a key where RocksDB holds it: in a cached block or in the memtable.
pub(crate) fn get_with(
    engine: &Engine,
    options: &ReadOptions,
    space: Space,
    key: &[u8],
    visit: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    let found = engine.db.get_pinned_cf_opt(engine.column(space), key, options);
    let found = found.map_err(from_rocksdb)?;
    if let Some(value) = &found {
        deltas::check_base(space, value)?;
        visit(value);
    }
    Ok(found.is_some())
}

impl View for Embedded {
    fn moment(&self) -> Stamp {
        Stamp::of_version(self.engine.db.latest_sequence_number())
    }

    fn is_fixed(&self) -> bool {
        false
    }

    fn get(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.check_open()?;
        get_newest(&self.engine, space, key, visit)
    }

    fn get_many<'r>(&'r self, space: Space, keys: &[&[u8]]) -> Result<Box<dyn Values + 'r>> {
        self.check_open()?;
        many::get_many_newest(&self.engine, space, keys)
    }

    fn cursor<'r>(
        &'r self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'r>> {
        self.check_open()?;
        Ok(open_newest(&self.engine, space, range, direction))
    }
}

impl Store for Embedded {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn view(self: Arc<Self>) -> Result<Arc<dyn View>> {
        self.check_open()?;
        Ok(Arc::new(FixedView::new(self)))
    }

    fn begin(&self) -> Box<dyn Txn + '_> {
        Box::new(EmbeddedTxn::new(self, None, self.latches.hold()))
    }

    fn begin_since<'s>(&'s self, view: &'s dyn View) -> Box<dyn Txn + 's> {
        Box::new(EmbeddedTxn::new(self, Some(view), self.latches.hold()))
    }

    fn sync(&self, stamp: Stamp) -> Result<()> {
        self.sync.wait(stamp)
    }

    fn on_sync(&self, stamp: Stamp, done: Box<dyn FnOnce(Result<()>) + Send>) {
        self.sync.on_sync(stamp, done);
    }

    fn ingest(
        &self,
        space: Space,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        self.check_open()?;
        upkeep::ingest(&self.engine, space, next)
    }

    fn drop_range(&self, space: Space, range: &KeyRange) -> Result<()> {
        self.check_open()?;
        upkeep::drop_range(&self.engine, space, range)
    }

    fn compact(
        &self,
        space: Space,
        range: &KeyRange,
        progress: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        self.check_open()?;
        upkeep::compact(self, space, range, progress)
    }

    fn range_stats(&self, space: Space, range: &KeyRange) -> Result<RangeStats> {
        self.check_open()?;
        self.estimates.range_stats(&self.engine, space, range)
    }

    fn split_points(&self, space: Space, range: &KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
        self.check_open()?;
        self.estimates.split_points(&self.engine, space, range, parts)
    }

    fn statistics(&self) -> Vec<(String, i64)> {
        statistics::rows(self)
    }

    fn sync_times(&self) -> Option<&Times> {
        Some(self.sync.times())
    }

    fn fault(&self) -> Option<String> {
        self.engine.health.error()
    }

    fn check(&self) -> Result<Vec<String>> {
        self.check_open()?;
        check::check(&self.engine)
    }

    fn hold_files(&self) -> Result<()> {
        self.check_open()?;
        held_files::hold(&self.engine)
    }

    fn release_files(&self) -> Result<()> {
        held_files::release(&self.engine)
    }

    fn close(&self) -> Result<()> {
        self.is_closed.store(true, Ordering::SeqCst);
        self.release_files()?;
        self.sync.stop()?;
        if let Some(Err(cause)) = self.engine.list.as_ref().map(ListKeeper::note) {
            tracing::debug!(error = %cause, "the list of tables cannot be noted");
        }
        // A read-only store has not created the file.
        if self.engine.synced.is_some() {
            self.engine.folder.note_clean_end();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use marula_storage::contract;

    use super::*;

    fn open(folder: &Path) -> Arc<dyn Store> {
        let mut options = EmbeddedOptions::new(folder);
        options.cache_bytes = 32 << 20;
        options.memtable_bytes = 1 << 20;
        Arc::new(Embedded::open(options).expect("the store opens"))
    }

    macro_rules! promises {
        ($($promise:ident)*) => { $(#[test] fn $promise() { contract::$promise(&open); })* };
    }

    marula_storage::for_each_promise!(promises);
}
