//! A collection: its documents and its indexes in the store.
//!
//! Readers take the collection's [`State`] (options and indexes) once and work on it; writers hold
//! the collection shared while they write, so that a change of the state (a new index, a drop)
//! waits for them and they see it afterwards.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use marula_bson::{Doc, Value, key_string};
use marula_error::{Result, errors};
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

/// How documents are keyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// By record id, in the order of insertion, with an index on `_id`.
    RecordId,
    /// By the key string of `_id`.
    Clustered,
}

/// What of a collection may change while it lives.
#[derive(Clone)]
pub struct State {
    /// Its options.
    pub options: CollectionOptions,
    /// Its indexes, `_id` first.
    pub indexes: Vec<Arc<Index>>,
    /// Indexes that are being built: writers keep them in step too, readers do not see them.
    pub building: Vec<Arc<Build>>,
}

impl State {
    /// The index of this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// Whether the collection is clustered under this name: `clusteredIndex.name`.
    pub fn is_clustered_as(&self, name: &str) -> bool {
        let clustered = self.options.clustered.as_ref();
        let own = clustered.and_then(|clustered| clustered.as_doc().get("name"));
        own.and_then(|own| own.as_str()).is_some_and(|own| own == name)
    }

    /// How documents are keyed.
    pub fn shape(&self) -> Shape {
        if self.options.clustered.is_some() { Shape::Clustered } else { Shape::RecordId }
    }
}

/// How often queries read a collection from end to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scans {
    /// All of them.
    pub total: i64,
    /// Those that go on with what comes in.
    pub tailable: i64,
}

/// Someone to be told once when documents come in.
pub type Listener = Box<dyn FnOnce() + Send>;

/// Listeners whose time is over are cleared out once there are so many.
const LISTENERS_KEPT: usize = 64;

/// How often a change of the catalogue looks whether transactions have ended.
const QUIET_STEP: Duration = Duration::from_millis(5);

/// How often a collection had been renamed at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renames(u32);

