//! The keys of a point in a `2d` index: a square is cut into four, each of these into four, and so on; the key of a
//! point names the squares that it lies in, the largest first.

use s2rst::s2::Cap;

use super::area::Area;
use super::cells::cap_around;
use super::geometry::Geometry;
use super::near::{Near, Unit};
use super::planar::Rectangle;

/// Squares that a search looks at, at most: beyond, larger ones are taken.
const SQUARES_MAX: usize = 64;

/// How the plane is cut: the square that points lie in, and how often each side of it is halved.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Grid {
    /// The least coordinate, included.
    pub min: f64,
    /// The greatest coordinate, included.
    pub max: f64,
    /// How often sides are halved, from 1 to 32.
    pub bits: u32,
}

impl Grid {
    /// Whether the point lies in the square.
    pub fn contains(&self, x: f64, y: f64) -> bool {
        (self.min..=self.max).contains(&x) && (self.min..=self.max).contains(&y)
    }

    /// The key of a point in the square.
    pub fn key(&self, x: f64, y: f64) -> i64 {
        key(self.interleaved(self.column(x), self.column(y)))
    }

    /// Where the keys are of all points that lie within the geometry; `None` where the plane knows no answer.
    pub fn area(&self, geometry: &Geometry) -> Option<Area> {
        let rectangles = match geometry {
            Geometry::Rectangle(shape) => vec![*shape],
            Geometry::Disc(shape) => vec![shape.bound()],
            Geometry::Ring(shape) => vec![shape.bound()],
            Geometry::Cap(cap) => rectangles_around(*cap),
            _ => return None,
        };
        Some(self.area_of(&rectangles))
    }

    /// Where the keys are of all points within a distance of the point that is searched from.
    pub fn area_around(&self, near: &Near, distance: f64) -> Option<Area> {
        let rectangles = match near.unit {
            Unit::Plane => {
                let (x, y) = (near.point.x, near.point.y);
                vec![Rectangle {
                    min: (x - distance, y - distance),
                    max: (x + distance, y + distance),
                }]
            }
            Unit::Radians | Unit::Meters => rectangles_around(cap_around(near, distance)?),
        };
        Some(self.area_of(&rectangles))
    }

    /// Which of the finest columns a coordinate lies in.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    fn column(&self, coordinate: f64) -> u64 {
        let columns = 1_u64 << self.bits;
        let at = (coordinate - self.min) / (self.max - self.min) * columns as f64;
        (at as u64).min(columns - 1)
    }

    /// The bits of two columns, turn by turn, from the highest bit of the number on.
    fn interleaved(&self, x: u64, y: u64) -> u64 {
        (spread(x) << 1 | spread(y)) << (64 - 2 * self.bits)
    }

    fn area_of(&self, rectangles: &[Rectangle]) -> Area {
        let mut ranges = Vec::new();
        for rectangle in rectangles {
            self.cover(rectangle, &mut ranges);
        }
        Area::new(ranges)
    }

    /// Adds the key ranges of squares that cover the rectangle.
    fn cover(&self, rectangle: &Rectangle, out: &mut Vec<(i64, i64)>) {
        let (min, max) = (rectangle.min, rectangle.max);
        let is_outside =
            max.0 < self.min || max.1 < self.min || min.0 > self.max || min.1 > self.max;
        if is_outside {
            return;
        }
        let clipped = |coordinate: f64| self.column(coordinate.clamp(self.min, self.max));
        // A column to each side, so that rounding leaves nothing out.
        let last = (1_u64 << self.bits) - 1;
        let low = (clipped(min.0).saturating_sub(1), clipped(min.1).saturating_sub(1));
        let high = ((clipped(max.0) + 1).min(last), (clipped(max.1) + 1).min(last));
        let mut squares = vec![Square { x: 0, y: 0, size: self.bits }];
        let mut done = Vec::new();
        while !squares.is_empty() && squares.len() * 4 + done.len() <= SQUARES_MAX {
            for square in std::mem::take(&mut squares) {
                if square.is_within(low, high) || square.size == 0 {
                    done.push(square);
                } else {
                    let quarters = square.quarters();
                    squares.extend(quarters.into_iter().filter(|part| part.meets(low, high)));
                }
            }
        }
        for square in done.into_iter().chain(squares) {
            let first = self.interleaved(square.x, square.y);
            // `size` is at most 32, when the square is all there is.
            let width = 2 * square.size + (64 - 2 * self.bits);
            let last = if width >= 64 { u64::MAX } else { first | ((1 << width) - 1) };
            out.push((key(first), key(last)));
        }
    }
}

/// A square of the grid: its corner in the finest columns, and how often its sides can be halved.
#[derive(Clone, Copy)]
struct Square {
    x: u64,
    y: u64,
    size: u32,
}

impl Square {
    fn last(&self) -> (u64, u64) {
        let side = (1_u64 << self.size) - 1;
        (self.x + side, self.y + side)
    }

    fn is_within(&self, low: (u64, u64), high: (u64, u64)) -> bool {
        let last = self.last();
        self.x >= low.0 && self.y >= low.1 && last.0 <= high.0 && last.1 <= high.1
    }

    fn meets(&self, low: (u64, u64), high: (u64, u64)) -> bool {
        let last = self.last();
        self.x <= high.0 && self.y <= high.1 && last.0 >= low.0 && last.1 >= low.1
    }

    fn quarters(&self) -> [Square; 4] {
        let size = self.size - 1;
        let half = 1_u64 << size;
        let quarter =
            |right: u64, up: u64| Square { x: self.x + right * half, y: self.y + up * half, size };
        [quarter(0, 0), quarter(0, 1), quarter(1, 0), quarter(1, 1)]
    }
}

/// Puts a zero in front of each bit of a number of 32 bits.
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

/// The number as an index holds it: signed, in the same order.
#[allow(clippy::cast_possible_wrap)]
fn key(hash: u64) -> i64 {
    (hash ^ 1 << 63) as i64
}

/// Rectangles of longitudes and latitudes that hold the cap.
fn rectangles_around(cap: Cap) -> Vec<Rectangle> {
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
