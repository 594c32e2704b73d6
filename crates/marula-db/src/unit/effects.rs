//! An atomic change: a store transaction, and the *effects* of its commit.
//!
//! Consequences of a write other than its keys are collected here while the change is made, and
//! applied only after a successful commit: counters in memory, multikey marks, the session's
//! record, the operation's counts, and notifications of listeners. A change that is dropped has no
//! effects. The effects of a statement in a client's transaction are handed to the transaction and
//! applied by its commit.

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use marula_error::Result;
use marula_storage::{Space, Txn, View};

use super::{KeyChanges, Unit};
use crate::collection::Collection;
use crate::index::{Index, Multikey};
use crate::keys;
use crate::oplog::Entries;
use crate::session::{Done, NumberedWrite};
use crate::storage_error::{ForClient, client_error};
use crate::transaction::locks::LockedKey;

/// A change in progress.
pub(crate) struct Write<'u> {
    txn: Box<dyn Txn + 'u>,
    unit: Unit<'u>,
    /// Those of the latched keys that open transactions held when they were latched, in order.
    locked: Vec<LockedKey>,
    effects: Effects<'u>,
}

/// The effects of a commit.
#[derive(Default)]
struct Effects<'u> {
    /// The growth of a collection.
    grown: Option<(&'u Collection, Growth)>,
    /// The multikey marks that the transaction writes.
    marks: Vec<(Arc<Index>, Multikey)>,
    /// The number of index keys that it adds and removes.
    keys: KeyChanges,
    /// Its oplog entries, if the oplog is written.
    entries: Option<Box<Entries>>,
}

/// The growth of a collection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Growth {
    pub(crate) documents: i64,
    bytes: i64,
    /// Whether documents are inserted, for which listeners may wait.
    has_inserts: bool,
}

impl AddAssign for Growth {
    fn add_assign(&mut self, more: Growth) {
        self.documents += more.documents;
        self.bytes += more.bytes;
        self.has_inserts |= more.has_inserts;
    }
}

impl Growth {
    /// Adds the growth to the counters of the collection, and notifies listeners of inserts.
    #[inline]
    pub(crate) fn apply(self, collection: &Collection) {
        collection.counted(self.documents, self.bytes);
        if self.has_inserts {
            collection.notify_listeners();
        }
    }
}

impl<'u> Write<'u> {
    #[inline]
    pub(super) fn new(unit: Unit<'u>) -> Self {
        let txn = match unit.transaction {
            None => unit.db.store().begin(),
            Some(transaction) => transaction.begin_statement(),
        };
        Write { txn, unit, locked: Vec::new(), effects: Effects::default() }
    }

    /// Claims keys until the change ends, or until the client's transaction ends.
    ///
    /// Errors: a conflict if another change holds one of them for longer than `timeout`, or an open
    /// transaction holds one; those of [`Transaction::check_open`](crate::Transaction::check_open).
    #[inline]
    pub(crate) fn guard(&mut self, keys: &[(Space, &[u8])], timeout: Duration) -> Result<()> {
        let guarded = self.txn.guard_within(keys, timeout);
        if let (Err(_), Some(transaction)) = (&guarded, self.unit.transaction) {
            transaction.check_open()?;
        }
        guarded.for_client()?;
        let locks = &self.unit.db.locks;
        if self.unit.transaction.is_some() || !locks.any() {
            return Ok(());
        }
        locks.held_of(keys).next().map_or(Ok(()), |key| self.locked_by_another(key))
    }

    /// The first half of [`Write::guard`] for an ordinary change: excludes other ordinary writers
    /// of these keys, and notes which of them open transactions hold.
    ///
    /// A transaction that holds a key may commit at any time, also between a read of the key and
    /// [`Write::check_unlocked`], so the latter checks what is noted here, before all reads. One
    /// that does not hold a latched key cannot lock it any more.
    ///
    /// Errors: as [`Write::guard`], except for open transactions.
    #[inline]
    pub(crate) fn latch(&mut self, keys: &[(Space, &[u8])], timeout: Duration) -> Result<()> {
        assert!(self.unit.transaction.is_none(), "a statement locks its keys");
        self.txn.guard_within(keys, timeout).for_client()?;
        if self.unit.db.locks.any() {
            self.locked.extend(self.unit.db.locks.held_of(keys));
            self.locked.sort_unstable();
        }
        Ok(())
    }

    /// The second half of [`Write::guard`], for a key that was latched before it was read.
    ///
    /// Errors: a conflict if an open transaction held it at that time.
    #[inline]
    pub(crate) fn check_unlocked(&self, (space, key): (Space, &[u8])) -> Result<()> {
        let place = self
            .locked
            .binary_search_by(|(its_space, its_key)| (*its_space, &**its_key).cmp(&(space, key)));
        place.map_or(Ok(()), |place| self.locked_by_another(self.locked[place].clone()))
    }

    /// The conflict with the open transaction that holds a key, for whose release the operation may
    /// wait.
    #[cold]
    fn locked_by_another(&self, key: LockedKey) -> Result<()> {
        if let Some(parking) = self.unit.parking {
            parking.note_locked(key);
        }
        Err(client_error(marula_storage::Error::Conflict))
    }

