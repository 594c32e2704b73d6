//! Opens a store: the only module that knows the engines by name.

use std::path::Path;
use std::sync::Arc;

use marula_distributed::etcd::Etcd;
use marula_distributed::fdb::Fdb;
use marula_distributed::kv::Kv;
use marula_distributed::sim::{Faults, Sim, SystemClock};
use marula_distributed::{Distributed, LeaseOptions};
#[cfg(feature = "rocksdb")]
use marula_embedded::Embedded;
use marula_server::network::client_config;
use marula_storage::Store;
use marula_storage::memory::Memory;

use crate::Failure;
use crate::memory_plan::MemoryPlan;
use crate::settings::{EngineKind, Settings};
use crate::tls_settings::urls_without_passwords;

/// Why a store is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To serve it: damage is rejected.
    Serve,
    /// The same, with a log that backups follow.
    ServeFollowed,
    /// To repair it: the data lost in a damaged log is given up.
    Repair,
}

/// A store, and the engine that backups are made by.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    #[cfg(feature = "rocksdb")]
    pub(crate) embedded: Option<Arc<Embedded>>,
}

impl Opened {
    /// A store of which no backups can be made.
    fn without_backups(store: Arc<dyn Store>) -> Opened {
        Opened {
            store,
            #[cfg(feature = "rocksdb")]
            embedded: None,
        }
    }
}

/// Opens the store of the settings; a data folder is created if it does not exist. `host` is the
/// host and port by which others reach this server.
pub(crate) fn open(
    settings: &Settings,
    memory: &MemoryPlan,
    purpose: Purpose,
    host: String,
) -> Result<Opened, Failure> {
    let has_endpoints = !settings.endpoints.is_empty()
        || settings.endpoints_ca_file.is_some()
        || settings.endpoints_certificate_key_file.is_some();
    if settings.engine != EngineKind::Etcd && has_endpoints {
        return Err("--endpoints is for --storage-engine etcd".to_owned());
    }
    if settings.engine != EngineKind::Fdb && settings.cluster_file.is_some() {
        return Err("--cluster-file is for --storage-engine fdb".to_owned());
    }
    let is_distributed =
        matches!(settings.engine, EngineKind::Sim | EngineKind::Etcd | EngineKind::Fdb);
    if settings.is_shared && !is_distributed {
        return Err("--shared is for --storage-engine etcd and fdb".to_owned());
    }
    if settings.is_shared && settings.repl_set.is_some() {
        return Err("--shared and --replSet exclude each other: the servers of a shared store answer as mongos processes".to_owned());
    }
    if is_distributed && matches!(purpose, Purpose::Repair) {
        return Err("--repair is for data folders".to_owned());
    }
    match settings.engine {
        EngineKind::Memory => Ok(Opened::without_backups(Arc::new(Memory::new()))),
        EngineKind::RocksDb => open_folder(&settings.dbpath, memory, purpose),
        EngineKind::Sim => open_distributed(
            Arc::new(Sim::new(SystemClock::default(), Faults::default())),
            settings,
            host,
        ),
        EngineKind::Etcd | EngineKind::Fdb => open_distributed(cluster(settings)?, settings, host),
    }
}

/// The cluster of servers that the settings name. Nothing is sent to it yet.
pub(crate) fn cluster(settings: &Settings) -> Result<Arc<dyn Kv>, Failure> {
    match settings.engine {
        EngineKind::Etcd if settings.endpoints.is_empty() => {
            Err("--storage-engine etcd needs --endpoints".to_owned())
        }
        EngineKind::Etcd => Ok(Arc::new(etcd(settings)?)),
        EngineKind::Fdb => Ok(Arc::new(Fdb::open(settings.cluster_file.as_deref(), None)?)),
        EngineKind::Sim | EngineKind::Memory | EngineKind::RocksDb => {
            Err("--storage-engine names no cluster of servers: say etcd or fdb".to_owned())
        }
    }
}

/// Opens an etcd cluster. Its errors quote endpoints, which may have passwords.
fn etcd(settings: &Settings) -> Result<Etcd, Failure> {
    let Settings { endpoints, endpoints_ca_file, endpoints_certificate_key_file, .. } = settings;
    let is_secure = endpoints.iter().any(|endpoint| endpoint.starts_with("https://"));
    let files = (endpoints_ca_file.as_deref(), endpoints_certificate_key_file.as_deref());
    if !is_secure && files != (None, None) {
        return Err("TLS to etcd needs endpoints of the form https://host:port".to_owned());
    }
    let tls = is_secure.then(|| client_config(files.0, files.1)).transpose()?;
    Etcd::new(endpoints, tls).map_err(|error| urls_without_passwords(&error))
}

