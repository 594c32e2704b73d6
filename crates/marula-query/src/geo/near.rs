//! The operand of `$near`, `$nearSphere` and `$geoNear` in a filter: a point, and the minimum and
//! maximum distance.
//!
//! There are two notations. `{ $near: { $geometry: <point>, $maxDistance: <metres> } }` uses
//! distances on the globe in metres. `{ $near: [x, y], $maxDistance: <number> }` uses distances in
//! the plane, or, with `$nearSphere`, angles in radians.

use bstr::{BStr, ByteSlice};
use marula_bson::{Doc, Element, Value};
use marula_error::{Result, errors};

use super::EARTH_RADIUS_METERS;
use super::geojson::parse_geojson_point;
use super::geometry::GeoPoint;
use super::legacy::parse_pair;

errors! {
    /// Another operator precedes `$near`, or its operand is not an object.
    near_not_first(operators: &Doc<'_>) = BadValue, "near must be first in: {operators}";
    near_negative_third() = 18522, "max distance must be non-negative";
    near_bad_argument(name: &BStr) = BadValue, "invalid argument in geo near query: {name}";
    near_bad_sibling(name: &BStr) = 34413, "invalid argument in geo near query: {name}";
    near_extra(element: &Element<'_>) = BadValue, "geo near accepts just one argument when querying for a GeoJSON point. Extra field found: {element}";
    near_bad_point(point: &Doc<'_>, reason: &str) = BadValue, "invalid point in geo near query $geometry argument: {point}  {reason}";
    near_not_geojson(point: &Doc<'_>) = BadValue, "$near requires geojson point, given {point}";
    near_no_geometry() = BadValue, "$geometry is required for geo near query";
    near_max_type() = BadValue, "$maxDistance must be a number";
    near_max_negative() = BadValue, "$maxDistance must be non-negative";
    near_min_type() = BadValue, "$minDistance must be a number";
    near_min_negative() = BadValue, "$minDistance must be non-negative";
    legacy_max_type() = 16895, "$maxDistance must be a number";
    legacy_max_negative() = 16896, "$maxDistance must be non-negative";
    legacy_min_type() = 16893, "$minDistance must be a number";
    legacy_min_negative() = 16894, "$minDistance must be non-negative";
    near_off_the_globe() = BadValue, "Legacy point is out of bounds for spherical query";
}

/// The unit of distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// The unit of the coordinates, in the plane.
    Plane,
    /// Angles at the centre of the globe.
    Radians,
    /// Metres on the globe.
    Meters,
}

/// A search by distance.
#[derive(Clone, Debug)]
pub struct Near {
    /// The point from which distances are measured.
    pub point: GeoPoint,
    /// The unit of the distances.
    pub unit: Unit,
    /// The minimum distance.
    pub min: f64,
    /// The maximum distance.
    pub max: f64,
    /// Whether the operator is `$nearSphere` with the point itself, without `$geometry`.
    pub is_near_sphere: bool,
}

impl Near {
    /// Returns whether the distance is within the limits.
    pub fn admits(&self, distance: f64) -> bool {
        distance >= self.min && distance <= self.max
    }

    /// A distance of this search in metres, unless it is planar.
    pub fn in_metres(&self, distance: f64) -> f64 {
        match self.unit {
            Unit::Radians => distance * EARTH_RADIUS_METERS,
            Unit::Meters | Unit::Plane => distance,
        }
    }

    /// Returns whether it searches in the plane.
    pub fn is_planar(&self) -> bool {
        self.unit == Unit::Plane
    }
}

/// Returns whether the operator searches by distance.
pub(crate) fn is_near(name: &[u8]) -> bool {
    matches!(name, b"$near" | b"$nearSphere" | b"$geoNear")
}

/// Parses an object of operators that starts with `$near` or one of its other names.
///
/// Errors: this module's rows.
pub fn parse_near(operators: Doc<'_>) -> Result<Near> {
    let first = operators.iter().next().filter(|first| is_near(first.name));
    let Some(Value::Document(operand) | Value::Array(operand)) =
        first.map(|first| first.value.get())
    else {
        return Err(near_not_first(&operators));
    };
    if let Some(near) = parse_legacy(operators)? {
        return Ok(near);
    }
    if let Some(extra) = operators.iter().nth(1) {
        return Err(near_extra(&extra));
    }
    parse_modern(operand)
}

/// Parses a point with the distances next to it; `None` if there is no such point.
fn parse_legacy(operators: Doc<'_>) -> Result<Option<Near>> {
    let mut point = None;
    let mut is_legacy = true;
    let (mut min, mut max, mut is_near_sphere) = (0.0, f64::MAX, false);
    for Element { name, value } in operators {
        match name.as_bytes() {
            near if is_near(near) => {
                is_near_sphere |= name == "$nearSphere";
                match parse_place(value.get()) {
                    Some((place, third)) => {
                        if third.is_some_and(|third| third.is_nan() || third < 0.0) {
                            return Err(near_negative_third());
                        }
                        point = Some(place);
                        max = third.unwrap_or(max);
                    }
                    None => is_legacy = false,
                }
            }
            b"$minDistance" => {
                min = value.get().as_f64().ok_or_else(legacy_min_type)?;
                if min.is_nan() || min < 0.0 {
                    return Err(legacy_min_negative());
                }
            }
            b"$maxDistance" => {
                max = value.get().as_f64().ok_or_else(legacy_max_type)?;
                if max.is_nan() || max < 0.0 {
                    return Err(legacy_max_negative());
                }
            }
            b"$uniqueDocs" => {}
            _ => return Err(near_bad_sibling(name)),
        }
    }
    let Some(point) = point.filter(|_| is_legacy) else { return Ok(None) };
    let unit = match (point.is_geojson, is_near_sphere) {
        (true, _) => Unit::Meters,
        (false, true) => Unit::Radians,
        (false, false) => Unit::Plane,
    };
    if unit != Unit::Plane && point.on_globe.is_none() {
        return Err(near_off_the_globe());
    }
    Ok(Some(Near { point, unit, min, max, is_near_sphere }))
}

/// Parses a pair, whose optional third number is a maximum distance, or a GeoJSON point.
fn parse_place(value: Value<'_>) -> Option<(GeoPoint, Option<f64>)> {
    let (Value::Document(doc) | Value::Array(doc)) = value else { return None };
    if !is_pair(value) {
        return parse_geojson_point(doc).ok().map(|point| (point, None));
    }
    let (x, y) = parse_pair(Some(value), true).ok()?;
    let third = match doc.values().nth(2) {
        Some(third) => Some(third.as_f64()?),
        None => None,
    };
    doc.values().nth(3).is_none().then(|| (GeoPoint::legacy(x, y), third))
}

fn is_pair(value: Value<'_>) -> bool {
    match value {
        Value::Document(doc) => doc.values().next().is_some_and(|first| first.kind().is_number()),
        _ => true,
    }
}

fn parse_modern(operand: Doc<'_>) -> Result<Near> {
    let mut point = None;
    let (mut min, mut max) = (0.0, f64::MAX);
    for Element { name, value } in operand {
        let distance = value.get().as_f64();
        let is_bad = |distance: f64| !distance.is_finite() || distance < 0.0;
        match (name.as_bytes(), value.get()) {
            (b"$geometry", place @ (Value::Document(doc) | Value::Array(doc))) => {
                point = Some(parse_center(place, doc)?);
            }
            (b"$geometry", _) => {}
            (b"$minDistance", _) => {
                min = distance.ok_or_else(near_min_type)?;
                if is_bad(min) {
                    return Err(near_min_negative());
                }
            }
            (b"$maxDistance", _) => {
                max = distance.ok_or_else(near_max_type)?;
                if is_bad(max) {
                    return Err(near_max_negative());
                }
            }
            _ => return Err(near_bad_argument(name)),
        }
    }
    let point = point.ok_or_else(near_no_geometry)?;
    Ok(Near { point, unit: Unit::Meters, min, max, is_near_sphere: false })
}

fn parse_center(place: Value<'_>, doc: Doc<'_>) -> Result<GeoPoint> {
    let read = if is_pair(place) {
        parse_pair(Some(place), true).map(|(x, y)| GeoPoint::legacy(x, y))
    } else {
        parse_geojson_point(doc)
    };
    let point = read.map_err(|error| near_bad_point(&doc, error.message()))?;
    if point.is_geojson { Ok(point) } else { Err(near_not_geojson(&doc)) }
}
