//! Updates and deletes of the measurements of time-series collections, and indexes on them. All are
//! rewritten to operations on the buckets that hold the measurements.

pub mod index;
mod measurements;
mod write;

pub use write::hint_of_buckets;
pub(crate) use write::{delete, update};
