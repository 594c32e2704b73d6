//! Any bytes as a message: parsed, walked, answered.
//!
//! The header's length is mended, and the opcode made one of those that lead somewhere, so that the
//! bytes reach what comes after them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marula_wire::{Compressor, Compressors, Header, Message, Refusal, ReplyBuffer};

const OPCODES: [i32; 4] = [2013, 2012, 2004, 2005];

fuzz_target!(|bytes: &[u8]| {
    let _ = Header::parse(bytes);
    let Some((&choice, payload)) = bytes.split_first() else { return };
    let header = Header {
        length: Header::SIZE + payload.len(),
        request_id: 1,
        response_to: 0,
        opcode: OPCODES[usize::from(choice) % OPCODES.len()],
    };
    let frame = [&header.to_bytes(), payload].concat();
    let mut inflated = Vec::new();
    let mut reply = ReplyBuffer::new();
    match Message::parse(&frame, &mut inflated, Compressors::DEFAULT.with(Compressor::Noop)) {
        Ok(message) => {
            let docs = message.sequences().flat_map(|sequence| sequence.docs);
            let size: usize = docs.chain([message.body()]).map(|doc| doc.as_bytes().len()).sum();
            assert!(size <= message.bytes().len());
            reply.begin(message.reply_to());
            reply.body().append_elements(message.body().elements_bytes());
            reply.finish(message.exhaust_allowed());
        }
        Err(Refusal::Answer { error, reply_to }) => {
            reply.begin(reply_to);
            reply.error(&error);
            reply.finish(false);
        }
        Err(Refusal::Close(_) | Refusal::Ignore) => return,
    }
    assert!(
        matches!(Header::parse(reply.as_bytes()), Ok(Some(header)) if header.length == reply.as_bytes().len())
    );
});
