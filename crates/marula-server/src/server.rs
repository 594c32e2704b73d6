//! The state that all connections share.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use marula_bson::{DocBuf, DocWriter, ObjectId, Value, long};
use marula_db::Db;
use marula_error::Result;
use marula_query::spill::Disk;
use marula_wire::Compressors;
use parking_lot::{Condvar, Mutex};

use crate::audit::{self, Audit, actor};
use crate::auth::Users;
use crate::auth::logins::LoginCounters;
use crate::backups::Backups;
use crate::catalog_log;
use crate::change_stream::Feeds;
use crate::counters::Counters;
use crate::cursor::Cursors;
use crate::default_concerns::DefaultConcerns;
use crate::fail_point::FailPoints;
use crate::log::Log;
use crate::log_file::LogFile;
use crate::memory::{self, Memory};
use crate::net::CounterReader;
use crate::net::tls::Tls;
use crate::operation::Operations;
use crate::oplog_keeper::{OplogKeeper, OplogOptions};
use crate::parameters::Parameters;
use crate::primacy::Primacy;
use crate::profiling::Profiling;
use crate::replica_set::ReplicaSet;
use crate::session::Sessions;
use crate::snapshots::Snapshots;
use crate::temp_files;
use crate::transactions::Transactions;
use crate::user_writes;
use crate::write_lock::WriteLock;

/// The longest interval of the search for idle cursors and sessions.
const EXPIRY_INTERVAL_MAX: Duration = Duration::from_secs(4);
/// The shortest interval, where transactions may last a second only.
const EXPIRY_INTERVAL_MIN: Duration = Duration::from_millis(500);

/// The interval at which expired records of retryable writes are removed.
const RECORDS_EXPIRE_EVERY_MS: i64 = 5 * 60_000;

/// The build of a server.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version of the program.
    pub version: &'static str,
    /// The commit, or `unknown`.
    pub commit: &'static str,
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the replica set whose only member this is; without one it presents itself as a
    /// `mongos`.
    pub repl_set: Option<String>,
    /// The retention of the oplog.
    pub oplog: OplogOptions,
    /// `host:port` by which others reach this server.
    pub host: String,
    /// The build.
    pub build: Build,
    /// The command line, for `getCmdLineOpts`.
    pub argv: Vec<String>,
    /// The options in effect in the form of a configuration file, for `getCmdLineOpts`.
    pub parsed: DocBuf,
    /// The data folder; `None` if data is only in memory.
    pub dbpath: Option<String>,
    /// The log file, if there is one.
    pub log_file: Option<LogFile>,
    /// The audit log, if there is one.
    pub audit: Option<Arc<Audit>>,
    /// The compressors that are offered.
    pub compressors: Compressors,
    /// TLS, if it is enabled.
    pub tls: Option<Arc<Tls>>,
    /// Whether clients need privileges.
    pub has_access_control: bool,
    /// The memory limit of operations.
    pub memory: Memory,
}

