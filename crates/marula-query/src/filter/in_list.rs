//! The list of `$in`: values in order, without repetition, and regular expressions.

use marula_bson::{Collator, ValueBuf};

use crate::regex::Regex;

/// What `$in` may find: sorted, distinct values, and patterns.
#[derive(Clone, Debug, Default)]
pub struct InList {
    values: Vec<ValueBuf>,
    regexes: Vec<Regex>,
}

impl InList {
    /// Sorts the values and drops repetitions.
    pub fn new(
        mut values: Vec<ValueBuf>,
        regexes: Vec<Regex>,
        collator: Option<&dyn Collator>,
    ) -> Self {
        values.sort_by(|a, b| marula_bson::order::compare(a.get(), b.get(), collator));
        values.dedup_by(|a, b| marula_bson::order::compare(a.get(), b.get(), collator).is_eq());
        InList { values, regexes }
    }

    /// The values in ascending order, without repetition.
    pub fn values(&self) -> &[ValueBuf] {
        &self.values
    }

    /// The regular expressions, in the order given.
    pub fn regexes(&self) -> &[Regex] {
        &self.regexes
    }
}
