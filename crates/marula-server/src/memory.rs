//! How much memory the operations of all clients may take together.
//!
//! Each operation has bounds of its own, but many that are each within theirs would end the process
//! together. So what is about to grow [asks](marula_query::meter::ask) first, and is refused once
//! the process holds as much as it may. Operations that have not asked for much go on: there is
//! room left for them.

use std::sync::atomic::{AtomicUsize, Ordering};

use marula_error::{Result, errors};

use crate::server::Server;

/// The parameter that says how much; zero is [`Memory::bytes_max`].
pub const PARAMETER: &str = "operationMemoryBytesMax";

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
    pub used: fn() -> usize,
    /// How many it may hold.
    pub bytes_max: usize,
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

    /// Fails where so many bytes more are too many.
    pub fn ask(&self, bytes: usize) -> Result<()> {
        let used = (self.used)();
        match used.saturating_add(bytes) > self.bytes_max {
            true => Err(server_memory_used_up(used, self.bytes_max)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_given() {
        let memory = Memory { used: || 600, bytes_max: 1000 };
        assert!(memory.ask(400).is_ok());
        assert_eq!(memory.ask(401).unwrap_err().code().number(), 146);
        assert!(memory.ask(usize::MAX).is_err());
    }
}
