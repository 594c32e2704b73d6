//! Filters: which documents a query means.
//!
//! [`Filter::parse`] reads a filter document once into a tree of [`Node`]s, brings it into a
//! canonical shape and leaves nothing of the text to look at. [`Filter::matches`] walks a
//! document's bytes.
//!
//! `node` is the tree, `parse` the reading with a table of operators, `matching` the trying,
//! `canonical` the shape, `explain` and `outline` the printing; the other files are families of
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
pub(crate) use parse::{is_dbref_name, is_operators};
pub(crate) use types::insert_alias as insert_type_alias;

/// A parsed filter in canonical form, with the collation that its strings compare by.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    collation: Option<Collation>,
    /// The tree in the order of the text, kept where a projection asks for positions, or a stage
    /// tries it in that order.
    written: Option<Arc<Node>>,
    /// Whether its text is `{ _id: <value> }`.
    names_id: bool,
}

/// What a filter is for; some purposes forbid some operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Everything is allowed.
    Any,
    /// A query of an upsert, from which a document is made: no `$expr`.
    Upsert,
    /// A query whose position a projection asks for: only conditions on fields.
    Positional,
    /// A condition of an update on the elements of an array: nothing that speaks of a whole
    /// document.
    Element,
}

/// A filter document that was read, and whose constant expressions have not been computed yet.
#[derive(Debug)]
pub struct Draft {
    node: Node,
    /// Whether its text is `{ _id: <value> }`.
    names_id: bool,
}

impl Draft {
    /// The tree as it was read.
    pub fn root(&self) -> &Node {
        &self.node
    }

    /// Computes the constant expressions.
    ///
    /// Errors: theirs, with mongod's prefix for each level of the tree.
    pub fn optimize(&mut self, context: &Context) -> Result<()> {
        optimize(&mut self.node, context)
    }

    /// Computes the constant expressions and brings the filter into its canonical shape.
    ///
    /// Errors: those of the constant expressions, with mongod's prefix for each level of the tree.
    pub fn finish(mut self, context: &Context) -> Result<Filter> {
        optimize(&mut self.node, context)?;
        let names_id = self.names_id;
        Filter { names_id, ..Filter::from_node(self.node, context) }.checked()
    }

    /// As [`finish`](Draft::finish), for a filter whose [positions](Filter::matches_noting) a
    /// projection asks for. Of several conditions on arrays the last gives the position: for an
    /// update the last of the canonical shape, for a projection the one written last, so the order
    /// of the text is kept beside the canonical shape.
    pub fn finish_for_positions(mut self, context: &Context) -> Result<Filter> {
        optimize(&mut self.node, context)?;
        let collator = context.collation.as_ref().map(Collation::collator);
        let written = Some(Arc::new(canonical::simplified(self.node.clone(), collator)));
        let names_id = self.names_id;
        Filter { written, names_id, ..Filter::from_node(self.node, context) }.checked()
    }

    /// As [`finish`](Draft::finish), for a stage, which tries the conditions [as they are
    /// written](Filter::for_stage).
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

/// The value of a filter document that asks for one `_id` and nothing else: `{ _id: <value> }`.
///
/// An operator document, a regular expression and an array are not such a value: they mean more
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

    /// Parses a filter document and leaves its constant expressions as they are, for a command that
    /// reads its other arguments before they are computed.
    pub fn draft(doc: Doc<'_>, purpose: Purpose, context: &Context) -> Result<Draft> {
        let names_id = id_equality(doc).is_some();
        Ok(Draft { node: parse::parse(doc, purpose, context)?, names_id })
    }

    /// The filter that every document matches.
    pub fn everything(context: &Context) -> Filter {
        Filter::from_node(Node::AlwaysTrue, context)
    }

    /// Parses a filter whose [positions](Filter::matches_noting) a projection asks for.
    pub fn parse_for_positions(doc: Doc<'_>, context: &Context) -> Result<Filter> {
        Filter::draft(doc, Purpose::Any, context)?.finish_for_positions(context)
    }

    /// As [`parse_for_positions`](Filter::parse_for_positions), of a validator. mongod computes its
    /// constants when it is asked: what a constant fails with is the failure of each document.
    ///
    /// Errors: those of parsing.
    pub fn parse_validator(doc: Doc<'_>, context: &Context) -> Result<Filter> {
        let mut draft = Filter::draft(doc, Purpose::Any, context)?;
        if draft.optimize(context).is_ok() {
            return draft.finish_for_positions(context);
        }
        let node = Filter::draft(doc, Purpose::Any, context)?.node;
        let written = Some(Arc::new(node.clone()));
        Filter { written, ..Filter::from_node(node, context) }.checked()
    }

    /// Makes a filter of a tree, as the planner does with the part that index bounds leave to
    /// check.
    pub fn from_node(root: Node, context: &Context) -> Filter {
        let collation = context.collation.clone();
        let collator = collation.as_ref().map(Collation::collator);
        Filter {
            root: canonical::canonical(root, collator),
            collation,
            written: None,
            names_id: false,
        }
    }

