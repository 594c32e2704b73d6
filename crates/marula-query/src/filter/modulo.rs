//! `$mod`: the remainder of a division.

use marula_bson::{RawValue, Value};
use marula_error::{Result, errors};

use super::node::Predicate;
use crate::filter::number::truncate_to_i64;

errors! {
    /// The operand of `$mod` is not an array.
    mod_not_an_array() = BadValue, "malformed mod, needs to be an array";
    /// The operand of `$mod` has fewer than two numbers.
    mod_too_short() = BadValue, "malformed mod, not enough elements";
    /// The operand of `$mod` has more than two numbers.
    mod_too_long() = BadValue, "malformed mod, too many elements";
    /// The divisor or the remainder is not a number.
    mod_not_a_number(part: &str) = BadValue, "malformed mod, {part} not a number";
    /// The divisor or the remainder has no integer part in the range of 64 bits.
    mod_invalid(part: &str, reason: &str) = BadValue, "malformed mod, {part} value is invalid :: caused by :: {reason}";
    /// The divisor is zero, possibly after truncation.
    mod_by_zero() = BadValue, "divisor cannot be 0";
}

/// Parses `[divisor, remainder]`; both are truncated to integers.
pub(super) fn parse(operand: RawValue<'_>) -> Result<Predicate> {
    let Value::Array(array) = operand.get() else {
        return Err(mod_not_an_array());
    };
    let mut numbers = array.values();
    let divisor = numbers.next().ok_or_else(mod_too_short)?;
    if !divisor.kind().is_number() {
        return Err(mod_not_a_number("divisor"));
    }
    let remainder = numbers.next().ok_or_else(mod_too_short)?;
    if !remainder.kind().is_number() {
        return Err(mod_not_a_number("remainder"));
    }
    if numbers.next().is_some() {
        return Err(mod_too_long());
    }
    let integer =
        |value, part| truncate_to_i64(value).map_err(|reason| mod_invalid(part, reason.text()));
    let divisor = integer(divisor, "divisor")?;
    let remainder = integer(remainder, "remainder")?;
    if divisor == 0 {
        return Err(mod_by_zero());
    }
    Ok(Predicate::Mod { divisor, remainder })
}

/// Returns whether the value is a number whose integer part has this remainder; its sign is that of
/// the dividend.
pub(super) fn matches(value: Value<'_>, divisor: i64, remainder: i64) -> bool {
    value.kind().is_number()
        && truncate_to_i64(value).is_ok_and(|dividend| dividend.wrapping_rem(divisor) == remainder)
}
