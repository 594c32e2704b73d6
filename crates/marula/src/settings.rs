//! The settings of a server: defaults, then the configuration file, then the command line.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use marula_bson::{DocBuf, DocWriter, ValueBuf};
use marula_server::log::Format;
use marula_server::log_file::{Earlier, Rotation};
use marula_wire::{Compressor, Compressors};

use crate::Failure;
#[cfg(feature = "rocksdb")]
use crate::backup::ScheduleSettings;
use crate::cli::{RefusedArgs, ServeArgs};
use crate::config_file;
use crate::tls_settings::{self, TlsSettings};

/// The engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EngineKind {
    RocksDb,
    Memory,
    /// A distributed store simulated in this process, for tests: its limits, and nothing kept.
    Sim,
    Etcd,
    Fdb,
}

impl EngineKind {
    /// Whether data is in the data folder.
    pub(crate) fn is_in_folder(self) -> bool {
        self == EngineKind::RocksDb
    }
}

/// The maximum size of the cache in gigabytes: mongod's limit.
const CACHE_GB_MAX: f64 = 10_000.0;

/// Bytes of a gigabyte.
const GB: f64 = 1_073_741_824.0;

/// The settings of a server.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) dbpath: PathBuf,
    pub(crate) port: u16,
    pub(crate) bind_ips: Vec<String>,
    pub(crate) unix_socket: Option<PathBuf>,
    /// Where metrics are served.
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) engine: EngineKind,
    /// Servers of a distributed store.
    pub(crate) endpoints: Vec<String>,
    /// The file that names a FoundationDB cluster.
    pub(crate) cluster_file: Option<PathBuf>,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) cache_bytes: Option<usize>,
    pub(crate) repl_set: Option<String>,
    pub(crate) oplog_bytes_max: Option<i64>,
    pub(crate) oplog_kept_ms: i64,
    pub(crate) has_access_control: bool,
    /// Whether JavaScript may run.
    pub(crate) has_javascript: bool,
    pub(crate) connections_max: Option<usize>,
    pub(crate) connections_per_address_max: Option<usize>,
    pub(crate) queued_max: Option<usize>,
    pub(crate) compressors: Compressors,
    pub(crate) tls: TlsSettings,
    #[cfg(feature = "rocksdb")]
    pub(crate) backup: ScheduleSettings,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) log_format: Option<Format>,
    pub(crate) log_path: Option<PathBuf>,
    pub(crate) log_earlier: Earlier,
    pub(crate) log_rotation: Rotation,
    pub(crate) verbosity: i8,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) ready_file: Option<PathBuf>,
    pub(crate) ends_with_stdin: bool,
    /// The values that were set, by dotted name in mongod.conf, for `getCmdLineOpts`.
    pub(crate) named: BTreeMap<String, ValueBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            dbpath: PathBuf::from("data"),
            port: 27_017,
            bind_ips: vec!["127.0.0.1".to_owned()],
            unix_socket: None,
            metrics_listen: None,
            engine: EngineKind::RocksDb,
            endpoints: Vec::new(),
            cluster_file: None,
            memory_limit: None,
            cache_bytes: None,
            repl_set: None,
            oplog_bytes_max: None,
            oplog_kept_ms: 0,
            has_access_control: false,
            has_javascript: true,
            connections_max: None,
            connections_per_address_max: None,
            queued_max: None,
            compressors: Compressors::DEFAULT,
            tls: TlsSettings::default(),
            #[cfg(feature = "rocksdb")]
            backup: ScheduleSettings::default(),
            parameters: Vec::new(),
            log_format: None,
            log_path: None,
            log_earlier: Earlier::default(),
            log_rotation: Rotation::default(),
            verbosity: 0,
            pid_file: None,
            ready_file: None,
            ends_with_stdin: false,
            named: BTreeMap::new(),
        }
    }
}

/// The maximum size of the oplog in megabytes. Source: manual "replSetResizeOplog": a petabyte.
const OPLOG_MB_MAX: i64 = 1 << 30;
/// The maximum retention in hours: a hundred years.
const OPLOG_HOURS_MAX: f64 = 876_000.0;

