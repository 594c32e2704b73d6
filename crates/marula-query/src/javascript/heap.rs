//! The memory of an engine: that of the process, with interrupt checks.
//!
//! The engine checks its interrupt only at every ten-thousandth loop iteration and call. Slow
//! iterations (a product of numbers with a million digits, a string that is cut repeatedly) would
//! delay that by minutes, but they allocate memory each time: so the interrupt is checked here too.
//! When the operation must end, an allocation fails, which the engine treats as a full heap and
//! reports to the code as an exception.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use rquickjs::allocator::{Allocator, RustAllocator};

use super::engine::note_end;
use crate::meter;

thread_local! {
    static CODE_RUNS: Cell<bool> = const { Cell::new(false) };
}

/// While it exists, a client's code runs on this thread: only client code is refused memory.
pub(super) struct Running(());

impl Running {
    /// A client's code starts to run.
    pub(super) fn begin() -> Running {
        CODE_RUNS.set(true);
        Running(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CODE_RUNS.set(false);
    }
}

/// The size from which every allocation checks whether the code must end.
const LARGE_BYTES: usize = 2048;

/// The allocator of an engine.
pub(super) struct Heap;

/// Returns whether client code that allocates this many bytes must end.
fn refuses(bytes: usize) -> bool {
    if !CODE_RUNS.get() {
        return false;
    }
    // A long integer takes as many steps as it is long, squared: each is a reason to check.
    let asked = match bytes > LARGE_BYTES {
        true => meter::settle(),
        false => meter::spend(meter::CALL).and_then(|()| meter::spend_bytes(bytes)),
    };
    match asked.and_then(|()| meter::check_room(bytes)) {
        Ok(()) => false,
        Err(error) => {
            note_end(error);
            true
        }
    }
}

// SAFETY: the returned memory comes from an allocator that fulfils the contract of the trait, or is
// null.
unsafe impl Allocator for Heap {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if refuses(size) { ptr::null_mut() } else { RustAllocator.alloc(size) }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let bytes = count.saturating_mul(size);
        if refuses(bytes) { ptr::null_mut() } else { RustAllocator.calloc(count, size) }
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: all pointers of the engine come from this allocator.
        unsafe { RustAllocator.dealloc(ptr) }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if refuses(new_size) {
            return ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { RustAllocator.realloc(ptr, new_size) }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: as above.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}
