//! Choosing a plan: candidates from the indexes' bounds, the best by how tight they are.

use std::sync::Arc;

use marula_bson::{Doc, ValueBuf};
use marula_db::Index;
use marula_db::collection::State;
use marula_db::index::IndexKind;
use marula_db::index::spec::same_pattern;
use marula_error::{Result, errors};
use marula_query::filter::{CompareOp, Filter, Node, Predicate};
use marula_query::sort::SortPart;
use marula_storage::{Direction, KeyRange};

use crate::bounds::places::is_asked_for_places;
use crate::bounds::{self, IndexBounds, Interval, PartView};
use crate::clustered;
use crate::plan::{Access, Ixscan, Plan};
use crate::query::{Hint, Query};

errors! {
    bad_hint() = BadValue, "hint provided does not correspond to an existing index";
    min_max_need_hint() = 51_173, "When using min()/max() a hint of which index to use must be provided";
    min_max_fields() = 51_174, "The index chosen is not compatible with min/max";
    min_not_below_max() = 51_175, "The value provided for min() does not come before the value provided for max() in the hinted index";
    no_geo_index() = NoQueryExecutionPlans, "unable to find index for $geoNear query";
    near_with_natural() = BadValue, "geoNear expression not allowed with $natural hint";
    no_solutions() = NoQueryExecutionPlans, "No query solutions";
    natural_with_min_max() = NoQueryExecutionPlans, "min and max are incompatible with $natural";
}

/// Chooses how `query` is answered on a collection as it is in `state`.
///
/// Errors: `bad_hint`, and the rules of `min` and `max`.
pub fn plan(state: &State, query: Query) -> Result<(Plan, Query)> {
    plan_inner(state, query)
        .map_err(|error| error.caused_by("error processing query: planner returned error"))
}

fn plan_inner(state: &State, query: Query) -> Result<(Plan, Query)> {
    if query.filter.near().is_some() {
        return match &query.hint {
            Some(Hint::Natural { .. }) => Err(near_with_natural()),
            _ => Err(no_geo_index()),
        };
    }
    if query.min.is_some() || query.max.is_some() {
        return plan_min_max(state, query);
    }
    let access = match &query.hint {
        Some(Hint::Natural { backward }) => Access::Collscan(direction(*backward)),
        Some(hint) if clustered::is_hinted(state, hint) => walk_records(state, &query)?,
        Some(hint) => hinted(find_hinted(state, hint)?, &query)?,
        None => choose(state, &query)?,
    };
    Ok(finish(access, query))
}

/// Adds the sort and the filter that the access path leaves to do.
fn finish(access: Access, mut query: Query) -> (Plan, Query) {
    let needs_sort = match (&query.sort, &access) {
        (None, _) | (Some(_), Access::Nothing | Access::IdHack(_)) => false,
        (Some(_), Access::Collscan(_)) => true,
        (Some(_), Access::Clustered(scan)) => !scan.gives_order,
        (Some(_), Access::Ixscan(scan)) => order_of(scan, &query).is_none(),
    };
    let all = Filter::from_node(Node::AlwaysTrue, &query.context);
    let filter = std::mem::replace(&mut query.filter, all);
    let filter = if filter.is_always_true() { None } else { Some(filter) };
    (Plan { access, filter, needs_sort }, query)
}

/// The plan of a query that asks for one `_id`.
pub fn plan_id(id: ValueBuf) -> Plan {
    Plan { access: Access::IdHack(id), filter: None, needs_sort: false }
}

fn direction(backward: bool) -> Direction {
    if backward { Direction::Backward } else { Direction::Forward }
}

fn find_hinted<'s>(state: &'s State, hint: &Hint) -> Result<&'s Arc<Index>> {
    let found = match hint {
        Hint::Name(name) => state.index(name),
        Hint::Key(key) => {
            state.indexes.iter().find(|index| same_pattern(index.spec.key.as_doc(), key.as_doc()))
        }
        Hint::Natural { .. } => None,
    };
    found.filter(|index| !index.spec.hidden).ok_or_else(bad_hint)
}

