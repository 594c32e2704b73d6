//! The document that an upsert inserts when nothing matched: what the query says of it, then the update.
//!
//! The query says what it demands by equality: `{ a: 1, "b.c": 2 }`, also inside `$and`, `$or` with one
//! branch, `$in` with one value and `$all`. The query's document is read rather than the parsed filter, in which
//! repeated conditions, an error here, are one.

use std::collections::HashSet;

use bstr::{BStr, ByteSlice};
use marula_bson::order;
use marula_bson::{Doc, DocWriter, RawValue, Type, Value};
use marula_error::{Result, errors};

use super::operators::Operators;
use super::pipeline::{PipelineUpdate, write_id_first};
use super::replacement::Replacement;
use super::stored;
use crate::context::Context;

errors! {
    /// The query demands two values of one path.
    matched_twice(path: &BStr) = NotSingleValueField, "cannot infer query fields to set, path '{path}' is matched twice";
    /// The query demands values of a path and of a part of it.
    matched_inside(inner: &BStr, outer: &BStr) = NotSingleValueField, "cannot infer query fields to set, both paths '{inner}' and '{outer}' are matched";
    /// A replacement needs the whole `_id`, and the query speaks of a part.
    id_not_exact(path: &BStr) = NotExactValueField, "field at '_id' must be exactly specified, field at sub-path '{path}'found";
    /// The query demands a value of the empty path.
    empty_path() = IllegalOperation, "Cannot call setValue on the root object";
}

pub(super) fn with_operators(
    operators: &Operators,
    query: Doc<'_>,
    context: &Context,
    out: &mut Vec<u8>,
) -> Result<()> {
    let base = base_document(query, context)?;
    let mut inserted = Vec::new();
    operators.apply_to_insert(Doc::trusted(&base), context, &mut inserted)?;
    let inserted = Doc::trusted(&inserted);
    let id = inserted.get_raw(b"_id");
    if let Some(id) = id {
        stored::check_id(id)?;
    }
    write_id_first(inserted, id, out);
    Ok(())
}

pub(super) fn with_replacement(
    replacement: &Replacement,
    query: Doc<'_>,
    context: &Context,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut equalities = Equalities::default();
    equalities.find(query, context)?;
    equalities.found.retain(|(path, _)| path.split(|&byte| byte == b'.').next() == Some(b"_id"));
    if let Some((path, _)) = equalities.found.iter().find(|(path, _)| *path != "_id") {
        return Err(id_not_exact(path));
    }
    equalities.sort()?;
    let id = equalities.found.first().map(|&(_, id)| id);
    replacement.write(id, true, context, out)?;
    id.map_or(Ok(()), stored::check_id)
}

pub(super) fn with_pipeline(
    pipeline: &PipelineUpdate,
    query: Doc<'_>,
    context: &Context,
    out: &mut Vec<u8>,
) -> Result<()> {
    let base = base_document(query, context)?;
    pipeline.write(Doc::trusted(&base), true, out).map(drop)
}

/// The document that has just what the query demands, its fields in the order of their paths.
fn base_document(query: Doc<'_>, context: &Context) -> Result<Vec<u8>> {
    let mut equalities = Equalities::default();
    equalities.find(query, context)?;
    equalities.sort()?;
    let mut base = Vec::new();
    write_fields(&equalities.found, 0, &mut DocWriter::new(&mut base));
    Ok(base)
}

/// The values that a query demands, by path.
#[derive(Default)]
struct Equalities<'q> {
    found: Vec<(&'q BStr, RawValue<'q>)>,
}

impl<'q> Equalities<'q> {
    fn find(&mut self, query: Doc<'q>, context: &Context) -> Result<()> {
        for element in query {
            match element.name.as_bytes() {
                b"$and" => {
                    for branch in branches(element.value) {
                        self.find(branch, context)?;
                    }
                }
                b"$or" => {
                    let mut branches = branches(element.value);
                    if let (Some(only), None) = (branches.next(), branches.next()) {
                        self.find(only, context)?;
                    }
                }
                // A part of a DBRef is a field's name, and what it is compared with is no object of operators.
                [b'$', ..] if is_dbref_name(element.name) => {
                    self.found.push((element.name, element.value));
                }
                [b'$', ..] => {}
                _ => self.find_at(element.name, element.value, context),
            }
        }
        Ok(())
    }

