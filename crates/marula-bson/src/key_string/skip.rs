//! Finds the end of a value of a key string without decoding it.

use super::number::{self, KeyBytes};
use super::{DEPTH_MAX, END, tag};

/// The size in bytes of the first value of `key`; `None` when the bytes are not a key string.
pub fn part_length(key: &[u8], descending: bool) -> Option<usize> {
    let mask = if descending { u8::MAX } else { 0 };
    let mut skipper = Skipper { rest: key, mask };
    skipper.value(0)?;
    Some(key.len() - skipper.rest.len())
}

struct Skipper<'a> {
    rest: &'a [u8],
    /// All bits set in a descending part.
    mask: u8,
}

impl KeyBytes for Skipper<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte ^ self.mask)
    }
}

impl Skipper<'_> {
    fn value(&mut self, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.byte()? {
            tag::MIN_KEY | tag::UNDEFINED | tag::NULL | tag::FALSE | tag::TRUE | tag::MAX_KEY => {
                Some(())
            }
            number @ tag::NUMBER_FIRST..=tag::NUMBER_LAST => {
                number::decode(number, self).map(|_| ())
            }
            tag::STRING | tag::CODE => self.text(),
            tag::DOCUMENT => self.fields(depth),
            tag::ARRAY => self.elements(depth),
            tag::BINARY => {
                let length = match self.byte()? {
                    u8::MAX => self.length()?,
                    length => usize::from(length),
                };
                // The subtype precedes the content.
                self.bytes(length.checked_add(1)?)
            }
            tag::OBJECT_ID => self.bytes(12),
            tag::DATE | tag::TIMESTAMP => self.bytes(8),
            tag::REGEX => {
                self.text()?;
                self.text()
            }
            tag::DB_POINTER => {
                let length = self.length()?;
                self.bytes(length.checked_add(12)?)
            }
            tag::CODE_WITH_SCOPE => {
                self.text()?;
                self.fields(depth)
            }
            _ => None,
        }
    }

    fn fields(&mut self, depth: u32) -> Option<()> {
        while self.byte()? != END {
            self.text()?;
            self.value(depth + 1)?;
        }
        Some(())
    }

    fn elements(&mut self, depth: u32) -> Option<()> {
        while *self.rest.first()? ^ self.mask != END {
            self.value(depth + 1)?;
        }
        self.byte().map(|_| ())
    }

    /// Text ends with its first zero; zeros inside it are escaped.
    fn text(&mut self) -> Option<()> {
        let end = memchr::memchr(self.mask, self.rest)?;
        self.rest = self.rest.get(end + 1..)?;
        Some(())
    }

    fn length(&mut self) -> Option<usize> {
        let (bytes, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        usize::try_from(u32::from_be_bytes(bytes.map(|byte| byte ^ self.mask))).ok()
    }

    fn bytes(&mut self, count: usize) -> Option<()> {
        self.rest = self.rest.get(count..)?;
        Some(())
    }
}
