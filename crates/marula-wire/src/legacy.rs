//! The old message forms: OP_QUERY, in which a driver may send its first hello, and the removed
//! operations.
//!
//! ```text
//! OP_QUERY              bytes  content
//! flags                 4      i32; bit 6 exhaust
//! fullCollectionName    …      NUL-terminated; `<db>.$cmd` for a command
//! numberToSkip          4      i32, ignored for a command
//! numberToReturn        4      i32; 1 or -1 for a command
//! query                 …      the command, or `{ $query: <command>, … }`
//! returnFieldsSelector  …      optional document, ignored for a command
//! ```
//!
//! mongod 6.0 accepts a few commands in this form, replies to the rest and to OP_GET_MORE with an
//! error that asks for a newer driver, and closes the connection on the other opcodes.

use bstr::{BStr, ByteSlice};
use marula_bson::{Doc, Value};
use marula_error::{Error, errors};

use crate::message::{Header, OP_COMPRESSED, OP_GET_MORE, i32_front, slice, validate_front};
use crate::reply::{Form, Refusal, ReplyTo};

/// The collection name of a command in an OP_QUERY.
const COMMAND_SUFFIX: &[u8] = b".$cmd";
/// The exhaust flag of an OP_QUERY.
const QUERY_EXHAUST: i32 = 1 << 6;
/// The opcode zero, which mongod ignores.
const OP_NONE: i32 = 0;

/// The commands that may come as OP_QUERY: those a driver needs before it knows the server.
const QUERY_COMMANDS: &[&str] = &[
    "hello",
    "isMaster",
    "ismaster",
    "_isSelf",
    "saslStart",
    "saslContinue",
    "authenticate",
    "buildInfo",
    "buildinfo",
];

