//! The servers of a comparison: given by an address, or started on a fresh folder.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::embedded::tokyo_cabinet::{self, TokyoAdmin, TokyoCabinet};
use crate::operation::{Collection, Shape};
use crate::process::{self, Clock, Written};
use crate::wire::mongo::{MongoAdmin, MongoLogin, MongoWire};
use crate::wire::postgres::{Login, PostgresAdmin, PostgresWire};
use crate::wire::{Admin, Wire};

mod address;
mod start;

use address::{mongodb_login, postgresql_login};
pub(crate) use start::Starting;
use start::{Started, start_marula, start_mongod, start_postgres};

/// The address of a server, and its protocol.
enum Server {
    Mongo(MongoLogin),
    Postgres(Login),
    /// None: a library within this process.
    Embedded(Rc<RefCell<TokyoCabinet>>),
}

/// A server under comparison.
pub(crate) struct Target {
    pub(crate) name: String,
    /// The command that started it, or its address.
    pub(crate) setting: String,
    pub(crate) version: String,
    server: Server,
    /// The readings of `/proc`, if the process is on this machine.
    readings: Option<Readings>,
    started: Option<Started>,
}

struct Readings {
    pid: u32,
    clock: Clock,
    written: Written,
}

impl Target {
    /// Finds or starts the server of a `--target`.
    ///
    /// Errors: an invalid word, a server that does not reply or cannot be started.
    pub(crate) fn open(word: &str, starting: &Starting) -> Result<Target, String> {
        let mut target = match word.split_once(':') {
            None if word == "marula" => start_marula(&starting.marula, starting)?,
            None if word == "mongod" => {
                let path =
                    starting.mongod.as_deref().ok_or("the target mongod needs --mongod PATH")?;
                start_mongod(path, starting)?
            }
            None if word == "postgres" => {
                let folder = starting
                    .postgres
                    .as_deref()
                    .ok_or("the target postgres needs --postgres BIN_DIR")?;
                start_postgres(folder, starting)?
            }
            None if word == "tokyocabinet" => load_tokyo_cabinet(starting)?,
            Some(("marula", path)) => start_marula(Path::new(path), starting)?,
            Some(("mongodb", rest)) => {
                let login = mongodb_login(rest)?;
                found(login.address, Server::Mongo(login), word)
            }
            Some(("postgresql" | "postgres", rest)) => {
                let login = postgresql_login(rest)?;
                found(login.address, Server::Postgres(login), word)
            }
            _ => return Err(format!("not a target: '{word}' (see marula bench run --help)")),
        };
        target.version = target.admin()?.version()?;
        Ok(target)
    }

    /// Returns a connection for commands that are not measured.
    pub(crate) fn admin(&self) -> Result<Box<dyn Admin>, String> {
        Ok(match &self.server {
            Server::Mongo(login) => Box::new(MongoAdmin::new(login)?),
            Server::Postgres(login) => Box::new(PostgresAdmin::new(login)?),
            Server::Embedded(engine) => Box::new(TokyoAdmin(Rc::clone(engine))),
        })
    }

    /// Returns the engine, if the target is one within this process and not a server.
    pub(crate) fn embedded(&self) -> Option<Rc<RefCell<TokyoCabinet>>> {
        match &self.server {
            Server::Embedded(engine) => Some(Rc::clone(engine)),
            _ => None,
        }
    }

    /// Returns the wire of one load: its requests and expected replies.
    pub(crate) fn wire(
        &self,
        collection: Collection,
        shapes: &'static [Shape],
        durable: bool,
    ) -> Box<dyn Wire> {
        match &self.server {
            Server::Mongo(login) => {
                Box::new(MongoWire::new(login.clone(), collection, shapes, durable))
            }
            Server::Postgres(login) => {
                Box::new(PostgresWire::new(login.clone(), collection, shapes, durable))
            }
            Server::Embedded(_) => unreachable!("an embedded engine is called, not spoken to"),
        }
    }

    /// Whether the server's process can be read.
    pub(crate) fn is_read(&self) -> bool {
        self.readings.is_some()
    }

    /// Returns the CPU nanoseconds that the server has used so far; also reads its written bytes,
    /// while its children exist.
    pub(crate) fn cpu_ns(&mut self) -> u64 {
        self.readings.as_mut().map_or(0, |readings| {
            readings.written.read();
            readings.clock.read()
        })
    }

    /// Bytes that the server has sent towards the disk so far.
    pub(crate) fn written_bytes(&mut self) -> Option<u64> {
        self.readings.as_mut().map(|readings| readings.written.read())
    }

    /// Bytes that the server holds in memory.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.readings.as_ref().map(|readings| process::memory_bytes(readings.pid))
    }

    /// Returns the size of the data folder without logs, if this program created the folder.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        if let Some(engine) = self.embedded() {
            return Some(process::folder_bytes(engine.borrow().folder()));
        }
        self.started.as_ref().map(|started| process::folder_bytes(&started.folder.join("data")))
    }

    /// Waits until the server has nothing left to do: flushes, compactions, checkpoints.
    pub(crate) fn settle(&mut self, limit: Duration) {
        let begin = Instant::now();
        let step = Duration::from_millis(250);
        let mut before = self.cpu_ns();
        while self.is_read() && begin.elapsed() < limit {
            std::thread::sleep(step.min(limit));
            let now = self.cpu_ns();
            if now.saturating_sub(before) < step.as_nanos() as u64 / 25 {
                return;
            }
            before = now;
        }
    }
}

/// Tokyo Cabinet's table database, on a fresh folder.
fn load_tokyo_cabinet(starting: &Starting) -> Result<Target, String> {
    let folder = format!("marula-bench-{}-tokyocabinet", std::process::id());
    let engine = TokyoCabinet::load(starting.folder.join(folder))?;
    Ok(Target {
        name: "tokyocabinet (embedded)".into(),
        setting: tokyo_cabinet::SETTING.into(),
        version: String::new(),
        server: Server::Embedded(Rc::new(RefCell::new(engine))),
        readings: None,
        started: None,
    })
}

/// A server that runs already.
fn found(address: SocketAddr, server: Server, word: &str) -> Target {
    let pid = address.ip().is_loopback().then(|| process::listener(address.port())).flatten();
    let name = match word.split_once("://") {
        Some((scheme, rest)) => {
            let place = rest.rsplit('@').next().unwrap_or(rest);
            format!("{scheme}://{}", place.split('/').next().unwrap_or(place))
        }
        None => word.to_owned(),
    };
    let setting = match pid {
        Some(pid) => format!("was running (process {pid})"),
        None => "was running; its process cannot be read from here".into(),
    };
    Target {
        name,
        setting,
        version: String::new(),
        server,
        readings: pid.map(Readings::new),
        started: None,
    }
}

impl Readings {
    fn new(pid: u32) -> Readings {
        Readings { pid, clock: Clock::new(pid), written: Written::new(pid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_target_is_named() {
        let check = |word: &str, wanted: &str| {
            let error = Target::open(word, &Starting::default()).err().expect("an error");
            assert!(error.contains(wanted), "{error}");
        };
        check("oracle", "not a target: 'oracle'");
        check("mongod", "--mongod PATH");
        check("postgres", "--postgres BIN_DIR");
        check("redis://x", "not a target");
        check("mongodb://nowhere:x", "no address");
    }
}
