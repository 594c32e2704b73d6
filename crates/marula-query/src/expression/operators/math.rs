//! Arithmetic functions: powers, logarithms, rounding.

use std::cmp::Ordering;

use dec::Rounding;
use marula_bson::decimal128::{COEFFICIENT_MAX, EXPONENT_MIN, Parts};
use marula_bson::{Decimal128, Value};
use marula_error::{Error, Result, errors};

use super::arithmetic::only_number;
use super::{kind, known};
use crate::expression::decimal_exact::{quantized, rounded_double};
use crate::expression::number::{
    Big, DecContext, Number, big_context, check_fits_long, exact_decimal, from_big, from_dec,
    to_big, to_dec,
};
use crate::expression::{Expression, Frame, Operator, print};
use crate::expression::{decimal_power, decimal_steps};

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$exp", 1, exp),
    Operator::exactly("$ln", 1, ln),
    Operator::exactly("$log", 2, log),
    Operator::exactly("$log10", 1, log10),
    Operator::exactly("$pow", 2, pow),
    Operator::between("$round", 1, 2, |args, frame| {
        round("$round", Rounding::HalfEven, args, frame)
    }),
    Operator::exactly("$sqrt", 1, sqrt),
    Operator::between("$trunc", 1, 2, |args, frame| round("$trunc", Rounding::Down, args, frame)),
];

errors! {
    ln_not_positive(text: &str) = 28766, "$ln's argument must be a positive number, but is {text}";
    log_not_number(kind: &str) = 28756, "$log's argument must be numeric, not {kind}";
    log_base_not_number(kind: &str) = 28757, "$log's base must be numeric, not {kind}";
    log_not_positive(text: &str) = 28758, "$log's argument must be a positive number, but is {text}";
    log_bad_base(text: &str) = 28759, "$log's base must be a positive number not equal to 1, but is {text}";
    log10_not_positive(text: &str) = 28761, "$log10's argument must be a positive number, but is {text}";
    pow_base_not_number(kind: &str) = 28762, "$pow's base must be numeric, not {kind}";
    pow_exponent_not_number(kind: &str) = 28763, "$pow's exponent must be numeric, not {kind}";
    pow_zero_negative() = 28764, "$pow cannot take a base of 0 and a negative exponent";
    sqrt_negative() = 28714, "$sqrt's argument must be greater than or equal to 0";
    round_not_number(name: &str, kind: &str) = 51081, "{name} only supports numeric types, not {kind}";
    round_overflow(name: &str, left: &str, right: i64) = 51080, "invalid conversion from Decimal128 result in {name} resulting from arguments: [{left}, {right}]";
    round_place_not_integral(name: &str) = 51082, "precision argument to  {name} must be a integral value";
    round_place_out_of_range(name: &str, place: i64) = 51083, "cannot apply {name} with precision value {place} value must be in [-20, 100]";
    not_a_long(kind: &str) = 16004, "can't convert from BSON type {kind} to long";
}

/// Applies a function of doubles, or of decimals if the argument is a decimal.
pub(super) fn apply(
    number: Number,
    double: fn(f64) -> f64,
    decimal: impl FnOnce(Decimal128) -> Decimal128,
) -> Value<'static> {
    match number {
        Number::Decimal(number) => decimal(number).into(),
        number => double(number.to_f64()).into(),
    }
}

/// Evaluates a decimal function in libdecnumber with additional digits.
fn big(number: Decimal128, function: impl FnOnce(&mut dec::Context<Big>, &mut Big)) -> Decimal128 {
    let mut value = to_big(number);
    function(&mut big_context(), &mut value);
    from_big(&value)
}

fn check_positive(number: Number, error: fn(&str) -> Error) -> Result<()> {
    if number.compare_zero().is_none_or(Ordering::is_gt) {
        return Ok(());
    }
    Err(error(&number.short_text()))
}

fn exp<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let number = only_number("$exp", args, frame)?;
    Ok(Some(number.map_or(Value::Null, |number| apply(number, f64::exp, decimal_power::exp))))
}

