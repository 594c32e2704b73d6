//! `$rename`: moves a value to another path.
//!
//! It is two leaves of the tree: the new path takes the value from the document before the update,
//! and the old path removes it. No other operator can write at either path, so the order does not
//! matter.

use bstr::{BStr, ByteSlice};
use marula_bson::{Doc, Element, RawValue, Type, Value};
use marula_error::{Result, errors};

use super::{IdOf, Operation};
use crate::update::path::{self, Part};
use crate::update::tree::Fields;
use crate::update::walk::{Walk, WriteStep, id_changed};

errors! {
    /// The new path is not a string.
    target_not_a_string(field: Element<'_>) = BadValue, "The 'to' field for $rename must be a string: {field}";
    /// The new path has a NUL byte.
    target_with_nul() = BadValue, "The 'to' field for $rename cannot contain an embedded null byte";
    /// Both paths are the same.
    same_path(field: Element<'_>) = BadValue, "The source and target field for $rename must differ: {field}";
    /// One path leads through the other.
    nested_paths(field: Element<'_>) = BadValue, "The source and target field for $rename must not be on the same path: {field}";
    /// The old path has `$` or `$[…]`.
    source_dynamic(path: &BStr) = BadValue, "The source field for $rename may not be dynamic: {path}";
    /// The new path has `$` or `$[…]`.
    target_dynamic(path: &BStr) = BadValue, "The destination field for $rename may not be dynamic: {path}";
    /// The old path leads into a value that has no fields.
    cannot_traverse(part: &BStr, path: &BStr, element: Element<'_>) = PathNotViable, "cannot use the part ({part} of {path}) to traverse the element ({{{element}}})";
    /// A path leads through an array.
    through_array(which: &str, path: &BStr, id: IdOf<'_>, array: &BStr) = BadValue, "The {which} field cannot be an array element, '{path}' in doc with {id} has an array field called '{array}'";
}

/// `$rename` at the new path.
#[derive(Debug)]
pub(in crate::update) struct RenameTo {
    source: Box<[u8]>,
    target: Box<[u8]>,
}

impl RenameTo {
    /// Whether a document has the field that is to be renamed.
    pub(in crate::update) fn finds(&self, doc: Doc<'_>) -> bool {
        let mut parts = self.source.split_str(b".");
        let first = parts.next().and_then(|name| doc.get(name));
        parts.try_fold(first, |value, name| Some(value?.as_doc()?.get(name))).flatten().is_some()
    }

    /// Returns the old name of the field, if it stays in its document.
    pub(in crate::update) fn sibling(&self) -> Option<&[u8]> {
        let split = |path: &'_ [u8]| path.rfind_byte(b'.').map_or(0, |dot| dot + 1);
        let (source, target) = (split(&self.source), split(&self.target));
        (self.source[..source] == self.target[..target]).then(|| &self.source[source..])
    }
}

/// Adds the old path of one field of `$rename` to the tree and returns its parts.
pub(in crate::update) fn add_rename_source<'a>(
    fields: &mut Fields,
    field: Element<'a>,
) -> Result<Vec<Part<'a>>> {
    let source = field.name;
    path::check_names(source)?;
    let parts = path::parts(source)?;
    fields.add(source, &parts, Operation::RenameFrom)?;
    Ok(parts)
}

/// Adds the new path of one field of `$rename` to the tree and returns it.
pub(in crate::update) fn add_rename_target<'a>(
    fields: &mut Fields,
    field: Element<'a>,
) -> Result<&'a BStr> {
    let source = field.name;
    let Value::String(target) = field.value.get() else {
        return Err(target_not_a_string(field));
    };
    if target.contains(&0) {
        return Err(target_with_nul());
    }
    path::check_names(target)?;
    if source == target {
        return Err(same_path(field));
    }
    if is_inside(source, target) || is_inside(target, source) {
        return Err(nested_paths(field));
    }
    if path::is_dynamic(source) {
        return Err(source_dynamic(source));
    }
    if path::is_dynamic(target) {
        return Err(target_dynamic(target));
    }
    let rename = RenameTo { source: source.as_bytes().into(), target: target.as_bytes().into() };
    fields.add(target, &path::parts(target)?, Operation::RenameTo(rename))?;
    Ok(target)
}

/// Returns whether `path` leads into the value at `outer`.
fn is_inside(path: &[u8], outer: &[u8]) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.first() == Some(&b'.'))
}

impl RenameTo {
    /// Returns the value to move; `None` if there is none.
    pub(super) fn find<'r>(&self, walk: &Walk<'r>) -> Result<Option<RawValue<'r>>> {
        let root = walk.root;
        let Some(value) = find_source(root, &self.source)? else { return Ok(None) };
        for (which, path) in [("source", &self.source), ("destination", &self.target)] {
            if let Some(array) = array_on_path(root, path) {
                let id = IdOf::of(root);
                return Err(through_array(which, path.as_bstr(), id, array.as_bstr()));
            }
        }
        Ok(Some(value))
    }

    pub(super) fn change(
        &self,
        walk: &Walk<'_>,
        _old: RawValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<WriteStep> {
        Ok(self.make(walk, out)?.map_or(WriteStep::Keep, WriteStep::Write))
    }

    pub(super) fn make(&self, walk: &Walk<'_>, out: &mut Vec<u8>) -> Result<Option<Type>> {
        let Some(value) = self.find(walk)? else { return Ok(None) };
        let takes_id = *self.source == *b"_id" || is_inside(&self.source, b"_id");
        if takes_id && walk.id_is_fixed {
            return Err(id_changed(&self.source.as_bstr()));
        }
        out.extend_from_slice(value.bytes());
        Ok(Some(value.kind()))
    }
}

fn find_source<'r>(root: Doc<'r>, path: &[u8]) -> Result<Option<RawValue<'r>>> {
    let mut parts = path.split(|&byte| byte == b'.').peekable();
    let mut doc = root;
    while let Some(part) = parts.next() {
        let Some(value) = doc.get_raw(part) else { return Ok(None) };
        let Some(next) = parts.peek() else { return Ok(Some(value)) };
        doc = Doc::trusted(value.bytes());
        let can_go_on = match value.kind() {
            Type::Document => true,
            Type::Array => path::index(next).is_some(),
            _ => false,
        };
        if !can_go_on {
            let element = Element { name: part.as_bstr(), value };
            return Err(cannot_traverse(part.as_bstr(), path.as_bstr(), element));
        }
    }
    Ok(None)
}

/// Returns the name of the innermost array on the path.
fn array_on_path<'p>(root: Doc<'_>, path: &'p [u8]) -> Option<&'p [u8]> {
    let mut parts = path.split(|&byte| byte == b'.').peekable();
    let mut doc = root;
    let mut innermost = None;
    while let Some(part) = parts.next() {
        let Some(value) = doc.get_raw(part).filter(|_| parts.peek().is_some()) else { break };
        match value.kind() {
            Type::Document => {}
            Type::Array => innermost = Some(part),
            _ => break,
        }
        doc = Doc::trusted(value.bytes());
    }
    innermost
}
