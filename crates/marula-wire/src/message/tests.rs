//! Valid and invalid messages. The expected results of the invalid ones were recorded from mongod
//! 6.0.

use marula_bson::{DocBuf, Value, doc};

use super::*;
use crate::{Compressor, OwnedMessage, ReplyBuffer, checksum};

/// The server's reaction to a message.
#[derive(PartialEq, Debug)]
enum Outcome {
    /// Runs the command: the body's first field, and the sequences with their numbers of documents.
    Runs(String, Vec<(String, usize)>),
    /// Replies with this code and message.
    Answers(i32, String),
    Closes,
    Ignores,
}

fn runs(first: &str, sequences: &[(&str, usize)]) -> Outcome {
    let sequences = sequences.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Outcome::Runs(first.to_owned(), sequences)
}

fn answers(code: i32, message: &str) -> Outcome {
    Outcome::Answers(code, message.to_owned())
}

fn outcome(frame: &[u8]) -> Outcome {
    let mut inflated = Vec::new();
    match Message::parse(frame, &mut inflated, Compressors::DEFAULT) {
        Ok(message) => {
            let first = message.body().iter().next().map_or(String::new(), |e| e.name.to_string());
            let sequences = message
                .sequences()
                .map(|sequence| (sequence.name.to_string(), sequence.docs.count()))
                .collect();
            Outcome::Runs(first, sequences)
        }
        Err(Refusal::Answer { error, .. }) => {
            Outcome::Answers(error.code().number(), error.message().to_owned())
        }
        Err(Refusal::Close(_)) => Outcome::Closes,
        Err(Refusal::Ignore) => Outcome::Ignores,
    }
}

fn check(name: &str, frame: &[u8], expected: &Outcome) {
    assert_eq!(&outcome(frame), expected, "{name}");
}

fn frame(opcode: i32, payload: &[u8]) -> Vec<u8> {
    let length = Header::SIZE + payload.len();
    let header = Header { length, request_id: 42, response_to: 0, opcode };
    [&header.to_bytes(), payload].concat()
}

fn msg(flags: u32, sections: &[&[u8]]) -> Vec<u8> {
    frame(OP_MSG, &[&flags.to_le_bytes(), sections.concat().as_slice()].concat())
}

/// A section: its kind byte and `content`.
fn section(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind], content].concat()
}

fn body() -> Vec<u8> {
    section(0, &doc! { "ping": 1, "$db": "test" })
}

fn sequence_of_size(size: i32, content: &[u8]) -> Vec<u8> {
    section(1, &[&size.to_le_bytes(), content].concat())
}

fn sequence(name: &str, docs: &[DocBuf]) -> Vec<u8> {
    let docs: Vec<u8> = docs.iter().flat_map(|doc| doc.iter().copied()).collect();
    let content = [name.as_bytes(), &[0], &docs].concat();
    sequence_of_size(i32::try_from(content.len() + 4).unwrap(), &content)
}

/// Appends the checksum to a message whose checksum flag is set.
fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    let length = i32::try_from(frame.len() + checksum::SIZE).unwrap();
    frame[..4].copy_from_slice(&length.to_le_bytes());
    let sum = checksum::of(&frame, &[]);
    frame.extend_from_slice(&sum.to_le_bytes());
    frame
}

#[test]
fn whole_messages_are_taken_apart() {
    let docs = [doc! { "_id": 1 }, doc! {}, doc! { "_id": 3 }];
    check("a body", &msg(0, &[&body()]), &runs("ping", &[]));
    check("optional flags", &msg(1 << 16 | 1 << 20, &[&body()]), &runs("ping", &[]));
    check("a checksum", &summed(msg(1, &[&body()])), &runs("ping", &[]));
    check("an empty body", &msg(0, &[&section(0, &doc! {})]), &runs("", &[]));
    let sections = [body(), sequence("documents", &docs), sequence("", &[])];
    let expected = runs("ping", &[("documents", 3), ("", 0)]);
    check("sequences", &msg(0, &[&sections[0], &sections[1], &sections[2]]), &expected);
    check("a body last", &msg(0, &[&sections[1], &sections[2], &sections[0]]), &expected);
}

