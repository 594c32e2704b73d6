//! `marula serve`: opens the data, listens, and ends cleanly.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use marula_bson::Value;
use marula_db::Db;
use marula_server::logging::{Log, LogLayer, STARTUP_WARNING, Worker, worker};
use marula_server::network::{self, Listener, NetHandle, Tls};
use marula_server::options::{
    AtStartup, Audit, Memory, OplogOptions, Options, ProcessMemory, Profiling as Database, Refused,
};
use marula_server::{Frame, MetricsEndpoint as Endpoint, Server};
use marula_storage::Store;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

#[cfg(feature = "rocksdb")]
use crate::backup;
use crate::build_info::BUILD;
use crate::cli::ServeArgs;
use crate::engine::Purpose;
use crate::memory_plan::MemoryPlan;
use crate::process::FileLimit;
use crate::settings::{EngineKind, Settings};
use crate::signals::Signals;
use crate::{Failure, allocator, banner, engine, fork, process, readiness, signals, tls_settings};

/// The mode of a Unix socket's file, as mongod's.
const UNIX_SOCKET_MODE: u32 = 0o700;
/// The time that running requests get when the server ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// The time that the last threads get to release the store.
const RELEASE_WAIT: Duration = Duration::from_secs(2);

/// Everything but the data that a server starts with, checked.
struct Start {
    began: Instant,
    settings: Settings,
    kept: signals::Kept,
    limit: FileLimit,
    memory: MemoryPlan,
    listeners: Vec<Listener>,
    metrics: Option<Endpoint>,
    unix_socket: Option<PathBuf>,
    tls: Option<Arc<Tls>>,
    audit: Option<Arc<Audit>>,
    parameters: Vec<AtStartup>,
    log: Arc<Log>,
}

/// Serves until the end is requested.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let settings = Settings::gather(args)?;
    let memory = MemoryPlan::new(settings.memory_limit, settings.cache_bytes)?;
    if memory.has_limit() {
        allocator::give_back_soon();
    }
    if settings.forks {
        match fork::is_child() {
            false => return fork::start_child(),
            true => fork::detach()?,
        }
    }
    process::keep_files_private();
    let kept = signals::keep()?;
    let limit = process::raise_file_limit()?;
    let tls = settings.tls.open()?;
    // Parameters set by the user override those derived from the memory limit.
    let of_memory = memory.parameters();
    let wanted = of_memory.iter().chain(&settings.parameters);
    let parameters: Vec<AtStartup> =
        wanted.map(|(name, value)| AtStartup::parse(name, value)).collect::<Result<_, _>>()?;
    // The sockets come first: a port in use is then found before anything is touched.
    let mut listeners = Vec::new();
    for address in settings.addresses()? {
        listeners.push(listen(address)?);
    }
    let address = listeners.first().and_then(Listener::local_addr);
    let unix_socket = settings.unix_socket(address.map_or(settings.port, |it| it.port()));
    if let Some(path) = &unix_socket {
        let listener = Listener::unix(path, settings.unix_mode.unwrap_or(UNIX_SOCKET_MODE))
            .map_err(|error| format!("cannot listen on '{}': {error}", path.display()))?;
        listeners.push(listener);
    }
    let metrics = settings.metrics_listen.map(listen_for_metrics).transpose()?;
    let audit = settings.audit.options(settings.log.rotation())?;
    let audit = audit.as_ref().map(Audit::open).transpose()?.map(Arc::new);
    // Before the engine, which reports damage as it opens.
    let log = start_log(&settings)?;
    let start = Start {
        began,
        settings,
        kept,
        limit,
        memory,
        listeners,
        metrics,
        unix_socket,
        tls,
        audit,
        parameters,
        log,
    };
    let purpose = purpose(args, &start.settings);
    start.serve(purpose).inspect_err(|failure| {
        // A reader of the log finds it too.
        tracing::error!(target: "CONTROL", id = 20_557, error = failure.as_str(), "DBException in initAndListen, terminating");
    })
}

impl Start {
    /// Opens the data, serves it, and closes it, also after a start that fails.
    fn serve(self, purpose: Purpose) -> Result<ExitCode, Failure> {
        let settings = &self.settings;
        let address = self.listeners.first().and_then(Listener::local_addr);
        let port = address.map_or(settings.port, |address| address.port());
        let starting = worker::begin(Worker::Part("initandlisten"));
        banner::log(settings, port);
        if !settings.has_javascript {
            marula_server::disable_javascript();
        }
        let engine::Opened {
            store,
            #[cfg(feature = "rocksdb")]
            embedded,
        } = engine::open(settings, &self.memory, purpose, host(settings, address))?;
        let db = Db::open(store.clone())
            .map_err(|error| format!("cannot read the catalogue: {}", error.message()))?;
        if purpose == Purpose::Repair {
            // As mongod, which ends when it has repaired.
            db.close().map_err(|error| format!("cannot close the data: {}", error.message()))?;
            tracing::info!("the data folder is repaired");
            return Ok(ExitCode::SUCCESS);
        }
        let db = Arc::new(db);
        let outcome = self.run(
            starting,
            (address, port),
            #[cfg(feature = "rocksdb")]
            embedded,
            &db,
            &store,
        );
        if outcome.is_err()
            && let Err(error) = db.close()
        {
            tracing::error!(error = error.message(), "cannot close the data");
        }
        drop(db);
        release(store);
        outcome?;
        tracing::info!(target: "CONTROL", id = 20_565, "Now exiting");
        tracing::info!(target: "CONTROL", id = 23_138, exitCode = 0, "Shutting down");
        Ok(ExitCode::SUCCESS)
    }

