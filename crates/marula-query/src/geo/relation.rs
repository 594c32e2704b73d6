//! Whether one geometry lies within another, and whether two intersect.
//!
//! In the plane only points are supported. On the globe a stored point without an interior counts
//! as its leaf cell, about a square centimetre.

use s2rst::s2::{Cap, Cell, CellId, Point};

use super::geometry::{GeoPoint, Geometry};
use super::sphere::{Line, Polygon};

impl Geometry {
    /// Returns whether `inner`, the place in a document, lies entirely within this geometry.
    pub fn contains(&self, inner: &Geometry) -> bool {
        if inner.is_strictly_wound() {
            return false;
        }
        match (self, inner) {
            (Geometry::Rectangle(shape), Geometry::Point(at)) => shape.contains(at.x, at.y),
            (Geometry::Disc(shape), Geometry::Point(at)) => shape.contains(at.x, at.y),
            (Geometry::Ring(shape), Geometry::Point(at)) => shape.contains(at.x, at.y),
            (Geometry::Rectangle(_) | Geometry::Disc(_) | Geometry::Ring(_), _) => false,
            (_, Geometry::MultiPoint(points)) => points.iter().all(|at| self.contains_point(at)),
            (_, Geometry::MultiLine(lines)) => lines.iter().all(|line| self.contains_line(line)),
            (_, Geometry::MultiPolygon(polygons)) => {
                polygons.iter().all(|polygon| self.contains_polygon(polygon))
            }
            (_, Geometry::Collection(parts)) => parts.iter().all(|part| self.contains(part)),
            (_, Geometry::Point(at)) => self.contains_point(at),
            (_, Geometry::Line(line)) => self.contains_line(line),
            (_, Geometry::Polygon(polygon)) => self.contains_polygon(polygon),
            _ => false,
        }
    }

    /// Returns whether the condition holds for a part with an interior.
    fn any_inside(&self, cap: impl Fn(&Cap) -> bool, polygon: impl Fn(&Polygon) -> bool) -> bool {
        match self {
            Geometry::Cap(one) => cap(one),
            Geometry::Polygon(one) => polygon(one),
            Geometry::MultiPolygon(many) => many.iter().any(polygon),
            Geometry::Collection(parts) => parts.iter().any(|part| match part {
                Geometry::Polygon(one) => polygon(one),
                Geometry::MultiPolygon(many) => many.iter().any(&polygon),
                _ => false,
            }),
            _ => false,
        }
    }

    fn contains_point(&self, at: &GeoPoint) -> bool {
        let Some(at) = at.on_globe else { return false };
        // Near a border the point counts as its cell, so that a point on an edge lies within the
        // shapes on both sides.
        let cell = || Cell::from_cell_id(CellId::from_point(&at));
        self.any_inside(
            |cap| cap.contains_point(at),
            |polygon| polygon.contains(&at) || polygon.touches(&cell()),
        )
    }

    fn contains_line(&self, line: &Line) -> bool {
        self.any_inside(|cap| line.is_in_cap(cap), |polygon| polygon.contains_line(line))
    }

    fn contains_polygon(&self, inner: &Polygon) -> bool {
        self.any_inside(|cap| inner.is_in_cap(cap), |polygon| polygon.contains_polygon(inner))
    }

    /// Returns whether `other`, the place in a document, intersects this geometry.
    pub fn intersects(&self, other: &Geometry) -> bool {
        if other.is_strictly_wound() {
            return false;
        }
        match other {
            Geometry::Point(at) => at.on_globe.is_some_and(|at| self.intersects_point(at)),
            Geometry::Line(line) => self.intersects_line(line),
            Geometry::Polygon(polygon) => self.intersects_polygon(polygon),
            Geometry::MultiPoint(points) => {
                points.iter().filter_map(|at| at.on_globe).any(|at| self.intersects_point(at))
            }
            Geometry::MultiLine(lines) => lines.iter().any(|line| self.intersects_line(line)),
            Geometry::MultiPolygon(polygons) => {
                polygons.iter().any(|polygon| self.intersects_polygon(polygon))
            }
            Geometry::Collection(parts) => parts.iter().any(|part| self.intersects(part)),
            _ => false,
        }
    }

    fn intersects_point(&self, at: Point) -> bool {
        let cell = Cell::from_cell_id(CellId::from_point(&at));
        match self {
            Geometry::Point(own) => is_in_cell(own, cell),
            Geometry::Line(line) => line.touches(&cell),
            Geometry::Polygon(polygon) => polygon.touches(&cell),
            Geometry::MultiPoint(points) => points.iter().any(|own| is_in_cell(own, cell)),
            Geometry::MultiLine(lines) => lines.iter().any(|line| line.touches(&cell)),
            Geometry::MultiPolygon(polygons) => {
                polygons.iter().any(|polygon| polygon.touches(&cell))
            }
            Geometry::Collection(parts) => parts.iter().any(|part| part.intersects_point(at)),
            _ => false,
        }
    }

    fn intersects_line(&self, line: &Line) -> bool {
        match self {
            Geometry::Point(own) => touches_line(own, line),
            Geometry::Line(own) => own.intersects(line),
            Geometry::Polygon(polygon) => polygon.intersects_line(line),
            Geometry::MultiPoint(points) => points.iter().any(|own| touches_line(own, line)),
            Geometry::MultiLine(lines) => lines.iter().any(|own| own.intersects(line)),
            Geometry::MultiPolygon(polygons) => {
                polygons.iter().any(|polygon| polygon.intersects_line(line))
            }
            Geometry::Collection(parts) => parts.iter().any(|part| part.intersects_line(line)),
            _ => false,
        }
    }

    fn intersects_polygon(&self, polygon: &Polygon) -> bool {
        match self {
            Geometry::Point(own) => touches_polygon(own, polygon),
            Geometry::Line(line) => polygon.intersects_line(line),
            Geometry::Polygon(own) => own.intersects_polygon(polygon),
            Geometry::MultiPoint(points) => points.iter().any(|own| touches_polygon(own, polygon)),
            Geometry::MultiLine(lines) => lines.iter().any(|line| polygon.intersects_line(line)),
            Geometry::MultiPolygon(polygons) => {
                polygons.iter().any(|own| own.intersects_polygon(polygon))
            }
            Geometry::Collection(parts) => {
                parts.iter().any(|part| part.intersects_polygon(polygon))
            }
            _ => false,
        }
    }
}

fn cell_of(point: &GeoPoint) -> Option<Cell> {
    point.on_globe.map(|at| Cell::from_cell_id(CellId::from_point(&at)))
}

fn is_in_cell(point: &GeoPoint, cell: Cell) -> bool {
    cell_of(point).is_some_and(|own| own.id() == cell.id())
}

fn touches_line(point: &GeoPoint, line: &Line) -> bool {
    cell_of(point).is_some_and(|cell| line.touches(&cell))
}

fn touches_polygon(point: &GeoPoint, polygon: &Polygon) -> bool {
    cell_of(point).is_some_and(|cell| polygon.touches(&cell))
}