#[test]
fn parts_can_be_read() {
    let sections = [sequence("a", &[doc! { "x": 1 }]), body(), sequence("b", &[doc! { "x": 2 }])];
    let frame = summed(msg(1 | 1 << 16, &[&sections[0], &sections[1], &sections[2]]));
    let mut inflated = Vec::new();
    let message = Message::parse(&frame, &mut inflated, Compressors::NONE).unwrap();
    let owned: OwnedMessage = message.to_owned();
    for message in [message, owned.as_message()] {
        assert_eq!(message.body().get("ping"), Some(Value::Int32(1)));
        let b: Vec<_> = message.sequence("b").unwrap().docs.collect();
        assert_eq!(b, [doc! { "x": 2 }.as_doc()]);
        assert!(message.sequence("c").is_none());
        assert!(message.exhaust_allowed());
        assert!(!message.more_to_come());
        assert_eq!(message.query_db(), None);
        assert_eq!(message.reply_to().request_id, 42);
        assert!(message.reply_to().checksum);
    }
}

#[test]
fn broken_frames_close() {
    let whole = msg(0, &[&body()]);
    check("longer than it says", &[whole.as_slice(), b"x"].concat(), &Outcome::Closes);
    check("shorter than it says", &whole[..whole.len() - 1], &Outcome::Closes);
    check("no header", &whole[..15], &Outcome::Closes);
    check("no flags", &frame(OP_MSG, &[]), &Outcome::Closes);
    check("half flags", &frame(OP_MSG, &[0, 0]), &Outcome::Closes);
    for bit in 2..16 {
        check("a required flag", &msg(1 << bit, &[&body()]), &Outcome::Closes);
    }
    let mut wrong = summed(msg(1, &[&body()]));
    *wrong.last_mut().unwrap() ^= 1;
    check("a wrong checksum", &wrong, &Outcome::Closes);
    for opcode in [1, 1000, 2001, 2002, 2006, 2007, 2010, 2011, 2999, -1] {
        check("a strange opcode", &frame(opcode, &[0; 8]), &Outcome::Closes);
    }
    check("opcode zero", &frame(0, &[0; 8]), &Outcome::Ignores);
    for length in [0, 15, -1, i32::MIN, 48_000_001, i32::MAX] {
        let bytes = [length.to_le_bytes().as_slice(), &[0; 12]].concat();
        assert!(matches!(frame_length(&bytes), Err(Refusal::Close(_))), "{length}");
    }
    assert_eq!(frame_length(&[0xff; 15]), Ok(None));
    assert_eq!(frame_length(&frame(OP_MSG, &[])), Ok(Some(16)));
}

#[test]
fn broken_sections_are_answered() {
    let at = "in element with field name '?' in object with unknown _id";
    let short = answers(22, &format!("BSON data has to be at least 5 bytes {at}"));
    let none = answers(40587, "OP_MSG messages must have a body");
    check("nothing", &msg(0, &[]), &none);
    check("only a sequence", &msg(0, &[&sequence("a", &[doc! {}])]), &none);
    let two = answers(40430, "Multiple body sections in message");
    check("two bodies", &msg(0, &[&body(), &body()]), &two);
    check("a trailing zero", &msg(0, &[&body(), &[0]]), &two);
    check("kind 7", &msg(0, &[&section(7, b"x")]), &answers(40432, "Unknown section kind 7"));
    let token = answers(13, "Unsupported Security Token provided");
    check("kind 2", &msg(0, &[&section(2, b"x")]), &token);
    let room = answers(51252, "Invalid message size for an OpMsg containing a checksum");
    check("a checksum for nothing", &summed(msg(1, &[])), &room);
    check("no room for a checksum", &msg(1, &[&[0, 0]]), &room);
    for size in [-10_i32, 0, 4] {
        let bytes = [size.to_le_bytes().as_slice(), &[0; 9]].concat();
        check("a tiny body", &msg(0, &[&section(0, &bytes)]), &short);
    }
    check("a cut body", &msg(0, &[&section(0, &[7, 0, 0])]), &short);
    let long = [30_i32.to_le_bytes().as_slice(), &[0; 9]].concat();
    let incorrect = answers(22, &format!("Incorrect BSON length {at}"));
    check("a body past the end", &msg(0, &[&section(0, &long)]), &incorrect);
    let open = answers(22, &format!("BSON object not terminated with EOO {at}"));
    let text = "y".repeat(17 << 20);
    let large = doc! { "ping": 1, "x": text.as_str() };
    let too_large = answers(
        10334,
        "BSONObj size: 17825815 (0x1100017) is invalid. Size must be between 0 and 16793600(16MB) \
         First element: ping: 1",
    );
    check("a large body", &msg(0, &[&section(0, &large)]), &too_large);
    check("a body without end", &msg(0, &[&section(0, &[5, 0, 0, 0, 1])]), &open);
    check("… in a sequence", &msg(0, &[&sequence_of_size(10, &[97, 0, 5, 0, 0, 0, 1])]), &short);
    let mut unended = doc! {}.into_bytes();
    unended[4] = 1;
    let unended = sequence("a", &[DocBuf::trusted(unended)]);
    check("a document without end", &msg(0, &[&unended, &body()]), &open);
}

