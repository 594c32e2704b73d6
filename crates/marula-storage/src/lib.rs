//! The storage trait: ordered byte keys, atomic batches, explicit conflicts, durability on request.
//!
//! It is the smallest promise that an embedded log-structured store keeps with no overhead and that a
//! distributed ordered transactional store can keep too. Collections, indexes, sessions and capped
//! collections are built from it in `marula-db`, once for every engine.
//!
//! Start with [`store`]; [`memory`] is the simplest engine, [`contract`] the tests that every engine passes.

pub mod contract;
pub mod memory;
pub mod store;

pub use store::{
    Caps, Cursor, Direction, Error, KeyRange, RangeStats, Read, Result, Space, Stamp, Store, Txn,
};
