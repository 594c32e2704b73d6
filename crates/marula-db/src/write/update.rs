//! Changes one document: guards, reads, computes, and writes the differences.

use std::sync::Arc;

use marula_bson::Doc;
use marula_bson::directory::make_record;
use marula_error::Result;
use marula_query::update::Touched;
use marula_storage::{Space, delta};

use super::{Buffers, Change, WriteOp, Written, document, duplicate, find_taken, is_key_taken};
use crate::collection::{Collection, State};
use crate::index::entry::Entry;
use crate::index::{Index, KeySet};
use crate::keys::{self, RecordKey};
use crate::oplog::Entries;
use crate::session::Done;
use crate::storage_error::ForClient;
use crate::transaction::snapshot_unavailable;
use crate::unit::{KeyChanges, Write};
use crate::validator::check_validator;

/// A computed change of one document.
struct Ready {
    written: Written,
    /// The growth of the document.
    growth: i64,
    /// Whether the difference from the old record is small: it is stored instead of the new one.
    has_delta: bool,
    /// Its oplog entries.
    entries: Option<Box<Entries>>,
}

impl WriteOp<'_> {
    /// Changes the document of `record`: `change` gets its current version and writes the new one
    /// into the buffer. `change` may be called several times if others change the document in the
    /// meantime.
    ///
    /// `statement` has the statement id and a function that makes its record once the change is
    /// computed.
    pub fn update(
        &mut self,
        collection: &Collection,
        record: &RecordKey,
        change: &mut dyn FnMut(Doc<'_>, &mut Vec<u8>) -> Result<Change>,
        statement: Option<(i32, &dyn Fn() -> Done)>,
    ) -> Result<Written> {
        let statements = || statement.map(|(number, done)| (number, done())).into_iter().collect();
        match statement {
            Some(_) => self.update_as(collection, record, change, Some(&statements)),
            None => self.update_as(collection, record, change, None),
        }
    }

    /// Same as [`update`](WriteOp::update), for a change made by several statements of the session.
    pub(super) fn update_as(
        &mut self,
        collection: &Collection,
        record: &RecordKey,
        change: &mut dyn FnMut(Doc<'_>, &mut Vec<u8>) -> Result<Change>,
        statements: Option<&dyn Fn() -> Vec<(i32, Done)>>,
    ) -> Result<Written> {
        self.retrying(|op| op.try_update(collection, record, change, statements))
    }

    fn try_update(
        &mut self,
        collection: &Collection,
        record: &RecordKey,
        change: &mut dyn FnMut(Doc<'_>, &mut Vec<u8>) -> Result<Change>,
        statements: Option<&dyn Fn() -> Vec<(i32, Done)>>,
    ) -> Result<Written> {
        let _shared = self.share(collection)?;
        let state = collection.state();
        let mut key = std::mem::take(&mut self.buffers.key);
        keys::record_key(collection.ident(), record.as_bytes(), &mut key);
        let mut write = self.begin_changing(&key)?;
        let is_alone = self.unit.transaction().is_none();
        let keeps_deltas = is_alone && self.unit.db().engine().keeps_deltas;
        let mut ready = None;
        let mut see = |bytes: &[u8]| {
            let old = Doc::trusted(bytes);
            let mut computed = self.compute(&write, collection, &state, record, old, change);
            if let Ok(computed @ Ready { written: Written::Changed, .. }) = &mut computed {
                let Buffers { document, directory, delta, .. } = &mut self.buffers;
                make_record(document, directory);
                computed.has_delta = keeps_deltas && delta::between(bytes, document, delta);
            }
            ready = Some(computed);
        };
        write.view().get(Space::Records, &key, &mut see).for_client()?;
        self.buffers.key = key;
        let Some(ready) = ready else { return Ok(Written::Skipped) };
        let ready = ready?;
        if ready.written != Written::Changed {
            return Ok(ready.written);
        }
        self.claim_changed(&mut write, &self.buffers.key)?;
        if let Some(entries) = ready.entries {
            write.entries().append(*entries);
        }
        self.put_entries(collection, &state, &mut write, record)?;
        if !state.building.is_empty() {
            self.buffers.notes.put(&mut write);
        }
        keys::record_key(collection.ident(), record.as_bytes(), &mut self.buffers.key);
        let Buffers { key, document, delta, .. } = &self.buffers;
        match ready.has_delta {
            true => write.txn().change(Space::Records, key, document, delta),
            false => write.txn().put(Space::Records, key, document),
        }
        write.count(collection, 0, ready.growth);
        match (statements, &mut self.numbered) {
            (Some(statements), Some(numbered)) => {
                let done = statements();
                write.commit_recorded(numbered, &done)?;
            }
            _ => write.commit()?,
        }
        self.commits += 1;
        Ok(Written::Changed)
    }

    /// Computes the new document and, for each affected index, the keys before and after.
    fn compute(
        &mut self,
        write: &Write<'_>,
        collection: &Collection,
        state: &State,
        record: &RecordKey,
        old: Doc<'_>,
        change: &mut dyn FnMut(Doc<'_>, &mut Vec<u8>) -> Result<Change>,
    ) -> Result<Ready> {
        let limits = self.limits();
        limits.check_document(state, old)?;
        let buffers = &mut self.buffers;
        buffers.document.clear();
        let unchanged = |written| Ready { written, growth: 0, has_delta: false, entries: None };
        let (touched, delta) = match change(old, &mut buffers.document)? {
            Change::Skip => return Ok(unchanged(Written::Skipped)),
            Change::Same => return Ok(unchanged(Written::Same)),
            Change::Replace(touched) => (touched, None),
            Change::Delta(touched, delta) => (touched, Some(delta)),
        };
        self.user_writes.check_collection(self.unit.db(), collection)?;
        document::check_size(buffers.document.len())?;
        let new = Doc::trusted(&buffers.document);
        limits.check_document(state, new)?;
        if !self.bypass_validation {
            check_validator(state, collection, new, Some(old))?;
        }
        let count = state.indexes.len();
        if buffers.new_keys.len() < count {
            buffers.old_keys.resize_with(count, KeySet::default);
            buffers.new_keys.resize_with(count, KeySet::default);
        }
        let mut key_count = 0;
        for (position, index) in state.indexes.iter().enumerate() {
            let (before, after) =
                (&mut buffers.old_keys[position], &mut buffers.new_keys[position]);
            if may_affect_index(index, &touched) {
                buffers.key_maker.make_stored(index, old, before)?;
                limits.check_keys(&mut key_count, before)?;
                if let Err(error) = buffers.key_maker.make(index, new, after) {
                    let (before, after) = (&*buffers.old_keys, &*buffers.new_keys);
                    let indexes = &state.indexes[..position];
                    let taken = find_taken(write.view(), collection, indexes, after, before)?;
                    return Err(taken.unwrap_or(error));
                }
                limits.check_keys(&mut key_count, after)?;
            } else {
                before.forget();
                after.forget();
            }
        }
        if self.unit.lacks_indexes(collection) {
            // As in mongod, an update of indexed fields requires that no affected index is younger
            // than the view.
            let changed = |(position, index): (usize, &Arc<Index>)| {
                let keys = [&buffers.old_keys[position], &buffers.new_keys[position]];
                let is_there = index.spec.partial.is_none() || keys.iter().any(|it| !it.is_empty());
                is_there && may_affect_index(index, &touched)
            };
            if state.indexes.iter().enumerate().any(changed) {
                return Err(snapshot_unavailable());
            }
        }
        if !state.building.is_empty() {
            buffers.notes.clear();
            buffers.notes.add(state, record.as_bytes(), Some(old), Some(new))?;
        }
        let entries = write.is_logged(collection).then(|| {
            let mut entries = Box::<Entries>::default();
            entries.update(collection, old, new, delta.as_ref());
            entries
        });
        let size = |doc: Doc<'_>| i64::try_from(doc.as_bytes().len()).expect("at most 16 MB");
        let growth = size(new) - size(old);
        Ok(Ready { written: Written::Changed, growth, has_delta: false, entries })
    }

    /// Writes the index entries that differ between the keys before and after.
    fn put_entries(
        &mut self,
        collection: &Collection,
        state: &State,
        write: &mut Write<'_>,
        record: &RecordKey,
    ) -> Result<()> {
        let timeout = self.guard_timeout();
        let buffers = &mut self.buffers;
        for (position, index) in state.indexes.iter().enumerate() {
            let (before, after) = (&buffers.old_keys[position], &buffers.new_keys[position]);
            if index.spec.guards_keys() {
                // An index that is to become unique accepts no new entry for a key that another
                // document has.
                let is_new = |pair: &(&[u8], &[u8])| match index.spec.unique {
                    true => !before.contains(pair.0),
                    false => !before.contains_entry(*pair),
                };
                for (key, type_bits) in after.iter().filter(is_new) {
                    let store_key = [&index.ident.bytes()[..], key].concat();
                    let guarded = [(Space::Indexes, store_key.as_slice())];
                    let transaction = self.unit.transaction();
                    match transaction {
                        Some(transaction) => transaction.check_not_anothers(guarded[0])?,
                        None => write.guard(&guarded, timeout)?,
                    }
                    // A key that is taken in the transaction's view is taken, whatever has happened
                    // since.
                    if is_key_taken(write.view(), collection, index, &store_key, Some(record))? {
                        let entry = Entry { key_string: key, record: &[], type_bits };
                        return Err(duplicate::error(&collection.namespace(), index, &entry));
                    }
                    if transaction.is_some() {
                        write.guard(&guarded, timeout)?;
                    }
                }
            }
            for (key, _) in before.iter().filter(|(key, _)| !after.contains(key)) {
                buffers.entries.delete(write, index, key, record.as_bytes());
            }
            write.mark(index, &after.multikey);
            if !before.is_empty() || !after.is_empty() {
                write.count_keys(KeyChanges { inserted: Some(0), deleted: Some(0) });
            }
            for (key, type_bits) in after.iter().filter(|pair| !before.contains_entry(*pair)) {
                // The entry replaces one with the same key.
                let deleted = Some(u64::from(before.contains(key)));
                write.count_keys(KeyChanges { inserted: None, deleted });
                buffers.entries.put(
                    write,
                    index,
                    collection.shape(),
                    (key, type_bits),
                    record.as_bytes(),
                );
            }
        }
        Ok(())
    }
}

/// Returns whether an update of these paths may change a document's keys in `index`. A partial
/// index also depends on the paths of its filter, which are not kept: it always counts as affected.
fn may_affect_index(index: &Index, touched: &Touched) -> bool {
    index.spec.partial.is_some()
        || index.spec.kind.is_touched(touched)
        || index.spec.parts.iter().any(|part| touched.may_affect(&part.path))
}
