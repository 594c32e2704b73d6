use std::cmp::Ordering;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Decimal128, ObjectId, ValueBuf, generated, order};

/// Compares text ignoring ASCII case; its sort keys hold the bytes 0 and 1.
struct CaseBlind;

impl Collator for CaseBlind {
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }

    fn sort_key(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend(text.to_ascii_lowercase());
    }
}

fn key(value: &ValueBuf, collator: Option<&dyn Collator>) -> Vec<u8> {
    let mut key = Vec::new();
    encode_value(value.get(), collator, &mut key);
    key
}

fn check_order(a: &ValueBuf, b: &ValueBuf, collator: Option<&dyn Collator>) {
    let expected = order::compare(a.get(), b.get(), collator);
    let (a_key, b_key) = (key(a, collator), key(b, collator));
    assert_eq!(a_key.cmp(&b_key), expected, "{} {}", a.get(), b.get());
    assert_eq!(order::compare(b.get(), a.get(), collator), expected.reverse());
    if expected.is_eq() {
        assert_eq!(hash(a, collator), hash(b, collator), "{} {}", a.get(), b.get());
    } else {
        assert!(!a_key.starts_with(&b_key) && !b_key.starts_with(&a_key), "no prefixes");
    }
}

/// Checks that the head of a key, where it can be computed, equals the start of the key.
fn check_head(value: Value<'_>) {
    for descending in [false, true] {
        let mut key = Vec::new();
        encode_part(value, descending, None, &mut key);
        key.resize(key.len().max(8), 0);
        if let Some(head) = part_head(ValueBuf::from(value).as_raw(), descending, false) {
            assert_eq!(head.to_be_bytes(), key[..8], "{value}, descending: {descending}");
        }
    }
}

fn hash(value: &ValueBuf, collator: Option<&dyn Collator>) -> u64 {
    let mut hasher = DefaultHasher::new();
    order::hash(value.get(), collator, &mut hasher);
    hasher.finish()
}

fn check_round_trip(values: &[(ValueBuf, bool)]) {
    let mut writer = KeyStringWriter::new();
    writer.reset(b"prefix");
    for (value, descending) in values {
        writer.push(value.get(), *descending, None);
    }
    writer.push_bytes(b"record");
    let mut reader =
        KeyStringReader::new(writer.key().strip_prefix(b"prefix").unwrap(), writer.type_bits())
            .unwrap();
    let mut skipping = reader.clone();
    for (value, descending) in values {
        let rest = skipping.rest();
        let length = part_length(rest, *descending).unwrap();
        assert_eq!(&reader.read(*descending).unwrap(), value, "{}", value.get());
        skipping.skip(*descending).unwrap();
        assert_eq!(&rest[length..], skipping.rest());
    }
    assert_eq!(reader.rest(), b"record");
    assert_eq!(skipping.rest(), b"record");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 700, failure_persistence: None, ..Default::default() })]

    #[test]
    fn keys_have_the_order_of_values(a in generated::value(), b in generated::value()) {
        check_order(&a, &b, None);
        check_order(&a, &b, Some(&CaseBlind));
    }

    #[test]
    fn keys_have_the_order_of_numbers(numbers in vec(generated::number(), 6)) {
        for a in &numbers {
            for b in &numbers {
                check_order(a, b, None);
            }
        }
    }

    #[test]
    fn tuples_are_ordered_part_by_part(
        parts in vec((generated::value(), generated::value(), any::<bool>(), any::<bool>()), 1..4),
    ) {
        let (mut a_key, mut b_key) = (Vec::new(), Vec::new());
        let mut expected = Ordering::Equal;
        for (a, b, same, descending) in &parts {
            let b = if *same { a } else { b };
            let ordering = order::compare(a.get(), b.get(), None);
            expected = expected.then(if *descending { ordering.reverse() } else { ordering });
            encode_part(a.get(), *descending, None, &mut a_key);
            encode_part(b.get(), *descending, None, &mut b_key);
        }
        prop_assert_eq!(a_key.cmp(&b_key), expected);
    }

    #[test]
    fn heads_are_the_first_bytes_of_keys(value in generated::value(), number in generated::number()) {
        check_head(value.get());
        check_head(number.get());
    }

    #[test]
    fn heads_of_doubles_are_the_first_bytes_of_keys(bits in any::<u64>(), whole in -70_000_i64..70_000) {
        check_head(Value::Double(f64::from_bits(bits)));
        check_head(Value::Double(whole as f64 / 16.0));
    }

    #[test]
    fn values_come_back_exactly(values in vec((generated::value(), any::<bool>()), 0..5)) {
        check_round_trip(&values);
    }

    #[test]
    fn broken_keys_are_answered(key in vec(any::<u8>(), 0..40), bits in vec(any::<u8>(), 0..6)) {
        if let Some(mut reader) = KeyStringReader::new(&key, &bits) {
            while reader.read(false).is_some() {}
        }
    }

    #[test]
    fn damaged_keys_are_answered(value in generated::value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut writer = KeyStringWriter::new();
        writer.push(value.get(), false, None);
        let mut key = writer.key().to_vec();
        let at = at.index(key.len());
        key[at] = byte;
        let _ = KeyStringReader::new(&key, writer.type_bits()).and_then(|mut reader| reader.read(false));
    }
}

