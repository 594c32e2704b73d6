//! Window functions that relate two values: `$derivative`, `$integral`, `$covariancePop`,
//! `$covarianceSamp`.

use std::collections::VecDeque;
use std::ops::Range;

use marula_bson::{Decimal128, DocWriter, Type, Value, ValueBuf};
use marula_error::{Result, errors};

use super::function::{Function, FunctionRow, Part, Spec, only_sort_field, shown};
use super::removable::Totals;
use super::{Bounds, Partition, SortBy, text};
use crate::context::Context;
use crate::expression::calendar::Unit;
use crate::expression::number::{
    DecContext, Number, decimal_difference, decimal_product, decimal_sum, decimal_with,
};
use crate::expression::operators::arithmetic::{divide_wrong_types, subtract_wrong_types};
use crate::expression::{Expression, Scope};
use crate::meter;
use crate::stage::needs::Needs;

pub(super) static ROWS: &[FunctionRow] = &[
    FunctionRow { name: "$covariancePop", parse: parse_covariance },
    FunctionRow { name: "$covarianceSamp", parse: parse_covariance },
    FunctionRow { name: "$derivative", parse: parse_slope },
    FunctionRow { name: "$integral", parse: parse_slope },
];

errors! {
    needs_sort(name: &str) = FailedToParse, "{name} requires a sortBy";
    needs_one_field(name: &str) = FailedToParse, "{name} requires a non-compound sortBy";
    needs_a_path(name: &str) = FailedToParse, "{name} requires a non-expression sortBy";
    needs_window(name: &str) = FailedToParse, "{name} requires explicit window bounds";
    not_object(name: &str, kind: &str, shown: &str) = FailedToParse, "{name} expects an object, but got a {kind}: {shown}";
    no_input(name: &str) = FailedToParse, "{name} requires an 'input' expression";
    unexpected_argument(name: &str, argument: &str) = FailedToParse, "{name} got unexpected argument: {argument}";
    unit_not_string(kind: &str) = FailedToParse, "unit' must be a string, but got {kind}";
    unknown_unit(name: &str) = FailedToParse, "unknown time unit value: {name}";
    unit_too_large() = 5490710, "unit must be 'week' or smaller";
    derivative_not_date() = 5624900, "$derivative with 'unit' expects the sortBy field to be a Date";
    derivative_needs_unit() = 5624901, "$derivative where the sortBy is a Date requires an 'unit'";
    derivative_not_number() = 5624902, "$derivative (with no 'unit') expects the sortBy field to be numeric";
    derivative_of_null() = 5624903, "$derivative input must not be null or missing";
    two_windows() = FailedToParse, "There can be only one 'window' field for $integral";
    integral_not_numbers() = 5423900, "The input value of $integral window function must be a vector of 2 value, the first value must be numeric or date type and the second must be numeric.";
    integral_not_date() = 5423901, "$integral with 'unit' expects the sortBy field to be a Date";
    integral_not_number() = 5423902, "$integral (with no 'unit') expects the sortBy field to be numeric";
}

/// `$derivative` or `$integral`: over the sort value as time.
#[derive(Debug)]
struct SlopeFunction {
    is_integral: bool,
    input: Expression,
    unit: Option<Unit>,
    sort_by: SortBy,
    bounds: Bounds,
}

