//! Index bounds: which values of an indexed field can belong to a document that matches.
//!
//! Bounds are intervals of values per field of the index, in BSON order; they never leave out a document that
//! matches, and may let others through, which the filter then rejects. Several fields together become
//! ranges of key strings: points on the leading fields, an interval on the next.

use std::cmp::Ordering;

use marula_bson::order::compare;
use marula_bson::{Binary, Collator, Doc, FieldPath, ObjectId, Type, Value, ValueBuf, key_string};
use marula_db::Index;
use marula_query::filter::{Compare, CompareOp, Filter, Node, Predicate};
use marula_storage::KeyRange;
use marula_storage::store::prefix_end;

/// Ranges of key strings that one scan walks at most: beyond, the last fields' points are given up.
const RANGES_MAX: usize = 10_000;

/// Values from `low` to `high`, each end included or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: ValueBuf,
    /// Whether the lower end itself belongs to it.
    pub low_inclusive: bool,
    /// The upper end.
    pub high: ValueBuf,
    /// Whether the upper end itself belongs to it.
    pub high_inclusive: bool,
}

impl Interval {
    /// The interval of one value.
    pub fn point(value: Value<'_>) -> Self {
        Interval {
            low: value.to_buf(),
            low_inclusive: true,
            high: value.to_buf(),
            high_inclusive: true,
        }
    }

    /// Whether it holds one value alone.
    pub fn is_point(&self) -> bool {
        self.low_inclusive && self.high_inclusive && self.low == self.high
    }

    fn new(low: Value<'_>, low_inclusive: bool, high: Value<'_>, high_inclusive: bool) -> Self {
        Interval { low: low.to_buf(), low_inclusive, high: high.to_buf(), high_inclusive }
    }
}

/// What the bounds of one query on one index are.
pub struct IndexBounds {
    /// For each leading field that is bounded, its intervals, ascending and disjoint.
    pub fields: Vec<Vec<Interval>>,
    /// How many leading fields are bounded to points.
    pub point_fields: usize,
}

impl IndexBounds {
    /// The bounds of `filter` on `index`; `None` when the index cannot be used for it or would not help.
    ///
    /// `collation_matches` says whether the index orders strings as the query does.
    pub fn of(filter: &Filter, index: &Index, collation_matches: bool) -> Option<Self> {
        let conditions = conditions(filter.root());
        let multikey = index.multikey_paths();
        let mut fields: Vec<Vec<Interval>> = Vec::new();
        let mut point_fields = 0;
        for (position, part) in index.spec.parts.iter().enumerate() {
            if shares_array(index, &multikey, position, fields.len()) {
                break;
            }
            let on_path = conditions.iter().filter(|(path, _)| **path == part.path);
            let mut intervals: Option<Vec<Interval>> = None;
            for (_, predicate) in on_path {
                let Some(found) = intervals_of(predicate, index, collation_matches) else {
                    continue;
                };
                intervals = Some(match intervals {
                    // Under arrays, two conditions may be met by two elements: only one bounds the scan.
                    Some(known) if multikey[position] != 0 => tighter(known, found),
                    Some(known) => intersect(&known, &found, collator(index)),
                    None => found,
                });
            }
            let Some(intervals) = intervals else { break };
            let are_points = intervals.iter().all(Interval::is_point);
            fields.push(intervals);
            if !are_points {
                break;
            }
            point_fields += 1;
        }
        if fields.is_empty() { None } else { Some(IndexBounds { fields, point_fields }) }
    }

