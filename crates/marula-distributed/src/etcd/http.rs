//! The little of HTTP/1.1 that etcd's JSON gateway needs: POST a body, read a body, over
//! connections that are kept, in plain text or over TLS.
//!
//! A failure says whether the request may have reached the server: a connection that
//! could not be made has sent nothing.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use marula_storage::cluster::Connections;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

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
    /// How TLS is spoken, and the name that the server's certificate must have.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    idle: Mutex<Vec<BufReader<Stream>>>,
    in_use: AtomicU64,
    created: AtomicU64,
}

/// A connection.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_ref(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(out),
            Stream::Tls(stream) => stream.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
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
    /// The server at an address such as `http://127.0.0.1:2379`, `https://etcd:2379` or
    /// `127.0.0.1:2379`; `tls` is for those with `https`.
    pub(super) fn parse(text: &str, tls: Option<&Arc<ClientConfig>>) -> Result<Self, String> {
        let wrong = || format!("etcd endpoint '{text}' is not of the form http://host:port");
        let (is_secure, address) = match text.strip_prefix("https://") {
            Some(address) => (true, address),
            None => (false, text.strip_prefix("http://").unwrap_or(text)),
        };
        let address = address.trim_end_matches('/');
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        if port.parse::<u16>().is_err() || address.contains(['/', '@']) {
            return Err(wrong());
        }
        let tls = match (is_secure, tls) {
            (false, _) => None,
            (true, None) => return Err(format!("etcd endpoint '{text}' needs settings of TLS")),
            (true, Some(tls)) => {
                let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                Some((tls.clone(), ServerName::try_from(name).map_err(|_| wrong())?))
            }
        };
        Ok(Endpoint {
            address: address.to_owned(),
            tls,
            idle: Mutex::default(),
            in_use: AtomicU64::new(0),
            created: AtomicU64::new(0),
        })
    }

    /// The address as [`Endpoint::parse`] reads it.
    pub(super) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
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

    /// Posts a body to a path, with the token of a user if there is one.
    pub(super) fn post(
        &self,
        path: &str,
        body: &[u8],
        token: Option<&str>,
    ) -> Result<Reply, Failure> {
        // A connection that was kept may have been closed by the server meanwhile. That shows
        // before anything of a reply has come, and need not mean that the request was not read, so
        // that it is looked at before: what is idle and readable has ended.
        let kept = loop {
            match self.idle.lock().pop() {
                None => break None,
                Some(kept) if is_quiet(kept.get_ref().socket()) => break Some(kept),
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
        let (reply, is_kept) = self.exchange(&mut connection, path, body, token)?;
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
        token: Option<&str>,
        timeout: Duration,
    ) -> Result<Reply, Failure> {
        let made = self.connect(timeout, timeout).map_err(Failure::NotSent)?;
        self.exchange(&mut BufReader::new(made), path, body, token).map(|(reply, _)| reply)
    }

    /// Sends a request and reads its reply; returns whether the connection can be kept.
    fn exchange(
        &self,
        connection: &mut BufReader<Stream>,
        path: &str,
        body: &[u8],
        token: Option<&str>,
    ) -> Result<(Reply, bool), Failure> {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        let outcome = self.send(connection, path, body, token);
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        outcome.map_err(Failure::Lost)
    }

    fn send(
        &self,
        connection: &mut BufReader<Stream>,
        path: &str,
        body: &[u8],
        token: Option<&str>,
    ) -> io::Result<(Reply, bool)> {
        let token = token.map_or(String::new(), |token| format!("Authorization: {token}\r\n"));
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        connection.get_mut().write_all(&request)?;
        connection.get_mut().flush()?;
        read_reply(connection)
    }

    /// Makes a connection, over which nothing of a request has gone yet.
    fn connect(&self, timeout: Duration, answer: Duration) -> io::Result<Stream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    self.created.fetch_add(1, Ordering::Relaxed);
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(answer))?;
                    stream.set_write_timeout(Some(answer))?;
                    return self.secure(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn secure(&self, mut socket: TcpStream) -> io::Result<Stream> {
        let Some((config, name)) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let connection = ClientConnection::new(config.clone(), name.clone());
        let mut connection = connection.map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Stream::Tls(Box::new(StreamOwned::new(connection, socket))))
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

fn read_line(from: &mut BufReader<Stream>) -> io::Result<String> {
    let mut line = Vec::new();
    from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the reply ends early"));
    }
    let text = String::from_utf8(line).map_err(|_| wrong("a line of the reply is no text"))?;
    Ok(text.trim_end_matches('\r').to_owned())
}

fn read_exactly(from: &mut BufReader<Stream>, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
    if out.len().saturating_add(length) > BODY_BYTES_MAX {
        return Err(wrong("the reply is too long"));
    }
    // Grows with what comes, not with what is announced.
    let read = from.by_ref().take(length as u64).read_to_end(out)?;
    if read == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads a reply; answers whether the connection can be used again.
fn read_reply(from: &mut BufReader<Stream>) -> io::Result<(Reply, bool)> {
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
fn read_trailers(from: &mut BufReader<Stream>) -> io::Result<()> {
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
        let endpoint =
            Endpoint::parse(&listener.local_addr().expect("it has one").to_string(), None);
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection comes");
                let mut read = [0; 1000];
                let length = stream.read(&mut read).expect("a request comes");
                assert!(read[..length].ends_with(b"\r\n\r\n{}"));
                stream.write_all(reply).expect("it is read");
            });
            endpoint.expect("an address").post("/v3/kv/range", b"{}", None)
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
        let endpoint = Endpoint::parse(&format!("http://{address}/"), None).expect("an address");
        assert!(matches!(endpoint.post("/", b"{}", None), Err(Failure::NotSent(_))));
        let wrong =
            ["https://a:1", "a", "http://a:b", "http://a:1/path", "a:70000", "http://u@a:1"];
        for wrong in wrong {
            assert!(Endpoint::parse(wrong, None).is_err(), "{wrong}");
        }
    }
}
