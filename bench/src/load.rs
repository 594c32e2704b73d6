//! The load generator: many connections on one thread, each with one running request.
//!
//! It handles sockets and clocks but no protocol: [`Traffic`] provides the requests, finds the end
//! of a reply and checks it. A request costs two system calls and a share of one `epoll_wait`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::bson::Doc;
use crate::interrupt;
use crate::message::{self, Template};
use crate::waits::Waits;

/// The requests and replies of a row: one request, one reply of MongoDB's protocol.
pub(crate) trait Work {
    /// Returns the next request of a connection, or `None` at the end.
    fn request(&mut self, connection: usize) -> Option<&[u8]>;
    /// Rejects a reply that does not match the request.
    fn check(&mut self, reply: &[u8]) -> Result<(), String>;
}

/// The traffic of one load's connections, in any protocol.
pub(crate) trait Traffic {
    /// Returns the next request of a connection, or `None` at the end.
    fn request(&mut self, connection: usize) -> Option<&[u8]>;
    /// Returns whether these bytes are a complete reply.
    fn whole(&self, reply: &[u8]) -> bool;
    /// Rejects a reply that does not match the request, and returns what comes next.
    fn answer(&mut self, connection: usize, reply: &[u8]) -> Result<Answer, String>;
    /// Returns the request that continues after an `Answer::More`.
    fn more(&mut self, connection: usize) -> &[u8];
}

/// The meaning of a reply for its connection.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// The operation is complete: its class, for the latencies, and its weight.
    Done { class: usize, count: u64 },
    /// The operation needs another request.
    More,
}

/// The measurements of one run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Requests with a reply within the measured time.
    pub(crate) operations: u64,
    /// Measured seconds, without the warm-up.
    pub(crate) seconds: f64,
    /// Server CPU in nanoseconds within them.
    pub(crate) cpu_ns: u64,
    /// 99th percentile of the time from request to reply, in microseconds.
    pub(crate) p99_us: f64,
}

/// The parameters of a load.
pub(crate) struct Load<'a> {
    /// Creates a connection that is ready for requests.
    pub(crate) connect: &'a dyn Fn() -> Result<std::net::TcpStream, String>,
    /// The number of connections.
    pub(crate) connections: usize,
    /// Time before anything counts.
    pub(crate) warm_up: Duration,
    /// The measured time; `None`: until the traffic ends.
    pub(crate) time: Option<Duration>,
    /// The time after which a silent server is an error.
    pub(crate) timeout: Duration,
}

/// The measurements of a load, with the latencies of each class of operations in nanoseconds.
pub(crate) struct Driven {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_ns: u64,
    /// CPU of this thread, the load generator, within the measured time.
    pub(crate) client_ns: u64,
    pub(crate) waits: Waits,
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    reply: Vec<u8>,
    sent: Instant,
    done: bool,
}

/// Sends `work` over `connections` until the time is over or the work is done. `cpu` reads the
/// server's CPU clock.
pub(crate) fn run(
    address: SocketAddr,
    connections: usize,
    warm_up: Duration,
    time: Option<Duration>,
    work: &mut dyn Work,
    cpu: &mut dyn FnMut() -> u64,
) -> Result<Measured, String> {
    let timeout = Duration::from_secs(60);
    let connect = || connect(address);
    let load = Load { connect: &connect, connections, warm_up, time, timeout };
    let driven = drive(&load, &mut OneReply(work), cpu)?;
    let p99_ns = driven.waits.quantile(0, 0.99);
    Ok(Measured {
        operations: driven.operations,
        seconds: driven.seconds,
        cpu_ns: driven.cpu_ns,
        p99_us: p99_ns as f64 / 1000.0,
    })
}

struct OneReply<'a>(&'a mut dyn Work);

impl Traffic for OneReply<'_> {
    fn request(&mut self, connection: usize) -> Option<&[u8]> {
        self.0.request(connection)
    }

    fn whole(&self, reply: &[u8]) -> bool {
        message::whole(reply)
    }

    fn answer(&mut self, _: usize, reply: &[u8]) -> Result<Answer, String> {
        self.0.check(reply).map(|()| Answer::Done { class: 0, count: 1 })
    }

    fn more(&mut self, _: usize) -> &[u8] {
        unreachable!("a row's operation is one request")
    }
}