    /// The bounds as ranges of the index's key strings, ascending and disjoint.
    pub fn ranges(&self, index: &Index) -> Vec<KeyRange> {
        let collator = collator(index);
        let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
        let mut ranges = Vec::new();
        for (position, intervals) in self.fields.iter().enumerate() {
            let descending = index.spec.parts[position].descending;
            let is_last = position + 1 == self.fields.len();
            let is_too_many = prefixes.len().saturating_mul(intervals.len()) > RANGES_MAX;
            if is_last || is_too_many {
                let intervals: &[Interval] = if is_too_many { &[] } else { intervals };
                for prefix in &prefixes {
                    if is_too_many {
                        ranges.push(KeyRange::prefix_or_all(prefix));
                    }
                    ranges.extend(
                        intervals
                            .iter()
                            .map(|interval| range(prefix, interval, descending, collator)),
                    );
                }
                break;
            }
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| intervals.iter().map(move |interval| (prefix, interval)))
                .map(|(prefix, interval)| extend(prefix, interval.low.get(), descending, collator))
                .collect();
        }
        ranges.retain(|range| range.start < range.end);
        ranges.sort_unstable_by(|a, b| a.start.cmp(&b.start));
        ranges.dedup();
        ranges
    }
}

/// A key range of everything under a prefix; the empty prefix is the whole index.
trait PrefixRange {
    fn prefix_or_all(prefix: &[u8]) -> KeyRange;
}

impl PrefixRange for KeyRange {
    fn prefix_or_all(prefix: &[u8]) -> KeyRange {
        match prefix_end(prefix) {
            Some(end) => KeyRange { start: prefix.to_vec(), end },
            None => all(),
        }
    }
}

/// Every key string: no key string starts with 0xFF.
pub fn all() -> KeyRange {
    KeyRange { start: Vec::new(), end: vec![0xFF] }
}

fn collator(index: &Index) -> Order<'_> {
    index.spec.collation.as_ref().map(|collation| collation.collator())
}

fn extend(
    prefix: &[u8],
    value: Value<'_>,
    descending: bool,
    collator: Option<&dyn Collator>,
) -> Vec<u8> {
    let mut key = prefix.to_vec();
    key_string::encode_part(value, descending, collator, &mut key);
    key
}

/// The key strings under `prefix` whose next field lies in `interval`. The encoding of a field is never a prefix
/// of another's, so everything that starts with a value's encoding has that value.
fn range(
    prefix: &[u8],
    interval: &Interval,
    descending: bool,
    collator: Option<&dyn Collator>,
) -> KeyRange {
    let low = extend(prefix, interval.low.get(), descending, collator);
    let high = extend(prefix, interval.high.get(), descending, collator);
    let behind = |key: Vec<u8>| prefix_end(&key).unwrap_or_else(|| vec![0xFF]);
    let (first, first_inclusive, last, last_inclusive) = if descending {
        (high, interval.high_inclusive, low, interval.low_inclusive)
    } else {
        (low, interval.low_inclusive, high, interval.high_inclusive)
    };
    KeyRange {
        start: if first_inclusive { first } else { behind(first) },
        end: if last_inclusive { behind(last) } else { last },
    }
}

/// The conditions that every matching document meets, by path.
fn conditions(root: &Node) -> Vec<(&FieldPath, &Predicate)> {
    match root {
        Node::Path(node) => vec![(&node.path, &node.predicate)],
        Node::And(children) => children.iter().flat_map(conditions).collect(),
        _ => Vec::new(),
    }
}

/// Whether the field at `position` shares an array with one of the first `bounded` fields: then one element may
/// meet the one condition and another element the other, and the index cannot tell.
fn shares_array(index: &Index, multikey: &[u64], position: usize, bounded: usize) -> bool {
    let parts = &index.spec.parts;
    (0..bounded).any(|other| {
        let (a, b) = (parts[position].path.parts(), parts[other].path.parts());
        let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        (0..common).any(|component| {
            let bit = 1u64 << component.min(63);
            multikey[position] & bit != 0 || multikey[other] & bit != 0
        })
    })
}