#[test]
fn broken_sequences_are_answered() {
    let check_size = |size: i32, advance: u32| {
        let frame = msg(0, &[&body(), &sequence_of_size(size, b"foo\0\x05\0\0\0\0")]);
        let text = format!("Invalid advance ({advance}) past end of buffer[9] at offset: 0");
        check("a sequence's size", &frame, &answers(15, &text));
    };
    check_size(3, u32::MAX);
    check_size(-3, u32::MAX - 6);
    check_size(3_000, 2_996);
    check_size(14, 10);
    let endless = answers(15, "couldn't locate terminal char (\\u0000) in buffer[3] at offset: 0");
    check("a name without end", &msg(0, &[&body(), &sequence_of_size(7, b"foo")]), &endless);
    let cut = answers(15, "buffer size too small to read (4) bytes out of buffer[2] at offset: 0");
    check("a cut size", &msg(0, &[&body(), &[1, 2, 0]]), &cut);
    let twice = answers(40431, "Duplicate document sequence: a");
    let a = sequence("a", &[doc! {}]);
    check("two of one name", &msg(0, &[&body(), &a, &a]), &twice);
    let named = answers(40433, "Duplicate field between body and document sequence ping");
    let ping = sequence("ping", &[]);
    check("a field's name", &msg(0, &[&body(), &ping]), &named);
    let many: Vec<u8> = (0..1_000).flat_map(|index| sequence(&format!("s{index}"), &[])).collect();
    let Outcome::Runs(_, sequences) = outcome(&msg(0, &[&body(), &many])) else { panic!() };
    assert_eq!(sequences.len(), 1_000);
    check("two of many", &msg(0, &[&body(), &many, &a, &a]), &twice);
    check("a field's name in many", &msg(0, &[&body(), &many, &ping]), &named);
}

fn query(flags: i32, ns: &str, count: i32, docs: &[&[u8]]) -> Vec<u8> {
    let numbers = [0, count].map(i32::to_le_bytes).concat();
    let docs = docs.concat();
    frame(OP_QUERY, &[&flags.to_le_bytes(), ns.as_bytes(), &[0], &numbers, &docs].concat())
}

#[test]
fn a_hello_may_come_as_op_query() {
    let hello = doc! { "hello": 1 };
    let wrapped = doc! { "$query": { "isMaster": 1 }, "$readPreference": { "mode": "nearest" } };
    for (command, first) in [(&hello, "hello"), (&wrapped, "isMaster")] {
        for count in [1, -1] {
            let frame = query(4, "admin.$cmd", count, &[command, &doc! { "_id": 1 }]);
            check("hello", &frame, &runs(first, &[]));
        }
    }
    let frame = query(0, "some db.$cmd", -1, &[&wrapped]);
    let mut inflated = Vec::new();
    let message = Message::parse(&frame, &mut inflated, Compressors::NONE).unwrap();
    assert_eq!(message.query_db().unwrap(), "some db");
    assert_eq!(message.body(), doc! { "isMaster": 1 }.as_doc());
    assert_eq!(message.reply_to().form, Form::QueryReply);
}

