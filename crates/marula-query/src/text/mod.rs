//! Text search: the argument of `$text`, the entries of a text index, and whether a document
//! matches.
//!
//! A text is split into words at characters that Unicode defines as white space, punctuation and
//! similar (`words`). A word becomes a *term*: in lower case, stemmed by its language, without stop
//! words (`language`) and without diacritics (`fold`). An index holds a document's terms, each with
//! a score (`fields`). A `$text` is parsed into terms and phrases that a document must have or must
//! not have (`search`), and `matching` checks the conditions that an index cannot decide.
//!
//! The rules for letters, words and languages depend on the version of the index (`reading`);
//! version 1 also has its own rules for the texts of a document (`first_version`).
//!
//! Source: terms and scores that mongod 6.0 shows, for texts in each of its languages.

mod encoding;
mod fields;
mod first_version;
mod fold;
mod language;
mod matching;
mod reading;
mod search;
mod stop_words;
mod words;

use marula_bson::{ByteSlice, Doc, Value};

pub use fields::{MalformedTexts, TextFields, TextScores};
pub use language::Language;
pub use matching::TextMatcher;
pub use reading::{Reading, TextVersion};
pub use search::{Search, TextQuery};

/// Returns whether a filter document contains a text search.
pub fn has_search(filter: Doc<'_>) -> bool {
    filter.iter().any(|element| match (element.name.as_bytes(), element.value.get()) {
        (b"$text", _) => true,
        (b"$and" | b"$or" | b"$nor", Value::Array(branches)) => {
            branches.values().filter_map(|branch| branch.as_doc()).any(has_search)
        }
        _ => false,
    })
}

/// Returns whether a filter contains a search by distance.
pub fn has_near(filter: Doc<'_>) -> bool {
    filter.iter().any(|element| match (element.name.as_bytes(), element.value.get()) {
        (b"$and", Value::Array(branches)) => {
            branches.values().filter_map(|branch| branch.as_doc()).any(has_near)
        }
        (_, Value::Document(operators)) => {
            ["$near", "$nearSphere", "$geoNear"].iter().any(|name| operators.get(name).is_some())
        }
        _ => false,
    })
}

/// Returns whether a document uses metadata of this name at any depth: `{ $meta: "textScore" }`.
pub fn asks_for(doc: Doc<'_>, name: &str) -> bool {
    doc.iter().any(|element| match element.value.get() {
        Value::String(asked) if element.name == "$meta" => asked == name,
        Value::Document(inner) | Value::Array(inner) => asks_for(inner, name),
        _ => false,
    })
}
