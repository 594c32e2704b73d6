//! The operation that this thread carries out: what ends it, and how much it may do here.
//!
//! Waiting happens deep inside: for a latch, for the catalogue, for the writers of a collection.
//! Nothing waits there longer than the operation may take, because every wait asks here; and a
//! thread that others wait for says here how large a document may be that is looked at on it.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use marula_error::Result;
use marula_query::context::Interrupt;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How often a wait asks whether the operation must end.
const ASK_EVERY: Duration = Duration::from_millis(10);

thread_local! {
    static INTERRUPT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
    static DOCUMENT_BYTES_MAX: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// While it lives, the thread carries out the operation.
#[must_use]
pub struct Current(());

/// Notes the operation of this thread: what ends it, where anything does, and the largest document
/// that it looks at here.
pub fn enter(interrupt: Option<Interrupt>, document_bytes_max: usize) -> Current {
    if interrupt.is_some() {
        INTERRUPT.set(interrupt);
    }
    DOCUMENT_BYTES_MAX.set(document_bytes_max);
    Current(())
}

impl Drop for Current {
    fn drop(&mut self) {
        // Nothing is set on a thread that waits for nothing.
        if DOCUMENT_BYTES_MAX.replace(usize::MAX) == usize::MAX {
            INTERRUPT.set(None);
        }
    }
}

/// Fails once the operation must end.
pub fn check() -> Result<()> {
    INTERRUPT.with_borrow(|interrupt| interrupt.as_ref().map_or(Ok(()), Interrupt::check))
}

/// The largest document that is looked at on this thread.
#[inline]
pub fn document_bytes_max() -> usize {
    DOCUMENT_BYTES_MAX.get()
}

/// Takes a mutex.
///
/// Errors: the operation must end first.
pub fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    wait(|| mutex.try_lock_for(ASK_EVERY))
}

/// Takes a lock shared.
///
/// Errors: as [`lock`].
pub fn read<T>(lock: &RwLock<T>) -> Result<RwLockReadGuard<'_, T>> {
    wait(|| lock.try_read_for(ASK_EVERY))
}

/// Takes a lock exclusively.
///
/// Errors: as [`lock`].
pub fn write<T>(lock: &RwLock<T>) -> Result<RwLockWriteGuard<'_, T>> {
    wait(|| lock.try_write_for(ASK_EVERY))
}

/// Tries until something comes of it; each try takes a short while.
///
/// Errors: as [`lock`].
pub fn wait<T>(mut attempt: impl FnMut() -> Option<T>) -> Result<T> {
    loop {
        if let Some(taken) = attempt() {
            return Ok(taken);
        }
        check()?;
    }
}
