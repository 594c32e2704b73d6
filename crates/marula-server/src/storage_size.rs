//! The size of collections and indexes on disk.

use marula_bson::long;
use marula_db::{Collection, Db};
use marula_error::Result;
use marula_storage::Space;

/// The minimum size of a collection or an index, and the unit of its size: as in mongod, whose
/// files consist of pages of this size.
const PAGE_BYTES: i64 = 4096;

/// The approximate size of an index entry, if only the number of documents is known.
const ENTRY_BYTES: i64 = 24;

/// Returns the approximate size of a collection's documents on disk in bytes. Data that is only in
/// memory is uncompressed in the log.
pub(crate) fn of_documents(db: &Db, collection: &Collection) -> Result<i64> {
    Ok(pages(of_range(db, Space::Records, collection.ident())?, collection.size_bytes()))
}

/// Returns the approximate size of an index of `collection` on disk in bytes.
pub(crate) fn of_index(db: &Db, collection: &Collection, index: &marula_db::Index) -> Result<i64> {
    let entries = collection.count().saturating_mul(ENTRY_BYTES);
    Ok(pages(of_range(db, Space::Indexes, index.ident)?, entries))
}

/// Returns an estimate in whole pages, at least one. The store estimates small ranges as zero: then
/// it is `otherwise`.
fn pages(estimate: i64, otherwise: i64) -> i64 {
    let bytes = if estimate > 0 { estimate } else { otherwise };
    bytes.max(1).saturating_add(PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES
}

/// Returns the approximate size of a collection's indexes on disk in bytes.
pub(crate) fn of_indexes(db: &Db, collection: &Collection) -> Result<i64> {
    let mut total = 0;
    for index in &collection.state().indexes {
        total += of_index(db, collection, index)?;
    }
    Ok(total)
}

/// Returns the approximate size of a database on disk in bytes.
pub(crate) fn of_database(db: &Db, name: &str) -> Result<i64> {
    let mut total = 0;
    for collection in db.catalog().collections(name) {
        total += of_documents(db, &collection)? + of_indexes(db, &collection)?;
    }
    Ok(total)
}

fn of_range(db: &Db, space: Space, ident: marula_db::keys::Ident) -> Result<i64> {
    let stats = db.range_stats(space, ident)?;
    Ok(long(stats.disk_bytes))
}
