//! A small blocking client for tools, tests and benchmarks.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use marula_bson::{Doc, DocBuf, DocWriter};

use crate::message::{Flags, Header, MESSAGE_BYTES_MAX, OP_MSG, i32_front};
use crate::reply::next_id;

/// One connection to a server, over a socket or what encrypts one.
#[derive(Debug)]
pub struct Client<S = TcpStream> {
    stream: S,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// Connects to `address`, such as `127.0.0.1:27017`; `timeout` applies to each later read and
/// write.
pub fn dial(address: impl ToSocketAddrs, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Client {
    /// Connects to `address` as [`dial`] does.
    pub fn connect(address: impl ToSocketAddrs, timeout: Duration) -> io::Result<Client> {
        dial(address, timeout).map(Client::over)
    }
}

impl<S: Read + Write> Client<S> {
    /// The client of a stream that is connected.
    pub fn over(stream: S) -> Client<S> {
        Client { stream, request: Vec::new(), reply: Vec::new() }
    }

    /// Sends `command` to the database `db` and returns the reply, a success or a failure.
    pub fn run_command(&mut self, db: &str, command: Doc<'_>) -> io::Result<DocBuf> {
        self.send(db, command, &[], Flags::default())?;
        self.receive().map(|(_, reply)| reply.to_buf())
    }

    /// Sends `command` and document sequences (name and documents each); returns the request id.
    pub fn send(
        &mut self,
        db: &str,
        command: Doc<'_>,
        sequences: &[(&str, &[DocBuf])],
        flags: Flags,
    ) -> io::Result<i32> {
        self.request.clear();
        self.request.extend_from_slice(&[0; Header::SIZE]);
        self.request.extend_from_slice(&flags.0.to_le_bytes());
        self.request.push(0);
        let mut body = DocWriter::new(&mut self.request);
        body.append_elements(command.elements_bytes());
        body.append("$db", db);
        body.finish();
        for (name, docs) in sequences {
            let size = 4 + name.len() + 1 + docs.iter().map(|doc| doc.len()).sum::<usize>();
            let size = i32::try_from(size).map_err(|_| invalid("sequence is too long"))?;
            self.request.push(1);
            self.request.extend_from_slice(&size.to_le_bytes());
            self.request.extend_from_slice(name.as_bytes());
            self.request.push(0);
            for doc in *docs {
                self.request.extend_from_slice(doc);
            }
        }
        let length = self.request.len();
        if length > MESSAGE_BYTES_MAX {
            return Err(invalid("command is too long"));
        }
        let header = Header { length, request_id: next_id(), response_to: 0, opcode: OP_MSG };
        if let Some(head) = self.request.first_chunk_mut() {
            *head = header.to_bytes();
        }
        self.stream.write_all(&self.request)?;
        self.stream.flush()?;
        Ok(header.request_id)
    }

    /// Waits for the next reply; returns its flags and document.
    pub fn receive(&mut self) -> io::Result<(Flags, Doc<'_>)> {
        let mut head = [0; Header::SIZE];
        self.stream.read_exact(&mut head)?;
        let header = Header::parse(&head)
            .ok()
            .flatten()
            .filter(|header| header.opcode == OP_MSG)
            .ok_or_else(|| invalid("reply is no OP_MSG"))?;
        self.reply.clear();
        let payload = header.length.saturating_sub(Header::SIZE);
        let read = (&mut self.stream).take(payload as u64).read_to_end(&mut self.reply)?;
        if read < payload {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let flags = i32_front(&self.reply).ok_or_else(|| invalid("reply is cut"))?;
        let doc = self.reply.get(5..).unwrap_or_default();
        let doc = i32_front(doc)
            .and_then(|size| doc.get(..usize::try_from(size).ok()?))
            .ok_or_else(|| invalid("reply is cut"))?;
        Ok((Flags(flags.cast_unsigned()), Doc::trusted(doc)))
    }

    /// The stream, for timeouts, and for tests that send invalid messages.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
