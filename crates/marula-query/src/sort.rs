//! Sort patterns: what `sort` asks for, and keys of documents by it.

use std::cmp::Ordering;

use marula_bson::{Doc, FieldPath};
use marula_error::Result;

use crate::collation::Collation;
use crate::context::Context;

/// One part of a sort pattern.
#[derive(Clone, Debug)]
pub enum SortPart {
    /// By the values at a path.
    Path {
        /// Where the values are.
        path: FieldPath,
        /// Whether greater values come first.
        descending: bool,
    },
    /// By metadata of the document, greatest first: `{ $meta: "textScore" }` and the like.
    Meta(SortMeta),
}

/// Metadata to sort by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum SortMeta {
    TextScore,
    RandVal,
    SearchScore,
    SearchHighlights,
    GeoNearDistance,
    IndexKey,
}

/// A parsed sort pattern.
#[derive(Clone, Debug)]
pub struct SortPattern {
    parts: Vec<SortPart>,
    collation: Option<Collation>,
}

impl SortPattern {
    /// Parses a sort document.
    pub fn parse(_doc: Doc<'_>, context: &Context) -> Result<SortPattern> {
        Ok(SortPattern { parts: Vec::new(), collation: context.collation.clone() })
    }

    /// The parts, the most significant first; none when the sort document is empty.
    pub fn parts(&self) -> &[SortPart] {
        &self.parts
    }

    /// Writes the document's sort key into `key` (cleared first): keys compare by their bytes as the
    /// documents sort.
    pub fn write_key(&self, _doc: Doc<'_>, _key: &mut Vec<u8>) -> Result<()> {
        todo!()
    }

    /// Compares two documents without building keys.
    pub fn compare(&self, _a: Doc<'_>, _b: Doc<'_>) -> Result<Ordering> {
        let _ = &self.collation;
        todo!()
    }
}
