//! The servers that a comparison is run against: named by an address, or started on a fresh folder.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::operation::{Collection, Shape};
use crate::process::{self, Clock, Written};
use crate::wire::mongo::{MongoAdmin, MongoLogin, MongoWire};
use crate::wire::postgres::{Login, PostgresAdmin, PostgresWire};
use crate::wire::scram::Credentials;
use crate::wire::{Admin, Wire};

/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The programs and limits with which servers are started.
#[derive(Default)]
pub(crate) struct Starting {
    /// The marula that `marula` names: this program.
    pub(crate) marula: PathBuf,
    pub(crate) mongod: Option<PathBuf>,
    /// The folder of PostgreSQL's programs.
    pub(crate) postgres: Option<PathBuf>,
    /// Where data folders are made.
    pub(crate) folder: PathBuf,
    /// Memory for a server's cache; `None`: as the server would choose.
    pub(crate) cache_bytes: Option<u64>,
}

/// Where a server listens, and in which protocol.
enum Server {
    Mongo(MongoLogin),
    Postgres(Login),
}

/// A server under comparison.
pub(crate) struct Target {
    pub(crate) name: String,
    /// How it was started, or where it was found.
    pub(crate) setting: String,
    pub(crate) version: String,
    server: Server,
    /// What `/proc` tells, where the process is on this machine.
    readings: Option<Readings>,
    started: Option<Started>,
}

struct Readings {
    pid: u32,
    clock: Clock,
    written: Written,
}

/// A process that ends with the value, and its folder with it.
struct Started {
    child: Child,
    folder: PathBuf,
    /// For PostgreSQL: its program that stops it together with its children, and its user.
    stop: Option<(PathBuf, Option<(u32, u32)>)>,
}

impl Target {
    /// Finds or starts what a `--target` names.
    ///
    /// Errors: a word that is no target, a server that does not answer or cannot be started.
    pub(crate) fn open(word: &str, starting: &Starting) -> Result<Target, String> {
        let mut target = match word.split_once(':') {
            None if word == "marula" => start_marula(&starting.marula, starting)?,
            None if word == "mongod" => {
                let path =
                    starting.mongod.as_deref().ok_or("the target mongod needs --mongod PATH")?;
                start_mongod(path, starting)?
            }
            None if word == "postgres" => {
                let folder = starting
                    .postgres
                    .as_deref()
                    .ok_or("the target postgres needs --postgres BIN_DIR")?;
                start_postgres(folder, starting)?
            }
            Some(("marula", path)) => start_marula(Path::new(path), starting)?,
            Some(("mongodb", rest)) => found(mongodb_login(rest)?, word)?,
            Some(("postgresql" | "postgres", rest)) => found(postgresql_login(rest)?, word)?,
            _ => return Err(format!("not a target: '{word}' (see marula bench run --help)")),
        };
        target.version = target.admin()?.version()?;
        Ok(target)
    }

    /// A connection for what is not measured.
    pub(crate) fn admin(&self) -> Result<Box<dyn Admin>, String> {
        Ok(match &self.server {
            Server::Mongo(login) => Box::new(MongoAdmin::new(login)?),
            Server::Postgres(login) => Box::new(PostgresAdmin::new(login)?),
        })
    }

    /// What one load sends and expects.
    pub(crate) fn wire(
        &self,
        collection: Collection,
        shapes: &'static [Shape],
        durable: bool,
    ) -> Box<dyn Wire> {
        match &self.server {
            Server::Mongo(login) => {
                Box::new(MongoWire::new(login.clone(), collection, shapes, durable))
            }
            Server::Postgres(login) => {
                Box::new(PostgresWire::new(login.clone(), collection, shapes, durable))
            }
        }
    }

    /// Whether the server's process can be read.
    pub(crate) fn is_read(&self) -> bool {
        self.readings.is_some()
    }

