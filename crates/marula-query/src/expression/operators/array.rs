//! Array operators that read an array: its elements, parts and size.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use marula_bson::{Collator, Doc, Value, long, order};
use marula_error::{Result, errors};

use super::{kind, known};
use crate::accumulator::{Keep, parse_count, read_count};
use crate::expression::number::Number;
use crate::expression::{Arena, Expression, Frame, Operator, Scope, print};
use crate::meter;

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$arrayElemAt", 2, array_elem_at),
    Operator::any("$concatArrays", concat_arrays),
    Operator::exactly("$first", 1, |args, frame| first_or_last("$first", args, 0, frame)),
    Operator::exactly("$last", 1, |args, frame| first_or_last("$last", args, -1, frame)),
    Operator::named(
        "$firstN",
        N,
        |op, value, scope| parse_n(op, Keep::First, value, scope),
        |args, frame| n(Keep::First, args, frame),
    )
    .late(),
    Operator::named(
        "$lastN",
        N,
        |op, value, scope| parse_n(op, Keep::Last, value, scope),
        |args, frame| n(Keep::Last, args, frame),
    )
    .late(),
    Operator::named(
        "$maxN",
        N,
        |op, value, scope| parse_n(op, Keep::Greatest, value, scope),
        |args, frame| n(Keep::Greatest, args, frame),
    )
    .late(),
    Operator::named(
        "$minN",
        N,
        |op, value, scope| parse_n(op, Keep::Least, value, scope),
        |args, frame| n(Keep::Least, args, frame),
    )
    .late(),
    Operator::exactly("$in", 2, is_in),
    Operator::between("$indexOfArray", 2, 4, index_of_array).checked(check_index_of_array),
    Operator::exactly("$isArray", 1, is_array),
    Operator::between("$range", 2, 3, range),
    Operator::exactly("$reverseArray", 1, reverse_array),
    Operator::exactly("$size", 1, size),
    Operator::between("$slice", 2, 3, slice),
];

const N: &[&str] = &["n", "input"];

/// The maximum size of the result of `$range`.
const RANGE_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// mongod's size of one element of a `$range`.
const RANGE_ELEMENT_BYTES: u64 = 16;

errors! {
    elem_at_not_array(kind: &str) = 28689, "$arrayElemAt's first argument must be an array, but is {kind}";
    elem_at_not_number(kind: &str) = 28690, "$arrayElemAt's second argument must be a numeric value, but is {kind}";
    elem_at_not_int(text: &str) = 28691, "$arrayElemAt's second argument must be representable as a 32-bit integer: {text}";
    first_last_not_array(name: &str, kind: &str) = 28689, "{name}'s argument must be an array, but is {kind}";
    concat_not_array(kind: &str) = 28664, "$concatArrays only supports arrays, not {kind}";
    n_not_array() = 5788200, "Input must be an array";
    in_not_array(kind: &str) = 40081, "$in requires an array as a second argument, found: {kind}";
    index_of_not_array(kind: &str) = 40090, "$indexOfArray requires an array as a first argument, found: {kind}";
    index_of_constant_not_array(kind: &str) = 50809, "First operand of $indexOfArray must be an array. First argument is of type: {kind}";
    index_not_integral(name: &str, which: &str, kind: &str, text: &str) = 40096, "{name}requires an integral {which} index, found a value of type: {kind}, with value: {text}";
    index_negative(name: &str, which: &str, text: &str) = 40097, "{name} requires a nonnegative {which} index, found: {text}";
    range_start_not_number(kind: &str) = 34443, "$range requires a numeric starting value, found value of type: {kind}";
    range_start_not_int(text: &str) = 34444, "$range requires a starting value that can be represented as a 32-bit integer, found value: {text}";
    range_end_not_number(kind: &str) = 34445, "$range requires a numeric ending value, found value of type: {kind}";
    range_end_not_int(text: &str) = 34446, "$range requires an ending value that can be represented as a 32-bit integer, found value: {text}";
    range_step_not_number(kind: &str) = 34447, "$range requires a numeric step value, found value of type:{kind}";
    range_step_not_int(text: &str) = 34448, "$range requires a step value that can be represented as a 32-bit integer, found value: {text}";
    range_step_zero() = 34449, "$range requires a non-zero step value";
    range_too_large(bytes: u64) = ExceededMemoryLimit, "$range would use too much memory ({bytes} bytes) and cannot spill to disk. Memory limit: {RANGE_BYTES_MAX} bytes";
    reverse_not_array(kind: &str) = 34435, "The argument to $reverseArray must be an array, but was of type: {kind}";
    size_not_array(kind: &str) = 17124, "The argument to $size must be an array, but was of type: {kind}";
    slice_not_array(kind: &str) = 28724, "First argument to $slice must be an array, but is of type: {kind}";
    slice_second_not_number(kind: &str) = 28725, "Second argument to $slice must be a numeric value, but is of type: {kind}";
    slice_second_not_int(text: &str) = 28726, "Second argument to $slice can't be represented as a 32-bit integer: {text}";
    slice_third_not_number(kind: &str) = 28727, "Third argument to $slice must be numeric, but is of type: {kind}";
    slice_third_not_int(text: &str) = 28728, "Third argument to $slice can't be represented as a 32-bit integer: {text}";
    slice_third_not_positive(count: i32) = 28729, "Third argument to $slice must be positive: {count}";
}

