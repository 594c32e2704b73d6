//! Converts JavaScript values to BSON.

use std::collections::HashSet;

use bstr::ByteSlice;
use marula_bson::{
    ArrayWriter, Binary, Decimal128, Doc, DocWriter, ObjectId, Type, Value, ValueBuf, hex,
};
use marula_error::{Error, Result, errors};
use rquickjs::{Array, BigInt, Object, String as JsString, Value as JsValue};

use super::engine::Call;
use super::failure;
use super::originals;
use crate::meter;

errors! {
    /// The value is nested too deeply, or contains itself.
    too_deep() = 17279, "Exceeded depth limit of {DEPTH_MAX} when converting js object to BSON. Do you have a cycle?";
    /// A field's name contains a NUL.
    nul_in_name() = 16985, "JavaScript property (name) contains a null char which is not allowed in BSON. ";
    /// The value is a symbol or a big integer.
    no_type() = BadValue, "unable to get type";
    /// Reading the value ran code that failed.
    reading_failed(text: &str) = InternalError, "{text}";
    /// A string is larger than a document may be.
    string_too_large(size: usize, first: &str) = 10334, "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {SIZE_MAX}(16MB) First element: {first}";
    /// A string leaves no room in a document for anything else.
    string_too_long() = 16493, "Tried to create string longer than 16MB";
    /// An object or an array is larger than a document may be.
    object_too_large(size: usize) = 17260, "Converting from JavaScript to BSON failed: Object size {size} exceeds limit of {SIZE_MAX} bytes.";
    /// The value is larger than the buffer of a conversion.
    past_the_buffer(size: usize) = 13548, "BufBuilder attempted to grow() to {size} bytes, past the 64MB limit.";
}

/// The maximum nesting of a value.
const DEPTH_MAX: u32 = 150;

/// The maximum size of a value: a document's limit plus mongod's allowance for its own fields.
const SIZE_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

/// The greatest size of the buffer of a conversion.
const BUFFER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The maximum length of a string that is a value of its own, or in an array.
const STRING_BYTES_MAX: usize = 16 * 1024 * 1024 - 1;

/// The number of bytes of a string that its error shows.
const SHOWN_BYTES_MAX: usize = 150;

/// The number of compared bytes that cost as much as one element.
const LOOKED_AT: usize = 32;

/// The bytes of a document around its one field of an empty name.
const FRAME_BYTES: usize = 4 + 1 + 1 + 1;

/// The bytes of a document around two fields whose names are digits.
const PAIR_FRAME_BYTES: usize = 4 + 2 * (1 + 2) + 1;

/// The bytes of a document's own length, which mongod does not count when it refuses one.
const LENGTH_BYTES: usize = 4;

/// A result as BSON. `undefined` at the top level is null; within a document it keeps its type.
pub(super) fn value<'js>(call: &Call<'_, 'js>, value: &JsValue<'js>) -> Result<ValueBuf> {
    let mut out = Vec::new();
    let kind = match write(call, value, 0, &mut out)? {
        Type::Undefined => Type::Null,
        kind => kind,
    };
    let result = ValueBuf::from_parts(kind, out);
    let size = result.as_raw().bytes().len();
    match result.get() {
        Value::Document(_) | Value::Array(_) => check_object(size)?,
        Value::String(text) if size + FRAME_BYTES > SIZE_MAX => {
            let shown = text[..text.len().min(SHOWN_BYTES_MAX)].as_bstr();
            return Err(string_too_large(size + FRAME_BYTES, &format!(": \"{shown}...\"")));
        }
        _ => {}
    }
    check_strings(result.get())?;
    Ok(result)
}

/// A key and a value that were emitted as BSON. A value that is `undefined` keeps its type, for it
/// comes back to JavaScript; a key that is `undefined` is null.
pub(super) fn emitted<'js>(
    call: &Call<'_, 'js>,
    [key, value]: [&JsValue<'js>; 2],
) -> Result<(ValueBuf, ValueBuf)> {
    // The two are within a document.
    let written = |value: &JsValue<'js>| -> Result<ValueBuf> {
        let mut out = Vec::new();
        let kind = write(call, value, 1, &mut out)?;
        Ok(ValueBuf::from_parts(kind, out))
    };
    let (key, value) = (written(key)?, written(value)?);
    // Both are one document on their way.
    let size = |value: &ValueBuf| value.as_raw().bytes().len();
    check_object(size(&key) + size(&value) + PAIR_FRAME_BYTES)?;
    check_strings(key.get())?;
    check_strings(value.get())?;
    let key = if key.kind() == Type::Undefined { Value::Null.to_buf() } else { key };
    Ok((key, value))
}

