//! Starts servers, each on a fresh folder and a free port; dropping the value ends the server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::process;
use crate::target::{Readings, Server, Target};
use crate::wire::mongo::{MongoAdmin, MongoLogin};
use crate::wire::postgres::{Login, PostgresAdmin};

/// The time that a server gets to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The programs and limits with which servers are started.
#[derive(Default)]
pub(crate) struct Starting {
    /// The marula that `marula` names: the program in the same folder as this one.
    pub(crate) marula: PathBuf,
    pub(crate) mongod: Option<PathBuf>,
    /// The folder of PostgreSQL's programs.
    pub(crate) postgres: Option<PathBuf>,
    /// The location of data folders.
    pub(crate) folder: PathBuf,
    /// Memory for a server's cache; `None`: the server's choice.
    pub(crate) cache_bytes: Option<u64>,
}

/// A process; dropping the value ends it and removes its folder.
pub(super) struct Started {
    child: Child,
    pub(super) folder: PathBuf,
    /// For PostgreSQL: its program that stops it together with its children, and its user.
    stop: Option<(PathBuf, Option<(u32, u32)>)>,
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

/// Starts a command whose output goes to the folder's log and that signals from the terminal do not
/// reach.
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

/// Returns a target for a process that was just started, once it replies.
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
            Server::Embedded(_) => return Err(format!("{name} is no server")),
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

pub(super) fn start_marula(program: &Path, starting: &Starting) -> Result<Target, String> {
    let mut words = vec!["serve".to_owned()];
    if let Some(bytes) = starting.cache_bytes {
        words.extend(["--cache-size".into(), format!("{}MB", bytes >> 20)]);
    }
    start_like_mongod("marula", program, &words, starting)
}

/// The least cache that mongod accepts.
const MONGOD_CACHE_BYTES_MIN: u64 = 256 << 20;

pub(super) fn start_mongod(program: &Path, starting: &Starting) -> Result<Target, String> {
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

pub(super) fn start_postgres(programs: &Path, starting: &Starting) -> Result<Target, String> {
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
    // The recommendations of PostgreSQL's manual for a dedicated server: a quarter of the memory,
    // room between checkpoints.
    let buffers = starting.cache_bytes.unwrap_or_else(|| process::memory_total_bytes() / 4) >> 20;
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

impl Drop for Started {
    fn drop(&mut self) {
        if let Some((program, user)) = &self.stop {
            // A killed parent would leave its children running for a while.
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
