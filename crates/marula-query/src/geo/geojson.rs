//! Parses GeoJSON, and distinguishes it from legacy pairs.
//!
//! A query is stricter than a stored document: in a query a pair has exactly two numbers. Polygons
//! are hostile input: a ring must be closed, must not touch or cross itself, and must lie in the
//! first ring if it is not the first.

use marula_bson::{Doc, Type, Value};
use marula_error::{Result, errors};
use s2rst::s2::Point;

use super::geometry::{GeoPoint, Geometry, is_on_globe, to_globe};
use super::legacy::{parse_pair, parse_point};
use super::sphere::{Line, Polygon, erase_repeated};
use crate::expression::number::short_double_text;

errors! {
    /// The coordinates are not a longitude and a latitude.
    out_of_bounds(lng: &str, lat: &str) = BadValue, "longitude/latitude is out of bounds, lng: {lng} lat: {lat}";
    /// The `type` of a place does not exist.
    unknown_type(doc: &Doc<'_>) = BadValue, "unknown GeoJSON type: {doc}";
    /// The `type` of a part of a `GeometryCollection` does not exist.
    unknown_part(doc: &Doc<'_>) = BadValue, "Unknown GeoJSON type: {doc}";
    /// A stored place is not a place.
    not_a_place(name: &str, value: &Value<'_>) = BadValue, "geo element must be an array or object: {name}: {value}";
    crs_not_an_object() = BadValue, "GeoJSON CRS must be an object";
    crs_type() = BadValue, "GeoJSON CRS must have field \"type\": \"name\"";
    crs_properties() = BadValue, "CRS must have field \"properties\" which is an object";
    crs_name() = BadValue, "In CRS, \"properties.name\" must be a string";
    crs_unknown(name: &str) = BadValue, "Unknown CRS name: {name}";
    /// A strict winding order is given for a type other than a polygon.
    strict_winding() = BadValue, "Strict winding order is only supported by polygon";
    not_coordinates() = BadValue, "GeoJSON coordinates must be an array";
    not_array_of_coordinates() = BadValue, "GeoJSON coordinates must be an array of coordinates";
    line_short(line: &Value<'_>) = BadValue, "GeoJSON LineString must have at least 2 vertices: {line}";
    line_invalid(line: &Value<'_>, reason: &str) = BadValue, "GeoJSON LineString is not valid: {line} {reason}";
    polygon_not_an_array() = BadValue, "Polygon coordinates must be an array";
    polygon_no_loops() = BadValue, "Polygon has no loops.";
    polygon_invalid(reason: &str, polygon: &Value<'_>) = BadValue, "Polygon isn't valid: {reason} {polygon}";
    polygon_shares_vertices(hole: usize, parent: usize, polygon: &Value<'_>) = BadValue, "Loop {hole} shares more than one vertex with its parent loop {parent}: {polygon}";
    polygon_nested(polygon: &Value<'_>) = BadValue, "Polygon interior loops cannot be nested: {polygon}";
    big_polygon_not_an_array() = BadValue, "Coordinates of polygon must be an array";
    big_polygon_loops(polygon: &Value<'_>) = BadValue, "Only one simple loop is allowed in a big polygon: {polygon}";
    loop_empty(ring: &Value<'_>) = BadValue, "Loop has no vertices: {ring}";
    loop_open(ring: &Value<'_>) = BadValue, "Loop is not closed: {ring}";
    loop_short(ring: &Value<'_>) = BadValue, "Loop must have at least 3 different vertices: {ring}";
    loop_invalid(ring: &Value<'_>, reason: &str) = BadValue, "Loop is not valid: {ring} {reason}";
    hole_outside(ring: &Value<'_>, first: &Value<'_>) = BadValue, "Secondary loops not contained by first exterior loop - secondary loops must be holes: {ring} first loop: {first}";
    multi_not_an_array(kind: &str) = BadValue, "{kind} coordinates must be an array";
    multi_empty(kind: &str) = BadValue, "{kind} coordinates must have at least 1 element";
    collection_not_an_array() = BadValue, "GeometryCollection geometries must be an array";
    collection_empty() = BadValue, "GeometryCollection geometries must have at least 1 element";
    collection_element(index: usize) = BadValue, "Element {index} of \"geometries\" is not an object";
    collection_nested(doc: &Doc<'_>) = BadValue, "GeometryCollections cannot be nested: {doc}";
}

/// Parses the operand of `$geometry`.
///
/// Errors: this module's rows.
pub fn parse_query(value: Value<'_>) -> Result<Geometry> {
    parse(value, false)
}

/// Parses a stored place in the field `name`.
///
/// Errors: this module's rows.
pub fn parse_stored(name: &str, value: Value<'_>) -> Result<Geometry> {
    match value {
        Value::Document(_) | Value::Array(_) => parse(value, true),
        other => Err(not_a_place(name, &other)),
    }
}

fn parse(value: Value<'_>, is_stored: bool) -> Result<Geometry> {
    let is_pair = match value {
        Value::Document(doc) => doc.values().next().is_some_and(|first| first.kind().is_number()),
        _ => true,
    };
    match value {
        Value::Document(doc) if !is_pair => parse_geojson(doc),
        pair => parse_point(pair, is_stored).map(Geometry::Point),
    }
}

/// The winding order given by the `crs` field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Winding {
    /// The smaller side of a ring is inside.
    Either,
    /// The left side of a ring is inside.
    Strict,
}

fn parse_geojson(doc: Doc<'_>) -> Result<Geometry> {
    let Some(Value::String(kind)) = doc.get("type") else { return Err(unknown_type(&doc)) };
    if kind == "GeometryCollection" {
        return parse_collection(doc);
    }
    parse_simple(kind, doc).unwrap_or_else(|| Err(unknown_type(&doc)))
}

/// Parses all types except a collection; `None` if the type does not exist.
fn parse_simple(kind: &[u8], doc: Doc<'_>) -> Option<Result<Geometry>> {
    let coordinates = || doc.get("coordinates");
    Some(match kind {
        b"Point" => parse_geojson_point(doc).map(Geometry::Point),
        b"LineString" => loose(doc).and_then(|()| parse_line(coordinates())).map(Geometry::Line),
        b"Polygon" => winding(doc)
            .and_then(|winding| parse_polygon(coordinates(), winding))
            .map(Geometry::Polygon),
        b"MultiPoint" => parse_multi_point(doc),
        b"MultiLineString" => loose(doc)
            .and_then(|()| parts("MultiLineString", coordinates(), |part| parse_line(Some(part))))
            .map(Geometry::MultiLine),
        b"MultiPolygon" => loose(doc)
            .and_then(|()| {
                parts("MultiPolygon", coordinates(), |part| {
                    parse_polygon(Some(part), Winding::Either)
                })
            })
            .map(Geometry::MultiPolygon),
        _ => return None,
    })
}

/// Parses a `Point`; its `type` is not checked.
pub(super) fn parse_geojson_point(doc: Doc<'_>) -> Result<GeoPoint> {
    loose(doc)?;
    let (x, y) = parse_pair(doc.get("coordinates"), true)?;
    check_bounds(x, y)?;
    Ok(GeoPoint::geojson(x, y))
}

fn parse_collection(doc: Doc<'_>) -> Result<Geometry> {
    let Some(Value::Array(parts)) = doc.get("geometries") else {
        return Err(collection_not_an_array());
    };
    if parts.is_empty() {
        return Err(collection_empty());
    }
    let part = |(index, value): (usize, Value<'_>)| {
        let Value::Document(part) = value else { return Err(collection_element(index)) };
        let Some(Value::String(kind)) = part.get("type") else { return Err(unknown_part(&part)) };
        if kind == "GeometryCollection" {
            return Err(collection_nested(&part));
        }
        let geometry = parse_simple(kind, part).unwrap_or_else(|| Err(unknown_part(&part)))?;
        if geometry.is_strictly_wound() { Err(strict_winding()) } else { Ok(geometry) }
    };
    parts.values().enumerate().map(part).collect::<Result<_>>().map(Geometry::Collection)
}

/// Checks that no winding order is given.
fn loose(doc: Doc<'_>) -> Result<()> {
    match winding(doc)? {
        Winding::Either => Ok(()),
        Winding::Strict => Err(strict_winding()),
    }
}

fn winding(doc: Doc<'_>) -> Result<Winding> {
    let Some(crs) = doc.get("crs") else { return Ok(Winding::Either) };
    let Value::Document(crs) = crs else { return Err(crs_not_an_object()) };
    if !matches!(crs.get("type"), Some(Value::String(kind)) if kind == "name") {
        return Err(crs_type());
    }
    let Some(Value::Document(properties)) = crs.get("properties") else {
        return Err(crs_properties());
    };
    let Some(Value::String(name)) = properties.get("name") else { return Err(crs_name()) };
    match &**name {
        b"urn:ogc:def:crs:OGC:1.3:CRS84" | b"EPSG:4326" => Ok(Winding::Either),
        b"urn:x-mongodb:crs:strictwinding:EPSG:4326" => Ok(Winding::Strict),
        _ => Err(crs_unknown(&name.to_string())),
    }
}

pub(super) fn check_bounds(x: f64, y: f64) -> Result<()> {
    if is_on_globe(x, y) {
        return Ok(());
    }
    Err(out_of_bounds(&short_double_text(x), &short_double_text(y)))
}

/// Parses an array of positions; a position must be an array, unlike that of a `Point`.
fn parse_positions(coordinates: Option<Value<'_>>) -> Result<Vec<(f64, f64)>> {
    let Some(Value::Array(positions)) = coordinates else {
        return Err(not_array_of_coordinates());
    };
    let position = |value: Value<'_>| {
        if value.kind() != Type::Array {
            return Err(not_coordinates());
        }
        let (x, y) = parse_pair(Some(value), true)?;
        check_bounds(x, y)?;
        Ok((x, y))
    };
    positions.values().map(position).collect()
}

fn parse_vertices(coordinates: Option<Value<'_>>) -> Result<Vec<Point>> {
    Ok(parse_positions(coordinates)?.into_iter().map(|(x, y)| to_globe(x, y)).collect())
}

fn parse_multi_point(doc: Doc<'_>) -> Result<Geometry> {
    loose(doc)?;
    let positions = parse_positions(doc.get("coordinates"))?;
    if positions.is_empty() {
        return Err(multi_empty("MultiPoint"));
    }
    let points = positions.into_iter().map(|(x, y)| GeoPoint::geojson(x, y)).collect();
    Ok(Geometry::MultiPoint(points))
}

fn parts<T>(
    kind: &str,
    coordinates: Option<Value<'_>>,
    parse: impl Fn(Value<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let Some(Value::Array(parts)) = coordinates else { return Err(multi_not_an_array(kind)) };
    if parts.is_empty() {
        return Err(multi_empty(kind));
    }
    parts.values().map(parse).collect()
}

fn parse_line(coordinates: Option<Value<'_>>) -> Result<Line> {
    let vertices = erase_repeated(parse_vertices(coordinates)?);
    let shown = coordinates.unwrap_or(Value::Null);
    if vertices.len() < 2 {
        return Err(line_short(&shown));
    }
    Line::new(vertices).map_err(|reason| line_invalid(&shown, &reason))
}

fn parse_polygon(coordinates: Option<Value<'_>>, winding: Winding) -> Result<Polygon> {
    if winding == Winding::Strict {
        return parse_big_polygon(coordinates);
    }
    let Some(shown @ Value::Array(rings)) = coordinates else { return Err(polygon_not_an_array()) };
    if rings.is_empty() {
        return Err(polygon_no_loops());
    }
    let mut polygon: Option<Polygon> = None;
    for ring in rings.values() {
        let vertices = parse_ring(ring, &ring)?;
        match &mut polygon {
            None => {
                let shell =
                    Polygon::new(vertices).map_err(|reason| loop_invalid(&ring, &reason))?;
                polygon = Some(shell);
            }
            Some(polygon) => {
                let first = rings.values().next().unwrap_or(Value::Null);
                let is_inside =
                    polygon.add_hole(vertices).map_err(|reason| loop_invalid(&ring, &reason))?;
                if !is_inside {
                    return Err(hole_outside(&ring, &first));
                }
            }
        }
    }
    let polygon = polygon.ok_or_else(polygon_no_loops)?;
    if let Some(reason) = polygon.clash_of_rings() {
        return Err(polygon_invalid(&reason, &shown));
    }
    if let Some((hole, parent)) = polygon.hole_at_parent() {
        return Err(polygon_shares_vertices(hole, parent, &shown));
    }
    if polygon.has_nested_holes() {
        return Err(polygon_nested(&shown));
    }
    Ok(polygon)
}

/// Parses a polygon whose direction decides which side is inside: one ring.
fn parse_big_polygon(coordinates: Option<Value<'_>>) -> Result<Polygon> {
    let Some(shown @ Value::Array(rings)) = coordinates else {
        return Err(big_polygon_not_an_array());
    };
    let mut rings = rings.values();
    let (Some(ring), None) = (rings.next(), rings.next()) else {
        return Err(big_polygon_loops(&shown));
    };
    let vertices = parse_ring(ring, &shown)?;
    Polygon::strictly_wound(vertices).map_err(|reason| loop_invalid(&shown, &reason))
}

/// Parses a ring: its vertices without the last, which repeats the first, and without consecutive
/// duplicates. `shown` is in the error for a ring that has too few.
fn parse_ring(ring: Value<'_>, shown: &Value<'_>) -> Result<Vec<Point>> {
    let vertices = parse_vertices(Some(ring))?;
    let (Some(first), Some(last)) = (vertices.first(), vertices.last()) else {
        return Err(loop_empty(&ring));
    };
    if first != last {
        return Err(loop_open(&ring));
    }
    let mut vertices = erase_repeated(vertices);
    vertices.pop();
    if vertices.len() < 3 {
        return Err(loop_short(shown));
    }
    Ok(vertices)
}
