//! Converts an existing index to a unique one.
//!
//! It takes several steps. First the index is *prepared* (`prepareUnique`): from then on no write
//! adds a key that another document has, while documents that already share keys stay. Once none is
//! left, the index is built again as a unique one, whose entries have another form, and replaces
//! the old one in one commit.

use std::sync::Arc;

use marula_bson::DocBuf;
use marula_error::{Error, Result, errors};
use marula_storage::{Direction, KeyRange};

use super::ddl::state_changed;
use super::indexes::check_no_build;
use crate::build::BuildOptions;
use crate::collection::Collection;
use crate::db::Db;
use crate::index::{Index, IndexSpec};
use crate::keys::RecordKey;

/// The maximum size of the `_id`s listed in a refusal. Source: mongod 6.0.
const IDS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// No key string starts with this byte.
const AFTER_ALL_KEYS: u8 = 0xFF;

/// Entries between two checks for the end of the operation.
const CHECK_EVERY: u64 = 1_024;

errors! {
    shared_keys() = CannotConvertIndexToUnique, "Cannot convert the index to unique. Please resolve conflicting documents before running collMod again.";
    too_many_shared_keys() = CannotConvertIndexToUnique, "Cannot convert the index to unique. Too many conflicting documents were detected. Please resolve them and rerun collMod.";
}

impl Db {
    /// Returns an error if documents share a key of `index`; the error lists them by key.
    ///
    /// Shape: `violations: [ { ids: [ <_id>, … ] }, … ]`. Errors: `shared_keys`,
    /// `too_many_shared_keys`, that of `go_on`.
    pub fn check_unique(
        &self,
        collection: &Collection,
        index: &Arc<Index>,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut found = Violations::default();
        let mut group: Vec<RecordKey> = Vec::new();
        let mut key = Vec::new();
        let range = KeyRange { start: Vec::new(), end: vec![AFTER_ALL_KEYS] };
        let mut cursor =
            collection.scan_index(self.store(), index.clone(), &range, Direction::Forward)?;
        for number in 1_u64.. {
            if number.is_multiple_of(CHECK_EVERY) {
                go_on()?;
            }
            let is_there = cursor.advance()?;
            if is_there && !group.is_empty() && cursor.entry()?.key_string == key {
                group.push(RecordKey::new(cursor.entry()?.record));
                continue;
            }
            found.add(self, collection, &group)?;
            if !is_there || found.is_full {
                break;
            }
            let entry = cursor.entry()?;
            key.clear();
            key.extend_from_slice(entry.key_string);
            group.clear();
            group.push(RecordKey::new(entry.record));
        }
        found.into_error().map_or(Ok(()), Err)
    }

    /// Builds `spec`, which is unique, in place of the prepared index of the same name.
    ///
    /// Errors: those of a build; another build is running; `state_changed` if the index or the
    /// collection was dropped in the meantime.
    pub fn make_unique(
        &self,
        collection: &Collection,
        index: &Arc<Index>,
        spec: IndexSpec,
        options: BuildOptions<'_>,
    ) -> Result<()> {
        let build = {
            let _quiet = collection.quiesce()?;
            let mut next_ident = self.lock_catalog()?;
            check_there(collection, index)?;
            check_no_build(collection)?;
            self.enter_build(&mut next_ident, collection, vec![spec])?
        };
        let outcome = self.carry_out(collection, &build, Some(index), options);
        outcome.or_else(|error| check_there(collection, index).and(Err(error)))
    }
}

/// Checks that an index exists still.
///
/// Errors: `state_changed`.
fn check_there(collection: &Collection, index: &Arc<Index>) -> Result<()> {
    let is_there = !collection.is_dropped() && collection.state().has_index(index);
    if is_there { Ok(()) } else { Err(state_changed()) }
}

/// The documents that share keys, for the error.
#[derive(Default)]
struct Violations {
    /// `{ ids: […] }`, one per key.
    groups: Vec<DocBuf>,
    ids_bytes: usize,
    /// Whether some violations are not listed.
    is_full: bool,
}

impl Violations {
    /// Adds the documents that share one key.
    fn add(&mut self, db: &Db, collection: &Collection, group: &[RecordKey]) -> Result<()> {
        if group.len() < 2 {
            return Ok(());
        }
        let mut ids = Vec::new();
        let mut scratch = Vec::new();
        for record in group {
            let mut id = None;
            collection.get(db.store(), record.as_bytes(), &mut scratch, &mut |doc| {
                id = doc.get("_id").map(|id| id.to_buf());
            })?;
            let Some(id) = id else { continue };
            self.ids_bytes += id.as_raw().bytes().len();
            if self.ids_bytes > IDS_BYTES_MAX {
                self.is_full = true;
                break;
            }
            ids.push(id);
        }
        if !ids.is_empty() {
            self.groups.push(DocBuf::build(|out| {
                let mut array = out.begin_array("ids");
                ids.iter().for_each(|id| {
                    array.push(id);
                });
            }));
        }
        Ok(())
    }

    fn into_error(self) -> Option<Error> {
        if self.groups.is_empty() {
            return None;
        }
        let fields = DocBuf::build(|out| {
            let mut array = out.begin_array("violations");
            self.groups.iter().for_each(|group| {
                array.push(group);
            });
        });
        let error = if self.is_full { too_many_shared_keys() } else { shared_keys() };
        Some(error.with_fields(fields.as_doc().elements_bytes().to_vec()))
    }
}

#[cfg(test)]
mod tests;
