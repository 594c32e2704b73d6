//! Walks over a clustered collection: its records lie in the order of `_id`, so what a query says of `_id` bounds
//! the records that are walked, and a sort by `_id` needs no sorting.

use std::cmp::Ordering;
use std::sync::Arc;

use marula_bson::{Collator, Doc, Value, ValueBuf, doc, key_string, order};
use marula_db::collection::{Shape, State};
use marula_db::index::spec::same_pattern;
use marula_db::keys::Ident;
use marula_db::{Index, IndexSpec};
use marula_error::Result;
use marula_query::filter::{CompareOp, Node as FilterNode, Predicate};
use marula_query::sort::SortPart;
use marula_storage::store::prefix_end;
use marula_storage::{Direction, KeyRange};

use crate::bounds::{self, Interval};
use crate::explain;
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
    let order = match query.hint {
        Some(Hint::Natural { .. }) => None,
        _ => order_of(query),
    };
    let order = order.filter(|_| planner::has_collation_of(&index, query));
    let mut scan = ClusteredScan {
        range: bounds::all(),
        low: None,
        high: None,
        direction: order.unwrap_or(Direction::Forward),
        gives_order: order.is_some(),
    };
    if let Some(interval) = bounds_of(query, &index) {
        scan.range = planner::range_of(&index, query, &interval);
        scan.low = Some(interval.low);
        scan.high = Some(interval.high);
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
    if let Some(collator) = collator {
        let shown = |bound: ValueBuf| explain::collated(bound.get(), collator);
        // Where strings begin, no string is meant.
        let is_meant = |bound: &ValueBuf| bound.get() != Value::from("");
        scan.low = scan.low.map(|low| if is_meant(&low) { shown(low) } else { low });
        scan.high = scan.high.map(shown);
    }
    let is_wanted = scan.low.is_some() || order.is_some() || query.hint.is_some();
    Ok((is_wanted || scan.high.is_some()).then_some(scan))
}

/// The direction in which records come in the order of the query's sort, if there is one. As in mongod a sort by more
/// than `_id` is carried out, though no two records have one `_id`.
fn order_of(query: &Query) -> Option<Direction> {
    match query.sort.as_ref()?.parts() {
        [SortPart::Path { path, descending }] if path.is_single() && path.first() == b"_id" => {
            Some(if *descending { Direction::Backward } else { Direction::Forward })
        }
        _ => None,
    }
}

/// The values of `_id` that comparisons and lists leave; nothing else that is said of it bounds a walk over records.
fn bounds_of(query: &Query, index: &Arc<Index>) -> Option<Interval> {
    let has_own_order = planner::has_collation_of(index, query);
    let collator = index.spec.collation.as_ref().map(|collation| collation.collator());
    let mut conjuncts = Vec::new();
    planner::flatten(query.filter.root(), &mut conjuncts);
    let asked = conjuncts.into_iter().filter_map(|node| match node {
        FilterNode::Path(at) if at.path.is_single() && at.path.first() == b"_id" => {
            interval_of(&at.predicate, collator).map(|interval| {
                let ends = [&interval.low, &interval.high];
                match has_own_order || !ends.iter().any(|end| bounds::holds_string(end.get())) {
                    true => interval,
                    // In another order strings, and what holds them, may lie anywhere among their like.
                    false => between_classes(&interval),
                }
            })
        }
        _ => None,
    });
    asked.reduce(|mut all, next| {
        let compare = |a: &ValueBuf, b: &ValueBuf| order::compare(a.get(), b.get(), collator);
        match compare(&next.low, &all.low) {
            Ordering::Greater => {
                (all.low, all.low_inclusive) = (next.low, next.low_inclusive);
            }
            Ordering::Equal => all.low_inclusive &= next.low_inclusive,
            Ordering::Less => {}
        }
        match compare(&next.high, &all.high) {
            Ordering::Less => {
                (all.high, all.high_inclusive) = (next.high, next.high_inclusive);
            }
            Ordering::Equal => all.high_inclusive &= next.high_inclusive,
            Ordering::Greater => {}
        }
        all
    })
}

/// All values from the least of the low end's type to the greatest of the high end's.
fn between_classes(interval: &Interval) -> Interval {
    let low = bounds::class(interval.low.get().kind());
    let high = bounds::class(interval.high.get().kind());
    Interval { high: high.high, high_inclusive: high.high_inclusive, ..low }
}

fn interval_of(predicate: &Predicate, collator: Option<&dyn Collator>) -> Option<Interval> {
    match predicate {
        Predicate::Compare(compare) => {
            let value = compare.value.get();
            if matches!(value, Value::Array(_)) {
                return None;
            }
            let whole = bounds::class(value.kind());
            let value = compare.value.clone();
            Some(match compare.op {
                CompareOp::Eq => Interval::point(value.get()),
                CompareOp::Lt => Interval { high: value, high_inclusive: false, ..whole },
                CompareOp::Lte => Interval { high: value, high_inclusive: true, ..whole },
                CompareOp::Gt => Interval { low: value, low_inclusive: false, ..whole },
                CompareOp::Gte => Interval { low: value, low_inclusive: true, ..whole },
            })
        }
        Predicate::In(list) if list.regexes().is_empty() => {
            let compare = |a: &&ValueBuf, b: &&ValueBuf| order::compare(a.get(), b.get(), collator);
            let low = list.values().iter().min_by(compare)?;
            let high = list.values().iter().max_by(compare)?;
            Some(Interval::new(low.get(), true, high.get(), true))
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
