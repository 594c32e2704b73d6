//! Deletes documents with their index entries.

use marula_bson::Doc;
use marula_error::Result;
use marula_storage::Space;

use super::{WriteOp, check_delete_in_transaction};
use crate::collection::{Collection, State};
use crate::index::KeySet;
use crate::keys::{self, RecordKey};
use crate::session::Done;
use crate::storage_error::{ForClient, client_error};
use crate::unit::Write;

impl WriteOp<'_> {
    /// Deletes the document of `record` if `is_wanted` returns `true` for its current version.
    /// Returns whether it was deleted. `statement` has the statement id and a function that makes
    /// its record.
    pub fn delete(
        &mut self,
        collection: &Collection,
        record: &RecordKey,
        is_wanted: &mut dyn FnMut(Doc<'_>) -> Result<bool>,
        statement: Option<(i32, &dyn Fn() -> Done)>,
    ) -> Result<bool> {
        self.retrying(|op| op.try_delete(collection, record, is_wanted, statement))
    }

    fn try_delete(
        &mut self,
        collection: &Collection,
        record: &RecordKey,
        is_wanted: &mut dyn FnMut(Doc<'_>) -> Result<bool>,
        statement: Option<(i32, &dyn Fn() -> Done)>,
    ) -> Result<bool> {
        check_delete_in_transaction(self.unit, collection)?;
        let _shared = self.share(collection)?;
        let state = collection.state();
        keys::record_key(collection.ident(), record.as_bytes(), &mut self.buffers.key);
        let mut write = self.begin_changing(&self.buffers.key)?;
        let Some(size) = self.remove(&mut write, collection, &state, record, is_wanted)? else {
            return Ok(false);
        };
        keys::record_key(collection.ident(), record.as_bytes(), &mut self.buffers.key);
        self.claim_changed(&mut write, &self.buffers.key)?;
        self.user_writes.check_collection(self.unit.db(), collection)?;
        write.count(collection, -1, -size);
        match (statement, &mut self.numbered) {
            (Some((number, done)), Some(numbered)) => {
                write.commit_recorded(numbered, &[(number, done())])?;
            }
            _ => write.commit()?,
        }
        self.commits += 1;
        Ok(true)
    }

    /// Deletes those of `records` for which `is_wanted` returns `true`, in one transaction: for
    /// background work, which passes a bounded number at a time. Returns the number deleted.
    /// `records` has no duplicates.
    pub fn delete_batch(
        &mut self,
        collection: &Collection,
        records: &[RecordKey],
        is_wanted: &mut dyn FnMut(Doc<'_>) -> Result<bool>,
    ) -> Result<u64> {
        self.retrying(|op| op.try_delete_batch(collection, records, is_wanted))
    }

    fn try_delete_batch(
        &mut self,
        collection: &Collection,
        records: &[RecordKey],
        is_wanted: &mut dyn FnMut(Doc<'_>) -> Result<bool>,
    ) -> Result<u64> {
        let _shared = self.share(collection)?;
        let state = collection.state();
        let store_keys: Vec<Vec<u8>> = records
            .iter()
            .map(|record| {
                let mut key = Vec::new();
                keys::record_key(collection.ident(), record.as_bytes(), &mut key);
                key
            })
            .collect();
        let guards: Vec<(Space, &[u8])> =
            store_keys.iter().map(|key| (Space::Records, key.as_slice())).collect();
        let mut write = self.begin_guarding(&guards)?;
        let (mut documents, mut bytes) = (0, 0);
        for record in records {
            if let Some(size) = self.remove(&mut write, collection, &state, record, is_wanted)? {
                documents += 1;
                bytes += size;
            }
        }
        if documents > 0 {
            write.count(collection, -documents, -bytes);
            write.commit()?;
            self.commits += 1;
        }
        Ok(documents.unsigned_abs())
    }

    /// Adds the removal of the document of `record`, which is guarded, and of its index entries to
    /// `write`. Returns its size, or `None` if it does not exist or is not wanted.
    fn remove(
        &mut self,
        write: &mut Write<'_>,
        collection: &Collection,
        state: &State,
        record: &RecordKey,
        is_wanted: &mut dyn FnMut(Doc<'_>) -> Result<bool>,
    ) -> Result<Option<i64>> {
        let limits = self.limits();
        let lacks_indexes = self.unit.lacks_indexes(collection);
        let buffers = &mut self.buffers;
        keys::record_key(collection.ident(), record.as_bytes(), &mut buffers.key);
        let count = state.indexes.len();
        if buffers.old_keys.len() < count {
            buffers.old_keys.resize_with(count, KeySet::default);
        }
        let is_logged = write.is_logged(collection);
        let mut gone = None;
        let mut outcome = Ok(None);
        let (key_maker, old_keys) = (&mut buffers.key_maker, &mut buffers.old_keys);
        let notes = &mut buffers.notes;
        let mut read = |doc: Doc<'_>| -> Result<Option<usize>> {
            limits.check_document(state, doc)?;
            let mut key_count = 0;
            if !is_wanted(doc)? {
                return Ok(None);
            }
            if lacks_indexes {
                return Err(client_error(marula_storage::Error::Conflict));
            }
            for (index, keys) in state.indexes.iter().zip(old_keys.iter_mut()) {
                key_maker.make_stored(index, doc, keys)?;
                limits.check_keys(&mut key_count, keys)?;
            }
            if !state.building.is_empty() {
                notes.clear();
                notes.add(state, record.as_bytes(), Some(doc), None)?;
            }
            gone = is_logged.then(|| doc.to_buf());
            Ok(Some(doc.as_bytes().len()))
        };
        let mut visit = |bytes: &[u8]| outcome = read(Doc::trusted(bytes));
        write.view().get(Space::Records, &buffers.key, &mut visit).for_client()?;
        let Some(size) = outcome? else { return Ok(None) };
        if let Some(gone) = gone {
            write.entries().delete(collection, gone.as_doc());
        }
        write.txn().delete(Space::Records, &buffers.key);
        for (index, keys) in state.indexes.iter().zip(&buffers.old_keys) {
            for (key, _) in keys.iter() {
                buffers.entries.delete(write, index, key, record.as_bytes());
            }
        }
        if !state.building.is_empty() {
            buffers.notes.put(write);
        }
        Ok(Some(i64::try_from(size).expect("a document is at most 16 MB")))
    }
}