fn parse_slope(spec: &Spec<'_>, scope: &mut Scope<'_>) -> Result<Box<dyn Function>> {
    let name = spec.name;
    let is_integral = name == "$integral";
    let sort = spec.sort.ok_or_else(|| needs_sort(name))?;
    let sort_by = only_sort_field(Some(sort), || needs_one_field(name))?;
    if sort.values().any(|part| part.as_doc().is_some()) {
        return Err(needs_a_path(name));
    }
    if is_integral && spec.fields.iter().filter(|field| field.name == "window").count() > 1 {
        return Err(two_windows());
    }
    let window = spec.fields.get("window");
    let bounds = match window {
        Some(window) => Bounds::parse(window, spec.sort, scope)?,
        None => Bounds::ALL,
    };
    let (mut input, mut unit) = (None, None);
    for element in spec.fields {
        if **element.name == *b"window" {
            continue;
        }
        if **element.name != *name.as_bytes() {
            return Err(unexpected_argument(name, &text(element.name)));
        }
        (input, unit) = parse_rise(name, element.value.get(), scope)?;
    }
    let input = input.ok_or_else(|| no_input(name))?;
    if window.is_none() && !is_integral {
        return Err(needs_window(name));
    }
    Ok(Box::new(SlopeFunction { is_integral, input, unit, sort_by, bounds }))
}

