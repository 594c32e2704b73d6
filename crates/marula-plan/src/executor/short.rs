//! A sort of short values with a limit: most sorts are by a number or a date.
//!
//! A sort with a limit and a late fetch needs only the sort value and the record of each document.
//! If both are short, they are stored here unencoded, with the first bytes of the value's key,
//! which decide most comparisons. The whole key is written only for equal first bytes and for the
//! rows that are fetched. Once there are twice as many rows as wanted, the greater half is dropped.

use std::cmp::Ordering;

use marula_bson::{RawValue, Type};
use marula_error::Result;
use marula_query::sort::SortPattern;

/// The size of a value, and of a record id.
const BYTES: usize = 8;

/// A row.
#[derive(Clone, Copy)]
struct ShortRow {
    /// The [head](marula_bson::key_string::part_head) of the key.
    head: u64,
    /// The order of arrival.
    number: u64,
    kind: Type,
    length: u8,
    value: [u8; BYTES],
    record: [u8; BYTES],
}

impl ShortRow {
    fn value(&self) -> RawValue<'_> {
        RawValue::new(self.kind, &self.value[..usize::from(self.length)])
    }

    /// Compares the keys; equal rows are in the order of arrival.
    #[inline]
    fn compare(&self, other: &ShortRow, pattern: &SortPattern) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.compare_behind_heads(other, pattern))
    }

    #[cold]
    fn compare_behind_heads(&self, other: &ShortRow, pattern: &SortPattern) -> Ordering {
        let by_number = self.number.cmp(&other.number);
        if self.value() == other.value() {
            return by_number;
        }
        let [mut key, mut other_key] = [Vec::new(), Vec::new()];
        pattern.write_value_key(self.value(), &mut key);
        pattern.write_value_key(other.value(), &mut other_key);
        key.cmp(&other_key).then(by_number)
    }
}

/// A set of rows, of which the smallest are wanted.
pub(super) struct ShortRows {
    wanted: usize,
    rows: Vec<ShortRow>,
    came: u64,
    /// Rows with a greater head are rejected: the head of the greatest row after the last cut.
    greatest_head: u64,
}

impl ShortRows {
    /// Returns an empty set, of which `wanted` rows are returned in the end.
    pub(super) fn new(wanted: usize) -> Self {
        ShortRows { wanted, rows: Vec::new(), came: 0, greatest_head: u64::MAX }
    }

