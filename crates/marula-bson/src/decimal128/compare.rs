//! Exact comparison of decimal128 numbers with each other, with doubles and with integers.
//!
//! NaN is equal to NaN and below everything else, as MongoDB orders numbers; all zeros are equal.

use std::cmp::Ordering;

use super::{Decimal128, Parts, nearest_f64};

impl Decimal128 {
    /// Compares two decimals by their value.
    pub fn compare(self, other: Decimal128) -> Ordering {
        compare_parts(self.parts(), other.parts())
    }

    /// Compares with an integer.
    pub fn compare_i64(self, other: i64) -> Ordering {
        let other = Parts::Finite {
            negative: other < 0,
            exponent: 0,
            coefficient: u128::from(other.unsigned_abs()),
        };
        compare_parts(self.parts(), other)
    }

    /// Compares with the exact value of a double, which is a binary fraction.
    pub fn compare_f64(self, other: f64) -> Ordering {
        let parts = self.parts();
        let Parts::Finite { negative, exponent, coefficient } = parts else {
            let other = if other.is_nan() {
                Parts::Nan
            } else if other.is_infinite() {
                Parts::Infinity { negative: other < 0.0 }
            } else {
                Parts::Finite { negative: other < 0.0, exponent: 0, coefficient: 1 }
            };
            return compare_parts(parts, other);
        };
        if other.is_nan() {
            return Ordering::Greater;
        }
        if coefficient == 0 {
            return 0.0.partial_cmp(&other).expect("neither is NaN");
        }
        if other == 0.0 || negative != (other < 0.0) {
            return if negative { Ordering::Less } else { Ordering::Greater };
        }
        let magnitude = compare_magnitude_f64(coefficient, exponent, other.abs());
        if negative { magnitude.reverse() } else { magnitude }
    }
}

fn compare_parts(a: Parts, b: Parts) -> Ordering {
    match (a, b) {
        (Parts::Nan, Parts::Nan) => Ordering::Equal,
        (Parts::Nan, _) => Ordering::Less,
        (_, Parts::Nan) => Ordering::Greater,
        (Parts::Infinity { negative: a }, Parts::Infinity { negative: b }) => b.cmp(&a),
        (Parts::Infinity { negative }, _) => sign_of(negative),
        (_, Parts::Infinity { negative }) => sign_of(negative).reverse(),
        (
            Parts::Finite { negative: a_negative, exponent: a_exponent, coefficient: a },
            Parts::Finite { negative: b_negative, exponent: b_exponent, coefficient: b },
        ) => match (a, b) {
            (0, 0) => Ordering::Equal,
            (0, _) => sign_of(b_negative).reverse(),
            (_, 0) => sign_of(a_negative),
            _ if a_negative != b_negative => sign_of(a_negative),
            _ => {
                let magnitude = compare_magnitude(a, a_exponent, b, b_exponent);
                if a_negative { magnitude.reverse() } else { magnitude }
            }
        },
    }
}

fn sign_of(negative: bool) -> Ordering {
    if negative { Ordering::Less } else { Ordering::Greater }
}

/// Compares `a × 10^a_exponent` with `b × 10^b_exponent`; neither coefficient is zero.
fn compare_magnitude(a: u128, a_exponent: i32, b: u128, b_exponent: i32) -> Ordering {
    let leading = |coefficient: u128, exponent: i32| coefficient.ilog10().cast_signed() + exponent;
    leading(a, a_exponent).cmp(&leading(b, b_exponent)).then_with(|| {
        // The leading digits have the same position, so the exponents differ by less than 34, and
        // the coefficient that is scaled up gets as many digits as the other: it stays below 10^34.
        let scale = 10_u128.pow(a_exponent.abs_diff(b_exponent));
        if a_exponent >= b_exponent { (a * scale).cmp(&b) } else { a.cmp(&(b * scale)) }
    })
}

/// Compares `coefficient × 10^exponent`, not zero, with a positive double or infinity.
pub(crate) fn compare_magnitude_f64(coefficient: u128, exponent: i32, double: f64) -> Ordering {
    if double == 0.0 {
        return Ordering::Greater;
    }
    let nearest = nearest_f64(coefficient, exponent);
    // Rounding preserves order, so only numbers that round to the double itself need exact
    // comparison.
    match nearest.partial_cmp(&double).expect("neither is NaN") {
        Ordering::Equal if double.is_infinite() => Ordering::Less,
        Ordering::Equal => compare_exactly(coefficient, exponent, double),
        decided => decided,
    }
}

/// The largest double that is not above `coefficient × 10^exponent`, and whether they are equal.
pub(crate) fn floor_f64(coefficient: u128, exponent: i32) -> (f64, bool) {
    let nearest = nearest_f64(coefficient, exponent);
    match compare_magnitude_f64(coefficient, exponent, nearest) {
        Ordering::Less => (nearest.next_down(), false),
        Ordering::Equal => (nearest, true),
        Ordering::Greater => (nearest, false),
    }
}

/// Compares a decimal with the finite double that it rounds to, as integers.
fn compare_exactly(coefficient: u128, exponent: i32, double: f64) -> Ordering {
    let (mantissa, binary_exponent) = decode_f64(double);
    // Compare coefficient × 5^exponent × 2^exponent with mantissa × 2^binary_exponent; negative
    // powers move to the other side.
    let mut left = Natural::from(coefficient);
    let mut right = Natural::from(u128::from(mantissa));
    if exponent >= 0 { &mut left } else { &mut right }.multiply_pow5(exponent.unsigned_abs());
    let shift = exponent - binary_exponent;
    if shift >= 0 { &mut left } else { &mut right }.shift_left(shift.unsigned_abs());
    left.compare(&right)
}