impl Settings {
    /// Collects the settings of a command line and of its configuration file.
    pub(crate) fn gather(args: &ServeArgs) -> Result<Settings, Failure> {
        let mut settings = Settings::default();
        if let Some(path) = &args.config {
            config_file::read(path, &mut settings)?;
        }
        refuse(&args.refused)?;
        if args.auth && args.noauth {
            return Err("--auth is not allowed when --noauth is specified".to_owned());
        }
        let path_text = |path: &PathBuf| path.display().to_string();
        for (name, value) in [
            ("storage.dbPath", args.dbpath.as_ref().map(path_text)),
            ("net.port", args.port.clone()),
            ("net.bindIp", args.bind_ip.clone()),
            ("net.bindIpAll", args.bind_ip_all.then(|| "true".to_owned())),
            ("net.unixDomainSocket.path", args.unix_socket.as_ref().map(path_text)),
            ("metrics.listen", args.metrics_listen.clone()),
            ("net.maxIncomingConnections", args.max_connections.clone()),
            ("net.maxConnectionsPerAddress", args.max_connections_per_address.clone()),
            ("net.maxQueuedRequests", args.max_queued_requests.clone()),
            ("net.compression.compressors", args.compressors.clone()),
            ("storage.engine", args.storage_engine.clone()),
            ("storage.endpoints", args.endpoints.clone()),
            ("storage.clusterFile", args.cluster_file.as_ref().map(path_text)),
            ("storage.wiredTiger.engineConfig.cacheSizeGB", args.wired_tiger_cache_size_gb.clone()),
            ("storage.cacheSize", args.cache_size.clone()),
            ("storage.memoryLimit", args.memory_limit.clone()),
            ("replication.replSetName", args.repl_set.clone()),
            ("replication.oplogSizeMB", args.oplog_size.clone()),
            ("storage.oplogMinRetentionHours", args.oplog_min_retention_hours.clone()),
            ("security.authorization", args.auth.then(|| "enabled".to_owned())),
            ("security.authorization", args.noauth.then(|| "disabled".to_owned())),
            ("security.javascriptEnabled", args.noscripting.then(|| "false".to_owned())),
            ("systemLog.format", args.log_format.clone()),
            ("systemLog.path", args.log_path.as_ref().map(path_text)),
            ("systemLog.logAppend", args.log_append.then(|| "true".to_owned())),
            ("systemLog.logRotate", args.log_rotate.clone()),
            ("systemLog.quiet", args.quiet.then(|| "true".to_owned())),
            ("systemLog.verbosity", (args.verbose > 0).then(|| args.verbose.to_string())),
            ("processManagement.pidFilePath", args.pid_file.as_ref().map(path_text)),
            ("processManagement.readyFile", args.ready_file.as_ref().map(path_text)),
            ("processManagement.endWithStdin", args.end_with_stdin.then(|| "true".to_owned())),
            ("backup.to", args.backup.backup_to.clone()),
            ("backup.every", args.backup.backup_every.clone()),
            ("backup.keep", args.backup.backup_keep.clone()),
            ("backup.logEvery", args.backup.backup_log_every.clone()),
            ("backup.keyFile", args.backup.backup_key_file.as_ref().map(path_text)),
        ] {
            if let Some(value) = value {
                settings.set(name, &value)?;
            }
        }
        for (name, value) in tls_settings::of_args(&args.tls) {
            settings.set(name, &value)?;
        }
        settings.tls.check()?;
        #[cfg(feature = "rocksdb")]
        settings.backup.check(settings.engine == EngineKind::RocksDb)?;
        for assignment in &args.set_parameter {
            let (name, value) = assignment.split_once('=').ok_or_else(|| {
                format!("--set-parameter '{assignment}' is not of the form name=value")
            })?;
            settings.set(&format!("setParameter.{name}"), value)?;
        }
        if settings.log_rotation == Rotation::Reopen && settings.log_earlier != Earlier::Extended {
            return Err("systemLog.logRotate 'reopen' needs systemLog.logAppend to be true".into());
        }
        Ok(settings)
    }

