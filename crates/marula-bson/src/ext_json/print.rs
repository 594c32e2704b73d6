//! Prints BSON as extended JSON.

use bstr::ByteSlice;

use super::base64;
use crate::{BStr, Binary, Doc, Value, iso_date, uuid};

/// The amount of type information in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Parsing the text restores every type.
    Canonical,
    /// Numbers and dates are readable; int, long and double are not distinguished.
    Relaxed,
}

/// The maximum nesting that is printed; validation rejects deeper documents.
const DEPTH_MAX: u32 = 256;

/// The document as extended JSON on one line.
pub fn to_string(doc: Doc<'_>, mode: Mode) -> String {
    value_to_string(Value::Document(doc), mode)
}

/// The value as extended JSON on one line.
pub fn value_to_string(value: Value<'_>, mode: Mode) -> String {
    let mut printer = Printer { out: String::new(), mode };
    printer.value(value, 0);
    printer.out
}

struct Printer {
    out: String,
    mode: Mode,
}

impl Printer {
    fn value(&mut self, value: Value<'_>, depth: u32) {
        let is_canonical = self.mode == Mode::Canonical;
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Boolean(flag) => self.out.push_str(if flag { "true" } else { "false" }),
            Value::String(text) => self.quoted(text),
            Value::Document(doc) => self.doc(doc, depth),
            Value::Array(array) => {
                self.out.push('[');
                if depth < DEPTH_MAX {
                    for (index, value) in array.values().enumerate() {
                        self.comma(index);
                        self.value(value, depth + 1);
                    }
                }
                self.out.push(']');
            }
            Value::Int32(number) if is_canonical => self.wrapped("$numberInt", &number.to_string()),
            Value::Int32(number) => self.out.push_str(&number.to_string()),
            Value::Int64(number) if is_canonical => {
                self.wrapped("$numberLong", &number.to_string());
            }
            Value::Int64(number) => self.out.push_str(&number.to_string()),
            Value::Double(number) => {
                let text = double_text(number);
                match is_canonical || !number.is_finite() {
                    true => self.wrapped("$numberDouble", &text),
                    false => self.out.push_str(&text),
                }
            }
            Value::Decimal128(number) => self.wrapped("$numberDecimal", &number.to_string()),
            Value::ObjectId(id) => self.wrapped("$oid", &id.to_string()),
            Value::Symbol(text) => self.wrapped("$symbol", &text.to_str_lossy()),
            Value::Code(code) => self.wrapped("$code", &code.to_str_lossy()),
            Value::CodeWithScope { code, scope } => {
                self.out.push_str("{\"$code\":");
                self.quoted(code);
                self.out.push_str(",\"$scope\":");
                self.doc(scope, depth);
                self.out.push('}');
            }
            Value::Binary(binary) => self.binary(binary),
            Value::DateTime(ms) => self.date(ms),
            Value::Timestamp(bits) => {
                let (t, i) = (bits >> 32, bits & 0xFFFF_FFFF);
                self.out.push_str(&format!("{{\"$timestamp\":{{\"t\":{t},\"i\":{i}}}}}"));
            }
            Value::Regex { pattern, options } => {
                self.out.push_str("{\"$regularExpression\":{\"pattern\":");
                self.quoted(pattern);
                self.out.push_str(",\"options\":");
                self.quoted(options);
                self.out.push_str("}}");
            }
            Value::DbPointer { ns, id } => {
                self.out.push_str("{\"$dbPointer\":{\"$ref\":");
                self.quoted(ns);
                self.out.push_str(&format!(",\"$id\":{{\"$oid\":\"{id}\"}}}}}}"));
            }
            Value::Undefined => self.out.push_str("{\"$undefined\":true}"),
            Value::MinKey => self.out.push_str("{\"$minKey\":1}"),
            Value::MaxKey => self.out.push_str("{\"$maxKey\":1}"),
        }
    }

    fn doc(&mut self, doc: Doc<'_>, depth: u32) {
        self.out.push('{');
        if depth < DEPTH_MAX {
            for (index, element) in doc.iter().enumerate() {
                self.comma(index);
                self.quoted(element.name);
                self.out.push(':');
                self.value(element.value.get(), depth + 1);
            }
        }
        self.out.push('}');
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.out.push(',');
        }
    }

    fn quoted(&mut self, text: &BStr) {
        self.out.push('"');
        self.out.push_str(&escape(&text.to_str_lossy()));
        self.out.push('"');
    }

    fn wrapped(&mut self, name: &str, text: &str) {
        self.out.push_str(&format!("{{\"{name}\":\"{}\"}}", escape(text)));
    }

    fn binary(&mut self, binary: Binary<'_>) {
        const OLD_BINARY: u8 = 2;
        const UUID: u8 = 4;
        let Binary { subtype, bytes } = binary;
        if self.mode == Mode::Relaxed
            && subtype == UUID
            && let Ok(id) = bytes.try_into()
        {
            return self.wrapped("$uuid", &uuid::text(id));
        }
        // The old binary subtype repeats its length before the content; the text omits it.
        let content = match bytes.split_first_chunk() {
            Some((inner, content))
                if subtype == OLD_BINARY
                    && usize::try_from(u32::from_le_bytes(*inner)) == Ok(content.len()) =>
            {
                content
            }
            _ => bytes,
        };
        self.out.push_str("{\"$binary\":{\"base64\":\"");
        base64::encode(content, &mut self.out);
        self.out.push_str(&format!("\",\"subType\":\"{subtype:02x}\"}}}}"));
    }

    fn date(&mut self, ms: i64) {
        let readable = iso_date::print(ms).filter(|_| self.mode == Mode::Relaxed);
        self.out.push_str(&match readable {
            Some(text) => format!("{{\"$date\":\"{text}\"}}"),
            None => format!("{{\"$date\":{{\"$numberLong\":\"{ms}\"}}}}"),
        });
    }
}

/// The shortest text that parses to this double, with a point or an exponent.
fn double_text(number: f64) -> String {
    match number {
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        number => format!("{number:?}"),
    }
}

/// Escapes `text` for use inside a JSON string.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\u{8}' => escaped.push_str("\\b"),
            '\u{c}' => escaped.push_str("\\f"),
            character if character < ' ' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            character => escaped.push(character),
        }
    }
    escaped
}
