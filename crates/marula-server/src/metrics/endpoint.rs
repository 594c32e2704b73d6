//! The thread that serves `/metrics`, `/healthz` and `/readyz`.
//!
//! It polls its few connections, so that a slow client holds nobody up. What clients can make it
//! hold is bounded: [`CONNECTIONS_MAX`] connections, of which the one that is idle for longest
//! makes way for a new one; a head of [`HEAD_BYTES_MAX`](super::http::HEAD_BYTES_MAX) bytes and one
//! response for each; [`REQUEST_MAX`] from the first byte of a request to the last of its response.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use parking_lot::Mutex;

use super::http::{HEAD_BYTES_MAX, Parsed, Response, parse};
use crate::server::Server;

/// The most connections at one time.
const CONNECTIONS_MAX: usize = 32;
/// How long a request and its response may take together.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// How long a connection may be silent between two requests. Scrapes come every 15 to 60 seconds.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// How soon accepting is tried again after it failed, with too many open files for example.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

const LISTENER: Token = Token(CONNECTIONS_MAX);
const BELL: Token = Token(CONNECTIONS_MAX + 1);

/// The running endpoint.
pub struct Endpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    /// The server, once it is there. It ends before the endpoint does.
    server: Mutex<Weak<Server>>,
    is_stopping: AtomicBool,
    bell: Waker,
}

