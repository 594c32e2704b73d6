//! Powers and logarithms of decimal128, exact to the last digit of mongod's library.
//!
//! As in `decimal_math`, the methods are those of that library; the results are tested against it.

use std::cmp::Ordering;

use marula_bson::Decimal128;
use marula_bson::decimal128::Parts;

use super::decimal_series as series;
use super::decimal_steps::{
    LARGE_POWER, add, compare, constant, direct, divide, equals, fused, is_above, is_below,
    least_zero, magnitude, multiply, negated, rounded, shifted, subtract,
};
use super::number::{Big, DecContext, big_context, from_big, from_dec, to_big, to_dec};
use super::quad::{Function, Quad};

/// Above this exponent a power of ten is taken out, since binary128 ends at 10^4932.
const LARGE_EXPONENT: i32 = 4464;

/// e to the power of `x`.
pub(super) fn exp(x: Decimal128) -> Decimal128 {
    if x.is_nan() {
        return x;
    }
    if x.is_infinite() {
        return if x.is_negative() { Decimal128::ZERO } else { x };
    }
    if is_above(x, "15000") {
        return Decimal128::INFINITY;
    }
    if is_below(x, "-15000") {
        return least_zero(false);
    }
    power_of(x, series::exp, None)
}

/// Two to the power of `x`.
fn exp2(x: Decimal128) -> Decimal128 {
    if is_above(x, "25000") {
        return Decimal128::INFINITY;
    }
    if is_below(x, "-25000") {
        return least_zero(false);
    }
    power_of(x, series::exp2, Some(2))
}

/// A base to the power of `x`: computed from 113 bits of the exponent, with a first-order term for
/// the rest. The slope is the logarithm of `base`, or one for e.
fn power_of(x: Decimal128, function: Function, base: Option<i32>) -> Decimal128 {
    let mut quad = Quad::new();
    let (high, low) = quad.split(x);
    let limit = quad.integer(LARGE_POWER);
    let part = if is_above(x, "11000") {
        Some(limit)
    } else if is_below(x, "-11000") {
        Some(quad.integer(-LARGE_POWER))
    } else {
        None
    };
    let argument = part.as_ref().map_or(high, |part| quad.subtract(&high, part));
    let power = quad.apply(function, &argument);
    let slope = match base {
        Some(base) => {
            let base = quad.integer(base);
            let logarithm = quad.apply(series::ln, &base);
            quad.multiply(&power, &logarithm)
        }
        None => power,
    };
    let correction = quad.multiply(&slope, &low);
    let sum = quad.add(&power, &correction);
    let result = quad.decimal(&sum);
    match part {
        Some(part) => multiply(result, rounded(|context| function(context, &part))),
        None => result,
    }
}

/// Ten to the power of `x`: computed for the fraction of `x`; the whole part shifts the decimal
/// point.
fn exp10(x: Decimal128) -> Decimal128 {
    if is_above(x, "7000") {
        return Decimal128::INFINITY;
    }
    if is_below(x, "-7000") {
        return least_zero(false);
    }
    let whole = from_dec(DecContext::default().round(to_dec(x)));
    let places = whole.to_exact_i64().and_then(|whole| i32::try_from(whole).ok()).unwrap_or(0);
    shifted(direct(subtract(x, whole), series::exp10), places)
}

/// The natural logarithm of a positive number.
pub(super) fn ln(x: Decimal128) -> Decimal128 {
    logarithm(x, None)
}

/// The logarithm to base ten of a positive number.
pub(super) fn log10(x: Decimal128) -> Decimal128 {
    logarithm(x, Some(10))
}

/// The logarithm of a positive number to any base; bases ten and two have methods of their own.
pub(super) fn log(x: Decimal128, base: Decimal128) -> Decimal128 {
    if equals(base, "10") {
        return log10(x);
    }
    if equals(base, "2") {
        return logarithm(x, Some(2));
    }
    divide(ln(x), ln(base))
}

/// The logarithm of a positive number to a base, or to e if there is none.
fn logarithm(x: Decimal128, base: Option<i32>) -> Decimal128 {
    if x.is_nan() || x.is_infinite() {
        return x;
    }
    let mut quad = Quad::new();
    let places = if is_above(x, "1E+4464") {
        LARGE_EXPONENT
    } else if is_below(x, "1E-4464") {
        -LARGE_EXPONENT
    } else {
        0
    };
    let argument = quad.of(shifted(x, -places));
    let direct: Function = if base == Some(2) { series::log2 } else { series::ln };
    let mut value = quad.apply(direct, &argument);
    let factor = base.map(|base| {
        let base = quad.integer(base);
        quad.apply(series::reciprocal_ln, &base)
    });
    let one = quad.integer(1);
    if is_above(x, "0.5") && is_below(x, "1.5") {
        // The conversion's rounding error matters here, since the logarithm is close to zero.
        let distance = quad.subtract(&argument, &one);
        let exact = quad.of(subtract(x, Decimal128::from_i64(1)));
        let lost = quad.subtract(&distance, &exact);
        let mut lost = quad.divide(&lost, &argument);
        if let (Some(2), Some(factor)) = (base, &factor) {
            lost = quad.multiply(&lost, factor);
        }
        value = quad.subtract(&value, &lost);
    }
    if let (Some(10), Some(factor)) = (base, &factor) {
        value = quad.multiply(&value, factor);
    }
    if places != 0 {
        let places = quad.integer(places);
        let part = match (base, factor) {
            (Some(10), _) => places,
            (_, None) => quad.apply(series::times_ln_10, &places),
            (_, Some(factor)) => {
                let part = quad.apply(series::times_ln_10, &places);
                quad.multiply(&part, &factor)
            }
        };
        value = quad.add(&value, &part);
    }
    quad.decimal(&value)
}

