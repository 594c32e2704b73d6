//! The storage trait: ordered byte keys, atomic batches, explicit conflicts, durability on request.
//!
//! It is the smallest promise that an embedded log-structured store keeps with no overhead and that
//! a distributed ordered transactional store can keep too. Collections, indexes, sessions and
//! capped collections are built from it in `marula-db`, once for every engine.
//!
//! Start with [`store`]; [`memory`] is the simplest engine, [`latch`] what engines of one process
//! exclude writers by, [`overlay`] what a client's transaction reads and writes, [`contract`] the
//! tests that every engine passes.

pub mod store;

pub mod latch;
pub mod memory;
pub mod overlay;

pub mod contract;

pub use store::{
    Caps, Cursor, Direction, Error, GUARD_WAIT, KeyRange, Looked, RangeStats, Result, Space, Stamp,
    Store, Txn, Values, View,
};
