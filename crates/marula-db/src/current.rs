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

use crate::transaction::locks::LockedKey;

/// How often a wait asks whether the operation must end.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// What becomes of a write that meets a key which an open transaction has locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parking {
    /// It waits on its thread.
    Holds,
    /// It is given up, so that its request is parked and made again: it has done nothing yet.
    Parks,
    /// It is given up.
    Blocked,
}

thread_local! {
    static PARKING: Cell<Parking> = const { Cell::new(Parking::Holds) };
    static LOCKED: RefCell<Option<LockedKey>> = const { RefCell::new(None) };
    static IS_POSTPONED: Cell<bool> = const { Cell::new(false) };
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

/// Whether the thread may wait for others.
pub(crate) fn may_wait() -> bool {
    INTERRUPT.with_borrow(Option::is_some)
}

/// Has a write that meets a locked key be given up from now on, as long as it has done nothing.
pub fn begin_parking() {
    PARKING.set(Parking::Parks);
}

/// Has writes wait on their thread again. Answers the locked key for which one was given up.
pub fn end_parking() -> Option<LockedKey> {
    let was = PARKING.replace(Parking::Holds);
    let locked = if was == Parking::Holds { None } else { LOCKED.take() };
    locked.filter(|_| was == Parking::Blocked)
}

/// Whether the write is given up: nothing more of its request may be done now.
pub fn is_blocked() -> bool {
    PARKING.get() == Parking::Blocked
}

/// Notes that a write has met a locked key.
#[cold]
pub(crate) fn note_locked(key: LockedKey) {
    LOCKED.set(Some(key));
    if PARKING.get() == Parking::Parks {
        PARKING.set(Parking::Blocked);
    }
}

/// The locked key that the last attempt of a write has met.
pub(crate) fn take_locked() -> Option<LockedKey> {
    LOCKED.take()
}

/// Notes that something is written: what comes now waits on its thread.
#[inline]
pub(crate) fn note_written() {
    PARKING.set(Parking::Holds);
}

/// Notes that a statement of a transaction would have to wait, and has done nothing.
#[cold]
pub(crate) fn postpone() {
    IS_POSTPONED.set(true);
}

/// Whether a statement of a transaction would have had to wait since the last time.
pub fn take_postponed() -> bool {
    IS_POSTPONED.take()
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