/// The values that can satisfy `predicate`; `None` when it does not bound them.
fn intervals_of(
    predicate: &Predicate,
    index: &Index,
    collation_matches: bool,
) -> Option<Vec<Interval>> {
    match predicate {
        Predicate::Compare(compare) => comparison(compare, index, collation_matches),
        Predicate::In(list) => {
            if !list.regexes().is_empty() {
                return None;
            }
            let mut intervals = Vec::new();
            for value in list.values() {
                let compare = Compare { op: CompareOp::Eq, value: value.clone() };
                intervals.extend(comparison(&compare, index, collation_matches)?);
            }
            Some(union(intervals, collator(index)))
        }
        Predicate::ElemMatchValue(predicates) => {
            // One element meets them all, so here conditions do intersect.
            let mut known: Option<Vec<Interval>> = None;
            for predicate in predicates {
                let Some(found) = intervals_of(predicate, index, collation_matches) else {
                    continue;
                };
                known = Some(match known {
                    Some(known) => intersect(&known, &found, collator(index)),
                    None => found,
                });
            }
            known
        }
        _ => None,
    }
}

fn comparison(compare: &Compare, index: &Index, collation_matches: bool) -> Option<Vec<Interval>> {
    let value = compare.value.get();
    if !collation_matches && holds_string(value) {
        return None;
    }
    let is_sparse = index.spec.sparse;
    match value {
        // Null stands for what is missing, of which a sparse index knows nothing.
        Value::Null | Value::Undefined => match compare.op {
            _ if is_sparse => None,
            CompareOp::Eq | CompareOp::Lte | CompareOp::Gte => {
                Some(vec![Interval::new(Value::Undefined, true, Value::Null, true)])
            }
            CompareOp::Lt | CompareOp::Gt => Some(Vec::new()),
        },
        Value::Array(array) => match compare.op {
            // An array is indexed by its elements: one that equals `array` has its first element among its keys,
            // or, within an array, itself.
            CompareOp::Eq => {
                let first = array.values().next().unwrap_or(Value::Undefined);
                let points = vec![Interval::point(first), Interval::point(value)];
                Some(union(points, collator(index)))
            }
            _ => None,
        },
        Value::MinKey | Value::MaxKey => match compare.op {
            CompareOp::Eq => Some(vec![Interval::point(value)]),
            _ => None,
        },
        _ => Some(match compare.op {
            CompareOp::Eq => vec![Interval::point(value)],
            CompareOp::Lt => vec![below(value, false)],
            CompareOp::Lte => vec![below(value, true)],
            CompareOp::Gt => vec![above(value, false)],
            CompareOp::Gte => vec![above(value, true)],
        }),
    }
}

/// From the least value of the type's bracket to `value`.
fn below(value: Value<'_>, inclusive: bool) -> Interval {
    match value {
        // NaN is the least number and comparable with itself alone.
        Value::Double(number) if number.is_nan() => {
            let mut point = Interval::point(value);
            point.high_inclusive = inclusive;
            point
        }
        _ => Interval::new(bracket_start(value.kind()), true, value, inclusive),
    }
}

/// From `value` to the end of the type's bracket.
fn above(value: Value<'_>, inclusive: bool) -> Interval {
    match value {
        Value::Double(number) if number.is_nan() => {
            let mut point = Interval::point(value);
            point.low_inclusive = inclusive;
            point
        }
        _ => Interval::new(value, inclusive, bracket_end(value.kind()), false),
    }
}

const NO_OBJECT_ID: ObjectId = ObjectId::from_bytes([0; 12]);

/// The least value that compares with values of this type.
fn bracket_start(kind: Type) -> Value<'static> {
    match kind {
        Type::MinKey => Value::MinKey,
        Type::Undefined => Value::Undefined,
        Type::Null => Value::Null,
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => Value::Double(f64::NAN),
        Type::String | Type::Symbol => Value::String("".into()),
        Type::Document => Value::Document(Doc::EMPTY),
        Type::Array => Value::Array(Doc::EMPTY),
        Type::Binary => Value::Binary(Binary { subtype: 0, bytes: &[] }),
        Type::ObjectId => Value::ObjectId(NO_OBJECT_ID),
        Type::Boolean => Value::Boolean(false),
        Type::DateTime => Value::DateTime(i64::MIN),
        Type::Timestamp => Value::Timestamp(0),
        Type::Regex => Value::Regex { pattern: "".into(), options: "".into() },
        Type::DbPointer => Value::DbPointer { ns: "".into(), id: NO_OBJECT_ID },
        Type::Code => Value::Code("".into()),
        Type::CodeWithScope => Value::CodeWithScope { code: "".into(), scope: Doc::EMPTY },
        Type::MaxKey => Value::MaxKey,
    }
}

