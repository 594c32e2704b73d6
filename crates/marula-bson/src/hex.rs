//! Bytes as hexadecimal digits.

/// The lower-case digits of `bytes`, two per byte.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    append(bytes, &mut text);
    text
}

/// Parses pairs of digits; `None` if the text is malformed.
pub fn parse(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.chunks(2);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    };
    pairs.map(byte).collect()
}

/// Appends the digits of `bytes` to `out`.
pub fn append(bytes: &[u8], out: &mut String) {
    let digit = |half: u8| char::from(half + if half < 10 { b'0' } else { b'a' - 10 });
    out.reserve(bytes.len() * 2);
    for &byte in bytes {
        out.push(digit(byte >> 4));
        out.push(digit(byte & 0x0f));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_byte_is_two_digits() {
        assert_eq!(super::text(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(super::text(&[]), "");
        assert_eq!(super::parse(b"000aFF"), Some(vec![0, 0x0a, 0xff]));
        assert_eq!(super::parse(b""), Some(Vec::new()));
    }

    #[test]
    fn anything_but_pairs_of_digits_is_refused() {
        for text in ["0", "000", "0g", "+1", "-1", "0x", " 1", "é"] {
            assert_eq!(super::parse(text.as_bytes()), None, "{text}");
        }
    }
}