    /// Returns whether open transactions held none of the latched keys.
    #[inline]
    pub(crate) fn are_unlocked(&self) -> bool {
        self.locked.is_empty()
    }

    /// The view that the change reads: guarded keys do not change in it until the change ends.
    #[inline]
    pub(crate) fn view(&self) -> &dyn View {
        self.txn.view()
    }

    /// The store transaction, for keys without effects.
    #[inline]
    pub(crate) fn txn(&mut self) -> &mut (dyn Txn + 'u) {
        &mut *self.txn
    }

    /// Puts a new index entry, or replaces one with the same key.
    #[inline]
    pub(crate) fn put_entry(&mut self, key: &[u8], value: &[u8]) {
        self.txn.put(Space::Indexes, key, value);
        self.effects.keys += KeyChanges { inserted: Some(1), deleted: None };
    }

    /// Removes an index entry.
    #[inline]
    pub(crate) fn delete_entry(&mut self, key: &[u8]) {
        self.txn.delete(Space::Indexes, key);
        self.effects.keys += KeyChanges { inserted: None, deleted: Some(1) };
    }

    /// Counts written index keys in addition to those of [`Write::put_entry`] and
    /// [`Write::delete_entry`].
    #[inline]
    pub(crate) fn count_keys(&mut self, keys: KeyChanges) {
        self.effects.keys += keys;
    }

    /// Writes the multikey marks for a document's keys in `index` that are not stored yet.
    #[inline]
    pub(crate) fn mark(&mut self, index: &Arc<Index>, found: &Multikey) {
        if index.needs_mark(found) {
            self.mark_new(index, found);
        }
    }

    #[cold]
    fn mark_new(&mut self, index: &Arc<Index>, found: &Multikey) {
        index.mark_multikey(found, &mut *self.txn);
        self.effects.marks.push((index.clone(), found.clone()));
    }

    /// Changes the counters of `collection`, in the store and in memory.
    #[inline]
    pub(crate) fn count(&mut self, collection: &'u Collection, documents: i64, bytes: i64) {
        assert!(self.effects.grown.is_none(), "a change is of one collection");
        if collection.is_kept_by_nodes() {
            self.txn.change_epoch();
        }
        if documents != 0 {
            self.txn.add(&keys::count(collection.ident()), documents);
        }
        if bytes != 0 {
            self.txn.add(&keys::size(collection.ident()), bytes);
        }
        self.effects.grown = Some((collection, Growth { documents, bytes, has_inserts: false }));
    }

    /// Notifies listeners of inserts into the counted collection.
    #[inline]
    pub(crate) fn notify_inserts(&mut self) {
        let (_, growth) = self.effects.grown.as_mut().expect("documents that come in are counted");
        growth.has_inserts = true;
    }

    /// Returns whether changes of `collection` are logged in the oplog.
    #[inline]
    pub(crate) fn is_logged(&self, collection: &Collection) -> bool {
        self.unit.logs_changes() && collection.is_logged()
    }

    /// The oplog entries.
    pub(crate) fn entries(&mut self) -> &mut Entries {
        self.effects.entries.get_or_insert_default()
    }

    /// Commits the change together with the session's record that `statements` are done, and
    /// applies its effects.
    ///
    /// Errors: as [`Write::commit`].
    pub(crate) fn commit_recorded(
        mut self,
        numbered: &mut NumberedWrite,
        statements: &[(i32, Done)],
    ) -> Result<()> {
        numbered.claim(&mut *self.txn)?;
        numbered.stage(&mut *self.txn, statements);
        if let Some(entries) = &mut self.effects.entries {
            let statements = statements.iter().map(|(number, _)| *number);
            entries.are_statements(numbered.lsid(), numbered.number(), statements);
        }
        let outcome = self.commit();
        match outcome {
            Ok(()) => numbered.note_committed(),
            Err(_) => numbered.undo(statements),
        }
        outcome
    }

    /// Commits the change and applies its effects.
    ///
    /// Errors: those of the store; nothing is committed then.
    pub(crate) fn commit(self) -> Result<()> {
        let Write { txn, unit, mut effects, .. } = self;
        let entries = effects.entries.take();
        match &entries {
            Some(entries) if unit.transaction.is_none() => {
                unit.db.oplog.commit(unit.db, txn, entries)?;
            }
            _ => drop(txn.commit().map_err(client_error)?),
        }
        if let Some(tally) = unit.tally {
            tally.add_changed(effects.keys);
        }
        if let Some(transaction) = unit.transaction {
            let grown = effects.grown.map(|(collection, growth)| (collection.ident(), growth));
            return transaction.absorb(grown, &mut effects.marks, entries);
        }
        if let Some(parking) = unit.parking {
            parking.forbid();
        }
        for (index, multikey) in effects.marks.drain(..) {
            index.note_marks_stored(&multikey);
        }
        if let Some((collection, growth)) = effects.grown {
            growth.apply(collection);
        }
        Ok(())
    }
}
