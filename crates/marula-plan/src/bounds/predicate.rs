//! Bounds of a predicate on an ordinary key part, whose entries hold the values themselves.
//!
//! Source: the bounds that mongod 6.0 shows in `explain` for every operator and type.

use marula_bson::order::canonical_class;
use marula_bson::{Binary, Doc, ObjectId, Type, Value, key_string::successor};
use marula_query::filter::{Compare, CompareOp, InList, Predicate, TypeSet};
use marula_query::meter;

use super::interval::{Interval, complement, intersect, union};
use super::kind::{Bounds, Exactness, PartView};

/// Returns the bounds of `predicate` on `part`; `None` if an index cannot support it.
pub(super) fn bounds(predicate: &Predicate, part: &PartView<'_>) -> Option<Bounds> {
    match predicate {
        Predicate::Compare(compare) => comparison(compare, part),
        Predicate::InternalExpr(compare) => expr_comparison(compare, part),
        Predicate::In(list) => in_list(list, part),
        Predicate::Regex(regex) => {
            let (intervals, exactness) = regex_bounds(regex, part);
            Some(Bounds { intervals: union(intervals, part.order), exactness })
        }
        Predicate::Exists => {
            let exactness = if part.is_sparse && part.is_alone {
                Exactness::Exact
            } else {
                Exactness::OnDocument
            };
            Some(Bounds { intervals: vec![Interval::all()], exactness })
        }
        Predicate::Type(types) => Some(type_bounds(*types, part)),
        Predicate::Mod { .. } => {
            Some(Bounds { intervals: vec![class(Type::Double)], exactness: Exactness::OnKeys })
        }
        Predicate::Not(inner) => negation(inner, part),
        Predicate::ElemMatchValue(predicates) => of_one_element(predicates, part, bounds),
        Predicate::Size(_)
        | Predicate::Bits(_)
        | Predicate::ElemMatchObject(_)
        | Predicate::Geo(_)
        | Predicate::BucketGeo(_)
        | Predicate::Near(_)
        | Predicate::All(_)
        | Predicate::AlwaysFalse => None,
    }
}

