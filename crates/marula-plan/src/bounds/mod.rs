//! Index bounds: which values of an indexed field can belong to a document that matches.
//!
//! Bounds are intervals of values per field of the index, in BSON order; they never leave out a document that
//! matches, and may let others through, which a filter then rejects. Several fields together become
//! ranges of key strings: points on the leading fields, an interval on the next.
//!
//! `interval` is the arithmetic, `predicate` says what each operator bounds, `kind` is the table of kinds of key
//! parts: a hashed field is bounded by the hash of a value, say.

mod hashed;
pub mod interval;
pub mod kind;
pub mod places;
mod predicate;

use marula_bson::{Collator, FieldPath, Value, key_string};
use marula_db::Index;
use marula_query::filter::{Filter, Node, Predicate};
use marula_storage::KeyRange;
use marula_storage::store::prefix_end;

pub use interval::{Interval, Order};
pub use kind::{Bounds, Exactness, PartKind, PartView};

/// Ranges of key strings that one scan walks at most: beyond, the last fields' points are given up.
const RANGES_MAX: usize = 10_000;

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
        let parts = PartView::of(index, collation_matches);
        let mut fields: Vec<Vec<Interval>> = Vec::new();
        let mut point_fields = 0;
        for (position, part) in parts.iter().enumerate() {
            if shares_array(&parts, position, fields.len()) {
                break;
            }
            let on_path = conditions.iter().filter(|(path, _)| *path == part.path);
            let mut intervals: Option<Vec<Interval>> = None;
            for (_, predicate) in on_path {
                let Some(Bounds { intervals: found, .. }) = part.bounds(predicate) else {
                    continue;
                };
                intervals = Some(match intervals {
                    // Under arrays, two conditions may be met by two elements: only one bounds the scan.
                    Some(known) if part.multikey != 0 => tighter(known, found),
                    Some(known) => interval::intersect(&known, &found, part.order),
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
fn shares_array(parts: &[PartView<'_>], position: usize, bounded: usize) -> bool {
    let part = &parts[position];
    parts[..bounded].iter().any(|other| {
        let common = part.path.parts().iter().zip(other.path.parts());
        let common = common.take_while(|(a, b)| a == b).count();
        (0..common)
            .any(|component| (part.multikey | other.multikey) & 1u64 << component.min(63) != 0)
    })
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
