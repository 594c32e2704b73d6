//! The server: sockets, commands, sessions, cursors, diagnostics.
//!
//! Bytes become a [`Message`](marula_wire::Message) in [`net`], a [`Request`](request::Request) in
//! [`dispatch`], and a reply in the command's own file under [`command`]. All connections share the
//! [`Server`]. This crate does not know which engine its store is.
//!
//! Start with [`command`], then [`dispatch`], [`request`], [`context`].

mod audit;
mod auth;
mod backups;
mod catalog_log;
mod change_stream;
mod cluster;
mod cluster_fields;
mod collection_uuid;
mod command;
mod concern;
mod connection;
mod context;
mod counters;
mod cursor;
mod default_concerns;
mod dispatch;
mod ended;
mod environment;
mod error_labels;
mod fail_point;
mod fields;
mod host;
mod inline;
mod listing;
mod log;
mod log_file;
mod memory;
mod metrics;
mod net;
mod nodes;
mod operation;
mod oplog_keeper;
mod parameters;
mod pipeline_source;
mod primacy;
mod profiling;
mod read_preference;
mod repeated;
mod replica_set;
mod report;
mod request;
mod row;
mod server;
mod session;
mod shown_command;
mod snapshots;
mod stable_api;
mod statements;
mod storage_size;
mod stored_code;
mod temp_files;
mod time_series;
mod transactions;
mod ttl;
mod user_writes;
mod write_lock;
mod write_reply;
mod writes;

/// The release of MongoDB with which this server's replies were compared.
pub const VERSION: &str = command::COMPARED_WITH;
pub use command::GIT_VERSION;
pub use dispatch::Frame;
pub use marula_query::javascript::disable as disable_javascript;
pub use metrics::Endpoint as MetricsEndpoint;
pub use server::Server;

/// The calls of the network, for a client without a socket.
pub mod service {
    pub use crate::net::service::{Call, CallThread, Peer, Reason, Service, Step};
}

/// Backups, which the binary makes for the server.
pub mod backup {
    pub use crate::backups::{BackupFailure, BackupMade, BackupRequest, Backups};
}

/// The log, which begins before the server does and ends after it.
pub mod logging {
    pub use crate::log::unblocked::{Unblocked, drain};
    pub use crate::log::worker::{self, Worker};
    pub use crate::log::{Format, Log, LogLayer, STARTUP_WARNING, Zone, attributes};
}

/// The network: what listens, and TLS.
pub mod network {
    pub use crate::net::tls::{Mode, Tls};
    pub use crate::net::tls_client::config as client_config;
    pub use crate::net::tls_files::{Demand, Files, Off};
    pub use crate::net::{Listener, NetHandle, Options, start};
}

/// The machine that the server runs on.
pub mod machine {
    pub use crate::host::{distribution, host_name, kernel_release};
}

/// The options of a server: [`Options`](options::Options), the types of its fields, and the
/// parameters that are set at the start.
pub mod options {
    pub use crate::audit::{
        Audit, AuditOptions, Destination as AuditDestination, Format as AuditFormat,
    };
    pub use crate::log_file::{Earlier, LogFile, Rotation};
    pub use crate::memory::{Memory, ProcessMemory};
    pub use crate::oplog_keeper::OplogOptions;
    pub use crate::parameters::{AtStartup, Refused};
    pub use crate::profiling::Database as Profiling;
    pub use crate::server::{Build, Options};
    pub use crate::transactions::{BYTES_PARAMETER, TOTAL_BYTES_MAX, TOTAL_BYTES_PARAMETER};
}
