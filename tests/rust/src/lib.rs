//! A server of the suite's own on a free port of the loopback, or the one in `MARULA_TEST_URI`. As
//! tests/server.py.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; it ends with the value, and its folder with it.
pub struct Server {
    /// Where drivers connect to.
    pub uri: String,
    own: Option<(Child, PathBuf)>,
}

impl Server {
    /// Starts a server with a fresh folder.
    pub fn start() -> Server {
        if let Ok(uri) = std::env::var("MARULA_TEST_URI") {
            return Server { uri, own: None };
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        drop(listener);
        let folder =
            std::env::temp_dir().join(format!("marula-rust-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let words = serve_command();
        let child = Command::new(&words[0])
            .args(&words[1..])
            .arg("--dbpath")
            .arg(&folder)
            .args(["--port", &port.to_string(), "--bind_ip", "127.0.0.1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start '{}': {error}", words[0]));
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "the server did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        let uri = format!("mongodb://127.0.0.1:{port}/?directConnection=true");
        Server { uri, own: Some((child, folder)) }
    }
}

fn serve_command() -> Vec<String> {
    if let Ok(command) = std::env::var("MARULA_SERVE") {
        return command.split(' ').map(str::to_owned).collect();
    }
    let binary = std::env::var("MARULA_BIN")
        .unwrap_or_else(|_| format!("{}/../../target/release/marula", env!("CARGO_MANIFEST_DIR")));
    vec![binary, "serve".into()]
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((child, folder)) = &mut self.own {
            let _ = child.kill();
            let _ = child.wait();
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
