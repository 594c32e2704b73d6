//! Changes of the catalogue: creating, dropping, renaming, indexing.
//!
//! One change runs at a time. Each is one commit of the catalogue's keys; what it leaves behind in the other
//! spaces is cleared later in the background. An index is built under an ident that the store already lists as
//! garbage: only the commit that adds the finished index to its collection takes it off that list, so that a
//! crash in between leaves nothing.

use std::sync::Arc;

use marula_bson::Doc;
use marula_error::{Error, Result, errors};
use marula_storage::{Direction, Space, Txn};

use super::entry;
use super::options::CollectionOptions;
use super::views::SYSTEM_VIEWS;
use crate::collection::{Collection, Shape, State};
use crate::db::Db;
use crate::index::{
    INDEXES_MAX, Index, IndexSpec, KeyMaker, KeySet, Multikey, entry as index_entry,
    multikey_prefix,
};
use crate::keys::{self, Ident};
use crate::namespace::Namespace;
use crate::storage_error::ForClient;
use crate::validator::check_place;
use crate::write::duplicate_key;

/// Bytes of entries that an index build sorts at once.
const BUILD_BYTES_MAX: usize = 256 * 1024 * 1024;

errors! {
    namespace_exists(ns: &Namespace) = NamespaceExists, "Collection {ns} already exists.";
    time_series_there(ns: &Namespace) = NamespaceExists, "A timeseries collection already exists. NS: {ns}";
    /// `system.views` holds what time-series collections are.
    views_needed(ns: &Namespace) = CommandFailed, "cannot drop collection {ns} when time-series collections are present.";
    view_exists() = NamespaceExists, "Namespace already exists";
    view_there(ns: &Namespace) = NamespaceExists, "A view already exists. NS: {ns}";
    differs_in_case(known: &str, wanted: &str) = 13_297, "db already exists with different case already have: [{known}] trying to create [{wanted}]";
    ns_not_found() = NamespaceNotFound, "ns not found";
    source_not_found(ns: &Namespace) = NamespaceNotFound, "Source collection {ns} does not exist";
    target_exists() = NamespaceExists, "target namespace exists";
    rename_to_itself() = IllegalOperation, "Can't rename a collection to itself";
    same_name(requested: &str, existing: &str) = IndexKeySpecsConflict, "An existing index has the same name as the requested index. When index names are not specified, they are auto generated and can cause conflicts. Please refer to our documentation. Requested index: {requested}, existing index: {existing}";
    other_name(name: &str) = IndexOptionsConflict, "Index already exists with a different name: {name}";
    other_options(requested: &str, existing: &str) = IndexOptionsConflict, "An equivalent index already exists with the same name but different options. Requested index: {requested}, existing index: {existing}";
    other_name_and_options(requested: &str, existing: &str) = IndexOptionsConflict, "An equivalent index already exists with a different name and options. Requested index: {requested}, existing index: {existing}";
    identical(name: &str) = IndexAlreadyExists, "Identical index already exists: {name}";
    too_many_indexes(ns: &Namespace) = CannotCreateIndex, "add index fails, too many indexes for {ns} key";
    drop_clustered() = 5_979_800, "It is illegal to drop the clusteredIndex";
    drop_id_index() = InvalidOptions, "cannot drop _id index";
    index_name_not_found(name: &str) = IndexNotFound, "index not found with name [{name}]";
    index_key_not_found(key: &str) = IndexNotFound, "can't find index with key: {key}";
}