/// How many times documents had come in when someone looked: see [`Collection::on_insert`].
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
    /// Held shared by writers of documents, exclusively by changes of the state.
    pub(crate) writers: RwLock<()>,
    /// How many open transactions have touched it.
    transactions: AtomicUsize,
    /// How many changes of its shape are under way, or wait.
    changes: AtomicUsize,
    /// The commit that has given it its name.
    shaped_at: Mutex<Stamp>,
    /// The commit of the newest change of its indexes.
    indexed_at: Mutex<Stamp>,
    is_dropped: AtomicBool,
    renames: AtomicU32,
    former_name: Mutex<Option<Namespace>>,
    count: AtomicI64,
    size_bytes: AtomicI64,
    last_record_id: AtomicI64,
    /// Held by inserts into a capped collection: they are one after the other, since each may
    /// remove the oldest documents.
    pub(crate) capped: Mutex<()>,
    /// Of a collection of buckets: which of them take more measurements.
    open_buckets: OnceLock<OpenBuckets>,
    arrivals: AtomicU64,
    scans: AtomicI64,
    tailable_scans: AtomicI64,
    /// Of a collection that commands have named; those are fewer than there may be.
    latencies: OnceLock<Box<(Latencies, Usage)>>,
    listeners: Mutex<Vec<(Instant, Listener)>>,
    /// What a layer above remembers of it.
    memory: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Collection {
    /// A collection that has just been created.
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

    /// How long operations on it took since the server was started.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies.get_or_init(Box::default).0
    }

    /// How often it was used since the server was started.
    pub fn usage(&self) -> &Usage {
        &self.latencies.get_or_init(Box::default).1
    }

    /// Notes that a query reads the collection from end to end.
    pub fn note_scan(&self) {
        self.scans.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the query of the last scan noted goes on with what comes in.
    pub fn note_tailable(&self) {
        self.tailable_scans.fetch_add(1, Ordering::Relaxed);
    }

    /// How often queries read the collection from end to end since the server was started.
    pub fn scans(&self) -> Scans {
        Scans {
            total: self.scans.load(Ordering::Relaxed),
            tailable: self.tailable_scans.load(Ordering::Relaxed),
        }
    }

    /// A collection as the store has it: reads its counters and its last record id.
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

    /// Its name in the store.
    pub fn ident(&self) -> Ident {
        self.ident
    }

    /// Its identity, which outlives a rename.
    pub fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// Whether it is the oplog's.
    #[inline]
    pub(crate) fn is_oplog(&self) -> bool {
        self.is_oplog
    }

    /// How its documents are keyed.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Which of its buckets take more measurements, where it is a collection of buckets.
    pub fn open_buckets(&self) -> &OpenBuckets {
        self.open_buckets.get_or_init(OpenBuckets::default)
    }

    /// Its name now.
    pub fn namespace(&self) -> Namespace {
        self.namespace.read().clone()
    }

    /// What the layer above remembers of this collection, as long as it lives: made when it is
    /// first asked for. There is one such layer; `None` where another type was asked for before.
    pub fn memory<T: Any + Send + Sync + Default>(&self) -> Option<Arc<T>> {
        let memory = self.memory.get_or_init(|| Arc::new(T::default()));
        Arc::downcast(memory.clone()).ok()
    }

    /// Its options and indexes now.
    #[inline]
    pub fn state(&self) -> Arc<State> {
        self.state.read().clone()
    }

    /// Whether it has been dropped: what still reads it should stop.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// How often it has been given another name: what reads it should stop when that changes.
    pub fn renames(&self) -> Renames {
        Renames(self.renames.load(Ordering::Acquire))
    }

    /// The name before the one that it has, where it had one since the start.
    pub fn former_name(&self) -> Option<Namespace> {
        self.former_name.lock().clone()
    }

    /// How many documents it has.
    pub fn count(&self) -> i64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The bytes of its documents, uncompressed.
    pub fn size_bytes(&self) -> i64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Shows the document of `record`; answers whether there is one. `scratch` holds the key.
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

    /// The record key that a unique index's entry at this store key leads to.
    pub fn find_unique(&self, store: &dyn View, key: &[u8]) -> Result<Option<RecordKey>> {
        let mut found = None;
        let shape = self.shape;
        let mut read = |value: &[u8]| found = entry::record_of_unique(shape, value);
        store.get(Space::Indexes, key, &mut read).for_client()?;
        Ok(found)
    }

    /// Walks the documents in record order.
    pub fn scan<'r>(&self, store: &'r dyn View, direction: Direction) -> Result<RecordCursor<'r>> {
        let cursor = store.cursor(Space::Records, &self.ident.range(), direction).for_client()?;
        Ok(RecordCursor { cursor, ident: self.ident, key: Vec::new() })
    }

    /// Walks the documents whose record keys lie in `range`.
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

    /// Fails where an index has been dropped: a walk that begins, or goes on, would miss what is
    /// being cleared.
    ///
    /// Errors: `index_dropped`.
    pub fn check_index(&self, index: &Index) -> Result<()> {
        if index.is_dropped() { Err(index_dropped(&index.spec.name)) } else { Ok(()) }
    }

    /// Walks the entries of `index` whose key strings lie in `range` (without the ident).
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
        // Looked at behind the opening: what the cursor sees was whole then.
        self.check_index(&index)?;
        Ok(EntryCursor { cursor, index, shape: self.shape, key: Vec::new() })
    }

    /// How many times documents have come in; take it before reading, and give it to
    /// [`Collection::on_insert`].
    pub fn arrivals(&self) -> Arrivals {
        Arrivals(self.arrivals.load(Ordering::SeqCst))
    }

    /// Calls `listener` once, when documents come in after `seen` was taken, or the collection goes
    /// away: at once when they have already. After `until` it may be forgotten.
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

    /// Tells those who wait that documents have come in. The count moves first, so that who takes
    /// the lock after it sees that it has moved.
    pub(crate) fn tell_listeners(&self) {
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        if self.state().options.capped.is_none() && !self.is_dropped() {
            // Only capped collections have cursors that wait.
            return;
        }
        let listeners = std::mem::take(&mut *self.listeners.lock());
        listeners.into_iter().for_each(|(_, listener)| listener());
    }

    /// Holds off changes of the state while documents are written.
    ///
    /// Errors: the operation must end first.
    pub(crate) fn write_shared(&self) -> Result<RwLockReadGuard<'_, ()>> {
        match self.writers.try_read() {
            Some(shared) => Ok(shared),
            None => current::read(&self.writers),
        }
    }

    /// Like [`Collection::write_shared`], but answers `None` where it would wait.
    pub(crate) fn try_write_shared(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.writers.try_read()
    }

    /// Waits for open transactions and writers of documents, and holds them off while the state
    /// changes.
    ///
    /// Errors: the operation must end first.
    pub(crate) fn change(&self) -> Result<Change<'_>> {
        let quiet = self.quiesce()?;
        Ok(Change { _writers: self.hold_off()?, _quiet: quiet })
    }

    /// Waits for writers of documents, and holds them off.
    ///
    /// Errors: the operation must end first.
    pub(crate) fn hold_off(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        current::write(&self.writers)
    }

    /// Waits until no open transaction has touched the collection, and keeps others from it. A
    /// change of the catalogue waits here before it takes the catalogue's lock: a client may leave
    /// a transaction open for long.
    ///
    /// Errors: the operation must end first.
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

    /// Notes that an open transaction touches the collection; answers whether it may.
    pub(crate) fn enter_transaction(&self) -> bool {
        self.transactions.fetch_add(1, Ordering::SeqCst);
        let may_enter = self.changes.load(Ordering::SeqCst) == 0;
        if !may_enter {
            self.leave_transaction();
        }
        may_enter
    }

    /// Notes that a transaction which has touched the collection has ended.
    pub(crate) fn leave_transaction(&self) {
        self.transactions.fetch_sub(1, Ordering::SeqCst);
    }

    /// Checks that what sees this moment may read it: it has got its name before. A view has no
    /// documents of its own.
    ///
    /// Errors: `snapshot_unavailable`.
    pub(crate) fn check_seen(&self, moment: Stamp) -> Result<()> {
        match *self.shaped_at.lock() > moment && self.state().options.view.is_none() {
            true => Err(snapshot_unavailable()),
            false => Ok(()),
        }
    }

    /// The commit of the newest change of its indexes: what sees an earlier moment does without
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
        self.tell_listeners();
    }

    pub(crate) fn mark_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
        self.state().building.iter().for_each(|build| build.abort());
        self.tell_listeners();
    }

    pub(crate) fn next_record_id(&self) -> i64 {
        self.last_record_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes in memory what a commit has added to the counters in the store.
    pub(crate) fn counted(&self, documents: i64, bytes: i64) {
        self.count.fetch_add(documents, Ordering::Relaxed);
        self.size_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A change of a collection's shape: no writer and no transaction is at it.
pub(crate) struct Change<'c> {
    _writers: RwLockWriteGuard<'c, ()>,
    _quiet: Quiet<'c>,
}

/// While it lives, no transaction touches the collection anew.
pub(crate) struct Quiet<'c>(&'c Collection);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.changes.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Documents that were read at once, held where the store has them: see [`Collection::get_many`].
pub struct Documents<'r>(Box<dyn Values + 'r>);

