//! A snapshot of the server's numbers that several families use.

use std::collections::HashMap;

use marula_db::catalog::Totals;

use crate::cursor;
use crate::host;
use crate::net::{Connections, Network};
use crate::server::Server;
use crate::transactions;

/// The numbers.
pub(super) struct Reading<'s> {
    pub(super) server: &'s Server,
    pub(super) connections: Connections,
    pub(super) network: Network,
    pub(super) cursors: cursor::Statistics,
    pub(super) transactions: transactions::Statistics,
    pub(super) catalog: Totals,
    pub(super) process: Process,
    engine: HashMap<String, i64>,
}

/// The kernel's numbers of the process.
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) threads: Option<u64>,
    pub(super) open_files: Option<u64>,
}

impl<'s> Reading<'s> {
    /// Reads the numbers.
    pub(super) fn take(server: &'s Server) -> Self {
        let network = server.network.get();
        Reading {
            server,
            connections: network.map(|counters| counters.connections()).unwrap_or_default(),
            network: network.map(|counters| counters.network()).unwrap_or_default(),
            cursors: server.cursors.statistics(),
            transactions: server.transactions.statistics(),
            catalog: server.db.catalog().totals(),
            process: Process::read(),
            engine: server.db.engine_statistics().into_iter().collect(),
        }
    }

    /// Returns a number of the engine by its name in `serverStatus.marula.engine`; `None` if this
    /// engine does not have it.
    pub(super) fn engine(&self, name: &str) -> Option<i64> {
        self.engine.get(name).copied()
    }

    /// Returns a duration of the engine in seconds; its counter is in microseconds.
    pub(super) fn engine_seconds(&self, name: &str) -> Option<f64> {
        self.engine(name).map(|us| us as f64 / 1_000_000.0)
    }
}

impl Process {
    fn read() -> Self {
        let (user_us, system_us, ..) = host::usage();
        let status = |field| host::proc_bytes("/proc/self/status", field);
        let open_files = std::fs::read_dir("/proc/self/fd").ok();
        Process {
            cpu_seconds: (user_us + system_us) as f64 / 1_000_000.0,
            resident_bytes: status("VmRSS"),
            virtual_bytes: status("VmSize"),
            threads: host::proc_number("/proc/self/status", "Threads"),
            open_files: open_files.map(|files| files.count() as u64),
        }
    }
}
