//! Resume tokens: the position of an event in the oplog, as a string that sorts in the order of the
//! events.
//!
//! ```text
//! 82 time(8)           when
//! 2B 02 | 2B 04        version: 1, or 2 where large events are split
//! 29 | 2C 01 00        kind: between events (a *high-water mark*), or an event
//! number               which operation of a transaction
//! 6E | 6F              whether it is the end of the stream that the event brought about
//! 5A 10 04 uuid(16)    an event's collection, where it is about one
//! key string           an event's document or command
//! number               version 2: which fragment
//! 04
//! ```
//! All in hexadecimal. A high-water mark sorts before all events of its time. Clients may read the
//! time; the rest is for the server, with mongod's layout.
//!
//! Source: tokens of mongod 6.0.

use marula_bson::{DocBuf, Value, key_string};
use marula_error::{Result, errors};

errors! {
    not_hex() = FailedToParse, "resume token string was not a valid hex string";
    empty() = 40649, "invalid empty resume token";
    unknown_type(tag: u8) = 50811, "KeyString format error: Unknown type: {tag}";
    too_short(wanted: usize, length: usize, at: usize) = Overflow, "Invalid advance ({wanted}) past end of buffer[{length}] at offset: {at}";
    incomplete() = 50872, "Resume Token does not contain fromInvalidate";
}

const TIMESTAMP: u8 = 0x82;
const ZERO: u8 = 0x29;
const ONE_BYTE: u8 = 0x2B;
const FALSE: u8 = 0x6E;
const TRUE: u8 = 0x6F;
const END: u8 = 0x04;
/// The kind of an event's token.
const EVENT: u64 = 128;

/// The position of an event in the oplog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Position {
    /// The time of its commit.
    pub(super) time: u64,
    /// False for a high-water mark, which is before all events of its time.
    pub(super) is_event: bool,
    /// The number of the operation in its transaction.
    pub(super) operation: u64,
    /// Whether it is the invalidate event that follows another event.
    pub(super) is_end: bool,
}

impl Position {
    /// Returns the position before all events of a time.
    pub(super) fn before(time: u64) -> Self {
        Position { time, is_event: false, operation: 0, is_end: false }
    }
}

/// The version of a stream's tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Version {
    /// Tokens of whole events.
    Whole,
    /// Tokens that may contain the number of a fragment.
    Split,
}

/// A parsed token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    /// The position.
    pub(super) position: Position,
    /// The whole token, in hexadecimal.
    pub(super) data: String,
}

impl Token {
    /// Returns the token of a position between events.
    pub(super) fn high_water(time: u64, version: Version) -> Token {
        let position = Position::before(time);
        Token { position, data: data(position, version, &[]) }
    }

    /// Returns the token of an event on this collection; `what` distinguishes it from others at the
    /// same position.
    pub(super) fn of_event(
        position: Position,
        version: Version,
        uuid: Option<&[u8; 16]>,
        what: Option<&DocBuf>,
    ) -> Token {
        let mut tail = Vec::new();
        if let Some(uuid) = uuid {
            tail.extend_from_slice(&[0x5A, 16, 4]);
            tail.extend_from_slice(uuid);
        }
        if let Some(what) = what {
            key_string::encode_value(Value::Document(what.as_doc()), None, &mut tail);
        }
        Token { position, data: data(position, version, &tail) }
    }

    /// Parses a client's token.
    ///
    /// Errors: all of this module's.
    pub(super) fn parse(data: &str) -> Result<Token> {
        let bytes = marula_bson::hex::parse(data.as_bytes()).ok_or_else(not_hex)?;
        let mut reader = Reader { bytes: &bytes, at: 0 };
        match reader.byte() {
            None => return Err(empty()),
            Some(TIMESTAMP) => {}
            Some(tag) => return Err(unknown_type(tag)),
        }
        let time = reader.take(8)?;
        let time = time.iter().fold(0, |time, &byte| time << 8 | u64::from(byte));
        let (Some(_), Some(kind), Some(operation)) =
            (reader.number(), reader.number(), reader.number())
        else {
            return Err(incomplete());
        };
        let is_end = match reader.byte() {
            Some(FALSE) => false,
            Some(TRUE) => true,
            _ => return Err(incomplete()),
        };
        let position = Position { time, is_event: kind == EVENT, operation, is_end };
        Ok(Token { position, data: data.to_uppercase() })
    }