/// A walk over the hinted index, whole where the filter does not bound it.
fn hinted(index: &Arc<Index>, query: &Query) -> Result<Access> {
    if matches!(index.spec.kind, IndexKind::Wildcard(_))
        || !is_asked_for_places(index, &query.filter)
    {
        return Err(no_solutions());
    }
    let bounds = IndexBounds::of(&query.filter, index, same_collation(index, query));
    Ok(Access::Ixscan(scan(index, bounds.as_ref(), query)))
}

/// The best access path.
fn choose(state: &State, query: &Query) -> Result<Access> {
    if matches!(query.filter.root(), Node::AlwaysFalse) {
        return Ok(Access::Nothing);
    }
    if let Some(id) = id_point(&query.filter)
        && query.context.collation.is_none()
        && state.options.collation.is_none()
    {
        return Ok(Access::IdHack(id));
    }
    let mut best: Option<(Score, Ixscan)> = None;
    for index in &state.indexes {
        let Some((score, scan)) = candidate(index, query) else { continue };
        if best.as_ref().is_none_or(|(known, _)| score > *known) {
            best = Some((score, scan));
        }
    }
    match best {
        Some((_, scan)) if scan.ranges.is_empty() => Ok(Access::Nothing),
        Some((score, scan)) if score.point_fields > 0 => Ok(Access::Ixscan(scan)),
        Some((_, scan)) => match clustered::scan(state, query)? {
            // Records themselves cost less than entries that lead to them.
            Some(records) if records.low.is_some() => Ok(Access::Clustered(records)),
            _ => Ok(Access::Ixscan(scan)),
        },
        None => walk_records(state, query),
    }
}

/// A walk over the records, as far as the query bounds it.
fn walk_records(state: &State, query: &Query) -> Result<Access> {
    Ok(match clustered::scan(state, query)? {
        Some(scan) => Access::Clustered(scan),
        None => Access::Collscan(Direction::Forward),
    })
}

/// How good a candidate looks; the greater the better, field by field.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// Every field of a unique index is bounded to points: at most so many documents as there are points.
    is_unique_point: bool,
    /// Leading fields bounded to points.
    point_fields: usize,
    /// The order of the entries is the sort's.
    gives_order: bool,
    /// Fields bounded at all.
    bounded_fields: usize,
    /// Of two that are alike, the narrower index.
    fewer_parts: std::cmp::Reverse<usize>,
}

fn candidate(index: &Arc<Index>, query: &Query) -> Option<(Score, Ixscan)> {
    let is_wildcard = matches!(index.spec.kind, IndexKind::Wildcard(_));
    if index.spec.hidden
        || is_wildcard
        || !is_asked_for_places(index, &query.filter)
        || !partial_covers(index, &query.filter)
    {
        return None;
    }
    let bounds = IndexBounds::of(&query.filter, index, same_collation(index, query));
    let scan = scan(index, bounds.as_ref(), query);
    let gives_order = query.sort.is_some() && order_of(&scan, query).is_some();
    // Walking a whole index pays only for its order, and only when every document is in it.
    if bounds.is_none() && (!gives_order || index.spec.sparse || index.spec.partial.is_some()) {
        return None;
    }
    let (point_fields, bounded_fields) =
        bounds.as_ref().map_or((0, 0), |bounds| (bounds.point_fields, bounds.fields.len()));
    let score = Score {
        is_unique_point: index.spec.unique && point_fields == index.spec.parts.len(),
        point_fields,
        gives_order,
        bounded_fields,
        fewer_parts: std::cmp::Reverse(index.spec.parts.len()),
    };
    Some((score, scan))
}

