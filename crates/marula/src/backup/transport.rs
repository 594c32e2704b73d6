//! The bytes between this program and a server: plain, or over TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use marula_server::network;
use marula_wire::client;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::Failure;

/// The files of a client that speaks TLS.
#[derive(Clone, Default)]
pub(super) struct Tls {
    /// The certificates that vouch for the server; without it those that the system trusts.
    pub(super) authorities: Option<PathBuf>,
    /// The certificate to show to the server, with its key.
    pub(super) certificate_key: Option<PathBuf>,
}

impl Tls {
    /// Whether a file is named, which says that TLS is to be spoken.
    pub(super) fn is_detailed(&self) -> bool {
        self.authorities.is_some() || self.certificate_key.is_some()
    }
}

/// A connected stream of bytes.
pub(super) enum Transport {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Transport {
    /// Connects to `host:port`; `timeout` applies to each later read and write.
    pub(super) fn connect(
        host: &str,
        tls: Option<&Tls>,
        timeout: Duration,
    ) -> Result<Transport, Failure> {
        let failed = |error: String| format!("cannot connect to the server {host}: {error}");
        let config = match tls {
            None => None,
            Some(Tls { authorities, certificate_key }) => {
                Some(network::client_config(authorities.as_deref(), certificate_key.as_deref())?)
            }
        };
        let mut socket = client::dial(host, timeout).map_err(|error| failed(error.to_string()))?;
        let Some(config) = config else { return Ok(Transport::Plain(socket)) };
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned())
            .map_err(|error| failed(error.to_string()))?;
        let mut session =
            ClientConnection::new(config, name).map_err(|error| failed(error.to_string()))?;
        // Here and not with the first command: what is wrong with a certificate is said by itself.
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|error| failed(error.to_string()))?;
        }
        Ok(Transport::Encrypted(Box::new(StreamOwned::new(session, socket))))
    }

    /// The socket beneath.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Transport::Plain(socket) => socket,
            Transport::Encrypted(stream) => &stream.sock,
        }
    }
}

impl Read for Transport {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.read(out),
            Transport::Encrypted(stream) => stream.read(out),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.write(bytes),
            Transport::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(socket) => socket.flush(),
            Transport::Encrypted(stream) => stream.flush(),
        }
    }
}
