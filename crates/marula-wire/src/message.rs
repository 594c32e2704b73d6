//! One request, parsed from its bytes.
//!
//! ```text
//! header           bytes  content
//! messageLength    4      i32, little-endian as everything here; counts the header
//! requestID        4      i32, chosen by the sender
//! responseTo       4      i32, of a reply: the requestID of its request
//! opCode           4      2013 OP_MSG, 2012 OP_COMPRESSED, 2004 OP_QUERY, 1 OP_REPLY
//!
//! OP_MSG
//! flagBits         4      0 checksumPresent, 1 moreToCome, 16 exhaustAllowed
//! sections         …      kind 0: a document, the body; exactly one
//!                         kind 1: i32 size (counts itself), name (NUL-terminated), documents
//! checksum         0 | 4  CRC-32C of everything before
//! ```
//!
//! [`Message::parse`] checks the frame and validates every document once. The result is a few
//! offsets and a borrow of the bytes; sequences are iterated in place.

mod sections;

use bstr::{BStr, ByteSlice};
use marula_bson::Doc;

use crate::reply::{Form, Refusal, ReplyTo};
use crate::{Compressors, compress, legacy};
use sections::{KIND_SEQUENCE, parse_msg};

pub(crate) use sections::{check_size, validate_front};

/// The maximum message size, header included, in both directions: `maxMessageSizeBytes` of `hello`.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;

pub(crate) const OP_REPLY: i32 = 1;
pub(crate) const OP_QUERY: i32 = 2004;
pub(crate) const OP_GET_MORE: i32 = 2005;
pub(crate) const OP_COMPRESSED: i32 = 2012;
pub(crate) const OP_MSG: i32 = 2013;

/// The first sixteen bytes of every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes of the message, header included; always in `Header::SIZE ..= MESSAGE_BYTES_MAX`.
    pub length: usize,
    /// The number that the sender gave this message.
    pub request_id: i32,
    /// The number of the message that this one replies to.
    pub response_to: i32,
    /// The kind of message.
    pub opcode: i32,
}

impl Header {
    /// The size of a header in bytes.
    pub const SIZE: usize = 16;

    /// Parses the header at the front of `bytes`; `None` while there are fewer than sixteen bytes.
    ///
    /// Errors: an invalid length, which closes the connection, as mongod does.
    pub fn parse(bytes: &[u8]) -> Result<Option<Header>, Refusal> {
        let Some((head, _)) = bytes.split_first_chunk::<{ Header::SIZE }>() else {
            return Ok(None);
        };
        let length = usize::try_from(i32_at(head, 0)).unwrap_or(0);
        if !(Header::SIZE..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(Refusal::Close("message length out of range"));
        }
        Ok(Some(Header {
            length,
            request_id: i32_at(head, 4),
            response_to: i32_at(head, 8),
            opcode: i32_at(head, 12),
        }))
    }

    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; Header::SIZE] {
        let length = i32::try_from(self.length).expect("a message is shorter than 2 GiB");
        let mut bytes = [0; Header::SIZE];
        for (place, number) in bytes.as_chunks_mut::<4>().0.iter_mut().zip([
            length,
            self.request_id,
            self.response_to,
            self.opcode,
        ]) {
            *place = number.to_le_bytes();
        }
        bytes
    }
}

/// The length of the message at the front of `bytes`; `None` while the header is incomplete.
///
/// Errors: as [`Header::parse`].
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, Refusal> {
    Ok(Header::parse(bytes)?.map(|header| header.length))
}

/// The uncompressed length of the message at the front of `bytes`; for a compressed message, the
/// length that the sender claims. `None` while too few bytes have arrived.
///
/// Errors: as [`Header::parse`].
pub fn logical_length(bytes: &[u8]) -> Result<Option<usize>, Refusal> {
    Ok(match Header::parse(bytes)? {
        None => None,
        Some(header) if header.opcode == OP_COMPRESSED => {
            compress::claimed_size(bytes.get(Header::SIZE..).unwrap_or_default())
                .map(|claimed| (Header::SIZE + claimed).max(header.length))
                .or_else(|| (bytes.len() >= header.length).then_some(header.length))
        }
        Some(header) => Some(header.length),
    })
}

/// The flag bits of an OP_MSG.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u32);

