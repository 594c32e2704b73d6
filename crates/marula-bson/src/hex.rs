//! Bytes as hexadecimal digits.

/// The lower-case digits of `bytes`, two per byte.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    append(bytes, &mut text);
    text
}

/// Parses pairs of digits; `None` if the text is malformed.
pub fn parse(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
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
    }
}