    /// Sets one setting by its name in mongod.conf.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let mut shown = ValueBuf::from(value);
        match name {
            "storage.dbPath" => self.dbpath = PathBuf::from(value),
            "storage.engine" => self.engine = parse_engine(value)?,
            "storage.clusterFile" => self.cluster_file = Some(PathBuf::from(value)),
            "storage.endpoints" => {
                self.endpoints = value.split(',').map(|url| url.trim().to_owned()).collect();
            }
            "storage.memoryLimit" => self.memory_limit = Some(parse_bytes(name, value)?),
            "storage.cacheSize" => {
                let bytes = parse_bytes(name, value)?;
                if bytes as f64 > CACHE_GB_MAX * GB {
                    return Err(format!("{name} '{value}' is more than 10000 GB"));
                }
                self.cache_bytes = Some(bytes);
            }
            "storage.wiredTiger.engineConfig.cacheSizeGB" => {
                let gigabytes: f64 = parse(name, value, "a size in gigabytes")?;
                if !(0.0..=CACHE_GB_MAX).contains(&gigabytes) {
                    return Err(format!(
                        "{name} '{value}' is not a size from 0 to 10000 gigabytes"
                    ));
                }
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let bytes = (gigabytes * GB) as usize;
                self.cache_bytes = Some(bytes);
                shown = ValueBuf::from(gigabytes);
            }
            "storage.journal.enabled" => need(name, value, "true", "the journal is always on")?,
            "storage.directoryPerDB" => {
                need(name, value, "false", "all databases share one folder")?;
            }
            "net.port" => {
                self.port = parse(name, value, "a port: a number from 0 to 65535")?;
                shown = ValueBuf::from(i32::from(self.port));
            }
            "net.bindIp" => {
                self.bind_ips = value.split(',').map(|ip| ip.trim().to_owned()).collect();
            }
            "net.bindIpAll" => {
                let all = parse_flag(name, value)?;
                if all {
                    self.bind_ips = vec!["*".to_owned()];
                }
                shown = ValueBuf::from(all);
            }
            "net.unixDomainSocket.path" => self.unix_socket = Some(PathBuf::from(value)),
            "net.unixDomainSocket.enabled" => {
                need(name, value, "false", "say --unix-socket FILE to have one")?;
            }
            "net.ipv6" => shown = ValueBuf::from(parse_flag(name, value)?),
            "metrics.listen" => self.metrics_listen = Some(parse_listen(name, value)?),
            "net.maxIncomingConnections" => {
                let count = parse_count(name, value, "a number of connections", &mut shown)?;
                self.connections_max = Some(count);
            }
            "net.maxConnectionsPerAddress" => {
                let count = parse_count(name, value, "a number of connections", &mut shown)?;
                self.connections_per_address_max = Some(count);
            }
            "net.maxQueuedRequests" => {
                let count = parse_count(name, value, "a number of requests", &mut shown)?;
                self.queued_max = Some(count);
            }
            "net.compression.compressors" => self.compressors = parse_compressors(value)?,
            _ if name.starts_with("net.tls.") || name.starts_with("net.ssl.") => {
                let (name, shown) = self.tls.set(name, value)?;
                self.named.insert(name, shown);
                return Ok(());
            }
            #[cfg(feature = "rocksdb")]
            _ if name.starts_with("backup.") => {
                let own = name.trim_start_matches("backup.");
                if !self.backup.set(own, value)? {
                    return Err(format!("option '{name}' is not known to this server"));
                }
                if own == "to" {
                    shown = ValueBuf::from(marula_backup::target::shown(value).as_str());
                }
            }
            "replication.replSetName" | "replication.replSet" => {
                if value.is_empty() {
                    return Err(format!("{name} must not be empty"));
                }
                self.repl_set = Some(value.to_owned());
            }
            "replication.oplogSizeMB" => {
                let megabytes: i64 = parse(name, value, "a size in megabytes")?;
                if !(1..=OPLOG_MB_MAX).contains(&megabytes) {
                    return Err(format!("{name} '{value}' is not between 1 and {OPLOG_MB_MAX}"));
                }
                self.oplog_bytes_max = Some(megabytes << 20);
            }
            "storage.oplogMinRetentionHours" => {
                let hours: f64 = parse(name, value, "a number of hours")?;
                if !(0.0..=OPLOG_HOURS_MAX).contains(&hours) {
                    return Err(format!("{name} '{value}' is not between 0 and {OPLOG_HOURS_MAX}"));
                }
                #[allow(clippy::cast_possible_truncation)]
                let ms = (hours * 3_600_000.0) as i64;
                self.oplog_kept_ms = ms;
            }
            "security.authorization" => {
                self.has_access_control = match value {
                    "enabled" => true,
                    "disabled" => false,
                    other => {
                        return Err(format!("{name} '{other}' is not one of enabled, disabled"));
                    }
                };
            }
            "security.javascriptEnabled" => {
                self.has_javascript = parse_flag(name, value)?;
                shown = ValueBuf::from(self.has_javascript);
            }
            "systemLog.destination" => match value {
                "file" | "stderr" => {}
                other => return Err(format!("{name} '{other}' is not one of file, stderr")),
            },
            "systemLog.path" => self.log_path = Some(PathBuf::from(value)),
            "systemLog.logAppend" => {
                let appends = parse_flag(name, value)?;
                self.log_earlier = if appends { Earlier::Extended } else { Earlier::Renamed };
                shown = ValueBuf::from(appends);
            }
            "systemLog.logRotate" => {
                self.log_rotation = match value {
                    "rename" => Rotation::Rename,
                    "reopen" => Rotation::Reopen,
                    other => return Err(format!("{name} '{other}' is not one of rename, reopen")),
                };
            }
            "systemLog.format" => {
                self.log_format = Some(match value {
                    "readable" => Format::Readable,
                    "json" => Format::Json,
                    other => {
                        return Err(format!("log format '{other}' is not one of readable, json"));
                    }
                });
            }
            "systemLog.quiet" => {
                let quiet = parse_flag(name, value)?;
                if quiet {
                    self.verbosity = -1;
                }
                shown = ValueBuf::from(quiet);
            }
            "systemLog.verbosity" => {
                self.verbosity = parse(name, value, "a verbosity: a number from 0 to 5")?;
                shown = ValueBuf::from(i32::from(self.verbosity));
            }
            "processManagement.pidFilePath" => self.pid_file = Some(PathBuf::from(value)),
            "processManagement.readyFile" => self.ready_file = Some(PathBuf::from(value)),
            "processManagement.endWithStdin" => {
                self.ends_with_stdin = parse_flag(name, value)?;
                shown = ValueBuf::from(self.ends_with_stdin);
            }
            "processManagement.fork" => need(name, value, "false", FORK_REASON)?,
            "processManagement.timeZoneInfo" => {
                return Err(format!("{name} cannot be chosen: the time zones are built in"));
            }
            _ => match name.strip_prefix("setParameter.") {
                Some(parameter) => self.parameters.push((parameter.to_owned(), value.to_owned())),
                None => return Err(format!("option '{name}' is not known to this server")),
            },
        }
        self.named.insert(name.to_owned(), shown);
        Ok(())
    }

    /// Returns the addresses to listen on.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for ip in &self.bind_ips {
            let found: Vec<SocketAddr> = match ip.as_str() {
                "*" => vec![(IpAddr::V4(Ipv4Addr::UNSPECIFIED), self.port).into()],
                "::" => vec![(IpAddr::V6(Ipv6Addr::UNSPECIFIED), self.port).into()],
                // Only the IPv4 address: mongod uses IPv6 only if requested.
                "localhost" => vec![(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port).into()],
                name => (name, self.port)
                    .to_socket_addrs()
                    .map_err(|error| format!("cannot listen on '{name}': {error}"))?
                    .collect(),
            };
            let new: Vec<_> =
                found.into_iter().filter(|found| !addresses.contains(found)).collect();
            addresses.extend(new);
        }
        Ok(addresses)
    }

    /// Returns the values that were set, nested as in mongod.conf.
    pub(crate) fn document(&self) -> DocBuf {
        let named: Vec<(&str, &ValueBuf)> =
            self.named.iter().map(|(name, value)| (name.as_str(), value)).collect();
        DocBuf::build(|out| write_nested(&named, out))
    }
}

