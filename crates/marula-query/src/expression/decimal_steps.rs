//! Operations on decimals of 34 digits: constants, comparisons, arithmetic rounded at each step.

use std::cmp::Ordering;

use dec::Decimal128 as Dec;
use marula_bson::Decimal128;
use marula_bson::decimal128::{EXPONENT_MIN, Parts};

use super::number::{Big, DecContext, big_context, decimal_with, from_big, from_dec, to_dec};
use super::quad::{Function, Quad};

/// Smaller numbers are too small for binary128 or for a second term of a series.
pub(super) const TINY: &str = "1E-40";
/// Above this power the exponential is computed in two factors.
pub(super) const LARGE_POWER: i32 = 11_000;

pub(super) fn constant(text: &str) -> Decimal128 {
    text.parse().expect("the constant is a number")
}

pub(super) fn compare(x: Decimal128, y: Decimal128) -> Option<Ordering> {
    DecContext::default().partial_cmp(to_dec(x), to_dec(y))
}

pub(super) fn is_above(x: Decimal128, y: &str) -> bool {
    compare(x, constant(y)).is_some_and(Ordering::is_gt)
}

pub(super) fn is_below(x: Decimal128, y: &str) -> bool {
    compare(x, constant(y)).is_some_and(Ordering::is_lt)
}

pub(super) fn equals(x: Decimal128, y: &str) -> bool {
    compare(x, constant(y)).is_some_and(Ordering::is_eq)
}

pub(super) fn is_tiny(x: Decimal128) -> bool {
    is_below(magnitude(x), TINY)
}

pub(super) fn magnitude(x: Decimal128) -> Decimal128 {
    if x.is_negative() { negated(x) } else { x }
}

pub(super) fn negated(x: Decimal128) -> Decimal128 {
    let mut bytes = x.bytes();
    bytes[15] ^= 0x80;
    Decimal128::from_bytes(bytes)
}

/// `x` with the sign of `sign`.
pub(super) fn signed_as(x: Decimal128, sign: Decimal128) -> Decimal128 {
    if sign.is_negative() { negated(x) } else { x }
}

pub(super) fn add(x: Decimal128, y: Decimal128) -> Decimal128 {
    decimal_with(x, y, DecContext::add)
}

pub(super) fn subtract(x: Decimal128, y: Decimal128) -> Decimal128 {
    decimal_with(x, y, DecContext::sub)
}

pub(super) fn multiply(x: Decimal128, y: Decimal128) -> Decimal128 {
    decimal_with(x, y, DecContext::mul)
}

pub(super) fn divide(x: Decimal128, y: Decimal128) -> Decimal128 {
    decimal_with(x, y, DecContext::div)
}

/// `x · y + z`, rounded once.
pub(super) fn fused(x: Decimal128, y: Decimal128, z: Decimal128) -> Decimal128 {
    let [x, y, z]: [Dec; 3] = [x, y, z].map(to_dec);
    from_dec(DecContext::default().fma(x, y, z))
}

/// `x · 10^places`.
pub(super) fn shifted(x: Decimal128, places: i32) -> Decimal128 {
    let places = Dec::from(places);
    from_dec(DecContext::default().scaleb(to_dec(x), places))
}

/// `x` changed in its last digit only: the same value with all its digits.
pub(super) fn nearly(x: Decimal128) -> Decimal128 {
    fused(x, constant(TINY), x)
}

/// Evaluates the function in binary128.
pub(super) fn direct(x: Decimal128, function: Function) -> Decimal128 {
    let mut quad = Quad::new();
    let argument = quad.of(x);
    let value = quad.apply(function, &argument);
    quad.decimal(&value)
}

/// A constant, rounded to 34 digits.
pub(super) fn rounded(value: impl FnOnce(&mut dec::Context<Big>) -> Big) -> Decimal128 {
    from_big(&value(&mut big_context()))
}

/// The zero with the least exponent: mongod's result for functions that are zero without being
/// exact.
pub(super) fn least_zero(negative: bool) -> Decimal128 {
    let parts = Parts::Finite { negative, exponent: EXPONENT_MIN, coefficient: 0 };
    Decimal128::from_parts(parts).unwrap_or(Decimal128::ZERO)
}
