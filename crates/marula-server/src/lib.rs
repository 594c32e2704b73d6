//! The server: sockets, commands, sessions, cursors, diagnostics.
//!
//! Bytes become a [`Message`](marula_wire::Message) in [`net`], a [`Request`] in [`dispatch`], and
//! a reply in the command's own file under [`command`]. What all connections share is the
//! [`Server`]. This crate does not know which engine its store is.
//!
//! Start with [`command`], then [`dispatch`], [`request`], [`context`].

pub mod audit;
pub mod auth;
pub mod backups;
mod catalog_log;
mod change_stream;
mod cluster_fields;
pub(crate) mod collection_uuid;
pub mod command;
pub mod concern;
pub mod connection;
pub mod context;
pub mod counters;
pub mod cursor;
pub mod default_concerns;
pub mod dispatch;
pub mod ended;
pub mod environment;
mod error_labels;
pub mod fail_point;
pub mod fields;
mod geo_near;
pub mod host;
pub mod inline;
pub mod listing;
pub mod log;
pub mod log_file;
pub mod memory;
pub mod metrics;
pub mod net;
pub mod nodes;
pub mod operation;
pub mod oplog_keeper;
pub mod parameters;
pub mod pipeline_source;
pub mod pipeline_writes;
pub mod profiling;
pub mod read_preference;
pub mod replica_set;
pub mod report;
pub mod request;
pub mod row;
pub mod server;
pub mod session;
pub mod shown_command;
pub mod snapshots;
pub mod stable_api;
pub mod statements;
pub mod storage_size;
mod stored_code;
pub mod temp_files;
pub mod time_series;
pub mod transactions;
pub mod ttl;
pub mod user_writes;
pub mod view;
pub mod write_lock;
pub mod write_reply;
pub mod writes;

/// The release of MongoDB whose answers this server's were compared with.
pub const VERSION: &str = command::COMPARED_WITH;
pub use command::GIT_VERSION;
pub use context::Context;
pub use host::host_name;
pub use marula_query::javascript::disable as disable_javascript;
pub use request::Request;
pub use server::{Build, Options, Server};
