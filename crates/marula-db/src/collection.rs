//! A collection: its documents and its indexes in the store.
//!
//! Readers take the collection's [`State`] (options and indexes) once and use that; writers lock
//! the collection in shared mode while they write, so that a change of the state (a new index, a
//! drop) waits for them and later writers see it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use marula_bson::{Doc, Value, key_string};
use marula_error::{Result, errors};
use marula_storage::nodes::NODE_BITS;
use marula_storage::{Cursor, Direction, KeyRange, Looked, Space, Stamp, Values, View};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::build::Build;
use crate::catalog::entry::Uuid;
use crate::catalog::options::CollectionOptions;
use crate::current;
use crate::index::Index;
use crate::index::entry::{self, Entry};
use crate::keys::{self, IDENT_BYTES, Ident, RecordKey};
use crate::latencies::Latencies;
use crate::namespace::Namespace;
use crate::oplog;
use crate::storage_error::ForClient;
use crate::time_series::open::OpenBuckets;
use crate::transaction::snapshot_unavailable;
use crate::usage::Usage;
use crate::validate::counter;

errors! {
    index_dropped(name: &str) = QueryPlanKilled, "query plan killed :: index '{name}' dropped";
    corrupt_index(index: &str) = 8_000_004, "an entry of index '{index}' is not of an index's shape";
}

/// The kind of record key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A record id in insertion order, with an index on `_id`.
    RecordId,
    /// The key string of `_id`.
    Clustered,
}

/// The part of a collection that may change during its life.
#[derive(Clone)]
pub struct State {
    /// Its options.
    pub options: CollectionOptions,
    /// The complete indexes, `_id` first.
    pub indexes: Vec<Arc<Index>>,
    /// Indexes being built: writers maintain them too, readers do not see them.
    pub building: Vec<Arc<Build>>,
}

impl State {
    /// The index with this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// Returns whether the collection is clustered under this name: `clusteredIndex.name`.
    pub fn is_clustered_as(&self, name: &str) -> bool {
        let clustered = self.options.clustered.as_ref();
        let own = clustered.and_then(|clustered| clustered.as_doc().get("name"));
        own.and_then(|own| own.as_str()).is_some_and(|own| own == name)
    }

    /// The kind of record key.
    pub fn shape(&self) -> Shape {
        if self.options.clustered.is_some() { Shape::Clustered } else { Shape::RecordId }
    }
}

/// The number of collection scans by queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scans {
    /// All scans.
    pub total: i64,
    /// Scans of tailable queries.
    pub tailable: i64,
}

/// A function called once when documents are inserted.
pub type Listener = Box<dyn FnOnce() + Send>;

/// The number of listeners from which on expired ones are removed.
const LISTENERS_KEPT: usize = 64;

/// The interval at which a catalogue change checks whether transactions have ended.
const QUIET_STEP: Duration = Duration::from_millis(5);

/// The number of renames of a collection at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renames(u32);

/// The number of inserts at some moment: see [`Collection::on_insert`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrivals(u64);

