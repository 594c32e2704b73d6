//! `$reduce`: computes a value from an array, element by element.

use marula_bson::{Value, ValueBuf};
use marula_error::{Result, errors};

use super::growing::Growth;
use super::known;
use crate::expression::{Arena, Expression, Frame, Operator, Scope, print};
use crate::meter;

pub(super) static OPERATORS: &[Operator] =
    &[Operator::named("$reduce", &["input", "initialValue", "in"], parse, reduce).not_foldable()];

errors! {
    not_object(kind: &str) = 40075, "$reduce requires an object as an argument, found: {kind}";
    unknown(name: &str) = 40076, "$reduce found an unknown argument: {name}";
    missing_input() = 40077, "$reduce requires 'input' to be specified";
    missing_initial() = 40078, "$reduce requires 'initialValue' to be specified";
    missing_in() = 40079, "$reduce requires 'in' to be specified";
    not_array(text: &str) = 40080, "$reduce requires that 'input' be an array, found: {text}";
}

fn parse(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let Value::Document(doc) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let (mut input, mut initial, mut body) = (None, None, None);
    for element in doc {
        match &**element.name {
            b"input" => input = Some(Expression::parse(element.value.get(), scope)?),
            b"initialValue" => initial = Some(Expression::parse(element.value.get(), scope)?),
            b"in" => {
                scope.bind("this");
                scope.bind("value");
                let parsed = Expression::parse(element.value.get(), scope);
                scope.unbind(2);
                body = Some(parsed?);
            }
            _ => return Err(unknown(&element.name.to_string())),
        }
    }
    let input = input.ok_or_else(missing_input)?;
    let initial = initial.ok_or_else(missing_initial)?;
    Ok(operator.call([input, initial, body.ok_or_else(missing_in)?]))
}

/// The size of a `$reduce`'s values from which on those of its steps are not kept.
pub(super) const BYTES_MAX: usize = 1024 * 1024;

fn reduce<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let items = match known(&args[0], frame)? {
        None => return Ok(Some(Value::Null)),
        Some(Value::Array(items)) => items,
        Some(value) => return Err(not_array(&print::value(value))),
    };
    let this = frame.bind(None);
    let both = this.bind(args[1].eval(frame)?);
    let mut value = args[1].eval(frame)?;
    let mut items = items.values();
    if let Some(Value::Array(list)) = value
        && let Some(growth) = Growth::of(&args[2])
    {
        match growth.of_list(list, &mut items, frame)? {
            Some(list) => return Ok(Some(list)),
            None => value = Some(Value::Null),
        }
    }
    let begun_bytes = frame.arena.size();
    while frame.arena.size() - begun_bytes < BYTES_MAX {
        let Some(item) = items.next() else { return Ok(value) };
        meter::spend(meter::ELEMENT)?;
        this.rebind(Some(item));
        both.rebind(value);
        value = args[2].eval(&both)?;
    }
    stepwise(value, items, &args[2], frame)
}

/// Computes the rest of a `$reduce` whose values are large: nothing of a step is kept but its
/// result.
fn stepwise<'a>(
    begun: Option<Value<'a>>,
    items: impl Iterator<Item = Value<'a>>,
    step: &'a Expression,
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let mut value = begun.map(|value| value.to_buf());
    let mut arena = Arena::new();
    for item in items {
        meter::spend(meter::ELEMENT)?;
        arena.reset();
        let both = frame.moved_to(&arena).bind(Some(item)).bind(value.as_ref().map(ValueBuf::get));
        let next = step.eval(&both)?.map(|value| value.to_buf());
        value = next;
    }
    value.map(|value| frame.arena.keep(value.get())).transpose()
}
