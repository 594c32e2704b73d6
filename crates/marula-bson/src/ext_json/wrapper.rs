//! The type wrapper objects, such as `{"$oid": "…"}`.

use super::base64;
use crate::{Binary, ByteSlice, Decimal128, Doc, ObjectId, Value, ValueBuf, iso_date};

/// The names that mark an object as a type wrapper when they come first.
const NAMES: &[&str] = &[
    "$oid",
    "$symbol",
    "$numberInt",
    "$numberLong",
    "$numberDouble",
    "$numberDecimal",
    "$binary",
    "$uuid",
    "$code",
    "$scope",
    "$timestamp",
    "$regularExpression",
    "$dbPointer",
    "$date",
    "$minKey",
    "$maxKey",
    "$undefined",
];

/// The meaning of an object whose members are already converted.
pub(super) enum Meaning {
    /// An ordinary document.
    Plain,
    /// A value of the wrapped type.
    Value(ValueBuf),
    /// A malformed wrapper.
    Broken,
}

pub(super) fn meaning(object: Doc<'_>) -> Meaning {
    let Some(first) = object.iter().next() else { return Meaning::Plain };
    if first.name.first() != Some(&b'$') || !NAMES.iter().any(|name| first.name == name) {
        return Meaning::Plain;
    }
    match value(object) {
        Some(value) => Meaning::Value(value),
        None => Meaning::Broken,
    }
}

fn value(object: Doc<'_>) -> Option<ValueBuf> {
    let mut fields = object.iter();
    let first = fields.next()?;
    let second = fields.next();
    if fields.next().is_some() {
        return None;
    }
    let content = first.value.get();
    let Some(second) = second else {
        return single(first.name, content);
    };
    // Only code with scope has two members, in either order.
    let other = second.value.get();
    match (first.name.as_bytes(), content, second.name.as_bytes(), other) {
        (b"$code", Value::String(code), b"$scope", Value::Document(scope))
        | (b"$scope", Value::Document(scope), b"$code", Value::String(code)) => {
            Some(Value::CodeWithScope { code, scope }.to_buf())
        }
        _ => None,
    }
}

fn single(name: &[u8], content: Value<'_>) -> Option<ValueBuf> {
    let text = || std::str::from_utf8(content.as_str()?).ok();
    let object = content.as_doc();
    Some(match name {
        b"$oid" => Value::ObjectId(ObjectId::parse_hex(text()?)?).to_buf(),
        b"$symbol" => Value::Symbol(content.as_str()?).to_buf(),
        b"$code" => Value::Code(content.as_str()?).to_buf(),
        b"$numberInt" => Value::Int32(text()?.parse().ok()?).to_buf(),
        b"$numberLong" => Value::Int64(text()?.parse().ok()?).to_buf(),
        b"$numberDouble" => Value::Double(double(text()?)?).to_buf(),
        b"$numberDecimal" => {
            Value::Decimal128(Decimal128::parse_exact(text()?.as_bytes()).ok()?).to_buf()
        }
        b"$binary" => binary(object?)?,
        b"$uuid" => {
            let hex = text()?.replace('-', "");
            let is_hex = hex.len() == 32 && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
            let bytes = is_hex.then(|| u128::from_str_radix(&hex, 16))?.ok()?.to_be_bytes();
            Value::Binary(Binary { subtype: 4, bytes: &bytes }).to_buf()
        }
        b"$timestamp" => {
            let [t, i] = members(object?, ["t", "i"])?;
            let half = |value: Value<'_>| u32::try_from(value.as_exact_i64()?).ok();
            Value::Timestamp(u64::from(half(t)?) << 32 | u64::from(half(i)?)).to_buf()
        }
        b"$regularExpression" => {
            let [pattern, options] = members(object?, ["pattern", "options"])?;
            let (pattern, options) = (pattern.as_str()?, options.as_str()?);
            if pattern.contains(&0) || options.contains(&0) {
                return None;
            }
            // Options are stored in alphabetical order.
            let mut options: Vec<char> = options.to_str_lossy().chars().collect();
            options.sort_unstable();
            let options = String::from_iter(options);
            Value::Regex { pattern, options: options.as_str().into() }.to_buf()
        }
        b"$dbPointer" => {
            let [ns, id] = members(object?, ["$ref", "$id"])?;
            let Value::ObjectId(id) = id else { return None };
            Value::DbPointer { ns: ns.as_str()?, id }.to_buf()
        }
        b"$date" => match content {
            Value::Int64(ms) => Value::DateTime(ms).to_buf(),
            Value::Int32(ms) => Value::DateTime(i64::from(ms)).to_buf(),
            _ => Value::DateTime(iso_date::parse(text()?)?).to_buf(),
        },
        b"$minKey" if content == Value::Int32(1) => Value::MinKey.to_buf(),
        b"$maxKey" if content == Value::Int32(1) => Value::MaxKey.to_buf(),
        b"$undefined" if content == Value::Boolean(true) => Value::Undefined.to_buf(),
        _ => return None,
    })
}

/// The values of an object that has exactly these members, in either order.
fn members<'a>(object: Doc<'a>, names: [&str; 2]) -> Option<[Value<'a>; 2]> {
    let [first, second] = names;
    let values = [object.get(first)?, object.get(second)?];
    (object.iter().count() == 2).then_some(values)
}

fn double(text: &str) -> Option<f64> {
    match text {
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        // Rust accepts more spellings of infinities and NaN than extended JSON.
        text if text.bytes().any(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

fn binary(object: Doc<'_>) -> Option<ValueBuf> {
    const OLD_BINARY: u8 = 2;
    let [content, subtype] = members(object, ["base64", "subType"])?;
    let subtype = std::str::from_utf8(subtype.as_str()?).ok()?;
    let is_hex = subtype.bytes().all(|digit| digit.is_ascii_hexdigit());
    let subtype = is_hex.then(|| u8::from_str_radix(subtype, 16))?.ok()?;
    let mut bytes = base64::decode(content.as_str()?)?;
    if subtype == OLD_BINARY {
        let length = u32::try_from(bytes.len()).ok()?;
        bytes.splice(..0, length.to_le_bytes());
    }
    Some(Value::Binary(Binary { subtype, bytes: &bytes }).to_buf())
}
