//! The keys of a point in a `2d` index: a square is divided into four, each of these into four, and
//! so on; the key of a point names the squares that contain it, largest first.

use s2rst::s2::Cap;

use super::area::Area;
use super::geometry::Geometry;
use super::planar::Rectangle;
use super::squares::{self, Shape, Square};

/// The grid of a `2d` index: the square that contains its points, and the number of halvings of
/// each side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Grid {
    /// The least coordinate, inclusive.
    pub min: f64,
    /// The greatest coordinate, inclusive.
    pub max: f64,
    /// The number of halvings of a side, from 1 to 32.
    pub bits: u32,
}

impl Grid {
    /// Returns whether the point lies in the square.
    pub fn contains(&self, x: f64, y: f64) -> bool {
        (self.min..=self.max).contains(&x) && (self.min..=self.max).contains(&y)
    }

    /// The key of a point in the square.
    pub fn key(&self, x: f64, y: f64) -> i64 {
        let hash = interleaved(self.column(x), self.column(y));
        key(hash << (64 - 2 * self.bits))
    }

    /// The keys of all points within the geometry; `None` if the geometry cannot be searched in the
    /// plane.
    pub fn area(&self, geometry: &Geometry) -> Option<Area> {
        let shape = shape_of(geometry)?;
        Some(area_of(&squares::covering(self, &shape)))
    }

    /// Returns whether the geometry can be searched in the plane.
    pub fn can_search(geometry: &Geometry) -> bool {
        shape_of(geometry).is_some()
    }

    /// The finest column of a coordinate.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub(super) fn column(&self, coordinate: f64) -> u64 {
        let columns = 1_u64 << self.bits;
        let at = (coordinate - self.min) / (self.max - self.min) * columns as f64;
        (at as u64).min(columns - 1)
    }

    /// The squares of a level, smaller than the whole and larger than the smallest, around their
    /// corner nearest to the point.
    pub(super) fn squares_around(&self, x: f64, y: f64, level: u8) -> Vec<Square> {
        let count = 1_u64 << level;
        let nearest = |coordinate: f64| {
            let halves = self.column(coordinate) >> (self.bits - 1 - u32::from(level));
            let own = halves / 2;
            let other = if halves % 2 == 1 { Some(own + 1) } else { own.checked_sub(1) };
            [Some(own), other.filter(|other| *other < count)].into_iter().flatten()
        };
        let in_column = |column| nearest(y).map(move |row| Square::at(column, row, level));
        nearest(x).flat_map(in_column).collect()
    }
}

/// The bits of two 32-bit numbers, interleaved.
pub(super) fn interleaved(x: u64, y: u64) -> u64 {
    spread(x) << 1 | spread(y)
}

/// The shape of a search for places within the geometry.
fn shape_of(geometry: &Geometry) -> Option<Shape<'_>> {
    match geometry {
        Geometry::Rectangle(shape) => Some(Shape::Rectangle(shape)),
        Geometry::Disc(shape) => Some(Shape::Disc(shape)),
        Geometry::Ring(shape) => Some(Shape::Ring(shape)),
        Geometry::Cap(cap) => Some(Shape::Within(rectangles_around(*cap), None)),
        _ => None,
    }
}

/// The keys of the points in the squares.
pub(super) fn area_of(squares: &[Square]) -> Area {
    let range = |square: &Square| {
        let (first, last) = square.hashes();
        (key(first), key(last))
    };
    Area::new(squares.iter().map(range).collect())
}

/// Inserts a zero before each bit of a 32-bit number.
fn spread(number: u64) -> u64 {
    const STEPS: [(u32, u64); 5] = [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    STEPS.iter().fold(number, |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// The number in the form of an index key: signed, in the same order.
#[allow(clippy::cast_possible_wrap)]
fn key(hash: u64) -> i64 {
    (hash ^ 1 << 63) as i64
}

/// The hash in an index key.
#[allow(clippy::cast_sign_loss)]
pub fn hash_of(key: i64) -> u64 {
    key as u64 ^ 1 << 63
}

/// Rectangles of longitudes and latitudes that contain the cap.
pub(super) fn rectangles_around(cap: Cap) -> Vec<Rectangle> {
    let bound = cap.rect_bound();
    if bound.is_empty() {
        return Vec::new();
    }
    let (south, north) = (bound.lat.lo.to_degrees() - 1e-9, bound.lat.hi.to_degrees() + 1e-9);
    let rectangle = |west: f64, east: f64| Rectangle { min: (west, south), max: (east, north) };
    let (west, east) = (bound.lng.lo.to_degrees() - 1e-9, bound.lng.hi.to_degrees() + 1e-9);
    if bound.lng.is_full() {
        vec![rectangle(-180.0, 180.0)]
    } else if bound.lng.is_inverted() {
        vec![rectangle(west, 180.0), rectangle(-180.0, east)]
    } else if west <= -180.0 || east >= 180.0 {
        // Both ends are the same meridian.
        vec![rectangle(west, east), rectangle(-180.0, -180.0), rectangle(180.0, 180.0)]
    } else {
        vec![rectangle(west, east)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { min: -180.0, max: 180.0, bits: 26 };

    #[test]
    fn keys_follow_the_squares() {
        let corner = GRID.key(-180.0, -180.0);
        assert_eq!(corner, i64::MIN);
        assert!(GRID.key(180.0, 180.0) > GRID.key(180.0, -180.0));
        assert!(GRID.key(-1.0, -1.0) < GRID.key(-1.0, 1.0));
        assert!(GRID.key(-1.0, 1.0) < GRID.key(1.0, -1.0));
        let whole = Grid { bits: 32, ..GRID };
        assert_eq!(whole.key(180.0, 180.0), i64::MAX);
    }

    #[test]
    fn an_area_holds_the_keys_of_what_lies_in_it() {
        for bits in [1, 2, 13, 26, 32] {
            let grid = Grid { bits, ..GRID };
            for step in 0..200 {
                let at = f64::from(step);
                let (x, y) = (at * 1.7 - 170.0, (at * 37.3) % 340.0 - 170.0);
                let shape = Rectangle { min: (x - 0.3, y - 2.0), max: (x + 0.4, y + 1.0) };
                let area = grid.area(&Geometry::Rectangle(shape)).unwrap();
                for (px, py) in [(x, y), shape.min, shape.max] {
                    let key = grid.key(px, py);
                    let is_in = area.ranges().iter().any(|&(low, high)| low <= key && key <= high);
                    assert!(is_in, "{bits} bits: ({px}, {py})");
                }
            }
        }
    }

    #[test]
    fn far_away_is_nowhere() {
        let far = Rectangle { min: (200.0, 0.0), max: (300.0, 10.0) };
        assert_eq!(GRID.area(&Geometry::Rectangle(far)), Some(Area::default()));
    }
}
