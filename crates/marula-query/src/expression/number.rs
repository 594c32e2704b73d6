//! Numbers in operators: promotion, decimal arithmetic, and their text in messages.
//!
//! The result of an operator has the widest type of its operands: int, long, double, decimal; an
//! int that overflows becomes a long, a long becomes a double. Decimal arithmetic is
//! libdecnumber's; its encoding ([`Dec`]) differs from BSON's, so numbers are converted by
//! coefficient and exponent.

use std::cmp::Ordering;

use dec::Decimal128 as Dec;
use marula_bson::decimal128::Parts;
use marula_bson::value::exact_i64_of_double;
use marula_bson::{Decimal128, Value};
use marula_error::{Result, errors};

use super::decimal_exact;

errors! {
    /// A double outside the range of long.
    no_long(text: &str) = 31109, "Can't coerce out of range value {text} to long";
}

/// The rounding and precision of 34-digit arithmetic.
pub(crate) type DecContext = dec::Context<Dec>;

/// A number of any of the four types.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Number {
    Int(i32),
    Long(i64),
    Double(f64),
    Decimal(Decimal128),
}

/// Two numbers promoted to the wider of their types.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pair {
    Int(i32, i32),
    Long(i64, i64),
    Double(f64, f64),
    Decimal(Decimal128, Decimal128),
}

impl Number {
    /// The number in a value.
    pub(crate) fn of(value: Value<'_>) -> Option<Number> {
        Some(match value {
            Value::Int32(number) => Number::Int(number),
            Value::Int64(number) => Number::Long(number),
            Value::Double(number) => Number::Double(number),
            Value::Decimal128(number) => Number::Decimal(number),
            _ => return None,
        })
    }

    /// The nearest double.
    pub(crate) fn to_f64(self) -> f64 {
        match self {
            Number::Int(number) => f64::from(number),
            #[allow(clippy::cast_precision_loss)]
            Number::Long(number) => number as f64,
            Number::Double(number) => number,
            Number::Decimal(number) => number.to_f64(),
        }
    }

    /// The decimal; a double is converted with 15 digits, as in mongod.
    pub(crate) fn to_decimal(self) -> Decimal128 {
        match self {
            Number::Int(number) => Decimal128::from_i64(number.into()),
            Number::Long(number) => Decimal128::from_i64(number),
            Number::Double(number) => Decimal128::from_f64(number),
            Number::Decimal(number) => number,
        }
    }

    /// Promotes two numbers to the wider of their types.
    pub(crate) fn pair(left: Number, right: Number) -> Pair {
        match (left, right) {
            (Number::Int(a), Number::Int(b)) => Pair::Int(a, b),
            (Number::Long(a), Number::Long(b)) => Pair::Long(a, b),
            (Number::Int(a), Number::Long(b)) => Pair::Long(a.into(), b),
            (Number::Long(a), Number::Int(b)) => Pair::Long(a, b.into()),
            (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
                Pair::Decimal(left.to_decimal(), right.to_decimal())
            }
            (Number::Double(_), _) | (_, Number::Double(_)) => {
                Pair::Double(left.to_f64(), right.to_f64())
            }
        }
    }

    /// The sum, in the wider type or, if that overflows, in the next.
    pub(crate) fn add(self, other: Number) -> Number {
        match Number::pair(self, other) {
            Pair::Int(a, b) => int_or_long(i64::from(a) + i64::from(b)),
            Pair::Long(a, b) => {
                a.checked_add(b).map_or_else(|| Number::Double(wide(a) + wide(b)), Number::Long)
            }
            Pair::Double(a, b) => Number::Double(a + b),
            Pair::Decimal(a, b) => Number::Decimal(decimal_sum(a, b)),
        }
    }

    /// The difference, as [`Number::add`].
    pub(crate) fn subtract(self, other: Number) -> Number {
        match Number::pair(self, other) {
            Pair::Int(a, b) => int_or_long(i64::from(a) - i64::from(b)),
            Pair::Long(a, b) => {
                a.checked_sub(b).map_or_else(|| Number::Double(wide(a) - wide(b)), Number::Long)
            }
            Pair::Double(a, b) => Number::Double(a - b),
            Pair::Decimal(a, b) => Number::Decimal(decimal_difference(a, b)),
        }
    }

