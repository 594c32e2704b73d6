//! The encoding of a text, which indexes of version 3 check.
//!
//! mongod reads a text as 32-bit characters. Bytes that have no such form are one error; characters
//! above U+10FFFF, which the form of UTF-8 permits, are another one, and only if the whole text has
//! that form.

use marula_error::{Result, errors};

errors! {
    malformed() = 28_755, "text contains invalid UTF-8";
    beyond_unicode() = BadValue, "text contains invalid UTF-8";
}

/// The bytes of a character from U+110000 to U+13FFFF.
const BEYOND_UNICODE_LENGTH: usize = 4;

/// Checks that a text is UTF-8.
///
/// Errors: this module's rows.
pub(super) fn check(text: &[u8]) -> Result<()> {
    let mut rest = text;
    let mut is_unicode = true;
    while let Err(error) = std::str::from_utf8(rest) {
        rest = &rest[error.valid_up_to()..];
        let [0xF4, 0x90..=0xBF, 0x80..=0xBF, 0x80..=0xBF, ..] = rest else {
            return Err(malformed());
        };
        is_unicode = false;
        rest = &rest[BEYOND_UNICODE_LENGTH..];
    }
    if is_unicode { Ok(()) } else { Err(beyond_unicode()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected codes are mongod 6.0's.
    #[test]
    fn a_text_is_utf_8() {
        let code = |text: &[u8]| check(text).map_err(|error| error.code().number()).err();
        let accepted: [&[u8]; 4] =
            [b"", b"caf\xC3\xA9", b"\xEF\xBF\xBF\xEF\xBF\xBE", b"\xF4\x8F\xBF\xBF"];
        for text in accepted {
            assert_eq!(code(text), None, "{text:?}");
        }
        let malformed: [&[u8]; 9] = [
            b"cat \xFF",
            b"\xC3(",
            b"\xE2\x82",
            b"\xED\xA0\x80",
            b"\xC0\x80",
            b"\xF0\x8F\xBF\xBF",
            b"\xF5\x80\x80\x80",
            b"\xF4\x90\x80",
            b"\xF4\x90\x80\x80 \xFF",
        ];
        for text in malformed {
            assert_eq!(code(text), Some(28_755), "{text:?}");
        }
        let beyond: [&[u8]; 3] =
            [b"\xF4\x90\x80\x80", b"\xF4\xBF\xBF\xBF", b"a\xF4\x90\x80\x80\xC3\xA9"];
        for text in beyond {
            assert_eq!(code(text), Some(2), "{text:?}");
        }
    }
}
