//! How much of the disk collections and indexes take.

use marula_db::storage_error::ForClient;
use marula_db::{Collection, Db};
use marula_error::Result;
use marula_storage::Space;

/// Bytes on disk of a collection's documents, approximately.
pub fn of_documents(db: &Db, collection: &Collection) -> Result<i64> {
    of_range(db, Space::Records, collection.ident())
}

/// Bytes on disk of an index, approximately.
pub fn of_index(db: &Db, index: &marula_db::Index) -> Result<i64> {
    of_range(db, Space::Indexes, index.ident)
}

/// Bytes on disk of a collection's indexes, approximately.
pub fn of_indexes(db: &Db, collection: &Collection) -> Result<i64> {
    let mut total = 0;
    for index in &collection.state().indexes {
        total += of_index(db, index)?;
    }
    Ok(total)
}

/// Bytes on disk of a database, approximately.
pub fn of_database(db: &Db, name: &str) -> Result<i64> {
    let mut total = 0;
    for collection in db.catalog().collections(name) {
        total += of_documents(db, &collection)? + of_indexes(db, &collection)?;
    }
    Ok(total)
}

fn of_range(db: &Db, space: Space, ident: marula_db::keys::Ident) -> Result<i64> {
    let stats = db.store().range_stats(space, &ident.range()).for_client()?;
    Ok(i64::try_from(stats.disk_bytes).unwrap_or(i64::MAX))
}
