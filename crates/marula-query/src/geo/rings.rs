//! The index keys of a search by distance: ring after ring around a point, without repetition.

use s2rst::s2::CellId;

use super::area::Area;
use super::cells::{self, Annulus, cap_around, cap_within};
use super::covering::{Cell, Region, merged, without};
use super::hash::{self, Grid, rectangles_around};
use super::near::{Near, Unit};
use super::planar::Disc;
use super::squares::{self, Shape, Square};

/// The rings that have been read.
pub struct Rings {
    seen: Seen,
    /// Whether everything that mongod would read is read, because the counts are reported.
    pub examines_all: bool,
}

/// The cells that cover them.
enum Seen {
    /// In an index whose largest cells have this level.
    Globe(u8, Vec<CellId>),
    Plane(Grid, Vec<Square>),
}

impl Rings {
    /// No rings yet, on the globe, in an index whose largest cells have the level `coarsest`.
    pub fn of_globe(coarsest: u8) -> Rings {
        Rings { seen: Seen::Globe(coarsest, Vec::new()), examines_all: false }
    }

    /// No rings yet, in the plane.
    pub fn of_plane(grid: Grid) -> Rings {
        Rings { seen: Seen::Plane(grid, Vec::new()), examines_all: false }
    }

    /// The keys of places at a distance of `from` to `to` that were in no earlier ring. Distances
    /// are angles, except in the plane.
    pub fn next(&mut self, near: &Near, from: f64, to: f64) -> Area {
        match &mut self.seen {
            Seen::Globe(coarsest, seen) => {
                let Some(outer) = cap_around(near, to) else { return Area::default() };
                let annulus = Annulus::new(cap_within(near, from), outer);
                let mut cells = without(&annulus.covering(), seen);
                // The rest of a partly read cell may be outside the ring.
                cells.retain(|cell| annulus.meets(cell));
                note(&cells, seen);
                cells::area_of(&cells, *coarsest)
            }
            Seen::Plane(grid, seen) => {
                let center = (near.point.x, near.point.y);
                let circle = |radius| Disc { center, radius };
                let shape = match (near.unit, cap_around(near, to)) {
                    (Unit::Plane, _) => Shape::Annulus(circle(from), circle(to)),
                    (_, None) => return Area::default(),
                    (_, Some(outer)) if self.examines_all => {
                        let radius = reach(near.point.y, to.to_degrees());
                        Shape::Reach(circle(radius), rectangles_around(outer))
                    }
                    (_, Some(outer)) => {
                        Shape::Within(rectangles_around(outer), cap_within(near, from))
                    }
                };
                let squares = without(&merged(squares::covering(grid, &shape)), seen);
                note(&squares, seen);
                hash::area_of(&squares)
            }
        }
    }
}

/// The extent in degrees of longitude and latitude of the region within an angle of a point, as
/// computed by mongod: near a pole, where it extends all around, it uses the extent at a latitude
/// of 89 degrees. mongod covers a circle of this radius, which is several times larger than needed;
/// a rectangle suffices.
fn reach(latitude: f64, angle: f64) -> f64 {
    let (south, north) = ((latitude - angle).max(-89.0), (latitude + angle).min(89.0));
    angle + angle / south.to_radians().cos().min(north.to_radians().cos())
}

/// Records the cells of a ring.
fn note<C: Cell>(cells: &[C], seen: &mut Vec<C>) {
    seen.extend_from_slice(cells);
    *seen = merged(std::mem::take(seen));
}
