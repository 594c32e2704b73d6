//! Splits a text into words.

use icu_properties::CodePointSetData;
use icu_properties::props::{
    Dash, Hyphen, PatternSyntax, QuotationMark, TerminalPunctuation, WhiteSpace,
};

use super::Reading;

/// A piece of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece<'t> {
    /// The characters between delimiters.
    Word(&'t str),
    /// A character that is not part of a word.
    Delimiter(char),
}

/// The pieces of a text with their positions, in order.
pub(super) struct Pieces<'t> {
    text: &'t str,
    at: usize,
    reading: Reading,
}

/// Splits `text` by the rules of `reading`.
pub(super) fn pieces(text: &str, reading: Reading) -> Pieces<'_> {
    Pieces { text, at: 0, reading }
}

/// Returns the part of a text that mongod reads: up to the first NUL.
pub(super) fn until_nul(text: &str) -> &str {
    text.split('\0').next().unwrap_or(text)
}

/// Returns the words of `text`.
pub(super) fn words(text: &str, reading: Reading) -> impl Iterator<Item = &str> {
    pieces(text, reading).filter_map(|(_, piece)| match piece {
        Piece::Word(word) => Some(word),
        Piece::Delimiter(_) => None,
    })
}

impl<'t> Iterator for Pieces<'t> {
    type Item = (usize, Piece<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        let rest = &self.text[start..];
        let first = rest.chars().next()?;
        if self.reading.is_delimiter(first) {
            self.at += first.len_utf8();
            return Some((start, Piece::Delimiter(first)));
        }
        let length = rest.find(|letter| self.reading.is_delimiter(letter)).unwrap_or(rest.len());
        self.at += length;
        Some((start, Piece::Word(&rest[..length])))
    }
}

/// Returns whether a character separates words by Unicode, except the apostrophe. Source: manual
/// "Text Indexes", tokenization delimiters of version 3.
pub(super) fn is_delimiter(letter: char) -> bool {
    CodePointSetData::new::<WhiteSpace>().contains(letter)
        || CodePointSetData::new::<PatternSyntax>().contains(letter)
        || CodePointSetData::new::<Dash>().contains(letter)
        || CodePointSetData::new::<Hyphen>().contains(letter)
        || CodePointSetData::new::<QuotationMark>().contains(letter)
        || CodePointSetData::new::<TerminalPunctuation>().contains(letter)
}

/// Returns whether a minus after this character negates the following text, and whether negated
/// text ends here. As in mongod neither a tab nor the white space of other scripts does so.
pub(super) fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\n'..='\r')
}

#[cfg(test)]
mod tests {
    use super::super::TextVersion;
    use super::*;

    fn read(language: &str) -> Reading {
        Reading::find(language.as_bytes(), TextVersion::Three).unwrap()
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(words(text, read("none")).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn delimiters_separate_words() {
        check("tea-time, a_b x@y.com 3,000", &["tea", "time", "a_b", "x", "y", "com", "3", "000"]);
        check("“quoted”—«guill» …", &["quoted", "guill"]);
        check("日本語 テスト。", &["日本語", "テスト"]);
        check("o'clock", &["o", "clock"]);
        assert_eq!(words("o'clock", read("english")).collect::<Vec<_>>(), ["o'clock"]);
        check("", &[]);
        check(" - ", &[]);
    }
}
