//! Several processes over one store: what this one keeps in memory follows what the others commit.
//!
//! ```text
//!   operation   begin_operation: one moment, its epoch ─┬─ accepted: go on
//!                                                       └─ another:  renew_catalog
//!   write       share ─► guard ─► … ─► commit under the accepted epoch ─► Conflict: renew, again
//!   DDL         lock in this process ─► lock among nodes ─► renew ─► change ─► commit, new epoch
//! ```
//!
//! Readers and writers use the catalogue in memory, as in a process that is alone; but it is a copy
//! of the entries in the store, and the [epoch](marula_storage::nodes) determines whether it still
//! is. A change of the catalogue is made under a lock that one node holds at a time, so the code
//! that makes it reads a catalogue that cannot change. Collections and indexes that are there
//! before and after keep their objects: plans and cursors refer to them.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use marula_error::Result;
use marula_storage::nodes::{Execute, Node};
use marula_storage::{Space, Stamp, Store, View};
use parking_lot::{Mutex, MutexGuard, RwLockReadGuard};

use crate::build::Build;
use crate::catalog::Catalog;
use crate::catalog::entry;
use crate::catalog::event::CatalogEvent;
use crate::collection::{Collection, State};
use crate::db::{Db, Sweeper, next_ident, read_all};
use crate::keys::{self, Ident};
use crate::storage_error::ForClient;

/// The interval at which a change of the catalogue tries to take the lock that another node holds.
const LOCK_STEP: Duration = Duration::from_millis(10);

/// The number of moments that an operation takes until one has the epoch of the catalogue.
const MOMENTS_MAX: usize = 20;

/// The state of a process that shares its store.
pub(crate) struct Sharing {
    own: Node,
    /// Held by the change of the catalogue whose turn it is in this process.
    turn: Mutex<()>,
    /// The stored entries of the catalogue, as they were read last.
    entries: Mutex<HashMap<Ident, Vec<u8>>>,
    /// The number of times that the catalogue was read again.
    renewals: AtomicU64,
}

impl Sharing {
    pub(crate) fn new(own: Node) -> Self {
        Sharing {
            own,
            turn: Mutex::new(()),
            entries: Mutex::default(),
            renewals: AtomicU64::new(0),
        }
    }
}

thread_local! {
    /// Whether this thread holds the catalogue's lock.
    static HOLDS_CATALOG: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is reading the catalogue.
    static IS_LOADING: Cell<bool> = const { Cell::new(false) };
    /// The number of collections whose changes this thread holds off, as a writer.
    static SHARES: Cell<usize> = const { Cell::new(0) };
}

/// While it exists, the state of a collection does not change: its holder writes documents.
pub(crate) struct Share<'c> {
    _writers: RwLockReadGuard<'c, ()>,
    is_counted: bool,
}

impl<'c> Share<'c> {
    /// A share that may be counted: who holds one cannot read the catalogue again, which changes
    /// states.
    pub(crate) fn new(writers: RwLockReadGuard<'c, ()>, is_counted: bool) -> Self {
        if is_counted {
            SHARES.set(SHARES.get() + 1);
        }
        Share { _writers: writers, is_counted }
    }
}

/// Returns whether this thread holds a [`Share`] that is counted.
pub(crate) fn holds_share() -> bool {
    SHARES.get() > 0
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            SHARES.set(SHARES.get() - 1);
        }
    }
}

/// The lock of the catalogue against other changes, in this process and among the nodes; the
/// content is the next free ident.
pub(crate) struct CatalogLock<'d> {
    db: &'d Db,
    next_ident: MutexGuard<'d, u32>,
    _turn: Option<MutexGuard<'d, ()>>,
}

impl Deref for CatalogLock<'_> {
    type Target = u32;

    fn deref(&self) -> &u32 {
        &self.next_ident
    }
}

impl DerefMut for CatalogLock<'_> {
    fn deref_mut(&mut self) -> &mut u32 {
        &mut self.next_ident
    }
}

impl Drop for CatalogLock<'_> {
    fn drop(&mut self) {
        if let Some(nodes) = self.db.store().nodes() {
            HOLDS_CATALOG.set(false);
            nodes.unlock();
        }
    }
}

/// An operation of this thread, whose reads show one moment: see [`Db::begin_operation`].
#[must_use]
pub struct Moment<'d>(&'d dyn Store);

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        self.0.end_operation();
    }
}

