//! Text search: what `$text` asks, what a text index holds, and whether a document matches.
//!
//! A text is cut into words at what Unicode calls white space, punctuation and the like (`words`).
//! A word becomes a *term*: without case, stop words left out, stemmed by its language
//! (`language`), without diacritics (`fold`). An index holds a document's terms, each with a score
//! (`fields`); a `$text` is read into terms and phrases that must and must not be there (`search`),
//! and `matching` tries what an index cannot tell.
//!
//! How letters, words and languages are known depends on the version of the index (`reading`);
//! version 1 also looks for the texts of a document in its own way (`first_version`).
//!
//! Source: terms and scores that mongod 6.0 shows, for texts in each of its languages.

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

pub use fields::{TextFields, TextScores};
pub use language::Language;
pub use matching::TextMatcher;
pub use reading::{Reading, TextVersion};
pub use search::{Search, TextQuery};

/// Whether a filter document asks for a text search.
pub fn has_search(filter: Doc<'_>) -> bool {
    filter.iter().any(|element| match (element.name.as_bytes(), element.value.get()) {
        (b"$text", _) => true,
        (b"$and" | b"$or", Value::Array(branches)) => {
            branches.values().filter_map(|branch| branch.as_doc()).any(has_search)
        }
        _ => false,
    })
}

/// Whether a filter searches by distance.
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

/// Whether a document asks for metadata of this name, however deep: `{ $meta: "textScore" }`, or
/// the same as `explain` prints it.
pub fn asks_for(doc: Doc<'_>, name: &str) -> bool {
    doc.iter().any(|element| match element.value.get() {
        value if *element.name == *b"$meta" => names(value, name),
        Value::Document(inner) | Value::Array(inner) => asks_for(inner, name),
        _ => false,
    })
}

fn names(value: Value<'_>, wanted: &str) -> bool {
    match value {
        Value::String(name) => *name == *wanted.as_bytes(),
        Value::Document(inner) | Value::Array(inner) => {
            inner.values().any(|value| names(value, wanted))
        }
        _ => false,
    }
}
