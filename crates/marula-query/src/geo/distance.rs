//! The distance of a place from a point.

use s2rst::s2::edge_distances::project;
use s2rst::s2::{Loop, Point};

use super::EARTH_RADIUS_METERS;
use super::geometry::{GeoPoint, Geometry};
use super::near::{Near, Unit};
use super::planar;

impl Near {
    /// The distance to the nearest part of the geometry in the query's unit; `None` if it cannot be
    /// measured.
    pub fn distance(&self, geometry: &Geometry) -> Option<f64> {
        match self.unit {
            Unit::Plane => planar_distance(&self.point, geometry),
            // Computed via metres, as the last digit of mongod's results shows.
            Unit::Radians => {
                self.angle(geometry).map(|angle| angle * EARTH_RADIUS_METERS / EARTH_RADIUS_METERS)
            }
            Unit::Meters => self.angle(geometry).map(|angle| angle * EARTH_RADIUS_METERS),
        }
    }

    fn angle(&self, geometry: &Geometry) -> Option<f64> {
        if geometry.is_strictly_wound() {
            return None;
        }
        globe_distance(self.point.on_globe?, geometry)
    }
}

fn planar_distance(from: &GeoPoint, geometry: &Geometry) -> Option<f64> {
    match geometry {
        Geometry::Point(to) => Some(planar::distance((from.x, from.y), (to.x, to.y))),
        _ => None,
    }
}

fn globe_distance(from: Point, geometry: &Geometry) -> Option<f64> {
    let least = |distances: &mut dyn Iterator<Item = f64>| distances.reduce(f64::min);
    match geometry {
        Geometry::Point(to) => to.on_globe.map(|to| angle(from, to)),
        Geometry::Line(line) => least(&mut line.edges().map(|edge| to_edge(from, edge))),
        Geometry::Polygon(polygon) => Some(to_polygon(from, polygon)),
        Geometry::MultiPoint(points) => {
            least(&mut points.iter().filter_map(|to| to.on_globe).map(|to| angle(from, to)))
        }
        Geometry::MultiLine(lines) => {
            least(&mut lines.iter().flat_map(|line| line.edges()).map(|edge| to_edge(from, edge)))
        }
        Geometry::MultiPolygon(polygons) => {
            least(&mut polygons.iter().map(|polygon| to_polygon(from, polygon)))
        }
        Geometry::Collection(parts) => {
            least(&mut parts.iter().filter_map(|part| globe_distance(from, part)))
        }
        Geometry::Rectangle(_) | Geometry::Disc(_) | Geometry::Ring(_) | Geometry::Cap(_) => None,
    }
}

fn angle(a: Point, b: Point) -> f64 {
    a.0.angle(b.0)
}

fn to_edge(from: Point, (a, b): (Point, Point)) -> f64 {
    angle(from, project(from, a, b))
}

fn to_polygon(from: Point, polygon: &super::sphere::Polygon) -> f64 {
    if polygon.contains(&from) {
        return 0.0;
    }
    let to_ring = |ring: &Loop| {
        (0..ring.num_vertices())
            .map(|at| to_edge(from, (ring.vertex(at), ring.vertex(at + 1))))
            .fold(f64::INFINITY, f64::min)
    };
    polygon.rings().map(to_ring).fold(f64::INFINITY, f64::min)
}
