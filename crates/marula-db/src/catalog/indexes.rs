//! Changes of a collection's indexes: builds and drops them.
//!
//! The catalogue is locked when a build starts and when it is completed. In between, which may take
//! long, other changes are possible, also in the same collection. Everything a build writes lies
//! under idents that the store lists as garbage; only the commit that adds the finished indexes to
//! their collection removes them from that list, so that a crash in between leaves nothing.
//! [`build`] describes how entries are made while others write.

use std::sync::Arc;
use std::time::Duration;

use marula_bson::{Doc, uuid};
use marula_error::{Error, Result, errors};
use marula_storage::{Space, Txn};

use super::ddl::{allocate, drop_index, put_entry};
use super::ddl_log;
use super::entry;
use crate::build::{self, Build, BuildOptions, Builder, Phase, Progress};
use crate::catalog::event::CatalogEvent;
use crate::collection::{Collection, State};
use crate::db::Db;
use crate::index::{INDEXES_MAX, Index, IndexKind, IndexSpec};
use crate::keys;
use crate::namespace::Namespace;
use crate::oplog::Entries;
use crate::storage_error::ForClient;

/// The default memory for sorting the entries of a build, in bytes.
const BUILD_BYTES_MAX: usize = 200 * 1024 * 1024;

/// The interval at which a wait for another build checks whether to continue.
const WAIT_STEP: Duration = Duration::from_millis(50);

