//! Index bounds: which values of an indexed field can belong to a document that matches.
//!
//! Bounds are intervals of values per field of the index, in BSON order; they never leave out a
//! document that matches, and say whether they let others through, which a filter then rejects.
//!
//! `interval` is the arithmetic, `predicate` says what each operator bounds, `kind` is the table of
//! kinds of key parts: a hashed field is bounded by the hash of a value, say. `keys` turns
//! intervals into bytes of an index.

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

/// What of an index can belong to documents that match: for each field, intervals, ascending and
/// disjoint.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexBounds {
    /// The intervals, one list per field of the index.
    pub fields: Vec<Vec<Interval>>,
}

impl IndexBounds {
    /// The whole of an index with so many fields.
    pub fn whole(field_count: usize) -> Self {
        IndexBounds { fields: vec![vec![Interval::all()]; field_count] }
    }

    /// How many leading fields have one value each.
    pub fn fixed_fields(&self) -> usize {
        let is_fixed =
            |intervals: &&Vec<Interval>| matches!(intervals.as_slice(), [one] if one.is_point());
        self.fields.iter().take_while(is_fixed).count()
    }

    /// How many different keys there are, where each field has a few values.
    pub fn points(&self) -> Option<usize> {
        self.fields.iter().try_fold(1_usize, |count, intervals| {
            intervals.iter().all(Interval::is_point).then(|| count.saturating_mul(intervals.len()))
        })
    }
}
