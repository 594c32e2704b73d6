//! One BSON value: its type, its bytes, and its decoded form.
//!
//! [`RawValue`] is a type and the bytes after the field name: cheap to skip and to copy. [`Value`]
//! is the decoded form, borrowed from the same bytes. [`ValueBuf`] owns a raw value.

use bstr::{BStr, ByteSlice};

use crate::{Decimal128, Doc, ObjectId};

/// A BSON type, by the tag byte that precedes a field's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Type {
    Double = 0x01,
    String = 0x02,
    Document = 0x03,
    Array = 0x04,
    Binary = 0x05,
    Undefined = 0x06,
    ObjectId = 0x07,
    Boolean = 0x08,
    DateTime = 0x09,
    Null = 0x0A,
    Regex = 0x0B,
    DbPointer = 0x0C,
    Code = 0x0D,
    Symbol = 0x0E,
    CodeWithScope = 0x0F,
    Int32 = 0x10,
    Timestamp = 0x11,
    Int64 = 0x12,
    Decimal128 = 0x13,
    MinKey = 0xFF,
    MaxKey = 0x7F,
}

impl Type {
    /// The type with this tag byte, if there is one.
    #[inline(always)]
    pub const fn from_tag(tag: u8) -> Option<Type> {
        Some(match tag {
            0x01 => Type::Double,
            0x02 => Type::String,
            0x03 => Type::Document,
            0x04 => Type::Array,
            0x05 => Type::Binary,
            0x06 => Type::Undefined,
            0x07 => Type::ObjectId,
            0x08 => Type::Boolean,
            0x09 => Type::DateTime,
            0x0A => Type::Null,
            0x0B => Type::Regex,
            0x0C => Type::DbPointer,
            0x0D => Type::Code,
            0x0E => Type::Symbol,
            0x0F => Type::CodeWithScope,
            0x10 => Type::Int32,
            0x11 => Type::Timestamp,
            0x12 => Type::Int64,
            0x13 => Type::Decimal128,
            0xFF => Type::MinKey,
            0x7F => Type::MaxKey,
            _ => return None,
        })
    }

    /// The tag byte.
    pub const fn tag(self) -> u8 {
        self as u8
    }

    /// The alias that `$type` takes and error messages print, such as `objectId`.
    pub const fn alias(self) -> &'static str {
        match self {
            Type::Double => "double",
            Type::String => "string",
            Type::Document => "object",
            Type::Array => "array",
            Type::Binary => "binData",
            Type::Undefined => "undefined",
            Type::ObjectId => "objectId",
            Type::Boolean => "bool",
            Type::DateTime => "date",
            Type::Null => "null",
            Type::Regex => "regex",
            Type::DbPointer => "dbPointer",
            Type::Code => "javascript",
            Type::Symbol => "symbol",
            Type::CodeWithScope => "javascriptWithScope",
            Type::Int32 => "int",
            Type::Timestamp => "timestamp",
            Type::Int64 => "long",
            Type::Decimal128 => "decimal",
            Type::MinKey => "minKey",
            Type::MaxKey => "maxKey",
        }
    }

    /// Whether values of this type are numbers.
    pub const fn is_number(self) -> bool {
        matches!(self, Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128)
    }
}

/// A BinData value: its subtype and its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binary<'a> {
    /// The subtype byte: 0 generic, 2 old, 4 UUID, …
    pub subtype: u8,
    /// The content, without the subtype byte; subtype 2 keeps its inner length prefix.
    pub bytes: &'a [u8],
}

