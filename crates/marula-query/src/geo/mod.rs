//! Geometry: what stands in documents and queries as places, and how places relate.
//!
//! `geojson` and `legacy` read the two ways of writing a place; [`Geometry`] is what both give.
//! `relation` says whether one geometry lies within another or touches it, `planar` and `sphere` do
//! so in the plane and on the globe, `distance` measures. `near` is the operand of `$near`. `cells`
//! and `hash` say which keys a place has in an index, and which keys a search must look at: an
//! `area`, made of the cells or `squares` of a `covering`. `rings` does so for a search that goes
//! ever farther from a point, and `sight` says how far the first step is.

pub mod area;
pub mod cells;
mod covering;
mod distance;
mod geojson;
mod geometry;
pub mod hash;
mod legacy;
mod near;
mod planar;
mod relation;
pub mod rings;
pub mod sight;
mod sphere;
mod squares;

#[cfg(test)]
mod tests;

pub use geojson::{parse_query, parse_stored};
pub use geometry::{GeoPoint, Geometry};
pub use legacy::parse_shape;
pub(crate) use near::is_near;
pub use near::{Near, Unit, parse_near};

/// The radius of the earth in metres, as MongoDB turns metres into angles.
pub const EARTH_RADIUS_METERS: f64 = 6_378_100.0;
