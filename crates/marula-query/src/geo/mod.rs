//! Geometry: places in documents and queries, and their relations.
//!
//! ```text
//!   geojson, legacy ──parse──► Geometry ──┬─ relation (planar, sphere)  $geoWithin, $geoIntersects
//!                                         ├─ distance                   $near
//!                                         └─ cells | hash ──► area      keys of an index, ranges
//! ```
//!
//! `geojson` and `legacy` parse the two notations of a place into a [`Geometry`]. `relation`
//! decides whether one geometry lies within or intersects another, with `planar` and `sphere` for
//! the plane and the globe; `distance` measures. `near` is the operand of `$near`. `cells` and
//! `hash` compute the index keys of a place and the keys that a search must read: an `area`, made
//! of the cells or `squares` of a `covering`. `rings` does this for a search at increasing
//! distances from a point, and `sight` determines the size of its first step.

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

/// The radius of the earth in metres that MongoDB uses to convert metres to angles.
pub const EARTH_RADIUS_METERS: f64 = 6_378_100.0;
