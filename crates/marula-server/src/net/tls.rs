//! TLS: its configuration for a server, and the stream of one connection that may use it.
//!
//! The stream behaves like the socket: it reads and writes what it can and reports when it would
//! block. So a handshake holds no thread; its only buffer is that of rustls for an incomplete
//! record.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mio::net::TcpStream;
use parking_lot::RwLock;
use rustls::{ProtocolVersion, ServerConfig, ServerConnection};

use super::foreign::{HEAD_BYTES, is_client_hello};
use super::tls_files::{self, Files};

/// The maximum number of bytes that are encrypted before they are sent: a few records, so that a
/// slow reader holds no more memory.
const CHUNK_BYTES: usize = 64 * 1024;

/// The permitted connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Only plain ones.
    Disabled,
    /// Both; connections to other members are plain.
    Allow,
    /// Both; connections to other members use TLS.
    Prefer,
    /// Only those that use TLS.
    Require,
}

impl Mode {
    const ALL: [Mode; 4] = [Mode::Disabled, Mode::Allow, Mode::Prefer, Mode::Require];

    /// Returns its name in options and parameters.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Disabled => "disabled",
            Mode::Allow => "allowTLS",
            Mode::Prefer => "preferTLS",
            Mode::Require => "requireTLS",
        }
    }

    /// Returns the mode of a name.
    pub fn of_name(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The client's identity from the handshake.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// The subject of the client's certificate, as a user's name; `None` without a valid
    /// certificate.
    pub subject: Option<String>,
}

/// The TLS configuration of a server, for all its connections.
pub struct Tls {
    mode: AtomicU8,
    files: Files,
    config: RwLock<Arc<ServerConfig>>,
    tls12: AtomicU64,
    tls13: AtomicU64,
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tls").field("mode", &self.mode()).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// Errors: a message for the operator about a file that cannot be read, or does not fit the
    /// others.
    pub fn open(mode: Mode, files: Files) -> Result<Tls, String> {
        let config = RwLock::new(tls_files::load(&files)?);
        Ok(Tls {
            mode: AtomicU8::new(mode as u8),
            files,
            config,
            tls12: AtomicU64::new(0),
            tls13: AtomicU64::new(0),
        })
    }

    /// Returns the permitted connections.
    pub fn mode(&self) -> Mode {
        let mode = self.mode.load(Ordering::Relaxed);
        Mode::ALL.into_iter().find(|known| *known as u8 == mode).unwrap_or(Mode::Require)
    }

    /// Sets the permitted connections from now on.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Reads the files again, for later connections.
    ///
    /// Errors: those of [`Tls::open`]; the old files stay in use.
    pub fn rotate(&self) -> Result<(), String> {
        let config = tls_files::load(&self.files)?;
        *self.config.write() = config;
        Ok(())
    }

    /// Returns the numbers of completed handshakes with TLS 1.2 and with TLS 1.3.
    pub fn handshakes(&self) -> (u64, u64) {
        (self.tls12.load(Ordering::Relaxed), self.tls13.load(Ordering::Relaxed))
    }
}

/// The client's identity in TLS; empty until the handshake is complete.
pub(crate) type Seen = Arc<OnceLock<Client>>;

/// The stream of a connection that uses TLS, or may start to.
pub(super) struct TlsStream {
    socket: TcpStream,
    state: State,
    tls: Arc<Tls>,
    seen: Seen,
    /// The number of the caller's bytes that are encrypted and not all sent: they count as written
    /// once they are.
    pending: usize,
}

enum State {
    /// This number of bytes of the header has been received.
    Undecided([u8; HEAD_BYTES], usize),
    Plain,
    Encrypted(Box<ServerConnection>),
}

