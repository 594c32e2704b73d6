//! The difference made by operators: the values at the paths that they name, before and after.
//!
//! A new path is added where it begins to be new. If one of the elements that array filters choose
//! changed, it is written alone; if several did, the whole array is. Some operators
//! report a value even if it is unchanged, as they do in mongod.

use std::borrow::Cow;

use marula_bson::{Doc, Element, RawValue, Type};
use marula_error::Result;

use super::super::Matched;
use super::super::array_filter::ArrayFilter;
use super::super::operator::{Effect, Operation};
use super::super::operators::Operators;
use super::super::trail::Trail;
use super::super::tree::{self, Fields, UpdateNode};
use super::{Change, Elements, InnerChange, Sections};

/// The inputs of the walk through tree and documents.
struct Walk<'w> {
    /// The whole document before.
    root: Doc<'w>,
    position: Option<usize>,
    array_filters: &'w [ArrayFilter],
}

impl Operators {
    /// Returns the difference between the document before and the one that the operators made.
    pub(in super::super) fn sections<'d>(
        &self,
        old: Doc<'d>,
        new: Doc<'d>,
        matched: &Matched,
    ) -> Result<Sections<'d>> {
        let array_filters = self.array_filters();
        let walk = Walk { root: old, position: matched.position, array_filters };
        walk.document(self.tree(), old, new)
    }
}

