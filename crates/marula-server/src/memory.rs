//! The memory limit of the operations of all clients together.
//!
//! Each operation has its own limits, but many operations within theirs could together end the
//! process. So an operation that is about to allocate much calls
//! [`check_room`](marula_query::meter::check_room) first, which fails once the process is at its
//! limit. Operations that have not allocated much continue: there is a reserve for them.
//!
//! The counted memory is less than the allocator takes from the system. Under `--memory-limit` a
//! stage therefore also spills to disk, if it can, while the process is close to its limit. That is
//! no reason to reject a stage: the allocator returns freed memory late.

use std::sync::atomic::{AtomicUsize, Ordering};

use marula_error::{Result, errors};
use marula_query::spill::share::small_pieces_bytes;

use crate::server::Server;

/// The parameter for the limit; zero means [`Memory::bytes_max`].
pub(crate) const PARAMETER: &str = "operationMemoryBytesMax";

errors! {
    /// The operations of all clients together are at the memory limit.
    server_memory_used_up(used: usize, limit: usize) = ExceededMemoryLimit, "the operations of this server use too much memory together: {used} bytes. Memory limit: {limit} bytes";
}

/// The parameter's value, for a quick read by every operation; zero if it is not set.
#[derive(Default, Debug)]
pub struct Setting(AtomicUsize);

impl Setting {
    /// Sets the parameter's value.
    pub fn set(&self, bytes: i64) {
        self.0.store(usize::try_from(bytes).unwrap_or_default(), Ordering::Relaxed);
    }
}

/// The memory limit of operations, and the memory in use.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Returns the bytes that the process holds in large allocations, without the engine's cache.
    pub large_pieces: fn() -> usize,
    /// The limit on them.
    pub bytes_max: usize,
    /// The limit of the whole process, if there is one.
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

/// The work of a thread. At its end the thread returns what it has freed, if the process has half
/// of its bound or more: the thread may be idle for long, and the allocator keeps freed memory by
/// thread.
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
    /// Returns the current settings of a server.
    pub fn of(server: &Server) -> Memory {
        let memory = server.options.memory;
        match server.memory_setting.0.load(Ordering::Relaxed) {
            0 => memory,
            bytes_max => Memory { bytes_max, ..memory },
        }
    }

    /// Returns the bytes that operations hold: large allocations, and the small ones of blocking
    /// stages.
    pub fn used(&self) -> usize {
        (self.large_pieces)().saturating_add(small_pieces_bytes())
    }

    /// Fails if this number of additional bytes exceeds the limit.
    pub fn check_room(&self, bytes: usize) -> Result<()> {
        match self.has(bytes) {
            true => Ok(()),
            false => Err(server_memory_used_up(self.used(), self.bytes_max)),
        }
    }

    fn has(&self, bytes: usize) -> bool {
        self.used().saturating_add(bytes) <= self.bytes_max
    }

    /// Begins the work of a thread that may be idle after it.
    pub fn begin_work(&self) -> ThreadWork {
        ThreadWork(self.process)
    }

    /// Returns whether this number of additional bytes should rather be on disk.
    pub fn is_short_of(&self, bytes: usize) -> bool {
        let is_too_large =
            |process: ProcessMemory| (process.resident)().saturating_add(bytes) > process.bytes_max;
        !self.has(bytes) || self.process.is_some_and(is_too_large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_given() {
        let memory = Memory { large_pieces: || 600, bytes_max: 1000, process: None };
        assert!(memory.check_room(400).is_ok());
        let process = ProcessMemory { resident: || 5000, bytes_max: 5300, give_back: || {} };
        let bounded = Memory { process: Some(process), ..memory };
        assert!(!bounded.is_short_of(300));
        assert!(bounded.is_short_of(301) && bounded.check_room(301).is_ok());
        assert_eq!(memory.check_room(401).unwrap_err().code().number(), 146);
        assert!(memory.check_room(usize::MAX).is_err());
    }
}