impl Flags {
    /// The message ends with a CRC-32C.
    pub const CHECKSUM_PRESENT: u32 = 1;
    /// In a request: no reply is expected. In a reply: another one follows.
    pub const MORE_TO_COME: u32 = 1 << 1;
    /// The client accepts several replies to this message.
    pub const EXHAUST_ALLOWED: u32 = 1 << 16;
    /// A receiver refuses unknown bits among these and ignores unknown others.
    const REQUIRED: u32 = 0xffff;

    /// Returns whether all bits of `mask` are set.
    pub const fn has(self, mask: u32) -> bool {
        self.0 & mask == mask
    }
}

/// The offsets of the parts of a message, so that a message can move without being parsed again.
#[derive(Clone, Copy, Debug)]
struct MessageLayout {
    reply_to: ReplyTo,
    flags: Flags,
    /// Start and end of the body.
    body: (usize, usize),
    /// Start and end of the sections; empty when there are no sequences.
    sections: (usize, usize),
    /// Start and end of the database name in an OP_QUERY.
    query_db: Option<(usize, usize)>,
}

/// One request: a body, document sequences, and the form of its reply.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    layout: MessageLayout,
}

impl<'a> Message<'a> {
    /// Parses the whole message in `frame`, whose length must match its header.
    ///
    /// A compressed message is decompressed into `inflated`, and the result borrows from it.
    ///
    /// Errors: see [`Refusal`].
    pub fn parse(
        frame: &'a [u8],
        inflated: &'a mut Vec<u8>,
        allowed: Compressors,
    ) -> Result<Message<'a>, Refusal> {
        let header = Header::parse(frame)?
            .filter(|header| header.length == frame.len())
            .ok_or(Refusal::Close("message is not as long as its header says"))?;
        if header.opcode != OP_COMPRESSED {
            return Message::parse_plain(header, frame, None);
        }
        let compressor = compress::inflate(header, frame, inflated, allowed)?;
        let header = Header::parse(inflated)?.ok_or(Refusal::Close("decompressed to nothing"))?;
        Message::parse_plain(header, inflated, Some(compressor))
    }

    fn parse_plain(
        header: Header,
        frame: &'a [u8],
        compressor: Option<crate::Compressor>,
    ) -> Result<Message<'a>, Refusal> {
        let reply_to = ReplyTo {
            request_id: header.request_id,
            form: Form::Msg,
            checksum: false,
            more_to_come: false,
            compressor,
        };
        match header.opcode {
            OP_MSG => parse_msg(reply_to, frame),
            OP_QUERY => {
                let reply_to = ReplyTo { form: Form::QueryReply, ..reply_to };
                let query = legacy::parse_query(reply_to, frame)?;
                let layout = MessageLayout {
                    reply_to,
                    flags: Flags::default(),
                    body: query.body,
                    sections: (0, 0),
                    query_db: Some(query.db),
                };
                Ok(Message { bytes: frame, layout })
            }
            opcode => Err(legacy::refuse(reply_to, opcode, frame)),
        }
    }

    /// The uncompressed bytes of the message, header included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The command document.
    pub fn body(&self) -> Doc<'a> {
        Doc::trusted(slice(self.bytes, self.layout.body))
    }

    /// The document sequences in order.
    pub fn sequences(&self) -> Sequences<'a> {
        Sequences { rest: slice(self.bytes, self.layout.sections) }
    }

    /// The document sequence named `name`.
    pub fn sequence(&self, name: impl AsRef<[u8]>) -> Option<Sequence<'a>> {
        let name = name.as_ref();
        self.sequences().find(|sequence| sequence.name == name)
    }

    /// The flag bits; zero for an OP_QUERY.
    pub fn flags(&self) -> Flags {
        self.layout.flags
    }

    /// Returns whether the client accepts a stream of replies.
    pub fn exhaust_allowed(&self) -> bool {
        // A client that wants no reply wants no stream of replies either.
        self.layout.flags.has(Flags::EXHAUST_ALLOWED) && !self.more_to_come()
    }

    /// Returns whether the client wants no reply.
    pub fn more_to_come(&self) -> bool {
        self.layout.flags.has(Flags::MORE_TO_COME)
    }

    /// The database of an OP_QUERY, which is outside its body; `None` for an OP_MSG, whose body has
    /// `$db`.
    ///
    /// The name is unchecked: it may be empty or hold characters that no database name may have.
    pub fn query_db(&self) -> Option<&'a BStr> {
        self.layout.query_db.map(|at| slice(self.bytes, at).as_bstr())
    }

    /// The fields of the request that determine the form of its reply.
    pub fn reply_to(&self) -> ReplyTo {
        self.layout.reply_to
    }

    /// The same message with another request id: each reply of an exhaust stream responds to the
    /// reply before it.
    #[must_use]
    pub fn with_request_id(mut self, request_id: i32) -> Self {
        self.layout.reply_to.request_id = request_id;
        self
    }

    /// A copy that owns its bytes.
    pub fn to_owned(&self) -> OwnedMessage {
        OwnedMessage { bytes: self.bytes.to_vec(), layout: self.layout }
    }
}

