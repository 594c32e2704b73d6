//! Collections of the table's rows: created if they do not exist.

use crate::bson::{self, Doc};
use crate::documents;
use crate::load::Blocking;
use crate::lookups::{self, SHELF};
use crate::message::Template;
use crate::side::Side;

pub(crate) fn drop_collection(control: &mut Blocking, name: &str) {
    // A missing collection counts as dropped.
    let _ = control.command(Doc::new().str("drop", name).str("$db", "bench"));
}

/// Creates indexes: name, key, whether unique.
pub(crate) fn create_indexes(
    control: &mut Blocking,
    collection: &str,
    indexes: &[(&str, Doc, bool)],
) -> Result<(), String> {
    let indexes = indexes.iter().map(|(name, key, unique)| {
        let index = Doc::new().doc("key", key.clone()).str("name", name);
        if *unique { index.bool("unique", true) } else { index }
    });
    let command = Doc::new()
        .str("createIndexes", collection)
        .array("indexes", indexes.collect())
        .str("$db", "bench");
    control.command(command).map(|_| ())
}

/// Returns the number of documents of a collection.
pub(crate) fn count(side: &Side, collection: &str) -> Result<usize, String> {
    let reply = Blocking::new(side.address)?
        .command(Doc::new().str("count", collection).str("$db", "bench"))?;
    Ok(bson::number(&reply, "n").unwrap_or(0.0) as usize)
}

/// The command that inserts `documents`.
pub(crate) fn insert(collection: &str, documents: &[Vec<u8>]) -> Template {
    let body = Doc::new().str("insert", collection).bool("ordered", true).str("$db", "bench");
    Template::new(body, Some(("documents", documents)))
}

/// The documents that are found by `_id`.
pub(crate) fn load_records(side: &Side, documents: usize) -> Result<(), String> {
    let records = |begin, end| {
        (begin..end).map(|number| documents::record(number as u64)).collect::<Vec<_>>()
    };
    fill(side, "find", documents, &[], &records)
}

/// Loads the documents for index lookups.
pub(crate) fn load_shelf(side: &Side, documents: usize) -> Result<(), String> {
    let of_shelf = |begin, end| lookups::documents_of(begin, end, documents);
    fill(side, SHELF, documents, &lookups::indexes(), &of_shelf)
}

/// Creates a collection of `documents` documents from `make`, unless it exists.
pub(crate) fn fill(
    side: &Side,
    collection: &str,
    documents: usize,
    indexes: &[(&str, Doc, bool)],
    make: &dyn Fn(usize, usize) -> Vec<Vec<u8>>,
) -> Result<(), String> {
    if count(side, collection)? == documents {
        return Ok(());
    }
    let mut control = Blocking::new(side.address)?;
    drop_collection(&mut control, collection);
    if !indexes.is_empty() {
        create_indexes(&mut control, collection, indexes)?;
    }
    for begin in (0..documents).step_by(BATCH) {
        control.send(&insert(collection, &make(begin, documents.min(begin + BATCH))).bytes)?;
    }
    Ok(())
}

/// The number of documents that are updated continuously.
pub(crate) const HOT_DOCUMENTS: usize = 1000;

/// Loads the few documents that are updated continuously.
pub(crate) fn load_hot(side: &Side) -> Result<(), String> {
    if count(side, "hot")? == HOT_DOCUMENTS {
        return Ok(());
    }
    let mut control = Blocking::new(side.address)?;
    create_indexes(&mut control, "hot", &[("code", Doc::new().int("code", 1), true)])?;
    let batch: Vec<_> = (0..HOT_DOCUMENTS).map(documents::hot).collect();
    control.send(&insert("hot", &batch).bytes).map(|_| ())
}

/// Documents of one insert.
pub(crate) const BATCH: usize = 1000;