/// The catalogue as the store has it at one moment.
struct Stored {
    entries: HashMap<Ident, Vec<u8>>,
    /// The multikey marks by index, without its ident.
    marks: HashMap<Ident, Vec<Vec<u8>>>,
    view: Arc<dyn View>,
}

impl Stored {
    fn read(view: Arc<dyn View>) -> Result<Stored> {
        let ident = |key: &[u8]| {
            let ident = key.get(1..5).and_then(|ident| ident.try_into().ok());
            ident.map(|ident| Ident(u32::from_be_bytes(ident)))
        };
        let mut entries = HashMap::new();
        for (key, value) in read_all(&*view, &keys::ENTRY_PREFIX)? {
            entries.extend(ident(&key).map(|ident| (ident, value)));
        }
        let mut marks: HashMap<Ident, Vec<Vec<u8>>> = HashMap::new();
        for (key, _) in read_all(&*view, &keys::MULTIKEY_PREFIX)? {
            if let Some(ident) = ident(&key) {
                marks.entry(ident).or_default().push(key[5..].to_vec());
            }
        }
        Ok(Stored { entries, marks, view })
    }

    fn moment(&self) -> Stamp {
        self.view.moment()
    }
}

impl Db {
    /// Opens a store that other processes serve too.
    pub(crate) fn open_shared(store: Arc<dyn Store>) -> Result<Self> {
        let sweeper = Sweeper::start(store.clone());
        let db = Db::new(store, Catalog::default(), 1, Some(sweeper));
        {
            let _lock = db.lock_catalog()?;
            db.settle_oplog()?;
            db.forget_dead_builds()?;
            db.sweep_dropped()?;
        }
        let is_alone = db.node_list()?.len() <= 1;
        if is_alone {
            db.reconcile_views()?;
            // Those of other nodes are in use.
            db.drop_temporaries()?;
        }
        Ok(db)
    }

    /// Returns whether other processes may serve the store too.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    /// The nodes that serve the store; none where this process is alone.
    ///
    /// Errors: those of the store.
    pub fn node_list(&self) -> Result<Vec<Node>> {
        self.store().nodes().map_or(Ok(Vec::new()), |nodes| nodes.list().for_client())
    }

    /// Sends a request to the other nodes that serve the store; returns them with their replies,
    /// `None` of those that have not replied in time. A request may be executed more than once.
    ///
    /// Errors: those of the store.
    pub fn request_of_nodes(
        &self,
        request: &[u8],
        timeout: Duration,
    ) -> Result<Vec<(Node, Option<Vec<u8>>)>> {
        let (Some(nodes), Some(sharing)) = (self.store().nodes(), &self.sharing) else {
            return Ok(Vec::new());
        };
        let mut others = self.node_list()?;
        others.retain(|node| node.number != sharing.own.number);
        let numbers: Vec<u32> = others.iter().map(|node| node.number).collect();
        let mut replies = nodes.request(&numbers, request, timeout).for_client()?;
        let with_reply = |node: Node| {
            let reply = replies.remove(&node.number);
            (node, reply)
        };
        Ok(others.into_iter().map(with_reply).collect())
    }

    /// Sends a request to one other node; `None` if there is no reply in time.
    ///
    /// Errors: those of the store.
    pub fn request_of_node(
        &self,
        number: u32,
        request: &[u8],
        timeout: Duration,
    ) -> Result<Option<Vec<u8>>> {
        let Some(nodes) = self.store().nodes() else { return Ok(None) };
        Ok(nodes.request(&[number], request, timeout).for_client()?.remove(&number))
    }

    /// Sets the function that executes the requests of other nodes and returns the replies.
    pub fn execute_requests(&self, execute: Execute) {
        if let Some(nodes) = self.store().nodes() {
            nodes.on_request(execute);
        }
    }

    /// The number of times that the catalogue, and what else nodes keep in memory, was read again.
    #[inline]
    pub fn renewals(&self) -> u64 {
        self.sharing.as_ref().map_or(0, |sharing| sharing.renewals.load(Ordering::Acquire))
    }

    /// Has the catalogue follow the store whenever a read takes a newer state, and has change
    /// streams that wait notice the entries of other nodes.
    pub fn follow_store(self: &Arc<Self>) {
        let Some(nodes) = self.store().nodes() else { return };
        self.watch_oplog();
        let db = Arc::downgrade(self);
        nodes.on_new_epoch(Box::new(move || {
            let Some(db) = db.upgrade() else { return Ok(()) };
            db.renew_catalog().map_err(|error| {
                marula_storage::Error::Unavailable(format!(
                    "the catalogue could not be read: {}",
                    error.message()
                ))
            })
        }));
    }