impl Endpoint {
    /// Listens at an address; port 0 lets the system choose.
    ///
    /// Errors: the address cannot be listened on; the system refuses a thread or a poll.
    pub fn start(address: SocketAddr) -> io::Result<Endpoint> {
        let mut listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let shared = Arc::new(Shared {
            server: Mutex::new(Weak::new()),
            is_stopping: AtomicBool::new(false),
            bell: Waker::new(poll.registry(), BELL)?,
        });
        let worker = Worker {
            shared: shared.clone(),
            poll,
            listener,
            accept_at: None,
            waiting: Vec::new(),
            connections: std::array::from_fn(|_| None),
        };
        let thread = thread::Builder::new().name("metrics".into());
        let thread = thread.spawn(move || worker.run())?;
        Ok(Endpoint { address, shared, thread })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows this server from now on.
    pub fn show(&self, server: &Arc<Server>) {
        *self.shared.server.lock() = Arc::downgrade(server);
    }

    /// Ends the thread; connections are closed.
    pub fn stop(self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        if self.shared.bell.wake().is_err() || self.thread.join().is_err() {
            tracing::error!("the metrics endpoint could not be ended");
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    poll: Poll,
    listener: TcpListener,
    /// When accepting goes on after the system refused.
    accept_at: Option<Instant>,
    /// Connections that have sent more than one request, which others come between.
    waiting: Vec<usize>,
    connections: [Option<Connection>; CONNECTIONS_MAX],
}

struct Connection {
    stream: TcpStream,
    /// What has been received and not been answered.
    received: Vec<u8>,
    /// The response, and how much of it is sent.
    response: Vec<u8>,
    sent: usize,
    stays_open: bool,
    /// Since when it waits: for a request, or for the rest of one or of a response.
    since: Instant,
}

/// How a connection's turn has ended.
enum Turn {
    /// Its socket has nothing to read, or takes nothing more: an event tells when it does.
    Blocked,
    /// One request was answered; there may be another.
    Answered,
}

impl Worker {
    fn run(mut self) {
        let mut events = Events::with_capacity(CONNECTIONS_MAX + 2);
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            if let Err(error) = self.poll.poll(&mut events, self.timeout())
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "the metrics endpoint ends: polling failed");
                return;
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    BELL => {}
                    Token(slot) => self.serve(slot),
                }
            }
            for slot in std::mem::take(&mut self.waiting) {
                self.serve(slot);
            }
            if self.accept_at.is_some_and(|at| at <= Instant::now()) {
                self.accept_at = None;
                self.accept();
            }
            for slot in 0..CONNECTIONS_MAX {
                if self.connections[slot].as_ref().is_some_and(Connection::is_overdue) {
                    self.connections[slot] = None;
                }
            }
        }
    }

    /// How long the poll may sleep.
    fn timeout(&self) -> Option<Duration> {
        if !self.waiting.is_empty() {
            return Some(Duration::ZERO);
        }
        let connections = self.connections.iter().flatten();
        let deadlines = connections.map(|connection| connection.since + connection.patience());
        let next = deadlines.chain(self.accept_at).min()?;
        // A millisecond more than the poll rounds down to.
        Some(next.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    fn accept(&mut self) {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, "the metrics endpoint cannot accept a connection");
                    self.accept_at = Some(Instant::now() + ACCEPT_AGAIN);
                    return;
                }
            };
            let slot = self.free_slot();
            let interest = Interest::READABLE | Interest::WRITABLE;
            // What cannot be polled is closed again.
            if self.poll.registry().register(&mut stream, Token(slot), interest).is_ok() {
                self.connections[slot] = Some(Connection::new(stream));
            }
        }
    }

    /// A slot without a connection: of the one that has waited longest, where there is no other.
    fn free_slot(&mut self) -> usize {
        let since = |slot: &usize| self.connections[*slot].as_ref().map(|held| held.since);
        let slot = (0..CONNECTIONS_MAX).min_by_key(since).expect("there are slots");
        self.connections[slot] = None;
        slot
    }

    fn serve(&mut self, slot: usize) {
        let Some(connection) = &mut self.connections[slot] else { return };
        let server = self.shared.server.lock().clone();
        match connection.turn(&|path| super::answer(path, server.upgrade().as_deref())) {
            Ok(Turn::Blocked) => {}
            Ok(Turn::Answered) if self.waiting.contains(&slot) => {}
            Ok(Turn::Answered) => self.waiting.push(slot),
            Err(_) => self.connections[slot] = None,
        }
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Connection {
            stream,
            received: Vec::new(),
            response: Vec::new(),
            sent: 0,
            stays_open: true,
            since: Instant::now(),
        }
    }

    /// How long it may wait.
    fn patience(&self) -> Duration {
        let is_idle = self.received.is_empty() && self.response.is_empty();
        if is_idle { IDLE_MAX } else { REQUEST_MAX }
    }

    fn is_overdue(&self) -> bool {
        self.since.elapsed() >= self.patience()
    }

    /// Goes on as far as the socket lets it, but answers one request at most: sends, reads,
    /// answers.
    ///
    /// Errors: the connection is to be closed.
    fn turn(&mut self, answer: &dyn Fn(&str) -> Response) -> io::Result<Turn> {
        if !self.send()? {
            return Ok(Turn::Blocked);
        }
        loop {
            let (response, is_head) = match parse(&self.received) {
                Parsed::Incomplete if self.receive()? => continue,
                Parsed::Incomplete => return Ok(Turn::Blocked),
                Parsed::Request(request, bytes) => {
                    self.received.drain(..bytes);
                    self.stays_open = request.stays_open;
                    (answer(&request.path), request.is_head)
                }
                Parsed::Refused(response) => {
                    self.stays_open = false;
                    (response, false)
                }
            };
            self.response = response.bytes(is_head, self.stays_open);
            self.sent = 0;
            return self.send().map(|is_sent| if is_sent { Turn::Answered } else { Turn::Blocked });
        }
    }

    /// Sends what is left of the response; answers whether nothing is.
    fn send(&mut self) -> io::Result<bool> {
        if self.response.is_empty() {
            return Ok(true);
        }
        while self.sent < self.response.len() {
            match self.stream.write(&self.response[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.response = Vec::new();
        self.since = Instant::now();
        match self.stays_open {
            true => Ok(true),
            false => {
                // What the client has sent beyond is read no more; a reset would take the response
                // from it.
                let _ = self.stream.shutdown(Shutdown::Write);
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }

    /// Reads once; answers whether something came.
    fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = [0; HEAD_BYTES_MAX];
        let room = HEAD_BYTES_MAX - self.received.len();
        loop {
            match self.stream.read(&mut bytes[..room]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    if self.received.is_empty() {
                        self.since = Instant::now();
                    }
                    self.received.extend_from_slice(&bytes[..count]);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
