//! Parsed places of documents and queries.

use s2rst::s2::{Cap, LatLng, Point};

use super::planar::{Disc, Rectangle, Ring};
use super::sphere::{Line, Polygon};

/// A place: a shape on the globe or in the plane.
#[derive(Debug)]
pub enum Geometry {
    /// A point, in GeoJSON or as a legacy pair.
    Point(GeoPoint),
    /// GeoJSON `LineString`.
    Line(Line),
    /// GeoJSON `Polygon`.
    Polygon(Polygon),
    /// GeoJSON `MultiPoint`.
    MultiPoint(Vec<GeoPoint>),
    /// GeoJSON `MultiLineString`.
    MultiLine(Vec<Line>),
    /// GeoJSON `MultiPolygon`.
    MultiPolygon(Vec<Polygon>),
    /// GeoJSON `GeometryCollection`.
    Collection(Vec<Geometry>),
    /// `$box`, in the plane.
    Rectangle(Rectangle),
    /// `$center`, in the plane.
    Disc(Disc),
    /// `$polygon`, in the plane.
    Ring(Ring),
    /// `$centerSphere`, on the globe.
    Cap(Cap),
}

/// A point with both its meanings: a position in the plane and, if it has one, on the globe.
#[derive(Clone, Copy, Debug)]
pub struct GeoPoint {
    /// The first coordinate: the longitude on the globe.
    pub x: f64,
    /// The second coordinate: the latitude on the globe.
    pub y: f64,
    /// The position on the globe; `None` for a legacy pair out of range.
    pub on_globe: Option<Point>,
    /// Whether it was written as GeoJSON.
    pub is_geojson: bool,
}

impl GeoPoint {
    /// A legacy pair.
    pub fn legacy(x: f64, y: f64) -> GeoPoint {
        let on_globe = is_on_globe(x, y).then(|| to_globe(x, y));
        GeoPoint { x, y, on_globe, is_geojson: false }
    }

    /// A GeoJSON point; the coordinates must be in range.
    pub(super) fn geojson(x: f64, y: f64) -> GeoPoint {
        GeoPoint { x, y, on_globe: Some(to_globe(x, y)), is_geojson: true }
    }
}

/// Returns whether the numbers are a valid longitude and latitude.
pub(super) fn is_on_globe(x: f64, y: f64) -> bool {
    (-180.0..=180.0).contains(&x) && (-90.0..=90.0).contains(&y)
}

/// The point of the unit sphere at this longitude and latitude.
pub(super) fn to_globe(x: f64, y: f64) -> Point {
    LatLng::from_degrees(y, x).to_point()
}

impl Geometry {
    /// Returns whether it is a point, a line or a polygon, not several of them.
    pub fn is_simple(&self) -> bool {
        matches!(self, Geometry::Point(_) | Geometry::Line(_) | Geometry::Polygon(_))
    }

    /// Returns whether it has an interior, which `$geoWithin` requires.
    pub fn has_inside(&self) -> bool {
        match self {
            Geometry::Point(_)
            | Geometry::Line(_)
            | Geometry::MultiPoint(_)
            | Geometry::MultiLine(_) => false,
            Geometry::Polygon(_)
            | Geometry::MultiPolygon(_)
            | Geometry::Rectangle(_)
            | Geometry::Disc(_)
            | Geometry::Ring(_)
            | Geometry::Cap(_) => true,
            Geometry::Collection(parts) => parts.iter().any(Geometry::has_inside),
        }
    }

    /// Returns whether it is a planar shape, which contains only points.
    pub fn is_planar(&self) -> bool {
        matches!(self, Geometry::Rectangle(_) | Geometry::Disc(_) | Geometry::Ring(_))
    }

    /// Returns whether it has a position on the globe.
    pub fn is_on_globe(&self) -> bool {
        match self {
            Geometry::Point(point) => point.on_globe.is_some(),
            other => !other.is_planar(),
        }
    }

    /// Returns whether it is a polygon with a strict winding order, which no index accepts.
    pub fn is_strictly_wound(&self) -> bool {
        matches!(self, Geometry::Polygon(polygon) if polygon.is_strictly_wound())
    }
}