/// Writes sorted dotted names as nested documents.
fn write_nested(named: &[(&str, &ValueBuf)], out: &mut DocWriter<'_>) {
    let mut rest = named;
    while let Some((first, _)) = rest.first() {
        let section = first.split('.').next().unwrap_or(first);
        let is_in = |name: &str| name.split('.').next() == Some(section);
        let count = rest.iter().take_while(|(name, _)| is_in(name)).count();
        let (here, after) = rest.split_at(count);
        rest = after;
        let inner: Vec<_> = here
            .iter()
            .filter_map(|(name, value)| {
                Some((name.strip_prefix(section)?.strip_prefix('.')?, *value))
            })
            .collect();
        if inner.is_empty() {
            here.iter().for_each(|(_, value)| {
                out.append(section, *value);
            });
        } else {
            write_nested(&inner, &mut out.begin_doc(section));
        }
    }
}

const FORK_REASON: &str = "run it under a service manager, or with & in a shell";

fn refuse(refused: &RefusedArgs) -> Result<(), Failure> {
    let no = |option: &str, reason: &str| Err(format!("{option} is refused: {reason}"));
    match refused {
        RefusedArgs { key_file: Some(_), .. } => no("--keyFile", "a node stands alone; say --auth"),
        RefusedArgs { nojournal: true, .. } => no("--nojournal", "the journal is always on"),
        RefusedArgs { fork: true, .. } => no("--fork", FORK_REASON),
        RefusedArgs { shardsvr: true, .. } => no("--shardsvr", "a node stands alone"),
        RefusedArgs { configsvr: true, .. } => no("--configsvr", "a node stands alone"),
        RefusedArgs { directoryperdb: true, .. } => {
            no("--directoryperdb", "all databases share one folder")
        }
        // These ask for a fixed behaviour.
        RefusedArgs { journal: _, nounixsocket: _, .. } => Ok(()),
    }
}

