//! The 64-bit hash of a value in a hashed index.
//!
//! It is the front of an MD5 over the value's class and bytes, field by field for documents and
//! arrays. Equal values have equal hashes, and so have numbers that differ only in their fraction,
//! since they are truncated first.

use marula_bson::value::LONG_END;
use marula_bson::{Collator, Doc, RawValue, Type, Value};
use md5::{Digest as _, Md5};

use crate::expression::number::whole_of_decimal;

/// The seed that precedes the value in the MD5.
const SEED: i32 = 0;

/// The hash of `value`; a missing value hashes like null. Strings that are equal under `collator`
/// have equal hashes.
///
/// Source: `$toHashedIndexKey` of mongod 6.0 over values of every type.
pub fn hashed_key(value: Value<'_>, collator: Option<&dyn Collator>) -> i64 {
    let mut md5 = Md5::new();
    md5.update(SEED.to_le_bytes());
    let value = value.to_buf();
    feed(&mut md5, value.as_raw(), None, collator);
    let digest = md5.finalize();
    let (front, _) = digest.split_first_chunk::<8>().expect("an MD5 has sixteen bytes");
    i64::from_le_bytes(*front)
}

/// Hashes one value; a field's name and its NUL come before it. Validated BSON bounds the depth.
fn feed(md5: &mut Md5, raw: RawValue<'_>, name: Option<&[u8]>, collator: Option<&dyn Collator>) {
    md5.update(class(raw.kind()).to_le_bytes());
    if let Some(name) = name {
        md5.update(name);
        md5.update([0]);
    }
    match raw.get() {
        Value::Double(number) => md5.update(whole_of_double(number).to_le_bytes()),
        Value::Int32(number) => md5.update(i64::from(number).to_le_bytes()),
        Value::Int64(number) => md5.update(number.to_le_bytes()),
        Value::Decimal128(number) => md5.update(whole_of_decimal(number).to_le_bytes()),
        Value::Document(doc) | Value::Array(doc) => feed_fields(md5, doc, collator),
        Value::CodeWithScope { code, scope } => {
            md5.update(code);
            md5.update([0]);
            feed_fields(md5, scope, collator);
        }
        Value::String(text) if let Some(collator) = collator => {
            let mut key = Vec::new();
            collator.sort_key(text, &mut key);
            let mut bytes = Vec::new();
            Value::String(key.as_slice().into()).write(&mut bytes);
            md5.update(bytes);
        }
        _ => md5.update(raw.bytes()),
    }
}

fn feed_fields(md5: &mut Md5, doc: Doc<'_>, collator: Option<&dyn Collator>) {
    for element in doc {
        feed(md5, element.value, Some(element.name), collator);
    }
    // The end counts as a value without a name.
    md5.update(0_i32.to_le_bytes());
}

/// The number that precedes values of a type.
const fn class(kind: Type) -> i32 {
    match kind {
        Type::MinKey => -1,
        Type::Undefined => 0,
        Type::Null => 5,
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => 10,
        Type::String | Type::Symbol => 15,
        Type::Document => 20,
        Type::Array => 25,
        Type::Binary => 30,
        Type::ObjectId => 35,
        Type::Boolean => 40,
        Type::DateTime => 45,
        Type::Timestamp => 47,
        Type::Regex => 50,
        Type::DbPointer => 55,
        Type::Code => 60,
        Type::CodeWithScope => 65,
        Type::MaxKey => 127,
    }
}

/// The double truncated and clamped to the range of long; NaN is 0. 2^63 itself, the nearest double
/// to the greatest long, becomes the least long.
#[allow(clippy::cast_possible_truncation)]
fn whole_of_double(number: f64) -> i64 {
    if number == LONG_END { i64::MIN } else { number as i64 }
}

#[cfg(test)]
mod tests {
    use marula_bson::{BStr, Binary, Decimal128, doc};

    use super::*;

    fn check(value: Value<'_>, expected: i64) {
        assert_eq!(hashed_key(value, None), expected, "{value}");
    }

    fn decimal(text: &str) -> Value<'_> {
        Value::Decimal128(Decimal128::parse(text.as_bytes()).expect("a decimal"))
    }

    /// The expected hashes are mongod 6.0's.
    #[test]
    fn hashes_as_mongod() {
        check(Value::Int32(1), 5_902_408_780_260_971_510);
        check(Value::Double(1.5), 5_902_408_780_260_971_510);
        check(Value::Double(-1.5), 1_140_205_862_565_771_219);
        check(Value::Double(-0.0), 4_854_801_880_128_277_513);
        check(Value::Double(f64::NAN), 4_854_801_880_128_277_513);
        check(Value::Double(1e30), 921_523_596_458_303_250);
        check(Value::Double(f64::NEG_INFINITY), 4_532_067_210_535_695_462);
        check(Value::Int64(1 << 40), -7_760_001_454_274_422_498);
        check(decimal("5.7"), -6_504_342_592_125_989_714);
        check(decimal("-5.5"), -4_682_066_552_107_256_369);
        check(decimal("9223372036854775806.9"), 921_523_596_458_303_250);
        check(decimal("1E+40"), 921_523_596_458_303_250);
        check(decimal("1E-10"), 4_854_801_880_128_277_513);
        check(decimal("-Infinity"), 4_532_067_210_535_695_462);
        check(Value::String("abc".into()), 8_478_485_326_885_698_097);
        check(Value::Null, 2_338_878_944_348_059_895);
        check(Value::Undefined, 40_158_834_000_849_533);
        check(Value::Boolean(true), 6_405_873_908_747_105_701);
        check(Value::MinKey, 7_961_148_599_568_647_290);
        check(Value::MaxKey, 5_504_842_513_779_440_750);
        check(Value::Timestamp((1 << 32) | 2), 6_130_793_394_493_442_031);
        check(
            Value::Binary(Binary { subtype: 2, bytes: &[3, 0, 0, 0, b'a', b'b', b'c'] }),
            9_201_357_337_759_527_400,
        );
        check(Value::Code(BStr::new("f")), 5_961_458_073_249_776_817);
        let scope = doc! { "x": 1 };
        let code = Value::CodeWithScope { code: BStr::new("f"), scope: scope.as_doc() };
        check(code, -8_887_691_892_372_249_048);
        check(Value::Document(Doc::EMPTY), 7_980_500_913_326_740_417);
        check(Value::Array(Doc::EMPTY), 8_849_948_234_993_459_283);
        check(Value::Document(doc! { "a": 1 }.as_doc()), -8_705_610_352_600_103_477);
        let nested = doc! { "a": &doc! { "b": 1.5, "c": "x" } };
        check(Value::Document(nested.as_doc()), 2_514_696_315_736_395_899);
    }
}