errors! {
    same_name(requested: &str, existing: &str) = IndexKeySpecsConflict, "An existing index has the same name as the requested index. When index names are not specified, they are auto generated and can cause conflicts. Please refer to our documentation. Requested index: {requested}, existing index: {existing}";
    second_text(name: &str) = CannotCreateIndex, "only one text index per collection allowed, found existing text index \"{name}\"";
    other_name(name: &str) = IndexOptionsConflict, "Index already exists with a different name: {name}";
    other_options(requested: &str, existing: &str) = IndexOptionsConflict, "An equivalent index already exists with the same name but different options. Requested index: {requested}, existing index: {existing}";
    other_name_and_options(requested: &str, existing: &str) = IndexOptionsConflict, "An equivalent index already exists with a different name and options. Requested index: {requested}, existing index: {existing}";
    identical(name: &str) = IndexAlreadyExists, "Identical index already exists: {name}";
    two_identical() = OperationFailed, "Cannot build two identical indexes. Try again without duplicate indexes.";
    too_many_indexes(ns: &Namespace, key: Doc<'_>) = CannotCreateIndex, "add index fails, too many indexes for {ns} key:{key}";
    drop_id_index() = InvalidOptions, "cannot drop _id index";
    drop_clustered() = 5_979_800, "It is illegal to drop the clusteredIndex";
    drop_unfinished(name: &str) = IndexNotFound, "can't drop unfinished index with name: {name}";
    index_name_not_found(name: &str) = IndexNotFound, "index not found with name [{name}]";
    ambiguous_key(count: usize, key: &str, found: &str) = AmbiguousIndexKeyPattern, "{count} indexes found for key: {key}, identify by name instead. Conflicting indexes: {found}";
    index_key_not_found(key: &str) = IndexNotFound, "can't find index with key: {key}";
    build_running(collection: &str, build: &str) = BackgroundOperationInProgressForNamespace, "cannot perform operation: an index build is currently running for collection with UUID: {collection}. Found index build: {build}";
}

/// The indexes that `dropIndexes` selects.
pub enum DropSelector<'a> {
    /// All except the `_id` index.
    All,
    /// Those with these names.
    Names(Vec<String>),
    /// The one with this key pattern.
    Key(Doc<'a>),
}

/// The action for the indexes that a command requests.
enum Wanted {
    /// They exist.
    Nothing,
    /// They are being built: wait, then check again.
    Wait(Arc<Build>),
    /// Build these.
    Specs(Vec<IndexSpec>),
}

/// Checks indexes of a collection that will be created for them.
///
/// Errors: conflicts among them, as [`Db::build_indexes`], and reasons why one cannot be built.
pub fn check_new(ns: &Namespace, specs: &[IndexSpec]) -> Result<()> {
    let mut kept: Vec<&IndexSpec> = Vec::new();
    for spec in specs.iter().filter(|spec| !spec.is_id()) {
        if exists_already(spec, kept.iter().copied())? {
            return Err(identical(&spec.name));
        }
        // Counting the `_id` index.
        if kept.len() + 1 >= INDEXES_MAX {
            return Err(too_many_indexes(ns, spec.key.as_doc()));
        }
        spec.check_build()?;
        kept.push(spec);
    }
    Ok(())
}

impl Db {
    /// Builds the indexes that do not exist yet; returns the numbers of indexes before and after.
    ///
    /// Errors: as [`Db::build_indexes`].
    pub fn create_indexes(
        &self,
        collection: &Collection,
        specs: Vec<IndexSpec>,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(usize, usize)> {
        let mut watch = |_: Progress| go_on();
        let options = BuildOptions {
            memory_bytes_max: BUILD_BYTES_MAX,
            is_collection_new: false,
            watch: &mut watch,
        };
        self.build_indexes(collection, &specs, options)
    }

    /// Builds the indexes that do not exist yet, while the collection is read and written; returns
    /// the numbers of indexes before and after. Waits for indexes that another command is building.
    ///
    /// Errors: conflicts with existing indexes (`same_name`, `other_name`, `other_options`),
    /// `too_many_indexes`, and errors of the documents: duplicate keys, parallel arrays.
    pub fn build_indexes(
        &self,
        collection: &Collection,
        specs: &[IndexSpec],
        options: BuildOptions<'_>,
    ) -> Result<(usize, usize)> {
        collection.check_writable()?;
        let (before, build) = loop {
            let _quiet = collection.quiesce()?;
            let mut next_ident = self.lock_catalog()?;
            collection.check_exists()?;
            let state = collection.state();
            let before = state.indexes.len() + building(&state).count();
            match wanted(collection, &state, specs, options.is_collection_new)? {
                Wanted::Nothing => return Ok((before, before)),
                Wanted::Wait(other) => {
                    drop(next_ident);
                    other.wait(WAIT_STEP);
                    (options.watch)(Progress { phase: Phase::Scan, done: 0, total: 0 })?;
                }
                Wanted::Specs(wanted) => {
                    break (before, self.enter_build(&mut next_ident, collection, wanted)?);
                }
            }
        };
        self.carry_out(collection, &build, None, options)?;
        Ok((before, before + build.indexes.len()))
    }

    /// Runs a build to its end, successful or not. Its index replaces `replaced` if given.
    pub(super) fn carry_out(
        &self,
        collection: &Collection,
        build: &Arc<Build>,
        replaced: Option<&Arc<Index>>,
        options: BuildOptions<'_>,
    ) -> Result<()> {
        self.report_change(&CatalogEvent::BuildBegun(collection, build));
        let outcome = self.run_build(collection, build, replaced, options);
        if outcome.is_err() {
            self.leave_build(collection, build);
        }
        // Idents that did not become part of the collection are garbage, as listed in the store.
        let garbage = build.idents().skip(if outcome.is_ok() { build.indexes.len() } else { 0 });
        garbage.for_each(|ident| self.sweep(Space::Indexes, ident));
        build.end();
        match outcome {
            Ok(()) => {
                self.report_change(&CatalogEvent::BuildDone(collection, build));
                Ok(())
            }
            Err(error) => {
                self.report_change(&CatalogEvent::BuildFailed(collection, build, &error));
                Err(build.failure(collection, &error))
            }
        }
    }

    /// Returns whether a collection has all these indexes.
    ///
    /// Errors: as [`Db::build_indexes`], if an existing index conflicts with them.
    pub fn has_indexes(&self, collection: &Collection, specs: &[IndexSpec]) -> Result<bool> {
        let wanted = wanted(collection, &collection.state(), specs, false)?;
        Ok(matches!(wanted, Wanted::Nothing))
    }

    /// Adds indexes to a prepared collection, which is invisible to others and empty; returns the
    /// numbers of indexes before and after.
    ///
    /// Errors: as [`Db::build_indexes`].
    pub(crate) fn prepare_indexes(
        &self,
        collection: &Collection,
        specs: &[IndexSpec],
    ) -> Result<(usize, usize)> {
        let mut next_ident = self.lock_catalog()?;
        let mut state = State::clone(&collection.state());
        let before = state.indexes.len();
        if let Wanted::Specs(wanted) = wanted(collection, &state, specs, true)? {
            let mut txn = self.store().begin();
            for spec in wanted {
                state
                    .indexes
                    .push(Arc::new(Index::new(allocate(&mut next_ident, &mut *txn), spec)));
            }
            txn.commit().for_client()?;
        }
        let after = state.indexes.len();
        if after > before {
            self.catalog().set_state(collection, state);
        }
        Ok((before, after))
    }

    /// Makes writers note their changes to these indexes from now on.
    pub(super) fn enter_build(
        &self,
        next_ident: &mut u32,
        collection: &Collection,
        wanted: Vec<IndexSpec>,
    ) -> Result<Arc<Build>> {
        let mut txn = self.store().begin();
        let indexes: Vec<Arc<Index>> = wanted
            .into_iter()
            .map(|spec| Arc::new(Index::new(allocate(next_ident, &mut *txn), spec)))
            .collect();
        let scratch = allocate(next_ident, &mut *txn);
        check_size(collection, &indexes)?;
        let build = Build::new(marula_bson::uuid::generate(), indexes, scratch, self.own_node());
        let build = Arc::new(build);
        for ident in build.idents() {
            txn.put(Space::Catalog, &keys::dropped(Space::Indexes, ident), &[]);
        }
        let _alone = collection.change()?;
        let mut state = State::clone(&collection.state());
        state.building.push(build.clone());
        if self.is_shared() {
            let ns = collection.namespace();
            put_entry(&mut *txn, collection.ident(), &ns, collection.uuid(), &state)?;
        }
        txn.commit().for_client()?;
        self.catalog().set_state(collection, state);
        Ok(build)
    }

    /// Fills the indexes and adds them to the collection.
    fn run_build(
        &self,
        collection: &Collection,
        build: &Arc<Build>,
        replaced: Option<&Arc<Index>>,
        options: BuildOptions<'_>,
    ) -> Result<()> {
        let mut builder = Builder::new(self, collection, build, options);
        builder.fill()?;
        let _quiet = collection.quiesce()?;
        let _ddl = self.lock_catalog()?;
        build.check_not_aborted()?;
        let _alone = collection.change()?;
        builder.finish()?;
        let mut state = State::clone(&collection.state());
        state.building.retain(|other| !Arc::ptr_eq(other, build));
        let place = match replaced {
            None => state.indexes.len()..state.indexes.len(),
            Some(old) => {
                let found = state.indexes.iter().position(|index| Arc::ptr_eq(index, old));
                let at = found.ok_or_else(|| index_name_not_found(&old.spec.name))?;
                at..at + 1
            }
        };
        state.indexes.splice(place, build.indexes.iter().cloned());
        let tell = |entries: &mut Entries| {
            if replaced.is_none() {
                ddl_log::indexes_built(collection, build.uuid(), &build.indexes, entries);
            }
        };
        let and = |txn: &mut dyn Txn| {
            for (index, multikey) in build.indexes.iter().zip(&builder.multikey) {
                index.mark_multikey(multikey, txn);
                txn.delete(Space::Catalog, &keys::dropped(Space::Indexes, index.ident));
            }
            if let Some(old) = replaced {
                drop_index(txn, old);
            }
        };
        self.put_state(collection, state, and, tell)?;
        for (index, multikey) in build.indexes.iter().zip(&builder.multikey) {
            index.note_marks_stored(multikey);
        }
        if let Some(old) = replaced {
            old.mark_dropped();
            self.sweep(Space::Indexes, old.ident);
        }
        Ok(())
    }

    /// Removes a build from the collection's state, unless the operation that aborted it has done
    /// so.
    fn leave_build(&self, collection: &Collection, build: &Arc<Build>) {
        // This must run even if the operation was interrupted.
        let lock = self.lock_catalog_anyway();
        let _alone = collection.hold_off_in_any_case();
        self.remove_build(collection, build, lock.as_ref().map(drop).map_err(Clone::clone));
    }

    /// Removes a build from the state of a collection whose writers are held off, also for other
    /// nodes if the catalogue could be `locked`.
    pub(super) fn remove_build(
        &self,
        collection: &Collection,
        build: &Arc<Build>,
        locked: Result<()>,
    ) {
        self.forget_builds(collection, std::slice::from_ref(build));
        if !self.is_shared() || collection.is_dropped() {
            return;
        }
        let published = locked.and_then(|()| self.publish_state(collection, &collection.state()));
        if let Err(error) = published {
            tracing::warn!(%error, "an index build that has failed could not be removed; it ends with this process");
        }
    }

    /// Drops indexes, also those that are being built; returns the number of indexes before.
    ///
    /// Errors: `drop_id_index`, `drop_unfinished`, `index_name_not_found`, `index_key_not_found`.
    pub fn drop_indexes(
        &self,
        collection: &Collection,
        selector: &DropSelector<'_>,
    ) -> Result<usize> {
        let _quiet = collection.quiesce()?;
        let _ddl = self.lock_catalog()?;
        let _change = collection.change()?;
        let state = collection.state();
        let doomed = select(&state, selector)?;
        let is_doomed = |index: &Arc<Index>| doomed.iter().any(|other| Arc::ptr_eq(index, other));
        let mut builds = Vec::new();
        for build in &state.building {
            match build.indexes.iter().filter(|index| is_doomed(index)).count() {
                0 => {}
                count if count == build.indexes.len() => builds.push(build.clone()),
                // One scan fills all indexes of a build, so they can only be aborted together.
                _ => {
                    let name = build.indexes.iter().find(|index| is_doomed(index));
                    return Err(drop_unfinished(name.map_or("", |index| &index.spec.name)));
                }
            }
        }
        let before = state.indexes.len() + building(&state).count();
        let ready: Vec<&Arc<Index>> =
            state.indexes.iter().filter(|index| is_doomed(index)).collect();
        if !ready.is_empty() {
            let mut new_state = State::clone(&state);
            new_state.indexes.retain(|index| !is_doomed(index));
            let and = |txn: &mut dyn Txn| ready.iter().for_each(|index| drop_index(txn, index));
            let tell =
                |entries: &mut Entries| ddl_log::indexes_dropped(collection, &ready, entries);
            self.put_state(collection, new_state, and, tell)?;
            for index in ready {
                index.mark_dropped();
                self.report_change(&CatalogEvent::IndexDropped(collection, index));
                self.sweep(Space::Indexes, index.ident);
            }
        }
        builds.iter().for_each(|build| build.abort());
        self.forget_builds(collection, &builds);
        if self.is_shared() && !builds.is_empty() {
            self.publish_state(collection, &collection.state())?;
        }
        Ok(before)
    }

    /// Removes builds from a collection whose writers are held off.
    fn forget_builds(&self, collection: &Collection, builds: &[Arc<Build>]) {
        let mut state = State::clone(&collection.state());
        state.building.retain(|known| !builds.iter().any(|build| Arc::ptr_eq(known, build)));
        self.catalog().set_state(collection, state);
    }
}

/// Returns an error while an index of `collection` is being built.
///
/// Errors: `build_running`.
pub(super) fn check_no_build(collection: &Collection) -> Result<()> {
    match collection.state().building.first() {
        Some(build) => {
            Err(build_running(&uuid::text(collection.uuid()), &uuid::text(build.uuid())))
        }
        None => Ok(()),
    }
}

/// The indexes being built.
fn building(state: &State) -> impl Iterator<Item = &Arc<Index>> {
    state.building.iter().flat_map(|build| &build.indexes)
}

/// The action for the indexes in `specs`.
///
/// Errors: a conflict with an existing index, or between two specifications. The latter is reported
/// as an error of the build, except in a collection that is created for the indexes. In an empty
/// collection each index is created separately, and the second of two identical ones conflicts with
/// the first.
fn wanted(
    collection: &Collection,
    state: &State,
    specs: &[IndexSpec],
    is_collection_new: bool,
) -> Result<Wanted> {
    let is_empty = collection.count() == 0;
    let within = |error: Error| {
        if is_collection_new {
            return error;
        }
        let uuid = uuid::text(collection.uuid());
        let cause = match is_empty {
            true => error.caused_by(&format!("index build on empty collection failed: {uuid}")),
            false => error,
        };
        build::failure(&marula_bson::uuid::generate(), collection, &cause)
    };
    // When there are documents to scan, an invalid index prevents the start of the build.
    let beginning = |error: Error| match specs.first() {
        Some(first) if !is_empty && !is_collection_new => error.caused_by(&format!(
            "Caught exception during index builder ((None)) initialization on namespace{} \
                 ({}). {} index specs provided. First index spec: {}",
            collection.namespace(),
            uuid::text(collection.uuid()),
            specs.len(),
            first.quoted().as_doc()
        )),
        _ => error,
    };
    let present = state.indexes.len() + building(state).count();
    let mut wanted: Vec<IndexSpec> = Vec::new();
    let mut awaited = None;
    for spec in specs {
        // A clustered collection is its own index on `_id`.
        if spec.is_id() && state.options.clustered.is_some() {
            continue;
        }
        if exists_already(spec, state.indexes.iter().map(|index| &index.spec))? {
            continue;
        }
        for build in &state.building {
            if exists_already(spec, build.indexes.iter().map(|index| &index.spec))? {
                awaited = Some(build.clone());
            }
        }
        if exists_already(spec, wanted.iter()).map_err(within)? {
            return Err(within(if is_empty { identical(&spec.name) } else { two_identical() }));
        }
        // Checked inside the loop, so that only a few specifications are compared with each other,
        // however many are requested.
        if present + wanted.len() >= INDEXES_MAX {
            let error = too_many_indexes(&collection.namespace(), spec.key.as_doc());
            return Err(if wanted.is_empty() { error } else { within(error) });
        }
        spec.check_build().map_err(|error| within(beginning(error)))?;
        wanted.push(spec.clone());
    }
    Ok(match awaited {
        Some(build) => Wanted::Wait(build),
        None if wanted.is_empty() => Wanted::Nothing,
        None => Wanted::Specs(wanted),
    })
}

/// Returns whether `spec` exists already.
fn exists_already<'s>(
    spec: &IndexSpec,
    existing: impl Iterator<Item = &'s IndexSpec>,
) -> Result<bool> {
    let existing: Vec<&IndexSpec> = existing.collect();
    let text_of = |one: &IndexSpec| one.quoted().as_doc().to_string();
    // An index of this name is looked at first.
    let named = existing.iter().find(|other| other.name == spec.name);
    if let Some(other) = named.filter(|other| !spec.is_id() && !spec.same_signature(other)) {
        return Err(same_name(&text_of(spec), &text_of(other)));
    }
    if let Some(other) = existing.iter().find(|other| spec.same_signature(other)) {
        // Creating the `_id` index again is never an error.
        let is_same = spec.same_options(other);
        return match (is_same, spec.name == other.name) {
            _ if spec.is_id() => Ok(true),
            (true, true) => Ok(true),
            (true, false) => Err(other_name(&other.name)),
            (false, true) => Err(other_options(&text_of(spec), &text_of(other))),
            (false, false) => Err(other_name_and_options(&text_of(spec), &text_of(other))),
        };
    }
    let is_text = |one: &IndexSpec| matches!(one.kind, IndexKind::Text(_));
    match existing.iter().find(|other| is_text(spec) && is_text(other)) {
        Some(other) => Err(second_text(&other.name)),
        None => Ok(false),
    }
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
        let mut unfinished = building(state).filter(|index| index.spec.name == *name);
        let index = state.index(name).or_else(|| unfinished.next());
        let index = index.ok_or_else(|| index_name_not_found(name))?;
        if index.is_id() { Err(drop_id_index()) } else { Ok(index.clone()) }
    };
    match selector {
        DropSelector::All => {
            let all = state.indexes.iter().chain(building(state));
            Ok(all.filter(|index| !index.is_id()).cloned().collect())
        }
        DropSelector::Names(names) => {
            // A name listed twice is not found the second time.
            let is_gone = |number: usize| names[..number].contains(&names[number]);
            let names = names.iter().enumerate().map(|(number, name)| match is_gone(number) {
                true => Err(index_name_not_found(name)),
                false => by_name(name),
            });
            names.collect()
        }
        DropSelector::Key(key) => {
            let same = |index: &&Arc<Index>| {
                crate::index::spec::same_pattern(index.spec.key.as_doc(), *key)
            };
            let found: Vec<_> = state.indexes.iter().chain(building(state)).filter(same).collect();
            if found.len() > 1 {
                // mongod lists at most two of them.
                let shown = found.iter().take(2);
                let texts: Vec<String> =
                    shown.map(|index| index.spec.quoted().as_doc().to_string()).collect();
                return Err(ambiguous_key(found.len(), &key.to_string(), &texts.join(", ")));
            }
            let index = found.first().ok_or_else(|| index_key_not_found(&key.to_string()))?;
            if index.is_id() { Err(drop_id_index()) } else { Ok(vec![Arc::clone(index)]) }
        }
    }
}

/// Checks that the collection's entry can hold further indexes, before they are built.
fn check_size(collection: &Collection, indexes: &[Arc<Index>]) -> Result<()> {
    let mut state = State::clone(&collection.state());
    state.indexes.extend_from_slice(indexes);
    let (ns, uuid) = (collection.namespace(), collection.uuid());
    entry::encode(&ns, uuid, &state).map(drop)
}
