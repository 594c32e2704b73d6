use super::*;
use crate::{DocBuf, ObjectId, ValueBuf, doc};

/// Checks that every value is less than all values after it.
fn check_ascending(values: &[Value<'_>]) {
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate() {
            assert_eq!(compare(*a, *b, None), i.cmp(&j), "{a} {b}");
            assert_eq!(equal(*a, *b, None), i == j, "{a} {b}");
            assert_eq!(equal_raw(ValueBuf::from(*a).as_raw(), b, None), i == j, "{a} {b}");
        }
    }
}

#[test]
fn types_are_ordered_as_mongod_sorts_them() {
    let object = doc! { "x": 1 };
    let array = doc! { "x": [1] };
    let binary = |subtype, bytes| Value::Binary(Binary { subtype, bytes });
    let id = ObjectId::from_bytes([7; 12]);
    check_ascending(&[
        Value::MinKey,
        Value::Undefined,
        Value::Null,
        f64::NAN.into(),
        f64::NEG_INFINITY.into(),
        5.into(),
        5.5.into(),
        Value::Decimal128(Decimal128::from_i64(6)),
        7_i64.into(),
        Value::Symbol("a".into()),
        "b".into(),
        Value::Symbol("c".into()),
        Value::Document(Doc::EMPTY),
        (&object).into(),
        Value::Array(Doc::EMPTY),
        array.as_doc().get("x").unwrap(),
        binary(5, b"z"),
        binary(0, b"ab"),
        binary(0x80, b"ab"),
        binary(2, b"\x02\0\0\0zz"),
        id.into(),
        false.into(),
        true.into(),
        Value::DateTime(-5),
        Value::DateTime(0),
        Value::Timestamp(5),
        Value::Timestamp(1 << 63),
        Value::Regex { pattern: "a".into(), options: "i".into() },
        Value::Regex { pattern: "a".into(), options: "im".into() },
        Value::Regex { pattern: "ab".into(), options: "".into() },
        Value::DbPointer { ns: "b".into(), id },
        Value::DbPointer { ns: "aa".into(), id },
        Value::Code("a".into()),
        Value::Code("f()".into()),
        Value::CodeWithScope { code: "a".into(), scope: object.as_doc() },
        Value::CodeWithScope { code: "f()".into(), scope: Doc::EMPTY },
        Value::MaxKey,
    ]);
}

#[test]
fn strings_are_ordered_by_bytes() {
    let texts = ["", "a", "a\0", "a\0a", "a\0b", "ab", "b", "é"];
    check_ascending(&texts.map(Value::from));
}

#[test]
fn documents_are_ordered_by_class_then_name_then_value() {
    let docs: [DocBuf; 7] = [
        doc! {},
        doc! { "a": null },
        doc! { "a": 1 },
        doc! { "a": 1, "b": 1 },
        doc! { "b": 0 },
        doc! { "a": "x" },
        doc! { "b": "a" },
    ];
    let docs: Vec<Value<'_>> = docs.iter().map(Value::from).collect();
    check_ascending(&docs);
}

#[test]
fn arrays_are_ordered_by_their_elements() {
    let arrays = [
        doc! { "": [] },
        doc! { "": [null] },
        doc! { "": [1] },
        doc! { "": [1, 0] },
        doc! { "": [2] },
        doc! { "": ["a"] },
    ];
    let arrays: Vec<Value<'_>> = arrays.iter().map(|doc| doc.as_doc().get("").unwrap()).collect();
    check_ascending(&arrays);
}

#[test]
fn integers_and_doubles_are_compared_exactly() {
    let two_to_53 = 1_i64 << 53;
    for (a, b, expected) in [
        (two_to_53, 9_007_199_254_740_992.0, Ordering::Equal),
        (two_to_53 + 1, 9_007_199_254_740_992.0, Ordering::Greater),
        (i64::MAX, 9_223_372_036_854_775_808.0, Ordering::Less),
        (i64::MIN, -9_223_372_036_854_775_808.0, Ordering::Equal),
        (i64::MIN, f64::NEG_INFINITY, Ordering::Greater),
        (i64::MIN, f64::NAN, Ordering::Greater),
        (0, -0.0, Ordering::Equal),
        (0, -0.5, Ordering::Greater),
        (-1, -0.5, Ordering::Less),
        (1, 0.5, Ordering::Greater),
    ] {
        assert_eq!(compare_i64_f64(a, b), expected, "{a} {b}");
        assert_eq!(compare(b.into(), a.into(), None), expected.reverse(), "{a} {b}");
    }
}

#[test]
fn equal_bytes_are_equal_without_decoding() {
    let nan: ValueBuf = f64::NAN.into();
    assert!(compare_raw(nan.as_raw(), nan.as_raw(), None).is_eq());
    let (int, long): (ValueBuf, ValueBuf) = (1.into(), 1_i64.into());
    assert!(compare_raw(int.as_raw(), long.as_raw(), None).is_eq());
}
