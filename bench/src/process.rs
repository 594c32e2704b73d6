//! Readings of `/proc` about a server: CPU, memory, bytes written, and the process that listens on
//! a port.
//!
//! A server may be one process with threads (Marula, mongod) or a process with children
//! (PostgreSQL); both are read in the same way.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Kernel ticks per second of `/proc/<pid>/stat`; Linux shows 100 to every program.
const TICKS_PER_SECOND: u64 = 100;

/// The CPU clock of a process and its children.
pub(crate) struct Clock {
    pid: u32,
    /// The CPU time of each thread at the last reading, so that ended threads stay counted.
    threads: HashMap<String, u64>,
    total: u64,
}

impl Clock {
    /// A clock that counts from the start of the process.
    pub(crate) fn new(pid: u32) -> Clock {
        Clock { pid, threads: HashMap::new(), total: 0 }
    }

    /// CPU nanoseconds used so far, from the scheduler's account of each thread.
    pub(crate) fn read(&mut self) -> u64 {
        let now = thread_times(self.pid);
        let lost = self.threads.keys().any(|thread| !now.contains_key(thread));
        let spent: u64 = now
            .iter()
            .map(|(thread, at)| at - self.threads.get(thread).copied().unwrap_or(0).min(*at))
            .sum();
        self.threads = now;
        self.total += spent;
        // The CPU time of an ended thread is only in the process's own account, which counts in
        // ticks of 10 ms.
        let [account, mut ended] = process_times(self.pid);
        if lost {
            self.total = self.total.max(account);
        }
        // A child's time moves to its parent's account when it ends. A child that ends during this
        // reading would be missed or counted twice: the reading is repeated, a few times at most.
        let mut living = 0;
        for _ in 0..5 {
            let before = ended;
            living =
                children(self.pid).iter().flat_map(|pid| thread_times(*pid)).map(|t| t.1).sum();
            ended = process_times(self.pid)[1];
            if ended == before {
                break;
            }
        }
        self.total + ended + living
    }
}

fn thread_times(pid: u32) -> HashMap<String, u64> {
    let mut now = HashMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
        if let Some(spent) = text.split(' ').next().and_then(|word| word.parse().ok()) {
            now.insert(entry.file_name().to_string_lossy().into_owned(), spent);
        }
    }
    now
}

/// CPU nanoseconds of the process, and of its children that ended, in steps of a tick.
fn process_times(pid: u32) -> [u64; 2] {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold spaces; utime is the 12th word after it, and three more
    // follow.
    let after = stat.rsplit(')').next().unwrap_or("");
    let mut words = after.split_whitespace().skip(11).map(|word| word.parse().unwrap_or(0));
    let mut pair = || words.next().unwrap_or(0) + words.next().unwrap_or(0);
    [pair(), pair()].map(|ticks: u64| ticks * (1_000_000_000 / TICKS_PER_SECOND))
}

/// Returns the running child processes.
fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    found
}

/// The memory of this machine.
pub(crate) fn memory_total_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// Returns the memory of the process and its children in bytes, with shared memory counted once.
pub(crate) fn memory_bytes(pid: u32) -> u64 {
    let mut shared_max = 0;
    let mut own = 0;
    for pid in std::iter::once(pid).chain(children(pid)) {
        own += status_bytes(pid, "RssAnon:");
        shared_max = status_bytes(pid, "RssShmem:").max(shared_max);
    }
    own + shared_max
}

/// Returns the maximum memory that the process itself ever had.
pub(crate) fn memory_peak_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// The bytes that a process and its children sent to the disk; ended children stay counted as of
/// the last reading.
pub(crate) struct Written {
    pid: u32,
    processes: HashMap<u32, u64>,
    total: u64,
}

impl Written {
    pub(crate) fn new(pid: u32) -> Written {
        Written { pid, processes: HashMap::new(), total: 0 }
    }

    /// Bytes so far.
    pub(crate) fn read(&mut self) -> u64 {
        for pid in std::iter::once(self.pid).chain(children(self.pid)) {
            let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
            let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:")).unwrap_or("");
            let now = line.trim().parse::<u64>().unwrap_or(0);
            let before = self.processes.insert(pid, now).unwrap_or(0);
            self.total += now.saturating_sub(before);
        }
        self.total
    }
}

/// Bytes of a data folder without what is a log: journals, write-ahead logs, diagnostics.
pub(crate) fn folder_bytes(path: &Path) -> u64 {
    let mut total = 0;
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            if !["journal", "diagnostic.data", "pg_wal"].contains(&name.as_str()) {
                total += folder_bytes(&entry.path());
            }
        } else if !name.ends_with(".log") && !name.starts_with("LOG") {
            total += meta.len();
        }
    }
    total
}

/// Returns the process of this machine that listens on a TCP port, if this user may see it.
pub(crate) fn listener(port: u16) -> Option<u32> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (_, local) = words.get(1)?.rsplit_once(':')?;
            let listens = words.get(3) == Some(&"0A") && u16::from_str_radix(local, 16) == Ok(port);
            listens.then(|| words.get(9).map(|inode| format!("socket:[{inode}]")))?
        })
    })?;
    let mut holders: Vec<u32> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let sockets = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            sockets
                .filter_map(|entry| fs::read_link(entry.path()).ok())
                .any(|link| link.as_os_str() == inode.as_str())
        })
        .collect();
    // Children may have inherited the socket; the parent is the one whose parent does not hold it,
    // the oldest.
    holders.sort_unstable();
    holders.first().copied()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Instant;

    use super::*;

    #[test]
    fn this_process_is_found_by_its_port() {
        let listener_socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener_socket.local_addr().expect("a bound socket").port();
        assert_eq!(listener(port), Some(std::process::id()));
        drop(listener_socket);
        assert_eq!(listener(port), None);
    }

    #[test]
    fn the_clock_counts_threads_that_ended() {
        let mut clock = Clock::new(std::process::id());
        let before = clock.read();
        let busy = std::thread::spawn(|| {
            let begin = Instant::now();
            while begin.elapsed().as_millis() < 60 {
                std::hint::black_box(begin);
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        clock.read();
        busy.join().expect("the thread only counts");
        assert!(clock.read() > before);
    }

    #[test]
    fn memory_of_this_process_is_more_than_nothing() {
        assert!(memory_bytes(std::process::id()) > 1 << 16);
        assert!(memory_peak_bytes(std::process::id()) > 1 << 16);
    }
}
