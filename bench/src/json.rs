//! The JSON of a BSON document, as a user of PostgreSQL would store it: dates as text, identifiers
//! as hexadecimal.

use std::fmt::Write as _;

/// The JSON of a document without its `_id`, which is the key of the table.
pub(crate) fn of(doc: &[u8]) -> String {
    let mut out = String::with_capacity(doc.len() + doc.len() / 4);
    write_elements(doc, false, &mut out);
    out
}

fn write_elements(doc: &[u8], array: bool, out: &mut String) {
    out.push(if array { '[' } else { '{' });
    let mut at = 4;
    let mut first = true;
    while let Some(kind) = doc.get(at).copied().filter(|kind| *kind != 0) {
        let end = at + 1 + doc[at + 1..].iter().position(|byte| *byte == 0).expect("our own bytes");
        let name = std::str::from_utf8(&doc[at + 1..end]).expect("our own names");
        let value = &doc[end + 1..];
        let length = || i32::from_le_bytes(value[..4].try_into().expect("four bytes")) as usize;
        let long = || i64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
        let size = match kind {
            1 | 9 | 0x12 => 8,
            2 => 4 + length(),
            3 | 4 => length(),
            7 => 12,
            8 => 1,
            0x10 => 4,
            _ => unreachable!("the documents of the comparisons have no other types"),
        };
        at = end + 1 + size;
        if name == "_id" && !array {
            continue;
        }
        if !first {
            out.push(',');
        }
        first = false;
        if !array {
            write_string(name, out);
            out.push(':');
        }
        let _ = match kind {
            1 => write!(out, "{}", f64::from_bits(long() as u64)),
            2 => {
                let text = std::str::from_utf8(&value[4..size - 1]).expect("our own text");
                write_string(text, out);
                Ok(())
            }
            3 | 4 => {
                write_elements(&value[..size], kind == 4, out);
                Ok(())
            }
            7 => {
                let hex: String = value[..12].iter().map(|byte| format!("{byte:02x}")).collect();
                write!(out, "\"{hex}\"")
            }
            8 => out.write_str(if value[0] == 0 { "false" } else { "true" }),
            0x10 => write!(out, "{}", length() as i32),
            _ => write!(out, "{}", long()),
        };
    }
    out.push(if array { ']' } else { '}' });
}

/// A string with its quotes; the text of the comparisons has few characters that need a backslash.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", letter as u32);
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
}

/// The text of a field at the top of a JSON document that PostgreSQL printed (`"name": value`),
/// strings without quotes.
///
/// Text of our own documents has no such pattern inside it, so a search is enough and cheap.
pub(crate) fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = json;
    loop {
        let at = rest.find(name)?;
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        rest = after;
        let Some(value) = after.strip_prefix("\": ") else { continue };
        if !before.ends_with('"') {
            continue;
        }
        return match value.strip_prefix('"') {
            Some(text) => text.split('"').next(),
            None if value.starts_with('[') => value.split_inclusive(']').next(),
            None => value.split([',', '}']).next(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bson::Doc;

    #[test]
    fn a_document_becomes_json() {
        let doc = Doc::new()
            .long("_id", 1)
            .str("s", "a \"b\" \\")
            .int("i", -5)
            .double("d", 1.5)
            .bool("b", true)
            .date("t", 12)
            .strings("a", &["x", "y"])
            .doc("n", Doc::new().long("_id", 3).int("k", 1))
            .finish();
        let wanted =
            r#"{"s":"a \"b\" \\","i":-5,"d":1.5,"b":true,"t":12,"a":["x","y"],"n":{"k":1}}"#;
        assert_eq!(of(&doc), wanted);
    }

    #[test]
    fn fields_are_found_in_what_postgresql_prints() {
        let json = r#"{"code": "P1", "size": 12, "tags": ["a", "b"], "last": 3}"#;
        let check = |name, wanted| assert_eq!(field(json, name), wanted, "{name}");
        check("code", Some("P1"));
        check("size", Some("12"));
        check("tags", Some("[\"a\", \"b\"]"));
        check("last", Some("3"));
        check("missing", None);
    }
}
