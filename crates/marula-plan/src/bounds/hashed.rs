//! Bounds of a predicate on a hashed key part, whose entries hold the hash of the value.
//!
//! Only equality with given values has bounds. Several values may share a hash, so the predicate is
//! always checked on the document as well.

use marula_bson::Value;
use marula_query::filter::{Compare, CompareOp, Predicate};
use marula_query::hashed_key::hashed_key;

use super::interval::{Interval, union};
use super::kind::{Bounds, Exactness, PartView};
use super::predicate;

/// Returns the bounds of `predicate` on `part`; `None` if hashes cannot support it.
pub(super) fn bounds(predicate: &Predicate, part: &PartView<'_>) -> Option<Bounds> {
    let intervals = match predicate {
        Predicate::Compare(compare) => equality(compare, part)?,
        Predicate::InternalExpr(compare) if !part.is_sparse => equality(compare, part)?,
        Predicate::In(list) if list.regexes().is_empty() => {
            let mut intervals = Vec::with_capacity(list.values().len());
            for value in list.values() {
                let compare = Compare { op: CompareOp::Eq, value: value.clone() };
                intervals.extend(equality(&compare, part)?);
            }
            intervals
        }
        Predicate::Exists => vec![Interval::all()],
        Predicate::Not(inner) if matches!(**inner, Predicate::Exists) && !part.is_sparse => {
            vec![point(Value::Null, part)]
        }
        _ => return None,
    };
    // An empty list matches nothing, so there are no hash collisions to check.
    let exactness = if intervals.is_empty() { Exactness::Exact } else { Exactness::OnDocument };
    // Hashes are numbers, so they are merged without a collation.
    Some(Bounds { intervals: union(intervals, None), exactness })
}

fn equality(compare: &Compare, part: &PartView<'_>) -> Option<Vec<Interval>> {
    let value = compare.value.get();
    if compare.op != CompareOp::Eq {
        return None;
    }
    match value {
        // No document of a hashed index has an array here, so the bounds of an ordinary part are
        // used; they match no entry.
        Value::Array(_) => {
            let predicate = Predicate::Compare(compare.clone());
            predicate::bounds(&predicate, part).map(|bounds| bounds.intervals)
        }
        Value::Null | Value::Undefined if part.is_sparse => None,
        Value::Null | Value::Undefined => {
            Some(vec![point(Value::Undefined, part), point(Value::Null, part)])
        }
        _ if !part.same_collation && predicate::may_hold_string(value) => None,
        _ => Some(vec![point(value, part)]),
    }
}

fn point(value: Value<'_>, part: &PartView<'_>) -> Interval {
    Interval::point(Value::Int64(hashed_key(value, part.order)))
}
