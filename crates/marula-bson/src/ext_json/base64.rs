//! Base64 with padding (RFC 4648, section 4).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` in base64 to `out`.
pub fn encode(bytes: &[u8], out: &mut String) {
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - group.len()));
        for index in 0..4 {
            let sextet = bits >> (18 - 6 * index) & 0x3F;
            // A sextet is below 64.
            let symbol = ALPHABET.get(sextet as usize).copied().unwrap_or(b'=');
            out.push(if index <= group.len() { char::from(symbol) } else { '=' });
        }
    }
}

/// Decodes base64; `None` when it is none.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take(2).take_while(|&&byte| byte == b'=').count();
    let (symbols, _) = text.split_at_checked(text.len() - padding)?;
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in symbols.chunks(4) {
        let mut bits = 0_u32;
        for &symbol in group {
            bits = bits << 6 | u32::from(sextet(symbol)?);
        }
        let unused = 6 * (4 - group.len());
        let [_, decoded @ ..] = (bits << unused).to_be_bytes();
        bytes.extend_from_slice(decoded.get(..group.len() - 1)?);
    }
    Some(bytes)
}

fn sextet(symbol: u8) -> Option<u8> {
    Some(match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}
