//! Bounds as bytes of an index's key strings: one range to scan, or intervals per field to compare
//! each key with.

use std::ops::Bound;

use marula_bson::key_string::{self, successor};
use marula_storage::{Direction, KeyRange};

use super::{IndexBounds, Interval, PartView};

/// Bounds in bytes.
#[derive(Clone, PartialEq, Debug)]
pub enum KeyBounds {
    /// Contains no key.
    Nothing,
    /// The keys in one range.
    Range(KeyRange),
    /// The keys in which every field is in one of its intervals.
    Fields(FieldBounds),
}

/// For each field of an index, the ranges of its encoded values, in key order.
#[derive(Clone, PartialEq, Debug)]
pub struct FieldBounds {
    fields: Vec<Field>,
}

#[derive(Clone, PartialEq, Debug)]
struct Field {
    descending: bool,
    ranges: Vec<FieldRange>,
}

/// Encodings of a field's values: at or above `start` and below `end`.
#[derive(Clone, PartialEq, Debug)]
struct FieldRange {
    start: Vec<u8>,
    /// Whether `start` is a complete encoding of a value, so that the next field may follow it.
    is_start_whole: bool,
    end: Vec<u8>,
    /// The encoding of the last value, if it belongs to the range; `end` is then its successor.
    last: Option<Vec<u8>>,
}

/// The result of comparing a key with the bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The key is within the bounds.
    Inside,
    /// The key is outside. The next key that may be inside is at the position that was written.
    Seek,
    /// The key is outside, and so is every key after it.
    Done,
}

/// The range of all key strings: no key string starts with 0xFF.
pub fn all() -> KeyRange {
    KeyRange { start: Vec::new(), end: vec![u8::MAX] }
}

/// Returns the smallest bytes greater than every key that starts with `key`.
fn behind(key: &[u8]) -> Vec<u8> {
    successor(key).unwrap_or_else(|| vec![u8::MAX])
}

impl KeyBounds {
    /// Returns the bounds of an index's keys; `parts` are the parts of its key pattern.
    pub fn new(bounds: &IndexBounds, parts: &[PartView<'_>]) -> Self {
        if bounds.fields.iter().any(Vec::is_empty) {
            return KeyBounds::Nothing;
        }
        // One range suffices for leading single values, then one interval, then all values.
        let fixed = bounds.fixed_fields();
        let is_single = bounds.fields.get(fixed).is_none_or(|intervals| intervals.len() == 1);
        let is_rest_free = bounds
            .fields
            .iter()
            .skip(fixed + 1)
            .all(|intervals| matches!(intervals.as_slice(), [only] if only.is_all()));
        if !(is_single && is_rest_free) {
            return KeyBounds::checked(bounds, parts);
        }
        let mut prefix = Vec::new();
        for (intervals, part) in bounds.fields.iter().zip(parts).take(fixed) {
            key_string::encode_part(
                intervals[0].low.get(),
                part.descending,
                part.order,
                &mut prefix,
            );
        }
        let range = bounds.fields.get(fixed).zip(parts.get(fixed));
        let range = range.filter(|(intervals, _)| !intervals[0].is_all());
        KeyBounds::Range(match range {
            Some((intervals, part)) => {
                let FieldRange { start, end, .. } = FieldRange::new(&intervals[0], part);
                KeyRange {
                    start: [prefix.as_slice(), &start].concat(),
                    end: [prefix.as_slice(), &end].concat(),
                }
            }
            None if prefix.is_empty() => all(),
            None => KeyRange { end: behind(&prefix), start: prefix },
        })
    }

    /// Like [`KeyBounds::new`], for a scan that examines each key, and the first one after the
    /// bounds.
    pub fn checked(bounds: &IndexBounds, parts: &[PartView<'_>]) -> Self {
        if bounds.fields.iter().any(Vec::is_empty) {
            return KeyBounds::Nothing;
        }
        let fields = bounds.fields.iter().zip(parts);
        let fields = fields.map(|(intervals, part)| Field::new(intervals, part)).collect();
        KeyBounds::Fields(FieldBounds { fields })
    }

    /// Returns the range that a scan reads: the whole index if every key is checked.
    pub fn walked(&self) -> KeyRange {
        match self {
            KeyBounds::Range(range) => range.clone(),
            KeyBounds::Nothing | KeyBounds::Fields(_) => all(),
        }
    }
}

impl Field {
    fn new(intervals: &[Interval], part: &PartView<'_>) -> Self {
        let mut ranges: Vec<_> =
            intervals.iter().map(|interval| FieldRange::new(interval, part)).collect();
        if part.descending {
            ranges.reverse();
        }
        Field { descending: part.descending, ranges }
    }
}

impl FieldRange {
    fn new(interval: &Interval, part: &PartView<'_>) -> Self {
        let encode = |value: marula_bson::Value<'_>| {
            let mut key = Vec::new();
            key_string::encode_part(value, part.descending, part.order, &mut key);
            key
        };
        let low = (encode(interval.low.get()), interval.low_inclusive);
        let high = (encode(interval.high.get()), interval.high_inclusive);
        let (first, last) = if part.descending { (high, low) } else { (low, high) };
        FieldRange {
            is_start_whole: first.1,
            start: if first.1 { first.0 } else { behind(&first.0) },
            end: if last.1 { behind(&last.0) } else { last.0.clone() },
            last: last.1.then_some(last.0),
        }
    }
}

impl FieldBounds {
    /// Writes the position of the first key that may be within the bounds.
    pub fn first(&self, direction: Direction, place: &mut Vec<u8>) {
        place.clear();
        match direction {
            Direction::Forward => self.append_starts(0, place),
            Direction::Backward => self.append_ends(0, place),
        }
    }

