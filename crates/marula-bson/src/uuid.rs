//! UUIDs that Marula makes itself.

/// A random UUID, version 4.
pub fn generate() -> [u8; 16] {
    let mut bytes: [u8; 16] = rand::random();
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn version_and_variant_are_in_their_places() {
        let (one, other) = (super::generate(), super::generate());
        assert_ne!(one, other);
        for uuid in [one, other] {
            assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2));
        }
    }
}