/// `x` to the power of `y`, with all digits; a zero has the least exponent.
pub(crate) fn pow(x: Decimal128, y: Decimal128) -> Decimal128 {
    let one = Decimal128::from_i64(1);
    if y.is_zero() && equals(x, "10") {
        // The library's power of ten lacks this case.
        return Decimal128::ZERO;
    }
    if y.is_zero() || equals(x, "1") {
        return one;
    }
    if x.is_nan() || y.is_nan() {
        return Decimal128::NAN;
    }
    let grows = || compare(magnitude(x), one);
    if y.is_infinite() {
        return match (grows(), y.is_negative()) {
            (Some(Ordering::Equal), _) => one,
            (Some(Ordering::Greater), false) | (Some(Ordering::Less), true) => Decimal128::INFINITY,
            _ => Decimal128::ZERO,
        };
    }
    let parity = parity(y);
    let negates = x.is_negative() && parity == Some(true);
    if x.is_infinite() || x.is_zero() {
        if x.is_zero() != y.is_negative() {
            return Decimal128::ZERO;
        }
        return if negates { Decimal128::NEG_INFINITY } else { Decimal128::INFINITY };
    }
    if x.is_negative() && parity.is_none() {
        return Decimal128::NAN;
    }
    if equals(x, "10") {
        return exp10(y);
    }
    if equals(x, "2") {
        return exp2(y);
    }
    let (high, low) = exact_ln(magnitude(x));
    let exponent = multiply(y, high);
    let rest = fused(y, high, negated(exponent));
    let rest = fused(y, low, rest);
    let power = exp(exponent);
    if power.is_zero() || power.is_infinite() {
        return if negates { negated(power) } else { power };
    }
    let power = fused(power, rest, power);
    if negates { negated(power) } else { power }
}

/// Returns whether an integer is odd; `None` for other numbers.
fn parity(y: Decimal128) -> Option<bool> {
    let Parts::Finite { exponent, coefficient, .. } = y.parts() else { return None };
    if exponent > 0 || coefficient == 0 {
        return Some(false);
    }
    let unit = 10_u128.checked_pow(exponent.unsigned_abs())?;
    (coefficient % unit == 0).then_some(coefficient / unit % 2 == 1)
}

/// The natural logarithm in two numbers: 28 digits after the decimal point, and 19 more.
fn exact_ln(x: Decimal128) -> (Decimal128, Decimal128) {
    /// Logarithms whose first part would have fewer digits are computed by the series.
    const SMALL: u128 = 1 << 65;
    let mut context = big_context();
    let logarithm = series::ln(&mut context, &to_big(x));
    let negative = logarithm.is_negative();
    let mut digits = |value: &Big, places: i32| -> (u128, Big) {
        let mut scaled = *value;
        scaled.set_exponent(scaled.exponent() + places);
        context.abs(&mut scaled);
        context.set_rounding(dec::Rounding::Down);
        let mut whole = scaled;
        context.round(&mut whole);
        context.set_rounding(dec::Rounding::HalfEven);
        context.sub(&mut scaled, &whole);
        match from_big(&whole).parts() {
            Parts::Finite { coefficient, exponent: 0, .. } => (coefficient, scaled),
            _ => (0, scaled),
        }
    };
    let (high, rest) = digits(&logarithm, 28);
    if high >= SMALL {
        let (low, _) = digits(&rest, 19);
        let number = |coefficient: u128, exponent: i32| {
            Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient })
                .unwrap_or(Decimal128::ZERO)
        };
        return (number(high, -28), number(low, -47));
    }
    let t = subtract(x, Decimal128::from_i64(1));
    let mut power = multiply(t, t);
    let mut tail = multiply(constant("-0.5"), power);
    for factor in ["0.3333333333333333333333333333333333", "-0.25"] {
        power = multiply(t, power);
        tail = add(tail, multiply(constant(factor), power));
    }
    let high = add(t, tail);
    (high, subtract(subtract(high, t), tail))
}
