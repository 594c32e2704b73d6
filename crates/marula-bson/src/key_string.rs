//! Key strings: bytes whose order is the order of the values.
//!
//! The law: `order::compare(a, b)` is the byte order of the keys of `a` and `b`; tuples compare by
//! their first difference, and all bytes of a descending part are inverted. The encoding of a value
//! is never a prefix of another's, so keys concatenate, and any bytes (a record id) may follow. All
//! keys whose tuple starts with given values start with the bytes of these values: a range that
//! includes them starts at the bytes themselves, a range after them at the [`successor`] of the
//! bytes.
//!
//! A key encodes equal values the same way: the four number types, −0, the digits of a decimal,
//! symbols. *Type bits*, stored next to the key, record the difference, so that [`KeyStringReader`]
//! restores the exact value. They are empty for the usual types.
//!
//! ```text
//! type           tag          content (numbers big-endian)
//! MinKey         0x0A
//! undefined      0x0E
//! null           0x12
//! number         0x20–0x35    see `number`
//! string         0x3C         text; 00 as 01 01, 01 as 01 02; then 00;
//!                             with a collator its sort key in the same way
//! document       0x46         per field: class + 2, name, 00, value with its tag; then 01
//! array          0x50         values with their tags; then 01
//! binary         0x5A         length (1, or FF and 4), subtype, content
//! ObjectId       0x64         12 bytes
//! false, true    0x6E, 0x6F
//! date           0x78         milliseconds (8), sign bit flipped
//! timestamp      0x82         8 bytes
//! regex          0x8C         pattern, 00, options, 00
//! DBPointer      0x96         length (4), namespace, 12 bytes
//! code           0xA0         text as in a string
//! code w. scope  0xAA         text as in a string; fields as in a document, no collator
//! MaxKey         0xF0
//!
//! type bits      bytes        content, per value that is not of its key's usual type, in order
//! head           1            low 3 bits: kind; high 5: strings and numbers skipped before,
//!                             31: the number is in the next 4 bytes (little-endian)
//! decimal        2            kind 3 only, little-endian: exponent + 6176, and 0x8000 for a minus
//! ```

mod head;
mod number;
mod read;
mod skip;
mod type_bits;

use crate::order::canonical_class;
use crate::{Binary, Collator, Doc, Value};

pub use head::part_head;
pub use read::KeyStringReader;
pub use skip::part_length;
use type_bits::{Kind, TypeBits};

/// The maximum nesting of an encoded or decoded value; validation rejects deeper documents.
const DEPTH_MAX: u32 = 256;

/// Ends a document or an array; less than every tag and class.
const END: u8 = 0x01;
/// Added to a class, so that it is greater than [`END`].
const CLASS_BASE: u8 = 2;

mod tag {
    pub(super) const MIN_KEY: u8 = 0x0A;
    pub(super) const UNDEFINED: u8 = 0x0E;
    pub(super) const NULL: u8 = 0x12;
    pub(super) const NUMBER_FIRST: u8 = 0x20;
    pub(super) const NUMBER_LAST: u8 = 0x35;
    pub(super) const STRING: u8 = 0x3C;
    pub(super) const DOCUMENT: u8 = 0x46;
    pub(super) const ARRAY: u8 = 0x50;
    pub(super) const BINARY: u8 = 0x5A;
    pub(super) const OBJECT_ID: u8 = 0x64;
    pub(super) const FALSE: u8 = 0x6E;
    pub(super) const TRUE: u8 = 0x6F;
    pub(super) const DATE: u8 = 0x78;
    pub(super) const TIMESTAMP: u8 = 0x82;
    pub(super) const REGEX: u8 = 0x8C;
    pub(super) const DB_POINTER: u8 = 0x96;
    pub(super) const CODE: u8 = 0xA0;
    pub(super) const CODE_WITH_SCOPE: u8 = 0xAA;
    pub(super) const MAX_KEY: u8 = 0xF0;
}

/// Appends the key of one ascending value to `key`, without type bits: sufficient for lookups and
/// bounds.
#[inline]
pub fn encode_value(value: Value<'_>, collator: Option<&dyn Collator>, key: &mut Vec<u8>) {
    Encoder { key, type_bits: None, collator }.value(value, 0);
}

