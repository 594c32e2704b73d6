//! A running command as others see it: without the documents that it inserts, and cut if it is
//! long.

use marula_bson::{ArrayWriter, ByteSlice, Doc, DocBuf, DocWriter, RawValue, Value};

use crate::row::{Command, Kind};

/// The size from which a command is stored only as text.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// The size from which a command is shown as text where long ones are cut. As mongod.
const SHOWN_BYTES_MAX: usize = 1000;
/// The maximum length of the text. As mongod.
const TEXT_BYTES_MAX: usize = 1000;
/// The length from which strings are cut in the text. As mongod.
const STRING_BYTES_MAX: usize = 150;
/// The mark at the end of a cut text.
const CUT: &str = "...";
/// The field with the text of a cut command.
const TRUNCATED: &str = "$truncated";

/// Returns the part of a command that is stored while it runs.
pub(crate) fn kept(command: &Command, body: Doc<'_>) -> DocBuf {
    if command.kind == Kind::Insert && body.get("documents").is_some() {
        return DocBuf::build(|out| {
            for field in body.iter().filter(|field| field.name != "documents") {
                out.append_raw(field.name, field.value);
            }
        });
    }
    match body.as_bytes().len() {
        ..=KEPT_BYTES_MAX => body.to_buf(),
        _ => truncated(body),
    }
}

/// Returns a stored command with long ones cut.
pub(crate) fn cut(kept: &DocBuf) -> DocBuf {
    let is_text = || kept.as_doc().iter().next().is_some_and(|field| field.name == TRUNCATED);
    match kept.len() {
        ..=SHOWN_BYTES_MAX => kept.clone(),
        _ if is_text() => kept.clone(),
        _ => truncated(kept.as_doc()),
    }
}

/// Returns the start of a command as text, and its comment.
fn truncated(body: Doc<'_>) -> DocBuf {
    // The text of a value is at least half as long as its bytes.
    let mut left = 2 * TEXT_BYTES_MAX;
    let front = DocBuf::build(|out| copy(body, &mut left, out));
    let mut text = front.as_doc().to_string();
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX - CUT.len()));
        text.push_str(CUT);
    }
    DocBuf::build(|out| {
        out.append(TRUNCATED, text.as_str());
        if let Some(comment) = body.get("comment") {
            out.append("comment", comment);
        }
    })
}

/// Copies the start of a document, with long strings cut, until `left` bytes are copied.
fn copy(doc: Doc<'_>, left: &mut usize, out: &mut DocWriter<'_>) {
    for element in doc {
        if *left == 0 {
            return;
        }
        *left = left.saturating_sub(element.name.len());
        match element.value.get() {
            Value::Document(inner) => copy(inner, left, &mut out.begin_doc(element.name)),
            Value::Array(items) => copy_items(items, left, &mut out.begin_array(element.name)),
            _ => {
                let name = element.name;
                copy_scalar(element.value, left, |value| {
                    out.append(name, value);
                });
            }
        }
    }
}

fn copy_items(items: Doc<'_>, left: &mut usize, out: &mut ArrayWriter<'_>) {
    for item in items {
        if *left == 0 {
            return;
        }
        match item.value.get() {
            Value::Document(inner) => copy(inner, left, &mut out.begin_doc()),
            Value::Array(inner) => copy_items(inner, left, &mut out.begin_array()),
            _ => copy_scalar(item.value, left, |value| {
                out.push(value);
            }),
        }
    }
}

fn copy_scalar(raw: RawValue<'_>, left: &mut usize, write: impl FnOnce(Value<'_>)) {
    match raw.get() {
        Value::String(text) if text.len() > STRING_BYTES_MAX => {
            *left = left.saturating_sub(STRING_BYTES_MAX);
            let front = text.get(..STRING_BYTES_MAX).unwrap_or_default().to_str_lossy();
            write(format!("{front}{CUT}").as_str().into());
        }
        Value::Binary(binary) if binary.bytes.len() > STRING_BYTES_MAX => {
            *left = left.saturating_sub(STRING_BYTES_MAX);
            let bytes = binary.bytes.get(..STRING_BYTES_MAX).unwrap_or_default();
            write(Value::Binary(marula_bson::Binary { bytes, ..binary }));
        }
        value => {
            *left = left.saturating_sub(value_bytes(raw));
            write(value);
        }
    }
}

/// Returns the approximate size of a value that is not a document or an array.
fn value_bytes(raw: RawValue<'_>) -> usize {
    match raw.get() {
        Value::String(text) => text.len() + 1,
        Value::Binary(binary) => binary.bytes.len() + 1,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::*;

    #[test]
    fn a_long_command_is_cut() {
        let short = doc! { "find": "c", "filter": { "a": "x".repeat(500).as_str() } };
        assert_eq!(cut(&short), short);
        let long = "x".repeat(2_000_000);
        let long = doc! { "find": "c", "filter": { "a": long.as_str() }, "comment": 7 };
        let shown = cut(&long);
        let text =
            format!(r#"{{ find: "c", filter: {{ a: "{}..." }}, comment: 7 }}"#, "x".repeat(150));
        assert_eq!(shown, doc! { "$truncated": text.as_str(), "comment": 7 });
        assert_eq!(cut(&shown), shown);
    }

    #[test]
    fn the_text_of_many_values_is_cut_too() {
        let many = DocBuf::build(|out| {
            let mut list = out.begin_array("list");
            (0..100_000).for_each(|number| {
                list.begin_doc().append("number", number);
            });
        });
        let shown = cut(&many);
        let Some(Value::String(text)) = shown.as_doc().get("$truncated") else { panic!("no text") };
        assert_eq!(text.len(), TEXT_BYTES_MAX);
        assert!(
            text.starts_with(b"{ list: [ { number: 0 }, { number: 1 }") && text.ends_with(b"...")
        );
    }
}