/// A collection.
pub struct Collection {
    ident: Ident,
    uuid: Uuid,
    shape: Shape,
    is_oplog: bool,
    namespace: RwLock<Namespace>,
    state: RwLock<Arc<State>>,
    /// Locked in shared mode by writers of documents, exclusively by changes of the state.
    pub(crate) writers: RwLock<()>,
    /// The number of open transactions that have touched it.
    transactions: AtomicUsize,
    /// The number of changes of its state that are running or waiting.
    changes: AtomicUsize,
    /// The commit that gave it its current name.
    shaped_at: Mutex<Stamp>,
    /// The commit of the newest change of its indexes.
    indexed_at: Mutex<Stamp>,
    is_dropped: AtomicBool,
    renames: AtomicU32,
    former_name: Mutex<Option<Namespace>>,
    count: AtomicI64,
    size_bytes: AtomicI64,
    last_record_id: AtomicI64,
    /// The difference between two record ids of this process.
    record_id_step: i64,
    /// Whether other processes keep its documents in memory, so that a write changes the epoch.
    is_kept_by_nodes: bool,
    /// Serializes inserts into a capped collection, since each may remove the oldest documents.
    pub(crate) capped: Mutex<()>,
    /// The open buckets, if it is a bucket collection.
    open_buckets: OnceLock<OpenBuckets>,
    arrivals: AtomicU64,
    scans: AtomicI64,
    tailable_scans: AtomicI64,
    /// Allocated for collections that commands have used, which are fewer than all collections.
    latencies: OnceLock<Box<(Latencies, Usage)>>,
    listeners: Mutex<Vec<(Instant, Listener)>>,
    /// Data that the layer above keeps for this collection.
    memory: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Collection {
    /// Creates a new collection.
    pub fn new(ident: Ident, uuid: Uuid, namespace: Namespace, state: State) -> Self {
        Collection {
            ident,
            uuid,
            shape: state.shape(),
            is_oplog: oplog::namespace().is_ok_and(|oplog| oplog == namespace),
            namespace: RwLock::new(namespace),
            state: RwLock::new(Arc::new(state)),
            writers: RwLock::new(()),
            transactions: AtomicUsize::new(0),
            changes: AtomicUsize::new(0),
            shaped_at: Mutex::default(),
            indexed_at: Mutex::default(),
            is_dropped: AtomicBool::new(false),
            renames: AtomicU32::new(0),
            former_name: Mutex::new(None),
            count: AtomicI64::new(0),
            size_bytes: AtomicI64::new(0),
            last_record_id: AtomicI64::new(0),
            record_id_step: 1,
            is_kept_by_nodes: false,
            capped: Mutex::new(()),
            open_buckets: OnceLock::new(),
            arrivals: AtomicU64::new(0),
            listeners: Mutex::new(Vec::new()),
            memory: OnceLock::new(),
            scans: AtomicI64::new(0),
            tailable_scans: AtomicI64::new(0),
            latencies: OnceLock::new(),
        }
    }

    /// The latencies of operations on it since the start of the server.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies.get_or_init(Box::default).0
    }

    /// The usage counters since the start of the server.
    pub fn usage(&self) -> &Usage {
        &self.latencies.get_or_init(Box::default).1
    }

