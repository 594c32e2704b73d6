//! Comparison operators: the order of all BSON values; a missing value comes first.

use std::cmp::Ordering;

use marula_bson::{Value, order};
use marula_error::Result;

use crate::expression::{Expression, Frame, Operator};

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$cmp", 2, |args, frame| {
        Ok(Some(match compare(args, frame)? {
            Ordering::Less => Value::Int32(-1),
            Ordering::Equal => Value::Int32(0),
            Ordering::Greater => Value::Int32(1),
        }))
    }),
    Operator::exactly("$eq", 2, |args, frame| Ok(Some(compare(args, frame)?.is_eq().into()))),
    Operator::exactly("$gt", 2, |args, frame| Ok(Some(compare(args, frame)?.is_gt().into()))),
    Operator::exactly("$gte", 2, |args, frame| Ok(Some(compare(args, frame)?.is_ge().into()))),
    Operator::exactly("$lt", 2, |args, frame| Ok(Some(compare(args, frame)?.is_lt().into()))),
    Operator::exactly("$lte", 2, |args, frame| Ok(Some(compare(args, frame)?.is_le().into()))),
    Operator::exactly("$ne", 2, |args, frame| Ok(Some(compare(args, frame)?.is_ne().into()))),
];

fn compare<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Ordering> {
    let left = args[0].eval(frame)?;
    let right = args[1].eval(frame)?;
    Ok(compare_optional(left, right, frame))
}

/// Compares two values that may be missing.
pub(in crate::expression) fn compare_optional(
    left: Option<Value<'_>>,
    right: Option<Value<'_>>,
    frame: &Frame<'_>,
) -> Ordering {
    match (left, right) {
        (Some(left), Some(right)) => order::compare(left, right, frame.context.collator()),
        // Missing sorts like undefined: above MinKey, below null.
        (None, None) => Ordering::Equal,
        (None, Some(value)) => missing_against(value),
        (Some(value), None) => missing_against(value).reverse(),
    }
}

fn missing_against(value: Value<'_>) -> Ordering {
    match value {
        Value::MinKey => Ordering::Greater,
        Value::Undefined => Ordering::Equal,
        _ => Ordering::Less,
    }
}
