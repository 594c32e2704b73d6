//! Arithmetic operators.

use dec::Rounding;
use marula_bson::{Decimal128, Value};
use marula_error::{Result, errors};

use super::kind;
use crate::expression::number::{
    DecContext, Number, Pair, decimal_product, decimal_remainder, decimal_with, from_dec,
    int_or_long, to_dec,
};
use crate::expression::{Expression, Frame, Operator};

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$abs", 1, abs),
    Operator::any("$add", add),
    Operator::exactly("$ceil", 1, ceil),
    Operator::exactly("$divide", 2, divide),
    Operator::exactly("$floor", 1, floor),
    Operator::exactly("$mod", 2, modulo),
    Operator::any("$multiply", multiply),
    Operator::exactly("$subtract", 2, subtract),
];

errors! {
    add_wrong_type(kind: &str) = TypeMismatch, "$add only supports numeric or date types, not {kind}";
    add_two_dates() = 16612, "only one date allowed in an $add expression";
    date_overflow() = Overflow, "date overflow";
    multiply_wrong_type(kind: &str) = TypeMismatch, "$multiply only supports numeric types, not {kind}";
    /// One of two values cannot be subtracted from the other.
    pub(crate) subtract_wrong_types(right: &str, left: &str) = TypeMismatch, "can't $subtract {right} from {left}";
    /// One of two values cannot be divided by the other.
    pub(crate) divide_wrong_types(left: &str, right: &str) = TypeMismatch, "$divide only supports numeric types, not {left} and {right}";
    divide_by_zero() = BadValue, "can't $divide by zero";
    mod_wrong_types(left: &str, right: &str) = 16611, "$mod only supports numeric types, not {left} and {right}";
    mod_by_zero() = 16610, "can't $mod by zero";
    mod_by_zero_decimal() = 5733415, "can't $mod by zero";
    abs_of_long_min() = 28680, "can't take $abs of long long min";
    pub(super) not_a_number(operator: &str, kind: &str) = 28765, "{operator} only supports numeric types, not {kind}";
}

/// The number in the only argument of a numeric function; `None` for missing and null.
pub(super) fn only_number<'a>(
    operator: &str,
    args: &'a [Expression],
    frame: &Frame<'a>,
) -> Result<Option<Number>> {
    match super::known(&args[0], frame)? {
        None => Ok(None),
        Some(value) => match Number::of(value) {
            Some(number) => Ok(Some(number)),
            None => Err(not_a_number(operator, value.kind().alias())),
        },
    }
}

fn add<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    // Ints are added as longs; only their sum must fit an int.
    let mut sum = Number::Long(0);
    let mut only_ints = true;
    // Everything before a date is summed up and rounded to whole milliseconds; each number after it
    // is rounded separately.
    let mut date = None;
    for arg in args {
        match arg.eval(frame)? {
            None | Some(Value::Null | Value::Undefined) => return Ok(Some(Value::Null)),
            Some(Value::DateTime(_)) if date.is_some() => return Err(add_two_dates()),
            Some(Value::DateTime(ms)) => date = Some(later(ms, sum)?),
            Some(value) => {
                let number =
                    Number::of(value).ok_or_else(|| add_wrong_type(value.kind().alias()))?;
                match &mut date {
                    Some(date) => *date = later(*date, number)?,
                    None => {
                        only_ints &= matches!(number, Number::Int(_));
                        sum = sum.add(number);
                    }
                }
            }
        }
    }
    Ok(Some(match (date, sum) {
        (Some(ms), _) => Value::DateTime(ms),
        (None, Number::Long(sum)) if only_ints => int_or_long(sum).into(),
        (None, sum) => sum.into(),
    }))
}

/// The time `number` milliseconds after `ms`.
fn later(ms: i64, number: Number) -> Result<i64> {
    to_date_ms(number).and_then(|delta| ms.checked_add(delta)).ok_or_else(date_overflow)
}

/// A number as milliseconds, rounded half away from zero.
fn to_date_ms(number: Number) -> Option<i64> {
    match number {
        Number::Int(number) => Some(number.into()),
        Number::Long(number) => Some(number),
        Number::Double(number) => marula_bson::value::exact_i64_of_double(number.round()),
        Number::Decimal(number) => round_decimal(number, Rounding::HalfEven).to_exact_i64(),
    }
}

fn multiply<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let mut product = Product { exact: Some(1), double: 1.0, decimal: None };
    // As in a sum, only the product of ints must fit an int.
    let mut only_ints = true;
    let mut only_integers = true;
    for arg in args {
        let Some(value) = super::known(arg, frame)? else {
            return Ok(Some(Value::Null));
        };
        let number = Number::of(value).ok_or_else(|| multiply_wrong_type(value.kind().alias()))?;
        only_ints &= matches!(number, Number::Int(_));
        only_integers &= matches!(number, Number::Int(_) | Number::Long(_));
        product.multiply(number);
    }
    Ok(Some(match product {
        Product { decimal: Some(product), .. } => product.into(),
        Product { exact: Some(product), .. } if only_ints => int_or_long(product).into(),
        Product { exact: Some(product), .. } if only_integers => product.into(),
        Product { double, .. } => double.into(),
    }))
}

/// A product, in each type that its result may have.
///
/// As in mongod, a product of doubles is one from its first number on, so that a double after two
/// longs is not multiplied by their exact product.
struct Product {
    /// The product of integers, unless one is a double or it overflows.
    exact: Option<i64>,
    double: f64,
    /// The product from the first decimal on.
    decimal: Option<Decimal128>,
}

