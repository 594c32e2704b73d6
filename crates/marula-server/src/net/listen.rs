//! Listening sockets and the streams they accept, over TCP or a Unix socket.

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

/// How long a silent client may be gone before the system asks; what mongod sets at most.
const KEEPALIVE: Duration = Duration::from_secs(300);
/// How many connections may wait to be accepted; the system has its own limit below or above.
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
            // So that `::` and `0.0.0.0` can be listened on side by side.
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        // Connections inherit both: a reply is one write, which waiting to join it with another
        // only delays, and a client whose machine is gone is noticed.
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Listener(Kind::Tcp(mio::net::TcpListener::from_std(socket.into()))))
    }

    /// Listens on a Unix socket whose file has this mode; a socket that lies there is replaced.
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

    /// The address; `None` for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            Kind::Tcp(listener) => listener.local_addr().ok(),
            Kind::Unix { .. } => None,
        }
    }

    /// The next connection that waits, and the client's address.
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
    /// Over TCP, where it may be encrypted; apart, so that others cost nothing more.
    Tls(Box<TlsStream>),
    Unix(mio::net::UnixStream),
}

impl Stream {
    /// The same stream, which may be encrypted if it is one over TCP and the server does TLS.
    pub(super) fn with_tls(self, tls: Option<&Arc<Tls>>) -> Stream {
        match (self, tls) {
            (Stream::Tcp(socket), Some(tls)) => {
                Stream::Tls(Box::new(TlsStream::new(socket, Arc::clone(tls))))
            }
            (stream, _) => stream,
        }
    }

    /// Where it will be told what TLS has shown of the client.
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

    /// Registers once for both directions; edge-triggered, so that it never has to be changed.
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
