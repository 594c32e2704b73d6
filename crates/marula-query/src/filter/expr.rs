//! `$expr` and `$sampleRate`: the bridge from filters to aggregation expressions.

use std::cell::Cell;
use std::sync::Arc;

use marula_bson::{Doc, RawValue, Value, ValueBuf, doc};
use marula_error::{Result, errors};

use super::node::Node;
use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, Scope};

errors! {
    /// The operand is no number.
    sample_rate_not_a_number() = BadValue, "argument to $sampleRate must be a numeric type";
    /// The operand is no probability.
    sample_rate_out_of_range() = BadValue, "numeric argument to $sampleRate must be in [0, 1]";
}

thread_local! {
    /// Where evaluation computes its values. One per thread, so that no document pays for an arena; an
    /// evaluation within an evaluation finds it taken and makes its own.
    static ARENA: Cell<Arena> = Cell::default();
}

/// An aggregation expression whose truth decides about a document.
#[derive(Clone, Debug)]
pub struct ExprNode(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    expression: Expression,
    context: Context,
}

impl ExprNode {
    /// Parses the operand of `$expr`.
    pub fn parse(operand: RawValue<'_>, context: &Context) -> Result<ExprNode> {
        let expression = Expression::parse(operand.get(), &mut Scope::new(context))?;
        Ok(ExprNode(Arc::new(Inner { expression, context: context.clone() })))
    }

    /// Computes what needs no document.
    pub(super) fn optimize(&mut self, context: &Context) -> Result<()> {
        let inner = Arc::get_mut(&mut self.0);
        let inner = inner.expect("a filter is optimized before it is shared");
        inner.expression.optimize(context)
    }

    /// The expression itself.
    pub fn expression(&self) -> &Expression {
        &self.0.expression
    }

    /// Whether the expression is true of the document.
    pub fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        let mut arena = ARENA.take();
        arena.reset();
        let truth = self.0.expression.eval_truth(&Frame::new(doc, &arena, &self.0.context));
        ARENA.set(arena);
        truth
    }

    /// What the expression yields for the document; nothing where a field is missing.
    pub(crate) fn evaluate(&self, doc: Doc<'_>) -> Result<Option<ValueBuf>> {
        let arena = Arena::default();
        let frame = Frame::new(doc, &arena, &self.0.context);
        let value = self.0.expression.eval(&frame)?;
        Ok(value.map(|value| value.to_buf()))
    }

    /// The expression as it is printed.
    pub fn to_value(&self) -> ValueBuf {
        self.0.expression.print()
    }
}

/// Parses the operand of `$sampleRate`, which is an expression over `$rand` in other words.
pub(super) fn parse_sample_rate(operand: RawValue<'_>, context: &Context) -> Result<Node> {
    let rate = operand.get().as_f64().ok_or_else(sample_rate_not_a_number)?;
    if !(0.0..=1.0).contains(&rate) {
        return Err(sample_rate_out_of_range());
    }
    let expression = if rate == 0.0 || rate == 1.0 {
        ValueBuf::from(rate == 1.0)
    } else {
        let random = doc! { "$lt": [{ "$rand": {} }, { "$const": rate }] };
        Value::Document(random.as_doc()).to_buf()
    };
    Ok(Node::Expr(ExprNode::parse(expression.as_raw(), context)?))
}
