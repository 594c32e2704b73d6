//! Filters: conditions that select documents.
//!
//! [`Filter::parse`] parses a filter document once into a tree of [`Node`]s in canonical form; the
//! text is not needed afterwards. [`Filter::matches`] walks a document's bytes.
//!
//! `node` is the tree, `parse` the parser with its table of operators, `matching` the evaluation,
//! `canonical` the canonical form, `explain` and `outline` print; the other files are families of
//! operators.

mod array;
mod bits;
mod canonical;
mod explain;
mod expr;
mod geo;
pub(crate) mod in_list;
mod matching;
mod modulo;
mod node;
mod number;
mod outline;
mod parse;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod types;

use std::sync::Arc;

use marula_bson::{Collator, Doc, DocBuf, FieldPath, Value};
use marula_error::Result;

pub use crate::json_schema::SchemaNode;
pub use expr::ExprNode;
pub use geo::{GeoOp, GeoTest, NearTest};
pub use in_list::InList;
pub(crate) use matching::compares;
pub use node::{
    Bits, BitsOp, Compare, CompareOp, Node, PathNode, Predicate, TextNode, TypeSet, WhereNode,
};

use crate::collation::Collation;
use crate::context::Context;
use crate::meter;
use matching::Matcher;
pub(crate) use number::parse_non_negative_i64;
pub use outline::Outline;
pub(crate) use parse::{counted_names, is_dbref_name, is_operators};
pub(crate) use types::insert_alias as insert_type_alias;

/// A parsed filter in canonical form, with its collation.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    collation: Option<Collation>,
    /// The tree in the order of the text, kept if a projection needs positions or a stage evaluates
    /// in that order.
    written: Option<Arc<Node>>,
    /// Whether the text is `{ _id: <value> }`.
    names_id: bool,
    /// Whether the conditions that follow from an `$expr` are added.
    has_index_conditions: bool,
}

/// The purpose of a filter; some purposes forbid some operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// All operators are allowed.
    Any,
    /// The query of an upsert, from which a document is created: no `$expr`.
    Upsert,
    /// A query whose position a projection needs: only conditions on fields.
    Positional,
    /// A condition of an update on the elements of an array: no operators on the whole document.
    Element,
}

/// A parsed filter document whose constant expressions are not folded yet.
#[derive(Debug)]
pub struct Draft {
    node: Node,
    /// Whether the text is `{ _id: <value> }`.
    names_id: bool,
}

impl Draft {
    /// The tree as parsed.
    pub fn root(&self) -> &Node {
        &self.node
    }

    /// Folds constant expressions.
    ///
    /// Errors: theirs, with mongod's prefix for each level of the tree.
    pub fn optimize(&mut self, context: &Context) -> Result<()> {
        optimize(&mut self.node, context)
    }

    /// Folds constant expressions and converts the filter to canonical form.
    ///
    /// Errors: those of the constant expressions, with mongod's prefix for each level of the tree.
    pub fn finish(mut self, context: &Context) -> Result<Filter> {
        optimize(&mut self.node, context)?;
        let names_id = self.names_id;
        Filter { names_id, ..Filter::from_node(self.node, context) }.checked()
    }

    /// Same as [`finish`](Draft::finish), for a filter whose [positions](Filter::matches_noting) a
    /// projection needs. Of several conditions on arrays the last one determines the position: for
    /// an update the last in canonical form, for a projection the last in the text, so the order of
    /// the text is kept too.
    pub fn finish_for_positions(mut self, context: &Context) -> Result<Filter> {
        optimize(&mut self.node, context)?;
        let collator = context.collation.as_ref().map(Collation::collator);
        let written = Some(Arc::new(canonical::simplified(self.node.clone(), collator)));
        let names_id = self.names_id;
        Filter { written, names_id, ..Filter::from_node(self.node, context) }.checked()
    }

    /// Same as [`finish`](Draft::finish), for a stage, which evaluates conditions [in the order of
    /// the text](Filter::for_stage).
    pub(crate) fn finish_for_stage(mut self, context: &Context) -> Result<Filter> {
        optimize(&mut self.node, context)?;
        let names_id = self.names_id;
        Filter { names_id, ..Filter::written(self.node, context) }.checked()
    }
}

fn optimize(node: &mut Node, context: &Context) -> Result<()> {
    let done = match node {
        Node::And(children) | Node::Or(children) | Node::Nor(children) => {
            children.iter_mut().try_for_each(|child| optimize(child, context))
        }
        Node::Not(child) => optimize(child, context),
        Node::Expr(expression) => expression.optimize(context),
        _ => Ok(()),
    };
    done.map_err(|error| error.caused_by("Failed to optimize expression"))
}

