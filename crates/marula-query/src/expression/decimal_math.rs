//! Trigonometry of decimal128, exact to the last digit of mongod's library.
//!
//! That library computes in binary128 (see `quad`), and uses another method where that would lose
//! digits: near a zero of the function, or where binary128 has no numbers so large. Each function
//! here uses the same methods.

use marula_bson::Decimal128;
use marula_bson::decimal128::{EXPONENT_MIN, Parts};

use super::angle;
use super::decimal_power::exp;
use super::decimal_series as series;
use super::decimal_steps::{
    LARGE_POWER, TINY, add, constant, direct, divide, equals, fused, is_above, is_below, is_tiny,
    least_zero, magnitude, multiply, nearly, negated, rounded, signed_as, subtract,
};
use super::number::{Big, DecContext, from_dec, to_big, to_dec};
use super::quad::{Function, Quad};

fn rounded_pi(numerator: i32, denominator: i32) -> Decimal128 {
    rounded(|context| {
        let mut pi = series::pi(context);
        let (numerator, denominator) = (context.from_i32(numerator), context.from_i32(denominator));
        context.mul(&mut pi, &numerator);
        context.div(&mut pi, &denominator);
        pi
    })
}

/// The result of functions that are close to one: 1.000000000000000000000000000000000.
fn one_with_all_digits() -> Decimal128 {
    constant("1.000000000000000000000000000000000")
}

/// A zero with the sign of `x` and an exponent lower by 40: functions that mongod computes as a
/// product have such zeros.
fn small_zero(x: Decimal128) -> Decimal128 {
    let Parts::Finite { negative, exponent, .. } = x.parts() else { return x };
    let exponent = (exponent - 40).max(EXPONENT_MIN);
    Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient: 0 }).unwrap_or(x)
}

/// The quadrant of an angle, and the rest in binary128.
fn reduced(quad: &mut Quad, x: Decimal128) -> (u8, Big) {
    match x.parts() {
        Parts::Finite { negative, exponent, coefficient } if exponent >= -35 => {
            let angle = angle::reduced(negative, coefficient, exponent);
            let fraction = quad.scaled(angle.significand, angle.exponent);
            let one = quad.integer(1);
            let right = quad.apply(series::right_angle, &one);
            let mut rest = quad.multiply(&right, &fraction);
            if angle.negative {
                let zero = quad.integer(0);
                rest = quad.subtract(&zero, &rest);
            }
            (angle.quadrant, rest)
        }
        _ => (0, quad.of(x)),
    }
}

/// The sine of `x` plus `further` right angles.
fn sine(x: Decimal128, further: u8) -> Decimal128 {
    let mut quad = Quad::new();
    let (quadrant, rest) = reduced(&mut quad, x);
    let quadrant = (quadrant + further) & 3;
    let function: Function = if quadrant & 1 == 0 { series::sin } else { series::cos };
    let value = quad.apply(function, &rest);
    let value = quad.decimal(&value);
    if quadrant & 2 == 0 { value } else { negated(value) }
}

/// Returns whether the last digit of a number is so far after the decimal point that its sine is
/// the number itself.
fn ends_deep(x: Decimal128) -> bool {
    matches!(x.parts(), Parts::Finite { exponent, .. } if exponent < -52)
}

/// The sine.
pub(super) fn sin(x: Decimal128) -> Decimal128 {
    if x.is_nan() || x.is_zero() {
        return x;
    }
    if ends_deep(x) {
        return fused(x, negated(constant(TINY)), x);
    }
    sine(x, 0)
}

/// The cosine.
pub(super) fn cos(x: Decimal128) -> Decimal128 {
    if x.is_nan() {
        return x;
    }
    if x.is_zero() || ends_deep(x) {
        return one_with_all_digits();
    }
    sine(x, 1)
}

/// The tangent.
pub(super) fn tan(x: Decimal128) -> Decimal128 {
    if x.is_nan() {
        return x;
    }
    if x.is_zero() {
        return small_zero(x);
    }
    if ends_deep(x) {
        return nearly(x);
    }
    let mut quad = Quad::new();
    let (quadrant, rest) = reduced(&mut quad, x);
    let mut value = quad.apply(series::tan, &rest);
    if quadrant & 1 == 1 {
        let one = quad.integer(-1);
        value = quad.divide(&one, &value);
    }
    quad.decimal(&value)
}

