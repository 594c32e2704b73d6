//! The network's counters, for `serverStatus`.
//!
//! Each worker has its own counters, without contention; readers add them up.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use marula_wire::Compressor;

/// `serverStatus.connections`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Connections {
    /// Open connections.
    pub current: u64,
    /// Connections that may still be opened.
    pub available: u64,
    /// Connections opened since the start.
    pub total_created: u64,
    /// Connections closed at once because of a limit.
    pub rejected: u64,
    /// Connections with a request in progress.
    pub active: u64,
}

/// `serverStatus.network`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Network {
    /// Bytes of requests, uncompressed.
    pub bytes_in: u64,
    /// Bytes of replies, uncompressed.
    pub bytes_out: u64,
    /// Bytes of requests as received, compressed or not.
    pub physical_bytes_in: u64,
    /// Bytes of replies as sent, compressed or not.
    pub physical_bytes_out: u64,
    /// Messages received.
    pub requests: u64,
    /// The number of times that a worker was busy with one connection for too long.
    pub late: u64,
    /// Requests rejected because too many waited for a pool thread.
    pub overloads: u64,
    /// Network workers.
    pub workers: u64,
    /// Per compressor, by its id.
    pub compression: [Compression; Compressor::ALL.len()],
}

/// `serverStatus.network.compression.<name>`; all in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compression {
    /// Bytes of replies before compression.
    pub compressor_in: u64,
    /// Bytes of replies after compression.
    pub compressor_out: u64,
    /// Bytes of requests before decompression.
    pub decompressor_in: u64,
    /// Bytes of requests after decompression.
    pub decompressor_out: u64,
}

/// The counters of one worker. Only that worker writes, so that a plain load and store suffice.
///
/// Aligned so that no two workers share a cache line.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct WorkerCounters {
    /// Connections that it has or will get; the accepting worker adds them.
    pub(super) placed: AtomicU64,
    pub(super) busy: Busy,
    pub(super) active: Count,
    pub(super) bytes_in: Count,
    pub(super) bytes_out: Count,
    pub(super) physical_bytes_in: Count,
    pub(super) physical_bytes_out: Count,
    pub(super) requests: Count,
    compression: [CompressionCounts; Compressor::ALL.len()],
}

#[derive(Default)]
struct CompressionCounts {
    compressor_in: Count,
    compressor_out: Count,
    decompressor_in: Count,
    decompressor_out: Count,
}

/// The start of relative times.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The connection that a worker is busy with, for the watch.
#[derive(Default)]
pub(super) struct Busy {
    /// Microseconds since the epoch, plus one; zero if there is no connection.
    since: AtomicU64,
    connection: AtomicU64,
}

impl Busy {
    pub(super) fn begin(&self, connection: u64, now: Instant) {
        self.connection.store(connection, Ordering::Relaxed);
        let since = now.saturating_duration_since(*EPOCH).as_micros() as u64 + 1;
        self.since.store(since, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.since.store(0, Ordering::Release);
    }

    /// Returns the start of the work for its connection, the connection, and the time since the
    /// start.
    pub(super) fn look(&self) -> Option<(u64, u64, Duration)> {
        let since = self.since.load(Ordering::Acquire);
        let began = Duration::from_micros(since.checked_sub(1)?);
        let connection = self.connection.load(Ordering::Relaxed);
        Some((since, connection, EPOCH.elapsed().saturating_sub(began)))
    }
}

/// A number that one thread changes and any thread reads.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: usize) {
        self.0.store(self.get().wrapping_add(more as u64), Ordering::Relaxed);
    }

    pub(super) fn sub(&self, less: usize) {
        self.0.store(self.get().wrapping_sub(less as u64), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl WorkerCounters {
    /// Counts a message: its size as received, its uncompressed size, and its compressor.
    pub(super) fn received(&self, physical: usize, logical: usize, compressor: Option<Compressor>) {
        self.requests.add(1);
        self.physical_bytes_in.add(physical);
        self.bytes_in.add(logical);
        if let Some(compressor) = compressor {
            let counts = &self.compression[usize::from(compressor.id())];
            counts.decompressor_in.add(physical);
            counts.decompressor_out.add(logical);
        }
    }

    /// Counts a reply, in the same way.
    pub(super) fn replied(&self, physical: usize, logical: usize, compressor: Option<Compressor>) {
        self.physical_bytes_out.add(physical);
        self.bytes_out.add(logical);
        if let Some(compressor) = compressor {
            let counts = &self.compression[usize::from(compressor.id())];
            counts.compressor_in.add(logical);
            counts.compressor_out.add(physical);
        }
    }
}

/// The counters of all workers, and those of accepting connections, which the first worker writes.
pub(super) struct Counters {
    pub(super) workers: Vec<WorkerCounters>,
    pub(super) total_created: Count,
    pub(super) rejected: Count,
    /// The number of times that a worker was busy with one connection for too long.
    pub(super) late: Count,
    /// Requests rejected because too many waited for a pool thread.
    pub(super) overloads: AtomicU64,
    /// Connections accepted and not yet closed, including those on their way to a worker.
    pub(super) current: AtomicU64,
}

impl Counters {
    pub(super) fn new(workers: usize) -> Self {
        Counters {
            workers: (0..workers).map(|_| WorkerCounters::default()).collect(),
            total_created: Count::default(),
            rejected: Count::default(),
            late: Count::default(),
            overloads: AtomicU64::new(0),
            current: AtomicU64::new(0),
        }
    }

    pub(super) fn connections(&self, connections_max: usize) -> Connections {
        let current = self.current.load(Ordering::Relaxed);
        Connections {
            current,
            available: (connections_max as u64).saturating_sub(current),
            total_created: self.total_created.get(),
            rejected: self.rejected.get(),
            active: self.workers.iter().map(|worker| worker.active.get()).sum(),
        }
    }

    pub(super) fn network(&self) -> Network {
        let mut total = Network {
            late: self.late.get(),
            overloads: self.overloads.load(Ordering::Relaxed),
            workers: self.workers.len() as u64,
            ..Network::default()
        };
        for worker in &self.workers {
            total.bytes_in += worker.bytes_in.get();
            total.bytes_out += worker.bytes_out.get();
            total.physical_bytes_in += worker.physical_bytes_in.get();
            total.physical_bytes_out += worker.physical_bytes_out.get();
            total.requests += worker.requests.get();
            for (sum, counts) in total.compression.iter_mut().zip(&worker.compression) {
                sum.compressor_in += counts.compressor_in.get();
                sum.compressor_out += counts.compressor_out.get();
                sum.decompressor_in += counts.decompressor_in.get();
                sum.decompressor_out += counts.decompressor_out.get();
            }
        }
        total
    }
}
