//! Scans of a clustered collection. Its records are in the order of `_id`, so conditions on `_id`
//! limit the range of records, and a sort by `_id` needs no sort stage.
//!
//! The records of the oplog are in the order of its entries' times, so conditions on `ts` limit its
//! range in the same way.

use std::cmp::Ordering;

use marula_bson::key_string::{self, successor};
use marula_bson::{Collator, DocBuf, Value, ValueBuf, doc, order};
use marula_db::collection::{Shape, State};
use marula_db::index::spec::same_pattern;
use marula_error::{Result, errors};
use marula_query::filter::{Compare, CompareOp, Node as FilterNode, Predicate};
use marula_query::sort::{SortPart, SortPattern};
use marula_storage::store::prefix_end;
use marula_storage::{Direction, KeyRange};

use crate::bounds::{self, Interval};
use crate::explain;
use crate::plan::{Plan, Stage};
use crate::planner;
use crate::query::{Hint, Query};

errors! {
    min_max_not_compatible() = 6_137_400, "The clustered index is not compatible with the values provided for min/max due to the query collation";
    min_not_below_max() = 6_137_401, "max() must be greater than min()";
    min_max_backward() = 6_137_402, "min() / max() are only supported for forward collection scans on clustered collections";
}

/// A scan of the records of a clustered collection between two values of `_id`.
#[derive(Clone)]
pub struct ClusteredScan {
    /// The records: key strings of `_id`.
    pub range: KeyRange,
    /// The smallest `_id` of the range.
    pub low: Option<ScanEnd>,
    /// The greatest one.
    pub high: Option<ScanEnd>,
    /// The direction.
    pub direction: Direction,
    /// Whether the records are returned in the order of the query's sort.
    pub gives_order: bool,
}

/// An end of the range of a clustered scan.
#[derive(Clone)]
pub struct ScanEnd {
    /// The `_id`, as `explain` shows it.
    pub shown: ValueBuf,
    /// Its key string.
    pub(crate) key: Vec<u8>,
    /// Whether the end itself is in the range.
    pub(crate) is_inclusive: bool,
}

impl ScanEnd {
    fn new(value: Value<'_>, is_inclusive: bool, collator: Option<&dyn Collator>) -> Self {
        let mut key = Vec::new();
        key_string::encode_part(value, false, collator, &mut key);
        let shown = match collator {
            Some(collator) => explain::collated(value, collator),
            None => value.to_buf(),
        };
        ScanEnd { shown, key, is_inclusive }
    }

    /// Returns the smallest bytes greater than every key that starts with this one.
    fn behind(&self) -> Vec<u8> {
        successor(&self.key).unwrap_or_else(|| bounds::all().end)
    }

    /// Returns the start of the records of which this is the smallest.
    fn start(&self) -> Vec<u8> {
        if self.is_inclusive { self.key.clone() } else { self.behind() }
    }

    /// Returns the end of the records of which this is the greatest.
    fn end(&self) -> Vec<u8> {
        if self.is_inclusive { self.behind() } else { self.key.clone() }
    }
}

/// Returns whether `hint` names the clustered index of the collection.
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

/// Returns the scan within the query's conditions on `_id`, and its `min` and `max`; `None` if the
/// collection is not clustered, or if there is no bound and no sort by `_id`.
///
/// Errors: `min_max_not_compatible`, `min_not_below_max`.
pub(crate) fn scan(state: &State, query: &Query) -> Result<Option<ClusteredScan>> {
    if state.options.is_oplog {
        return Ok(scan_of_times(query));
    }
    if state.shape() != Shape::Clustered {
        return Ok(None);
    }
    let collation = state.options.collation.as_ref();
    let has_own_order = query.context.collation.as_ref() == collation;
    let collator = collation.map(|collation| collation.collator());
    let asked = bounds_of(query, b"_id", has_own_order, collator);
    let order = order_of(query).filter(|order| match query.hint {
        Some(Hint::Natural { backward }) => (*order == Direction::Backward) == backward,
        _ => true,
    });
    let order = order.filter(|_| has_own_order || asked.is_free_of_strings());
    let end = |value: Value<'_>, is_inclusive: bool| ScanEnd::new(value, is_inclusive, collator);
    let is_point = asked.is_point();
    let mut low = asked.low.map(|Bound { value, is_inclusive }| {
        let mut low = end(value.get(), is_inclusive);
        // The empty string is the lower bound of the type String here, not a value of the query.
        if value.get() == Value::from("") && !is_point {
            low.shown = value;
        }
        low
    });
    let mut high = asked.high.map(|bound| end(bound.value.get(), bound.is_inclusive));
    let min = id_of(query.min.as_ref(), has_own_order)?.map(|min| end(min, true));
    let max = id_of(query.max.as_ref(), has_own_order)?.map(|max| end(max, false));
    if let (Some(min), Some(max)) = (&min, &max)
        && min.key >= max.key
    {
        return Err(min_not_below_max());
    }
    if let Some(min) = min.filter(|min| low.as_ref().is_none_or(|low| min.start() > low.start())) {
        low = Some(min);
    }
    if let Some(max) = max.filter(|max| high.as_ref().is_none_or(|high| max.end() < high.end())) {
        high = Some(max);
    }
    let all = bounds::all();
    let start = low.as_ref().map_or(all.start, ScanEnd::start);
    let end = high.as_ref().map_or(all.end, ScanEnd::end).max(start.clone());
    let is_wanted = low.is_some() || high.is_some() || order.is_some() || query.hint.is_some();
    Ok(is_wanted.then(|| ClusteredScan {
        range: KeyRange { start, end },
        low,
        high,
        direction: order.unwrap_or(Direction::Forward),
        gives_order: order.is_some(),
    }))
}

