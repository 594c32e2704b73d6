//! How much memory the operations of all clients may take together.
//!
//! Each operation has bounds of its own, but many that are each within theirs would end the process
//! together. So what is about to grow [asks](marula_query::meter::ask) first, and is refused once
//! the process holds as much as it may. Operations that have not asked for much go on: there is
//! room left for them.
//!
//! What is counted is less than what the allocator takes from the system. Under `--memory-limit` a
//! stage therefore also goes to the disk, if it can, while the process is close to its limit. That
//! is no reason to refuse one: the allocator returns freed memory late.

use std::sync::atomic::{AtomicUsize, Ordering};

use marula_error::{Result, errors};
use marula_query::spill::share::small_pieces_bytes;

use crate::server::Server;

/// The parameter that says how much; zero is [`Memory::bytes_max`].
pub(crate) const PARAMETER: &str = "operationMemoryBytesMax";

errors! {
    /// The operations of all clients together take as much memory as they may.
    server_memory_used_up(used: usize, limit: usize) = ExceededMemoryLimit, "the operations of this server use too much memory together: {used} bytes. Memory limit: {limit} bytes";
}

/// What the parameter is set to, kept where every operation reads it; zero where it is not set.
#[derive(Default, Debug)]
pub struct Setting(AtomicUsize);

impl Setting {
    /// Takes the parameter's value.
    pub fn set(&self, bytes: i64) {
        self.0.store(usize::try_from(bytes).unwrap_or_default(), Ordering::Relaxed);
    }
}

/// How much memory there is for operations, and how much of it is taken.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// How many bytes the process holds in large pieces, the engine's cache not counted.
    pub large_pieces: fn() -> usize,
    /// How many it may hold.
    pub bytes_max: usize,
    /// The bound of the process as a whole, where it has one.
    pub process: Option<ProcessMemory>,
}

/// The memory of the whole process: operations, caches, the engine, the program.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    /// Returns the bytes that the system has given to the process, as of a moment ago.
    pub resident: fn() -> usize,
    /// The bytes beyond which stages go to the disk.
    pub bytes_max: usize,
    /// Returns to the system what the calling thread has freed.
    pub give_back: fn(),
}

/// The work of a thread. At its end the thread returns what it has freed, if the process is close
/// to its limit: it may be idle for long, and the allocator keeps freed memory by thread.
pub struct ThreadWork(Option<ProcessMemory>);

impl Drop for ThreadWork {
    fn drop(&mut self) {
        if let Some(process) = self.0
            && (process.resident)() > process.bytes_max / 2
        {
            (process.give_back)();
        }
    }
}

impl Memory {
    /// That of a server as it is set now.
    pub fn of(server: &Server) -> Memory {
        let memory = server.options.memory;
        match server.memory_setting.0.load(Ordering::Relaxed) {
            0 => memory,
            bytes_max => Memory { bytes_max, ..memory },
        }
    }

    /// How many bytes operations hold: large pieces, and the small ones of blocking stages.
    pub fn used(&self) -> usize {
        (self.large_pieces)().saturating_add(small_pieces_bytes())
    }

    /// Fails where so many bytes more are too many.
    pub fn ask(&self, bytes: usize) -> Result<()> {
        let used = self.used();
        match used.saturating_add(bytes) > self.bytes_max {
            true => Err(server_memory_used_up(used, self.bytes_max)),
            false => Ok(()),
        }
    }

    /// Begins the work of a thread that may be idle after it.
    pub fn begin_work(&self) -> ThreadWork {
        ThreadWork(self.process)
    }

    /// Whether so many bytes more are better kept on the disk.
    pub fn is_short_of(&self, bytes: usize) -> bool {
        let is_too_large =
            |process: ProcessMemory| (process.resident)().saturating_add(bytes) > process.bytes_max;
        self.ask(bytes).is_err() || self.process.is_some_and(is_too_large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_given() {
        let memory = Memory { large_pieces: || 600, bytes_max: 1000, process: None };
        assert!(memory.ask(400).is_ok());
        let process = ProcessMemory { resident: || 5000, bytes_max: 5300, give_back: || {} };
        let bounded = Memory { process: Some(process), ..memory };
        assert!(!bounded.is_short_of(300));
        assert!(bounded.is_short_of(301) && bounded.ask(301).is_ok());
        assert_eq!(memory.ask(401).unwrap_err().code().number(), 146);
        assert!(memory.ask(usize::MAX).is_err());
    }
}