/// Parses the input of a derivative or an integral, and its unit.
fn parse_rise(
    name: &str,
    argument: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<(Option<Expression>, Option<Unit>)> {
    let Value::Document(doc) = argument else {
        let kind = argument.kind().alias();
        return Err(not_object(name, kind, &shown(name, argument)));
    };
    let (mut input, mut unit) = (None, None);
    for element in doc {
        let value = element.value.get();
        match &**element.name {
            b"input" => input = Some(Expression::parse(value, scope)?),
            b"unit" => {
                let Value::String(name) = value else {
                    return Err(unit_not_string(value.kind().alias()));
                };
                let parsed = Unit::parse(name).ok_or_else(|| unknown_unit(&name.to_string()))?;
                if parsed.months().is_some() {
                    return Err(unit_too_large());
                }
                unit = Some(parsed);
            }
            other => return Err(unexpected_argument(name, &text(other))),
        }
    }
    Ok((input, unit))
}

impl SlopeFunction {
    /// Returns the sort value as a number: of a date, its milliseconds.
    fn time(&self, value: Option<&ValueBuf>) -> Result<Number> {
        let value = value.map(ValueBuf::get);
        match (value, self.unit) {
            (Some(Value::DateTime(ms)), Some(_)) => Ok(Number::Long(ms)),
            (_, Some(_)) if self.is_integral => Err(integral_not_date()),
            (_, Some(_)) => Err(derivative_not_date()),
            (value, None) => value.and_then(Number::of).ok_or_else(|| match self.is_integral {
                true => integral_not_number(),
                false => derivative_not_number(),
            }),
        }
    }

    /// Returns the rise from the first document of a window to the last, divided by the run of the
    /// sort value.
    fn derivative(
        &self,
        partition: &Partition<'_>,
        times: &[Option<ValueBuf>],
        window: Range<usize>,
    ) -> Result<ValueBuf> {
        let ends = [window.start, window.end - 1];
        let kinds = ends.map(|at| times[at].as_ref().map(|time| time.kind()));
        if self.unit.is_none() && kinds.contains(&Some(Type::DateTime)) {
            return Err(derivative_needs_unit());
        }
        let [left, right] = ends.map(|at| self.time(times[at].as_ref()));
        let (left, right) = (left?, right?);
        let [low, high] = ends.map(|at| partition.value(&self.input, at));
        let (low, high) = (low?, high?);
        let input = |value: Option<ValueBuf>| {
            value.filter(|value| !value.get().is_nullish()).ok_or_else(derivative_of_null)
        };
        let (low, high) = (input(low)?, input(high)?);
        let run = right.subtract(left);
        let rise = match (low.get(), high.get()) {
            (Value::DateTime(low), Value::DateTime(high)) => {
                Number::Long(high).subtract(Number::Long(low))
            }
            // A number minus a date is a date, which cannot be divided.
            (low, Value::DateTime(_)) if low.kind().is_number() => {
                return Err(divide_wrong_types("date", Value::from(run).kind().alias()));
            }
            (low, high) => match (Number::of(low), Number::of(high)) {
                (Some(low), Some(high)) => high.subtract(low),
                _ => return Err(subtract_wrong_types(low.kind().alias(), high.kind().alias())),
            },
        };
        if run.is_zero() {
            return Ok(Value::Null.to_buf());
        }
        let slope = rise.divide(run);
        let slope = match self.unit {
            Some(unit) => slope.multiply(Number::Long(unit.ms())),
            None => slope,
        };
        Ok(Value::from(slope).to_buf())
    }

    /// Returns the time and the input of a document as numbers.
    fn point(&self, time: &Option<ValueBuf>, input: &Option<ValueBuf>) -> Result<(Number, Number)> {
        let kind = time.as_ref().map(|time| time.kind());
        let is_time = kind.is_some_and(|kind| kind.is_number() || kind == Type::DateTime);
        let input = input.as_ref().and_then(|input| Number::of(input.get()));
        let input = input.filter(|_| is_time).ok_or_else(integral_not_numbers)?;
        Ok((self.time(time.as_ref())?, input))
    }

    /// Returns the area under the inputs of each window, by trapezoids that are added and removed
    /// as the window moves. A document's input is computed when the document is added, so that of
    /// several errors the first document's is reported.
    fn integrals(
        &self,
        partition: &Partition<'_>,
        times: &[Option<ValueBuf>],
        windows: &[Range<usize>],
    ) -> Result<Vec<ValueBuf>> {
        let mut points: VecDeque<(Number, Number)> = VecDeque::new();
        let (mut area, mut nans) = (Totals::default(), 0usize);
        let is_nan = |(time, input): (Number, Number)| time.is_nan() || input.is_nan();
        let mut held: Range<usize> = 0..0;
        let mut values = Vec::with_capacity(windows.len());
        for window in windows {
            meter::spend(meter::CALL)?;
            if window.is_empty() {
                values.push(Value::Null.to_buf());
                continue;
            }
            if held.is_empty() {
                held = window.start..window.start;
            }
            // Those that the window skips are added, too, and removed at once.
            for (at, time) in times.iter().enumerate().take(window.end).skip(held.end) {
                meter::spend(meter::CALL)?;
                let point = self.point(time, &partition.value(&self.input, at)?)?;
                if let Some(before) = points.back() {
                    area.change(trapezoid(*before, point).into(), 1);
                }
                nans += usize::from(is_nan(point));
                points.push_back(point);
            }
            for _ in held.start..window.start {
                let gone =
                    points.pop_front().expect("the window ends after the documents it leaves");
                if let Some(next) = points.front() {
                    area.change(trapezoid(gone, *next).into(), -1);
                }
                nans -= usize::from(is_nan(gone));
            }
            held = window.clone();
            let value = match (self.unit, area.total()) {
                _ if nans > 0 => Value::Double(f64::NAN),
                (Some(unit), area) => area.divide(Number::Long(unit.ms())).into(),
                (None, area) => area.into(),
            };
            values.push(value.to_buf());
        }
        Ok(values)
    }
}

/// Returns the area between two points, each a time and an input.
fn trapezoid(left: (Number, Number), right: (Number, Number)) -> Number {
    let run = right.0.subtract(left.0);
    right.1.add(left.1).multiply(run).divide(Number::Double(2.0))
}

impl Function for SlopeFunction {
    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.input.optimize(context)
    }

    fn reads(&self, needs: &mut Needs) {
        needs.expression(&self.input);
    }

    fn print(&self, out: &mut DocWriter<'_>) {
        let mut argument =
            out.begin_doc(if self.is_integral { "$integral" } else { "$derivative" });
        argument.append("input", &self.input.print());
        if let Some(unit) = self.unit {
            argument.append("unit", unit.name());
        }
        argument.finish();
        self.bounds.print(out);
    }

    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        let times = partition.sort_values(&self.sort_by)?;
        let windows = self.bounds.windows(partition)?;
        if self.is_integral {
            return self.integrals(partition, &times, &windows);
        }
        let mut values = Vec::with_capacity(times.len());
        for window in windows {
            meter::spend(meter::CALL)?;
            values.push(match window.is_empty() {
                true => Value::Null.to_buf(),
                false => self.derivative(partition, &times, window)?,
            });
        }
        Ok(values)
    }
}

