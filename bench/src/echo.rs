//! A server without functions: one thread, every message gets the same 300-byte document as its
//! reply.
//!
//! Its cost per message is the minimum for any server on this machine: the system calls and the
//! loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::bson::Doc;
use crate::message::Template;

/// Serves until it is killed.
pub(crate) fn serve(port: &str) -> Result<(), String> {
    let port = port.parse().map_err(|_| format!("not a port: '{port}'"))?;
    let fail = |error: std::io::Error| format!("echo: {error}");
    let document = Doc::new().oid("_id", [7; 12]).str("text", &"x".repeat(260));
    let cursor =
        Doc::new().array("firstBatch", vec![document]).int("id", 0).str("ns", "bench.find");
    let reply =
        Template::new(Doc::new().doc("cursor", cursor).int("n", 1).double("ok", 1.0), None).bytes;

    let mut poll = Poll::new().map_err(fail)?;
    let mut listener =
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).map_err(fail)?;
    poll.registry().register(&mut listener, Token(0), Interest::READABLE).map_err(fail)?;
    let mut connections = Vec::new();
    let mut events = Events::with_capacity(1024);
    let mut buffer = [0; 1 << 14];
    loop {
        poll.poll(&mut events, None).map_err(fail)?;
        for event in &events {
            if event.token() == Token(0) {
                while let Ok((mut stream, _)) = listener.accept() {
                    let _ = stream.set_nodelay(true);
                    let token = Token(connections.len() + 1);
                    poll.registry()
                        .register(&mut stream, token, Interest::READABLE)
                        .map_err(fail)?;
                    connections.push(stream);
                }
                continue;
            }
            // A request of the rows that use this is one small read; the reply always fits the
            // socket.
            let stream = &mut connections[event.token().0 - 1];
            if stream.read(&mut buffer).is_ok_and(|size| size > 0) {
                let _ = stream.write(&reply);
            }
        }
    }
}