    /// Counts a collection scan of a query.
    pub fn note_scan(&self) {
        self.scans.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the last counted scan as tailable.
    pub fn note_tailable(&self) {
        self.tailable_scans.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of collection scans by queries since the start of the server.
    pub fn scans(&self) -> Scans {
        Scans {
            total: self.scans.load(Ordering::Relaxed),
            tailable: self.tailable_scans.load(Ordering::Relaxed),
        }
    }

    /// Loads a collection from the store, with its counters and its last record id.
    pub fn load(
        ident: Ident,
        uuid: Uuid,
        namespace: Namespace,
        state: State,
        store: &dyn View,
    ) -> Result<Self> {
        let collection = Collection::new(ident, uuid, namespace, state);
        collection.count.store(counter(store, &keys::count(ident))?, Ordering::Relaxed);
        collection.size_bytes.store(counter(store, &keys::size(ident))?, Ordering::Relaxed);
        if collection.shape == Shape::RecordId {
            let mut cursor =
                store.cursor(Space::Records, &ident.range(), Direction::Backward).for_client()?;
            if cursor.advance().for_client()? {
                let last = RecordKey::new(&cursor.key()[IDENT_BYTES..]).record_id().unwrap_or(0);
                collection.last_record_id.store(last, Ordering::Relaxed);
            }
        }
        Ok(collection)
    }

    /// Its ident in the store.
    pub fn ident(&self) -> Ident {
        self.ident
    }

    /// Its UUID, which a rename does not change.
    pub fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// Returns whether it is the oplog.
    #[inline]
    pub(crate) fn is_oplog(&self) -> bool {
        self.is_oplog
    }

    /// The kind of record key of its documents.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The open buckets of a bucket collection.
    pub fn open_buckets(&self) -> &OpenBuckets {
        self.open_buckets.get_or_init(OpenBuckets::default)
    }

    /// Its current namespace.
    pub fn namespace(&self) -> Namespace {
        self.namespace.read().clone()
    }

    /// Data that the layer above keeps for this collection during its life, created on first use.
    /// There is one such layer; `None` if another type was requested before.
    pub fn memory<T: Any + Send + Sync + Default>(&self) -> Option<Arc<T>> {
        let memory = self.memory.get_or_init(|| Arc::new(T::default()));
        Arc::downcast(memory.clone()).ok()
    }

    /// Its current options and indexes.
    #[inline]
    pub fn state(&self) -> Arc<State> {
        self.state.read().clone()
    }

    /// Returns whether it has been dropped; readers should then stop.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// The number of its renames; readers should stop when it changes.
    pub fn renames(&self) -> Renames {
        Renames(self.renames.load(Ordering::Acquire))
    }

    /// Its previous name, if it was renamed since the start of the server.
    pub fn former_name(&self) -> Option<Namespace> {
        self.former_name.lock().clone()
    }

    /// The number of its documents.
    pub fn count(&self) -> i64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The uncompressed size of its documents in bytes.
    pub fn size_bytes(&self) -> i64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Visits the document of `record`; returns whether it exists. `scratch` is a buffer for the
    /// key.
    #[inline]
    pub fn get(
        &self,
        store: &dyn View,
        record: &[u8],
        scratch: &mut Vec<u8>,
        visit: &mut dyn FnMut(Doc<'_>),
    ) -> Result<bool> {
        keys::record_key(self.ident, record, scratch);
        store.get(Space::Records, scratch, &mut |bytes| visit(Doc::trusted(bytes))).for_client()
    }

    /// Reads the documents of several records at once.
    pub fn get_many<'r, 'k>(
        &self,
        store: &'r dyn View,
        records: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<Documents<'r>> {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for record in records {
            bytes.extend_from_slice(&self.ident.bytes());
            bytes.extend_from_slice(record);
            ends.push(bytes.len());
        }
        let keys: Vec<&[u8]> = ends.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        store.get_many(Space::Records, &keys).for_client().map(Documents)
    }

    /// The record key of the document with this `_id`.
    pub fn find_id(
        &self,
        store: &dyn View,
        id: Value<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<RecordKey>> {
        let state = self.state();
        let collator = state.options.collation.as_ref().map(|collation| collation.collator());
        scratch.clear();
        match self.shape {
            Shape::Clustered => {
                key_string::encode_part(id, false, collator, scratch);
                Ok(Some(RecordKey::new(scratch)))
            }
            Shape::RecordId => {
                let Some(index) = state.indexes.first() else { return Ok(None) };
                scratch.extend_from_slice(&index.ident.bytes());
                key_string::encode_part(id, false, collator, scratch);
                self.find_unique(store, scratch)
            }
        }
    }

    /// The record key in a unique index's entry with this store key.
    pub fn find_unique(&self, store: &dyn View, key: &[u8]) -> Result<Option<RecordKey>> {
        let mut found = None;
        let shape = self.shape;
        let mut read = |value: &[u8]| found = entry::record_of_unique(shape, value);
        store.get(Space::Indexes, key, &mut read).for_client()?;
        Ok(found)
    }

    /// Scans the documents in record order.
    pub fn scan<'r>(&self, store: &'r dyn View, direction: Direction) -> Result<RecordCursor<'r>> {
        let cursor = store.cursor(Space::Records, &self.ident.range(), direction).for_client()?;
        Ok(RecordCursor { cursor, ident: self.ident, key: Vec::new() })
    }

    /// Scans the documents whose record keys lie in `range`.
    pub fn scan_between<'r>(
        &self,
        store: &'r dyn View,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<RecordCursor<'r>> {
        let ident = self.ident.bytes();
        let range = KeyRange {
            start: [&ident[..], &range.start].concat(),
            end: [&ident[..], &range.end].concat(),
        };
        let cursor = store.cursor(Space::Records, &range, direction).for_client()?;
        Ok(RecordCursor { cursor, ident: self.ident, key: Vec::new() })
    }

    /// Returns an error if an index has been dropped: a scan would miss entries that are being
    /// cleared.
    ///
    /// Errors: `index_dropped`.
    pub fn check_index(&self, index: &Index) -> Result<()> {
        if index.is_dropped() { Err(index_dropped(&index.spec.name)) } else { Ok(()) }
    }

    /// Scans the entries of `index` whose key strings lie in `range` (without the ident).
    ///
    /// Errors: `index_dropped`.
    pub fn scan_index<'r>(
        &self,
        store: &'r dyn View,
        index: Arc<Index>,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<EntryCursor<'r>> {
        let ident = index.ident.bytes();
        let range = KeyRange {
            start: [&ident[..], &range.start].concat(),
            end: [&ident[..], &range.end].concat(),
        };
        let cursor = store.cursor(Space::Indexes, &range, direction).for_client()?;
        // Checked after the cursor was opened: its snapshot is then complete.
        self.check_index(&index)?;
        Ok(EntryCursor { cursor, index, shape: self.shape, key: Vec::new() })
    }