/// The arc tangent.
pub(super) fn atan(x: Decimal128) -> Decimal128 {
    if x.is_nan() || x.is_zero() {
        return x;
    }
    if x.is_infinite() {
        return signed_as(rounded_pi(1, 2), x);
    }
    if is_tiny(x) {
        return fused(x, negated(constant(TINY)), x);
    }
    direct(x, series::atan)
}

/// `√(1 − x²)` in binary128, for a number near one.
fn other_side(quad: &mut Quad, x: Decimal128) -> Big {
    let square = negated(fused(x, x, Decimal128::from_i64(-1)));
    let square = quad.of(square);
    quad.apply(series::sqrt, &square)
}

/// The arc sine.
pub(super) fn asin(x: Decimal128) -> Decimal128 {
    if x.is_nan() {
        return x;
    }
    if x.is_zero() {
        return small_zero(x);
    }
    if is_tiny(x) {
        return nearly(x);
    }
    if !is_above(magnitude(x), "0.7") {
        return direct(x, series::asin);
    }
    let mut quad = Quad::new();
    let side = other_side(&mut quad, x);
    let value = quad.apply(series::acos, &side);
    signed_as(quad.decimal(&value), x)
}

/// The arc cosine.
pub(super) fn acos(x: Decimal128) -> Decimal128 {
    if x.is_nan() {
        return x;
    }
    if equals(x, "1") {
        return least_zero(false);
    }
    if is_tiny(x) {
        return rounded_pi(1, 2);
    }
    if !is_above(magnitude(x), "0.7") {
        return direct(x, series::acos);
    }
    let mut quad = Quad::new();
    let side = other_side(&mut quad, x);
    let mut value = quad.apply(series::asin, &side);
    if x.is_negative() {
        let two = quad.integer(2);
        let half_turn = quad.apply(series::right_angle, &two);
        value = quad.subtract(&half_turn, &value);
    }
    quad.decimal(&value)
}

/// The angle of a point, by quadrant.
pub(super) fn atan2(y: Decimal128, x: Decimal128) -> Decimal128 {
    if y.is_nan() || x.is_nan() {
        return Decimal128::NAN;
    }
    let flat = |y| {
        if x.is_negative() {
            signed_as(rounded_pi(1, 1), y)
        } else {
            least_zero(Decimal128::is_negative(y))
        }
    };
    match (y.is_infinite(), x.is_infinite()) {
        (true, true) if x.is_negative() => return signed_as(rounded_pi(3, 4), y),
        // The library's own constant has one digit less.
        (true, true) => return signed_as(constant("0.785398163397448309615660845819876"), y),
        (true, false) => return signed_as(rounded_pi(1, 2), y),
        (false, true) => return flat(y),
        _ if y.is_zero() => return flat(y),
        _ if x.is_zero() => return signed_as(rounded_pi(1, 2), y),
        _ => {}
    }
    let ratio = divide(y, x);
    let steep = magnitude(ratio);
    if is_above(steep, "1E+36") {
        return signed_as(rounded_pi(1, 2), y);
    }
    if is_below(steep, "1E-36") {
        return if x.is_negative() { signed_as(rounded_pi(1, 1), y) } else { ratio };
    }
    let angle = direct(steep, series::atan);
    let angle = if x.is_negative() { subtract(rounded_pi(1, 1), angle) } else { angle };
    signed_as(angle, y)
}

/// `(e^x + sign · e^−x) / 2` for a number greater than one.
fn half_exponentials(x: Decimal128, sign: &str) -> Decimal128 {
    let half = constant("0.5");
    if !is_above(x, "64") {
        let up = exp(x);
        let down = divide(Decimal128::from_i64(1), up);
        return fused(up, half, multiply(constant(sign), multiply(half, down)));
    }
    if is_above(x, "15000") {
        return Decimal128::INFINITY;
    }
    let mut quad = Quad::new();
    let whole = from_dec(DecContext::default().round(to_dec(x)));
    let mut argument = quad.of(whole);
    let is_large = is_above(whole, "11000");
    let limit = quad.integer(LARGE_POWER);
    if is_large {
        argument = quad.subtract(&argument, &limit);
    }
    let power = quad.apply(series::exp, &argument);
    let rest = quad.of(subtract(x, whole));
    let rest = quad.apply(series::exp, &rest);
    let product = quad.multiply(&power, &rest);
    let half = quad.of(half);
    let value = quad.multiply(&product, &half);
    let value = quad.decimal(&value);
    if is_large { multiply(value, rounded(|context| series::exp(context, &limit))) } else { value }
}