/// Appends the key of one value to `key`; inverts its bytes for a descending part.
pub fn encode_part(
    value: Value<'_>,
    descending: bool,
    collator: Option<&dyn Collator>,
    key: &mut Vec<u8>,
) {
    let start = key.len();
    encode_value(value, collator, key);
    if descending {
        invert(key, start);
    }
}

/// The least byte string greater than every string that starts with `key`; `None` when there is
/// none.
///
/// A key string always has a successor.
pub fn successor(key: &[u8]) -> Option<Vec<u8>> {
    let last = key.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut next = key.get(..=last)?.to_vec();
    *next.last_mut()? += 1;
    Some(next)
}

/// Encodes tuples of values, reusing its buffers.
#[derive(Clone, Default)]
pub struct KeyStringWriter {
    key: Vec<u8>,
    type_bits: TypeBits,
}

impl KeyStringWriter {
    /// Creates a writer with an empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a new key with `prefix`, which is copied unchanged.
    pub fn reset(&mut self, prefix: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.type_bits.clear();
    }

    /// Appends the next value of the tuple.
    pub fn push(
        &mut self,
        value: Value<'_>,
        descending: bool,
        collator: Option<&dyn Collator>,
    ) -> &mut Self {
        let start = self.key.len();
        let mut encoder =
            Encoder { key: &mut self.key, type_bits: Some(&mut self.type_bits), collator };
        encoder.value(value, 0);
        if descending {
            invert(&mut self.key, start);
        }
        self
    }

    /// Appends bytes unchanged, such as a record id after the values.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.key.extend_from_slice(bytes);
        self
    }

    /// The key so far.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The type bits of the values so far.
    pub fn type_bits(&self) -> &[u8] {
        self.type_bits.bytes()
    }
}

/// Encodes a whole tuple of values, each with its direction. Appends to both buffers.
pub fn encode<'v>(
    values: impl IntoIterator<Item = (Value<'v>, bool)>,
    collator: Option<&dyn Collator>,
    key: &mut Vec<u8>,
    type_bits: &mut Vec<u8>,
) {
    let mut bits = TypeBits::default();
    for (value, descending) in values {
        let start = key.len();
        Encoder { key, type_bits: Some(&mut bits), collator }.value(value, 0);
        if descending {
            invert(key, start);
        }
    }
    type_bits.extend_from_slice(bits.bytes());
}

fn invert(key: &mut [u8], start: usize) {
    key.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
}

struct Encoder<'a> {
    key: &'a mut Vec<u8>,
    type_bits: Option<&'a mut TypeBits>,
    collator: Option<&'a dyn Collator>,
}

