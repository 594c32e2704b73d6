//! Updates: how a document changes.
//!
//! [`Update::parse`] reads the update document or pipeline once. Operators (`$set`, `$push`, …) are
//! merged into one tree by path, so that [`Update::apply`] walks the tree and the document's bytes
//! together, rewrites the document once into one buffer and copies what lies between as it is.
//! [`Update::upsert`] writes the document that is inserted when nothing matched.
//!
//! Storage, indexes and the reply's counters are the caller's; [`Applied`] says what it needs to know.

mod touched;

use marula_bson::{Doc, Value};
use marula_error::Result;

use crate::context::Context;
use crate::filter::Filter;

pub use touched::Touched;

/// A parsed update.
#[derive(Debug)]
pub struct Update {
    kind: Kind,
}

/// What [`Update::parse`] needs to know beside the update itself.
#[derive(Clone, Copy, Debug)]
pub struct UpdateOptions<'a> {
    /// The command's `arrayFilters`, if it has any.
    pub array_filters: Option<Doc<'a>>,
    /// The update statement's `c`: constants for a pipeline.
    pub constants: Option<Doc<'a>>,
    /// Whether the statement is `multi`: a replacement is refused then.
    pub multi: bool,
}

/// What a filter noted of a document when it matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// The array index that the positional `$` stands for.
    pub position: Option<usize>,
}

/// What applying an update to a document did.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Whether the new document differs; if it does not, the output holds no document.
    pub changed: bool,
    /// Which paths the update may have written.
    pub touched: Touched,
}

#[derive(Debug)]
enum Kind {
    Operators,
    Replacement,
    Pipeline,
}

impl Update {
    /// Parses the `u` of an update statement or the `update` of `findAndModify`: a document of operators, a
    /// replacement document or a pipeline.
    pub fn parse(
        _update: Value<'_>,
        _options: &UpdateOptions<'_>,
        _context: &Context,
    ) -> Result<Update> {
        todo!()
    }

    /// Whether the update replaces the whole document.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement)
    }

    /// Whether the update is a pipeline.
    pub fn is_pipeline(&self) -> bool {
        matches!(self.kind, Kind::Pipeline)
    }

    /// Whether the update is made of operators such as `$set`.
    pub fn is_operators(&self) -> bool {
        matches!(self.kind, Kind::Operators)
    }

    /// Whether the positional `$` is used, so that the filter has to note the array index that matched.
    pub fn needs_position(&self) -> bool {
        todo!()
    }

    /// Appends the updated document to `out`, if it differs from `doc`.
    pub fn apply(
        &self,
        _doc: Doc<'_>,
        _matched: &Matched,
        _context: &Context,
        _out: &mut Vec<u8>,
    ) -> Result<Applied> {
        todo!()
    }

    /// Appends the document that an upsert inserts when nothing matched `filter`. Where neither filter nor update
    /// gives an `_id`, there is none: the caller adds one as the first field.
    pub fn upsert(&self, _filter: &Filter, _context: &Context, _out: &mut Vec<u8>) -> Result<()> {
        todo!()
    }
}
