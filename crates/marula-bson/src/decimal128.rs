//! IEEE 754-2008 decimal128 in the BID encoding that BSON uses.
//!
//! ```text
//! bit (of 128)   content
//! 127            sign
//! 126–113        exponent, biased by 6176, when bits 126–125 are not both set
//! 112–0          coefficient, at most 10^34 − 1; a larger one reads as zero
//! 126–122        11110 infinity, 11111 NaN
//! 124–111        exponent of the other form, whose coefficient is always too large: zero
//! ```
//!
//! [`Parts`] is the unpacked number. Everything here is exact; arithmetic is not here. Text is in
//! the module `text`, comparison in `compare`.

mod compare;
mod text;

pub(crate) use compare::{decode_f64, floor_f64};
pub use text::TextError;

use std::fmt;

/// A decimal128 number as sixteen little-endian bytes, the form that BSON stores.
///
/// `PartialEq` is identity of encoding: 1.0 is not 1.00 and a NaN is itself. Numeric order is
/// [`Decimal128::compare`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal128([u8; 16]);

/// A decimal128 number, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parts {
    /// Not a number; sign and payload are dropped.
    Nan,
    /// An infinity.
    Infinity {
        /// Whether the infinity is negative.
        negative: bool,
    },
    /// `coefficient × 10^exponent`; zero has a sign too.
    Finite {
        /// Whether the sign is minus.
        negative: bool,
        /// From [`EXPONENT_MIN`] to [`EXPONENT_MAX`].
        exponent: i32,
        /// At most [`COEFFICIENT_MAX`].
        coefficient: u128,
    },
}

/// The least exponent of a coefficient.
pub const EXPONENT_MIN: i32 = -EXPONENT_BIAS;
/// The greatest exponent of a coefficient.
pub const EXPONENT_MAX: i32 = 6111;
/// The most digits of a coefficient.
pub const DIGITS_MAX: u32 = 34;
/// The greatest coefficient: 34 nines.
pub const COEFFICIENT_MAX: u128 = 10_u128.pow(DIGITS_MAX) - 1;

const EXPONENT_BIAS: i32 = 6176;
const SIGN: u128 = 1 << 127;
/// Of a NaN: it asks for an exception.
const SIGNALLING: u128 = 1 << 121;
const COEFFICIENT_BITS: u32 = 113;
const NAN: u128 = 0b11111 << 122;
const INFINITY: u128 = 0b11110 << 122;

impl Decimal128 {
    /// Zero, without digits after the decimal point.
    pub const ZERO: Decimal128 = Decimal128::pack(false, 0, 0);
    /// Not a number.
    pub const NAN: Decimal128 = Decimal128(NAN.to_le_bytes());
    /// Positive infinity.
    pub const INFINITY: Decimal128 = Decimal128(INFINITY.to_le_bytes());
    /// Negative infinity.
    pub const NEG_INFINITY: Decimal128 = Decimal128((INFINITY | SIGN).to_le_bytes());

