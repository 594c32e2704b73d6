//! Numbers of all four types as bytes in one order.
//!
//! ```text
//! number                        tag        content (big-endian)
//! NaN                           0x20
//! −∞ … −2^63                    0x21       as 0x35, inverted
//! integers and mixed, negative  0x22–0x29  as 0x34–0x2D, inverted
//! −1 … 0, neither included      0x2A       as 0x2C, inverted
//! 0                             0x2B
//! 0 … 1, neither included       0x2C       double
//! below 2^8k−1, k = 1 … 8       0x2C + k   integer part × 2 (k bytes); odd when a double follows
//! 2^63 … ∞                      0x35       double
//! ```
//!
//! *Double* is the largest double not above the number: its 63 bits and, as the lowest bit, whether
//! the number is above it. In that case, which only a decimal128 number can have, follow the
//! position of its first digit + 6176 (2 bytes), its digits in pairs, each + 1, without trailing
//! zeros, and 0.

use super::head::{self, Head};
use super::type_bits::Kind;
use crate::decimal128::{DIGITS_MAX, Parts, decode_f64, floor_f64, split};
use crate::value::exact_i64_of_double;
use crate::{Decimal128, Value};

const NAN: u8 = super::tag::NUMBER_FIRST;
const NEGATIVE_LARGE: u8 = 0x21;
const NEGATIVE_SMALL: u8 = 0x2A;
const ZERO: u8 = 0x2B;
const POSITIVE_SMALL: u8 = 0x2C;
const POSITIVE_LARGE: u8 = super::tag::NUMBER_LAST;
/// The tag of a positive number and the tag of its negative add up to this.
const MIRROR: u8 = 2 * ZERO;

const _: () = assert!(MIRROR - POSITIVE_LARGE == NEGATIVE_LARGE);
const _: () = assert!(MIRROR - POSITIVE_SMALL == NEGATIVE_SMALL);
const _: () = assert!(POSITIVE_SMALL + 8 + 1 == POSITIVE_LARGE);

/// Added to the position of the first digit when it is stored.
const PLACE_BIAS: i32 = 6176;
/// Integer parts below this are stored as integers.
const INTEGER_LIMIT: u64 = 1 << 63;

#[inline]
pub(super) fn encode_i64(number: i64, key: &mut Vec<u8>) {
    let magnitude = number.unsigned_abs();
    if magnitude == 0 {
        key.push(ZERO);
    } else if magnitude == INTEGER_LIMIT {
        encode_f64(-9_223_372_036_854_775_808.0, key);
    } else {
        encode_integer_part(number < 0, magnitude << 1, key);
    }
}

/// The maximum size of a tag and an integer part.
const INTEGER_BYTES: usize = 1 + size_of::<u64>();

/// Splits `doubled`, the integer part × 2 with its flag, which is not zero. Returns its tag, its
/// bytes as the most significant ones of a u64, and the number of bytes.
#[inline]
fn integer_part(negative: bool, doubled: u64) -> (u8, u64, u32) {
    let skip = doubled.leading_zeros() / 8;
    #[allow(clippy::cast_possible_truncation)]
    let tag = POSITIVE_SMALL + 8 - skip as u8;
    let (tag, doubled) = if negative { (MIRROR - tag, !doubled) } else { (tag, doubled) };
    (tag, doubled << (8 * skip), 8 - skip)
}

/// Appends the tag and the bytes of an [integer part](integer_part).
#[inline]
fn encode_integer_part(negative: bool, doubled: u64, key: &mut Vec<u8>) {
    let (tag, shifted, size) = integer_part(negative, doubled);
    let mut bytes = [tag; INTEGER_BYTES];
    let [_, after_tag @ ..] = &mut bytes;
    after_tag.copy_from_slice(&shifted.to_be_bytes());
    key.extend_from_slice(bytes.get(..1 + size as usize).unwrap_or_default());
}

/// The head of an integer's key.
#[inline]
pub(super) fn head_of_i64(number: i64) -> Head {
    let magnitude = number.unsigned_abs();
    if magnitude == 0 {
        return head::alone(ZERO);
    }
    if magnitude == INTEGER_LIMIT {
        return head::tagged(NEGATIVE_LARGE, !(9_223_372_036_854_775_808.0_f64.to_bits() << 1));
    }
    let (tag, shifted, size) = integer_part(number < 0, magnitude << 1);
    let (head, head_size) = head::tagged(tag, shifted);
    (head, head_size.min(1 + size))
}

