//! `$reduce`: computes a value from an array, element by element.

use marula_bson::{Doc, Value, ValueBuf};
use marula_error::{Result, errors};

use super::array::concatenated;
use super::known;
use crate::expression::frame::{ARENA_BYTES_MAX, value_too_large};
use crate::expression::path::Path;
use crate::expression::{Arena, Call, Expression, Frame, Operator, Scope, Variable, print};
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
const BYTES_MAX: usize = 1024 * 1024;

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
        && is_growth(&args[2])
    {
        match grown(list, &mut items, &args[2], frame)? {
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

/// Returns whether each step returns `$$value`, or an array with other elements before or after
/// those of `$$value`, and does not read `$$value` otherwise. Then the array need not be written
/// for each step.
fn is_growth(step: &Expression) -> bool {
    match step {
        Expression::Variable(variable, path) => is_value(variable, path),
        Expression::Call(Call { operator, args }) => match operator.name {
            "$concatArrays" => match args.iter().position(reads_value) {
                Some(at) => is_growth(&args[at]) && !args[at + 1..].iter().any(reads_value),
                None => false,
            },
            "$cond" => !reads_value(&args[0]) && is_growth(&args[1]) && is_growth(&args[2]),
            _ => false,
        },
        _ => false,
    }
}

/// Returns whether a variable of a step itself, outside of other bindings, is `$$value`.
fn is_value(variable: &Variable, path: &Path) -> bool {
    path.is_empty() && matches!(variable, Variable::Bound { up: 0, .. })
}

/// Returns whether an expression may read `$$value`: whether it reads a variable with that name.
fn reads_value(expression: &Expression) -> bool {
    let mut reads = matches!(
        expression,
        Expression::Variable(Variable::Bound { name, .. }, _) if **name == *"value"
    );
    expression.for_each_child(&mut |child| reads = reads || reads_value(child));
    reads
}

/// Takes the steps of a [growth](is_growth); `None` after a step whose result is null.
fn grown<'a>(
    list: Doc<'a>,
    items: &mut impl Iterator<Item = Value<'a>>,
    step: &'a Expression,
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let mut growing = Growing {
        list,
        bytes: Vec::new(),
        size: list.as_bytes().len(),
        before: Vec::new(),
        after: Vec::new(),
    };
    loop {
        // The values of the steps are not kept.
        let arena = Arena::new();
        let this = frame.moved_to(&arena).bind(None);
        let both = this.bind(None);
        while arena.size() < BYTES_MAX {
            let Some(item) = items.next() else { return growing.value(frame.arena).map(Some) };
            meter::spend(meter::ELEMENT)?;
            this.rebind(Some(item));
            if !growing.step(step, &both)? {
                return Ok(None);
            }
        }
    }
}

/// An array, and the arrays that steps have put before and after it.
struct Growing<'a> {
    list: Doc<'a>,
    /// The arrays that came to it, one after the other.
    bytes: Vec<u8>,
    /// The size of the array of all, which counts one digit of each name.
    size: usize,
    /// Where those begin that go before it, the first of them next to it.
    before: Vec<usize>,
    /// Where those begin that go after it.
    after: Vec<usize>,
}

