//! Finding the NUL that ends a field name.

/// The index of the first NUL.
///
/// Names are short: two words of eight bytes are looked at before a search that pays off on long ones.
#[inline]
pub(crate) fn find_nul(bytes: &[u8]) -> Option<usize> {
    let Some((first, behind)) = bytes.split_first_chunk() else { return find_nul_short(bytes) };
    if let Some(at) = nul_in_word(*first) {
        return Some(at);
    }
    let Some((second, far)) = behind.split_first_chunk() else {
        return Some(8 + find_nul_short(behind)?);
    };
    match nul_in_word(*second) {
        Some(at) => Some(8 + at),
        None => Some(16 + memchr::memchr(0, far)?),
    }
}

#[inline]
fn nul_in_word(bytes: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);
    let word = u64::from_le_bytes(bytes);
    // The lowest bit set is in the first zero byte; a borrow may set wrong ones above it.
    let zeros = word.wrapping_sub(ONES) & !word & HIGH_BITS;
    (zeros != 0).then(|| (zeros.trailing_zeros() / 8) as usize)
}

#[inline]
fn find_nul_short(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::find_nul;

    #[test]
    fn the_first_nul_is_found_at_every_place() {
        for length in 0..40 {
            for fill in [1, 0x80, 0xFF] {
                let mut bytes = vec![fill; length];
                assert_eq!(find_nul(&bytes), None);
                for at in (0..length).rev() {
                    bytes[at] = 0;
                    assert_eq!(find_nul(&bytes), Some(at));
                }
            }
        }
    }
}
