//! Finds the texts of a document for a text index of version 1. A match is checked in the same way
//! for all versions.
//!
//! Only the document as a whole may name a language, not its subdocuments. A path leads through
//! documents only, and a field name with dots matches it too; the strings of the array at its end
//! count. With a wildcard every text is indexed, and a weight applies to its field's own name.

use marula_bson::{ByteSlice, Doc, Value};
use marula_error::Result;

use super::fields::{Visit, show};
use super::{Reading, TextFields, TextVersion};

/// Calls `visit` with every indexed text of a document, until it returns `false`.
pub(super) fn for_each_text(
    fields: &TextFields,
    doc: Doc<'_>,
    visit: &mut Visit<'_>,
) -> Result<bool> {
    let named = match doc.get(&fields.language_override) {
        Some(Value::String(name)) => Reading::find(name, TextVersion::One),
        _ => None,
    };
    let reading = named.unwrap_or(fields.reading);
    if fields.wildcard.is_some() {
        return show_every(fields, doc, reading, visit);
    }
    for (path, weight) in &fields.weights {
        let goes_on = match value_at(doc, path) {
            Some(Value::Array(items)) => show_all(items, *weight, reading, visit)?,
            Some(Value::String(text)) => show(text, *weight, reading, visit)?,
            _ => true,
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Calls `visit` with the strings of an array.
fn show_all(items: Doc<'_>, weight: f64, reading: Reading, visit: &mut Visit<'_>) -> Result<bool> {
    for item in items.values() {
        if let Value::String(text) = item
            && !show(text, weight, reading, visit)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the value at a path: that of the field with this name or, if there is none, the value
/// that its parts lead to. The elements of an array are fields with their index as name.
fn value_at<'a>(doc: Doc<'a>, path: &[u8]) -> Option<Value<'a>> {
    doc.get(path).or_else(|| {
        let (first, rest) = path.split_once_str(b".")?;
        match doc.get(first)? {
            Value::Document(inner) | Value::Array(inner) => value_at(inner, rest),
            _ => None,
        }
    })
}

/// Calls `visit` with the strings of a document at any depth. Validated BSON bounds the depth.
fn show_every(
    fields: &TextFields,
    doc: Doc<'_>,
    reading: Reading,
    visit: &mut Visit<'_>,
) -> Result<bool> {
    for element in doc.iter().filter(|element| *element.name != *fields.language_override) {
        let goes_on = match element.value.get() {
            Value::String(text) => {
                let weight = fields.weights.get(element.name.as_bytes()).copied();
                let weight = weight.or(fields.wildcard).unwrap_or_default();
                show(text, weight, reading, visit)?
            }
            Value::Document(inner) | Value::Array(inner) => {
                show_every(fields, inner, reading, visit)?
            }
            _ => true,
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, doc};

    use super::super::{MalformedTexts, TextScores};
    use super::*;

    fn fields(weights: &[(&str, f64)], wildcard: Option<f64>) -> TextFields {
        TextFields {
            weights: weights.iter().map(|&(path, weight)| (path.into(), weight)).collect(),
            wildcard,
            reading: Reading::default_of(TextVersion::One),
            language_override: b"language".to_vec(),
        }
    }

    /// The expected scores are mongod 6.0's.
    #[track_caller]
    fn check(fields: &TextFields, doc: &DocBuf, term: &str, expected: Option<f64>) {
        let mut scores = TextScores::new();
        fields.scores(doc.as_doc(), MalformedTexts::Reject, &mut scores).unwrap();
        assert_eq!(scores.get(term).copied(), expected, "{doc:?}");
    }

    #[test]
    fn a_path_leads_through_documents_alone() {
        let nested = fields(&[("a.b", 1.0)], None);
        check(&nested, &doc! { "a": { "b": "x" } }, "x", Some(1.1));
        check(&nested, &doc! { "a": { "b": ["x", 5] } }, "x", Some(1.1));
        check(&nested, &doc! { "a.b": "x", "a": { "b": "x x x x" } }, "x", Some(1.1));
        check(&nested, &doc! { "a": [{ "b": "x" }] }, "x", None);
        check(&nested, &doc! { "a": { "b": [["x"]] } }, "x", None);
        let numbered = fields(&[("a.0", 1.0)], None);
        check(&numbered, &doc! { "a": ["x"] }, "x", Some(1.1));
        check(&numbered, &doc! { "a": [["x"]] }, "x", Some(1.1));
    }

    #[test]
    fn with_a_wildcard_weights_apply_to_names() {
        let all = fields(&[("a", 5.0), ("b", 7.0), ("0", 3.0), ("a.b", 11.0)], Some(1.0));
        check(&all, &doc! { "a": "x" }, "x", Some(5.5));
        check(&all, &doc! { "a": ["x"] }, "x", Some(3.300_000_000_000_000_3));
        check(&all, &doc! { "a": [{ "b": "x" }] }, "x", Some(7.700_000_000_000_001));
        check(&all, &doc! { "a": { "c": "x" } }, "x", Some(1.1));
        check(&all, &doc! { "c": { "language": "x" } }, "x", None);
    }

    #[test]
    fn the_document_as_a_whole_names_its_language() {
        let texts = fields(&[("a.b", 1.0), ("t", 1.0)], None);
        check(&texts, &doc! { "language": "none", "t": "running" }, "running", Some(1.1));
        check(&texts, &doc! { "language": "klingon", "t": "running" }, "running", Some(1.1));
        check(&texts, &doc! { "language": 5, "t": "running" }, "run", Some(1.0));
        let inner = doc! { "a": { "b": "running", "language": "none" } };
        check(&texts, &inner, "run", Some(1.0));
    }
}
