//! A change that is made whole or not at all: a store transaction, and the *effects* of its commit.
//!
//! What a write causes beside its keys is noted here while the change is made, and happens when the
//! commit has succeeded, and only then: counters in memory, multikey marks, the session's record,
//! what is counted of the operation, and those who wait for documents. A change that is dropped
//! leaves nothing behind. The effects of a statement of a client's transaction are the
//! transaction's, and follow from its commit.

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use marula_error::Result;
use marula_storage::{Space, Txn, View};

use super::{KeyChanges, Unit};
use crate::collection::Collection;
use crate::current;
use crate::index::{Index, Multikey};
use crate::keys;
use crate::oplog::Entries;
use crate::session::{Done, NumberedWrite};
use crate::storage_error::{ForClient, client_error};

/// A change under way.
pub(crate) struct Write<'u> {
    txn: Box<dyn Txn + 'u>,
    unit: Unit<'u>,
    effects: Effects<'u>,
}

/// What follows from a commit.
#[derive(Default)]
struct Effects<'u> {
    /// By how much a collection grows.
    grown: Option<(&'u Collection, Growth)>,
    /// Multikey marks that the transaction writes.
    marks: Vec<(Arc<Index>, Multikey)>,
    /// Index keys that it adds and removes.
    keys: KeyChanges,
    /// What the oplog tells of it, where that is written.
    entries: Option<Box<Entries>>,
}

/// By how much a collection grows.
#[derive(Clone, Copy, Default)]
pub(crate) struct Growth {
    pub(crate) documents: i64,
    bytes: i64,
    /// Whether documents come in, for which someone may wait.
    has_arrivals: bool,
}

impl AddAssign for Growth {
    fn add_assign(&mut self, more: Growth) {
        self.documents += more.documents;
        self.bytes += more.bytes;
        self.has_arrivals |= more.has_arrivals;
    }
}

impl Growth {
    /// Has the counters of the collection show it, and tells those who wait for documents.
    #[inline]
    pub(crate) fn follow(self, collection: &Collection) {
        collection.counted(self.documents, self.bytes);
        if self.has_arrivals {
            collection.tell_listeners();
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
        Write { txn, unit, effects: Effects::default() }
    }

    /// Claims keys until the change ends; those of a client's transaction until that does.
    ///
    /// Errors: a conflict, where another holds one of them for longer than `patience`, or an open
    /// transaction does.
    #[inline]
    pub(crate) fn guard(&mut self, keys: &[(Space, &[u8])], patience: Duration) -> Result<()> {
        self.latch(keys, patience)?;
        self.check_unlocked(keys)
    }

    /// The first half of [`Write::guard`]: nobody writes these keys meanwhile, but an open
    /// transaction may have.
    ///
    /// Errors: as of [`Write::guard`], but for open transactions.
    #[inline]
    pub(crate) fn latch(&mut self, keys: &[(Space, &[u8])], patience: Duration) -> Result<()> {
        self.txn.guard_within(keys, patience).for_client()
    }

    /// The second half of [`Write::guard`], for keys that are latched.
    ///
    /// Errors: a conflict, where an open transaction holds one of them.
    #[inline]
    pub(crate) fn check_unlocked(&self, keys: &[(Space, &[u8])]) -> Result<()> {
        if self.unit.transaction.is_none()
            && let Some(locked) = self.unit.db.locks.held_of(keys)
        {
            current::note_locked(locked);
            return Err(client_error(marula_storage::Error::Conflict));
        }
        Ok(())
    }

    /// Checks that no other open transaction has put this key. For ordinary changes it is latched.
    ///
    /// Errors: a conflict.
    pub(crate) fn check_not_put(&self, key: (Space, &[u8])) -> Result<()> {
        match self.unit.transaction {
            None => self.check_unlocked(&[key]),
            Some(transaction) if transaction.is_anothers(key) => {
                Err(client_error(marula_storage::Error::Conflict))
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether no open transaction holds one of these keys.
    #[inline]
    pub(crate) fn are_unlocked(&self, keys: &[(Space, &[u8])]) -> bool {
        self.unit.db.locks.held_of(keys).is_none()
    }

    /// What it decides by: what this shows of keys that it has guarded stays so until its end.
    #[inline]
    pub(crate) fn view(&self) -> &dyn View {
        self.txn.view()
    }

    /// The store transaction, for keys that no effect belongs to.
    #[inline]
    pub(crate) fn txn(&mut self) -> &mut (dyn Txn + 'u) {
        &mut *self.txn
    }

    /// Puts an index entry that is new, or in the place of one of the same key.
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

    /// Counts index keys that are written, beside those of [`Write::put_entry`] and
    /// [`Write::delete_entry`].
    #[inline]
    pub(crate) fn count_keys(&mut self, keys: KeyChanges) {
        self.effects.keys += keys;
    }

    /// Writes the multikey marks that a document's keys in `index` need and the store has not yet.
    #[inline]
    pub(crate) fn mark(&mut self, index: &Arc<Index>, found: &Multikey) {
        if index.needs_mark(found) {
            self.mark_anew(index, found);
        }
    }

    #[cold]
    fn mark_anew(&mut self, index: &Arc<Index>, found: &Multikey) {
        index.mark_multikey(found, &mut *self.txn);
        self.effects.marks.push((index.clone(), found.clone()));
    }

    /// Has the counters of `collection` grow, in the store and in memory.
    #[inline]
    pub(crate) fn count(&mut self, collection: &'u Collection, documents: i64, bytes: i64) {
        assert!(self.effects.grown.is_none(), "a change is of one collection");
        if documents != 0 {
            self.txn.add(&keys::count(collection.ident()), documents);
        }
        if bytes != 0 {
            self.txn.add(&keys::size(collection.ident()), bytes);
        }
        self.effects.grown = Some((collection, Growth { documents, bytes, has_arrivals: false }));
    }

    /// Has those told who wait for documents of the collection that is counted.
    #[inline]
    pub(crate) fn tell_of_arrivals(&mut self) {
        let (_, growth) = self.effects.grown.as_mut().expect("documents that come in are counted");
        growth.has_arrivals = true;
    }

    /// Whether the oplog tells of changes of `collection`.
    #[inline]
    pub(crate) fn is_told_of(&self, collection: &Collection) -> bool {
        self.unit.tells_of_changes() && collection.is_told_of()
    }

    /// What the oplog tells of it.
    pub(crate) fn entries(&mut self) -> &mut Entries {
        self.effects.entries.get_or_insert_default()
    }

    /// Makes the change together with the session's record, which says that `statements` are done,
    /// and has its effects follow.
    ///
    /// Errors: as [`Write::commit`].
    pub(crate) fn commit_recorded(
        mut self,
        numbered: &mut NumberedWrite,
        statements: &[(i32, Done)],
    ) -> Result<()> {
        numbered.stage(&mut *self.txn, statements);
        if let Some(entries) = &mut self.effects.entries {
            let statements = statements.iter().map(|(number, _)| *number);
            entries.are_statements(numbered.lsid(), numbered.number(), statements);
        }
        let outcome = self.commit();
        if outcome.is_err() {
            numbered.undo(statements);
        }
        outcome
    }

    /// Makes the change, and has its effects follow.
    ///
    /// Errors: those of the store; then nothing has happened.
    pub(crate) fn commit(self) -> Result<()> {
        let Write { txn, unit, mut effects } = self;
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
        current::note_written();
        for (index, multikey) in effects.marks.drain(..) {
            index.note_marks_stored(&multikey);
        }
        if let Some((collection, growth)) = effects.grown {
            growth.follow(collection);
        }
        Ok(())
    }
}