/// The head of a double's key.
pub(super) fn head_of_f64(number: f64) -> Head {
    if let Some(integer) = exact_i64_of_double(number) {
        return head_of_i64(integer);
    }
    if number.is_nan() {
        return head::alone(NAN);
    }
    let magnitude = number.abs();
    let floor = magnitude.to_bits() << 1;
    // At most 2^63 where it is used.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let integer = magnitude as u64;
    let (tag, rest) = match integer {
        0 => (POSITIVE_SMALL, floor),
        INTEGER_LIMIT.. => (POSITIVE_LARGE, floor),
        _ => {
            let (tag, shifted, size) = integer_part(false, integer << 1 | 1);
            // The floor follows the bytes of the integer part.
            (tag, shifted | floor.checked_shr(8 * size).unwrap_or(0))
        }
    };
    if number < 0.0 { head::tagged(MIRROR - tag, !rest) } else { head::tagged(tag, rest) }
}

/// The type-bits entry that a double needs; `None` when its key decodes to this double.
pub(super) fn kind_of_double(number: f64) -> Option<Kind> {
    if number == 0.0 && number.is_sign_negative() {
        return Some(Kind::NegativeZero);
    }
    let integer = exact_i64_of_double(number)?;
    (integer != i64::MIN).then_some(Kind::Double)
}

pub(super) fn encode_f64(number: f64, key: &mut Vec<u8>) {
    match exact_i64_of_double(number) {
        Some(integer) if integer != i64::MIN => encode_i64(integer, key),
        _ if number.is_nan() => key.push(NAN),
        _ => {
            // At most 2^63 where it is used.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let integer = number.abs().trunc() as u64;
            encode_fraction(number < 0.0, integer, (number.abs(), None), key);
        }
    }
}

/// Appends a number that is not a small integer: its integer part and its floor among the doubles,
/// followed by the decimal (position and 34 digits) if it is above the floor.
fn encode_fraction(
    negative: bool,
    integer: u64,
    (floor, decimal): (f64, Option<(i32, u128)>),
    key: &mut Vec<u8>,
) {
    if (1..INTEGER_LIMIT).contains(&integer) {
        encode_integer_part(negative, integer << 1 | 1, key);
    } else {
        let tag = if integer == 0 { POSITIVE_SMALL } else { POSITIVE_LARGE };
        key.push(if negative { MIRROR - tag } else { tag });
    }
    let start = key.len();
    key.extend_from_slice(&(floor.to_bits() << 1 | u64::from(decimal.is_some())).to_be_bytes());
    if let Some((place, digits)) = decimal {
        encode_digits(place, digits, key);
    }
    if negative {
        super::invert(key, start);
    }
}

fn encode_digits(place: i32, mut digits: u128, key: &mut Vec<u8>) {
    let biased = u16::try_from(place + PLACE_BIAS).expect("a decimal's first digit is in range");
    key.extend_from_slice(&biased.to_be_bytes());
    let mut divisor = 10_u128.pow(DIGITS_MAX - 2);
    while digits != 0 {
        // The next two digits.
        #[allow(clippy::cast_possible_truncation)]
        let pair = (digits / divisor) as u8;
        key.push(pair + 1);
        digits %= divisor;
        divisor /= 100;
    }
    key.push(0);
}

pub(super) fn encode_decimal(number: Decimal128, key: &mut Vec<u8>) {
    match number.parts() {
        Parts::Nan => key.push(NAN),
        Parts::Infinity { negative } => {
            encode_f64(if negative { f64::NEG_INFINITY } else { f64::INFINITY }, key);
        }
        Parts::Finite { coefficient: 0, .. } => key.push(ZERO),
        Parts::Finite { negative, exponent, coefficient } => {
            let (integer, has_fraction) =
                split(coefficient, exponent).unwrap_or((u128::MAX, false));
            let integer = u64::try_from(integer).unwrap_or(u64::MAX);
            if !has_fraction && integer < INTEGER_LIMIT {
                return encode_integer_part(negative, integer << 1, key);
            }
            let (floor, is_exact) = floor_f64(coefficient, exponent);
            let last_place = coefficient.ilog10();
            let place = last_place.cast_signed() + exponent;
            let digits = coefficient * 10_u128.pow(DIGITS_MAX - 1 - last_place);
            let decimal = (!is_exact).then_some((place, digits));
            encode_fraction(negative, integer, (floor, decimal), key);
        }
    }
}

/// A number as decoded from a key.
pub(super) enum Number {
    Nan,
    /// An integer with a magnitude below 2^63.
    Integer(i64),
    /// A double that is not such an integer.
    Double(f64),
    /// A decimal that is not a double: the position of its first digit, and 34 digits.
    Decimal {
        place: i32,
        digits: u128,
    },
}

/// A stream of key bytes.
pub(super) trait KeyBytes {
    fn byte(&mut self) -> Option<u8>;
}

