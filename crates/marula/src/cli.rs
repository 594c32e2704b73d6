//! The command line.
//!
//! Options have mongod's spellings too (`--bind_ip`, `--replSet`), so that scripts need no change.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};

use crate::mongod_args::MongodArgs;

/// The own version, and MongoDB's in the line by which programs that start a mongod find it.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    format!("{}\ndb version v{}", crate::build_info::SHOWN, marula_server::VERSION)
});

/// A document database that speaks MongoDB's wire protocol.
#[derive(Parser, Debug)]
#[command(
    name = "marula",
    version = crate::build_info::SHOWN,
    long_version = LONG_VERSION.as_str(),
    after_help = "Start a server:        marula serve --dbpath ./data\n\
                  Connect to it:         mongosh mongodb://127.0.0.1:27017\n\
                  Try it without a disk: marula serve --storage-engine memory\n\
                  Back it up:            marula backup create /mnt/backups"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve a data folder to MongoDB's drivers and tools.
    Serve(Box<ServeArgs>),
    /// Make backups of a running server or a folder, verify them, restore any moment.
    #[cfg(feature = "rocksdb")]
    Backup(crate::backup::BackupArgs),
    /// Show the servers of a distributed store, and the Marula processes that serve it.
    Cluster {
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Check a data folder that no server has open: every document, index and counter.
    Check(CheckArgs),
    /// Read a configuration file (mongod.conf) and list what becomes of each of its options
    CheckConfig(CheckConfigArgs),
    /// Compare this server with others under published loads, and draw the report
    #[command(disable_help_flag = true)]
    Bench {
        /// The command for `marula-bench`, a program in the same folder; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
        words: Vec<OsString>,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum ClusterCommand {
    /// Show the state, size and lag of the store's servers, and which Marula processes live
    ///
    /// Changes nothing, and works also when no Marula process runs. Ends with code 1 if a server or
    /// a process is not healthy.
    Status(ClusterStatusArgs),
}

/// A cluster of servers with the data.
#[derive(Args, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// The servers of the etcd cluster, such as http://10.0.0.1:2379, separated by commas; https for
    /// TLS, and user:password@ in front of the host where etcd asks for a user
    #[arg(long, value_name = "URLS")]
    pub(crate) endpoints: Option<String>,

    /// The certificates of the authorities that vouch for the servers of https endpoints [default:
    /// those of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) endpoints_ca_file: Option<PathBuf>,

    /// The certificate and key, in one PEM file, that https endpoints ask for
    #[arg(long, value_name = "FILE")]
    pub(crate) endpoints_certificate_key_file: Option<PathBuf>,

    /// The file that names the FoundationDB cluster with the data [default: FoundationDB's own]
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ClusterStatusArgs {
    /// The storage engine of the servers: etcd or fdb
    #[arg(long, visible_alias = "storageEngine", value_name = "ENGINE")]
    pub(crate) storage_engine: Option<String>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// A configuration file in the form of mongod.conf; command-line options override it
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug, Default)]
#[command(
    after_help = "Options of mongod without a meaning in Marula are accepted with a warning in the log; an option that\n\
                  would leave you with less than you requested stops the start. `marula check-config FILE` lists both.\n\
                  All options can be set in a configuration file (mongod.conf) too: --config."
)]
pub(crate) struct ServeArgs {
    /// The data folder; it is created if it does not exist [default: ./data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dbpath: Option<PathBuf>,

    /// The port to listen on; 0 chooses a free one [default: 27017]
    #[arg(long)]
    pub(crate) port: Option<String>,

    /// The addresses to listen on, separated by commas [default: 127.0.0.1]
    #[arg(long, visible_alias = "bind_ip", value_name = "ADDRESS,…")]
    pub(crate) bind_ip: Option<String>,

    /// Listen on every address of this machine
    #[arg(long, visible_alias = "bind_ip_all")]
    pub(crate) bind_ip_all: bool,

    /// Also listen on a Unix socket at this path
    #[arg(long, value_name = "FILE")]
    pub(crate) unix_socket: Option<PathBuf>,

