//! The allocator of the whole process, RocksDB included.
//!
//! glibc's keeps what many threads have freed and takes a lock where they meet; replies, requests
//! and documents are allocated on one thread and often freed on another.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_long;
use std::sync::atomic::{AtomicUsize, Ordering};

use libmimalloc_sys::{mi_option_set, mi_option_t};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Pieces from this size on are counted: what may grow without end does so in such, and they are
/// few.
const COUNTED_BYTES_MIN: usize = 4 * 1024;

/// How many bytes the counted pieces have.
static USED: AtomicUsize = AtomicUsize::new(0);

/// How many bytes the process holds in large pieces. What RocksDB has, the cache above all, is not
/// among them.
pub(crate) fn used_bytes() -> usize {
    USED.load(Ordering::Relaxed)
}

/// mimalloc, with large pieces counted.
struct Counting;

fn count(size: usize) {
    if size >= COUNTED_BYTES_MIN {
        USED.fetch_add(size, Ordering::Relaxed);
    }
}

fn discount(size: usize) {
    if size >= COUNTED_BYTES_MIN {
        USED.fetch_sub(size, Ordering::Relaxed);
    }
}

// SAFETY: every call is mimalloc's, as it came; what it answers is handed on.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        discount(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        discount(layout.size());
        count(size);
        // SAFETY: as above.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}

/// How long freed memory is kept before it goes back to the system. After the default second each
/// large reply of a client that asks now and then would be written to pages that the kernel has to
/// clear first.
const PURGE_DELAY: (mi_option_t, c_long) = (15, 10_000);

/// 2: memory goes back in whole large pages only. Smaller pieces would break them up, and the cache
/// of blocks lies in them: a look-up there waits for the tables that lead to its page, too.
const ALLOW_THP: (mi_option_t, c_long) = (43, 2);

/// Sets what differs from mimalloc's defaults. Variables of the environment
/// (`MIMALLOC_PURGE_DELAY`) have no say then.
#[allow(unsafe_code)]
pub(crate) fn configure() {
    for (option, value) in [PURGE_DELAY, ALLOW_THP] {
        // SAFETY: an option is a number that mimalloc reads when it needs it; an unknown one is
        // passed over.
        unsafe { mi_option_set(option, value) };
    }
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[test]
    fn large_pieces_are_counted() {
        let before = used_bytes();
        let mut piece: Vec<u8> = Vec::with_capacity(256 << 20);
        assert!(used_bytes() >= before + (256 << 20) - (64 << 20));
        piece.push(1);
        drop(piece);
        assert!(used_bytes() < before + (64 << 20));
    }

    /// Rust's binding does not name these options: their numbers are those of mimalloc 3, where
    /// these are the defaults.
    #[test]
    #[allow(unsafe_code)]
    fn the_options_have_the_numbers_they_are_set_by() {
        for (option, default) in [(PURGE_DELAY, 1_000), (ALLOW_THP, 1)] {
            // SAFETY: as above; reading changes nothing.
            let get = || unsafe { mi_option_get(option.0) };
            assert_eq!(get(), default, "option {}", option.0);
        }
        configure();
        for (option, value) in [PURGE_DELAY, ALLOW_THP] {
            // SAFETY: as above.
            assert_eq!(unsafe { mi_option_get(option) }, value, "option {option}");
        }
    }
}
