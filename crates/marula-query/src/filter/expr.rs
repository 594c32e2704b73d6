//! `$expr` and `$sampleRate`: aggregation expressions in filters.

use std::cell::Cell;
use std::sync::Arc;

use marula_bson::{Doc, FieldPath, RawValue, Value, ValueBuf, doc};
use marula_error::{Result, errors};

use super::node::{Compare, CompareOp, Node, PathNode, Predicate};
use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, Scope, Variable};

errors! {
    /// The operand of `$sampleRate` is not a number.
    sample_rate_not_a_number() = BadValue, "argument to $sampleRate must be a numeric type";
    /// The operand of `$sampleRate` is not a probability.
    sample_rate_out_of_range() = BadValue, "numeric argument to $sampleRate must be in [0, 1]";
}

thread_local! {
    /// The arena for evaluation. One per thread, so that no document pays for an arena; a nested
    /// evaluation finds it taken and creates its own.
    static ARENA: Cell<Arena> = Cell::default();
}

/// An aggregation expression used as a condition on a document.
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
        let expression = Expression::parse(operand.get(), &mut Scope::of_filter(context))?;
        let context = Context { keeps_calls: true, ..context.clone() };
        Ok(ExprNode(Arc::new(Inner { expression, context })))
    }

    /// Folds constant expressions.
    pub(super) fn optimize(&mut self, context: &Context) -> Result<()> {
        let inner = Arc::get_mut(&mut self.0);
        let inner = inner.expect("a filter is optimized before it is shared");
        inner.expression.optimize(&Context { keeps_calls: true, ..context.clone() })
    }

    /// The same expression in the form that stages evaluate, with constant arguments prepared.
    fn prepared(&self) -> Result<ExprNode> {
        let context = Context { keeps_calls: false, ..self.0.context.clone() };
        let mut expression = self.0.expression.clone();
        expression.optimize(&context)?;
        Ok(ExprNode(Arc::new(Inner { expression, context })))
    }

    /// The expression.
    pub fn expression(&self) -> &Expression {
        &self.0.expression
    }

    /// Returns whether the expression is true for the document.
    pub fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        let mut arena = ARENA.take();
        arena.reset();
        let truth = self.0.expression.eval_truth(&Frame::new(doc, &arena, &self.0.context));
        ARENA.set(arena);
        truth
    }

    /// The value of the expression for the document; `None` if a field is missing.
    pub(crate) fn evaluate(&self, doc: Doc<'_>) -> Result<Option<ValueBuf>> {
        let arena = Arena::default();
        let frame = Frame::new(doc, &arena, &self.0.context);
        let value = self.0.expression.eval(&frame)?;
        Ok(value.map(|value| value.to_buf()))
    }

    /// The printed expression.
    pub fn to_value(&self) -> ValueBuf {
        self.0.expression.print()
    }
}

/// Prepares each `$expr` of a tree like stages do.
pub(super) fn prepare(node: &mut Node) {
    match node {
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter_mut().for_each(prepare);
        }
        Node::Not(child) => prepare(child),
        Node::Expr(expr) => {
            // An expression that cannot be prepared fails for each document.
            if let Ok(prepared) = expr.prepared() {
                *expr = prepared;
            }
        }
        _ => {}
    }
}

/// The name of a comparison of an expression with a path that an index may serve.
pub(super) fn internal_name(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "$_internalExprEq",
        CompareOp::Lt => "$_internalExprLt",
        CompareOp::Lte => "$_internalExprLte",
        CompareOp::Gt => "$_internalExprGt",
        CompareOp::Gte => "$_internalExprGte",
    }
}

/// The tree with an additional condition before each `$expr` for the paths that it compares; `None`
/// if there is no such condition.
pub(super) fn with_conditions(node: &Node) -> Option<Node> {
    let children = |children: &[Node]| -> Option<Vec<Node>> {
        let mut changed = Vec::new();
        for (number, child) in children.iter().enumerate() {
            if let Some(child) = with_conditions(child) {
                changed.push((number, child));
            }
        }
        if changed.is_empty() {
            return None;
        }
        let mut all = children.to_vec();
        changed.into_iter().for_each(|(number, child)| all[number] = child);
        Some(all)
    };
    match node {
        Node::And(list) => children(list).map(Node::And),
        Node::Or(list) => children(list).map(Node::Or),
        Node::Nor(list) => children(list).map(Node::Nor),
        Node::Not(child) => with_conditions(child).map(|child| Node::Not(Box::new(child))),
        Node::Expr(expr) => condition_of(expr.expression())
            .map(|condition| Node::And(vec![condition, node.clone()])),
        _ => None,
    }
}

/// The conditions on single paths that hold when the expression is true: for an `$and` those of any
/// part, for an `$or` those of all parts.
fn condition_of(expression: &Expression) -> Option<Node> {
    let Expression::Call(call) = expression else { return None };
    match call.operator.name {
        "$and" => {
            let mut found: Vec<Node> = call.args.iter().filter_map(condition_of).collect();
            match found.len() {
                0 | 1 => found.pop(),
                _ => Some(Node::And(found)),
            }
        }
        "$or" => call.args.iter().map(condition_of).collect::<Option<Vec<_>>>().map(Node::Or),
        name => comparison_of(name, &call.args),
    }
}

/// A comparison of a path with a constant. An array constant would be compared as a whole, which
/// indexes cannot do.
fn comparison_of(name: &str, args: &[Expression]) -> Option<Node> {
    let [left, right] = args else { return None };
    let (path, constant, is_turned) = match (path_of(left), path_of(right)) {
        (Some(path), None) => (path, right.as_constant()?, false),
        (None, Some(path)) => (path, left.as_constant()?, true),
        _ => return None,
    };
    let op = match (name, is_turned) {
        ("$eq", _) => CompareOp::Eq,
        ("$lt", false) | ("$gt", true) => CompareOp::Lt,
        ("$lte", false) | ("$gte", true) => CompareOp::Lte,
        ("$gt", false) | ("$lt", true) => CompareOp::Gt,
        ("$gte", false) | ("$lte", true) => CompareOp::Gte,
        _ => return None,
    };
    if matches!(constant, Value::Array(_) | Value::Undefined) {
        return None;
    }
    let predicate = Predicate::InternalExpr(Compare { op, value: constant.to_buf() });
    Some(Node::Path(PathNode { path, predicate }))
}

/// The document path of an expression.
fn path_of(expression: &Expression) -> Option<FieldPath> {
    match expression {
        Expression::Field(path) | Expression::Variable(Variable::Root { .. }, path)
            if !path.is_empty() =>
        {
            Some(FieldPath::new(path.parts().join(&b'.')))
        }
        _ => None,
    }
}

/// Parses the operand of `$sampleRate`, which is equivalent to an expression over `$rand`.
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
