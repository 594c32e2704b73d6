//! One of the two servers: a program that this one starts with a fresh folder, or an address.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use marula_bson::DocBuf;
use marula_wire::client::Client;
use marula_wire::message::Flags;

/// A server that says nothing for so long is counted as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many commands are sent before the first reply is read: few enough that no socket's buffer
/// fills up.
const IN_FLIGHT: usize = 16;

pub(crate) struct Server {
    pub(crate) name: &'static str,
    database: String,
    address: String,
    client: Option<Client>,
    process: Option<Process>,
}

struct Process {
    words: Vec<String>,
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// A server by its `mongodb://host:port`, or started from the path of its program.
    pub(crate) fn new(name: &'static str, place: &str, verb: &[&str]) -> Result<Server, String> {
        let database = format!("diff{}", std::process::id());
        if let Some(rest) = place.strip_prefix("mongodb://") {
            let address = rest.split(['/', '?']).next().unwrap_or(rest).to_owned();
            let mut server = Server { name, database, address, client: None, process: None };
            server.connect(Duration::from_secs(5))?;
            return Ok(server);
        }
        let mut words = vec![place.to_owned()];
        words.extend(verb.iter().map(|word| (*word).to_owned()));
        let (process, address) = Process::start(name, words)?;
        let mut server = Server { name, database, address, client: None, process: Some(process) };
        server.connect(Duration::from_secs(30))?;
        Ok(server)
    }

    fn connect(&mut self, patience: Duration) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            match Client::connect(self.address.as_str(), PATIENCE) {
                Ok(client) => {
                    self.client = Some(client);
                    return Ok(());
                }
                Err(error) if begin.elapsed() > patience => {
                    return Err(format!(
                        "cannot reach {} at '{}': {error}",
                        self.name, self.address
                    ));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Connects again, to a new process where the old one has ended; says how it ended.
    pub(crate) fn recover(&mut self) -> Result<String, String> {
        self.client = None;
        let mut ending = "closed the connection".to_owned();
        if let Some(process) = &mut self.process {
            // A crash takes a moment to write its log.
            std::thread::sleep(Duration::from_millis(500));
            if let Ok(Some(status)) = process.child.try_wait() {
                ending = format!("ended with {status}");
            } else {
                let _ = process.child.kill();
                let _ = process.child.wait();
            }
            let (process, address) = Process::start(self.name, process.words.clone())?;
            self.process = Some(process);
            self.address = address;
        }
        self.connect(Duration::from_secs(30))?;
        Ok(ending)
    }

    /// The client, to send with.
    fn client(&mut self) -> io::Result<&mut Client> {
        self.client.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// Why a run of commands has no replies: this server's connection failed.
pub(crate) struct Broken {
    pub(crate) server: usize,
    pub(crate) error: io::Error,
}

/// Sends the commands to both servers at once; the replies come in the order of the commands.
pub(crate) fn ask(
    servers: &mut [Server; 2],
    commands: &[DocBuf],
) -> Result<[Vec<DocBuf>; 2], Broken> {
    let mut replies = [Vec::new(), Vec::new()];
    for some in commands.chunks(IN_FLIGHT) {
        for (number, server) in servers.iter_mut().enumerate() {
            let database = server.database.clone();
            let send = |server: &mut Server| -> io::Result<()> {
                let client = server.client()?;
                for command in some {
                    client.send(&database, command.as_doc(), &[], Flags::default())?;
                }
                Ok(())
            };
            send(server).map_err(|error| Broken { server: number, error })?;
        }
        for (number, server) in servers.iter_mut().enumerate() {
            for _ in some {
                let reply = server
                    .client()
                    .and_then(|client| client.receive().map(|(_, reply)| reply.to_buf()))
                    .map_err(|error| Broken { server: number, error })?;
                replies[number].push(reply);
            }
        }
    }
    Ok(replies)
}

impl Process {
    fn start(name: &str, words: Vec<String>) -> Result<(Process, String), String> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| format!("no free port: {error}"))?
            .port();
        let folder =
            std::env::temp_dir().join(format!("marula-diff-{}-{name}-{port}", std::process::id()));
        let prepare = || -> io::Result<fs::File> {
            fs::create_dir_all(folder.join("data"))?;
            fs::File::create(folder.join("log"))
        };
        let log = prepare().map_err(|error| format!("{}: {error}", folder.display()))?;
        let log_too = log.try_clone().map_err(|error| error.to_string())?;
        let child = Command::new(&words[0])
            .args(&words[1..])
            .arg("--dbpath")
            .arg(folder.join("data"))
            .args(["--port", &port.to_string(), "--bind_ip", "127.0.0.1"])
            .stdin(Stdio::null())
            .stdout(log_too)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start '{}': {error}", words[0]))?;
        Ok((Process { words, child, folder }, format!("127.0.0.1:{port}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
