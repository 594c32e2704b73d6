//! What a command asks of a collection, parsed.

use marula_bson::{Doc, DocBuf, Value};
use marula_query::context::Context;
use marula_query::filter::Filter;
use marula_query::sort::SortPattern;

/// The documents a command wants, and in which order.
pub struct Query {
    /// Which documents.
    pub filter: Filter,
    /// In which order; `None` is any.
    pub sort: Option<SortPattern>,
    /// How many to leave out at the front.
    pub skip: u64,
    /// How many to give at most.
    pub limit: Option<u64>,
    /// What the client says about the way.
    pub hint: Option<Hint>,
    /// The least index key, included: `min`.
    pub min: Option<DocBuf>,
    /// The first index key behind: `max`.
    pub max: Option<DocBuf>,
    /// Collation, time and variables.
    pub context: Context,
}

/// What the client says about the way to its documents.
#[derive(Clone, Debug)]
pub enum Hint {
    /// The index of this name.
    Name(String),
    /// The index with this key pattern.
    Key(DocBuf),
    /// No index, in record order or against it: `{ $natural: 1 }` or -1.
    Natural {
        /// Whether the newest record comes first.
        backward: bool,
    },
}

impl Query {
    /// Every document that `filter` means.
    pub fn new(filter: Filter, context: Context) -> Self {
        Query {
            filter,
            sort: None,
            skip: 0,
            limit: None,
            hint: None,
            min: None,
            max: None,
            context,
        }
    }
}

/// The value of a filter document that asks for one `_id` and nothing else: `{ _id: <value> }`.
///
/// An operator document, a regular expression and an array are not such a value: they mean more than one `_id`.
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
