//! Conversions of binary data in `$convert` since 8.0: between text and binary data in a format,
//! and between numbers and their bytes.
//!
//! Source: manual "$convert", "Convert to BinData"; the conversions of numbers are 8.1's.

use base64::Engine as _;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bstr::ByteSlice;
use marula_bson::{Binary, Type, Value, hex};
use marula_error::{Error, Result, errors};

use crate::expression::{Frame, print};

errors! {
    bad_format(text: &str) = FailedToParse, "Invalid 'format' argument for $convert: {text}";
    format_type(kind: &str, text: &str) = FailedToParse, "$convert requires that 'format' be a string, found: {kind} with value {text}";
    no_format(from: &str, to: &str) = FailedToParse, "Format must be specified when converting from '{from}' to '{to}' in $convert";
    bad_order(text: &str) = FailedToParse, "Invalid 'byteOrder' argument for $convert: {text}";
    order_type(kind: &str, text: &str) = FailedToParse, "$convert requires that 'byteOrder' be a string, found: {kind} with value {text}";
    subtype_type(kind: &str) = FailedToParse, "In $convert, 'subtype' must be a number, but is {kind}";
    bad_subtype(text: &str) = FailedToParse, "In $convert, numeric value for 'subtype' does not correspond to a BinData type: {text}";
    other_subtype() = ConversionFailure, "Conversions between different binData subtypes are not supported in $convert with no onError value";
    uuid_and_subtype() = ConversionFailure, "The format 'uuid' and the binData subtype 4 are only allowed together in $convert with no onError value";
    unreadable(text: &str, format: &str) = ConversionFailure, "Failed to convert '{text}' to BinData in $convert with no onError value: Input is not a valid {format} string.";
    not_utf8() = ConversionFailure, "Failed to convert binData to string in $convert with no onError value: Invalid UTF-8.";
    bad_length(length: usize, to: &str) = ConversionFailure, "Failed to convert binData of {length} bytes to {to} in $convert with no onError value: unsupported length";
}

/// The subtype of a UUID.
const UUID: u8 = 4;
/// The old subtype, whose content begins with a second length.
const OLD: u8 = 2;

/// The text format of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Base64,
    Base64Url,
    Hex,
    Utf8,
    Uuid,
    /// Depends on the bytes: `uuid` for a UUID, otherwise `base64`.
    Auto,
}

/// All formats with their names.
const FORMATS: &[(&str, Format)] = &[
    ("auto", Format::Auto),
    ("base64", Format::Base64),
    ("base64url", Format::Base64Url),
    ("hex", Format::Hex),
    ("utf8", Format::Utf8),
    ("uuid", Format::Uuid),
];

impl Format {
    /// Parses the argument `format`.
    pub(super) fn read(value: Value<'_>) -> Result<Format> {
        let Value::String(name) = value else {
            return Err(format_type(value.kind().alias(), &print::value(value)));
        };
        FORMATS
            .iter()
            .find(|(known, _)| name == *known)
            .map(|(_, format)| *format)
            .ok_or_else(|| bad_format(&name.to_string()))
    }

    fn name(self) -> &'static str {
        FORMATS.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    fn decode(self, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Format::Base64 | Format::Auto => engine(&STANDARD, true).decode(text).ok(),
            Format::Base64Url => engine(&URL_SAFE, false).decode(text).ok(),
            Format::Hex => hex::parse(text),
            Format::Utf8 => Some(text.to_vec()),
            Format::Uuid => decode_uuid(text),
        }
    }

    fn encode(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Format::Base64 | Format::Auto => {
                out.extend_from_slice(engine(&STANDARD, true).encode(bytes).as_bytes());
            }
            Format::Base64Url => {
                out.extend_from_slice(engine(&URL_SAFE, false).encode(bytes).as_bytes());
            }
            Format::Hex => encode_hex(bytes, false, out),
            Format::Utf8 => out.extend_from_slice(bytes),
            Format::Uuid => encode_hex(bytes, true, out),
        }
    }
}

/// Base64 with padding; base64url without, whose decoder accepts padding too.
fn engine(alphabet: &Alphabet, is_padded: bool) -> GeneralPurpose {
    let padding = match is_padded {
        true => DecodePaddingMode::RequireCanonical,
        false => DecodePaddingMode::Indifferent,
    };
    let config = GeneralPurposeConfig::new()
        .with_encode_padding(is_padded)
        .with_decode_padding_mode(padding);
    GeneralPurpose::new(alphabet, config)
}

/// Sixteen bytes as `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
fn decode_uuid(text: &[u8]) -> Option<Vec<u8>> {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let has_form = text.len() == 36
        && text.iter().enumerate().all(|(at, &byte)| (byte == b'-') == is_dash(at));
    let digits: Vec<u8> = text.iter().copied().filter(|&byte| byte != b'-').collect();
    has_form.then(|| hex::parse(&digits)).flatten()
}