    /// CPU nanoseconds that the server has used so far; looks at what it wrote as well, while its children live.
    pub(crate) fn cpu_ns(&mut self) -> u64 {
        self.readings.as_mut().map_or(0, |readings| {
            readings.written.read();
            readings.clock.read()
        })
    }

    /// Bytes that the server has sent towards the disk so far.
    pub(crate) fn written_bytes(&mut self) -> Option<u64> {
        self.readings.as_mut().map(|readings| readings.written.read())
    }

    /// Bytes that the server holds in memory.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.readings.as_ref().map(|readings| process::memory_bytes(readings.pid))
    }

    /// Bytes of the data folder without logs, where this program made the folder.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        self.started.as_ref().map(|started| process::folder_bytes(&started.folder.join("data")))
    }

    /// Waits until the server has nothing left to do: flushes, compactions, checkpoints.
    pub(crate) fn settle(&mut self, limit: Duration) {
        let begin = Instant::now();
        let step = Duration::from_millis(250);
        let mut before = self.cpu_ns();
        while self.is_read() && begin.elapsed() < limit {
            std::thread::sleep(step.min(limit));
            let now = self.cpu_ns();
            if now.saturating_sub(before) < step.as_nanos() as u64 / 25 {
                return;
            }
            before = now;
        }
    }
}

/// A server that runs already.
fn found(server: Server, word: &str) -> Result<Target, String> {
    let address = match &server {
        Server::Mongo(login) => login.address,
        Server::Postgres(login) => login.address,
    };
    let pid = address.ip().is_loopback().then(|| process::listener(address.port())).flatten();
    let name = match word.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or(rest)),
        None => word.to_owned(),
    };
    let setting = match pid {
        Some(pid) => format!("was running (process {pid})"),
        None => "was running; its process cannot be read from here".into(),
    };
    Ok(Target {
        name,
        setting,
        version: String::new(),
        server,
        readings: pid.map(Readings::new),
        started: None,
    })
}

fn resolve(host: &str, port_default: u16) -> Result<SocketAddr, String> {
    let full = match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:{port_default}"),
    };
    let found = full.to_socket_addrs().map_err(|error| format!("no address '{full}': {error}"))?;
    found.into_iter().next().ok_or(format!("no address '{full}'"))
}

/// The server of `//user:password@host:port/database?authSource=…`.
fn mongodb_login(rest: &str) -> Result<Server, String> {
    let rest = rest.trim_start_matches('/');
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (who, hosts) = place.rsplit_once('@').map_or((None, place), |(who, at)| (Some(who), at));
    let source = options.split('&').find_map(|option| option.strip_prefix("authSource="));
    let source = source.unwrap_or(if database.is_empty() { "admin" } else { database });
    let credentials = who.map(|who| {
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        Credentials::new(&decoded(user), &decoded(password), &decoded(source))
    });
    let address = resolve(hosts.split(',').next().unwrap_or(""), 27017)?;
    Ok(Server::Mongo(MongoLogin { address, credentials: credentials.transpose()? }))
}

/// A part of a URI without its percent signs.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let hex = others.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[2..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The server of `//user:password@host:port/database`.
fn postgresql_login(rest: &str) -> Result<Server, String> {
    let rest = rest.trim_start_matches('/').split('?').next().unwrap_or("");
    let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (who, host) = place.rsplit_once('@').unwrap_or(("postgres", place));
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    Ok(Server::Postgres(Login {
        address: resolve(host, 5432)?,
        user: decoded(user),
        password: decoded(password),
        database: decoded(if database.is_empty() { user } else { database }),
    }))
}

impl Readings {
    fn new(pid: u32) -> Readings {
        Readings { pid, clock: Clock::new(pid), written: Written::new(pid) }
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| format!("no free port: {error}"))
}

