//! Listening sockets and their streams, over TCP or a Unix socket.

use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::tls::{Seen, Tls, TlsStream};

/// The idle time after which the system probes a silent client; mongod's maximum.
const KEEPALIVE: Duration = Duration::from_secs(300);
/// The maximum number of connections that wait to be accepted; the system has its own limit too.
const BACKLOG: i32 = 4096;

/// A socket that accepts connections.
pub struct Listener(Kind);

enum Kind {
    Tcp(mio::net::TcpListener),
    Unix { listener: mio::net::UnixListener, path: PathBuf },
}

impl Listener {
    /// Listens on an address; port 0 lets the system choose.
    pub fn tcp(address: SocketAddr) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            // So that a process can listen on `::` and `0.0.0.0` at the same time.
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        // Connections inherit both options: a reply is one write, which would only be delayed by
        // waiting for more; and a client whose machine has failed is noticed.
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Listener(Kind::Tcp(mio::net::TcpListener::from_std(socket.into()))))
    }

    /// Listens on a Unix socket whose file has this mode; an existing socket is replaced.
    pub fn unix(path: &Path, mode: u32) -> io::Result<Listener> {
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        let listener = mio::net::UnixListener::from_std(listener);
        Ok(Listener(Kind::Unix { listener, path: path.to_path_buf() }))
    }

    /// Returns the address; `None` for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            Kind::Tcp(listener) => listener.local_addr().ok(),
            Kind::Unix { .. } => None,
        }
    }

    /// Accepts the next connection; returns it and the client's address.
    pub(super) fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match &self.0 {
            Kind::Tcp(listener) => {
                let (stream, remote) = listener.accept()?;
                Ok((Stream::Tcp(stream), Some(remote)))
            }
            Kind::Unix { listener, .. } => {
                let (stream, _) = listener.accept()?;
                Ok((Stream::Unix(stream), None))
            }
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let source: &mut dyn Source = match &mut self.0 {
            Kind::Tcp(listener) => listener,
            Kind::Unix { listener, .. } => listener,
        };
        source.register(registry, token, Interest::READABLE)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix { path, .. } = &self.0
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(%error, path = %path.display(), "could not remove the Unix socket");
        }
    }
}

/// The byte stream of one connection.
pub(super) enum Stream {
    Tcp(mio::net::TcpStream),
    /// Over TCP with TLS, perhaps; boxed, so that others need no space for it.
    Tls(Box<TlsStream>),
    Unix(mio::net::UnixStream),
}

impl Stream {
    /// Returns the same stream, which may use TLS if it is over TCP and the server has TLS.
    pub(super) fn with_tls(self, tls: Option<&Arc<Tls>>) -> Stream {
        match (self, tls) {
            (Stream::Tcp(socket), Some(tls)) => {
                Stream::Tls(Box::new(TlsStream::new(socket, Arc::clone(tls))))
            }
            (stream, _) => stream,
        }
    }

    /// Returns the place for the client's identity in TLS.
    pub(super) fn seen(&self) -> Option<Seen> {
        match self {
            Stream::Tls(stream) => Some(Arc::clone(stream.seen())),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        }
    }

    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.local_addr().ok(),
            Stream::Tls(stream) => stream.socket().local_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// Registers once for both directions; edge-triggered, so that the registration never changes.
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.source().register(registry, token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.source().deregister(registry)
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => stream.socket_mut(),
            Stream::Unix(stream) => stream,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