    fn find_at(&mut self, path: &'q BStr, value: RawValue<'q>, context: &Context) {
        let operators = match value.get() {
            Value::Document(doc) if begins_with_operator(doc) => doc,
            Value::Regex { .. } => return,
            _ => return self.found.push((path, value)),
        };
        for operator in operators {
            match (operator.name.as_bytes(), operator.value.get()) {
                (b"$eq", _) => self.found.push((path, operator.value)),
                (b"$in", Value::Array(values)) => {
                    if let Some(value) = only_value(values, context) {
                        self.found.push((path, value));
                    }
                }
                (b"$all", Value::Array(values)) => {
                    let values = values.iter().map(|element| element.value);
                    let constants = values.filter(|value| is_constant(*value));
                    self.found.extend(constants.map(|value| (path, value)));
                }
                _ => {}
            }
        }
    }

    /// Sorts by path, and refuses paths that meet.
    fn sort(&mut self) -> Result<()> {
        self.found.sort_by_key(|&(path, _)| path);
        let mut before = HashSet::with_capacity(self.found.len());
        for &(path, _) in &self.found {
            if path.is_empty() {
                return Err(empty_path());
            }
            // What a path leads through sorts before it.
            let outer = path.find_iter(".").map(|dot| path[..dot].as_bstr());
            if let Some(outer) = outer.into_iter().find(|outer| before.contains(outer)) {
                return Err(matched_inside(path, outer));
            }
            if !before.insert(path) {
                return Err(matched_twice(path));
            }
        }
        Ok(())
    }
}

/// The documents of an array such as `$and` has.
fn branches(operand: RawValue<'_>) -> impl Iterator<Item = Doc<'_>> {
    let array = operand.get().as_array().unwrap_or(Doc::EMPTY);
    array.values().filter_map(|value| value.as_doc())
}

/// Whether an object is of operators; a DBRef is not.
fn begins_with_operator(doc: Doc<'_>) -> bool {
    doc.iter()
        .next()
        .is_some_and(|first| first.name.starts_with(b"$") && !is_dbref_name(first.name))
}

fn is_dbref_name(name: &BStr) -> bool {
    ["$ref", "$id", "$db"].iter().any(|part| name == *part)
}

/// The value of a `$in` whose values are all equal.
fn only_value<'q>(values: Doc<'q>, context: &Context) -> Option<RawValue<'q>> {
    let mut values = values.iter().map(|element| element.value);
    let first = values.next().filter(|first| first.kind() != Type::Regex)?;
    values
        .all(|value| order::compare_raw(first, value, context.collator()).is_eq())
        .then_some(first)
}

fn is_constant(value: RawValue<'_>) -> bool {
    match value.get() {
        Value::Regex { .. } => false,
        Value::Document(doc) => !begins_with_operator(doc),
        _ => true,
    }
}

/// Writes the fields whose paths share the first `skip` bytes. Sorted paths that share a part are neighbours.
fn write_fields(fields: &[(&BStr, RawValue<'_>)], skip: usize, out: &mut DocWriter<'_>) {
    let mut rest = fields;
    while let Some(&(path, value)) = rest.first() {
        let tail = &path[skip..];
        let Some(dot) = tail.find_byte(b'.') else {
            out.append_raw(tail, value);
            rest = &rest[1..];
            continue;
        };
        let prefix = &path[..=skip + dot];
        let count = rest.iter().take_while(|(other, _)| other.starts_with(prefix)).count();
        write_fields(&rest[..count], prefix.len(), &mut out.begin_doc(&tail[..dot]));
        rest = &rest[count..];
    }
}
