//! The command line.
//!
//! Options have mongod's spellings too (`--bind_ip`, `--replSet`), so that scripts need no change.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A document database that speaks MongoDB's wire protocol.
#[derive(Parser, Debug)]
#[command(
    name = "marula",
    version,
    after_help = "Start a server:        marula serve --dbpath ./data\n\
                  Connect to it:         mongosh mongodb://127.0.0.1:27017\n\
                  Try it without a disk: marula serve --storage-engine memory"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve a data folder to MongoDB's drivers and tools.
    Serve(Box<ServeArgs>),
    /// Check a data folder that no server has open: every document, index and counter.
    Check(CheckArgs),
    /// Compare this server with others under published loads, and draw the report
    #[command(disable_help_flag = true)]
    Bench {
        /// What `marula-bench`, the program beside this one, is to do; `--help` lists it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
        words: Vec<OsString>,
    },
}

#[derive(Args, Debug, Default)]
#[command(
    after_help = "Options of mongod that Marula does not have are refused rather than ignored.\n\
                        Everything here can be said in a configuration file (mongod.conf) too: --config."
)]
pub(crate) struct ServeArgs {
    /// The data folder; it is made if it is not there [default: ./data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dbpath: Option<PathBuf>,

    /// The port to listen on; 0 takes a free one [default: 27017]
    #[arg(long)]
    pub(crate) port: Option<String>,

    /// The addresses to listen on, with commas between [default: 127.0.0.1]
    #[arg(long, alias = "bind_ip", value_name = "ADDRESS,…")]
    pub(crate) bind_ip: Option<String>,

    /// Listen on every address of this machine
    #[arg(long, alias = "bind_ip_all")]
    pub(crate) bind_ip_all: bool,

    /// Also listen on a Unix socket at this path
    #[arg(long, value_name = "FILE")]
    pub(crate) unix_socket: Option<PathBuf>,

    /// A configuration file in the form of mongod.conf; options given here win over it
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Where data is: rocksdb (on disk), memory (gone at the end), or etcd (a cluster of servers)
    /// [default: rocksdb]
    #[arg(long, alias = "storageEngine", value_name = "ENGINE")]
    pub(crate) storage_engine: Option<String>,

    /// Servers of the etcd cluster that has the data, such as http://10.0.0.1:2379, by commas
    #[arg(long, value_name = "URLS")]
    pub(crate) endpoints: Option<String>,

    /// Memory for the cache of data, such as 512MB or 2GB [default: half of the memory beyond 1 GB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_size: Option<String>,

    /// The same in gigabytes, by mongod's name
    #[arg(long = "wiredTigerCacheSizeGB", value_name = "GB", hide = true)]
    pub(crate) wired_tiger_cache_size_gb: Option<String>,

    /// Present a replica set of this name whose only member this is; without it, look like a mongos
    #[arg(long, alias = "replSet", value_name = "NAME")]
    pub(crate) repl_set: Option<String>,

    /// The most megabytes of the oplog, which change streams follow (990 unless said)
    #[arg(long, alias = "oplogSize", value_name = "MB")]
    pub(crate) oplog_size: Option<String>,

    /// Keep what has changed for so many hours whatever its size, and write an oplog from the start
    #[arg(long, alias = "oplogMinRetentionHours", value_name = "HOURS")]
    pub(crate) oplog_min_retention_hours: Option<String>,

    /// Ask every client who it is, and let it do only what its roles allow
    #[arg(long)]
    pub(crate) auth: bool,

    /// Let every client do everything, whatever the configuration file says
    #[arg(long, hide = true)]
    pub(crate) noauth: bool,

    /// Refuse JavaScript: $where, $function, $accumulator and mapReduce
    #[arg(long)]
    pub(crate) noscripting: bool,

    /// The most connections at one time
    #[arg(long, alias = "maxConns", value_name = "COUNT")]
    pub(crate) max_connections: Option<String>,

