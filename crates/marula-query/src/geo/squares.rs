//! The squares of a `2d` index, and the covering of a search by them.
//!
//! The plane of an index is the largest square. Each square is divided into four, and the hash of a
//! square is the sequence of bits that leads to it, starting at the highest bit of a number; the
//! hashes of the squares in it have that prefix.

use s2rst::s2::Cap;

use super::covering::{Cell, Limits, Region, cover};
use super::geometry::{is_on_globe, to_globe};
use super::hash::{self, Grid};
use super::planar::{Disc, Rectangle, Ring};

/// The maximum number of squares that cover a search.
const SQUARES_MAX: usize = 16;

/// The bits of a hash, two per halving of a side.
const HASH_BITS: u32 = 64;

/// A square of a grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Square {
    /// Its hash, padded with zeros.
    hash: u64,
    level: u8,
}

impl Square {
    /// The largest square.
    const WHOLE: Square = Square { hash: 0, level: 0 };

    /// The square in this column and this row among squares of its size.
    pub(super) fn at(column: u64, row: u64, level: u8) -> Square {
        let hash = hash::interleaved(column, row);
        let behind = HASH_BITS - 2 * u32::from(level);
        Square { hash: hash.checked_shl(behind).unwrap_or(0), level }
    }

    /// The first and last hash of the smallest squares in it.
    pub(super) fn hashes(&self) -> (u64, u64) {
        let within = u64::MAX.checked_shr(2 * u32::from(self.level)).unwrap_or(0);
        (self.hash, self.hash | within)
    }

    /// Its column and row among squares of its size.
    fn place(&self) -> (u64, u64) {
        let behind = 32 - u32::from(self.level);
        let shifted = |bits: u64| u64::from(gathered(bits)).checked_shr(behind).unwrap_or(0);
        (shifted(self.hash >> 1), shifted(self.hash))
    }
}

impl Cell for Square {
    fn level(&self) -> u8 {
        self.level
    }

    fn quarters(&self) -> [Square; 4] {
        let level = self.level + 1;
        let shift = HASH_BITS - 2 * u32::from(level);
        [0, 1, 2, 3].map(|quarter| Square { hash: self.hash | quarter << shift, level })
    }

    fn parent(&self) -> Option<Square> {
        let level = self.level.checked_sub(1)?;
        let kept = !u64::MAX.checked_shr(2 * u32::from(level)).unwrap_or(0);
        Some(Square { hash: self.hash & kept, level })
    }

    fn contains(&self, other: &Square) -> bool {
        let (first, last) = self.hashes();
        self.level <= other.level && (first..=last).contains(&other.hash)
    }
}

/// The squares that cover the shape, unordered.
pub(super) fn covering(grid: &Grid, shape: &Shape<'_>) -> Vec<Square> {
    let bounds = shape.bounds();
    let columns = bounds.iter().map(|bound| columns_of(grid, bound)).collect();
    let region = CoveredShape { grid, shape, bounds, columns };
    #[allow(clippy::cast_possible_truncation)]
    let limits = Limits { cells_max: SQUARES_MAX, level_max: grid.bits as u8 };
    cover(&[Square::WHOLE], limits, &region)
}

/// The shape of a search in the plane.
pub(super) enum Shape<'a> {
    Rectangle(&'a Rectangle),
    Disc(&'a Disc),
    Ring(&'a Ring),
    /// The region outside the first circle around a point and inside the second.
    Annulus(Disc, Disc),
    /// The circle and the rectangles of longitudes and latitudes.
    Reach(Disc, Vec<Rectangle>),
    /// The rectangles of longitudes and latitudes, without the cap.
    Within(Vec<Rectangle>, Option<Cap>),
}

impl Shape<'_> {
    /// Bounding rectangles.
    fn bounds(&self) -> Vec<Rectangle> {
        match self {
            Shape::Rectangle(shape) => vec![**shape],
            Shape::Disc(shape) => vec![shape.bound()],
            Shape::Ring(shape) => vec![shape.bound()],
            Shape::Annulus(_, outer) => vec![outer.bound()],
            Shape::Reach(_, rectangles) | Shape::Within(rectangles, _) => rectangles.clone(),
        }
    }

    fn holds(&self, square: &Rectangle) -> bool {
        match self {
            Shape::Rectangle(shape) => shape.surrounds(square),
            Shape::Disc(shape) => shape.holds(square),
            Shape::Reach(circle, _) => circle.holds(square),
            Shape::Ring(shape) => shape.holds(square),
            Shape::Annulus(inner, outer) => {
                outer.holds(square) && (inner.radius <= 0.0 || !inner.meets(square))
            }
            Shape::Within(..) => false,
        }
    }
}

/// A shape to be covered by squares of a grid.
struct CoveredShape<'a> {
    grid: &'a Grid,
    shape: &'a Shape<'a>,
    bounds: Vec<Rectangle>,
    /// For each bound, the columns and rows that contain its points.
    columns: Vec<[(u64, u64); 2]>,
}

