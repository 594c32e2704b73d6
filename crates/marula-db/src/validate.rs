//! Checks a collection: every document is well formed and has exactly its keys in every index,
//! every entry leads to a document, and the counters are exact. `validate`, `marula check` and
//! tests call this function.

use marula_bson::validate::{Limits, validate as validate_bson};
use marula_bson::{Doc, directory, long};
use marula_error::Result;
use marula_storage::{Direction, KeyRange, Space, View};

use crate::catalog::options::CollectionOptions;
use crate::collection::{Collection, Shape};
use crate::db::Db;
use crate::index::entry::{self, Entry};
use crate::index::{Index, KeyMaker, KeySet};
use crate::keys::{self, Ident, RecordKey};
use crate::storage_error::{ForClient, is_damage};
use crate::validator;

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
    /// The number of documents that do not satisfy the collection's validator. They may be older
    /// than it, so they are not errors.
    pub non_compliant_documents: i64,
    /// The numbers of the malformed documents' records, if records have numbers.
    pub corrupt_records: Vec<i64>,
    /// The name and number of entries of each index, in the order of the names.
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
/// the check. Data that cannot be read is an error of the report.
///
/// Errors: the collection was dropped since it was looked up; that of `go_on`.
pub fn check(
    db: &Db,
    collection: &Collection,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<Report> {
    // Held only until the snapshot exists: state and data are then of one moment, and writers
    // continue.
    let shared = collection.hold_off()?;
    collection.check_exists()?;
    let state = collection.state();
    let snapshot = db.view_now()?;
    drop(shared);
    let mut check = Check {
        collection,
        options: &state.options,
        snapshot: &*snapshot,
        report: Report::default(),
        indexes: state.indexes.iter().map(|index| CheckedIndex::new(index)).collect(),
        key_maker: KeyMaker::default(),
        keys: KeySet::default(),
        store_key: Vec::new(),
        bytes: 0,
    };
    let documents = check.documents(go_on);
    let have_all = check.note_damage(documents, "the documents")?.is_some();
    check.count_entries(have_all, go_on)?;
    if have_all {
        check.counters()?;
    }
    let mut report = check.report;
    report.keys_per_index.sort();
    Ok(report)
}

/// A check in progress.
struct Check<'c> {
    collection: &'c Collection,
    options: &'c CollectionOptions,
    snapshot: &'c dyn View,
    report: Report,
    indexes: Vec<CheckedIndex<'c>>,
    key_maker: KeyMaker,
    keys: KeySet,
    store_key: Vec<u8>,
    /// The sum of the documents' sizes.
    bytes: i64,
}

/// An index, and what the documents say about it.
struct CheckedIndex<'c> {
    index: &'c Index,
    /// The number of entries that the documents read so far have.
    expected: i64,
    /// Whether a part of the index cannot be read: then its entries are looked up no more.
    is_damaged: bool,
}

impl<'c> CheckedIndex<'c> {
    fn new(index: &'c Index) -> Self {
        CheckedIndex { index, expected: 0, is_damaged: false }
    }
}

impl Check<'_> {
    /// Checks every document, and that each has its entries in every index.
    fn documents(&mut self, go_on: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let mut cursor = self.collection.scan(self.snapshot, Direction::Forward)?;
        while cursor.advance()? {
            self.report.records += 1;
            if self.report.records.unsigned_abs().is_multiple_of(CHECK_EVERY) {
                go_on()?;
            }
            self.document(cursor.doc(), cursor.record())?;
        }
        Ok(())
    }

    fn document(&mut self, doc: Doc<'_>, record: &[u8]) -> Result<()> {
        self.bytes += i64::try_from(doc.as_bytes().len()).expect("a document is at most 16 MB");
        if let Err(malformed) = validate_bson(doc.as_bytes(), Limits::MESSAGE) {
            self.report.invalid_documents += 1;
            if self.collection.shape() != Shape::Clustered {
                self.report.corrupt_records.extend(RecordKey::new(record).record_id());
            }
            self.report.error(format!("record {record:?} is malformed: {malformed}"));
            return Ok(());
        }
        if !validator::is_compliant(self.options, doc) {
            self.report.non_compliant_documents += 1;
        }
        if !directory::is_sound(doc) {
            self.report.error(format!("the directory of record {record:?} is wrong"));
        }
        for position in 0..self.indexes.len() {
            let index = self.indexes[position].index;
            if let Err(error) = self.key_maker.make_stored(index, doc, &mut self.keys) {
                self.report.error(format!("index '{}': {error}", index.spec.name));
                continue;
            }
            if index.needs_mark(&self.keys.multikey) {
                self.report.error(format!("index '{}' is not marked multikey", index.spec.name));
            }
            self.indexes[position].expected += self.keys.len() as i64;
            if !self.indexes[position].is_damaged {
                let found = self.entries(index, doc, record);
                let what = format!("index '{}'", index.spec.name);
                self.indexes[position].is_damaged = self.note_damage(found, &what)?.is_none();
            }
        }
        Ok(())
    }

    /// Checks that the index has the keys that were made of the document.
    fn entries(&mut self, index: &Index, doc: Doc<'_>, record: &[u8]) -> Result<()> {
        for (key, type_bits) in self.keys.iter() {
            entry::encode_key(index, key, record, &mut self.store_key);
            let mut is_same = false;
            let mut compare = |value: &[u8]| {
                is_same = entry::decode(index, self.collection.shape(), &self.store_key, value)
                    .is_some_and(|found: Entry<'_>| {
                        found.record == record && found.type_bits == type_bits
                    });
            };
            let place = &self.store_key;
            let exists = self.snapshot.get(Space::Indexes, place, &mut compare).for_client()?;
            if !exists || !is_same {
                let fault = if exists { "leads elsewhere" } else { "is missing" };
                let id = doc.get("_id").map(|id| id.to_string()).unwrap_or_default();
                self.report.error(format!(
                    "index '{}': an entry of document {id} {fault}",
                    index.spec.name
                ));
            }
        }
        Ok(())
    }

    /// Counts the entries of each index. Where all documents were read, their keys must be as many.
    fn count_entries(
        &mut self,
        have_all: bool,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        for position in 0..self.indexes.len() {
            let CheckedIndex { index, expected, .. } = self.indexes[position];
            let counted = count_keys(self.snapshot, Space::Indexes, index.ident, go_on);
            let what = format!("index '{}'", index.spec.name);
            let found = self.note_damage(counted, &what)?;
            if let Some(found) = found.filter(|found| have_all && *found != expected) {
                self.report.error(format!(
                    "index '{}' has {found} entries, its documents have {expected} keys",
                    index.spec.name
                ));
            }
            // As in mongod, whose wildcard indexes have an entry for each such path.
            let paths = long(index.array_path_count());
            let keys = found.unwrap_or(0).saturating_add(paths);
            self.report.keys_per_index.push((index.spec.name.clone(), keys));
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<()> {
        let (records, bytes) = (self.report.records, self.bytes);
        let counted = counter(self.snapshot, &keys::count(self.collection.ident()))?;
        if counted != records {
            self.report.error(format!("the counter says {counted} documents, there are {records}"));
        }
        let sized = counter(self.snapshot, &keys::size(self.collection.ident()))?;
        if sized != bytes {
            self.report
                .error(format!("the counter says {sized} bytes of documents, there are {bytes}"));
        }
        Ok(())
    }

    /// The result, or `None` and an error of the report where `what` is damaged.
    fn note_damage<T>(&mut self, result: Result<T>, what: &str) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_damage(&error) => {
                self.report.error(format!("{what} cannot be read: {}", error.message()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
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
