//! Decimal128 numbers as text, in the format of the BSON specification.

use std::fmt;
use std::str::FromStr;

use super::{COEFFICIENT_MAX, DIGITS_MAX, Decimal128, EXPONENT_MAX, EXPONENT_MIN, Parts};

/// Why a text is not a decimal128 number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextError {
    /// The text does not have the form of a number.
    Malformed,
    /// The number is too large.
    Overflow,
    /// The number is too small to be distinguished from zero.
    Underflow,
    /// The number has more digits than fit; only [`Decimal128::parse_exact`] returns this.
    Inexact,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TextError::Malformed => "not a decimal number",
            TextError::Overflow => "too large for a decimal128 number",
            TextError::Underflow => "too small for a decimal128 number",
            TextError::Inexact => "more digits than a decimal128 number holds",
        })
    }
}

impl std::error::Error for TextError {}

impl Decimal128 {
    /// Parses text and drops the digits that do not fit, as `$toDecimal` does.
    pub fn parse(text: &[u8]) -> Result<Self, TextError> {
        parse(text).map(|(number, _)| number)
    }

    /// Parses text that must fit without rounding.
    pub fn parse_exact(text: &[u8]) -> Result<Self, TextError> {
        match parse(text)? {
            (number, true) => Ok(number),
            (_, false) => Err(TextError::Inexact),
        }
    }
}

impl FromStr for Decimal128 {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        Decimal128::parse(text.as_bytes())
    }
}

/// Returns the number and whether it is exact.
fn parse(text: &[u8]) -> Result<(Decimal128, bool), TextError> {
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if unsigned.eq_ignore_ascii_case(b"nan") {
        return Ok((Decimal128::NAN, true));
    }
    if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
        let infinity = if negative { Decimal128::NEG_INFINITY } else { Decimal128::INFINITY };
        return Ok((infinity, true));
    }
    let (digits, exponent) = read_digits(unsigned)?;
    fit(negative, digits, exponent)
}

/// The significant digits of a number, which may be more than fit.
struct Digits {
    /// The first digits, at most [`DIGITS_MAX`].
    coefficient: u128,
    /// The number of digits that did not fit; they count for the exponent.
    dropped: i64,
    /// Whether all dropped digits are zero.
    is_exact: bool,
}

/// Reads digits with at most one point, and the exponent.
fn read_digits(text: &[u8]) -> Result<(Digits, i64), TextError> {
    let mut digits = Digits { coefficient: 0, dropped: 0, is_exact: true };
    let mut digit_seen = false;
    let mut point_seen = false;
    let mut fraction_digits = 0_i64;
    let mut rest = text.iter();
    let exponent = loop {
        match rest.next() {
            None => break 0,
            Some(&digit @ b'0'..=b'9') => {
                digit_seen = true;
                fraction_digits += i64::from(point_seen);
                digits.push(digit - b'0');
            }
            Some(b'.') if !point_seen => point_seen = true,
            Some(b'e' | b'E') => break read_exponent(rest.as_slice())?,
            Some(_) => return Err(TextError::Malformed),
        }
    };
    if !digit_seen {
        return Err(TextError::Malformed);
    }
    let exponent = exponent - fraction_digits + digits.dropped;
    Ok((digits, exponent))
}

impl Digits {
    fn push(&mut self, digit: u8) {
        const FULL: u128 = COEFFICIENT_MAX / 10;
        if self.coefficient <= FULL {
            self.coefficient = self.coefficient * 10 + u128::from(digit);
            return;
        }
        self.is_exact &= digit == 0;
        self.dropped += 1;
    }
}

/// Reads `[+-]digits`; an exponent far outside every range is clamped, still outside.
fn read_exponent(text: &[u8]) -> Result<i64, TextError> {
    const FAR: i64 = 1 << 40;
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(TextError::Malformed);
    }
    let magnitude =
        digits.iter().fold(0, |value: i64, digit| (value * 10 + i64::from(digit - b'0')).min(FAR));
    Ok(if negative { -magnitude } else { magnitude })
}

/// Moves the exponent into its range: appends zeros when it is too large, removes trailing zeros
/// when it is too small.
fn fit(negative: bool, digits: Digits, exponent: i64) -> Result<(Decimal128, bool), TextError> {
    let Digits { mut coefficient, is_exact, .. } = digits;
    let mut exponent = exponent;
    let (min, max) = (i64::from(EXPONENT_MIN), i64::from(EXPONENT_MAX));
    if coefficient == 0 {
        exponent = exponent.clamp(min, max);
    }
    while exponent < min {
        // Below the range nothing is rounded: mongod reports 15E-6177 as an underflow too.
        if !is_exact || !coefficient.is_multiple_of(10) {
            return Err(TextError::Underflow);
        }
        coefficient /= 10;
        exponent += 1;
    }
    while exponent > max {
        if coefficient > COEFFICIENT_MAX / 10 {
            return Err(TextError::Overflow);
        }
        coefficient *= 10;
        exponent -= 1;
    }
    let exponent = i32::try_from(exponent).map_err(|_| TextError::Overflow)?;
    let number = Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient })
        .ok_or(TextError::Overflow)?;
    Ok((number, is_exact))
}

