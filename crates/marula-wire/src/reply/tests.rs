//! Replies, compared by their bytes.

use marula_bson::{DocBuf, doc};

use super::*;
use crate::Compressor;
use crate::message::i32_front;

/// Writes one reply after another; returns its bytes.
fn reply(reply_to: ReplyTo, more_to_come: bool, write: impl FnOnce(&mut ReplyBuffer)) -> Vec<u8> {
    let mut buffer = ReplyBuffer::new();
    buffer.begin(ReplyTo { form: Form::Msg, ..reply_to });
    buffer.body().append("before", 1);
    buffer.finish(false);
    let start = buffer.as_bytes().len();
    buffer.begin(reply_to);
    assert!(!buffer.is_written());
    write(&mut buffer);
    assert!(buffer.is_written());
    let logical = buffer.finish(more_to_come);
    let bytes = buffer.split_off(start);
    assert_eq!(buffer.as_bytes().len(), start);
    let header = Header::parse(&bytes).unwrap().unwrap();
    assert_eq!(header.length, bytes.len());
    assert_eq!(header.response_to, 7);
    assert_eq!(header.request_id, buffer.last_id());
    assert!(reply_to.compressor.is_some() || logical == bytes.len());
    bytes
}

fn to(form: Form) -> ReplyTo {
    ReplyTo { request_id: 7, form, checksum: false, more_to_come: false, compressor: None }
}

fn check(bytes: &[u8], opcode: i32, prefix: &[u8], expected: &DocBuf) {
    assert_eq!(Header::parse(bytes).unwrap().unwrap().opcode, opcode);
    assert_eq!(&bytes[16..16 + prefix.len()], prefix);
    assert_eq!(&DocBuf::trusted(bytes[16 + prefix.len()..].to_vec()), expected);
}

const QUERY_REPLY: [u8; 20] = [8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];

#[test]
fn each_form_has_its_frame() {
    let ok = doc! { "ok": 1.0 };
    let write = |buffer: &mut ReplyBuffer| _ = buffer.body().append("ok", 1.0);
    check(&reply(to(Form::Msg), false, write), OP_MSG, &[0; 5], &ok);
    check(&reply(to(Form::Msg), true, write), OP_MSG, &[2, 0, 0, 0, 0], &ok);
    check(&reply(to(Form::QueryReply), false, write), OP_REPLY, &QUERY_REPLY, &ok);
}

#[test]
fn an_error_replaces_what_was_written() {
    let error = Error::new(112, "conflict")
        .with_label("TransientTransactionError")
        .with_fields(doc! { "keyPattern": { "a": 1 } }.as_doc().elements_bytes().to_vec());
    let expected = doc! {
        "errorLabels": ["TransientTransactionError"],
        "ok": 0.0,
        "errmsg": "conflict",
        "code": 112,
        "codeName": "WriteConflict",
        "keyPattern": { "a": 1 },
    };
    let write = |buffer: &mut ReplyBuffer| {
        buffer.body().append("half", "done");
        buffer.error(&error);
    };
    check(&reply(to(Form::Msg), false, write), OP_MSG, &[0; 5], &expected);
    check(&reply(to(Form::QueryReply), false, write), OP_REPLY, &QUERY_REPLY, &expected);
    let mut failure = QUERY_REPLY;
    failure[0] = 2;
    let expected = doc! { "$err": "conflict", "code": 112, "ok": 0.0 };
    check(&reply(to(Form::QueryFailure), false, write), OP_REPLY, &failure, &expected);
}

#[test]
fn a_reply_that_is_too_large_is_an_error() {
    let limit = 16 * 1024 * 1024 + 16 * 1024;
    // The bytes around the string: the document's length and end, the field's tag and name, the
    // string's length and end.
    let around = 5 + 3 + 5;
    let write = |size: usize| {
        let text = "x".repeat(size - around);
        reply(to(Form::Msg), true, |buffer| _ = buffer.body().append("x", text.as_str()))
    };
    assert_eq!(write(limit).len(), 16 + 5 + limit);
    let bytes = write(limit + 1);
    assert_eq!(bytes[16], 0, "no more replies follow");
    assert_eq!(Doc::trusted(&bytes[21..]).get("code"), Some(10334.into()));
}

#[test]
fn a_checksum_covers_the_whole_reply() {
    let reply_to = ReplyTo { checksum: true, ..to(Form::Msg) };
    let bytes = reply(reply_to, false, |buffer| _ = buffer.body().append("ok", 1.0));
    let (covered, sum) = bytes.split_at(bytes.len() - 4);
    assert_eq!(covered[16], 1);
    assert_eq!(i32_front(sum).unwrap().cast_unsigned(), checksum::of(covered, &[]));
}

#[test]
fn a_compressed_reply_says_what_it_was() {
    for compressor in Compressor::ALL {
        let text = "x".repeat(1_000);
        let reply_to = ReplyTo { compressor: Some(compressor), ..to(Form::QueryReply) };
        let bytes = reply(reply_to, false, |buffer| _ = buffer.body().append("x", text.as_str()));
        assert_eq!(i32_front(&bytes[12..]), Some(2012));
        assert_eq!(i32_front(&bytes[16..]), Some(OP_REPLY));
        assert_eq!(i32_front(&bytes[20..]), Some(20 + 1_013));
        assert_eq!(bytes[24], compressor.id());
        assert!(compressor == Compressor::Noop || bytes.len() < 200, "{compressor:?}");
    }
}

#[test]
fn an_abandoned_reply_leaves_nothing() {
    let mut buffer = ReplyBuffer::new();
    buffer.begin(to(Form::Msg));
    buffer.body().append("x", 1);
    buffer.abandon();
    assert!(buffer.as_bytes().is_empty());
    buffer.begin(to(Form::Msg));
    buffer.abandon();
    assert!(buffer.take().is_empty());
}
