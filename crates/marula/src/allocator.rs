//! The allocator of the whole process, RocksDB included.
//!
//! glibc's allocator retains memory that many threads have freed, and locks when threads share an
//! arena; replies, requests and documents are allocated on one thread and often freed on another.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_long;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The smallest allocation that is counted: data that may grow without limit is in large
/// allocations, and they are few.
const COUNTED_BYTES_MIN: usize = 4 * 1024;

/// The total size of the counted allocations.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of bytes that the process holds in large allocations. RocksDB's memory, above
/// all its cache, is not included.
pub(crate) fn used_bytes() -> usize {
    USED.load(Ordering::Relaxed)
}

/// The last measured size of the process, and when it was measured: milliseconds since the first.
static RESIDENT: AtomicUsize = AtomicUsize::new(0);
static MEASURED_MS: AtomicU64 = AtomicU64::new(u64::MAX);

/// Returns the number of bytes that the system has given to the process, measured at most once a
/// millisecond. Zero where the system does not tell.
pub(crate) fn resident_bytes() -> usize {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let now_ms = u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX);
    if MEASURED_MS.swap(now_ms, Ordering::Relaxed) != now_ms {
        RESIDENT.store(measure().unwrap_or(0), Ordering::Relaxed);
    }
    RESIDENT.load(Ordering::Relaxed)
}

/// Source: `proc_pid_statm(5)`: the second number counts the resident pages.
fn measure() -> Option<usize> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = sizes.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size())
}

/// mimalloc, with large allocations counted.
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

// SAFETY: every call is passed on to mimalloc unchanged, and its result is returned.
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

/// The time before freed memory returns to the system. With the default of a second each large
/// reply to an occasional request would be written to pages that the kernel has to clear first.
const PURGE_DELAY: (mi_option_t, c_long) = (15, 10_000);

/// 2: memory returns only in whole large pages. Smaller pieces would split them, and they hold the
/// block cache: a lookup there would then wait for page tables too.
const ALLOW_THP: (mi_option_t, c_long) = (43, 2);

/// Sets the options that differ from mimalloc's defaults. Environment variables
/// (`MIMALLOC_PURGE_DELAY`) have no effect then.
#[allow(unsafe_code)]
pub(crate) fn configure() {
    for (option, value) in [PURGE_DELAY, ALLOW_THP] {
        // SAFETY: an option is a number that mimalloc reads when it needs it; an unknown one is
        // ignored.
        unsafe { mi_option_set(option, value) };
    }
}

/// The time that freed memory is kept, in milliseconds, under a memory limit.
const PURGE_DELAY_BOUNDED: c_long = 100;

/// Returns freed memory to the system sooner.
#[allow(unsafe_code)]
pub(crate) fn give_back_soon() {
    // SAFETY: as above.
    unsafe { mi_option_set(PURGE_DELAY.0, PURGE_DELAY_BOUNDED) };
}

/// Returns to the system what this thread has freed.
#[allow(unsafe_code)]
pub(crate) fn give_back() {
    // SAFETY: the function takes no memory of ours, and any thread may call it.
    unsafe { mi_collect(true) };
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
        assert!(resident_bytes() > 0);
        drop(piece);
        assert!(used_bytes() < before + (64 << 20));
    }

    /// Rust's binding does not have these options: the numbers are those of mimalloc 3, whose
    /// defaults they have.
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