    /// The product, as [`Number::add`].
    pub(crate) fn multiply(self, other: Number) -> Number {
        match Number::pair(self, other) {
            Pair::Int(a, b) => int_or_long(i64::from(a) * i64::from(b)),
            Pair::Long(a, b) => {
                a.checked_mul(b).map_or_else(|| Number::Double(wide(a) * wide(b)), Number::Long)
            }
            Pair::Double(a, b) => Number::Double(a * b),
            Pair::Decimal(a, b) => Number::Decimal(decimal_product(a, b)),
        }
    }

    /// The quotient: a double, or a decimal if one of the numbers is a decimal.
    pub(crate) fn divide(self, other: Number) -> Number {
        match Number::pair(self, other) {
            Pair::Decimal(a, b) => Number::Decimal(decimal_with(a, b, DecContext::div)),
            _ => Number::Double(self.to_f64() / other.to_f64()),
        }
    }

    /// The text of the number in messages of numeric functions.
    pub(crate) fn short_text(self) -> String {
        short_double_text(self.to_f64())
    }

    /// Whether the number is zero.
    pub(crate) fn is_zero(self) -> bool {
        match self {
            Number::Int(number) => number == 0,
            Number::Long(number) => number == 0,
            Number::Double(number) => number == 0.0,
            Number::Decimal(number) => number.is_zero(),
        }
    }

    /// Whether the number is not a number.
    pub(crate) fn is_nan(self) -> bool {
        match self {
            Number::Double(number) => number.is_nan(),
            Number::Decimal(number) => number.is_nan(),
            Number::Int(_) | Number::Long(_) => false,
        }
    }

    /// The order relative to zero; `None` for NaN.
    pub(crate) fn compare_zero(self) -> Option<Ordering> {
        match self {
            Number::Int(number) => Some(number.cmp(&0)),
            Number::Long(number) => Some(number.cmp(&0)),
            Number::Double(number) => number.partial_cmp(&0.0),
            Number::Decimal(number) if number.is_nan() => None,
            Number::Decimal(number) if number.is_zero() => Some(Ordering::Equal),
            Number::Decimal(number) if number.is_negative() => Some(Ordering::Less),
            Number::Decimal(_) => Some(Ordering::Greater),
        }
    }
}

impl<'a> From<Number> for Value<'a> {
    fn from(number: Number) -> Value<'a> {
        match number {
            Number::Int(number) => Value::Int32(number),
            Number::Long(number) => Value::Int64(number),
            Number::Double(number) => Value::Double(number),
            Number::Decimal(number) => Value::Decimal128(number),
        }
    }
}

/// An int if it fits, else a long.
pub(crate) fn int_or_long(number: i64) -> Number {
    i32::try_from(number).map_or(Number::Long(number), Number::Int)
}

#[allow(clippy::cast_precision_loss)]
fn wide(number: i64) -> f64 {
    number as f64
}

/// A BSON decimal in libdecnumber's encoding.
pub(crate) fn to_dec(number: Decimal128) -> Dec {
    match number.parts() {
        Parts::Nan => Dec::NAN,
        Parts::Infinity { negative: false } => dec_infinity(false),
        Parts::Infinity { negative: true } => dec_infinity(true),
        Parts::Finite { negative, exponent, coefficient } => {
            let mut context = DecContext::default();
            let mut dec = context.from_u128(coefficient);
            context.set_exponent(&mut dec, exponent);
            if negative { with_sign(dec) } else { dec }
        }
    }
}

/// A libdecnumber decimal in BSON's encoding.
pub(crate) fn from_dec(dec: Dec) -> Decimal128 {
    if dec.is_nan() {
        return Decimal128::NAN;
    }
    if dec.is_infinite() {
        return if dec.is_signed() { Decimal128::NEG_INFINITY } else { Decimal128::INFINITY };
    }
    Decimal128::from_parts(Parts::Finite {
        negative: dec.is_signed(),
        exponent: dec.exponent(),
        coefficient: dec.coefficient().unsigned_abs(),
    })
    .expect("both encodings hold 34 digits and the same exponents")
}