    /// The number with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Decimal128(bytes)
    }

    /// The sixteen bytes.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// The unpacked number. An encoding whose coefficient is too large is a zero.
    pub const fn parts(self) -> Parts {
        let bits = u128::from_le_bytes(self.0);
        let negative = bits & SIGN != 0;
        if bits & NAN == NAN {
            return Parts::Nan;
        }
        if bits & NAN == INFINITY {
            return Parts::Infinity { negative };
        }
        // Both bits set: the form for coefficients from 2^113 on, which are all too large.
        let is_large_form = (bits >> 125) & 0b11 == 0b11;
        let exponent_shift = if is_large_form { COEFFICIENT_BITS - 2 } else { COEFFICIENT_BITS };
        let exponent = ((bits >> exponent_shift) & 0x3FFF) as i32 - EXPONENT_BIAS;
        let coefficient = bits & ((1 << COEFFICIENT_BITS) - 1);
        let coefficient =
            if is_large_form || coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
        Parts::Finite { negative, exponent, coefficient }
    }

    /// Packs a number; `None` when coefficient or exponent is out of range.
    pub fn from_parts(parts: Parts) -> Option<Self> {
        match parts {
            Parts::Nan => Some(Self::NAN),
            Parts::Infinity { negative: false } => Some(Self::INFINITY),
            Parts::Infinity { negative: true } => Some(Self::NEG_INFINITY),
            Parts::Finite { negative, exponent, coefficient } => {
                let fits = (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent)
                    && coefficient <= COEFFICIENT_MAX;
                fits.then(|| Self::pack(negative, exponent, coefficient))
            }
        }
    }

    #[allow(clippy::cast_sign_loss)]
    const fn pack(negative: bool, exponent: i32, coefficient: u128) -> Self {
        let sign = if negative { SIGN } else { 0 };
        let biased = (exponent + EXPONENT_BIAS) as u128;
        Decimal128((sign | (biased << COEFFICIENT_BITS) | coefficient).to_le_bytes())
    }

    /// The integer, with exponent 0.
    pub fn from_i64(number: i64) -> Self {
        Self::pack(number < 0, 0, u128::from(number.unsigned_abs()))
    }

    /// The double rounded to 15 significant digits, as `$toDecimal` converts it.
    pub fn from_f64(number: f64) -> Self {
        if number.is_nan() {
            return Self::NAN;
        }
        if number.is_infinite() {
            return if number < 0.0 { Self::NEG_INFINITY } else { Self::INFINITY };
        }
        if number == 0.0 {
            return Self::pack(number.is_sign_negative(), 0, 0);
        }
        // Standard formatting rounds the exact value; 15 digits fit a coefficient and the exponent
        // of a double fits a decimal, so the text always parses.
        Self::parse(format!("{number:.14e}").as_bytes())
            .expect("a double with 15 digits is a decimal128")
    }

    /// Whether the number is not a number.
    pub const fn is_nan(self) -> bool {
        matches!(self.parts(), Parts::Nan)
    }

    /// Whether the number is an infinity.
    pub const fn is_infinite(self) -> bool {
        matches!(self.parts(), Parts::Infinity { .. })
    }

    /// Whether the sign bit is set; zeros and NaN have one too.
    pub const fn is_negative(self) -> bool {
        u128::from_le_bytes(self.0) & SIGN != 0
    }

    /// Whether the number is a NaN that asks for an exception.
    pub const fn is_signalling_nan(self) -> bool {
        self.is_nan() && u128::from_le_bytes(self.0) & SIGNALLING != 0
    }

    /// The number without its sign; other bits stay, also those of an encoding that is not the
    /// canonical one.
    pub const fn abs(self) -> Self {
        Decimal128((u128::from_le_bytes(self.0) & !SIGN).to_le_bytes())
    }

    /// The number if it is not a NaN; else the NaN without a request for an exception, as
    /// operations return it.
    pub const fn quiet(self) -> Self {
        match self.is_nan() {
            true => Decimal128((u128::from_le_bytes(self.0) & !SIGNALLING).to_le_bytes()),
            false => self,
        }
    }

    /// Whether the number is zero, of either sign and any exponent.
    pub const fn is_zero(self) -> bool {
        matches!(self.parts(), Parts::Finite { coefficient: 0, .. })
    }

    /// The exact integer value, if the number is an integer in the range of i64.
    pub fn to_exact_i64(self) -> Option<i64> {
        let Parts::Finite { negative, exponent, coefficient } = self.parts() else { return None };
        if coefficient == 0 {
            return Some(0);
        }
        let (integer, fraction) = split(coefficient, exponent)?;
        if fraction {
            return None;
        }
        let integer = i128::try_from(integer).ok()?;
        i64::try_from(if negative { -integer } else { integer }).ok()
    }

    /// The nearest double, ties to even.
    pub fn to_f64(self) -> f64 {
        match self.parts() {
            Parts::Nan => f64::NAN,
            Parts::Infinity { negative } => {
                if negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            Parts::Finite { negative, exponent, coefficient } => {
                let magnitude = nearest_f64(coefficient, exponent);
                if negative { -magnitude } else { magnitude }
            }
        }
    }
}