    /// Begins an operation of this thread: until it ends, or writes, its reads show one moment, and
    /// the catalogue is the one of that moment or newer.
    ///
    /// Errors: those of the store.
    pub fn begin_operation(&self) -> Result<Moment<'_>> {
        let moment = Moment(self.store());
        for _ in 0..MOMENTS_MAX {
            let epoch = self.store().begin_operation().for_client()?;
            match self.store().nodes() {
                Some(nodes) if nodes.accepted() != epoch => self.renew_catalog()?,
                _ => break,
            }
        }
        Ok(moment)
    }

    /// Begins an operation of this thread that can be repeated from its start, as long as it has
    /// written nothing: its moment is that of its first read. The catalogue may turn out to
    /// be older than that: then the operation fails, and must be [repeated](Db::must_repeat).
    ///
    /// Errors: those of the store.
    pub fn begin_repeatable(&self) -> Result<Moment<'_>> {
        let moment = Moment(self.store());
        self.store().begin_repeatable().for_client()?;
        Ok(moment)
    }

    /// Returns whether the operation of this thread, which has come to its end, must be repeated,
    /// and has written nothing.
    ///
    /// Errors: those of the store.
    pub fn must_repeat(&self) -> Result<bool> {
        self.store().must_repeat().for_client()
    }

    /// Returns whether this process has seen that another has changed the catalogue.
    pub(crate) fn is_stale(&self) -> bool {
        self.store().nodes().is_some_and(|nodes| nodes.is_stale())
    }

    /// Reads the catalogue again, if it has changed. A writer of documents does not: what it writes
    /// will not be committed, and it begins again.
    pub(crate) fn renew_catalog(&self) -> Result<()> {
        if self.sharing.is_none() || IS_LOADING.get() || SHARES.get() > 0 {
            return Ok(());
        }
        if HOLDS_CATALOG.get() {
            return self.load_catalog(None);
        }
        let mut next_ident = crate::current::lock(&self.ddl)?;
        self.load_catalog(Some(&mut next_ident))
    }

    /// Locks the catalogue against changes, also by other nodes, and reads it. Calls `go_on` while
    /// it waits.
    ///
    /// Errors: those of `go_on` and of the store.
    pub(crate) fn lock_for_all(&self, go_on: &dyn Fn() -> Result<()>) -> Result<CatalogLock<'_>> {
        // A change is decided by the newest state.
        self.store().end_operation();
        let (Some(nodes), Some(sharing)) = (self.store().nodes(), &self.sharing) else {
            let next_ident = lock(&self.ddl, go_on)?;
            return Ok(CatalogLock { db: self, next_ident, _turn: None });
        };
        // While another node holds the lock, operations of this one can read the catalogue again.
        let turn = lock(&sharing.turn, go_on)?;
        while !nodes.try_lock().for_client()? {
            go_on()?;
            std::thread::sleep(LOCK_STEP);
        }
        let next_ident = lock(&self.ddl, go_on).inspect_err(|_| nodes.unlock())?;
        HOLDS_CATALOG.set(true);
        let mut locked = CatalogLock { db: self, next_ident, _turn: Some(turn) };
        self.load_catalog(Some(&mut locked))?;
        Ok(locked)
    }

    /// A collection as this process has it: see [`Collection::of_node`].
    pub(crate) fn as_node(&self, collection: Collection) -> Collection {
        match &self.sharing {
            None => collection,
            Some(sharing) => collection.of_node(sharing.own.number),
        }
    }

    /// Has the catalogue in memory be that of the store. The catalogue is locked in this process.
    /// Without `own_next_ident` this thread has it locked among the nodes too: nobody else has
    /// changed the entries.
    fn load_catalog(&self, own_next_ident: Option<&mut u32>) -> Result<()> {
        IS_LOADING.set(true);
        let outcome = self.load_catalog_now(own_next_ident);
        IS_LOADING.set(false);
        outcome
    }

    fn load_catalog_now(&self, own_next_ident: Option<&mut u32>) -> Result<()> {
        let (Some(nodes), Some(sharing)) = (self.store().nodes(), &self.sharing) else {
            return Ok(());
        };
        let (view, epoch) = nodes.view().for_client()?;
        let is_first = sharing.renewals.load(Ordering::Acquire) == 0;
        if !is_first && epoch == nodes.accepted() {
            if let Some(own) = own_next_ident {
                *own = next_ident(&*view)?;
            }
            nodes.accept(epoch);
            return Ok(());
        }
        let stored = Stored::read(view)?;
        let Some(own_next_ident) = own_next_ident else {
            self.catalog().all().iter().for_each(|one| add_marks(&one.state(), &stored));
            nodes.accept(epoch);
            return Ok(());
        };
        let mut known = sharing.entries.lock();
        let own: HashMap<Ident, Arc<Collection>> =
            self.catalog().all().into_iter().map(|one| (one.ident(), one)).collect();
        let mut gone: Vec<&Arc<Collection>> =
            own.values().filter(|one| !stored.entries.contains_key(&one.ident())).collect();
        gone.sort_by_key(|one| one.ident());
        let mut entries: Vec<(&Ident, &Vec<u8>)> = stored.entries.iter().collect();
        entries.sort();
        for (ident, bytes) in entries {
            let is_known = known.get(ident) == Some(bytes);
            match own.get(ident) {
                Some(collection) => {
                    if !is_known {
                        self.change(collection, entry::decode(bytes, &*stored.view)?, &stored)?;
                    }
                    add_marks(&collection.state(), &stored);
                }
                None => self.add(*ident, entry::decode(bytes, &*stored.view)?, &stored)?,
            }
        }
        // After the others, so that a name that one of these takes is always there.
        for collection in gone {
            self.forget(collection)?;
        }
        *own_next_ident = next_ident(&*stored.view)?;
        *known = stored.entries;
        drop(known);
        self.follow_oplog(&*stored.view)?;
        nodes.accept(epoch);
        sharing.renewals.fetch_add(1, Ordering::AcqRel);
        self.load_feature_version()
    }

    /// Another node has dropped a collection.
    fn forget(&self, collection: &Arc<Collection>) -> Result<()> {
        let _alone = collection.hold_off()?;
        self.catalog().remove(collection);
        collection.state().indexes.iter().for_each(|index| index.mark_dropped());
        collection.mark_dropped();
        self.report_change(&CatalogEvent::Dropped(collection));
        Ok(())
    }

    /// Another node has created a collection.
    fn add(&self, ident: Ident, entry: entry::Entry, stored: &Stored) -> Result<()> {
        let entry::Entry { ns, uuid, state } = entry;
        let collection = Collection::load(ident, uuid, ns, state, &*stored.view)?;
        let collection = Arc::new(self.as_node(collection));
        collection.set_shaped_at(stored.moment());
        self.catalog().insert(collection.clone());
        self.report_created(&collection);
        Ok(())
    }

    /// Another node has changed a collection.
    fn change(
        &self,
        collection: &Arc<Collection>,
        entry: entry::Entry,
        stored: &Stored,
    ) -> Result<()> {
        let _alone = collection.hold_off()?;
        let old = collection.state();
        let mut state = entry.state;
        for index in &mut state.indexes {
            // An index that a build has filled joins the collection as it is.
            let building = old.building.iter().flat_map(|build| &build.indexes);
            let known = old.indexes.iter().chain(building).find(|known| {
                known.ident == index.ident && known.spec.document == index.spec.document
            });
            if let Some(known) = known {
                *index = known.clone();
            }
            if !old.has_index(index) {
                index.note_whole(stored.moment());
                collection.set_indexed_at(stored.moment());
            }
        }
        for build in &mut state.building {
            if let Some(known) = old.building.iter().find(|known| known.uuid() == build.uuid()) {
                known.follow(build);
                *build = known.clone();
            }
        }
        for build in &old.building {
            if !state.building.iter().any(|known| Arc::ptr_eq(known, build)) {
                build.abort();
            }
        }
        let kept: HashSet<Ident> = state.indexes.iter().map(|index| index.ident).collect();
        for index in old.indexes.iter().filter(|index| !kept.contains(&index.ident)) {
            index.mark_dropped();
            self.report_change(&CatalogEvent::IndexDropped(collection, index));
        }
        let from = collection.namespace();
        if from == entry.ns {
            self.catalog().set_state(collection, state);
        } else {
            collection.set_shaped_at(stored.moment());
            self.catalog().rename(collection, &entry.ns, state);
            self.report_change(&CatalogEvent::Renamed { collection, from: &from });
        }
        Ok(())
    }

    /// Has the counters of all collections be those of the store. Between two calls they have
    /// changed by the writes of this process alone.
    ///
    /// Errors: those of the store.
    pub fn renew_counters(&self) -> Result<()> {
        if self.sharing.is_none() {
            return Ok(());
        }
        let mut counters: HashMap<Ident, [i64; 2]> = HashMap::new();
        for (key, value) in read_all(self.store(), &keys::COUNTER_PREFIX)? {
            let Some((ident, place)) = keys::parse_counter(&key) else { continue };
            let value = value.try_into().map_or(0, i64::from_le_bytes);
            counters.entry(ident).or_default()[place] = value;
        }
        for collection in self.catalog().all() {
            let [documents, bytes] = counters.get(&collection.ident()).copied().unwrap_or_default();
            collection.set_counters(documents, bytes);
        }
        Ok(())
    }

    /// The ids of this node and of the others that live.
    fn living(&self) -> Result<HashSet<i64>> {
        let others = self.node_list()?.into_iter().map(|node| node.id);
        Ok(others.chain(self.own_node()).collect())
    }

    /// Ends the builds of nodes that have ended. The catalogue is locked.
    fn forget_dead_builds(&self) -> Result<()> {
        let alive = self.living()?;
        for collection in self.catalog().all() {
            let state = collection.state();
            let dead: Vec<Arc<Build>> =
                state.building.iter().filter(|build| is_dead(build, &alive)).cloned().collect();
            if dead.is_empty() {
                continue;
            }
            let _alone = collection.hold_off()?;
            let mut rest = State::clone(&state);
            rest.building.retain(|build| !is_dead(build, &alive));
            self.publish_state(&collection, &rest)?;
            self.catalog().set_state(&collection, rest);
            for build in dead {
                build.abort();
                build.idents().for_each(|ident| self.sweep(Space::Indexes, ident));
            }
        }
        Ok(())
    }

    /// Clears what the store lists as dropped and no build uses. The catalogue is locked.
    fn sweep_dropped(&self) -> Result<()> {
        let mut used = HashSet::new();
        for collection in self.catalog().all() {
            used.extend(collection.state().building.iter().flat_map(|build| build.idents()));
        }
        for (key, _) in read_all(self.store(), &keys::DROPPED_PREFIX)? {
            if let Some((space, ident)) = keys::parse_dropped(&key)
                && !used.contains(&ident)
            {
                self.sweep(space, ident);
            }
        }
        Ok(())
    }

    /// Reads the counters, and ends the builds of nodes that have ended. Called every second.
    ///
    /// Errors: those of the store.
    pub fn tend_nodes(&self) -> Result<()> {
        let Some(sharing) = &self.sharing else { return Ok(()) };
        self.renew_counters()?;
        let has_others = self.catalog().all().iter().any(|collection| {
            let state = collection.state();
            state.building.iter().any(|build| build.owner() != Some(sharing.own.id))
        });
        if has_others {
            let alive = self.living()?;
            let has_dead = |collection: &Arc<Collection>| {
                collection.state().building.iter().any(|build| is_dead(build, &alive))
            };
            if self.catalog().all().iter().any(has_dead) {
                let _lock = self.lock_catalog()?;
                self.forget_dead_builds()?;
            }
        }
        Ok(())
    }

    /// Returns whether this node does what one node does for all: the one with the least number.
    /// Two may for a moment believe that it is they, so what they do must be right then too.
    ///
    /// Errors: those of the store.
    pub fn leads(&self) -> Result<bool> {
        let Some(sharing) = &self.sharing else { return Ok(true) };
        let least = self.node_list()?.into_iter().map(|node| node.number).min();
        Ok(least.is_none_or(|least| least == sharing.own.number))
    }

    /// The id of this node, if the store is shared.
    pub fn own_node(&self) -> Option<i64> {
        self.sharing.as_ref().map(|sharing| sharing.own.id)
    }
}

/// Returns whether the node that runs a build has ended.
fn is_dead(build: &Build, alive: &HashSet<i64>) -> bool {
    build.owner().is_some_and(|owner| !alive.contains(&owner))
}

/// Locks a mutex; calls `go_on` while it waits.
fn lock<'m, T>(mutex: &'m Mutex<T>, go_on: &dyn Fn() -> Result<()>) -> Result<MutexGuard<'m, T>> {
    loop {
        if let Some(locked) = mutex.try_lock_for(LOCK_STEP) {
            return Ok(locked);
        }
        go_on()?;
    }
}

/// Adds the marks that the store has for the indexes of a collection.
fn add_marks(state: &State, stored: &Stored) {
    let building = state.building.iter().flat_map(|build| &build.indexes);
    for index in state.indexes.iter().chain(building) {
        for mark in stored.marks.get(&index.ident).into_iter().flatten() {
            index.load_mark(mark);
        }
    }
}