    /// Compares `key` with the bounds. For [`Verdict::Seek`] writes the next position into `place`.
    /// Returns `None` if the bytes are not a key.
    pub fn check(&self, key: &[u8], direction: Direction, place: &mut Vec<u8>) -> Option<Verdict> {
        let mut at = 0;
        for (number, field) in self.fields.iter().enumerate() {
            let length = key_string::part_length(key.get(at..)?, field.descending)?;
            let (prefix, value) = (&key[..at], key.get(at..at + length)?);
            let found = field.find(value, direction);
            match found {
                Bound::Included(_) => at += length,
                // In the gap before this range.
                Bound::Excluded(range) => {
                    place.clear();
                    place.extend_from_slice(prefix);
                    let range = &field.ranges[range];
                    match direction {
                        Direction::Forward => {
                            place.extend_from_slice(&range.start);
                            if range.is_start_whole {
                                self.append_starts(number + 1, place);
                            }
                        }
                        Direction::Backward => match &range.last {
                            Some(last) => {
                                place.extend_from_slice(last);
                                self.append_ends(number + 1, place);
                            }
                            None => place.extend_from_slice(&range.end),
                        },
                    }
                    return Some(Verdict::Seek);
                }
                // After all ranges: an earlier field must advance.
                Bound::Unbounded => {
                    let Some(end) = self.movable(prefix, number, direction)? else {
                        return Some(Verdict::Done);
                    };
                    let prefix = &prefix[..end];
                    place.clear();
                    match direction {
                        Direction::Forward => place.extend(behind(prefix)),
                        Direction::Backward => place.extend_from_slice(prefix),
                    }
                    return Some(Verdict::Seek);
                }
            }
        }
        Some(Verdict::Inside)
    }

    /// Appends the greatest encodings of the fields from `number` on, as far as they are known. The
    /// result is greater than all keys within the bounds.
    fn append_ends(&self, number: usize, place: &mut Vec<u8>) {
        for field in &self.fields[number..] {
            let Some(range) = field.ranges.last() else { break };
            match &range.last {
                Some(last) => place.extend_from_slice(last),
                None => return place.extend_from_slice(&range.end),
            }
        }
        *place = behind(place);
    }

    /// Returns the end, in `prefix`, of the last field that can still advance; `prefix` has the
    /// first `count` fields of a key. Returns `Some(None)` if no field can.
    fn movable(&self, prefix: &[u8], count: usize, direction: Direction) -> Option<Option<usize>> {
        let (mut at, mut end) = (0, None);
        for field in &self.fields[..count] {
            let length = key_string::part_length(prefix.get(at..)?, field.descending)?;
            let is_last = field.is_last(prefix.get(at..at + length)?, direction);
            at += length;
            end = if is_last { end } else { Some(at) };
        }
        Some(end)
    }

    /// Appends the smallest encodings of the fields from `number` on, as far as they are known.
    fn append_starts(&self, number: usize, place: &mut Vec<u8>) {
        for field in &self.fields[number..] {
            let Some(first) = field.ranges.first() else { return };
            place.extend_from_slice(&first.start);
            if !first.is_start_whole {
                return;
            }
        }
    }
}

impl Field {
    /// Returns whether `value` is the last value of the bounds, so that none after it is within
    /// them.
    fn is_last(&self, value: &[u8], direction: Direction) -> bool {
        match direction {
            Direction::Forward => {
                let last = self.ranges.last().and_then(|range| range.last.as_deref());
                last.is_some_and(|last| last == value)
            }
            Direction::Backward => (self.ranges.first())
                .is_some_and(|range| range.is_start_whole && range.start == value),
        }
    }

    /// Returns the range that contains `value`, or the next one in the scan direction, or none.
    fn find(&self, value: &[u8], direction: Direction) -> Bound<usize> {
        match direction {
            Direction::Forward => {
                let next = self.ranges.partition_point(|range| range.end.as_slice() <= value);
                match self.ranges.get(next) {
                    None => Bound::Unbounded,
                    Some(range) if range.start.as_slice() <= value => Bound::Included(next),
                    Some(_) => Bound::Excluded(next),
                }
            }
            Direction::Backward => {
                let behind = self.ranges.partition_point(|range| range.start.as_slice() <= value);
                match behind.checked_sub(1) {
                    None => Bound::Unbounded,
                    Some(next) if value < self.ranges[next].end.as_slice() => Bound::Included(next),
                    Some(next) => Bound::Excluded(next),
                }
            }
        }
    }
}
