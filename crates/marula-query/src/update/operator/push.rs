//! `$push`, with `$each`, `$position`, `$sort` and `$slice`.

use std::cmp::Ordering;

use bstr::{BStr, ByteSlice};
use marula_bson::order;
use marula_bson::{ArrayWriter, Collator, Doc, Element, RawValue, Type, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{IdOf, Operation, array};
use crate::context::Context;
use crate::meter;
use crate::update::path;
use crate::update::stored;
use crate::update::trail::Trail;
use crate::update::walk::{Walk, WriteStep};

errors! {
    /// `$each` is not an array.
    each_not_an_array(kind: &str) = BadValue, "The argument to $each in $push must be an array but it was of type: {kind}";
    /// A clause is given twice.
    repeated_clause(name: &BStr) = BadValue, "Only one {name} is supported.";
    /// There is an unknown field next to `$each`.
    unknown_clause(name: &BStr) = BadValue, "Unrecognized clause in $push: {name}";
    /// `$slice` is not an integer.
    bad_slice(kind: &str) = BadValue, "The value for $slice must be an integer value but was given type: {kind}";
    /// `$position` is not an integer.
    bad_position(kind: &str) = BadValue, "The value for $position must be an integer value, not of type: {kind}";
    /// `$sort` is neither a number nor an object.
    bad_sort() = BadValue, "The $sort is invalid: use 1/-1 to sort the whole element, or {{field:1/-1}} to sort embedded fields";
    /// `$sort` is another number than 1 and -1.
    bad_sort_direction() = BadValue, "The $sort element value must be either 1 or -1";
    /// `$sort: {}`.
    sort_empty() = BadValue, "The sort pattern is empty when it should be a set of fields.";
    /// A field of `$sort` has another value than 1 and -1.
    bad_field_direction() = BadValue, "The sort element value must be either 1 or -1";
    /// A field of `$sort` has no name.
    sort_field_empty() = BadValue, "The sort field cannot be empty";
    /// A field of `$sort` has an empty part.
    sort_part_empty(field: &BStr) = BadValue, "The sort field is a dotted field but has an empty part: {field}";
    /// The value is not an array.
    not_an_array(path: &Trail<'_>, kind: &str, id: &str) = BadValue, "The field '{path}' must be an array but is of type {kind} in document {{{id}}}";
}

/// A parsed `$push`: the values, and the changes of the array afterwards.
#[derive(Debug)]
pub(in crate::update) struct Push {
    values: Vec<ValueBuf>,
    position: Option<i64>,
    sort: Option<Sort>,
    slice: Option<i64>,
    /// The number of parts of the longest path in a value.
    pub(super) inner_depth: usize,
}

/// The effect of a `$push` on an array.
pub(in crate::update) enum Effect {
    /// Nothing.
    Nothing,
    /// It has new elements after this number of old ones.
    Appended(usize),
    /// It was rewritten, possibly without a change.
    Rewritten,
}

/// The order in which `$push` sorts the array.
#[derive(Debug)]
enum Sort {
    /// By whole elements.
    Whole { descending: bool },
    /// By fields of elements; a missing field counts as null.
    Fields(Vec<SortField>),
}

#[derive(Debug)]
struct SortField {
    parts: Vec<Box<[u8]>>,
    descending: bool,
}

pub(super) fn parse(field: Element<'_>, _context: &Context) -> Result<Operation> {
    let mut push =
        Push { values: Vec::new(), position: None, sort: None, slice: None, inner_depth: 0 };
    match field.value.get() {
        Value::Document(clauses) if clauses.get_raw(b"$each").is_some() => {
            push.parse_clauses(clauses)?;
        }
        _ => push.add(field.value),
    }
    Ok(Operation::Push(push))
}

impl Push {
    fn add(&mut self, value: RawValue<'_>) {
        self.inner_depth = self.inner_depth.max(stored::inner_depth(value));
        self.values.push(value.to_buf());
    }

    fn parse_clauses(&mut self, clauses: Doc<'_>) -> Result<()> {
        let known: [&[u8]; 4] = [b"$each", b"$slice", b"$sort", b"$position"];
        if let Some(other) = clauses.iter().find(|clause| !known.contains(&clause.name.as_bytes()))
        {
            return Err(unknown_clause(other.name));
        }
        for name in known {
            if clauses.iter().filter(|clause| clause.name == name).nth(1).is_some() {
                return Err(repeated_clause(name.as_bstr()));
            }
        }
        let clause = |name: &str| clauses.get(name);
        match clause("$each") {
            Some(Value::Array(values)) => values.iter().for_each(|value| self.add(value.value)),
            Some(other) => return Err(each_not_an_array(other.kind().alias())),
            None => {}
        }
        if let Some(slice) = clause("$slice") {
            let number = slice.as_exact_i64().ok_or_else(|| bad_slice(slice.kind().alias()))?;
            self.slice = Some(number);
        }
        if let Some(sort) = clause("$sort") {
            self.sort = Some(Sort::parse(sort)?);
        }
        if let Some(position) = clause("$position") {
            let number =
                position.as_exact_i64().ok_or_else(|| bad_position(position.kind().alias()))?;
            self.position = Some(number);
        }
        Ok(())
    }

    pub(super) fn change(
        &self,
        walk: &Walk<'_>,
        old: RawValue<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<WriteStep> {
        let Value::Array(array) = old.get() else {
            let id = IdOf::of(walk.root).to_string();
            return Err(not_an_array(at, old.kind().alias(), &id));
        };
        if self.only_appends() {
            if self.values.is_empty() {
                return Ok(WriteStep::Keep);
            }
            array::append(array, self.values.iter().map(ValueBuf::as_raw), out);
            return Ok(WriteStep::Write(Type::Array));
        }
        let changed = self.rewrite(array, walk.context.collator(), out)?;
        Ok(if changed { WriteStep::Write(Type::Array) } else { WriteStep::Keep })
    }

    pub(super) fn make(&self, walk: &Walk<'_>, out: &mut Vec<u8>) -> Result<Type> {
        self.rewrite(Doc::EMPTY, walk.context.collator(), out)?;
        Ok(Type::Array)
    }

    /// Returns the effect on an array that is now `new`.
    pub(in crate::update) fn effect(&self, old: Doc<'_>, new: Doc<'_>) -> Effect {
        let (before, after) = (old.iter().count(), new.iter().count());
        let keeps_all = after == before + self.values.len();
        if keeps_all && self.values.is_empty() && self.sort.is_none() {
            return Effect::Nothing;
        }
        match self.position.is_none() && self.sort.is_none() && keeps_all && before > 0 {
            true => Effect::Appended(before),
            false => Effect::Rewritten,
        }
    }

    fn only_appends(&self) -> bool {
        self.position.is_none() && self.sort.is_none() && self.slice.is_none()
    }

    /// Writes the array with the values inserted, sorted and sliced. It counts as changed if values
    /// are added, if it is sorted at all, or if the slice drops elements.
    ///
    /// Errors: the operation must end.
    fn rewrite(
        &self,
        array: Doc<'_>,
        collator: Option<&dyn Collator>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut values: Vec<RawValue<'_>> = array.iter().map(|element| element.value).collect();
        let at = match self.position {
            None => values.len(),
            Some(position) => from_end(position, values.len()),
        };
        values.splice(at..at, self.values.iter().map(ValueBuf::as_raw));
        if let Some(sort) = &self.sort {
            meter::sort_by(&mut values, |a, b| sort.compare(*a, *b, collator))?;
        }
        let kept = match self.slice {
            None => 0..values.len(),
            Some(slice) if slice < 0 => from_end(slice, values.len())..values.len(),
            Some(slice) => 0..from_end(slice, values.len()),
        };
        let drops = kept.len() < values.len();
        let mut writer = ArrayWriter::new(out);
        for value in &values[kept] {
            writer.push_raw(*value);
        }
        writer.finish();
        Ok(drops || !self.values.is_empty() || (self.sort.is_some() && !values.is_empty()))
    }
}

/// Returns a position among `count` elements; a negative number counts from the end.
fn from_end(place: i64, count: usize) -> usize {
    let magnitude = usize::try_from(place.unsigned_abs()).unwrap_or(usize::MAX);
    if place < 0 { count.saturating_sub(magnitude) } else { magnitude.min(count) }
}

impl Sort {
    fn parse(sort: Value<'_>) -> Result<Sort> {
        match sort {
            Value::Document(fields) if fields.is_empty() => Err(sort_empty()),
            Value::Document(fields) => {
                fields.iter().map(SortField::parse).collect::<Result<_>>().map(Sort::Fields)
            }
            number if number.kind().is_number() => match direction(number) {
                Some(descending) => Ok(Sort::Whole { descending }),
                None => Err(bad_sort_direction()),
            },
            _ => Err(bad_sort()),
        }
    }

    fn compare(
        &self,
        a: RawValue<'_>,
        b: RawValue<'_>,
        collator: Option<&dyn Collator>,
    ) -> Ordering {
        let directed = |ordering: Ordering, descending: bool| {
            if descending { ordering.reverse() } else { ordering }
        };
        match self {
            Sort::Whole { descending } => directed(order::compare_raw(a, b, collator), *descending),
            Sort::Fields(fields) => fields.iter().fold(Ordering::Equal, |ordering, field| {
                ordering.then_with(|| {
                    let (a, b) = (field.value_in(a), field.value_in(b));
                    directed(order::compare(a, b, collator), field.descending)
                })
            }),
        }
    }
}

impl SortField {
    fn parse(field: Element<'_>) -> Result<SortField> {
        let value = field.value.get();
        let descending = match value.kind().is_number() {
            true => direction(value),
            false => None,
        }
        .ok_or_else(bad_field_direction)?;
        if field.name.is_empty() {
            return Err(sort_field_empty());
        }
        let parts: Vec<Box<[u8]>> =
            field.name.split(|&byte| byte == b'.').map(Into::into).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(sort_part_empty(field.name));
        }
        Ok(SortField { parts, descending })
    }

    /// Returns the value that an element is sorted by. A part of the path may be an array's index.
    fn value_in<'v>(&self, element: RawValue<'v>) -> Value<'v> {
        let Value::Document(_) = element.get() else { return Value::Null };
        let mut value = element;
        for part in &self.parts {
            let inner = Doc::trusted(value.bytes());
            let found = match value.kind() {
                Type::Document => inner.get_raw(part),
                Type::Array => path::index(part).and_then(|index| {
                    inner.iter().nth(index as usize).map(|element| element.value)
                }),
                _ => None,
            };
            match found {
                Some(found) => value = found,
                None => return Value::Null,
            }
        }
        value.get()
    }
}

/// Returns whether a direction is descending; `None` for a number other than 1 and -1.
fn direction(number: Value<'_>) -> Option<bool> {
    match number.as_exact_i64() {
        Some(1) => Some(false),
        Some(-1) => Some(true),
        _ => None,
    }
}