fn dec_infinity(negative: bool) -> Dec {
    let infinity: Dec = "Infinity".parse().expect("libdecnumber knows infinity");
    if negative { with_sign(infinity) } else { infinity }
}

/// The number with its sign bit set; zero can have a sign too.
fn with_sign(dec: Dec) -> Dec {
    let mut bytes = dec.to_le_bytes();
    bytes[15] |= 0x80;
    Dec::from_le_bytes(bytes)
}

/// The sum of decimals, rounded half to even to 34 digits.
pub(crate) fn decimal_sum(a: Decimal128, b: Decimal128) -> Decimal128 {
    decimal_exact::sum(a, b).unwrap_or_else(|| decimal_with(a, b, DecContext::add))
}

/// The difference of decimals, rounded likewise.
pub(crate) fn decimal_difference(a: Decimal128, b: Decimal128) -> Decimal128 {
    decimal_exact::difference(a, b).unwrap_or_else(|| decimal_with(a, b, DecContext::sub))
}

/// The product of decimals, rounded likewise.
pub(crate) fn decimal_product(a: Decimal128, b: Decimal128) -> Decimal128 {
    decimal_exact::product(a, b).unwrap_or_else(|| decimal_with(a, b, DecContext::mul))
}

/// Combines two decimals by an operation of libdecnumber, rounding half to even to 34 digits.
pub(crate) fn decimal_with(
    left: Decimal128,
    right: Decimal128,
    operation: impl FnOnce(&mut DecContext, Dec, Dec) -> Dec,
) -> Decimal128 {
    from_dec(operation(&mut DecContext::default(), to_dec(left), to_dec(right)))
}

/// The remainder of a division of decimals, exact whatever their exponents.
pub(crate) fn decimal_remainder(left: Decimal128, right: Decimal128) -> Decimal128 {
    let remainder = decimal_with(left, right, DecContext::rem);
    // libdecnumber returns NaN when the quotient has more than 34 digits.
    let (
        Parts::Finite { negative, exponent, coefficient },
        Parts::Finite { exponent: unit, coefficient: modulus, .. },
    ) = (left.parts(), right.parts())
    else {
        return remainder;
    };
    if !remainder.is_nan() || modulus == 0 || exponent < unit {
        return remainder;
    }
    let mut rest = coefficient % modulus;
    for _ in unit..exponent {
        // A remainder has at most 34 digits, so ten times it fits 128 bits.
        rest = rest * 10 % modulus;
    }
    Decimal128::from_parts(Parts::Finite { negative, exponent: unit, coefficient: rest })
        .unwrap_or(remainder)
}

/// Numbers of 90 digits, for functions whose result is rounded to 34.
pub(crate) type Big = dec::Decimal<30>;

/// The rounding and precision of the intermediate steps of a function.
pub(crate) fn big_context() -> dec::Context<Big> {
    let mut context = dec::Context::<Big>::default();
    context.set_precision(80).expect("90 digits hold 80");
    // The largest exponents for which libdecnumber computes functions.
    context.set_max_exponent(999_999).expect("the limit is within the library's");
    context.set_min_exponent(-999_999).expect("the limit is within the library's");
    context
}

/// A BSON decimal as a number of 90 digits.
pub(crate) fn to_big(number: Decimal128) -> Big {
    Big::from(to_dec(number))
}

/// A number of 90 digits rounded to a BSON decimal.
pub(crate) fn from_big(big: &Big) -> Decimal128 {
    from_dec(DecContext::default().from_decimal(big))
}

/// The number without trailing zeros in its coefficient.
pub(crate) fn reduce(number: Decimal128) -> Decimal128 {
    from_dec(DecContext::default().reduce(to_dec(number)))
}

/// A double converted with 34 digits instead of the usual 15.
pub(crate) fn exact_decimal(number: f64) -> Decimal128 {
    if !number.is_finite() || number == 0.0 {
        return Decimal128::from_f64(number);
    }
    let text = format!("{number:.33e}");
    let decimal: Decimal128 = text.parse().expect("a finite double is a decimal");
    // Trailing zeros of an exact number are not significant.
    reduce(decimal)
}

