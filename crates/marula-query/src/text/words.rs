//! Cutting a text into words.

use icu_properties::CodePointSetData;
use icu_properties::props::{
    Dash, Hyphen, PatternSyntax, QuotationMark, TerminalPunctuation, WhiteSpace,
};

use super::Language;

/// A piece of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece<'t> {
    /// What stands between delimiters.
    Word(&'t str),
    /// A character that is in no word.
    Delimiter(char),
}

/// The pieces of a text with where they begin, in order.
pub(super) struct Pieces<'t> {
    text: &'t str,
    at: usize,
    keeps_apostrophes: bool,
}

/// Cuts `text`, which is in `language`.
pub(super) fn pieces(text: &str, language: Language) -> Pieces<'_> {
    Pieces { text, at: 0, keeps_apostrophes: language.keeps_apostrophes() }
}

/// What of a text is looked at: mongod reads up to the first NUL.
pub(super) fn until_nul(text: &str) -> &str {
    text.split('\0').next().unwrap_or(text)
}

/// The words of `text`.
pub(super) fn words(text: &str, language: Language) -> impl Iterator<Item = &str> {
    pieces(text, language).filter_map(|(_, piece)| match piece {
        Piece::Word(word) => Some(word),
        Piece::Delimiter(_) => None,
    })
}

impl Pieces<'_> {
    fn is_delimiter(&self, letter: char) -> bool {
        match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => false,
            '\'' => !self.keeps_apostrophes,
            _ => is_delimiter(letter),
        }
    }
}

impl<'t> Iterator for Pieces<'t> {
    type Item = (usize, Piece<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        let rest = &self.text[start..];
        let first = rest.chars().next()?;
        if self.is_delimiter(first) {
            self.at += first.len_utf8();
            return Some((start, Piece::Delimiter(first)));
        }
        let length = rest.find(|letter| self.is_delimiter(letter)).unwrap_or(rest.len());
        self.at += length;
        Some((start, Piece::Word(&rest[..length])))
    }
}

/// Whether a character parts words, apart from the apostrophe. Source: manual "Text Indexes", tokenization delimiters
/// of version 3.
fn is_delimiter(letter: char) -> bool {
    CodePointSetData::new::<WhiteSpace>().contains(letter)
        || CodePointSetData::new::<PatternSyntax>().contains(letter)
        || CodePointSetData::new::<Dash>().contains(letter)
        || CodePointSetData::new::<Hyphen>().contains(letter)
        || CodePointSetData::new::<QuotationMark>().contains(letter)
        || CodePointSetData::new::<TerminalPunctuation>().contains(letter)
}

/// Whether a character is white space.
pub(super) fn is_space(letter: char) -> bool {
    CodePointSetData::new::<WhiteSpace>().contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(words(text, Language::None).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn words_stand_between_delimiters() {
        check("tea-time, a_b x@y.com 3,000", &["tea", "time", "a_b", "x", "y", "com", "3", "000"]);
        check("“quoted”—«guill» …", &["quoted", "guill"]);
        check("日本語 テスト。", &["日本語", "テスト"]);
        check("o'clock", &["o", "clock"]);
        assert_eq!(words("o'clock", Language::English).collect::<Vec<_>>(), ["o'clock"]);
        check("", &[]);
        check(" - ", &[]);
    }
}