    /// Serve /metrics (for Prometheus), /healthz and /readyz at this port of 127.0.0.1, or at this
    /// address and port
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_listen: Option<String>,

    /// A configuration file in the form of mongod.conf; command-line options override it
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The storage engine: rocksdb (on disk; also as wiredTiger), memory (lost at the end; also as
    /// ephemeralForTest and inMemory), etcd or fdb (a cluster of servers) [default: rocksdb]
    #[arg(long, visible_alias = "storageEngine", value_name = "ENGINE")]
    pub(crate) storage_engine: Option<String>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Let other Marula processes serve the store of --storage-engine etcd or fdb at the same time
    #[arg(long)]
    pub(crate) shared: bool,

    /// Memory to divide among caches, memtables and operations, such as 1GB or 512MB [default: no
    /// limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<String>,

    /// The size of the data cache, such as 512MB or 2GB [default: half of the memory above 1 GB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_size: Option<String>,

    /// The same in gigabytes, by mongod's name
    #[arg(long = "wiredTigerCacheSizeGB", value_name = "GB")]
    pub(crate) wired_tiger_cache_size_gb: Option<String>,

    /// Present a replica set with this name and one member; without it, present a mongos
    #[arg(long, visible_alias = "replSet", value_name = "NAME")]
    pub(crate) repl_set: Option<String>,

    /// The maximum size of the oplog, which change streams read, in megabytes [default: 990]
    #[arg(long, visible_alias = "oplogSize", value_name = "MB")]
    pub(crate) oplog_size: Option<String>,

    /// Keep entries of the oplog for at least this many hours, and write the oplog from the start
    #[arg(long, visible_alias = "oplogMinRetentionHours", value_name = "HOURS")]
    pub(crate) oplog_min_retention_hours: Option<String>,

    /// Require authentication, and permit each user only what its roles allow
    #[arg(long)]
    pub(crate) auth: bool,

    /// Permit every client everything, whatever the configuration file contains
    #[arg(long)]
    pub(crate) noauth: bool,

    /// The key file of mongod's internal authentication; it implies --auth and has no other effect
    #[arg(long = "keyFile", value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// Accept clients with and without authentication, for the transition of a running system to
    /// --keyFile alone
    #[arg(long = "transitionToAuth")]
    pub(crate) transition_to_auth: bool,

    /// The host, and the port if it differs, at which others reach this server; hello returns it
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) advertise_host: Option<String>,

    /// Run the server in a separate process, and return once it is ready
    #[arg(long)]
    pub(crate) fork: bool,

    /// Reject JavaScript: $where, $function, $accumulator and mapReduce
    #[arg(long)]
    pub(crate) noscripting: bool,

    /// The maximum number of open connections
    #[arg(long, visible_alias = "maxConns", value_name = "COUNT")]
    pub(crate) max_connections: Option<String>,

    /// The most connections of one client's address at one time
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_connections_per_address: Option<String>,

    /// The most requests that wait for a thread; further ones are refused with MongoDB's overload
    /// error [default: 16384]
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_queued_requests: Option<String>,

    /// Compressors to offer: snappy, zstd, zlib, separated by commas, or disabled
    #[arg(long, visible_alias = "networkMessageCompressors", value_name = "NAME,…")]
    pub(crate) compressors: Option<String>,

    /// Set a server parameter; may be given several times
    #[arg(long, visible_alias = "setParameter", value_name = "NAME=VALUE")]
    pub(crate) set_parameter: Vec<String>,

    /// The format of log lines: json in the form of MongoDB's log, or readable [default: json,
    /// readable on a terminal]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,

    /// Write the log to this file instead of stdout
    #[arg(long, visible_alias = "logpath", alias = "log_path", value_name = "FILE")]
    pub(crate) log_path: Option<PathBuf>,

    /// Append to an existing log file; without it, the file is renamed with the time added to its
    /// name
    #[arg(long, visible_alias = "logappend")]
    pub(crate) log_append: bool,

    /// The effect of the command logRotate and of SIGUSR1: rename the log file, or reopen it
    /// [default: rename]
    #[arg(long, visible_alias = "logRotate", value_name = "WAY")]
    pub(crate) log_rotate: Option<String>,