#[test]
fn heads_of_values_at_the_edges_are_the_first_bytes_of_keys() {
    let mut numbers = vec![0_i64, i64::MIN, i64::MAX];
    for shift in 0..63 {
        let power = 1_i64 << shift;
        numbers.extend([power - 1, power, power + 1, -power, 1 - power, -1 - power]);
    }
    for number in numbers {
        check_head(Value::Int64(number));
        check_head(Value::DateTime(number));
        check_head(Value::Double(number as f64));
        check_head(Value::Double(number as f64 + 0.5));
        check_head(Value::Double(-1.0 / number as f64));
        if let Ok(number) = i32::try_from(number) {
            check_head(Value::Int32(number));
        }
    }
    for size in 0..12 {
        check_head(Value::String(b"abcdefghijkl"[..size].into()));
        let text = &b"abcdefghijkl"[..size];
        check_head(Value::String([text, b"\x01"].concat().as_slice().into()));
    }
    assert!(part_head(ValueBuf::from(Value::Int32(1)).as_raw(), false, true).is_some());
    assert_eq!(part_head(ValueBuf::from(Value::String("a".into())).as_raw(), false, true), None);
}

#[test]
fn numbers_of_all_types_have_one_order() {
    let decimal = |text: &str| Value::Decimal128(text.parse::<Decimal128>().unwrap());
    let classes: Vec<Vec<Value<'_>>> = vec![
        vec![f64::NAN.into(), decimal("NaN")],
        vec![f64::NEG_INFINITY.into(), decimal("-Infinity")],
        vec![decimal("-1E+6000")],
        vec![f64::MIN.into()],
        vec![i64::MIN.into(), (-(2_f64.powi(63))).into(), decimal("-9223372036854775808")],
        vec![decimal("-9223372036854775807.5")],
        vec![(i64::MIN + 1).into()],
        vec![(-1).into(), (-1.0).into(), (-1_i64).into(), decimal("-1.000")],
        vec![decimal("-0.1")],
        vec![decimal("-1E-6000")],
        vec![0.into(), 0.0.into(), (-0.0).into(), 0_i64.into(), decimal("-0E+10")],
        vec![decimal("1E-6176")],
        vec![5e-324.into()],
        vec![decimal("0.1")],
        vec![decimal("0.1000000000000000055511151231257827")],
        vec![0.1.into()],
        vec![decimal("0.1000000000000000055511151231257828")],
        vec![1.into(), 1.0.into()],
        vec![1.5.into(), decimal("1.5"), decimal("1.50000")],
        vec![2.into()],
        vec![i64::from(i32::MAX).into(), i32::MAX.into()],
        vec![9_007_199_254_740_992_i64.into(), 9_007_199_254_740_992.0.into()],
        vec![decimal("9007199254740992.5")],
        vec![9_007_199_254_740_993_i64.into(), decimal("9007199254740993")],
        vec![i64::MAX.into()],
        vec![2_f64.powi(63).into()],
        vec![1e22.into(), decimal("1E+22")],
        vec![f64::MAX.into()],
        vec![decimal("1.797693134862315708145274237317044E+308")],
        vec![decimal("1E+6000")],
        vec![f64::INFINITY.into(), decimal("Infinity")],
    ];
    for (i, a_class) in classes.iter().enumerate() {
        for (j, b_class) in classes.iter().enumerate() {
            for (a, b) in a_class.iter().flat_map(|a| b_class.iter().map(move |b| (a, b))) {
                assert_eq!(order::compare(*a, *b, None), i.cmp(&j), "{a} {b}");
                check_order(&a.to_buf(), &b.to_buf(), None);
            }
        }
    }
    classes.into_iter().flatten().for_each(|value| {
        check_round_trip(&[(value.to_buf(), false)]);
    });
}

#[test]
fn keys_are_short_and_usual_types_need_no_type_bits() {
    let check = |value: Value<'_>, bytes: usize, bits: usize| {
        let mut writer = KeyStringWriter::new();
        writer.push(value, false, None);
        assert_eq!((writer.key().len(), writer.type_bits().len()), (bytes, bits), "{value}");
    };
    check(0.into(), 1, 0);
    check(127.into(), 2, 0);
    check(i32::MAX.into(), 5, 0);
    check(i32::MIN.into(), 6, 0);
    check(i64::MAX.into(), 9, 0);
    check(5_i64.into(), 2, 1);
    check(5.0.into(), 2, 1);
    check(5.5.into(), 10, 0);
    check("19.99".parse::<Decimal128>().unwrap().into(), 15, 3);
    check(ObjectId::from_bytes([7; 12]).into(), 13, 0);
    check("abc".into(), 5, 0);
}

#[test]
fn a_range_over_a_prefix_is_bounded_by_its_bytes_and_their_successor() {
    let mut prefix = Vec::new();
    encode_part("a\0".into(), true, None, &mut prefix);
    let behind = successor(&prefix).unwrap();
    for other in [Value::MinKey, Value::MaxKey, "a".into(), "b".into()] {
        let mut inside = prefix.clone();
        encode_part(other, false, None, &mut inside);
        assert!(prefix < inside && inside < behind);
        let mut outside = Vec::new();
        encode_part(other, true, None, &mut outside);
        assert!(outside < prefix || outside >= behind);
    }
    assert_eq!(successor(&[1, 0xFF]), Some(vec![2]));
    assert_eq!(successor(&[0xFF]), None);
}

#[test]
fn many_usual_values_before_an_unusual_one_are_counted() {
    let mut values = vec![(Value::Int32(1).to_buf(), false); 100];
    values.push((Value::Symbol("s".into()).to_buf(), true));
    check_round_trip(&values);
}
