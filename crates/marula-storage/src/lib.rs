//! The storage trait: ordered byte keys, atomic batches, explicit conflicts, durability on request.
//!
//! The trait promises only what an embedded log-structured store provides without overhead and a
//! distributed ordered transactional store can provide too. Collections, indexes, sessions and
//! capped collections are built from it in `marula-db`, once for every engine.
//!
//! Start with [`store`]. [`memory`] is the simplest engine, [`latch`] excludes writers within one
//! process, [`nodes`] is for several processes, [`cluster`] for the machines of a distributed
//! store, [`overlay`] holds the uncommitted writes of a client's transaction, [`delta`] is the
//! difference between two values, [`times`] is a histogram of durations, [`contract`] has the tests
//! that every engine passes.

pub mod store;

pub mod cluster;
pub mod delta;
pub mod latch;
pub mod memory;
pub mod nodes;
pub mod overlay;
pub mod times;

pub mod contract;

pub use cluster::ClusterStatus;
pub use nodes::{Epoch, Nodes};
pub use store::{
    Caps, Cursor, Direction, Error, Finish, GUARD_WAIT, KeyRange, Looked, RangeStats, Result,
    Space, Stamp, Store, Txn, Values, View,
};
