//! A `$switch` whose cases are adjacent ranges of one value, as `$bucket` makes it: the value is
//! evaluated once and its range looked up.

use marula_bson::{Value, ValueBuf, order};
use marula_error::Result;

use super::operators::{compare_optional, switch_no_match};
use super::{Call, Expression, Frame};
use crate::context::Context;

/// A double represents every integer up to this exactly.
const EXACT_MAX: i64 = 1 << 53;

/// A `$switch` of ranges.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// The original call: cases and their results, then the default.
    call: Call,
    /// The lower bound of each range, followed by the upper bound of the last.
    bounds: Box<[ValueBuf]>,
    /// The bounds as doubles, if all are exact doubles.
    numbers: Option<Box<[f64]>>,
}

impl Ranges {
    /// Converts a `$switch` to ranges; returns the call if its cases are not ranges.
    pub(super) fn of(call: Call, context: &Context) -> std::result::Result<Ranges, Call> {
        let Some(bounds) = bounds(&call, context) else { return Err(call) };
        // NaN would need another comparison.
        let number = |bound: &ValueBuf| exact_double(bound.get()).filter(|bound| !bound.is_nan());
        let numbers = bounds.iter().map(number).collect();
        Ok(Ranges { call, bounds, numbers })
    }

    /// The original call.
    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    /// The result for the value's range.
    ///
    /// Errors: `switch_no_match`, those of the expressions.
    pub(super) fn eval<'a>(&'a self, frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
        self.choose(frame)?.eval(frame)
    }

    /// The expression for the value's range.
    ///
    /// Errors: `switch_no_match`, those of the value.
    pub(crate) fn choose<'a>(&'a self, frame: &Frame<'a>) -> Result<&'a Expression> {
        let args = &self.call.args;
        let value = self.value().eval(frame)?;
        // The number of bounds at or below the value.
        let passed = match (&self.numbers, value.and_then(exact_double)) {
            (Some(numbers), Some(number)) => {
                numbers.iter().filter(|bound| **bound <= number).count()
            }
            _ => self
                .bounds
                .partition_point(|bound| compare_optional(value, Some(bound.get()), frame).is_ge()),
        };
        if passed > 0 && passed < self.bounds.len() {
            return Ok(&args[2 * passed - 1]);
        }
        args.get(2 * (self.bounds.len() - 1)).ok_or_else(switch_no_match)
    }

    /// The value whose range is looked up: the first argument of the first argument of the first
    /// case.
    #[inline]
    fn value(&self) -> &Expression {
        let first = |expression| match expression {
            &Expression::Call(Call { ref args, .. }) => &args[0],
            other => other,
        };
        first(first(&self.call.args[0]))
    }
}

/// The bounds of a call's cases, if each case begins where the previous one ends.
fn bounds(call: &Call, context: &Context) -> Option<Box<[ValueBuf]>> {
    let (cases, _) = call.args.as_chunks::<2>();
    let first = range(&cases.first()?[0])?;
    if !is_steady(first.value) {
        return None;
    }
    let printed = first.value.print();
    let mut bounds: Vec<ValueBuf> = Vec::new();
    for [case, _] in cases {
        let Range { value, again, low, high } = range(case)?;
        let follows = bounds.last().is_none_or(|last| *last == *low);
        let is_less = order::compare(low.get(), high.get(), context.collator()).is_lt();
        let is_same = value.print() == printed && again.print() == printed;
        if !follows || !is_less || !is_same {
            return None;
        }
        if bounds.is_empty() {
            bounds.push(low.clone());
        }
        bounds.push(high.clone());
    }
    Some(bounds.into())
}

/// One case: `{ $and: [{ $gte: [value, low] }, { $lt: [again, high] }] }`.
struct Range<'e> {
    value: &'e Expression,
    again: &'e Expression,
    low: &'e ValueBuf,
    high: &'e ValueBuf,
}

fn range(case: &Expression) -> Option<Range<'_>> {
    let [above, below] = args_of(case, "$and")? else { return None };
    let [value, Expression::Constant(low)] = args_of(above, "$gte")? else { return None };
    let [again, Expression::Constant(high)] = args_of(below, "$lt")? else { return None };
    Some(Range { value, again, low, high })
}

/// The arguments of a call of the operator `name`.
fn args_of<'e>(expression: &'e Expression, name: &str) -> Option<&'e [Expression]> {
    match expression {
        Expression::Call(call) if call.operator.name == name => Some(&call.args),
        _ => None,
    }
}

/// Returns whether an expression is deterministic for a given document.
fn is_steady(expression: &Expression) -> bool {
    if let Expression::Call(call) = expression
        && !call.operator.foldable
    {
        return false;
    }
    let mut is_steady_inside = true;
    expression.for_each_child(&mut |child| is_steady_inside &= is_steady(child));
    is_steady_inside
}