/// The hyperbolic sine.
pub(super) fn sinh(x: Decimal128) -> Decimal128 {
    if x.is_nan() || x.is_infinite() {
        return x;
    }
    if x.is_zero() {
        return small_zero(x);
    }
    if is_tiny(x) {
        return nearly(x);
    }
    if is_above(magnitude(x), "1") {
        return signed_as(half_exponentials(magnitude(x), "-1"), x);
    }
    direct(x, series::sinh)
}

/// The hyperbolic cosine.
pub(super) fn cosh(x: Decimal128) -> Decimal128 {
    if x.is_nan() {
        return x;
    }
    if x.is_infinite() {
        return Decimal128::INFINITY;
    }
    if x.is_zero() || is_tiny(x) {
        return one_with_all_digits();
    }
    if is_above(magnitude(x), "1") {
        return half_exponentials(magnitude(x), "1");
    }
    direct(x, series::cosh)
}

/// The hyperbolic tangent.
pub(super) fn tanh(x: Decimal128) -> Decimal128 {
    if x.is_nan() || x.is_zero() {
        return x;
    }
    if is_tiny(x) {
        return fused(x, negated(constant(TINY)), x);
    }
    // All digits of the result are those of one long before this.
    if is_above(magnitude(x), "1000") {
        return signed_as(Decimal128::from_i64(1), x);
    }
    direct(x, series::tanh)
}

/// `ln(2x)` for a large number: the exponent is taken out.
fn large_area(x: Decimal128) -> Option<Decimal128> {
    let Parts::Finite { exponent, coefficient, .. } = x.parts() else { return None };
    if exponent <= 34 {
        return None;
    }
    let mut quad = Quad::new();
    let coefficient = quad.scaled(coefficient, 0);
    let coefficient = quad.nearest(&coefficient);
    let double = quad.add(&coefficient, &coefficient);
    let ten = quad.integer(10);
    let ten = quad.apply(series::ln, &ten);
    let places = quad.integer(exponent);
    let part = quad.multiply(&places, &ten);
    let value = quad.apply(series::ln, &double);
    let value = quad.add(&value, &part);
    Some(signed_as(quad.decimal(&value), x))
}

/// The inverse hyperbolic sine.
pub(super) fn asinh(x: Decimal128) -> Decimal128 {
    if x.is_nan() || x.is_infinite() {
        return x;
    }
    if x.is_zero() {
        return least_zero(x.is_negative());
    }
    let area = large_area(x).unwrap_or_else(|| direct(x, series::asinh));
    // A result too small for any digit keeps its sign.
    if area.is_zero() { signed_as(area, x) } else { area }
}

/// The inverse hyperbolic cosine for numbers from one on.
pub(super) fn acosh(x: Decimal128) -> Decimal128 {
    if x.is_nan() || x.is_infinite() {
        return x;
    }
    if is_below(x, "1.03125") {
        let square = fused(x, x, Decimal128::from_i64(-1));
        let side = rounded(|context| series::sqrt(context, &to_big(square)));
        return direct(side, series::asinh);
    }
    large_area(x).unwrap_or_else(|| direct(x, series::acosh))
}

/// The inverse hyperbolic tangent; infinite at one.
pub(super) fn atanh(x: Decimal128) -> Decimal128 {
    if x.is_nan() {
        return x;
    }
    if x.is_zero() {
        return least_zero(x.is_negative());
    }
    if matches!(x.parts(), Parts::Finite { exponent, .. } if exponent <= -51) {
        return x;
    }
    let size = magnitude(x);
    let rest = subtract(Decimal128::from_i64(1), size);
    if rest.is_zero() {
        return signed_as(Decimal128::INFINITY, x);
    }
    let ratio = divide(size, rest);
    let ratio = add(ratio, ratio);
    let mut quad = Quad::new();
    let ratio = quad.of(ratio);
    let value = quad.apply(series::ln_1p, &ratio);
    let half = quad.of(constant("0.5"));
    let value = quad.multiply(&value, &half);
    signed_as(quad.decimal(&value), x)
}

/// Degrees as radians.
pub(super) fn to_radians(x: Decimal128) -> Decimal128 {
    // π/180 with 34 digits: the product is rounded again, as in mongod.
    multiply(x, constant("0.01745329251994329576923690768488613"))
}

/// Radians as degrees.
pub(super) fn to_degrees(x: Decimal128) -> Decimal128 {
    multiply(x, constant("57.29577951308232087679815481410517"))
}
