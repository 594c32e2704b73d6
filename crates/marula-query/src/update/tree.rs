//! An update's operators as a tree by path.
//!
//! A [`Node`] is what is done at one place: a [`Leaf`](Node::Leaf) is one operator, [`Fields`] are
//! the children of a document or the chosen indexes of an array, [`Elements`] speak of array
//! elements by array filter. Paths that meet are merged while parsing; `$` and `$[id]` stand for
//! places that only the document decides, so nodes may have to be merged again for one document.

use std::sync::Arc;

use bstr::{BStr, ByteSlice};
use marula_error::{Result, errors};

use super::operator::Operation;
use super::path::{self, Part};
use super::trail::Trail;
use crate::field_map::FieldMap;

errors! {
    /// Two operators write the same place, or one inside another's.
    conflict(path: &BStr, at: &BStr) = ConflictingUpdateOperators, "Updating the path '{path}' would create a conflict at '{at}'";
    /// For this document, two paths are the same place.
    pub(super) conflict_at(at: &Trail<'_>) = ConflictingUpdateOperators, "Update created a conflict at '{at}'";
    /// `$` is used, and the filter noted no array index.
    no_position() = BadValue, "The positional operator did not find the match needed from the query.";
}

/// What is done at one place.
#[derive(Debug)]
pub(super) enum Node {
    /// An operator writes the value.
    Leaf(Operation),
    /// Parts of the value, by name or index.
    Fields(Fields),
    /// Elements of the array, by array filter.
    Elements(Elements),
}

/// What is done with the fields of a document, or with elements of an array by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    /// By name, in the order of [`path::compare`].
    pub(super) children: FieldMap<Arc<Node>>,
    /// The children whose names are array indexes, ascending: index and place in `children`.
    pub(super) by_index: Vec<(u32, usize)>,
    /// What is done at `$`.
    positional: Option<Arc<Node>>,
}

/// What is done with the elements of an array that array filters choose.
#[derive(Clone, Debug, Default)]
pub(super) struct Elements {
    /// By identifier, ascending; the empty one is every element.
    pub(super) children: Vec<(Box<[u8]>, Arc<Node>)>,
}

impl Fields {
    /// Adds an operator at a path.
    pub(super) fn add(&mut self, path: &[u8], parts: &[Part<'_>], leaf: Operation) -> Result<()> {
        let full = Full { path, parts };
        add_to_fields(self, &full, 0, leaf)
    }

    /// The operator that writes the field itself.
    pub(super) fn leaf(&self, name: &[u8]) -> Option<&Operation> {
        let (_, node) = &self.children.entries()[self.children.find(name)?];
        match &**node {
            Node::Leaf(operation) => Some(operation),
            _ => None,
        }
    }

    /// Whether `$` is used anywhere below.
    pub(super) fn uses_position(&self) -> bool {
        self.positional.is_some()
            || self.children.entries().iter().any(|(_, node)| node.uses_position())
    }

    /// Whether `$` stands among the fields themselves.
    pub(super) fn has_positional(&self) -> bool {
        self.positional.is_some()
    }

    /// The fields with the place of `$` decided.
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
        fields.settle();
        Ok(fields)
    }

    fn merge_child(&mut self, name: &[u8], node: &Arc<Node>, at: Option<&Trail<'_>>) -> Result<()> {
        match self.children.find(name) {
            None => self.children.push(name, Arc::clone(node)),
            Some(place) => {
                let item = self.children.item_mut(place);
                *item = merge(item, node, &Trail::below(at, name))?;
            }
        }
        Ok(())
    }

    /// Orders the children, of which some were added.
    fn settle(&mut self) {
        self.children.sort_by(path::compare);
        let entries = self.children.entries().iter().enumerate();
        self.by_index =
            entries.filter_map(|(place, (name, _))| Some((path::index(name)?, place))).collect();
        self.by_index.sort_unstable();
    }

    /// Orders all children when everything was added.
    pub(super) fn finish(&mut self) {
        for place in 0..self.children.len() {
            finish(self.children.item_mut(place));
        }
        if let Some(node) = &mut self.positional {
            finish(node);
        }
        self.settle();
    }
}

fn finish(node: &mut Arc<Node>) {
    match Arc::get_mut(node).expect(NOT_SHARED) {
        Node::Leaf(_) => {}
        Node::Fields(fields) => fields.finish(),
        Node::Elements(elements) => elements.children.iter_mut().for_each(|(_, node)| finish(node)),
    }
}

/// Why a node can be changed while the tree is built.
const NOT_SHARED: &str = "the tree is not shared while it is built";

impl Node {
    fn uses_position(&self) -> bool {
        match self {
            Node::Leaf(_) => false,
            Node::Fields(fields) => fields.uses_position(),
            Node::Elements(elements) => {
                elements.children.iter().any(|(_, node)| node.uses_position())
            }
        }
    }
}

/// Merges what two paths that turned out to be the same place do there.
pub(super) fn merge(a: &Arc<Node>, b: &Arc<Node>, at: &Trail<'_>) -> Result<Arc<Node>> {
    match (&**a, &**b) {
        (Node::Fields(a), Node::Fields(b)) => {
            let mut merged = a.clone();
            for (name, node) in b.children.entries() {
                merged.merge_child(name, node, Some(at))?;
            }
            merged.positional = match (&a.positional, &b.positional) {
                (Some(a), Some(b)) => Some(merge(a, b, &Trail::below(Some(at), b"$"))?),
                (a, b) => a.clone().or_else(|| b.clone()),
            };
            merged.settle();
            Ok(Arc::new(Node::Fields(merged)))
        }
        (Node::Elements(a), Node::Elements(b)) => {
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
            Ok(Arc::new(Node::Elements(merged)))
        }
        _ => Err(conflict_at(at)),
    }
}

/// A path as it was given, and its parts.
struct Full<'p> {
    path: &'p [u8],
    parts: &'p [Part<'p>],
}

impl Full<'_> {
    /// The text of the first `count` parts.
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

    /// The tree that the parts from `at` on make.
    fn chain(&self, at: usize, leaf: Operation) -> Result<Node> {
        let mut node = match self.parts.get(at) {
            None => return Ok(Node::Leaf(leaf)),
            Some(Part::Elements(_)) => Node::Elements(Elements::default()),
            Some(_) => Node::Fields(Fields::default()),
        };
        add_to(&mut node, self, at, leaf)?;
        Ok(node)
    }
}

fn add_to(container: &mut Node, full: &Full<'_>, at: usize, leaf: Operation) -> Result<()> {
    match container {
        Node::Leaf(_) => Err(full.conflict(at)),
        Node::Fields(fields) => add_to_fields(fields, full, at, leaf),
        Node::Elements(elements) => add_to_elements(elements, full, at, leaf),
    }
}

fn add_to_fields(fields: &mut Fields, full: &Full<'_>, at: usize, leaf: Operation) -> Result<()> {
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
    full: &Full<'_>,
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

fn add_below(node: &mut Arc<Node>, full: &Full<'_>, at: usize, leaf: Operation) -> Result<()> {
    if at + 1 == full.parts.len() {
        return Err(full.conflict(at + 1));
    }
    let node = Arc::get_mut(node).expect(NOT_SHARED);
    add_to(node, full, at + 1, leaf)
}
