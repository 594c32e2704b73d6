//! Boolean operators.

use marula_bson::Value;
use marula_error::Result;

use crate::expression::{Expression, Frame, Operator};

pub(super) static OPERATORS: &[Operator] =
    &[Operator::any("$and", and), Operator::exactly("$not", 1, not), Operator::any("$or", or)];

fn and<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    for arg in args {
        if !arg.eval_truth(frame)? {
            return Ok(Some(false.into()));
        }
    }
    Ok(Some(true.into()))
}

fn or<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    for arg in args {
        if arg.eval_truth(frame)? {
            return Ok(Some(true.into()));
        }
    }
    Ok(Some(false.into()))
}

fn not<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    Ok(Some((!args[0].eval_truth(frame)?).into()))
}