/// One decoded value that borrows from its document's bytes.
///
/// `PartialEq` is identity of type and content (a double 1.0 is not an int 1); the order and
/// equality of the query language are in [`order`](crate::order).
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Value<'a> {
    Double(f64),
    String(&'a BStr),
    Document(Doc<'a>),
    /// The bytes of an array are a document with the names `"0"`, `"1"`, …
    Array(Doc<'a>),
    Binary(Binary<'a>),
    Undefined,
    ObjectId(ObjectId),
    Boolean(bool),
    /// Milliseconds since 1970-01-01T00:00:00Z.
    DateTime(i64),
    Null,
    Regex {
        pattern: &'a BStr,
        options: &'a BStr,
    },
    DbPointer {
        ns: &'a BStr,
        id: ObjectId,
    },
    Code(&'a BStr),
    Symbol(&'a BStr),
    CodeWithScope {
        code: &'a BStr,
        scope: Doc<'a>,
    },
    Int32(i32),
    /// Seconds in the upper half, an ordinal in the lower.
    Timestamp(u64),
    Int64(i64),
    Decimal128(Decimal128),
    MinKey,
    MaxKey,
}

/// A count, a size or a time as a long: the largest one if it is larger.
pub fn long(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

impl<'a> Value<'a> {
    /// A whole number in the type that mongod returns: an int if it fits, else a long.
    pub fn whole(number: impl TryInto<i64>) -> Value<'static> {
        let number = long(number);
        i32::try_from(number).map_or(Value::Int64(number), Value::Int32)
    }

    /// The value's type.
    pub const fn kind(&self) -> Type {
        match self {
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Document(_) => Type::Document,
            Value::Array(_) => Type::Array,
            Value::Binary(_) => Type::Binary,
            Value::Undefined => Type::Undefined,
            Value::ObjectId(_) => Type::ObjectId,
            Value::Boolean(_) => Type::Boolean,
            Value::DateTime(_) => Type::DateTime,
            Value::Null => Type::Null,
            Value::Regex { .. } => Type::Regex,
            Value::DbPointer { .. } => Type::DbPointer,
            Value::Code(_) => Type::Code,
            Value::Symbol(_) => Type::Symbol,
            Value::CodeWithScope { .. } => Type::CodeWithScope,
            Value::Int32(_) => Type::Int32,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Int64(_) => Type::Int64,
            Value::Decimal128(_) => Type::Decimal128,
            Value::MinKey => Type::MinKey,
            Value::MaxKey => Type::MaxKey,
        }
    }

    /// Appends the value's bytes (the part after the field's name) to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Double(number) => out.extend_from_slice(&number.to_le_bytes()),
            Value::String(text) | Value::Code(text) | Value::Symbol(text) => {
                write_string(text, out)
            }
            Value::Document(doc) | Value::Array(doc) => out.extend_from_slice(doc.as_bytes()),
            Value::Binary(Binary { subtype, bytes }) => {
                out.extend_from_slice(&length_prefix(bytes.len()));
                out.push(subtype);
                out.extend_from_slice(bytes);
            }
            Value::Undefined | Value::Null | Value::MinKey | Value::MaxKey => {}
            Value::ObjectId(id) => out.extend_from_slice(&id.bytes()),
            Value::Boolean(flag) => out.push(u8::from(flag)),
            Value::DateTime(ms) => out.extend_from_slice(&ms.to_le_bytes()),
            Value::Regex { pattern, options } => {
                out.extend_from_slice(pattern);
                out.push(0);
                out.extend_from_slice(options);
                out.push(0);
            }
            Value::DbPointer { ns, id } => {
                write_string(ns, out);
                out.extend_from_slice(&id.bytes());
            }
            Value::CodeWithScope { code, scope } => {
                let length = 4 + 4 + code.len() + 1 + scope.as_bytes().len();
                out.extend_from_slice(&length_prefix(length));
                write_string(code, out);
                out.extend_from_slice(scope.as_bytes());
            }
            Value::Int32(number) => out.extend_from_slice(&number.to_le_bytes()),
            Value::Timestamp(bits) => out.extend_from_slice(&bits.to_le_bytes()),
            Value::Int64(number) => out.extend_from_slice(&number.to_le_bytes()),
            Value::Decimal128(number) => out.extend_from_slice(&number.bytes()),
        }
    }

    /// The value as an owned copy of its bytes.
    pub fn to_buf(&self) -> ValueBuf {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        ValueBuf { kind: self.kind(), bytes }
    }

    /// The text of a string value.
    pub fn as_str(&self) -> Option<&'a BStr> {
        match *self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The document of an object value.
    pub fn as_doc(&self) -> Option<Doc<'a>> {
        match *self {
            Value::Document(doc) => Some(doc),
            _ => None,
        }
    }

    /// The elements of an array value.
    pub fn as_array(&self) -> Option<Doc<'a>> {
        match *self {
            Value::Array(doc) => Some(doc),
            _ => None,
        }
    }

    /// The value of a number of any type that is an exact integer in the range of i64.
    pub fn as_exact_i64(&self) -> Option<i64> {
        match *self {
            Value::Int32(number) => Some(i64::from(number)),
            Value::Int64(number) => Some(number),
            Value::Double(number) => exact_i64_of_double(number),
            Value::Decimal128(number) => number.to_exact_i64(),
            _ => None,
        }
    }

    /// The nearest double of a number of any type.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Int32(number) => Some(f64::from(number)),
            #[allow(clippy::cast_precision_loss)]
            Value::Int64(number) => Some(number as f64),
            Value::Double(number) => Some(number),
            Value::Decimal128(number) => Some(number.to_f64()),
            _ => None,
        }
    }

    /// Truth value in expressions and boolean options: false, zero, null and undefined are false.
    pub fn is_truthy(&self) -> bool {
        match *self {
            Value::Boolean(flag) => flag,
            Value::Null | Value::Undefined => false,
            Value::Int32(number) => number != 0,
            Value::Int64(number) => number != 0,
            Value::Double(number) => number != 0.0,
            Value::Decimal128(number) => !number.is_zero(),
            _ => true,
        }
    }

    /// Whether the value is null or undefined.
    pub fn is_nullish(&self) -> bool {
        matches!(self, Value::Null | Value::Undefined)
    }
}

