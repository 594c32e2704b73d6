//! What the planner knows of each kind of key part, in one table.
//!
//! A key pattern names a kind for each of its parts: a direction, or a word such as `"hashed"`. A
//! kind's row says which values of such a part can belong to a document that meets a predicate,
//! whether these bounds say it all or a filter has to stay, and what else its entries are good for.
//! Whoever adds a kind adds a row to [`KINDS`].

use std::borrow::Cow;

use marula_bson::{FieldPath, Value};
use marula_db::Index;
use marula_db::index::{Geography, IndexKind};
use marula_query::filter::{CompareOp, Predicate};

use super::interval::{Interval, Order};
use super::{are_free_of_strings, hashed, places, predicate};

/// A kind of key part.
pub struct PartKind {
    /// How a key pattern names it.
    pub name: &'static str,
    /// The values of a part that can belong to a document that meets the predicate; `None` when the
    /// part cannot serve it.
    pub bounds: fn(&Predicate, &PartView<'_>) -> Option<Bounds>,
    /// Whether entries come in the order of the field's values, so that they give a sort's order.
    pub is_ordered: bool,
    /// Whether documents whose entries are alike have the same value there.
    pub tells_equal: bool,
    /// Whether the field's value can be read from an entry, so that an index covers what needs it.
    pub holds_value: bool,
}

/// The kind of parts with a direction, 1 or -1.
pub static ORDERED: PartKind = PartKind {
    name: "",
    bounds: predicate::bounds,
    is_ordered: true,
    tells_equal: true,
    holds_value: true,
};

/// The kinds that a key pattern names with a word.
pub static KINDS: &[PartKind] = &[
    PartKind {
        name: "hashed",
        bounds: hashed::bounds,
        is_ordered: false,
        tells_equal: true,
        holds_value: false,
    },
    PartKind {
        name: "2dsphere",
        bounds: places::sphere_bounds,
        is_ordered: false,
        tells_equal: false,
        holds_value: false,
    },
    PartKind {
        name: "2d",
        bounds: places::flat_bounds,
        is_ordered: false,
        tells_equal: false,
        holds_value: false,
    },
];

/// A kind that is in no row serves nothing.
static OPAQUE: PartKind = PartKind {
    name: "",
    bounds: |_, _| None,
    is_ordered: false,
    tells_equal: false,
    holds_value: false,
};

/// Which values of a part can belong to a document that meets a predicate.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounds {
    /// The values, ascending and disjoint.
    pub intervals: Vec<Interval>,
    /// What is left to check of what is found there.
    pub exactness: Exactness,
}

/// What the bounds of a predicate leave to check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exactness {
    /// Nothing: just the documents that meet the predicate have entries there.
    Exact,
    /// The predicate, on the entry's value.
    OnKeys,
    /// The predicate, on the document.
    OnDocument,
}

/// A key part as the planner sees it for one query.
#[derive(Clone)]
pub struct PartView<'a> {
    /// The field.
    pub path: Cow<'a, FieldPath>,
    /// The kind.
    pub kind: &'static PartKind,
    /// Whether greater values come first.
    pub descending: bool,
    /// A bit for each component of the path at which some document has an array.
    pub multikey: u64,
    /// Whether a number in the path may be a place in an array, which entries do not tell.
    pub names_places: bool,
    /// Whether documents without the index's fields have no entry.
    pub is_sparse: bool,
    /// How an index on places makes their keys.
    pub geography: Option<Geography>,
    /// Whether the index has no other part.
    pub is_alone: bool,
    /// The order of the entries' strings.
    pub order: Order<'a>,
    /// Whether the index orders strings as the query does.
    pub same_collation: bool,
    /// Whether documents are only counted, or told by their `_id`, and none has more than one
    /// entry.
    pub is_counted: bool,
}

impl<'a> PartView<'a> {
    /// The parts of an index.
    pub fn of(index: &'a Index, same_collation: bool) -> Vec<PartView<'a>> {
        let spec = &index.spec;
        let multikey = index.multikey_paths();
        let geography = match spec.kind {
            IndexKind::Places(geography) => Some(geography),
            _ => None,
        };
        let order = spec.collation.as_ref().map(|collation| collation.collator());
        let parts = spec.parts.iter().zip(spec.key.as_doc().values()).zip(multikey);
        parts
            .map(|((part, named), multikey)| PartView {
                path: Cow::Borrowed(&part.path),
                kind: kind_of(named),
                descending: part.descending,
                multikey,
                names_places: part.path.indexes().iter().any(Option::is_some),
                is_sparse: spec.sparse,
                geography,
                is_alone: spec.parts.len() == 1,
                order,
                same_collation,
                is_counted: false,
            })
            .collect()
    }

    /// Whether this is the part of the field with this path.
    pub fn is_on(&self, path: &FieldPath) -> bool {
        *self.path == *path
    }

    /// The bounds of a predicate on this part.
    pub fn bounds(&self, predicate: &Predicate) -> Option<Bounds> {
        let mut bounds = (self.kind.bounds)(predicate, self)?;
        if self.is_counted && self.kind.holds_value && asks_for_nothing(predicate) {
            bounds.exactness = Exactness::Exact;
        }
        let is_hidden = self.order.is_some() && !are_free_of_strings(&bounds.intervals);
        let cannot_read = !self.kind.holds_value || is_hidden || self.multikey != 0;
        // What a number in a path means depends on the document: the index need not see it as the
        // filter does.
        if self.names_places || (bounds.exactness == Exactness::OnKeys && cannot_read) {
            bounds.exactness = Exactness::OnDocument;
        }
        Some(bounds)
    }
}

/// Whether a predicate asks for null or what is missing, beside other values that an entry tells.
/// Where a document has one entry, it is null or undefined for just those.
fn asks_for_nothing(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(compare) => {
            compare.value.get().is_nullish()
                && matches!(compare.op, CompareOp::Eq | CompareOp::Lte | CompareOp::Gte)
        }
        Predicate::In(list) => {
            let is_array = |value: Value<'_>| matches!(value, Value::Array(_));
            list.has_null()
                && list.regexes().is_empty()
                && !list.values().iter().any(|value| is_array(value.get()))
        }
        _ => false,
    }
}

/// The kind that a value in a key pattern names.
fn kind_of(named: Value<'_>) -> &'static PartKind {
    match named {
        Value::String(name) => KINDS.iter().find(|kind| name == kind.name).unwrap_or(&OPAQUE),
        _ => &ORDERED,
    }
}
