//! Any bytes as the messages of a SCRAM conversation: answered, and never by letting in.
//!
//! The input is parted at its first NUL into the client's first and second message. A `*` in the
//! second represents the nonce of the server's reply, so that more than the comparison of nonces is
//! reached.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use marula_bson::{Binary, Value};
use marula_fuzz::{Client, is_ok, start};
use marula_server::Frame;

static FRAME: LazyLock<Frame> = LazyLock::new(|| start(None));

fuzz_target!(|bytes: &[u8]| {
    let Some((&options, messages)) = bytes.split_first() else { return };
    let mut parts = messages.splitn(2, |&byte| byte == 0);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mechanism = if options & 1 == 0 { "SCRAM-SHA-256" } else { "SCRAM-SHA-1" };
    let mut client = Client::connect(&FRAME);
    let reply = client.run(|command| {
        command.append("saslStart", 1);
        command.append("mechanism", mechanism);
        command.append("payload", Binary { subtype: 0, bytes: first });
        command.begin_doc("options").append("skipEmptyExchange", options & 2 == 0);
    });
    if is_ok(reply.as_doc()) {
        let payload = reply.as_doc().get("payload").expect("the server's message");
        let Value::Binary(payload) = payload else { panic!("the server's message is no binary") };
        let nonce = payload.bytes.strip_prefix(b"r=").expect("a nonce");
        let nonce = nonce.split(|&byte| byte == b',').next().unwrap_or_default();
        let mut message = Vec::new();
        for &byte in second {
            match byte {
                b'*' => message.extend_from_slice(nonce),
                _ => message.push(byte),
            }
        }
        let conversation = reply.as_doc().get("conversationId").expect("its number");
        let reply = client.run(|command| {
            command.append("saslContinue", 1);
            command.append("conversationId", conversation);
            command.append("payload", Binary { subtype: 0, bytes: &message });
        });
        assert!(!is_ok(reply.as_doc()), "let in without a password: {}", reply.as_doc());
    }
    let reply = client.run(|command| {
        command.append("listDatabases", 1);
    });
    assert!(!is_ok(reply.as_doc()), "answered without a login: {}", reply.as_doc());
    client.close();
});
