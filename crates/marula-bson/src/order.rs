//! The order of BSON values, as sorts, comparisons and indexes see it.

use std::cmp::Ordering;

use crate::{Doc, Value};

/// Compares strings by the rules of a language; ICU stands behind it, which this crate does not know.
pub trait Collator: Send + Sync {
    /// Compares two strings.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// Appends a key to `out` that compares by bytes as the strings compare.
    fn sort_key(&self, text: &[u8], out: &mut Vec<u8>);
}

/// Compares two values of any types.
pub fn compare(_a: Value<'_>, _b: Value<'_>, _collator: Option<&dyn Collator>) -> Ordering {
    todo!()
}

/// Compares two documents field by field: type class, then name, then value.
pub fn compare_docs(_a: Doc<'_>, _b: Doc<'_>, _collator: Option<&dyn Collator>) -> Ordering {
    todo!()
}