impl TlsStream {
    pub(super) fn new(socket: TcpStream, tls: Arc<Tls>) -> Self {
        let state = State::Undecided([0; HEAD_BYTES], 0);
        TlsStream { socket, state, tls, seen: Seen::default(), pending: 0 }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Reads until the client's protocol is known; returns the number of bytes for the caller.
    fn decide(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let State::Undecided(head, length) = &mut self.state else { return Ok(0) };
        while *length < HEAD_BYTES {
            match self.socket.read(&mut head[*length..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => *length += count,
            }
        }
        let head = *head;
        if is_client_hello(&head) {
            let config = Arc::clone(&self.tls.config.read());
            let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
            session.set_buffer_limit(Some(2 * CHUNK_BYTES));
            session.read_tls(&mut &head[..])?;
            self.state = State::Encrypted(Box::new(session));
            return Ok(0);
        }
        if self.tls.mode() == Mode::Require {
            tracing::info!("connection closed: it is plain, and only those that use TLS are taken");
            return Err(ErrorKind::InvalidData.into());
        }
        self.state = State::Plain;
        let Some(room) = into.get_mut(..HEAD_BYTES) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        room.copy_from_slice(&head);
        Ok(HEAD_BYTES)
    }

    /// Fills `into` with received data: fewer bytes than its size mean that the socket is empty.
    fn read_more(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let session = match &mut self.state {
            State::Encrypted(session) => session,
            _ => return self.socket.read(into),
        };
        let mut count = 0;
        loop {
            match session.reader().read(&mut into[count..]) {
                // The client has closed its side.
                Ok(0) => return Ok(count),
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match session.read_tls(&mut self.socket) {
                        Ok(0) => return Ok(count),
                        Ok(_) => {}
                        Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                        Err(error) if error.kind() == ErrorKind::WouldBlock && count > 0 => {
                            return Ok(count);
                        }
                        Err(error) => return Err(error),
                    }
                    let was_handshaking = session.is_handshaking();
                    let processed = session.process_new_packets();
                    // The reply of the handshake, or the alert; if the socket is full, it is sent
                    // with the next write.
                    if let Err(error) = push(session, &mut self.socket)
                        && error.kind() != ErrorKind::WouldBlock
                    {
                        return Err(error);
                    }
                    if let Err(error) = processed {
                        tracing::info!(%error, "connection closed: TLS failed");
                        return Err(ErrorKind::InvalidData.into());
                    }
                    if was_handshaking && !session.is_handshaking() {
                        note_client(session, &self.tls, &self.seen);
                    }
                }
                Err(_) if count > 0 => return Ok(count),
                Err(error) => return Err(error),
            }
            if count == into.len() {
                return Ok(count);
            }
        }
    }
}

fn note_client(session: &ServerConnection, tls: &Tls, seen: &Seen) {
    match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => tls.tls12.fetch_add(1, Ordering::Relaxed),
        _ => tls.tls13.fetch_add(1, Ordering::Relaxed),
    };
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let subject = certificate
        .filter(|_| tls.files.certificates_are_proven())
        .and_then(|certificate| tls_files::subject(certificate));
    // It is set once: a connection has one handshake.
    let _ = seen.set(Client { subject });
}

/// Sends encrypted data.
fn push(session: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<()> {
    while session.wants_write() {
        match session.write_tls(socket) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Read for TlsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        if let State::Undecided(..) = self.state {
            count = match self.decide(into) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                decided => decided?,
            };
        }
        match self.read_more(into.get_mut(count..).unwrap_or_default()) {
            Ok(more) => Ok(count + more),
            Err(error) if count > 0 && error.kind() == ErrorKind::WouldBlock => Ok(count),
            Err(error) => Err(error),
        }
    }
}

impl Write for TlsStream {
    /// After it would have blocked, it must be called with the same bytes again, and may have more
    /// of them.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let State::Encrypted(session) = &mut self.state else { return self.socket.write(bytes) };
        if self.pending == 0 {
            push(session, &mut self.socket)?;
            let chunk = bytes.get(..CHUNK_BYTES).unwrap_or(bytes);
            self.pending = session.writer().write(chunk)?;
        }
        push(session, &mut self.socket)?;
        Ok(std::mem::take(&mut self.pending))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        if let State::Encrypted(session) = &mut self.state
            && !session.is_handshaking()
        {
            session.send_close_notify();
            // If it cannot be sent, the client sees the end of the socket.
            let _ = push(session, &mut self.socket);
        }
    }
}
