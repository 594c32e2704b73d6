//! What lies around a point, by cells of one size: the few around the corner that is nearest to the
//! point.

use s2rst::s2::metric::{AVG_EDGE, MIN_WIDTH};
use s2rst::s2::{CellId, Level};

use super::EARTH_RADIUS_METERS;
use super::area::Area;
use super::cells::{self, LEVEL_MAX};
use super::hash::{self, Grid};
use super::near::Near;

/// Cells are wide enough when they are so many times as wide as what is wanted is far away.
const CELLS_WANTED: f64 = 4.0;

/// What is looked at.
pub enum Sight {
    /// The globe.
    Globe,
    /// A square of the plane.
    Plane(Grid),
}

impl Sight {
    /// The level of the smallest cells that are worth a look.
    #[allow(clippy::cast_possible_truncation)]
    pub fn level_max(&self) -> u8 {
        match self {
            Sight::Globe => LEVEL_MAX,
            Sight::Plane(grid) => grid.bits as u8 - 1,
        }
    }

    /// The level of the largest cells that are worth a look: around wider ones nothing is wanted.
    pub fn level_min(&self, near: &Near) -> u8 {
        // As in mongod it is metres that are compared with the squares' degrees.
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

    /// Where the keys are of what lies in the cells of a level around the point that is searched
    /// from.
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

    /// How wide cells of a level are: in metres, but in the unit of the coordinates for a search in
    /// the plane.
    pub fn width(&self, near: &Near, level: u8) -> f64 {
        match self {
            Sight::Globe => AVG_EDGE.value(Level::new(level)) * EARTH_RADIUS_METERS,
            Sight::Plane(grid) if near.is_planar() => side(grid, level),
            Sight::Plane(grid) => side(grid, level).to_radians() * EARTH_RADIUS_METERS,
        }
    }
}

/// How wide the squares of a level are.
fn side(grid: &Grid, level: u8) -> f64 {
    (grid.max - grid.min) / f64::from(2_u32).powi(level.into())
}
