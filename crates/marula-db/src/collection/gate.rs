//! The gate between those who use a collection and those who change its state.
//!
//! ```text
//!   writer of documents   shared ────────────┐
//!   open transaction      counted ──────────┐│
//!   change of the state   waits for both ───┴┴─► exclusive ─► changes ─► opens again
//! ```
//!
//! A writer holds the lock while it writes; a transaction is only counted, for it may stay open
//! for long. While a change waits, no further transaction enters.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use marula_error::{Result, errors};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Collection;
use crate::current;

errors! {
    gone() = NamespaceNotFound, "ns not found";
}

/// The interval at which a catalogue change checks whether transactions have ended.
const QUIET_STEP: Duration = Duration::from_millis(5);

/// The gate of one collection.
#[derive(Default)]
pub(super) struct Gate {
    /// Locked in shared mode by writers of documents, exclusively by changes of the state.
    writers: RwLock<()>,
    /// The number of open transactions that have touched the collection.
    transactions: AtomicUsize,
    /// The number of changes of its state that are running or waiting.
    changes: AtomicUsize,
}

impl Collection {
    /// Holds off changes of the state while documents are written.
    ///
    /// Errors: the operation was interrupted.
    pub(crate) fn write_shared(&self) -> Result<RwLockReadGuard<'_, ()>> {
        match self.gate.writers.try_read() {
            Some(shared) => Ok(shared),
            None => current::read(&self.gate.writers),
        }
    }

    /// Like [`Collection::write_shared`], but returns `None` instead of waiting.
    pub(crate) fn try_write_shared(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.gate.writers.try_read()
    }

    /// Waits for open transactions and writers of documents, and holds them off while the state
    /// changes. The caller holds the catalogue.
    ///
    /// Errors: the operation was interrupted; `gone` if the collection was dropped since it was
    /// looked up: its state must not be stored again.
    pub(crate) fn change(&self) -> Result<Change<'_>> {
        let quiet = self.quiesce()?;
        let change = Change { _writers: self.hold_off()?, _quiet: quiet };
        self.check_exists()?;
        Ok(change)
    }

    /// Checks that the collection was not dropped since it was looked up.
    ///
    /// Errors: `gone`.
    pub(crate) fn check_exists(&self) -> Result<()> {
        if self.is_dropped() { Err(gone()) } else { Ok(()) }
    }

    /// Waits for writers of documents, and holds them off.
    ///
    /// Errors: the operation was interrupted.
    pub(crate) fn hold_off(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        current::write(&self.gate.writers)
    }

    /// Like [`Collection::hold_off`], but nothing interrupts it.
    pub(crate) fn hold_off_in_any_case(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.writers.write()
    }

    /// Waits until no open transaction has touched the collection, and prevents new ones from doing
    /// so. A catalogue change waits here before it takes the catalogue's lock, because a client may
    /// leave a transaction open for long.
    ///
    /// Errors: the operation was interrupted.
    pub(crate) fn quiesce(&self) -> Result<Quiet<'_>> {
        self.gate.changes.fetch_add(1, Ordering::SeqCst);
        let quiet = Quiet(self);
        let is_quiet = || self.gate.transactions.load(Ordering::SeqCst) == 0;
        if !is_quiet() {
            current::wait(|| {
                std::thread::sleep(QUIET_STEP);
                is_quiet().then_some(())
            })?;
        }
        Ok(quiet)
    }

    /// Registers an open transaction that touches the collection; returns whether it may.
    pub(crate) fn enter_transaction(&self) -> bool {
        self.gate.transactions.fetch_add(1, Ordering::SeqCst);
        let may_enter = self.gate.changes.load(Ordering::SeqCst) == 0;
        if !may_enter {
            self.leave_transaction();
        }
        may_enter
    }

    /// Unregisters a transaction that has ended.
    pub(crate) fn leave_transaction(&self) {
        self.gate.transactions.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A change of a collection's state: no writer and no transaction uses the collection.
pub(crate) struct Change<'c> {
    _writers: RwLockWriteGuard<'c, ()>,
    _quiet: Quiet<'c>,
}

/// While it exists, no further transaction touches the collection.
pub(crate) struct Quiet<'c>(&'c Collection);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.gate.changes.fetch_sub(1, Ordering::SeqCst);
    }
}