/// The value of a filter document that selects one `_id` and nothing else: `{ _id: <value> }`.
///
/// An operator document, a regular expression and an array are no such value: they can select more
/// than one `_id`.
pub fn id_equality(filter: Doc<'_>) -> Option<Value<'_>> {
    let mut fields = filter.iter();
    let (Some(only), None) = (fields.next(), fields.next()) else { return None };
    if only.name != "_id" {
        return None;
    }
    match only.value.get() {
        Value::Regex { .. } | Value::Array(_) | Value::Undefined | Value::Null => None,
        Value::Document(doc)
            if doc.iter().next().is_some_and(|first| first.name.starts_with(b"$")) =>
        {
            None
        }
        id => Some(id),
    }
}

impl Filter {
    /// Parses a filter document.
    pub fn parse(doc: Doc<'_>, context: &Context) -> Result<Filter> {
        Filter::draft(doc, Purpose::Any, context)?.finish(context)
    }

    /// Parses a filter document without folding its constant expressions, for a command that parses
    /// its other arguments first.
    pub fn draft(doc: Doc<'_>, purpose: Purpose, context: &Context) -> Result<Draft> {
        let names_id = id_equality(doc).is_some();
        Ok(Draft { node: parse::parse(doc, purpose, context)?, names_id })
    }

    /// The filter that matches every document.
    pub fn everything(context: &Context) -> Filter {
        Filter::from_node(Node::AlwaysTrue, context)
    }

    /// Parses a filter whose [positions](Filter::matches_noting) a projection needs.
    pub fn parse_for_positions(doc: Doc<'_>, context: &Context) -> Result<Filter> {
        Filter::draft(doc, Purpose::Any, context)?.finish_for_positions(context)
    }

    /// Parses a filter that mongod does not rewrite before it evaluates it, such as a validator: an
    /// error of a constant is one for each document, and operands keep their order. Matched by
    /// [`matches_as_written`](Filter::matches_as_written).
    ///
    /// Errors: those of parsing.
    pub fn parse_as_written(doc: Doc<'_>, context: &Context) -> Result<Filter> {
        let node = Filter::draft(doc, Purpose::Any, context)?.node;
        let written = Some(Arc::new(node.clone()));
        Filter { written, ..Filter::from_node(node, context) }.checked()
    }

    /// Creates a filter from a tree; used by the planner for residual conditions after index
    /// bounds.
    pub fn from_node(root: Node, context: &Context) -> Filter {
        let collation = context.collation.clone();
        let root = canonical::canonical(root, collation.as_ref().map(Collation::collator));
        Filter::of_root(root, collation)
    }

    fn of_root(root: Node, collation: Option<Collation>) -> Filter {
        let (written, names_id, has_index_conditions) = (None, false, false);
        Filter { root, collation, written, names_id, has_index_conditions }
    }

    /// Creates a filter from a tree, and keeps both the original and the canonical tree.
    pub(crate) fn written(root: Node, context: &Context) -> Filter {
        let written = Some(Arc::new(root.clone()));
        Filter { written, ..Filter::from_node(root, context) }
    }

    /// The tree in the order of the text if it is kept, otherwise the canonical tree.
    pub(crate) fn as_written(&self) -> &Node {
        self.written.as_deref().unwrap_or(&self.root)
    }

    /// The conditions that must all hold, in the order of the text; those of a nested `$and` come
    /// after the others.
    pub(crate) fn conditions(&self) -> Vec<Node> {
        canonical::conditions(self.as_written())
    }

    /// The filter with its conditions in the order of the text, and with the conditions derived
    /// from `$expr`. As in mongod, a stage's filter is simplified twice, since conditions that were
    /// joined the first time may combine with others.
    pub(crate) fn for_stage(&self) -> Filter {
        let once = canonical::simplified(self.as_written().clone(), self.collator());
        let root = expr::with_conditions(&once).unwrap_or(once);
        let mut root = canonical::simplified(root, self.collator());
        expr::prepare(&mut root);
        Filter::of_root(root, self.collation.clone())
    }

    /// Adds the conditions that follow from an `$expr`, once, for use by indexes: the same
    /// documents match. They also change the order in which branches of an `$or` are evaluated, so
    /// that a write, which evaluates the filter once more, must have them, too.
    pub fn add_index_conditions(&mut self, context: &Context) {
        if self.has_index_conditions {
            return;
        }
        if let Some(root) = expr::with_conditions(&self.root) {
            *self = Filter { written: self.written.take(), ..Filter::from_node(root, context) };
        }
        self.has_index_conditions = true;
    }

    /// The search by distance in the filter, if any, with its path.
    pub fn near(&self) -> Option<(&FieldPath, &NearTest)> {
        geo::near_of(&self.root)
    }

    /// The text search in the filter, if any.
    pub fn text(&self) -> Option<&TextNode> {
        text::text_of(&self.root)
    }

    fn checked(self) -> Result<Filter> {
        text::check(&self.root)?;
        geo::check_near(&self.root)?;
        Ok(self)
    }

    /// Creates a filter from a tree whose parts are in canonical form already; their order is kept.
    pub fn of_canonical(root: Node, context: &Context) -> Filter {
        Filter::of_root(root, context.collation.clone())
    }

    /// The tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The value of `_id` if the text is `{ _id: <value> }`; see [`id_equality`].
    pub fn named_id(&self) -> Option<Value<'_>> {
        match &self.root {
            Node::Path(PathNode { predicate: Predicate::Compare(compare), .. })
                if self.names_id =>
            {
                Some(compare.value.get())
            }
            _ => None,
        }
    }

    /// The comparison of the collation, unless it is binary.
    pub fn collator(&self) -> Option<&dyn Collator> {
        self.collation.as_ref().map(Collation::collator)
    }

    /// Returns whether every document matches.
    pub fn is_always_true(&self) -> bool {
        match &self.root {
            Node::And(children) => children.is_empty(),
            node => matches!(node, Node::AlwaysTrue),
        }
    }

    /// Returns whether the document matches.
    ///
    /// Errors: those of expressions in `$expr`.
    #[inline]
    pub fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        let matched = self.matcher().node(&self.root, doc)?;
        meter::recall()?;
        Ok(matched)
    }

    /// Same as [`matches`](Filter::matches), and sets `position` to the index of the array element
    /// that matched, for the positional `$` of updates and projections. `position` is `None` if no
    /// array was involved or the document does not match. Of several conditions on arrays the last
    /// in canonical form wins, as for an update.
    pub fn matches_noting(&self, doc: Doc<'_>, position: &mut Option<usize>) -> Result<bool> {
        self.notes(&self.root, doc, position)
    }

    /// Same as [`matches_noting`](Filter::matches_noting), for a filter parsed by
    /// [`parse_for_positions`](Filter::parse_for_positions): the last condition in the text wins,
    /// as for a projection.
    pub fn matches_noting_as_written(
        &self,
        doc: Doc<'_>,
        position: &mut Option<usize>,
    ) -> Result<bool> {
        self.notes(self.as_written(), doc, position)
    }

    /// Same as [`matches`](Filter::matches), for a filter parsed by
    /// [`parse_as_written`](Filter::parse_as_written): its conditions are evaluated in the order of
    /// the text, which decides whether one with an error is reached.
    ///
    /// Errors: those of expressions in `$expr`.
    pub fn matches_as_written(&self, doc: Doc<'_>) -> Result<bool> {
        self.notes(self.as_written(), doc, &mut None)
    }

    fn notes(&self, root: &Node, doc: Doc<'_>, position: &mut Option<usize>) -> Result<bool> {
        let mut matcher = self.matcher();
        let matched = matcher.node(root, doc)?;
        meter::recall()?;
        *position = matcher.position.filter(|_| matched);
        Ok(matched)
    }

    fn matcher(&self) -> Matcher<'_> {
        Matcher { collator: self.collator(), position: None }
    }

    /// The form in `parsedQuery` of `explain`.
    pub fn to_doc(&self) -> DocBuf {
        self.root.to_doc()
    }

    /// A hash that is equal for filters of the same shape: the same operators on the same paths,
    /// whatever the constants.
    pub fn shape_hash(&self) -> u64 {
        explain::shape_hash(&self.root)
    }
}

impl Predicate {
    /// The rank in mongod's order of conditions.
    pub fn rank(&self) -> u8 {
        canonical::rank_of(self)
    }
}

impl Node {
    /// The parts of the node's own path; a negation and a combination of conditions have none.
    pub fn path_parts(&self) -> &[Box<[u8]>] {
        match self {
            Node::Path(at) if !matches!(at.predicate, Predicate::Not(_)) => at.path.parts(),
            _ => &[],
        }
    }

    /// The rank in mongod's order of conditions; for negated conditions, see [`Predicate::rank`].
    pub fn rank(&self) -> u8 {
        canonical::rank(self)
    }

    /// The form of the node in `explain`.
    pub fn to_doc(&self) -> DocBuf {
        explain::to_doc(self)
    }
}