impl fmt::Display for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, exponent, coefficient) = match self.parts() {
            Parts::Nan => return f.write_str("NaN"),
            Parts::Infinity { negative } => {
                return f.write_str(if negative { "-Infinity" } else { "Infinity" });
            }
            Parts::Finite { negative, exponent, coefficient } => (negative, exponent, coefficient),
        };
        let sign = if negative { "-" } else { "" };
        let digit_count = coefficient.checked_ilog10().unwrap_or(0) + 1;
        debug_assert!(digit_count <= DIGITS_MAX);
        let scientific_exponent = digit_count.cast_signed() - 1 + exponent;
        if exponent > 0 || scientific_exponent < -6 {
            let power = 10_u128.pow(digit_count - 1);
            let (first, rest) = (coefficient / power, coefficient % power);
            let width = digit_count as usize - 1;
            return match width {
                0 => write!(f, "{sign}{first}E{scientific_exponent:+}"),
                _ => write!(f, "{sign}{first}.{rest:0width$}E{scientific_exponent:+}"),
            };
        }
        if exponent == 0 {
            return write!(f, "{sign}{coefficient}");
        }
        // Here −34 − 6 < exponent < 0, so the power exceeds u128 only for fractions below one.
        let width = exponent.unsigned_abs() as usize;
        let (integer, fraction) = match 10_u128.checked_pow(exponent.unsigned_abs()) {
            Some(power) => (coefficient / power, coefficient % power),
            None => (0, coefficient),
        };
        write!(f, "{sign}{integer}.{fraction:0width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_and_prints_as_the_specification_says() {
        for (text, printed) in [
            ("1", "1"),
            ("+1", "1"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1e5", "1E+5"),
            ("-Inf", "-Infinity"),
            ("iNfInItY", "Infinity"),
            ("-nan", "NaN"),
            ("0.001234", "0.001234"),
            ("0.0000001234", "1.234E-7"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1E-7"),
            ("0.00", "0.00"),
            ("0E-8", "0E-8"),
            ("-0E+3", "-0E+3"),
            ("1.20E+5", "1.20E+5"),
            ("1E6112", "1.0E+6112"),
            ("12E6111", "1.2E+6112"),
            ("0E7000", "0E+6111"),
            ("0E-7000", "0E-6176"),
            ("10E-6177", "1E-6176"),
            ("12345678901234567890123456789012345", "1.234567890123456789012345678901234E+34"),
            ("12345678901234567890123456789012355", "1.234567890123456789012345678901235E+34"),
            ("99999999999999999999999999999999999", "9.999999999999999999999999999999999E+34"),
            (
                "99999999999999999999999999999999999E6110",
                "9.999999999999999999999999999999999E+6144",
            ),
            ("100E-6178", "1E-6176"),
            ("0.0000000000000000000000000000000000000001", "1E-40"),
            ("0.000000000000000000000000000000000000001234567", "1.234567E-39"),
        ] {
            assert_eq!(Decimal128::parse(text.as_bytes()).unwrap().to_string(), printed, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_says_why() {
        use TextError::*;
        for (text, expected) in [
            ("", Malformed),
            (".", Malformed),
            ("1E", Malformed),
            ("1E+", Malformed),
            (" 1", Malformed),
            ("1 ", Malformed),
            ("1.2.3", Malformed),
            ("--1", Malformed),
            ("0x10", Malformed),
            ("snan", Malformed),
            ("1E7000", Overflow),
            ("1E6145", Overflow),
            ("1E99999999999999999999999", Overflow),
            ("1E-7000", Underflow),
            ("1E-6177", Underflow),
            ("6E-6177", Underflow),
            ("15E-6177", Underflow),
            ("1E-99999999999999999999", Underflow),
        ] {
            assert_eq!(Decimal128::parse(text.as_bytes()), Err(expected), "{text}");
        }
    }

    #[test]
    fn exact_parsing_refuses_to_cut() {
        assert_eq!(
            Decimal128::parse_exact(b"12345678901234567890123456789012345"),
            Err(TextError::Inexact)
        );
        assert!(Decimal128::parse_exact(b"12345678901234567890123456789012340").is_ok());
    }
}
