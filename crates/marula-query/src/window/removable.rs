//! Accumulators over moving windows: each value is added once and removed once, however wide the
//! window is.
//!
//! `$sum`, `$avg`, `$stdDevPop` and `$stdDevSamp` keep totals, `$min` and `$max` the values that
//! may still become the extreme, `$first` and `$last` nothing. [`lists`](super::lists) has those
//! whose result is a list.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;

use marula_bson::{Collator, Decimal128, Value, ValueBuf, order};
use marula_error::Result;

use super::{Partition, or_null};
use crate::accumulator::sum::DoubleDouble;
use crate::accumulator::{Accumulator, Percentiles, counted, percentile};
use crate::expression::number::{
    DecContext, Number, decimal_difference, decimal_sum, decimal_with, exact_decimal, int_or_long,
};
use crate::meter;

/// An accumulator of a moving window: values are added at the window's end and removed at its
/// start.
trait Moving {
    /// Adds the value at a position.
    fn add(&mut self, at: usize, value: Value<'_>);

    /// Removes the value at a position, the oldest in the window.
    fn remove(&mut self, at: usize, value: Value<'_>);

    /// Returns the result for the values in the window.
    fn value(&mut self, inputs: &[Option<ValueBuf>]) -> ValueBuf;
}

/// Returns one value per window, whose ends never move back; `None` for an accumulator whose result
/// is a list.
pub(super) fn values(
    accumulator: &Accumulator,
    windows: &[Range<usize>],
    partition: &Partition<'_>,
) -> Result<Option<Vec<ValueBuf>>> {
    let collator = partition.context.collator();
    let mut state: Box<dyn Moving + '_> = match accumulator.name() {
        "$sum" | "$count" => Box::new(Totals { is_mean: false, ..Totals::default() }),
        "$avg" => Box::new(Totals { is_mean: true, ..Totals::default() }),
        "$stdDevPop" => Box::new(Spread { is_sample: false, ..Spread::default() }),
        "$stdDevSamp" => Box::new(Spread { is_sample: true, ..Spread::default() }),
        "$min" => Box::new(Extremes::new(Ordering::Less, collator)),
        "$max" => Box::new(Extremes::new(Ordering::Greater, collator)),
        "$first" | "$last" => {
            return ends(accumulator, windows, partition).map(Some);
        }
        _ => match accumulator.percentiles() {
            Some(wanted) => Box::new(Sorted { wanted, numbers: Vec::new(), added: Vec::new() }),
            None => return Ok(None),
        },
    };
    let inputs = partition.values_in(accumulator.argument(), windows)?;
    let value_at = |at: usize| inputs[at].as_ref().map_or(Value::Null, ValueBuf::get);
    let mut results = Vec::with_capacity(windows.len());
    let mut held = 0..0;
    for window in windows {
        for at in held.end..window.end {
            meter::spend(meter::CALL)?;
            state.add(at, value_at(at));
        }
        for at in held.start..window.start {
            meter::spend(meter::CALL)?;
            state.remove(at, value_at(at));
        }
        meter::spend(meter::CALL)?;
        held = window.clone();
        results.push(state.value(&inputs));
    }
    Ok(Some(results))
}

/// `$first` and `$last`: the values at the ends of the windows.
fn ends(
    accumulator: &Accumulator,
    windows: &[Range<usize>],
    partition: &Partition<'_>,
) -> Result<Vec<ValueBuf>> {
    let is_first = accumulator.name() == "$first";
    let end = |window: &Range<usize>| match window.is_empty() {
        true => None,
        false => Some(if is_first { window.start } else { window.end - 1 }),
    };
    let mut wanted = vec![false; partition.documents.len()];
    windows.iter().filter_map(end).for_each(|at| wanted[at] = true);
    let inputs = partition.values_of(accumulator.argument(), &wanted)?;
    let value = |window| or_null(end(window).and_then(|at| inputs[at].clone()));
    Ok(windows.iter().map(value).collect())
}

/// The sum of the finite numbers, and the counts of the others, which a sum cannot remove.
#[derive(Default)]
pub(super) struct Totals {
    is_mean: bool,
    count: i64,
    integers: i128,
    doubles: i64,
    double_sum: DoubleDouble,
    decimals: i64,
    decimal_sum: Option<Decimal128>,
    nans: i64,
    positive_infinities: i64,
    negative_infinities: i64,
}

impl Totals {
    /// Adds a value, or removes it if `sign` is negative.
    pub(super) fn change(&mut self, value: Value<'_>, sign: i64) {
        let Some(number) = Number::of(value) else { return };
        self.count += sign;
        match number {
            Number::Int(number) => self.integers += i128::from(number) * i128::from(sign),
            Number::Long(number) => self.integers += i128::from(number) * i128::from(sign),
            Number::Double(number) => {
                self.doubles += sign;
                self.note_special(number, sign);
                if number.is_finite() {
                    self.double_sum.add(if sign < 0 { -number } else { number });
                }
                if self.doubles == 0 {
                    self.double_sum = DoubleDouble::default();
                }
            }
            Number::Decimal(number) => {
                self.decimals += sign;
                if number.is_nan() || number.is_infinite() {
                    self.note_special(number.to_f64(), sign);
                } else {
                    let sum = self.decimal_sum.unwrap_or(Decimal128::ZERO);
                    let change = if sign < 0 { decimal_difference } else { decimal_sum };
                    self.decimal_sum = Some(change(sum, number));
                }
                if self.decimals == 0 {
                    self.decimal_sum = None;
                }
            }
        }
    }

