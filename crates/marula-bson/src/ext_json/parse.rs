//! Parses JSON directly into BSON bytes, then replaces type wrapper objects by values of their
//! type.

use std::fmt;

use super::wrapper::{Meaning, meaning};
use crate::writer::write_decimal;
use crate::{Doc, DocBuf, Type, Value, ValueBuf};

/// The maximum nesting of JSON: the limit of a document plus the wrapper objects inside it.
const DEPTH_MAX: u32 = 203;

/// Text that is not extended JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonError {
    /// A description of the error.
    pub message: &'static str,
    /// The position of the error in bytes.
    pub offset: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {} of the JSON text", self.message, self.offset)
    }
}

impl std::error::Error for JsonError {}

/// Parses a document, canonical or relaxed.
pub fn parse(text: &str) -> Result<DocBuf, JsonError> {
    let value = parse_value(text)?;
    match value.get() {
        Value::Document(doc) => Ok(doc.to_buf()),
        _ => Err(JsonError { message: "an object is expected", offset: 0 }),
    }
}

/// Parses a value of any type, canonical or relaxed.
pub fn parse_value(text: &str) -> Result<ValueBuf, JsonError> {
    let mut parser = Parser { text, at: 0 };
    let mut bytes = Vec::new();
    let kind = parser.value(&mut bytes, 0)?;
    parser.space();
    match parser.peek() {
        None => Ok(ValueBuf::from_parts(kind, bytes)),
        Some(_) => Err(parser.error("the end is expected")),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn error(&self, message: &'static str) -> JsonError {
        JsonError { message, offset: self.at }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Consumes `byte`, after white space, if it is next.
    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8, message: &'static str) -> Result<(), JsonError> {
        if self.take(byte) { Ok(()) } else { Err(self.error(message)) }
    }

    /// Parses a value, appends its BSON bytes and returns its type.
    fn value(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<Type, JsonError> {
        if depth > DEPTH_MAX {
            return Err(self.error("nesting is too deep"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(out, depth),
            Some(b'[') => self.array(out, depth),
            Some(b'"') => {
                let text = self.string()?;
                Value::from(&text).write(out);
                Ok(Type::String)
            }
            Some(b'-' | b'0'..=b'9') => {
                let number = self.number()?;
                number.write(out);
                Ok(number.kind())
            }
            _ => self.word(out),
        }
    }

    fn word(&mut self, out: &mut Vec<u8>) -> Result<Type, JsonError> {
        for (word, value) in [
            ("null", Value::Null),
            ("true", Value::Boolean(true)),
            ("false", Value::Boolean(false)),
        ] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                value.write(out);
                return Ok(value.kind());
            }
        }
        Err(self.error("a value is expected"))
    }

    fn object(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<Type, JsonError> {
        let object_at = self.at;
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        self.expect(b'{', "an object is expected")?;
        if !self.take(b'}') {
            loop {
                self.space();
                let name_at = self.at;
                let name = self.string()?;
                if name.contains('\0') {
                    return Err(JsonError { message: "a name contains NUL", offset: name_at });
                }
                self.expect(b':', "a colon is expected")?;
                self.member(name.as_bytes(), out, depth)?;
                if !self.take(b',') {
                    break;
                }
            }
            self.expect(b'}', "a comma or a brace is expected")?;
        }
        self.end(start, out)?;
        match meaning(Doc::trusted(out.get(start..).unwrap_or(&[]))) {
            Meaning::Plain => Ok(Type::Document),
            Meaning::Value(value) => {
                out.truncate(start);
                out.extend_from_slice(value.as_raw().bytes());
                Ok(value.kind())
            }
            Meaning::Broken => {
                let message = "a type wrapper object is malformed";
                Err(JsonError { message, offset: object_at })
            }
        }
    }

    fn array(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<Type, JsonError> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        self.expect(b'[', "an array is expected")?;
        if !self.take(b']') {
            for index in 0.. {
                let mut name = Vec::new();
                write_decimal(index, &mut name);
                self.member(&name, out, depth)?;
                if !self.take(b',') {
                    break;
                }
            }
            self.expect(b']', "a comma or a bracket is expected")?;
        }
        self.end(start, out)?;
        Ok(Type::Array)
    }

    /// Parses a value and appends it as a field.
    fn member(&mut self, name: &[u8], out: &mut Vec<u8>, depth: u32) -> Result<(), JsonError> {
        let tag_at = out.len();
        out.push(0);
        out.extend_from_slice(name);
        out.push(0);
        let kind = self.value(out, depth + 1)?;
        if let Some(tag) = out.get_mut(tag_at) {
            *tag = kind.tag();
        }
        Ok(())
    }

    /// Finishes the document that starts at `start`.
    fn end(&self, start: usize, out: &mut Vec<u8>) -> Result<(), JsonError> {
        out.push(0);
        let length =
            i32::try_from(out.len() - start).map_err(|_| self.error("the text is too large"))?;
        if let Some(prefix) = out.get_mut(start..start + 4) {
            prefix.copy_from_slice(&length.to_le_bytes());
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value<'static>, JsonError> {
        let is_part = |byte: u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let size = self.rest().bytes().take_while(|&byte| is_part(byte)).count();
        let text = self.rest().get(..size).unwrap_or("");
        if !is_json_number(text.as_bytes()) {
            return Err(self.error("a number is malformed"));
        }
        self.at += size;
        if let Ok(number) = text.parse() {
            return Ok(Value::Int32(number));
        }
        if let Ok(number) = text.parse() {
            return Ok(Value::Int64(number));
        }
        text.parse().map(Value::Double).map_err(|_| self.error("a number is malformed"))
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.expect(b'"', "a string is expected")?;
        let mut string = String::new();
        loop {
            let rest = self.rest();
            let plain = rest
                .bytes()
                .take_while(|&byte| byte != b'"' && byte != b'\\' && byte >= b' ')
                .count();
            string.push_str(rest.get(..plain).unwrap_or(""));
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => {
                    self.at += 1;
                    string.push(self.escaped()?);
                }
                Some(_) => return Err(self.error("a control character is not escaped")),
                None => return Err(self.error("a string does not end")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, JsonError> {
        let byte = self.peek();
        let character = match byte {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.error("an escape is unknown")),
        };
        self.at += 1;
        Ok(character)
    }

    /// Parses the four digits after `\u`, and the second half of a surrogate pair.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.hex()?;
        let code = match first {
            0xD800..=0xDBFF if self.rest().starts_with("\\u") => {
                self.at += 2;
                let second = self.hex()?;
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return Err(self.error("half of a surrogate pair is missing"));
                }
                0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.error("half of a surrogate pair is missing"))
    }

    fn hex(&mut self) -> Result<u32, JsonError> {
        let digits = self
            .rest()
            .get(..4)
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.error("four hexadecimal digits are expected"))?;
        self.at += 4;
        Ok(code)
    }
}

/// Whether `text` is a number as JSON writes it.
fn is_json_number(text: &[u8]) -> bool {
    fn digits(text: &[u8]) -> (usize, &[u8]) {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count, text.get(count..).unwrap_or(&[]))
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let (count, mut rest) = digits(text);
    if count == 0 || (count > 1 && text.first() == Some(&b'0')) {
        return false;
    }
    if let Some(fraction) = rest.strip_prefix(b".") {
        let (count, after) = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = after;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', digits @ ..] => digits,
            digits => digits,
        };
        let (count, after) = digits(exponent);
        return count > 0 && after.is_empty();
    }
    rest.is_empty()
}