/// Returns the bounds of an `$elemMatch`. One element matches all predicates, so their bounds can
/// be intersected. An array that a numeric path component selects from another array has no entries
/// for its elements. Neither has an array that is itself an element: its key is the whole array and
/// does not show whether an inner `$elemMatch` matches.
pub(super) fn of_one_element(
    predicates: &[Predicate],
    part: &PartView<'_>,
    bounds: fn(&Predicate, &PartView<'_>) -> Option<Bounds>,
) -> Option<Bounds> {
    if part.path.indexes().last().is_some_and(Option::is_some) {
        return None;
    }
    let element = PartView { multikey: 0, ..part.clone() };
    let mut known: Option<Vec<Interval>> = None;
    let of_element = |predicate: &Predicate| match predicate {
        Predicate::ElemMatchValue(_) => {
            Some(Bounds { intervals: vec![Interval::all()], exactness: Exactness::OnDocument })
        }
        other => bounds(other, &element),
    };
    for found in predicates.iter().filter_map(of_element) {
        known = Some(match known {
            Some(known) => intersect(&known, &found.intervals, part.order),
            None => found.intervals,
        });
    }
    known.map(|intervals| Bounds { intervals, exactness: Exactness::OnDocument })
}

fn comparison(compare: &Compare, part: &PartView<'_>) -> Option<Bounds> {
    let value = compare.value.get();
    if !part.same_collation && may_hold_string(value) {
        return None;
    }
    let exact = |intervals| Bounds { intervals, exactness: Exactness::Exact };
    let inexact = |intervals| Bounds { intervals, exactness: Exactness::OnDocument };
    let bounds = match value {
        Value::Null | Value::Undefined => match compare.op {
            // Null also matches missing fields, for which a sparse index has no entry.
            CompareOp::Eq | CompareOp::Lte | CompareOp::Gte if part.is_sparse => return None,
            CompareOp::Eq | CompareOp::Lte | CompareOp::Gte => inexact(nullish()),
            CompareOp::Lt | CompareOp::Gt => exact(Vec::new()),
        },
        Value::Array(array) => {
            let first = array.values().next();
            inexact(match compare.op {
                // An array is indexed by its elements. An array equal to this one has the first
                // element among its keys or, if nested in another array, itself.
                CompareOp::Eq => {
                    let first = Interval::point(first.unwrap_or(Value::Undefined));
                    union(vec![first, Interval::point(value)], part.order)
                }
                // A lesser or greater array has them too, and its first element may sort on either
                // side of arrays.
                CompareOp::Lt | CompareOp::Lte => [Some(value), first]
                    .into_iter()
                    .flatten()
                    .map(|end| Interval::new(Value::MinKey, true, end, true))
                    .collect(),
                CompareOp::Gt | CompareOp::Gte => [value, first.unwrap_or(Value::MinKey)]
                    .map(|end| Interval::new(end, true, Value::MaxKey, true))
                    .to_vec(),
            })
        }
        Value::MinKey | Value::MaxKey => match (value, compare.op) {
            (_, CompareOp::Eq)
            | (Value::MinKey, CompareOp::Lte)
            | (Value::MaxKey, CompareOp::Gte) => exact(vec![Interval::point(value)]),
            (Value::MinKey, CompareOp::Lt) | (Value::MaxKey, CompareOp::Gt) => exact(Vec::new()),
            (_, CompareOp::Lte | CompareOp::Gte) => exact(vec![Interval::all()]),
            // For a value that is not an array the entry is sufficient; a missing field also
            // matches.
            (_, CompareOp::Lt | CompareOp::Gt) if part.multikey == 0 => {
                let (has_low, has_high) =
                    (compare.op != CompareOp::Gt, compare.op != CompareOp::Lt);
                exact(vec![Interval::new(Value::MinKey, has_low, Value::MaxKey, has_high)])
            }
            // MinKey and MaxKey compare with every type, and so with an array as a whole:
            // `[MaxKey]` is less than MaxKey, but has MaxKey's key.
            (_, CompareOp::Lt | CompareOp::Gt) => inexact(vec![Interval::all()]),
        },
        _ => exact(match compare.op {
            CompareOp::Eq => vec![Interval::point(value)],
            CompareOp::Lt => vec![below(value, false)],
            CompareOp::Lte => vec![below(value, true)],
            CompareOp::Gt => vec![above(value, false)],
            CompareOp::Gte => vec![above(value, true)],
        }),
    };
    Some(Bounds { intervals: union(bounds.intervals, part.order), ..bounds })
}

/// Returns the bounds of a comparison within `$expr`, which compares values of all types, and
/// arrays as a whole, which no entry contains.
fn expr_comparison(compare: &Compare, part: &PartView<'_>) -> Option<Bounds> {
    let value = compare.value.get();
    if part.multikey != 0 || part.is_sparse || (!part.same_collation && may_hold_string(value)) {
        return None;
    }
    let (low, high) = (Value::MinKey, Value::MaxKey);
    // A missing field has the key of null.
    let exactness = match (value.is_nullish(), compare.op) {
        (false, _) | (true, CompareOp::Gt) => Exactness::Exact,
        (true, _) => Exactness::OnDocument,
    };
    let intervals = match compare.op {
        CompareOp::Eq if value.is_nullish() => nullish(),
        CompareOp::Eq => vec![Interval::point(value)],
        CompareOp::Lt => vec![Interval::new(low, true, value, value.is_nullish())],
        CompareOp::Lte => vec![Interval::new(low, true, value, true)],
        CompareOp::Gt => vec![Interval::new(value, false, high, true)],
        CompareOp::Gte => vec![Interval::new(value, true, high, true)],
    };
    Some(Bounds { intervals: union(intervals, part.order), exactness })
}

/// The keys of null and of missing fields; undefined is also the key of an empty array.
fn nullish() -> Vec<Interval> {
    vec![Interval::point(Value::Undefined), Interval::point(Value::Null)]
}

/// The cost of creating an interval and joining it with others.
const INTERVAL_WORK: usize = 32;

fn in_list(list: &InList, part: &PartView<'_>) -> Option<Bounds> {
    let mut intervals = Vec::with_capacity(list.values().len());
    let mut exactness = Exactness::Exact;
    for value in list.values() {
        // Without bounds there is no plan by this index, and the operation must end anyway.
        meter::spend(INTERVAL_WORK).ok()?;
        let found = comparison(&Compare { op: CompareOp::Eq, value: value.clone() }, part)?;
        intervals.extend(found.intervals);
        exactness = exactness.max(found.exactness);
    }
    for regex in list.regexes() {
        let (found, exact) = regex_bounds(regex, part);
        intervals.extend(found);
        exactness = exactness.max(exact);
    }
    Some(Bounds { intervals: union(intervals, part.order), exactness })
}

fn regex_bounds(
    regex: &marula_query::regex::Regex,
    part: &PartView<'_>,
) -> (Vec<Interval>, Exactness) {
    let itself = Interval::point(Value::Regex {
        pattern: regex.pattern().into(),
        options: regex.options().into(),
    });
    // A pattern matches characters, and collation keys contain none.
    if part.order.is_some() {
        return (vec![class(Type::String), itself], Exactness::OnDocument);
    }
    match regex.prefix() {
        Some(prefix) if !prefix.text.is_empty() => {
            let exactness = if prefix.exact { Exactness::Exact } else { Exactness::OnKeys };
            let strings = match successor(prefix.text) {
                Some(end) => Interval::new(
                    Value::String(prefix.text.into()),
                    true,
                    Value::String(end.as_slice().into()),
                    false,
                ),
                None => above(Value::String(prefix.text.into()), true),
            };
            (vec![strings, itself], exactness)
        }
        _ => (vec![class(Type::String), itself], Exactness::OnKeys),
    }
}

fn type_bounds(types: TypeSet, part: &PartView<'_>) -> Bounds {
    if types.contains(Type::Array) {
        return Bounds { intervals: vec![Interval::all()], exactness: Exactness::OnDocument };
    }
    let mut intervals: Vec<Interval> = types.singles().map(class).collect();
    if types.names_all_numbers() {
        intervals.push(class(Type::Double));
    }
    let has = |kind| types.contains(kind);
    let numbers = [Type::Double, Type::Int32, Type::Int64, Type::Decimal128];
    let is_part_of_class = has(Type::String) != has(Type::Symbol)
        || numbers.iter().any(|&kind| has(kind)) && !numbers.iter().all(|&kind| has(kind));
    // A missing field has the key of null, and an empty array that of undefined. Collation keys do
    // not distinguish strings from symbols.
    let has_strings =
        [Type::String, Type::Symbol, Type::Document].iter().any(|&kind| types.contains(kind));
    let is_hidden = part.order.is_some() && has_strings;
    let exactness = if has(Type::Null) || has(Type::Undefined) || is_hidden {
        Exactness::OnDocument
    } else if is_part_of_class {
        Exactness::OnKeys
    } else {
        Exactness::Exact
    };
    Bounds { intervals: union(intervals, part.order), exactness }
}

fn negation(inner: &Predicate, part: &PartView<'_>) -> Option<Bounds> {
    let can_be_array = |value: Value<'_>| matches!(value, Value::Array(_));
    let is_invertible = match inner {
        Predicate::Compare(compare) => !can_be_array(compare.value.get()),
        Predicate::In(list) => {
            list.regexes().is_empty()
                && !list.values().iter().any(|value| can_be_array(value.get()))
        }
        Predicate::Exists => true,
        _ => false,
    };
    if !is_invertible {
        return None;
    }
    let is_null_excluded = match inner {
        Predicate::Compare(compare) => {
            compare.value.get().is_nullish()
                && matches!(compare.op, CompareOp::Eq | CompareOp::Lte | CompareOp::Gte)
        }
        Predicate::In(list) => list.has_null(),
        _ => false,
    };
    // A missing field matches a negation unless the negation names null. A sparse index has no
    // entry for it.
    if part.is_sparse && !is_null_excluded {
        return None;
    }
    // An empty array has the key of a missing field, but is not null.
    if is_null_excluded && part.multikey != 0 {
        return None;
    }
    if matches!(inner, Predicate::Exists) {
        let intervals = vec![Interval::point(Value::Null)];
        return Some(Bounds { intervals, exactness: Exactness::OnDocument });
    }
    // All values but one match, and that value's key may also belong to an array that matches.
    if let Predicate::Compare(compare) = inner
        && matches!(
            (compare.value.get(), compare.op),
            (Value::MaxKey, CompareOp::Lt) | (Value::MinKey, CompareOp::Gt)
        )
    {
        return Some(Bounds { intervals: vec![Interval::all()], exactness: Exactness::OnDocument });
    }
    // Within a negation a sparse index can support all meanings of null: only the remainder counts.
    let found = bounds(inner, &PartView { is_sparse: false, ..part.clone() })?;
    let is_exact = part.multikey == 0 && (found.exactness == Exactness::Exact || is_null_excluded);
    let exactness = if is_exact { Exactness::Exact } else { Exactness::OnDocument };
    Some(Bounds { intervals: complement(&found.intervals, part.order), exactness })
}

/// Returns the interval from the least value of the type's class to `value`.
fn below(value: Value<'_>, inclusive: bool) -> Interval {
    match value {
        _ if is_nan(value) => Interval { high_inclusive: inclusive, ..Interval::point(value) },
        _ => Interval { high: value.to_buf(), high_inclusive: inclusive, ..comparable(value) },
    }
}

/// Returns the interval from `value` to the end of the type's class.
fn above(value: Value<'_>, inclusive: bool) -> Interval {
    match value {
        _ if is_nan(value) => Interval { low_inclusive: inclusive, ..Interval::point(value) },
        _ => Interval { low: value.to_buf(), low_inclusive: inclusive, ..comparable(value) },
    }
}

/// NaN is the least number and comparable only with itself.
fn is_nan(value: Value<'_>) -> bool {
    match value {
        Value::Double(number) => number.is_nan(),
        Value::Decimal128(number) => number.is_nan(),
        _ => false,
    }
}

/// Returns the values that may be less or greater than `value`.
fn comparable(value: Value<'_>) -> Interval {
    match value.kind().is_number() {
        true => {
            let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
            Interval::new(Value::Double(low), true, Value::Double(high), true)
        }
        false => class(value.kind()),
    }
}

const NO_OBJECT_ID: ObjectId = ObjectId::from_bytes([0; 12]);
const LAST_OBJECT_ID: ObjectId = ObjectId::from_bytes([u8::MAX; 12]);

/// Returns the values that sort with this type in the order of types.
pub(crate) fn class(kind: Type) -> Interval {
    const EMPTY: &[u8] = b"";
    let empty_text = Value::String(EMPTY.into());
    let empty_object = Value::Document(Doc::EMPTY);
    let empty_array = Value::Array(Doc::EMPTY);
    let empty_binary = Value::Binary(Binary { subtype: 0, bytes: &[] });
    let empty_pointer = Value::DbPointer { ns: EMPTY.into(), id: NO_OBJECT_ID };
    let empty_code = Value::Code(EMPTY.into());
    let empty_scoped = Value::CodeWithScope { code: EMPTY.into(), scope: Doc::EMPTY };
    let upto = |low: Value<'_>, high: Value<'_>| Interval::new(low, true, high, false);
    let both = |low: Value<'_>, high: Value<'_>| Interval::new(low, true, high, true);
    match kind {
        Type::MinKey => Interval::point(Value::MinKey),
        Type::Undefined => Interval::point(Value::Undefined),
        Type::Null => Interval::point(Value::Null),
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => {
            both(Value::Double(f64::NAN), Value::Double(f64::INFINITY))
        }
        Type::String | Type::Symbol => upto(empty_text, empty_object),
        Type::Document => upto(empty_object, empty_array),
        Type::Array => upto(empty_array, empty_binary),
        Type::Binary => upto(empty_binary, Value::ObjectId(NO_OBJECT_ID)),
        Type::ObjectId => both(Value::ObjectId(NO_OBJECT_ID), Value::ObjectId(LAST_OBJECT_ID)),
        Type::Boolean => both(Value::Boolean(false), Value::Boolean(true)),
        Type::DateTime => both(Value::DateTime(i64::MIN), Value::DateTime(i64::MAX)),
        Type::Timestamp => both(Value::Timestamp(0), Value::Timestamp(u64::MAX)),
        Type::Regex => {
            upto(Value::Regex { pattern: EMPTY.into(), options: EMPTY.into() }, empty_pointer)
        }
        Type::DbPointer => upto(empty_pointer, empty_code),
        Type::Code => upto(empty_code, empty_scoped),
        Type::CodeWithScope => upto(empty_scoped, Value::MaxKey),
        Type::MaxKey => Interval::point(Value::MaxKey),
    }
}

/// Returns whether no value within the intervals may contain a string.
pub(crate) fn are_free_of_strings(intervals: &[Interval]) -> bool {
    let class = |value: &marula_bson::ValueBuf| canonical_class(value.kind());
    intervals.iter().all(|interval| {
        class(&interval.high) < canonical_class(Type::String)
            || class(&interval.low) > canonical_class(Type::Array)
    })
}

/// Returns whether a collation may change how `value` compares. As in mongod, every document and
/// array counts, whatever it contains.
pub(crate) fn may_hold_string(value: Value<'_>) -> bool {
    matches!(value, Value::String(_) | Value::Symbol(_) | Value::Document(_) | Value::Array(_))
}
