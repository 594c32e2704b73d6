//! Index bounds: the values of an indexed field that a matching document can have.
//!
//! Bounds are intervals of values per field of the index, in BSON order. They never exclude a
//! matching document. They also record whether they admit other documents, which a residual filter
//! then rejects.
//!
//! ```text
//!   predicate on a field ──► kind (the table of kinds of key parts)
//!                              │
//!            predicate, hashed, places, wildcard: intervals, and the check that remains
//!                              │
//!            interval: union, intersection and complement of intervals
//!                              │
//!                            keys: ranges of an index's key strings
//! ```

mod hashed;
pub mod interval;
mod keys;
pub mod kind;
pub mod places;
mod predicate;
pub mod wildcard;

pub use interval::{Interval, Order};
pub use keys::{FieldBounds, KeyBounds, Verdict, all};
pub use kind::{Bounds, Exactness, PartKind, PartView};
pub(crate) use predicate::{are_free_of_strings, class, may_hold_string};

/// The part of an index that can belong to matching documents: for each field, ascending and
/// disjoint intervals.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexBounds {
    /// The intervals, one list per field of the index.
    pub fields: Vec<Vec<Interval>>,
}

impl IndexBounds {
    /// Returns the bounds that include a whole index with this number of fields.
    pub fn whole(field_count: usize) -> Self {
        IndexBounds { fields: vec![vec![Interval::all()]; field_count] }
    }

    /// Returns the number of leading fields that have exactly one value each.
    pub fn fixed_fields(&self) -> usize {
        let is_fixed =
            |intervals: &&Vec<Interval>| matches!(intervals.as_slice(), [one] if one.is_point());
        self.fields.iter().take_while(is_fixed).count()
    }

    /// Returns the number of distinct keys, if each field has a few single values.
    pub fn points(&self) -> Option<usize> {
        self.fields.iter().try_fold(1_usize, |count, intervals| {
            intervals.iter().all(Interval::is_point).then(|| count.saturating_mul(intervals.len()))
        })
    }
}
