//! A store opened as a set of databases.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

use marula_error::Result;
use marula_query::feature_version::FeatureVersion;
use marula_storage::{Direction, KeyRange, Space, Stamp, Store, View};
use parking_lot::Mutex;

use crate::activity::Activity;
use crate::catalog::event::{CatalogEvent, CatalogWatcher};
use crate::catalog::{Catalog, entry};
use crate::collection::Collection;
use crate::collection::Listener;
use crate::current;
use crate::index::multikey_prefix;
use crate::keys::{self, Ident};
use crate::namespace::Namespace;
use crate::nodes::{CatalogLock, Sharing};
use crate::oplog::Oplog;
use crate::session::{RecordCheck, Sessions};
use crate::storage_error::ForClient;
use crate::transaction::locks::{LockedKey, Locks};

/// A store opened as a set of databases.
pub struct Db {
    store: Arc<dyn Store>,
    catalog: Catalog,
    sessions: Sessions,
    /// Held while the catalogue changes; its content is the next free ident.
    pub(crate) ddl: Mutex<u32>,
    /// The keys locked by open transactions.
    pub(crate) locks: Locks,
    pub(crate) oplog: Oplog,
    pub(crate) activity: Activity,
    timestamp: AtomicU64,
    /// The newest commit at the last call of `newest_timestamp`.
    asked_at: AtomicU64,
    sweeper: Mutex<Option<Sweeper>>,
    watcher: OnceLock<CatalogWatcher>,
    must_use_indexes: AtomicBool,
    blocks_user_writes: AtomicBool,
    /// A [`FeatureVersion`] as one byte.
    feature_version: AtomicU8,
    /// Where other processes serve the store too.
    pub(crate) sharing: Option<Sharing>,
}

/// The thread that clears dropped ranges.
pub(crate) struct Sweeper {
    dropped: mpsc::Sender<(Space, Ident)>,
    thread: JoinHandle<()>,
}

impl Db {
    /// Opens a store: reads its catalogue, and continues clearing dropped ranges.
    pub fn open(store: Arc<dyn Store>) -> Result<Self> {
        if store.nodes().is_some() {
            return Db::open_shared(store);
        }
        let (catalog, next_ident) = load(&*store)?;
        let sweeper = Sweeper::start(store.clone());
        for (key, _) in read_all(&*store, &keys::DROPPED_PREFIX)? {
            if let Some(dropped) = keys::parse_dropped(&key) {
                sweeper.dropped.send(dropped).expect("the sweeper runs until it is told to end");
            }
        }
        let db = Db::new(store, catalog, next_ident, Some(sweeper));
        db.load_feature_version()?;
        db.load_oplog()?;
        db.reconcile_views()?;
        db.drop_temporaries()?;
        Ok(db)
    }

    /// Opens a store for reading only: leftovers of a crash are not repaired.
    pub fn open_to_read(store: Arc<dyn Store>) -> Result<Self> {
        let (catalog, next_ident) = load(&*store)?;
        let db = Db::new(store, catalog, next_ident, None);
        db.load_feature_version()?;
        Ok(db)
    }

    pub(crate) fn new(
        store: Arc<dyn Store>,
        catalog: Catalog,
        next_ident: u32,
        sweeper: Option<Sweeper>,
    ) -> Self {
        let sharing = store.nodes().map(|nodes| Sharing::new(nodes.own()));
        Db {
            store,
            catalog,
            sessions: Sessions::new(sharing.is_some()),
            ddl: Mutex::new(next_ident),
            locks: Locks::default(),
            oplog: Oplog::default(),
            activity: Activity::default(),
            timestamp: AtomicU64::new(0),
            asked_at: AtomicU64::new(0),
            sweeper: Mutex::new(sweeper),
            watcher: OnceLock::new(),
            must_use_indexes: AtomicBool::new(false),
            blocks_user_writes: AtomicBool::new(false),
            feature_version: AtomicU8::new(FeatureVersion::default().to_byte()),
            sharing,
        }
    }

    /// Calls `watcher` after every change of the catalogue from now on. Only the first call of this
    /// function has an effect.
    pub fn watch_catalog(&self, watcher: CatalogWatcher) {
        let _ = self.watcher.set(watcher);
    }

    /// Reports a new collection to the watcher.
    pub(crate) fn report_created(&self, collection: &Collection) {
        let is_first = self.catalog.count(collection.namespace().db()) == 1;
        self.report_change(&CatalogEvent::Created { collection, is_first });
    }

    /// Reports a change of the catalogue to the watcher.
    pub(crate) fn report_change(&self, event: &CatalogEvent<'_>) {
        if let Some(watcher) = self.watcher.get() {
            watcher(event);
        }
    }