    fn note_special(&mut self, number: f64, sign: i64) {
        if number.is_nan() {
            self.nans += sign;
        } else if number == f64::INFINITY {
            self.positive_infinities += sign;
        } else if number == f64::NEG_INFINITY {
            self.negative_infinities += sign;
        }
    }

    /// Returns the sum.
    pub(super) fn total(&self) -> Number {
        let is_nan =
            self.nans > 0 || (self.positive_infinities > 0 && self.negative_infinities > 0);
        let special = match (is_nan, self.positive_infinities, self.negative_infinities) {
            (true, ..) => Some(f64::NAN),
            (_, 1.., _) => Some(f64::INFINITY),
            (_, _, 1..) => Some(f64::NEG_INFINITY),
            _ => None,
        };
        let mut binary = self.double_sum;
        if self.integers != 0 {
            binary.add_integer(self.integers);
        }
        match special {
            Some(special) if self.decimals > 0 => Number::Decimal(Decimal128::from_f64(special)),
            Some(special) => Number::Double(special),
            None if self.decimals > 0 => {
                let (high, low) = binary.parts();
                let binary = decimal_sum(exact_decimal(high), exact_decimal(low));
                let decimals = self.decimal_sum.unwrap_or(Decimal128::ZERO);
                Number::Decimal(decimal_sum(decimals, binary))
            }
            None if self.doubles > 0 => Number::Double(binary.value()),
            None => match i64::try_from(self.integers) {
                Ok(total) => int_or_long(total),
                #[allow(clippy::cast_precision_loss)]
                Err(_) => Number::Double(self.integers as f64),
            },
        }
    }
}

impl Moving for Totals {
    fn add(&mut self, _: usize, value: Value<'_>) {
        self.change(value, 1);
    }

    fn remove(&mut self, _: usize, value: Value<'_>) {
        self.change(value, -1);
    }

    fn value(&mut self, _: &[Option<ValueBuf>]) -> ValueBuf {
        if !self.is_mean {
            return Value::from(self.total()).to_buf();
        }
        if self.count == 0 {
            return Value::Null.to_buf();
        }
        let mean = match self.total() {
            Number::Decimal(total) => {
                let count = Decimal128::from_i64(self.count);
                Number::Decimal(decimal_with(total, count, DecContext::div))
            }
            #[allow(clippy::cast_precision_loss)]
            total => Number::Double(total.to_f64() / self.count as f64),
        };
        Value::from(mean).to_buf()
    }
}

/// The sum, and the sum of the squared differences from the mean, updated in mongod's way.
#[derive(Default)]
struct Spread {
    is_sample: bool,
    count: i64,
    sum: DoubleDouble,
    squares: DoubleDouble,
    not_finite: i64,
}

impl Spread {
    fn change(&mut self, value: Value<'_>, sign: i64) {
        let Some(number) = value.as_f64() else { return };
        if !number.is_finite() {
            self.not_finite += sign;
            return;
        }
        let after = self.count + sign;
        if after == 0 {
            let (is_sample, not_finite) = (self.is_sample, self.not_finite);
            *self = Spread { is_sample, not_finite, ..Spread::default() };
            return;
        }
        #[allow(clippy::cast_precision_loss)]
        if self.count > 0 {
            let (before, after) = (self.count as f64, after as f64);
            let delta = number * before - self.sum.value();
            let change = delta * delta * sign as f64 / (before * after);
            self.squares.add(change);
        }
        self.sum.add(if sign < 0 { -number } else { number });
        self.count = after;
    }
}

impl Moving for Spread {
    fn add(&mut self, _: usize, value: Value<'_>) {
        self.change(value, 1);
    }

