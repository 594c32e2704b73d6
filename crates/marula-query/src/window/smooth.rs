//! Window functions that smooth and fill: `$expMovingAvg`, `$linearFill`, `$locf`.

use std::cmp::Ordering;

use marula_bson::value::LONG_END;
use marula_bson::{Decimal128, DocWriter, Type, Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::function::{Function, FunctionRow, Part, Spec, only_sort_field, shown};
use super::kept;
use super::{Partition, SortBy};
use crate::context::Context;
use crate::expression::number::{
    DecContext, Number, decimal_difference, decimal_product, decimal_sum, decimal_with,
    int_or_long, whole_number,
};
use crate::expression::operators::arithmetic::{divide_wrong_types, subtract_wrong_types};
use crate::expression::{Expression, Scope};
use crate::meter;
use crate::stage::needs::Needs;

pub(super) static ROWS: &[FunctionRow] = &[
    FunctionRow { name: "$expMovingAvg", parse: parse_moving_average },
    FunctionRow { name: "$linearFill", parse: parse_linear_fill },
    FunctionRow { name: "$locf", parse: parse_locf },
];

errors! {
    average_needs_sort() = FailedToParse, "$expMovingAvg requires an explicit 'sortBy'";
    average_not_object() = FailedToParse, "$expMovingAvg must have exactly one argument that is an object";
    average_wrong_fields() = FailedToParse, "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an 'N' field or an 'alpha' field";
    average_unknown_field() = FailedToParse, "Got unrecognized field in $expMovingAvg$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an 'N' field or an 'alpha' field";
    n_not_number(kind: &str) = FailedToParse, "'N' field must be an integer, but found type {kind}";
    n_not_integer(field: &str) = FailedToParse, "'N' field must be an integer, but found  {field}. To use a non-integer, use the 'alpha' argument instead";
    n_not_positive(n: i64) = FailedToParse, "'N' must be greater than zero. Got {n}";
    alpha_not_number() = FailedToParse, "'alpha' must be a number";
    alpha_out_of_range(field: &str) = FailedToParse, "'alpha' must be between 0 and 1 (exclusive), found {field}";
    fill_with_window(name: &str) = FailedToParse, "'window' field is not allowed in {name}";
    fill_needs_one_field() = 605001, "$linearFill must be specified with a top level sortBy expression with exactly one element";
    fill_not_number(kind: &str) = TypeMismatch, "Value to be filled must be numeric or nullish, but found {kind}";
    fill_sort_type(kind: &str) = TypeMismatch, "Value of the sortBy field must be numeric or a date, but found {kind}";
    fill_conflict(before: &str, kind: &str) = TypeMismatch, "Conflicting sort value types, previously received type {before}, but found {kind}";
    fill_repeated() = 6050106, "There can be no repeated values in the sort field";
}

/// An average in which older values count less.
#[derive(Debug)]
struct MovingAverage {
    input: Expression,
    weight: Weight,
}

/// The weight of the newest value.
#[derive(Debug)]
enum Weight {
    /// 2 / (n + 1).
    Count(i64),
    Alpha(Decimal128),
}

fn parse_moving_average(spec: &Spec<'_>, scope: &mut Scope<'_>) -> Result<Box<dyn Function>> {
    let is_alone = spec.fields.iter().count() == 1;
    let doc = spec.argument.as_doc().filter(|_| is_alone).ok_or_else(average_not_object)?;
    let input = doc.get("input").filter(|_| doc.iter().count() == 2);
    let input = input.ok_or_else(average_wrong_fields)?;
    if spec.sort.is_none() {
        return Err(average_needs_sort());
    }
    let input = Expression::parse(input, scope)?;
    let weight = match (doc.get("N"), doc.get("alpha")) {
        (Some(n), _) => Weight::Count(count(n)?),
        (None, Some(value)) => {
            let alpha = Number::of(value).ok_or_else(alpha_not_number)?;
            let is_below_one = order::compare(value, Value::Int32(1), None).is_lt();
            if alpha.compare_zero() != Some(Ordering::Greater) || !is_below_one {
                return Err(alpha_out_of_range(&shown("alpha", value)));
            }
            Weight::Alpha(alpha.to_decimal())
        }
        (None, None) => return Err(average_unknown_field()),
    };
    Ok(Box::new(MovingAverage { input, weight }))
}

/// Parses `N` of a moving average.
fn count(value: Value<'_>) -> Result<i64> {
    let number = value.as_f64().ok_or_else(|| n_not_number(value.kind().alias()))?;
    #[allow(clippy::cast_possible_truncation)]
    let n = match whole_number(value) {
        // To mongod a decimal that is not positive is not a whole number.
        Some(n) if n <= 0 && value.kind() == Type::Decimal128 => {
            return Err(n_not_integer(&shown("N", value)));
        }
        Some(n) => n,
        // A number beyond the range of a long becomes its maximum, and NaN becomes zero.
        None if number.is_nan() || number.abs() >= LONG_END => number as i64,
        None => return Err(n_not_integer(&shown("N", value))),
    };
    if n > 0 { Ok(n) } else { Err(n_not_positive(n)) }
}

impl Function for MovingAverage {
    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.input.optimize(context)
    }

    fn reads(&self, needs: &mut Needs) {
        needs.expression(&self.input);
    }

    fn print(&self, out: &mut DocWriter<'_>) {
        let mut argument = out.begin_doc("$expMovingAvg");
        match &self.weight {
            Weight::Count(n) => argument.append("N", int_or_long(*n)),
            Weight::Alpha(alpha) => argument.append("alpha", *alpha),
        };
        argument.append("input", &self.input.print());
    }

    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        // The average is computed in decimals, as in mongod; the result is a double unless a value
        // was a decimal. mongod remembers a decimal for later partitions.
        let mut average: Option<Decimal128> = None;
        let mut is_decimal = partition.memory.met_decimal.get();
        let mut values = Vec::new();
        for input in partition.values(&self.input)? {
            meter::spend(meter::CALL)?;
            if let Some(number) = input.and_then(|input| Number::of(input.get())) {
                is_decimal |= matches!(number, Number::Decimal(_));
                average = Some(match average {
                    None => number.to_decimal(),
                    Some(before) => self.next(before, number.to_decimal()),
                });
            }
            let value = match average {
                None => Value::Null,
                Some(average) if is_decimal => average.into(),
                Some(average) => average.to_f64().into(),
            };
            values.push(value.to_buf());
        }
        partition.memory.met_decimal.set(is_decimal);
        Ok(values)
    }
}

