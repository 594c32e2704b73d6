//! The argument of `$text`, with its search string parsed into terms and phrases.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bstr::BString;
use marula_bson::{BStr, ByteSlice, Doc, DocWriter, Type, Value};
use marula_error::{Result, errors};

use super::language::Terms;
use super::words::{Piece, is_space, pieces};
use super::{Reading, words};

errors! {
    not_object() = BadValue, "$text expects an object";
    missing_search() = NoSuchKey, "Missing expected field \"$search\"";
    wrong_type(field: &str, expected: &str, found: &str) = TypeMismatch, "\"{field}\" had the wrong type. Expected {expected}, found {found}";
    extra_fields() = BadValue, "extra fields in $text";
    unsupported_language(name: &str, version: i32) = BadValue, "unsupported language: \"{name}\" for text index version {version}";
}

/// The argument of `$text`.
#[derive(Clone, Debug, PartialEq)]
pub struct TextQuery {
    /// The search string.
    pub search: BString,
    /// The language of the search string; if empty, that of the index.
    pub language: String,
    /// Whether case matters.
    pub is_case_sensitive: bool,
    /// Whether diacritics matter.
    pub is_diacritic_sensitive: bool,
}

impl TextQuery {
    /// Parses the argument of `$text`.
    ///
    /// Form: `{ $search: <string>, $language: <string>, $caseSensitive: <bool>,
    /// $diacriticSensitive: <bool> }`. Errors: this module's rows.
    pub fn parse(argument: Value<'_>) -> Result<Self> {
        let Value::Document(argument) = argument else { return Err(not_object()) };
        let search = string(argument, "$search")?.map(BStr::to_owned).ok_or_else(missing_search)?;
        let language = string(argument, "$language")?.map(|name| name.to_str_lossy().into_owned());
        let is_case_sensitive = flag(argument, "$caseSensitive")?;
        let is_diacritic_sensitive = flag(argument, "$diacriticSensitive")?;
        let known = [
            true,
            language.is_some(),
            is_case_sensitive.is_some(),
            is_diacritic_sensitive.is_some(),
        ];
        if argument.iter().count() != known.iter().filter(|&&known| known).count() {
            return Err(extra_fields());
        }
        Ok(TextQuery {
            search,
            language: language.unwrap_or_default(),
            is_case_sensitive: is_case_sensitive.unwrap_or(false),
            is_diacritic_sensitive: is_diacritic_sensitive.unwrap_or(false),
        })
    }

    /// Writes the argument with all its fields.
    pub fn write(&self, out: &mut DocWriter<'_>) {
        out.append("$search", self.search.as_bstr());
        out.append("$language", self.language.as_str());
        out.append("$caseSensitive", self.is_case_sensitive);
        out.append("$diacriticSensitive", self.is_diacritic_sensitive);
    }

    /// Returns the language of the search string, for an index with this default language.
    ///
    /// Errors: `unsupported_language`.
    pub fn reading_with(&self, default: Reading) -> Result<Reading> {
        if self.language.is_empty() {
            return Ok(default);
        }
        let version = default.version();
        Reading::find(self.language.as_bytes(), version)
            .ok_or_else(|| unsupported_language(&self.language, version.number()))
    }
}

fn string<'a>(argument: Doc<'a>, field: &str) -> Result<Option<&'a BStr>> {
    match argument.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(field, "string", other.kind().alias())),
    }
}

fn flag(argument: Doc<'_>, field: &str) -> Result<Option<bool>> {
    match argument.get(field) {
        None => Ok(None),
        Some(Value::Boolean(flag)) => Ok(Some(flag)),
        Some(other) => Err(wrong_type(field, Type::Boolean.alias(), other.kind().alias())),
    }
}

/// A parsed search string.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Search {
    /// The terms of which a document must have at least one.
    pub terms: BTreeSet<String>,
    /// The same in the form of an index: without case and diacritics.
    pub index_terms: BTreeSet<String>,
    /// The terms that a document must not have.
    pub negated_terms: BTreeSet<String>,
    /// The phrases that a document must contain, letter by letter.
    pub phrases: Vec<String>,
    /// The phrases that a document must not contain.
    pub negated_phrases: Vec<String>,
}

impl Search {
    /// Parses a search string.
    ///
    /// A minus after white space negates the text up to the next white space; quotes enclose a
    /// phrase, whose words are terms too unless it is negated. A NUL hides the terms after it: one
    /// in a term that is not negated hides those not negated, one in a negated term the others.
    ///
    /// Errors: those of [`Reading::check`].
    pub fn parse(query: &TextQuery, reading: Reading) -> Result<Self> {
        let terms = Terms::new(reading, query.is_case_sensitive, query.is_diacritic_sensitive);
        let of_index = Terms::of_index(reading);
        let text = query.search.to_str_lossy();
        let mut search = Search::default();
        let (mut hides_terms, mut hides_negated) = (false, false);
        let mut has_replaced_bytes = false;
        let mut is_negated = false;
        let mut is_behind_space = true;
        let mut phrase_start = None;
        for (at, piece) in pieces(&text, reading) {
            match piece {
                Piece::Word(_) if is_negated && phrase_start.is_some() => {}
                Piece::Word(word) => {
                    let is_hidden = if is_negated { &mut hides_negated } else { &mut hides_terms };
                    if !*is_hidden {
                        let read = words::until_nul(word);
                        *is_hidden = read.len() < word.len();
                        has_replaced_bytes |= read.contains(char::REPLACEMENT_CHARACTER);
                        if !read.is_empty() {
                            search.add(read, is_negated, &terms, &of_index);
                        }
                    }
                }
                Piece::Delimiter('"') => match phrase_start.take() {
                    None => phrase_start = Some(at + 1),
                    Some(start) => {
                        let phrases = if is_negated {
                            &mut search.negated_phrases
                        } else {
                            &mut search.phrases
                        };
                        phrases.push(text[start..at].to_owned());
                    }
                },
                Piece::Delimiter('-') if phrase_start.is_none() && is_behind_space => {
                    is_negated = true;
                }
                Piece::Delimiter(delimiter) => {
                    if phrase_start.is_none() && is_space(delimiter) {
                        is_negated = false;
                    }
                }
            }
            is_behind_space = matches!(piece, Piece::Delimiter(delimiter) if is_space(delimiter));
        }
        if has_replaced_bytes && matches!(text, Cow::Owned(_)) {
            reading.check(&query.search)?;
        }
        Ok(search)
    }

