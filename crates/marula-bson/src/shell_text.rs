//! Values as MongoDB's error messages print them: `{ a: 1, b: "x", c: ObjectId('…') }`.
//!
//! This is the `Display` of [`Doc`], [`Element`] and [`Value`]. Nothing is escaped; long strings,
//! code and binary data are truncated; bytes that are not UTF-8 print as replacement characters.
//!
//! Source: mongod 6.0, the duplicate-key message of every type.

use std::fmt;

use bstr::{BStr, ByteSlice};

use crate::value::double_text;
use crate::{Binary, Doc, Element, Type, Value};

/// Strings of at least this many bytes are truncated …
const STRING_CUT_FROM: usize = 160;
/// … to this many.
const STRING_CUT_TO: usize = 150;
const CODE_CUT_FROM: usize = 80;
const CODE_CUT_TO: usize = 70;
/// Binary data of more bytes than this is truncated …
const BINARY_MAX: usize = 80;
/// … to this many.
const BINARY_CUT_TO: usize = 70;
/// Documents nested deeper than this print as dots.
const DEPTH_MAX: u32 = 100;

impl fmt::Display for Doc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_doc(*self, f, 0)
    }
}

impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.value.get())
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(*self, f, 0)
    }
}

fn write_doc(doc: Doc<'_>, f: &mut fmt::Formatter<'_>, depth: u32) -> fmt::Result {
    if doc.is_empty() {
        return f.write_str("{}");
    }
    if depth > DEPTH_MAX {
        return f.write_str("{ ... }");
    }
    for (index, element) in doc.iter().enumerate() {
        f.write_str(if index == 0 { "{ " } else { ", " })?;
        write!(f, "{}: ", element.name)?;
        write_value(element.value.get(), f, depth + 1)?;
    }
    f.write_str(" }")
}

fn write_array(array: Doc<'_>, f: &mut fmt::Formatter<'_>, depth: u32) -> fmt::Result {
    if array.is_empty() {
        return f.write_str("[]");
    }
    if depth > DEPTH_MAX {
        return f.write_str("[ ... ]");
    }
    for (index, value) in array.values().enumerate() {
        f.write_str(if index == 0 { "[ " } else { ", " })?;
        write_value(value, f, depth + 1)?;
    }
    f.write_str(" ]")
}

fn write_value(value: Value<'_>, f: &mut fmt::Formatter<'_>, depth: u32) -> fmt::Result {
    match value {
        Value::Double(number) => {
            let text = double_text(number);
            let point = if text.contains('.') { "" } else { ".0" };
            write!(f, "{text}{point}")
        }
        Value::String(text) | Value::Symbol(text) => {
            let (text, dots) = cut(text, STRING_CUT_FROM, STRING_CUT_TO);
            write!(f, "\"{text}{dots}\"")
        }
        Value::Document(doc) => write_doc(doc, f, depth),
        Value::Array(array) => write_array(array, f, depth),
        Value::Binary(binary) => write_binary(binary, f),
        Value::Undefined => f.write_str("undefined"),
        Value::ObjectId(id) => write!(f, "ObjectId('{id}')"),
        Value::Boolean(flag) => write!(f, "{flag}"),
        Value::DateTime(ms) => write!(f, "new Date({ms})"),
        Value::Null => f.write_str("null"),
        Value::Regex { pattern, options } => write!(f, "/{pattern}/{options}"),
        Value::DbPointer { ns, id } => write!(f, "DBRef('{ns}',{id})"),
        Value::Code(code) => {
            let (code, dots) = cut(code, CODE_CUT_FROM, CODE_CUT_TO);
            write!(f, "{code}{dots}")
        }
        Value::CodeWithScope { code, scope } => {
            write!(f, "CodeWScope( {code}, ")?;
            write_doc(scope, f, depth)?;
            f.write_str(")")
        }
        Value::Int32(number) => write!(f, "{number}"),
        Value::Timestamp(bits) => write!(f, "Timestamp({}, {})", bits >> 32, bits & 0xFFFF_FFFF),
        Value::Int64(number) => write!(f, "{number}"),
        Value::Decimal128(number) => write!(f, "{number}"),
        Value::MinKey => f.write_str("MinKey"),
        Value::MaxKey => f.write_str("MaxKey"),
    }
}

/// Truncates the text to `to` bytes if it has `from` or more; also returns the dots that mark it.
fn cut(text: &BStr, from: usize, to: usize) -> (&BStr, &'static str) {
    match text.get(..to) {
        Some(start) if text.len() >= from => (start.as_bstr(), "..."),
        _ => (text, ""),
    }
}

