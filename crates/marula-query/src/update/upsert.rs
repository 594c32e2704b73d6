//! The document that an upsert inserts if nothing matched: the values that the query requires, then
//! the update.
//!
//! The query requires values by equality: `{ a: 1, "b.c": 2 }`, also inside `$and`, `$or` with one
//! branch, `$in` with one value and `$all`. The canonical form is read, without conditions that
//! never hold: a query that can match nothing requires nothing.

use std::collections::HashSet;

use bstr::{BStr, BString, ByteSlice};
use marula_bson::{Doc, DocWriter, RawValue};
use marula_error::{Result, errors};

use super::delta::Delta;
use super::operators::Operators;
use super::pipeline::{PipelineUpdate, write_id_first};
use super::replacement::Replacement;
use super::stored;
use crate::context::Context;
use crate::filter::{CompareOp, Filter, Node, PathNode, Predicate};

errors! {
    /// The query requires two values of one path.
    matched_twice(path: &BStr) = NotSingleValueField, "cannot infer query fields to set, path '{path}' is matched twice";
    /// The query requires values of a path and of a part of it.
    matched_inside(inner: &BStr, outer: &BStr) = NotSingleValueField, "cannot infer query fields to set, both paths '{inner}' and '{outer}' are matched";
    /// A replacement needs the whole `_id`, and the query has only a part.
    id_not_exact(path: &BStr) = NotExactValueField, "field at '_id' must be exactly specified, field at sub-path '{path}'found";
    /// An operator adds an element to `_id`.
    id_element() = NotSingleValueField, "After applying the update to the document, the field '_id' was found to be an array or array descendant.";
    /// The query requires a value of the empty path.
    empty_path() = IllegalOperation, "Cannot call setValue on the root object";
}

pub(super) fn with_operators(
    operators: &Operators,
    query: &Filter,
    context: &Context,
    out: &mut Vec<u8>,
) -> Result<()> {
    let base = base_document(query)?;
    let mut inserted = Vec::new();
    operators.apply_to_insert(Doc::trusted(&base), context, &mut inserted)?;
    let inserted = Doc::trusted(&inserted);
    let id = inserted.get_raw(b"_id");
    if let Some(id) = id {
        if operators.adds_elements(b"_id") {
            check_no_elements(id)?;
        }
        stored::check_id(id)?;
    }
    // The filter's paths may be deeper than those of the update, which were checked.
    stored::check_depth(inserted)?;
    write_id_first(inserted, id, out);
    Ok(())
}

/// Checks that no element was added to an array.
fn check_no_elements(id: RawValue<'_>) -> Result<()> {
    match id.get().as_array() {
        Some(array) if !array.is_empty() => Err(id_element()),
        _ => Ok(()),
    }
}

pub(super) fn with_replacement(
    replacement: &Replacement,
    query: &Filter,
    context: &Context,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut equalities = Equalities::default();
    equalities.find(query.root());
    equalities.found.retain(|(path, _)| path.split(|&byte| byte == b'.').next() == Some(b"_id"));
    if let Some((path, _)) = equalities.found.iter().find(|(path, _)| *path != "_id") {
        return Err(id_not_exact(path.as_bstr()));
    }
    equalities.sort()?;
    let id = equalities.found.first().map(|(_, id)| *id);
    replacement.write(id, true, context, out)?;
    id.map_or(Ok(()), |id| replacement.check_id(id))
}

pub(super) fn with_pipeline(
    pipeline: &PipelineUpdate,
    query: &Filter,
    out: &mut Vec<u8>,
) -> Result<()> {
    let base = base_document(query)?;
    pipeline.write(Doc::trusted(&base), true, out).map(drop)
}

pub(super) fn with_delta(delta: &Delta, query: &Filter, out: &mut Vec<u8>) -> Result<()> {
    let base = base_document(query)?;
    delta.insert(Doc::trusted(&base), out)
}

/// Returns the document of just the values that the query requires, its fields in the order of
/// their paths.
fn base_document(query: &Filter) -> Result<Vec<u8>> {
    let mut equalities = Equalities::default();
    equalities.find(query.root());
    equalities.sort()?;
    let mut base = Vec::new();
    write_fields(&equalities.found, 0, &mut DocWriter::new(&mut base));
    Ok(base)
}

/// The values that a query requires, by path.
#[derive(Default)]
struct Equalities<'q> {
    found: Vec<(BString, RawValue<'q>)>,
}

impl<'q> Equalities<'q> {
    fn find(&mut self, node: &'q Node) {
        match node {
            Node::And(children) => children.iter().for_each(|child| self.find(child)),
            Node::Path(PathNode { path, predicate: Predicate::Compare(constant) })
                if constant.op == CompareOp::Eq =>
            {
                self.found.push((path.parts().join(&b'.').into(), constant.value.as_raw()));
            }
            _ => {}
        }
    }

    /// Sorts by path, and rejects paths that contain each other.
    fn sort(&mut self) -> Result<()> {
        self.found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut before = HashSet::with_capacity(self.found.len());
        for (path, _) in &self.found {
            let path = path.as_bstr();
            // A prefix of a path sorts before it.
            let outer = path.find_iter(".").map(|dot| path[..dot].as_bstr());
            if let Some(outer) = outer.into_iter().find(|outer| before.contains(outer)) {
                // A path that adds only an empty name to another counts as the same.
                let is_same = path.len() == outer.len() + 1;
                return Err(if is_same {
                    matched_twice(path)
                } else {
                    matched_inside(path, outer)
                });
            }
            if !before.insert(path) {
                return Err(matched_twice(path));
            }
        }
        if before.contains(BStr::new("")) { Err(empty_path()) } else { Ok(()) }
    }
}

/// Writes the fields whose paths share the first `skip` bytes. Sorted paths that share a part are
/// neighbours.
fn write_fields(fields: &[(BString, RawValue<'_>)], skip: usize, out: &mut DocWriter<'_>) {
    let mut rest = fields;
    while let Some((path, value)) = rest.first() {
        let tail = &path[skip..];
        let Some(dot) = tail.find_byte(b'.') else {
            out.append_raw(tail, *value);
            rest = &rest[1..];
            continue;
        };
        let prefix = &path[..=skip + dot];
        let count = rest.iter().take_while(|(other, _)| other.starts_with(prefix)).count();
        write_fields(&rest[..count], prefix.len(), &mut out.begin_doc(&tail[..dot]));
        rest = &rest[count..];
    }
}