fn need(name: &str, value: &str, only: &str, reason: &str) -> Result<(), Failure> {
    match value == only {
        true => Ok(()),
        false => Err(format!("{name} '{value}' is refused: {reason}")),
    }
}

fn parse<T: std::str::FromStr>(name: &str, value: &str, what: &str) -> Result<T, Failure> {
    value.parse().map_err(|_| format!("{name} '{value}' is not {what}"))
}

/// A number from 1 on; `shown` becomes it.
fn parse_count(
    name: &str,
    value: &str,
    what: &str,
    shown: &mut ValueBuf,
) -> Result<usize, Failure> {
    let count: usize = parse(name, value, what)?;
    if count == 0 {
        return Err(format!("{name} must not be 0"));
    }
    *shown = ValueBuf::from(i32::try_from(count).unwrap_or(i32::MAX));
    Ok(count)
}

pub(crate) fn parse_flag(name: &str, value: &str) -> Result<bool, Failure> {
    parse(name, value, "one of true, false")
}

fn parse_engine(value: &str) -> Result<EngineKind, Failure> {
    match value {
        "rocksdb" | "embedded" => Ok(EngineKind::RocksDb),
        "memory" | "inMemory" | "ephemeralForTest" => Ok(EngineKind::Memory),
        "sim" => Ok(EngineKind::Sim),
        "etcd" => Ok(EngineKind::Etcd),
        "fdb" => Ok(EngineKind::Fdb),
        other => Err(format!("storage engine '{other}' is not one of rocksdb, memory, etcd, fdb")),
    }
}

/// A port of this machine's own address, or an address and a port.
fn parse_listen(name: &str, value: &str) -> Result<SocketAddr, Failure> {
    let wrong = || format!("{name} '{value}' is not a port, nor an address and a port");
    if let Ok(port) = value.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    value.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(wrong)
}

/// Parses a size such as `512MB`, `2GB`, `1.5GB` or a number of bytes.
fn parse_bytes(name: &str, value: &str) -> Result<usize, Failure> {
    let wrong = || format!("{name} '{value}' is not a size such as 512MB or 2GB");
    let split = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(split);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let scale: f64 = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 1.0,
        "K" | "KB" | "KIB" => 1024.0,
        "M" | "MB" | "MIB" => 1_048_576.0,
        "G" | "GB" | "GIB" => GB,
        _ => return Err(wrong()),
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes = (number * scale) as usize;
    Ok(bytes)
}

fn parse_compressors(value: &str) -> Result<Compressors, Failure> {
    let mut compressors = Compressors::NONE;
    if value == "disabled" {
        return Ok(compressors);
    }
    for name in value.split(',').map(str::trim) {
        let compressor = Compressor::from_name(name.as_bytes())
            .ok_or_else(|| format!("compressor '{name}' is not one of snappy, zstd, zlib"))?;
        compressors = compressors.with(compressor);
    }
    Ok(compressors)
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in
            [("512MB", 512 << 20), ("2GB", 2 << 30), ("1.5g", 3 << 29), ("4096", 4096)]
        {
            assert_eq!(parse_bytes("x", text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "5TB", "-1", "1..5"] {
            assert!(parse_bytes("x", text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_set_is_shown_as_in_the_file() {
        let mut settings = Settings::default();
        settings.set("net.port", "5").unwrap();
        settings.set("net.bindIp", "127.0.0.1,::1").unwrap();
        settings.set("storage.dbPath", "/x").unwrap();
        settings.set("setParameter.ttlMonitorEnabled", "false").unwrap();
        let expected = doc! {
            "net": { "bindIp": "127.0.0.1,::1", "port": 5 },
            "setParameter": { "ttlMonitorEnabled": "false" },
            "storage": { "dbPath": "/x" },
        };
        assert_eq!(settings.document(), expected);
        assert_eq!(settings.addresses().unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for (name, value) in [
            ("security.authorization", "perhaps"),
            ("net.tls.mode", "always"),
            ("storage.engine", "wiredTiger"),
            ("storage.journal.enabled", "false"),
            ("net.port", "70000"),
            ("nope.nope", "1"),
        ] {
            assert!(Settings::default().set(name, value).is_err(), "{name}");
        }
        let mut settings = Settings::default();
        settings.set("security.authorization", "enabled").unwrap();
        assert!(settings.has_access_control);
        settings.set("security.authorization", "disabled").unwrap();
        assert!(!settings.has_access_control);
    }
}
