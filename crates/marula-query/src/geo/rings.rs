//! What a search by distance looks at of an index: ring after ring around a point, and nothing twice.

use s2rst::s2::CellId;

use super::area::Area;
use super::cells::{self, cap_around, cap_within, covering_of_annulus};
use super::covering::{Cell, merged, without};
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
                cells::area_of(&unseen(&cells, seen), *coarsest)
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
                let squares = merged(squares::covering(grid, &shape));
                hash::area_of(&unseen(&squares, seen))
            }
        }
    }
}

/// What of the cells was in no ring before; from here on it was.
fn unseen<C: Cell>(cells: &[C], seen: &mut Vec<C>) -> Vec<C> {
    let cells = without(cells, seen);
    seen.extend_from_slice(&cells);
    *seen = merged(std::mem::take(seen));
    cells
}
