//! Telling the processor what a scan reads next.
//!
//! Entries of a block lie behind one another. A scan of large documents jumps from the head of one
//! to the head of the next, further than the processor foresees by itself, and would wait for
//! memory at each.

/// Cache lines that are fetched: the head of the next entry, where its first fields are.
#[cfg(target_arch = "x86_64")]
const LINES: usize = 12;
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Begins to fetch what lies behind `value` in its block, which is most often the next entry.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn behind(value: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let end = value.as_ptr_range().end;
        for line in 0..LINES {
            // SAFETY: a prefetch is a hint: it changes nothing that the program can see, and an
            // address that cannot be read is passed over.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(end.wrapping_add(line * LINE_BYTES).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Lines of a value that are worth fetching ahead; behind them the processor has seen which way it
/// goes.
#[cfg(target_arch = "x86_64")]
const WHOLE_LINES_MAX: usize = 44;

/// Begins to fetch `value`, which is looked at soon.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn whole(value: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for line in 0..value.len().div_ceil(LINE_BYTES).min(WHOLE_LINES_MAX) {
            // SAFETY: as in `behind`.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(value.as_ptr().wrapping_add(line * LINE_BYTES).cast());
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