fn ln<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let Some(number) = only_number("$ln", args, frame)? else {
        return Ok(Some(Value::Null));
    };
    if number.is_nan() {
        return Ok(Some(f64::NAN.into()));
    }
    check_positive(number, ln_not_positive)?;
    Ok(Some(apply(number, f64::ln, decimal_power::ln)))
}

fn log10<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let Some(number) = only_number("$log10", args, frame)? else {
        return Ok(Some(Value::Null));
    };
    if number.is_nan() {
        return Ok(Some(f64::NAN.into()));
    }
    check_positive(number, log10_not_positive)?;
    Ok(Some(apply(number, f64::log10, decimal_power::log10)))
}

fn log<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let argument = known(&args[0], frame)?;
    let base = known(&args[1], frame)?;
    let (Some(argument), Some(base)) = (argument, base) else {
        return Ok(Some(Value::Null));
    };
    let argument = Number::of(argument).ok_or_else(|| log_not_number(argument.kind().alias()))?;
    let base = Number::of(base).ok_or_else(|| log_base_not_number(base.kind().alias()))?;
    let is_positive = |number: Number| number.compare_zero().is_none_or(Ordering::is_gt);
    let is_one = base.to_f64() == 1.0 && base.subtract(Number::Int(1)).is_zero();
    if is_one || !(is_positive(argument) && is_positive(base)) {
        // The checks apply to doubles, and a decimal may be too small for a double.
        check_positive(Number::Double(argument.to_f64()), log_not_positive)?;
        check_positive(Number::Double(base.to_f64()), log_bad_base)?;
    }
    if is_one {
        return Err(log_bad_base(&base.short_text()));
    }
    if argument.is_nan() || base.is_nan() {
        return Ok(Some(f64::NAN.into()));
    }
    Ok(Some(match (argument, base) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            decimal_power::log(argument.to_decimal(), base.to_decimal()).into()
        }
        _ => (argument.to_f64().ln() / base.to_f64().ln()).into(),
    }))
}

fn pow<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let base = known(&args[0], frame)?;
    let exponent = known(&args[1], frame)?;
    let (Some(base), Some(exponent)) = (base, exponent) else {
        return Ok(Some(Value::Null));
    };
    let base = Number::of(base).ok_or_else(|| pow_base_not_number(base.kind().alias()))?;
    let exponent =
        Number::of(exponent).ok_or_else(|| pow_exponent_not_number(exponent.kind().alias()))?;
    // The sign of a decimal zero counts too.
    let is_negative = match (base, exponent) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => exponent.to_decimal().is_negative(),
        _ => exponent.compare_zero().is_some_and(Ordering::is_lt),
    };
    if base.is_zero() && is_negative {
        return Err(pow_zero_negative());
    }
    Ok(Some(match (base, exponent) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            let (base, exponent) = (base.to_decimal(), exponent.to_decimal());
            let power = decimal_power::pow(base, exponent);
            match power.is_zero() {
                true => decimal_steps::least_zero(false).into(),
                false => padded(power).into(),
            }
        }
        (Number::Int(base), Number::Int(exponent)) => {
            pow_integers(base.into(), exponent.into(), true)
        }
        (Number::Int(base), Number::Long(exponent)) => pow_integers(base.into(), exponent, false),
        (Number::Long(base), Number::Int(exponent)) => pow_integers(base, exponent.into(), false),
        (Number::Long(base), Number::Long(exponent)) => pow_integers(base, exponent, false),
        _ => base.to_f64().powf(exponent.to_f64()).into(),
    }))
}

/// The number with 34 digits, padded with zeros.
fn padded(number: Decimal128) -> Decimal128 {
    let Parts::Finite { negative, mut exponent, mut coefficient } = number.parts() else {
        return number;
    };
    while coefficient != 0 && coefficient <= COEFFICIENT_MAX / 10 && exponent > EXPONENT_MIN {
        coefficient *= 10;
        exponent -= 1;
    }
    Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient }).unwrap_or(number)
}

