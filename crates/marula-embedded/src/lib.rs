//! The engine of one node: [`marula_storage::Store`] over RocksDB.
//!
//! A [`Space`](marula_storage::Space) is a column family; a transaction is a write batch guarded by
//! latches; a commit returns after its log has been written to the operating system, and one thread
//! syncs the log to disk for all waiting callers. This crate knows no documents.
//!
//! Start with [`engine`]; [`options`] documents how RocksDB is tuned and what was measured.

mod check;
mod checked_line;
mod checkpoint;
mod clock;
mod deltas;
mod engine;
mod error;
mod estimate;
mod fixed_view;
mod folder;
mod gaps;
mod health;
mod held_files;
mod log_cut;
mod log_follower;
mod log_scan;
mod loss;
mod manifest;
mod many;
mod opened;
mod options;
mod prefetch;
mod record_cache;
mod replay;
mod scan;
mod settle;
mod statistics;
mod sync;
mod txn;
mod upkeep;

pub use checkpoint::{Checkpoint, ClosedFolder};
pub use engine::Embedded;
pub use log_follower::{LogFollower, Logged, Moved};
pub use options::{EmbeddedOptions, OnDamage, memory_bytes};
pub use replay::Replayed;
