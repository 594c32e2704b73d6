//! One server under measurement: its process, its CPU clock, its cores, its bytes on disk.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Kernel ticks per second of `/proc/<pid>/stat`; Linux shows 100 to every program.
const TICKS_PER_SECOND: u64 = 100;

/// A running server; ends with the value, and its folder with it.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    words: Vec<String>,
    child: Child,
    folder: PathBuf,
    clock: Clock,
}

/// The CPU time of each thread at the last look, so that threads that ended stay counted.
#[derive(Default)]
struct Clock {
    threads: HashMap<String, u64>,
    total: u64,
}

impl Side {
    /// Starts `words` (a program and its first arguments) with a fresh folder on a free port.
    pub(crate) fn start(name: &'static str, words: &[String]) -> Result<Side, String> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| format!("no free port: {error}"))?
            .port();
        let folder =
            std::env::temp_dir().join(format!("marula-bench-{}-{name}-{port}", std::process::id()));
        fs::create_dir_all(folder.join("data"))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let log = fs::File::create(folder.join("log"))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if words.get(1).map(String::as_str) == Some("--echo") {
            command.arg(port.to_string());
        } else {
            command.arg("--dbpath").arg(folder.join("data")).arg("--port").arg(port.to_string());
            command.args(["--bind_ip", "127.0.0.1"]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|error| error.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start '{}': {error}", words[0]))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut side =
            Side { name, address, words: words.to_vec(), child, folder, clock: Clock::default() };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = side.child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || begin.elapsed() > Duration::from_secs(30) {
                let log = fs::read_to_string(side.folder.join("log")).unwrap_or_default();
                return Err(format!("'{}' did not start: {}", words.join(" "), log.trim_end()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(side)
    }

    /// Another server of the same kind, with nothing in it.
    pub(crate) fn another(&self) -> Result<Side, String> {
        Side::start(self.name, &self.words)
    }

    /// CPU nanoseconds that the server has used so far, from the scheduler's account of each thread.
    pub(crate) fn cpu_ns(&mut self) -> u64 {
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut now = HashMap::new();
        for entry in fs::read_dir(tasks).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
            if let Some(spent) = text.split(' ').next().and_then(|word| word.parse().ok()) {
                now.insert(entry.file_name().to_string_lossy().into_owned(), spent);
            }
        }
        let lost = self.clock.threads.keys().any(|thread| !now.contains_key(thread));
        let clock = &mut self.clock;
        let spent: u64 = now
            .iter()
            .map(|(thread, at)| at - clock.threads.get(thread).copied().unwrap_or(0).min(*at))
            .sum();
        clock.threads = now;
        clock.total += spent;
        // What an ended thread used is only in the process's own account, which counts in ticks of 10 ms.
        let ticks = process_ticks(self.child.id());
        if lost {
            clock.total = clock.total.max(ticks * 1_000_000_000 / TICKS_PER_SECOND);
        }
        clock.total
    }

    /// Keeps the server's threads, and this program, to the first `cores` cores.
    pub(crate) fn pin(&self, cores: usize) {
        let available =
            std::thread::available_parallelism().map_or(1, usize::from).max(cores.min(2));
        let list = format!("0-{}", cores.min(available).max(1) - 1);
        for pid in [self.child.id(), std::process::id()] {
            // Without taskset (it is part of every Debian) the numbers are only noisier.
            let _ = Command::new("taskset")
                .args(["-acp", &list, &pid.to_string()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }

    /// Waits until the server has nothing left to do: flushes, compactions, checkpoints.
    pub(crate) fn settle(&mut self, limit: Duration) {
        let begin = Instant::now();
        let step = Duration::from_millis(250);
        let mut before = self.cpu_ns();
        while begin.elapsed() < limit {
            std::thread::sleep(step);
            let now = self.cpu_ns();
            if now - before < step.as_nanos() as u64 / 25 {
                return;
            }
            before = now;
        }
    }

    /// Bytes of the data folder without what is a log: journals, write-ahead logs, diagnostics.
    pub(crate) fn disk_bytes(&self) -> u64 {
        size(&self.folder.join("data"))
    }

    /// Peak memory in megabytes.
    pub(crate) fn memory_mb(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn size(path: &Path) -> u64 {
    let mut total = 0;
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            if name != "journal" && name != "diagnostic.data" {
                total += size(&entry.path());
            }
        } else if !name.ends_with(".log") && !name.starts_with("LOG") {
            total += meta.len();
        }
    }
    total
}

fn process_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold spaces; utime and stime are the 12th and 13th words after it.
    let after = stat.rsplit(')').next().unwrap_or("");
    after.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}
