//! The catalogue: all collections, in memory and in the store.
//!
//! Modules: `options` has the options of a collection, `entry` its entry in the store, `ddl` the
//! changes of collections, `indexes` those of their indexes, `unique` the conversion of an index to
//! a unique one, `views` the documents of `system.views`, `replace` the replacement of one
//! collection by another, `event` the changes as a watcher receives them, `totals` the numbers of
//! collections and indexes.
//!
//! The map in memory is authoritative for readers; every change is committed to the store first.

pub mod ddl;
pub(crate) mod ddl_log;
pub mod entry;
pub mod event;
pub mod indexes;
pub mod options;
pub mod replace;
pub mod shown;
pub mod time_series;
mod totals;
mod unique;
pub mod views;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::collection::{Collection, State};
use crate::namespace::Namespace;
pub(crate) use ddl::exists;
pub use totals::Totals;

/// The collections by database and name.
type Databases = BTreeMap<String, HashMap<String, Arc<Collection>>>;

/// All collections by name.
#[derive(Default)]
pub struct Catalog {
    databases: RwLock<Databases>,
    /// The totals of these collections; locked after them.
    totals: Mutex<Totals>,
    /// Databases whose last collection was removed since the start of the server: their drop is
    /// still one, whereas a database that never was cannot be dropped.
    emptied: Mutex<HashSet<String>>,
}

/// The maximum number of [emptied](Catalog) databases that are remembered.
const EMPTIED_MAX: usize = 10_000;

impl Catalog {
    /// The collection with this name.
    #[inline]
    pub fn get(&self, db: &str, collection: &str) -> Option<Arc<Collection>> {
        self.databases.read().get(db)?.get(collection).cloned()
    }

    /// The collections of a database, ordered by name.
    pub fn collections(&self, db: &str) -> Vec<Arc<Collection>> {
        let databases = self.databases.read();
        let mut found: Vec<_> =
            databases.get(db).into_iter().flat_map(HashMap::values).cloned().collect();
        found.sort_unstable_by_key(|collection| collection.namespace());
        found
    }

    /// Every collection, in no order: sorting them by name takes longer than looking at them.
    pub fn all(&self) -> Vec<Arc<Collection>> {
        self.databases.read().values().flat_map(HashMap::values).cloned().collect()
    }

    /// The namespace of the collection with this UUID. Views have UUIDs too, but clients do not
    /// know them.
    pub fn of_uuid(&self, uuid: &[u8; 16]) -> Option<Namespace> {
        let databases = self.databases.read();
        let mut all = databases.values().flat_map(HashMap::values);
        let found = all.find(|collection| collection.uuid() == uuid)?;
        found.state().options.view.is_none().then(|| found.namespace())
    }

    /// The number of collections of a database.
    pub fn count(&self, db: &str) -> usize {
        self.databases.read().get(db).map_or(0, HashMap::len)
    }

    /// The databases with at least one collection, ordered by name.
    pub fn databases(&self) -> Vec<String> {
        self.databases.read().keys().cloned().collect()
    }

    /// A database whose name differs from `db` only in case; MongoDB allows only one of them.
    pub fn differing_in_case(&self, db: &str) -> Option<String> {
        let databases = self.databases.read();
        databases.keys().find(|name| *name != db && name.eq_ignore_ascii_case(db)).cloned()
    }

    /// The numbers of databases, collections and indexes, without a visit of each collection.
    pub fn totals(&self) -> Totals {
        let databases = self.databases.read();
        Totals { databases: databases.len() as u64, ..*self.totals.lock() }
    }

    pub(crate) fn insert(&self, collection: Arc<Collection>) {
        let mut databases = self.databases.write();
        self.put(&mut databases, collection);
    }

    /// Removes a collection, unless another one has its name.
    pub(crate) fn remove(&self, collection: &Collection) {
        let mut databases = self.databases.write();
        self.take(&mut databases, collection);
    }

    /// Gives a collection another name and state, in the place of one that has this name, so that
    /// every look-up finds one of them.
    pub(crate) fn rename(&self, collection: &Arc<Collection>, to: &Namespace, state: State) {
        let mut databases = self.databases.write();
        self.take(&mut databases, collection);
        collection.set_namespace(to.clone());
        collection.set_state(state);
        self.put(&mut databases, collection.clone());
    }

    fn put(&self, databases: &mut Databases, collection: Arc<Collection>) {
        let ns = collection.namespace();
        let mut totals = self.totals.lock();
        totals.add(&collection.state());
        let named = databases.entry(ns.db().to_owned()).or_default();
        if let Some(replaced) = named.insert(ns.collection().to_owned(), collection) {
            totals.subtract(&replaced.state());
        }
    }

    fn take(&self, databases: &mut Databases, collection: &Collection) {
        let ns = collection.namespace();
        let Some(collections) = databases.get_mut(ns.db()) else { return };
        if !collections.get(ns.collection()).is_some_and(|named| is_same(named, collection)) {
            return;
        }
        collections.remove(ns.collection());
        self.totals.lock().subtract(&collection.state());
        if collections.is_empty() {
            databases.remove(ns.db());
            let mut emptied = self.emptied.lock();
            if emptied.len() < EMPTIED_MAX {
                emptied.insert(ns.db().to_owned());
            }
        }
    }

    /// Returns whether the database has lost its last collection since the start of the server.
    pub(crate) fn is_emptied(&self, db: &str) -> bool {
        self.emptied.lock().contains(db)
    }

    /// Forgets a database that has been dropped.
    pub(crate) fn forget_emptied(&self, db: &str) {
        self.emptied.lock().remove(db);
    }

    /// Replaces the options and indexes of a collection, which need not be in the catalogue.
    pub(crate) fn set_state(&self, collection: &Collection, state: State) {
        let databases = self.databases.read();
        let ns = collection.namespace();
        let named = databases.get(ns.db()).and_then(|named| named.get(ns.collection()));
        let is_named = named.is_some_and(|named| is_same(named, collection));
        let mut totals = self.totals.lock();
        if is_named {
            totals.subtract(&collection.state());
            totals.add(&state);
        }
        collection.set_state(state);
    }
}

/// Returns whether two references are of one collection.
fn is_same(one: &Arc<Collection>, other: &Collection) -> bool {
    std::ptr::eq(&raw const **one, other)
}
