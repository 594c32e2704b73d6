//! Matches a document with a search, for conditions that the entries of an index cannot decide.

use std::collections::BTreeSet;
use std::sync::Arc;

use marula_bson::Doc;
use marula_error::Result;

use super::fields::Text;
use super::language::Terms;
use super::words::words;
use super::{MalformedTexts, Reading, Search, TextFields, TextQuery, TextScores};

/// A search in an index with these fields.
#[derive(Clone, Debug)]
pub struct TextMatcher {
    fields: Arc<TextFields>,
    reading: Reading,
    is_case_sensitive: bool,
    is_diacritic_sensitive: bool,
    search: Search,
}

impl TextMatcher {
    /// Creates the search of `query` in `fields`.
    ///
    /// Errors: an unsupported language, a search string that the version rejects.
    pub fn new(query: &TextQuery, fields: Arc<TextFields>) -> Result<Self> {
        let reading = query.reading_with(fields.reading)?;
        Ok(TextMatcher {
            reading,
            is_case_sensitive: query.is_case_sensitive,
            is_diacritic_sensitive: query.is_diacritic_sensitive,
            search: Search::parse(query, reading)?,
            fields,
        })
    }

    /// Returns the search.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// Returns the language of the search string.
    pub fn reading(&self) -> Reading {
        self.reading
    }

    /// Returns whether a document matches.
    ///
    /// Errors: those of a document's language.
    pub fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        Ok(self.has_a_term(doc, &self.search.terms)? && self.passes(doc)?)
    }

    /// Returns whether a document matches that has one of the terms in an index.
    ///
    /// Errors: those of [`TextMatcher::matches`].
    pub fn admits(&self, doc: Doc<'_>) -> Result<bool> {
        let is_certain = !self.is_case_sensitive && !self.is_diacritic_sensitive;
        Ok((is_certain || self.has_a_term(doc, &self.search.terms)?) && self.passes(doc)?)
    }

    /// Returns the score of a document: the sum of the scores of the search's terms.
    ///
    /// Errors: those of [`TextMatcher::matches`].
    pub fn score(&self, doc: Doc<'_>) -> Result<f64> {
        let mut scores = TextScores::new();
        self.fields.scores(doc, MalformedTexts::Replace, &mut scores)?;
        Ok(self.search.index_terms.iter().filter_map(|term| scores.get(term)).sum())
    }

    /// Returns whether a document with one of the terms meets the other conditions.
    fn passes(&self, doc: Doc<'_>) -> Result<bool> {
        if self.has_a_term(doc, &self.search.negated_terms)? {
            return Ok(false);
        }
        for phrase in &self.search.phrases {
            if !self.has_phrase(doc, phrase)? {
                return Ok(false);
            }
        }
        for phrase in &self.search.negated_phrases {
            if self.has_phrase(doc, phrase)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether a text has a word of one of these terms. Stop words count here: a search in
    /// another language may ask for them.
    fn has_a_term(&self, doc: Doc<'_>, wanted: &BTreeSet<String>) -> Result<bool> {
        if wanted.is_empty() {
            return Ok(false);
        }
        let mut is_found = false;
        self.fields.for_each_text(doc, &mut |text| {
            let terms =
                Terms::new(text.reading, self.is_case_sensitive, self.is_diacritic_sensitive);
            is_found = words(text.text, text.reading)
                .any(|word| wanted.contains(&*terms.term_of_any(word)));
            Ok(!is_found)
        })?;
        Ok(is_found)
    }

    /// Returns whether a text contains the letters of a phrase, which need not begin at a word.
    fn has_phrase(&self, doc: Doc<'_>, phrase: &str) -> Result<bool> {
        let phrase = self.folded(self.reading.part_of_phrase(phrase, self.is_case_sensitive));
        let mut is_found = false;
        self.fields.for_each_text(doc, &mut |Text { text, .. }| {
            is_found = self.folded(text).contains(&phrase);
            Ok(!is_found)
        })?;
        Ok(is_found)
    }

    fn folded(&self, text: &str) -> String {
        let text = if self.is_case_sensitive { text.into() } else { self.reading.lower(text) };
        if self.is_diacritic_sensitive {
            text.into_owned()
        } else {
            self.reading.strip(&text).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::doc;

    use super::super::TextVersion;
    use super::*;

    #[track_caller]
    fn check(search: &str, sensitive: (bool, bool), texts: &[(&str, bool)]) {
        check_in("", search, sensitive, texts);
    }

    #[track_caller]
    fn check_in(language: &str, search: &str, sensitive: (bool, bool), texts: &[(&str, bool)]) {
        let fields = Arc::new(TextFields {
            weights: [(b"a".to_vec(), 1.0)].into_iter().collect(),
            wildcard: None,
            reading: Reading::default_of(TextVersion::Three),
            language_override: b"language".to_vec(),
        });
        let query = TextQuery {
            search: search.into(),
            language: language.to_owned(),
            is_case_sensitive: sensitive.0,
            is_diacritic_sensitive: sensitive.1,
        };
        let matcher = TextMatcher::new(&query, fields).unwrap();
        for &(text, expected) in texts {
            let doc = doc! { "a": text };
            assert_eq!(matcher.matches(doc.as_doc()).unwrap(), expected, "{search} in {text}");
        }
    }

    /// The expected results are mongod 6.0's.
    #[test]
    fn documents_match_as_in_mongod() {
        let any = (false, false);
        check("coffee", any, &[("Coffees", true), ("tea", false), ("x\0 coffee", false)]);
        check("coffee \"fee sho\"", any, &[("the coffee shopping", true), ("coffee-shop", false)]);
        check("coffee -shop", any, &[("coffee shopping", false), ("coffee", true)]);
        check("coffee -\"the\"", any, &[("the coffee", false), ("coffee", true)]);
        check("coffee \"\"", any, &[("coffee", true)]);
        check("coffee -\"\"", any, &[("coffee", false)]);
        check("-tea", any, &[("coffee", false)]);
        check("cafe \"CAFÉ\"", any, &[("Café", true), ("cafe", true)]);
        check("Coffee", (true, false), &[("Coffee", true), ("coffee", false)]);
        check("cat \"\0\"", any, &[("cat", false), ("cat\0", false)]);
        check("cat -\"cat\0\"", any, &[("cat", true)]);
        check("café", (false, true), &[("Café", true), ("cafe", false)]);
        check("The", (true, true), &[("The", false)]);
        check_in("none", "cafe -the", any, &[("the cafe", false), ("cafe", true)]);
        check_in("none", "CAFE the", (true, false), &[("the cafe", true), ("cafe", false)]);
    }
}