/// A double as printed by mongod: the shortest text that parses to the same number.
pub(crate) fn double_text(number: f64) -> String {
    if !number.is_finite() {
        return special_text(number).to_owned();
    }
    laid_out(&format!("{number:e}"), 16)
}

/// Refuses a double outside the range of long.
pub(crate) fn check_fits_long(value: Value<'_>) -> Result<()> {
    match value {
        Value::Double(number)
            if marula_bson::value::exact_i64_of_double(number.trunc()).is_none() =>
        {
            Err(no_long(&short_double_text(number)))
        }
        _ => Ok(()),
    }
}

/// A double as printed by C++ streams: six digits.
pub fn short_double_text(number: f64) -> String {
    if !number.is_finite() {
        return special_text(number).to_owned();
    }
    laid_out(&format!("{number:.5e}"), 6)
}

fn special_text(number: f64) -> &'static str {
    match number {
        number if number.is_nan() && number.is_sign_negative() => "-nan",
        number if number.is_nan() => "nan",
        number if number < 0.0 => "-inf",
        _ => "inf",
    }
}

/// Formats scientific notation like C's `%g`; with an exponent from `exponent_max` on.
fn laid_out(scientific: &str, exponent_max: i32) -> String {
    let (mantissa, exponent) = scientific.split_once('e').expect("{:e} writes an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} writes a number");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let mut digits: String = mantissa.chars().filter(|&c| c != '.').collect();
    digits.truncate(digits.trim_end_matches('0').len().max(1));
    let places =
        usize::try_from(exponent.unsigned_abs()).expect("the exponent of a double is small");
    if exponent < -4 || exponent >= exponent_max {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{exponent_sign}{places:02}");
    }
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(places - 1));
    }
    if digits.len() <= places + 1 {
        return format!("{sign}{digits}{}", "0".repeat(places + 1 - digits.len()));
    }
    let (whole, fraction) = digits.split_at(places + 1);
    format!("{sign}{whole}.{fraction}")
}

/// The decimal rounded to the nearest integer, halves to even, clamped to the range of long; NaN is
/// 0.
pub(crate) fn whole_of_decimal(number: Decimal128) -> i64 {
    let (negative, magnitude) = match number.parts() {
        Parts::Nan => return 0,
        Parts::Infinity { negative } => (negative, None),
        Parts::Finite { negative, exponent, coefficient } => {
            (negative, rounded(coefficient, exponent))
        }
    };
    let magnitude = magnitude.and_then(|magnitude| i128::try_from(magnitude).ok());
    let signed = magnitude.map(|magnitude| if negative { -magnitude } else { magnitude });
    let end = if negative { i64::MIN } else { i64::MAX };
    signed.map_or(end, |signed| i64::try_from(signed).unwrap_or(end))
}

/// A number as a long, by mongod's conversion of counts in commands and stages: a double is
/// truncated, a decimal is rounded half to even, values out of range are clamped; NaN is zero.
/// `None` for values that are not numbers.
pub fn saturated_long(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Decimal128(number) => Some(whole_of_decimal(number)),
        #[allow(clippy::cast_possible_truncation)]
        number => number.as_exact_i64().or_else(|| number.as_f64().map(|number| number as i64)),
    }
}

/// The whole number in a constant of a stage, such as a sort's direction; a decimal is converted to
/// the nearest double first.
pub(crate) fn whole_number(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Decimal128(number) => exact_i64_of_double(number.to_f64()),
        number => number.as_exact_i64(),
    }
}

/// The integer nearest to `coefficient` × 10^`exponent`; `None` if it is out of range.
fn rounded(coefficient: u128, exponent: i32) -> Option<u128> {
    let scale = 10_u128.checked_pow(exponent.unsigned_abs());
    if coefficient == 0 {
        return Some(0);
    }
    if exponent >= 0 {
        return scale.and_then(|scale| coefficient.checked_mul(scale));
    }
    // A number this small is nearer to 0 than to 1, since a coefficient has 34 digits.
    let Some(scale) = scale else { return Some(0) };
    let (whole, rest) = (coefficient / scale, coefficient % scale);
    let half = scale / 2;
    Some(whole + u128::from(rest > half || (rest == half && whole % 2 == 1)))
}
