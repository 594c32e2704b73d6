//! Writing replies: in place, at the end of a connection's output.
//!
//! A [`ReplyBuffer`] is the output. The server begins a reply with what the request asked for
//! ([`ReplyTo`]); a command writes the body's fields where they will be sent from; finishing
//! patches the length, adds the checksum if the request had one, and compresses if the request was
//! compressed, as mongod does.

use std::sync::atomic::{AtomicI32, Ordering};

use marula_bson::{Doc, DocWriter};
use marula_error::Error;

use crate::message::{Flags, Header, OP_MSG, OP_REPLY, check_size};
use crate::{Compressor, checksum, compress};

/// Cursor has answered; AwaitCapable. What mongod sets in an OP_REPLY to a command.
const QUERY_REPLY_FLAGS: i32 = 8;
/// QueryFailure: the document holds `$err`.
const QUERY_FAILURE_FLAGS: i32 = 2;

/// What a server does with bytes that are not a request it can run.
#[derive(Clone, PartialEq, Debug)]
pub enum Refusal {
    /// Close the connection without an answer. The text is for the log.
    Close(&'static str),
    /// Answer with this error; the connection goes on.
    Answer {
        /// The error.
        error: Error,
        /// How to answer; `more_to_come` forbids it.
        reply_to: ReplyTo,
    },
    /// Pass over the message.
    Ignore,
}

/// The form of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// OP_MSG.
    Msg,
    /// OP_REPLY to a command that came as OP_QUERY.
    QueryReply,
    /// OP_REPLY to an operation that is gone: its errors have `$err`.
    QueryFailure,
}

/// What a reply must know of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyTo {
    /// The number of the request.
    pub request_id: i32,
    /// The form that the request understands.
    pub form: Form,
    /// Whether the request had a checksum, so that the reply has one.
    pub checksum: bool,
    /// Whether the request wants no reply.
    pub more_to_come: bool,
    /// What the request was compressed with, so that the reply is.
    pub compressor: Option<Compressor>,
}

/// A connection's output, at whose end one reply is being written.
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    out: Vec<u8>,
    /// Where the reply in work begins, and what it answers.
    open: Option<(usize, ReplyTo)>,
    last_id: i32,
    deflated: Vec<u8>,
}

impl ReplyBuffer {
    /// An empty output.
    pub fn new() -> Self {
        ReplyBuffer::default()
    }

    /// Begins a reply. The server does this before it calls a command.
    pub fn begin(&mut self, reply_to: ReplyTo) {
        assert!(self.open.is_none(), "the reply before was finished or abandoned");
        self.open = Some((self.out.len(), reply_to));
    }

