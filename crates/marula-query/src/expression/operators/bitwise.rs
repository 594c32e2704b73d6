//! Bitwise operators: `$bitAnd`, `$bitOr`, `$bitXor`, `$bitNot`, of ints and longs.
//!
//! If an operand is a long, the others are sign-extended and the result is a long. Source: manual
//! "Bitwise Operators", new in 6.3.

use marula_bson::Value;
use marula_error::{Result, errors};

use super::arithmetic::only_number;
use super::known;
use crate::expression::number::Number;
use crate::expression::{Expression, Frame, Operator};
use crate::feature_version::FeatureVersion::V7_0;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::any("$bitAnd", |args, frame| fold("$bitAnd", args, frame, -1, |a, b| a & b))
        .since(V7_0),
    Operator::exactly("$bitNot", 1, not).since(V7_0),
    Operator::any("$bitOr", |args, frame| fold("$bitOr", args, frame, 0, |a, b| a | b)).since(V7_0),
    Operator::any("$bitXor", |args, frame| fold("$bitXor", args, frame, 0, |a, b| a ^ b))
        .since(V7_0),
];

errors! {
    not_whole(name: &str) = TypeMismatch, "{name} takes values of the types int and long alone";
    not_whole_alone(kind: &str) = TypeMismatch, "$bitNot takes a value of the type int or long, not {kind}";
}

/// Combines the operands from left to right, starting with the neutral element; null if one of them
/// is null.
fn fold<'a>(
    name: &str,
    args: &'a [Expression],
    frame: &Frame<'a>,
    neutral: i64,
    join: fn(i64, i64) -> i64,
) -> Result<Option<Value<'a>>> {
    let mut joined = neutral;
    let mut has_long = false;
    for arg in args {
        let operand = match known(arg, frame)? {
            None => return Ok(Some(Value::Null)),
            Some(Value::Int32(number)) => i64::from(number),
            Some(Value::Int64(number)) => {
                has_long = true;
                number
            }
            Some(_) => return Err(not_whole(name)),
        };
        joined = join(joined, operand);
    }
    Ok(Some(match i32::try_from(joined) {
        // Only ints give an int: their upper halves are all sign bits.
        Ok(int) if !has_long => Value::Int32(int),
        _ => Value::Int64(joined),
    }))
}

fn not<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let name = "$bitNot";
    Ok(Some(match only_number(name, args, frame)? {
        None => Value::Null,
        Some(Number::Int(number)) => Value::Int32(!number),
        Some(Number::Long(number)) => Value::Int64(!number),
        Some(Number::Double(_)) => return Err(not_whole_alone("double")),
        Some(Number::Decimal(_)) => return Err(not_whole_alone("decimal")),
    }))
}
