//! Sums, products and roundings of decimals that need no more than 34 digits, as most of prices and
//! amounts do: computed on the coefficients. `None` leaves the others to libdecnumber.

use dec::Rounding;
use marula_bson::Decimal128;
use marula_bson::decimal128::{COEFFICIENT_MAX, Parts};

/// The sum.
pub(super) fn sum(left: Decimal128, right: Decimal128) -> Option<Decimal128> {
    add(left.parts(), right.parts())
}

/// The difference.
pub(super) fn difference(left: Decimal128, right: Decimal128) -> Option<Decimal128> {
    let Parts::Finite { negative, exponent, coefficient } = right.parts() else { return None };
    add(left.parts(), Parts::Finite { negative: !negative, exponent, coefficient })
}

fn add(left: Parts, right: Parts) -> Option<Decimal128> {
    let (
        Parts::Finite { negative: a_negative, exponent: a_exponent, coefficient: a },
        Parts::Finite { negative: b_negative, exponent: b_exponent, coefficient: b },
    ) = (left, right)
    else {
        return None;
    };
    let exponent = a_exponent.min(b_exponent);
    let a = signed(a_negative, at(a, a_exponent, exponent)?);
    let b = signed(b_negative, at(b, b_exponent, exponent)?);
    let sum = a + b;
    // The sum of opposite numbers is positive.
    let negative = if sum == 0 { a_negative && b_negative } else { sum < 0 };
    Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient: sum.unsigned_abs() })
}

/// The product.
pub(super) fn product(left: Decimal128, right: Decimal128) -> Option<Decimal128> {
    let (
        Parts::Finite { negative: a_negative, exponent: a_exponent, coefficient: a },
        Parts::Finite { negative: b_negative, exponent: b_exponent, coefficient: b },
    ) = (left.parts(), right.parts())
    else {
        return None;
    };
    Decimal128::from_parts(Parts::Finite {
        negative: a_negative != b_negative,
        exponent: a_exponent + b_exponent,
        coefficient: a.checked_mul(b)?,
    })
}

/// The number with this exponent.
pub(super) fn quantized(
    number: Decimal128,
    exponent: i32,
    rounding: Rounding,
) -> Option<Decimal128> {
    let Parts::Finite { negative, exponent: own, coefficient } = number.parts() else {
        return None;
    };
    let coefficient = if own >= exponent {
        at(coefficient, own, exponent)?
    } else if let Some(unit) = 10_u128.checked_pow(exponent.abs_diff(own)) {
        let (whole, rest) = (coefficient / unit, coefficient % unit);
        whole + u128::from(rounds_up(whole, rest, unit, rounding)?)
    } else {
        // All digits are dropped, and the number is less than half of the unit.
        0
    };
    Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient })
}

/// The double with this number of decimal places, up to 17.
///
/// mongod converts it to 34 digits before it rounds, which makes no difference here: a double that
/// is not half-way between two results differs from there by more than the last of these digits.
pub(super) fn rounded_double(double: f64, places: u32, rounding: Rounding) -> Option<f64> {
    const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const PLACES_MAX: u32 = 17;
    if places > PLACES_MAX || !double.is_normal() {
        return None;
    }
    let bits = double.to_bits();
    let mantissa = (bits & ((1 << FRACTION_BITS) - 1)) | (1 << FRACTION_BITS);
    let biased = u32::try_from((bits >> FRACTION_BITS) & 0x7FF).ok()?;
    // The double is `mantissa / 2^shift`.
    let shift = (f64::MAX_EXP.unsigned_abs() - 1 + FRACTION_BITS).checked_sub(biased)?;
    if shift == 0 || shift >= u128::BITS {
        return None;
    }
    let unit = 1_u128 << shift;
    let scaled = u128::from(mantissa) * 10_u128.pow(places);
    let (whole, rest) = (scaled >> shift, scaled & (unit - 1));
    let whole = whole + u128::from(rounds_up(whole, rest, unit, rounding)?);
    if whole > 1 << f64::MANTISSA_DIGITS {
        return None;
    }
    // Both are exact, so the quotient is the nearest double.
    #[allow(clippy::cast_precision_loss)]
    let nearest = whole as f64 / 10_u128.pow(places) as f64;
    Some(nearest.copysign(double))
}

