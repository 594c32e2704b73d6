//! Trigonometric operators; angles are in radians.

use marula_bson::Value;
use marula_error::{Result, errors};

use super::arithmetic::only_number;
use super::known;
use super::math::apply;
use crate::expression::decimal_math as decimal;
use crate::expression::number::{Number, Pair};
use crate::expression::{Expression, Frame, Operator};

pub(super) static OPERATORS: &[Operator] = &[
    Operator::exactly("$acos", 1, |args, frame| {
        function("$acos", Domain::UNIT, f64::acos, decimal::acos, args, frame)
    }),
    Operator::exactly("$acosh", 1, |args, frame| {
        function("$acosh", Domain::FROM_ONE, acosh, decimal::acosh, args, frame)
    }),
    Operator::exactly("$asin", 1, |args, frame| {
        function("$asin", Domain::UNIT, f64::asin, decimal::asin, args, frame)
    }),
    Operator::exactly("$asinh", 1, |args, frame| {
        function("$asinh", Domain::ALL, libm::asinh, decimal::asinh, args, frame)
    }),
    Operator::exactly("$atan", 1, |args, frame| {
        function("$atan", Domain::ALL, f64::atan, decimal::atan, args, frame)
    }),
    Operator::exactly("$atan2", 2, atan2),
    Operator::exactly("$atanh", 1, |args, frame| {
        function("$atanh", Domain::UNIT, libm::atanh, decimal::atanh, args, frame)
    }),
    Operator::exactly("$cos", 1, |args, frame| {
        function("$cos", Domain::FINITE, f64::cos, decimal::cos, args, frame)
    }),
    Operator::exactly("$cosh", 1, |args, frame| {
        function("$cosh", Domain::ALL, f64::cosh, decimal::cosh, args, frame)
    }),
    Operator::exactly("$degreesToRadians", 1, |args, frame| {
        function(
            "$degreesToRadians",
            Domain::ALL,
            |x| x * (std::f64::consts::PI / 180.0),
            decimal::to_radians,
            args,
            frame,
        )
    }),
    Operator::exactly("$radiansToDegrees", 1, |args, frame| {
        function(
            "$radiansToDegrees",
            Domain::ALL,
            |x| x * (180.0 / std::f64::consts::PI),
            decimal::to_degrees,
            args,
            frame,
        )
    }),
    Operator::exactly("$sin", 1, |args, frame| {
        function("$sin", Domain::FINITE, f64::sin, decimal::sin, args, frame)
    }),
    Operator::exactly("$sinh", 1, |args, frame| {
        function("$sinh", Domain::ALL, f64::sinh, decimal::sinh, args, frame)
    }),
    Operator::exactly("$tan", 1, |args, frame| {
        function("$tan", Domain::FINITE, f64::tan, decimal::tan, args, frame)
    }),
    Operator::exactly("$tanh", 1, |args, frame| {
        function("$tanh", Domain::ALL, f64::tanh, decimal::tanh, args, frame)
    }),
];

errors! {
    out_of_domain(name: &str, text: &str, domain: &str) = 50989, "cannot apply {name} to {text}, value must be in {domain}";
    atan2_first(kind: &str) = 51044, "$atan2 only supports numeric types, not {kind}";
    atan2_second(kind: &str) = 51045, "$atan2 only supports numeric types, not {kind}";
}

/// The domain of a function.
#[derive(Clone, Copy)]
struct Domain {
    min: f64,
    max: f64,
    has_ends: bool,
    text: &'static str,
}

impl Domain {
    const ALL: Domain =
        Domain { min: f64::NEG_INFINITY, max: f64::INFINITY, has_ends: true, text: "" };
    const FINITE: Domain =
        Domain { min: f64::NEG_INFINITY, max: f64::INFINITY, has_ends: false, text: "(-inf,inf)" };
    const FROM_ONE: Domain =
        Domain { min: 1.0, max: f64::INFINITY, has_ends: true, text: "[1,inf]" };
    const UNIT: Domain = Domain { min: -1.0, max: 1.0, has_ends: true, text: "[-1,1]" };

    fn contains(self, number: Number) -> bool {
        let [from_min, from_max] = [self.min, self.max].map(|end| match number {
            // A decimal may differ from an end by less than doubles can tell.
            Number::Decimal(number) => number.compare_f64(end),
            number => number.to_f64().total_cmp(&end),
        });
        if self.has_ends {
            from_min.is_ge() && from_max.is_le()
        } else {
            from_min.is_gt() && from_max.is_lt()
        }
    }
}

fn function<'a>(
    name: &str,
    domain: Domain,
    double: fn(f64) -> f64,
    decimal: fn(marula_bson::Decimal128) -> marula_bson::Decimal128,
    args: &'a [Expression],
    frame: &Frame<'a>,
) -> Result<Option<Value<'a>>> {
    let Some(number) = only_number(name, args, frame)? else {
        return Ok(Some(Value::Null));
    };
    if !number.is_nan() && !domain.contains(number) {
        let text = match number {
            Number::Decimal(number) => number.to_string(),
            number => number.short_text(),
        };
        return Err(out_of_domain(name, &text, domain.text));
    }
    Ok(Some(apply(number, double, decimal)))
}

/// The inverse hyperbolic cosine in the steps of the C library, each of which may round.
fn acosh(x: f64) -> f64 {
    /// From here on the smaller of the two terms is negligible.
    const LARGE: f64 = 268_435_456.0;
    if x >= LARGE {
        return x.ln() + std::f64::consts::LN_2;
    }
    if x > 2.0 {
        return (2.0 * x - 1.0 / (x + (x * x - 1.0).sqrt())).ln();
    }
    let beyond = x - 1.0;
    (beyond + (2.0 * beyond + beyond * beyond).sqrt()).ln_1p()
}

fn atan2<'a>(args: &'a [Expression], frame: &Frame<'a>) -> Result<Option<Value<'a>>> {
    let number = |value: Value<'a>, error: fn(&str) -> marula_error::Error| {
        Number::of(value).ok_or_else(|| error(value.kind().alias()))
    };
    let y = known(&args[0], frame)?.map(|y| number(y, atan2_first)).transpose()?;
    let Some(y) = y else {
        return Ok(Some(Value::Null));
    };
    let Some(x) = known(&args[1], frame)?.map(|x| number(x, atan2_second)).transpose()? else {
        return Ok(Some(Value::Null));
    };
    Ok(Some(match Number::pair(y, x) {
        Pair::Decimal(y, x) => decimal::atan2(y, x).into(),
        _ => y.to_f64().atan2(x.to_f64()).into(),
    }))
}
