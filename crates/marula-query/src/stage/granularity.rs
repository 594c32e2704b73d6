//! Preferred numbers: the boundaries of `$bucketAuto` with a `granularity`.
//!
//! A series such as R5 repeats at each power of ten; `POWERSOF2` are the powers of two.

use std::cmp::Ordering;

use marula_bson::{Decimal128, Value, order};
use marula_error::{Result, errors};

use crate::expression::decimal_power::pow;
use crate::expression::number::{Number, int_or_long};

errors! {
    unknown_granularity(name: &str) = 40257, "Unknown rounding granularity '{name}'";
    not_a_number(kind: &str) = 40258, "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with type: {kind}";
    is_nan() = 40259, "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN";
    is_negative() = 40260, "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a negative number";
}

/// The series, each within one factor of ten.
const SERIES: &[(&str, &[f64])] = &[
    ("R5", &[10.0, 16.0, 25.0, 40.0, 63.0]),
    ("R10", &[100.0, 125.0, 160.0, 200.0, 250.0, 315.0, 400.0, 500.0, 630.0, 800.0]),
    (
        "R20",
        &[
            100.0, 112.0, 125.0, 140.0, 160.0, 180.0, 200.0, 224.0, 250.0, 280.0, 315.0, 355.0,
            400.0, 450.0, 500.0, 560.0, 630.0, 710.0, 800.0, 900.0,
        ],
    ),
    (
        "R40",
        &[
            100.0, 106.0, 112.0, 118.0, 125.0, 132.0, 140.0, 150.0, 160.0, 170.0, 180.0, 190.0,
            200.0, 212.0, 224.0, 236.0, 250.0, 265.0, 280.0, 300.0, 315.0, 355.0, 375.0, 400.0,
            425.0, 450.0, 475.0, 500.0, 530.0, 560.0, 600.0, 630.0, 670.0, 710.0, 750.0, 800.0,
            850.0, 900.0, 950.0,
        ],
    ),
    (
        "R80",
        &[
            103.0, 109.0, 115.0, 122.0, 128.0, 136.0, 145.0, 155.0, 165.0, 175.0, 185.0, 195.0,
            206.0, 218.0, 230.0, 243.0, 258.0, 272.0, 290.0, 307.0, 325.0, 345.0, 365.0, 387.0,
            412.0, 437.0, 462.0, 487.0, 515.0, 545.0, 575.0, 615.0, 650.0, 690.0, 730.0, 775.0,
            825.0, 875.0, 925.0, 975.0,
        ],
    ),
    ("1-2-5", &[10.0, 20.0, 50.0]),
    ("E6", &[10.0, 15.0, 22.0, 33.0, 47.0, 68.0]),
    ("E12", &[10.0, 12.0, 15.0, 18.0, 22.0, 27.0, 33.0, 39.0, 47.0, 56.0, 68.0, 82.0]),
    (
        "E24",
        &[
            10.0, 11.0, 12.0, 13.0, 15.0, 16.0, 18.0, 20.0, 22.0, 24.0, 27.0, 30.0, 33.0, 36.0,
            39.0, 43.0, 47.0, 51.0, 56.0, 62.0, 68.0, 75.0, 82.0, 91.0,
        ],
    ),
    (
        "E48",
        &[
            100.0, 105.0, 110.0, 115.0, 121.0, 127.0, 133.0, 140.0, 147.0, 154.0, 162.0, 169.0,
            178.0, 187.0, 196.0, 205.0, 215.0, 226.0, 237.0, 249.0, 261.0, 274.0, 287.0, 301.0,
            316.0, 332.0, 348.0, 365.0, 383.0, 402.0, 422.0, 442.0, 464.0, 487.0, 511.0, 536.0,
            562.0, 590.0, 619.0, 649.0, 681.0, 715.0, 750.0, 787.0, 825.0, 866.0, 909.0, 953.0,
        ],
    ),
    (
        "E96",
        &[
            100.0, 102.0, 105.0, 107.0, 110.0, 113.0, 115.0, 118.0, 121.0, 124.0, 127.0, 130.0,
            133.0, 137.0, 140.0, 143.0, 147.0, 150.0, 154.0, 158.0, 162.0, 165.0, 169.0, 174.0,
            178.0, 182.0, 187.0, 191.0, 196.0, 200.0, 205.0, 210.0, 215.0, 221.0, 226.0, 232.0,
            237.0, 243.0, 249.0, 255.0, 261.0, 267.0, 274.0, 280.0, 287.0, 294.0, 301.0, 309.0,
            316.0, 324.0, 332.0, 340.0, 348.0, 357.0, 365.0, 374.0, 383.0, 392.0, 402.0, 412.0,
            422.0, 432.0, 442.0, 453.0, 464.0, 475.0, 487.0, 499.0, 511.0, 523.0, 536.0, 549.0,
            562.0, 576.0, 590.0, 604.0, 619.0, 634.0, 649.0, 665.0, 681.0, 698.0, 715.0, 732.0,
            750.0, 768.0, 787.0, 806.0, 825.0, 845.0, 866.0, 887.0, 909.0, 931.0, 953.0, 976.0,
        ],
    ),
    (
        "E192",
        &[
            100.0, 101.0, 102.0, 104.0, 105.0, 106.0, 107.0, 109.0, 110.0, 111.0, 113.0, 114.0,
            115.0, 117.0, 118.0, 120.0, 121.0, 123.0, 124.0, 126.0, 127.0, 129.0, 130.0, 132.0,
            133.0, 135.0, 137.0, 138.0, 140.0, 142.0, 143.0, 145.0, 147.0, 149.0, 150.0, 152.0,
            154.0, 156.0, 158.0, 160.0, 162.0, 164.0, 165.0, 167.0, 169.0, 172.0, 174.0, 176.0,
            178.0, 180.0, 182.0, 184.0, 187.0, 189.0, 191.0, 193.0, 196.0, 198.0, 200.0, 203.0,
            205.0, 208.0, 210.0, 213.0, 215.0, 218.0, 221.0, 223.0, 226.0, 229.0, 232.0, 234.0,
            237.0, 240.0, 243.0, 246.0, 249.0, 252.0, 255.0, 258.0, 261.0, 264.0, 267.0, 271.0,
            274.0, 277.0, 280.0, 284.0, 287.0, 291.0, 294.0, 298.0, 301.0, 305.0, 309.0, 312.0,
            316.0, 320.0, 324.0, 328.0, 332.0, 336.0, 340.0, 344.0, 348.0, 352.0, 357.0, 361.0,
            365.0, 370.0, 374.0, 379.0, 383.0, 388.0, 392.0, 397.0, 402.0, 407.0, 412.0, 417.0,
            422.0, 427.0, 432.0, 437.0, 442.0, 448.0, 453.0, 459.0, 464.0, 470.0, 475.0, 481.0,
            487.0, 493.0, 499.0, 505.0, 511.0, 517.0, 523.0, 530.0, 536.0, 542.0, 549.0, 556.0,
            562.0, 569.0, 576.0, 583.0, 590.0, 597.0, 604.0, 612.0, 619.0, 626.0, 634.0, 642.0,
            649.0, 657.0, 665.0, 673.0, 681.0, 690.0, 698.0, 706.0, 715.0, 723.0, 732.0, 741.0,
            750.0, 759.0, 768.0, 777.0, 787.0, 796.0, 806.0, 816.0, 825.0, 835.0, 845.0, 856.0,
            866.0, 876.0, 887.0, 898.0, 909.0, 920.0, 931.0, 942.0, 953.0, 965.0, 976.0, 988.0,
        ],
    ),
];

