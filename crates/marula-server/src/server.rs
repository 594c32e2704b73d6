//! What all connections share.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use marula_bson::{DocBuf, DocWriter, ObjectId, Value};
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
use crate::counters::Counters;
use crate::cursor::Cursors;
use crate::default_concerns::DefaultConcerns;
use crate::fail_point::FailPoints;
use crate::log::Log;
use crate::log_file::LogFile;
use crate::memory::{self, Memory};
use crate::net::CounterReader;
use crate::net::service::Wake;
use crate::net::tls::Tls;
use crate::operation::Operations;
use crate::oplog_keeper::{OplogKeeper, OplogOptions};
use crate::parameters::Parameters;
use crate::profiling::Profiling;
use crate::replica_set::ReplicaSet;
use crate::session::Sessions;
use crate::snapshots::Snapshots;
use crate::temp_files;
use crate::transactions::Transactions;
use crate::user_writes::UserWriteBlock;
use crate::write_lock::WriteLock;

/// How often the records of retryable writes are looked through for those that nobody can ask for
/// any more.
const RECORDS_EXPIRE_EVERY_MS: i64 = 5 * 60_000;

/// What build a server is.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version of the program.
    pub version: &'static str,
    /// The commit that it was built from, or `unknown`.
    pub commit: &'static str,
}

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the replica set whose only member this is; without one it looks like a `mongos`.
    pub repl_set: Option<String>,
    /// How far back the oplog goes.
    pub oplog: OplogOptions,
    /// `host:port` under which others reach this server.
    pub host: String,
    /// What it was built from.
    pub build: Build,
    /// The command line, for `getCmdLineOpts`.
    pub argv: Vec<String>,
    /// The options in effect as a configuration file would say them, for `getCmdLineOpts`.
    pub parsed: DocBuf,
    /// The data folder; `None` when data is in memory alone.
    pub dbpath: Option<String>,
    /// The log file, where there is one.
    pub log_file: Option<LogFile>,
    /// The audit log, where there is one.
    pub audit: Option<Arc<Audit>>,
    /// The compressors that are offered.
    pub compressors: Compressors,
    /// TLS, where it is on.
    pub tls: Option<Arc<Tls>>,
    /// Whether clients may do only what their users may.
    pub has_access_control: bool,
    /// How much memory operations may take together.
    pub memory: Memory,
}

/// What all connections share.
pub struct Server {
    /// The databases.
    pub db: Arc<Db>,
    /// How it is set up.
    pub options: Options,
    /// The log.
    pub log: Arc<Log>,
    /// What can be set while it runs.
    pub parameters: Parameters,
    /// How much memory operations may take, where a parameter says so.
    pub memory_setting: memory::Setting,
    /// Open cursors.
    pub cursors: Cursors,
    /// How often clients logged in.
    pub(crate) logins: LoginCounters,
    /// Logical sessions.
    pub sessions: Sessions,
    /// Moments that clients read at.
    pub snapshots: Snapshots,
    /// Whether the oplog is written.
    pub oplog_keeper: OplogKeeper,
    /// The transactions of clients.
    pub transactions: Transactions,
    /// Whether `fsync` holds writes off.
    pub write_lock: WriteLock,
    /// Whether users' writes are blocked.
    pub user_write_block: UserWriteBlock,
    /// The read and write concern of operations that name none.
    pub default_concerns: DefaultConcerns,
    /// The configuration of the replica set whose only member this is.
    pub replica_set: ReplicaSet,
    /// Where it is made to fail, as a server for tests.
    pub fail_points: FailPoints,
    /// What runs now.
    pub operations: Operations,
    /// What is counted.
    pub counters: Counters,
    /// When the records of retryable writes were last looked through.
    records_expired_ms: AtomicI64,
    /// Where sorts and groups go that outgrow memory.
    pub disk: Arc<dyn Disk>,
    /// Users and roles.
    pub users: Users,
    /// What the database profiler is set to.
    pub profiling: Arc<Profiling>,
    /// The end.
    pub shutdown: Shutdown,
    /// This process, as `topologyVersion` names it.
    pub process_id: ObjectId,
    /// When the server started.
    pub started: Instant,
    /// The network's counters, once it runs.
    pub network: OnceLock<CounterReader>,
    /// What makes backups, where data is on disk.
    pub backups: OnceLock<Arc<dyn Backups>>,
    /// Clients who wait for the topology to change, which it does only when the server ends.
    pub topology_waiters: Mutex<Vec<Wake>>,
}

