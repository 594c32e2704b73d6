//! The values that `$addToSet` adds and `$pullAll` removes: each is found among them in a few
//! comparisons, since both they and the elements of an array may be many.

use std::cmp::Ordering;

use marula_bson::{Collator, RawValue, ValueBuf, order};
use marula_error::Result;

use crate::meter;

/// Different values.
#[derive(Debug)]
pub(in crate::update) struct ValueSet {
    /// In the order in which they were given.
    values: Vec<ValueBuf>,
    /// Their places in `values`, by the order of BSON.
    sorted: Vec<usize>,
}

impl ValueSet {
    /// The values, and of equal ones the first.
    ///
    /// Errors: the operation must end.
    pub(super) fn new(mut values: Vec<ValueBuf>, collator: Option<&dyn Collator>) -> Result<Self> {
        let compare = |values: &[ValueBuf], a: usize, b: usize| -> Ordering {
            order::compare_raw(values[a].as_raw(), values[b].as_raw(), collator)
        };
        let mut sorted: Vec<usize> = (0..values.len()).collect();
        meter::sort_by(&mut sorted, |&a, &b| compare(&values, a, b))?;
        let mut firsts = sorted.clone();
        firsts.dedup_by(|later, first| compare(&values, *first, *later).is_eq());
        if firsts.len() < sorted.len() {
            // The sort is stable, so the first of equal values is the first of them given.
            let mut is_first = vec![false; values.len()];
            firsts.iter().for_each(|&place| is_first[place] = true);
            let mut place = 0..;
            values.retain(|_| place.next().is_some_and(|place| is_first[place]));
            return ValueSet::new(values, collator);
        }
        Ok(ValueSet { values, sorted })
    }

    /// The values, in the order in which they were given.
    pub(super) fn values(&self) -> &[ValueBuf] {
        &self.values
    }

    /// The place of a value among [`ValueSet::values`].
    ///
    /// Errors: the operation must end.
    pub(super) fn find(
        &self,
        value: RawValue<'_>,
        collator: Option<&dyn Collator>,
    ) -> Result<Option<usize>> {
        meter::spend(meter::ELEMENT)?;
        let order = |&place: &usize| -> Ordering {
            order::compare_raw(self.values[place].as_raw(), value, collator)
        };
        Ok(self.sorted.binary_search_by(order).ok().map(|at| self.sorted[at]))
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::ext_json;

    use super::*;

    #[test]
    fn the_first_of_equal_values_stays_and_is_found() {
        let doc =
            ext_json::parse(r#"{"v": [3, "a", 1.0, 1, {"x": 1}, "a", {"$numberLong": "3"}]}"#);
        let doc = doc.unwrap();
        let array = doc.as_doc().get("v").and_then(|array| array.as_array()).unwrap();
        let given: Vec<ValueBuf> = array.iter().map(|element| element.value.to_buf()).collect();
        let set = ValueSet::new(given.clone(), None).unwrap();
        let kept = [0, 1, 2, 4].map(|place| given[place].clone());
        assert_eq!(set.values(), kept);
        let found: Vec<Option<usize>> =
            given.iter().map(|value| set.find(value.as_raw(), None).unwrap()).collect();
        assert_eq!(found, [Some(0), Some(1), Some(2), Some(2), Some(3), Some(1), Some(0)]);
        let other = ext_json::parse(r#"{"v": {"x": 2}}"#).unwrap();
        assert_eq!(set.find(other.as_doc().get_raw(b"v").unwrap(), None).unwrap(), None);
    }
}