/// How boundaries are rounded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Granularity {
    /// To a series of preferred numbers.
    Series(&'static str, &'static [f64]),
    /// To powers of two.
    PowersOfTwo,
}

impl Granularity {
    /// Parses the granularity's name.
    pub(super) fn parse(name: &str) -> Result<Granularity> {
        if name == "POWERSOF2" {
            return Ok(Granularity::PowersOfTwo);
        }
        let found = SERIES.iter().find(|(series, _)| *series == name);
        let (name, series) = found.ok_or_else(|| unknown_granularity(name))?;
        Ok(Granularity::Series(name, series))
    }

    /// Returns the name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Granularity::Series(name, _) => name,
            Granularity::PowersOfTwo => "POWERSOF2",
        }
    }

    /// Checks that a value can be rounded.
    pub(super) fn check(self, value: Option<Value<'_>>) -> Result<()> {
        check(value.ok_or_else(|| not_a_number("missing"))?).map(drop)
    }

    /// Returns the least boundary above a value; zero for zero.
    pub(super) fn up(self, value: Value<'_>) -> Result<Value<'static>> {
        self.neighbour(value, Ordering::Greater)
    }

    /// Returns the greatest boundary below a value; zero for zero.
    pub(super) fn down(self, value: Value<'_>) -> Result<Value<'static>> {
        self.neighbour(value, Ordering::Less)
    }

    fn neighbour(self, value: Value<'_>, side: Ordering) -> Result<Value<'static>> {
        let number = check(value)?;
        Ok(match (self, number) {
            _ if number.is_zero() => zero(value),
            (Granularity::PowersOfTwo, _) => next_power_of_two(value, number, side),
            _ if is_at_the_end(number) => number.into(),
            (Granularity::Series(_, series), _) if side == Ordering::Greater => {
                series_up(number, series).into()
            }
            (Granularity::Series(_, series), _) => series_down(number, series).into(),
        })
    }
}

/// Returns the number to round: a decimal, or any other number as a double.
fn check(value: Value<'_>) -> Result<Number> {
    let number = Number::of(value).ok_or_else(|| not_a_number(value.kind().alias()))?;
    if number.is_nan() {
        return Err(is_nan());
    }
    match (number.compare_zero(), number) {
        (Some(Ordering::Less), _) => Err(is_negative()),
        (_, Number::Decimal(_)) => Ok(number),
        _ => Ok(Number::Double(number.to_f64())),
    }
}

/// Returns whether a number is infinite, or a decimal without a neighbouring power of ten.
fn is_at_the_end(number: Number) -> bool {
    let Number::Decimal(decimal) = number else { return number.to_f64().is_infinite() };
    let above = number.multiply(TEN).to_decimal();
    decimal.is_infinite() || above.is_infinite() || number.divide(TEN).is_zero()
}

/// Returns a zero as it is, with its type, sign and exponent.
fn zero(value: Value<'_>) -> Value<'static> {
    match value {
        Value::Double(zero) => Value::Double(zero),
        Value::Int64(_) => Value::Int64(0),
        Value::Decimal128(zero) => Value::Decimal128(zero),
        _ => Value::Int32(0),
    }
}

/// Returns the power of two next to a value, `number`.
fn next_power_of_two(value: Value<'_>, number: Number, side: Ordering) -> Value<'static> {
    let is_up = side == Ordering::Greater;
    let integer = match value {
        Value::Int32(integer) => Some(i64::from(integer)),
        Value::Int64(integer) => Some(integer),
        _ => None,
    };
    match (integer, number) {
        // As a double a long may be rounded to a power of two.
        (Some(integer), _) if is_up => power_of_two(64.0 - f64::from(integer.leading_zeros())),
        (Some(integer), _) => power_of_two(63.0 - f64::from((integer - 1).leading_zeros())),
        // As in mongod, there is no power of two next to infinity.
        (None, Number::Decimal(decimal)) if decimal.is_infinite() => {
            Value::Decimal128(Decimal128::parse(b"0E-6176").unwrap_or(Decimal128::ZERO))
        }
        (None, Number::Decimal(decimal)) if number.divide(TEN).is_zero() => {
            Value::Decimal128(decimal)
        }
        (None, Number::Decimal(decimal)) => Value::Decimal128(decimal_power_of_two(decimal, side)),
        (None, _) if number.to_f64().is_infinite() => Value::Double(0.0),
        (None, _) if is_up => power_of_two(number.to_f64().log2().floor() + 1.0),
        (None, _) => power_of_two(number.to_f64().log2().ceil() - 1.0),
    }
}

/// Returns a power of two, as an integer if it fits.
fn power_of_two(exponent: f64) -> Value<'static> {
    if (0.0..63.0).contains(&exponent) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        return int_or_long(1 << (exponent as u32)).into();
    }
    Value::Double(exponent.exp2())
}

/// Returns the power of two next to a decimal.
fn decimal_power_of_two(number: Decimal128, side: Ordering) -> Decimal128 {
    let power = |exponent: i64| pow(Decimal128::from_i64(2), Decimal128::from_i64(exponent));
    let lies_there =
        |exponent: i64| compare(Number::Decimal(power(exponent)), Number::Decimal(number)) == side;
    let step = if side == Ordering::Greater { 1 } else { -1 };
    // Decimals have a wider range than doubles: beyond that range the search takes many steps, else
    // one or two.
    #[allow(clippy::cast_possible_truncation)]
    let mut exponent = number.to_f64().log2().clamp(-1_074.0, 1_024.0) as i64;
    while lies_there(exponent - step) {
        exponent -= step;
    }
    while !lies_there(exponent) {
        exponent += step;
    }
    with_all_digits(power(exponent))
}

/// Returns the number with 34 digits, the form that mongod's library computes.
fn with_all_digits(number: Decimal128) -> Decimal128 {
    let one = Decimal128::parse(b"1.000000000000000000000000000000000").unwrap_or(Decimal128::ZERO);
    Number::Decimal(number).multiply(Number::Decimal(one)).to_decimal()
}

const TEN: Number = Number::Int(10);

fn compare(one: Number, other: Number) -> Ordering {
    order::compare(one.into(), other.into(), None)
}

/// Returns a step of a series at a scale, in the type of `number`. The order of the multiplications
/// is mongod's, because its results show their rounding.
fn scaled(number: Number, step: f64, scale: Number) -> Number {
    match number {
        Number::Decimal(_) => Number::Decimal(Decimal128::from_f64(step)).multiply(scale),
        _ => Number::Double(step).multiply(scale),
    }
}

fn series_up(number: Number, series: &[f64]) -> Number {
    let is_below = |bound: Number| compare(number, bound) == Ordering::Less;
    let first = |scale: Number| scaled(number, series[0], scale);
    let last = |scale: Number| scaled(number, series[series.len() - 1], scale);
    let mut scale = one_like(number);
    if is_below(last(scale)) {
        while is_below(first(scale)) {
            let above = first(scale);
            scale = scale.divide(TEN);
            if !is_below(last(scale)) {
                return above;
            }
        }
    } else {
        while !is_below(last(scale)) {
            scale = scale.multiply(TEN);
            if is_below(first(scale)) {
                return first(scale);
            }
        }
    }
    let above = series.iter().map(|step| scaled(number, *step, scale)).find(|step| is_below(*step));
    above.unwrap_or_else(|| first(scale).multiply(TEN))
}

fn series_down(number: Number, series: &[f64]) -> Number {
    let is_above = |bound: Number| compare(number, bound) == Ordering::Greater;
    let first = |scale: Number| scaled(number, series[0], scale);
    let last = |scale: Number| scaled(number, series[series.len() - 1], scale);
    let mut scale = one_like(number);
    if is_above(first(scale)) {
        while is_above(last(scale)) {
            let below = last(scale);
            scale = scale.multiply(TEN);
            if !is_above(first(scale)) {
                return below;
            }
        }
    } else {
        while !is_above(first(scale)) {
            scale = scale.divide(TEN);
            if is_above(last(scale)) {
                return last(scale);
            }
        }
    }
    let mut steps = series.iter().rev().map(|step| scaled(number, *step, scale));
    let below = steps.find(|step| is_above(*step));
    below.unwrap_or_else(|| last(scale).divide(TEN))
}

/// Returns one, as a number of the type of `number`.
fn one_like(number: Number) -> Number {
    match number {
        Number::Decimal(_) => Number::Decimal(Decimal128::from_i64(1)),
        _ => Number::Double(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the boundaries below and above a decimal; recorded from mongod 6.0.27.
    fn check_decimal(number: &str, granularity: &str, expected: [&str; 2]) {
        let value = Value::Decimal128(Decimal128::parse(number.as_bytes()).expect("a decimal"));
        let granularity = Granularity::parse(granularity).expect("it is known");
        let found = [granularity.down(value), granularity.up(value)];
        let shown = found.map(|found| match found.expect("it is a number") {
            Value::Decimal128(found) => found.to_string(),
            other => format!("{other:?}"),
        });
        assert_eq!(shown, expected, "{number}");
    }

    #[test]
    fn decimals_get_decimals() {
        check_decimal("1E+2", "E12", ["82.0000000000000", "120.0000000000000"]);
        check_decimal("3.7", "R5", ["2.50000000000000", "4.00000000000000"]);
        check_decimal("0.013", "R10", ["0.0125000000000000", "0.0160000000000000"]);
        check_decimal("1E-30", "R5", ["6.30000000000000E-31", "1.60000000000000E-30"]);
        check_decimal(
            "1E+30",
            "E12",
            ["820000000000000000000000000000.0000", "1200000000000000000000000000000.000"],
        );
        let powers = ["32.00000000000000000000000000000000", "128.0000000000000000000000000000000"];
        check_decimal("64", "POWERSOF2", powers);
        let powers =
            ["0.007812500000000000000000000000000000", "0.01562500000000000000000000000000000"];
        check_decimal("0.013", "POWERSOF2", powers);
        let powers = [
            "4.209897220388806639005235759140719E+6144",
            "8.419794440777613278010471518281438E+6144",
        ];
        check_decimal("5E+6144", "POWERSOF2", powers);
        check_decimal(
            "9.99E+6144",
            "POWERSOF2",
            ["8.419794440777613278010471518281438E+6144", "Infinity"],
        );
        check_decimal("Infinity", "POWERSOF2", ["0E-6176", "0E-6176"]);
        check_decimal("3E-6176", "POWERSOF2", ["3E-6176", "3E-6176"]);
        for zero in ["-0", "0E+3"] {
            check_decimal(zero, "R5", [zero, zero]);
            check_decimal(zero, "POWERSOF2", [zero, zero]);
        }
        for end in ["1E-6176", "9.000000000000000000000000000000000E+6144", "Infinity"] {
            check_decimal(end, "R5", [end, end]);
        }
    }

    #[test]
    fn other_numbers_get_doubles() {
        let granularity = Granularity::parse("R5").expect("it is known");
        let found = |value: Value<'static>| [granularity.down(value), granularity.up(value)];
        assert_eq!(found(Value::Int32(100)), [Ok(Value::Double(63.0)), Ok(Value::Double(160.0))]);
        let expected = [Ok(Value::Double(4.0)), Ok(Value::Double(6.300_000_000_000_001))];
        assert_eq!(found(Value::Double(5.0)), expected);
        let [below, _] = found(Value::Double(-0.0));
        assert!(matches!(below, Ok(Value::Double(zero)) if zero.is_sign_negative()));
    }

    /// As doubles these longs are rounded.
    #[test]
    fn powers_of_two_next_to_longs_are_exact() {
        let power = |exponent: u32| Ok(Value::Int64(1 << exponent));
        let check = |number: i64, expected: [Result<Value<'static>>; 2]| {
            let value = Value::Int64(number);
            let all = Granularity::PowersOfTwo;
            assert_eq!([all.down(value), all.up(value)], expected, "{number}");
        };
        let end = || Ok(Value::Double(9_223_372_036_854_775_808.0));
        check((1 << 53) + 1, [power(53), power(54)]);
        check((1 << 62) - 1, [power(61), power(62)]);
        check(1 << 62, [power(61), end()]);
        check((1 << 62) + 1, [power(62), end()]);
        check(i64::MAX, [power(62), end()]);
        check(1, [Ok(Value::Double(0.5)), Ok(Value::Int32(2))]);
        let infinity = Value::Double(f64::INFINITY);
        assert_eq!(Granularity::PowersOfTwo.up(infinity), Ok(Value::Double(0.0)));
    }
}
