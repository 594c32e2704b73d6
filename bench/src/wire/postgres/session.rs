//! A blocking connection: authentication, and SQL with results as text. Also the parsing of
//! messages.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::BytesMut;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;

/// The address of a PostgreSQL server, and the user.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) address: SocketAddr,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) database: String,
}

/// A blocking, authenticated connection.
pub(crate) struct Session {
    pub(super) stream: TcpStream,
}

impl Session {
    pub(crate) fn open(login: &Login, durable: bool) -> Result<Session, String> {
        let stream = TcpStream::connect(login.address)
            .map_err(|error| format!("no connection to {}: {error}", login.address))?;
        stream.set_nodelay(true).expect("a connected socket takes options");
        let mut session = Session { stream };
        let options = format!("-c synchronous_commit={}", if durable { "on" } else { "off" });
        let parameters = [
            ("user", login.user.as_str()),
            ("database", login.database.as_str()),
            ("application_name", "marula bench"),
            ("client_encoding", "UTF8"),
            ("options", options.as_str()),
        ];
        session.send(|out| frontend::startup_message(parameters, out))?;
        session.log_in(login)?;
        Ok(session)
    }

    fn send(
        &mut self,
        put: impl FnOnce(&mut BytesMut) -> std::io::Result<()>,
    ) -> Result<(), String> {
        let mut buffer = BytesMut::new();
        put(&mut buffer)
            .and_then(|()| self.stream.write_all(&buffer))
            .map_err(|error| format!("the server hung up: {error}"))
    }

    fn receive(&mut self) -> Result<(u8, Vec<u8>), String> {
        let fail = |error: std::io::Error| format!("the server hung up: {error}");
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).map_err(fail)?;
        let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes")) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        self.stream.read_exact(&mut body).map_err(fail)?;
        match head[0] {
            b'E' => Err(error_text(&body)),
            tag => Ok((tag, body)),
        }
    }

    fn log_in(&mut self, login: &Login) -> Result<(), String> {
        let password = login.password.as_bytes();
        let fail = |error: std::io::Error| format!("cannot log in: {error}");
        let mut scram = None;
        loop {
            let (tag, body) = self.receive()?;
            if tag == b'Z' {
                return Ok(());
            }
            if tag != b'R' {
                continue;
            }
            let kind =
                body.get(..4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
            let data = body.get(4..).unwrap_or_default();
            match kind {
                Some(0) => {}
                Some(3) => self.send(|out| frontend::password_message(password, out))?,
                Some(5) => {
                    let salt = data.try_into().map_err(|_| "the salt has not four bytes")?;
                    let hash = md5_hash(login.user.as_bytes(), password, salt);
                    self.send(|out| frontend::password_message(hash.as_bytes(), out))?;
                }
                Some(10) => {
                    let binding = sasl::ChannelBinding::unsupported();
                    let begun = sasl::ScramSha256::new(password, binding);
                    self.send(|out| {
                        frontend::sasl_initial_response(sasl::SCRAM_SHA_256, begun.message(), out)
                    })?;
                    scram = Some(begun);
                }
                Some(11) => {
                    let scram = scram.as_mut().ok_or("SCRAM goes on that was not begun")?;
                    scram.update(data).map_err(fail)?;
                    self.send(|out| frontend::sasl_response(scram.message(), out))?;
                }
                Some(12) => {
                    scram
                        .as_mut()
                        .ok_or("SCRAM ends that was not begun")?
                        .finish(data)
                        .map_err(fail)?;
                }
                other => return Err(format!("cannot log in: unknown method {other:?}")),
            }
        }
    }

    /// Runs SQL and returns the rows' columns as text.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        self.send(|out| frontend::query(sql, out))?;
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            match self.receive() {
                Ok((b'D', body)) => {
                    rows.push(
                        columns(&body).into_iter().map(|c| c.unwrap_or("").to_owned()).collect(),
                    );
                }
                Ok((b'Z', _)) => return failed.map_or(Ok(rows), Err),
                Ok(_) => {}
                // After an error the server still reports that it is ready, unless it closed the
                // connection.
                Err(error) if failed.is_none() && error.contains("answered an error") => {
                    failed = Some(format!("{error} in: {sql}"));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the complete messages of a reply: tag and body.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
        let body = bytes.get(5..(length + 1).max(5))?;
        let tag = bytes[0];
        bytes = &bytes[(length + 1).max(5)..];
        Some((tag, body))
    })
}

/// The columns of a DataRow, as text.
pub(super) fn columns(body: &[u8]) -> Vec<Option<&str>> {
    let mut rest = body.get(2..).unwrap_or_default();
    let mut found = Vec::with_capacity(2);
    while let Some(length) = rest.get(..4) {
        let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
        let end = 4 + length.max(0) as usize;
        let Some(text) = rest.get(4..end) else { break };
        found.push(std::str::from_utf8(text).ok().filter(|_| length >= 0));
        rest = &rest[end..];
    }
    found
}

/// Returns the message and the code of an ErrorResponse.
pub(super) fn error_text(body: &[u8]) -> String {
    let part = |tag: u8| {
        let field = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&tag));
        field.map_or(String::new(), |field| String::from_utf8_lossy(&field[1..]).into_owned())
    };
    format!("the server answered an error: {} ({})", part(b'M'), part(b'C'))
}
