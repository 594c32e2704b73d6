//! `$expr`: the bridge from filters to aggregation expressions.

use marula_bson::{Doc, RawValue, ValueBuf};
use marula_error::Result;

use crate::context::Context;

/// An aggregation expression whose truth decides about a document.
#[derive(Clone, Debug)]
pub struct ExprNode {
    source: ValueBuf,
}

impl ExprNode {
    /// Parses the operand of `$expr`.
    pub fn parse(operand: RawValue<'_>, _context: &Context) -> Result<ExprNode> {
        Ok(ExprNode { source: operand.to_buf() })
    }

    /// Whether the expression is true of the document.
    pub fn matches(&self, _doc: Doc<'_>) -> Result<bool> {
        todo!()
    }

    /// The expression as it is printed.
    pub fn to_value(&self) -> ValueBuf {
        self.source.clone()
    }
}
