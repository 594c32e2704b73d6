//! `$literal`: a value that is not parsed as an expression.

use marula_bson::{Value, ValueBuf};
use marula_error::Result;

use crate::expression::{Expression, Frame, Operator, Scope};

pub(super) static OPERATORS: &[Operator] = &[
    Operator::special("$const", parse, literal).printed(print),
    Operator::special("$literal", parse, literal).printed(print),
];

fn parse(_: &'static Operator, value: Value<'_>, _: &mut Scope<'_>) -> Result<Expression> {
    Ok(value.into())
}

fn literal<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    args.first().map_or(Ok(None), |arg| arg.eval(frame))
}

fn print(args: &[Expression]) -> ValueBuf {
    let value = args.first().and_then(Expression::as_constant);
    value.unwrap_or(Value::Null).to_buf()
}
