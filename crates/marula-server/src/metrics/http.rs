//! As much of HTTP/1.1 as a scraper needs: GET and HEAD without a body, connections that stay open.
//!
//! A request is the lines up to the first empty one. Anything else is rejected: a head that is too
//! long, a body, a malformed line. The crates for HTTP have an asynchronous runtime (hyper) or a
//! thread for each connection (tiny_http) for what takes two hundred lines here, and the limits
//! would still have to be added.
//!
//! Source: RFC 9112, sections 2, 3, 6 and 9.

/// The maximum size of a request's head.
pub(super) const HEAD_BYTES_MAX: usize = 8 * 1024;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    /// The path, without the query string.
    pub(super) path: String,
    /// Whether only the head of the response is wanted.
    pub(super) is_head: bool,
    /// Whether the connection stays open for another request.
    pub(super) stays_open: bool,
}

/// The result of parsing a client's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Parsed {
    /// The head has not ended yet.
    Incomplete,
    /// A request, and its size.
    Request(Request, usize),
    /// An invalid request, and the response to it, after which the connection is closed.
    Refused(Response),
}

/// A response. Its status, the media type of its body, and the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl Response {
    /// Returns a response with a line of text.
    pub(super) fn plain(status: u16, body: impl Into<String>) -> Self {
        Response { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }

    /// Returns its bytes; `is_head` leaves the body out, `stays_open` determines the connection
    /// header.
    pub(super) fn bytes(&self, is_head: bool, stays_open: bool) -> Vec<u8> {
        let connection = if stays_open { "keep-alive" } else { "close" };
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let mut text = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: {connection}\r\n\r\n",
            self.status,
            reason(self.status),
            self.kind,
            self.body.len(),
        );
        if !is_head {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Bad Request",
    }
}

fn refused(status: u16, text: &str) -> Parsed {
    Parsed::Refused(Response::plain(status, format!("{text}\n")))
}

/// Parses the bytes that a client has sent so far.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let Some(end) = window.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match bytes.len() >= HEAD_BYTES_MAX {
            true => refused(431, "the head of the request is too long"),
            false => Parsed::Incomplete,
        };
    };
    let Ok(head) = str::from_utf8(&window[..end]) else {
        return refused(400, "the head of the request is not text");
    };
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let words: Vec<&str> = first.split(' ').collect();
    let [method, target, version] = words[..] else {
        return refused(400, "the first line is not: method, path, version");
    };
    let stays_open_by_itself = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ if version.starts_with("HTTP/") => return refused(505, "only HTTP/1.1 is spoken"),
        _ => return refused(400, "the first line is not: method, path, version"),
    };
    let mut connection = None;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return refused(400, "a header has no colon");
        };
        let value = value.trim_matches([' ', '\t']);
        // Folded lines, and blanks before the colon, are used to smuggle requests past proxies.
        if name.is_empty() || !name.bytes().all(is_of_token) {
            return refused(400, "a header's name is not a token");
        }
        if name.eq_ignore_ascii_case("connection") {
            connection = Some(value.to_ascii_lowercase());
        }
        let is_body = name.eq_ignore_ascii_case("transfer-encoding")
            || name.eq_ignore_ascii_case("content-length") && value != "0";
        if is_body {
            return refused(413, "a request has no body here");
        }
    }
    let is_head = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return refused(405, "only GET and HEAD are served"),
    };
    let has = |word: &str| {
        connection.as_ref().is_some_and(|list| list.split(',').any(|item| item.trim() == word))
    };
    let stays_open = !has("close") && (stays_open_by_itself || has("keep-alive"));
    let path = target.split(['?', '#']).next().unwrap_or_default().to_owned();
    Parsed::Request(Request { path, is_head, stays_open }, end + 4)
}

/// Returns whether a byte is permitted in a header's name.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Request(request, bytes) => {
                assert_eq!(bytes, text.len());
                request
            }
            other => panic!("{text:?} is {other:?}"),
        }
    }

    fn status(bytes: &[u8]) -> u16 {
        match parse(bytes) {
            Parsed::Refused(response) => response.status,
            other => panic!("{:?} is {other:?}", bytes.escape_ascii().to_string()),
        }
    }

    #[test]
    fn requests_are_read() {
        let get = request("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n");
        assert_eq!(get, Request { path: "/metrics".into(), is_head: false, stays_open: true });
        assert!(request("HEAD / HTTP/1.1\r\n\r\n").is_head);
        assert!(!request("GET / HTTP/1.1\r\nconnection: Close\r\n\r\n").stays_open);
        assert!(!request("GET / HTTP/1.0\r\n\r\n").stays_open);
        assert!(request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").stays_open);
        assert!(!request("GET / HTTP/1.1\r\nConnection: keep-alive, close\r\n\r\n").stays_open);
        assert!(request("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").stays_open);
    }

    #[test]
    fn every_beginning_of_a_request_is_incomplete() {
        let whole = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), Parsed::Incomplete, "{end} bytes");
        }
    }

    #[test]
    fn what_is_not_served_is_refused() {
        for (text, expected) in [
            ("POST / HTTP/1.1\r\n\r\n", 405),
            ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 413),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
            ("GET / HTTP/2.0\r\n\r\n", 505),
            ("GET / FTP/1.1\r\n\r\n", 400),
            ("GET /\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n", 400),
            ("\r\n\r\n", 400),
        ] {
            assert_eq!(status(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(status(b"GET /\xFF HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status(&vec![b'a'; HEAD_BYTES_MAX]), 431);
        let mut long = b"GET / HTTP/1.1\r\nA: ".to_vec();
        long.resize(HEAD_BYTES_MAX, b'x');
        long.extend_from_slice(b"\r\n\r\n");
        assert_eq!(status(&long), 431);
    }

    #[test]
    fn responses_say_how_long_they_are() {
        let response = Response::plain(200, "ok\n");
        let whole = String::from_utf8(response.bytes(false, true)).unwrap();
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.ends_with("\r\n\r\nok\n"));
        assert!(whole.contains("\r\nContent-Length: 3\r\n"));
        let head = String::from_utf8(response.bytes(true, false)).unwrap();
        assert!(head.contains("\r\nContent-Length: 3\r\n") && head.ends_with("close\r\n\r\n"));
    }
}
