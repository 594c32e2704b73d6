//! Any bytes as documents: checked, walked, compared, made into keys and read back.
//!
//! Bytes that are not valid are used too: the views must end early on them, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marula_bson::ext_json::{self, Mode};
use marula_bson::key_string::encode_value;
use marula_bson::validate::{Limits, validate};
use marula_bson::{Doc, FieldPath, KeyStringReader, KeyStringWriter, Value, order};

fuzz_target!(|bytes: &[u8]| {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let valid = validate(bytes, Limits::MESSAGE);
    if let Err(malformed) = &valid {
        let _ = malformed.to_string();
    }
    look_at(Doc::trusted(bytes));
    if let Ok(doc) = valid {
        round_trip(Value::Document(doc));
        for value in doc.values() {
            check_order(Value::Document(doc), value);
        }
    }
    if let (Ok(a), Ok(b)) = (validate(first, Limits::MESSAGE), validate(second, Limits::MESSAGE)) {
        check_order(Value::Document(a), Value::Document(b));
        for (a, b) in a.values().zip(b.values()) {
            check_order(a, b);
        }
    }
    if let Some(mut reader) = KeyStringReader::new(first, second) {
        while reader.read(bytes.len() % 2 == 1).is_some() {}
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(value) = ext_json::parse_value(text)
    {
        let _ = ext_json::value_to_string(value.get(), Mode::Relaxed);
    }
});

fn look_at(doc: Doc<'_>) {
    let _ = (doc.to_string(), format!("{doc:?}"));
    let _ = (ext_json::to_string(doc, Mode::Canonical), order::compare_docs(doc, Doc::EMPTY, None));
    for path in ["a", "a.b", "a.0", "a.0.b", "a.", "0.0.0"] {
        let path = FieldPath::new(path);
        let _ = path.any_value(doc, |value| value.is_none());
        let _ = path.keys(doc, |_| {});
    }
}

/// Keys keep the value: reading gives the bytes back, or at least what compares equal and makes the
/// same key.
fn round_trip(value: Value<'_>) {
    let mut writer = KeyStringWriter::new();
    writer.push(value, true, None);
    let mut reader = KeyStringReader::new(writer.key(), writer.type_bits())
        .expect("type bits were just written");
    let read = reader.read(true).expect("the key was just written");
    assert!(order::equal(read.get(), value, None));
    let mut again = KeyStringWriter::new();
    again.push(read.get(), true, None);
    assert_eq!((again.key(), again.type_bits()), (writer.key(), writer.type_bits()));
}

fn check_order(a: Value<'_>, b: Value<'_>) {
    let (mut a_key, mut b_key) = (Vec::new(), Vec::new());
    encode_value(a, None, &mut a_key);
    encode_value(b, None, &mut b_key);
    assert_eq!(a_key.cmp(&b_key), order::compare(a, b, None));
}
