//! The operation that runs on this thread: its interrupt, and its limit on document size.
//!
//! Waits happen deep inside: for a latch, for the catalogue, for the writers of a collection. Every
//! wait checks the interrupt here, so none outlasts its operation. A thread that others depend on
//! sets a limit here on the size of documents that it processes.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use marula_error::Result;
use marula_query::context::Interrupt;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The interval at which a wait checks the interrupt.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

thread_local! {
    static INTERRUPT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
    static DOCUMENT_BYTES_MAX: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// While it exists, the thread runs the operation.
#[must_use]
pub struct Current(());

/// Sets the operation of this thread: its interrupt, if any, and the largest document that it
/// processes here.
pub fn enter(interrupt: Option<Interrupt>, document_bytes_max: usize) -> Current {
    if interrupt.is_some() {
        INTERRUPT.set(interrupt);
    }
    DOCUMENT_BYTES_MAX.set(document_bytes_max);
    Current(())
}

impl Drop for Current {
    fn drop(&mut self) {
        // A thread that never waits has nothing set.
        if DOCUMENT_BYTES_MAX.replace(usize::MAX) == usize::MAX {
            INTERRUPT.set(None);
        }
    }
}

/// Returns whether the thread may wait for others.
pub(crate) fn may_wait() -> bool {
    INTERRUPT.with_borrow(Option::is_some)
}

/// Returns an error once the operation must end.
pub fn check() -> Result<()> {
    INTERRUPT.with_borrow(|interrupt| interrupt.as_ref().map_or(Ok(()), Interrupt::check))
}

/// The largest document that this thread may process.
#[inline]
pub fn document_bytes_max() -> usize {
    DOCUMENT_BYTES_MAX.get()
}

/// Locks a mutex.
///
/// Errors: the operation was interrupted.
pub fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    wait(|| mutex.try_lock_for(CHECK_INTERVAL))
}

/// Locks in shared mode.
///
/// Errors: as [`lock`].
pub fn read<T>(lock: &RwLock<T>) -> Result<RwLockReadGuard<'_, T>> {
    wait(|| lock.try_read_for(CHECK_INTERVAL))
}

/// Locks exclusively.
///
/// Errors: as [`lock`].
pub fn write<T>(lock: &RwLock<T>) -> Result<RwLockWriteGuard<'_, T>> {
    wait(|| lock.try_write_for(CHECK_INTERVAL))
}

/// Repeats `attempt`, which waits a short time itself, until it returns a value.
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