impl<'a> Growing<'a> {
    /// Takes a step; returns whether its result is an array, not null.
    fn step<'s>(&mut self, step: &'s Expression, frame: &Frame<'s>) -> Result<bool> {
        let Expression::Call(Call { operator, args }) = step else { return Ok(true) };
        meter::spend(meter::CALL)?;
        if operator.name == "$cond" {
            let chosen = if args[0].eval_truth(frame)? { &args[1] } else { &args[2] };
            return self.step(chosen, frame);
        }
        let mut before = Vec::new();
        let mut is_after = false;
        for arg in args {
            if !is_after && reads_value(arg) {
                is_after = true;
                if !self.step(arg, frame)? {
                    return Ok(false);
                }
                continue;
            }
            let Some(part) = concatenated(arg, frame)? else { return Ok(false) };
            match is_after {
                true => {
                    let start = self.keep(part)?;
                    self.after.push(start);
                }
                false => before.push(part),
            }
        }
        for part in before.into_iter().rev() {
            let start = self.keep(part)?;
            self.before.push(start);
        }
        Ok(true)
    }

    /// Keeps an array; returns where it begins.
    fn keep(&mut self, part: Doc<'_>) -> Result<usize> {
        const FRONT_BYTES: usize = 3;
        for element in part {
            meter::spend(meter::ELEMENT)?;
            self.size += FRONT_BYTES + element.value.bytes().len();
        }
        if self.size > ARENA_BYTES_MAX {
            return Err(value_too_large(self.size));
        }
        let start = self.bytes.len();
        meter::reserve(&mut self.bytes, part.as_bytes().len())?;
        self.bytes.extend_from_slice(part.as_bytes());
        Ok(start)
    }

    /// The array with the elements of all.
    fn value(&self, arena: &'a Arena) -> Result<Value<'a>> {
        if self.bytes.is_empty() {
            return Ok(Value::Array(self.list));
        }
        let part = |&start: &usize| Doc::trusted(self.part(start));
        let before = self.before.iter().rev().map(part);
        let parts: Vec<_> = before.chain([self.list]).chain(self.after.iter().map(part)).collect();
        arena.array_of_arrays(&parts)
    }

    /// The bytes of the array that begins here.
    fn part(&self, start: usize) -> &[u8] {
        let rest = &self.bytes[start..];
        let length = rest.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        &rest[..length]
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::ext_json;

    use super::*;
    use crate::context::Context;

    /// Each step must give the same as one that hides how it uses `$$value`, and so computes the
    /// array each time.
    #[test]
    fn a_growing_array_has_the_elements_of_arrays_that_are_written_for_each_step() {
        let long = (0..40_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let document = format!(r#"{{"a": [1, 2, 3, 4], "b": [7, 8], "long": [{long}]}}"#);
        let document = ext_json::parse(&document).unwrap();
        let steps = [
            r#"{"$concatArrays": [VALUE, ["$$this"]]}"#,
            r#"{"$concatArrays": [["$$this", 0], VALUE]}"#,
            r#"{"$concatArrays": [["$$this"], "$b", VALUE, "$b", [["$$this"]]]}"#,
            r#"{"$concatArrays": ["$b", {"$concatArrays": [["$$this"], VALUE, "$b"]}, [5]]}"#,
            r#"{"$cond": [{"$gt": ["$$this", 2]}, {"$concatArrays": [VALUE, ["$$this"]]}, VALUE]}"#,
            r#"{"$cond": [{"$eq": ["$$this", 3]}, {"$concatArrays": [VALUE, "$missing"]},
                {"$concatArrays": [["$$this"], VALUE]}]}"#,
            r#"{"$concatArrays": [VALUE, {"$map": {"input": "$b", "in": ["$$this"]}}]}"#,
            r#"{"$concatArrays": [VALUE, {"$cond": [{"$eq": ["$$this", 3]}, "text", []]}]}"#,
            "VALUE",
        ];
        let inputs = ["$a", "$b", "$missing"];
        let initials = ["[]", r#"["x", "y"]"#, r#""$b""#, "null", r#""text""#];
        let context = Context::default();
        for step in steps {
            for input in inputs {
                for initial in initials {
                    let evaluated = |value: &str| {
                        let step = step.replace("VALUE", value);
                        evaluated(input, initial, &step, document.as_doc(), &context)
                    };
                    let (kept, written) = (r#""$$value""#, r#"{"$ifNull": ["$$value", null]}"#);
                    assert_eq!(evaluated(kept), evaluated(written), "{input} {initial} {step}");
                }
            }
        }
        let step =
            r#"{"$concatArrays": ["$$value", [{"$concat": ["x", {"$toString": "$$this"}]}]]}"#;
        let evaluated = evaluated("$long", "[]", step, document.as_doc(), &context).unwrap();
        let Some(Value::Array(items)) = evaluated.as_ref().map(ValueBuf::get) else { panic!() };
        assert_eq!(items.values().count(), 40_000);
        assert_eq!(items.values().last(), Some(Value::from("x39999")));
    }

    fn evaluated(
        input: &str,
        initial: &str,
        step: &str,
        document: Doc<'_>,
        context: &Context,
    ) -> std::result::Result<Option<ValueBuf>, String> {
        let spec = format!(
            r#"{{"$reduce": {{"input": "{input}", "initialValue": {initial}, "in": {step}}}}}"#
        );
        let spec = ext_json::parse(&spec).unwrap();
        let spec = Value::Document(spec.as_doc());
        let parsed = Expression::parse(spec, &mut Scope::new(context)).unwrap();
        let arena = Arena::new();
        let value = parsed.eval(&Frame::new(document, &arena, context));
        value.map(|value| value.map(|value| value.to_buf())).map_err(|error| error.to_string())
    }
}