#[derive(Debug)]
struct Covariance {
    is_sample: bool,
    input: Expression,
    bounds: Bounds,
}

fn parse_covariance(spec: &Spec<'_>, scope: &mut Scope<'_>) -> Result<Box<dyn Function>> {
    let (mut input, mut bounds) = (Expression::Missing, Bounds::ALL);
    spec.for_each(|part| {
        match part {
            Part::Argument(argument) => input = Expression::parse(argument, scope)?,
            Part::Window(window) => bounds = Bounds::parse(window, spec.sort, scope)?,
        }
        Ok(())
    })?;
    Ok(Box::new(Covariance { is_sample: spec.name == "$covarianceSamp", input, bounds }))
}

/// Returns the two numbers of an input that is an array of two finite numbers.
fn pair(input: &Option<ValueBuf>) -> Option<(Number, Number)> {
    let (x, y) = any_pair(input)?;
    (x.to_f64().is_finite() && y.to_f64().is_finite()).then_some((x, y))
}

/// Returns the two numbers of an input that is an array of two numbers.
fn any_pair(input: &Option<ValueBuf>) -> Option<(Number, Number)> {
    let items = input.as_ref()?.get().as_array()?;
    let mut values = items.values();
    match (values.next(), values.next(), values.next()) {
        (Some(x), Some(y), None) => Some((Number::of(x)?, Number::of(y)?)),
        _ => None,
    }
}

/// The pairs that are not finite: they are only summed, and their sum is the covariance once there
/// are two of them.
#[derive(Default)]
struct Infinite {
    count: i64,
    sum: Totals,
}

impl Infinite {
    /// Adds the pairs among the inputs, or removes them if `sign` is negative.
    fn change(&mut self, inputs: &[Option<ValueBuf>], sign: i64) {
        for (x, y) in inputs.iter().filter(|input| pair(input).is_none()).filter_map(any_pair) {
            self.count += sign;
            self.sum.change(x.into(), sign);
            self.sum.change(y.into(), sign);
        }
    }

    /// Returns the sum, which is NaN or infinite.
    fn value(&self, is_decimal: bool) -> ValueBuf {
        match self.sum.total() {
            sum if is_decimal && !sum.is_nan() => Value::from(sum.to_decimal()).to_buf(),
            sum => Value::from(sum).to_buf(),
        }
    }
}

/// The sums of the pairs, and the sum of the products of their distances from the means.
#[derive(Default)]
struct Moments {
    count: i64,
    x: Totals,
    y: Totals,
    products: Totals,
}

impl Moments {
    fn means(&self) -> (Number, Number) {
        match self.count {
            0 => (Number::Int(0), Number::Int(0)),
            count => {
                let count = Number::Long(count);
                (self.x.total().divide(count), self.y.total().divide(count))
            }
        }
    }

    /// Adds a pair: its product uses the mean of x before it and the mean of y with it.
    fn add(&mut self, (x, y): (Number, Number)) {
        let (before, _) = self.means();
        self.count += 1;
        self.x.change(x.into(), 1);
        self.y.change(y.into(), 1);
        let (_, after) = self.means();
        let product = x.subtract(before).multiply(y.subtract(after));
        self.products.change(product.into(), 1);
    }

    /// Removes a pair, in the reverse order of [`Moments::add`].
    fn remove(&mut self, (x, y): (Number, Number)) {
        let (_, before) = self.means();
        self.count -= 1;
        if self.count == 0 {
            *self = Moments::default();
            return;
        }
        self.x.change(x.into(), -1);
        self.y.change(y.into(), -1);
        let (after, _) = self.means();
        let product = x.subtract(after).multiply(y.subtract(before));
        self.products.change(product.into(), -1);
    }