impl CoveredShape<'_> {
    /// The rectangle of the plane that the square covers.
    #[allow(clippy::cast_precision_loss)]
    fn rectangle(&self, square: &Square) -> Rectangle {
        let grid = self.grid;
        let side = (grid.max - grid.min) / (1_u64 << square.level) as f64;
        let (x, y) = square.place();
        let at = |number: u64| grid.min + number as f64 * side;
        Rectangle { min: (at(x), at(y)), max: (at(x + 1), at(y + 1)) }
    }

    /// Returns whether points of a bound may be hashed into the square. The rectangle does not
    /// suffice for points so close to its side that rounding moves them to the other side.
    fn is_hashed_into(&self, columns: &[(u64, u64); 2], square: &Square) -> bool {
        let size = self.grid.bits - u32::from(square.level);
        let (x, y) = square.place();
        let meets = |at: u64, (low, high): (u64, u64)| {
            at << size <= high && (at + 1) << size > low && low <= high
        };
        meets(x, columns[0]) && meets(y, columns[1])
    }
}

impl Region<Square> for CoveredShape<'_> {
    fn meets(&self, square: &Square) -> bool {
        let rectangle = self.rectangle(square);
        if let Shape::Annulus(inner, outer) = self.shape {
            return outer.meets(&rectangle) && !(inner.radius > 0.0 && inner.holds(&rectangle));
        }
        if let Shape::Reach(circle, _) = self.shape
            && circle.meets(&rectangle)
        {
            return true;
        }
        if let Shape::Within(_, Some(inner)) = self.shape
            && is_in_cap(&rectangle, inner)
        {
            return false;
        }
        let mut bounds = self.bounds.iter().zip(&self.columns);
        bounds
            .any(|(bound, columns)| bound.meets(&rectangle) || self.is_hashed_into(columns, square))
    }

    fn holds(&self, square: &Square) -> bool {
        self.shape.holds(&self.rectangle(square))
    }
}

/// Returns whether a rectangle of longitudes and latitudes lies in the cap. Its farthest points
/// from any point are among its corners, unless the cap covers more than half of the globe.
fn is_in_cap(rectangle: &Rectangle, cap: &Cap) -> bool {
    let is_in = |(x, y)| is_on_globe(x, y) && cap.contains_point(to_globe(x, y));
    cap.height() <= 1.0 && rectangle.corners().into_iter().all(is_in)
}

/// The first and last column and row of the points in a rectangle; none if it lies outside the
/// grid's square.
fn columns_of(grid: &Grid, bound: &Rectangle) -> [(u64, u64); 2] {
    let span = |low: f64, high: f64| {
        let is_outside = high < grid.min || low > grid.max;
        let clipped = |coordinate: f64| grid.column(coordinate.clamp(grid.min, grid.max));
        if is_outside { (1, 0) } else { (clipped(low), clipped(high)) }
    };
    [span(bound.min.0, bound.max.0), span(bound.min.1, bound.max.1)]
}

/// Every other bit of a number, starting with the lowest.
#[allow(clippy::cast_possible_truncation)]
fn gathered(bits: u64) -> u32 {
    const STEPS: [(u32, u64); 5] = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ];
    let alone = bits & 0x5555_5555_5555_5555;
    STEPS.iter().fold(alone, |bits, (shift, mask)| (bits | bits >> shift) & mask) as u32
}

#[cfg(test)]
mod tests {
    use super::super::covering::{merged, without};
    use super::*;

    #[test]
    fn four_quarters_are_their_square_and_a_square_without_one_is_the_others() {
        let square = Square::at(5, 2, 3);
        assert_eq!(square.place(), (5, 2));
        let quarters = square.quarters();
        assert!(quarters.iter().all(|it| square.contains(it) && it.parent() == Some(square)));
        let [a, b, c, d] = quarters;
        assert_eq!(merged(vec![d, b, a, c]), [square]);
        assert_eq!(without(&[square], &[b]), [a, c, d]);
        assert_eq!(without(&[b], &[square]), []);
        assert_eq!(Square::WHOLE.hashes(), (0, u64::MAX));
        assert_eq!(Square::WHOLE.parent(), None);
    }
}
