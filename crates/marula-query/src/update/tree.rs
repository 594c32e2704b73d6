//! An update's operators as a tree by path.
//!
//! An [`UpdateNode`] has the operators at one path: a [`Leaf`](UpdateNode::Leaf) is one operator,
//! [`Fields`] are the children of a document or elements of an array by index, [`Elements`] are the
//! elements that array filters choose. Paths with a common prefix are merged while parsing. `$` and
//! `$[id]` mean positions that only the document decides, so nodes may have to be merged again for
//! one document.

use std::sync::Arc;

use bstr::{BStr, ByteSlice};
use marula_error::{Result, errors};

use super::operator::Operation;
use super::path::{self, Part};
use super::trail::Trail;
use crate::field_map::FieldMap;

errors! {
    /// Two operators write at the same path, or one inside another's.
    conflict(path: &BStr, at: &BStr) = ConflictingUpdateOperators, "Updating the path '{path}' would create a conflict at '{at}'";
    /// For this document, two paths are the same.
    pub(super) conflict_at(at: &Trail<'_>) = ConflictingUpdateOperators, "Update created a conflict at '{at}'";
    /// `$` is used, and the filter recorded no array index.
    no_position() = BadValue, "The positional operator did not find the match needed from the query.";
}

/// The operators at one path.
#[derive(Debug)]
pub(super) enum UpdateNode {
    /// An operator writes the value.
    Leaf(Operation),
    /// Parts of the value, by name or index.
    Fields(Fields),
    /// Elements of the array, by array filter.
    Elements(Elements),
}

/// The operators on the fields of a document, or on elements of an array by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    /// By name, in the order of [`path::compare`].
    pub(super) children: FieldMap<Arc<UpdateNode>>,
    /// The children whose names are array indexes, ascending: the index and the position in
    /// `children`.
    pub(super) by_index: Vec<(u32, usize)>,
    /// The operators at `$`.
    positional: Option<Arc<UpdateNode>>,
}

/// The operators on the elements of an array that array filters choose.
#[derive(Clone, Debug, Default)]
pub(super) struct Elements {
    /// By identifier, ascending; the empty one is every element.
    pub(super) children: Vec<(Box<[u8]>, Arc<UpdateNode>)>,
}

impl Fields {
    /// Adds an operator at a path.
    pub(super) fn add(&mut self, path: &[u8], parts: &[Part<'_>], leaf: Operation) -> Result<()> {
        let full = FullPath { path, parts };
        add_to_fields(self, &full, 0, leaf)
    }

    /// Returns the operator that writes the field itself.
    pub(super) fn leaf(&self, name: &[u8]) -> Option<&Operation> {
        let (_, node) = &self.children.entries()[self.children.find(name)?];
        match &**node {
            UpdateNode::Leaf(operation) => Some(operation),
            _ => None,
        }
    }

    /// Returns whether `$` is used in the subtree.
    pub(super) fn uses_position(&self) -> bool {
        self.positional.is_some()
            || self.children.entries().iter().any(|(_, node)| node.uses_position())
    }

    /// Returns whether `$` is one of the fields.
    pub(super) fn has_positional(&self) -> bool {
        self.positional.is_some()
    }

    /// Returns the fields with `$` replaced by its position.
    pub(super) fn with_position(
        &self,
        position: Option<usize>,
        at: Option<&Trail<'_>>,
    ) -> Result<Fields> {
        let Some(node) = &self.positional else { return Ok(self.clone()) };
        let position = position.ok_or_else(no_position)?;
        let mut fields =
            Fields { children: self.children.clone(), by_index: Vec::new(), positional: None };
        fields.merge_child(position.to_string().as_bytes(), node, at)?;
        fields.sort_children();
        Ok(fields)
    }

    fn merge_child(
        &mut self,
        name: &[u8],
        node: &Arc<UpdateNode>,
        at: Option<&Trail<'_>>,
    ) -> Result<()> {
        match self.children.find(name) {
            None => self.children.push(name, Arc::clone(node)),
            Some(place) => {
                let item = self.children.item_mut(place);
                *item = merge(item, node, &Trail::below(at, name))?;
            }
        }
        Ok(())
    }

    /// Sorts the children after some were added.
    fn sort_children(&mut self) {
        self.children.sort_by(path::compare);
        let entries = self.children.entries().iter().enumerate();
        self.by_index =
            entries.filter_map(|(place, (name, _))| Some((path::index(name)?, place))).collect();
        self.by_index.sort_unstable();
    }

    /// Sorts all children once everything is added.
    pub(super) fn finish(&mut self) {
        for place in 0..self.children.len() {
            finish(self.children.item_mut(place));
        }
        if let Some(node) = &mut self.positional {
            finish(node);
        }
        self.sort_children();
    }
}

fn finish(node: &mut Arc<UpdateNode>) {
    match Arc::get_mut(node).expect(NOT_SHARED) {
        UpdateNode::Leaf(_) => {}
        UpdateNode::Fields(fields) => fields.finish(),
        UpdateNode::Elements(elements) => {
            elements.children.iter_mut().for_each(|(_, node)| finish(node))
        }
    }
}

/// The reason why a node can be changed while the tree is built.
const NOT_SHARED: &str = "the tree is not shared while it is built";

impl UpdateNode {
    fn uses_position(&self) -> bool {
        match self {
            UpdateNode::Leaf(_) => false,
            UpdateNode::Fields(fields) => fields.uses_position(),
            UpdateNode::Elements(elements) => {
                elements.children.iter().any(|(_, node)| node.uses_position())
            }
        }
    }
}

/// Merges the operators of two paths that are the same in this document.
pub(super) fn merge(
    a: &Arc<UpdateNode>,
    b: &Arc<UpdateNode>,
    at: &Trail<'_>,
) -> Result<Arc<UpdateNode>> {
    match (&**a, &**b) {
        (UpdateNode::Fields(a), UpdateNode::Fields(b)) => {
            let mut merged = a.clone();
            for (name, node) in b.children.entries() {
                merged.merge_child(name, node, Some(at))?;
            }
            merged.positional = match (&a.positional, &b.positional) {
                (Some(a), Some(b)) => Some(merge(a, b, &Trail::below(Some(at), b"$"))?),
                (a, b) => a.clone().or_else(|| b.clone()),
            };
            merged.sort_children();
            Ok(Arc::new(UpdateNode::Fields(merged)))
        }
        (UpdateNode::Elements(a), UpdateNode::Elements(b)) => {
            let mut merged = a.clone();
            for (id, node) in &b.children {
                match merged.children.binary_search_by(|(other, _)| other.cmp(id)) {
                    Err(place) => merged.children.insert(place, (id.clone(), Arc::clone(node))),
                    Ok(place) => {
                        let name = [b"$[", &**id, b"]"].concat();
                        let item = &mut merged.children[place].1;
                        *item = merge(item, node, &Trail::below(Some(at), &name))?;
                    }
                }
            }
            Ok(Arc::new(UpdateNode::Elements(merged)))
        }
        _ => Err(conflict_at(at)),
    }
}

/// A path as the client wrote it, and its parts.
struct FullPath<'p> {
    path: &'p [u8],
    parts: &'p [Part<'p>],
}

