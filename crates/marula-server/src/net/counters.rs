//! What the network counts, for `serverStatus`.
//!
//! Each worker counts in a place of its own, so that counting costs no contention; reading adds
//! them up.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use marula_wire::Compressor;

/// `serverStatus.connections`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Connections {
    /// Connections that are open.
    pub current: u64,
    /// Connections that may still be opened.
    pub available: u64,
    /// Connections that were opened since the start.
    pub total_created: u64,
    /// Connections that were closed at once, because there were too many.
    pub rejected: u64,
    /// Connections that have a request in work.
    pub active: u64,
}

/// `serverStatus.network`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Network {
    /// Bytes of requests, uncompressed.
    pub bytes_in: u64,
    /// Bytes of replies, uncompressed.
    pub bytes_out: u64,
    /// Bytes of requests as they were received.
    pub physical_bytes_in: u64,
    /// Bytes of replies as they were sent.
    pub physical_bytes_out: u64,
    /// Messages received.
    pub requests: u64,
    /// How often a worker was found to be with one connection for too long.
    pub late: u64,
    /// Requests that were refused because too many waited for a pool thread.
    pub overloads: u64,
    /// Threads that wait for all connections.
    pub workers: u64,
    /// Per compressor, by its id.
    pub compression: [Compression; Compressor::ALL.len()],
}

/// `serverStatus.network.compression.<name>`; all in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compression {
    /// What went into compressing replies.
    pub compressor_in: u64,
    /// What came out of compressing replies.
    pub compressor_out: u64,
    /// What went into decompressing requests.
    pub decompressor_in: u64,
    /// What came out of decompressing requests.
    pub decompressor_out: u64,
}

/// The counters of one worker; only that worker writes, so that a plain load and store count.
///
/// Aligned so that no two workers share a cache line.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct WorkerCounters {
    /// Connections that it has or that are on their way to it; the accepting worker adds.
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

/// The moment that others are counted from.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What a worker is busy with, for the one who watches it.
#[derive(Default)]
pub(super) struct Busy {
    /// Microseconds since the epoch, and one more; zero while it is with no connection.
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

    /// When it began with its connection, as a number, the connection, and how long that is ago.
    pub(super) fn look(&self) -> Option<(u64, u64, Duration)> {
        let since = self.since.load(Ordering::Acquire);
        let began = Duration::from_micros(since.checked_sub(1)?);
        let connection = self.connection.load(Ordering::Relaxed);
        Some((since, connection, EPOCH.elapsed().saturating_sub(began)))
    }
}

/// A number that one thread changes and any reads.
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
    /// Counts a message: its bytes as they came, uncompressed, and by what they were compressed.
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

/// The counters of all workers, and those of accepting, which the first worker writes.
pub(super) struct Counters {
    pub(super) workers: Vec<WorkerCounters>,
    pub(super) total_created: Count,
    pub(super) rejected: Count,
    /// How often a worker was found to be with one connection for too long.
    pub(super) late: Count,
    /// Requests that were refused because too many waited for a pool thread.
    pub(super) overloads: AtomicU64,
    /// Connections that were accepted and not yet closed, those on their way to a worker included.
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
