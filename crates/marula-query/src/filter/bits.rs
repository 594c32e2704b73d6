//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.

use bstr::ByteSlice;
use marula_bson::{Binary, RawValue, Value};
use marula_error::{Error, Result, codes, errors};

use super::node::{Bits, BitsOp, Predicate};
use super::number::{parse_non_negative_i32, parse_non_negative_i64, shown};

errors! {
    /// The mask is neither a list of positions, nor a number, nor binary data.
    bits_bad_mask(path: &str, shown: &str) = BadValue, "{path} takes an Array, a number, or a BinData but received: {shown}";
    /// An element of an array of positions is not a position.
    bits_bad_position(reason: &str) = BadValue, "Failed to parse bit position. {reason}";
}

/// Parses a mask: an array of positions, a number, or binary data.
pub(super) fn parse(op: BitsOp, path: &[u8], operand: RawValue<'_>) -> Result<Predicate> {
    let value = operand.get();
    let positions = match value {
        Value::Array(array) => {
            let mut positions = Vec::new();
            for element in array {
                let position = parse_non_negative_i32(element.name, element.value.get())
                    .map_err(|reason| bits_bad_position(&reason))?;
                positions.push(position.unsigned_abs());
            }
            positions
        }
        Value::Binary(Binary { bytes, .. }) => (0_u32..)
            .zip(bytes)
            .flat_map(|(at, byte)| set_bits(u64::from(*byte)).map(move |bit| at * 8 + bit))
            .collect(),
        value if value.kind().is_number() => {
            let mask = parse_non_negative_i64(op.name().as_bytes(), value)
                .map_err(|reason| Error::new(codes::FailedToParse, reason))?;
            set_bits(mask.unsigned_abs()).collect()
        }
        _ => {
            return Err(bits_bad_mask(&path.to_str_lossy(), &shown(op.name().as_bytes(), value)));
        }
    };
    Ok(Predicate::Bits(Bits { op, positions }))
}

fn set_bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..64).filter(move |bit| mask >> bit & 1 != 0)
}

/// Returns whether the value is an integer or binary data whose bits pass the test.
pub(super) fn matches(test: &Bits, value: Value<'_>) -> bool {
    match value {
        Value::Binary(Binary { bytes, .. }) => passes(test, |position| {
            // Bits after the end of the data are clear.
            bytes.get(position as usize / 8).is_some_and(|byte| byte >> (position % 8) & 1 != 0)
        }),
        value => match value.as_exact_i64() {
            // A negative number is sign-extended beyond its 64 bits, as in two's complement.
            Some(number) => passes(test, |position| number >> position.min(63) & 1 != 0),
            None => false,
        },
    }
}

fn passes(test: &Bits, is_set: impl Fn(u32) -> bool) -> bool {
    let mut positions = test.positions.iter().copied();
    match test.op {
        BitsOp::AllSet => positions.all(is_set),
        BitsOp::AllClear => positions.all(|position| !is_set(position)),
        BitsOp::AnySet => positions.any(is_set),
        BitsOp::AnyClear => positions.any(|position| !is_set(position)),
    }
}
