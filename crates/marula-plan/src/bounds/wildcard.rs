//! Bounds of a predicate on one path of a wildcard index, whose entries contain a path and a value
//! at it.
//!
//! The index has no entries for missing fields, and represents documents and arrays by the values
//! in them.

use marula_bson::{Type, Value};
use marula_query::filter::{Compare, CompareOp, Predicate};

use super::interval::Interval;
use super::kind::{Bounds, Exactness, PartKind, PartView};
use super::predicate;

/// The value of a path in a wildcard index.
pub static WILDCARD: PartKind =
    PartKind { name: "", bounds, is_ordered: true, keeps_equality: true, holds_value: true };

/// A field before the wildcard, with any path below it. The index has no entries for documents
/// without any field.
pub static FRONT: PartKind = PartKind {
    name: "",
    bounds: front_bounds,
    is_ordered: true,
    keeps_equality: true,
    holds_value: true,
};

fn front_bounds(predicate: &Predicate, part: &PartView<'_>) -> Option<Bounds> {
    match predicate {
        Predicate::Compare(compare) if is_met_by_nothing(compare) => None,
        _ => predicate::bounds(predicate, part),
    }
}

/// Returns whether a missing field matches a comparison that does not name null.
fn is_met_by_nothing(compare: &Compare) -> bool {
    match compare.value.get() {
        Value::MinKey => matches!(compare.op, CompareOp::Gt | CompareOp::Gte),
        Value::MaxKey => matches!(compare.op, CompareOp::Lt | CompareOp::Lte),
        _ => false,
    }
}

/// Returns the bounds of `predicate` on `part`; `None` if the entries of the path cannot decide it.
/// Bounds of all values include the paths below.
fn bounds(predicate: &Predicate, part: &PartView<'_>) -> Option<Bounds> {
    let whole =
        || Some(Bounds { intervals: vec![Interval::all()], exactness: Exactness::OnDocument });
    match predicate {
        Predicate::Compare(compare) if is_met_by_nothing(compare) => None,
        Predicate::Compare(compare) => match compare.value.get() {
            // Nothing compares less or greater than null within its type, be it present or missing.
            Value::Null if matches!(compare.op, CompareOp::Gt | CompareOp::Lt) => {
                predicate::bounds(predicate, part)
            }
            Value::Null | Value::Undefined => None,
            Value::Document(doc) if !doc.is_empty() || compare.op != CompareOp::Eq => None,
            Value::Array(array) if !array.is_empty() || compare.op != CompareOp::Eq => None,
            _ => predicate::bounds(predicate, part),
        },
        Predicate::In(list) => {
            let can_tell = |value: Value<'_>| match value {
                Value::Null | Value::Undefined => false,
                Value::Document(inner) | Value::Array(inner) => inner.is_empty(),
                _ => true,
            };
            let is_told = list.values().iter().all(|value| can_tell(value.get()));
            is_told.then(|| predicate::bounds(predicate, part)).flatten()
        }
        Predicate::Exists => {
            Some(Bounds { intervals: vec![Interval::all()], exactness: Exactness::Exact })
        }
        // An array without this field has no entry here, and is not null.
        Predicate::Not(inner) if is_null(inner) && part.multikey == 0 => whole(),
        Predicate::Type(types) if types.contains(Type::Document) || types.contains(Type::Array) => {
            whole()
        }
        Predicate::Type(_) | Predicate::Regex(_) | Predicate::Mod { .. } => {
            predicate::bounds(predicate, part)
        }
        Predicate::ElemMatchValue(predicates) => {
            predicate::of_one_element(predicates, part, bounds)
        }
        _ => None,
    }
}

/// Returns whether a predicate matches null, and nothing else.
fn is_null(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(compare) => {
            compare.op == CompareOp::Eq && compare.value.get().is_nullish()
        }
        Predicate::In(list) => {
            list.regexes().is_empty()
                && !list.values().is_empty()
                && list.values().iter().all(|value| value.get().is_nullish())
        }
        _ => false,
    }
}