/// A message that owns its bytes, to be moved to another thread without parsing it again.
#[derive(Clone, Debug)]
pub struct OwnedMessage {
    bytes: Vec<u8>,
    layout: MessageLayout,
}

impl OwnedMessage {
    /// Like [`Message::parse`], but takes ownership of the frame.
    ///
    /// Errors: see [`Refusal`].
    pub fn parse(frame: Vec<u8>, allowed: Compressors) -> Result<OwnedMessage, Refusal> {
        let mut inflated = Vec::new();
        let layout = Message::parse(&frame, &mut inflated, allowed)?.layout;
        let bytes = if layout.reply_to.compressor.is_some() { inflated } else { frame };
        Ok(OwnedMessage { bytes, layout })
    }

    /// The message, borrowed.
    pub fn as_message(&self) -> Message<'_> {
        Message { bytes: &self.bytes, layout: self.layout }
    }

    /// Sets the request id that the next reply responds to; see [`Message::with_request_id`].
    pub fn set_request_id(&mut self, request_id: i32) {
        self.layout.reply_to.request_id = request_id;
    }
}

/// Iterates the document sequences of a message in order.
#[derive(Clone, Debug)]
pub struct Sequences<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Sequences<'a> {
    type Item = Sequence<'a>;

    fn next(&mut self) -> Option<Sequence<'a>> {
        // The sections were checked when the message was parsed; a section that is invalid
        // nevertheless ends the iteration.
        loop {
            let (&kind, rest) = self.rest.split_first()?;
            let size = usize::try_from(i32_front(rest)?).ok()?;
            let (section, rest) = rest.split_at_checked(size)?;
            self.rest = rest;
            if kind == KIND_SEQUENCE {
                let content = section.get(4..)?;
                let name = content.get(..memchr::memchr(0, content)?)?;
                let docs = content.get(name.len() + 1..)?;
                return Some(Sequence { name: name.as_bstr(), docs: Docs { rest: docs } });
            }
        }
    }
}

/// A document sequence: documents of one field of the command, sent outside its body.
#[derive(Clone, Debug)]
pub struct Sequence<'a> {
    /// The name of the field, such as `documents`.
    pub name: &'a BStr,
    /// The documents.
    pub docs: Docs<'a>,
}

/// Consecutive validated documents.
#[derive(Clone, Debug)]
pub struct Docs<'a> {
    rest: &'a [u8],
}

impl<'a> Docs<'a> {
    /// The bytes of the documents not yet yielded.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Docs<'a> {
    type Item = Doc<'a>;

    #[inline]
    fn next(&mut self) -> Option<Doc<'a>> {
        let size = usize::try_from(i32_front(self.rest)?).ok()?;
        let (doc, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(Doc::trusted(doc))
    }
}

/// The bytes in the range `at`, or none if it is out of bounds.
pub(crate) fn slice(bytes: &[u8], at: (usize, usize)) -> &[u8] {
    bytes.get(at.0..at.1).unwrap_or_default()
}

/// The i32 at the front of `bytes`.
#[inline]
pub(crate) fn i32_front(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|chunk| i32::from_le_bytes(*chunk))
}

fn i32_at(head: &[u8; Header::SIZE], at: usize) -> i32 {
    head.get(at..).and_then(i32_front).unwrap_or_default()
}

#[cfg(test)]
mod tests;
