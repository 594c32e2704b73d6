//! One server under measurement: its process, its CPU clock, its cores, its bytes on disk.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{self, Clock};

/// A running server; dropping it ends the server and removes its folder.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    words: Vec<String>,
    child: Child,
    folder: PathBuf,
    clock: Clock,
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
        if words.get(1).map(String::as_str) == Some("echo") {
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
        let clock = Clock::new(child.id());
        let mut side = Side { name, address, words: words.to_vec(), child, folder, clock };
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

    /// Starts another server of the same kind, without data.
    pub(crate) fn another(&self) -> Result<Side, String> {
        Side::start(self.name, &self.words)
    }

    /// CPU nanoseconds that the server has used so far.
    pub(crate) fn cpu_ns(&mut self) -> u64 {
        self.clock.read()
    }

    /// Restricts the server's threads, and this program, to the first `cores` cores.
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
        process::folder_bytes(&self.folder.join("data"))
    }

    /// Peak memory in megabytes.
    pub(crate) fn memory_mb(&self) -> u64 {
        process::memory_peak_bytes(self.child.id()) >> 20
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
