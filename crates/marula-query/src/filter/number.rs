//! Numbers as operands: integers, and doubles and decimals truncated to integers.

use bstr::ByteSlice;
use marula_bson::decimal128::Parts;
use marula_bson::{Value, ValueBuf};

/// Why a number has no integer part in 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotIntegral {
    /// It is NaN or infinite.
    NotFinite,
    /// It is too large.
    OutOfRange,
}

impl NotIntegral {
    /// The reason in mongod's message.
    pub(super) const fn text(self) -> &'static str {
        match self {
            NotIntegral::NotFinite => "Unable to coerce NaN/Inf to integral type",
            NotIntegral::OutOfRange => "Out of bounds coercing to integral value",
        }
    }
}

/// The integer part of `value`, which must be a number.
pub(super) fn truncate_to_i64(value: Value<'_>) -> Result<i64, NotIntegral> {
    match value {
        Value::Int32(number) => Ok(i64::from(number)),
        Value::Int64(number) => Ok(number),
        Value::Double(number) if !number.is_finite() => Err(NotIntegral::NotFinite),
        Value::Double(number) => {
            marula_bson::value::exact_i64_of_double(number.trunc()).ok_or(NotIntegral::OutOfRange)
        }
        Value::Decimal128(number) => match number.parts() {
            Parts::Finite { negative, exponent, coefficient } => {
                truncate_decimal(negative, exponent, coefficient).ok_or(NotIntegral::OutOfRange)
            }
            _ => Err(NotIntegral::NotFinite),
        },
        _ => Err(NotIntegral::NotFinite),
    }
}

fn truncate_decimal(negative: bool, exponent: i32, coefficient: u128) -> Option<i64> {
    let power = 10_u128.checked_pow(exponent.unsigned_abs());
    let magnitude = match (exponent < 0, power) {
        (true, Some(power)) => coefficient / power,
        // A coefficient has at most 34 digits, fewer than a power of ten that overflows.
        (true, None) => 0,
        (false, Some(power)) => coefficient.checked_mul(power)?,
        (false, None) if coefficient == 0 => 0,
        (false, None) => return None,
    };
    let magnitude = i128::try_from(magnitude).ok()?;
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Parses a whole number.
///
/// Errors: mongod's message with the operand as sent, such as `Expected an integer: $size: 1.5`.
pub(super) fn parse_i64(name: &[u8], value: Value<'_>) -> Result<i64, String> {
    let shown = || shown(name, value);
    match value {
        Value::Int32(number) => Ok(i64::from(number)),
        Value::Int64(number) => Ok(number),
        Value::Double(number) if number.is_nan() => {
            Err(format!("Expected an integer, but found NaN in: {}", shown()))
        }
        Value::Double(number)
            if marula_bson::value::exact_i64_of_double(number.trunc()).is_none() =>
        {
            Err(format!("Cannot represent as a 64-bit integer: {}", shown()))
        }
        Value::Double(number) => marula_bson::value::exact_i64_of_double(number)
            .ok_or_else(|| format!("Expected an integer: {}", shown())),
        Value::Decimal128(number) => number
            .to_exact_i64()
            .ok_or_else(|| format!("Cannot represent as a 64-bit integer: {}", shown())),
        _ => Err(format!("Expected a number in: {}", shown())),
    }
}

/// Same as [`parse_i64`], but refuses negative numbers.
pub(crate) fn parse_non_negative_i64(name: &[u8], value: Value<'_>) -> Result<i64, String> {
    let number = parse_i64(name, value)?;
    if number < 0 {
        return Err(format!("Expected a non-negative number in: {}", shown(name, value)));
    }
    Ok(number)
}

/// Same as [`parse_non_negative_i64`], but refuses numbers that need more than 32 bits.
pub(super) fn parse_non_negative_i32(name: &[u8], value: Value<'_>) -> Result<i32, String> {
    let number = parse_i64(name, value)?;
    let number = i32::try_from(number)
        .map_err(|_| format!("Cannot represent {} in an int", shown(name, value)))?;
    if number < 0 {
        return Err(format!("Expected a non-negative number in: {}", shown(name, value)));
    }
    Ok(number)
}

/// An operand with its name in the form of mongod's errors: `$size: "x"`.
pub(super) fn shown(name: &[u8], value: Value<'_>) -> String {
    format!("{}: {value}", name.as_bstr())
}

/// An int if the number fits, as mongod prints the operands of `$mod`, `$size` and similar
/// operators.
pub(super) fn narrow(number: i64) -> ValueBuf {
    match i32::try_from(number) {
        Ok(small) => ValueBuf::from(small),
        Err(_) => ValueBuf::from(number),
    }
}