/// The state that all connections share.
pub struct Server {
    /// The databases.
    pub db: Arc<Db>,
    /// How it is set up.
    pub options: Options,
    /// The log.
    pub log: Arc<Log>,
    /// The parameters that can be set at run time.
    pub parameters: Parameters,
    /// The memory limit of operations, if a parameter sets it.
    pub memory_setting: memory::Setting,
    /// Open cursors.
    pub cursors: Cursors,
    /// The numbers of logins.
    pub(crate) logins: LoginCounters,
    /// Logical sessions.
    pub sessions: Sessions,
    /// Moments at which clients read.
    pub snapshots: Snapshots,
    /// The retention of the oplog.
    pub oplog_keeper: OplogKeeper,
    /// The events that change streams share.
    pub(crate) feeds: Feeds,
    /// The clients' transactions.
    pub transactions: Transactions,
    /// The lock of `fsync`.
    pub write_lock: WriteLock,
    /// Whether every request must name its version of the Stable API: `requireApiVersion`.
    pub requires_api_version: AtomicBool,
    /// The default read and write concern.
    pub default_concerns: DefaultConcerns,
    /// The configuration of the replica set whose only member this is.
    pub replica_set: ReplicaSet,
    /// The fail points of a test server.
    pub fail_points: FailPoints,
    /// The running operations.
    pub operations: Operations,
    /// The counters of commands.
    pub counters: Counters,
    /// The time when expired records of retryable writes were last removed.
    records_expired_ms: AtomicI64,
    /// The temporary files of sorts and groups that outgrow memory.
    pub disk: Arc<dyn Disk>,
    /// Users and roles.
    pub users: Users,
    /// The settings of the database profiler.
    pub profiling: Arc<Profiling>,
    /// The end of the server.
    pub shutdown: Shutdown,
    /// This process, as `topologyVersion` names it.
    pub process_id: ObjectId,
    /// When the server started.
    pub started: Instant,
    /// The network's counters, once it runs.
    pub network: OnceLock<CounterReader>,
    /// Makes backups, if data is on disk.
    pub backups: OnceLock<Arc<dyn Backups>>,
    /// Whether this is the primary of the replica set.
    pub primacy: Primacy,
}

impl Server {
    /// Returns a server over these databases.
    pub fn new(db: Arc<Db>, options: Options, log: Arc<Log>) -> Self {
        let now_ms = unix_ms();
        let audit = options.audit.clone();
        db.watch_catalog(Box::new(move |event| {
            catalog_log::log(event);
            if let Some(audit) = &audit {
                audit::catalog::record(audit, event);
            }
        }));
        let disk = temp_files::disk(options.dbpath.as_deref());
        let set = options.repl_set.clone().unwrap_or_default();
        let profiling = Arc::new(Profiling::default());
        or_default("the mode of users' writes", user_writes::load(&db));
        Server {
            requires_api_version: AtomicBool::new(false),
            default_concerns: or_default("default concerns", DefaultConcerns::load(&db, now_ms)),
            replica_set: or_default("the replica set", ReplicaSet::load(&db, &set)),
            db,
            disk,
            options,
            log,
            parameters: Parameters::default(),
            memory_setting: memory::Setting::default(),
            cursors: Cursors::default(),
            logins: LoginCounters::default(),
            sessions: Sessions::default(),
            snapshots: Snapshots::default(),
            oplog_keeper: OplogKeeper::default(),
            feeds: Feeds::default(),
            transactions: Transactions::new(profiling.clone()),
            write_lock: WriteLock::default(),
            fail_points: FailPoints::default(),
            operations: Operations::default(),
            counters: Counters::default(),
            records_expired_ms: AtomicI64::new(now_ms),
            users: Users::default(),
            profiling,
            shutdown: Shutdown::default(),
            process_id: ObjectId::generate(u32::try_from(now_ms / 1000).unwrap_or(0)),
            started: Instant::now(),
            network: OnceLock::new(),
            backups: OnceLock::new(),
            primacy: Primacy::default(),
        }
    }

