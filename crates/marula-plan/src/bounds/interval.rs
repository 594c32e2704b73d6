//! Intervals of values in BSON order, and lists of them, ascending and disjoint: the values that a
//! bound includes.

use std::cmp::Ordering;

use marula_bson::order::compare;
use marula_bson::{Collator, Value, ValueBuf};

use super::predicate::class;

/// The values from `low` to `high`; each end is inclusive or exclusive.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: ValueBuf,
    /// Whether the lower end is inclusive.
    pub low_inclusive: bool,
    /// The upper end.
    pub high: ValueBuf,
    /// Whether the upper end is inclusive.
    pub high_inclusive: bool,
}

/// The order of strings, if it is not the binary order.
pub type Order<'a> = Option<&'a dyn Collator>;

impl Interval {
    /// Returns the interval from `low` to `high`.
    pub fn new(low: Value<'_>, low_inclusive: bool, high: Value<'_>, high_inclusive: bool) -> Self {
        Interval { low: low.to_buf(), low_inclusive, high: high.to_buf(), high_inclusive }
    }

    /// Returns the interval of one value.
    pub fn point(value: Value<'_>) -> Self {
        Interval::new(value, true, value, true)
    }

    /// Returns the interval of all values.
    pub fn all() -> Self {
        Interval::new(Value::MinKey, true, Value::MaxKey, true)
    }

    /// Returns whether the interval contains exactly one value.
    pub fn is_point(&self) -> bool {
        self.low_inclusive && self.high_inclusive && self.low == self.high
    }

    /// Returns whether the interval contains all values.
    pub fn is_all(&self) -> bool {
        self.low_inclusive
            && self.high_inclusive
            && matches!(self.low.get(), Value::MinKey)
            && matches!(self.high.get(), Value::MaxKey)
    }

    /// Returns whether both ends are values from the query, and neither is the first or last value
    /// of a type.
    pub fn is_ended(&self) -> bool {
        let is_edge = |value: &ValueBuf| match value.get() {
            Value::MinKey | Value::MaxKey => true,
            Value::Double(number) => !number.is_finite(),
            _ => false,
        };
        let whole = class(self.low.kind());
        let begins = self.low == whole.low || is_edge(&self.low);
        let ends = self.high == whole.high || is_edge(&self.high);
        self.is_point() || !(begins || ends)
    }

    fn is_empty(&self, order: Order<'_>) -> bool {
        match cmp(&self.low, &self.high, order) {
            // No value lies between undefined and null.
            Ordering::Less => {
                !self.low_inclusive
                    && !self.high_inclusive
                    && matches!(self.low.get(), Value::Undefined)
                    && matches!(self.high.get(), Value::Null)
            }
            Ordering::Equal => !(self.low_inclusive && self.high_inclusive),
            Ordering::Greater => true,
        }
    }
}

fn cmp(a: &ValueBuf, b: &ValueBuf, order: Order<'_>) -> Ordering {
    compare(a.get(), b.get(), order)
}

/// Returns the values that are in both lists.
pub fn intersect(a: &[Interval], b: &[Interval], order: Order<'_>) -> Vec<Interval> {
    let mut both = Vec::new();
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (low, low_inclusive) = match cmp(&x.low, &y.low, order) {
            Ordering::Less => (&y.low, y.low_inclusive),
            Ordering::Greater => (&x.low, x.low_inclusive),
            Ordering::Equal => (&x.low, x.low_inclusive && y.low_inclusive),
        };
        let ends = cmp(&x.high, &y.high, order);
        let (high, high_inclusive) = match ends {
            Ordering::Less => (&x.high, x.high_inclusive),
            Ordering::Greater => (&y.high, y.high_inclusive),
            Ordering::Equal => (&x.high, x.high_inclusive && y.high_inclusive),
        };
        let common =
            Interval { low: low.clone(), low_inclusive, high: high.clone(), high_inclusive };
        if !common.is_empty(order) {
            both.push(common);
        }
        // The interval that ends first overlaps with no later one.
        let x_ends_first = ends.is_lt() || (ends.is_eq() && !x.high_inclusive);
        if x_ends_first {
            i += 1;
        } else {
            j += 1;
        }
    }
    both
}

