//! `$rand`: a random number from 0 to 1, new for each evaluation.

use marula_bson::Value;
use marula_error::{Result, errors};

use crate::expression::{Expression, Frame, Operator, Scope};

pub(super) static OPERATORS: &[Operator] =
    &[Operator::special("$rand", parse_rand, rand).not_foldable()];

errors! {
    rand_not_object() = 10065, "invalid parameter: expected an object ($rand)";
    rand_takes_nothing() = 3040501, "$rand does not currently accept arguments";
}

fn parse_rand(
    operator: &'static Operator,
    value: Value<'_>,
    _: &mut Scope<'_>,
) -> Result<Expression> {
    match value {
        Value::Document(doc) if doc.is_empty() => Ok(operator.call([])),
        Value::Array(items) if items.is_empty() => Ok(operator.call([])),
        Value::Document(_) | Value::Array(_) => Err(rand_takes_nothing()),
        _ => Err(rand_not_object()),
    }
}

fn rand<'a>(_: &'a [Expression], _: &Frame<'a>) -> Result<Option<Value<'a>>> {
    Ok(Some(rand::random::<f64>().into()))
}
