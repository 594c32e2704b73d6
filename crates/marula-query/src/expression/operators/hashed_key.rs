//! `$toHashedIndexKey`: the hash of a value in a hashed index.

use marula_bson::Value;
use marula_error::Result;

use crate::expression::{Expression, Frame, Operator, Scope};
use crate::hashed_key::hashed_key;

pub(super) static OPERATORS: &[Operator] =
    &[Operator::special("$toHashedIndexKey", parse, to_hashed_index_key)];

/// An array is the value to be hashed, not a list of arguments.
fn parse(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    Ok(operator.call([Expression::parse(value, scope)?]))
}

fn to_hashed_index_key<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let value = args[0].eval(frame)?.unwrap_or(Value::Null);
    Ok(Some(hashed_key(value, None).into()))
}
