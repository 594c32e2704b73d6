//! `$sum`, `$avg`, `$count`: totals that do not lose small addends.
//!
//! Integers are added exactly, doubles with a second double for the rounding error (double-double
//! arithmetic), decimals separately; the total has the widest type that was added.

use marula_bson::{Decimal128, RawValue, Type, Value};
use marula_error::Result;

use super::{AccumulatorRow, State, parse_nothing, parse_unary};
use crate::expression::number::{
    DecContext, Number, decimal_sum, decimal_with, exact_decimal, int_or_long,
};
use crate::expression::{Arena, Frame};
use crate::feature_version::FeatureVersion;

pub(super) static ROWS: &[AccumulatorRow] = &[
    AccumulatorRow {
        name: "$sum",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(SumState(Sum::default())),
    },
    AccumulatorRow {
        name: "$avg",
        since: FeatureVersion::V6_0,
        parse: parse_unary,
        start: || Box::new(AverageState(Sum::default())),
    },
    AccumulatorRow {
        name: "$count",
        since: FeatureVersion::V6_0,
        parse: parse_nothing,
        start: || Box::new(SumState(Sum::default())),
    },
];

/// A total of numbers.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sum {
    /// The number of added numbers.
    count: i64,
    integers: i128,
    has_long: bool,
    doubles: Option<DoubleDouble>,
    decimals: Option<Decimal128>,
}

/// A sum of doubles with about 106 bits: `high` is the rounded sum, `low` the rest.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct DoubleDouble {
    high: f64,
    low: f64,
    /// The plain sum of the doubles: the result if there are infinities or NaN.
    plain: f64,
}

impl DoubleDouble {
    /// Adds a number.
    pub(crate) fn add(&mut self, addend: f64) {
        self.plain += addend;
        let sum = self.high + addend;
        let rounded = sum - self.high;
        let error = (self.high - (sum - rounded)) + (addend - rounded);
        self.high = sum;
        self.low += error;
        let high = self.high + self.low;
        self.low -= high - self.high;
        self.high = high;
    }

    /// Adds a whole number, which a double may not represent exactly.
    pub(crate) fn add_integer(&mut self, integer: i128) {
        // Two doubles: the second holds the rounding error of the first.
        #[allow(clippy::cast_precision_loss)]
        let high = integer as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let low = (integer - high as i128) as f64;
        self.add(high);
        self.add(low);
    }

    /// The rounded sum and the rest.
    pub(crate) fn parts(&self) -> (f64, f64) {
        (self.high, self.low)
    }

    /// The sum.
    pub(crate) fn value(&self) -> f64 {
        if self.high.is_finite() && self.low.is_finite() { self.high } else { self.plain }
    }
}

impl Sum {
    /// Adds a value; ignores values that are not numbers.
    #[inline]
    pub(crate) fn add(&mut self, value: Value<'_>) {
        match value {
            Value::Int32(number) => self.integers += i128::from(number),
            Value::Int64(number) => {
                self.integers += i128::from(number);
                self.has_long = true;
            }
            Value::Double(number) => {
                self.doubles.get_or_insert_default().add(number);
            }
            Value::Decimal128(number) => {
                let sum = self.decimals.unwrap_or(Decimal128::ZERO);
                self.decimals = Some(decimal_sum(sum, number));
            }
            _ => return,
        }
        self.count += 1;
    }

    /// Same as [`add`](Sum::add), for an undecoded value.
    #[inline]
    pub(crate) fn add_raw(&mut self, value: RawValue<'_>) {
        match value.kind() {
            Type::Int32 => {
                if let Some(bytes) = value.bytes().first_chunk() {
                    self.integers += i128::from(i32::from_le_bytes(*bytes));
                    self.count += 1;
                }
            }
            Type::Double => {
                if let Some(bytes) = value.bytes().first_chunk() {
                    self.doubles.get_or_insert_default().add(f64::from_le_bytes(*bytes));
                    self.count += 1;
                }
            }
            _ => self.add(value.get()),
        }
    }

    /// The total; int 0 if nothing was added.
    pub(crate) fn total(&self) -> Number {
        if let Some(decimals) = self.decimals {
            return Number::Decimal(decimal_sum(decimals, self.binary_decimal()));
        }
        if self.doubles.is_some() {
            return Number::Double(self.binary().value());
        }
        match i64::try_from(self.integers) {
            Ok(total) if self.has_long => Number::Long(total),
            Ok(total) => int_or_long(total),
            #[allow(clippy::cast_precision_loss)]
            Err(_) => Number::Double(self.integers as f64),
        }
    }

    /// The mean; null if nothing was added.
    pub(crate) fn mean(&self) -> Value<'static> {
        if self.count == 0 {
            return Value::Null;
        }
        if self.decimals.is_some() {
            let count = Decimal128::from_i64(self.count);
            return decimal_with(self.total().to_decimal(), count, DecContext::div).into();
        }
        #[allow(clippy::cast_precision_loss)]
        let count = self.count as f64;
        (self.binary().value() / count).into()
    }

    /// The sum of integers and doubles.
    fn binary(&self) -> DoubleDouble {
        let mut sum = self.doubles.unwrap_or_default();
        if self.integers != 0 {
            sum.add_integer(self.integers);
        }
        sum
    }

    /// The sum of integers and doubles as a decimal of 34 digits.
    fn binary_decimal(&self) -> Decimal128 {
        let sum = self.binary();
        if !sum.value().is_finite() {
            return Decimal128::from_f64(sum.value());
        }
        decimal_sum(exact_decimal(sum.high), exact_decimal(sum.low))
    }
}

struct SumState(Sum);

impl State for SumState {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        if let Some(value) = value {
            self.0.add(value);
        }
        Ok(0)
    }

    fn add_raw<'a>(&mut self, value: Option<RawValue<'a>>, _: &Frame<'a>) -> Result<usize> {
        if let Some(value) = value {
            self.0.add_raw(value);
        }
        Ok(0)
    }

    fn result<'a>(&self, _: &'a Arena) -> Result<Value<'a>> {
        Ok(self.0.total().into())
    }
}

struct AverageState(Sum);

impl State for AverageState {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        if let Some(value) = value {
            self.0.add(value);
        }
        Ok(0)
    }

    fn add_raw<'a>(&mut self, value: Option<RawValue<'a>>, _: &Frame<'a>) -> Result<usize> {
        if let Some(value) = value {
            self.0.add_raw(value);
        }
        Ok(0)
    }

    fn result<'a>(&self, _: &'a Arena) -> Result<Value<'a>> {
        Ok(self.0.mean())
    }
}
