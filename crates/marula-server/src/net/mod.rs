//! Sockets, threads, and the interface to commands.
//!
//! ```text
//!            accept            message            Step::ToPool
//!  listener ────────► worker ──────────► Service ─────────────► pool thread
//!                       ▲                                            │
//!                       └─────────────── mailbox ◄───────────────────┘
//!                                           ▲ Wake: a sync is done, new data is there
//! ```
//!
//! A few *workers* own the connections and poll them, edge-triggered; each request costs one read
//! and one write. Requests that may be long run in the *pool*, which grows with the time that work
//! waits. While a request is in the pool, or parked until it is woken, its connection is not read,
//! only watched for a disconnection. No thread runs periodically while nothing happens, except one
//! that checks twice a second whether a worker is delayed. Start with [`service`].

mod connection;
mod counters;
mod foreign;
mod guard;
mod late;
mod listen;
mod pem;
mod per_address;
mod pool;
pub(crate) mod service;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
pub(crate) mod tls_client;
pub(crate) mod tls_files;
mod wake;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use marula_wire::Compressors;

pub(crate) use counters::{Connections, Network};
pub use listen::Listener;

use counters::Counters;
use per_address::PerAddress;
use pool::Pool;
use service::Service;
use wake::Mailbox;
use worker::{Mail, Worker};

/// The maximum number of operations that run on pool threads at a time.
pub(crate) const POOL_THREADS_MAX: usize = 256;

/// The default maximum of requests that wait for a pool thread. A thousand wait for seconds if each
/// takes some milliseconds.
const QUEUED_MAX: usize = 16_384;

/// The time that interrupted calls have at shutdown to notice it.
const INTERRUPT_GRACE: Duration = Duration::from_secs(1);

/// The options of the network.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of network workers; more than one per core are of no use.
    pub workers: usize,
    /// The maximum number of connections; further ones are closed at once.
    pub connections_max: usize,
    /// The maximum number of connections of one address; `None` is unlimited.
    pub connections_per_address_max: Option<usize>,
    /// The maximum number of requests that wait for a pool thread; further ones are rejected.
    pub queued_max: usize,
    /// The maximum number of pool threads without long calls.
    pub pool_threads_max: usize,
    /// The compressors that a message may use.
    pub compressors: Compressors,
    /// TLS, if connections over TCP may use it.
    pub tls: Option<Arc<tls::Tls>>,
}

impl Options {
    /// Returns MongoDB's limits and a worker for each core.
    pub fn for_this_machine() -> Self {
        Options {
            workers: thread::available_parallelism().map_or(1, usize::from),
            connections_max: 65_536,
            connections_per_address_max: None,
            queued_max: QUEUED_MAX,
            pool_threads_max: POOL_THREADS_MAX,
            compressors: Compressors::DEFAULT,
            tls: None,
        }
    }
}

/// The state that all workers share.
struct Shared<S: Service> {
    service: Arc<S>,
    options: Options,
    counters: Arc<Counters>,
    pool: Arc<Pool<S>>,
    mailboxes: Vec<Arc<Mailbox<Mail<S>>>>,
    per_address: Option<Arc<PerAddress>>,
    last_connection_id: AtomicU64,
}

/// A running network.
///
/// Dropping it leaves the network running; [`NetHandle::shutdown`] ends it.
pub struct NetHandle {
    local_addrs: Vec<SocketAddr>,
    counters: CounterReader,
    stop: Box<dyn Fn(Stop) + Send + Sync>,
    threads: Vec<thread::JoinHandle<()>>,
    pool_idle: Box<dyn Fn(Instant) + Send + Sync>,
    late: late::Watch,
}

/// The times of a shutdown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// Until then, requests in progress may finish.
    interrupt_at: Instant,
    /// After that, nothing is waited for.
    leave_at: Instant,
}

/// Serves `listeners` with `service`.
///
/// Errors: the operating system cannot create a thread or a poll.
pub fn start<S: Service>(
    listeners: Vec<Listener>,
    service: Arc<S>,
    options: Options,
) -> io::Result<NetHandle> {
    guard::install();
    let local_addrs = listeners.iter().filter_map(Listener::local_addr).collect();
    let workers = options.workers.max(1);
    let mut polls = Vec::with_capacity(workers);
    let mut mailboxes = Vec::with_capacity(workers);
    for _ in 0..workers {
        let poll = mio::Poll::new()?;
        mailboxes.push(Arc::new(Mailbox::new(poll.registry(), worker::BELL)?));
        polls.push(poll);
    }
    let counters = Arc::new(Counters::new(workers));
    let connections_max = options.connections_max;
    let reader = CounterReader { counters: Arc::clone(&counters), connections_max };
    service.starting(reader.clone());
    let pool = Arc::new(Pool::new(
        Arc::clone(&service),
        options.pool_threads_max.max(1),
        options.queued_max,
        Arc::clone(&counters),
        options.compressors,
    ));
    let per_address = options.connections_per_address_max.map(PerAddress::new);
    let shared = Arc::new(Shared {
        service,
        options,
        counters: Arc::clone(&counters),
        pool: Arc::clone(&pool),
        mailboxes,
        per_address,
        last_connection_id: AtomicU64::new(0),
    });
    let mut listeners = Some(listeners);
    let mut threads = Vec::with_capacity(workers);
    for (index, poll) in polls.into_iter().enumerate() {
        // The first worker accepts for all: it passes each connection to the worker with the
        // fewest.
        let listeners = listeners.take().unwrap_or_default();
        let worker = Worker::new(Arc::clone(&shared), index, poll, listeners)?;
        let thread = thread::Builder::new().name(format!("net-{index}"));
        threads.push(thread.spawn(move || worker.run())?);
    }
    let late = late::Watch::start(Arc::clone(&shared.service), Arc::clone(&counters))?;
    let stop = move |stop| {
        for mailbox in &shared.mailboxes {
            mailbox.send(Mail::Stop(stop));
        }
    };
    let pool_idle = move |until| pool.stop(until);
    Ok(NetHandle {
        local_addrs,
        counters: reader,
        stop: Box::new(stop),
        threads,
        pool_idle: Box::new(pool_idle),
        late,
    })
}

impl NetHandle {
    /// Returns the listening addresses, with the ports that the system chose.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Returns the counters of `serverStatus.connections`.
    pub fn connections(&self) -> Connections {
        self.counters.connections()
    }

    /// Returns the counters of `serverStatus.network`.
    pub fn network(&self) -> Network {
        self.counters.network()
    }

    /// Stops the network: no connection is accepted, idle ones are closed, and requests in progress
    /// may finish within `grace`, after which they are interrupted.
    pub fn shutdown(self, grace: Duration) {
        let interrupt_at = Instant::now() + grace;
        let leave_at = interrupt_at + INTERRUPT_GRACE;
        (self.stop)(Stop { interrupt_at, leave_at });
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a network worker had panicked");
            }
        }
        (self.pool_idle)(leave_at);
        self.late.stop();
    }
}

/// Reads the network's counters, for `serverStatus`: a service is created before its network, and
/// receives this reader when it starts.
#[derive(Clone)]
pub struct CounterReader {
    counters: Arc<Counters>,
    connections_max: usize,
}

impl CounterReader {
    /// Returns the counters of `serverStatus.connections`.
    pub fn connections(&self) -> Connections {
        self.counters.connections(self.connections_max)
    }

    /// Returns the counters of `serverStatus.network`.
    pub fn network(&self) -> Network {
        self.counters.network()
    }
}