/// The number as an i32 if it is exactly one.
pub(super) fn exact_i32(value: Value<'_>) -> Option<i32> {
    i32::try_from(value.as_exact_i64()?).ok()
}

/// A number in the messages of `$arrayElemAt` and `$slice`: as a double.
fn number_text(value: Value<'_>) -> String {
    Number::of(value).map(Number::short_text).unwrap_or_default()
}

/// The element at `index`, which counts from the end if it is negative.
fn element_at<'a>(items: Doc<'a>, index: i32, arena: &Arena) -> Result<Option<Value<'a>>> {
    let at = match usize::try_from(index) {
        Ok(at) => Some(at),
        Err(_) => items.iter().count().checked_sub(index.unsigned_abs() as usize),
    };
    let Some(at) = at else { return Ok(None) };
    let element = arena.elements_from(items, at)?.next();
    Ok(element.map(|element| element.value.get()))
}

fn array_elem_at<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let items = known(&args[0], frame)?;
    let index = known(&args[1], frame)?;
    let (Some(items), Some(index)) = (items, index) else {
        return Ok(Some(Value::Null));
    };
    let Value::Array(items) = items else {
        return Err(elem_at_not_array(items.kind().alias()));
    };
    if !index.kind().is_number() {
        return Err(elem_at_not_number(index.kind().alias()));
    }
    let index = exact_i32(index).ok_or_else(|| elem_at_not_int(&number_text(index)))?;
    element_at(items, index, frame.arena)
}

fn first_or_last<'a>(
    name: &str,
    args: &'a [Expression],
    index: i32,
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    match known(&args[0], frame)? {
        None => Ok(Some(Value::Null)),
        Some(Value::Array(items)) => element_at(items, index, frame.arena),
        Some(value) => Err(first_last_not_array(name, value.kind().alias())),
    }
}

fn concat_arrays<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let mut arrays = frame.arena.list();
    for arg in args {
        match concatenated(arg, frame)? {
            None => return Ok(Some(Value::Null)),
            Some(items) => arrays.push(items),
        }
    }
    frame.arena.array_of_arrays(&arrays).map(|array| Some(Value::Array(array)))
}

/// An argument of `$concatArrays`; `None` if it is null.
pub(super) fn concatenated<'a>(arg: &'a Expression, frame: &Frame<'a>) -> Result<Option<Doc<'a>>> {
    match known(arg, frame)? {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(value) => Err(concat_not_array(value.kind().alias())),
    }
}

fn parse_n(
    operator: &'static Operator,
    keep: Keep,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Expression> {
    let (count, input) = parse_count(operator.name, keep, value, scope)?;
    Ok(operator.call([count, input]))
}

fn n<'a>(keep: Keep, args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let count = read_count(args[0].eval(frame)?)?;
    let Some(Value::Array(items)) = args[1].eval(frame)? else {
        return Err(n_not_array());
    };
    let kept = match keep {
        Keep::First => frame.arena.array(items.values().take(count)),
        Keep::Last => {
            let skip = items.iter().count().saturating_sub(count);
            frame.arena.array(items.values().skip(skip))
        }
        Keep::Least => {
            let collator = frame.context.collator();
            let mut values = frame.arena.values_growing();
            values.extend(items.values().filter(|value| !value.is_nullish()))?;
            let mut values = values.into_values();
            meter::sort_by(&mut values, |a, b| order::compare(*a, *b, collator))?;
            values.truncate(count);
            frame.arena.array(values)
        }
        Keep::Greatest => frame.arena.array(greatest(items, count, frame.context.collator())?),
    };
    kept.map(Some)
}

/// A value with its position; of equal values, the earlier one is less.
struct Ranked<'a, 'c> {
    value: Value<'a>,
    at: usize,
    collator: Option<&'c dyn Collator>,
}