fn check_object(size: usize) -> Result<()> {
    let counted = size - LENGTH_BYTES;
    if counted > SIZE_MAX { Err(object_too_large(counted)) } else { Ok(()) }
}

/// Checks the length of a string, and of those in an array. Strings in a document are not checked:
/// mongod converts them when they are needed.
fn check_strings(value: Value<'_>) -> Result<()> {
    match value {
        Value::String(text) if text.len() > STRING_BYTES_MAX => Err(string_too_long()),
        // Most arrays are not long enough to hold such a string.
        Value::Array(array) if array.as_bytes().len() > STRING_BYTES_MAX => {
            array.values().try_for_each(check_strings)
        }
        _ => Ok(()),
    }
}

fn write<'js>(
    call: &Call<'_, 'js>,
    value: &JsValue<'js>,
    depth: u32,
    out: &mut Vec<u8>,
) -> Result<Type> {
    check_buffer(out.len())?;
    meter::spend(meter::CALL)?;
    let simple = if let Some(number) = value.as_number() {
        Value::Double(number)
    } else if let Some(flag) = value.as_bool() {
        Value::Boolean(flag)
    } else if value.is_null() {
        Value::Null
    } else if value.is_undefined() {
        Value::Undefined
    } else if let Some(text) = value.as_string() {
        let text = text_of(call, text)?;
        return put(Value::String(text.as_bytes().as_bstr()), out);
    } else if let Some(array) = value.as_array() {
        return write_array(call, array, depth, out);
    } else if let Some(object) = value.as_object() {
        return write_object(call, object, depth, out);
    } else {
        return Err(no_type());
    };
    put(simple, out)
}

fn put(value: Value<'_>, out: &mut Vec<u8>) -> Result<Type> {
    if let Value::String(text) | Value::Code(text) = value {
        check_buffer(text.len() + FRAME_BYTES + LENGTH_BYTES + 1)?;
    }
    value.write(out);
    Ok(value.kind())
}

fn write_array<'js>(
    call: &Call<'_, 'js>,
    array: &Array<'js>,
    depth: u32,
    out: &mut Vec<u8>,
) -> Result<Type> {
    if depth >= DEPTH_MAX {
        return Err(too_deep());
    }
    let object = array.as_object();
    let mut writer = ArrayWriter::new(out);
    // Only existing elements: an array of a billion holes is empty.
    for name in object.keys::<JsString<'js>>() {
        let name = name.map_err(|error| reading(call, error))?;
        let text = text_of(call, &name)?;
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let item: JsValue<'js> = object.get(name).map_err(|error| reading(call, error))?;
        let mut bytes = Vec::new();
        let kind = write(call, &item, depth + 1, &mut bytes)?;
        check_buffer(writer.size() + bytes.len())?;
        writer.push_with(kind, |out| out.extend_from_slice(&bytes));
    }
    writer.finish();
    Ok(Type::Array)
}

fn write_object<'js>(
    call: &Call<'_, 'js>,
    object: &Object<'js>,
    depth: u32,
    out: &mut Vec<u8>,
) -> Result<Type> {
    if let Some(kind) = write_special(call, object, depth, out)? {
        return Ok(kind);
    }
    if depth >= DEPTH_MAX {
        return Err(too_deep());
    }
    let ints: Option<String> = object.get(call.kit.ints.clone()).ok().flatten();
    let ints: HashSet<&str> = ints.as_deref().unwrap_or_default().split_terminator('\0').collect();
    let start = out.len();
    let mut writer = DocWriter::new(out);
    for name in object.keys::<JsString<'js>>() {
        let name = name.map_err(|error| reading(call, error))?;
        let text = text_of(call, &name)?;
        if text.contains('\0') {
            return Err(nul_in_name());
        }
        let item: JsValue<'js> = object.get(name).map_err(|error| reading(call, error))?;
        match item.as_number().and_then(exact_int).filter(|_| ints.contains(&*text)) {
            Some(int) => {
                writer.append(&text, int);
            }
            None => {
                let mut bytes = Vec::new();
                let kind = write(call, &item, depth + 1, &mut bytes)?;
                check_buffer(writer.size() + bytes.len())?;
                writer.append_raw(&text, marula_bson::RawValue::new(kind, &bytes));
            }
        }
    }
    writer.finish();
    let number: Option<usize> = object.get(call.kit.original.clone()).ok().flatten();
    if let Some(number) = number {
        restore(call, number, start, out)?;
    }
    Ok(Type::Document)
}

