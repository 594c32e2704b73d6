//! Filters: which documents a query means.
//!
//! [`Filter::parse`] reads a filter document once into a tree of [`Node`]s, brings it into a canonical
//! shape and leaves nothing of the text to look at. [`Filter::matches`] walks a document's bytes.

mod expr;
mod in_list;
mod node;

use marula_bson::{Collator, Doc, DocBuf};
use marula_error::Result;

pub use expr::ExprNode;
pub use in_list::InList;
pub use node::{Bits, BitsOp, Compare, CompareOp, Node, PathNode, Predicate, TypeSet, WhereNode};

use crate::collation::Collation;
use crate::context::Context;

/// A parsed filter in canonical form, with the collation that its strings compare by.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    collation: Option<Collation>,
}

impl Filter {
    /// Parses a filter document.
    pub fn parse(_doc: Doc<'_>, _context: &Context) -> Result<Filter> {
        todo!()
    }

    /// Makes a filter of a tree, as the planner does with the part that index bounds leave to check.
    pub fn from_node(root: Node, context: &Context) -> Filter {
        Filter { root, collation: context.collation.clone() }
    }

    /// The tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The collation's comparison, where it is not the binary one.
    pub fn collator(&self) -> Option<&dyn Collator> {
        self.collation.as_ref().map(Collation::collator)
    }

    /// Whether every document matches.
    pub fn is_always_true(&self) -> bool {
        matches!(&self.root, Node::And(children) if children.is_empty())
            || matches!(self.root, Node::AlwaysTrue)
    }

    /// Whether the document matches.
    pub fn matches(&self, _doc: Doc<'_>) -> Result<bool> {
        todo!()
    }

    /// As [`matches`](Filter::matches), and notes which array element made it so: the index that the
    /// positional `$` of updates and projections stands for. `position` stays as it is when no array was
    /// involved or the document does not match.
    pub fn matches_noting(&self, _doc: Doc<'_>, _position: &mut Option<usize>) -> Result<bool> {
        todo!()
    }

    /// The filter as `explain` prints it in `parsedQuery`.
    pub fn to_doc(&self) -> DocBuf {
        todo!()
    }

    /// A number that filters of one shape share: same operators on the same paths, whatever the constants.
    pub fn shape_hash(&self) -> u64 {
        todo!()
    }
}
