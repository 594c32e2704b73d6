//! The log on stdout, which never makes the server wait.
//!
//! Stdout may be a pipe whose reader has stopped, or a terminal that is paused. A line is written
//! at once if there is room. Otherwise lines collect in memory, up to a limit, and a thread writes
//! them; beyond the limit they are dropped, and a later line reports their number.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The maximum size of waiting lines.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The number of bytes that a pipe takes at once if it takes any: `PIPE_BUF` of Linux.
const AT_ONCE_BYTES: usize = 4096;

/// Lines that wait for stdout.
#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The number of dropped lines that were not reported yet.
    dropped: u64,
    /// Whether the thread is writing a line.
    is_writing: bool,
    has_thread: bool,
}

#[derive(Default)]
struct Stdout {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// There is one stdout.
static STDOUT: LazyLock<Arc<Stdout>> = LazyLock::new(Arc::default);

/// A writer to stdout. Each call of `write` is a line.
pub struct Unblocked(());

impl Unblocked {
    /// Creates a writer.
    pub fn stdout() -> Self {
        Unblocked(())
    }
}

impl Write for Unblocked {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        STDOUT.push(line)?;
        Ok(line.len())
    }

    /// Lines are held back only while stdout has no room for them.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until the waiting lines are written, for at most `timeout`: before the process ends.
pub fn drain(timeout: Duration) {
    let until = Instant::now() + timeout;
    let mut waiting = STDOUT.waiting.lock();
    while waiting.is_writing || !waiting.lines.is_empty() {
        if STDOUT.changed.wait_until(&mut waiting, until).timed_out() {
            return;
        }
    }
}

impl Stdout {
    fn push(self: &Arc<Self>, line: &[u8]) -> io::Result<()> {
        let mut waiting = self.waiting.lock();
        let is_free = waiting.lines.is_empty() && !waiting.is_writing;
        if is_free && line.len() <= AT_ONCE_BYTES && has_room() {
            return write_out(line);
        }
        if waiting.bytes + line.len() > WAITING_BYTES_MAX {
            waiting.dropped += 1;
            return Ok(());
        }
        if !waiting.has_thread {
            let own = Arc::clone(self);
            thread::Builder::new().name("log".to_owned()).spawn(move || own.write_lines())?;
            waiting.has_thread = true;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.to_owned());
        self.changed.notify_all();
        Ok(())
    }

    /// Runs the thread.
    fn write_lines(&self) {
        let mut waiting = self.waiting.lock();
        loop {
            let Some(line) = waiting.lines.pop_front() else {
                if waiting.dropped > 0 {
                    let lines = std::mem::take(&mut waiting.dropped);
                    drop(waiting);
                    tracing::warn!(lines, "stdout took no lines of the log, and some were dropped");
                    waiting = self.waiting.lock();
                } else {
                    self.changed.wait(&mut waiting);
                }
                continue;
            };
            waiting.bytes -= line.len();
            waiting.is_writing = true;
            drop(waiting);
            // A log that cannot be written has no other place to report it.
            let _ = write_out(&line);
            waiting = self.waiting.lock();
            waiting.is_writing = false;
            self.changed.notify_all();
        }
    }
}

fn has_room() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && !fds[0].revents().is_empty()
}

/// Writes to the descriptor itself: [`io::stdout`] would hold its lock while it waits.
fn write_out(mut line: &[u8]) -> io::Result<()> {
    let stdout = io::stdout();
    while !line.is_empty() {
        match rustix::io::write(&stdout, line) {
            Ok(written) => line = &line[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
                // If it fails, the next write returns the error.
                let _ = poll(&mut fds, None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