    /// Returns the time in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        unix_ms()
    }

    /// Appends `{ ts, t }` of the newest write.
    pub fn append_op_time(&self, op_time: &mut DocWriter<'_>) {
        op_time.append("ts", Value::Timestamp(self.db.last_write_timestamp(self.now_ms())));
        op_time.append("t", 1_i64);
    }

    /// Rotates the files of the log and of the audit log, if there are any.
    ///
    /// Errors: those of [`LogFile::rotate`].
    pub fn rotate_logs(&self) -> marula_error::Result<()> {
        self.rotate_log()?;
        self.rotate_audit()
    }

    /// Rotates the file of the audit log, if there is one.
    ///
    /// Errors: those of [`LogFile::rotate`].
    pub fn rotate_audit(&self) -> marula_error::Result<()> {
        self.options.audit.as_ref().map_or(Ok(()), |audit| audit.rotate(&actor::current()))
    }

    /// Writes the start of the server to the audit log.
    pub fn audit_begin(&self) {
        if let Some(audit) = &self.options.audit {
            audit.write(&actor::Actor::system(), "startup", 0, |param| {
                param.append("options", &self.options.parsed);
                param.begin_array("initialClusterServerParameters").finish();
            });
        }
    }

    /// Writes the end of the server to the audit log.
    pub fn audit_end(&self) {
        if let Some(audit) = &self.options.audit {
            audit.write(&actor::Actor::system(), "shutdown", 0, |_| ());
        }
    }

    /// Rotates the log file, if there is one.
    ///
    /// Errors: those of [`LogFile::rotate`].
    pub fn rotate_log(&self) -> marula_error::Result<()> {
        if let Some(log_file) = &self.options.log_file {
            self.log.reopen(Box::new(log_file.rotate()?));
            tracing::info!(target: "CONTROL", id = 20_721, path = %log_file.path.display(), pid = std::process::id(), host = self.options.host, "Process Details");
        }
        Ok(())
    }

    /// Returns the time after which [`Server::expire`] is to be called again: transactions end soon
    /// after their time is over, also if that is short.
    pub fn expiry_interval(&self) -> Duration {
        (self.transactions.lifetime() / 2).clamp(EXPIRY_INTERVAL_MIN, EXPIRY_INTERVAL_MAX)
    }

    /// Removes state that has been idle for too long. Called every few seconds.
    pub fn expire(&self) {
        let now_ms = self.now_ms();
        self.cursors.expire(now_ms);
        let oldest_ms = now_ms - i64::from(crate::session::TIMEOUT_MINUTES) * 60_000;
        let expired = self.sessions.expire(oldest_ms);
        if !expired.is_empty() {
            self.cursors.kill_where(|_, lsid| lsid.is_some_and(|lsid| expired.contains(lsid)));
        }
        self.snapshots.expire();
        if let Err(error) = self.oplog_keeper.tend(self) {
            tracing::warn!(%error, "the oplog could not be trimmed; tried again later");
        }
        self.cursors.empty_ended(&|lsid, number| self.transactions.is_open(lsid, number));
        self.transactions.expire(&|lsid| self.sessions.knows(lsid));
        // The records of retryable writes are many and in the store, so they are scanned rarely.
        let last_ms = self.records_expired_ms.load(Ordering::Relaxed);
        if now_ms - last_ms >= RECORDS_EXPIRE_EVERY_MS {
            self.records_expired_ms.store(now_ms, Ordering::Relaxed);
            if let Err(error) = self.db.expire_sessions(oldest_ms) {
                tracing::warn!(%error, "records of retryable writes could not be cleared; tried again later");
            }
        }
    }
}

/// Returns a stored setting. One that cannot be read is logged, and does not prevent a start.
fn or_default<T: Default>(what: &str, loaded: Result<T>) -> T {
    loaded.unwrap_or_else(|error| {
        tracing::error!(what, %error, "stored settings could not be read: as if there were none");
        T::default()
    })
}

/// Returns the time in milliseconds since 1970.
fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    long(since.as_millis())
}

/// The server's end: requested by a signal or a command, awaited by the binary.
#[derive(Default)]
pub struct Shutdown {
    is_requested: AtomicBool,
    is_forced: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Shutdown {
    /// Requests the end.
    pub fn request(&self) {
        let _lock = self.lock.lock();
        self.is_requested.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Requests the end without waiting for running operations.
    pub fn force(&self) {
        self.is_forced.store(true, Ordering::Release);
        self.request();
    }

    /// Returns whether running operations are not waited for.
    pub fn is_forced(&self) -> bool {
        self.is_forced.load(Ordering::Acquire)
    }

    /// Returns whether the end is requested.
    pub fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Acquire)
    }

    /// Waits until the end is requested, or until `until`; returns whether it is.
    pub fn wait_until(&self, until: Instant) -> bool {
        let mut lock = self.lock.lock();
        while !self.is_requested() {
            if self.changed.wait_until(&mut lock, until).timed_out() {
                break;
            }
        }
        self.is_requested()
    }
}