    /// Makes a filter of a tree, and keeps that beside the canonical one.
    pub(crate) fn written(root: Node, context: &Context) -> Filter {
        let written = Some(Arc::new(root.clone()));
        Filter { written, ..Filter::from_node(root, context) }
    }

    /// The tree in the order of the text, where that is kept; else in the canonical one.
    pub(crate) fn as_written(&self) -> &Node {
        self.written.as_deref().unwrap_or(&self.root)
    }

    /// The conditions that all must hold, in the order of the text: those of an `$and` within
    /// another behind its others.
    pub(crate) fn conditions(&self) -> Vec<Node> {
        canonical::conditions(self.as_written())
    }

    /// The filter with its conditions in the order of the text, and with what an `$expr` says of
    /// single paths. As in mongod, a stage's filter is simplified twice: what was joined the first
    /// time may come together with others.
    pub(crate) fn for_stage(&self) -> Filter {
        let once = canonical::simplified(self.as_written().clone(), self.collator());
        let root = expr::with_conditions(&once).unwrap_or(once);
        let mut root = canonical::simplified(root, self.collator());
        expr::prepare(&mut root);
        Filter { root, collation: self.collation.clone(), written: None, names_id: false }
    }

    /// Adds what an `$expr` in it says of single paths, for indexes to serve: the same documents
    /// match.
    pub fn add_index_conditions(&mut self, context: &Context) {
        if let Some(root) = expr::with_conditions(&self.root) {
            *self = Filter { written: self.written.take(), ..Filter::from_node(root, context) };
        }
    }

    /// The search by distance in it, if there is one, with the path that it searches.
    pub fn near(&self) -> Option<(&FieldPath, &NearTest)> {
        geo::near_of(&self.root)
    }

    /// The text search in it, if there is one.
    pub fn text(&self) -> Option<&TextNode> {
        text::text_of(&self.root)
    }

    fn checked(self) -> Result<Filter> {
        text::check(&self.root)?;
        geo::check_near(&self.root)?;
        Ok(self)
    }

    /// Makes a filter of a tree whose parts are in canonical form already; their order stays.
    pub fn of_canonical(root: Node, context: &Context) -> Filter {
        Filter { root, collation: context.collation.clone(), written: None, names_id: false }
    }

    /// The tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The value of `_id` that it asks for, where its text is `{ _id: <value> }`; see
    /// [`id_equality`].
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

    /// The collation's comparison, where it is not the binary one.
    pub fn collator(&self) -> Option<&dyn Collator> {
        self.collation.as_ref().map(Collation::collator)
    }

    /// Whether every document matches.
    pub fn is_always_true(&self) -> bool {
        match &self.root {
            Node::And(children) => children.is_empty(),
            node => matches!(node, Node::AlwaysTrue),
        }
    }

    /// Whether the document matches.
    ///
    /// Errors: those that an expression of `$expr` raises.
    #[inline]
    pub fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        let matched = self.matcher().node(&self.root, doc)?;
        meter::recall()?;
        Ok(matched)
    }

    /// As [`matches`](Filter::matches), and notes which array element made it so: the index that
    /// the positional `$` of updates and projections stands for. `position` is `None` afterwards
    /// when no array was involved or the document does not match. Of several conditions on arrays
    /// the last of the canonical shape counts, as it does for an update.
    pub fn matches_noting(&self, doc: Doc<'_>, position: &mut Option<usize>) -> Result<bool> {
        self.notes(&self.root, doc, position)
    }

    /// As [`matches_noting`](Filter::matches_noting), but for the order of a filter parsed by
    /// [`parse_for_positions`](Filter::parse_for_positions): the condition written last counts, as
    /// it does for a projection.
    pub fn matches_noting_as_written(
        &self,
        doc: Doc<'_>,
        position: &mut Option<usize>,
    ) -> Result<bool> {
        self.notes(self.as_written(), doc, position)
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

    /// The filter as `explain` prints it in `parsedQuery`.
    pub fn to_doc(&self) -> DocBuf {
        self.root.to_doc()
    }

    /// A number that filters of one shape share: same operators on the same paths, whatever the
    /// constants.
    pub fn shape_hash(&self) -> u64 {
        explain::shape_hash(&self.root)
    }
}

impl Predicate {
    /// Where predicates of its kind come in mongod's order of conditions.
    pub fn rank(&self) -> u8 {
        canonical::rank_of(self)
    }
}

impl Node {
    /// The parts of the path that the node speaks of itself; a negation and what joins others have
    /// none.
    pub fn path_parts(&self) -> &[Box<[u8]>] {
        match self {
            Node::Path(at) if !matches!(at.predicate, Predicate::Not(_)) => at.path.parts(),
            _ => &[],
        }
    }

    /// Where conditions of its kind come in mongod's order of conditions; of what is negated, see
    /// [`Predicate::rank`].
    pub fn rank(&self) -> u8 {
        canonical::rank(self)
    }

    /// The node as `explain` prints it.
    pub fn to_doc(&self) -> DocBuf {
        explain::to_doc(self)
    }
}