    /// Writes the reply's document. Called again, it forgets what was written and starts over.
    ///
    /// Dropping the writer finishes the document.
    pub fn body(&mut self) -> DocWriter<'_> {
        let (start, reply_to) = self.open.expect("the server began a reply");
        self.out.truncate(start);
        self.out.extend_from_slice(&[0; Header::SIZE]);
        match reply_to.form {
            Form::Msg => self.out.extend_from_slice(&[0; 5]),
            Form::QueryReply => self.write_query_reply(QUERY_REPLY_FLAGS),
            Form::QueryFailure => self.write_query_reply(QUERY_FAILURE_FLAGS),
        }
        DocWriter::new(&mut self.out)
    }

    /// Answers with `error` alone; what was written before is forgotten.
    pub fn error(&mut self, error: &Error) {
        let (_, reply_to) = self.open.expect("the server began a reply");
        let mut body = self.body();
        match reply_to.form {
            Form::QueryFailure => {
                body.append("$err", error.message());
                body.append("code", error.code().number());
                body.append("ok", 0.0);
            }
            Form::Msg | Form::QueryReply => write_error(&mut body, error),
        }
    }

    /// Whether the reply that was begun has a document.
    pub fn is_written(&self) -> bool {
        self.open.is_some_and(|(start, _)| self.out.len() > start)
    }

    /// The document of the reply in work, once its writer is gone, and the bytes that the reply
    /// takes so far.
    pub fn written(&self) -> Option<(Doc<'_>, usize)> {
        let (start, reply_to) = self.open?;
        let body = self.out.get(start + body_offset(reply_to.form)..)?;
        (!body.is_empty()).then(|| (Doc::trusted(body), self.out.len() - start))
    }

    /// Forgets the reply in work.
    pub fn abandon(&mut self) {
        if let Some((start, _)) = self.open.take() {
            self.out.truncate(start);
        }
    }

    /// Ends the reply that was begun; `more_to_come` says that another one to the same request
    /// follows.
    ///
    /// A body that is too large is replaced by the error that says so. Returns the bytes the reply
    /// has uncompressed.
    pub fn finish(&mut self, more_to_come: bool) -> usize {
        let (start, reply_to) = self.open.expect("the server began a reply");
        let written = self.out.len() - start;
        assert!(written > body_offset(reply_to.form), "a reply has a body");
        let mut more_to_come = more_to_come;
        let body = self.out.get(start + body_offset(reply_to.form)..).unwrap_or_default();
        if let Err(too_large) = check_size(Doc::trusted(body)) {
            more_to_come = false;
            self.error(&too_large);
        }
        self.open = None;
        self.seal(start, reply_to, more_to_come)
    }

    /// The number of the last reply that was finished.
    pub fn last_id(&self) -> i32 {
        self.last_id
    }

    /// The finished replies.
    pub fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    /// Cuts off the finished replies from `start` on.
    pub fn split_off(&mut self, start: usize) -> Vec<u8> {
        assert!(self.open.is_none(), "the reply in work was finished or abandoned");
        self.out.split_off(start)
    }

    /// Takes the finished replies away.
    pub fn take(&mut self) -> Vec<u8> {
        assert!(self.open.is_none(), "the reply in work was finished or abandoned");
        std::mem::take(&mut self.out)
    }

    /// Forgets the finished replies, keeping up to `capacity_max` bytes of room for the next ones.
    pub fn clear(&mut self, capacity_max: usize) {
        assert!(self.open.is_none(), "the reply in work was finished or abandoned");
        self.out.clear();
        self.out.shrink_to(capacity_max);
        self.deflated.shrink_to(capacity_max);
    }

    fn write_query_reply(&mut self, flags: i32) {
        self.out.extend_from_slice(&flags.to_le_bytes());
        self.out.extend_from_slice(&0_i64.to_le_bytes());
        self.out.extend_from_slice(&0_i32.to_le_bytes());
        self.out.extend_from_slice(&1_i32.to_le_bytes());
    }

    fn seal(&mut self, start: usize, reply_to: ReplyTo, more_to_come: bool) -> usize {
        let sum_size = if reply_to.checksum { checksum::SIZE } else { 0 };
        let header = Header {
            length: self.out.len() - start + sum_size,
            request_id: next_id(),
            response_to: reply_to.request_id,
            opcode: if reply_to.form == Form::Msg { OP_MSG } else { OP_REPLY },
        };
        self.last_id = header.request_id;
        let frame = self.out.get_mut(start..).expect("the reply begins inside the output");
        let (head, rest) =
            frame.split_first_chunk_mut::<{ Header::SIZE }>().expect("the header was reserved");
        *head = header.to_bytes();
        if let (Form::Msg, Some(flags)) = (reply_to.form, rest.first_chunk_mut::<4>()) {
            let checksum = if reply_to.checksum { Flags::CHECKSUM_PRESENT } else { 0 };
            let more = if more_to_come { Flags::MORE_TO_COME } else { 0 };
            *flags = (checksum | more).to_le_bytes();
        }
        if reply_to.checksum {
            let sum = checksum::of(head, rest);
            self.out.extend_from_slice(&sum.to_le_bytes());
        }
        if let Some(compressor) = reply_to.compressor {
            compress::deflate(compressor, header, start, &mut self.out, &mut self.deflated);
        }
        header.length
    }
}

/// Appends what a reply shows of `error`: labels, `ok`, `errmsg`, `code`, `codeName`, and the
/// error's own fields.
pub fn write_error(body: &mut DocWriter<'_>, error: &Error) {
    if !error.labels().is_empty() {
        let mut labels = body.begin_array("errorLabels");
        for &label in error.labels() {
            labels.push(label);
        }
    }
    body.append("ok", 0.0);
    body.append("errmsg", error.message());
    body.append("code", error.code().number());
    body.append("codeName", &*error.code().name());
    body.append_elements(error.fields());
}

/// Where the document of a reply begins, from the start of its header.
const fn body_offset(form: Form) -> usize {
    match form {
        Form::Msg => Header::SIZE + 5,
        Form::QueryReply | Form::QueryFailure => Header::SIZE + 20,
    }
}

/// Numbers for messages that this process sends.
pub(crate) fn next_id() -> i32 {
    static LAST: AtomicI32 = AtomicI32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

#[cfg(test)]
mod tests;