#[test]
fn other_old_operations_are_answered() {
    let check_query = |flags, ns: &str, count, docs: &[&[u8]], expected: Outcome| {
        check(ns, &query(flags, ns, count, docs), &expected);
    };
    let more = "The client driver may require an upgrade. For more details see \
                https://dochub.mongodb.org/core/legacy-opcode-removal";
    let gone = |name: &str| answers(5739101, &format!("{name} is no longer supported. {more}"));
    let unsupported =
        |name: &str| answers(352, &format!("Unsupported OP_QUERY command: {name}. {more}"));
    let hello: &[u8] = &doc! { "hello": 1 };
    check_query(0, "db.c", 0, &[hello], gone("OP_QUERY"));
    check_query(0, "", 0, &[], gone("OP_QUERY"));
    check_query(0, "$cmd", 0, &[hello], gone("OP_QUERY"));
    check_query(0, "db.$cmd.sys.inprog", 0, &[hello], gone("OP_QUERY"));
    check_query(0, "db.$cmd", -1, &[&doc! { "ping": 1 }], unsupported("ping"));
    check_query(0, "db.$cmd", -1, &[&doc! { "IsMaster": 1 }], unsupported("IsMaster"));
    check_query(0, "db.$cmd", -1, &[&doc! {}], unsupported("$db"));
    let nested = doc! { "$query": { "$query": { "hello": 1 } } };
    check_query(0, "db.$cmd", -1, &[&nested], unsupported("$query"));
    let text = "invalid parameter: expected an object ($query)";
    check_query(0, "db.$cmd", -1, &[&doc! { "$query": 1 }], answers(10065, text));
    let text = "$db is not allowed in OP_QUERY requests";
    check_query(0, "db.$cmd", -1, &[&doc! { "ping": 1, "$db": "a" }], answers(40621, text));
    let text = "Bad numberToReturn (-2) for $cmd type ns - can only be 1 or -1";
    check_query(0, "db.$cmd", -2, &[hello], answers(16979, text));
    let text = "The 'exhaust' OP_QUERY flag is invalid for commands: \
                db.$cmd { hello: { a: [ 1, \"x\" ] }, b: 1.5 }";
    let command = doc! { "hello": { "a": [1, "x"] }, "b": 1.5 };
    check_query(64, "db.$cmd", 0, &[&command], answers(18527, text));
    let text = "Client Error: Remaining data too small for BSON object";
    check_query(0, "db.$cmd", -1, &[b"zz"], answers(22, text));
    check_query(0, "db.$cmd", -1, &[hello, b"abc"], answers(22, text));
    let text = "Client Error: bad object in message: BSON object not terminated with EOO in \
                element with field name '?' in object with unknown _id";
    check_query(0, "db.$cmd", 0, &[&[5, 0, 0, 0, 1]], answers(22, text));
    check_query(0, "db.$cmd", -1, &[hello, &[5, 0, 0, 0, 1]], answers(22, text));
    let cut = frame(OP_QUERY, b"\0\0\0\0db.$cmd\0\0\0\0");
    check("cut numbers", &cut, &answers(18634, "Not enough data to read"));
    check("no end of the name", &frame(OP_QUERY, b"\0\0\0\0db"), &Outcome::Closes);
    check("no name", &frame(OP_QUERY, b"\0\0\0\0"), &Outcome::Closes);
    check("no flags", &frame(OP_QUERY, b"\0\0"), &Outcome::Closes);
    check("get more", &frame(OP_GET_MORE, b"\0\0\0\0db.c\0"), &gone("OP_GET_MORE"));
    check("cut get more", &frame(OP_GET_MORE, b"\0\0\0\0"), &Outcome::Closes);
}

fn reply_to(form: Form, checksum: bool, compressor: Option<Compressor>) -> ReplyTo {
    ReplyTo { request_id: 7, form, checksum, more_to_come: false, compressor }
}

/// Wraps a message in OP_COMPRESSED, as a [`ReplyBuffer`] does.
fn compressed(compressor: Compressor, body: &DocBuf, checksum: bool) -> Vec<u8> {
    let mut buffer = ReplyBuffer::new();
    buffer.begin(reply_to(Form::Msg, checksum, Some(compressor)));
    buffer.body().append_elements(body.as_doc().elements_bytes());
    buffer.finish(false);
    buffer.take()
}