fn encode_hex(bytes: &[u8], has_dashes: bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (at, byte) in bytes.iter().enumerate() {
        if has_dashes && matches!(at, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        let digit = |half: u8| DIGITS[usize::from(half)];
        out.extend([digit(byte >> 4), digit(byte & 0xF)]);
    }
}

/// Parses the argument `byteOrder`; returns whether it is big-endian.
pub(super) fn read_order(value: Value<'_>) -> Result<bool> {
    match value {
        Value::String(name) if name == "big" => Ok(true),
        Value::String(name) if name == "little" => Ok(false),
        Value::String(name) => Err(bad_order(&name.to_string())),
        other => Err(order_type(other.kind().alias(), &print::value(other))),
    }
}

/// Parses the field `subtype` of the argument `to`.
pub(super) fn read_subtype(value: Value<'_>) -> Result<u8> {
    if !value.kind().is_number() {
        return Err(subtype_type(value.kind().alias()));
    }
    let subtype = value.as_exact_i64().and_then(|number| u8::try_from(number).ok());
    subtype
        .filter(|subtype| matches!(subtype, 0..=9 | 128..))
        .ok_or_else(|| bad_subtype(&print::value(value)))
}

/// The parameters of a conversion from or to binary data.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// The subtype of the result.
    pub(super) subtype: u8,
    /// The format of the text; `None` if not given.
    pub(super) format: Option<Format>,
    /// Whether numbers are big-endian.
    pub(super) is_big_endian: bool,
}

/// Converts binary data to a type, or a value to binary data.
///
/// Errors: code `ConversionFailure` if the value cannot be converted; `no` if its type never can.
pub(super) fn convert<'a>(
    input: Value<'a>,
    to: Type,
    form: Form,
    no: &dyn Fn() -> Error,
    frame: &Frame<'a>,
) -> Result<Value<'a>> {
    match (input, to) {
        (Value::Binary(binary), Type::Binary) if binary.subtype == form.subtype => Ok(input),
        (Value::Binary(_), Type::Binary) => Err(other_subtype()),
        (Value::Binary(binary), Type::String) => to_text(binary, form, frame),
        (Value::Binary(binary), Type::Int32 | Type::Int64 | Type::Double) => {
            let bytes = content(binary);
            to_number(bytes, to, form.is_big_endian)
                .ok_or_else(|| bad_length(bytes.len(), to.alias()))
        }
        (Value::String(text), Type::Binary) => {
            let format = form.format.ok_or_else(|| no_format("string", "binData"))?;
            if (format == Format::Uuid) != (form.subtype == UUID) && format != Format::Auto {
                return Err(uuid_and_subtype());
            }
            let format = if form.subtype == UUID { Format::Uuid } else { format };
            let bytes =
                format.decode(text).ok_or_else(|| unreadable(&text.to_string(), format.name()))?;
            keep(form.subtype, &bytes, frame)
        }
        (Value::Int32(number), Type::Binary) => {
            of_number(number.to_le_bytes().to_vec(), form, frame)
        }
        (Value::Int64(number), Type::Binary) => {
            of_number(number.to_le_bytes().to_vec(), form, frame)
        }
        (Value::Double(number), Type::Binary) => {
            of_number(number.to_le_bytes().to_vec(), form, frame)
        }
        _ => Err(no()),
    }
}

fn to_text<'a>(binary: Binary<'a>, form: Form, frame: &Frame<'a>) -> Result<Value<'a>> {
    let is_uuid = binary.subtype == UUID && binary.bytes.len() == 16;
    let format = match form.format.ok_or_else(|| no_format("binData", "string"))? {
        Format::Auto if is_uuid => Format::Uuid,
        format => format,
    };
    match format {
        Format::Uuid if !is_uuid => return Err(uuid_and_subtype()),
        Format::Utf8 if content(binary).to_str().is_err() => return Err(not_utf8()),
        _ => {}
    }
    frame.arena.string(|out| format.encode(content(binary), out))
}

/// The number encoded in bytes: an int in one, two or four bytes, a long in these or eight, a
/// double in four or eight.
fn to_number<'a>(bytes: &[u8], to: Type, is_big_endian: bool) -> Option<Value<'a>> {
    let mut bytes = bytes.to_vec();
    if is_big_endian {
        bytes.reverse();
    }
    let whole = match *bytes.as_slice() {
        [a] => Some(i64::from(i8::from_le_bytes([a]))),
        [a, b] => Some(i64::from(i16::from_le_bytes([a, b]))),
        [a, b, c, d] => Some(i64::from(i32::from_le_bytes([a, b, c, d]))),
        _ => None,
    };
    match to {
        Type::Int32 => whole.and_then(|number| i32::try_from(number).ok()).map(Value::Int32),
        Type::Int64 => {
            whole.or_else(|| bytes.try_into().ok().map(i64::from_le_bytes)).map(Value::Int64)
        }
        _ => match bytes.len() {
            4 => bytes.try_into().ok().map(f32::from_le_bytes).map(f64::from),
            _ => bytes.try_into().ok().map(f64::from_le_bytes),
        }
        .map(Value::Double),
    }
}

fn of_number<'a>(mut bytes: Vec<u8>, form: Form, frame: &Frame<'a>) -> Result<Value<'a>> {
    if form.subtype == UUID {
        return Err(uuid_and_subtype());
    }
    if form.is_big_endian {
        bytes.reverse();
    }
    keep(form.subtype, &bytes, frame)
}

/// The content as seen by a client.
fn content(binary: Binary<'_>) -> &[u8] {
    match binary.subtype {
        OLD => binary.bytes.get(4..).unwrap_or_default(),
        _ => binary.bytes,
    }
}

fn keep<'a>(subtype: u8, bytes: &[u8], frame: &Frame<'a>) -> Result<Value<'a>> {
    if subtype == OLD {
        let length = u32::try_from(bytes.len()).expect("what an arena holds is smaller");
        let bytes = [&length.to_le_bytes(), bytes].concat();
        return frame.arena.keep(Value::Binary(Binary { subtype, bytes: &bytes }));
    }
    frame.arena.keep(Value::Binary(Binary { subtype, bytes }))
}