/// The least value behind all that compare with values of this type.
fn bracket_end(kind: Type) -> Value<'static> {
    bracket_start(match kind {
        Type::MinKey => Type::Undefined,
        Type::Undefined => Type::Null,
        Type::Null => Type::Double,
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => Type::String,
        Type::String | Type::Symbol => Type::Document,
        Type::Document => Type::Array,
        Type::Array => Type::Binary,
        Type::Binary => Type::ObjectId,
        Type::ObjectId => Type::Boolean,
        Type::Boolean => Type::DateTime,
        Type::DateTime => Type::Timestamp,
        Type::Timestamp => Type::Regex,
        Type::Regex => Type::DbPointer,
        Type::DbPointer => Type::Code,
        Type::Code => Type::CodeWithScope,
        Type::CodeWithScope | Type::MaxKey => Type::MaxKey,
    })
}

/// Whether a collation would change how `value` compares.
fn holds_string(value: Value<'_>) -> bool {
    match value {
        Value::String(_) | Value::Symbol(_) => true,
        Value::Document(doc) | Value::Array(doc) => doc.values().any(holds_string),
        _ => false,
    }
}

type Order<'a> = Option<&'a dyn Collator>;

fn cmp(a: &ValueBuf, b: &ValueBuf, order: Order<'_>) -> Ordering {
    compare(a.get(), b.get(), order)
}

/// The intervals that both lists cover.
fn intersect(a: &[Interval], b: &[Interval], order: Order<'_>) -> Vec<Interval> {
    let mut both = Vec::new();
    for a in a {
        for b in b {
            let (low, low_inclusive) = match cmp(&a.low, &b.low, order) {
                Ordering::Less => (&b.low, b.low_inclusive),
                Ordering::Greater => (&a.low, a.low_inclusive),
                Ordering::Equal => (&a.low, a.low_inclusive && b.low_inclusive),
            };
            let (high, high_inclusive) = match cmp(&a.high, &b.high, order) {
                Ordering::Less => (&a.high, a.high_inclusive),
                Ordering::Greater => (&b.high, b.high_inclusive),
                Ordering::Equal => (&a.high, a.high_inclusive && b.high_inclusive),
            };
            let is_empty = match cmp(low, high, order) {
                Ordering::Less => false,
                Ordering::Equal => !(low_inclusive && high_inclusive),
                Ordering::Greater => true,
            };
            if !is_empty {
                both.push(Interval {
                    low: low.clone(),
                    low_inclusive,
                    high: high.clone(),
                    high_inclusive,
                });
            }
        }
    }
    both
}

/// The list, of two that bound the same field, that looks narrower.
fn tighter(a: Vec<Interval>, b: Vec<Interval>) -> Vec<Interval> {
    let points = |list: &[Interval]| list.iter().all(Interval::is_point);
    match (points(&a), points(&b)) {
        (true, true) if b.len() < a.len() => b,
        (false, true) => b,
        _ => a,
    }
}

/// The same values as ascending, disjoint intervals.
fn union(mut intervals: Vec<Interval>, order: Order<'_>) -> Vec<Interval> {
    intervals
        .sort_by(|a, b| cmp(&a.low, &b.low, order).then(b.low_inclusive.cmp(&a.low_inclusive)));
    let mut merged: Vec<Interval> = Vec::new();
    for interval in intervals {
        match merged.last_mut() {
            Some(last) if overlap(last, &interval, order) => {
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

/// Whether `next`, which starts at or behind `last`, touches it.
fn overlap(last: &Interval, next: &Interval, order: Order<'_>) -> bool {
    match cmp(&next.low, &last.high, order) {
        Ordering::Less => true,
        Ordering::Equal => last.high_inclusive || next.low_inclusive,
        Ordering::Greater => false,
    }
}