/// The integer part of `coefficient × 10^exponent`, and whether there is a fraction; `None` from
/// 10^38 on.
pub(crate) fn split(coefficient: u128, exponent: i32) -> Option<(u128, bool)> {
    if coefficient == 0 {
        return Some((0, false));
    }
    let power = 10_u128.checked_pow(exponent.unsigned_abs());
    if exponent >= 0 {
        return Some((coefficient.checked_mul(power?)?, false));
    }
    let Some(power) = power else { return Some((0, true)) };
    Some((coefficient / power, !coefficient.is_multiple_of(power)))
}

/// The double nearest to `coefficient × 10^exponent`, ties to even.
pub(crate) fn nearest_f64(coefficient: u128, exponent: i32) -> f64 {
    /// Powers of ten that a double holds exactly.
    const EXACT_POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    if coefficient < 1 << f64::MANTISSA_DIGITS
        && let Some(&power) = EXACT_POWERS.get(exponent.unsigned_abs() as usize)
    {
        // Both operands are exact, so one rounding gives the nearest double.
        #[allow(clippy::cast_precision_loss)]
        let exact = coefficient as f64;
        return if exponent < 0 { exact / power } else { exact * power };
    }
    // The standard library parses decimal text of any length correctly rounded.
    format!("{coefficient}e{exponent}").parse().expect("digits and an exponent are a number")
}

impl fmt::Debug for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal128({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal128 {
        text.parse().unwrap()
    }

    #[test]
    fn encodings_are_those_of_the_bson_corpus() {
        for (text, hex) in [
            ("NaN", "0000000000000000000000000000007c"),
            ("Infinity", "00000000000000000000000000000078"),
            ("-Infinity", "000000000000000000000000000000f8"),
            ("0", "00000000000000000000000000004030"),
            ("-0", "000000000000000000000000000040b0"),
            ("0E+1", "00000000000000000000000000004230"),
            ("0.1", "01000000000000000000000000003e30"),
            ("1234567890123456789012345678901234", "f2af967ed05c82de3297ff6fde3c4030"),
            ("9.999999999999999999999999999999999E+6144", "ffffffff638e8d37c087adbe09edff5f"),
        ] {
            let bytes: String = number(text).bytes().iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(bytes, hex, "{text}");
        }
    }

    #[test]
    fn too_large_a_coefficient_is_zero() {
        let large = Decimal128::from_bytes(
            ((COEFFICIENT_MAX + 1) | (6176_u128 << COEFFICIENT_BITS)).to_le_bytes(),
        );
        assert_eq!(large.to_string(), "0");
        let other_form = Decimal128::from_bytes((0b11_u128 << 125).to_le_bytes());
        assert!(other_form.is_zero());
        assert_eq!(other_form.to_string(), "0E-6176");
    }

    #[test]
    fn integers_come_out_exactly_or_not_at_all() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0E+6000", Some(0)),
            ("1.00", Some(1)),
            ("12E+2", Some(1200)),
            ("1.5", None),
            ("1E-6000", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("1E+19", None),
            ("1E+6000", None),
            ("NaN", None),
            ("Infinity", None),
        ] {
            assert_eq!(number(text).to_exact_i64(), expected, "{text}");
        }
        assert_eq!(Decimal128::from_i64(i64::MIN).to_exact_i64(), Some(i64::MIN));
    }

    #[test]
    fn doubles_are_correctly_rounded() {
        for text in ["0.1", "1E-400", "1E+400", "9007199254740993", "2.5E-324", "123.456", "-0"] {
            let expected: f64 = text.parse().unwrap();
            assert_eq!(number(text).to_f64().to_bits(), expected.to_bits(), "{text}");
        }
        assert!(number("NaN").to_f64().is_nan());
    }

    #[test]
    fn doubles_become_decimals_of_fifteen_digits() {
        for (double, text) in [
            (0.1, "0.100000000000000"),
            (1.0 / 3.0, "0.333333333333333"),
            (5.0, "5.00000000000000"),
            (1e22, "1.00000000000000E+22"),
            (-0.0, "-0"),
            (0.0, "0"),
            (5e-324, "4.94065645841247E-324"),
            (f64::MAX, "1.79769313486232E+308"),
            (999_999_999_999_999.9, "1.00000000000000E+15"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Decimal128::from_f64(double).to_string(), text);
        }
    }
}
