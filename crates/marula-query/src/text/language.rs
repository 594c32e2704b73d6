//! The languages of text search: their names, stop words and stemmers.

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};

use super::fold::{self, Folding};
use super::stop_words;

/// A language of text search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)]
pub enum Language {
    /// No stop words, no stemming.
    None,
    Danish,
    Dutch,
    English,
    Finnish,
    French,
    German,
    Hungarian,
    Italian,
    Norwegian,
    Portuguese,
    Romanian,
    Russian,
    Spanish,
    Swedish,
    Turkish,
}

/// A language's names and what stems its words.
struct Row {
    language: Language,
    name: &'static str,
    short: &'static str,
    algorithm: Option<Algorithm>,
}

const fn row(
    language: Language,
    name: &'static str,
    short: &'static str,
    algorithm: Algorithm,
) -> Row {
    Row { language, name, short, algorithm: Some(algorithm) }
}

/// Every language.
static LANGUAGES: &[Row] = &[
    Row { language: Language::None, name: "none", short: "none", algorithm: None },
    row(Language::Danish, "danish", "da", Algorithm::Danish),
    row(Language::Dutch, "dutch", "nl", Algorithm::Dutch),
    row(Language::English, "english", "en", Algorithm::English),
    row(Language::Finnish, "finnish", "fi", Algorithm::Finnish),
    row(Language::French, "french", "fr", Algorithm::French),
    row(Language::German, "german", "de", Algorithm::German),
    row(Language::Hungarian, "hungarian", "hu", Algorithm::Hungarian),
    row(Language::Italian, "italian", "it", Algorithm::Italian),
    row(Language::Norwegian, "norwegian", "nb", Algorithm::Norwegian),
    row(Language::Portuguese, "portuguese", "pt", Algorithm::Portuguese),
    row(Language::Romanian, "romanian", "ro", Algorithm::Romanian),
    row(Language::Russian, "russian", "ru", Algorithm::Russian),
    row(Language::Spanish, "spanish", "es", Algorithm::Spanish),
    row(Language::Swedish, "swedish", "sv", Algorithm::Swedish),
    row(Language::Turkish, "turkish", "tr", Algorithm::Turkish),
];

impl Language {
    /// The language of this name or short name, whatever its case.
    pub fn find(name: &[u8]) -> Option<Language> {
        let is_named = |row: &&Row| {
            row.name.as_bytes().eq_ignore_ascii_case(name)
                || row.short.as_bytes().eq_ignore_ascii_case(name)
        };
        LANGUAGES.iter().find(is_named).map(|row| row.language)
    }

    fn row(self) -> &'static Row {
        let row = LANGUAGES.iter().find(|row| row.language == self);
        row.expect("every language has a row")
    }

    /// Its name, such as `english`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// How its letters lose their case.
    pub(super) fn folding(self) -> Folding {
        if self == Language::Turkish { Folding::Turkic } else { Folding::Common }
    }

    /// Whether an apostrophe is part of a word.
    pub(super) fn keeps_apostrophes(self) -> bool {
        self == Language::English
    }

    /// Whether this word, without case, says too little to be searched for.
    pub(super) fn is_stop_word(self, word: &str) -> bool {
        stop_words::contains(self, word)
    }
}

/// What makes terms of the words of one language, for one kind of search.
pub(super) struct Terms {
    language: Language,
    stemmer: Option<Stemmer>,
    /// Whether upper and lower case differ.
    is_case_sensitive: bool,
    /// Whether letters with and without diacritics differ.
    is_diacritic_sensitive: bool,
}

impl Terms {
    /// Of the terms that an index holds.
    pub(super) fn of_index(language: Language) -> Self {
        Terms::new(language, false, false)
    }

    pub(super) fn new(
        language: Language,
        is_case_sensitive: bool,
        is_diacritic_sensitive: bool,
    ) -> Self {
        let stemmer = language.row().algorithm.map(Stemmer::create);
        Terms { language, stemmer, is_case_sensitive, is_diacritic_sensitive }
    }

    /// The term of a word; `None` where the language passes it over.
    pub(super) fn term<'w>(&self, word: &'w str) -> Option<Cow<'w, str>> {
        let folding = self.language.folding();
        let lower = fold::lower(word, folding);
        if self.language.is_stop_word(&lower) {
            return None;
        }
        let cased = if self.is_case_sensitive { Cow::Borrowed(word) } else { lower };
        let stem = match &self.stemmer {
            Some(stemmer) => Cow::Owned(stem(self.language, stemmer, &cased)),
            None => cased,
        };
        if self.is_diacritic_sensitive {
            return Some(stem);
        }
        Some(match stem {
            Cow::Borrowed(stem) => fold::strip(stem),
            Cow::Owned(stem) => Cow::Owned(fold::strip(&stem).into_owned()),
        })
    }
}

fn stem(language: Language, stemmer: &Stemmer, word: &str) -> String {
    if language == Language::Hungarian {
        stem_hungarian(stemmer, word)
    } else {
        stemmer.stem(word).into_owned()
    }
}

/// mongod's Hungarian stemmer was made for an alphabet without ő and ű, in which õ and û stood for them: those it
/// knows as vowels and in endings, and ő and ű are letters like any other to it.
fn stem_hungarian(stemmer: &Stemmer, word: &str) -> String {
    /// Letters that no rule of the stemmer speaks of.
    const STAND_INS: [char; 2] = ['\u{E000}', '\u{E001}'];
    if word.contains(STAND_INS) {
        return stemmer.stem(word).into_owned();
    }
    let [long_o, long_u] = STAND_INS;
    let there = |letter| match letter {
        'ő' => long_o,
        'ű' => long_u,
        'õ' => 'ő',
        'û' => 'ű',
        other => other,
    };
    let back = |letter| match letter {
        'ő' => 'õ',
        'ű' => 'û',
        other if other == long_o => 'ő',
        other if other == long_u => 'ű',
        other => other,
    };
    let mapped: String = word.chars().map(there).collect();
    stemmer.stem(&mapped).chars().map(back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(language: &str, words: &str, terms: &str) {
        let terms_of = Terms::of_index(Language::find(language.as_bytes()).unwrap());
        let found: Vec<_> =
            words.split(' ').filter_map(|word| terms_of.term(word)).map(Cow::into_owned).collect();
        assert_eq!(found.join(" "), terms, "{language}");
    }

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(Language::find(b"ENGLISH"), Some(Language::English));
        assert_eq!(Language::find(b"nb"), Some(Language::Norwegian));
        assert_eq!(Language::find(b"no"), None);
        assert_eq!(Language::find(b""), None);
        assert_eq!(Language::find(b"none"), Some(Language::None));
    }

    /// The expected terms are mongod 6.0's.
    #[test]
    fn words_become_terms_by_their_language() {
        check("english", "Running the coffees don't naïve", "run coffe naiv");
        check("none", "Running the CAFÉ", "running the cafe");
        check("spanish", "corriendo correr", "corr corr");
        check("french", "les chevaux été", "cheval");
        check("german", "über Straße Häuser", "strass haus");
        check("hungarian", "cikkekből", "cikkekbol");
        check("turkish", "İSTANBUL ISIRGAN", "istanbul ısırga");
    }

    #[test]
    fn a_search_may_mind_case_and_diacritics() {
        let terms = Terms::new(Language::English, true, true);
        assert_eq!(terms.term("Running").as_deref(), Some("Run"));
        assert_eq!(terms.term("naïve").as_deref(), Some("naïv"));
        assert_eq!(terms.term("The"), None);
    }
}