fn scan(index: &Arc<Index>, bounds: Option<&IndexBounds>, query: &Query) -> Ixscan {
    let ranges = bounds.map_or_else(|| vec![bounds::all()], |bounds| bounds.ranges(index));
    let mut scan = Ixscan {
        index: index.clone(),
        ranges,
        direction: Direction::Forward,
        may_repeat: index.is_multikey(),
    };
    if let Some(direction) = order_of(&scan, query) {
        scan.direction = direction;
    }
    scan
}

/// The direction in which the scan's entries come in the order of the query's sort, if there is one.
///
/// Fields that are bounded to one point each come before the sort's fields; a field is in order when no document
/// has an array there, for then a document sorts by its least or greatest element, wherever its entries are.
fn order_of(scan: &Ixscan, query: &Query) -> Option<Direction> {
    let sort = query.sort.as_ref()?;
    let index = &scan.index;
    if !same_collation(index, query) || index.is_multikey() {
        return None;
    }
    let fixed = fixed_fields(scan, query);
    let mut direction = None;
    let parts = PartView::of(index, true);
    let mut parts = parts.iter().take_while(|part| part.kind.is_ordered).enumerate();
    for wanted in sort.parts() {
        let SortPart::Path { path, descending } = wanted else { return None };
        loop {
            let (position, part) = parts.next()?;
            if part.path == path {
                if position >= fixed {
                    let found = if part.descending == *descending {
                        Direction::Forward
                    } else {
                        Direction::Backward
                    };
                    if *direction.get_or_insert(found) != found {
                        return None;
                    }
                }
                break;
            }
            if position >= fixed {
                return None;
            }
        }
    }
    Some(direction.unwrap_or(Direction::Forward))
}

/// How many leading fields of the index the filter bounds to a single value each.
fn fixed_fields(scan: &Ixscan, query: &Query) -> usize {
    let index = &scan.index;
    let Some(bounds) = IndexBounds::of(&query.filter, index, same_collation(index, query)) else {
        return 0;
    };
    let is_fixed = |intervals: &&Vec<Interval>| intervals.len() == 1 && intervals[0].is_point();
    bounds.fields.iter().take_while(is_fixed).count()
}

fn same_collation(index: &Index, query: &Query) -> bool {
    match (&index.spec.collation, &query.context.collation) {
        (None, None) => true,
        (Some(ours), Some(theirs)) => ours.to_doc() == theirs.to_doc(),
        _ => false,
    }
}

/// Whether every document that the filter can mean is in the index: it has no partial filter, or the query says
/// each of the partial filter's conditions itself, or a narrower one.
fn partial_covers(index: &Index, filter: &Filter) -> bool {
    let Some(partial) = &index.spec.partial else { return true };
    let mut wanted = Vec::new();
    flatten(partial.root(), &mut wanted);
    let mut given = Vec::new();
    flatten(filter.root(), &mut given);
    wanted.iter().all(|condition| given.iter().any(|other| implies(other, condition)))
}

fn flatten<'n>(node: &'n Node, out: &mut Vec<&'n Node>) {
    match node {
        Node::And(children) => children.iter().for_each(|child| flatten(child, out)),
        other => out.push(other),
    }
}

/// Whether what satisfies `given` satisfies `wanted`.
fn implies(given: &Node, wanted: &Node) -> bool {
    let (Node::Path(given), Node::Path(wanted)) = (given, wanted) else { return false };
    if given.path != wanted.path {
        return false;
    }
    match (&given.predicate, &wanted.predicate) {
        (Predicate::Compare(given), Predicate::Exists) => !given.value.get().is_nullish(),
        (Predicate::Exists, Predicate::Exists) => true,
        (Predicate::Compare(given), Predicate::Compare(wanted)) => {
            if marula_bson::order::canonical_class(given.value.kind())
                != marula_bson::order::canonical_class(wanted.value.kind())
            {
                return false;
            }
            let order = marula_bson::order::compare(given.value.get(), wanted.value.get(), None);
            match (given.op, wanted.op) {
                (CompareOp::Eq, CompareOp::Eq) => order.is_eq(),
                (CompareOp::Eq | CompareOp::Gt, CompareOp::Gt) if given.op == CompareOp::Eq => {
                    order.is_gt()
                }
                (CompareOp::Gt, CompareOp::Gt | CompareOp::Gte) => order.is_ge(),
                (CompareOp::Gte, CompareOp::Gt) => order.is_gt(),
                (CompareOp::Eq | CompareOp::Gte, CompareOp::Gte) => order.is_ge(),
                (CompareOp::Eq, CompareOp::Lt) | (CompareOp::Lte, CompareOp::Lt) => order.is_lt(),
                (CompareOp::Lt, CompareOp::Lt | CompareOp::Lte) => order.is_le(),
                (CompareOp::Eq | CompareOp::Lte, CompareOp::Lte) => order.is_le(),
                _ => false,
            }
        }
        _ => false,
    }
}