impl Walk<'_> {
    fn document<'d>(&self, fields: &Fields, old: Doc<'d>, new: Doc<'d>) -> Result<Sections<'d>> {
        let mut sections = Sections::default();
        let fields = self.resolve(fields)?;
        let entries = fields.children.entries();
        for (name, node) in entries {
            // A field that is renamed within the document is removed where its new name is added.
            let moved_to = |node: &UpdateNode| match node {
                UpdateNode::Leaf(Operation::RenameTo(rename)) => rename.sibling() == Some(&**name),
                _ => false,
            };
            if matches!(&**node, UpdateNode::Leaf(Operation::RenameFrom))
                && entries.iter().any(|(_, node)| moved_to(node))
            {
                continue;
            }
            if let UpdateNode::Leaf(Operation::RenameTo(rename)) = &**node
                && let Some(moved) = rename.sibling().and_then(|source| field(old, source))
                && field(new, moved.name).is_none()
            {
                sections.gone.push(moved.name);
            }
            match (field(old, name), field(new, name)) {
                (None, None) => {}
                (Some(before), None) => sections.gone.push(before.name),
                (None, Some(after)) => sections.added.push((after.name, after.value)),
                (Some(before), Some(after)) => {
                    match self.change(node, before.value, after.value)? {
                        None => {}
                        Some(Change::Set(value)) => sections.set.push((before.name, value)),
                        Some(Change::InnerChange(inside)) => {
                            sections.inside.push((before.name, inside))
                        }
                    }
                }
            }
        }
        Ok(sections)
    }

    fn array<'d>(&self, fields: &Fields, old: Doc<'d>, new: Doc<'d>) -> Result<Elements<'d>> {
        let fields = self.resolve(fields)?;
        let mut elements = Elements::default();
        let (mut olds, mut news) = (old.iter(), new.iter());
        let mut next = 0;
        for &(index, place) in &fields.by_index {
            let index = index as usize;
            let ahead = index - next;
            next = index + 1;
            let node = &fields.children.entries()[place].1;
            let change = match (olds.nth(ahead), news.nth(ahead)) {
                (Some(before), Some(after)) => self.change(node, before.value, after.value)?,
                (None, Some(after)) => Some(Change::Set(after.value)),
                (_, None) => None,
            };
            elements.changes.extend(change.map(|change| (index, change)));
        }
        Ok(elements)
    }

    /// Returns the changes of the elements that array filters choose; `None` if the whole array is
    /// written.
    fn chosen<'d>(
        &self,
        chosen: &tree::Elements,
        old: Doc<'d>,
        new: Doc<'d>,
    ) -> Result<Option<Elements<'d>>> {
        let mut scratch = Vec::new();
        let (mut count, mut changed) = (0, None);
        for (place, (before, after)) in old.iter().zip(new.iter()).enumerate() {
            let mut nodes = Vec::new();
            for (id, node) in &chosen.children {
                let filter = self.array_filters.iter().find(|filter| *filter.id == **id);
                if match filter {
                    Some(filter) => filter.matches(before.value, &mut scratch)?,
                    None => true,
                } {
                    nodes.push(node);
                }
            }
            let Some(first) = nodes.first() else { continue };
            count += 1;
            if is_same(before.value, after.value) {
                continue;
            }
            if changed.is_some() {
                return Ok(None);
            }
            let at = Trail::below(None, before.name);
            let node = nodes[1..].iter().try_fold(Cow::Borrowed(*first), |all, node| {
                tree::merge(&all, node, &at).map(Cow::Owned)
            })?;
            changed = Some((place, node, before.value, after.value));
        }
        let mut elements = Elements::default();
        if let Some((place, node, before, after)) = changed {
            let change = match count {
                1 => self.change(&node, before, after)?,
                _ => Some(Change::Set(after)),
            };
            elements.changes.extend(change.map(|change| (place, change)));
        }
        Ok(Some(elements))
    }

    /// Returns the change of a value on which `node` acted; `None` if it did not change.
    fn change<'d>(
        &self,
        node: &UpdateNode,
        old: RawValue<'d>,
        new: RawValue<'d>,
    ) -> Result<Option<Change<'d>>> {
        let both = || (Doc::trusted(old.bytes()), Doc::trusted(new.bytes()));
        let inside = match (node, old.kind(), new.kind()) {
            (UpdateNode::Leaf(Operation::Push(push)), Type::Array, Type::Array) => {
                let (old, new) = both();
                match push.effect(old, new) {
                    Effect::Nothing => return Ok(None),
                    Effect::Appended(count) => Some(InnerChange::Array(after(new, count))),
                    Effect::Rewritten => None,
                }
            }
            (UpdateNode::Fields(fields), Type::Document, Type::Document) => {
                let (old, new) = both();
                Some(InnerChange::Document(self.document(fields, old, new)?))
            }
            (UpdateNode::Fields(fields), Type::Array, Type::Array) => {
                let (old, new) = both();
                Some(InnerChange::Array(self.array(fields, old, new)?))
            }
            _ if is_same(old, new) && !self.reports_unchanged(node) => return Ok(None),
            (UpdateNode::Elements(chosen), Type::Array, Type::Array) => {
                let (old, new) = both();
                self.chosen(chosen, old, new)?.map(InnerChange::Array)
            }
            _ => None,
        };
        let change = inside.map_or(Change::Set(new), Change::InnerChange);
        Ok(Some(change).filter(|change| !change.is_empty()))
    }

    /// Whether an operator reports an unchanged value: `$rename` if it moved an equal one, and
    /// `$unset` of an array's element that is null already.
    fn reports_unchanged(&self, node: &UpdateNode) -> bool {
        match node {
            UpdateNode::Leaf(Operation::RenameTo(rename)) => rename.finds(self.root),
            UpdateNode::Leaf(Operation::Unset) => true,
            _ => false,
        }
    }

    fn resolve<'f>(&self, fields: &'f Fields) -> Result<Cow<'f, Fields>> {
        if fields.has_positional() {
            return fields.with_position(self.position, None).map(Cow::Owned);
        }
        Ok(Cow::Borrowed(fields))
    }
}

/// Returns the elements of an array after the first `count`, which are new.
fn after(array: Doc<'_>, count: usize) -> Elements<'_> {
    let changes = array.iter().enumerate().skip(count);
    let changes = changes.map(|(place, element)| (place, Change::Set(element.value)));
    Elements { length: None, changes: changes.collect() }
}

fn field<'d>(doc: Doc<'d>, name: &[u8]) -> Option<Element<'d>> {
    doc.iter().find(|element| *element.name == *name)
}

fn is_same(a: RawValue<'_>, b: RawValue<'_>) -> bool {
    a.kind() == b.kind() && a.bytes() == b.bytes()
}