    fn remove(&mut self, _: usize, value: Value<'_>) {
        self.change(value, -1);
    }

    fn value(&mut self, _: &[Option<ValueBuf>]) -> ValueBuf {
        if self.not_finite > 0 {
            return Value::Null.to_buf();
        }
        let divisor = if self.is_sample { self.count - 1 } else { self.count };
        let value = match (divisor, self.count) {
            (..=0, _) => Value::Null,
            (_, 1) => Value::Int32(0),
            #[allow(clippy::cast_precision_loss)]
            _ => Value::Double((self.squares.value().max(0.0) / divisor as f64).sqrt()),
        };
        value.to_buf()
    }
}

/// The positions of the values that may still become the extreme, the most extreme first.
struct Extremes<'c> {
    wanted: Ordering,
    collator: Option<&'c dyn Collator>,
    candidates: VecDeque<(usize, ValueBuf)>,
}

impl<'c> Extremes<'c> {
    fn new(wanted: Ordering, collator: Option<&'c dyn Collator>) -> Self {
        Extremes { wanted, collator, candidates: VecDeque::new() }
    }
}

impl Moving for Extremes<'_> {
    fn add(&mut self, at: usize, value: Value<'_>) {
        if value.is_nullish() {
            return;
        }
        while let Some((_, last)) = self.candidates.back() {
            let order = order::compare(last.get(), value, self.collator);
            // Of equal values the oldest is the least and the newest the greatest.
            let stays = order == self.wanted || (order.is_eq() && self.wanted.is_lt());
            if stays {
                break;
            }
            self.candidates.pop_back();
        }
        self.candidates.push_back((at, value.to_buf()));
    }

    fn remove(&mut self, at: usize, _: Value<'_>) {
        while self.candidates.front().is_some_and(|(first, _)| *first <= at) {
            self.candidates.pop_front();
        }
    }

    fn value(&mut self, _: &[Option<ValueBuf>]) -> ValueBuf {
        or_null(self.candidates.front().map(|(_, value)| value.clone()))
    }
}

/// The numbers in order, from which percentiles are read.
struct Sorted<'w> {
    wanted: &'w Percentiles,
    numbers: Vec<f64>,
    /// Numbers that are not sorted in yet.
    added: Vec<f64>,
}

impl Sorted<'_> {
    /// The maximum number of numbers that are inserted one by one; it costs less to sort more at
    /// once.
    const ONE_BY_ONE_MAX: usize = 8;

    fn sort_in(&mut self) {
        if self.added.len() > Self::ONE_BY_ONE_MAX {
            self.numbers.append(&mut self.added);
            self.numbers.sort_by(f64::total_cmp);
            return;
        }
        for number in self.added.drain(..) {
            let at = self.numbers.partition_point(|held| held.total_cmp(&number).is_lt());
            self.numbers.insert(at, number);
        }
    }
}

impl Moving for Sorted<'_> {
    fn add(&mut self, _: usize, value: Value<'_>) {
        self.added.extend(counted(value));
    }

    fn remove(&mut self, _: usize, value: Value<'_>) {
        let Some(number) = counted(value) else { return };
        self.sort_in();
        if let Ok(at) = self.numbers.binary_search_by(|held| held.total_cmp(&number)) {
            self.numbers.remove(at);
        }
    }

    fn value(&mut self, _: &[Option<ValueBuf>]) -> ValueBuf {
        self.sort_in();
        let list = self.wanted.list();
        let found: Option<Vec<f64>> = list.iter().map(|&p| percentile(&self.numbers, p)).collect();
        self.wanted.to_value(found.as_deref())
    }
}
