//! Other protocols that reach the port by mistake: HTTP of browsers and health checks, and TLS
//! where it is not offered.

/// The size of a header of MongoDB's protocol; this number of bytes is read before the protocol is
/// known.
pub(super) const HEAD_BYTES: usize = 16;

/// The answer to an HTTP request, as mongod's: health checks of load balancers rely on it.
pub(super) const HTTP_ANSWER: &[u8] = b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 85\r\n\r\nIt looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n";

/// Returns whether the client has sent an HTTP request.
pub(super) fn is_http(input: &[u8]) -> bool {
    input.starts_with(b"GET ")
}

/// Returns whether the client has started a TLS handshake: a record of the type handshake, with a
/// hello in it. These bytes are also the length of a message of MongoDB's protocol, whose opcode is
/// then another.
pub(super) fn is_client_hello(input: &[u8]) -> bool {
    const OPCODES: [i32; 3] = [2004, 2012, 2013];
    let Some(head) = input.first_chunk::<HEAD_BYTES>() else { return false };
    let opcode = i32::from_le_bytes([head[12], head[13], head[14], head[15]]);
    head[0] == 0x16 && head[1] == 3 && head[5] == 1 && !OPCODES.contains(&opcode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_answer_is_true() {
        let text = str::from_utf8(HTTP_ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
    }
}