/// The first double that exceeds the range of a long: two to the 63rd.
pub const LONG_END: f64 = 9_223_372_036_854_775_808.0;

/// The exact integer value of a double, if it is an integer in the range of i64.
pub fn exact_i64_of_double(number: f64) -> Option<i64> {
    if number.trunc() == number && (-LONG_END..LONG_END).contains(&number) {
        #[allow(clippy::cast_possible_truncation)]
        return Some(number as i64);
    }
    None
}

/// A double with up to 16 significant digits, as C's `%.16g` prints it: `5`, `0.1`, `1e+16`, `nan`,
/// `-inf`.
pub fn double_text(number: f64) -> String {
    const DIGITS: usize = 16;
    if !number.is_finite() {
        let text = if number.is_nan() { "nan" } else { "inf" };
        return format!("{}{text}", if number == f64::NEG_INFINITY { "-" } else { "" });
    }
    // Rounding to 16 digits may carry into the exponent, so the exponent is read after rounding.
    let scientific = format!("{number:.precision$e}", precision = DIGITS - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match usize::try_from(DIGITS as i32 - 1 - exponent) {
        Ok(decimals) if exponent >= -4 => trim(&format!("{number:.decimals$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(mantissa), exponent.unsigned_abs())
        }
    }
}

/// A type and the bytes after the field's name: a value that has not been decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawValue<'a> {
    kind: Type,
    bytes: &'a [u8],
}

impl<'a> RawValue<'a> {
    /// Combines a type and the bytes of a value of that type.
    ///
    /// The bytes must be exactly the value's; [`RawValue::read`] cuts them from a longer slice.
    pub const fn new(kind: Type, bytes: &'a [u8]) -> Self {
        RawValue { kind, bytes }
    }

    /// Cuts the value of type `kind` that starts at the front of `bytes`; `None` when they are too
    /// short.
    pub fn read(kind: Type, bytes: &'a [u8]) -> Option<Self> {
        let size = value_size(kind, bytes)?;
        Some(RawValue { kind, bytes: bytes.get(..size)? })
    }

    /// The value's type.
    pub const fn kind(self) -> Type {
        self.kind
    }

    /// The value's bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Decodes the value. Bytes that are too short for their type, which validation excludes,
    /// decode as null.
    #[inline]
    pub fn get(self) -> Value<'a> {
        self.decode().unwrap_or(Value::Null)
    }

    #[inline]
    fn decode(self) -> Option<Value<'a>> {
        let bytes = self.bytes;
        Some(match self.kind {
            Type::Double => Value::Double(f64::from_le_bytes(fixed(bytes)?)),
            Type::String => Value::String(string_content(bytes)?),
            Type::Document => Value::Document(Doc::trusted(bytes)),
            Type::Array => Value::Array(Doc::trusted(bytes)),
            Type::Binary => {
                Value::Binary(Binary { subtype: *bytes.get(4)?, bytes: bytes.get(5..)? })
            }
            Type::Undefined => Value::Undefined,
            Type::ObjectId => Value::ObjectId(ObjectId::from_bytes(fixed(bytes)?)),
            Type::Boolean => Value::Boolean(*bytes.first()? != 0),
            Type::DateTime => Value::DateTime(i64::from_le_bytes(fixed(bytes)?)),
            Type::Null => Value::Null,
            Type::Regex => {
                let end = memchr::memchr(0, bytes)?;
                let options = bytes.get(end + 1..bytes.len().checked_sub(1)?)?;
                Value::Regex { pattern: bytes.get(..end)?.as_bstr(), options: options.as_bstr() }
            }
            Type::DbPointer => {
                let split = bytes.len().checked_sub(12)?;
                let id = ObjectId::from_bytes(fixed(bytes.get(split..)?)?);
                Value::DbPointer { ns: string_content(bytes.get(..split)?)?, id }
            }
            Type::Code => Value::Code(string_content(bytes)?),
            Type::Symbol => Value::Symbol(string_content(bytes)?),
            Type::CodeWithScope => {
                let inner = bytes.get(4..)?;
                let split = 4usize.checked_add(read_length(inner)?)?;
                Value::CodeWithScope {
                    code: string_content(inner.get(..split)?)?,
                    scope: Doc::trusted(inner.get(split..)?),
                }
            }
            Type::Int32 => Value::Int32(i32::from_le_bytes(fixed(bytes)?)),
            Type::Timestamp => Value::Timestamp(u64::from_le_bytes(fixed(bytes)?)),
            Type::Int64 => Value::Int64(i64::from_le_bytes(fixed(bytes)?)),
            Type::Decimal128 => Value::Decimal128(Decimal128::from_bytes(fixed(bytes)?)),
            Type::MinKey => Value::MinKey,
            Type::MaxKey => Value::MaxKey,
        })
    }

    /// An owned copy.
    pub fn to_buf(self) -> ValueBuf {
        ValueBuf { kind: self.kind, bytes: self.bytes.to_vec() }
    }
}

