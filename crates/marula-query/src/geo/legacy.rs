//! Legacy places: coordinate pairs, and the shapes `$box`, `$center`, `$centerSphere`, `$polygon`.

use marula_bson::{Doc, Value};
use marula_error::{Result, errors};
use s2rst::s1::Angle;
use s2rst::s2::Cap;

use super::geojson::check_bounds;
use super::geometry::{GeoPoint, Geometry, to_globe};
use super::planar::{Disc, Rectangle, Ring};

errors! {
    /// A value that is not a pair of coordinates is used as a point.
    not_a_point(kind: &str) = BadValue, "Point must be an array or object, instead got type {kind}";
    /// A coordinate is missing or not a number.
    not_numeric() = BadValue, "Point must only contain numeric elements";
    /// A pair has more than two coordinates.
    too_many_elements() = BadValue, "Point must only contain two numeric elements";
    /// A coordinate is infinite or NaN.
    not_finite() = BadValue, "Point coordinates must be finite numbers";
    /// A `$polygon` has fewer than three corners.
    few_corners() = BadValue, "Polygon must have at least 3 points";
    /// `$center` or `$centerSphere` has no radius.
    bad_radius() = BadValue, "radius must be a non-negative number";
    /// `$center` or `$centerSphere` has more than a centre and a radius.
    circle_extra() = BadValue, "Only 2 fields allowed for circular region";
}

/// Parses a pair of coordinates: an array or an object of two numbers.
///
/// Shape: with `more`, further elements may follow the two.
pub(super) fn parse_pair(value: Option<Value<'_>>, more: bool) -> Result<(f64, f64)> {
    let pair = match value {
        Some(Value::Array(pair) | Value::Document(pair)) => pair,
        Some(other) => return Err(not_a_point(other.kind().alias())),
        None => return Err(not_a_point("missing")),
    };
    let mut elements = pair.values();
    let mut number = || elements.next().and_then(|value| value.as_f64()).ok_or_else(not_numeric);
    let (x, y) = (number()?, number()?);
    if !more && elements.next().is_some() {
        return Err(too_many_elements());
    }
    if !x.is_finite() || !y.is_finite() {
        return Err(not_finite());
    }
    Ok((x, y))
}

/// Parses a legacy point.
pub(super) fn parse_point(value: Value<'_>, more: bool) -> Result<GeoPoint> {
    let (x, y) = parse_pair(Some(value), more)?;
    Ok(GeoPoint::legacy(x, y))
}

/// Parses the operand of a legacy shape; `None` if `name` is not one.
pub fn parse_shape(name: &[u8], operand: Doc<'_>) -> Option<Result<Geometry>> {
    Some(match name {
        b"$box" => parse_box(operand),
        b"$center" => parse_center(operand),
        b"$centerSphere" => parse_center_sphere(operand),
        b"$polygon" => parse_polygon(operand),
        _ => return None,
    })
}

fn parse_box(operand: Doc<'_>) -> Result<Geometry> {
    let mut corners = operand.values();
    let a = parse_pair(corners.next(), false)?;
    let b = parse_pair(corners.next(), false)?;
    Ok(Geometry::Rectangle(Rectangle::new(a, b)))
}

fn parse_polygon(operand: Doc<'_>) -> Result<Geometry> {
    let corners: Vec<(f64, f64)> =
        operand.values().map(|corner| parse_pair(Some(corner), false)).collect::<Result<_>>()?;
    if corners.len() < 3 {
        return Err(few_corners());
    }
    Ok(Geometry::Ring(Ring::new(corners)))
}

fn parse_center(operand: Doc<'_>) -> Result<Geometry> {
    let (center, radius) = parse_circle(operand)?;
    Ok(Geometry::Disc(Disc { center, radius }))
}

fn parse_center_sphere(operand: Doc<'_>) -> Result<Geometry> {
    let mut values = operand.values();
    let (x, y) = parse_pair(values.next(), false)?;
    check_bounds(x, y)?;
    let (_, radius) = parse_circle(operand)?;
    Ok(Geometry::Cap(Cap::from_center_angle(to_globe(x, y), Angle::from_radians(radius))))
}

fn parse_circle(operand: Doc<'_>) -> Result<((f64, f64), f64)> {
    let mut values = operand.values();
    let center = parse_pair(values.next(), false)?;
    let radius = values.next().and_then(|value| value.as_f64()).filter(|radius| *radius >= 0.0);
    let radius = radius.ok_or_else(bad_radius)?;
    if values.next().is_some() {
        return Err(circle_extra());
    }
    Ok((center, radius))
}
