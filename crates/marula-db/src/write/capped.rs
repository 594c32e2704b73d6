//! Capped collections: an insert that exceeds a limit removes the oldest documents in its own
//! transaction.

use marula_bson::Doc;
use marula_error::Result;
use marula_storage::{Direction, Space};

use super::WriteOp;
use crate::catalog::options::Capped;
use crate::collection::{Collection, State};
use crate::index::KeySet;
use crate::keys;
use crate::unit::Write;

/// The documents and bytes that a transaction has added or removed.
#[derive(Clone, Copy, Default)]
pub(super) struct Added {
    pub(super) documents: i64,
    pub(super) bytes: i64,
}

/// Removes the oldest documents until the collection, including the additions of `write`, is within
/// its limits.
///
/// The caller holds `collection.capped`, so the counters do not change. Documents added by `write`
/// itself are not removed: one transaction is far smaller than a sensible limit, and the next
/// insert corrects the excess.
pub(super) fn trim(
    op: &mut WriteOp<'_>,
    write: &mut Write<'_>,
    collection: &Collection,
    state: &State,
    bounds: Capped,
    added: Added,
) -> Result<Added> {
    let mut documents = collection.count() + added.documents;
    let mut bytes = collection.size_bytes() + added.bytes;
    let mut removed = Added::default();
    let is_over = |documents: i64, bytes: i64| {
        bytes > bounds.size_bytes_max || bounds.documents_max.is_some_and(|max| documents > max)
    };
    if !is_over(documents, bytes) {
        return Ok(removed);
    }
    let db = op.unit.db();
    let is_logged = write.is_logged(collection);
    let mut cursor = collection.scan(db.store(), Direction::Forward)?;
    let mut index_keys = KeySet::default();
    while is_over(documents, bytes) && cursor.advance()? {
        let doc: Doc<'_> = cursor.doc();
        for index in &state.indexes {
            op.buffers.key_maker.make(index, doc, &mut index_keys)?;
            for (key, _) in index_keys.iter() {
                op.buffers.entries.delete(write, index, key, cursor.record());
            }
        }
        if !state.building.is_empty() {
            op.buffers.notes.clear();
            op.buffers.notes.add(state, cursor.record(), Some(doc), None)?;
            op.buffers.notes.put(write);
        }
        if is_logged {
            write.entries().delete(collection, doc);
        }
        keys::record_key(collection.ident(), cursor.record(), &mut op.buffers.key);
        write.txn().delete(Space::Records, &op.buffers.key);
        let size = i64::try_from(doc.as_bytes().len()).expect("a document is at most 16 MB");
        documents -= 1;
        bytes -= size;
        removed.documents += 1;
        removed.bytes += size;
    }
    Ok(removed)
}