    /// Adds a row; `head` is the head of the value's key. Returns `None` if the value or the record
    /// is too long.
    #[inline]
    pub(super) fn push(
        &mut self,
        (found, head): (RawValue<'_>, u64),
        record: &[u8],
        pattern: &SortPattern,
    ) -> Option<()> {
        let bytes = found.bytes();
        let mut value = [0; BYTES];
        value.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let record = record.try_into().ok()?;
        self.came += 1;
        if head <= self.greatest_head {
            let (kind, length) = (found.kind(), bytes.len() as u8);
            self.rows.push(ShortRow { head, number: self.came, kind, length, value, record });
            if self.rows.len() >= 2 * self.wanted {
                self.cut(pattern);
            }
        }
        Some(())
    }

    /// Drops all but the smallest rows.
    fn cut(&mut self, pattern: &SortPattern) {
        if self.wanted > 0 && self.rows.len() > self.wanted {
            let compare = |a: &ShortRow, b: &ShortRow| a.compare(b, pattern);
            let (_, greatest, _) = self.rows.select_nth_unstable_by(self.wanted - 1, compare);
            self.greatest_head = greatest.head;
        }
        self.rows.truncate(self.wanted);
    }

    /// Sorts the wanted rows.
    pub(super) fn sort(&mut self, pattern: &SortPattern) {
        self.cut(pattern);
        self.rows.sort_unstable_by(|a, b| a.compare(b, pattern));
    }

    /// Shows the key and the record of each row, in order. For the first `unseen` rows the key is
    /// empty.
    pub(super) fn show(
        &self,
        unseen: u64,
        pattern: &SortPattern,
        show: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut key = Vec::new();
        for (row, number) in self.rows.iter().zip(0..) {
            key.clear();
            if number >= unseen {
                pattern.write_value_key(row.value(), &mut key);
            }
            show(&key, &row.record)?;
        }
        Ok(())
    }

    /// Sorts the remaining rows by their arrival.
    pub(super) fn as_they_came(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.number);
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;
    use marula_query::context::Context;

    use super::*;

    /// Compares the smallest records by `pattern`, as rows, with a sort of whole keys.
    fn check(pattern: &marula_bson::DocBuf, docs: &[marula_bson::DocBuf], wanted: usize) {
        let pattern = SortPattern::parse(pattern.as_doc(), &Context::default()).unwrap();
        let mut rows = ShortRows::new(wanted);
        let mut keys = Vec::new();
        for (number, doc) in (0_u64..).zip(docs) {
            let value = pattern.value_and_head(doc.as_doc()).expect("a short value");
            rows.push(value, &number.to_be_bytes(), &pattern).expect("short");
            let mut key = Vec::new();
            pattern.write_key(doc.as_doc(), &mut key).unwrap();
            keys.push((key, number.to_be_bytes().to_vec()));
        }
        keys.sort();
        keys.truncate(wanted);
        rows.sort(&pattern);
        let mut found = Vec::new();
        rows.show(0, &pattern, &mut |key, record| {
            found.push((key.to_vec(), record.to_vec()));
            Ok(())
        })
        .unwrap();
        assert_eq!(found, keys, "{wanted} of {}", docs.len());
        keys.sort_by(|a, b| a.1.cmp(&b.1));
        rows.as_they_came();
        let mut came = Vec::new();
        rows.show(u64::MAX, &pattern, &mut |key, record| {
            assert!(key.is_empty());
            came.push(record.to_vec());
            Ok(())
        })
        .unwrap();
        assert!(came.iter().eq(keys.iter().map(|(_, record)| record)));
    }

    #[test]
    fn the_least_are_those_whose_keys_are() {
        let docs: Vec<_> = (0..500_i32)
            .map(|number| {
                let mixed = number * 37 % 100;
                // Doubles with equal heads, equal numbers of several types, and values that are not
                // numbers.
                match number % 6 {
                    0 => doc! { "a": (f64::from(mixed) + 1e-13 * f64::from(number)) },
                    1 => doc! { "a": mixed },
                    2 => doc! { "a": (i64::from(mixed)) },
                    3 => doc! { "a": (f64::from(-mixed) / 3.0) },
                    4 => doc! { "a": (number % 5 == 0) },
                    _ => doc! { "b": number },
                }
            })
            .collect();
        for wanted in [0, 1, 2, 7, 110, 250, 500, 1000] {
            for pattern in [doc! { "a": 1 }, doc! { "a": -1 }] {
                check(&pattern, &docs, wanted);
            }
        }
    }

    #[test]
    fn what_is_long_is_not_taken() {
        let pattern = SortPattern::parse(doc! { "a": 1 }.as_doc(), &Context::default()).unwrap();
        let mut rows = ShortRows::new(3);
        let doc = doc! { "a": "a text of some length" };
        let value = pattern.value_and_head(doc.as_doc()).expect("its head is known");
        assert!(rows.push(value, &[0; BYTES], &pattern).is_none());
        let doc = doc! { "a": 1 };
        let value = pattern.value_and_head(doc.as_doc()).expect("its head is known");
        assert!(rows.push(value, &[0; BYTES + 1], &pattern).is_none());
        assert!(rows.push(value, &[0; BYTES], &pattern).is_some());
        assert!(pattern.value_and_head(doc! { "a": [1] }.as_doc()).is_none());
        let pattern = SortPattern::parse(doc! { "a": 1, "b": 1 }.as_doc(), &Context::default());
        assert!(pattern.unwrap().value_and_head(doc.as_doc()).is_none());
    }
}
