//! The first eight bytes of a key as a number, computed without writing the key; they distinguish
//! most keys.
//!
//! A short key is padded with zeros. No key is a prefix of another, so two keys with different
//! heads compare like their heads; equal heads do not decide.

use super::{number, tag};
use crate::{RawValue, Type};

/// A head and the number of its bytes that belong to the key.
pub(super) type Head = (u64, u32);

/// The size of a head in bytes.
const BYTES: usize = size_of::<u64>();

/// The first eight bytes of the key of one value; `None` where computing them needs the whole key:
/// for arrays, documents and similar types, and for text under a collator. They are computed from
/// the value's bytes: a sort reads them of every document and mostly needs nothing else.
#[inline]
pub fn part_head(value: RawValue<'_>, descending: bool, has_collator: bool) -> Option<u64> {
    let bytes = value.bytes();
    let (head, size) = match value.kind() {
        Type::Int32 => number::head_of_i64(i64::from(i32::from_le_bytes(*bytes.first_chunk()?))),
        Type::Int64 => number::head_of_i64(i64::from_le_bytes(*bytes.first_chunk()?)),
        Type::Double => number::head_of_f64(f64::from_le_bytes(*bytes.first_chunk()?)),
        Type::DateTime => tagged(tag::DATE, u64::from_le_bytes(*bytes.first_chunk()?) ^ 1 << 63),
        Type::Timestamp => tagged(tag::TIMESTAMP, u64::from_le_bytes(*bytes.first_chunk()?)),
        Type::ObjectId => tagged(tag::OBJECT_ID, u64::from_be_bytes(*bytes.first_chunk()?)),
        // Skip the length prefix and the final NUL.
        Type::String if !has_collator => text_head(bytes.get(4..bytes.len().checked_sub(1)?)?)?,
        Type::Null => alone(tag::NULL),
        Type::Boolean => alone(if *bytes.first()? == 0 { tag::FALSE } else { tag::TRUE }),
        _ => return None,
    };
    let of_the_key = u64::MAX << (u64::BITS - u8::BITS * size);
    Some(if descending { head ^ of_the_key } else { head })
}

/// The head of a tag and at least eight following bytes, which begin with `rest`.
#[inline]
pub(super) fn tagged(tag: u8, rest: u64) -> Head {
    (u64::from(tag) << 56 | rest >> 8, u64::BITS / u8::BITS)
}

/// The head of a tag without content.
#[inline]
pub(super) fn alone(tag: u8) -> Head {
    (u64::from(tag) << 56, 1)
}

/// The head of a text without escaped bytes at its start.
#[inline]
fn text_head(text: &[u8]) -> Option<Head> {
    let mut bytes = [0; BYTES];
    let (first, others) = bytes.split_first_mut()?;
    let shown = text.get(..BYTES - 1).unwrap_or(text);
    if shown.iter().any(|&byte| byte <= 1) {
        return None;
    }
    *first = tag::STRING;
    others.iter_mut().zip(shown).for_each(|(to, from)| *to = *from);
    // The tag, the text and its final NUL.
    let size = BYTES.min(text.len().saturating_add(2));
    Some((u64::from_be_bytes(bytes), u32::try_from(size).ok()?))
}