fn write_binary(binary: Binary<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const OLD_BINARY: u8 = 2;
    const UUID: u8 = 4;
    let Binary { subtype, bytes } = binary;
    if let (UUID, Ok(uuid)) = (subtype, <[u8; 16]>::try_from(bytes)) {
        return write!(f, "UUID(\"{}\")", crate::uuid::text(&uuid));
    }
    // The old binary subtype repeats the length before the content.
    let bytes = if subtype == OLD_BINARY { bytes.get(4..).unwrap_or(bytes) } else { bytes };
    let (bytes, dots) = match bytes.get(..BINARY_CUT_TO) {
        Some(start) if bytes.len() > BINARY_MAX => (start, "..."),
        _ => (bytes, ""),
    };
    write!(f, "BinData({subtype}, ")?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
    write!(f, "{dots})")
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.alias())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Binary, Decimal128, ObjectId, Value, doc};

    fn check<'a>(value: impl Into<Value<'a>>, expected: &str) {
        assert_eq!(value.into().to_string(), expected);
    }

    #[test]
    fn every_type_prints_as_in_messages() {
        check(5, "5");
        check(-7_i64, "-7");
        check(true, "true");
        check(Value::Null, "null");
        check(Value::Undefined, "undefined");
        check(Value::MinKey, "MinKey");
        check(Value::DateTime(-5), "new Date(-5)");
        check(Value::Timestamp((3 << 32) | 4), "Timestamp(3, 4)");
        check(Value::Regex { pattern: "a/b".into(), options: "i".into() }, "/a/b/i");
        check(Value::Code("f()".into()), "f()");
        let id = ObjectId::from_bytes([1; 12]);
        check(id, "ObjectId('010101010101010101010101')");
        check(Value::DbPointer { ns: "d.c".into(), id }, "DBRef('d.c',010101010101010101010101)");
        check("1.50".parse::<Decimal128>().unwrap(), "1.50");
        check("a\"b", "\"a\"b\"");
        let doc = doc! { "a b": 1, "c": [1, "x", []], "d": {}, "e": { "f": 2.5 } };
        check(&doc, "{ a b: 1, c: [ 1, \"x\", [] ], d: {}, e: { f: 2.5 } }");
        let scope = doc! { "x": 1 };
        let code = Value::CodeWithScope { code: "f()".into(), scope: scope.as_doc() };
        check(code, "CodeWScope( f(), { x: 1 })");
    }

    #[test]
    fn doubles_always_have_a_point() {
        for (number, expected) in [
            (5.0, "5.0"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16.0"),
            (1e100, "1e+100.0"),
            (123_456_789.123_456_79, "123456789.1234568"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05.0"),
            (1.234e-5, "1.234e-05"),
            (1.5e300, "1.5e+300"),
            (5e-324, "4.940656458412465e-324"),
            (f64::MAX, "1.797693134862316e+308"),
            (f64::NAN, "nan.0"),
            (f64::NEG_INFINITY, "-inf.0"),
        ] {
            check(number, expected);
        }
    }

    #[test]
    fn binary_data_prints_as_hex_or_uuid() {
        let check_binary =
            |subtype, bytes, expected: &str| check(Binary { subtype, bytes }, expected);
        check_binary(0, &[], "BinData(0, )");
        check_binary(0, &[1, 0xAB], "BinData(0, 01AB)");
        check_binary(2, &[2, 0, 0, 0, 0x7A, 0x7A], "BinData(2, 7A7A)");
        check_binary(4, &[0xAB; 16], "UUID(\"abababab-abab-abab-abab-abababababab\")");
        check_binary(4, b"abc", "BinData(4, 616263)");
        check_binary(0, &[0; 80], &format!("BinData(0, {})", "00".repeat(80)));
        check_binary(0, &[0; 81], &format!("BinData(0, {}...)", "00".repeat(70)));
    }

    #[test]
    fn what_is_long_or_deep_is_cut() {
        check("x".repeat(159).as_str(), &format!("\"{}\"", "x".repeat(159)));
        check("x".repeat(160).as_str(), &format!("\"{}...\"", "x".repeat(150)));
        let code = "x".repeat(80);
        check(Value::Code(code.as_str().into()), &format!("{}...", "x".repeat(70)));
        let mut nested = doc! {};
        for _ in 0..150 {
            nested = doc! { "a": &nested };
        }
        let text = nested.as_doc().to_string();
        assert!(text.contains("{ a: { ... } }"));
        assert_eq!(text.matches("a: ").count(), 101);
    }
}
