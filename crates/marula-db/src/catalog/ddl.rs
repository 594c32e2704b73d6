//! Changes of the catalogue: creates, drops and renames collections.
//!
//! One change runs at a time. Each is one commit of the catalogue's keys; data that it leaves in
//! other spaces is cleared later in the background.

use std::sync::Arc;

use marula_bson::uuid;
use marula_error::{Error, Result, codes, errors};
use marula_storage::{Space, Txn};

use super::ddl_log;
use super::entry::{self, Uuid};
use super::indexes::check_no_build;
use super::options::CollectionOptions;
use super::shown;
use super::views::SYSTEM_VIEWS;
use crate::catalog::event::CatalogEvent;
use crate::collection::{Collection, Sharding, State};
use crate::current;
use crate::db::Db;
use crate::index::{Index, IndexSpec, Multikey, multikey_prefix};
use crate::keys::{self, Ident};
use crate::namespace::Namespace;
use crate::oplog::{self, Entries};
use crate::storage_error::ForClient;
use crate::validator::check_place;

errors! {
    namespace_exists(ns: &Namespace) = NamespaceExists, "Collection {ns} already exists.";
    time_series_there(ns: &Namespace) = NamespaceExists, "A timeseries collection already exists. NS: {ns}";
    /// `system.views` holds the definitions of time-series collections.
    views_needed(ns: &Namespace) = CommandFailed, "cannot drop collection {ns} when time-series collections are present.";
    uuid_taken(uuid: &str) = NamespaceExists, "Existing collection has the UUID {uuid}";
    view_exists() = NamespaceExists, "Namespace already exists";
    view_there(ns: &Namespace) = NamespaceExists, "A view already exists. NS: {ns}";
    differs_in_case(known: &str, wanted: &str) = 13_297, "db already exists with different case already have: [{known}] trying to create [{wanted}]";
    ns_not_found() = NamespaceNotFound, "ns not found";
    source_not_found_across() = NamespaceNotFound, "source namespace does not exist";
    source_not_found(ns: &Namespace) = NamespaceNotFound, "Source collection {ns} does not exist";
    /// A change was made from a state that the collection no longer has.
    pub state_changed() = WriteConflict, "the collection was changed in the meantime";
    target_exists() = NamespaceExists, "target namespace exists";
    /// The new name of a collection is its own.
    pub rename_to_itself() = IllegalOperation, "Can't rename a collection to itself";
}

impl Db {
    /// Creates a collection.
    ///
    /// Errors: `namespace_exists`, `differs_in_case`, the naming rules.
    pub fn create_collection(
        &self,
        ns: &Namespace,
        options: CollectionOptions,
    ) -> Result<Arc<Collection>> {
        self.create_checked(ns, options, None, &|| Ok(()))
    }

    /// Creates a collection with the given UUID, for a copy of a collection on another server.
    ///
    /// Errors: as [`Db::create_collection`]; `uuid_taken`.
    pub fn create_collection_as(
        &self,
        ns: &Namespace,
        options: CollectionOptions,
        uuid: Uuid,
    ) -> Result<Arc<Collection>> {
        self.create_checked(ns, options, Some(uuid), &|| Ok(()))
    }

