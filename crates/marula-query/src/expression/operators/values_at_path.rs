//! `$_internalFindAllValuesAtPath`: the distinct values at a path; mongod uses it to convert a
//! `distinct` to a pipeline.

use marula_bson::{FieldPath, Value, ValueBuf, order};
use marula_error::{Result, errors};

use crate::expression::operator::{parse_list, wrong_count};
use crate::expression::path::Path;
use crate::expression::{Expression, Frame, Operator, Scope, print};
use crate::meter;
use crate::values_at_path;

const NAME: &str = "$_internalFindAllValuesAtPath";

pub(super) static OPERATORS: &[Operator] =
    &[Operator::special(NAME, parse, values).printed(print_path).not_foldable()];

errors! {
    not_constant() = 5511201, "Expected const expression as argument to _internalFindAllValuesAtPath";
    not_a_string() = 9567004, "$_internalFindAllValuesAtPath requires argument to be a string";
}

/// Parses a path. The second argument is its first field, which is evaluated on a document.
fn parse(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let args = parse_list(value, scope)?;
    let [path] = &args[..] else { return Err(wrong_count(NAME, 1, args.len())) };
    let path = path.as_constant().ok_or_else(not_constant)?;
    let path = path.as_str().ok_or_else(not_a_string)?;
    let parts = Path::parse(path)?;
    let first = Path::parse(&parts.parts()[0])?;
    let args = [Expression::Constant(Value::String(path).to_buf()), Expression::Field(first)];
    Ok(operator.call(args))
}

fn print_path(args: &[Expression]) -> ValueBuf {
    print::list(&args[..1])
}

fn values<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let path = args[0].as_constant().and_then(|path| path.as_str()).expect("it was parsed so");
    let mut found = Vec::new();
    if let Some(first) = args[1].eval(frame)? {
        values_at_path::find(&FieldPath::new(&**path), 1, first, &mut found);
    }
    let collator = frame.context.collator();
    // Of equal values the first is kept.
    meter::sort_by(&mut found, |a, b| order::compare(*a, *b, collator))?;
    found.dedup_by(|b, a| order::equal(*a, *b, collator));
    frame.arena.array(found).map(Some)
}
