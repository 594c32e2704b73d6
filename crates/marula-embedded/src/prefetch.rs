//! Prefetches the memory that a scan reads next.
//!
//! Entries of a block are adjacent. A scan of large documents jumps from the start of one entry to
//! the start of the next, further than the processor's own prefetcher predicts, and would wait for
//! memory at each.

/// The number of cache lines to prefetch: the start of the next entry with its first fields.
#[cfg(target_arch = "x86_64")]
const LINES: usize = 12;
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Starts fetching the bytes after `value` in its block, which are usually the next entry.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn after(value: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let end = value.as_ptr_range().end;
        for line in 0..LINES {
            // SAFETY: a prefetch is a hint: it has no visible effect, and an unreadable address is
            // ignored.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(end.wrapping_add(line * LINE_BYTES).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// The maximum number of lines of a value to prefetch; after them the processor's own prefetcher
/// has taken over.
#[cfg(target_arch = "x86_64")]
const WHOLE_LINES_MAX: usize = 44;

/// Starts fetching `value`, which is read soon.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn whole(value: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for line in 0..value.len().div_ceil(LINE_BYTES).min(WHOLE_LINES_MAX) {
            // SAFETY: as in `after`.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(value.as_ptr().wrapping_add(line * LINE_BYTES).cast());
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
