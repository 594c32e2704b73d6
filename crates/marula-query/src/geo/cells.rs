//! The keys of a place in a `2dsphere` index: the S2 cells that cover it.
//!
//! The globe is cut into cells, each into four smaller ones, 30 times over; the number of a cell lies between those
//! of the smallest cells in it. A point has the key of its smallest cell, any other shape those of the few cells that
//! cover it. A search covers what it looks for as well: places in it have a key that is one of these cells, in one of
//! them, or around one of them.

use s2rst::s2::region_coverer::RegionCoverer;
use s2rst::s2::shape_index_region::ShapeIndexRegion;
use s2rst::s2::{Cap, CellId, CellUnion, Level, Point, Region};

use super::area::Area;
use super::geometry::Geometry;
use super::near::Near;
use super::sphere::{Line, Polygon};

/// Cells that cover one stored shape at most.
const KEYS_MAX: usize = 20;

/// Cells that cover what a search looks for at most, and at least one for each part of it.
const SEARCH_CELLS_MAX: usize = 20;

/// The finest cells that shapes other than points are covered with: about a metre wide.
const LEVEL_MAX: u8 = 23;

/// The keys of a stored place, in no order; none for a shape of the plane.
pub fn keys(geometry: &Geometry) -> Vec<i64> {
    let mut cells = Vec::new();
    cover(geometry, KEYS_MAX, &mut cells);
    cells.sort_unstable();
    cells.dedup();
    cells.into_iter().map(key).collect()
}

/// Where the keys are of all places that touch the geometry; `None` for a shape of the plane.
pub fn area(geometry: &Geometry) -> Option<Area> {
    if !geometry.is_on_globe() {
        return None;
    }
    let mut cells = Vec::new();
    cover(geometry, SEARCH_CELLS_MAX, &mut cells);
    Some(area_of(&cells))
}

/// Where the keys are of all places within an angle around the point that is searched from.
pub fn area_around(near: &Near, angle: f64) -> Option<Area> {
    let cap = cap_around(near, angle)?;
    Some(area_of(coverer(SEARCH_CELLS_MAX).covering(&cap).cell_ids()))
}

/// The cap of this angle around the point that is searched from.
pub(super) fn cap_around(near: &Near, angle: f64) -> Option<Cap> {
    // A little more, so that rounding leaves nothing out.
    let angle = s2rst::s1::Angle::from_radians(angle * (1.0 + 1e-9) + 1e-14);
    Some(Cap::from_center_angle(near.point.on_globe?, angle))
}

/// The cell's number as an index holds it.
#[allow(clippy::cast_possible_wrap)]
fn key(cell: CellId) -> i64 {
    cell.id() as i64
}

fn area_of(cells: &[CellId]) -> Area {
    let mut ranges = Vec::new();
    for cell in cells {
        ranges.push((key(cell.range_min()), key(cell.range_max())));
        let mut around = *cell;
        while !around.is_face() {
            around = around.parent();
            ranges.push((key(around), key(around)));
        }
    }
    Area::new(ranges)
}

fn coverer(cells_max: usize) -> RegionCoverer {
    RegionCoverer::new().max_cells(cells_max).max_level(Level::new(LEVEL_MAX))
}

/// Adds cells that cover the geometry.
fn cover(geometry: &Geometry, cells_max: usize, out: &mut Vec<CellId>) {
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
            parts.iter().for_each(|part| cover(part, each, out));
        }
        Geometry::Cap(cap) => add(coverer(cells_max).covering(cap), out),
        Geometry::Rectangle(_) | Geometry::Disc(_) | Geometry::Ring(_) => {}
    }
}

fn cover_line(line: &Line, cells_max: usize, out: &mut Vec<CellId>) {
    add(coverer(cells_max).covering(&ShapeIndexRegion::new(line.index())), out);
}

/// Covers the outer border with all within; holes are covered too.
fn cover_polygon(polygon: &Polygon, cells_max: usize, out: &mut Vec<CellId>) {
    let shell = polygon.shell();
    let region = ShapeIndexRegion::new(shell.shape_index());
    let region: &dyn Region = &region;
    add(coverer(cells_max).covering(region), out);
}

fn add(cells: CellUnion, out: &mut Vec<CellId>) {
    out.extend_from_slice(cells.cell_ids());
}
