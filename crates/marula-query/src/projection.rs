//! Projections: which parts of a document an answer shows.
//!
//! [`Projection::parse`] reads a projection document once into a tree by field name;
//! [`Projection::apply`] walks it along the document's bytes. `find` and the stages `$project`,
//! `$addFields` and `$unset` share it under different [`Policy`]s.

mod metadata;

use marula_bson::Doc;
use marula_error::Result;

use crate::context::Context;
use crate::filter::Filter;

pub use metadata::Metadata;

/// Which language's rules a projection follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `find` and `findAndModify`: with `$slice`, `$elemMatch` and the positional `$` of the query language.
    Find,
    /// The stage `$project`.
    Aggregate,
}

/// A parsed projection.
#[derive(Debug)]
pub struct Projection {}

impl Projection {
    /// Parses a projection document.
    ///
    /// `filter` is the query, which a positional `$` needs.
    pub fn parse(
        _doc: Doc<'_>,
        _policy: Policy,
        _filter: Option<&Filter>,
        _context: &Context,
    ) -> Result<Projection> {
        todo!()
    }

    /// Appends the projected document to `out`.
    ///
    /// `position` is the array index that the filter noted, where [`Projection::needs_position`].
    pub fn apply(
        &self,
        _doc: Doc<'_>,
        _position: Option<usize>,
        _metadata: &Metadata<'_>,
        _context: &Context,
        _out: &mut Vec<u8>,
    ) -> Result<()> {
        todo!()
    }

    /// Whether every document is shown as it is.
    pub fn is_identity(&self) -> bool {
        todo!()
    }

    /// Whether the result is documents' own fields alone, chosen by inclusion: an index that holds them all
    /// covers the query.
    pub fn is_plain_inclusion(&self) -> bool {
        todo!()
    }

    /// The paths that the projection reads; `None` when it needs the whole document.
    pub fn needs(&self) -> Option<&[marula_bson::FieldPath]> {
        todo!()
    }

    /// Whether the positional `$` is used, so that the whole filter has to be matched and note the array index.
    pub fn needs_position(&self) -> bool {
        todo!()
    }

    /// Whether `$meta` of any kind is asked for.
    pub fn needs_metadata(&self) -> bool {
        todo!()
    }
}
