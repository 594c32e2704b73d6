//! Stop words: the words of a language that occur in nearly every text.
//!
//! The lists in `stop_words/` are subsets of the lists of the stopwords-iso collection (MIT
//! licence): those words that mongod 6.0 ignores. One word per line, sorted by bytes.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::Language;

macro_rules! lists {
    ($($language:ident $file:literal,)*) => {
        static LISTS: LazyLock<Vec<(Language, HashSet<&'static str>)>> = LazyLock::new(|| {
            vec![$((
                Language::$language,
                include_str!(concat!("stop_words/", $file, ".txt")).lines().collect(),
            ),)*]
        });
    };
}

lists! {
    Danish "danish",
    Dutch "dutch",
    English "english",
    Finnish "finnish",
    French "french",
    German "german",
    Hungarian "hungarian",
    Italian "italian",
    Norwegian "norwegian",
    Portuguese "portuguese",
    Romanian "romanian",
    Russian "russian",
    Spanish "spanish",
    Swedish "swedish",
    Turkish "turkish",
}

/// Returns whether a lower-case word is a stop word of the language.
pub(super) fn contains(language: Language, word: &str) -> bool {
    LISTS.iter().any(|(listed, words)| *listed == language && words.contains(word))
}