impl Ord for Ranked<'_, '_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order::compare(self.value, other.value, self.collator).then(self.at.cmp(&other.at))
    }
}

impl PartialOrd for Ranked<'_, '_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked<'_, '_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked<'_, '_> {}

/// The `count` greatest values, greatest first. A value equal to the least of them does not replace
/// it; of several least values the first is removed.
fn greatest<'a>(
    items: Doc<'a>,
    count: usize,
    collator: Option<&dyn Collator>,
) -> Result<impl Iterator<Item = Value<'a>>> {
    let mut kept: BinaryHeap<Reverse<Ranked<'_, '_>>> = BinaryHeap::new();
    for (at, value) in items.values().filter(|value| !value.is_nullish()).enumerate() {
        meter::spend(meter::CALL)?;
        if kept.len() >= count {
            let Some(Reverse(least)) = kept.peek() else { break };
            if order::compare(value, least.value, collator).is_le() {
                continue;
            }
            kept.pop();
        }
        kept.push(Reverse(Ranked { value, at, collator }));
    }
    let sorted: Vec<_> = kept.into_sorted_vec().into_iter().map(|kept| kept.0.value).collect();
    Ok(sorted.into_iter())
}

fn is_in<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let wanted = args[0].eval(frame)?;
    let list = args[1].eval(frame)?;
    let Some(Value::Array(items)) = list else {
        return Err(in_not_array(kind(list)));
    };
    Ok(Some(position_of(wanted, items, &Part::ALL, frame)?.is_some().into()))
}

/// The position of the first item of a part that equals the wanted value; undefined equals missing.
fn position_of(
    wanted: Option<Value<'_>>,
    items: Doc<'_>,
    part: &Part,
    frame: &Frame<'_>,
) -> Result<Option<usize>> {
    let collator = frame.context.collator();
    let wanted = wanted.unwrap_or(Value::Undefined);
    match frame.arena.noted_position(items, wanted, collator)? {
        // An equal item before the part says nothing about those in it.
        Some(Some(first)) if first < part.start => {}
        Some(first) => return Ok(first.filter(|&at| at < part.end)),
        None => {}
    }
    let count = part.end.saturating_sub(part.start);
    let items = frame.arena.elements_from(items, part.start)?.take(count);
    for (at, item) in (part.start..).zip(items) {
        meter::spend(meter::ELEMENT)?;
        if order::equal_raw(item.value, &wanted, collator) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// The start or end index of a search; `None` if it is not given.
pub(super) fn search_index<'a>(
    name: &str,
    which: &str,
    arg: Option<&'a Expression>,
    frame: &Frame<'a>,
) -> Result<Option<usize>> {
    let Some(arg) = arg else {
        return Ok(None);
    };
    let value = arg.eval(frame)?;
    let index = value
        .and_then(exact_i32)
        .ok_or_else(|| index_not_integral(name, which, kind(value), &print::optional(value)))?;
    match usize::try_from(index) {
        Ok(index) => Ok(Some(index)),
        Err(_) => Err(index_negative(name, which, &print::optional(value))),
    }
}

fn check_index_of_array(args: &[Expression]) -> Result<()> {
    let is_constant =
        |arg: &Expression| matches!(arg, Expression::Constant(_) | Expression::Missing);
    match args[0].as_constant() {
        // If all arguments are constant, evaluation reports the error with its own message.
        _ if args.iter().all(is_constant) => Ok(()),
        None | Some(Value::Array(_) | Value::Null | Value::Undefined) => Ok(()),
        Some(other) => Err(index_of_constant_not_array(other.kind().alias())),
    }
}

fn index_of_array<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let Some(list) = known(&args[0], frame)? else {
        return Ok(Some(Value::Null));
    };
    let Value::Array(items) = list else {
        return Err(index_of_not_array(list.kind().alias()));
    };
    let part = Part::of(args, frame)?;
    let wanted = args[1].eval(frame)?;
    Ok(Some(index_of(position_of(wanted, items, &part, frame)?)))
}

/// The part of the list that `$indexOfArray` searches.
pub(in crate::expression) struct Part {
    /// The first position.
    pub(in crate::expression) start: usize,
    /// The position after the last.
    pub(in crate::expression) end: usize,
}

impl Part {
    const ALL: Part = Part { start: 0, end: usize::MAX };

    /// The part that the arguments of an `$indexOfArray` give.
    pub(in crate::expression) fn of<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Part> {
        let start = search_index("$indexOfArray", "starting", args.get(2), frame)?;
        let end = search_index("$indexOfArray", "ending", args.get(3), frame)?;
        Ok(Part { start: start.unwrap_or(0), end: end.unwrap_or(usize::MAX) })
    }
}

