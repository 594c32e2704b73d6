//! Checks the sections of an OP_MSG.

use std::collections::HashSet;

use bstr::BStr;
use marula_bson::Doc;
use marula_bson::validate::{Limits, validate};
use marula_error::{Error, errors};

use super::{Flags, Header, MESSAGE_BYTES_MAX, Message, MessageLayout, i32_front, slice};
use crate::checksum;
use crate::reply::{Refusal, ReplyTo};

const KIND_BODY: u8 = 0;
pub(super) const KIND_SEQUENCE: u8 = 1;
const KIND_SECURITY_TOKEN: u8 = 2;

/// Above this number of sequences in one message, their names are compared through a hash set: a
/// hostile client may send millions, a driver sends one.
const SEQUENCES_COMPARED_MAX: usize = 8;

errors! {
    /// No section of kind 0.
    no_body() = 40587, "OP_MSG messages must have a body";
    /// Two sections of kind 0.
    two_bodies() = 40430, "Multiple body sections in message";
    /// Two sequences have the same name.
    duplicate_sequence(name: &BStr) = 40431, "Duplicate document sequence: {name}";
    /// A sequence has the name of a field of the body.
    field_and_sequence(name: &BStr) = 40433,
        "Duplicate field between body and document sequence {name}";
    /// The kind of a section does not exist.
    unknown_kind(kind: u8) = 40432, "Unknown section kind {kind}";
    /// A section has kind 2, which only a multi-tenant server accepts.
    security_token() = Unauthorized, "Unsupported Security Token provided";
    /// The checksum flag is set, but the message has no room for sections.
    no_room_for_checksum() = 51252, "Invalid message size for an OpMsg containing a checksum";
    /// A sequence's size exceeds the message, or is smaller than the size field.
    bad_advance(advance: u32, left: usize) = Overflow,
        "Invalid advance ({advance}) past end of buffer[{left}] at offset: 0";
    /// A sequence's size is cut.
    no_room_for_size(left: usize) = Overflow,
        "buffer size too small to read (4) bytes out of buffer[{left}] at offset: 0";
    /// A sequence's name has no terminator.
    endless_name(left: usize) = Overflow,
        "couldn't locate terminal char (\\u0000) in buffer[{left}] at offset: 0";
    /// A document is larger than 16 MiB and 16 KiB.
    document_too_large(size: usize, size_max: usize, first: &str) = BSONObjectTooLarge,
        "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {size_max}(16MB) First element: {first}";
}

/// Parses the OP_MSG in `frame`.
pub(super) fn parse_msg(mut reply_to: ReplyTo, frame: &[u8]) -> Result<Message<'_>, Refusal> {
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
    // The checksum is checked after the sections, as in mongod: a message that is broken both ways
    // gets an error reply.
    if reply_to.checksum {
        let sum = frame.get(end..).and_then(i32_front).map(i32::cast_unsigned);
        if sum != Some(checksum::of(slice(frame, (0, end)), &[])) {
            return Err(Refusal::Close("OP_MSG checksum does not match"));
        }
    }
    let sections = if sequences == 0 { (0, 0) } else { (start, end) };
    let layout = MessageLayout { reply_to, flags, body, sections, query_db: None };
    let message = Message { bytes: frame, layout };
    check_names(&message, sequences).map_err(answer)?;
    Ok(message)
}

/// Validates the sections in `start..end` of `frame`; returns the range of the body and the number
/// of sequences.
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

/// Validates the sequence section at the front of `rest`, after its kind byte; returns its size.
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
    // A slice shorter than the smallest document is too short, whatever length it claims.
    let bytes = if bytes.len() < Doc::EMPTY.as_bytes().len() { &[] } else { bytes };
    // mongod validates a document that is too large before it reports the size, and names its first
    // field; the limit is raised here for that.
    let limits = Limits { bytes_max: MESSAGE_BYTES_MAX, ..Limits::MESSAGE };
    let doc = validate(bytes, limits)
        .map_err(|malformed| Error::new(malformed.code(), malformed.to_string()))?;
    check_size(doc)?;
    Ok(doc.as_bytes().len())
}

/// Refuses a document that exceeds the size limit of documents in messages.
pub(crate) fn check_size(doc: Doc<'_>) -> Result<(), Error> {
    let size = doc.as_bytes().len();
    if size <= Limits::MESSAGE.bytes_max {
        return Ok(());
    }
    let first = doc.iter().next().map_or(String::from("EOO"), |element| element.to_string());
    Err(document_too_large(size, Limits::MESSAGE.bytes_max, &first))
}

/// Refuses duplicate sequence names and a sequence with the name of a field of the body.
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
