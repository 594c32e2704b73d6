//! The keys of a place in a `2dsphere` index: the S2 cells that cover it.
//!
//! The globe is divided into cells, each into four smaller ones, 30 times; the number of a cell
//! lies between those of the smallest cells in it. A point has the key of its smallest cell, any
//! other shape the keys of the few cells that cover it. A search covers its geometry too: a place
//! in it has a key that is one of these cells, inside one of them, or around one of them.

use s2rst::s2::metric::MIN_WIDTH;
use s2rst::s2::region_coverer::RegionCoverer;
use s2rst::s2::shape_index_region::ShapeIndexRegion;
use s2rst::s2::{Cap, Cell, CellId, CellUnion, Face, LatLng, Level, Point, Rect, Region};

use super::area::Area;
use super::covering::{self, Limits, cover, merged};
use super::geometry::Geometry;
use super::near::Near;
use super::sphere::{Line, Polygon};

/// The maximum number of cells that cover one stored shape.
const KEYS_MAX: usize = 20;

/// The finest level of cells for shapes other than points: about a metre wide.
pub(super) const LEVEL_MAX: u8 = 23;

/// The relative rounding error of the angle of a cap.
const ROUNDING: f64 = 1e-9;

/// The limits for the covering of a search.
const SEARCH: Limits = Limits { cells_max: 20, level_max: LEVEL_MAX };

/// The keys of a stored place, with no cell larger than the level `coarsest`; none for a planar
/// shape.
pub fn keys(geometry: &Geometry, coarsest: u8) -> Vec<i64> {
    let mut cells = Vec::new();
    add_cells(geometry, KEYS_MAX, &mut cells);
    let coarsest = Level::new(coarsest);
    let mut cut = Vec::with_capacity(cells.len());
    cells.into_iter().for_each(|cell| add_within(cell, coarsest, &mut cut));
    cut.sort_unstable();
    cut.dedup();
    cut.into_iter().map(key).collect()
}

/// Adds the cell, or its descendants of the level if it is larger.
fn add_within(cell: CellId, level: Level, out: &mut Vec<CellId>) {
    match cell.level() < level {
        true => cell.children().into_iter().for_each(|child| add_within(child, level, out)),
        false => out.push(cell),
    }
}

/// The keys of all places that may touch the geometry; `None` for a planar shape.
pub fn area(geometry: &Geometry, coarsest: u8) -> Option<Area> {
    let first = first_cells(&bound(geometry)?);
    Some(area_of(&merged(cover(&first, SEARCH, geometry)), coarsest))
}

/// A cap with this angle around the search point, enlarged slightly, so that rounding excludes
/// nothing.
pub(super) fn cap_around(near: &Near, angle: f64) -> Option<Cap> {
    let angle = s2rst::s1::Angle::from_radians(angle * (1.0 + ROUNDING) + 1e-14);
    Some(Cap::from_center_angle(near.point.on_globe?, angle))
}

/// A cap with this angle around the search point, reduced slightly, so that it contains nothing
/// else; `None` if the angle is too small.
pub(super) fn cap_within(near: &Near, angle: f64) -> Option<Cap> {
    let angle = s2rst::s1::Angle::from_radians(angle * (1.0 - ROUNDING) - 1e-14);
    let center = near.point.on_globe.filter(|_| angle.radians() > 0.0)?;
    Some(Cap::from_center_angle(center, angle))
}

/// The cell's number in the form of an index key.
#[allow(clippy::cast_possible_wrap)]
fn key(cell: CellId) -> i64 {
    cell.id() as i64
}

/// The keys of everything that the cells contain or touch, in an index whose largest cells have the
/// level `coarsest`.
pub(super) fn area_of(cells: &[CellId], coarsest: u8) -> Area {
    let mut ranges: Vec<_> = cells.iter().map(range).collect();
    for cell in cells {
        let mut around = *cell;
        while around.level() > Level::new(coarsest) {
            around = around.parent();
            ranges.push((key(around), key(around)));
        }
    }
    Area::new(ranges)
}