errors! {
    /// A removed operation; the reply has `$err`.
    removed(name: &str) = 5_739_101, "{name} is no longer supported. The client driver may require an upgrade. For more details see https://dochub.mongodb.org/core/legacy-opcode-removal";
    /// A command that may not come as OP_QUERY.
    unsupported_command(name: &BStr) = UnsupportedOpQueryCommand, "Unsupported OP_QUERY command: {name}. The client driver may require an upgrade. For more details see https://dochub.mongodb.org/core/legacy-opcode-removal";
    /// The message ends inside its numeric fields.
    cut() = 18634, "Not enough data to read";
    /// The message ends before its document.
    no_document() = InvalidBSON, "Client Error: Remaining data too small for BSON object";
    /// The command asks for more than one reply.
    bad_number_to_return(count: i32) = 16979,
        "Bad numberToReturn ({count}) for $cmd type ns - can only be 1 or -1";
    /// The command asks for a stream of replies, which only OP_MSG supports.
    exhaust_command(ns: &BStr, command: Doc<'_>) = 18527,
        "The 'exhaust' OP_QUERY flag is invalid for commands: {ns} {command}";
    /// `$query` is not a document.
    query_not_an_object(name: &str) = 10065, "invalid parameter: expected an object ({name})";
    /// The body has `$db`; in an OP_QUERY the collection name holds the database.
    db_in_query() = 40621, "$db is not allowed in OP_QUERY requests";
}

/// The parts of an OP_QUERY command in its message, each as start and end.
pub(crate) struct Query {
    pub(crate) db: (usize, usize),
    pub(crate) body: (usize, usize),
}

/// Finds the command in the OP_QUERY message `frame`.
///
/// Errors: an OP_QUERY that is not an accepted command is refused with an error reply.
pub(crate) fn parse_query(reply_to: ReplyTo, frame: &[u8]) -> Result<Query, Refusal> {
    let closed = Refusal::Close("OP_QUERY is cut");
    let flags = frame.get(Header::SIZE..).and_then(i32_front).ok_or(closed.clone())?;
    let ns_start = Header::SIZE + 4;
    let after_flags = frame.get(ns_start..).unwrap_or_default();
    let ns = memchr::memchr(0, after_flags).and_then(|end| after_flags.get(..end)).ok_or(closed)?;
    let Some(db) = ns.strip_suffix(COMMAND_SUFFIX) else {
        let reply_to = ReplyTo { form: Form::QueryFailure, ..reply_to };
        return Err(Refusal::Answer { error: removed("OP_QUERY"), reply_to });
    };
    let numbers = ns_start + ns.len() + 1;
    let body = parse_command(frame, flags, ns.as_bstr(), numbers)
        .map_err(|error| Refusal::Answer { error, reply_to })?;
    Ok(Query { db: (ns_start, ns_start + db.len()), body })
}

/// Checks the fields after the namespace of an OP_QUERY command and returns the command's range.
fn parse_command(
    frame: &[u8],
    flags: i32,
    ns: &BStr,
    numbers: usize,
) -> Result<(usize, usize), Error> {
    let count = frame.get(numbers + 4..).and_then(i32_front).ok_or_else(cut)?;
    let start = numbers + 8;
    let outer = (start, start + document_front(frame, start)?);
    if outer.1 < frame.len() {
        document_front(frame, outer.1)?;
    }
    let command = Doc::trusted(slice(frame, outer));
    if flags & QUERY_EXHAUST != 0 {
        return Err(exhaust_command(ns, command));
    }
    if count != 1 && count != -1 {
        return Err(bad_number_to_return(count));
    }
    let body = unwrap_query(frame, outer)?;
    let command = Doc::trusted(slice(frame, body));
    if command.get_raw(b"$db").is_some() {
        return Err(db_in_query());
    }
    // An empty command is named by `$db`, the field that mongod appends to the client's fields.
    let name = command.iter().next().map_or(b"$db".as_bstr(), |element| element.name);
    if !QUERY_COMMANDS.iter().any(|command| name == *command) {
        return Err(unsupported_command(name));
    }
    Ok(body)
}

/// The range of the command inside `{ $query: <command>, … }`, or `outer` when it is not wrapped.
fn unwrap_query(frame: &[u8], outer: (usize, usize)) -> Result<(usize, usize), Error> {
    let Some(first) = Doc::trusted(slice(frame, outer)).iter().next() else { return Ok(outer) };
    let name = match first.name.as_bytes() {
        b"$query" => "$query",
        b"query" => "query",
        _ => return Ok(outer),
    };
    let Value::Document(inner) = first.value.get() else {
        return Err(query_not_an_object(name));
    };
    // The inner document follows the outer length, the tag, the name and its NUL.
    let start = outer.0 + 4 + 1 + name.len() + 1;
    Ok((start, start + inner.as_bytes().len()))
}

/// Validates the document of an OP_QUERY that begins at `start`; returns its size.
fn document_front(frame: &[u8], start: usize) -> Result<usize, Error> {
    let bytes = frame.get(start..).unwrap_or_default();
    if bytes.len() < Doc::EMPTY.as_bytes().len() {
        return Err(no_document());
    }
    validate_front(bytes).map_err(bad_object)
}

/// Prefixes an error in a document with the fact that it came in an OP_QUERY.
fn bad_object(error: Error) -> Error {
    Error::new(error.code(), format!("Client Error: bad object in message: {}", error.message()))
}

/// mongod's reaction to an opcode that carries no command.
pub(crate) fn refuse(reply_to: ReplyTo, opcode: i32, frame: &[u8]) -> Refusal {
    match opcode {
        // Opcode zero and a compressed message inside a compressed message get no reply.
        OP_NONE | OP_COMPRESSED => Refusal::Ignore,
        OP_GET_MORE if names_collection(frame) => {
            let reply_to = ReplyTo { form: Form::QueryFailure, ..reply_to };
            Refusal::Answer { error: removed("OP_GET_MORE"), reply_to }
        }
        _ => Refusal::Close("opcode is not supported"),
    }
}

/// Returns whether the namespace of a legacy message is terminated inside it.
fn names_collection(frame: &[u8]) -> bool {
    frame.get(Header::SIZE + 4..).is_some_and(|rest| memchr::memchr(0, rest).is_some())
}
