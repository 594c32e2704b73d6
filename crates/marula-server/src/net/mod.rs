//! Sockets, threads, and the border to commands.
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
//! and one write. What may be long runs in the *pool*, which grows with the time that work waits.
//! While a request is out (in the pool, or parked until it is woken) its connection is not read,
//! only watched for the client's leaving. Nothing here ticks while nothing happens, but for one
//! thread that looks twice a second whether a worker is held up. Start with [`service`].

mod connection;
mod counters;
mod guard;
mod late;
mod listen;
mod per_address;
mod pool;
pub mod service;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod tls_files;
mod wake;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use marula_wire::Compressors;

pub use counters::{Compression, Connections, Network};
pub use listen::Listener;

use counters::Counters;
use per_address::PerAddress;
use pool::Pool;
use service::Service;
use wake::Mailbox;
use worker::{Mail, Worker};

/// How many operations may run on threads of the pool at once.
pub const POOL_THREADS_MAX: usize = 256;

/// How many requests may wait for a pool thread unless told otherwise. A thousand wait for seconds
/// already where each takes some milliseconds.
const QUEUED_MAX: usize = 16_384;

/// How long the calls that shutdown interrupts may take to notice it.
const INTERRUPT_GRACE: Duration = Duration::from_secs(1);

/// How the network is laid out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Network workers; one per core is the most that is of use.
    pub workers: usize,
    /// The most connections at one time; further ones are closed as they come.
    pub connections_max: usize,
    /// The most connections of one address at one time; `None` is as many as there may be.
    pub connections_per_address_max: Option<usize>,
    /// The most requests that wait for a pool thread; further ones are refused.
    pub queued_max: usize,
    /// The most threads of the pool, those with long calls left out.
    pub pool_threads_max: usize,
    /// The compressors that a message may use.
    pub compressors: Compressors,
    /// TLS, where connections over TCP may use it.
    pub tls: Option<Arc<tls::Tls>>,
}

impl Options {
    /// MongoDB's limits and as many workers as there are cores.
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

/// What all workers share.
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
    counters: Arc<Counters>,
    connections_max: usize,
    stop: Box<dyn Fn(Stop) + Send + Sync>,
    threads: Vec<thread::JoinHandle<()>>,
    pool_idle: Box<dyn Fn(Instant) + Send + Sync>,
    late: late::Watch,
}

/// When the connections end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// Until here, requests that are out may finish.
    interrupt_at: Instant,
    /// From here on nothing is waited for.
    leave_at: Instant,
}

/// Serves `listeners` with `service`.
///
/// Errors: the operating system refuses a thread or a poll.
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
    let pool = Arc::new(Pool::new(
        Arc::clone(&service),
        options.pool_threads_max.max(1),
        options.queued_max,
        Arc::clone(&counters),
        options.compressors,
    ));
    let connections_max = options.connections_max;
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
        // The first worker accepts for all: it hands each connection to the worker that has the
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
        counters,
        connections_max,
        stop: Box::new(stop),
        threads,
        pool_idle: Box::new(pool_idle),
        late,
    })
}

impl NetHandle {
    /// The addresses that are listened on, with the ports that the system chose.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// The counters of `serverStatus.connections`.
    pub fn connections(&self) -> Connections {
        self.counters.connections(self.connections_max)
    }

    /// The counters of `serverStatus.network`.
    pub fn network(&self) -> Network {
        self.counters.network()
    }

    /// A way to read the counters that outlives the borrow of this handle.
    pub fn counters(&self) -> CounterReader {
        CounterReader {
            counters: Arc::clone(&self.counters),
            connections_max: self.connections_max,
        }
    }

    /// Stops: no connection is accepted any more, idle ones are closed, requests that are out may
    /// finish for `grace` and are interrupted then.
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

/// Reads the network's counters, for `serverStatus`: a service is made before its network, and is
/// given this after.
#[derive(Clone)]
pub struct CounterReader {
    counters: Arc<Counters>,
    connections_max: usize,
}

impl CounterReader {
    /// The counters of `serverStatus.connections`.
    pub fn connections(&self) -> Connections {
        self.counters.connections(self.connections_max)
    }

    /// The counters of `serverStatus.network`.
    pub fn network(&self) -> Network {
        self.counters.network()
    }
}