/// Returns the scan of the oplog's entries within the query's conditions on `ts`; `None` if there
/// is no bound.
fn scan_of_times(query: &Query) -> Option<ClusteredScan> {
    let asked = bounds_of(query, b"ts", true, None);
    let end = |bound: Option<Bound>| {
        let Bound { value, is_inclusive } = bound?;
        let Value::Timestamp(time) = value.get() else { return None };
        Some(ScanEnd { key: time.to_be_bytes().to_vec(), shown: value, is_inclusive })
    };
    let (low, high) = (end(asked.low), end(asked.high));
    let all = bounds::all();
    let start = low.as_ref().map_or(all.start, ScanEnd::start);
    let end = high.as_ref().map_or(all.end, ScanEnd::end).max(start.clone());
    (low.is_some() || high.is_some()).then_some(ClusteredScan {
        range: KeyRange { start, end },
        low,
        high,
        direction: Direction::Forward,
        gives_order: false,
    })
}

/// Fails if a scan between `min` and `max` would go backward.
pub(crate) fn check_direction(query: &Query, plans: &[Plan]) -> Result<()> {
    let is_backward = |stage: &Stage| matches!(stage, Stage::Collscan(scan) if scan.direction == Direction::Backward);
    let is_between = query.min.is_some() || query.max.is_some();
    match is_between && plans.iter().any(|plan| plan.root.any(&is_backward)) {
        true => Err(min_max_backward()),
        false => Ok(()),
    }
}

/// Returns the scan direction that gives the query's sort order, or one of its free orders.
fn order_of(query: &Query) -> Option<Direction> {
    match &query.sort {
        Some(sort) => direction_of(sort),
        None => query.free_orders.iter().find_map(direction_of),
    }
}

/// Returns the scan direction that gives an order, if there is one. As in mongod, a sort by more
/// than `_id` needs a sort stage, although `_id` is unique.
pub(crate) fn direction_of(order: &SortPattern) -> Option<Direction> {
    match order.parts() {
        [SortPart::Path { path, descending }] if path.is_single() && path.first() == b"_id" => {
            Some(if *descending { Direction::Backward } else { Direction::Forward })
        }
        _ => None,
    }
}

/// A value of `_id` that bounds a scan.
struct Bound {
    value: ValueBuf,
    is_inclusive: bool,
}

impl Bound {
    fn new(value: Value<'_>, is_inclusive: bool) -> Self {
        Bound { value: value.to_buf(), is_inclusive }
    }
}

/// The range of `_id` within the conditions.
#[derive(Default)]
struct Bounds {
    low: Option<Bound>,
    high: Option<Bound>,
}

impl Bounds {
    /// Returns the intersection of both.
    fn and(self, other: Bounds, collator: Option<&dyn Collator>) -> Bounds {
        let narrower = |a: Option<Bound>, b: Option<Bound>, further: Ordering| match (a, b) {
            (Some(a), Some(b)) => {
                let order = order::compare(a.value.get(), b.value.get(), collator);
                Some(match order {
                    Ordering::Equal => {
                        Bound { is_inclusive: a.is_inclusive && b.is_inclusive, ..a }
                    }
                    order if order == further => a,
                    _ => b,
                })
            }
            (a, b) => a.or(b),
        };
        Bounds {
            low: narrower(self.low, other.low, Ordering::Greater),
            high: narrower(self.high, other.high, Ordering::Less),
        }
    }

    fn ends(&self) -> Option<(&Bound, &Bound)> {
        self.low.as_ref().zip(self.high.as_ref())
    }

    fn is_point(&self) -> bool {
        self.ends().is_some_and(|(low, high)| low.value == high.value)
    }

    /// Returns whether no value within the range compares differently under a collation.
    fn is_free_of_strings(&self) -> bool {
        self.ends().is_some_and(|(low, high)| {
            let (low, high) = (low.value.get(), high.value.get());
            bounds::are_free_of_strings(&[Interval::new(low, true, high, true)])
        })
    }
}