/// The keys of everything that the cells contain.
pub(super) fn within(cells: &[CellId]) -> Area {
    Area::new(cells.iter().map(range).collect())
}

fn range(cell: &CellId) -> (i64, i64) {
    (key(cell.range_min()), key(cell.range_max()))
}

impl covering::Cell for CellId {
    fn level(&self) -> u8 {
        CellId::level(*self).as_u8()
    }

    fn quarters(&self) -> [CellId; 4] {
        self.children()
    }

    fn parent(&self) -> Option<CellId> {
        (!self.is_face()).then(|| CellId::parent(*self))
    }

    fn contains(&self, other: &CellId) -> bool {
        CellId::contains(*self, *other)
    }
}

impl covering::Region<CellId> for Geometry {
    fn meets(&self, id: &CellId) -> bool {
        let cell = || Cell::from_cell_id(*id);
        match self {
            Geometry::Point(point) => {
                point.on_globe.is_some_and(|at| id.contains(CellId::from_point(&at)))
            }
            Geometry::Line(line) => line.touches(&cell()),
            Geometry::Polygon(polygon) => polygon.may_touch(&cell()),
            Geometry::MultiPoint(points) => {
                let mut places = points.iter().filter_map(|point| point.on_globe);
                places.any(|at| id.contains(CellId::from_point(&at)))
            }
            Geometry::MultiLine(lines) => lines.iter().any(|line| line.touches(&cell())),
            Geometry::MultiPolygon(polygons) => {
                polygons.iter().any(|polygon| polygon.may_touch(&cell()))
            }
            Geometry::Collection(parts) => parts.iter().any(|part| part.meets(id)),
            Geometry::Cap(cap) => cap.intersects_cell(&cell()),
            Geometry::Rectangle(_) | Geometry::Disc(_) | Geometry::Ring(_) => false,
        }
    }

    fn holds(&self, id: &CellId) -> bool {
        let cell = || Cell::from_cell_id(*id);
        match self {
            Geometry::Polygon(polygon) => polygon.holds_cell(&cell()),
            Geometry::MultiPolygon(polygons) => {
                polygons.iter().any(|polygon| polygon.holds_cell(&cell()))
            }
            Geometry::Collection(parts) => parts.iter().any(|part| part.holds(id)),
            Geometry::Cap(cap) => cap.contains_cell(&cell()),
            _ => false,
        }
    }
}

/// The region between two circles around a point.
pub(super) struct Annulus {
    outside: Cap,
    outer: Cap,
}

impl Annulus {
    /// The outer cap without the inner one.
    pub(super) fn new(inner: Option<Cap>, outer: Cap) -> Annulus {
        Annulus { outside: inner.map_or(Cap::full(), Cap::complement), outer }
    }

    /// The cells that cover it.
    pub(super) fn covering(&self) -> Vec<CellId> {
        merged(cover(&first_cells(&self.outer), SEARCH, self))
    }
}

impl covering::Region<CellId> for Annulus {
    fn meets(&self, id: &CellId) -> bool {
        let cell = Cell::from_cell_id(*id);
        self.outer.intersects_cell(&cell) && self.outside.intersects_cell(&cell)
    }

    fn holds(&self, id: &CellId) -> bool {
        let cell = Cell::from_cell_id(*id);
        self.outer.contains_cell(&cell) && self.outside.contains_cell(&cell)
    }
}

/// A cap around the geometry; `None` for a planar shape.
fn bound(geometry: &Geometry) -> Option<Cap> {
    match geometry {
        Geometry::Cap(cap) => Some(*cap),
        Geometry::Point(point) => point.on_globe.map(Cap::from_point),
        other => rectangle_around(other).map(Rect::cap_bound),
    }
}

