//! The little of HTTP/1.1 that etcd's JSON gateway needs: POST a body, read a body, over
//! connections that are kept.
//!
//! A failure says whether the request may have reached the server: a connection that
//! could not be made has sent nothing.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use marula_storage::cluster::Connections;
use parking_lot::Mutex;

/// The timeout for making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The timeout for a reply. While etcd has no leader it holds a request for about seven seconds,
/// and a server that hangs never replies. After one of each, a third server must still be reached
/// before the other nodes take this one for dead (`LeaseOptions::expiry`, ten seconds). The effect
/// of a request without a reply is looked up, so that a short timeout costs time only.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// Idle connections that are kept.
const IDLE_MAX: usize = 256;

/// The longest line of a reply's head, and the most of them.
const LINE_BYTES_MAX: u64 = 16 << 10;
const LINES_MAX: usize = 100;

/// The longest body that is read.
const BODY_BYTES_MAX: usize = 512 << 20;

/// A server that requests are posted to.
pub(super) struct Endpoint {
    address: String,
    idle: Mutex<Vec<BufReader<TcpStream>>>,
    in_use: AtomicU64,
    created: AtomicU64,
}

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was sent.
    NotSent(io::Error),
    /// The request may have been executed.
    Lost(io::Error),
}

/// A reply.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Endpoint {
    /// The server at an address such as `http://127.0.0.1:2379` or `127.0.0.1:2379`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        match port {
            _ if text.starts_with("https://") => {
                Err(format!("etcd endpoint '{text}': TLS to etcd is not supported yet"))
            }
            Some(Ok(_)) if !address.contains('/') => Ok(Endpoint {
                address: address.to_owned(),
                idle: Mutex::default(),
                in_use: AtomicU64::new(0),
                created: AtomicU64::new(0),
            }),
            _ => Err(format!("etcd endpoint '{text}' is not of the form http://host:port")),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn connections(&self) -> Connections {
        Connections {
            address: self.address.clone(),
            in_use: self.in_use.load(Ordering::Relaxed),
            available: self.idle.lock().len() as u64,
            created: self.created.load(Ordering::Relaxed),
        }
    }

    /// Posts a body to a path.
    pub(super) fn post(&self, path: &str, body: &[u8]) -> Result<Reply, Failure> {
        // A connection that was kept may have been closed by the server meanwhile. That shows
        // before anything of a reply has come, and need not mean that the request was not read, so
        // that it is looked at before: what is idle and readable has ended.
        let kept = loop {
            match self.idle.lock().pop() {
                None => break None,
                Some(kept) if is_quiet(kept.get_ref()) => break Some(kept),
                Some(_) => {}
            }
        };
        let mut connection = match kept {
            Some(kept) => kept,
            None => {
                let made = self.connect(CONNECT_TIMEOUT, ANSWER_TIMEOUT);
                BufReader::new(made.map_err(Failure::NotSent)?)
            }
        };
        let (reply, is_kept) = self.exchange(&mut connection, path, body)?;
        if is_kept {
            let mut idle = self.idle.lock();
            if idle.len() < IDLE_MAX {
                idle.push(connection);
            }
        }
        Ok(reply)
    }

    /// Posts a body to a path over a connection of its own; `timeout` is that of making it, and
    /// that of each step of the reply.
    pub(super) fn post_once(
        &self,
        path: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Reply, Failure> {
        let made = self.connect(timeout, timeout).map_err(Failure::NotSent)?;
        self.exchange(&mut BufReader::new(made), path, body).map(|(reply, _)| reply)
    }

    /// Sends a request and reads its reply; returns whether the connection can be kept.
    fn exchange(
        &self,
        connection: &mut BufReader<TcpStream>,
        path: &str,
        body: &[u8],
    ) -> Result<(Reply, bool), Failure> {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        let outcome = self.send(connection, path, body);
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        outcome.map_err(Failure::Lost)
    }

    fn send(
        &self,
        connection: &mut BufReader<TcpStream>,
        path: &str,
        body: &[u8],
    ) -> io::Result<(Reply, bool)> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        connection.get_mut().write_all(&request)?;
        read_reply(connection)
    }

    fn connect(&self, timeout: Duration, answer: Duration) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    self.created.fetch_add(1, Ordering::Relaxed);
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(answer))?;
                    stream.set_write_timeout(Some(answer))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Whether an idle connection is still open and has nothing to say.
