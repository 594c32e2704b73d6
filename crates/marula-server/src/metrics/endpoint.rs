//! The thread that serves `/metrics`, `/healthz` and `/readyz`.
//!
//! It polls its few connections, so that a slow client delays no other. Its resources are limited:
//! [`CONNECTIONS_MAX`] connections, of which the one that is idle for longest is replaced by a new
//! one; a head of [`HEAD_BYTES_MAX`] bytes and one response for each;
//! [`REQUEST_MAX`] from the first byte of a request to the last of its response.

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

/// The maximum number of connections.
const CONNECTIONS_MAX: usize = 32;
/// The maximum time of a request and its response together.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// The maximum time of silence between two requests. Scrapes come every 15 to 60 seconds.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// The pause before accepting is tried again after a failure, for example too many open files.
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
    /// The server, once it exists. It ends before the endpoint does.
    server: Mutex<Weak<Server>>,
    is_stopping: AtomicBool,
    bell: Waker,
}

impl Endpoint {
    /// Listens at an address; port 0 lets the system choose.
    ///
    /// Errors: the address cannot be listened on; the system cannot create a thread or a poll.
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

    /// Returns the address that it listens on.
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
    /// The time at which accepting continues after a failure.
    accept_at: Option<Instant>,
    /// Connections with more than one request, which take turns with others.
    waiting: Vec<usize>,
    connections: [Option<Connection>; CONNECTIONS_MAX],
}

struct Connection {
    stream: TcpStream,
    /// Received bytes without a response yet.
    received: Vec<u8>,
    /// The response, and the number of bytes sent.
    response: Vec<u8>,
    sent: usize,
    stays_open: bool,
    /// The start of its wait: for a request, or for the rest of a request or a response.
    since: Instant,
}

/// The end of a connection's turn.
enum Turn {
    /// Its socket has nothing to read, or no room: an event reports a change.
    Blocked,
    /// One request was served; there may be another one.
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

    /// Returns the maximum sleep of the poll.
    fn timeout(&self) -> Option<Duration> {
        if !self.waiting.is_empty() {
            return Some(Duration::ZERO);
        }
        let connections = self.connections.iter().flatten();
        let deadlines = connections.map(|connection| connection.since + connection.wait_max());
        let next = deadlines.chain(self.accept_at).min()?;
        // A millisecond more, because the poll rounds down.
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
            // A connection that cannot be polled is closed.
            if self.poll.registry().register(&mut stream, Token(slot), interest).is_ok() {
                self.connections[slot] = Some(Connection::new(stream));
            }
        }
    }

    /// Returns a slot without a connection; if there is none, that of the one that has waited
    /// longest.
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

    /// Returns the maximum time of the wait.
    fn wait_max(&self) -> Duration {
        let is_idle = self.received.is_empty() && self.response.is_empty();
        if is_idle { IDLE_MAX } else { REQUEST_MAX }
    }

    fn is_overdue(&self) -> bool {
        self.since.elapsed() >= self.wait_max()
    }

    /// Continues as far as the socket permits, but serves at most one request: sends, reads, writes
    /// a response.
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

    /// Sends the rest of the response; returns whether all is sent.
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
                // Further input is not read; a reset could discard the response before the client
                // reads it.
                let _ = self.stream.shutdown(Shutdown::Write);
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }

    /// Reads once; returns whether there was input.
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
