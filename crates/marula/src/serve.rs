//! `marula serve`: opens the data, listens, and ends cleanly.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_db::Db;
use marula_server::dispatch::Frame;
use marula_server::log::{Format, Log, LogLayer, STARTUP_WARNING};
use marula_server::log_file::LogFile;
use marula_server::memory::Memory;
use marula_server::metrics::Endpoint;
use marula_server::net::tls::Tls;
use marula_server::net::{self, Listener};
use marula_server::oplog_keeper::OplogOptions;
use marula_server::parameters::AtStartup;
use marula_server::{Options, Server, ttl};
use marula_storage::Store;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

#[cfg(feature = "rocksdb")]
use crate::backup;
use crate::build_info::BUILD;
use crate::cli::ServeArgs;
use crate::engine::Purpose;
use crate::memory_plan::MemoryPlan;
use crate::settings::{EngineKind, Settings};
use crate::signals::Signals;
use crate::{Failure, allocator, engine, process, readiness, signals, tls_settings};

/// The interval at which idle cursors and sessions are removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(4);
/// The time that running requests get when the server ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// The time that the last threads get to release the store.
const RELEASE_WAIT: Duration = Duration::from_secs(2);

/// Serves until a signal or a command ends the server.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let settings = Settings::gather(args)?;
    let memory = MemoryPlan::new(settings.memory_limit, settings.cache_bytes)?;
    if memory.has_limit() {
        allocator::give_back_soon();
    }
    process::keep_files_private();
    let kept = signals::keep()?;
    let limit = process::raise_file_limit()?;
    // The sockets come first: a port in use is found before anything changes.
    let mut listeners = Vec::new();
    for address in settings.addresses()? {
        listeners.push(listen(address)?);
    }
    if let Some(path) = &settings.unix_socket {
        let listener = Listener::unix(path)
            .map_err(|error| format!("cannot listen on '{}': {error}", path.display()))?;
        listeners.push(listener);
    }
    let metrics = settings.metrics_listen.map(listen_for_metrics).transpose()?;
    let address = listeners.first().and_then(Listener::local_addr);
    let tls = settings.tls.open()?;
    // Parameters set by the user override those derived from the memory limit.
    let of_memory = memory.parameters();
    let wanted = of_memory.iter().chain(&settings.parameters);
    let parameters: Vec<AtStartup> =
        wanted.map(|(name, value)| AtStartup::parse(name, value)).collect::<Result<_, _>>()?;
    // Before the engine, which logs damage as it opens.
    let log = start_log(&settings)?;
    if !settings.has_javascript {
        marula_server::disable_javascript();
    }
    let purpose = purpose(args, &settings);
    let engine::Opened {
        store,
        #[cfg(feature = "rocksdb")]
        embedded,
    } = engine::open(&settings, &memory, purpose)?;
    let db = Db::open(store.clone())
        .map_err(|error| format!("cannot read the catalogue: {}", error.message()))?;
    if args.repair {
        // Like mongod, which ends after a repair.
        db.close().map_err(|error| format!("cannot close the data: {}", error.message()))?;
        tracing::info!("the data folder is repaired");
        return Ok(ExitCode::SUCCESS);
    }
    let db = Arc::new(db);
    let server =
        Arc::new(Server::new(db.clone(), options(&settings, &memory, address, tls.clone()), log));
    #[cfg(feature = "rocksdb")]
    let backups = backups(embedded, &settings, &server)?;
    for parameter in &parameters {
        server.set_parameter_at_startup(parameter).map_err(|error| error.message().to_owned())?;
    }
    server
        .oplog_keeper
        .start(&server)
        .map_err(|error| format!("cannot begin the oplog: {}", error.message()))?;
    let _pid_file = settings.pid_file.as_deref().map(PidFile::write).transpose()?;
    let signals = Signals::start(kept, &server, &store, settings.pid_file.clone())?;
    let mut network = net::Options::for_this_machine();
    let wanted = settings.connections_max.unwrap_or(network.connections_max);
    network.connections_max = limit.connections_max(wanted);
    network.connections_per_address_max = settings.connections_per_address_max;
    network.queued_max = settings.queued_max.unwrap_or(network.queued_max);
    network.compressors = settings.compressors;
    network.tls = tls;
    let handle = net::start(listeners, Arc::new(Frame(server.clone())), network)
        .map_err(|error| format!("cannot start the network: {error}"))?;
    // Nothing else sets it.
    let _ = server.network.set(handle.counters());
    if let Some(metrics) = &metrics {
        metrics.show(&server);
    }
    let ttl = ttl::start(server.clone())
        .map_err(|error| format!("cannot start the TTL monitor: {error}"))?;
    if !settings.has_access_control {
        warn_of_open_access(&settings);
    }
    limit.warn_of_low(wanted);
    if let Some(metrics) = &metrics {
        tracing::info!(address = %metrics.address(), "metrics are served");
    }
    for address in handle.local_addrs() {
        tracing::info!(%address, took_ms = began.elapsed().as_millis() as u64, "ready for connections");
    }

    if settings.ends_with_stdin {
        readiness::end_with_stdin(&server)?;
    }
    readiness::tell_ready(handle.local_addrs(), settings.ready_file.as_deref())?;

    while !server.shutdown.wait_until(Instant::now() + EXPIRY_INTERVAL) {
        server.expire();
    }
    readiness::tell_stopping();
    // Running operations end at once, so no client has to wait for them.
    server.operations.end_all();
    if ttl.join().is_err() {
        tracing::error!("the TTL monitor has panicked");
    }
    server.topology_waiters.lock().clear();
    handle.shutdown(if server.shutdown.is_forced() { Duration::ZERO } else { SHUTDOWN_GRACE });
    #[cfg(feature = "rocksdb")]
    if let Some(backups) = backups {
        backups.stop();
    }
    if let Some(metrics) = metrics {
        metrics.stop();
    }
    // From here on the server waits for nothing that a second signal would have to end.
    db.close().map_err(|error| format!("cannot close the data: {}", error.message()))?;
    signals.stop();
    drop((server, db));
    release(store);
    tracing::info!("ended");
    Ok(ExitCode::SUCCESS)
}