/// The latitudes and longitudes around the geometry; `None` for a planar shape.
fn rectangle_around(geometry: &Geometry) -> Option<Rect> {
    let together = |parts: &mut dyn Iterator<Item = Rect>| parts.reduce(|a, b| a.union(b));
    match geometry {
        Geometry::Point(point) => point.on_globe.map(rectangle_of_point),
        Geometry::Line(line) => Some(line.polyline.rect_bound()),
        Geometry::Polygon(polygon) => Some(polygon.shell().rect_bound()),
        Geometry::MultiPoint(points) => {
            together(&mut points.iter().filter_map(|it| it.on_globe).map(rectangle_of_point))
        }
        Geometry::MultiLine(lines) => {
            together(&mut lines.iter().map(|line| line.polyline.rect_bound()))
        }
        Geometry::MultiPolygon(polygons) => {
            together(&mut polygons.iter().map(|polygon| polygon.shell().rect_bound()))
        }
        Geometry::Collection(parts) => together(&mut parts.iter().filter_map(rectangle_around)),
        Geometry::Cap(cap) => Some(cap.rect_bound()),
        Geometry::Rectangle(_) | Geometry::Disc(_) | Geometry::Ring(_) => None,
    }
}

fn rectangle_of_point(point: Point) -> Rect {
    Rect::from_lat_lng(LatLng::from_point(point))
}

/// The cells with which a covering of a region in the cap starts: the four around a corner of cells
/// that are just wider than the cap.
fn first_cells(bound: &Cap) -> Vec<CellId> {
    let level = MIN_WIDTH.max_level(2.0 * bound.angle_radius().radians());
    match level.min(Level::new(LEVEL_MAX)) {
        Level::MIN => Face::ALL.into_iter().map(CellId::from_face).collect(),
        level => CellId::from_point(&bound.center()).vertex_neighbors(level),
    }
}

/// The coverer of stored shapes. Its results are stored in indexes on disk.
fn coverer(cells_max: usize) -> RegionCoverer {
    RegionCoverer::new().max_cells(cells_max).max_level(Level::new(LEVEL_MAX))
}

/// Adds cells that cover a stored geometry.
fn add_cells(geometry: &Geometry, cells_max: usize, out: &mut Vec<CellId>) {
    match geometry {
        Geometry::Point(point) => {
            out.extend(point.on_globe.map(|at| CellId::from_point(&at)));
        }
        Geometry::Line(line) => cover_line(line, cells_max, out),
        Geometry::Polygon(polygon) => cover_polygon(polygon, cells_max, out),
        Geometry::MultiPoint(points) => {
            out.extend(
                points
                    .iter()
                    .filter_map(|point| point.on_globe)
                    .map(|at: Point| CellId::from_point(&at)),
            );
        }
        Geometry::MultiLine(lines) => {
            let each = (cells_max / lines.len().max(1)).max(1);
            lines.iter().for_each(|line| cover_line(line, each, out));
        }
        Geometry::MultiPolygon(polygons) => {
            let each = (cells_max / polygons.len().max(1)).max(1);
            polygons.iter().for_each(|polygon| cover_polygon(polygon, each, out));
        }
        Geometry::Collection(parts) => {
            let each = (cells_max / parts.len().max(1)).max(1);
            parts.iter().for_each(|part| add_cells(part, each, out));
        }
        Geometry::Cap(cap) => add(coverer(cells_max).covering(cap), out),
        Geometry::Rectangle(_) | Geometry::Disc(_) | Geometry::Ring(_) => {}
    }
}

fn cover_line(line: &Line, cells_max: usize, out: &mut Vec<CellId>) {
    add(coverer(cells_max).covering(&ShapeIndexRegion::new(line.index())), out);
}

/// Covers the outer border and its inside; holes are covered too.
fn cover_polygon(polygon: &Polygon, cells_max: usize, out: &mut Vec<CellId>) {
    let shell = polygon.shell();
    let region = ShapeIndexRegion::new(shell.shape_index());
    let region: &dyn Region = &region;
    add(coverer(cells_max).covering(region), out);
}

fn add(cells: CellUnion, out: &mut Vec<CellId>) {
    out.extend_from_slice(cells.cell_ids());
}