    /// The number of inserts so far; read it before reading documents, and pass it to
    /// [`Collection::on_insert`].
    pub fn arrivals(&self) -> Arrivals {
        Arrivals(self.arrivals.load(Ordering::SeqCst))
    }

    /// Calls `listener` once, when documents are inserted after `seen` was read, or the collection
    /// is dropped; at once if that has happened already. It may be discarded after `until`.
    pub fn on_insert(&self, seen: Arrivals, until: Instant, listener: Listener) {
        let mut listeners = self.listeners.lock();
        if self.arrivals() != seen || self.is_dropped() {
            drop(listeners);
            return listener();
        }
        if listeners.len() >= LISTENERS_KEPT && listeners.len().is_power_of_two() {
            let now = Instant::now();
            listeners.retain(|(until, _)| *until > now);
        }
        listeners.push((until, listener));
    }

    /// Notifies listeners of inserts. The counter is incremented first, so that a listener that
    /// locks later sees the change.
    pub(crate) fn notify_listeners(&self) {
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        if self.state().options.capped.is_none() && !self.is_dropped() {
            // Only capped collections have tailable cursors.
            return;
        }
        let listeners = std::mem::take(&mut *self.listeners.lock());
        listeners.into_iter().for_each(|(_, listener)| listener());
    }

