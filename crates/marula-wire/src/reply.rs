//! Writes replies in place, at the end of a connection's output.
//!
//! A [`ReplyBuffer`] is the output. The server begins a reply with the form that the request asked
//! for ([`ReplyTo`]); a command writes the body's fields directly into the output; finishing
//! patches the length, adds the checksum if the request had one, and compresses the reply if the
//! request was compressed, as mongod does.

use std::sync::atomic::{AtomicI32, Ordering};

use marula_bson::{Doc, DocWriter};
use marula_error::Error;

use crate::message::{Flags, Header, OP_MSG, OP_REPLY, check_size};
use crate::{Compressor, checksum, compress};

/// AwaitCapable: the flags that mongod sets in an OP_REPLY to a command.
const QUERY_REPLY_FLAGS: i32 = 8;
/// QueryFailure: the document has `$err`.
const QUERY_FAILURE_FLAGS: i32 = 2;

/// The server's reaction to bytes that are not a request it can run.
#[derive(Clone, PartialEq, Debug)]
pub enum Refusal {
    /// Close the connection without a reply. The text goes to the log.
    Close(&'static str),
    /// Reply with this error; the connection stays open.
    Answer {
        /// The error of the reply.
        error: Error,
        /// The form of the reply; no reply is sent if `more_to_come` is set.
        reply_to: ReplyTo,
    },
    /// Ignore the message.
    Ignore,
}

/// The form of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// OP_MSG.
    Msg,
    /// OP_REPLY to a command that came as OP_QUERY.
    QueryReply,
    /// OP_REPLY to a removed operation: its errors have `$err`.
    QueryFailure,
}

/// The fields of a request that determine the form of its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyTo {
    /// The request id.
    pub request_id: i32,
    /// The message form of the reply.
    pub form: Form,
    /// Whether the request had a checksum; the reply then has one.
    pub checksum: bool,
    /// Whether the client wants no reply.
    pub more_to_come: bool,
    /// The compressor of the request; the reply uses the same one.
    pub compressor: Option<Compressor>,
}

/// The output of a connection; at most one reply at its end is unfinished.
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    out: Vec<u8>,
    /// The start of the unfinished reply, and its form.
    open: Option<(usize, ReplyTo)>,
    last_id: i32,
    deflated: Vec<u8>,
}

impl ReplyBuffer {
    /// Creates an empty output.
    pub fn new() -> Self {
        ReplyBuffer::default()
    }

    /// Begins a reply. The server calls this before it runs a command.
    pub fn begin(&mut self, reply_to: ReplyTo) {
        assert!(self.open.is_none(), "the reply before was finished or abandoned");
        self.open = Some((self.out.len(), reply_to));
    }

    /// Writes the reply's document. A second call discards what the first one wrote.
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

    /// Replaces the unfinished reply by `error`.
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

    /// Returns whether the unfinished reply has a document.
    pub fn is_written(&self) -> bool {
        self.open.is_some_and(|(start, _)| self.out.len() > start)
    }

    /// The document of the unfinished reply, once its writer is dropped, and the bytes that the
    /// reply takes so far.
    pub fn written(&self) -> Option<(Doc<'_>, usize)> {
        let (start, reply_to) = self.open?;
        let body = self.out.get(start + body_offset(reply_to.form)..)?;
        (!body.is_empty()).then(|| (Doc::trusted(body), self.out.len() - start))
    }

    /// Discards the unfinished reply.
    pub fn abandon(&mut self) {
        if let Some((start, _)) = self.open.take() {
            self.out.truncate(start);
        }
    }

    /// Finishes the reply; `more_to_come` says that another reply to the same request follows.
    ///
    /// A body that is too large is replaced by the corresponding error. Returns the uncompressed
    /// size of the reply in bytes.
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

    /// The number of the last finished reply.
    pub fn last_id(&self) -> i32 {
        self.last_id
    }

    /// The finished replies.
    pub fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    /// Cuts off and returns the finished replies from `start` on.
    pub fn split_off(&mut self, start: usize) -> Vec<u8> {
        assert!(self.open.is_none(), "the reply in work was finished or abandoned");
        self.out.split_off(start)
    }

    /// Takes the finished replies out of the buffer.
    pub fn take(&mut self) -> Vec<u8> {
        assert!(self.open.is_none(), "the reply in work was finished or abandoned");
        std::mem::take(&mut self.out)
    }

    /// Discards the finished replies; keeps a capacity of up to `capacity_max` bytes.
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

/// Appends the fields of an error reply: labels, `ok`, `errmsg`, `code`, `codeName`, and the
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

/// The offset of the document in a reply, counted from the start of the header.
const fn body_offset(form: Form) -> usize {
    match form {
        Form::Msg => Header::SIZE + 5,
        Form::QueryReply | Form::QueryFailure => Header::SIZE + 20,
    }
}

/// Returns the next number for messages of this process.
pub(crate) fn next_id() -> i32 {
    static LAST: AtomicI32 = AtomicI32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

#[cfg(test)]
mod tests;