fn make_folder(starting: &Starting, name: &str, port: u16) -> Result<PathBuf, String> {
    let folder = starting.folder.join(format!("marula-bench-{}-{name}-{port}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Starts a command whose output goes to the folder's log and that signals from the terminal do not reach.
fn spawn(command: &mut Command, folder: &Path) -> Result<Child, String> {
    let log = fs::File::create(folder.join("log"))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let errors = log.try_clone().map_err(|error| error.to_string())?;
    command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        // Ctrl-C ends the comparison first; it then stops its servers.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start '{}': {error}", command.get_program().display()))
}

/// A target from a process that was just started, once it answers.
fn started(
    name: &str,
    setting: String,
    server: Server,
    mut process: Started,
) -> Result<Target, String> {
    let begin = Instant::now();
    let readings = Some(Readings::new(process.child.id()));
    loop {
        let tried = match &server {
            Server::Mongo(login) => MongoAdmin::new(login).map(|_| ()),
            Server::Postgres(login) => PostgresAdmin::new(login).map(|_| ()),
        };
        if tried.is_ok() {
            break;
        }
        let ended = process.child.try_wait().map_err(|error| error.to_string())?.is_some();
        if ended || begin.elapsed() > START_LIMIT {
            let log = fs::read_to_string(process.folder.join("log")).unwrap_or_default();
            return Err(format!("{name} did not start ({setting}): {}", log.trim_end()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Target {
        name: name.into(),
        setting,
        version: String::new(),
        server,
        readings,
        started: Some(process),
    })
}

/// The start of a server of MongoDB's protocol with mongod's options.
fn start_like_mongod(
    name: &str,
    program: &Path,
    words: &[String],
    starting: &Starting,
) -> Result<Target, String> {
    let port = free_port()?;
    let folder = make_folder(starting, name, port)?;
    let data = folder.join("data");
    fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    let mut command = Command::new(program);
    command.args(words).arg("--dbpath").arg(data);
    command.args(["--bind_ip", "127.0.0.1", "--port", &port.to_string()]);
    let child = spawn(&mut command, &folder)?;
    let setting = format!("{} {}", file_name(program), words.join(" "));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = Server::Mongo(MongoLogin { address, credentials: None });
    started(name, setting.trim_end().into(), server, Started { child, folder, stop: None })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn start_marula(program: &Path, starting: &Starting) -> Result<Target, String> {
    let mut words = vec!["serve".to_owned()];
    if let Some(bytes) = starting.cache_bytes {
        words.extend(["--cache-size".into(), format!("{}MB", bytes >> 20)]);
    }
    start_like_mongod("marula", program, &words, starting)
}

/// The least cache that mongod accepts.
const MONGOD_CACHE_BYTES_MIN: u64 = 256 << 20;

fn start_mongod(program: &Path, starting: &Starting) -> Result<Target, String> {
    let mut words: Vec<String> =
        ["--quiet", "--setParameter", "diagnosticDataCollectionEnabled=false"]
            .map(str::to_owned)
            .into();
    if let Some(bytes) = starting.cache_bytes {
        let gigabytes = bytes.max(MONGOD_CACHE_BYTES_MIN) as f64 / (1u64 << 30) as f64;
        words.extend(["--wiredTigerCacheSizeGB".into(), format!("{gigabytes:.3}")]);
    }
    start_like_mongod("mongod", program, &words, starting)
}

/// The user and group of `postgres`, when this program is root: PostgreSQL refuses to run as root.
fn postgres_user() -> Result<Option<(u32, u32)>, String> {
    let myself = fs::metadata("/proc/self").map_err(|error| format!("/proc/self: {error}"))?;
    if myself.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let mut words = line.unwrap_or("").split(':').skip(2).map(str::parse::<u32>);
    match (words.next(), words.next()) {
        (Some(Ok(user)), Some(Ok(group))) => Ok(Some((user, group))),
        _ => Err("PostgreSQL does not run as root, and there is no user 'postgres'".into()),
    }
}

/// A command that runs as the given user.
fn command_as(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = user {
        command.uid(user).gid(group).current_dir("/");
    }
    command
}

fn start_postgres(programs: &Path, starting: &Starting) -> Result<Target, String> {
    let user = postgres_user()?;
    let port = free_port()?;
    let folder = make_folder(starting, "postgres", port)?;
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    if let Some((user, group)) = user {
        chown(&folder, Some(user), Some(group)).map_err(fail)?;
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).map_err(fail)?;
    let data = folder.join("data");
    let made = command_as(&programs.join("initdb"), user)
        .arg("--pgdata")
        .arg(&data)
        .args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            format!("cannot start '{}': {error}", programs.join("initdb").display())
        })?;
    if !made.status.success() {
        return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr).trim_end()));
    }
    // What PostgreSQL's manual advises for a server of its own: a quarter of the memory, room between checkpoints.
    let buffers = starting.cache_bytes.unwrap_or_else(|| memory_total_bytes() / 4) >> 20;
    let settings = [
        format!("shared_buffers={buffers}MB"),
        "max_wal_size=4GB".into(),
        "max_connections=1100".into(),
        "random_page_cost=1.1".into(),
        "listen_addresses=127.0.0.1".into(),
        format!("port={port}"),
        format!("unix_socket_directories={}", folder.display()),
    ];
    let mut command = command_as(&programs.join("postgres"), user);
    command.arg("-D").arg(&data);
    settings.iter().for_each(|setting| {
        command.args(["-c", setting]);
    });
    let child = spawn(&mut command, &folder)?;
    let setting = format!(
        "postgres -c {}; synchronous_commit=off but for journaled writes",
        settings[..4].join(" -c ")
    );
    let server = Server::Postgres(Login {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        user: "postgres".into(),
        password: String::new(),
        database: "postgres".into(),
    });
    let stop = Some((programs.join("pg_ctl"), user));
    started("postgres", setting, server, Started { child, folder, stop })
}

/// The memory of this machine.
pub(crate) fn memory_total_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some((program, user)) = &self.stop {
            // A killed parent would leave its children behind for a while.
            let _ = command_as(program, *user)
                .args(["stop", "-m", "immediate", "-D"])
                .arg(self.folder.join("data"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let check = |word: &str, wanted: &str, who: bool| match mongodb_login(word) {
            Ok(Server::Mongo(login)) => {
                assert_eq!(login.address.to_string(), wanted, "{word}");
                assert_eq!(login.credentials.is_some(), who, "{word}");
            }
            _ => panic!("'{word}' is a server of MongoDB's protocol"),
        };
        check("//127.0.0.1:27019/?directConnection=true", "127.0.0.1:27019", false);
        check("//127.0.0.1", "127.0.0.1:27017", false);
        check("//127.0.0.1:1,127.0.0.1:2/shop", "127.0.0.1:1", false);
        check("//user:w%40rd@127.0.0.1/?authSource=shop", "127.0.0.1:27017", true);
        assert_eq!(decoded("a%40b%2fc%zz%"), "a@b/c%zz%");
    }

    #[test]
    fn logins_are_read() {
        let Ok(Server::Postgres(login)) = postgresql_login("//me:secret@127.0.0.1:5433/shop")
        else {
            panic!("a login")
        };
        assert_eq!(login.address.to_string(), "127.0.0.1:5433");
        assert_eq!((&*login.user, &*login.password, &*login.database), ("me", "secret", "shop"));
        let Ok(Server::Postgres(login)) = postgresql_login("//127.0.0.1") else {
            panic!("a login")
        };
        assert_eq!((&*login.user, &*login.database), ("postgres", "postgres"));
    }

    #[test]
    fn what_is_no_target_is_named() {
        let check = |word: &str, wanted: &str| {
            let error = Target::open(word, &Starting::default()).err().expect("an error");
            assert!(error.contains(wanted), "{error}");
        };
        check("oracle", "not a target: 'oracle'");
        check("mongod", "--mongod PATH");
        check("postgres", "--postgres BIN_DIR");
        check("redis://x", "not a target");
    }
}
