//! Arithmetic of IEEE binary128, which has 113 bits, emulated with numbers of 80 decimal digits.
//!
//! mongod's decimal library computes logarithms, powers and trigonometry in binary128 and rounds
//! the results to 34 digits. 113 bits are hardly more than 34 digits, so the last digit depends on
//! the method: each step here is computed with 80 digits and rounded to 113 bits, like in
//! binary128.

use std::sync::OnceLock;

use dec::Rounding;
use marula_bson::Decimal128;
use marula_bson::decimal128::{COEFFICIENT_MAX, Parts};

use super::number::{Big, big_context, from_big, reduce, to_big};

/// The number of bits of a significand.
const BITS: i32 = 113;
/// The power of two of the last bit of the smallest numbers.
const EXPONENT_MIN: i32 = -16_494;

/// The powers of two that numbers of usual size are scaled by.
static POWERS: [OnceLock<Big>; 512] = [const { OnceLock::new() }; 512];

/// A function of one number, to 80 digits.
pub(super) type Function = fn(&mut dec::Context<Big>, &Big) -> Big;

/// The environment of a computation. Every `Big` that it returns has at most 113 bits.
pub(super) struct Quad {
    context: dec::Context<Big>,
    /// 2¹¹² and 2¹¹³, the bounds of significands.
    range: [Big; 2],
}

impl Quad {
    pub(super) fn new() -> Quad {
        let mut context = big_context();
        let range = [BITS - 1, BITS].map(|bits| context.from_u128(1 << bits));
        Quad { context, range }
    }

    /// The nearest number of 113 bits.
    pub(super) fn of(&mut self, x: Decimal128) -> Big {
        self.nearest(&to_big(x))
    }

    /// The number truncated to 113 bits, and the rest.
    pub(super) fn split(&mut self, x: Decimal128) -> (Big, Big) {
        let whole = to_big(x);
        let high = self.rounded(&whole, Rounding::Down);
        let mut low = whole;
        self.context.sub(&mut low, &high);
        (high, self.nearest(&low))
    }

    /// An integer times a power of two.
    pub(super) fn scaled(&mut self, significand: u128, exponent: i32) -> Big {
        let significand = self.context.from_u128(significand);
        self.times_power(&significand, exponent)
    }

    /// The nearest number of 113 bits.
    pub(super) fn nearest(&mut self, x: &Big) -> Big {
        self.rounded(x, Rounding::HalfEven)
    }

    /// The value of a function.
    pub(super) fn apply(&mut self, function: Function, x: &Big) -> Big {
        let value = function(&mut self.context, x);
        self.nearest(&value)
    }

    pub(super) fn add(&mut self, x: &Big, y: &Big) -> Big {
        let mut sum = *x;
        self.context.add(&mut sum, y);
        self.nearest(&sum)
    }

    pub(super) fn subtract(&mut self, x: &Big, y: &Big) -> Big {
        let mut difference = *x;
        self.context.sub(&mut difference, y);
        self.nearest(&difference)
    }

    pub(super) fn multiply(&mut self, x: &Big, y: &Big) -> Big {
        let mut product = *x;
        self.context.mul(&mut product, y);
        self.nearest(&product)
    }

    pub(super) fn divide(&mut self, x: &Big, y: &Big) -> Big {
        let mut quotient = *x;
        self.context.div(&mut quotient, y);
        self.nearest(&quotient)
    }

    pub(super) fn integer(&mut self, integer: i32) -> Big {
        self.context.from_i32(integer)
    }

    /// The number as converted by mongod's library: all 34 digits, or the minimum for an exact
    /// number.
    pub(super) fn decimal(&mut self, x: &Big) -> Decimal128 {
        let rounded = from_big(x);
        let is_exact =
            self.context.partial_cmp(&to_big(rounded), x).is_some_and(|order| order.is_eq());
        if is_exact { shortest(rounded) } else { rounded }
    }

    fn rounded(&mut self, x: &Big, rounding: Rounding) -> Big {
        if x.is_zero() || !x.is_finite() {
            return *x;
        }
        // The estimate of the magnitude may be one off in either direction; a number just below a
        // power of two may round up to it.
        let mut exponent = (self.binary_magnitude(x) - BITS).max(EXPONENT_MIN);
        let mut significand = self.times_power(x, -exponent);
        if exponent > EXPONENT_MIN && !self.reaches(&significand, 0) {
            exponent -= 1;
            significand = self.times_power(x, -exponent);
        }
        if self.reaches(&significand, 1) {
            exponent += 1;
            significand = self.times_power(x, -exponent);
        }
        self.context.set_rounding(rounding);
        self.context.round(&mut significand);
        self.context.set_rounding(Rounding::HalfEven);
        self.times_power(&significand, exponent)
    }

    /// Returns whether the absolute value of a number is at least the bound.
    fn reaches(&mut self, x: &Big, bound: usize) -> bool {
        let mut size = *x;
        self.context.abs(&mut size);
        self.context.partial_cmp(&size, &self.range[bound]).is_some_and(|order| order.is_ge())
    }

    /// `x` times a power of two: exact if 80 digits suffice.
    fn times_power(&mut self, x: &Big, exponent: i32) -> Big {
        let size = exponent.unsigned_abs() as usize;
        let power = match POWERS.get(size) {
            Some(power) => *power.get_or_init(|| self.power(size)),
            None => self.power(size),
        };
        let mut result = *x;
        if exponent < 0 {
            self.context.div(&mut result, &power);
        } else {
            self.context.mul(&mut result, &power);
        }
        result
    }

    /// A power of two.
    fn power(&mut self, exponent: usize) -> Big {
        let mut power = self.context.from_i32(2);
        let exponent = self.context.from_u128(exponent as u128);
        self.context.pow(&mut power, &exponent);
        power
    }

    /// The approximate number of bits of the integer part.
    fn binary_magnitude(&mut self, x: &Big) -> i32 {
        let digits = i32::try_from(x.digits()).unwrap_or(0);
        let mut leading = *x;
        leading.set_exponent(-digits);
        let leading = self.context.try_into_f64(leading).unwrap_or(1.0).abs();
        let bits = leading.log2() + f64::from(x.exponent() + digits) * std::f64::consts::LOG2_10;
        #[allow(clippy::cast_possible_truncation)]
        let bits = bits.floor() as i32;
        bits + 1
    }
}

/// The number without unnecessary trailing zeros after the decimal point.
fn shortest(number: Decimal128) -> Decimal128 {
    let reduced = reduce(number);
    let Parts::Finite { negative, mut exponent, mut coefficient } = reduced.parts() else {
        return reduced;
    };
    if coefficient == 0 {
        exponent = 0;
    }
    while exponent > 0 && coefficient <= COEFFICIENT_MAX / 10 {
        coefficient *= 10;
        exponent -= 1;
    }
    Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient }).unwrap_or(reduced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut quad = Quad::new();
        let number = quad.of(text.parse().expect("a decimal"));
        assert_eq!(quad.decimal(&number), expected.parse().expect("a decimal"));
    }

    #[test]
    fn what_has_113_bits_stays_and_is_written_short() {
        check("1", "1");
        check("-0.5", "-0.5");
        check("10384593717069655257060992658440191", "10384593717069655257060992658440191");
        check("1.50", "1.5");
        check("1E+3", "1000");
        check("1E-6000", "0");
        check("0.1", "0.1000000000000000000000000000000000");
    }
}