    /// Creates a collection or a view with this UUID, or with a new one if none is given. `check`
    /// is called while no other view can be created or changed: two definitions that are right by
    /// themselves may be a cycle together.
    ///
    /// Errors: as [`Db::create_collection_as`]; those of `check`.
    pub fn create_checked(
        &self,
        ns: &Namespace,
        options: CollectionOptions,
        uuid: Option<Uuid>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Arc<Collection>> {
        if options.has_images {
            self.start_images()?;
        }
        let mut next_ident = self.lock_catalog()?;
        let is_view = options.view.is_some();
        if let Some(known) = self.collection(ns) {
            let is_shown_already = is_view && known.state().options.view.is_some();
            return Err(if is_shown_already { view_exists() } else { exists(&known) });
        }
        let has_uuid = |uuid: Uuid| {
            self.catalog().collections(ns.db()).iter().any(|other| *other.uuid() == uuid)
        };
        if let Some(uuid) = uuid.filter(|&uuid| has_uuid(uuid)) {
            return Err(uuid_taken(&uuid::text(&uuid)));
        }
        check()?;
        let uuid = uuid.unwrap_or_else(uuid::generate);
        let collection = self.create_locked_as(&mut next_ident, ns, options, uuid)?;
        if is_view {
            self.show_view(&mut next_ident, ns)?;
        }
        Ok(collection)
    }

    /// Returns the collection with this name; creates it without options if it does not exist.
    pub fn collection_or_create(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        if let Some(collection) = self.collection(ns) {
            return Ok(collection);
        }
        let mut next_ident = self.lock_catalog()?;
        match self.collection(ns) {
            Some(collection) => Ok(collection),
            None => self.create_locked(&mut next_ident, ns, CollectionOptions::default()),
        }
    }

    pub(crate) fn create_locked(
        &self,
        next_ident: &mut u32,
        ns: &Namespace,
        options: CollectionOptions,
    ) -> Result<Arc<Collection>> {
        self.create_locked_as(next_ident, ns, options, uuid::generate())
    }

    fn create_locked_as(
        &self,
        next_ident: &mut u32,
        ns: &Namespace,
        options: CollectionOptions,
        uuid: Uuid,
    ) -> Result<Arc<Collection>> {
        let mut txn = self.store().begin();
        let collection = self.make_collection(next_ident, ns, options, uuid, &mut *txn)?;
        put_entry(&mut *txn, collection.ident(), ns, &uuid, &collection.state())?;
        let stamp = self.commit_change(txn, |entries| ddl_log::created(&collection, entries))?;
        collection.set_shaped_at(stamp);
        let collection = Arc::new(collection);
        self.catalog().insert(collection.clone());
        self.report_created(&collection);
        Ok(collection)
    }

    /// Checks that a collection may be created under this name and prepares it with new idents,
    /// which are allocated in `txn`.
    fn make_collection(
        &self,
        next_ident: &mut u32,
        ns: &Namespace,
        options: CollectionOptions,
        uuid: Uuid,
        txn: &mut dyn Txn,
    ) -> Result<Collection> {
        match options.view {
            Some(_) => ns.check_creatable_view()?,
            None => ns.check_creatable()?,
        }
        shown::check_not_of_cluster(ns, self.engine().is_remote)?;
        check_place(ns, &uuid, &options)?;
        if let Some(known) = self.catalog().differing_in_case(ns.db()) {
            return Err(differs_in_case(&known, ns.db()));
        }
        let ident = allocate(next_ident, txn);
        let mut indexes = Vec::new();
        if options.clustered.is_none() && options.view.is_none() && *ns != oplog::namespace()? {
            let spec = IndexSpec::id_index(options.collation.as_ref())?;
            indexes.push(Arc::new(Index::new(allocate(next_ident, txn), spec)));
        }
        let state = State { options, indexes, building: Vec::new(), sharding: None };
        Ok(self.as_node(Collection::new(ident, uuid, ns.clone(), state)))
    }

    /// Prepares a collection that a transaction will create; it is invisible to others.
    ///
    /// Errors: as [`Db::create_collection`].
    pub(crate) fn prepare_collection(
        &self,
        ns: &Namespace,
        options: CollectionOptions,
    ) -> Result<Collection> {
        let mut next_ident = self.lock_catalog()?;
        let mut txn = self.store().begin();
        let uuid = uuid::generate();
        let collection = self.make_collection(&mut next_ident, ns, options, uuid, &mut *txn)?;
        txn.commit().for_client()?;
        Ok(collection)
    }

    /// Adds the entry of a prepared collection to `txn`.
    pub(crate) fn put_created(&self, txn: &mut dyn Txn, collection: &Collection) -> Result<()> {
        let state = collection.state();
        for index in &state.indexes {
            index.mark_multikey(&Multikey::of_new(&index.spec), txn);
        }
        put_entry(txn, collection.ident(), &collection.namespace(), collection.uuid(), &state)
    }

    /// Drops a collection and returns it. Its data is cleared in the background. Dropping
    /// `system.views` drops all views of the database.
    ///
    /// Errors: `ns_not_found`.
    pub fn drop_collection(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        let known = self.collection(ns);
        let _quiet = known.as_ref().map(|known| known.quiesce()).transpose()?;
        let mut next_ident = self.lock_catalog()?;
        let collection = self.collection(ns).ok_or_else(ns_not_found)?;
        self.check_droppable(&collection)?;
        let mut doomed = vec![collection.clone()];
        if ns.collection() == SYSTEM_VIEWS {
            let mut all = self.catalog().collections(ns.db());
            // Older versions could create a view of this name: it is in the list already.
            all.retain(|other| other.state().options.view.is_some() && other.namespace() != *ns);
            if all.iter().any(|other| other.state().options.time_series.is_some()) {
                return Err(views_needed(ns));
            }
            doomed.append(&mut all);
        }
        doomed.extend(self.other_half(&collection));
        self.drop_locked(&doomed, None)?;
        for view in doomed.iter().filter(|doomed| doomed.state().options.view.is_some()) {
            if ns.collection() != SYSTEM_VIEWS {
                self.show_view(&mut next_ident, &view.namespace())?;
            }
        }
        Ok(collection)
    }

    /// Drops every collection of a database; returns their number.
    pub fn drop_database(&self, db: &str) -> Result<usize> {
        if db == oplog::LOCAL {
            self.stop_oplog()?;
        }
        let known = self.catalog().collections(db);
        let _quiet: Vec<_> = known.iter().map(|known| known.quiesce()).collect::<Result<_>>()?;
        let _ddl = self.lock_catalog()?;
        let collections = self.catalog().collections(db);
        let is_there = !collections.is_empty() || self.catalog().is_emptied(db);
        self.drop_locked(&collections, is_there.then_some(db))?;
        self.catalog().forget_emptied(db);
        self.report_change(&CatalogEvent::DatabaseDropped(db, collections.len()));
        Ok(collections.len())
    }

    /// Drops collections; `database` is set when they are all of a database.
    fn drop_locked(&self, collections: &[Arc<Collection>], database: Option<&str>) -> Result<()> {
        let _changes: Vec<_> =
            collections.iter().map(|collection| collection.change()).collect::<Result<_>>()?;
        let mut txn = self.store().begin();
        let mut dropped = Vec::new();
        for collection in collections {
            remove_entry(&mut *txn, collection, &mut dropped);
        }
        self.commit_change(txn, |entries| {
            collections.iter().for_each(|collection| ddl_log::dropped(collection, entries));
            if let Some(database) = database {
                ddl_log::database_dropped(database, entries);
            }
        })?;
        for collection in collections {
            self.catalog().remove(collection);
            collection.mark_dropped();
            self.report_change(&CatalogEvent::Dropped(collection));
        }
        dropped.into_iter().for_each(|(space, ident)| self.sweep(space, ident));
        Ok(())
    }

    /// Renames a collection, also into another database; `drop_target` drops an existing collection
    /// with the new name.
    ///
    /// Errors: `source_not_found`, `source_not_found_across`, `target_exists`, `rename_to_itself`,
    /// the naming rules.
    pub fn rename_collection(
        &self,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        to.check_creatable()?;
        let known = [self.collection(from), self.collection(to)];
        let known = known.iter().flatten();
        let _quiet: Vec<_> = known.map(|known| known.quiesce()).collect::<Result<_>>()?;
        let _ddl = self.lock_catalog()?;
        if from == to {
            return Err(rename_to_itself());
        }
        let collection = self.collection(from).ok_or_else(|| match from.db() == to.db() {
            true => source_not_found(from),
            false => source_not_found_across(),
        })?;
        self.check_renamable(&collection)?;
        let target = self.collection(to);
        if target.is_some() && !drop_target {
            return Err(target_exists());
        }
        target.iter().try_for_each(|target| self.check_renamable(target))?;
        if let Some(known) = self.catalog().differing_in_case(to.db()) {
            return Err(differs_in_case(&known, to.db()));
        }
        check_no_build(&collection)?;
        let _change = collection.change()?;
        let _target_change = target.as_ref().map(|target| target.change()).transpose()?;
        self.give_name(&collection, to, target.as_ref())
    }

    /// Gives `collection` the name `to`, in the place of `target`, which is dropped. The caller
    /// holds the catalogue and both collections.
    pub(super) fn give_name(
        &self,
        collection: &Arc<Collection>,
        to: &Namespace,
        target: Option<&Arc<Collection>>,
    ) -> Result<()> {
        let from = collection.namespace();
        let mut txn = self.store().begin();
        let mut dropped = Vec::new();
        if let Some(target) = target {
            remove_entry(&mut *txn, target, &mut dropped);
        }
        // A temporary collection that is renamed becomes permanent.
        let mut state = State::clone(&collection.state());
        state.options = state.options.lasting();
        put_entry(&mut *txn, collection.ident(), to, collection.uuid(), &state)?;
        let stamp = self.commit_change(txn, |entries| {
            ddl_log::renamed(collection, to, target.map(|target| &**target), entries);
        })?;
        collection.set_shaped_at(stamp);
        self.catalog().rename(collection, to, state);
        if let Some(target) = target {
            target.mark_dropped();
            self.report_change(&CatalogEvent::Dropped(target));
        }
        self.report_change(&CatalogEvent::Renamed { collection, from: &from });
        dropped.into_iter().for_each(|(space, ident)| self.sweep(space, ident));
        Ok(())
    }

    /// Replaces a collection's options, and the specifications of those indexes for which
    /// `change_index` returns a new one. `before` is the state that the new options were made from.
    ///
    /// Errors: `state_changed` if the collection has another state now: [`until_unchanged`] makes
    /// the change again.
    pub fn change_collection(
        &self,
        collection: &Collection,
        before: &Arc<State>,
        options: CollectionOptions,
        change_index: &dyn Fn(&IndexSpec) -> Option<IndexSpec>,
    ) -> Result<()> {
        self.change_checked(collection, before, options, change_index, &|| Ok(()))
    }

    /// Replaces a view's options. `before` is the state that the new options were made from.
    /// `check` is called while no other view can be created or changed, as in
    /// [`Db::create_checked`].
    ///
    /// Errors: as [`Db::change_collection`]; those of `check`.
    pub fn change_view(
        &self,
        view: &Collection,
        before: &Arc<State>,
        options: CollectionOptions,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        self.change_checked(view, before, options, &|_| None, check)
    }

    fn change_checked(
        &self,
        collection: &Collection,
        before: &Arc<State>,
        options: CollectionOptions,
        change_index: &dyn Fn(&IndexSpec) -> Option<IndexSpec>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        check_place(&collection.namespace(), collection.uuid(), &options)?;
        if options.has_images {
            self.start_images()?;
        }
        let _quiet = collection.quiesce()?;
        let mut next_ident = self.lock_catalog()?;
        check_no_build(collection)?;
        let change = collection.change()?;
        let old = collection.state();
        if !Arc::ptr_eq(&old, before) {
            return Err(state_changed());
        }
        check()?;
        let mut indexes = Vec::with_capacity(old.indexes.len());
        for index in &old.indexes {
            indexes.push(match change_index(&index.spec) {
                Some(spec) => Arc::new(Index::load(index.ident, spec, self.store())?),
                None => index.clone(),
            });
        }
        let is_view = options.view.is_some();
        let sharding = old.sharding.clone();
        let state = State { options, indexes, building: Vec::new(), sharding };
        let changed = ddl_log::changed(collection, &old, &state);
        self.put_state(collection, state, |_| (), |entries| changed(entries))?;
        drop(change);
        if is_view {
            self.show_view(&mut next_ident, &collection.namespace())?;
        }
        Ok(())
    }

    /// Gives a collection a shard key; `None` takes it away.
    ///
    /// Errors: an index that is being built; those of the store.
    pub fn shard_collection(
        &self,
        collection: &Collection,
        sharding: Option<Sharding>,
    ) -> Result<()> {
        let _quiet = collection.quiesce()?;
        let _ddl = self.lock_catalog()?;
        check_no_build(collection)?;
        let _change = collection.change()?;
        let state = State { sharding, ..State::clone(&collection.state()) };
        self.put_state(collection, state, |_| (), |_| ())
    }

    /// Commits the entry of a collection with this state, which only other nodes read.
    pub(crate) fn publish_state(&self, collection: &Collection, state: &State) -> Result<()> {
        let mut txn = self.store().begin();
        let ns = collection.namespace();
        put_entry(&mut *txn, collection.ident(), &ns, collection.uuid(), state)?;
        txn.commit().for_client().map(drop)
    }

    pub(super) fn put_state(
        &self,
        collection: &Collection,
        state: State,
        and: impl FnOnce(&mut dyn Txn),
        tell: impl FnOnce(&mut Entries),
    ) -> Result<()> {
        let mut txn = self.store().begin();
        and(&mut *txn);
        put_entry(
            &mut *txn,
            collection.ident(),
            &collection.namespace(),
            collection.uuid(),
            &state,
        )?;
        let stamp = self.commit_change(txn, tell)?;
        let old = collection.state();
        for index in &state.indexes {
            if !old.has_index(index) {
                index.note_whole(stamp);
                collection.set_indexed_at(stamp);
            }
        }
        self.catalog().set_state(collection, state);
        Ok(())
    }
}

/// Runs a change of a collection, which is made from its state, again for as long as another
/// change comes in between.
///
/// Errors: those of `change`; the operation was interrupted.
pub fn until_unchanged<T>(mut change: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match change() {
            Err(error) if error.code() == codes::WriteConflict => current::check()?,
            outcome => return outcome,
        }
    }
}