/// A value that owns its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueBuf {
    kind: Type,
    bytes: Vec<u8>,
}

impl ValueBuf {
    /// Combines a type and the bytes of a value of that type.
    pub fn from_parts(kind: Type, bytes: Vec<u8>) -> Self {
        ValueBuf { kind, bytes }
    }

    /// The value's type.
    pub fn kind(&self) -> Type {
        self.kind
    }

    /// Replaces the value, reusing the allocation.
    pub fn set(&mut self, value: RawValue<'_>) {
        self.kind = value.kind();
        self.bytes.clear();
        self.bytes.extend_from_slice(value.bytes());
    }

    /// The value, borrowed and not decoded.
    pub fn as_raw(&self) -> RawValue<'_> {
        RawValue { kind: self.kind, bytes: &self.bytes }
    }

    /// The value, decoded.
    pub fn get(&self) -> Value<'_> {
        self.as_raw().get()
    }
}

impl<'a, T: Into<Value<'a>>> From<T> for ValueBuf {
    fn from(value: T) -> Self {
        value.into().to_buf()
    }
}

/// Entry of [`FIXED_SIZES`]: the size is in the value's bytes, or the tag is no type.
pub(crate) const SIZE_VARIES: u8 = u8::MAX;

/// The sizes of values by tag, for types of fixed size.
// The indexes are constants, checked when this is compiled.
#[allow(clippy::indexing_slicing)]
pub(crate) static FIXED_SIZES: [u8; 256] = {
    let mut sizes = [SIZE_VARIES; 256];
    sizes[Type::Double as usize] = 8;
    sizes[Type::Undefined as usize] = 0;
    sizes[Type::ObjectId as usize] = 12;
    sizes[Type::Boolean as usize] = 1;
    sizes[Type::DateTime as usize] = 8;
    sizes[Type::Null as usize] = 0;
    sizes[Type::Int32 as usize] = 4;
    sizes[Type::Timestamp as usize] = 8;
    sizes[Type::Int64 as usize] = 8;
    sizes[Type::Decimal128 as usize] = 16;
    sizes[Type::MinKey as usize] = 0;
    sizes[Type::MaxKey as usize] = 0;
    sizes
};

