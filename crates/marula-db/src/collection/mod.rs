//! A collection: its documents and its indexes in the store.
//!
//! Readers take the collection's [`State`] (options and indexes) once and use that; writers pass
//! its gate (`gate`), so that a change of the state (a new index, a drop) waits for them and later
//! writers see it. This file has the identity and the state; `counters` has the numbers,
//! `record_ids` gives record ids, `waiters` notifies tailable cursors, and `reads` finds documents
//! and index entries.

mod counters;
mod gate;
mod random;
mod reads;
mod record_ids;
mod waiters;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use marula_bson::DocBuf;
use marula_error::{Error, Result, errors};
use marula_storage::{Stamp, View};
use parking_lot::{Mutex, RwLock};

use crate::build::Build;
use crate::catalog::entry::Uuid;
use crate::catalog::options::CollectionOptions;
use crate::index::Index;
use crate::keys::Ident;
use crate::namespace::Namespace;
use crate::oplog;
use crate::plan_cache::PlanCache;
use crate::time_series::open::OpenBuckets;
use crate::transaction::snapshot_unavailable;

use counters::Counters;
pub use counters::Scans;
use gate::Gate;
pub use random::RandomDocuments;
pub use reads::{Documents, EntryCursor, RecordCursor};
use record_ids::RecordIds;
use waiters::Waiters;
pub use waiters::{Arrivals, Listener};

errors! {
    collection_dropped(uuid: &str) = QueryPlanKilled, "collection dropped. UUID {uuid}";
    collection_renamed(from: &Namespace, to: &Namespace, uuid: &str) = QueryPlanKilled, "collection renamed from '{from}' to '{to}'. UUID {uuid}";
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
    /// The shard key that `shardCollection` has given it.
    pub sharding: Option<Sharding>,
}

/// The collection's shard key. It does not place documents, for that is the store's work: it is
/// kept for the tools that show it.
#[derive(Clone, Debug)]
pub struct Sharding {
    /// The key pattern.
    pub key: DocBuf,
    /// Whether the index of the key is unique.
    pub is_unique: bool,
    /// The time when it was given, in milliseconds since 1970.
    pub at_ms: i64,
}

impl State {
    /// The index with this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// Returns whether this is one of the complete indexes.
    pub(crate) fn has_index(&self, index: &Arc<Index>) -> bool {
        self.indexes.iter().any(|known| Arc::ptr_eq(known, index))
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

/// The number of renames of a collection at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renames(u32);

/// A collection.
pub struct Collection {
    ident: Ident,
    uuid: Uuid,
    shape: Shape,
    is_oplog: bool,
    namespace: RwLock<Namespace>,
    state: RwLock<Arc<State>>,
    gate: Gate,
    /// The commit that gave it its current name.
    shaped_at: Mutex<Stamp>,
    /// The commit of the newest change of its indexes.
    indexed_at: Mutex<Stamp>,
    is_dropped: AtomicBool,
    renames: AtomicU32,
    former_name: Mutex<Option<Namespace>>,
    counters: Counters,
    record_ids: RecordIds,
    /// Whether other processes keep its documents in memory, so that a write changes the epoch.
    is_kept_by_nodes: bool,
    /// Serializes inserts into a capped collection, since each may remove the oldest documents.
    /// The key is that of the oldest record when one was last looked for, or empty: a scan from
    /// the start would pass everything that has been removed.
    pub(crate) capped: Mutex<Vec<u8>>,
    /// The open buckets, if it is a bucket collection.
    open_buckets: OnceLock<OpenBuckets>,
    waiters: Waiters,
    /// Allocated for collections that queries have used.
    plans: OnceLock<Arc<PlanCache>>,
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
            gate: Gate::default(),
            shaped_at: Mutex::default(),
            indexed_at: Mutex::default(),
            is_dropped: AtomicBool::new(false),
            renames: AtomicU32::new(0),
            former_name: Mutex::new(None),
            counters: Counters::default(),
            record_ids: RecordIds::default(),
            is_kept_by_nodes: false,
            capped: Mutex::default(),
            open_buckets: OnceLock::new(),
            waiters: Waiters::default(),
            plans: OnceLock::new(),
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
        let mut collection = Collection::new(ident, uuid, namespace, state);
        collection.counters = Counters::load(ident, store)?;
        if collection.shape == Shape::RecordId {
            collection.record_ids = RecordIds::load(ident, store)?;
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

    /// The plans that are remembered for its queries.
    #[inline]
    pub fn plans(&self) -> &Arc<PlanCache> {
        self.plans.get_or_init(Arc::default)
    }

    /// Its current options and indexes.
    #[inline]
    pub fn state(&self) -> Arc<State> {
        self.state.read().clone()
    }

    /// Counts a look-up of a document by its `_id`, a use of that index.
    pub fn note_id_use(&self) {
        if let Some(index) = self.state.read().indexes.first().filter(|index| index.is_id()) {
            index.note_use();
        }
    }

    /// Returns whether it has been dropped; readers should then stop.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// The number of its renames; readers should stop when it changes.
    pub fn renames(&self) -> Renames {
        Renames(self.renames.load(Ordering::Acquire))
    }

    /// Returns whether this is its current name.
    pub(crate) fn is_named(&self, ns: &Namespace) -> bool {
        *self.namespace.read() == *ns
    }

    /// Checks that it exists under the name that it had when this was the number of its renames.
    ///
    /// Errors: `collection_dropped`, `collection_renamed`.
    #[inline]
    pub fn check_there(&self, renames: Renames) -> Result<()> {
        if !self.is_dropped() && self.renames() == renames {
            return Ok(());
        }
        Err(self.not_there())
    }

    #[cold]
    fn not_there(&self) -> Error {
        let uuid = marula_bson::uuid::text(&self.uuid);
        match self.former_name.lock().clone() {
            Some(from) if !self.is_dropped() => collection_renamed(&from, &self.namespace(), &uuid),
            _ => collection_dropped(&uuid),
        }
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

    /// For [`crate::catalog::Catalog::set_state`] alone, which keeps the catalogue's totals.
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

    /// The same collection for a process that shares the store with others: the low bits of its
    /// record ids are the number of the node, so that no other node gives the same.
    #[must_use]
    pub(crate) fn of_node(mut self, node: u32) -> Self {
        self.record_ids = self.record_ids.of_node(node);
        self.is_kept_by_nodes = is_kept(&self.namespace());
        self
    }

    /// Returns whether other processes keep its documents in memory.
    #[inline]
    pub(crate) fn is_kept_by_nodes(&self) -> bool {
        self.is_kept_by_nodes
    }
}

/// Whether servers keep the documents of a collection in memory: users, roles, and settings.
fn is_kept(ns: &Namespace) -> bool {
    const SETTINGS: [&str; 2] = ["settings", "user_writes_critical_sections"];
    ns.db() == "admin" && ns.collection().starts_with("system.")
        || ns.db() == "config" && SETTINGS.contains(&ns.collection())
}
