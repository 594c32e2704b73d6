//! The settings of a server: defaults, then the configuration file, then the command line.

pub(crate) mod audit;
mod key_file;
pub(crate) mod known;
pub(crate) mod logging;
pub(crate) mod profiling;
mod relaxed;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use marula_bson::{DocBuf, DocWriter, ValueBuf};
use marula_wire::{Compressor, Compressors};

use crate::Failure;
#[cfg(feature = "rocksdb")]
use crate::backup::ScheduleSettings;
use crate::cli::ServeArgs;
use crate::config_file;
use crate::tls_settings::{self, TlsSettings, urls_without_passwords};
use audit::AuditSettings;
use known::Verdict;
use logging::LogSettings;
use profiling::ProfilingSettings;

/// The text shown in place of a secret.
const SECRET: &str = "<password>";

/// Options that act, in sections of which others have no effect.
const ACTING_IN_SECTIONS: &[&str] = &["storage.wiredTiger.engineConfig.cacheSizeGB"];

/// An option that is taken and has no effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Warning {
    pub(crate) option: String,
    pub(crate) value: String,
    pub(crate) why: &'static str,
}

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

/// The proof that the members of a set give each other: `security.clusterAuthMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum MemberAuth {
    #[default]
    Unset,
    Key,
    KeyAndCertificate,
    Certificate,
}

impl MemberAuth {
    fn needs_key(self) -> bool {
        matches!(self, MemberAuth::Key | MemberAuth::KeyAndCertificate)
    }

    fn needs_certificate(self) -> bool {
        matches!(self, MemberAuth::KeyAndCertificate | MemberAuth::Certificate)
    }
}