    fn covariance(&self, is_sample: bool) -> Value<'static> {
        match if is_sample { self.count - 1 } else { self.count } {
            ..=0 => Value::Null,
            divisor => self.products.total().divide(Number::Long(divisor)).into(),
        }
    }
}

/// Returns whether a number of a pair is a decimal.
fn has_decimal(input: &Option<ValueBuf>) -> bool {
    let items = input.as_ref().and_then(|input| input.get().as_array());
    any_pair(input).is_some()
        && items.is_some_and(|items| items.values().any(|item| item.kind() == Type::Decimal128))
}

impl Covariance {
    /// Returns the covariance of pairs with decimals, as a decimal.
    fn in_decimals(&self, inputs: &[Option<ValueBuf>]) -> Value<'static> {
        use DecContext as Dec;
        let zero = Decimal128::ZERO;
        let (mut count, mut sum_x, mut sum_y, mut products) = (0i64, zero, zero, zero);
        for (x, y) in inputs.iter().filter_map(pair) {
            let (x, y) = (x.to_decimal(), y.to_decimal());
            count += 1;
            sum_x = decimal_sum(sum_x, x);
            sum_y = decimal_sum(sum_y, y);
            products = decimal_sum(products, decimal_product(x, y));
        }
        let divisor = if self.is_sample { count - 1 } else { count };
        if divisor <= 0 {
            return Value::Null;
        }
        if count == 1 {
            // A single pair is not evaluated.
            return Value::Double(0.0);
        }
        let both = decimal_product(sum_x, sum_y);
        let of_means = decimal_with(both, Decimal128::from_i64(count), Dec::div);
        let rest = decimal_difference(products, of_means);
        decimal_with(rest, Decimal128::from_i64(divisor), Dec::div).into()
    }
}

impl Function for Covariance {
    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.input.optimize(context)
    }

    fn reads(&self, needs: &mut Needs) {
        needs.expression(&self.input);
    }

    fn print(&self, out: &mut DocWriter<'_>) {
        let name = if self.is_sample { "$covarianceSamp" } else { "$covariancePop" };
        out.append(name, &self.input.print());
        self.bounds.print(out);
    }

    fn values(&self, partition: &Partition<'_>) -> Result<Vec<ValueBuf>> {
        let windows = self.bounds.windows(partition)?;
        let inputs = partition.values_in(&self.input, &windows)?;
        let mut decimals = 0usize;
        let is_decimal: Vec<bool> = inputs.iter().map(has_decimal).collect();
        let (mut moments, mut infinite) = (Moments::default(), Infinite::default());
        let mut held = 0..0;
        let mut values = Vec::with_capacity(inputs.len());
        for window in windows {
            meter::spend(meter::CALL)?;
            if window.start >= held.end {
                (moments, infinite) = (Moments::default(), Infinite::default());
                decimals = 0;
                held = window.start..window.start;
            }
            inputs[held.end..window.end].iter().filter_map(pair).for_each(|pair| moments.add(pair));
            let gone = inputs[held.start..window.start].iter().filter_map(pair);
            gone.for_each(|pair| moments.remove(pair));
            infinite.change(&inputs[held.end..window.end], 1);
            infinite.change(&inputs[held.start..window.start], -1);
            let count = |range: &[bool]| range.iter().filter(|is_decimal| **is_decimal).count();
            decimals += count(&is_decimal[held.end..window.end]);
            decimals -= count(&is_decimal[held.start..window.start]);
            held = window;
            if infinite.count > 0 && moments.count > 1 {
                values.push(infinite.value(decimals > 0));
                continue;
            }
            // Decimals cannot be removed exactly: their window is computed again.
            let value = if decimals > 0 {
                self.in_decimals(&inputs[held.clone()])
            } else {
                moments.covariance(self.is_sample)
            };
            values.push(value.to_buf());
        }
        Ok(values)
    }
}
