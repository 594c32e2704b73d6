//! `$geoWithin`, `$within`, `$geoIntersects`, and the allowed positions of `$near`.
//!
//! An operator of this family must be the only one for its path: it uses the whole object of
//! operators.

use std::ops::ControlFlow;
use std::sync::Arc;

use bstr::BStr;
use marula_bson::{Doc, DocBuf, Element, FieldPath, RawValue, Value};
use marula_error::{Result, errors};

use super::node::{Node, PathNode, Predicate};
use crate::geo::{self, Geometry, Near};

errors! {
    geo_not_an_object() = BadValue, "geometry must be an object";
    geo_no_geometry() = BadValue, "geo query doesn't have any geometry";
    geo_unknown_specifier(element: &Element<'_>) = BadValue, "unknown geo specifier: {element}";
    geo_extra_field(element: &Element<'_>) = BadValue, "can't parse extra field: {element}";
    geo_within_unsupported(operators: &Doc<'_>) = BadValue, "$within not supported with provided geometry: {operators}";
    geo_intersects_unsupported(operators: &Doc<'_>) = BadValue, "$geoIntersect not supported with provided geometry: {operators}";
    /// `$near` or a similar operator is below another operator.
    near_not_at_the_top() = BadValue, "geo $near must be top-level expr";
    /// The filter has two searches by distance.
    near_twice() = BadValue, "Too many geoNear expressions";
}

/// The relation of a place to the query's geometry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeoOp {
    /// `$geoWithin` and its old name `$within`.
    Within,
    /// `$geoIntersects`.
    Intersects,
}

/// A relation to a geometry.
#[derive(Clone, Debug)]
pub struct GeoTest {
    /// The relation.
    pub op: GeoOp,
    /// The query's geometry.
    pub geometry: Arc<Geometry>,
    /// The operator with its operand, as written by the client.
    pub(super) text: Arc<DocBuf>,
}

/// A search by distance, which needs an index.
#[derive(Clone, Debug)]
pub struct NearTest {
    /// The point and the distances.
    pub near: Arc<Near>,
    /// The operators, as written by the client.
    pub(super) text: Arc<DocBuf>,
}

/// Parses the operator `name` of an object of operators, with all operators next to it, if it
/// belongs to this family.
///
/// Errors: this module's rows and those of [`geo`].
pub(super) fn parse(name: &BStr, operators: Doc<'_>) -> Option<Result<Predicate>> {
    if geo::is_near(name) {
        return Some(geo::parse_near(operators).map(|near| {
            let text = Arc::new(operators.to_buf());
            Predicate::Near(NearTest { near: Arc::new(near), text })
        }));
    }
    let op = op_of(name)?;
    // The error names the second operator, whichever of them belongs to this family.
    if let Some(extra) = operators.iter().nth(1) {
        return Some(Err(geo_extra_field(&extra)));
    }
    let first = operators.iter().next()?;
    Some(parse_relation(op, first.value, operators))
}

fn op_of(name: &BStr) -> Option<GeoOp> {
    match &**name {
        b"$geoWithin" | b"$within" => Some(GeoOp::Within),
        b"$geoIntersects" => Some(GeoOp::Intersects),
        _ => None,
    }
}

impl NearTest {
    /// The distance of the document's nearest place at `path`, and that place; `None` if there is
    /// none.
    pub fn measure<'d>(&self, path: &FieldPath, doc: Doc<'d>) -> Option<(f64, RawValue<'d>)> {
        let mut nearest: Option<(f64, RawValue<'d>)> = None;
        let mut see = |value: RawValue<'d>| -> bool {
            let inner = value.get();
            if !matches!(inner, Value::Document(_) | Value::Array(_)) {
                return false;
            }
            let Ok(place) = geo::parse_stored("", inner) else { return false };
            let Some(distance) = self.near.distance(&place) else { return false };
            if nearest.is_none_or(|(least, _)| distance < least) {
                nearest = Some((distance, value));
            }
            true
        };
        let _ = path.walk(doc, |leaf| {
            if let Some(value) = leaf.value
                && !see(value)
                && let Value::Array(several) = value.get()
            {
                several.iter().for_each(|element| {
                    see(element.value);
                });
            }
            ControlFlow::<()>::Continue(())
        });
        nearest
    }
}

/// Returns whether the operator belongs to this family.
pub(super) fn is_operator(name: &[u8]) -> bool {
    geo::is_near(name) || op_of(BStr::new(name)).is_some()
}

fn parse_relation(op: GeoOp, operand: RawValue<'_>, operators: Doc<'_>) -> Result<Predicate> {
    let Value::Document(operand) = operand.get() else { return Err(geo_not_an_object()) };
    let mut geometry = None;
    for element in operand {
        let inner = element.value.get();
        let (Value::Document(doc) | Value::Array(doc)) = inner else {
            if element.name == "$uniqueDocs" {
                continue;
            }
            return Err(geo_unknown_specifier(&element));
        };
        if element.name == "$geometry" {
            geometry = Some(geo::parse_query(inner)?);
        } else if let Some(shape) = geo::parse_shape(element.name, doc) {
            geometry = Some(shape?);
        } else if element.name != "$uniqueDocs" {
            return Err(geo_unknown_specifier(&element));
        }
    }
    let geometry = geometry.ok_or_else(geo_no_geometry)?;
    match op {
        GeoOp::Within if !geometry.has_inside() => return Err(geo_within_unsupported(&operators)),
        GeoOp::Intersects if !geometry.is_on_globe() => {
            return Err(geo_intersects_unsupported(&operators));
        }
        _ => {}
    }
    let text = Arc::new(operators.to_buf());
    Ok(Predicate::Geo(GeoTest { op, geometry: Arc::new(geometry), text }))
}

/// Returns whether the value is a place with the relation to the query's geometry.
pub(super) fn matches(test: &GeoTest, value: Value<'_>) -> bool {
    let (Value::Document(_) | Value::Array(_)) = value else { return false };
    let Ok(place) = geo::parse_stored("", value) else { return false };
    match test.op {
        GeoOp::Within => test.geometry.contains(&place),
        GeoOp::Intersects => test.geometry.intersects(&place),
    }
}

/// The search by distance in a canonical filter.
pub(super) fn near_of(root: &Node) -> Option<(&FieldPath, &NearTest)> {
    match root {
        Node::And(children) => children.iter().find_map(near_at),
        node => near_at(node),
    }
}

fn near_at(node: &Node) -> Option<(&FieldPath, &NearTest)> {
    match node {
        Node::Path(PathNode { path, predicate: Predicate::Near(test) }) => Some((path, test)),
        _ => None,
    }
}

/// Checks that the filter has at most one search by distance, and none below another operator.
pub(super) fn check_near(root: &Node) -> Result<()> {
    match count_near(root) {
        0 => Ok(()),
        1 if near_of(root).is_some() => Ok(()),
        1 => Err(near_not_at_the_top()),
        _ => Err(near_twice()),
    }
}

/// Returns the number of searches by distance at any depth.
fn count_near(node: &Node) -> usize {
    match node {
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter().map(count_near).sum()
        }
        Node::Not(child) => count_near(child),
        Node::Path(at) => count_in_predicate(&at.predicate),
        _ => 0,
    }
}

fn count_in_predicate(predicate: &Predicate) -> usize {
    match predicate {
        Predicate::Near(_) => 1,
        Predicate::Not(inner) => count_in_predicate(inner),
        Predicate::All(list) | Predicate::ElemMatchValue(list) => {
            list.iter().map(count_in_predicate).sum()
        }
        Predicate::ElemMatchObject(filter) => count_near(filter),
        _ => 0,
    }
}