#[test]
fn compressed_messages_are_taken_apart() {
    let all = Compressors::DEFAULT.with(Compressor::Noop);
    for text in ["".to_owned(), "x".repeat(1_000_000), "abcdefghijkl".to_owned()] {
        let body = doc! { "ping": text.as_str() };
        for compressor in Compressor::ALL {
            for checksum in [false, true] {
                let frame = compressed(compressor, &body, checksum);
                let mut inflated = Vec::new();
                let message = Message::parse(&frame, &mut inflated, all).unwrap();
                assert_eq!(message.body(), body.as_doc());
                assert_eq!(message.reply_to().compressor, Some(compressor));
                assert_eq!(message.reply_to().checksum, checksum);
                let refused = Message::parse(&frame, &mut inflated, Compressors::NONE);
                assert!(matches!(refused, Err(Refusal::Close(_))));
            }
        }
    }
}

#[test]
fn false_claims_of_size_close_and_take_no_memory() {
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let good = compressed(compressor, &doc! { "ping": "x".repeat(1_000).as_str() }, false);
        let size = i32_front(&good[20..]).unwrap();
        for claim in [size - 1, size + 1, 0, -1, 4_000_000, 47_999_984, 47_999_985, i32::MAX] {
            let mut bad = good.clone();
            bad[20..24].copy_from_slice(&claim.to_le_bytes());
            let mut inflated = Vec::new();
            let refused = Message::parse(&bad, &mut inflated, Compressors::DEFAULT);
            assert!(matches!(refused, Err(Refusal::Close(_))), "{compressor:?} {claim}");
            assert!(inflated.capacity() < 64 * 1024, "{compressor:?} {claim}");
        }
        for end in [16, 20, 24, 25, 30, good.len() - 1] {
            let cut = frame(OP_COMPRESSED, &good[16..end]);
            check("cut", &cut, &Outcome::Closes);
        }
    }
    check("an unknown compressor", &frame(OP_COMPRESSED, &[9; 40]), &Outcome::Closes);
    // A second stream may follow the first.
    let zlib = compressed(Compressor::Zlib, &doc! { "ping": 1 }, false);
    check(
        "trailing bytes",
        &frame(OP_COMPRESSED, &[&zlib[16..], b"zzz"].concat()),
        &runs("ping", &[]),
    );
    // A compressed message inside a compressed message.
    let mut nested = zlib;
    nested[16..20].copy_from_slice(&OP_COMPRESSED.to_le_bytes());
    check("nested", &nested, &Outcome::Ignores);
}

#[test]
fn no_bytes_make_it_panic() {
    let sections = [body(), sequence("documents", &[doc! { "_id": [1, { "a": "x" }] }, doc! {}])];
    let seeds = [
        msg(0, &[&sections[0], &sections[1]]),
        summed(msg(1, &[&sections[1], &sections[0]])),
        query(0, "db.$cmd", -1, &[&doc! { "$query": { "hello": 1 } }, &doc! {}]),
        frame(OP_GET_MORE, b"\0\0\0\0db.c\0"),
        compressed(Compressor::Snappy, &doc! { "ping": "x".repeat(99).as_str() }, true),
        compressed(Compressor::Zlib, &doc! { "ping": "x".repeat(99).as_str() }, false),
        compressed(Compressor::Zstd, &doc! { "ping": "x".repeat(99).as_str() }, false),
    ];
    // Sets every byte to every value and cuts the message after every byte; lengths are corrected.
    let mut inflated = Vec::new();
    for seed in &seeds {
        for at in 4..seed.len() {
            for value in 0..=255 {
                let mut bytes = seed.clone();
                bytes[at] = value;
                walk(&bytes, &mut inflated);
            }
            let mut cut = seed[..at.max(16)].to_vec();
            let length = i32::try_from(cut.len()).unwrap();
            cut[..4].copy_from_slice(&length.to_le_bytes());
            walk(&cut, &mut inflated);
        }
    }
}

/// Reads all parts of a message.
fn walk(bytes: &[u8], inflated: &mut Vec<u8>) {
    if let Ok(message) = Message::parse(bytes, inflated, Compressors::DEFAULT) {
        let docs = message.sequences().flat_map(|sequence| sequence.docs);
        let count = docs.chain([message.body()]).map(|doc| doc.iter().count()).sum::<usize>();
        assert!(count <= message.bytes().len());
    }
}
