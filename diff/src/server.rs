//! One of the two servers: a program started with a fresh folder, or an address.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use marula_bson::{DocBuf, Value, ValueBuf};
use marula_wire::client::Client;
use marula_wire::message::Flags;

use crate::beside::Beside;
use crate::tree::{Tree, tree};
use crate::uuids::{listed_in, names_listed, with_listed};

/// The time after which a silent server counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The number of commands sent before the first reply is read: few enough that no socket's buffer
/// fills up.
const IN_FLIGHT: usize = 16;

/// The time that a server gets to end.
const ENDING: Duration = Duration::from_secs(60);

/// Returns the database of the cases, on both servers.
pub(crate) fn database() -> String {
    format!("diff{}", std::process::id())
}

pub(crate) struct Server {
    pub(crate) name: &'static str,
    database: String,
    address: String,
    client: Option<Client>,
    process: Option<Process>,
    beside: Option<Beside>,
}

struct Process {
    launch: Launch,
    child: Child,
}

/// The way to start a server's process.
struct Launch {
    words: Vec<String>,
    port: u16,
    folder: PathBuf,
}

impl Server {
    /// Creates a server from its `mongodb://host:port`, or starts it from the path of its program.
    pub(crate) fn new(name: &'static str, place: &str, verb: &[&str]) -> Result<Server, String> {
        let database = database();
        if let Some(rest) = place.strip_prefix("mongodb://") {
            let address = rest.split(['/', '?']).next().unwrap_or(rest).to_owned();
            let mut server =
                Server { name, database, address, client: None, process: None, beside: None };
            server.connect(Duration::from_secs(5))?;
            return Ok(server);
        }
        let mut words = vec![place.to_owned()];
        words.extend(verb.iter().map(|word| (*word).to_owned()));
        let (process, address) = Process::start(name, words)?;
        let mut server =
            Server { name, database, address, client: None, process: Some(process), beside: None };
        server.connect(Duration::from_secs(30))?;
        Ok(server)
    }

    /// Has another client write to the server from now on.
    pub(crate) fn write_beside(&mut self) {
        self.beside = Some(Beside::start(self.address.clone()));
    }