    /// Returns whether it is the token of the same event, or of one of its fragments.
    pub(super) fn is_of(&self, event: &Token) -> bool {
        let body = event.data.strip_suffix("04").unwrap_or(&event.data);
        self.position == event.position && self.data.starts_with(body)
    }
}

fn data(position: Position, version: Version, tail: &[u8]) -> String {
    let mut bytes = vec![TIMESTAMP];
    bytes.extend_from_slice(&position.time.to_be_bytes());
    bytes.extend_from_slice(&[ONE_BYTE, if version == Version::Whole { 2 } else { 4 }]);
    append_number(if position.is_event { EVENT } else { 0 }, &mut bytes);
    append_number(position.operation, &mut bytes);
    bytes.push(if position.is_end { TRUE } else { FALSE });
    bytes.extend_from_slice(tail);
    bytes.push(END);
    let mut data = String::with_capacity(2 * bytes.len());
    marula_bson::hex::append(&bytes, &mut data);
    data.make_ascii_uppercase();
    data
}

/// Appends a number so that greater numbers have greater bytes: its length in bytes, doubled, then
/// the number.
fn append_number(number: u64, out: &mut Vec<u8>) {
    if number == 0 {
        return out.push(ZERO);
    }
    let bytes = (number << 1).to_be_bytes();
    let first = bytes.iter().position(|&byte| byte != 0).unwrap_or(0);
    let count = u8::try_from(bytes.len() - first).expect("eight at most");
    out.push(ONE_BYTE + count - 1);
    out.extend_from_slice(&bytes[first..]);
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += usize::from(byte.is_some());
        byte
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8]> {
        let length = self.bytes.len() - self.at;
        let taken = self.bytes.get(self.at..self.at + count);
        self.at += count;
        taken.ok_or_else(|| too_short(count, length, 0))
    }

    fn number(&mut self) -> Option<u64> {
        let tag = self.byte()?;
        if tag == ZERO {
            return Some(0);
        }
        let count = usize::from(tag.checked_sub(ONE_BYTE)?) + 1;
        if count > 8 {
            return None;
        }
        let bytes = self.take(count).ok()?;
        Some(bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)) >> 1)
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    #[test]
    fn tokens_order_as_their_places_do_and_are_read_back() {
        let key = doc! { "_id": 5 };
        let event = |operation: u64, is_end: bool| Position {
            time: 7 << 32 | 3,
            is_event: true,
            operation,
            is_end,
        };
        let mut tokens = vec![Token::high_water(7 << 32 | 3, Version::Whole)];
        for operation in [0, 1, 2, 63, 64, 127, 128, 32_767, 32_768, 3_000_000] {
            for is_end in [false, true] {
                let position = event(operation, is_end);
                tokens.push(Token::of_event(position, Version::Whole, Some(&[9; 16]), Some(&key)));
            }
        }
        tokens.push(Token::high_water(7 << 32 | 4, Version::Whole));
        for pair in tokens.windows(2) {
            assert!(pair[0].data < pair[1].data, "{pair:?}");
            assert!(pair[0].position < pair[1].position, "{pair:?}");
        }
        for token in tokens {
            assert_eq!(Token::parse(&token.data).unwrap(), token);
            assert!(token.data.starts_with("8200000007000000"));
        }
    }

    #[test]
    fn what_is_no_token_is_told_so() {
        for (data, code) in [
            ("", 40649),
            ("zz", 9),
            ("0", 9),
            ("00", 50811),
            ("8200", 15),
            ("8200000007000000032B02", 50872),
        ] {
            assert_eq!(Token::parse(data).unwrap_err().code().number(), code, "{data}");
        }
    }

    #[test]
    fn a_high_water_mark_is_as_mongod_writes_it() {
        let token = Token::high_water(0x6B04_90A3 << 32 | 3, Version::Whole);
        assert_eq!(token.data, "826B0490A3000000032B0229296E04");
    }
}
