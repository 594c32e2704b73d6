//! Documents on the command line, as mongod takes them: JSON whose field names may stand without
//! quotes, and whose strings may stand in single ones.

use marula_bson::{DocBuf, ext_json};

use crate::Failure;

/// Reads a document of the option `name`.
pub(crate) fn document(name: &str, text: &str) -> Result<DocBuf, Failure> {
    ext_json::parse(&strict(text)).map_err(|error| format!("{name} is not a document: {error}"))
}

/// The text with quotes as JSON has them. Other mistakes stay as they are.
fn strict(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        match next {
            '"' | '\'' => rest = copy_string(rest, next, &mut out),
            next if is_of_name(next) && !next.is_ascii_digit() => {
                let end = rest.find(|other| !is_of_name(other)).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                let is_field = after.trim_start().starts_with(':');
                let quote = if is_field { "\"" } else { "" };
                out.extend([quote, name, quote]);
                rest = after;
            }
            other => {
                out.push(other);
                rest = &rest[other.len_utf8()..];
            }
        }
    }
    out
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$' | '.')
}

/// Copies the string at the front; returns what stands after it.
fn copy_string<'a>(text: &'a str, quote: char, out: &mut String) -> &'a str {
    out.push('"');
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => {
                match characters.next() {
                    Some((_, '\'')) => out.push('\''),
                    Some((_, escaped)) => out.extend(['\\', escaped]),
                    None => out.push('\\'),
                };
            }
            _ if character == quote => {
                out.push('"');
                return &text[at + character.len_utf8()..];
            }
            '"' => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    #[test]
    fn names_may_stand_without_quotes() {
        let expected = doc! { "atype": { "$in": ["a:b", "it's"] }, "param.ns": true, "n": -1.5 };
        for text in [
            r#"{ atype: { $in: [ "a:b", "it's" ] }, param.ns: true, n: -1.5 }"#,
            r#"{atype:{$in:['a:b','it\'s']},"param.ns":true,n:-1.5}"#,
            r#"{"atype":{"$in":["a:b","it's"]},"param.ns":true,"n":-1.5}"#,
        ] {
            assert_eq!(document("x", text), Ok(expected.clone()), "{text}");
        }
        assert_eq!(document("x", r#"{ a: 'say "x"' }"#), Ok(doc! { "a": "say \"x\"" }));
        for text in ["", "{", "{ a: b }", "{ a: 'x }", "[1]"] {
            assert!(document("x", text).is_err(), "{text}");
        }
    }
}