    /// Holds off changes of the state while documents are written.
    ///
    /// Errors: the operation was interrupted.
    pub(crate) fn write_shared(&self) -> Result<RwLockReadGuard<'_, ()>> {
        match self.writers.try_read() {
            Some(shared) => Ok(shared),
            None => current::read(&self.writers),
        }
    }

    /// Like [`Collection::write_shared`], but returns `None` instead of waiting.
    pub(crate) fn try_write_shared(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.writers.try_read()
    }

    /// Waits for open transactions and writers of documents, and holds them off while the state
    /// changes.
    ///
    /// Errors: the operation was interrupted.
    pub(crate) fn change(&self) -> Result<Change<'_>> {
        let quiet = self.quiesce()?;
        Ok(Change { _writers: self.hold_off()?, _quiet: quiet })
    }

    /// Waits for writers of documents, and holds them off.
    ///
    /// Errors: the operation was interrupted.
    pub(crate) fn hold_off(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        current::write(&self.writers)
    }

    /// Waits until no open transaction has touched the collection, and prevents new ones from doing
    /// so. A catalogue change waits here before it takes the catalogue's lock, because a client may
    /// leave a transaction open for long.
    ///
    /// Errors: the operation was interrupted.
    pub(crate) fn quiesce(&self) -> Result<Quiet<'_>> {
        self.changes.fetch_add(1, Ordering::SeqCst);
        let quiet = Quiet(self);
        let is_quiet = || self.transactions.load(Ordering::SeqCst) == 0;
        if !is_quiet() {
            current::wait(|| {
                std::thread::sleep(QUIET_STEP);
                is_quiet().then_some(())
            })?;
        }
        Ok(quiet)
    }

    /// Registers an open transaction that touches the collection; returns whether it may.
    pub(crate) fn enter_transaction(&self) -> bool {
        self.transactions.fetch_add(1, Ordering::SeqCst);
        let may_enter = self.changes.load(Ordering::SeqCst) == 0;
        if !may_enter {
            self.leave_transaction();
        }
        may_enter
    }

    /// Unregisters a transaction that has ended.
    pub(crate) fn leave_transaction(&self) {
        self.transactions.fetch_sub(1, Ordering::SeqCst);
    }

    /// Checks that a view of this moment may read the collection: it must have had its name by
    /// then. Database views have no documents of their own and always pass.
    ///
    /// Errors: `snapshot_unavailable`.
    pub(crate) fn check_seen(&self, moment: Stamp) -> Result<()> {
        match *self.shaped_at.lock() > moment && self.state().options.view.is_none() {
            true => Err(snapshot_unavailable()),
            false => Ok(()),
        }
    }

    /// The commit of the newest change of its indexes: a view of an earlier moment must not use
    /// some of them.
    pub(crate) fn indexed_at(&self) -> Stamp {
        *self.indexed_at.lock()
    }

    pub(crate) fn set_indexed_at(&self, stamp: Stamp) {
        *self.indexed_at.lock() = stamp;
    }

    pub(crate) fn set_shaped_at(&self, stamp: Stamp) {
        *self.shaped_at.lock() = stamp;
    }

    pub(crate) fn set_state(&self, state: State) {
        *self.state.write() = Arc::new(state);
    }

    pub(crate) fn set_namespace(&self, namespace: Namespace) {
        let from = std::mem::replace(&mut *self.namespace.write(), namespace);
        *self.former_name.lock() = Some(from);
        self.renames.fetch_add(1, Ordering::Release);
        self.notify_listeners();
    }

    pub(crate) fn mark_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
        self.state().building.iter().for_each(|build| build.abort());
        self.notify_listeners();
    }

    pub(crate) fn next_record_id(&self) -> i64 {
        let step = self.record_id_step;
        self.last_record_id.fetch_add(step, Ordering::Relaxed) + step
    }

    /// The same collection for a process that shares the store with others: the low bits of its
    /// record ids are the number of the node, so that no other node gives the same.
    #[must_use]
    pub(crate) fn of_node(mut self, node: u32) -> Self {
        self.record_id_step = 1 << NODE_BITS;
        let last = *self.last_record_id.get_mut();
        self.last_record_id = AtomicI64::new(last >> NODE_BITS << NODE_BITS | i64::from(node));
        self.is_kept_by_nodes = is_kept(&self.namespace());
        self
    }

    /// Makes later record ids greater than `id`, which another node has given.
    pub(crate) fn pass_record_id(&self, id: i64) {
        let own = self.last_record_id.load(Ordering::Relaxed) & (self.record_id_step - 1);
        self.last_record_id.fetch_max(id >> NODE_BITS << NODE_BITS | own, Ordering::Relaxed);
    }

    /// Returns whether other processes keep its documents in memory.
    #[inline]
    pub(crate) fn is_kept_by_nodes(&self) -> bool {
        self.is_kept_by_nodes
    }

    /// Sets the counters to what the store has. Listeners look whether other nodes have inserted
    /// documents: in a full capped collection the counters do not tell.
    pub(crate) fn set_counters(&self, documents: i64, bytes: i64) {
        self.count.store(documents, Ordering::Relaxed);
        self.size_bytes.store(bytes, Ordering::Relaxed);
        if !self.listeners.lock().is_empty() {
            self.notify_listeners();
        }
    }

    /// Adds a commit's changes of the counters, which are already stored, to those in memory.
    pub(crate) fn counted(&self, documents: i64, bytes: i64) {
        self.count.fetch_add(documents, Ordering::Relaxed);
        self.size_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Whether servers keep the documents of a collection in memory: users, roles, and settings.
fn is_kept(ns: &Namespace) -> bool {
    const SETTINGS: [&str; 2] = ["settings", "user_writes_critical_sections"];
    ns.db() == "admin" && ns.collection().starts_with("system.")
        || ns.db() == "config" && SETTINGS.contains(&ns.collection())
}

/// A change of a collection's state: no writer and no transaction uses the collection.
pub(crate) struct Change<'c> {
    _writers: RwLockWriteGuard<'c, ()>,
    _quiet: Quiet<'c>,
}

