//! The memory of an engine: the process's, counted as work.
//!
//! The engine asks whether it must end at every ten-thousandth loop and call. A loop of long ones
//! (a product of numbers with a million digits, a string that is cut again and again) is at work
//! for minutes until then, but makes something each time: so the operation is asked here too. To
//! one that must end no memory is given, which the engine takes for a full heap, and tells the code
//! so by an exception.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use rquickjs::allocator::{Allocator, RustAllocator};

use super::engine::note_end;
use crate::meter;

thread_local! {
    static CODE_RUNS: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, a client's code runs on this thread: only that is refused memory.
pub(super) struct Running(());

impl Running {
    /// A client's code runs from here.
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

/// Where an engine has its memory from.
pub(super) struct Heap;

/// Whether code that wants so many bytes must end.
fn refuses(bytes: usize) -> bool {
    if !CODE_RUNS.get() {
        return false;
    }
    let asked = meter::spend(meter::CALL).and_then(|()| meter::spend_bytes(bytes));
    match asked.and_then(|()| meter::ask(bytes)) {
        Ok(()) => false,
        Err(error) => {
            note_end(error);
            true
        }
    }
}

// SAFETY: what is given comes from an allocator that keeps the promises of the trait, or is null.
unsafe impl Allocator for Heap {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if refuses(size) { ptr::null_mut() } else { RustAllocator.alloc(size) }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let bytes = count.saturating_mul(size);
        if refuses(bytes) { ptr::null_mut() } else { RustAllocator.calloc(count, size) }
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: all pointers that the engine has are of this allocator.
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
