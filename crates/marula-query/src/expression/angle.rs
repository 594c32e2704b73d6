//! Reduces angles of decimals to the first quadrant, whatever their size.

use std::sync::LazyLock;

use num_bigint::BigUint;

/// Additional digits that keep the result exact even for an angle close to a multiple of a right
/// angle.
const SPARE: u32 = 120;
/// The digits of a coefficient.
const COEFFICIENT: u32 = 34;
/// The largest exponent for which the short π suffices.
const SHORT_MAX: u32 = 40;
/// The largest exponent of a decimal.
const LONG_MAX: u32 = 6111;

/// π with its digits, for common angles and for all.
static SHORT_PI: LazyLock<Pi> = LazyLock::new(|| Pi::new(digits(SHORT_MAX)));
static LONG_PI: LazyLock<Pi> = LazyLock::new(|| Pi::new(digits(LONG_MAX)));

fn digits(exponent: u32) -> u32 {
    exponent + COEFFICIENT + 2 * SPARE
}

struct Pi {
    digits: u32,
    scaled: BigUint,
}

impl Pi {
    /// By Machin's formula: 16 arccot 5 − 4 arccot 239.
    fn new(digits: u32) -> Pi {
        const GUARD: u32 = 10;
        let one = BigUint::from(10_u32).pow(digits + GUARD);
        let pi = arc_cotangent(&one, 5) * 16_u32 - arc_cotangent(&one, 239) * 4_u32;
        Pi { digits, scaled: pi / 10_u64.pow(GUARD) }
    }
}

fn arc_cotangent(one: &BigUint, of: u32) -> BigUint {
    let mut power = one / of;
    let (mut plus, mut minus) = (power.clone(), BigUint::ZERO);
    let mut at = 1_u32;
    while power != BigUint::ZERO {
        power /= of * of;
        at += 2;
        let term = &power / at;
        if at % 4 == 1 { plus += term } else { minus += term }
    }
    plus - minus
}

/// An angle in right angles: a whole number, and a fraction between −½ and ½.
#[derive(Debug, PartialEq)]
pub(super) struct Angle {
    /// Right angles, modulo four.
    pub(super) quadrant: u8,
    pub(super) negative: bool,
    /// The first 113 bits of the fraction, truncated, as an integer …
    pub(super) significand: u128,
    /// … times this power of two.
    pub(super) exponent: i32,
}

/// Divides `coefficient · 10^exponent` by the right angle. The exponent is at least −40.
pub(super) fn reduced(negative: bool, coefficient: u128, exponent: i32) -> Angle {
    let power = u32::try_from(exponent.max(0)).unwrap_or(0).min(LONG_MAX);
    let places = power + COEFFICIENT + SPARE;
    let pi: &Pi = if power <= SHORT_MAX { &SHORT_PI } else { &LONG_PI };
    let ten = BigUint::from(10_u32);
    let right = &pi.scaled / ten.pow(pi.digits - places) / 2_u32;
    let shift = u32::try_from(i64::from(places) + i64::from(exponent)).unwrap_or(0);
    let angle = BigUint::from(coefficient) * ten.pow(shift);
    let turns = &angle / &right;
    let mut rest = angle - &turns * &right;
    let low = turns.iter_u64_digits().next().unwrap_or(0);
    let mut quadrant = (low & 3) as u8;
    let mut is_below = negative;
    if &rest * 2_u32 >= right {
        quadrant = (quadrant + 1) & 3;
        rest = &right - rest;
        is_below = !negative;
    }
    if negative {
        quadrant = quadrant.wrapping_neg() & 3;
    }
    let bits = |number: &BigUint| i64::try_from(number.bits()).unwrap_or(0);
    // The quotient may have one bit more than wanted; it is truncated as well.
    let shift = bits(&right) - bits(&rest) + 113;
    let quotient = (rest << shift) / &right;
    let extra = bits(&quotient) - 113;
    let significand = u128::try_from(quotient >> extra.max(0)).unwrap_or(0);
    let exponent = i32::try_from(extra.max(0) - shift).unwrap_or(0);
    Angle { quadrant, negative: is_below, significand, exponent }
}
