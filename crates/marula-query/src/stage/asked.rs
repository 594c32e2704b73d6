//! The metadata that the text of a pipeline asks for, as far as it costs something.
//!
//! It is found once, in the text: a parsed stage may have become large, for constant parts of it
//! are computed.

use marula_bson::Doc;

use crate::text;

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
        let asks_for = |name| text::asks_for(stages, name);
        Asked {
            text_score: asks_for("textScore"),
            index_key: asks_for("indexKey"),
            sort_key: asks_for("sortKey"),
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
