//! The catalogue: all collections, in memory and in the store.
//!
//! Modules: `options` has the options of a collection, `entry` its entry in the store, `ddl` the
//! changes of collections, `indexes` those of their indexes, `unique` the conversion of an index to
//! a unique one, `views` the documents of `system.views`, `replace` the replacement of one
//! collection by another, `event` the changes as a watcher receives them.
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
mod unique;
pub mod views;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::collection::Collection;
use crate::namespace::Namespace;
pub(crate) use ddl::exists;

/// All collections by name.
#[derive(Default)]
pub struct Catalog {
    databases: RwLock<BTreeMap<String, HashMap<String, Arc<Collection>>>>,
}

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

    pub(crate) fn insert(&self, collection: Arc<Collection>) {
        let ns = collection.namespace();
        let mut databases = self.databases.write();
        databases
            .entry(ns.db().to_owned())
            .or_default()
            .insert(ns.collection().to_owned(), collection);
    }

    pub(crate) fn remove(&self, ns: &Namespace) {
        let mut databases = self.databases.write();
        if let Some(collections) = databases.get_mut(ns.db()) {
            collections.remove(ns.collection());
            if collections.is_empty() {
                databases.remove(ns.db());
            }
        }
    }
}
