//! Reports that connections are accepted: to a service manager over its socket, to a test by a
//! file. Optionally ends the server together with the process that started it.
//!
//! Source: manual page "sd_notify(3)": a datagram of `NAME=VALUE` lines to `$NOTIFY_SOCKET`.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs, thread};

use marula_server::Server;

use crate::Failure;

/// Reports to the service manager, and in the file if there is one, that connections are accepted
/// at `addresses`.
///
/// The file holds an address a line; it appears whole.
///
/// Errors: the file cannot be written.
pub(crate) fn notify_ready(addresses: &[SocketAddr], file: Option<&Path>) -> Result<(), Failure> {
    let texts: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    notify(&format!("READY=1\nSTATUS=Accepting connections at {}", texts.join(", ")));
    let Some(file) = file else { return Ok(()) };
    let lines: String = texts.iter().map(|text| format!("{text}\n")).collect();
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    fs::write(&part, lines)
        .and_then(|()| fs::rename(&part, file))
        .map_err(|error| format!("cannot write '{}': {error}", file.display()))
}

/// Reports to the service manager that the server ends.
pub(crate) fn notify_stopping() {
    notify("STOPPING=1");
}

/// Sends a message to the service manager, if there is one. The server runs as well without it.
fn notify(message: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else { return };
    if let Err(error) = send(path.as_bytes(), message) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}

fn send(path: &[u8], message: &str) -> io::Result<()> {
    let address = match path {
        [b'@', name @ ..] => UnixAddr::from_abstract_name(name)?,
        path => UnixAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(path)))?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

/// Ends the server once standard input is closed: with the process that holds its other end,
/// however that ends.
///
/// Errors: the system refuses a thread.
pub(crate) fn end_with_stdin(server: &Arc<Server>) -> Result<(), Failure> {
    let server = Arc::downgrade(server);
    let wait = move || {
        let mut stdin = io::stdin();
        let mut ignored = [0; 512];
        loop {
            match stdin.read(&mut ignored) {
                Ok(0) => break,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
                _ => {}
            }
        }
        if let Some(server) = server.upgrade() {
            tracing::info!("standard input was closed");
            server.shutdown.request();
        }
    };
    let thread = thread::Builder::new().name("stdin".into());
    thread.spawn(wait).map(drop).map_err(|error| format!("cannot watch standard input: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let folder = env::temp_dir().join(format!("marula-notify-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let listening = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str().as_bytes(), "READY=1").unwrap();
        let mut bytes = [0; 64];
        let count = listening.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"READY=1");
        fs::remove_dir_all(&folder).unwrap();

        let name = format!("marula-notify-{}", std::process::id());
        let address = UnixAddr::from_abstract_name(name.as_bytes()).unwrap();
        let listening = UnixDatagram::bind_addr(&address).unwrap();
        send(format!("@{name}").as_bytes(), "STOPPING=1").unwrap();
        let count = listening.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"STOPPING=1");
    }
}