/// The integer mantissa and the power of two of a positive finite double or zero.
pub(crate) fn decode_f64(double: f64) -> (u64, i32) {
    const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    let bits = double.to_bits();
    let fraction = bits & ((1 << MANTISSA_BITS) - 1);
    // Eleven bits, so it fits.
    #[allow(clippy::cast_possible_truncation)]
    let biased = ((bits >> MANTISSA_BITS) & 0x7FF) as i32;
    match biased {
        0 => (fraction, -1074),
        _ => (fraction | 1 << MANTISSA_BITS, biased - 1075),
    }
}

/// A natural number of bounded size, little-endian.
///
/// The largest number that a comparison needs has 113 bits times 5^358 (832 bits), shifted by at
/// most 1074 + 308.
struct Natural([u64; NATURAL_WORDS]);

const NATURAL_WORDS: usize = 40;
const _: () = assert!(NATURAL_WORDS * 64 > 113 + 832 + 1074 + 308);

impl From<u128> for Natural {
    #[allow(clippy::cast_possible_truncation)]
    fn from(number: u128) -> Self {
        let mut words = [0; NATURAL_WORDS];
        words[0] = number as u64;
        words[1] = (number >> 64) as u64;
        Natural(words)
    }
}

impl Natural {
    fn multiply_pow5(&mut self, mut power: u32) {
        const STEP: u32 = 27;
        while power > 0 {
            let step = power.min(STEP);
            self.multiply(5_u64.pow(step));
            power -= step;
        }
    }

    #[allow(clippy::cast_possible_truncation)]
    fn multiply(&mut self, factor: u64) {
        let mut carry = 0;
        for word in &mut self.0 {
            let product = u128::from(*word) * u128::from(factor) + carry;
            *word = product as u64;
            carry = product >> 64;
        }
        debug_assert_eq!(carry, 0, "the size bound holds");
    }

    fn shift_left(&mut self, bits: u32) {
        let words = (bits / 64) as usize;
        if words > 0 {
            debug_assert!(words < NATURAL_WORDS);
            self.0.copy_within(..NATURAL_WORDS.saturating_sub(words), words.min(NATURAL_WORDS));
            self.0.iter_mut().take(words).for_each(|word| *word = 0);
        }
        self.multiply(1 << (bits % 64));
    }

    fn compare(&self, other: &Natural) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal128 {
        text.parse().unwrap()
    }

    #[test]
    fn decimals_are_ordered_by_value() {
        let ascending = [
            "NaN",
            "-Infinity",
            "-1E+6000",
            "-10",
            "-1.5",
            "-1E-6000",
            "0",
            "1E-6176",
            "0.1",
            "1",
            "9.999999999999999999999999999999999",
            "10",
            "1E+40",
            "1E+6144",
            "Infinity",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(number(a).compare(number(b)), i.cmp(&j), "{a} {b}");
            }
        }
        assert!(number("1.0").compare(number("1.00")).is_eq());
        assert!(number("-0E+10").compare(number("0")).is_eq());
        assert!(number("1E+33").compare(number("1000000000000000000000000000000000")).is_eq());
    }

    #[test]
    fn doubles_are_compared_by_their_exact_value() {
        use Ordering::*;
        for (text, double, expected) in [
            ("0.1", 0.1, Less),
            ("0.5", 0.5, Equal),
            ("0.1000000000000000055511151231257827", 0.1, Less),
            ("0.1000000000000000055511151231257828", 0.1, Greater),
            ("9007199254740993", 9_007_199_254_740_992.0, Greater),
            ("1E+22", 1e22, Equal),
            ("1E+23", 1e23, Greater),
            ("-1E+23", -1e23, Less),
            ("1E+400", f64::MAX, Greater),
            ("1E+400", f64::INFINITY, Less),
            ("1E-400", f64::from_bits(1), Less),
            ("1E-400", 0.0, Greater),
            ("-1E-400", -0.0, Less),
            ("4.9E-324", f64::from_bits(1), Less),
            ("5E-324", f64::from_bits(1), Greater),
            ("4.940656458412465441765687928682213E-324", f64::from_bits(1), Less),
            ("4.940656458412465441765687928682214E-324", f64::from_bits(1), Greater),
            ("0", -0.0, Equal),
            ("1", -1.0, Greater),
            ("NaN", f64::NAN, Equal),
            ("NaN", f64::NEG_INFINITY, Less),
            ("-Infinity", f64::NAN, Greater),
            ("-Infinity", f64::NEG_INFINITY, Equal),
            ("Infinity", f64::MAX, Greater),
            ("1.797693134862315708145274237317043E+308", f64::MAX, Less),
            ("1.797693134862315708145274237317044E+308", f64::MAX, Greater),
        ] {
            assert_eq!(number(text).compare_f64(double), expected, "{text} {double:e}");
        }
    }

    #[test]
    fn integers_are_compared_exactly() {
        assert!(number("9223372036854775807.5").compare_i64(i64::MAX).is_gt());
        assert!(number("-9223372036854775808").compare_i64(i64::MIN).is_eq());
        assert!(number("NaN").compare_i64(i64::MIN).is_lt());
        assert!(number("0E-10").compare_i64(0).is_eq());
    }
}