/// Returns the values that are in any of the intervals, as an ordered list.
pub fn union(mut intervals: Vec<Interval>, order: Order<'_>) -> Vec<Interval> {
    intervals.retain(|interval| !interval.is_empty(order));
    intervals
        .sort_by(|a, b| cmp(&a.low, &b.low, order).then(b.low_inclusive.cmp(&a.low_inclusive)));
    let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
    for interval in intervals {
        match merged.last_mut() {
            Some(last) if touches(last, &interval, order) => {
                match cmp(&last.high, &interval.high, order) {
                    Ordering::Less => {
                        last.high = interval.high;
                        last.high_inclusive = interval.high_inclusive;
                    }
                    Ordering::Equal => last.high_inclusive |= interval.high_inclusive,
                    Ordering::Greater => {}
                }
            }
            _ => merged.push(interval),
        }
    }
    merged
}

/// Returns whether `next`, which starts at or after `last`, leaves no gap after it.
fn touches(last: &Interval, next: &Interval, order: Order<'_>) -> bool {
    match cmp(&next.low, &last.high, order) {
        Ordering::Less => true,
        Ordering::Equal => last.high_inclusive || next.low_inclusive,
        Ordering::Greater => false,
    }
}

/// Returns the values that are in no interval of the list.
pub fn complement(list: &[Interval], order: Order<'_>) -> Vec<Interval> {
    let mut gaps = Vec::with_capacity(list.len() + 1);
    let mut low = (Value::MinKey.to_buf(), true);
    for interval in list {
        gaps.push(Interval {
            low: low.0,
            low_inclusive: low.1,
            high: interval.low.clone(),
            high_inclusive: !interval.low_inclusive,
        });
        low = (interval.high.clone(), !interval.high_inclusive);
    }
    gaps.push(Interval {
        low: low.0,
        low_inclusive: low.1,
        high: Value::MaxKey.to_buf(),
        high_inclusive: true,
    });
    gaps.retain(|gap| !gap.is_empty(order));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(i32, bool, i32, bool)]) -> Vec<Interval> {
        let number = Value::Int32;
        pairs.iter().map(|&(a, x, b, y)| Interval::new(number(a), x, number(b), y)).collect()
    }

    fn check(found: Vec<Interval>, wanted: &[(i32, bool, i32, bool)]) {
        assert_eq!(found, list(wanted));
    }

    #[test]
    fn lists_meet() {
        let a = list(&[(1, true, 5, true), (8, false, 10, true)]);
        check(
            intersect(&a, &list(&[(5, true, 9, false)]), None),
            &[(5, true, 5, true), (8, false, 9, false)],
        );
        check(intersect(&a, &list(&[(5, false, 8, true)]), None), &[]);
        check(intersect(&a, &[Interval::all()], None), &[(1, true, 5, true), (8, false, 10, true)]);
    }

    #[test]
    fn lists_join() {
        let all = list(&[
            (7, true, 9, true),
            (1, true, 3, false),
            (3, true, 4, true),
            (9, false, 9, true),
        ]);
        check(union(all, None), &[(1, true, 4, true), (7, true, 9, true)]);
        check(
            union(list(&[(1, true, 2, false), (2, false, 3, true)]), None),
            &[(1, true, 2, false), (2, false, 3, true)],
        );
    }

    #[test]
    fn the_complement_of_a_complement_is_the_list() {
        let a = list(&[(1, true, 3, false), (5, false, 6, true)]);
        assert_eq!(complement(&complement(&a, None), None), a);
        assert_eq!(complement(&[], None), [Interval::all()]);
        assert_eq!(complement(&[Interval::all()], None), []);
    }
}
