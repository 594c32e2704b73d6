//! Removes case and diacritics from letters, character by character, by Unicode's data.

use std::borrow::Cow;

use icu_casemap::CaseMapper;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::CodePointSetData;
use icu_properties::props::Diacritic;

/// The rules for removing case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Folding {
    /// The rules of most languages.
    Common,
    /// I is ı and İ is i.
    Turkic,
}

/// Returns the text in lower case.
pub(super) fn lower(text: &str, folding: Folding) -> Cow<'_, str> {
    let case = CaseMapper::new();
    let fold = |letter: char| match folding {
        Folding::Common if letter.is_ascii() => letter.to_ascii_lowercase(),
        Folding::Common => case.simple_fold(letter),
        Folding::Turkic => case.simple_fold_turkic(letter),
    };
    if text.chars().all(|letter| fold(letter) == letter) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(fold).collect())
}

/// Returns the text without diacritics. A composed letter is decomposed only if one of its parts is
/// a diacritic.
pub(super) fn strip(text: &str) -> Cow<'_, str> {
    // The ASCII characters ^ and ` count as diacritics; neither is ever part of a word, but may be
    // part of a phrase.
    if text.is_ascii() && !text.contains(['^', '`']) {
        return Cow::Borrowed(text);
    }
    let diacritics = CodePointSetData::new::<Diacritic>();
    let apart = DecomposingNormalizerBorrowed::new_nfd();
    let together = ComposingNormalizerBorrowed::new_nfc();
    let mut stripped = String::with_capacity(text.len());
    let mut buffer = [0; 4];
    for letter in text.chars() {
        let alone: &str = letter.encode_utf8(&mut buffer);
        if letter.is_ascii() && !diacritics.contains(letter) {
            stripped.push(letter);
            continue;
        }
        let parts = apart.normalize(alone);
        if parts.chars().any(|part| diacritics.contains(part)) {
            let kept: String = parts.chars().filter(|&part| !diacritics.contains(part)).collect();
            stripped.push_str(&together.normalize(&kept));
        } else {
            stripped.push(letter);
        }
    }
    Cow::Owned(stripped)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are mongod 6.0's.
    #[test]
    fn letters_lose_case_and_diacritics() {
        assert_eq!(lower("ÜBER ΣΊΣΥΦΟΣ ς ẞ", Folding::Common), "über σίσυφοσ σ ß");
        assert_eq!(lower("İI", Folding::Common), "İi");
        assert_eq!(lower("İI", Folding::Turkic), "iı");
        assert_eq!(strip("ünïcödé ёлка Å ǖ e\u{301}"), "unicode елка A u e");
        assert_eq!(strip("각 ۂ གྷ ½ ﬁ ß ø"), "각 ۂ གྷ ½ ﬁ ß ø");
        assert_eq!(strip("·"), "");
    }
}
