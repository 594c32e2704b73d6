//! A projection as a tree by field name.

use marula_bson::Doc;
use marula_error::Result;

use super::metadata::Meta;
use super::slice::Slice;
use crate::context::Context;
use crate::expression::Expression;
use crate::field_map::FieldMap;
use crate::filter::Filter;

/// The actions of a projection on the fields of a document.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// By name, in the order of the projection, which is the order of the computed fields.
    pub(super) children: FieldMap<Child>,
    /// Whether a field is computed here or in a child.
    pub(super) computes: bool,
    /// Whether a field is omitted here or in a child.
    pub(super) omits: bool,
    /// The number of fields that are not computed.
    pub(super) copied: usize,
}

/// The action of a projection on one field.
#[derive(Debug)]
pub(super) enum Child {
    /// Shows it.
    Keep,
    /// Omits it.
    Drop,
    /// Chooses parts of it.
    Inner(Node),
    /// Shows some of its elements, if it is an array.
    Slice(Slice),
    /// Gives it a new value.
    Computed(Computed),
}

/// The source of a new value.
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

/// Two paths that a projection may not contain together.
pub(super) enum Collision {
    /// The path contains another path of the projection.
    Above,
    /// The path leads into another path of the projection.
    Below,
}

impl Node {
    /// Adds a path with its action.
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

    /// Returns the node at a path; creates it if necessary.
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

    /// Finds out where fields are computed, omitted and copied.
    pub(super) fn note_actions(&mut self) {
        (self.computes, self.omits, self.copied) = (false, false, 0);
        for place in 0..self.children.len() {
            let child = self.children.item_mut(place);
            if let Child::Inner(inner) = child {
                inner.note_actions();
                self.computes |= inner.computes;
                self.omits |= inner.omits;
            }
            self.computes |= matches!(child, Child::Computed(_));
            self.omits |= matches!(child, Child::Drop);
            self.copied += usize::from(!matches!(child, Child::Computed(_)));
        }
    }

    /// Computes the parts that need no document.
    pub(super) fn optimize(&mut self, context: &Context) -> Result<()> {
        // Of several failures, one of this level is reported before those of inner levels.
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

    /// Returns whether fields are only included or excluded.
    pub(super) fn is_plain(&self) -> bool {
        self.children.entries().iter().all(|(_, child)| match child {
            Child::Keep | Child::Drop => true,
            Child::Inner(inner) => inner.is_plain(),
            Child::Slice(_) | Child::Computed(_) => false,
        })
    }

    /// Returns whether a part chooses elements of an array.
    pub(super) fn chooses_elements(&self) -> bool {
        self.children.entries().iter().any(|(_, child)| match child {
            Child::Slice(_) | Child::Computed(Computed::ElemMatch { .. }) => true,
            Child::Inner(inner) => inner.chooses_elements(),
            Child::Keep | Child::Drop | Child::Computed(_) => false,
        })
    }
}

impl Computed {
    /// Returns the position of the array element that `$elemMatch` shows of a document.
    pub(super) fn elem_match_place(filter: &Filter, doc: Doc<'_>) -> Result<Option<usize>> {
        let mut position = None;
        filter.matches_noting_as_written(doc, &mut position)?;
        Ok(position)
    }
}
