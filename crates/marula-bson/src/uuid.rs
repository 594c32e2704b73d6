//! UUIDs: generation and text form.

use crate::hex;

/// A random UUID, version 4.
pub fn generate() -> [u8; 16] {
    let mut bytes: [u8; 16] = rand::random();
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes
}

/// The text form of a UUID: its digits in five groups.
pub fn text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        hex::append(&[*byte], &mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn digits_stand_in_five_groups() {
        let uuid = *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";
        assert_eq!(super::text(&uuid), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn version_and_variant_are_in_their_places() {
        let (one, other) = (super::generate(), super::generate());
        assert_ne!(one, other);
        for uuid in [one, other] {
            assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2));
        }
    }
}