/// The `_id` that a filter asks for by equality, alone.
fn id_point(filter: &Filter) -> Option<ValueBuf> {
    let Node::Path(node) = filter.root() else { return None };
    let Predicate::Compare(compare) = &node.predicate else { return None };
    let is_id = node.path.is_single() && node.path.first() == b"_id";
    // An array matches by its elements too, and null what is missing; neither is one point.
    let is_plain = !matches!(
        compare.value.get(),
        marula_bson::Value::Array(_) | marula_bson::Value::Null | marula_bson::Value::Undefined
    );
    (is_id && is_plain && compare.op == CompareOp::Eq).then(|| compare.value.clone())
}

/// The plan of a query with `min` or `max`: the hinted index between two of its keys.
fn plan_min_max(state: &State, query: Query) -> Result<(Plan, Query)> {
    let index = match &query.hint {
        None => return Err(min_max_need_hint()),
        Some(Hint::Natural { .. }) => return Err(natural_with_min_max()),
        Some(hint) if clustered::is_hinted(state, hint) => {
            let is_id = |bound: &Option<marula_bson::DocBuf>| {
                bound.as_ref().is_none_or(|bound| {
                    bound.as_doc().iter().map(|element| element.name).eq(["_id"])
                })
            };
            if !is_id(&query.min) || !is_id(&query.max) {
                return Err(min_max_fields());
            }
            let access = walk_records(state, &query)?;
            return Ok(finish(access, query));
        }
        Some(hint) => find_hinted(state, hint)?.clone(),
    };
    let end = |bound: &Option<marula_bson::DocBuf>| -> Result<Option<Vec<u8>>> {
        bound.as_ref().map(|bound| index_key(&index, bound.as_doc())).transpose()
    };
    let (start, end) = (end(&query.min)?, end(&query.max)?);
    let all = bounds::all();
    let range = KeyRange { start: start.unwrap_or(all.start), end: end.unwrap_or(all.end) };
    if query.min.is_some() && query.max.is_some() && range.start >= range.end {
        return Err(min_not_below_max());
    }
    let mut scan = Ixscan {
        may_repeat: index.is_multikey(),
        index,
        ranges: vec![range],
        direction: Direction::Forward,
    };
    if let Some(direction) = order_of(&scan, &query) {
        scan.direction = direction;
    }
    Ok(finish(Access::Ixscan(scan), query))
}

/// The key string of a document that names the index's fields, all and in order.
fn index_key(index: &Index, bound: Doc<'_>) -> Result<Vec<u8>> {
    let names: Vec<_> = bound.iter().map(|element| element.name).collect();
    let wanted: Vec<_> = index.spec.key.as_doc().iter().map(|element| element.name).collect();
    if names != wanted {
        return Err(min_max_fields());
    }
    let collator = index.spec.collation.as_ref().map(|collation| collation.collator());
    let mut key = Vec::new();
    for (part, value) in index.spec.parts.iter().zip(bound.values()) {
        marula_bson::key_string::encode_part(value, part.descending, collator, &mut key);
    }
    Ok(key)
}
