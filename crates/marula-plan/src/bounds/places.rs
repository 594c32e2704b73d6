//! Bounds of a predicate on a key part that holds locations: cells of the globe, or squares of the
//! plane.
//!
//! Different locations may share a cell, so the predicate is always checked on the document as
//! well. Documents without a location have no entry, so the index supports only predicates that
//! require one.

use marula_bson::{FieldPath, Value, ValueBuf};
use marula_db::Index;
use marula_db::index::{Geography, IndexKind};
use marula_query::filter::{Node, Predicate};
use marula_query::geo::area::Area;
use marula_query::geo::cells;
use marula_query::geo::hash::Grid;

use super::interval::Interval;
use super::kind::{Bounds, Exactness, PartView};

/// Returns the bounds of `predicate` on a part of a `2dsphere` index, or of one of buckets, whose
/// cells are those of points.
pub(super) fn sphere_bounds(predicate: &Predicate, part: &PartView<'_>) -> Option<Bounds> {
    let (test, coarsest) = match (predicate, part.geography) {
        (Predicate::Geo(test), Some(Geography::Sphere { coarsest, .. })) => (test, coarsest),
        (Predicate::BucketGeo(test), Some(Geography::SphereOfBuckets)) => (test, 0),
        _ => return None,
    };
    cells::area(&test.geometry, coarsest).map(|area| bounds_of(&area))
}

/// Returns the bounds of `predicate` on the part of a `2d` index.
pub(super) fn flat_bounds(predicate: &Predicate, part: &PartView<'_>) -> Option<Bounds> {
    match (predicate, part.geography) {
        (Predicate::Geo(test), Some(Geography::Flat(grid))) => {
            grid.area(&test.geometry).map(|area| bounds_of(&area))
        }
        _ => None,
    }
}

/// Returns the key values of an area.
pub(crate) fn intervals(area: &Area) -> Vec<Interval> {
    let value = |key: i64| -> ValueBuf { Value::Int64(key).to_buf() };
    let interval = |&(low, high): &(i64, i64)| Interval {
        low: value(low),
        high: value(high),
        low_inclusive: true,
        high_inclusive: true,
    };
    area.ranges().iter().map(interval).collect()
}

fn bounds_of(area: &Area) -> Bounds {
    Bounds { intervals: intervals(area), exactness: Exactness::OnDocument }
}

/// Returns whether every document that matches the conjuncts has an entry in the index, as far as
/// locations are concerned.
pub fn has_all_places(index: &Index, conjuncts: &[&Node]) -> bool {
    let IndexKind::Places(geography) = &index.spec.kind else { return true };
    let named = index.spec.parts.iter().zip(index.spec.key.as_doc().values());
    let is_place = |path: &FieldPath| {
        named.clone().any(|(part, named)| part.path == *path && matches!(named, Value::String(_)))
    };
    conjuncts.iter().any(|node| tests_place(node, *geography, &is_place))
}

fn tests_place(node: &Node, geography: Geography, is_place: &dyn Fn(&FieldPath) -> bool) -> bool {
    match node {
        Node::And(children) => children.iter().any(|child| tests_place(child, geography, is_place)),
        Node::Path(at) if is_place(&at.path) => match (&at.predicate, geography) {
            (Predicate::Geo(test), Geography::Sphere { .. }) => test.geometry.is_on_globe(),
            (Predicate::Geo(test), Geography::Flat(_)) => Grid::can_search(&test.geometry),
            (Predicate::BucketGeo(_), Geography::SphereOfBuckets) => true,
            _ => false,
        },
        _ => false,
    }
}