impl From<Interval> for Bounds {
    fn from(interval: Interval) -> Self {
        let Interval { low, low_inclusive, high, high_inclusive } = interval;
        Bounds {
            low: Some(Bound { value: low, is_inclusive: low_inclusive }),
            high: Some(Bound { value: high, is_inclusive: high_inclusive }),
        }
    }
}

/// Returns the range of a field within comparisons and lists; other predicates do not bound a scan
/// of records.
fn bounds_of(
    query: &Query,
    field: &[u8],
    has_own_order: bool,
    collator: Option<&dyn Collator>,
) -> Bounds {
    let mut conjuncts = Vec::new();
    planner::flatten(query.filter.root(), &mut conjuncts);
    let asked = conjuncts.into_iter().filter_map(|node| match node {
        FilterNode::Path(at) if at.path.is_single() && at.path.first() == field => {
            bounds_of_predicate(&at.predicate, has_own_order, collator)
        }
        _ => None,
    });
    asked.fold(Bounds::default(), |all, next| all.and(next, collator))
}

/// Returns the bounds with each end that a collation might move replaced by the end of its type: in
/// another order, strings and the values that contain them may be anywhere within their type.
fn widened(asked: Bounds) -> Bounds {
    let Bounds { low, high } = asked;
    let class = |bound: &Bound| Bounds::from(bounds::class(bound.value.kind()));
    let may_move = |bound: &Bound| holds_string(bound.value.get());
    Bounds {
        low: low.and_then(|low| if may_move(&low) { class(&low).low } else { Some(low) }),
        high: high.and_then(|high| if may_move(&high) { class(&high).high } else { Some(high) }),
    }
}

/// Returns whether a value is a string or contains one.
fn holds_string(value: Value<'_>) -> bool {
    match value {
        Value::String(_) | Value::Symbol(_) => true,
        Value::Document(doc) | Value::Array(doc) => doc.values().any(holds_string),
        _ => false,
    }
}

fn bounds_of_predicate(
    predicate: &Predicate,
    has_own_order: bool,
    collator: Option<&dyn Collator>,
) -> Option<Bounds> {
    let asked = match predicate {
        Predicate::Compare(compare) => {
            let whole = Bounds::from(bounds::class(compare.value.kind()));
            let asked = bounds_of_comparison(compare);
            Bounds { low: asked.low.or(whole.low), high: asked.high.or(whole.high) }
        }
        // An `$expr` compares values of all types.
        Predicate::InternalExpr(compare) => {
            let has_place = has_own_order || !holds_string(compare.value.get());
            return has_place.then(|| bounds_of_comparison(compare));
        }
        Predicate::In(list) if list.regexes().is_empty() => {
            let compare = |a: &&ValueBuf, b: &&ValueBuf| order::compare(a.get(), b.get(), collator);
            let low = list.values().iter().min_by(compare)?;
            let high = list.values().iter().max_by(compare)?;
            Interval::new(low.get(), true, high.get(), true).into()
        }
        _ => return None,
    };
    Some(if has_own_order { asked } else { widened(asked) })
}

/// Returns the bounds of one comparison.
fn bounds_of_comparison(compare: &Compare) -> Bounds {
    let bound = |is_inclusive| Some(Bound::new(compare.value.get(), is_inclusive));
    match compare.op {
        CompareOp::Eq => Bounds { low: bound(true), high: bound(true) },
        CompareOp::Lt => Bounds { high: bound(false), low: None },
        CompareOp::Lte => Bounds { high: bound(true), low: None },
        CompareOp::Gt => Bounds { low: bound(false), high: None },
        CompareOp::Gte => Bounds { low: bound(true), high: None },
    }
}

impl ClusteredScan {
    /// Returns whether the scan covers only part of the collection.
    pub(crate) fn is_bounded(&self) -> bool {
        self.low.is_some() || self.high.is_some()
    }

    /// Returns whether the scan contains at most one record.
    pub(crate) fn is_point(&self) -> bool {
        prefix_end(&self.range.start).is_some_and(|end| end == self.range.end)
    }
}

/// Returns the `_id` of a `min` or `max`, which must have no other field.
///
/// Errors: `min_max_not_compatible`.
fn id_of(bound: Option<&DocBuf>, has_own_order: bool) -> Result<Option<Value<'_>>> {
    let Some(bound) = bound.map(DocBuf::as_doc) else { return Ok(None) };
    let mut fields = bound.iter();
    match (fields.next(), fields.next()) {
        (Some(id), None) if id.name == "_id" => {
            let id = id.value.get();
            let has_place = has_own_order || !bounds::may_hold_string(id);
            if has_place { Ok(Some(id)) } else { Err(min_max_not_compatible()) }
        }
        _ => Err(min_max_not_compatible()),
    }
}