impl Server {
    /// A server over these databases.
    pub fn new(db: Arc<Db>, options: Options, log: Arc<Log>) -> Self {
        let now_ms = unix_ms();
        let audit = options.audit.clone();
        db.watch_catalog(Box::new(move |event| {
            catalog_log::log(event);
            if let Some(audit) = &audit {
                audit::catalog::tell(audit, event);
            }
        }));
        let disk = temp_files::disk(options.dbpath.as_deref());
        let set = options.repl_set.clone().unwrap_or_default();
        let profiling = Arc::new(Profiling::default());
        Server {
            user_write_block: or_default("the mode of users' writes", UserWriteBlock::load(&db)),
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
            topology_waiters: Mutex::new(Vec::new()),
        }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        unix_ms()
    }

    /// Appends `{ ts, t }` of the newest write.
    pub fn append_op_time(&self, op_time: &mut DocWriter<'_>) {
        op_time.append("ts", Value::Timestamp(self.db.last_write_timestamp(self.now_ms())));
        op_time.append("t", 1_i64);
    }

    /// Rotates the files of the log and of the audit log, where there are any.
    ///
    /// Errors: those of [`LogFile::rotate`].
    pub fn rotate_logs(&self) -> marula_error::Result<()> {
        self.rotate_log()?;
        self.rotate_audit()
    }

    /// Rotates the file of the audit log, where there is one.
    ///
    /// Errors: those of [`LogFile::rotate`].
    pub fn rotate_audit(&self) -> marula_error::Result<()> {
        self.options.audit.as_ref().map_or(Ok(()), |audit| audit.rotate(&actor::current()))
    }

    /// Tells the audit log that the server has begun.
    pub fn audit_begin(&self) {
        if let Some(audit) = &self.options.audit {
            audit.write(&actor::Actor::system(), "startup", 0, |param| {
                param.append("options", &self.options.parsed);
                param.begin_array("initialClusterServerParameters").finish();
            });
        }
    }

    /// Tells the audit log that the server ends.
    pub fn audit_end(&self) {
        if let Some(audit) = &self.options.audit {
            audit.write(&actor::Actor::system(), "shutdown", 0, |_| ());
        }
    }

    /// Rotates the log file, where there is one.
    ///
    /// Errors: those of [`LogFile::rotate`].
    pub fn rotate_log(&self) -> marula_error::Result<()> {
        if let Some(log_file) = &self.options.log_file {
            self.log.reopen(Box::new(log_file.rotate()?));
            tracing::info!(target: "CONTROL", id = 20_721, path = %log_file.path.display(), pid = std::process::id(), host = self.options.host, "Process Details");
        }
        Ok(())
    }

    /// Forgets what has been idle for too long. Called every few seconds.
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
        // The records of retryable writes are many and in the store: looking through them is worth
        // it seldom.
        let last_ms = self.records_expired_ms.load(Ordering::Relaxed);
        if now_ms - last_ms >= RECORDS_EXPIRE_EVERY_MS {
            self.records_expired_ms.store(now_ms, Ordering::Relaxed);
            if let Err(error) = self.db.expire_sessions(oldest_ms) {
                tracing::warn!(%error, "records of retryable writes could not be cleared; tried again later");
            }
        }
    }
}

/// A setting that is stored. What cannot be read is told of, and must not keep a server from
/// starting.
fn or_default<T: Default>(what: &str, loaded: Result<T>) -> T {
    loaded.unwrap_or_else(|error| {
        tracing::error!(what, %error, "stored settings could not be read: as if there were none");
        T::default()
    })
}

/// Milliseconds since 1970.
fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The server's end: asked for by a signal or a command, waited for by the binary.
#[derive(Default)]
pub struct Shutdown {
    is_requested: AtomicBool,
    is_forced: AtomicBool,
    lock: Mutex<()>,
    told: Condvar,
}

impl Shutdown {
    /// Asks the server to end.
    pub fn request(&self) {
        let _lock = self.lock.lock();
        self.is_requested.store(true, Ordering::Release);
        self.told.notify_all();
    }

    /// Asks the server to end without waiting for what runs.
    pub fn force(&self) {
        self.is_forced.store(true, Ordering::Release);
        self.request();
    }

    /// Whether what runs is not waited for.
    pub fn is_forced(&self) -> bool {
        self.is_forced.load(Ordering::Acquire)
    }

    /// Whether the server is to end.
    pub fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Acquire)
    }

    /// Waits until the end is asked for, or until `until`; answers whether it was.
    pub fn wait_until(&self, until: Instant) -> bool {
        let mut lock = self.lock.lock();
        while !self.is_requested() {
            if self.told.wait_until(&mut lock, until).timed_out() {
                break;
            }
        }
        self.is_requested()
    }
}
