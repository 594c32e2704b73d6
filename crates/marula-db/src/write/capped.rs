//! Capped collections: an insert that exceeds a limit removes the oldest documents in its own
//! transaction.

use std::time::Duration;

use marula_bson::{Doc, DocBuf};
use marula_error::Result;
use marula_storage::{Direction, KeyRange, Space};

use super::WriteOp;
use crate::catalog::options::Capped;
use crate::collection::{Collection, State};
use crate::index::KeySet;
use crate::keys::{self, RecordKey};
use crate::storage_error::ForClient;
use crate::unit::Write;
use crate::validate::counter;

/// The documents and bytes that a transaction has added or removed.
#[derive(Clone, Copy, Default)]
pub(super) struct Added {
    pub(super) documents: i64,
    pub(super) bytes: i64,
}

/// A key after those of all records, which have eight bytes.
const AFTER_RECORDS: [u8; 9] = [0xFF; 9];

/// The documents that one insert removes at most where they are gathered first.
const GATHERED_MAX: usize = 1_000;

/// Claims a collection that other nodes insert into too, until the end of `write`: its counters
/// cannot change, and later record ids are greater than all that it has.
pub(super) fn claim(
    write: &mut Write<'_>,
    collection: &Collection,
    timeout: Duration,
) -> Result<()> {
    let ident = collection.ident();
    let (count, size) = (keys::count(ident), keys::size(ident));
    write.latch(&[(Space::Catalog, &count), (Space::Catalog, &size)], timeout)?;
    let mut cursor = collection.scan(write.view(), Direction::Backward)?;
    if cursor.advance()? {
        let last = RecordKey::new(cursor.record()).record_id();
        collection.pass_record_id(last.unwrap_or(0));
    }
    Ok(())
}

/// Removes the oldest documents until the collection, including the additions of `write`, is within
/// its limits. `oldest_key` is that of [`Collection::capped`].
///
/// The caller holds `collection.capped`, so the counters do not change, or has [claimed](claim) the
/// collection. Documents added by `write` itself are not removed: one transaction is far smaller
/// than a sensible limit, and the next insert corrects the excess.
pub(super) fn trim(
    op: &mut WriteOp<'_>,
    write: &mut Write<'_>,
    collection: &Collection,
    state: &State,
    bounds: Capped,
    added: Added,
    oldest_key: &mut Vec<u8>,
) -> Result<Added> {
    let db = op.unit.db();
    let (count, size) = match db.is_shared() {
        false => (collection.count(), collection.size_bytes()),
        true => {
            let ident = collection.ident();
            let view = write.view();
            (counter(view, &keys::count(ident))?, counter(view, &keys::size(ident))?)
        }
    };
    let mut rest = Added { documents: count + added.documents, bytes: size + added.bytes };
    let is_over = |rest: Added| {
        rest.bytes > bounds.size_bytes_max
            || bounds.documents_max.is_some_and(|max| rest.documents > max)
    };
    let mut removed = Added::default();
    if !is_over(rest) {
        return Ok(removed);
    }
    let mut take = |bytes: usize| {
        let size = i64::try_from(bytes).expect("a document is at most 16 MB");
        rest.documents -= 1;
        rest.bytes -= size;
        removed.documents += 1;
        removed.bytes += size;
        is_over(rest)
    };
    let mut key = Vec::new();
    if !db.is_shared() {
        let mut doc = Vec::new();
        let range = KeyRange { start: oldest_key.clone(), end: AFTER_RECORDS.to_vec() };
        let mut cursor = collection.scan_between(db.store(), &range, Direction::Forward)?;
        let (mut is_more, mut is_oldest) = (true, true);
        while is_more && cursor.advance()? {
            if std::mem::take(&mut is_oldest) {
                cursor.record().clone_into(oldest_key);
            }
            // An update that has read the document must not write it back, and one that was
            // committed since it was passed here may have changed its keys.
            keys::record_key(collection.ident(), cursor.record(), &mut key);
            write.latch(&[(Space::Records, &key)], op.guard_timeout())?;
            let mut read = |stored: &[u8]| {
                doc.clear();
                doc.extend_from_slice(stored);
            };
            if write.view().get(Space::Records, &key, &mut read).for_client()? {
                let doc = Doc::trusted(&doc);
                remove(op, write, collection, state, cursor.record(), doc)?;
                is_more = take(doc.as_bytes().len());
            }
        }
        return Ok(removed);
    }
    let mut oldest: Vec<(Vec<u8>, DocBuf)> = Vec::new();
    let mut cursor = collection.scan(write.view(), Direction::Forward)?;
    while oldest.len() < GATHERED_MAX && cursor.advance()? {
        oldest.push((cursor.record().to_vec(), cursor.doc().to_buf()));
        if !take(cursor.doc().as_bytes().len()) {
            break;
        }
    }
    drop(cursor);
    for (record, doc) in &oldest {
        // An update of another node must not leave entries of a document that goes.
        keys::record_key(collection.ident(), record, &mut key);
        write.latch(&[(Space::Records, &key)], op.guard_timeout())?;
        remove(op, write, collection, state, record, doc.as_doc())?;
    }
    Ok(removed)
}

/// Adds the removal of a document and its index entries to `write`.
fn remove(
    op: &mut WriteOp<'_>,
    write: &mut Write<'_>,
    collection: &Collection,
    state: &State,
    record: &[u8],
    doc: Doc<'_>,
) -> Result<()> {
    let mut index_keys = KeySet::default();
    for index in &state.indexes {
        op.buffers.key_maker.make_stored(index, doc, &mut index_keys)?;
        for (key, _) in index_keys.iter() {
            op.buffers.entries.delete(write, index, key, record);
        }
    }
    if !state.building.is_empty() {
        op.buffers.notes.clear();
        op.buffers.notes.add(state, record, Some(doc), None)?;
        op.buffers.notes.put(write);
    }
    if write.is_logged(collection) {
        write.entries().delete(collection, doc);
    }
    keys::record_key(collection.ident(), record, &mut op.buffers.key);
    write.txn().delete(Space::Records, &op.buffers.key);
    Ok(())
}