/// An integer if the result fits a long, else a double.
fn pow_integers(base: i64, exponent: i64, is_int: bool) -> Value<'static> {
    let power = match base {
        0 | 1 => Some(if exponent == 0 { 1 } else { base }),
        -1 => Some(if exponent % 2 == 0 { 1 } else { -1 }),
        _ => u32::try_from(exponent).ok().and_then(|exponent| base.checked_pow(exponent)),
    };
    match power {
        Some(power) if is_int => crate::expression::number::int_or_long(power).into(),
        Some(power) => power.into(),
        #[allow(clippy::cast_precision_loss)]
        None => (base as f64).powf(exponent as f64).into(),
    }
}

fn sqrt<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let Some(number) = only_number("$sqrt", args, frame)? else {
        return Ok(Some(Value::Null));
    };
    if number.compare_zero().is_some_and(Ordering::is_lt) {
        return Err(sqrt_negative());
    }
    Ok(Some(apply(number, f64::sqrt, |decimal| big(decimal, |context, value| context.sqrt(value)))))
}

/// `$round` and `$trunc`: the number with `place` decimal places; a negative place is left of the
/// decimal point.
fn round<'a>(
    name: &str,
    rounding: Rounding,
    args: &'a [Expression],
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let number = match args[0].eval(frame)? {
        None | Some(Value::Null | Value::Undefined) => return Ok(Some(Value::Null)),
        Some(value) => {
            Number::of(value).ok_or_else(|| round_not_number(name, kind(Some(value))))?
        }
    };
    let place = match args.get(1) {
        None => 0,
        Some(place) => match place.eval(frame)? {
            None | Some(Value::Null | Value::Undefined) => return Ok(Some(Value::Null)),
            Some(place) => read_place(name, place)?,
        },
    };
    let exponent = -i32::try_from(place).expect("the place is between -20 and 100");
    Ok(Some(match number {
        Number::Int(_) | Number::Long(_) if place >= 0 => number.into(),
        Number::Int(_) | Number::Long(_) => {
            let rounded = at_exponent(number.to_decimal(), exponent, rounding);
            let text = || print::value(number.into());
            let long =
                rounded.to_exact_i64().ok_or_else(|| round_overflow(name, &text(), place))?;
            match number {
                Number::Int(_) => crate::expression::number::int_or_long(long).into(),
                _ => long.into(),
            }
        }
        Number::Double(double) if !double.is_finite() => double.into(),
        Number::Double(double) => {
            let places = u32::try_from(place).ok();
            let rounded = places.and_then(|places| rounded_double(double, places, rounding));
            let by_decimal = || at_exponent(exact_decimal(double), exponent, rounding).to_f64();
            rounded.unwrap_or_else(|| by_decimal().copysign(double)).into()
        }
        Number::Decimal(decimal) => at_exponent(decimal, exponent, rounding).into(),
    }))
}

fn read_place(name: &str, place: Value<'_>) -> Result<i64> {
    if !place.kind().is_number() {
        return Err(not_a_long(place.kind().alias()));
    }
    check_fits_long(place)?;
    let whole = place.as_exact_i64().filter(|whole| i32::try_from(*whole).is_ok());
    let whole = whole.ok_or_else(|| round_place_not_integral(name))?;
    if !(-20..=100).contains(&whole) {
        return Err(round_place_out_of_range(name, whole));
    }
    Ok(whole)
}

/// The decimal with this exponent, or with as many digits as fit.
fn at_exponent(number: Decimal128, exponent: i32, rounding: Rounding) -> Decimal128 {
    if number.is_nan() {
        return number.quiet();
    }
    if let Some(rounded) = quantized(number, exponent, rounding) {
        return rounded;
    }
    let mut context = DecContext::default();
    context.set_rounding(rounding);
    let number_dec = to_dec(number);
    let one = Decimal128::from_parts(marula_bson::decimal128::Parts::Finite {
        negative: false,
        exponent,
        coefficient: 1,
    })
    .expect("the exponent is between -100 and 20");
    let rounded = context.quantize(number_dec, to_dec(one));
    // More than 34 digits would be needed, so there is nothing to round.
    if rounded.is_nan() { padded(number) } else { from_dec(rounded) }
}
