//! The engine of one node: [`marula_storage::Store`] over RocksDB.
//!
//! A [`Space`](marula_storage::Space) is a column family; a transaction is a write batch behind
//! latches; a commit has written its log to the operating system when it returns, and one thread
//! syncs the log to the disk for all who wait. Nothing here knows of documents.
//!
//! Start with [`engine`]; [`options`] says how RocksDB is tuned and what measured better.

mod check;
mod checkpoint;
mod engine;
mod error;
mod estimate;
mod fixed_view;
mod folder;
mod health;
mod log_scan;
mod loss;
mod manifest;
mod many;
mod opened;
mod options;
mod prefetch;
mod record_cache;
mod scan;
mod settle;
mod statistics;
mod sync;
mod txn;
mod upkeep;

pub use engine::Embedded;
pub use options::{EmbeddedOptions, OnDamage, memory_bytes};
