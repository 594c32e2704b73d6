//! What operators did: what stands at the paths that they name, before and after.
//!
//! A path that was not there is added where it begins to be new. Of the elements that array filters
//! choose, one that was changed is told by itself, and more of them as the whole array.

use std::borrow::Cow;

use marula_bson::{Doc, Element, RawValue, Type};
use marula_error::Result;

use super::super::Matched;
use super::super::array_filter::ArrayFilter;
use super::super::operator::{Effect, Operation};
use super::super::operators::Operators;
use super::super::trail::Trail;
use super::super::tree::{self, Fields, Node};
use super::{Change, Elements, Inside, Sections};

/// What the walk through tree and documents needs to know.
struct Walk<'w> {
    position: Option<usize>,
    array_filters: &'w [ArrayFilter],
}

impl Operators {
    /// How the document that the operators made differs from the one before.
    pub(in super::super) fn sections<'d>(
        &self,
        old: Doc<'d>,
        new: Doc<'d>,
        matched: &Matched,
    ) -> Result<Sections<'d>> {
        let walk = Walk { position: matched.position, array_filters: self.array_filters() };
        walk.document(self.tree(), old, new)
    }
}

impl Walk<'_> {
    fn document<'d>(&self, fields: &Fields, old: Doc<'d>, new: Doc<'d>) -> Result<Sections<'d>> {
        let mut sections = Sections::default();
        let fields = self.resolve(fields)?;
        let entries = fields.children.entries();
        for (name, node) in entries {
            // What moves within the document goes when it comes.
            let moved_to = |node: &Node| match node {
                Node::Leaf(Operation::RenameTo(rename)) => rename.sibling() == Some(&**name),
                _ => false,
            };
            if matches!(&**node, Node::Leaf(Operation::RenameFrom))
                && entries.iter().any(|(_, node)| moved_to(node))
            {
                continue;
            }
            if let Node::Leaf(Operation::RenameTo(rename)) = &**node
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
                        Some(Change::Inside(inside)) => sections.inside.push((before.name, inside)),
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

    /// What was done to the elements that array filters choose; `None` where that is told as the
    /// whole array.
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

    /// How a value differs at which `node` acted; `None` where it does not.
    fn change<'d>(
        &self,
        node: &Node,
        old: RawValue<'d>,
        new: RawValue<'d>,
    ) -> Result<Option<Change<'d>>> {
        let both = || (Doc::trusted(old.bytes()), Doc::trusted(new.bytes()));
        let inside = match (node, old.kind(), new.kind()) {
            (Node::Leaf(Operation::Push(push)), Type::Array, Type::Array) => {
                let (old, new) = both();
                match push.effect(old, new) {
                    Effect::Nothing => return Ok(None),
                    Effect::Appended(count) => Some(Inside::Array(behind(new, count))),
                    Effect::Rewritten => None,
                }
            }
            _ if is_same(old, new) => return Ok(None),
            (Node::Fields(fields), Type::Document, Type::Document) => {
                let (old, new) = both();
                Some(Inside::Document(self.document(fields, old, new)?))
            }
            (Node::Fields(fields), Type::Array, Type::Array) => {
                let (old, new) = both();
                Some(Inside::Array(self.array(fields, old, new)?))
            }
            (Node::Elements(chosen), Type::Array, Type::Array) => {
                let (old, new) = both();
                self.chosen(chosen, old, new)?.map(Inside::Array)
            }
            _ => None,
        };
        Ok(Some(inside.map_or(Change::Set(new), Change::Inside)))
    }

    fn resolve<'f>(&self, fields: &'f Fields) -> Result<Cow<'f, Fields>> {
        if fields.has_positional() {
            return fields.with_position(self.position, None).map(Cow::Owned);
        }
        Ok(Cow::Borrowed(fields))
    }
}

/// The elements of an array behind the first `count`, which are new.
fn behind(array: Doc<'_>, count: usize) -> Elements<'_> {
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
