//! Checks a collection: every document is well formed and has exactly its keys in every index,
//! every entry leads to a document, and the counters are exact. `validate`, `marula check` and
//! tests call this function.

use marula_bson::directory;
use marula_bson::validate::{Limits, validate as validate_bson};
use marula_error::Result;
use marula_storage::{Direction, KeyRange, Space, View};

use crate::collection::Collection;
use crate::db::Db;
use crate::index::entry::{self, Entry};
use crate::index::{KeyMaker, KeySet};
use crate::keys::{self, Ident};
use crate::storage_error::ForClient;

/// The maximum number of errors listed in a report; others are counted in `errors_omitted`.
const ERRORS_MAX: usize = 100;

/// The number of documents or entries between two checks whether to continue.
pub const CHECK_EVERY: u64 = 256;

/// The result of a check.
#[derive(Default, Debug)]
pub struct Report {
    /// The number of documents.
    pub records: i64,
    /// The number of malformed documents.
    pub invalid_documents: i64,
    /// The name and number of entries of each index.
    pub keys_per_index: Vec<(String, i64)>,
    /// The errors, one line each.
    pub errors: Vec<String>,
    /// The number of errors not listed.
    pub errors_omitted: usize,
}

impl Report {
    /// Returns whether no error was found.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    fn error(&mut self, text: String) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(text);
        } else {
            self.errors_omitted += 1;
        }
    }
}

/// Checks `collection` at one moment. `go_on` is called every few hundred documents; its error ends
/// the check.
pub fn check(
    db: &Db,
    collection: &Collection,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<Report> {
    // Held only until the snapshot exists: state and data are then of one moment, and writers
    // continue.
    let shared = collection.hold_off()?;
    let state = collection.state();
    let snapshot = db.view_now()?;
    drop(shared);
    let snapshot = &*snapshot;

    let mut report = Report::default();
    let mut key_maker = KeyMaker::default();
    let mut keys = KeySet::default();
    let mut store_key = Vec::new();
    let mut expected_entries = vec![0i64; state.indexes.len()];
    let mut bytes = 0i64;
    let mut cursor = collection.scan(snapshot, Direction::Forward)?;
    while cursor.advance()? {
        report.records += 1;
        if report.records.unsigned_abs().is_multiple_of(CHECK_EVERY) {
            go_on()?;
        }
        let doc = cursor.doc();
        bytes += i64::try_from(doc.as_bytes().len()).expect("a document is at most 16 MB");
        if let Err(malformed) = validate_bson(doc.as_bytes(), Limits::MESSAGE) {
            report.invalid_documents += 1;
            report.error(format!("record {:?} is malformed: {malformed}", cursor.record()));
            continue;
        }
        if !directory::is_sound(doc) {
            report.error(format!("the directory of record {:?} is wrong", cursor.record()));
        }
        for (position, index) in state.indexes.iter().enumerate() {
            if let Err(error) = key_maker.make(index, doc, &mut keys) {
                report.error(format!("index '{}': {error}", index.spec.name));
                continue;
            }
            if index.needs_mark(&keys.multikey) {
                report.error(format!("index '{}' is not marked multikey", index.spec.name));
            }
            for (key, type_bits) in keys.iter() {
                expected_entries[position] += 1;
                entry::encode_key(index, key, cursor.record(), &mut store_key);
                let mut is_same = false;
                let mut compare = |value: &[u8]| {
                    is_same = entry::decode(index, collection.shape(), &store_key, value)
                        .is_some_and(|found: Entry<'_>| {
                            found.record == cursor.record() && found.type_bits == type_bits
                        });
                };
                let exists = snapshot.get(Space::Indexes, &store_key, &mut compare).for_client()?;
                if !exists || !is_same {
                    let fault = if exists { "leads elsewhere" } else { "is missing" };
                    let id = doc.get("_id").map(|id| id.to_string()).unwrap_or_default();
                    report.error(format!(
                        "index '{}': an entry of document {id} {fault}",
                        index.spec.name
                    ));
                }
            }
        }
    }
    drop(cursor);
    for (position, index) in state.indexes.iter().enumerate() {
        let found = count_keys(snapshot, Space::Indexes, index.ident, go_on)?;
        if found != expected_entries[position] {
            report.error(format!(
                "index '{}' has {found} entries, its documents have {} keys",
                index.spec.name, expected_entries[position]
            ));
        }
        // As in mongod, whose wildcard indexes have an additional entry per array path.
        let paths = i64::try_from(index.array_path_count()).unwrap_or(i64::MAX);
        report.keys_per_index.push((index.spec.name.clone(), found.saturating_add(paths)));
    }
    let counted = counter(snapshot, &keys::count(collection.ident()))?;
    if counted != report.records {
        report.error(format!("the counter says {counted} documents, there are {}", report.records));
    }
    let sized = counter(snapshot, &keys::size(collection.ident()))?;
    if sized != bytes {
        report.error(format!("the counter says {sized} bytes of documents, there are {bytes}"));
    }
    Ok(report)
}

fn count_keys(
    store: &dyn View,
    space: Space,
    ident: Ident,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<i64> {
    let range: KeyRange = ident.range();
    let mut cursor = store.cursor(space, &range, Direction::Forward).for_client()?;
    let mut count = 0;
    while cursor.advance().for_client()? {
        count += 1;
        if count % CHECK_EVERY as i64 == 0 {
            go_on()?;
        }
    }
    Ok(count)
}

/// The value of a counter in the store.
pub(crate) fn counter(store: &dyn View, key: &[u8]) -> Result<i64> {
    let mut value = 0;
    let mut read = |bytes: &[u8]| value = bytes.try_into().map_or(0, i64::from_le_bytes);
    store.get(Space::Catalog, key, &mut read).for_client()?;
    Ok(value)
}
