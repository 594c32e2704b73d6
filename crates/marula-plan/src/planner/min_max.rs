//! `min` and `max`: a scan of the hinted index between two keys.

use marula_bson::{Doc, DocBuf, Value, key_string};
use marula_db::Index;
use marula_db::collection::State;
use marula_db::index::IndexKind;
use marula_error::{Result, errors};
use marula_storage::KeyRange;

use super::access::Access;
use super::{IndexView, find_hinted, finish, heeded_hint, whole_filter};
use crate::bounds::{self, KeyBounds};
use crate::clustered;
use crate::plan::{Plan, ScanBounds, Stage};
use crate::query::{Hint, Query};

errors! {
    min_max_need_hint() = 51_173, "When using min()/max() a hint of which index to use must be provided";
    min_max_fields() = 51_174, "The index chosen is not compatible with min/max";
    min_not_below_max() = 51_175, "The value provided for min() does not come before the value provided for max() in the hinted index";
    natural_with_min_max() = NoQueryExecutionPlans, "min and max are incompatible with $natural";
}

/// Returns the plan of a query with `min` or `max`.
pub(super) fn plan(state: &State, query: &Query) -> Result<Plan> {
    let index = match heeded_hint(query) {
        None => return Err(min_max_need_hint()),
        Some(Hint::Natural { .. }) => return Err(natural_with_min_max()),
        Some(hint) if clustered::is_hinted(state, hint) => {
            return super::walk_records(state, query);
        }
        Some(hint) => find_hinted(state, hint)?,
    };
    // A string has no position among strings in another order.
    let has_text = |bound: &Option<DocBuf>| {
        bound.as_ref().is_some_and(|bound| bound.as_doc().values().any(bounds::may_hold_string))
    };
    let view = IndexView::new(index, query);
    if !view.same_collation && (has_text(&query.min) || has_text(&query.max)) {
        return Err(min_max_fields());
    }
    let end = |bound: &Option<DocBuf>, is_max| match bound {
        Some(bound) => index_key(index, bound.as_doc()),
        None => Ok(outermost_key(index, is_max)),
    };
    let range = KeyRange { start: end(&query.min, false)?, end: end(&query.max, true)? };
    if range.start >= range.end {
        return Err(min_not_below_max());
    }
    let scan = view.scan_of(ScanBounds { fields: None, keys: KeyBounds::Range(range) });
    let access = Access::with_filter(Stage::Ixscan(scan), whole_filter(query));
    Ok(finish::finish(access, query, &[view]))
}

/// Returns the key string of a document that has the index's fields, all and in order.
fn index_key(index: &Index, bound: Doc<'_>) -> Result<Vec<u8>> {
    let names: Vec<_> = bound.iter().map(|element| element.name).collect();
    let wanted: Vec<_> = index.spec.key.as_doc().iter().map(|element| element.name).collect();
    if names != wanted || matches!(index.spec.kind, IndexKind::Wildcard(_)) {
        return Err(min_max_fields());
    }
    let collator = index.spec.collation.as_ref().map(|collation| collation.collator());
    let mut key = Vec::new();
    for (part, value) in index.spec.parts.iter().zip(bound.values()) {
        key_string::encode_part(value, part.descending, collator, &mut key);
    }
    Ok(key)
}

/// Returns the missing bound of the query: the first possible key of an index, or the last one.
/// Like any `max`, the last one is exclusive.
fn outermost_key(index: &Index, is_max: bool) -> Vec<u8> {
    let mut key = Vec::new();
    for part in &index.spec.parts {
        let value = if part.descending == is_max { Value::MinKey } else { Value::MaxKey };
        key_string::encode_part(value, part.descending, None, &mut key);
    }
    key
}
