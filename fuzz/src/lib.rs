//! A server in the process of a fuzz target: its data is in memory, and clients need a password.

use std::backtrace::Backtrace;
use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, mem, panic, process};

use marula_bson::{Doc, DocBuf, DocWriter};
use marula_db::Db;
use marula_server::logging::{Format, Log, Zone};
use marula_server::network::Tls;
use marula_server::options::{Build, Memory, OplogOptions, Options};
use marula_server::service::{Call, CallThread, Peer, Reason, Service, Step};
use marula_server::{Frame, Server};
use marula_storage::memory::Memory as Store;
use marula_wire::{Compressors, Flags, Message, OwnedMessage, ReplyBuffer};

/// The only user; its password is its name.
pub const USER: &str = "user";

const BYTES_MAX: usize = 1 << 30;

/// Starts a server with one user, who may do everything.
pub fn start(tls: Option<Arc<Tls>>) -> Frame {
    let db = Db::open(Arc::new(Store::new())).expect("an empty store opens");
    let options = Options {
        repl_set: None,
        oplog: OplogOptions::default(),
        host: "localhost:27017".to_owned(),
        build: Build { version: "0.0.0", commit: "unknown" },
        argv: Vec::new(),
        parsed: DocBuf::build(|_| {}),
        dbpath: None,
        log_file: None,
        audit: None,
        compressors: Compressors::DEFAULT,
        tls,
        has_access_control: true,
        memory: Memory { large_pieces: || 0, bytes_max: BYTES_MAX, process: None },
    };
    let log = Log::new(Format::Json, Zone::Utc, Box::new(io::sink()));
    let frame = Frame(Arc::new(Server::new(Arc::new(db), options, log)));
    let mut client = Client::connect(&frame);
    let created = client.run(|command| {
        command.append("createUser", USER);
        command.append("pwd", USER);
        command.begin_array("roles").push("root");
    });
    assert!(is_ok(created.as_doc()), "{}", created.as_doc());
    client.close();
    frame
}

/// Returns the message of the command that `write` writes, for the database `admin`.
pub fn message(write: impl FnOnce(&mut DocWriter<'_>)) -> Vec<u8> {
    let command = DocBuf::build(write);
    let mut client = marula_wire::Client::over(Cursor::new(Vec::new()));
    client.send("admin", command.as_doc(), &[], Flags::default()).expect("into memory");
    mem::take(client.stream().get_mut())
}

/// Returns whether a reply says that the command succeeded.
pub fn is_ok(reply: Doc<'_>) -> bool {
    reply.get("ok").is_some_and(|ok| ok.is_truthy())
}

/// Ends the process at a panic in any thread, also in one that the network catches. For a network
/// that has been started.
pub fn abort_on_panic() {
    panic::set_hook(Box::new(|info| {
        eprintln!("{info}\n{}", Backtrace::force_capture());
        process::abort();
    }));
}

/// A client without a socket.
pub struct Client<'a> {
    frame: &'a Frame,
    connection: <Frame as Service>::Connection,
}

impl<'a> Client<'a> {
    /// Connects from the machine itself.
    pub fn connect(frame: &'a Frame) -> Self {
        let address = Some(([127, 0, 0, 1], 1).into());
        let peer =
            Peer { remote: address, local: address, disconnected: Default::default(), tls: None };
        Client { frame, connection: frame.open(peer, 1) }
    }

    /// Sends the command that `write` writes to the database `admin`; returns the reply.
    pub fn run(&mut self, write: impl FnOnce(&mut DocWriter<'_>)) -> DocBuf {
        let message = OwnedMessage::parse(message(write), Compressors::DEFAULT);
        self.answer(message.expect("the message is well-formed").as_message())
    }

    fn answer(&mut self, message: Message<'_>) -> DocBuf {
        let (mut thread, mut reason) = (CallThread::Inline, Reason::Arrived);
        loop {
            let call = Call {
                thread,
                reason,
                arrived: Instant::now(),
                time_budget: Duration::from_secs(1),
            };
            let mut reply = ReplyBuffer::new();
            reply.begin(message.reply_to());
            match self.frame.call(&mut self.connection, &message, &call, &mut reply) {
                Step::ToPool(_) => (thread, reason) = (CallThread::Pool, Reason::OnPool),
                // A pause after a failed login is not waited for.
                Step::Retry(..) => (thread, reason) = (CallThread::Pool, Reason::Deadline),
                _ => {
                    let (doc, _) = reply.written().expect("a command is answered");
                    return doc.to_buf();
                }
            }
        }
    }

    /// Ends the connection.
    pub fn close(self) {
        self.frame.close(self.connection);
    }
}
