//! The table of the kinds of key parts, as the planner uses them.
//!
//! A key pattern has a kind for each of its parts: a direction, or a word such as `"hashed"`. The
//! row of a kind defines the bounds of a predicate on such a part, whether these bounds are exact
//! or need a residual filter, and the other uses of its entries. A new kind is a row of [`KINDS`].

use std::borrow::Cow;

use marula_bson::{FieldPath, Value};
use marula_db::Index;
use marula_db::index::{Geography, IndexKind};
use marula_query::filter::{CompareOp, Predicate};

use super::interval::{Interval, Order};
use super::{are_free_of_strings, hashed, places, predicate};

/// A kind of key part.
pub struct PartKind {
    /// The word for it in a key pattern.
    pub name: &'static str,
    /// Returns the values of a part that documents matching the predicate can have; `None` if the
    /// part cannot support it.
    pub bounds: fn(&Predicate, &PartView<'_>) -> Option<Bounds>,
    /// Whether entries are in the order of the field's values, so that they provide a sort order.
    pub is_ordered: bool,
    /// Whether equal entries mean equal values.
    pub keeps_equality: bool,
    /// Whether the field's value can be read from an entry, so that the index can cover a query.
    pub holds_value: bool,
}

/// Parts with a direction, 1 or -1.
pub static ORDERED: PartKind = PartKind {
    name: "",
    bounds: predicate::bounds,
    is_ordered: true,
    keeps_equality: true,
    holds_value: true,
};

/// The kinds that a key pattern names by a word.
pub static KINDS: &[PartKind] = &[
    PartKind {
        name: "hashed",
        bounds: hashed::bounds,
        is_ordered: false,
        keeps_equality: true,
        holds_value: false,
    },
    PartKind {
        name: "2dsphere",
        bounds: places::sphere_bounds,
        is_ordered: false,
        keeps_equality: false,
        holds_value: false,
    },
    PartKind {
        name: "2dsphere_bucket",
        bounds: places::sphere_bounds,
        is_ordered: false,
        keeps_equality: false,
        holds_value: false,
    },
    PartKind {
        name: "2d",
        bounds: places::flat_bounds,
        is_ordered: false,
        keeps_equality: false,
        holds_value: false,
    },
];

/// A kind without a row supports nothing.
static OPAQUE: PartKind = PartKind {
    name: "",
    bounds: |_, _| None,
    is_ordered: false,
    keeps_equality: false,
    holds_value: false,
};

/// The values of a part that documents matching a predicate can have.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounds {
    /// The values, ascending and disjoint.
    pub intervals: Vec<Interval>,
    /// The check that remains for entries within the bounds.
    pub exactness: Exactness,
}

/// The check that remains for entries within the bounds of a predicate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exactness {
    /// None: exactly the matching documents have entries there.
    Exact,
    /// The predicate is checked on the entry's value.
    OnKeys,
    /// The predicate is checked on the document.
    OnDocument,
}

/// A key part as the planner sees it for one query.
#[derive(Clone)]
pub struct PartView<'a> {
    /// The field.
    pub path: Cow<'a, FieldPath>,
    /// The kind.
    pub kind: &'static PartKind,
    /// Whether the order is descending.
    pub descending: bool,
    /// A bit for each component of the path at which some document has an array.
    pub multikey: u64,
    /// Whether a number in the path may be an array index; entries do not contain this information.
    pub names_places: bool,
    /// Whether documents without the index's fields have no entry.
    pub is_sparse: bool,
    /// The parameters by which an index on locations encodes them.
    pub geography: Option<Geography>,
    /// Whether this is the only part of the index.
    pub is_alone: bool,
    /// The order of the entries' strings.
    pub order: Order<'a>,
    /// Whether the index orders strings as the query does.
    pub same_collation: bool,
    /// Whether documents are only counted, or only their `_id` is returned, and none has more than
    /// one entry.
    pub is_counted: bool,
}

impl<'a> PartView<'a> {
    /// Returns the parts of an index.
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

    /// Returns whether this is the part of the field with this path.
    pub fn is_on(&self, path: &FieldPath) -> bool {
        *self.path == *path
    }

    /// Returns the bounds of a predicate on this part.
    pub fn bounds(&self, predicate: &Predicate) -> Option<Bounds> {
        let mut bounds = (self.kind.bounds)(predicate, self)?;
        if self.is_counted && self.kind.holds_value && matches_absence(predicate) {
            bounds.exactness = Exactness::Exact;
        }
        let is_hidden = self.order.is_some() && !are_free_of_strings(&bounds.intervals);
        let cannot_read = !self.kind.holds_value || is_hidden || self.multikey != 0;
        // The meaning of a number in a path depends on the document, so the index may interpret it
        // differently from the filter.
        if self.names_places || (bounds.exactness == Exactness::OnKeys && cannot_read) {
            bounds.exactness = Exactness::OnDocument;
        }
        Some(bounds)
    }
}

/// Returns whether a predicate matches null or missing fields in addition to other values that an
/// entry contains. If a document has one entry, the entry is null or undefined exactly for these.
fn matches_absence(predicate: &Predicate) -> bool {
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

/// Returns the kind of a value in a key pattern.
fn kind_of(named: Value<'_>) -> &'static PartKind {
    match named {
        Value::String(name) => KINDS.iter().find(|kind| name == kind.name).unwrap_or(&OPAQUE),
        _ => &ORDERED,
    }
}