    /// Calls `listener` once no open transaction holds this key.
    pub fn when_released(&self, key: LockedKey, listener: Listener) {
        self.locks.when_released(key, listener);
    }

    /// Returns whether queries without an index are refused: `notablescan`.
    pub fn must_use_indexes(&self) -> bool {
        self.must_use_indexes.load(Ordering::Relaxed)
    }

    /// Sets whether queries without an index are refused: `notablescan`.
    pub fn set_must_use_indexes(&self, must: bool) {
        self.must_use_indexes.store(must, Ordering::Relaxed);
    }

    /// The feature compatibility version.
    #[inline]
    pub fn feature_version(&self) -> FeatureVersion {
        // Only valid bytes are stored.
        FeatureVersion::from_byte(self.feature_version.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Sets the feature compatibility version for commands parsed from now on; does not store it.
    pub(crate) fn use_feature_version(&self, version: FeatureVersion) {
        self.feature_version.store(version.to_byte(), Ordering::Relaxed);
    }

    /// Returns whether writes of users are blocked.
    pub fn blocks_user_writes(&self) -> bool {
        self.blocks_user_writes.load(Ordering::Acquire)
    }

    /// Blocks writes of users, or permits them again, from now on. A write that has begun may
    /// still be committed after that.
    pub fn set_user_writes_blocked(&self, blocks: bool) {
        self.blocks_user_writes.store(blocks, Ordering::Release);
    }

    /// Blocks writes of users. Returns when all those of documents that were not blocked have been
    /// committed, and those of open transactions too.
    ///
    /// Errors: the operation was interrupted; then they are not blocked.
    pub fn block_user_writes(&self) -> Result<()> {
        let collections = self.catalog.all();
        let _quiet: Vec<_> =
            collections.iter().map(|collection| collection.quiesce()).collect::<Result<_>>()?;
        self.set_user_writes_blocked(true);
        // A writer looks whether it is blocked while it shares its collection.
        self.drain_writers().inspect_err(|_| self.set_user_writes_blocked(false))
    }

    /// Waits until the documents that are being written have been committed, in one collection
    /// after another.
    ///
    /// Errors: the operation was interrupted.
    pub(crate) fn drain_writers(&self) -> Result<()> {
        self.catalog.all().iter().try_for_each(|collection| collection.hold_off().map(drop))
    }

    /// Locks the catalogue against other changes; the content is the next free ident.
    ///
    /// Errors: the operation was interrupted.
    pub(crate) fn lock_catalog(&self) -> Result<CatalogLock<'_>> {
        self.lock_for_all(&current::check)
    }

    /// [`Db::lock_catalog`] for what must be done even if the operation was interrupted.
    pub(crate) fn lock_catalog_anyway(&self) -> Result<CatalogLock<'_>> {
        self.lock_for_all(&|| Ok(()))
    }

    /// The store, which is also the view of its newest state.
    #[inline]
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// A view of this moment.
    pub fn view_now(&self) -> Result<Arc<dyn View>> {
        self.store.clone().view().for_client()
    }

    /// Returns whether anything has been committed since this moment.
    pub fn has_moved(&self, since: Stamp) -> bool {
        self.store.has_moved(since)
    }

    /// The catalogue.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The records of retryable writes.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Returns whether the numbered write of an operation, which has ended, must be executed
    /// again: another node has written the record of its session.
    ///
    /// Errors: those of the store.
    pub fn must_repeat_numbered(&self, check: &RecordCheck) -> Result<bool> {
        self.sessions.has_moved(self.store(), check)
    }

    /// Ends a transaction that another node may have open: see [`Sessions::settle`].
    ///
    /// Errors: those of the store.
    pub fn settle_transaction(&self, lsid: &[u8], number: i64, now_ms: i64) -> Result<bool> {
        self.sessions.settle(self.store(), lsid, number, now_ms)
    }