/// Puts the document of a number in the place of the one that begins at `start`, if they are equal.
fn restore(call: &Call<'_, '_>, number: usize, start: usize, out: &mut Vec<u8>) -> Result<()> {
    let originals = call.originals.borrow();
    let Some(original) = originals.get(number) else { return Ok(()) };
    meter::spend(meter::ELEMENT + original.as_bytes().len() / LOOKED_AT)?;
    let written = Value::Document(Doc::trusted(&out[start..]));
    if originals::is_unchanged(Value::Document(original), written) {
        out.truncate(start);
        out.extend_from_slice(original.as_bytes());
    }
    Ok(())
}

fn check_buffer(size: usize) -> Result<()> {
    if size > BUFFER_BYTES_MAX { Err(past_the_buffer(size)) } else { Ok(()) }
}

/// The exact int32 value of a number, if any.
fn exact_int(number: f64) -> Option<i32> {
    #[allow(clippy::cast_possible_truncation)]
    let int = number as i32;
    (f64::from(int).to_bits() == number.to_bits()).then_some(int)
}

/// Writes an object that is neither a document nor an array.
fn write_special<'js>(
    call: &Call<'_, 'js>,
    object: &Object<'js>,
    depth: u32,
    out: &mut Vec<u8>,
) -> Result<Option<Type>> {
    let describe = || -> rquickjs::Result<Option<Array<'js>>> {
        call.kit.function("describe")?.call((object.clone(),))
    };
    let Some(parts) = describe().map_err(|error| reading(call, error))? else { return Ok(None) };
    let text = |place: usize| -> Result<String> {
        let part: JsString<'js> = parts.get(place).map_err(|error| reading(call, error))?;
        text_of(call, &part)
    };
    let number = |place: usize| parts.get::<f64>(place).map_err(|error| reading(call, error));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let kind = match &*text(0)? {
        "NumberLong" => {
            let number: BigInt<'js> = parts.get(1).map_err(|error| reading(call, error))?;
            put(Value::Int64(number.to_i64().map_err(|error| reading(call, error))?), out)?
        }
        "NumberInt" => put(Value::Int32(number(1)? as i32), out)?,
        "NumberDecimal" => {
            let number = Decimal128::parse(text(1)?.as_bytes()).map_err(|_| no_type())?;
            put(Value::Decimal128(number), out)?
        }
        "ObjectId" => {
            put(Value::ObjectId(ObjectId::parse_hex(&text(1)?).ok_or_else(no_type)?), out)?
        }
        "BinData" => {
            let bytes = hex::parse(text(2)?.as_bytes()).ok_or_else(no_type)?;
            put(Value::Binary(Binary { subtype: number(1)? as u8, bytes: &bytes }), out)?
        }
        // A result that is one is a document, as in mongod; one within a document keeps its type.
        "DBPointer" if depth == 0 => return Ok(None),
        "DBPointer" => {
            let (ns, id) = (text(1)?, ObjectId::parse_hex(&text(2)?).ok_or_else(no_type)?);
            put(Value::DbPointer { ns: ns.as_bytes().as_bstr(), id }, out)?
        }
        "Timestamp" => {
            let bits = u64::from(number(1)? as u32) << 32 | u64::from(number(2)? as u32);
            put(Value::Timestamp(bits), out)?
        }
        // An invalid date has no milliseconds and becomes the epoch.
        "Date" => put(Value::DateTime(number(1)? as i64), out)?,
        "RegExp" => {
            // A result that is a regular expression keeps the closing slash of its source text, as
            // in mongod; one within a document does not.
            let pattern = text(1)? + if depth == 0 { "/" } else { "" };
            let options = text(2)?;
            if pattern.contains('\0') || options.contains('\0') {
                return Err(nul_in_name());
            }
            let options = options.as_bytes().as_bstr();
            put(Value::Regex { pattern: pattern.as_bytes().as_bstr(), options }, out)?
        }
        "Code" => put(Value::Code(text(1)?.as_bytes().as_bstr()), out)?,
        "MinKey" => Type::MinKey,
        _ => Type::MaxKey,
    };
    Ok(Some(kind))
}

/// A string's text; an unpaired surrogate, which UTF-8 cannot represent, becomes a replacement
/// character.
fn text_of<'js>(call: &Call<'_, 'js>, text: &JsString<'js>) -> Result<String> {
    if let Ok(text) = text.to_string() {
        return Ok(text);
    }
    let repaired = || -> rquickjs::Result<String> {
        let text: JsString<'js> = call.kit.function("wellFormed")?.call((text.clone(),))?;
        text.to_string()
    };
    repaired().map_err(|error| reading(call, error))
}

fn reading(call: &Call<'_, '_>, error: rquickjs::Error) -> Error {
    reading_failed(&failure::headline(call, error))
}