/// A number as an equal double, if there is one.
#[inline]
fn exact_double(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Int32(number) => Some(f64::from(number)),
        Value::Double(number) => Some(number),
        #[allow(clippy::cast_precision_loss)]
        Value::Int64(number) if (-EXACT_MAX..=EXACT_MAX).contains(&number) => Some(number as f64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, doc};

    use super::*;
    use crate::expression::{Arena, Scope};

    fn switch(bounds: &[Value<'_>], default: Option<&str>) -> DocBuf {
        DocBuf::build(|out| {
            let mut out = out.begin_doc("$switch");
            let mut branches = out.begin_array("branches");
            for pair in bounds.windows(2) {
                let mut branch = branches.begin_doc();
                let mut case = branch.begin_doc("case");
                let mut both = case.begin_array("$and");
                both.begin_doc().begin_array("$gte").push("$v").push(pair[0]);
                both.begin_doc().begin_array("$lt").push("$v").push(pair[1]);
                both.finish();
                case.finish();
                branch.append("then", pair[0]);
            }
            branches.finish();
            if let Some(default) = default {
                out.append("default", default);
            }
        })
    }

    /// Checks that the ranges give the same result as the original cases for every value.
    fn check(bounds: &[Value<'_>], default: Option<&str>) {
        let context = Context::default();
        let spec = switch(bounds, default);
        let parse = || Expression::parse_object(spec.as_doc(), &mut Scope::new(&context)).unwrap();
        let (plain, mut ranges) = (parse(), parse());
        ranges.optimize(&context).unwrap();
        assert!(matches!(ranges, Expression::Ranges(_)), "{bounds:?}");
        assert_eq!(ranges.print(), plain_print(&plain, &context));
        let doc = doc! { "a": [1] };
        let values = [-1.5, 0.0, 1.0, 1.5, 2.0, 9.9, 10.0, f64::NAN, f64::INFINITY]
            .map(Value::Double)
            .into_iter()
            .chain([0, 1, 2, 3, 10, 11].map(Value::Int32))
            .chain([i64::MIN, 1, i64::MAX].map(Value::Int64))
            .chain(["", "a", "b", "c"].map(Value::from))
            .chain([Value::Null, Value::MinKey, Value::MaxKey, Value::Boolean(true)])
            .chain(doc.as_doc().values());
        let arena = Arena::new();
        for value in values.map(Some).chain([None]) {
            let document = DocBuf::build(|out| {
                if let Some(value) = value {
                    out.append("v", value);
                }
            });
            let frame = Frame::new(document.as_doc(), &arena, &context);
            match (plain.eval(&frame), ranges.eval(&frame)) {
                (Ok(plain), Ok(ranges)) => {
                    let [plain, ranges] = [plain, ranges].map(|it| it.map(|it| it.to_buf()));
                    assert_eq!(plain, ranges, "{value:?} {bounds:?}");
                }
                (plain, ranges) => {
                    assert_eq!(plain.unwrap_err().code(), ranges.unwrap_err().code());
                }
            }
        }
    }

    /// The printed expression after its parts were folded one by one.
    fn plain_print(plain: &Expression, context: &Context) -> ValueBuf {
        let spec = plain.print();
        let doc = spec.get().as_doc().expect("it is an object");
        Expression::parse_object(doc, &mut Scope::new(context)).unwrap().print()
    }

    #[test]
    fn ranges_give_what_the_cases_give() {
        check(&[1.into(), 2.into(), 10.into()], Some("none"));
        check(&[1.into(), 2.into(), 10.into()], None);
        check(&[1.0.into(), Value::Int64(2), 10.into()], Some("none"));
        check(&[Value::Int64(0), Value::Int64(i64::MAX)], Some("none"));
        check(&["a".into(), "b".into(), "c".into()], Some("none"));
        check(&[Value::Null, 3.into()], Some("none"));
        check(&[Value::Double(f64::NAN), 3.into()], None);
    }

    #[test]
    fn other_cases_stay_as_they_are() {
        let context = Context::default();
        let stays = |spec: &DocBuf| {
            let mut expression =
                Expression::parse_object(spec.as_doc(), &mut Scope::new(&context)).unwrap();
            expression.optimize(&context).unwrap();
            assert!(matches!(expression, Expression::Call(_)), "{spec:?}");
        };
        stays(&switch(&[2.into(), 1.into()], None));
        stays(&switch(&[1.into(), 2.into(), 2.into()], None));
        stays(&doc! { "$switch": { "branches": [{ "case": { "$gte": ["$v", 1] }, "then": 1 }] } });
        let random = doc! { "$rand": {} };
        let both = doc! { "$and": [{ "$gte": [&random, 1] }, { "$lt": [&random, 2] }] };
        stays(&doc! { "$switch": { "branches": [{ "case": &both, "then": 1 }] } });
        let two = doc! { "$and": [{ "$gte": ["$a", 1] }, { "$lt": ["$b", 2] }] };
        stays(&doc! { "$switch": { "branches": [{ "case": &two, "then": 1 }] } });
    }
}