impl FullPath<'_> {
    /// Returns the text of the first `count` parts.
    fn prefix(&self, count: usize) -> &BStr {
        let mut ends = self.path.find_iter(b".");
        match count.checked_sub(1).and_then(|dots| ends.nth(dots)) {
            Some(end) => self.path[..end].as_bstr(),
            None => self.path.as_bstr(),
        }
    }

    fn conflict(&self, count: usize) -> marula_error::Error {
        conflict(self.path.as_bstr(), self.prefix(count))
    }

    /// Returns the tree of the parts from `at` on.
    fn chain(&self, at: usize, leaf: Operation) -> Result<UpdateNode> {
        let mut node = match self.parts.get(at) {
            None => return Ok(UpdateNode::Leaf(leaf)),
            Some(Part::Elements(_)) => UpdateNode::Elements(Elements::default()),
            Some(_) => UpdateNode::Fields(Fields::default()),
        };
        add_to(&mut node, self, at, leaf)?;
        Ok(node)
    }
}

fn add_to(
    container: &mut UpdateNode,
    full: &FullPath<'_>,
    at: usize,
    leaf: Operation,
) -> Result<()> {
    match container {
        UpdateNode::Leaf(_) => Err(full.conflict(at)),
        UpdateNode::Fields(fields) => add_to_fields(fields, full, at, leaf),
        UpdateNode::Elements(elements) => add_to_elements(elements, full, at, leaf),
    }
}

fn add_to_fields(
    fields: &mut Fields,
    full: &FullPath<'_>,
    at: usize,
    leaf: Operation,
) -> Result<()> {
    match full.parts[at] {
        Part::Name(name) => match fields.children.find(name) {
            Some(place) => add_below(fields.children.item_mut(place), full, at, leaf)?,
            None => fields.children.push(name, Arc::new(full.chain(at + 1, leaf)?)),
        },
        Part::Positional => match &mut fields.positional {
            Some(node) => add_below(node, full, at, leaf)?,
            None => fields.positional = Some(Arc::new(full.chain(at + 1, leaf)?)),
        },
        Part::Elements(_) => return Err(full.conflict(at)),
    }
    Ok(())
}

fn add_to_elements(
    elements: &mut Elements,
    full: &FullPath<'_>,
    at: usize,
    leaf: Operation,
) -> Result<()> {
    let Part::Elements(id) = full.parts[at] else { return Err(full.conflict(at)) };
    match elements.children.binary_search_by(|(other, _)| (**other).cmp(id)) {
        Ok(place) => add_below(&mut elements.children[place].1, full, at, leaf),
        Err(place) => {
            let node = Arc::new(full.chain(at + 1, leaf)?);
            elements.children.insert(place, (id.into(), node));
            Ok(())
        }
    }
}

fn add_below(
    node: &mut Arc<UpdateNode>,
    full: &FullPath<'_>,
    at: usize,
    leaf: Operation,
) -> Result<()> {
    if at + 1 == full.parts.len() {
        return Err(full.conflict(at + 1));
    }
    let node = Arc::get_mut(node).expect(NOT_SHARED);
    add_to(node, full, at + 1, leaf)
}
