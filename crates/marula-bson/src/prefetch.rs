//! Prefetches memory that is read soon.

/// Starts fetching the cache line `ahead` bytes after the start of `bytes`.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn line_of(bytes: &[u8], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it has no visible effect, and an unreadable address is
        // ignored.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, ahead);
}
