//! Set operators: arrays as sets, by the equality of the query language.

use marula_bson::Value;
use marula_error::{Error, Result, errors};

use super::{kind, known};
use crate::expression::operator::parse_list;
use crate::expression::set::BorrowedSet;
use crate::expression::{Expression, Frame, Operator, Scope};
use crate::meter;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$allElementsTrue", 1, all_elements_true),
    Operator::exactly("$anyElementTrue", 1, any_element_true),
    Operator::exactly("$setDifference", 2, set_difference),
    Operator::special("$setEquals", parse_set_equals, set_equals)
        .checked(check_set_equals)
        .not_foldable()
        .prepared(&EQUALS_OF_CONSTANT),
    Operator::any("$setIntersection", set_intersection),
    Operator::exactly("$setIsSubset", 2, set_is_subset)
        .checked(check_set_is_subset)
        .prepared(&SUBSET_OF_CONSTANT),
    Operator::any("$setUnion", set_union),
];

/// In a pipeline the first constant set is prepared beforehand and compared first.
static EQUALS_OF_CONSTANT: Operator =
    Operator::special("$setEquals", parse_set_equals, |args, frame| {
        let constant = args.iter().position(|arg| arg.as_constant().is_some());
        all_equal(args, constant.filter(|&at| at > 0), frame)
    })
    .not_foldable();

/// A constant set is prepared beforehand; its errors have a code of their own.
static SUBSET_OF_CONSTANT: Operator = Operator::exactly("$setIsSubset", 2, |args, frame| {
    let is_constant = matches!(args[0], Expression::Constant(_) | Expression::Missing);
    match args[1].as_constant() {
        Some(Value::Array(_)) if !is_constant => subset(args, subset_first_of_constant, frame),
        _ => set_is_subset(args, frame),
    }
});

errors! {
    all_not_array(kind: &str) = 17040, "$allElementsTrue's argument must be an array, but is {kind}";
    any_not_array(kind: &str) = 17041, "$anyElementTrue's argument must be an array, but is {kind}";
    subset_second(kind: &str) = 17042, "both operands of $setIsSubset must be arrays. Second argument is of type: {kind}";
    subset_second_constant(kind: &str) = 17311, "both operands of $setIsSubset must be arrays. Second argument is of type: {kind}";
    union_not_array(kind: &str) = 17043, "All operands of $setUnion must be arrays. One argument is of type: {kind}";
    equals_not_array(at: usize, kind: &str) = 17044, "All operands of $setEquals must be arrays. {at}-th argument is of type: {kind}";
    equals_constant_not_array(at: usize, kind: &str) = 5887502, "All operands of $setEquals must be arrays. {at}-th argument is of type: {kind}";
    equals_too_few(count: usize) = 17045, "$setEquals needs at least two arguments had: {count}";
    intersection_not_array(kind: &str) = 17047, "All operands of $setIntersection must be arrays. One argument is of type: {kind}";
    difference_first(kind: &str) = 17048, "both operands of $setDifference must be arrays. First argument is of type: {kind}";
    difference_second(kind: &str) = 17049, "both operands of $setDifference must be arrays. Second argument is of type: {kind}";
    subset_first(kind: &str) = 17046, "both operands of $setIsSubset must be arrays. First argument is of type: {kind}";
    subset_first_of_constant(kind: &str) = 17310, "both operands of $setIsSubset must be arrays. First argument is of type: {kind}";
}

fn all_elements_true<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    match args[0].eval(frame)? {
        Some(Value::Array(items)) => Ok(Some(items.values().all(|item| item.is_truthy()).into())),
        other => Err(all_not_array(kind(other))),
    }
}

fn any_element_true<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    match args[0].eval(frame)? {
        Some(Value::Array(items)) => Ok(Some(items.values().any(|item| item.is_truthy()).into())),
        other => Err(any_not_array(kind(other))),
    }
}

fn set_difference<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let left = known(&args[0], frame)?;
    let right = known(&args[1], frame)?;
    let (Some(left), Some(right)) = (left, right) else {
        return Ok(Some(Value::Null));
    };
    let left = left.as_array().ok_or_else(|| difference_first(left.kind().alias()))?;
    let right = right.as_array().ok_or_else(|| difference_second(right.kind().alias()))?;
    let mut seen = BorrowedSet::new(right.values(), frame.context.collator())?;
    let others = seen.values().len();
    for value in left.values() {
        seen.insert(value)?;
    }
    frame.arena.array(seen.values()[others..].iter().copied()).map(Some)
}

