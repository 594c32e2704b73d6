//! The rules by which a text is read: its language and the version of the text index.
//!
//! Version 3 uses Unicode's letters. In versions 1 and 2 a letter beyond ASCII is part of a word
//! and has neither case nor diacritics. Version 1 accepts any name as a language: if no stemmer has
//! the name, words are not stemmed, and a language without its full name has no stop words.

use std::borrow::Cow;

use marula_bson::{BStr, ByteSlice};
use marula_error::Result;

use super::Language;
use super::encoding;
use super::fold;
use super::words;

/// The character that begins a text in some encodings.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The version of a text index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum TextVersion {
    One,
    Two,
    Three,
}

impl TextVersion {
    /// Returns the version with this number.
    pub fn find(number: i64) -> Option<Self> {
        [TextVersion::One, TextVersion::Two, TextVersion::Three]
            .into_iter()
            .find(|version| i64::from(version.number()) == number)
    }

    /// Returns its number.
    pub fn number(self) -> i32 {
        match self {
            TextVersion::One => 1,
            TextVersion::Two => 2,
            TextVersion::Three => 3,
        }
    }
}

/// A language with the version's rules for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    pub(super) language: Language,
    pub(super) version: TextVersion,
    /// The name that the version uses for the language.
    name: &'static str,
}

impl Reading {
    /// Returns the language with this name; `None` if the version has none.
    pub fn find(name: &[u8], version: TextVersion) -> Option<Self> {
        let (language, name) = match version {
            TextVersion::One => Language::find_stemmer(name).unwrap_or((Language::None, "none")),
            TextVersion::Two | TextVersion::Three => {
                let language = Language::find(name)?;
                (language, language.name())
            }
        };
        Some(Reading { language, version, name })
    }

    /// Returns the language of an index that names none.
    pub fn default_of(version: TextVersion) -> Self {
        let language = Language::English;
        Reading { language, version, name: language.name() }
    }

    /// Returns the language's name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns the version of the index.
    pub fn version(self) -> TextVersion {
        self.version
    }

    /// Checks the bytes of a text that is read: version 3 accepts only UTF-8.
    ///
    /// Errors: those of [`encoding::check`].
    pub(super) fn check(self, text: &[u8]) -> Result<()> {
        if self.knows_unicode() { encoding::check(text) } else { Ok(()) }
    }

    /// Returns the part of a phrase that is searched for: the older versions stop at a NUL unless
    /// case matters.
    pub(super) fn part_of_phrase(self, phrase: &str, is_case_sensitive: bool) -> &str {
        let is_whole = self.knows_unicode() || is_case_sensitive;
        if is_whole { phrase } else { words::until_nul(phrase) }
    }

    fn knows_unicode(self) -> bool {
        self.version == TextVersion::Three
    }

    /// Returns whether the name is the language's full name, so that more than its stemmer applies.
    fn is_called_in_full(self) -> bool {
        self.name == self.language.name()
    }

    /// Returns the part of a text that is read: version 1 reads a document's texts to their ends,
    /// the others up to the first NUL.
    pub(super) fn part_of(self, text: &BStr) -> &[u8] {
        let end = text.find_byte(0).filter(|_| self.version != TextVersion::One);
        &text[..end.unwrap_or(text.len())]
    }

    /// Returns whether a character separates words.
    pub(super) fn is_delimiter(self, letter: char) -> bool {
        match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => false,
            '\'' => !(self.language == Language::English && self.is_called_in_full()),
            _ if self.knows_unicode() => words::is_delimiter(letter),
            _ => letter.is_ascii() && letter != '\0',
        }
    }

    /// Returns a word without byte order marks if it has some: version 3 reads none, wherever they
    /// are.
    pub(super) fn without_marks(self, word: &str) -> Option<String> {
        (self.knows_unicode() && word.contains(BYTE_ORDER_MARK))
            .then(|| word.replace(BYTE_ORDER_MARK, ""))
    }

    /// Returns the text in lower case.
    pub(super) fn lower(self, text: &str) -> Cow<'_, str> {
        if self.knows_unicode() {
            return fold::lower(text, self.language.folding());
        }
        match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        }
    }

    /// Returns the text without diacritics.
    pub(super) fn strip(self, text: &str) -> Cow<'_, str> {
        if self.knows_unicode() { fold::strip(text) } else { Cow::Borrowed(text) }
    }

    /// Returns whether this lower-case word is too common to be searched for.
    pub(super) fn is_stop_word(self, word: &str) -> bool {
        self.is_called_in_full() && self.language.is_stop_word(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str, version: TextVersion) -> Option<(Language, &'static str)> {
        Reading::find(name.as_bytes(), version).map(|found| (found.language, found.name))
    }

    #[test]
    fn version_1_takes_any_name() {
        let of_one = |name| find(name, TextVersion::One).unwrap();
        assert_eq!(of_one("english"), (Language::English, "english"));
        assert_eq!(of_one("eng"), (Language::English, "eng"));
        assert_eq!(of_one("no"), (Language::Norwegian, "no"));
        for unknown in ["English", "EN", "nb", "klingon", ""] {
            assert_eq!(of_one(unknown), (Language::None, "none"), "{unknown}");
        }
        for version in [TextVersion::Two, TextVersion::Three] {
            assert_eq!(find("EN", version), Some((Language::English, "english")));
            assert_eq!(find("eng", version), None);
            assert_eq!(find("", version), None);
        }
    }

    #[test]
    fn a_language_that_is_not_called_in_full_is_its_stemmer() {
        let stops = |name: &str| Reading::find(name.as_bytes(), TextVersion::One).unwrap();
        assert!(stops("english").is_stop_word("the"));
        assert!(!stops("en").is_stop_word("the"));
        assert!(!stops("english").is_delimiter('\''));
        assert!(stops("en").is_delimiter('\''));
    }

    #[test]
    fn letters_beyond_ascii_are_letters_alone_to_older_versions() {
        let read = |version| Reading::find(b"none", version).unwrap();
        for version in [TextVersion::One, TextVersion::Two] {
            assert_eq!(read(version).lower("CAFÉ"), "cafÉ");
            assert_eq!(read(version).strip("café"), "café");
            assert!(!read(version).is_delimiter('—'));
            assert!(read(version).is_delimiter('-'));
        }
        let three = read(TextVersion::Three);
        assert_eq!(three.strip(&three.lower("CAFÉ")), "cafe");
        assert!(three.is_delimiter('—'));
    }
}
