//! Paths that are as long as a path may be, in stages that read or write one field of a document.
//!
//! A path of 200 parts can be parsed, and a stage that meets no document accepts it. mongod's
//! access to a nested field is bounded by one part less: the first document is an error.

use marula_bson::Doc;
use marula_error::{Result, errors};

use super::source::{Source, Step};
use crate::expression::Path;
use crate::known::Known;
use crate::sort::SortPattern;

/// The maximum number of parts of a path to a field of a document.
const ACCESS_PARTS_MAX: usize = 199;

errors! {
    /// A stage reads or writes at a path that is too long for it.
    path_exceeds_limit() = 5_984_700, "Field path exceeds path length limit";
}

/// Returns `input`, or a source that fails at its first document where one of the paths is too
/// long.
pub(super) fn guard<'p>(
    input: Box<dyn Source>,
    paths: impl IntoIterator<Item = &'p Path>,
) -> Box<dyn Source> {
    let mut paths = paths.into_iter();
    if paths.any(|path| check(path).is_err()) { Box::new(Refusing { input }) } else { input }
}

/// Checks that a field at the path can be read and written.
pub(super) fn check(path: &Path) -> Result<()> {
    if path.parts().len() > ACCESS_PARTS_MAX { Err(path_exceeds_limit()) } else { Ok(()) }
}

struct Refusing {
    input: Box<dyn Source>,
}

impl Source for Refusing {
    fn pull(&mut self) -> Result<Step> {
        match self.input.advance()? {
            Step::Document => Err(path_exceeds_limit()),
            step => Ok(step),
        }
    }

    fn doc(&self) -> Doc<'_> {
        self.input.doc()
    }

    fn order(&self) -> Option<&SortPattern> {
        self.input.order()
    }

    fn known(&self) -> Option<&Known> {
        self.input.known()
    }
}