    /// The collection with this name.
    #[inline]
    pub fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        self.catalog.get(ns.db(), ns.collection())
    }

    /// Returns a timestamp greater than all earlier ones: the second of `now_ms` and an ordinal.
    pub fn next_timestamp(&self, now_ms: i64) -> u64 {
        let second = u64::try_from(now_ms / 1000).unwrap_or(0) << 32;
        let next = |last: u64| if last < second { second + 1 } else { last + 1 };
        let last = self
            .timestamp
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)))
            .expect("the update always gives a value");
        next(last)
    }

    /// Makes all later timestamps greater than `time`, which an earlier run has used.
    pub(crate) fn note_timestamp(&self, time: u64) {
        self.timestamp.fetch_max(time, Ordering::Relaxed);
    }

    /// The newest timestamp, in the second of `now_ms` or later. Makes a new one if something was
    /// written since the last call. While the oplog is written each commit has its own time, and
    /// the times of later commits are greater than the one returned here.
    pub fn newest_timestamp(&self, now_ms: i64) -> u64 {
        let second = u64::try_from(now_ms / 1000).unwrap_or(0) << 32;
        if self.oplog.is_on() {
            return match self.is_shared() {
                // Another node may be writing the next entry.
                true if self.oplog.newest() != 0 => self.oplog.newest(),
                _ => self.oplog.report_time(second | 1, &self.timestamp),
            };
        }
        let stamp = self.store.moment().version;
        if self.asked_at.swap(stamp, Ordering::Relaxed) != stamp {
            self.next_timestamp(now_ms);
        }
        self.timestamp.fetch_max(second | 1, Ordering::Relaxed).max(second | 1)
    }

    /// Returns the timestamp of the newest write, which is in the oplog if that is written.
    pub fn last_write_timestamp(&self, now_ms: i64) -> u64 {
        match self.oplog.is_on().then(|| self.oplog.newest()) {
            None | Some(0) => self.newest_timestamp(now_ms),
            Some(newest) => newest,
        }
    }

    /// Clears the range of a dropped ident in the background. The store already lists it as
    /// dropped.
    pub(crate) fn sweep(&self, space: Space, ident: Ident) {
        if let Some(sweeper) = &*self.sweeper.lock() {
            // After close() the next start clears it.
            let _ = sweeper.dropped.send((space, ident));
        }
    }

    /// Ends the background work and closes the store. Idempotent.
    pub fn close(&self) -> Result<()> {
        // A thread that waits for held files would never end.
        self.release_files()?;
        let sweeper = self.sweeper.lock().take();
        if let Some(Sweeper { dropped, thread }) = sweeper {
            drop(dropped);
            if thread.join().is_err() {
                tracing::error!("the thread that clears dropped collections has panicked");
            }
        }
        self.store.close().for_client()
    }
}

impl Sweeper {
    pub(crate) fn start(store: Arc<dyn Store>) -> Self {
        let (dropped, received) = mpsc::channel::<(Space, Ident)>();
        let run = move || {
            for (space, ident) in received {
                if let Err(error) = clear(&*store, space, ident) {
                    tracing::warn!(%error, ident = ident.0, "clearing a dropped range failed; the next start tries again");
                }
            }
        };
        let thread = std::thread::Builder::new().name("sweeper".into()).spawn(run);
        Sweeper { dropped, thread: thread.expect("a thread can be started at start-up") }
    }
}

/// The next free ident.
pub(crate) fn next_ident(store: &dyn View) -> Result<u32> {
    let mut next_ident = 1;
    let mut read = |bytes: &[u8]| next_ident = bytes.try_into().map_or(1, u32::from_be_bytes);
    store.get(Space::Catalog, &keys::NEXT_IDENT, &mut read).for_client()?;
    Ok(next_ident)
}

/// Reads the catalogue and the next free ident.
fn load(store: &dyn Store) -> Result<(Catalog, u32)> {
    let catalog = Catalog::default();
    let next_ident = next_ident(store)?;
    for (key, value) in read_all(store, &keys::ENTRY_PREFIX)? {
        let ident = key.get(keys::ENTRY_PREFIX.len()..).and_then(|ident| ident.try_into().ok());
        let Some(ident) = ident.map(u32::from_be_bytes) else { continue };
        let entry = entry::decode(&value, store)?;
        let collection = Collection::load(Ident(ident), entry.uuid, entry.ns, entry.state, store)?;
        catalog.insert(Arc::new(collection));
    }
    Ok((catalog, next_ident))
}

fn clear(store: &dyn Store, space: Space, ident: Ident) -> marula_storage::Result<()> {
    store.drop_range(space, &ident.range())?;
    let mut txn = store.begin();
    if space == Space::Indexes {
        // The marks of an index whose build failed; those of a dropped index were removed with it.
        txn.clear_range(Space::Catalog, &KeyRange::prefix(&multikey_prefix(ident)));
    }
    txn.delete(Space::Catalog, &keys::dropped(space, ident));
    txn.commit()?;
    Ok(())
}

pub(crate) fn read_all(store: &dyn View, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut cursor =
        store.cursor(Space::Catalog, &KeyRange::prefix(prefix), Direction::Forward).for_client()?;
    while cursor.advance().for_client()? {
        found.push((cursor.key().to_vec(), cursor.value().to_vec()));
    }
    Ok(found)
}