/// While it exists, no further transaction touches the collection.
pub(crate) struct Quiet<'c>(&'c Collection);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.changes.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Documents read at once, held where the store has them: see [`Collection::get_many`].
pub struct Documents<'r>(Box<dyn Values + 'r>);

impl Documents<'_> {
    /// The document of the record at index `place`; `None` if it is absent or must be read by
    /// [`Collection::get`].
    #[inline]
    pub fn get(&self, place: usize) -> Option<Doc<'_>> {
        match self.0.get(place) {
            Looked::Found(bytes) => Some(Doc::trusted(bytes)),
            Looked::Absent | Looked::Unread => None,
        }
    }
}

/// Scans documents in record order.
pub struct RecordCursor<'r> {
    cursor: Box<dyn Cursor + 'r>,
    ident: Ident,
    key: Vec<u8>,
}

impl RecordCursor<'_> {
    /// Moves to the next document; returns whether there is one.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.cursor.advance().for_client()
    }

    /// Moves to `record`, or to the next document after it in the cursor's direction.
    pub fn seek(&mut self, record: &[u8]) -> Result<bool> {
        keys::record_key(self.ident, record, &mut self.key);
        self.cursor.seek(&self.key).for_client()
    }

    /// Returns whether the cursor is on a document; `false` after an error.
    pub fn is_on(&self) -> bool {
        self.cursor.is_on()
    }

    /// The record key of the current document.
    #[inline]
    pub fn record(&self) -> &[u8] {
        &self.cursor.key()[IDENT_BYTES..]
    }

    /// The current document.
    #[inline]
    pub fn doc(&self) -> Doc<'_> {
        Doc::trusted(self.cursor.value())
    }
}

/// Scans the entries of an index in key order.
pub struct EntryCursor<'r> {
    cursor: Box<dyn Cursor + 'r>,
    index: Arc<Index>,
    shape: Shape,
    key: Vec<u8>,
}

impl EntryCursor<'_> {
    /// Moves to the next entry; returns whether there is one.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.cursor.advance().for_client()
    }

    /// Moves to the first entry whose key string is at or after `key` in the cursor's direction.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        keys::record_key(self.index.ident, key, &mut self.key);
        self.cursor.seek(&self.key).for_client()
    }

    /// Skips up to `count` entries; returns the number skipped: see [`Cursor::pass`].
    pub fn pass(&mut self, count: u64) -> Result<u64> {
        self.cursor.pass(count).for_client()
    }

    /// Returns whether the cursor is on an entry; `false` after an error.
    pub fn is_on(&self) -> bool {
        self.cursor.is_on()
    }

    /// The stored key of the entry, without the ident: the position where a parked cursor resumes.
    #[inline]
    pub fn position(&self) -> &[u8] {
        &self.cursor.key()[IDENT_BYTES..]
    }

    /// The current entry.
    ///
    /// Errors: `corrupt_index`.
    #[inline]
    pub fn entry(&self) -> Result<Entry<'_>> {
        let (key, value) = self.stored();
        self.decode(key, value)
    }

    /// The entry's stored key and value.
    #[inline]
    pub fn stored(&self) -> (&[u8], &[u8]) {
        self.cursor.entry()
    }

    /// Decodes a stored entry of the index.
    ///
    /// Errors: `corrupt_index`.
    #[inline]
    pub fn decode<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<Entry<'a>> {
        entry::decode(&self.index, self.shape, key, value)
            .ok_or_else(|| corrupt_index(&self.index.spec.name))
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }
}
