//! The texts of a document in a text index, and the scores of their terms.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hashbrown::HashMap;
use marula_bson::{BStr, ByteSlice, Doc, Value};
use marula_error::{Result, errors};

use super::language::Terms;
use super::words::words;
use super::{Reading, TextVersion, first_version};

errors! {
    override_not_string() = 17_261, "found language override field in document with non-string type";
    override_unsupported(name: &BStr) = 17_262, "language override unsupported: {name}";
}

/// The indexed fields of a document, with their weights and language.
#[derive(Clone, Debug)]
pub struct TextFields {
    /// The weight of the text at each path.
    pub weights: BTreeMap<Vec<u8>, f64>,
    /// The weight of any other text; `None` if only the paths above are indexed.
    pub wildcard: Option<f64>,
    /// The language of texts that name none.
    pub reading: Reading,
    /// The field by which a document names the language of its texts.
    pub language_override: Vec<u8>,
}

/// A text in a document.
pub(super) struct Text<'a> {
    pub text: &'a str,
    /// The bytes of a text that is not UTF-8; its other characters are `text`.
    pub malformed: Option<&'a [u8]>,
    pub weight: f64,
    pub reading: Reading,
}

/// The treatment of texts that are not UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MalformedTexts {
    /// An index of version 3 rejects them.
    Reject,
    /// Each invalid sequence is read as U+FFFD.
    Replace,
}

/// The callback for every text, until it returns `false`.
pub(super) type Visit<'v> = dyn FnMut(Text<'_>) -> Result<bool> + 'v;

/// The terms of a document, each with its score.
pub type TextScores = HashMap<String, f64>;