/// Returns whether `whole` is rounded up if `rest` of `unit` is dropped.
fn rounds_up(whole: u128, rest: u128, unit: u128, rounding: Rounding) -> Option<bool> {
    match rounding {
        Rounding::Down => Some(false),
        Rounding::HalfEven => {
            // Not `2 * rest`, which may be too large.
            let other = unit - rest;
            Some(rest > other || rest == other && whole % 2 == 1)
        }
        _ => None,
    }
}

/// The coefficient for a lower exponent, if it fits.
fn at(coefficient: u128, exponent: i32, lower: i32) -> Option<u128> {
    if coefficient == 0 {
        return Some(0);
    }
    let power = 10_u128.checked_pow(exponent.abs_diff(lower))?;
    coefficient.checked_mul(power).filter(|&coefficient| coefficient <= COEFFICIENT_MAX)
}

fn signed(negative: bool, coefficient: u128) -> i128 {
    let magnitude = i128::try_from(coefficient).expect("34 digits fit 127 bits");
    if negative { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use dec::Context;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::expression::number::{decimal_with, exact_decimal, from_dec, to_dec};

    type DecContext = Context<dec::Decimal128>;

    /// A decimal of any kind, most of them of a few digits.
    fn number(random: &mut StdRng) -> Decimal128 {
        let digits = 10_u128.pow(random.random_range(0..=34));
        let exponent = match random.random_range(0..10) {
            0 => random.random_range(-6176..=6111),
            1 => random.random_range(-40..=40),
            _ => random.random_range(-4..=2),
        };
        let coefficient = random.random_range(0..digits.max(1));
        let negative = random.random();
        Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient }).unwrap()
    }

    #[test]
    fn results_are_those_of_libdecnumber() {
        let random = &mut StdRng::seed_from_u64(7);
        let mut exact = 0;
        for _ in 0..100_000 {
            let (a, b) = (number(random), number(random));
            for (found, expected) in [
                (sum(a, b), decimal_with(a, b, DecContext::add)),
                (difference(a, b), decimal_with(a, b, DecContext::sub)),
                (product(a, b), decimal_with(a, b, DecContext::mul)),
            ] {
                if let Some(found) = found {
                    assert_eq!(found, expected, "{a} {b}");
                    exact += 1;
                }
            }
        }
        assert!(exact > 150_000, "{exact}");
    }

    fn quantized_by_library(number: Decimal128, exponent: i32, rounding: Rounding) -> Decimal128 {
        let one = Parts::Finite { negative: false, exponent, coefficient: 1 };
        let mut context = DecContext::default();
        context.set_rounding(rounding);
        let one = to_dec(Decimal128::from_parts(one).unwrap());
        from_dec(context.quantize(to_dec(number), one))
    }

    #[test]
    fn roundings_are_those_of_libdecnumber() {
        let random = &mut StdRng::seed_from_u64(11);
        for _ in 0..50_000 {
            let (a, exponent) = (number(random), random.random_range(-100..=20));
            for rounding in [Rounding::HalfEven, Rounding::Down] {
                if let Some(found) = quantized(a, exponent, rounding) {
                    let expected = quantized_by_library(a, exponent, rounding);
                    assert_eq!(found, expected, "{a} at {exponent}");
                }
            }
        }
    }

    #[test]
    fn doubles_are_rounded_as_their_decimals() {
        let random = &mut StdRng::seed_from_u64(13);
        for _ in 0..50_000 {
            let places = random.random_range(0..=17_u32);
            let double = match random.random_range(0..4) {
                0 => f64::from_bits(random.random()),
                // Half-way between two results, or close to it.
                1 => f64::from(random.random_range(-2_000..2_000)) / 8.0,
                2 => f64::from(random.random_range(-20_000..20_000)) / 1_000.0,
                _ => random.random_range(-1e9..1e9),
            };
            for rounding in [Rounding::HalfEven, Rounding::Down] {
                let Some(found) = rounded_double(double, places, rounding) else { continue };
                let exponent = -i32::try_from(places).unwrap();
                let whole = quantized_by_library(exact_decimal(double), exponent, rounding);
                let expected = whole.to_f64().copysign(double);
                assert_eq!(found.to_bits(), expected.to_bits(), "{double:e} {places}");
            }
        }
    }
}