fn parse_set_equals(
    operator: &'static Operator,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let args = parse_list(value, scope)?;
    if args.len() < 2 {
        return Err(equals_too_few(args.len()));
    }
    Ok(operator.call(args))
}

fn check_set_equals(args: &[Expression]) -> Result<()> {
    for (at, arg) in args.iter().enumerate() {
        let constant = match arg {
            Expression::Missing => None,
            arg => match arg.as_constant() {
                Some(constant) => Some(constant),
                None => continue,
            },
        };
        if constant.is_none_or(|value| value.as_array().is_none()) {
            return Err(equals_constant_not_array(at + 1, kind(constant)));
        }
    }
    Ok(())
}

fn set_equals<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    all_equal(args, None, frame)
}

/// Returns whether all sets are equal; the prepared one is compared with the first before the
/// others.
fn all_equal<'a>(
    args: &'a [Expression],
    ready: Option<usize>,
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let collator = frame.context.collator();
    let set = |at: usize| {
        let value = args[at].eval(frame)?;
        let Some(Value::Array(items)) = value else {
            return Err(equals_not_array(at + 1, kind(value)));
        };
        BorrowedSet::new(items.values(), collator)
    };
    let first = set(0)?;
    // The sets after one that differs are not evaluated.
    for at in ready.into_iter().chain((1..args.len()).filter(|&at| Some(at) != ready)) {
        let other = set(at)?;
        if first.values().len() != other.values().len()
            || !first.contains_all(other.values().iter().copied())?
        {
            return Ok(Some(false.into()));
        }
    }
    Ok(Some(true.into()))
}

fn set_intersection<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let collator = frame.context.collator();
    let mut common: Option<BorrowedSet<'a, '_>> = None;
    for arg in args {
        let Some(value) = known(arg, frame)? else {
            return Ok(Some(Value::Null));
        };
        let items = value.as_array().ok_or_else(|| intersection_not_array(value.kind().alias()))?;
        let set = BorrowedSet::new(items.values(), collator)?;
        common = Some(match common {
            None => set,
            // Of equal values, those of the smaller set are kept.
            Some(common) => {
                let (kept, other) = match common.values().len() > set.values().len() {
                    true => (set, common),
                    false => (common, set),
                };
                let mut both = BorrowedSet::new([], collator)?;
                for value in kept.values() {
                    if other.contains(*value)? {
                        both.insert(*value)?;
                    }
                }
                both
            }
        });
    }
    sorted(common.map(|set| set.values().to_vec()).unwrap_or_default(), frame)
}

fn set_union<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let mut union = BorrowedSet::new([], frame.context.collator())?;
    for arg in args {
        let Some(value) = known(arg, frame)? else {
            return Ok(Some(Value::Null));
        };
        let items = value.as_array().ok_or_else(|| union_not_array(value.kind().alias()))?;
        for item in items.values() {
            union.insert(item)?;
        }
    }
    sorted(union.values().to_vec(), frame)
}

/// The values of a set, sorted, so that equal sets give equal arrays.
fn sorted<'a>(mut values: Vec<Value<'a>>, frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let collator = frame.context.collator();
    meter::sort_by(&mut values, |a, b| marula_bson::order::compare(*a, *b, collator))?;
    frame.arena.array(values).map(Some)
}

fn check_set_is_subset(args: &[Expression]) -> Result<()> {
    let right = match (&args[0], &args[1]) {
        (Expression::Missing, _) => return Ok(()),
        (left, _) if left.as_constant().is_some() => return Ok(()),
        (_, Expression::Missing) => None,
        (_, right) => match right.as_constant() {
            Some(right) => Some(right),
            None => return Ok(()),
        },
    };
    match right.is_none_or(|right| right.as_array().is_none()) {
        true => Err(subset_second_constant(kind(right))),
        false => Ok(()),
    }
}

fn set_is_subset<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    subset(args, subset_first, frame)
}

/// Returns whether the first set is a subset of the second; `not_array` is the error for a first
/// argument that is not an array.
fn subset<'a>(
    args: &'a [Expression],
    not_array: fn(&str) -> Error,
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let left = args[0].eval(frame)?;
    let right = args[1].eval(frame)?;
    let Some(Value::Array(left)) = left else {
        return Err(not_array(kind(left)));
    };
    let Some(Value::Array(right)) = right else {
        return Err(subset_second(kind(right)));
    };
    let set = BorrowedSet::new(right.values(), frame.context.collator())?;
    Ok(Some(set.contains_all(left.values())?.into()))
}