fn is_quiet(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut byte));
    let is_quiet = peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    is_quiet && stream.set_nonblocking(false).is_ok()
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn read_line(from: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = Vec::new();
    from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the reply ends early"));
    }
    let text = String::from_utf8(line).map_err(|_| wrong("a line of the reply is no text"))?;
    Ok(text.trim_end_matches('\r').to_owned())
}

fn read_exactly(
    from: &mut BufReader<TcpStream>,
    length: usize,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    if out.len().saturating_add(length) > BODY_BYTES_MAX {
        return Err(wrong("the reply is too long"));
    }
    // Grows with what comes, not with what is announced.
    let read = from.by_ref().take(length as u64).read_to_end(out)?;
    if read == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads a reply; answers whether the connection can be used again.
fn read_reply(from: &mut BufReader<TcpStream>) -> io::Result<(Reply, bool)> {
    let status_line = read_line(from)?;
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.filter(|_| status_line.starts_with("HTTP/1."));
    let status = status.ok_or_else(|| wrong("the reply is not HTTP"))?;
    let (mut length, mut is_chunked, mut is_kept) = (None, false, true);
    for number in 0.. {
        let line = read_line(from)?;
        if line.is_empty() {
            break;
        }
        if number > LINES_MAX {
            return Err(wrong("the reply has too many headers"));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("a header has no name"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.parse().map_err(|_| wrong("no length"))?),
            "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => is_kept = !value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if is_chunked {
        loop {
            let line = read_line(from)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| wrong("a chunk has no size"))?;
            if size == 0 {
                read_trailers(from)?;
                break;
            }
            read_exactly(from, size, &mut body)?;
            read_line(from)?;
        }
    } else {
        read_exactly(from, length.ok_or_else(|| wrong("the reply has no length"))?, &mut body)?;
    }
    Ok((Reply { status, body }, is_kept))
}

/// Reads past what follows the last chunk.
fn read_trailers(from: &mut BufReader<TcpStream>) -> io::Result<()> {
    for _ in 0..LINES_MAX {
        if read_line(from)?.is_empty() {
            return Ok(());
        }
    }
    Err(wrong("the reply has too many trailers"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// The result of a request to a server that sends this reply.
    fn answered(reply: &'static [u8]) -> Result<Reply, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let endpoint = Endpoint::parse(&listener.local_addr().expect("it has one").to_string());
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection comes");
                let mut read = [0; 1000];
                let length = stream.read(&mut read).expect("a request comes");
                assert!(read[..length].ends_with(b"\r\n\r\n{}"));
                stream.write_all(reply).expect("it is read");
            });
            endpoint.expect("an address").post("/v3/kv/range", b"{}")
        })
    }

    #[test]
    fn replies_of_both_forms_are_read() {
        for reply in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
        ] {
            let reply = answered(reply).expect("a reply");
            assert_eq!((reply.status, reply.body.as_slice()), (200, &b"hello"[..]));
        }
    }

    #[test]
    fn replies_that_are_none_are_lost() {
        for reply in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"SSH-2.0-OpenSSH\r\n",
            b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        ] {
            assert!(matches!(answered(reply), Err(Failure::Lost(_))));
        }
    }

    #[test]
    fn nothing_is_sent_to_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has one").to_string();
        drop(listener);
        let endpoint = Endpoint::parse(&format!("http://{address}/")).expect("an address");
        assert!(matches!(endpoint.post("/", b"{}"), Err(Failure::NotSent(_))));
        for wrong in ["https://a:1", "a", "http://a:b", "http://a:1/path", "a:70000"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
