//! The metadata that the text of a pipeline asks for, as far as it costs something.
//!
//! It is found once, in the text: a parsed stage may have become large, for constant parts of it
//! are computed.

use marula_bson::{ByteSlice, Doc, Value};

/// Kinds of metadata.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Asked {
    /// `{ $meta: "textScore" }`.
    pub text_score: bool,
    /// `{ $meta: "indexKey" }`.
    pub index_key: bool,
    /// `{ $meta: "sortKey" }`.
    pub sort_key: bool,
}

impl Asked {
    /// The metadata that an array of stages asks for at any depth.
    pub(super) fn of(stages: Doc<'_>) -> Self {
        let mut asked = Asked::default();
        asked.find(stages);
        asked
    }

    fn find(&mut self, doc: Doc<'_>) {
        for element in doc {
            match element.value.get() {
                Value::String(name) if element.name == "$meta" => match name.as_bytes() {
                    b"textScore" => self.text_score = true,
                    b"indexKey" => self.index_key = true,
                    b"sortKey" => self.sort_key = true,
                    _ => {}
                },
                Value::Document(inner) | Value::Array(inner) => self.find(inner),
                _ => {}
            }
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Asked) -> Self {
        Asked {
            text_score: self.text_score || other.text_score,
            index_key: self.index_key || other.index_key,
            sort_key: self.sort_key || other.sort_key,
        }
    }
}
