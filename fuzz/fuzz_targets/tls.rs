//! Any bytes in place of TLS, and damage to the bytes of a client that uses it: the connection is
//! closed, and others are served.
//!
//! The first byte of the input decides: its bytes are sent as they are, or a client's handshake and
//! commands are, with changes to single bytes, cuts, and pauses between pieces.
#![no_main]

use std::io::{Cursor, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use marula_fuzz::{abort_on_panic, message, start};
use marula_server::network::{self, Demand, Files, Listener, Mode, Tls};
use marula_storage::contract::Folder;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion, version};

/// A server that has not closed by then what its client has ended never will.
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of inputs after which an undamaged client must be served.
const CHECKED_EVERY: usize = 32;

/// The server's address, and its certificate, which clients trust.
static SERVER: LazyLock<(SocketAddr, RootCertStore)> = LazyLock::new(|| {
    let folder = Folder::new();
    let certificate_key = certificate(&folder);
    let mut trusted = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(&certificate_key).expect("it was made");
    trusted.add(certificate).expect("it is one of a server");
    let files = Files { certificate_key, demand: Demand::ValidIfGiven, ..Files::default() };
    let tls = Arc::new(Tls::open(Mode::Prefer, files).expect("the certificate is read"));
    let frame = start(Some(tls.clone()));
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).expect("a free port");
    let options = network::Options { tls: Some(tls), ..network::Options::for_this_machine() };
    let handle = network::start(vec![listener], Arc::new(frame), options).expect("threads");
    abort_on_panic();
    (handle.local_addrs()[0], trusted)
});

fuzz_target!(|bytes: &[u8]| {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let version = if choice & 2 == 0 { &version::TLS13 } else { &version::TLS12 };
    match choice & 1 {
        0 => {
            let mut socket = connect();
            for piece in rest.chunks(usize::from(choice).max(1)) {
                if socket.write_all(piece).is_err() {
                    break;
                }
            }
            end(&mut socket);
        }
        _ => drop(talk(version, rest)),
    }
    if COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(CHECKED_EVERY) {
        assert!(talk(version, &[]), "an undamaged client is not served");
    }
});

/// Connects with TLS and sends a `hello`, with `changes` made to the bytes that the client sends;
/// returns whether it was answered.
fn talk(version: &'static SupportedProtocolVersion, changes: &[u8]) -> bool {
    let is_damaged = changes.len() >= 3;
    let mut changes = changes.chunks_exact(3).map(|change| (change[0], change[1], change[2]));
    let mut socket = connect();
    let mut client = client(version);
    let hello = message(|command| {
        command.append("hello", 1);
    });
    client.writer().write_all(&hello).expect("the client buffers it");
    let mut answer = Vec::new();
    loop {
        while client.wants_write() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).expect("into memory");
            if let Some((place, kind, value)) = changes.next() {
                let place = usize::from(place) * sent.len() / 256;
                match kind % 4 {
                    0 => sent[place] ^= value,
                    1 => sent.truncate(place),
                    2 => {
                        sent.splice(place..place, (0..value).map(|byte| byte ^ kind));
                    }
                    // Two pieces that arrive one after the other.
                    _ => {
                        let _ = socket.write_all(&sent[..place]);
                        thread::sleep(Duration::from_micros(50));
                        sent.drain(..place);
                    }
                }
            }
            if socket.write_all(&sent).is_err() {
                return false;
            }
        }
        if !client.is_handshaking() || !answer.is_empty() {
            let _ = client.reader().read_to_end(&mut answer);
            if !answer.is_empty() {
                end(&mut socket);
                return true;
            }
        }
        // A damaged message may leave the server waiting for its rest.
        let patience = if is_damaged { Duration::from_millis(20) } else { PATIENCE };
        socket.set_read_timeout(Some(patience)).expect("a timeout");
        let mut received = [0; 16 * 1024];
        let length = match socket.read(&mut received) {
            Ok(0) | Err(_) => {
                end(&mut socket);
                return false;
            }
            Ok(length) => length,
        };
        let mut received = Cursor::new(&received[..length]);
        while received.position() < length as u64 {
            let read = client.read_tls(&mut received);
            if read.is_err() || client.process_new_packets().is_err() {
                end(&mut socket);
                return false;
            }
        }
    }
}

fn connect() -> TcpStream {
    let socket = TcpStream::connect(SERVER.0).expect("the server accepts");
    socket.set_nodelay(true).expect("an option of sockets");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Ends a client's side, and waits for the server's.
fn end(socket: &mut TcpStream) {
    let _ = socket.shutdown(Shutdown::Write);
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut rest = [0; 4096];
    loop {
        match socket.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the server keeps a connection that its client has ended")
            }
            Err(_) => return,
        }
    }
}

fn client(version: &'static SupportedProtocolVersion) -> ClientConnection {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .expect("the provider has both versions")
        .with_root_certificates(SERVER.1.clone())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

/// Makes a key and a certificate of it, with the command that all systems have.
fn certificate(folder: &Folder) -> PathBuf {
    let (key, signed) = (folder.path().join("key"), folder.path().join("signed"));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE";
    let made = Command::new("openssl")
        .args(words.split_whitespace())
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&signed)
        .output()
        .expect("the command openssl is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let both = folder.path().join("both");
    let bytes = [std::fs::read(signed), std::fs::read(key)].map(|read| read.expect("it was made"));
    std::fs::write(&both, bytes.concat()).expect("it is written");
    both
}
