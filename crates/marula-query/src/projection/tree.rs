//! A projection as a tree by field name.

use marula_bson::Doc;
use marula_error::Result;

use super::metadata::Meta;
use super::slice::Slice;
use crate::context::Context;
use crate::expression::Expression;
use crate::field_map::FieldMap;
use crate::filter::Filter;

/// What is done with the fields of a document.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// By name, in the order of the projection: the order of the fields that are computed.
    pub(super) children: FieldMap<Child>,
    /// Whether anything is computed here or below.
    pub(super) computes: bool,
}

/// What is done with one field.
#[derive(Debug)]
pub(super) enum Child {
    /// It is shown.
    Keep,
    /// It is left out.
    Drop,
    /// Parts of it are chosen.
    Inner(Node),
    /// Some of its elements are shown, if it is an array.
    Slice(Slice),
    /// It gets a new value.
    Computed(Computed),
}

/// Where a new value comes from.
#[derive(Debug)]
pub(super) enum Computed {
    /// An expression.
    Expression(Expression),
    /// `$meta`.
    Meta(Meta),
    /// `$elemMatch`: an array of the field's first element that matches.
    ElemMatch {
        /// The field.
        name: Box<[u8]>,
        /// The condition, on the whole document.
        filter: Filter,
    },
}

/// Two paths that cannot stand in one projection.
pub(super) enum Collision {
    /// What the path names contains what another names.
    Above,
    /// The path leads into what another names.
    Below,
}

impl Node {
    /// Adds what is done at a path.
    pub(super) fn add(
        &mut self,
        parts: &[Box<[u8]>],
        child: Child,
    ) -> std::result::Result<(), Collision> {
        let [first, rest @ ..] = parts else { return Err(Collision::Above) };
        if rest.is_empty() {
            if self.children.find(first).is_some() {
                return Err(Collision::Above);
            }
            self.children.push(first, child);
            return Ok(());
        }
        let place = self.children.find(first).unwrap_or_else(|| {
            self.children.push(first, Child::Inner(Node::default()));
            self.children.len() - 1
        });
        match self.children.item_mut(place) {
            Child::Inner(inner) => inner.add(rest, child),
            _ => Err(Collision::Below),
        }
    }

    /// The node below a path, made where there is none.
    pub(super) fn below(
        &mut self,
        parts: &[Box<[u8]>],
    ) -> std::result::Result<&mut Node, Collision> {
        let [first, rest @ ..] = parts else { return Ok(self) };
        let place = self.children.find(first).unwrap_or_else(|| {
            self.children.push(first, Child::Inner(Node::default()));
            self.children.len() - 1
        });
        match self.children.item_mut(place) {
            Child::Inner(inner) => inner.below(rest),
            _ if rest.is_empty() => Err(Collision::Above),
            _ => Err(Collision::Below),
        }
    }

    /// Finds out where anything is computed.
    pub(super) fn note_computes(&mut self) {
        self.computes = false;
        for place in 0..self.children.len() {
            self.computes |= match self.children.item_mut(place) {
                Child::Inner(inner) => {
                    inner.note_computes();
                    inner.computes
                }
                child => matches!(child, Child::Computed(_)),
            };
        }
    }

    /// Computes what needs no document.
    pub(super) fn optimize(&mut self, context: &Context) -> Result<()> {
        // Of several that fail, one of this level is told before those below.
        for place in 0..self.children.len() {
            if let Child::Computed(Computed::Expression(expression)) = self.children.item_mut(place)
            {
                expression.optimize(context)?;
            }
        }
        for place in 0..self.children.len() {
            if let Child::Inner(inner) = self.children.item_mut(place) {
                inner.optimize(context)?;
            }
        }
        Ok(())
    }

    /// Whether fields are only kept or left out.
    pub(super) fn is_plain(&self) -> bool {
        self.children.entries().iter().all(|(_, child)| match child {
            Child::Keep | Child::Drop => true,
            Child::Inner(inner) => inner.is_plain(),
            Child::Slice(_) | Child::Computed(_) => false,
        })
    }
}

impl Computed {
    /// The array of one element that `$elemMatch` shows of a document: its place.
    pub(super) fn elem_match_place(filter: &Filter, doc: Doc<'_>) -> Result<Option<usize>> {
        let mut position = None;
        filter.matches_noting_as_written(doc, &mut position)?;
        Ok(position)
    }
}