/// The error for a name that is taken.
pub fn exists(known: &Collection) -> Error {
    let (ns, state) = (known.namespace(), known.state());
    match (&state.options.view, &state.options.time_series) {
        (Some(_), Some(_)) => time_series_there(&ns),
        (Some(_), None) => view_there(&ns),
        (None, _) => namespace_exists(&ns),
    }
}

pub(super) fn allocate(next_ident: &mut u32, txn: &mut dyn Txn) -> Ident {
    let ident = Ident(*next_ident);
    *next_ident = next_ident.checked_add(1).expect("four billion collections and indexes");
    txn.put(Space::Catalog, &keys::NEXT_IDENT, &next_ident.to_be_bytes());
    ident
}

pub(super) fn put_entry(
    txn: &mut dyn Txn,
    ident: Ident,
    ns: &Namespace,
    uuid: &entry::Uuid,
    state: &State,
) -> Result<()> {
    let entry = entry::encode(ns, uuid, state)?;
    txn.change_epoch();
    txn.put(Space::Catalog, &keys::entry(ident), &entry);
    Ok(())
}

pub(super) fn remove_entry(
    txn: &mut dyn Txn,
    collection: &Collection,
    dropped: &mut Vec<(Space, Ident)>,
) {
    let ident = collection.ident();
    txn.change_epoch();
    txn.delete(Space::Catalog, &keys::entry(ident));
    txn.delete(Space::Catalog, &keys::count(ident));
    txn.delete(Space::Catalog, &keys::size(ident));
    txn.put(Space::Catalog, &keys::dropped(Space::Records, ident), &[]);
    dropped.push((Space::Records, ident));
    for index in &collection.state().indexes {
        drop_index(txn, index);
        dropped.push((Space::Indexes, index.ident));
    }
}

pub(super) fn drop_index(txn: &mut dyn Txn, index: &Index) {
    txn.clear_range(
        Space::Catalog,
        &marula_storage::KeyRange::prefix(&multikey_prefix(index.ident)),
    );
    txn.put(Space::Catalog, &keys::dropped(Space::Indexes, index.ident), &[]);
}

#[cfg(test)]
mod tests;