/// Which indexes `dropIndexes` means.
pub enum DropSelector<'a> {
    /// All but the one on `_id`.
    All,
    /// Those of these names.
    Names(Vec<String>),
    /// The one with this key pattern.
    Key(Doc<'a>),
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
        let mut next_ident = self.ddl.lock();
        let is_view = options.view.is_some();
        if let Some(known) = self.collection(ns) {
            let is_shown_already = is_view && known.state().options.view.is_some();
            return Err(if is_shown_already { view_exists() } else { exists(&known) });
        }
        let collection = self.create_locked(&mut next_ident, ns, options)?;
        if is_view {
            self.show_view(&mut next_ident, ns)?;
        }
        Ok(collection)
    }

    /// The collection of this name, created with no options where there is none.
    pub fn collection_or_create(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        if let Some(collection) = self.collection(ns) {
            return Ok(collection);
        }
        let mut next_ident = self.ddl.lock();
        match self.collection(ns) {
            Some(collection) => Ok(collection),
            None => self.create_locked(&mut next_ident, ns, CollectionOptions::default()),
        }
    }

    pub(super) fn create_locked(
        &self,
        next_ident: &mut u32,
        ns: &Namespace,
        options: CollectionOptions,
    ) -> Result<Arc<Collection>> {
        ns.check_creatable()?;
        let uuid = new_uuid();
        check_place(ns, &uuid, &options)?;
        if let Some(known) = self.catalog().differing_in_case(ns.db()) {
            return Err(differs_in_case(&known, ns.db()));
        }
        let mut txn = self.store().begin();
        let ident = allocate(next_ident, &mut *txn);
        let mut indexes = Vec::new();
        if options.clustered.is_none() && options.view.is_none() {
            let spec = IndexSpec::id_index(options.collation.as_ref())?;
            indexes.push(Arc::new(Index::new(allocate(next_ident, &mut *txn), spec)));
        }
        let state = State { options, indexes };
        put_entry(&mut *txn, ident, ns, &uuid, &state);
        txn.commit().for_client()?;
        let collection = Arc::new(Collection::new(ident, uuid, ns.clone(), state));
        self.catalog().insert(collection.clone());
        Ok(collection)
    }

    /// Drops a collection; answers what it was. Its data is cleared in the background. With `system.views` go the
    /// views that it shows.
    ///
    /// Errors: `ns_not_found`.
    pub fn drop_collection(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        let mut next_ident = self.ddl.lock();
        let collection = self.collection(ns).ok_or_else(ns_not_found)?;
        let mut doomed = vec![collection.clone()];
        if ns.collection() == SYSTEM_VIEWS {
            let mut all = self.catalog().collections(ns.db());
            all.retain(|other| other.state().options.view.is_some());
            if all.iter().any(|other| other.state().options.time_series.is_some()) {
                return Err(views_needed(ns));
            }
            doomed.append(&mut all);
        }
        doomed.extend(self.other_half(&collection));
        self.drop_locked(&doomed)?;
        for view in doomed.iter().filter(|doomed| doomed.state().options.view.is_some()) {
            if ns.collection() != SYSTEM_VIEWS {
                self.show_view(&mut next_ident, &view.namespace())?;
            }
        }
        Ok(collection)
    }

    /// Drops every collection of a database; answers how many there were.
    pub fn drop_database(&self, db: &str) -> Result<usize> {
        let _ddl = self.ddl.lock();
        let collections = self.catalog().collections(db);
        self.drop_locked(&collections)?;
        Ok(collections.len())
    }

    fn drop_locked(&self, collections: &[Arc<Collection>]) -> Result<()> {
        let _changes: Vec<_> = collections.iter().map(|collection| collection.change()).collect();
        let mut txn = self.store().begin();
        let mut dropped = Vec::new();
        for collection in collections {
            remove_entry(&mut *txn, collection, &mut dropped);
        }
        txn.commit().for_client()?;
        for collection in collections {
            self.catalog().remove(&collection.namespace());
            collection.mark_dropped();
        }
        dropped.into_iter().for_each(|(space, ident)| self.sweep(space, ident));
        Ok(())
    }

    /// Gives a collection another name, also in another database; `drop_target` drops what has that name.
    ///
    /// Errors: `source_not_found`, `target_exists`, `rename_to_itself`, the naming rules.
    pub fn rename_collection(
        &self,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        to.check_creatable()?;
        let _ddl = self.ddl.lock();
        if from == to {
            return Err(rename_to_itself());
        }
        let collection = self.collection(from).ok_or_else(|| source_not_found(from))?;
        let target = self.collection(to);
        if target.is_some() && !drop_target {
            return Err(target_exists());
        }
        if let Some(known) = self.catalog().differing_in_case(to.db()) {
            return Err(differs_in_case(&known, to.db()));
        }
        let _change = collection.change();
        let _target_change = target.as_ref().map(|target| target.change());
        let mut txn = self.store().begin();
        let mut dropped = Vec::new();
        if let Some(target) = &target {
            remove_entry(&mut *txn, target, &mut dropped);
        }
        put_entry(&mut *txn, collection.ident(), to, collection.uuid(), &collection.state());
        txn.commit().for_client()?;
        if let Some(target) = &target {
            self.catalog().remove(to);
            target.mark_dropped();
        }
        self.catalog().remove(from);
        collection.set_namespace(to.clone());
        self.catalog().insert(collection.clone());
        dropped.into_iter().for_each(|(space, ident)| self.sweep(space, ident));
        Ok(())
    }

    /// Replaces a collection's options, and the specifications of its indexes where `change_index` gives another.
    pub fn change_collection(
        &self,
        collection: &Collection,
        options: CollectionOptions,
        change_index: &dyn Fn(&IndexSpec) -> Option<IndexSpec>,
    ) -> Result<()> {
        check_place(&collection.namespace(), collection.uuid(), &options)?;
        let mut next_ident = self.ddl.lock();
        let change = collection.change();
        let old = collection.state();
        let mut indexes = Vec::with_capacity(old.indexes.len());
        for index in &old.indexes {
            indexes.push(match change_index(&index.spec) {
                Some(spec) => Arc::new(Index::load(index.ident, spec, self.store())?),
                None => index.clone(),
            });
        }
        let is_view = options.view.is_some();
        self.put_state(collection, State { options, indexes }, |_| ())?;
        drop(change);
        if is_view {
            self.show_view(&mut next_ident, &collection.namespace())?;
        }
        Ok(())
    }

    /// Builds the indexes that do not exist yet; answers how many indexes there were and are.
    ///
    /// Errors: conflicts with existing indexes (`same_name`, `other_name`, `other_options`), `too_many_indexes`,
    /// and what the documents raise: duplicate keys, parallel arrays.
    pub fn create_indexes(
        &self,
        collection: &Collection,
        specs: Vec<IndexSpec>,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(usize, usize)> {
        let mut next_ident = self.ddl.lock();
        let state = collection.state();
        let before = state.indexes.len();
        let mut wanted: Vec<IndexSpec> = Vec::new();
        for spec in specs {
            // A clustered collection is its own index on `_id`.
            if spec.is_id() && state.options.clustered.is_some() {
                continue;
            }
            if exists_already(&spec, state.indexes.iter().map(|index| &index.spec))? {
                continue;
            }
            if exists_already(&spec, wanted.iter())? {
                return Err(identical(&spec.name));
            }
            wanted.push(spec);
        }
        if wanted.is_empty() {
            return Ok((before, before));
        }
        if before + wanted.len() > INDEXES_MAX {
            return Err(too_many_indexes(&collection.namespace()));
        }
        let mut txn = self.store().begin();
        let indexes: Vec<Arc<Index>> = wanted
            .into_iter()
            .map(|spec| Arc::new(Index::new(allocate(&mut next_ident, &mut *txn), spec)))
            .collect();
        for index in &indexes {
            txn.put(Space::Catalog, &keys::dropped(Space::Indexes, index.ident), &[]);
        }
        txn.commit().for_client()?;

        let _change = collection.change();
        let built = self.build(collection, &indexes, go_on).and_then(|marks| {
            let mut new_state = State::clone(&state);
            new_state.indexes.extend(indexes.iter().cloned());
            let after = new_state.indexes.len();
            self.put_state(collection, new_state, |txn| {
                for (index, paths) in indexes.iter().zip(&marks) {
                    index.mark_multikey(paths, txn);
                    txn.delete(Space::Catalog, &keys::dropped(Space::Indexes, index.ident));
                }
            })?;
            Ok((before, after))
        });
        if built.is_err() {
            indexes.iter().for_each(|index| self.sweep(Space::Indexes, index.ident));
        }
        built
    }

    /// Writes the entries of `indexes` for every document; answers the multikey paths of each.
    fn build(
        &self,
        collection: &Collection,
        indexes: &[Arc<Index>],
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Multikey>> {
        indexes.iter().map(|index| self.build_one(collection, index, go_on)).collect()
    }

    fn build_one(
        &self,
        collection: &Collection,
        index: &Index,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Multikey> {
        let mut marks = Multikey::default();
        let mut key_maker = KeyMaker::default();
        let mut document_keys = KeySet::default();
        let mut run = Run::default();
        let mut is_first_run = true;
        let mut cursor = collection.scan(self.store(), Direction::Forward)?;
        let mut seen = 0u64;
        while cursor.advance()? {
            seen += 1;
            if seen.is_multiple_of(256) {
                go_on()?;
            }
            key_maker.make(index, cursor.doc(), &mut document_keys)?;
            marks.merge(&document_keys.multikey);
            for entry in document_keys.iter() {
                run.push(index, collection.shape(), entry, cursor.record());
            }
            if run.bytes.len() >= BUILD_BYTES_MAX {
                self.write_run(collection, index, &mut run, is_first_run)?;
                is_first_run = false;
            }
        }
        self.write_run(collection, index, &mut run, is_first_run)?;
        Ok(marks)
    }

    /// Sorts a run of entries and adds it to the store at once.
    fn write_run(
        &self,
        collection: &Collection,
        index: &Index,
        run: &mut Run,
        is_first_run: bool,
    ) -> Result<()> {
        run.sort();
        if index.spec.unique
            && let Some(position) = run.find_duplicate(|key| {
                !is_first_run && self.store().get(Space::Indexes, key, &mut |_| ()).unwrap_or(false)
            })
        {
            let (key, value) = run.get(position);
            let entry = index_entry::decode(index, collection.shape(), key, value);
            let entry = entry.expect("an entry that was just encoded decodes");
            return Err(duplicate_key(&collection.namespace(), index, &entry));
        }
        let mut next = 0;
        self.store()
            .ingest(Space::Indexes, &mut |key, value| {
                if next == run.entries.len() {
                    return Ok(false);
                }
                let (entry_key, entry_value) = run.get(next);
                key.clear();
                key.extend_from_slice(entry_key);
                value.clear();
                value.extend_from_slice(entry_value);
                next += 1;
                Ok(true)
            })
            .for_client()?;
        run.clear();
        Ok(())
    }

    /// Drops indexes; answers how many there were before.
    ///
    /// Errors: `drop_id_index`, `index_name_not_found`, `index_key_not_found`.
    pub fn drop_indexes(
        &self,
        collection: &Collection,
        selector: &DropSelector<'_>,
    ) -> Result<usize> {
        let _ddl = self.ddl.lock();
        let _change = collection.change();
        let state = collection.state();
        let doomed = select(&state, selector)?;
        let mut new_state = State::clone(&state);
        new_state.indexes.retain(|index| !doomed.iter().any(|other| Arc::ptr_eq(index, other)));
        self.put_state(collection, new_state, |txn| {
            for index in &doomed {
                drop_index(txn, index);
            }
        })?;
        doomed.iter().for_each(|index| self.sweep(Space::Indexes, index.ident));
        Ok(state.indexes.len())
    }

    fn put_state(
        &self,
        collection: &Collection,
        state: State,
        and: impl FnOnce(&mut dyn Txn),
    ) -> Result<()> {
        let mut txn = self.store().begin();
        and(&mut *txn);
        put_entry(
            &mut *txn,
            collection.ident(),
            &collection.namespace(),
            collection.uuid(),
            &state,
        );
        txn.commit().for_client()?;
        collection.set_state(state);
        Ok(())
    }
}

/// The error for a name that is taken.
pub(super) fn exists(known: &Collection) -> Error {
    let (ns, state) = (known.namespace(), known.state());
    match (&state.options.view, &state.options.time_series) {
        (Some(_), Some(_)) => time_series_there(&ns),
        (Some(_), None) => view_there(&ns),
        (None, _) => namespace_exists(&ns),
    }
}

/// Whether `spec` is there already.
fn exists_already<'s>(
    spec: &IndexSpec,
    existing: impl Iterator<Item = &'s IndexSpec>,
) -> Result<bool> {
    for other in existing {
        let texts = || (spec.document.as_doc().to_string(), other.document.as_doc().to_string());
        if spec.same_signature(other) {
            // Asking for the `_id` index again is never an error.
            let is_same = spec.same_options(other);
            if spec.is_id() || (is_same && spec.name == other.name) {
                return Ok(true);
            }
            let (requested, existing) = texts();
            return Err(match (is_same, spec.name == other.name) {
                (true, _) => other_name(&other.name),
                (false, true) => other_options(&requested, &existing),
                (false, false) => other_name_and_options(&requested, &existing),
            });
        }
        if spec.name == other.name {
            let (requested, existing) = texts();
            return Err(same_name(&requested, &existing));
        }
    }
    Ok(false)
}

fn select(state: &State, selector: &DropSelector<'_>) -> Result<Vec<Arc<Index>>> {
    let means_clustered = match selector {
        DropSelector::All => false,
        DropSelector::Names(names) => names.iter().any(|name| state.is_clustered_as(name)),
        DropSelector::Key(key) => {
            let id = marula_bson::doc! { "_id": 1 };
            state.options.clustered.is_some() && crate::index::spec::same_pattern(id.as_doc(), *key)
        }
    };
    if means_clustered {
        return Err(drop_clustered());
    }
    let by_name = |name: &String| -> Result<Arc<Index>> {
        let index = state.index(name).ok_or_else(|| index_name_not_found(name))?;
        if index.is_id() { Err(drop_id_index()) } else { Ok(index.clone()) }
    };
    match selector {
        DropSelector::All => {
            Ok(state.indexes.iter().filter(|index| !index.is_id()).cloned().collect())
        }
        DropSelector::Names(names) => names.iter().map(by_name).collect(),
        DropSelector::Key(key) => {
            let same = |index: &&Arc<Index>| {
                crate::index::spec::same_pattern(index.spec.key.as_doc(), *key)
            };
            let index = state.indexes.iter().find(same);
            let index = index.ok_or_else(|| index_key_not_found(&key.to_string()))?;
            if index.is_id() { Err(drop_id_index()) } else { Ok(vec![index.clone()]) }
        }
    }
}

/// Entries of an index build, sorted before they are written.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    /// For each entry, where its key starts, where its value starts, where it ends.
    entries: Vec<(usize, usize, usize)>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Run {
    fn push(
        &mut self,
        index: &Index,
        shape: Shape,
        (key, type_bits): (&[u8], &[u8]),
        record: &[u8],
    ) {
        index_entry::encode_key(index, key, record, &mut self.key);
        index_entry::encode_value(index, shape, record, type_bits, &mut self.value);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&self.key);
        let split = self.bytes.len();
        self.bytes.extend_from_slice(&self.value);
        self.entries.push((start, split, self.bytes.len()));
    }

    fn get(&self, position: usize) -> (&[u8], &[u8]) {
        let (start, split, end) = self.entries[position];
        (&self.bytes[start..split], &self.bytes[split..end])
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|a, b| bytes[a.0..a.1].cmp(&bytes[b.0..b.1]));
    }

    /// The position of the first entry whose key another entry has, or that `is_stored`.
    fn find_duplicate(&self, is_stored: impl Fn(&[u8]) -> bool) -> Option<usize> {
        (0..self.entries.len()).find(|&position| {
            let (key, _) = self.get(position);
            (position > 0 && self.get(position - 1).0 == key) || is_stored(key)
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}

fn allocate(next_ident: &mut u32, txn: &mut dyn Txn) -> Ident {
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
) {
    txn.put(Space::Catalog, &keys::entry(ident), &entry::encode(ns, uuid, state));
}

pub(super) fn remove_entry(
    txn: &mut dyn Txn,
    collection: &Collection,
    dropped: &mut Vec<(Space, Ident)>,
) {
    let ident = collection.ident();
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

fn drop_index(txn: &mut dyn Txn, index: &Index) {
    txn.clear_range(
        Space::Catalog,
        &marula_storage::KeyRange::prefix(&multikey_prefix(index.ident)),
    );
    txn.put(Space::Catalog, &keys::dropped(Space::Indexes, index.ident), &[]);
}

/// A random UUID, version 4.
fn new_uuid() -> entry::Uuid {
    let mut uuid: entry::Uuid = rand::random();
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}
