//! One request, from its bytes.
//!
//! ```text
//! header           bytes  content
//! messageLength    4      i32, little-endian as everything here; counts the header
//! requestID        4      i32, chosen by the sender
//! responseTo       4      i32, the requestID that a reply answers
//! opCode           4      2013 OP_MSG, 2012 OP_COMPRESSED, 2004 OP_QUERY, 1 OP_REPLY
//!
//! OP_MSG
//! flagBits         4      0 checksumPresent, 1 moreToCome, 16 exhaustAllowed
//! sections         …      kind 0: a document, the body; exactly one
//!                         kind 1: i32 size (counts itself), name (NUL-terminated), documents
//! checksum         0 | 4  CRC-32C of everything before
//! ```
//!
//! [`Message::parse`] checks the frame and validates every document once. What it returns is a few numbers
//! and a borrow; sequences are walked where they lie.

use std::collections::HashSet;

use bstr::{BStr, ByteSlice};
use marula_bson::Doc;
use marula_bson::validate::{Limits, validate};
use marula_error::{Error, errors};

use crate::reply::{Form, Refusal, ReplyTo};
use crate::{Compressors, checksum, compress, legacy};

/// The largest message, header included, that either side may send: `maxMessageSizeBytes` of `hello`.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;

pub(crate) const OP_REPLY: i32 = 1;
pub(crate) const OP_QUERY: i32 = 2004;
pub(crate) const OP_GET_MORE: i32 = 2005;
pub(crate) const OP_COMPRESSED: i32 = 2012;
pub(crate) const OP_MSG: i32 = 2013;

const KIND_BODY: u8 = 0;
const KIND_SEQUENCE: u8 = 1;
const KIND_SECURITY_TOKEN: u8 = 2;

/// Past so many sequences in one message their names are compared through a hash set: a stranger may send
/// millions, a driver sends one.
const SEQUENCES_COMPARED_MAX: usize = 8;

errors! {
    /// No section of kind 0.
    no_body() = 40587, "OP_MSG messages must have a body";
    /// Two sections of kind 0.
    two_bodies() = 40430, "Multiple body sections in message";
    /// Two sequences of one name.
    duplicate_sequence(name: &BStr) = 40431, "Duplicate document sequence: {name}";
    /// A sequence that is named as a field of the body.
    field_and_sequence(name: &BStr) = 40433,
        "Duplicate field between body and document sequence {name}";
    /// A section of a kind that does not exist.
    unknown_kind(kind: u8) = 40432, "Unknown section kind {kind}";
    /// A section of kind 2, which only a multi-tenant server takes.
    security_token() = Unauthorized, "Unsupported Security Token provided";
    /// The flag says checksum, and there is room for nothing else.
    no_room_for_checksum() = 51252, "Invalid message size for an OpMsg containing a checksum";
    /// A sequence's size runs past the message, or is smaller than itself.
    bad_advance(advance: u32, left: usize) = Overflow,
        "Invalid advance ({advance}) past end of buffer[{left}] at offset: 0";
    /// A sequence's size is cut.
    no_room_for_size(left: usize) = Overflow,
        "buffer size too small to read (4) bytes out of buffer[{left}] at offset: 0";
    /// A sequence's name does not end.
    endless_name(left: usize) = Overflow,
        "couldn't locate terminal char (\\u0000) in buffer[{left}] at offset: 0";
    /// A document of more than 16 MiB and 16 KiB.
    document_too_large(size: usize, size_max: usize, first: &str) = BSONObjectTooLarge,
        "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {size_max}(16MB) First element: {first}";
}

/// The first sixteen bytes of every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes of the message, header included; checked to be in `Header::SIZE ..= MESSAGE_BYTES_MAX`.
    pub length: usize,
    /// The sender's number for this message.
    pub request_id: i32,
    /// The number of the message that this one answers.
    pub response_to: i32,
    /// What follows.
    pub opcode: i32,
}

impl Header {
    /// The size of a header.
    pub const SIZE: usize = 16;

    /// Reads the header at the front of `bytes`; `None` while there are fewer than sixteen of them.
    ///
    /// Errors: a length that no message may have; the connection is closed, as mongod does.
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

/// The flag bits of an OP_MSG.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u32);

impl Flags {
    /// The message ends with a CRC-32C.
    pub const CHECKSUM_PRESENT: u32 = 1;
    /// No reply is expected; of a reply: another follows.
    pub const MORE_TO_COME: u32 = 1 << 1;
    /// The client takes several replies to this message.
    pub const EXHAUST_ALLOWED: u32 = 1 << 16;
    /// Bits that a receiver must know; it refuses others of them and ignores the rest.
    const REQUIRED: u32 = 0xffff;

    /// Whether all bits of `mask` are set.
    pub const fn has(self, mask: u32) -> bool {
        self.0 & mask == mask
    }
}

/// Where the parts of a message lie in its bytes, so that a message can move without being parsed again.
#[derive(Clone, Copy, Debug)]
struct Shape {
    reply_to: ReplyTo,
    flags: Flags,
    /// The body, as start and end.
    body: (usize, usize),
    /// The sections, as start and end; empty when there are no sequences.
    sections: (usize, usize),
    /// The database that an OP_QUERY names, as start and end.
    query_db: Option<(usize, usize)>,
}

/// One request: a body, document sequences, and how to answer.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    shape: Shape,
}

