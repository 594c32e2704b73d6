//! The languages of text search: their names, stop words and stemmers.

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};

use super::Reading;
use super::fold::Folding;
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

/// A row of the table of languages: names and the stemmer.
struct LanguageRow {
    language: Language,
    name: &'static str,
    short: &'static str,
    /// Further names of its stemmer: Snowball's names, which text indexes of version 1 use.
    stemmer: &'static [&'static str],
    algorithm: Option<Algorithm>,
}

const fn row(
    language: Language,
    name: &'static str,
    short: &'static str,
    stemmer: &'static [&'static str],
    algorithm: Algorithm,
) -> LanguageRow {
    LanguageRow { language, name, short, stemmer, algorithm: Some(algorithm) }
}

/// All languages.
static LANGUAGES: &[LanguageRow] = &[
    LanguageRow {
        language: Language::None,
        name: "none",
        short: "none",
        stemmer: &[],
        algorithm: None,
    },
    row(Language::Danish, "danish", "da", &["da", "dan"], Algorithm::Danish),
    row(Language::Dutch, "dutch", "nl", &["nl", "dut", "nld"], Algorithm::Dutch),
    row(Language::English, "english", "en", &["en", "eng", "porter"], Algorithm::English),
    row(Language::Finnish, "finnish", "fi", &["fi", "fin"], Algorithm::Finnish),
    row(Language::French, "french", "fr", &["fr", "fre", "fra"], Algorithm::French),
    row(Language::German, "german", "de", &["de", "ger", "deu"], Algorithm::German),
    row(Language::Hungarian, "hungarian", "hu", &["hu", "hun"], Algorithm::Hungarian),
    row(Language::Italian, "italian", "it", &["it", "ita"], Algorithm::Italian),
    row(Language::Norwegian, "norwegian", "nb", &["no", "nor"], Algorithm::Norwegian),
    row(Language::Portuguese, "portuguese", "pt", &["pt", "por"], Algorithm::Portuguese),
    row(Language::Romanian, "romanian", "ro", &["ro", "rum", "ron"], Algorithm::Romanian),
    row(Language::Russian, "russian", "ru", &["ru", "rus"], Algorithm::Russian),
    row(Language::Spanish, "spanish", "es", &["es", "esl", "spa"], Algorithm::Spanish),
    row(Language::Swedish, "swedish", "sv", &["sv", "swe"], Algorithm::Swedish),
    row(Language::Turkish, "turkish", "tr", &["tr", "tur"], Algorithm::Turkish),
];

impl Language {
    /// Returns the language with this name or short name, in any case.
    pub fn find(name: &[u8]) -> Option<Language> {
        let is_named = |row: &&LanguageRow| {
            row.name.as_bytes().eq_ignore_ascii_case(name)
                || row.short.as_bytes().eq_ignore_ascii_case(name)
        };
        LANGUAGES.iter().find(is_named).map(|row| row.language)
    }

    /// Returns the language whose stemmer has this name, and the name; case matters.
    pub(super) fn find_stemmer(name: &[u8]) -> Option<(Language, &'static str)> {
        LANGUAGES.iter().find_map(|row| {
            let mut names = [row.name].into_iter().chain(row.stemmer.iter().copied());
            let name = names.find(|known| known.as_bytes() == name)?;
            Some((row.language, name))
        })
    }

    fn row(self) -> &'static LanguageRow {
        let row = LANGUAGES.iter().find(|row| row.language == self);
        row.expect("every language has a row")
    }

    /// Returns its name, such as `english`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns its rules for removing case.
    pub(super) fn folding(self) -> Folding {
        if self == Language::Turkish { Folding::Turkic } else { Folding::Common }
    }

    /// Returns whether this lower-case word is too common to be searched for.
    pub(super) fn is_stop_word(self, word: &str) -> bool {
        stop_words::contains(self, word)
    }
}

