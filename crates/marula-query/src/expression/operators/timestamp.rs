//! The halves of a timestamp: `$tsSecond`, `$tsIncrement`.

use marula_bson::{Value, long};
use marula_error::{Result, errors};

use super::known;
use crate::expression::{Expression, Frame, Operator};

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$tsIncrement", 1, |args, frame| {
        timestamp_part(args, frame, |bits| bits & 0xFFFF_FFFF, increment_not_timestamp)
    }),
    Operator::exactly("$tsSecond", 1, |args, frame| {
        timestamp_part(args, frame, |bits| bits >> 32, second_not_timestamp)
    }),
];

errors! {
    second_not_timestamp(kind: &str) = 5687301, " Argument to $tsSecond must be a timestamp, but is {kind}";
    increment_not_timestamp(kind: &str) = 5687302, " Argument to $tsIncrement must be a timestamp, but is {kind}";
}

fn timestamp_part<'a>(
    args: &'a [Expression],
    frame: &Frame<'a>,
    part: fn(u64) -> u64,
    error: fn(&str) -> marula_error::Error,
) -> Result<Option<Value<'a>>> {
    match known(&args[0], frame)? {
        None => Ok(Some(Value::Null)),
        Some(Value::Timestamp(bits)) => Ok(Some(long(part(bits)).into())),
        Some(value) => Err(error(value.kind().alias())),
    }
}