impl Product {
    fn multiply(&mut self, number: Number) {
        if self.decimal.is_some() || matches!(number, Number::Decimal(_)) {
            let before = match (self.decimal, self.exact) {
                (Some(before), _) => Number::Decimal(before),
                (None, Some(before)) => Number::Long(before),
                (None, None) => Number::Double(self.double),
            };
            self.decimal = Some(decimal_product(before.to_decimal(), number.to_decimal()));
            return;
        }
        self.double *= number.to_f64();
        self.exact = match number {
            Number::Int(number) => self.exact.and_then(|exact| exact.checked_mul(number.into())),
            Number::Long(number) => self.exact.and_then(|exact| exact.checked_mul(number)),
            Number::Double(_) | Number::Decimal(_) => None,
        };
    }
}

fn subtract<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    // If both arguments fail, the second error is reported.
    let right = super::known(&args[1], frame)?;
    let left = super::known(&args[0], frame)?;
    let (Some(left), Some(right)) = (left, right) else {
        return Ok(Some(Value::Null));
    };
    if let Value::DateTime(ms) = left {
        return subtract_from_date(ms, right).map(Some);
    }
    match (Number::of(left), Number::of(right)) {
        (Some(left), Some(right)) => Ok(Some(left.subtract(right).into())),
        _ => Err(subtract_wrong_types(right.kind().alias(), left.kind().alias())),
    }
}

fn subtract_from_date<'a>(ms: i64, right: Value<'a>) -> Result<Value<'a>> {
    match right {
        // As in mongod, an overflow wraps around.
        Value::DateTime(other) => Some(Value::Int64(ms.wrapping_sub(other))),
        _ => {
            let number = Number::of(right)
                .ok_or_else(|| subtract_wrong_types(right.kind().alias(), "Date"))?;
            to_date_ms(number).and_then(|delta| ms.checked_sub(delta)).map(Value::DateTime)
        }
    }
    .ok_or_else(date_overflow)
}

fn divide<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let right = args[1].eval(frame)?;
    let left = args[0].eval(frame)?;
    let (Some(a), Some(b)) = (left.and_then(Number::of), right.and_then(Number::of)) else {
        if is_nullish(left) || is_nullish(right) {
            return Ok(Some(Value::Null));
        }
        return Err(divide_wrong_types(kind(left), kind(right)));
    };
    if b.is_zero() {
        return Err(divide_by_zero());
    }
    Ok(Some(match Number::pair(a, b) {
        Pair::Decimal(a, b) => decimal_with(a, b, DecContext::div).into(),
        _ => (a.to_f64() / b.to_f64()).into(),
    }))
}

fn is_nullish(value: Option<Value<'_>>) -> bool {
    value.is_none_or(|value| value.is_nullish())
}

fn modulo<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let left = args[0].eval(frame)?;
    let right = args[1].eval(frame)?;
    let (Some(a), Some(b)) = (left.and_then(Number::of), right.and_then(Number::of)) else {
        if is_nullish(left) || is_nullish(right) {
            return Ok(Some(Value::Null));
        }
        return Err(mod_wrong_types(kind(left), kind(right)));
    };
    match Number::pair(a, b) {
        Pair::Decimal(_, b) if b.is_zero() => Err(mod_by_zero_decimal()),
        _ if b.is_zero() => Err(mod_by_zero()),
        Pair::Int(a, b) => Ok(Some(a.wrapping_rem(b).into())),
        Pair::Long(a, b) => Ok(Some(a.wrapping_rem(b).into())),
        Pair::Double(x, y) => Ok(Some(modulo_doubles(a, x, y))),
        Pair::Decimal(a, b) => Ok(Some(decimal_remainder(a, b).into())),
    }
}

/// An integer modulo a double that is a whole number in the range of int stays an integer.
fn modulo_doubles<'a>(left: Number, x: f64, y: f64) -> Value<'a> {
    let divisor = super::array::exact_i32(Value::Double(y)).map(i64::from);
    match (left, divisor) {
        (Number::Int(left), Some(divisor)) => {
            int_or_long(i64::from(left).wrapping_rem(divisor)).into()
        }
        (Number::Long(left), Some(divisor)) => left.wrapping_rem(divisor).into(),
        _ => (x % y).into(),
    }
}

fn abs<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let Some(number) = only_number("$abs", args, frame)? else {
        return Ok(Some(Value::Null));
    };
    Ok(Some(Value::from(match number {
        Number::Int(number) => int_or_long(i64::from(number).abs()),
        Number::Long(number) => Number::Long(number.checked_abs().ok_or_else(abs_of_long_min)?),
        Number::Double(number) => Number::Double(number.abs()),
        Number::Decimal(number) => Number::Decimal(number.abs()),
    })))
}

fn ceil<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let number = only_number("$ceil", args, frame)?;
    Ok(Some(
        number.map_or(Value::Null, |number| whole(number, f64::ceil, Rounding::Ceiling).into()),
    ))
}

fn floor<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let number = only_number("$floor", args, frame)?;
    Ok(Some(number.map_or(Value::Null, |number| whole(number, f64::floor, Rounding::Floor).into())))
}

/// Rounds a number to a whole one; as in mongod, decimals beyond 34 digits give NaN.
fn whole(number: Number, double: fn(f64) -> f64, rounding: Rounding) -> Number {
    match number {
        Number::Double(number) => Number::Double(double(number)),
        Number::Decimal(number) => Number::Decimal(round_decimal(number, rounding)),
        whole => whole,
    }
}

/// Rounds a decimal to a whole number.
pub(super) fn round_decimal(
    number: marula_bson::Decimal128,
    rounding: Rounding,
) -> marula_bson::Decimal128 {
    if number.is_nan() {
        return number.quiet();
    }
    let mut context = DecContext::default();
    context.set_rounding(rounding);
    from_dec(context.quantize(to_dec(number), to_dec(marula_bson::Decimal128::ZERO)))
}