/// The settings of a server.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) dbpath: PathBuf,
    pub(crate) port: u16,
    pub(crate) bind_ips: Vec<String>,
    unix_socket: Option<PathBuf>,
    unix_folder: Option<PathBuf>,
    unix_enabled: Option<bool>,
    /// Where metrics are served.
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) engine: EngineKind,
    /// Servers of a distributed store.
    pub(crate) endpoints: Vec<String>,
    /// The authorities of their certificates; those of the system without it.
    pub(crate) endpoints_ca_file: Option<PathBuf>,
    /// The certificate and key with which this server presents itself to them.
    pub(crate) endpoints_certificate_key_file: Option<PathBuf>,
    /// The file that names a FoundationDB cluster.
    pub(crate) cluster_file: Option<PathBuf>,
    /// Whether other processes may serve the store too.
    pub(crate) is_shared: bool,
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
    pub(crate) log: LogSettings,
    pub(crate) profiling: ProfilingSettings,
    pub(crate) audit: AuditSettings,
    /// Whether the server goes on in a process of its own.
    pub(crate) forks: bool,
    pub(crate) key_file: Option<PathBuf>,
    /// The proof that the members of a set give each other.
    members: MemberAuth,
    /// Whether clients may log in and need not.
    pub(crate) is_in_transition: bool,
    /// The host, and port if it has one, by which others reach this server.
    pub(crate) advertised_host: Option<String>,
    /// The mode of the Unix socket's file.
    pub(crate) unix_mode: Option<u32>,
    /// Options that are taken and have no effect.
    pub(crate) warnings: Vec<Warning>,
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
            unix_folder: None,
            unix_enabled: None,
            metrics_listen: None,
            engine: EngineKind::RocksDb,
            endpoints: Vec::new(),
            endpoints_ca_file: None,
            endpoints_certificate_key_file: None,
            cluster_file: None,
            is_shared: false,
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
            log: LogSettings::default(),
            profiling: ProfilingSettings::default(),
            audit: AuditSettings::default(),
            forks: false,
            key_file: None,
            members: MemberAuth::default(),
            is_in_transition: false,
            advertised_host: None,
            unix_mode: None,
            warnings: Vec::new(),
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
            ("storage.endpoints", args.cluster.endpoints.clone()),
            ("storage.endpointsCAFile", args.cluster.endpoints_ca_file.as_ref().map(path_text)),
            (
                "storage.endpointsCertificateKeyFile",
                args.cluster.endpoints_certificate_key_file.as_ref().map(path_text),
            ),
            ("storage.clusterFile", args.cluster.cluster_file.as_ref().map(path_text)),
            ("storage.shared", args.shared.then(|| "true".to_owned())),
            ("storage.wiredTiger.engineConfig.cacheSizeGB", args.wired_tiger_cache_size_gb.clone()),
            ("storage.cacheSize", args.cache_size.clone()),
            ("storage.memoryLimit", args.memory_limit.clone()),
            ("replication.replSetName", args.repl_set.clone()),
            ("replication.oplogSizeMB", args.oplog_size.clone()),
            ("storage.oplogMinRetentionHours", args.oplog_min_retention_hours.clone()),
            ("security.authorization", args.auth.then(|| "enabled".to_owned())),
            ("security.authorization", args.noauth.then(|| "disabled".to_owned())),
            ("security.javascriptEnabled", args.noscripting.then(|| "false".to_owned())),
            ("security.keyFile", args.key_file.as_ref().map(path_text)),
            ("security.transitionToAuth", args.transition_to_auth.then(|| "true".to_owned())),
            ("net.advertisedHost", args.advertise_host.clone()),
            ("processManagement.fork", args.fork.then(|| "true".to_owned())),
            ("systemLog.format", args.log_format.clone()),
            ("systemLog.path", args.log_path.as_ref().map(path_text)),
            ("systemLog.logAppend", args.log_append.then(|| "true".to_owned())),
            ("systemLog.logRotate", args.log_rotate.clone()),
            ("systemLog.quiet", args.quiet.then(|| "true".to_owned())),
            ("systemLog.verbosity", (args.verbose > 0).then(|| args.verbose.min(5).to_string())),
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
        for (name, value) in args.mongod.iter() {
            settings.set(name, value)?;
        }
        for (name, value) in tls_settings::of_args(&args.tls) {
            settings.set(name, &value)?;
        }
        for assignment in &args.set_parameter {
            let (name, value) = assignment.split_once('=').ok_or_else(|| {
                format!("--set-parameter '{assignment}' is not of the form name=value")
            })?;
            settings.set(&format!("setParameter.{name}"), value)?;
        }
        settings.check()?;
        Ok(settings)
    }

    /// Sets one setting by its name in mongod.conf.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let mut shown = ValueBuf::from(value);
        if let Some(verdict) = known::find(name)
            && !ACTING_IN_SECTIONS.contains(&name)
        {
            self.judge(name, value, verdict)?;
            if known::is_secret(name) {
                shown = ValueBuf::from(SECRET);
            }
            self.named.insert(name.to_owned(), shown);
            return Ok(());
        }
        match name {
            "storage.dbPath" => self.dbpath = PathBuf::from(value),
            "storage.engine" => {
                self.engine = parse_engine(value)?;
                if value == "wiredTiger" {
                    self.warn(name, value, "the data is in RocksDB");
                }
            }
            "storage.clusterFile" => self.cluster_file = Some(PathBuf::from(value)),
            "storage.endpoints" => {
                self.endpoints = value.split(',').map(|url| url.trim().to_owned()).collect();
                shown = ValueBuf::from(urls_without_passwords(value).as_str());
            }
            "storage.endpointsCAFile" => self.endpoints_ca_file = Some(PathBuf::from(value)),
            "storage.endpointsCertificateKeyFile" => {
                self.endpoints_certificate_key_file = Some(PathBuf::from(value));
            }
            "storage.shared" => self.is_shared = parse_flag(name, value)?,
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
                let is_enabled = parse_flag(name, value)?;
                self.unix_enabled = Some(is_enabled);
                shown = ValueBuf::from(is_enabled);
            }
            "metrics.listen" => self.metrics_listen = Some(parse_listen(name, value)?),
            "net.unixDomainSocket.pathPrefix" => self.unix_folder = Some(PathBuf::from(value)),
            "net.unixDomainSocket.filePermissions" => {
                // In mongod.conf an octal number is read as a number, as YAML 1.2 has it.
                let mode = u32::from_str_radix(value.trim_start_matches("0o"), 8);
                let mode = mode.ok().filter(|mode| *mode <= 0o777);
                self.unix_mode = Some(
                    mode.ok_or_else(|| format!("{name} '{value}' is not a mode such as 0700"))?,
                );
            }
            "net.advertisedHost" => self.advertised_host = Some(value.to_owned()),
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
            "security.clusterAuthMode" => {
                self.members = match value {
                    "keyFile" | "sendKeyFile" => MemberAuth::Key,
                    "sendX509" => MemberAuth::KeyAndCertificate,
                    "x509" => MemberAuth::Certificate,
                    other => {
                        return Err(format!(
                            "{name} '{other}' is not one of keyFile, sendKeyFile, sendX509, x509"
                        ));
                    }
                };
            }
            "security.keyFile" => self.key_file = Some(PathBuf::from(value)),
            "security.transitionToAuth" => {
                self.is_in_transition = parse_flag(name, value)?;
                shown = ValueBuf::from(self.is_in_transition);
            }
            _ if name.starts_with("systemLog.") => shown = self.log.set(name, value)?,
            _ if name.starts_with("operationProfiling.") => {
                shown = self.profiling.set(name, value)?;
            }
            _ if name.starts_with("auditLog.") => shown = self.audit.set(name, value)?,
            "processManagement.pidFilePath" => self.pid_file = Some(PathBuf::from(value)),
            "processManagement.readyFile" => self.ready_file = Some(PathBuf::from(value)),
            "processManagement.endWithStdin" => {
                self.ends_with_stdin = parse_flag(name, value)?;
                shown = ValueBuf::from(self.ends_with_stdin);
            }
            "processManagement.fork" => {
                self.forks = parse_flag(name, value)?;
                shown = ValueBuf::from(self.forks);
            }
            _ => match name.strip_prefix("setParameter.") {
                Some(parameter) => self.parameters.push((parameter.to_owned(), value.to_owned())),
                None => return Err(unknown(name)),
            },
        }
        self.named.insert(name.to_owned(), shown);
        Ok(())
    }

    /// Applies the verdict on an option without an effect here.
    fn judge(&mut self, name: &str, value: &str, verdict: Verdict) -> Result<(), Failure> {
        match verdict {
            Verdict::NoEffectIf(usual, _) if usual == value => {}
            Verdict::RefusedUnless(usual, _) if usual == value => {}
            Verdict::NoEffect(why) | Verdict::NoEffectIf(_, why) => self.warn(name, value, why),
            Verdict::Refused(why) | Verdict::RefusedUnless(_, why) => {
                return Err(format!("{name} is refused: {why}"));
            }
        }
        Ok(())
    }

    /// Notes that an option is taken and has no effect.
    fn warn(&mut self, name: &str, value: &str, why: &'static str) {
        let value = if known::is_secret(name) { SECRET } else { value };
        let warning = Warning { option: name.to_owned(), value: value.to_owned(), why };
        self.warnings.retain(|other| other.option != name);
        self.warnings.push(warning);
    }

    /// Checks that what is set goes together.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        self.tls.check()?;
        self.log.check()?;
        #[cfg(feature = "rocksdb")]
        self.backup.check(self.engine == EngineKind::RocksDb)?;
        self.audit.options(self.log.rotation())?;
        if self.forks && self.log.file().is_none() {
            return Err("--fork has to be used with --logpath".to_owned());
        }
        if self.is_in_transition && self.key_file.is_none() {
            return Err("--transitionToAuth must be used with keyFile".to_owned());
        }
        if self.members.needs_key() && self.key_file.is_none() {
            return Err("this security.clusterAuthMode must be used with keyFile".to_owned());
        }
        if self.members.needs_certificate() && !self.tls.is_enabled() {
            return Err("this security.clusterAuthMode must be used with net.tls.mode".to_owned());
        }
        if let Some(path) = &self.key_file {
            key_file::check(path)?;
        }
        // Members that prove who they are ask it of clients too, whatever else is set.
        if self.key_file.is_some() || self.members != MemberAuth::Unset {
            self.has_access_control = !self.is_in_transition;
        }
        Ok(())
    }

    /// Where the Unix socket is to be: named whole, or below a folder by the port.
    pub(crate) fn unix_socket(&self, port: u16) -> Option<PathBuf> {
        let folder = match (&self.unix_folder, self.unix_enabled) {
            (_, Some(false)) => None,
            (Some(folder), _) => Some(folder.clone()),
            (None, Some(true)) => Some(PathBuf::from("/tmp")),
            (None, None) => None,
        };
        let by_port = folder.map(|folder| folder.join(format!("mongodb-{port}.sock")));
        self.unix_socket.clone().or(by_port)
    }

    /// The addresses to listen on.
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

