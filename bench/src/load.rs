//! The load generator: many connections on one thread, each with one request under way.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::bson::Doc;
use crate::message::{self, Template};

/// What a row sends and expects back.
pub(crate) trait Work {
    /// The next request of a connection, or `None` when there is no more to do.
    fn request(&mut self, connection: usize) -> Option<&[u8]>;
    /// Refuses a reply that is not what the request asked for.
    fn check(&mut self, reply: &[u8]) -> Result<(), String>;
}

/// What one run measured.
#[derive(Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Requests answered within the measured time.
    pub(crate) operations: u64,
    /// Seconds measured, the warm-up left out.
    pub(crate) seconds: f64,
    /// Server CPU in nanoseconds within them.
    pub(crate) cpu_ns: u64,
    /// 99th percentile of the time from request to reply, in microseconds.
    pub(crate) p99_us: f64,
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    reply: Vec<u8>,
    sent: Instant,
    done: bool,
}

/// Sends `work` over `connections` until the time is over or the work is done. `cpu` reads the server's CPU clock.
pub(crate) fn run(
    address: SocketAddr,
    connections: usize,
    warm_up: Duration,
    time: Option<Duration>,
    work: &mut dyn Work,
    cpu: &mut dyn FnMut() -> u64,
) -> Result<Measured, String> {
    let fail = |error: std::io::Error| format!("the connection to {address} broke: {error}");
    let mut poll = Poll::new().map_err(fail)?;
    let mut events = Events::with_capacity(1024);
    let mut all = Vec::with_capacity(connections);
    for index in 0..connections {
        let mut stream = TcpStream::from_std(connect(address)?);
        poll.registry()
            .register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)
            .map_err(fail)?;
        let now = Instant::now();
        all.push(Connection {
            stream,
            out: Vec::new(),
            written: 0,
            reply: vec![],
            sent: now,
            done: false,
        });
    }

    let mut chunk = vec![0; 1 << 16];
    let mut waits: Vec<u32> = Vec::with_capacity(1 << 20);
    let mut measured = Measured::default();
    let mut open = 0;
    let begin = Instant::now();
    // Before the warm-up ends nothing counts.
    let mut counted = None;
    if warm_up.is_zero() {
        counted = Some((begin, cpu()));
    }
    for (index, connection) in all.iter_mut().enumerate() {
        open += usize::from(connection.next(index, work).map_err(fail)?);
    }
    while open > 0 {
        poll.poll(&mut events, Some(Duration::from_secs(60))).map_err(fail)?;
        if events.is_empty() {
            return Err(format!("{address} did not answer within 60 s"));
        }
        let now = Instant::now();
        if counted.is_none() && now - begin >= warm_up {
            counted = Some((now, cpu()));
        }
        let over = time.is_some_and(|time| now - begin >= warm_up + time);
        for event in &events {
            let index = event.token().0;
            let connection = &mut all[index];
            if connection.done {
                continue;
            }
            if event.is_writable() {
                connection.flush().map_err(fail)?;
            }
            if event.is_readable() && connection.receive(&mut chunk).map_err(fail)? {
                work.check(&connection.reply)?;
                if counted.is_some() {
                    measured.operations += 1;
                    waits.push(connection.sent.elapsed().as_micros().min(u32::MAX as u128) as u32);
                }
                connection.reply.clear();
                if over || !connection.next(index, work).map_err(fail)? {
                    connection.done = true;
                    open -= 1;
                }
            }
        }
    }
    let (since, cpu_before) = counted.unwrap_or((begin, 0));
    measured.seconds = since.elapsed().as_secs_f64();
    measured.cpu_ns = cpu().saturating_sub(cpu_before);
    waits.sort_unstable();
    measured.p99_us = waits.get(waits.len() * 99 / 100).copied().unwrap_or(0) as f64;
    Ok(measured)
}

impl Connection {
    fn next(&mut self, index: usize, work: &mut dyn Work) -> std::io::Result<bool> {
        let Some(request) = work.request(index) else { return Ok(false) };
        self.sent = Instant::now();
        // Almost always the whole request fits the socket: nothing is copied then.
        let written = match self.stream.write(request) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        self.out.clear();
        self.out.extend_from_slice(&request[written..]);
        self.written = 0;
        self.flush()?;
        Ok(true)
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

    /// Reads what is there; true when a whole reply is.
    fn receive(&mut self, chunk: &mut [u8]) -> std::io::Result<bool> {
        loop {
            match self.stream.read(chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(size) => self.reply.extend_from_slice(&chunk[..size]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if let Some(length) = self.reply.get(..4) {
                let length = i32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
                if self.reply.len() >= length {
                    return Ok(true);
                }
            }
        }
    }
}

fn connect(address: SocketAddr) -> Result<std::net::TcpStream, String> {
    let stream = std::net::TcpStream::connect(address)
        .map_err(|error| format!("no connection to {address}: {error}"))?;
    stream.set_nodelay(true).expect("a connected socket takes options");
    let mut blocking = Blocking { stream };
    blocking.command(Doc::new().int("hello", 1).str("$db", "admin"))?;
    blocking.stream.set_nonblocking(true).expect("a connected socket takes options");
    Ok(blocking.stream)
}

/// One connection for what is not measured: loading, indexes, `compact`.
pub(crate) struct Blocking {
    stream: std::net::TcpStream,
}

impl Blocking {
    pub(crate) fn new(address: SocketAddr) -> Result<Blocking, String> {
        let stream = connect(address)?;
        stream.set_nonblocking(false).expect("a connected socket takes options");
        Ok(Blocking { stream })
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
