//! Walks over a clustered collection: its records lie in the order of `_id`, so what a query says of `_id` bounds
//! the records that are walked, and a sort by `_id` needs no sorting.

use std::sync::Arc;

use marula_bson::{Doc, Value, ValueBuf, doc, key_string};
use marula_db::collection::{Shape, State};
use marula_db::index::spec::same_pattern;
use marula_db::keys::Ident;
use marula_db::{Index, IndexSpec};
use marula_error::Result;
use marula_query::sort::SortPart;
use marula_storage::store::prefix_end;
use marula_storage::{Direction, KeyRange};

use crate::bounds;
use crate::planner;
use crate::query::{Hint, Query};

/// A walk over the records of a clustered collection between two values of `_id`.
pub struct ClusteredScan {
    /// The records: key strings of `_id`.
    pub range: KeyRange,
    /// The least `_id` walked, as `explain` shows it.
    pub low: Option<ValueBuf>,
    /// The greatest one.
    pub high: Option<ValueBuf>,
    /// Which way.
    pub direction: Direction,
    /// Whether the records come in the order that the query asks for.
    pub gives_order: bool,
}

/// Whether `hint` names the clustered index of the collection.
pub(crate) fn is_hinted(state: &State, hint: &Hint) -> bool {
    match hint {
        Hint::Name(name) => state.is_clustered_as(name),
        Hint::Key(key) => {
            state.options.clustered.is_some()
                && same_pattern(doc! { "_id": 1 }.as_doc(), key.as_doc())
        }
        Hint::Natural { .. } => false,
    }
}

/// The walk that the query's conditions on `_id`, and its `min` and `max`, allow; `None` where the collection is not
/// clustered, or where nothing bounds it and no order by `_id` is wanted.
pub(crate) fn scan(state: &State, query: &Query) -> Result<Option<ClusteredScan>> {
    if state.shape() != Shape::Clustered {
        return Ok(None);
    }
    // What an index on `_id` would be bounded to.
    let index =
        Arc::new(Index::new(Ident(0), IndexSpec::id_index(state.options.collation.as_ref())?));
    let order = order_of(query).filter(|_| planner::has_collation_of(&index, query));
    let mut scan = ClusteredScan {
        range: bounds::all(),
        low: None,
        high: None,
        direction: order.unwrap_or(Direction::Forward),
        gives_order: order.is_some(),
    };
    if let Some((intervals, range)) = planner::bounds_on(&index, query) {
        scan.range = range;
        scan.low = intervals.first().map(|interval| interval.low.clone());
        scan.high = intervals.last().map(|interval| interval.high.clone());
    }
    let collator = state.options.collation.as_ref().map(|collation| collation.collator());
    let key = |value: Value<'_>| {
        let mut key = Vec::new();
        key_string::encode_part(value, false, collator, &mut key);
        key
    };
    if let Some(min) = id_of(query.min.as_ref().map(|min| min.as_doc())) {
        let start = key(min);
        if start > scan.range.start {
            scan.range.start = start;
            scan.low = Some(min.to_buf());
        }
    }
    if let Some(max) = id_of(query.max.as_ref().map(|max| max.as_doc())) {
        let end = key(max);
        if end < scan.range.end {
            scan.range.end = end;
            scan.high = Some(max.to_buf());
        }
    }
    let is_wanted = scan.low.is_some() || order.is_some() || query.hint.is_some();
    Ok((is_wanted || scan.high.is_some()).then_some(scan))
}

/// The direction in which records come in the order of the query's sort, if there is one: no two have one `_id`, so
/// that only the first part decides.
fn order_of(query: &Query) -> Option<Direction> {
    match query.sort.as_ref()?.parts().first()? {
        SortPart::Path { path, descending } if path.is_single() && path.first() == b"_id" => {
            Some(if *descending { Direction::Backward } else { Direction::Forward })
        }
        _ => None,
    }
}

impl ClusteredScan {
    /// Whether the walk holds no more than one record.
    pub(crate) fn is_point(&self) -> bool {
        prefix_end(&self.range.start).is_some_and(|end| end == self.range.end)
    }
}

fn id_of(bound: Option<Doc<'_>>) -> Option<Value<'_>> {
    bound?.get("_id")
}