pub(crate) fn unknown(name: &str) -> Failure {
    format!("option '{name}' is not known to this server")
}

pub(crate) fn parse<T: std::str::FromStr>(
    name: &str,
    value: &str,
    what: &str,
) -> Result<T, Failure> {
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
        "rocksdb" | "embedded" | "wiredTiger" => Ok(EngineKind::RocksDb),
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
    fn what_has_no_effect_is_taken_with_a_warning() {
        let mut settings = Settings::default();
        for (name, value, warns) in [
            ("storage.journal.enabled", "true", false),
            ("storage.journal.enabled", "false", true),
            ("storage.engine", "wiredTiger", true),
            ("storage.wiredTiger.engineConfig.cacheSizeGB", "1", false),
            ("storage.wiredTiger.engineConfig.journalCompressor", "zlib", true),
            ("processManagement.timeZoneInfo", "/usr/share/zoneinfo", true),
            ("security.redactClientLogData", "false", false),
            ("net.tls.clusterPassword", "planted", true),
        ] {
            settings.warnings.clear();
            settings.set(name, value).unwrap();
            assert_eq!(settings.warnings.len(), usize::from(warns), "{name}");
            assert!(settings.warnings.iter().all(|warning| warning.value != "planted"));
        }
        assert!(!settings.document().as_doc().to_string().contains("planted"));
        assert_eq!(settings.cache_bytes, Some(1 << 30));
    }

    #[test]
    fn the_unix_socket_is_named_by_the_port() {
        let mut settings = Settings::default();
        assert_eq!(settings.unix_socket(5), None);
        settings.set("net.unixDomainSocket.pathPrefix", "/run/x").unwrap();
        assert_eq!(settings.unix_socket(5), Some(PathBuf::from("/run/x/mongodb-5.sock")));
        settings.set("net.unixDomainSocket.enabled", "false").unwrap();
        assert_eq!(settings.unix_socket(5), None);
        settings.set("net.unixDomainSocket.filePermissions", "0660").unwrap();
        assert_eq!(settings.unix_mode, Some(0o660));
        assert!(settings.set("net.unixDomainSocket.filePermissions", "9").is_err());
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for (name, value) in [
            ("security.authorization", "perhaps"),
            ("net.tls.mode", "always"),
            ("storage.engine", "mmapv1"),
            ("security.redactClientLogData", "true"),
            ("security.enableEncryption", "true"),
            ("systemLog.destination", "syslog"),
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

    #[test]
    fn members_that_prove_who_they_are_ask_clients_too() {
        let with = |mode: &str| {
            let mut settings = Settings::default();
            settings.set("security.clusterAuthMode", mode).unwrap();
            settings
        };
        for mode in ["keyFile", "sendKeyFile", "sendX509"] {
            assert!(with(mode).check().unwrap_err().contains("keyFile"), "{mode}");
        }
        assert!(with("x509").check().unwrap_err().contains("net.tls.mode"));
        assert!(Settings::default().set("security.clusterAuthMode", "none").is_err());
    }
}
