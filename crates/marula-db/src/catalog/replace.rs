//! Fills a temporary collection that then replaces another, as `$out` does.
//!
//! The temporary collection has the options and indexes of the target, and the option `temp`, by
//! which the next start finds the leftovers of a crash. The replacement is one commit: readers see
//! either the old collection or the new one.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, uuid};
use marula_error::{Result, errors};
use marula_storage::Space;

use super::indexes::check_no_build;
use super::options::CollectionOptions;
use crate::collection::{Collection, State};
use crate::db::Db;
use crate::index::IndexSpec;
use crate::namespace::Namespace;

/// The option of a collection that is dropped at the next start.
const TEMPORARY: &str = "temp";

errors! {
    temporary_gone(ns: &Namespace) = NamespaceNotFound, "Source collection {ns} does not exist";
    source_gone(ns: &Namespace) = NamespaceNotFound, "source collection {ns} does not exist";
    options_changed(ns: &Namespace, before: &str, after: &str) = CommandFailed, "collection options of target collection {ns} changed during processing. Original options: {before}, new options: {after}";
    indexes_changed(ns: &Namespace) = CommandFailed, "indexes of target collection {ns} changed during processing.";
}

impl Db {
    /// Creates the collection that will replace `target`, in the same database, with the options
    /// and indexes of `target` if it exists.
    pub fn create_temporary(&self, target: &Namespace) -> Result<Arc<Collection>> {
        let name = format!("tmp.agg_out.{}", uuid::text(&rand::random()));
        let ns = Namespace::new(target.db(), &name)?;
        let known = self.collection(target).map(|collection| collection.state());
        let options = known.as_ref().map(|state| state.options.clone()).unwrap_or_default();
        let collection = self.create_collection(&ns, options.temporary())?;
        let specs: Vec<IndexSpec> = known
            .iter()
            .flat_map(|state| &state.indexes)
            .filter(|index| !index.is_id())
            .map(|index| index.spec.clone())
            .collect();
        if let Err(error) = self.create_indexes(&collection, specs, &mut || Ok(())) {
            self.drop_collection(&ns)?;
            return Err(error);
        }
        Ok(collection)
    }

    /// Replaces `target`, which is dropped, by a temporary collection.
    ///
    /// Errors: `options_changed` and `indexes_changed` if `target` has changed since the temporary
    /// collection was created.
    pub fn put_in_place(&self, temporary: &Namespace, target: &Namespace) -> Result<()> {
        let known = self.collection(target);
        let _quiet = known.as_ref().map(|known| known.quiesce()).transpose()?;
        let _ddl = self.lock_catalog()?;
        let collection = self.collection(temporary).ok_or_else(|| temporary_gone(temporary))?;
        let old = self.collection(target);
        if let Some(old) = &old {
            self.check_renamable(old)?;
            check_unchanged(target, &collection.state(), &old.state())?;
        }
        let _change = collection.change()?;
        let _old_change = old.as_ref().map(|old| old.change()).transpose()?;
        self.give_name(&collection, target, old.as_ref())
    }

    /// Replaces `source`, which is dropped, by a temporary collection that `fill` fills from it.
    /// Writers and other changes of the catalogue wait until the end, so that nothing is written
    /// that is not in the new collection.
    ///
    /// Errors: those of `fill`; `source_gone` if `source` was dropped before.
    pub fn replace_by_copy(
        &self,
        source: &Arc<Collection>,
        temporary: &Arc<Collection>,
        fill: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let _quiet = source.quiesce()?;
        let mut next_ident = self.lock_catalog()?;
        let ns = source.namespace();
        if source.is_dropped() {
            return Err(source_gone(&ns));
        }
        self.check_renamable(source)?;
        check_no_build(source)?;
        // A build of no index: the end of a build holds off the writers of other nodes, and if this
        // node ends, another one forgets its builds.
        let build = match self.is_shared() {
            true => Some(self.enter_build(&mut next_ident, source, Vec::new())?),
            false => None,
        };
        let _change = source.change()?;
        let filled = build
            .as_ref()
            .map_or(Ok(()), |build| build.close(self, source))
            .and_then(|()| fill())
            .and_then(|()| temporary.change())
            .and_then(|_own_change| self.give_name(temporary, &ns, Some(source)));
        if let Some(build) = build {
            self.remove_build(source, &build, Ok(()));
            build.idents().for_each(|ident| self.sweep(Space::Indexes, ident));
        }
        filled
    }

    /// Drops temporary collections that remained after a crash.
    pub(crate) fn drop_temporaries(&self) -> Result<()> {
        for db in self.catalog().databases() {
            for collection in self.catalog().collections(&db) {
                if is_temporary(&collection.state().options) {
                    self.drop_collection(&collection.namespace())?;
                }
            }
        }
        Ok(())
    }
}

fn is_temporary(options: &CollectionOptions) -> bool {
    options.document.as_doc().get(TEMPORARY).is_some_and(|temporary| temporary.is_truthy())
}

impl CollectionOptions {
    /// Marks a collection that the next start drops, unless it has been renamed by then.
    pub fn temporary(mut self) -> Self {
        // mongod lists it after the bounds of a capped collection.
        let is_bound = |name: &[u8]| matches!(name, b"capped" | b"size" | b"max");
        self.document = DocBuf::build(|out| {
            let options = self.document.as_doc();
            for bound in options.iter().filter(|option| is_bound(option.name)) {
                out.append_raw(bound.name, bound.value);
            }
            out.append(TEMPORARY, true);
            for option in options.iter().filter(|option| !is_bound(option.name)) {
                out.append_raw(option.name, option.value);
            }
        });
        self
    }

    /// The options of a permanent collection.
    pub(super) fn lasting(&self) -> Self {
        CollectionOptions {
            document: without_temporary(self.document.as_doc()),
            ..CollectionOptions::clone(self)
        }
    }
}

fn without_temporary(options: Doc<'_>) -> DocBuf {
    DocBuf::build(|out| {
        for element in options.iter().filter(|element| element.name != TEMPORARY) {
            out.append_raw(element.name, element.value);
        }
    })
}

/// Checks that the target still has the options and indexes that the temporary collection was
/// created with.
fn check_unchanged(target: &Namespace, new: &State, old: &State) -> Result<()> {
    let new_options = new.options.lasting();
    let (before, after) = (new_options.document.as_doc(), old.options.document.as_doc());
    if before != after {
        return Err(options_changed(target, &before.to_string(), &after.to_string()));
    }
    let specs = |state: &State| -> Vec<DocBuf> {
        let mut specs: Vec<_> =
            state.indexes.iter().map(|index| index.spec.document.clone()).collect();
        specs.sort_by(|a, b| a.as_doc().as_bytes().cmp(b.as_doc().as_bytes()));
        specs
    };
    if specs(new) == specs(old) { Ok(()) } else { Err(indexes_changed(target)) }
}

#[cfg(test)]
mod tests;
