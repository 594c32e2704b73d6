//! Decodes key strings into BSON.

use super::number::{self, KeyBytes};
use super::type_bits::{Kind, TypeBitsReader};
use super::{CLASS_BASE, DEPTH_MAX, END, tag};
use crate::order::canonical_class;
use crate::writer::write_decimal;
use crate::{Binary, DocWriter, ObjectId, Type, Value, ValueBuf};

/// Decodes the values of a key string in order.
///
/// Every method returns `None` when the bytes are not a key string with these type bits. Strings of
/// a key with a collation decode as their sort keys: such an index covers no query that returns
/// strings.
#[derive(Clone)]
pub struct KeyStringReader<'a> {
    key: &'a [u8],
    type_bits: TypeBitsReader<'a>,
}

impl<'a> KeyStringReader<'a> {
    /// Starts at the front of `key`, after any prefix.
    pub fn new(key: &'a [u8], type_bits: &'a [u8]) -> Option<Self> {
        Some(KeyStringReader { key, type_bits: TypeBitsReader::new(type_bits)? })
    }

    /// Decodes the next value.
    pub fn read(&mut self, descending: bool) -> Option<ValueBuf> {
        let mut bytes = Vec::new();
        let kind = self.decoder(descending).value(&mut bytes, 0)?;
        Some(ValueBuf::from_parts(kind, bytes))
    }

    /// Decodes the next value into a field of `doc`.
    pub fn read_into(
        &mut self,
        descending: bool,
        name: impl AsRef<[u8]>,
        doc: &mut DocWriter<'_>,
    ) -> Option<()> {
        let mut decoder = self.decoder(descending);
        doc.append_with(name.as_ref(), |out| decoder.value(out, 0))
    }

    /// Skips the next value.
    pub fn skip(&mut self, descending: bool) -> Option<()> {
        self.decoder(descending).value(&mut Vec::new(), 0).map(|_| ())
    }

    /// The bytes after the values decoded so far.
    pub fn rest(&self) -> &'a [u8] {
        self.key
    }

    fn decoder(&mut self, descending: bool) -> Decoder<'_, 'a> {
        let mask = if descending { u8::MAX } else { 0 };
        Decoder { key: &mut self.key, mask, type_bits: &mut self.type_bits }
    }
}

struct Decoder<'r, 'a> {
    key: &'r mut &'a [u8],
    /// All bits set in a descending part.
    mask: u8,
    type_bits: &'r mut TypeBitsReader<'a>,
}

impl KeyBytes for Decoder<'_, '_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.key.split_first()?;
        *self.key = rest;
        Some(byte ^ self.mask)
    }
}