    /// Compressors to offer: snappy, zstd, zlib, with commas between, or disabled
    #[arg(long, alias = "networkMessageCompressors", value_name = "NAME,…")]
    pub(crate) compressors: Option<String>,

    /// Set a server parameter; may be given several times
    #[arg(long, alias = "setParameter", value_name = "NAME=VALUE")]
    pub(crate) set_parameter: Vec<String>,

    /// How log lines look: readable, or json in the shape of MongoDB's log
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,

    /// Write the log to this file instead of stderr
    #[arg(long, aliases = ["logpath", "log_path"], value_name = "FILE")]
    pub(crate) log_path: Option<PathBuf>,

    /// Add to a log file that is there; without it, the file is renamed with the time added to its
    /// name
    #[arg(long, alias = "logappend")]
    pub(crate) log_append: bool,

    /// What the command logRotate and SIGUSR1 do: rename the log file, or reopen its path [default:
    /// rename]
    #[arg(long, alias = "logRotate", value_name = "WAY")]
    pub(crate) log_rotate: Option<String>,

    /// Log more; -vv logs most
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Log only what is wrong
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Open a data folder whose log is damaged: keep what comes before the damage, tell what is
    /// lost, and end
    #[arg(long)]
    pub(crate) repair: bool,

    /// Write the number of the process to this file
    #[arg(long, alias = "pidfilepath", value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    #[command(flatten)]
    pub(crate) refused: RefusedArgs,
}

/// Options of TLS, by mongod's names and the older ones that it takes too.
#[derive(Args, Debug, Default)]
pub(crate) struct TlsArgs {
    /// Which connections are taken: disabled, allowTLS or preferTLS (both), requireTLS
    #[arg(long = "tlsMode", value_name = "MODE")]
    pub(crate) mode: Option<String>,

    /// The server's certificate, those that vouch for it, and its key, in PEM
    #[arg(long = "tlsCertificateKeyFile", alias = "sslPEMKeyFile", value_name = "FILE")]
    pub(crate) certificate_key_file: Option<String>,

    /// What that key is encrypted with
    #[arg(
        long = "tlsCertificateKeyFilePassword",
        alias = "sslPEMKeyPassword",
        value_name = "TEXT"
    )]
    pub(crate) certificate_key_file_password: Option<String>,

    /// The certificates that vouch for clients, in PEM
    #[arg(long = "tlsCAFile", alias = "sslCAFile", value_name = "FILE")]
    pub(crate) ca_file: Option<String>,

    /// Certificates of clients that are revoked, in PEM
    #[arg(long = "tlsCRLFile", alias = "sslCRLFile", value_name = "FILE")]
    pub(crate) crl_file: Option<String>,

    /// Take clients that have no certificate
    #[arg(
        long = "tlsAllowConnectionsWithoutCertificates",
        aliases = ["sslAllowConnectionsWithoutCertificates", "sslWeakCertificateValidation"]
    )]
    pub(crate) allow_without_certificates: bool,

    /// Take clients with any certificate; nobody is known by it then
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

/// Options of mongod that are known in order to be refused with a reason, or because they ask for
/// what is so anyway.
#[derive(Args, Debug, Default)]
pub(crate) struct RefusedArgs {
    #[arg(long, hide = true)]
    pub(crate) journal: bool,
    #[arg(long, hide = true)]
    pub(crate) nojournal: bool,
    #[arg(long, hide = true)]
    pub(crate) nounixsocket: bool,
    #[arg(long, hide = true)]
    pub(crate) fork: bool,
    #[arg(long, hide = true)]
    pub(crate) shardsvr: bool,
    #[arg(long, hide = true)]
    pub(crate) configsvr: bool,
    #[arg(long, hide = true)]
    pub(crate) directoryperdb: bool,
    #[arg(long = "keyFile", hide = true)]
    pub(crate) key_file: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The data folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dbpath: PathBuf,
}
