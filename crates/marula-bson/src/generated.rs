//! Generated BSON for property tests: every type, with boundary values.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::decimal128::Parts;
use crate::{ArrayWriter, Binary, Decimal128, DocBuf, DocWriter, ObjectId, Type, Value, ValueBuf};

/// Any value, nested a few levels.
pub(crate) fn value() -> impl Strategy<Value = ValueBuf> {
    let leaf = prop_oneof![4 => number(), 4 => text_value(), 2 => other()];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| array(&items)),
            vec((name(), inner.clone()), 0..4)
                .prop_map(|fields| Value::from(&document(&fields)).to_buf()),
            (text(), vec((name(), inner), 0..3)).prop_map(|(code, fields)| {
                let scope = document(&fields);
                let code = code.as_slice().into();
                Value::CodeWithScope { code, scope: scope.as_doc() }.to_buf()
            }),
        ]
    })
}

fn array(items: &[ValueBuf]) -> ValueBuf {
    let mut bytes = Vec::new();
    let mut writer = ArrayWriter::new(&mut bytes);
    items.iter().for_each(|item| {
        writer.push(item);
    });
    writer.finish();
    ValueBuf::from_parts(Type::Array, bytes)
}

fn document(fields: &[(Vec<u8>, ValueBuf)]) -> DocBuf {
    DocBuf::build(|writer: &mut DocWriter<'_>| {
        fields.iter().for_each(|(name, value)| {
            writer.append(name, value);
        });
    })
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![&b""[..], b"a", b"b", b"ab", b"\x01", b"\xFF", b"_id", b"0"])
            .prop_map(<[u8]>::to_vec),
        "[a-z]{0,12}".prop_map(String::into_bytes),
    ]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(prop::sample::select(vec![0, 1, 2, b'a', b'b', 0xFE, 0xFF]), 0..5),
        "\\PC{0,20}".prop_map(String::into_bytes),
    ]
}

fn text_value() -> impl Strategy<Value = ValueBuf> {
    (text(), 0..4).prop_map(|(text, kind)| {
        let text = text.as_slice().into();
        match kind {
            0 => Value::Symbol(text).to_buf(),
            1 => Value::Code(text).to_buf(),
            _ => Value::String(text).to_buf(),
        }
    })
}

/// Numbers, many of them equal or nearly equal across types.
pub(crate) fn number() -> impl Strategy<Value = ValueBuf> {
    let near = prop::sample::select(vec![
        0.0,
        -0.0,
        0.1,
        0.5,
        1.0,
        1.5,
        3.0,
        123_456.789,
        2_147_483_647.0,
        2_147_483_648.0,
        9_007_199_254_740_992.0,
        9_223_372_036_854_775_808.0,
        1e18,
        1e19,
        1e22,
        1e23,
        1e300,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        f64::INFINITY,
        f64::NAN,
    ]);
    let double = prop_oneof![
        near,
        any::<f64>(),
        any::<i64>().prop_map(|integer| integer as f64),
        any::<i32>().prop_map(|integer| f64::from(integer) / 8.0),
    ];
    (double, any::<bool>(), -2_i64..3, 0..8, decimal()).prop_map(
        |(double, negative, offset, kind, decimal)| {
            let double = if negative { -double } else { double };
            let double = if double.is_nan() { f64::NAN } else { double };
            let integer = (double as i64).saturating_add(offset);
            match kind {
                0 => Value::Double(double),
                1 => Value::Int32(integer.clamp(i32::MIN.into(), i32::MAX.into()) as i32),
                2 => Value::Int64(integer),
                3 => Value::Decimal128(Decimal128::from_i64(integer)),
                4 => Value::Decimal128(Decimal128::from_f64(double)),
                5 => Value::Decimal128(exact(double, offset)),
                6 => Value::Decimal128(decimal),
                _ => Value::Double(offset as f64),
            }
            .to_buf()
        },
    )
}

/// The double with the maximum number of digits, changed by a few units of the last digit.
fn exact(double: f64, offset: i64) -> Decimal128 {
    let text = format!("{double:.33e}");
    let number = Decimal128::parse(text.as_bytes()).unwrap();
    match number.parts() {
        Parts::Finite { negative, exponent, coefficient } => {
            let coefficient = coefficient.saturating_add_signed(offset.into());
            Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient })
                .unwrap_or(number)
        }
        _ => number,
    }
}

fn decimal() -> impl Strategy<Value = Decimal128> {
    let coefficient = prop_oneof![
        0..20_u128,
        (0..34_u32, 0..4_u128).prop_map(|(power, add)| 10_u128.pow(power) + add),
        0..=crate::decimal128::COEFFICIENT_MAX,
    ];
    let exponent = prop_oneof![-6..6, -40..40, -400..400, -6176..=6111];
    (any::<bool>(), exponent, coefficient).prop_map(|(negative, exponent, coefficient)| {
        Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient }).unwrap()
    })
}

fn other() -> impl Strategy<Value = ValueBuf> {
    let id = prop_oneof![Just([0; 12]), any::<[u8; 12]>()].prop_map(ObjectId::from_bytes);
    let signed = prop_oneof![-2_i64..3, any::<i64>()];
    let bytes = prop_oneof![
        vec(any::<u8>(), 0..4),
        Just(vec![0; 254]),
        Just(vec![0; 255]),
        Just(vec![0; 256])
    ];
    (0..11, id, signed, bytes, name(), any::<bool>()).prop_map(
        |(kind, id, signed, bytes, name, flag)| {
            match kind {
                0 => Value::MinKey,
                1 => Value::MaxKey,
                2 => Value::Undefined,
                3 => Value::Null,
                4 => Value::ObjectId(id),
                5 => Value::DateTime(signed),
                6 => Value::Timestamp(signed.cast_unsigned()),
                7 => {
                    let options = if flag { "i" } else { "" };
                    Value::Regex { pattern: name.as_slice().into(), options: options.into() }
                }
                8 => Value::DbPointer { ns: bytes.as_slice().into(), id },
                9 => Value::Boolean(flag),
                _ => Value::Binary(Binary { subtype: u8::from(flag) * 128, bytes: &bytes }),
            }
            .to_buf()
        },
    )
}