impl<'a> Message<'a> {
    /// Parses the whole message in `frame`, which is as long as its header says.
    ///
    /// A compressed message is decompressed into `inflated`, and the result borrows from there.
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
                let shape = Shape {
                    reply_to,
                    flags: Flags::default(),
                    body: query.body,
                    sections: (0, 0),
                    query_db: Some(query.db),
                };
                Ok(Message { bytes: frame, shape })
            }
            opcode => Err(legacy::refuse(reply_to, opcode, frame)),
        }
    }

    /// The bytes of the message, uncompressed, header included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The command.
    pub fn body(&self) -> Doc<'a> {
        Doc::trusted(slice(self.bytes, self.shape.body))
    }

    /// The document sequences in order.
    pub fn sequences(&self) -> Sequences<'a> {
        Sequences { rest: slice(self.bytes, self.shape.sections) }
    }

    /// The document sequence named `name`.
    pub fn sequence(&self, name: impl AsRef<[u8]>) -> Option<Sequence<'a>> {
        let name = name.as_ref();
        self.sequences().find(|sequence| sequence.name == name)
    }

    /// The flag bits; none for an OP_QUERY.
    pub fn flags(&self) -> Flags {
        self.shape.flags
    }

    /// Whether the client takes a stream of replies.
    pub fn exhaust_allowed(&self) -> bool {
        // A client that wants no reply wants no stream of them either.
        self.shape.flags.has(Flags::EXHAUST_ALLOWED) && !self.more_to_come()
    }

    /// Whether the client wants no reply.
    pub fn more_to_come(&self) -> bool {
        self.shape.flags.has(Flags::MORE_TO_COME)
    }

    /// The database of an OP_QUERY, which stands outside its body; `None` for an OP_MSG, whose body has `$db`.
    ///
    /// The name is a stranger's: it may be empty or hold characters that no name may have.
    pub fn query_db(&self) -> Option<&'a BStr> {
        self.shape.query_db.map(|at| slice(self.bytes, at).as_bstr())
    }

    /// What a reply must know of its request.
    pub fn reply_to(&self) -> ReplyTo {
        self.shape.reply_to
    }

    /// The same message as if its number were `request_id`: each reply of an exhaust stream answers the one
    /// before it.
    #[must_use]
    pub fn with_request_id(mut self, request_id: i32) -> Self {
        self.shape.reply_to.request_id = request_id;
        self
    }

    /// A copy that owns its bytes.
    pub fn to_owned(&self) -> OwnedMessage {
        OwnedMessage { bytes: self.bytes.to_vec(), shape: self.shape }
    }
}

/// A message that owns its bytes, to be carried to another thread; nothing is parsed again.
#[derive(Clone, Debug)]
pub struct OwnedMessage {
    bytes: Vec<u8>,
    shape: Shape,
}

impl OwnedMessage {
    /// The message, borrowed.
    pub fn as_message(&self) -> Message<'_> {
        Message { bytes: &self.bytes, shape: self.shape }
    }

    /// Changes the number that the next reply answers; see [`Message::with_request_id`].
    pub fn set_request_id(&mut self, request_id: i32) {
        self.shape.reply_to.request_id = request_id;
    }
}

/// The document sequences of a message in order.
#[derive(Clone, Debug)]
pub struct Sequences<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Sequences<'a> {
    type Item = Sequence<'a>;

    fn next(&mut self) -> Option<Sequence<'a>> {
        // The sections were checked when the message was parsed; where that is broken after all, it ends.
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

/// A document sequence: documents of one field of the command, sent beside its body.
#[derive(Clone, Debug)]
pub struct Sequence<'a> {
    /// The name of the field, such as `documents`.
    pub name: &'a BStr,
    /// The documents.
    pub docs: Docs<'a>,
}

/// Validated documents that lie one behind the other.
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

fn parse_msg(mut reply_to: ReplyTo, frame: &[u8]) -> Result<Message<'_>, Refusal> {
    let payload = frame.get(Header::SIZE..).unwrap_or_default();
    let bits = i32_front(payload).ok_or(Refusal::Close("OP_MSG has no flags"))?;
    let flags = Flags(bits.cast_unsigned());
    if flags.0 & Flags::REQUIRED & !(Flags::CHECKSUM_PRESENT | Flags::MORE_TO_COME) != 0 {
        return Err(Refusal::Close("OP_MSG sets a required flag that is not known"));
    }
    reply_to.checksum = flags.has(Flags::CHECKSUM_PRESENT);
    reply_to.more_to_come = flags.has(Flags::MORE_TO_COME);
    let answer = |error: Error| Refusal::Answer { error, reply_to };
    let start = Header::SIZE + 4;
    let mut end = frame.len();
    if reply_to.checksum {
        end = frame.len().saturating_sub(checksum::SIZE);
        if end <= start {
            return Err(answer(no_room_for_checksum()));
        }
    }
    let (body, sequences) = parse_sections(frame, start, end).map_err(answer)?;
    // After the sections, as mongod does: a message that is broken both ways is answered.
    if reply_to.checksum {
        let sum = frame.get(end..).and_then(i32_front).map(i32::cast_unsigned);
        if sum != Some(checksum::of(slice(frame, (0, end)), &[])) {
            return Err(Refusal::Close("OP_MSG checksum does not match"));
        }
    }
    let sections = if sequences == 0 { (0, 0) } else { (start, end) };
    let shape = Shape { reply_to, flags, body, sections, query_db: None };
    let message = Message { bytes: frame, shape };
    check_names(&message, sequences).map_err(answer)?;
    Ok(message)
}