/// Puts `load` on a server until its time is over or its traffic ends. `cpu` reads the server's CPU
/// clock.
///
/// Errors: a connection that breaks, a silent server, a wrong answer, Ctrl-C.
pub(crate) fn drive(
    load: &Load,
    traffic: &mut dyn Traffic,
    cpu: &mut dyn FnMut() -> u64,
) -> Result<Driven, String> {
    let fail = |error: std::io::Error| format!("a connection broke: {error}");
    let mut poll = Poll::new().map_err(fail)?;
    let mut events = Events::with_capacity(1024);
    let mut all = Vec::with_capacity(load.connections);
    for index in 0..load.connections {
        interrupt::check()?;
        let stream = (load.connect)()?;
        stream.set_nonblocking(true).map_err(fail)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry()
            .register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)
            .map_err(fail)?;
        all.push(Connection {
            stream,
            out: Vec::new(),
            written: 0,
            reply: vec![],
            sent: Instant::now(),
            done: false,
        });
    }

    let mut chunk = vec![0; 1 << 16];
    let mut driven =
        Driven { operations: 0, seconds: 0.0, cpu_ns: 0, client_ns: 0, waits: Waits::default() };
    let mut open = 0;
    let begin = Instant::now();
    // Before the warm-up ends nothing counts.
    let mut counted = None;
    if load.warm_up.is_zero() {
        counted = Some((begin, cpu(), thread_cpu_ns()));
    }
    for (index, connection) in all.iter_mut().enumerate() {
        open += usize::from(connection.next(traffic.request(index)).map_err(fail)?);
    }
    let mut heard = begin;
    while open > 0 {
        match poll.poll(&mut events, Some(Duration::from_millis(500))) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => other.map_err(fail)?,
        }
        interrupt::check()?;
        let now = Instant::now();
        if events.is_empty() {
            if now - heard > load.timeout {
                return Err(format!("no answer within {} s", load.timeout.as_secs()));
            }
            continue;
        }
        heard = now;
        if counted.is_none() && now - begin >= load.warm_up {
            counted = Some((now, cpu(), thread_cpu_ns()));
        }
        let over = load.time.is_some_and(|time| now - begin >= load.warm_up + time);
        for event in &events {
            let index = event.token().0;
            let connection = &mut all[index];
            if connection.done {
                continue;
            }
            if event.is_writable() {
                connection.flush().map_err(fail)?;
            }
            if !event.is_readable() || !connection.receive(&mut chunk, traffic).map_err(fail)? {
                continue;
            }
            match traffic.answer(index, &connection.reply)? {
                Answer::More => {
                    connection.reply.clear();
                    connection.put(traffic.more(index)).map_err(fail)?;
                }
                Answer::Done { class, count } => {
                    if counted.is_some() {
                        driven.operations += count;
                        let wait = connection.sent.elapsed().as_nanos() as u64;
                        driven.waits.record(class, wait);
                    }
                    connection.reply.clear();
                    let request = if over { None } else { traffic.request(index) };
                    if !connection.next(request).map_err(fail)? {
                        connection.done = true;
                        open -= 1;
                    }
                }
            }
        }
    }
    let (since, cpu_before, client_before) = counted.unwrap_or((begin, 0, 0));
    driven.seconds = since.elapsed().as_secs_f64();
    driven.cpu_ns = cpu().saturating_sub(cpu_before);
    driven.client_ns = thread_cpu_ns().saturating_sub(client_before);
    Ok(driven)
}

/// CPU nanoseconds of the calling thread, from the scheduler's account.
fn thread_cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

impl Connection {
    /// Begins an operation; returns false if there is none.
    fn next(&mut self, request: Option<&[u8]>) -> std::io::Result<bool> {
        let Some(request) = request else { return Ok(false) };
        self.sent = Instant::now();
        self.put(request)?;
        Ok(true)
    }

    fn put(&mut self, request: &[u8]) -> std::io::Result<()> {
        // Almost always the whole request fits the socket: nothing is copied then.
        let written = match self.stream.write(request) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        self.out.clear();
        self.out.extend_from_slice(&request[written..]);
        self.written = 0;
        self.flush()
    }

    fn flush(&mut self) -> std::io::Result<()> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the available bytes; returns true once the reply is complete.
    fn receive(&mut self, chunk: &mut [u8], traffic: &dyn Traffic) -> std::io::Result<bool> {
        loop {
            match self.stream.read(chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(size) => self.reply.extend_from_slice(&chunk[..size]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if traffic.whole(&self.reply) {
                return Ok(true);
            }
        }
    }
}

pub(crate) fn connect(address: SocketAddr) -> Result<std::net::TcpStream, String> {
    let stream = std::net::TcpStream::connect(address)
        .map_err(|error| format!("no connection to {address}: {error}"))?;
    stream.set_nodelay(true).expect("a connected socket takes options");
    let mut blocking = Blocking { stream };
    blocking.command(Doc::new().int("hello", 1).str("$db", "admin"))?;
    Ok(blocking.into_stream())
}

/// A connection for commands that are not measured: loading, indexes, `compact`.
pub(crate) struct Blocking {
    stream: std::net::TcpStream,
}

impl Blocking {
    pub(crate) fn new(address: SocketAddr) -> Result<Blocking, String> {
        connect(address).map(Blocking::over)
    }

    /// One over a connection that was greeted already.
    pub(crate) fn over(stream: std::net::TcpStream) -> Blocking {
        Blocking { stream }
    }

    pub(crate) fn into_stream(self) -> std::net::TcpStream {
        self.stream
    }

    /// Runs a command that must succeed and returns its reply's document.
    pub(crate) fn command(&mut self, body: Doc) -> Result<Vec<u8>, String> {
        self.send(&Template::new(body, None).bytes)
    }

    pub(crate) fn send(&mut self, request: &[u8]) -> Result<Vec<u8>, String> {
        let reply =
            self.exchange(request).map_err(|error| format!("the server hung up: {error}"))?;
        Ok(message::succeeded(&reply)?.to_vec())
    }

    fn exchange(&mut self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        self.stream.write_all(request)?;
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        let mut reply = vec![0; (i32::from_le_bytes(header) as usize).max(16)];
        reply[..4].copy_from_slice(&header);
        self.stream.read_exact(&mut reply[4..])?;
        Ok(reply)
    }
}
