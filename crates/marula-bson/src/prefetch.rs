//! Telling the processor what is read soon.

/// Begins to fetch the line of memory that lies `ahead` bytes behind the beginning of `bytes`.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn line_of(bytes: &[u8], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it changes nothing that the program can see, and an address
        // that cannot be read is passed over.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, ahead);
}