    /// Serves the data until the end, and closes it.
    fn run(
        self,
        starting: worker::AtWork,
        (address, port): (Option<SocketAddr>, u16),
        #[cfg(feature = "rocksdb")] embedded: Option<Arc<marula_embedded::Embedded>>,
        db: &Arc<Db>,
        store: &Arc<dyn Store>,
    ) -> Result<(), Failure> {
        let settings = self.settings;
        let options = options(&settings, &self.memory, address, self.tls.clone(), self.audit);
        let server = Arc::new(Server::new(db.clone(), options, self.log));
        if let Err(error) = db.ensure_feature_version(server.now_ms()) {
            // Nothing needs the document, so a full disk does not keep the server from starting.
            tracing::warn!(
                error = error.message(),
                "cannot store the feature compatibility version"
            );
        }
        #[cfg(feature = "rocksdb")]
        let backups = backups(embedded, &settings, &server)?;
        set_profiling(&server, &settings)?;
        for parameter in &self.parameters {
            server
                .set_parameter_at_startup(parameter)
                .map_err(|error| error.message().to_owned())?;
        }
        set_log_parameters(&server, &settings)?;
        server
            .oplog_keeper
            .start(&server)
            .map_err(|error| format!("cannot begin the oplog: {}", error.message()))?;
        server.audit_begin();
        let _pid_file = settings.pid_file.as_deref().map(PidFile::write).transpose()?;
        let signals = Signals::start(self.kept, &server, store, settings.pid_file.clone())?;
        let mut network = network::Options::for_this_machine();
        let wanted = settings.connections_max.unwrap_or(network.connections_max);
        network.connections_max = self.limit.connections_max(wanted);
        network.connections_per_address_max = settings.connections_per_address_max;
        network.queued_max = settings.queued_max.unwrap_or(network.queued_max);
        network.compressors = settings.compressors;
        network.tls = self.tls;
        let handle = network::start(self.listeners, Arc::new(Frame(server.clone())), network)
            .map_err(|error| format!("cannot start the network: {error}"))?;
        if let Some(metrics) = &self.metrics {
            metrics.show(&server);
            tracing::info!(address = %metrics.address(), "metrics are served");
        }
        let ttl = server
            .start_ttl_monitor()
            .map_err(|error| format!("cannot start the TTL monitor: {error}"))?;
        let nodes = server.start_node_thread().map_err(|error| {
            format!("cannot start the thread that watches other nodes: {error}")
        })?;
        if !settings.has_access_control && !settings.is_in_transition {
            warn_of_open_access(&settings);
        }
        self.limit.warn_of_low(wanted);
        log_ready(&server, &handle, self.unix_socket.as_deref(), port);
        tracing::info!(
            durationMillis = self.began.elapsed().as_millis() as u64,
            "startup complete"
        );
        if settings.forks {
            fork::report_ready()?;
        }
        if settings.ends_with_stdin {
            readiness::end_with_stdin(&server)?;
        }
        readiness::notify_ready(handle.local_addrs(), settings.ready_file.as_deref())?;
        drop(starting);

        while !server.shutdown.wait_until(Instant::now() + server.expiry_interval()) {
            server.expire();
        }
        readiness::notify_stopping();
        tracing::info!(target: "NETWORK", id = 20_562, "Shutdown: going to close listening sockets");
        // Running operations end at once, and nobody has to wait for them.
        server.operations.end_all();
        if ttl.join().is_err() {
            tracing::error!("the TTL monitor has panicked");
        }
        if nodes.is_some_and(|nodes| nodes.join().is_err()) {
            tracing::error!("the thread that watches other nodes has panicked");
        }
        server.primacy.wake_waiting();
        let is_forced = server.shutdown.is_forced();
        handle.shutdown(if is_forced { Duration::ZERO } else { SHUTDOWN_GRACE });
        #[cfg(feature = "rocksdb")]
        if let Some(backups) = backups {
            backups.stop();
        }
        if let Some(metrics) = self.metrics {
            metrics.stop();
        }
        // After this nothing is waited for that a second signal would have to end.
        db.close().map_err(|error| format!("cannot close the data: {}", error.message()))?;
        signals.stop();
        server.audit_end();
        Ok(())
    }
}