    /// Log more; -vv logs everything
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Do not log the begin and end of connections
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Open a data folder with a damaged log: keep the data before the damage, report what is
    /// lost, and end
    #[arg(long)]
    pub(crate) repair: bool,

    /// Write the process id to this file
    #[arg(long, visible_alias = "pidfilepath", value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,

    /// Write the addresses to this file once connections are accepted there
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,

    /// End once standard input is closed, and so with the process that started the server
    #[arg(long)]
    pub(crate) end_with_stdin: bool,

    #[command(flatten)]
    pub(crate) backup: BackupSchedule,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    #[command(flatten)]
    pub(crate) mongod: MongodArgs,
}

/// Options of backups that the server makes on its own.
#[derive(Args, Debug, Default)]
pub(crate) struct BackupSchedule {
    /// Make backups here, and send the log every few seconds, so that any moment can be restored: a
    /// folder, s3://bucket/prefix, gs://… or az://… ('marula backup create --help' says more)
    #[arg(long, value_name = "TARGET")]
    pub(crate) backup_to: Option<String>,

    /// The time between two backups; the first one is made at the start [default: 6h]
    #[arg(long, value_name = "TIME")]
    pub(crate) backup_every: Option<String>,

    /// How far back every moment can be restored; what is older is removed [default: 7d]
    #[arg(long, value_name = "TIME")]
    pub(crate) backup_keep: Option<String>,

    /// The time between two pieces of log: at most this is lost with the machine [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub(crate) backup_log_every: Option<String>,

    /// Encrypt backups and log with the key in this file ('openssl rand -base64 32' makes one)
    #[arg(long, value_name = "FILE")]
    pub(crate) backup_key_file: Option<PathBuf>,
}

/// Options of TLS, by mongod's names and the older ones that it accepts too.
#[derive(Args, Debug, Default)]
pub(crate) struct TlsArgs {
    /// The accepted connections: disabled, allowTLS or preferTLS (both), requireTLS
    #[arg(long = "tlsMode", value_name = "MODE")]
    pub(crate) mode: Option<String>,

    /// The server's certificate, the chain of its authorities, and its key, in PEM
    #[arg(long = "tlsCertificateKeyFile", alias = "sslPEMKeyFile", value_name = "FILE")]
    pub(crate) certificate_key_file: Option<String>,

    /// The password of that key
    #[arg(
        long = "tlsCertificateKeyFilePassword",
        alias = "sslPEMKeyPassword",
        value_name = "TEXT"
    )]
    pub(crate) certificate_key_file_password: Option<String>,

    /// The certificates of the authorities for clients, in PEM
    #[arg(long = "tlsCAFile", alias = "sslCAFile", value_name = "FILE")]
    pub(crate) ca_file: Option<String>,

    /// Certificates of clients that are revoked, in PEM
    #[arg(long = "tlsCRLFile", alias = "sslCRLFile", value_name = "FILE")]
    pub(crate) crl_file: Option<String>,

    /// Accept clients without a certificate
    #[arg(
        long = "tlsAllowConnectionsWithoutCertificates",
        aliases = ["sslAllowConnectionsWithoutCertificates", "sslWeakCertificateValidation"]
    )]
    pub(crate) allow_without_certificates: bool,

    /// Accept clients with any certificate, which then authenticates nobody
    #[arg(long = "tlsAllowInvalidCertificates", alias = "sslAllowInvalidCertificates")]
    pub(crate) allow_invalid_certificates: bool,

    #[arg(long = "tlsAllowInvalidHostnames", alias = "sslAllowInvalidHostnames", hide = true)]
    pub(crate) allow_invalid_hostnames: bool,

    /// Versions that are not offered: TLS1_2 or TLS1_3; older ones never are
    #[arg(long = "tlsDisabledProtocols", alias = "sslDisabledProtocols", value_name = "NAME,…")]
    pub(crate) disabled_protocols: Option<String>,

    #[arg(long = "sslMode", hide = true, conflicts_with = "mode")]
    pub(crate) ssl_mode: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CheckConfigArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The data folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dbpath: PathBuf,
}
