//! Collections over a store: catalogue, documents, indexes, session records.
//!
//! Nouns: a [`Db`] is a store opened as a set of databases; a [`Collection`] holds documents by
//! [`RecordKey`] and maintains its [`Index`]es; a [`Unit`] carries the reads and writes of one
//! operation; a [`WriteOp`] carries the context of one client write. This crate does not know how
//! documents are *searched*: that is the task of `marula-plan`.
//!
//! Start with [`db`], then [`collection`], [`unit`](mod@unit), [`write`](mod@write), [`index`].
//! [`keys`] has the layout of store keys.

pub mod activity;
pub mod build;
pub mod catalog;
pub mod collection;
pub mod current;
pub mod db;
pub mod feature_version;
pub mod index;
pub mod index_filter;
pub mod keys;
pub mod latencies;
pub mod namespace;
pub mod nodes;
pub mod oplog;
pub mod plan_cache;
pub mod session;
pub mod storage_error;
mod stored_document;
pub mod sweep;
pub mod time_series;
pub mod transaction;
pub mod unit;
mod upkeep;
pub mod usage;
pub mod validate;
pub mod validator;
pub mod write;

pub use catalog::options::CollectionOptions;
pub use collection::{Collection, Shape};
pub use db::Db;
pub use index::{Index, IndexSpec};
pub use keys::RecordKey;
pub use namespace::Namespace;
pub use transaction::{Limits as TransactionLimits, Transaction};
pub use unit::Unit;
pub use write::{Change, WriteOp};