/// The result of `$indexOfArray` for the position that it has found.
pub(in crate::expression) fn index_of(position: Option<usize>) -> Value<'static> {
    Value::Int32(position.and_then(|at| i32::try_from(at).ok()).unwrap_or(-1))
}

fn is_array<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    Ok(Some(matches!(args[0].eval(frame)?, Some(Value::Array(_))).into()))
}

fn range<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let start = args[0].eval(frame)?;
    let end = args[1].eval(frame)?;
    let start = start
        .filter(|value| value.kind().is_number())
        .ok_or_else(|| range_start_not_number(kind(start)))?;
    let start = exact_i32(start).ok_or_else(|| range_start_not_int(&print::value(start)))?;
    let end = end
        .filter(|value| value.kind().is_number())
        .ok_or_else(|| range_end_not_number(kind(end)))?;
    let end = exact_i32(end).ok_or_else(|| range_end_not_int(&print::value(end)))?;
    let mut step = 1;
    if let Some(arg) = args.get(2) {
        let value = arg.eval(frame)?;
        let number = value
            .filter(|value| value.kind().is_number())
            .ok_or_else(|| range_step_not_number(kind(value)))?;
        step = exact_i32(number).ok_or_else(|| range_step_not_int(&print::value(number)))?;
    }
    if step == 0 {
        return Err(range_step_zero());
    }
    let (start, end, step) = (i64::from(start), i64::from(end), i64::from(step));
    let steps = (end - start + step - step.signum()) / step;
    let count = u64::try_from(steps).unwrap_or(0);
    // mongod also counts the list itself, and omits the last element if the end is not a whole
    // number of steps away.
    let bytes = u64::try_from((end - start) / step).unwrap_or(0) * RANGE_ELEMENT_BYTES + 40;
    if count > 0 && bytes > RANGE_BYTES_MAX {
        return Err(range_too_large(bytes));
    }
    #[allow(clippy::cast_possible_truncation)]
    let number = |at: i64| Value::Int32((start + at * step) as i32);
    frame.arena.array((0..i64::try_from(count).unwrap_or(0)).map(number)).map(Some)
}

fn reverse_array<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    match known(&args[0], frame)? {
        None => Ok(Some(Value::Null)),
        Some(Value::Array(items)) => {
            let mut values = frame.arena.values_growing();
            values.extend(items.values())?;
            frame.arena.array(values.into_values().into_iter().rev()).map(Some)
        }
        Some(value) => Err(reverse_not_array(value.kind().alias())),
    }
}

fn size<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let value = args[0].eval(frame)?;
    let Some(Value::Array(items)) = value else {
        return Err(size_not_array(kind(value)));
    };
    Ok(Some(i32::try_from(items.iter().count()).unwrap_or(i32::MAX).into()))
}

/// Returns the part of an array that `$slice` selects.
///
/// Shape: `{ $slice: [<array>, <n>] }` or `{ $slice: [<array>, <position>, <n>] }`; a negative `n`
/// in the first form selects from the end, a negative position counts from the end.
fn slice<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let list = known(&args[0], frame)?;
    let second = known(&args[1], frame)?;
    let (Some(list), Some(second)) = (list, second) else {
        return Ok(Some(Value::Null));
    };
    let Value::Array(items) = list else {
        return Err(slice_not_array(list.kind().alias()));
    };
    if !second.kind().is_number() {
        return Err(slice_second_not_number(second.kind().alias()));
    }
    let second = exact_i32(second).ok_or_else(|| slice_second_not_int(&number_text(second)))?;
    // Counted only where it is needed.
    let length = || long(items.iter().count());
    let second = i64::from(second);
    let (start, count) = match args.get(2) {
        None if second < 0 => ((length() + second).max(0), -second),
        None => (0, second),
        Some(third) => {
            let Some(third) = known(third, frame)? else {
                return Ok(Some(Value::Null));
            };
            if !third.kind().is_number() {
                return Err(slice_third_not_number(third.kind().alias()));
            }
            let count = exact_i32(third).ok_or_else(|| slice_third_not_int(&number_text(third)))?;
            if count <= 0 {
                return Err(slice_third_not_positive(count));
            }
            let start = if second < 0 { (length() + second).max(0) } else { second };
            (start, i64::from(count))
        }
    };
    let start = usize::try_from(start).unwrap_or(0);
    let count = usize::try_from(count).unwrap_or(0);
    let part = frame.arena.elements_from(items, start)?.take(count);
    frame.arena.array(part.map(|element| element.value.get())).map(Some)
}