/// Opens a store over a distributed one, which this process serves alone, or as one of several.
fn open_distributed(kv: Arc<dyn Kv>, settings: &Settings, host: String) -> Result<Opened, Failure> {
    let name = format!("{host}, process {}", std::process::id());
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let options = marula_distributed::Options {
        lease: Some(LeaseOptions { host, version, ..LeaseOptions::new(name) }),
        is_shared: settings.is_shared,
        ..marula_distributed::Options::default()
    };
    let what = kv.name();
    let store = Distributed::open(kv, options)
        .map_err(|error| format!("cannot open the store in {what}: {error}"))?;
    Ok(Opened::without_backups(Arc::new(store)))
}

/// Returns the memory limit of all operations together: three quarters of the memory without the
/// cache.
#[cfg(feature = "rocksdb")]
pub(crate) fn operation_bytes_max(cache_bytes: Option<usize>) -> usize {
    let memory = usize::try_from(marula_embedded::memory_bytes()).unwrap_or(usize::MAX);
    let cache =
        cache_bytes.unwrap_or_else(|| marula_embedded::EmbeddedOptions::new("").cache_bytes);
    (memory.saturating_sub(cache) / 4 * 3).max(OPERATION_BYTES_LEAST)
}

/// As much as there is.
#[cfg(not(feature = "rocksdb"))]
pub(crate) fn operation_bytes_max(_: Option<usize>) -> usize {
    usize::MAX
}

/// The minimum of that limit, however little memory the machine has: some requests with their
/// replies.
#[cfg(feature = "rocksdb")]
const OPERATION_BYTES_LEAST: usize = 256 * 1024 * 1024;

/// Opens the store in the folder `dbpath` for reading.
#[cfg(feature = "rocksdb")]
pub(crate) fn open_to_read(dbpath: &Path) -> Result<Arc<dyn Store>, Failure> {
    let mut options = marula_embedded::EmbeddedOptions::new(dbpath);
    options.is_read_only = true;
    let store = marula_embedded::Embedded::open(options)
        .map_err(|error| format!("cannot open data folder '{}': {error}", dbpath.display()))?;
    Ok(Arc::new(store))
}

/// Returns the error for a build without an engine for data on disk.
#[cfg(not(feature = "rocksdb"))]
pub(crate) fn open_to_read(_: &Path) -> Result<Arc<dyn Store>, Failure> {
    Err("this build has no engine for data on disk".to_owned())
}

/// Returns the cache size for a requested size: at most the machine's memory. The engine cannot be
/// opened with a cache for which the system refuses memory.
#[cfg(feature = "rocksdb")]
fn limited_to_memory(wanted: usize) -> usize {
    let memory = usize::try_from(marula_embedded::memory_bytes()).unwrap_or(usize::MAX);
    if wanted > memory {
        tracing::warn!(
            target: marula_server::logging::STARTUP_WARNING,
            wanted_mb = (wanted >> 20) as u64,
            memory_mb = (memory >> 20) as u64,
            "The cache asked for is larger than this machine's memory, which is what it gets"
        );
    }
    wanted.min(memory)
}

#[cfg(feature = "rocksdb")]
fn open_folder(dbpath: &Path, memory: &MemoryPlan, purpose: Purpose) -> Result<Opened, Failure> {
    let mut options = marula_embedded::EmbeddedOptions::new(dbpath);
    options.keeps_log = matches!(purpose, Purpose::ServeFollowed);
    options.on_damage = match purpose {
        Purpose::Serve | Purpose::ServeFollowed => marula_embedded::OnDamage::Refuse,
        Purpose::Repair => marula_embedded::OnDamage::CutOff,
    };
    if let Some(cache_bytes) = memory.cache_bytes {
        options.cache_bytes = limited_to_memory(cache_bytes);
    }
    if let Some(memtable_bytes) = memory.memtable_bytes {
        options.memtable_bytes = memtable_bytes;
        options.is_bounded = true;
    }
    let store = Embedded::open(options)
        .map_err(|error| format!("cannot open data folder '{}': {error}", dbpath.display()))?;
    let store = Arc::new(store);
    Ok(Opened { store: store.clone(), embedded: Some(store) })
}

#[cfg(not(feature = "rocksdb"))]
fn open_folder(_: &Path, _: &MemoryPlan, _: Purpose) -> Result<Opened, Failure> {
    Err("this build has no engine for data on disk; say --storage-engine memory".to_owned())
}