impl Encoder<'_> {
    #[inline]
    fn value(&mut self, value: Value<'_>, depth: u32) {
        match value {
            Value::ObjectId(id) => self.tagged(tag::OBJECT_ID, &id.bytes()),
            Value::Int32(number) => {
                self.usual();
                number::encode_i64(i64::from(number), self.key);
            }
            Value::String(text) => {
                self.usual();
                self.string(text);
            }
            value => self.other(value, depth),
        }
    }

    fn other(&mut self, value: Value<'_>, depth: u32) {
        match value {
            Value::ObjectId(_) | Value::Int32(_) | Value::String(_) => self.value(value, depth),
            Value::MinKey => self.key.push(tag::MIN_KEY),
            Value::Undefined => self.key.push(tag::UNDEFINED),
            Value::Null => self.key.push(tag::NULL),
            Value::Int64(number) => {
                // The least long has the key of a double, since its magnitude exceeds the range of
                // integer keys.
                match i32::try_from(number) {
                    Err(_) if number != i64::MIN => self.usual(),
                    _ => self.unusual(Kind::Long),
                }
                number::encode_i64(number, self.key);
            }
            Value::Double(number) => {
                if let Some(type_bits) = &mut self.type_bits {
                    match number::kind_of_double(number) {
                        Some(kind) => type_bits.push(kind),
                        None => type_bits.skip(),
                    }
                }
                number::encode_f64(number, self.key);
            }
            Value::Decimal128(number) => {
                self.unusual(Kind::of_decimal(number));
                number::encode_decimal(number, self.key);
            }
            Value::Symbol(text) => {
                self.unusual(Kind::Symbol);
                self.string(text);
            }
            Value::Document(doc) => {
                self.key.push(tag::DOCUMENT);
                self.fields(doc, depth);
            }
            Value::Array(array) => {
                self.key.push(tag::ARRAY);
                if depth < DEPTH_MAX {
                    array.values().for_each(|value| self.value(value, depth + 1));
                }
                self.key.push(END);
            }
            Value::Binary(binary) => self.binary(binary),
            Value::Boolean(false) => self.key.push(tag::FALSE),
            Value::Boolean(true) => self.key.push(tag::TRUE),
            Value::DateTime(ms) => {
                self.tagged(tag::DATE, &(ms.cast_unsigned() ^ 1 << 63).to_be_bytes());
            }
            Value::Timestamp(bits) => self.tagged(tag::TIMESTAMP, &bits.to_be_bytes()),
            Value::Regex { pattern, options } => {
                self.tagged(tag::REGEX, pattern);
                self.tagged(0, options);
                self.key.push(0);
            }
            Value::DbPointer { ns, id } => {
                self.tagged(tag::DB_POINTER, &length_u32(ns.len()));
                self.key.extend_from_slice(ns);
                self.key.extend_from_slice(&id.bytes());
            }
            Value::Code(code) => {
                self.key.push(tag::CODE);
                self.text(code);
            }
            Value::CodeWithScope { code, scope } => {
                self.key.push(tag::CODE_WITH_SCOPE);
                self.text(code);
                let collator = self.collator.take();
                self.fields(scope, depth);
                self.collator = collator;
            }
            Value::MaxKey => self.key.push(tag::MAX_KEY),
        }
    }

    #[inline]
    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.key.push(tag);
        self.key.extend_from_slice(bytes);
    }

    fn fields(&mut self, doc: Doc<'_>, depth: u32) {
        if depth < DEPTH_MAX {
            for element in doc {
                self.tagged(canonical_class(element.value.kind()) + CLASS_BASE, element.name);
                self.key.push(0);
                self.value(element.value.get(), depth + 1);
            }
        }
        self.key.push(END);
    }

    fn binary(&mut self, binary: Binary<'_>) {
        self.key.push(tag::BINARY);
        match u8::try_from(binary.bytes.len()) {
            Ok(length) if length < u8::MAX => self.key.push(length),
            _ => self.tagged(u8::MAX, &length_u32(binary.bytes.len())),
        }
        self.tagged(binary.subtype, binary.bytes);
    }

    #[inline]
    fn string(&mut self, text: &[u8]) {
        self.key.push(tag::STRING);
        match self.collator {
            None => self.text(text),
            Some(collator) => {
                let start = self.key.len();
                collator.sort_key(text, self.key);
                escape_in_place(self.key, start);
                self.key.push(0);
            }
        }
    }

    #[inline]
    fn text(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some(at) = memchr::memchr2(0, 1, rest) {
            let (clean, tail) = rest.split_at(at);
            self.key.extend_from_slice(clean);
            let Some((byte, tail)) = tail.split_first() else { break };
            self.key.extend_from_slice(&[1, byte + 1]);
            rest = tail;
        }
        self.key.extend_from_slice(rest);
        self.key.push(0);
    }

    #[inline]
    fn usual(&mut self) {
        if let Some(type_bits) = &mut self.type_bits {
            type_bits.skip();
        }
    }

    fn unusual(&mut self, kind: Kind) {
        if let Some(type_bits) = &mut self.type_bits {
            type_bits.push(kind);
        }
    }
}

fn length_u32(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("a BSON value is shorter than 2 GiB").to_be_bytes()
}

/// Escapes the bytes of `key` from `start` on like text, without a second buffer.
fn escape_in_place(key: &mut Vec<u8>, start: usize) {
    let escapes = key.iter().skip(start).filter(|&&byte| byte <= 1).count();
    let (mut from, mut to) = (key.len(), key.len() + escapes);
    key.resize(to, 0);
    // Works from the end; when the two positions meet, the rest needs no change.
    while from != to && from > start {
        from -= 1;
        let Some(&byte) = key.get(from) else { return };
        let escaped = [1, byte + u8::from(byte <= 1)];
        let width = if byte <= 1 { 2 } else { 1 };
        to -= width;
        if let Some(place) = key.get_mut(to..to + width) {
            place.copy_from_slice(escaped.get(2 - width..).unwrap_or(&[]));
        }
    }
}

#[cfg(test)]
mod tests;