impl MovingAverage {
    fn next(&self, before: Decimal128, number: Decimal128) -> Decimal128 {
        let one = Decimal128::from_i64(1);
        let alpha = match &self.weight {
            Weight::Count(n) => {
                let parts = Decimal128::from_i64(n.saturating_add(1));
                decimal_with(Decimal128::from_i64(2), parts, DecContext::div)
            }
            Weight::Alpha(alpha) => *alpha,
        };
        let rest = decimal_difference(one, alpha);
        let newest = decimal_product(number, alpha);
        let older = decimal_product(before, rest);
        decimal_sum(newest, older)
    }
}

/// Replaces nulls between two numbers by the values on the line between them.
#[derive(Debug)]
struct LinearFill {
    input: Expression,
    sort_by: SortBy,
}

fn parse_linear_fill(spec: &Spec<'_>, scope: &mut Scope<'_>) -> Result<Box<dyn Function>> {
    let input = parse_filled(spec, scope)?;
    let sort_by = only_sort_field(spec.sort, fill_needs_one_field)?;
    Ok(Box::new(LinearFill { input, sort_by }))
}

/// Parses the expression whose gaps are filled; a window is not permitted.
fn parse_filled(spec: &Spec<'_>, scope: &mut Scope<'_>) -> Result<Expression> {
    let (mut input, mut has_window) = (Expression::Missing, false);
    spec.for_each(|part| {
        match part {
            Part::Argument(argument) => input = Expression::parse(argument, scope)?,
            Part::Window(_) => has_window = true,
        }
        Ok(())
    })?;
    if has_window { Err(fill_with_window(spec.name)) } else { Ok(input) }
}