    fn connect(&mut self, timeout: Duration) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            match Client::connect(self.address.as_str(), TIMEOUT) {
                Ok(client) => {
                    self.client = Some(client);
                    return Ok(());
                }
                Err(error) if begin.elapsed() > timeout => {
                    return Err(format!(
                        "cannot reach {} at '{}': {error}",
                        self.name, self.address
                    ));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Connects again, to a new process if the old one has ended; returns how it ended.
    pub(crate) fn recover(&mut self) -> Result<String, String> {
        self.client = None;
        let mut ending = "closed the connection".to_owned();
        if let Some(process) = &mut self.process {
            // A crashing server takes a moment to write its log.
            std::thread::sleep(Duration::from_millis(500));
            if let Ok(Some(status)) = process.child.try_wait() {
                ending = format!("ended with {status}");
            } else {
                let _ = process.child.kill();
                let _ = process.child.wait();
            }
            let (process, address) = Process::start(self.name, process.launch.words.clone())?;
            self.process = Some(process);
            self.address = address;
            if self.beside.take().is_some() {
                self.write_beside();
            }
        }
        self.connect(Duration::from_secs(30))?;
        Ok(ending)
    }

    /// Ends the server as an administrator does, and starts it again on its data; a server that was
    /// not started here continues.
    fn restart(&mut self) -> io::Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if let Some(mut client) = self.client.take() {
            let shutdown = tree! { "shutdown" => 1, "force" => Tree::of(true) }.to_doc();
            client.send("admin", shutdown.as_doc(), &[], Flags::default())?;
            // It may end before it replies.
            let _ = client.receive();
        }
        let begin = Instant::now();
        while process.child.try_wait()?.is_none() {
            if begin.elapsed() > ENDING {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        process.child = process.launch.spawn()?;
        self.connect(Duration::from_secs(60)).map_err(io::Error::other)
    }

    /// Returns the client, for sending.
    fn client(&mut self) -> io::Result<&mut Client> {
        self.client.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// The reason why commands have no replies: this server's connection failed.
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
    // The opened cursors of each server.
    let mut cursors = [Vec::new(), Vec::new()];
    // The UUID of the collection that each server listed last.
    let mut listed: [Option<ValueBuf>; 2] = [None, None];
    let mut left = commands;
    while let Some(first) = left.first() {
        if is_restart(first) {
            for (number, server) in servers.iter_mut().enumerate() {
                server.restart().map_err(|error| Broken { server: number, error })?;
                replies[number].push(DocBuf::new());
            }
            left = &left[1..];
            continue;
        }
        let waits =
            |command: &DocBuf| is_more(command) || is_restart(command) || names_listed(command);
        let others = left[1..].iter().take(IN_FLIGHT - 1);
        let count = 1 + others.take_while(|command| !waits(command)).count();
        let (some, rest) = left.split_at(count);
        left = rest;
        for (number, server) in servers.iter_mut().enumerate() {
            let database = server.database.clone();
            let send = |server: &mut Server| -> io::Result<()> {
                let client = server.client()?;
                for command in some {
                    let own = if is_more(command) {
                        Some(of_cursor(command, &cursors[number]))
                    } else if names_listed(command) {
                        Some(with_listed(command, listed[number].as_ref()))
                    } else {
                        None
                    };
                    let command = own.as_ref().unwrap_or(command);
                    let database = if is_of_admin(command) { "admin" } else { &database };
                    client.send(database, command.as_doc(), &[], Flags::default())?;
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
                if let Some(cursor) = cursor_of(&reply) {
                    cursors[number].push(cursor);
                }
                if let Some(uuid) = listed_in(&reply) {
                    listed[number] = Some(uuid);
                }
                replies[number].push(reply);
            }
        }
    }
    Ok(replies)
}

/// Returns whether a command is for the database `admin`: a pipeline of the operations of all, or
/// a new name of a collection.
fn is_of_admin(command: &DocBuf) -> bool {
    let is_named =
        |name: &str| command.as_doc().iter().next().is_some_and(|field| field.name == name);
    if is_named("renameCollection") {
        return true;
    }
    if !is_named("aggregate") {
        return false;
    }
    let command = Tree::of_doc(command.as_doc());
    let stages = command.get("pipeline").map_or(&[][..], Tree::items);
    let is_of_all =
        |stage: &Tree| stage.get("$currentOp").is_some_and(|it| !it.fields().is_empty());
    command.get("aggregate") == Some(&Tree::of(1)) && stages.first().is_some_and(is_of_all)
}

fn is_restart(command: &DocBuf) -> bool {
    command.as_doc().iter().next().is_some_and(|field| field.name == "restart")
}

fn is_more(command: &DocBuf) -> bool {
    let mut fields = command.as_doc().iter();
    fields.next().is_some_and(|field| field.name == "getMore" || field.name == "killCursors")
}

/// Returns the `getMore` or `killCursors` of the server's own cursor. The command has its number,
/// counted from the last opened one.
fn of_cursor(command: &DocBuf, cursors: &[i64]) -> DocBuf {
    let cursor = |number: Value<'_>| match number {
        Value::Int64(number @ 1..=9) => {
            let from_last = cursors.iter().rev().nth(number as usize - 1);
            Value::Int64(from_last.copied().unwrap_or_default()).to_buf()
        }
        other => other.to_buf(),
    };
    let mut command = Tree::of_doc(command.as_doc());
    if let Tree::Doc(fields) = &mut command {
        for (_, value) in
            fields.iter_mut().filter(|(name, _)| name == "getMore" || name == "cursors")
        {
            value.map_leaves(&|number| Some(cursor(number)));
        }
    }
    command.to_doc()
}

/// Returns the cursor in the reply to a `find`.
fn cursor_of(reply: &DocBuf) -> Option<i64> {
    let cursor = reply.as_doc().get("cursor")?.as_doc()?;
    cursor.get("firstBatch")?;
    cursor.get("id")?.as_exact_i64()
}

impl Launch {
    /// Starts the program on its folder.
    fn spawn(&self) -> io::Result<Child> {
        let log = fs::OpenOptions::new().append(true).create(true).open(self.folder.join("log"))?;
        Command::new(&self.words[0])
            .args(&self.words[1..])
            .arg("--dbpath")
            .arg(self.folder.join("data"))
            .args(["--port", &self.port.to_string(), "--bind_ip", "127.0.0.1"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
    }
}

impl Process {
    fn start(name: &str, words: Vec<String>) -> Result<(Process, String), String> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| format!("no free port: {error}"))?
            .port();
        let folder =
            std::env::temp_dir().join(format!("marula-diff-{}-{name}-{port}", std::process::id()));
        fs::create_dir_all(folder.join("data"))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let process = Launch { words, port, folder };
        let child = process
            .spawn()
            .map_err(|error| format!("cannot start '{}': {error}", process.words[0]))?;
        Ok((Process { launch: process, child }, format!("127.0.0.1:{port}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.launch.folder);
    }
}