fn purpose(args: &ServeArgs, settings: &Settings) -> Purpose {
    #[cfg(feature = "rocksdb")]
    if settings.backup.to.is_some() && !args.repair {
        return Purpose::ServeFollowed;
    }
    let _ = settings;
    if args.repair { Purpose::Repair } else { Purpose::Serve }
}

/// Starts what makes backups, where data is on disk.
#[cfg(feature = "rocksdb")]
fn backups(
    embedded: Option<Arc<marula_embedded::Embedded>>,
    settings: &Settings,
    server: &Server,
) -> Result<Option<Arc<backup::Service>>, Failure> {
    let Some(store) = embedded else { return Ok(None) };
    let (dbpath, schedule) = (settings.dbpath.clone(), settings.backup.clone());
    let service = backup::Service::start(store, dbpath, schedule)?;
    // Nobody else sets it.
    let _ = server.backups.set(service.clone());
    Ok(Some(service))
}

/// Drops the store once no other thread holds it. An engine must be closed before the process
/// exits, because its threads use state that the exit destroys.
fn release(store: Arc<dyn Store>) {
    let until = Instant::now() + RELEASE_WAIT;
    while Arc::strong_count(&store) > 1 && Instant::now() < until {
        // Threads that have sent their last reply are about to end.
        std::thread::sleep(Duration::from_millis(1));
    }
    if Arc::strong_count(&store) > 1 {
        tracing::warn!("the store is still in use at the end");
    }
}

fn listen(address: SocketAddr) -> Result<Listener, Failure> {
    Listener::tcp(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!("cannot listen on {address}: another process does"),
        io::ErrorKind::PermissionDenied => format!("cannot listen on {address}: not permitted"),
        _ => format!("cannot listen on {address}: {error}"),
    })
}

fn listen_for_metrics(address: SocketAddr) -> Result<Endpoint, Failure> {
    Endpoint::start(address)
        .map_err(|error| format!("cannot listen on {address} for metrics: {error}"))
}

fn options(
    settings: &Settings,
    memory: &MemoryPlan,
    address: Option<SocketAddr>,
    tls: Option<Arc<Tls>>,
) -> Options {
    let port = address.map_or(settings.port, |address| address.port());
    let host = match address.map(|address| address.ip()) {
        Some(ip) if !ip.is_unspecified() => SocketAddr::new(ip, port).to_string(),
        _ => format!("{}:{port}", marula_server::host_name()),
    };
    Options {
        repl_set: settings.repl_set.clone(),
        oplog: OplogOptions {
            bytes_max: settings.oplog_bytes_max,
            kept_ms: settings.oplog_kept_ms,
        },
        host,
        build: BUILD,
        argv: tls_settings::without_passwords(std::env::args()),
        parsed: settings.document(),
        dbpath: settings.engine.is_in_folder().then(|| settings.dbpath.display().to_string()),
        log_file: log_file(settings),
        compressors: settings.compressors,
        tls,
        has_access_control: settings.has_access_control,
        memory: Memory { used: allocator::used_bytes, bytes_max: memory.operation_bytes_max },
    }
}

fn log_file(settings: &Settings) -> Option<LogFile> {
    let path = settings.log_path.clone()?;
    Some(LogFile { path, rotation: settings.log_rotation })
}

fn start_log(settings: &Settings) -> Result<Arc<Log>, Failure> {
    let out: Box<dyn Write + Send> = match log_file(settings) {
        None => Box::new(io::stderr()),
        Some(file) => Box::new(file.start(settings.log_earlier).map_err(|error| {
            format!("cannot write log file '{}': {error}", file.path.display())
        })?),
    };
    let format = settings.log_format.unwrap_or(match settings.log_path {
        // A file is read by programs, a terminal by people.
        Some(_) => Format::Json,
        None => Format::Readable,
    });
    let level = match settings.verbosity {
        ..0 => LevelFilter::WARN,
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        2.. => LevelFilter::TRACE,
    };
    let log = Log::new(format, out);
    let subscriber = Registry::default().with(LogLayer(log.clone()).with_filter(level));
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|error| format!("cannot start the log: {error}"))?;
    Ok(log)
}

fn warn_of_open_access(settings: &Settings) {
    tracing::warn!(
        target: STARTUP_WARNING,
        "Access control is not enabled for the database. Read and write access to data and configuration is unrestricted"
    );
    let is_local = |ip: &String| ip == "localhost" || ip.starts_with("127.") || ip == "::1";
    if !settings.bind_ips.iter().all(is_local) {
        tracing::warn!(
            target: STARTUP_WARNING,
            addresses = settings.bind_ips.join(","),
            "This server can be reached from other machines"
        );
    }
    if matches!(settings.engine, EngineKind::Memory | EngineKind::Sim) {
        tracing::warn!(target: STARTUP_WARNING, "Data is in memory alone and is gone when the server ends");
    }
}

/// The file with the process id, removed at the end.
struct PidFile<'a>(&'a Path);

impl<'a> PidFile<'a> {
    fn write(path: &'a Path) -> Result<Self, Failure> {
        fs::write(path, format!("{}\n", std::process::id()))
            // Readable by all users, as mongod's is.
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
            .map_err(|error| format!("cannot write '{}': {error}", path.display()))?;
        Ok(PidFile(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // A remaining file does no harm.
        let _ = fs::remove_file(self.0);
    }
}