impl Function for LinearFill {
    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.input.optimize(context)
    }

    fn reads(&self, needs: &mut Needs) {
        needs.expression(&self.input);
    }

    fn print(&self, out: &mut DocWriter<'_>) {
        out.append("$linearFill", &self.input.print());
    }

    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        let given = partition.values(&self.input)?;
        let sorted = partition.sort_values(&self.sort_by)?;
        let collator = partition.context.collator();
        let (inputs, places) = (bare(&given), bare(&sorted));
        // As in mongod, the last value of the previous partition counts too.
        let mut before = partition.memory.last_place.borrow_mut();
        let mut values = Vec::with_capacity(inputs.len());
        // The last document with a number, and the next one with a value.
        let (mut low, mut high): (Option<usize>, usize) = (None, 0);
        for (at, (&input, &place)) in inputs.iter().zip(&places).enumerate() {
            meter::spend(meter::CALL)?;
            let number = Number::of(input);
            if number.is_none() && !input.is_nullish() {
                return Err(fill_not_number(input.kind().alias()));
            }
            if !place.kind().is_number() && !is_date(place) {
                let kind = sorted[at].as_ref().map_or("missing", |value| value.kind().alias());
                return Err(fill_sort_type(kind));
            }
            if let Some(before) = before.replace(place.to_buf()) {
                let before = before.get();
                if is_date(before) != is_date(place) {
                    return Err(fill_conflict(before.kind().alias(), place.kind().alias()));
                }
                if order::equal(before, place, collator) {
                    return Err(fill_repeated());
                }
            }
            let filled = match (number, low) {
                (Some(number), _) => {
                    low = Some(at);
                    Some(number)
                }
                (None, Some(low)) => {
                    high = high.max(at);
                    while inputs.get(high).is_some_and(|input| input.is_nullish()) {
                        meter::spend(meter::ELEMENT)?;
                        high += 1;
                    }
                    let end = inputs.get(high).zip(places.get(high));
                    let end = end.filter(|(_, place)| !place.is_nullish());
                    match end {
                        Some((&end, &behind)) => {
                            between((inputs[low], places[low]), (end, behind), place)?
                        }
                        None => None,
                    }
                }
                (None, None) => None,
            };
            values.push(filled.map_or(Value::Null, Value::from).to_buf());
        }
        Ok(values)
    }
}

/// Values of which a missing one is undefined.
fn bare(values: &[Option<ValueBuf>]) -> Vec<Value<'_>> {
    values.iter().map(|value| value.as_ref().map_or(Value::Undefined, ValueBuf::get)).collect()
}

/// Returns the value at `place` on the line between two points, of which the later one has not been
/// checked.
fn between(
    (low, left): (Value<'_>, Value<'_>),
    (high, right): (Value<'_>, Value<'_>),
    place: Value<'_>,
) -> Result<Option<Number>> {
    let (rise, run) = (difference(high, low)?, difference(right, left)?);
    let (Some(rise), Some(run)) = (Number::of(rise), Number::of(run)) else {
        return Err(divide_wrong_types(rise.kind().alias(), run.kind().alias()));
    };
    let (Some(low), Some(x)) = (Number::of(low), Number::of(difference(place, left)?)) else {
        return Ok(None);
    };
    Ok(Some(low.add(x.multiply(rise.divide(run)))))
}

/// Returns `left` minus `right`, a number or a date: of two dates milliseconds; a date minus a
/// number is some date.
fn difference<'v>(left: Value<'v>, right: Value<'_>) -> Result<Value<'v>> {
    match (left, right) {
        (Value::DateTime(left), Value::DateTime(right)) => {
            Ok(Value::Int64(left.wrapping_sub(right)))
        }
        (Value::DateTime(_), _) => Ok(left),
        _ => match (Number::of(left), Number::of(right)) {
            (Some(left), Some(right)) => Ok(left.subtract(right).into()),
            _ => Err(subtract_wrong_types(right.kind().alias(), left.kind().alias())),
        },
    }
}

fn is_date(value: Value<'_>) -> bool {
    value.kind() == Type::DateTime
}

/// Replaces nulls by the last value that is not null.
#[derive(Debug)]
struct LastObserved {
    input: Expression,
}

fn parse_locf(spec: &Spec<'_>, scope: &mut Scope<'_>) -> Result<Box<dyn Function>> {
    // Errors of the expression come first, wherever the window is.
    Expression::parse(spec.argument, scope)?;
    Ok(Box::new(LastObserved { input: parse_filled(spec, scope)? }))
}

impl Function for LastObserved {
    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.input.optimize(context)
    }

    fn reads(&self, needs: &mut Needs) {
        needs.expression(&self.input);
    }

    fn print(&self, out: &mut DocWriter<'_>) {
        out.append("$locf", &self.input.print());
    }

    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        let mut last = Value::Null.to_buf();
        let mut values = Vec::new();
        for input in partition.values(&self.input)? {
            meter::spend(meter::CALL)?;
            if let Some(value) = input.filter(|value| !value.get().is_nullish()) {
                last = value;
            }
            values.push(kept(last.get())?);
        }
        Ok(values)
    }
}
