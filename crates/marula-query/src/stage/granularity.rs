//! Preferred numbers: where `$bucketAuto` with a `granularity` puts its boundaries.
//!
//! A series such as R5 is spread over all powers of ten; `POWERSOF2` is what it says.

use marula_bson::Value;
use marula_error::{Result, errors};

use crate::expression::number::int_or_long;

errors! {
    unknown_granularity(name: &str) = 40257, "Unknown rounding granularity '{name}'";
    not_a_number(kind: &str) = 40258, "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with type: {kind}";
    is_nan() = 40259, "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN";
    is_negative() = 40260, "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a negative number";
}

/// The series, each within a factor of ten.
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
    /// The granularity of this name.
    pub(super) fn parse(name: &str) -> Result<Granularity> {
        if name == "POWERSOF2" {
            return Ok(Granularity::PowersOfTwo);
        }
        let found = SERIES.iter().find(|(series, _)| *series == name);
        let (name, series) = found.ok_or_else(|| unknown_granularity(name))?;
        Ok(Granularity::Series(name, series))
    }

    /// The name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Granularity::Series(name, _) => name,
            Granularity::PowersOfTwo => "POWERSOF2",
        }
    }

    /// Whether a value can be rounded.
    pub(super) fn check(self, value: Option<Value<'_>>) -> Result<()> {
        check(value.ok_or_else(|| not_a_number("missing"))?).map(drop)
    }

    /// The least boundary above a value; of zero, zero.
    pub(super) fn up(self, value: Value<'_>) -> Result<Value<'static>> {
        let number = check(value)?;
        if number == 0.0 {
            return Ok(zero(value));
        }
        Ok(match self {
            Granularity::PowersOfTwo => power_of_two(number.log2().floor() + 1.0),
            Granularity::Series(_, series) => Value::Double(series_up(number, series)),
        })
    }

    /// The greatest boundary below a value; of zero, zero.
    pub(super) fn down(self, value: Value<'_>) -> Result<Value<'static>> {
        let number = check(value)?;
        if number == 0.0 {
            return Ok(zero(value));
        }
        Ok(match self {
            Granularity::PowersOfTwo => power_of_two(number.log2().ceil() - 1.0),
            Granularity::Series(_, series) => Value::Double(series_down(number, series)),
        })
    }
}

fn check(value: Value<'_>) -> Result<f64> {
    let number = value.as_f64().ok_or_else(|| not_a_number(value.kind().alias()))?;
    if number.is_nan() {
        return Err(is_nan());
    }
    if number < 0.0 { Err(is_negative()) } else { Ok(number) }
}

/// A zero of the value's type.
fn zero(value: Value<'_>) -> Value<'static> {
    match value {
        Value::Double(_) => Value::Double(0.0),
        Value::Int64(_) => Value::Int64(0),
        Value::Decimal128(_) => Value::Decimal128(marula_bson::Decimal128::ZERO),
        _ => Value::Int32(0),
    }
}

/// An integer where it is one.
fn power_of_two(exponent: f64) -> Value<'static> {
    if (0.0..63.0).contains(&exponent) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        return int_or_long(1 << (exponent as u32)).into();
    }
    Value::Double(exponent.exp2())
}

/// The multiplication order is mongod's: its results show their rounding.
fn series_up(number: f64, series: &[f64]) -> f64 {
    if number.is_infinite() {
        return number;
    }
    let (first, last) = (series[0], series[series.len() - 1]);
    let mut scale = 1.0;
    if number >= last * scale {
        while number >= last * scale {
            scale *= 10.0;
            if number < first * scale {
                return first * scale;
            }
        }
    } else {
        while number < first * scale {
            let above = first * scale;
            scale /= 10.0;
            if number >= last * scale {
                return above;
            }
        }
    }
    let above = series.iter().map(|step| step * scale).find(|step| number < *step);
    above.unwrap_or(first * scale * 10.0)
}

fn series_down(number: f64, series: &[f64]) -> f64 {
    if number.is_infinite() {
        return number;
    }
    let (first, last) = (series[0], series[series.len() - 1]);
    let mut scale = 1.0;
    if number <= first * scale {
        while number <= first * scale {
            scale /= 10.0;
            if number > last * scale {
                return last * scale;
            }
        }
    } else {
        while number > last * scale {
            let below = last * scale;
            scale *= 10.0;
            if number <= first * scale {
                return below;
            }
        }
    }
    let below = series.iter().rev().map(|step| step * scale).find(|step| *step < number);
    below.unwrap_or(last * scale / 10.0)
}