impl Decoder<'_, '_> {
    /// Decodes a value, appends its BSON bytes to `out` and returns its type.
    fn value(&mut self, out: &mut Vec<u8>, depth: u32) -> Option<Type> {
        if depth > DEPTH_MAX {
            return None;
        }
        let tag = self.byte()?;
        let value = match tag {
            tag::MIN_KEY => Value::MinKey,
            tag::UNDEFINED => Value::Undefined,
            tag::NULL => Value::Null,
            tag::NUMBER_FIRST..=tag::NUMBER_LAST => {
                let number = number::decode(tag, self)?;
                number.value(self.type_bits.read()?)?
            }
            tag::STRING => {
                let kind = match self.type_bits.read()? {
                    None => Type::String,
                    Some(Kind::Symbol) => Type::Symbol,
                    Some(_) => return None,
                };
                self.text(out)?;
                return Some(kind);
            }
            tag::DOCUMENT => {
                self.fields(out, depth)?;
                return Some(Type::Document);
            }
            tag::ARRAY => {
                self.elements(out, depth)?;
                return Some(Type::Array);
            }
            tag::BINARY => {
                let length = match self.byte()? {
                    u8::MAX => u32::from_be_bytes(self.array()?),
                    length => u32::from(length),
                };
                let subtype = self.byte()?;
                let bytes = self.bytes(length)?;
                Value::Binary(Binary { subtype, bytes: &bytes }).write(out);
                return Some(Type::Binary);
            }
            tag::OBJECT_ID => Value::ObjectId(ObjectId::from_bytes(self.array()?)),
            tag::FALSE => Value::Boolean(false),
            tag::TRUE => Value::Boolean(true),
            tag::DATE => {
                Value::DateTime((u64::from_be_bytes(self.array()?) ^ 1 << 63).cast_signed())
            }
            tag::TIMESTAMP => Value::Timestamp(u64::from_be_bytes(self.array()?)),
            tag::REGEX => {
                self.c_string(out)?;
                self.c_string(out)?;
                return Some(Type::Regex);
            }
            tag::DB_POINTER => {
                let length = u32::from_be_bytes(self.array()?);
                let ns = self.bytes(length)?;
                let id = ObjectId::from_bytes(self.array()?);
                Value::DbPointer { ns: ns.as_slice().into(), id }.write(out);
                return Some(Type::DbPointer);
            }
            tag::CODE => {
                self.text(out)?;
                return Some(Type::Code);
            }
            tag::CODE_WITH_SCOPE => {
                let start = begin(out);
                self.text(out)?;
                self.fields(out, depth)?;
                patch_length(out, start)?;
                return Some(Type::CodeWithScope);
            }
            tag::MAX_KEY => Value::MaxKey,
            _ => return None,
        };
        value.write(out);
        Some(value.kind())
    }

    fn fields(&mut self, out: &mut Vec<u8>, depth: u32) -> Option<()> {
        let start = begin(out);
        loop {
            let class = self.byte()?;
            if class == END {
                break;
            }
            let tag_at = out.len();
            out.push(0);
            self.c_string(out)?;
            let kind = self.value(out, depth + 1)?;
            if class != canonical_class(kind) + CLASS_BASE {
                return None;
            }
            *out.get_mut(tag_at)? = kind.tag();
        }
        out.push(0);
        patch_length(out, start)
    }

    fn elements(&mut self, out: &mut Vec<u8>, depth: u32) -> Option<()> {
        let start = begin(out);
        for index in 0.. {
            if self.key.first()? ^ self.mask == END {
                self.byte()?;
                break;
            }
            let tag_at = out.len();
            out.push(0);
            write_decimal(index, out);
            out.push(0);
            let kind = self.value(out, depth + 1)?;
            *out.get_mut(tag_at)? = kind.tag();
        }
        out.push(0);
        patch_length(out, start)
    }

    /// Decodes escaped text into a BSON string.
    fn text(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let start = begin(out);
        loop {
            match self.byte()? {
                0 => break,
                1 => match self.byte()? {
                    escaped @ 1..=2 => out.push(escaped - 1),
                    _ => return None,
                },
                byte => out.push(byte),
            }
        }
        out.push(0);
        let length = u32::try_from(out.len() - start - 4).ok()?;
        out.get_mut(start..start + 4)?.copy_from_slice(&length.to_le_bytes());
        Some(())
    }

    /// Reads bytes up to and including a NUL.
    fn c_string(&mut self, out: &mut Vec<u8>) -> Option<()> {
        loop {
            let byte = self.byte()?;
            out.push(byte);
            if byte == 0 {
                return Some(());
            }
        }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.key.split_first_chunk::<N>()?;
        *self.key = rest;
        Some(bytes.map(|byte| byte ^ self.mask))
    }

    fn bytes(&mut self, length: u32) -> Option<Vec<u8>> {
        let (bytes, rest) = self.key.split_at_checked(usize::try_from(length).ok()?)?;
        *self.key = rest;
        Some(bytes.iter().map(|byte| byte ^ self.mask).collect())
    }
}

/// Reserves a length field.
fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Sets the length field at `start`; the length includes the field.
fn patch_length(out: &mut [u8], start: usize) -> Option<()> {
    let length = i32::try_from(out.len() - start).ok()?;
    out.get_mut(start..start + 4)?.copy_from_slice(&length.to_le_bytes());
    Some(())
}
