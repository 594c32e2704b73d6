//! The neighbourhood of a point in cells of one size: the few cells around the corner nearest to
//! the point.

use s2rst::s2::metric::{AVG_EDGE, MIN_WIDTH};
use s2rst::s2::{CellId, Level};

use super::EARTH_RADIUS_METERS;
use super::area::Area;
use super::cells::{self, LEVEL_MAX};
use super::hash::{self, Grid};
use super::near::Near;

/// A cell is wide enough if it is this many times as wide as the distance of the wanted places.
const CELLS_WANTED: f64 = 4.0;

/// The space of a search.
pub enum Sight {
    /// The globe.
    Globe,
    /// The square of a `2d` index.
    Plane(Grid),
}

impl Sight {
    /// The level of the smallest useful cells.
    #[allow(clippy::cast_possible_truncation)]
    pub fn level_max(&self) -> u8 {
        match self {
            Sight::Globe => LEVEL_MAX,
            Sight::Plane(grid) => grid.bits as u8 - 1,
        }
    }

    /// The level of the largest useful cells: the limit on the distance makes wider ones useless.
    pub fn level_min(&self, near: &Near) -> u8 {
        // As in mongod, metres are compared with the squares' degrees.
        let wide = CELLS_WANTED * near.in_metres(near.max);
        let level = match self {
            Sight::Globe => {
                let width = |level| MIN_WIDTH.value(Level::new(level)) * EARTH_RADIUS_METERS;
                (0..LEVEL_MAX).find(|level| width(*level) < wide)
            }
            Sight::Plane(grid) => (0..self.level_max()).find(|level| side(grid, *level) < wide),
        };
        level.unwrap_or(self.level_max())
    }

    /// The keys of everything in the cells of a level around the search point.
    pub fn around(&self, near: &Near, level: u8) -> Area {
        match self {
            Sight::Globe => {
                let center = near.point.on_globe.map(|at| CellId::from_point(&at));
                let around = center.map(|at| at.vertex_neighbors(Level::new(level)));
                cells::within(&around.unwrap_or_default())
            }
            Sight::Plane(grid) => {
                hash::area_of(&grid.squares_around(near.point.x, near.point.y, level))
            }
        }
    }

    /// The width of cells of a level: in metres, or in the unit of the coordinates for a planar
    /// search.
    pub fn width(&self, near: &Near, level: u8) -> f64 {
        match self {
            Sight::Globe => AVG_EDGE.value(Level::new(level)) * EARTH_RADIUS_METERS,
            Sight::Plane(grid) if near.is_planar() => side(grid, level),
            Sight::Plane(grid) => side(grid, level).to_radians() * EARTH_RADIUS_METERS,
        }
    }
}

/// The width of the squares of a level.
fn side(grid: &Grid, level: u8) -> f64 {
    (grid.max - grid.min) / f64::from(2_u32).powi(level.into())
}