/// Converts words of one language to terms, for one kind of search.
pub(super) struct Terms {
    reading: Reading,
    stemmer: Option<Stemmer>,
    /// Whether case matters.
    is_case_sensitive: bool,
    /// Whether diacritics matter.
    is_diacritic_sensitive: bool,
}

impl Terms {
    /// Creates the conversion for an index's terms.
    pub(super) fn of_index(reading: Reading) -> Self {
        Terms::new(reading, false, false)
    }

    pub(super) fn new(
        reading: Reading,
        is_case_sensitive: bool,
        is_diacritic_sensitive: bool,
    ) -> Self {
        let stemmer = reading.language.row().algorithm.map(Stemmer::create);
        Terms { reading, stemmer, is_case_sensitive, is_diacritic_sensitive }
    }

    /// Returns the term of a word; `None` for a stop word, and for one of byte order marks alone.
    pub(super) fn term<'w>(&self, word: &'w str) -> Option<Cow<'w, str>> {
        if let Some(word) = self.reading.without_marks(word) {
            let term = (!word.is_empty()).then(|| self.term(&word))??;
            return Some(Cow::Owned(term.into_owned()));
        }
        let lower = self.reading.lower(word);
        match self.reading.is_stop_word(&lower) {
            true => None,
            false => Some(self.stem(word, lower)),
        }
    }

    /// Returns what the term of a word is or, for a stop word, would be.
    pub(super) fn term_of_any<'w>(&self, word: &'w str) -> Cow<'w, str> {
        if let Some(word) = self.reading.without_marks(word) {
            return Cow::Owned(self.stem(&word, self.reading.lower(&word)).into_owned());
        }
        self.stem(word, self.reading.lower(word))
    }

    fn stem<'w>(&self, word: &'w str, lower: Cow<'w, str>) -> Cow<'w, str> {
        let cased = if self.is_case_sensitive { Cow::Borrowed(word) } else { lower };
        let stem = match &self.stemmer {
            Some(stemmer) => Cow::Owned(stem(self.reading.language, stemmer, &cased)),
            None => cased,
        };
        if self.is_diacritic_sensitive {
            return stem;
        }
        match stem {
            Cow::Borrowed(stem) => self.reading.strip(stem),
            Cow::Owned(stem) => Cow::Owned(self.reading.strip(&stem).into_owned()),
        }
    }
}

fn stem(language: Language, stemmer: &Stemmer, word: &str) -> String {
    if language == Language::Hungarian {
        stem_hungarian(stemmer, word)
    } else {
        stemmer.stem(word).into_owned()
    }
}

/// Stems a Hungarian word as mongod does. Its stemmer was made for an alphabet without ő and ű,
/// with õ and û instead: those are vowels and parts of endings to it, and ő and ű are ordinary
/// letters.
fn stem_hungarian(stemmer: &Stemmer, word: &str) -> String {
    /// Letters that no rule of the stemmer uses.
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
    use super::super::TextVersion;
    use super::*;

    #[track_caller]
    fn check(language: &str, words: &str, terms: &str) {
        let reading = Reading::find(language.as_bytes(), TextVersion::Three).unwrap();
        let terms_of = Terms::of_index(reading);
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
        check("english", "\u{feff}cat ca\u{feff}ts \u{feff}the \u{feff}", "cat cat");
        check("spanish", "corriendo correr", "corr corr");
        check("french", "les chevaux été", "cheval");
        check("german", "über Straße Häuser", "strass haus");
        check("hungarian", "cikkekből", "cikkekbol");
        check("turkish", "İSTANBUL ISIRGAN", "istanbul ısırga");
    }

    #[test]
    fn a_search_may_mind_case_and_diacritics() {
        let terms = Terms::new(Reading::default_of(TextVersion::Three), true, true);
        assert_eq!(terms.term("Running").as_deref(), Some("Run"));
        assert_eq!(terms.term("naïve").as_deref(), Some("naïv"));
        assert_eq!(terms.term("The"), None);
    }
}