impl Documents<'_> {
    /// The document of the record at `place`; `None` where there is none, or [`Collection::get`]
    /// must be asked.
    #[inline]
    pub fn get(&self, place: usize) -> Option<Doc<'_>> {
        match self.0.get(place) {
            Looked::Found(bytes) => Some(Doc::trusted(bytes)),
            Looked::Absent | Looked::Unread => None,
        }
    }
}

/// Walks documents in record order.
pub struct RecordCursor<'r> {
    cursor: Box<dyn Cursor + 'r>,
    ident: Ident,
    key: Vec<u8>,
}

impl RecordCursor<'_> {
    /// Moves to the next document; answers whether there is one.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.cursor.advance().for_client()
    }

    /// Moves to `record`, or to the next document behind it in the cursor's direction.
    pub fn seek(&mut self, record: &[u8]) -> Result<bool> {
        keys::record_key(self.ident, record, &mut self.key);
        self.cursor.seek(&self.key).for_client()
    }

    /// Whether the cursor stands on a document: not after an error.
    pub fn is_on(&self) -> bool {
        self.cursor.is_on()
    }

    /// The record key of the document that the cursor stands on.
    #[inline]
    pub fn record(&self) -> &[u8] {
        &self.cursor.key()[IDENT_BYTES..]
    }

    /// The document that the cursor stands on.
    #[inline]
    pub fn doc(&self) -> Doc<'_> {
        Doc::trusted(self.cursor.value())
    }
}

/// Walks the entries of an index in key order.
pub struct EntryCursor<'r> {
    cursor: Box<dyn Cursor + 'r>,
    index: Arc<Index>,
    shape: Shape,
    key: Vec<u8>,
}

impl EntryCursor<'_> {
    /// Moves to the next entry; answers whether there is one.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.cursor.advance().for_client()
    }

    /// Moves to the first entry whose key string is at or behind `key` in the cursor's direction.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        keys::record_key(self.index.ident, key, &mut self.key);
        self.cursor.seek(&self.key).for_client()
    }

    /// Moves on by up to `count` entries that nobody looks at; answers by how many there were: see
    /// [`Cursor::pass`].
    pub fn pass(&mut self, count: u64) -> Result<u64> {
        self.cursor.pass(count).for_client()
    }

    /// Whether the cursor stands on an entry: not after an error.
    pub fn is_on(&self) -> bool {
        self.cursor.is_on()
    }

    /// The stored key of the entry, without the ident: where a parked cursor goes on.
    #[inline]
    pub fn position(&self) -> &[u8] {
        &self.cursor.key()[IDENT_BYTES..]
    }

    /// The entry that the cursor stands on.
    ///
    /// Errors: `corrupt_index`.
    #[inline]
    pub fn entry(&self) -> Result<Entry<'_>> {
        let (key, value) = self.stored();
        self.decode(key, value)
    }

    /// The entry's key and value as they are stored.
    #[inline]
    pub fn stored(&self) -> (&[u8], &[u8]) {
        self.cursor.entry()
    }

    /// The entry of the index that is stored so.
    ///
    /// Errors: `corrupt_index`.
    #[inline]
    pub fn decode<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<Entry<'a>> {
        entry::decode(&self.index, self.shape, key, value)
            .ok_or_else(|| corrupt_index(&self.index.spec.name))
    }

    /// The index that is walked.
    pub fn index(&self) -> &Index {
        &self.index
    }
}