/// Decodes a number after its tag.
pub(super) fn decode(tag: u8, source: &mut impl KeyBytes) -> Option<Number> {
    if tag == NAN {
        return Some(Number::Nan);
    }
    if tag == ZERO {
        return Some(Number::Integer(0));
    }
    let negative = tag < ZERO;
    let tag = if negative { MIRROR - tag } else { tag };
    let mask = if negative { u8::MAX } else { 0 };
    let mut byte = || Some(source.byte()? ^ mask);
    if (POSITIVE_SMALL + 1..POSITIVE_LARGE).contains(&tag) {
        let mut doubled = 0_u64;
        for _ in 0..tag - POSITIVE_SMALL {
            doubled = doubled << 8 | u64::from(byte()?);
        }
        if doubled & 1 == 0 {
            let magnitude = i64::try_from(doubled >> 1).ok()?;
            return Some(Number::Integer(if negative { -magnitude } else { magnitude }));
        }
    }
    let mut bits = 0_u64;
    for _ in 0..8 {
        bits = bits << 8 | u64::from(byte()?);
    }
    let floor = f64::from_bits(bits >> 1);
    if bits & 1 == 0 {
        return Some(Number::Double(if negative { -floor } else { floor }));
    }
    let place = i32::from(u16::from_be_bytes([byte()?, byte()?])) - PLACE_BIAS;
    let mut digits = 0;
    let mut scale = 10_u128.pow(DIGITS_MAX);
    while let Some(pair) = byte()?.checked_sub(1) {
        if pair > 99 || scale == 1 {
            return None;
        }
        scale /= 100;
        digits += u128::from(pair) * scale;
    }
    Some(Number::Decimal { place, digits })
}

impl Number {
    /// The encoded value according to its type bits; `None` when they do not match.
    pub(super) fn value(self, kind: Option<Kind>) -> Option<Value<'static>> {
        Some(match (self, kind) {
            (Number::Integer(number), None) => match i32::try_from(number) {
                Ok(number) => Value::Int32(number),
                Err(_) => Value::Int64(number),
            },
            (Number::Integer(number), Some(Kind::Long)) => Value::Int64(number),
            #[allow(clippy::cast_precision_loss)]
            (Number::Integer(number), Some(Kind::Double)) => Value::Double(number as f64),
            (Number::Integer(0), Some(Kind::NegativeZero)) => Value::Double(-0.0),
            (Number::Double(number), None) => Value::Double(number),
            // The least long.
            (Number::Double(number), Some(Kind::Long)) => {
                Value::Int64(exact_i64_of_double(number)?)
            }
            (Number::Nan, None) => Value::Double(f64::NAN),
            (number, Some(Kind::Decimal { exponent, negative })) => {
                Value::Decimal128(number.decimal(exponent, negative)?)
            }
            _ => return None,
        })
    }

    fn decimal(self, exponent: i32, negative: bool) -> Option<Decimal128> {
        let (coefficient, from_exponent) = match self {
            Number::Nan => return Some(Decimal128::NAN),
            Number::Double(number) if number.is_infinite() => {
                return Decimal128::from_parts(Parts::Infinity { negative });
            }
            Number::Integer(number) => (u128::from(number.unsigned_abs()), 0),
            Number::Double(number) => decimal_of_double(number.abs())?,
            Number::Decimal { place, digits } => (digits, place - (DIGITS_MAX.cast_signed() - 1)),
        };
        let coefficient = match coefficient {
            0 => 0,
            _ => {
                let scale = 10_u128.checked_pow(from_exponent.abs_diff(exponent))?;
                if from_exponent >= exponent {
                    coefficient.checked_mul(scale)?
                } else {
                    (coefficient % scale == 0).then(|| coefficient / scale)?
                }
            }
        };
        Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient })
    }
}

/// A positive finite double as a coefficient and a power of ten, if they fit into u128.
fn decimal_of_double(double: f64) -> Option<(u128, i32)> {
    let (mantissa, binary_exponent) = decode_f64(double);
    let trailing = mantissa.trailing_zeros();
    let mut mantissa = u128::from(mantissa.checked_shr(trailing)?);
    let mut twos = binary_exponent + trailing.cast_signed();
    if twos < 0 {
        // m × 2^−k = m × 5^k × 10^−k.
        let scale = 5_u128.checked_pow(twos.unsigned_abs())?;
        return Some((mantissa.checked_mul(scale)?, twos));
    }
    let mut tens = 0;
    while twos > 0 && mantissa.is_multiple_of(5) {
        mantissa /= 5;
        twos -= 1;
        tens += 1;
    }
    let fits = mantissa.leading_zeros() > twos.unsigned_abs();
    fits.then(|| (mantissa << twos.unsigned_abs(), tens))
}