impl TextFields {
    /// Computes the terms of a document, each with its score.
    ///
    /// A term's first occurrence in a text counts 1, the next half of that, and so on. The sum is
    /// multiplied by a factor between a half and one that grows with the term's share of the text,
    /// and by the weight of the field.
    ///
    /// `malformed` states whether to accept a text whose bytes the version rejects.
    ///
    /// Errors: `override_not_string`, `override_unsupported`, those of [`Reading::check`].
    pub fn scores(
        &self,
        doc: Doc<'_>,
        malformed: MalformedTexts,
        scores: &mut TextScores,
    ) -> Result<()> {
        scores.clear();
        let mut found: HashMap<String, Occurrences> = HashMap::new();
        let mut count_terms = |text: Text<'_>| {
            if let (MalformedTexts::Reject, Some(bytes)) = (malformed, text.malformed) {
                text.reading.check(bytes)?;
            }
            found.clear();
            let terms = Terms::of_index(text.reading);
            let mut count = 0_u32;
            for word in words(text.text, text.reading) {
                let Some(term) = terms.term(word) else { continue };
                count += 1;
                match found.get_mut(&*term) {
                    Some(known) => known.add(),
                    None => {
                        found.insert(term.into_owned(), Occurrences::one());
                    }
                }
            }
            for (term, occurrences) in found.drain() {
                let share = 0.5 * f64::from(occurrences.count) / f64::from(count) + 0.5;
                // A text that consists of the term alone scores slightly higher.
                let is_whole =
                    text.text.len() == term.len() && text.text.eq_ignore_ascii_case(&term);
                let boost = if is_whole { 1.1 } else { 1.0 };
                let score = text.weight * occurrences.frequency * share * boost;
                *scores.entry(term).or_insert(0.0) += score;
            }
            Ok(true)
        };
        match self.reading.version() {
            TextVersion::One => first_version::for_each_text(self, doc, &mut count_terms)?,
            _ => self.for_each_text(doc, &mut count_terms)?,
        };
        Ok(())
    }

    /// Calls `visit` with every indexed text of a document, until it returns `false`. A document is
    /// matched with a search in this way, whatever the version of the index.
    pub(super) fn for_each_text(&self, doc: Doc<'_>, visit: &mut Visit<'_>) -> Result<bool> {
        self.object(doc, &mut Vec::new(), false, self.reading, visit)
    }

    /// Walks the fields of a document, whose path is `path`. Validated BSON bounds the depth.
    fn object(
        &self,
        doc: Doc<'_>,
        path: &mut Vec<u8>,
        is_nested: bool,
        reading: Reading,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        let reading = match doc.get(&self.language_override) {
            None => reading,
            Some(Value::String(name)) => Reading::find(name, self.reading.version())
                .ok_or_else(|| override_unsupported(name))?,
            Some(_) => return Err(override_not_string()),
        };
        for element in doc {
            let is_language = self.wildcard.is_some() && *element.name == self.language_override;
            // No path has such names: the parts of a reference to another document, and a dot.
            let is_outside = element.name.starts_with(b"$") || element.name.contains(&b'.');
            if is_language || is_outside {
                continue;
            }
            let length = path.len();
            if is_nested {
                path.push(b'.');
            }
            path.extend_from_slice(element.name);
            let goes_on =
                self.is_searched(path) && !self.value(element.value.get(), path, reading, visit)?;
            path.truncate(length);
            if goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn value(
        &self,
        value: Value<'_>,
        path: &mut Vec<u8>,
        reading: Reading,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        match value {
            Value::String(text) => match self.weight(path) {
                Some(weight) => show(text, weight, reading, visit),
                None => Ok(true),
            },
            Value::Document(doc) if self.is_searched_below(path) => {
                self.object(doc, path, true, reading, visit)
            }
            Value::Array(array) => {
                for item in array.values() {
                    let is_array = matches!(item, Value::Array(_));
                    if is_array && self.wildcard.is_none() {
                        continue;
                    }
                    if !self.value(item, path, reading, visit)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    fn weight(&self, path: &[u8]) -> Option<f64> {
        self.weights.get(path).copied().or(self.wildcard)
    }

    /// Returns whether texts at this path or in its subfields are indexed.
    fn is_searched(&self, path: &[u8]) -> bool {
        self.weights.contains_key(path) || self.is_searched_below(path)
    }

    /// Returns whether texts in subfields of this path are indexed.
    fn is_searched_below(&self, path: &[u8]) -> bool {
        let leads_on = |known: &Vec<u8>| {
            known.strip_prefix(path).is_some_and(|rest| rest.first() == Some(&b'.'))
        };
        self.wildcard.is_some() || self.weights.keys().any(leads_on)
    }
}

/// Calls `visit` with the part of a text that is read.
pub(super) fn show(
    text: &BStr,
    weight: f64,
    reading: Reading,
    visit: &mut Visit<'_>,
) -> Result<bool> {
    let bytes = reading.part_of(text);
    let text = bytes.to_str_lossy();
    let malformed = matches!(text, Cow::Owned(_)).then_some(bytes);
    visit(Text { text: &text, malformed, weight, reading })
}

/// The occurrences of a term in one text.
struct Occurrences {
    count: u32,
    frequency: f64,
    last: f64,
}

impl Occurrences {
    fn one() -> Self {
        Occurrences { count: 1, frequency: 1.0, last: 1.0 }
    }

    fn add(&mut self) {
        self.count += 1;
        self.last /= 2.0;
        self.frequency += self.last;
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, doc};

    use super::*;

    fn fields(weights: &[(&str, f64)], wildcard: Option<f64>) -> TextFields {
        TextFields {
            weights: weights.iter().map(|&(path, weight)| (path.into(), weight)).collect(),
            wildcard,
            reading: Reading::default_of(TextVersion::Three),
            language_override: b"language".to_vec(),
        }
    }

    #[track_caller]
    fn check(fields: &TextFields, doc: &DocBuf, expected: &[(&str, f64)]) {
        let mut scores = TextScores::new();
        fields.scores(doc.as_doc(), MalformedTexts::Reject, &mut scores).unwrap();
        let mut found: Vec<_> =
            scores.iter().map(|(term, score)| (term.as_str(), *score)).collect();
        found.sort_by(|a, b| a.0.cmp(b.0));
        assert_eq!(found, expected, "{doc:?}");
    }

    /// The expected scores are mongod 6.0's.
    #[test]
    fn scores_are_mongods() {
        let a = fields(&[("a", 1.0)], None);
        check(
            &a,
            &doc! { "a": "coffee coffee shop" },
            &[("coffe", 1.25), ("shop", 0.666_666_666_666_666_6)],
        );
        check(&a, &doc! { "a": "the the coffee the" }, &[("coffe", 1.0)]);
        check(&a, &doc! { "a": "tea" }, &[("tea", 1.1)]);
        check(&a, &doc! { "a": ["tea", ["milk"], { "a": "x" }, 5] }, &[("tea", 1.1)]);
        let weighted = fields(&[("a", 10.0), ("b", 2.0)], None);
        check(
            &weighted,
            &doc! { "a": "coffee shop", "b": "tea coffee coffee" },
            &[("coffe", 10.0), ("shop", 7.5), ("tea", 1.333_333_333_333_333_3)],
        );
    }

    #[test]
    fn names_that_no_path_has_are_not_searched() {
        let reference = doc! { "$id": "x", "$other": { "b": "y" }, "d.e": "w", "f$": "z" };
        let doc = doc! { "$id": "x", "c": (reference.as_doc()), "l": [(reference.as_doc())] };
        check(&fields(&[], Some(1.0)), &doc, &[("z", 2.2)]);
    }

    #[test]
    fn paths_lead_through_arrays_but_not_by_index() {
        let nested = fields(&[("a.b", 1.0)], None);
        check(
            &nested,
            &doc! { "a": [{ "b": "x" }, { "b": ["y", "z"] }], "a.b": "w" },
            &[("x", 1.1), ("y", 1.1), ("z", 1.1)],
        );
        check(&nested, &doc! { "a": [[{ "b": "x" }]], "b": "y" }, &[]);
        let all = fields(&[("a.b", 5.0)], Some(1.0));
        check(
            &all,
            &doc! { "_id": "x", "a": { "b": "y", "c": [["z"]] }, "language": "english" },
            &[("x", 1.1), ("y", 5.5), ("z", 1.1)],
        );
    }

    #[test]
    fn a_document_names_its_language() {
        let a = fields(&[("a.b", 1.0), ("t", 1.0)], None);
        let document = doc! { "language": "none", "t": "running",
        "a": [{ "b": "running", "language": "EN" }, { "b": "running" }] };
        check(&a, &document, &[("run", 1.0), ("running", 2.2)]);
        let mut scores = TextScores::new();
        let error = |doc: &DocBuf, scores: &mut TextScores| {
            a.scores(doc.as_doc(), MalformedTexts::Reject, scores).unwrap_err().code().number()
        };
        assert_eq!(error(&doc! { "language": "klingon" }, &mut scores), 17_262);
        assert_eq!(error(&doc! { "a": { "language": 5 } }, &mut scores), 17_261);
        check(&a, &doc! { "c": { "language": 5 }, "t": [{ "language": 5 }] }, &[]);
    }
}
