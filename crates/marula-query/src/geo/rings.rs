//! What a search by distance looks at of an index: ring after ring around a point, and nothing twice.

use s2rst::s2::CellId;

use super::area::Area;
use super::cells::{self, cap_around, cap_within, covering_of_annulus};
use super::covering::{merged, without};
use super::hash::{self, Grid, rectangles_around};
use super::near::{Near, Unit};
use super::planar::Disc;
use super::squares::{self, Shape, Square};

/// The rings that were looked at.
pub struct Rings(Seen);

/// The cells that cover them.
enum Seen {
    /// In an index whose largest cells are those of a level.
    Globe(u8, Vec<CellId>),
    Plane(Grid, Vec<Square>),
}

impl Rings {
    /// None yet, on the globe, in an index whose largest cells are those of the level `coarsest`.
    pub fn of_globe(coarsest: u8) -> Rings {
        Rings(Seen::Globe(coarsest, Vec::new()))
    }

    /// None yet, in the plane.
    pub fn of_plane(grid: Grid) -> Rings {
        Rings(Seen::Plane(grid, Vec::new()))
    }

    /// Where the keys are of places at a distance of `from` to `to` that were in no ring before. Distances are angles,
    /// but in the plane.
    pub fn next(&mut self, near: &Near, from: f64, to: f64) -> Area {
        match &mut self.0 {
            Seen::Globe(coarsest, seen) => {
                let Some(outer) = cap_around(near, to) else { return Area::default() };
                let cells = covering_of_annulus(cap_within(near, from), outer);
                let cells = without(&cells, seen);
                seen.extend_from_slice(&cells);
                *seen = merged(std::mem::take(seen));
                cells::area_of(&cells, *coarsest)
            }
            Seen::Plane(grid, seen) => {
                let shape = match (near.unit, cap_around(near, to)) {
                    (Unit::Plane, _) => {
                        let circle = |radius| Disc { center: (near.point.x, near.point.y), radius };
                        Shape::Annulus(circle(from), circle(to))
                    }
                    (_, Some(outer)) => {
                        Shape::Within(rectangles_around(outer), cap_within(near, from))
                    }
                    (_, None) => return Area::default(),
                };
                let squares = without(&merged(squares::covering(grid, &shape)), seen);
                seen.extend_from_slice(&squares);
                *seen = merged(std::mem::take(seen));
                hash::area_of(&squares)
            }
        }
    }
}
