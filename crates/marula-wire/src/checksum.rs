//! The CRC-32C at the end of an OP_MSG.
//!
//! It covers the whole message including the header, except itself; it is the last four bytes,
//! little-endian. For a compressed message it covers the uncompressed message with its header.

/// The size of a checksum.
pub const SIZE: usize = 4;

/// The checksum of a message that consists of `header` and `payload`.
pub fn of(header: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(of(b"1234", b"56789"), 0xe306_9283);
        assert_eq!(of(b"", b""), 0);
    }
}
