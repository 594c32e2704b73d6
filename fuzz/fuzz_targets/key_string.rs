//! Any bytes as keys of an index, and keys of any values: read, compared, made again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marula_bson::key_string::encode_value;
use marula_bson::validate::{Limits, validate};
use marula_bson::{KeyStringReader, KeyStringWriter, Value, order};

fuzz_target!(|bytes: &[u8]| {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for (key, type_bits) in [(first, second), (bytes, &[][..])] {
        if let Some(mut reader) = KeyStringReader::new(key, type_bits) {
            while reader.read(bytes.len() % 2 == 1).is_some() {}
        }
    }
    if let Ok(doc) = validate(bytes, Limits::MESSAGE) {
        round_trip(&[Value::Document(doc)]);
        let values: Vec<_> = doc.values().collect();
        for value in &values {
            round_trip(&[*value]);
            check_order(Value::Document(doc), *value);
        }
        round_trip(&values);
        for pair in values.windows(2) {
            check_order(pair[0], pair[1]);
        }
    }
    if let (Ok(a), Ok(b)) = (validate(first, Limits::MESSAGE), validate(second, Limits::MESSAGE)) {
        check_order(Value::Document(a), Value::Document(b));
        for (a, b) in a.values().zip(b.values()) {
            check_order(a, b);
        }
    }
});

/// Keys keep the values: reading gives them back, or at least values that compare equal and make
/// the same key. Each second one descends.
fn round_trip(values: &[Value<'_>]) {
    let ascends = |index: usize| index.is_multiple_of(2);
    let mut writer = KeyStringWriter::new();
    for (index, value) in values.iter().enumerate() {
        writer.push(*value, ascends(index), None);
    }
    let mut reader = KeyStringReader::new(writer.key(), writer.type_bits())
        .expect("type bits were just written");
    let mut again = KeyStringWriter::new();
    for (index, value) in values.iter().enumerate() {
        let read = reader.read(ascends(index)).expect("the key was just written");
        assert!(order::equal(read.get(), *value, None));
        again.push(read.get(), ascends(index), None);
    }
    assert_eq!((again.key(), again.type_bits()), (writer.key(), writer.type_bits()));
}

fn check_order(a: Value<'_>, b: Value<'_>) {
    let (mut a_key, mut b_key) = (Vec::new(), Vec::new());
    encode_value(a, None, &mut a_key);
    encode_value(b, None, &mut b_key);
    assert_eq!(a_key.cmp(&b_key), order::compare(a, b, None));
}
