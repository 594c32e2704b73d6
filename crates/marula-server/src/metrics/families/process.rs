//! The process, its memory, and its build. The names without `marula_` are those of Prometheus'
//! client libraries for every process.

use crate::host;
use crate::memory::Memory;
use crate::metrics::exposition::{Family, Kind};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "process_cpu_seconds_total",
        kind: Kind::Counter,
        help: "Processor time of the process, in user and system mode",
        write: |reading, out| out.one(reading.process.cpu_seconds),
    },
    Family {
        name: "process_resident_memory_bytes",
        kind: Kind::Gauge,
        help: "Resident memory of the process",
        write: |reading, out| out.maybe(reading.process.resident_bytes),
    },
    Family {
        name: "process_virtual_memory_bytes",
        kind: Kind::Gauge,
        help: "Address space of the process",
        write: |reading, out| out.maybe(reading.process.virtual_bytes),
    },
    Family {
        name: "process_open_fds",
        kind: Kind::Gauge,
        help: "Open file descriptors",
        write: |reading, out| out.maybe(reading.process.open_files),
    },
    Family {
        name: "process_max_fds",
        kind: Kind::Gauge,
        help: "Maximum number of open file descriptors",
        write: |_, out| out.one(host::open_files_max()),
    },
    Family {
        name: "process_threads",
        kind: Kind::Gauge,
        help: "Threads of the process",
        write: |reading, out| out.maybe(reading.process.threads),
    },
    Family {
        name: "process_start_time_seconds",
        kind: Kind::Gauge,
        help: "Start time of the server, in seconds since 1970",
        write: |reading, out| {
            let server = reading.server;
            out.one(server.now_ms() as f64 / 1_000.0 - server.started.elapsed().as_secs_f64());
        },
    },
    Family {
        name: "marula_build_info",
        kind: Kind::Gauge,
        help: "Always 1; the labels are the version, the commit of the build, and the storage engine",
        write: |reading, out| {
            let build = &reading.server.options.build;
            let engine = reading.server.db.engine().name;
            let labels = [("version", build.version), ("commit", build.commit), ("engine", engine)];
            out.labelled(&labels, true);
        },
    },
    Family {
        name: "marula_ready",
        kind: Kind::Gauge,
        help: "1 if the server is ready, as /readyz reports it, otherwise 0",
        write: |reading, out| {
            out.one(crate::metrics::unreadiness(Some(reading.server)).is_none());
        },
    },
    Family {
        name: "marula_operation_memory_bytes",
        kind: Kind::Gauge,
        help: "Memory allocated in blocks of at least 4 kB, without the memory of RocksDB",
        write: |reading, out| out.one(Memory::of(reading.server).used() as u64),
    },
    Family {
        name: "marula_operation_memory_limit_bytes",
        kind: Kind::Gauge,
        help: "Limit of marula_operation_memory_bytes; at the limit, operations that need more memory are rejected",
        write: |reading, out| {
            // Prometheus' numbers are floats; the largest of them means no limit.
            let limit = Memory::of(reading.server).bytes_max;
            if limit < usize::MAX {
                out.one(limit as u64);
            }
        },
    },
];