/// Says where the server listens, and that it is ready: what starts a mongod waits for this line.
fn log_ready(server: &Server, handle: &NetHandle, unix_socket: Option<&Path>, port: u16) {
    let _listener = worker::begin(Worker::Part("listener"));
    let unix_socket = unix_socket.map(|path| path.display().to_string());
    let addresses = handle.local_addrs().iter().map(|address| address.ip().to_string());
    for address in unix_socket.into_iter().chain(addresses) {
        tracing::info!(target: "NETWORK", id = 23_015, address, "Listening on");
    }
    let ssl = if server.options.tls.is_some() { "on" } else { "off" };
    tracing::info!(target: "NETWORK", id = 23_016, port, ssl, "Waiting for connections");
    if server.options.repl_set.is_some() {
        // The only member needs no election.
        tracing::info!(target: "REPL", id = 21_331, "Transition to primary complete; database writes are now permitted");
    }
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
        io::ErrorKind::AddrInUse => {
            format!("cannot listen on {address}: address already in use by another process")
        }
        io::ErrorKind::PermissionDenied => format!("cannot listen on {address}: not permitted"),
        _ => format!("cannot listen on {address}: {error}"),
    })
}

fn listen_for_metrics(address: SocketAddr) -> Result<Endpoint, Failure> {
    Endpoint::start(address)
        .map_err(|error| format!("cannot listen on {address} for metrics: {error}"))
}

/// The name by which others reach this server: as it was asked for, or the address that it listens
/// on.
fn host(settings: &Settings, address: Option<SocketAddr>) -> String {
    let port = address.map_or(settings.port, |address| address.port());
    if let Some(host) = &settings.advertised_host {
        let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
            port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']'))
        });
        return if has_port { host.clone() } else { format!("{host}:{port}") };
    }
    match address.map(|address| address.ip()) {
        Some(ip) if !ip.is_unspecified() => SocketAddr::new(ip, port).to_string(),
        _ => format!("{}:{port}", marula_server::machine::host_name()),
    }
}

fn options(
    settings: &Settings,
    memory: &MemoryPlan,
    address: Option<SocketAddr>,
    tls: Option<Arc<Tls>>,
    audit: Option<Arc<Audit>>,
) -> Options {
    let host = host(settings, address);
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
        log_file: settings.log.file(),
        audit,
        compressors: settings.compressors,
        tls,
        has_access_control: settings.has_access_control,
        memory: Memory {
            large_pieces: allocator::used_bytes,
            bytes_max: memory.operation_bytes_max,
            process: memory.process_bytes_max.map(|bytes_max| ProcessMemory {
                resident: allocator::resident_bytes,
                bytes_max,
                give_back: allocator::give_back,
            }),
        },
    }
}

fn start_log(settings: &Settings) -> Result<Arc<Log>, Failure> {
    let log = Log::new(settings.log.format(), settings.log.zone, settings.log.open()?);
    let subscriber = Registry::default().with(LogLayer(log.clone()));
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|error| format!("cannot start the log: {error}"))?;
    if let Some(levels) = settings.log.levels() {
        log.set_levels(levels.as_doc());
    }
    log.set_quiet(settings.log.is_quiet);
    Ok(log)
}

/// Has the server's parameters say of the log what the options do.
fn set_log_parameters(server: &Server, settings: &Settings) -> Result<(), Failure> {
    let set = |name: &str, value: Value<'_>| {
        server.set_parameter(name.as_bytes(), value).map(drop).map_err(|refused| match refused {
            Refused::Value(error) => error.message().to_owned(),
            Refused::Unknown | Refused::NotNow => format!("parameter '{name}' cannot be set"),
        })
    };
    if let Some(levels) = settings.log.levels() {
        set("logComponentVerbosity", Value::Document(levels.as_doc()))?;
    }
    if settings.log.is_quiet {
        set("quiet", Value::Boolean(true))?;
    }
    Ok(())
}

fn set_profiling(server: &Server, settings: &Settings) -> Result<(), Failure> {
    let wanted = &settings.profiling;
    let usual = Database::parse(wanted.level.unwrap_or(0), wanted.filter.as_ref())
        .map_err(|error| format!("operationProfiling.filter: {}", error.message()))?;
    server.profiling.change(|settings| {
        settings.set_usual(usual);
        settings.slow_ms = wanted.slow_ms.unwrap_or(settings.slow_ms);
        settings.sample_rate = wanted.sample_rate.unwrap_or(settings.sample_rate);
    });
    Ok(())
}

fn warn_of_open_access(settings: &Settings) {
    tracing::warn!(
        target: STARTUP_WARNING,
        id = 22_120,
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