/// The size in bytes of the value of type `kind` at the front of `bytes`; `None` when they are too
/// short. The result may exceed `bytes`: the caller checks it.
#[inline(always)]
pub(crate) fn value_size(kind: Type, bytes: &[u8]) -> Option<usize> {
    Some(match kind {
        Type::Undefined | Type::Null | Type::MinKey | Type::MaxKey => 0,
        Type::Boolean => 1,
        Type::Int32 => 4,
        Type::Double | Type::DateTime | Type::Timestamp | Type::Int64 => 8,
        Type::ObjectId => 12,
        Type::Decimal128 => 16,
        Type::String | Type::Code | Type::Symbol => read_length(bytes)?.checked_add(4)?,
        Type::Document | Type::Array | Type::CodeWithScope => read_length(bytes)?,
        Type::Binary => read_length(bytes)?.checked_add(5)?,
        Type::DbPointer => read_length(bytes)?.checked_add(16)?,
        Type::Regex => {
            let pattern = memchr::memchr(0, bytes)?;
            let options = memchr::memchr(0, bytes.get(pattern + 1..)?)?;
            pattern + options + 2
        }
    })
}

/// Reads a non-negative little-endian i32 from the front of `bytes`.
#[inline]
pub(crate) fn read_length(bytes: &[u8]) -> Option<usize> {
    let (prefix, _) = bytes.split_first_chunk::<4>()?;
    usize::try_from(i32::from_le_bytes(*prefix)).ok()
}

#[inline]
fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

#[inline]
pub(crate) fn string_content(bytes: &[u8]) -> Option<&BStr> {
    Some(bytes.get(4..bytes.len().checked_sub(1)?)?.as_bstr())
}

fn length_prefix(length: usize) -> [u8; 4] {
    // No value that Marula builds exceeds 2 GiB: documents are bounded far below.
    i32::try_from(length).expect("a BSON value is shorter than 2 GiB").to_le_bytes()
}

fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&length_prefix(text.len() + 1));
    out.extend_from_slice(text);
    out.push(0);
}

macro_rules! value_from {
    ($($from:ty => |$name:ident| $value:expr;)*) => {
        $(impl<'a> From<$from> for Value<'a> {
            fn from($name: $from) -> Self {
                $value
            }
        })*
    };
}

value_from! {
    f64 => |number| Value::Double(number);
    i32 => |number| Value::Int32(number);
    i64 => |number| Value::Int64(number);
    bool => |flag| Value::Boolean(flag);
    &'a str => |text| Value::String(text.into());
    &'a BStr => |text| Value::String(text);
    &'a String => |text| Value::String(text.as_str().into());
    ObjectId => |id| Value::ObjectId(id);
    Doc<'a> => |doc| Value::Document(doc);
    &'a crate::DocBuf => |doc| Value::Document(doc.as_doc());
    Binary<'a> => |binary| Value::Binary(binary);
    RawValue<'a> => |raw| raw.get();
    &'a ValueBuf => |value| value.get();
    Decimal128 => |number| Value::Decimal128(number);
}
