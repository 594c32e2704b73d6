//! Bounds of a predicate on a hashed key part, whose entries hold the hash of the value.
//!
//! Only what asks for values themselves is bounded, and other values may share a hash, so the
//! predicate is always left to check.

use marula_bson::Value;
use marula_query::filter::{Compare, CompareOp, Predicate};
use marula_query::hashed_key::hashed_key;

use super::interval::{Interval, union};
use super::kind::{Bounds, Exactness, PartView};
use super::predicate;

/// The bounds of `predicate` on `part`; `None` when a hash cannot serve it.
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
    // Nothing is among none of the values, whatever their hashes are.
    let exactness = if intervals.is_empty() { Exactness::Exact } else { Exactness::OnDocument };
    // Hashes are numbers: a collation has said all it has to say in them.
    Some(Bounds { intervals: union(intervals, None), exactness })
}

fn equality(compare: &Compare, part: &PartView<'_>) -> Option<Vec<Interval>> {
    let value = compare.value.get();
    if compare.op != CompareOp::Eq {
        return None;
    }
    match value {
        // No document of a hashed index has an array here: the bounds of an ordinary part find
        // nothing.
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
