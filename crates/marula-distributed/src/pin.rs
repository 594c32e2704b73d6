//! The moment that the operation of a thread reads.
//!
//! Without it each read of the newest state would begin by a round trip that takes a version, and
//! the reads of one operation would show several moments.

use std::cell::Cell;
use std::ptr;

use marula_storage::Epoch;

use crate::shared::{At, Shared};

thread_local! {
    static PIN: Cell<Option<Pin>> = const { Cell::new(None) };
}

/// The operation of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Pin {
    /// The address of the [`Shared`] that it reads.
    store: usize,
    /// Its moment; none after a commit or a conflict, until the next read.
    pub(crate) at: Option<At>,
    pub(crate) repeats: Repeats,
}

/// Whether an operation is to be repeated: see `Store::begin_repeatable`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeats {
    /// It has read, or was begun by a moment.
    No,
    /// It has read nothing yet. Memory was of this epoch when it began: it may be of a newer one by
    /// now, because another operation has brought it up to date, but what this operation has taken
    /// from it may be older.
    Maybe(Epoch),
    /// It must be.
    Yes,
}

/// The operation of this thread, if it reads this store.
pub(crate) fn of(shared: &Shared) -> Option<Pin> {
    PIN.get().filter(|pin| pin.store == address(shared))
}

/// Begins an operation of this thread, or has it read another moment.
pub(crate) fn set(shared: &Shared, at: Option<At>) {
    PIN.set(Some(Pin { store: address(shared), at, repeats: Repeats::No }));
}

/// Begins an operation of this thread that may have to be repeated, or has it be.
pub(crate) fn set_repeats(shared: &Shared, repeats: Repeats) {
    PIN.set(Some(Pin { store: address(shared), at: None, repeats }));
}

/// Has the next read of the operation show the newest state.
pub(crate) fn forget_moment(shared: &Shared) {
    if of(shared).is_some_and(|pin| pin.at.is_some()) {
        set(shared, None);
    }
}

/// Ends the operation of this thread.
pub(crate) fn end() {
    PIN.set(None);
}

fn address(shared: &Shared) -> usize {
    ptr::from_ref(shared).addr()
}
