//! The plan of a search by distance: it requires an index on locations.

use std::sync::Arc;

use marula_bson::{FieldPath, Value};
use marula_db::Index;
use marula_db::collection::State;
use marula_db::index::{Geography, IndexKind};
use marula_error::Result;
use marula_query::filter::{Filter, Node as FilterNode, Predicate};
use marula_query::geo::Unit;

use super::access::Access;
use super::{IndexView, conditions, find_hinted, finish, no_geo_index, no_solutions, partial};
use crate::bounds::{Bounds, Exactness, Interval};
use crate::plan::{GeoNear, Plan, Stage};
use crate::query::Query;

/// Returns the plan of a query with a search by distance.
///
/// Errors: `no_geo_index`, `no_solutions`, `bad_hint`.
pub(super) fn plan(state: &State, query: &Query) -> Result<Plan> {
    let hinted = query.hint.as_ref().map(|hint| find_hinted(state, hint)).transpose()?;
    let is_candidate = |index: &&Arc<Index>| match hinted {
        None => !index.spec.hidden,
        Some(hinted) => index.ident == hinted.ident,
    };
    let mut serving =
        state.indexes.iter().filter(is_candidate).filter(|index| serves(index, query));
    let is_asked = |index: &Arc<Index>| names(query.filter.root(), &index.spec.parts[0].path);
    let has_relevant = serving.clone().any(is_asked);
    let refused = || if has_relevant { no_solutions() } else { no_geo_index() };
    let is_usable = |index: &&Arc<Index>| hinted.is_some() || is_bounded_in_front(index, query);
    let index = serving.find(is_usable).ok_or_else(refused)?;
    let view = IndexView::new(index, query);
    let (path, test) = query.filter.near().ok_or_else(no_geo_index)?;
    let place = place_of(index, query).ok_or_else(no_geo_index)?;
    let mut conjuncts = Vec::new();
    partial::flatten(query.filter.root(), &mut conjuncts);
    let bounds = bounds_of_others(&view, &conjuncts, place);
    // Conditions that the bounds imply are not checked again.
    let is_left = |(number, node): &(usize, &&FilterNode)| {
        let is_search =
            matches!(node, FilterNode::Path(at) if matches!(at.predicate, Predicate::Near(_)));
        !is_search && !bounds.iter().flatten().any(|bound| bound.answers == Some(*number))
    };
    let rest = conjuncts.iter().enumerate().filter(is_left);
    let rest: Vec<FilterNode> = rest.map(|(_, node)| (*node).clone()).collect();
    let filter =
        (!rest.is_empty()).then(|| Filter::from_node(FilterNode::And(rest), &query.context));
    let whole = || vec![Interval::all()];
    let others = bounds
        .into_iter()
        .map(|bounds| bounds.map_or_else(whole, |bound| bound.intervals))
        .collect();
    let (index, test, path) = (index.clone(), test.clone(), path.clone());
    let stage = GeoNear { index, test, path, place, others };
    let node = Stage::GeoNear(stage);
    let access = Access::with_filter(node, filter);
    Ok(finish::finish(access, query, &[view]))
}

/// Returns whether the index contains every document that the search can return.
pub(super) fn serves(index: &Index, query: &Query) -> bool {
    let mut conjuncts = Vec::new();
    partial::flatten(query.filter.root(), &mut conjuncts);
    let spec = &index.spec;
    place_of(index, query).is_some()
        && spec.partial.as_ref().is_none_or(|partial| partial::covers(partial.root(), &conjuncts))
}

/// Returns whether a condition bounds the first field of an index, or the search does: otherwise
/// the locations are in all parts of the index.
fn is_bounded_in_front(index: &Arc<Index>, query: &Query) -> bool {
    let Some(place) = place_of(index, query) else { return false };
    let mut conjuncts = Vec::new();
    partial::flatten(query.filter.root(), &mut conjuncts);
    let bounds = bounds_of_others(&IndexView::new(index, query), &conjuncts, place);
    place == 0 || bounds[0].is_some()
}

/// Returns whether a condition of the filter is on this path, or the search is.
fn names(node: &FilterNode, path: &FieldPath) -> bool {
    match node {
        // The conditions within an `$elemMatch` are on longer paths.
        FilterNode::Path(at) => {
            at.path == *path && !matches!(at.predicate, Predicate::ElemMatchObject(_))
        }
        FilterNode::And(children) | FilterNode::Or(children) | FilterNode::Nor(children) => {
            children.iter().any(|child| names(child, path))
        }
        FilterNode::Not(child) => names(child, path),
        _ => false,
    }
}

/// Returns the number of the index's part with the searched locations.
fn place_of(index: &Index, query: &Query) -> Option<usize> {
    let (path, test) = query.filter.near()?;
    let IndexKind::Places(geography) = index.spec.kind else { return None };
    let can_measure = match geography {
        Geography::Sphere { .. } => test.near.unit != Unit::Plane,
        Geography::SphereOfBuckets => false,
        Geography::Flat(_) => test.near.unit != Unit::Meters,
    };
    let mut parts = index.spec.parts.iter().zip(index.spec.key.as_doc().values());
    let place =
        parts.position(|(part, named)| part.path == *path && matches!(named, Value::String(_)))?;
    can_measure.then_some(place)
}

/// The bound of a part of the index by a condition.
struct Bound {
    intervals: Vec<Interval>,
    /// The conjunct that the bound implies.
    answers: Option<usize>,
}

/// Returns the bounds of the other parts of the index, where there are conditions on them.
fn bounds_of_others(
    view: &IndexView<'_>,
    conjuncts: &[&FilterNode],
    place: usize,
) -> Vec<Option<Bound>> {
    let conditions = conditions::of(conjuncts);
    let parts = view.parts.iter().enumerate().filter(|(number, _)| *number != place);
    parts
        .map(|(_, part)| {
            let on_path = conditions.iter().filter(|condition| *condition.path == *part.path);
            let mut bounds = on_path.filter_map(|condition| {
                let Bounds { intervals, exactness } = part.bounds(condition.predicate)?;
                let is_answered = condition.is_whole && exactness == Exactness::Exact;
                Some(Bound { intervals, answers: is_answered.then_some(condition.conjunct) })
            });
            bounds.next()
        })
        .collect()
}