/// Walks and validates the sections in `start..end` of `frame`; returns the body's place and the number of sequences.
fn parse_sections(
    frame: &[u8],
    start: usize,
    end: usize,
) -> Result<((usize, usize), usize), Error> {
    let mut body = None;
    let mut sequences = 0;
    let mut at = start;
    while at < end {
        let rest = slice(frame, (at, end));
        let Some((&kind, rest)) = rest.split_first() else { break };
        at += 1;
        match kind {
            KIND_BODY => {
                if body.is_some() {
                    return Err(two_bodies());
                }
                let size = validate_front(rest)?;
                body = Some((at, at + size));
                at += size;
            }
            KIND_SEQUENCE => {
                at += validate_sequence(rest)?;
                sequences += 1;
            }
            KIND_SECURITY_TOKEN => return Err(security_token()),
            kind => return Err(unknown_kind(kind)),
        }
    }
    Ok((body.ok_or_else(no_body)?, sequences))
}

/// Validates the sequence section at the front of `rest`, behind its kind byte; returns its size.
fn validate_sequence(rest: &[u8]) -> Result<usize, Error> {
    let size = i32_front(rest).ok_or_else(|| no_room_for_size(rest.len()))?;
    let after_size = rest.get(4..).unwrap_or_default();
    let content = usize::try_from(size)
        .ok()
        .and_then(|size| size.checked_sub(4))
        .and_then(|content| after_size.get(..content))
        .ok_or_else(|| bad_advance(size.wrapping_sub(4).cast_unsigned(), after_size.len()))?;
    let name_end = memchr::memchr(0, content).ok_or_else(|| endless_name(content.len()))?;
    let mut docs = content.get(name_end + 1..).unwrap_or_default();
    while !docs.is_empty() {
        let size = validate_front(docs)?;
        docs = docs.get(size..).unwrap_or_default();
    }
    Ok(4 + content.len())
}

/// Validates the document at the front of `bytes`, which may hold more; returns its size.
pub(crate) fn validate_front(bytes: &[u8]) -> Result<usize, Error> {
    // Fewer bytes than the least document has are too few, whatever length they begin with.
    let bytes = if bytes.len() < Doc::EMPTY.as_bytes().len() { &[] } else { bytes };
    // A document that is too large is otherwise sound when mongod says so, and names its first field.
    let limits = Limits { bytes_max: MESSAGE_BYTES_MAX, ..Limits::MESSAGE };
    let doc = validate(bytes, limits)
        .map_err(|malformed| Error::new(malformed.code(), malformed.to_string()))?;
    check_size(doc)?;
    Ok(doc.as_bytes().len())
}

/// Refuses a document that is larger than a message's documents may be.
pub(crate) fn check_size(doc: Doc<'_>) -> Result<(), Error> {
    let size = doc.as_bytes().len();
    if size <= Limits::MESSAGE.bytes_max {
        return Ok(());
    }
    let first = doc.iter().next().map_or(String::from("EOO"), |element| element.to_string());
    Err(document_too_large(size, Limits::MESSAGE.bytes_max, &first))
}

/// Refuses sequences of one name, and a sequence that is named as a field of the body.
fn check_names(message: &Message<'_>, sequences: usize) -> Result<(), Error> {
    if sequences > SEQUENCES_COMPARED_MAX {
        return check_many_names(message);
    }
    for (index, sequence) in message.sequences().enumerate() {
        if message.sequences().take(index).any(|earlier| earlier.name == sequence.name) {
            return Err(duplicate_sequence(sequence.name));
        }
    }
    match message.sequences().find(|sequence| message.body().get_raw(sequence.name).is_some()) {
        Some(sequence) => Err(field_and_sequence(sequence.name)),
        None => Ok(()),
    }
}

fn check_many_names(message: &Message<'_>) -> Result<(), Error> {
    let mut names = HashSet::new();
    for sequence in message.sequences() {
        if !names.insert(sequence.name) {
            return Err(duplicate_sequence(sequence.name));
        }
    }
    match message.body().iter().find(|element| names.contains(element.name)) {
        Some(element) => Err(field_and_sequence(element.name)),
        None => Ok(()),
    }
}

/// The bytes in `at`, or none where that is out of range.
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
