//! How much of the disk collections and indexes take.

use marula_db::{Collection, Db};
use marula_error::Result;
use marula_storage::Space;

/// The least that a collection or an index takes, and what its size is a multiple of: as with
/// mongod, whose files are made of such pages.
const PAGE_BYTES: i64 = 4096;

/// What an index entry takes about, where nothing is known but how many documents there are.
const ENTRY_BYTES: i64 = 24;

/// Bytes on disk of a collection's documents, approximately. What is in memory alone is in the log,
/// as it is.
pub(crate) fn of_documents(db: &Db, collection: &Collection) -> Result<i64> {
    Ok(pages(of_range(db, Space::Records, collection.ident())?, collection.size_bytes()))
}

/// Bytes on disk of an index of `collection`, approximately.
pub(crate) fn of_index(db: &Db, collection: &Collection, index: &marula_db::Index) -> Result<i64> {
    let entries = collection.count().saturating_mul(ENTRY_BYTES);
    Ok(pages(of_range(db, Space::Indexes, index.ident)?, entries))
}

/// An estimate in whole pages, at least one. The store estimates little as nothing: then it is
/// `otherwise`.
fn pages(estimate: i64, otherwise: i64) -> i64 {
    let bytes = if estimate > 0 { estimate } else { otherwise };
    bytes.max(1).saturating_add(PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES
}

/// Bytes on disk of a collection's indexes, approximately.
pub(crate) fn of_indexes(db: &Db, collection: &Collection) -> Result<i64> {
    let mut total = 0;
    for index in &collection.state().indexes {
        total += of_index(db, collection, index)?;
    }
    Ok(total)
}

/// Bytes on disk of a database, approximately.
pub(crate) fn of_database(db: &Db, name: &str) -> Result<i64> {
    let mut total = 0;
    for collection in db.catalog().collections(name) {
        total += of_documents(db, &collection)? + of_indexes(db, &collection)?;
    }
    Ok(total)
}

fn of_range(db: &Db, space: Space, ident: marula_db::keys::Ident) -> Result<i64> {
    let stats = db.range_stats(space, ident)?;
    Ok(i64::try_from(stats.disk_bytes).unwrap_or(i64::MAX))
}