    fn add(&mut self, word: &str, is_negated: bool, terms: &Terms, of_index: &Terms) {
        let Some(term) = terms.term(word) else { return };
        if is_negated {
            self.negated_terms.insert(term.into_owned());
            return;
        }
        self.index_terms.extend(of_index.term(word).map(Cow::into_owned));
        self.terms.insert(term.into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::TextVersion;
    use super::*;

    fn english() -> Reading {
        Reading::default_of(TextVersion::Three)
    }

    fn query(search: &str) -> TextQuery {
        TextQuery {
            search: search.into(),
            language: String::new(),
            is_case_sensitive: false,
            is_diacritic_sensitive: false,
        }
    }

    /// Checks a search by the terms of `explain`: terms, negated terms, phrases, negated phrases.
    #[track_caller]
    fn check(text: &str, expected: [&[&str]; 4]) {
        let search = Search::parse(&query(text), english()).unwrap();
        let list = |terms: &BTreeSet<String>| terms.iter().cloned().collect::<Vec<_>>();
        let found = [
            list(&search.terms),
            list(&search.negated_terms),
            search.phrases,
            search.negated_phrases,
        ];
        assert_eq!(
            found,
            expected.map(|list| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>()),
            "{text}"
        );
    }

    /// The expected results are mongod 6.0's.
    #[test]
    fn a_search_string_is_read_as_mongod_reads_it() {
        check("coffee -tea Running", [&["coffe", "run"], &["tea"], &[], &[]]);
        check("\"coffee shop\" -\"x y\"", [&["coffe", "shop"], &[], &["coffee shop"], &["x y"]]);
        check("x\t-tea\u{2003}-milk", [&["milk", "tea", "x"], &[], &[], &[]]);
        check("- foo", [&["foo"], &[], &[], &[]]);
        check("--foo", [&[], &["foo"], &[], &[]]);
        check("foo-bar -baz", [&["bar", "foo"], &["baz"], &[], &[]]);
        check("-foo-bar x", [&["x"], &["bar", "foo"], &[], &[]]);
        check("foo -\"bar\"baz", [&["foo"], &["baz"], &[], &["bar"]]);
        check("\"foo -bar\"", [&["bar", "foo"], &[], &["foo -bar"], &[]]);
        check("-\"foo", [&[], &[], &[], &[]]);
        check("\"abc", [&["abc"], &[], &[], &[]]);
        check("\"foo\"bar\"baz\"", [&["bar", "baz", "foo"], &[], &["foo", "baz"], &[]]);
        check("\"\"foo\"\"", [&["foo"], &[], &["", ""], &[]]);
        check("the \"the\" -the", [&[], &[], &["the"], &[]]);
        check("null\0char", [&["null"], &[], &[], &[]]);
        check("x\0b c -d", [&["x"], &["d"], &[], &[]]);
        check("-x\0b -c d", [&["d"], &["x"], &[], &[]]);
        check("\"cat\"\0 dog", [&["cat"], &[], &["cat"], &[]]);
        check("\"x\0y\" -\"z\0\" v", [&["x"], &[], &["x\0y"], &["z\0"]]);
        check(" \0 -x b", [&[], &["x"], &[], &[]]);
    }

    #[test]
    fn the_read_terms_of_version_3_are_utf_8() {
        let code = |search: &[u8], version| {
            let query = TextQuery { search: search.into(), ..query("") };
            let reading = Reading::default_of(version);
            Search::parse(&query, reading).map_err(|error| error.code().number()).err()
        };
        for (search, expected) in [
            (&b"cat \xFF"[..], Some(28_755)),
            (b"-\xFF", Some(28_755)),
            (b"cat \xF4\x90\x80\x80", Some(2)),
            (b"cat\0 -\xFF", Some(28_755)),
            (b"cat\0\xFF", None),
            (b"-\"\xFF\" cat", None),
        ] {
            assert_eq!(code(search, TextVersion::Three), expected, "{search:?}");
            assert_eq!(code(search, TextVersion::Two), None, "{search:?}");
        }
    }

    #[test]
    fn the_terms_of_an_index_have_neither_case_nor_diacritics() {
        let sensitive =
            TextQuery { is_case_sensitive: true, is_diacritic_sensitive: true, ..query("Naïve") };
        let search = Search::parse(&sensitive, english()).unwrap();
        assert_eq!(search.terms.iter().collect::<Vec<_>>(), ["Naïv"]);
        assert_eq!(search.index_terms.iter().collect::<Vec<_>>(), ["naiv"]);
    }
}
