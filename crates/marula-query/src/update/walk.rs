//! Applies the tree of operators to a document's bytes.
//!
//! A [`Walk`] goes through tree and document together and writes the new document once: runs of
//! elements that no operator names are copied unchanged. Operators act in the order of the tree,
//! but the walk reads fields in the order of the document; of several errors the first in the
//! tree's order is reported.

use std::borrow::Cow;
use std::sync::Arc;

use marula_bson::{Doc, Element, RawValue, Type};
use marula_error::{Error, Result, errors};

use super::array_filter::ArrayFilter;
use super::operator::Operation;
use super::path;
use super::stored;
use super::trail::Trail;
use super::tree::{Elements, Fields, UpdateNode, merge};
use crate::context::Context;
use crate::field_map::Met;
use crate::meter;

/// The maximum number of nulls that an update may put between the end of an array and a new
/// element. Source: mongod 6.0.
const PADDING_MAX: usize = 1_500_000;

errors! {
    /// A field is set in a value that is neither a document nor an array, or in an array that has
    /// no such part.
    cannot_create(name: &bstr::BStr, parent: Element<'_>) = PathNotViable, "Cannot create field '{name}' in element {{{parent}}}";
    /// An element far after the end of its array is set.
    too_much_padding() = CannotBackfillArray, "can't backfill more than {PADDING_MAX} elements";
    /// `$[]` or `$[id]` at a value that is not an array.
    not_an_array(element: Element<'_>) = BadValue, "Cannot apply array updates to non-array element {element}";
    /// `$[]` or `$[id]` where there is no value.
    array_missing(path: &dyn std::fmt::Display) = BadValue, "The path '{path}' must exist in the document in order to apply array updates.";
    /// `_id`, or a part of it, would change.
    pub(super) id_changed(path: &dyn std::fmt::Display) = ImmutableField, "Performing an update on the path '{path}' would modify the immutable field '_id'";
    /// A field would be added to `_id`.
    id_extended(path: &Trail<'_>, element: Element<'_>) = ImmutableField, "Updating the path '{path}' to {element} would modify the immutable field '_id'";
}

/// The effect on a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteStep {
    /// It stays; bytes that were written for it are removed.
    Keep,
    /// It was written, as a value of this type.
    Write(Type),
    /// It is removed.
    Remove,
}

/// The effect on an existing element: corresponds to a value's [`WriteStep`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Changed,
    Removed,
}

/// The application of an update to one document.
pub(super) struct Walk<'r> {
    /// The document before the update.
    pub(super) root: Doc<'r>,
    /// The array index that the filter recorded.
    pub(super) position: Option<usize>,
    /// Whether the document is to be inserted by an upsert.
    pub(super) is_insert: bool,
    /// Whether the document has an `_id`, which must not change.
    pub(super) id_is_fixed: bool,
    pub(super) context: &'r Context,
    pub(super) array_filters: &'r [ArrayFilter],
    /// A buffer for the documents that array filters and conditions are evaluated on.
    pub(super) scratch: Vec<u8>,
}

/// The value at which a path cannot go on: a scalar, or an array that has no such part.
#[derive(Clone, Copy)]
pub(super) struct Block<'b> {
    /// The value, with its name.
    pub(super) parent: Element<'b>,
    /// The first part of the path that does not exist.
    pub(super) part: &'b [u8],
}

impl Block<'_> {
    /// Returns the error of an operator that would create the field.
    pub(super) fn cannot_create(&self) -> Error {
        cannot_create(self.part.into(), self.parent)
    }
}

impl Walk<'_> {
    /// Appends the updated document to `out`; returns whether anything changed.
    pub(super) fn document(
        &mut self,
        fields: &Fields,
        doc: Doc<'_>,
        at: Option<&Trail<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let fields = &*self.resolve(fields, at)?;
        let entries = fields.children.entries();
        let body = doc.elements_bytes();
        let start = begin(out);
        let mut met = Met::none_of(entries.len());
        let mut first_failure = FirstFailure::default();
        let (mut copied, mut changed) = (0, false);
        let mut iter = doc.iter();
        while met.left() > 0 {
            let from = body.len() - iter.rest().len();
            let Some(element) = iter.next() else { break };
            // Of several fields with one name, the first is updated.
            let Some(place) = fields.children.find(element.name).filter(|&place| met.note(place))
            else {
                continue;
            };
            out.extend_from_slice(&body[copied..from]);
            copied = from;
            let mark = out.len();
            let trail = Trail::below(at, element.name);
            match self.element(&entries[place].1, element, &trail, out) {
                Ok(Fate::Kept) => out.truncate(mark),
                Ok(fate) => {
                    if fate == Fate::Removed {
                        out.truncate(mark);
                    }
                    copied = body.len() - iter.rest().len();
                    changed = true;
                }
                Err(error) => first_failure.note(place, error),
            }
        }
        out.extend_from_slice(&body[copied..]);
        for (place, (name, node)) in entries.iter().enumerate() {
            if met.left() == 0 || first_failure.is_before(place) {
                break;
            }
            if !met.has(place) && self.create(node, name, &Trail::below(at, name), out)? {
                changed = true;
                self.check_id_extended(at, Type::Document, start, out)?;
            }
        }
        first_failure.result()?;
        end(start, out);
        Ok(changed)
    }

    /// Appends the updated array to `out`; returns whether anything changed.
    fn array(
        &mut self,
        fields: &Fields,
        element: Element<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let fields = &*self.resolve(fields, Some(at))?;
        let entries = fields.children.entries();
        let first_index = fields.by_index.iter().map(|&(_, place)| place).min();
        let before_indexes = first_index.unwrap_or(entries.len());
        self.blocked_names(&entries[..before_indexes], element, at)?;
        let array = Doc::trusted(element.value.bytes());
        let body = array.elements_bytes();
        let start = begin(out);
        let mut first_failure = FirstFailure::default();
        let (mut copied, mut changed, mut count) = (0, false, 0);
        let mut iter = array.iter();
        let mut targets = fields.by_index.iter().peekable();
        while let Some(&&(index, place)) = targets.peek() {
            let from = body.len() - iter.rest().len();
            let Some(element) = iter.next() else { break };
            count += 1;
            if index as usize != count - 1 {
                continue;
            }
            targets.next();
            check_distinct(targets.peek(), index, at)?;
            out.extend_from_slice(&body[copied..from]);
            copied = from;
            let mark = out.len();
            let trail = Trail::below(Some(at), element.name);
            match self.element(&entries[place].1, element, &trail, out) {
                Ok(Fate::Kept) => out.truncate(mark),
                Ok(fate) => {
                    if fate == Fate::Removed {
                        write_null(mark, element.name, out);
                    }
                    copied = body.len() - iter.rest().len();
                    changed = true;
                }
                Err(error) => first_failure.note(place, error),
            }
        }
        out.extend_from_slice(&body[copied..]);
        while let Some(&(index, place)) = targets.next() {
            check_distinct(targets.peek(), index, at)?;
            if first_failure.is_before(place) {
                continue;
            }
            match self.extend_array(&entries[place].1, index as usize, count, at, out) {
                Ok(None) => {}
                Ok(Some(new_count)) => {
                    (changed, count) = (true, new_count);
                    self.check_id_extended(Some(at), Type::Array, start, out)?;
                }
                Err(error) => first_failure.note(place, error),
            }
        }
        first_failure.result()?;
        end(start, out);
        // The message shows the array with the changes so far.
        let value = RawValue::new(Type::Array, &out[start..]);
        self.blocked_names(&entries[before_indexes..], Element { value, ..element }, at)?;
        Ok(changed)
    }

    /// Appends the result of `node` at `index`, after the end of an array of `count` elements;
    /// returns the new count, or `None` if there is no result.
    fn extend_array(
        &mut self,
        node: &UpdateNode,
        index: usize,
        count: usize,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        let mark = out.len();
        let is_possible = index - count <= PADDING_MAX;
        if is_possible {
            for padding in count..index {
                write_null(out.len(), padding.to_string().as_bytes(), out);
            }
        }
        let name = index.to_string();
        if !self.create(node, name.as_bytes(), &Trail::below(Some(at), name.as_bytes()), out)? {
            out.truncate(mark);
            return Ok(None);
        }
        if is_possible { Ok(Some(index + 1)) } else { Err(too_much_padding()) }
    }

    /// Appends the updated array to `out`, with elements chosen by array filters; returns whether
    /// anything changed.
    fn elements(
        &mut self,
        elements: &Elements,
        array: Doc<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = begin(out);
        let mut changed = false;
        for element in array {
            meter::spend(meter::ELEMENT)?;
            let trail = Trail::below(Some(at), element.name);
            let mark = out.len();
            let fate = match self.chosen(elements, element.value, &trail)? {
                Some(node) => self.element(&node, element, &trail, out)?,
                None => Fate::Kept,
            };
            match fate {
                Fate::Changed => {}
                Fate::Removed => write_null(mark, element.name, out),
                Fate::Kept => {
                    out.truncate(mark);
                    header(element.value.kind(), element.name, out);
                    out.extend_from_slice(element.value.bytes());
                }
            }
            changed |= fate != Fate::Kept;
        }
        end(start, out);
        Ok(changed)
    }

    /// Returns the merged nodes of all identifiers whose array filter the element matches.
    fn chosen<'n>(
        &mut self,
        elements: &'n Elements,
        value: RawValue<'_>,
        at: &Trail<'_>,
    ) -> Result<Option<Cow<'n, Arc<UpdateNode>>>> {
        let mut chosen: Option<Cow<'n, Arc<UpdateNode>>> = None;
        for (id, node) in &elements.children {
            if !id.is_empty() && !self.matches_array_filter(id, value)? {
                continue;
            }
            chosen = Some(match chosen {
                None => Cow::Borrowed(node),
                Some(other) => Cow::Owned(merge(&other, node, at)?),
            });
        }
        Ok(chosen)
    }

    fn matches_array_filter(&mut self, id: &[u8], value: RawValue<'_>) -> Result<bool> {
        let filter = self.array_filters.iter().find(|filter| *filter.id == *id);
        let filter = filter.expect("every identifier has its array filter since parsing");
        filter.matches(value, &mut self.scratch)
    }

    /// Appends the new state of an existing element.
    fn element(
        &mut self,
        node: &UpdateNode,
        element: Element<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Fate> {
        let value = element.value;
        let inner = Doc::trusted(value.bytes());
        let mark = header(value.kind(), element.name, out);
        let changed = match (node, value.kind()) {
            (UpdateNode::Leaf(operation), _) => {
                return self.leaf(operation, value, at, mark, out);
            }
            (UpdateNode::Fields(fields), Type::Document) => {
                self.document(fields, inner, Some(at), out)?
            }
            (UpdateNode::Fields(fields), Type::Array) => self.array(fields, element, at, out)?,
            (UpdateNode::Fields(fields), _) => {
                self.blocked_fields(fields, element, at)?;
                false
            }
            (UpdateNode::Elements(elements), Type::Array) => {
                self.elements(elements, inner, at, out)?
            }
            (UpdateNode::Elements(_), _) => return Err(not_an_array(element)),
        };
        Ok(if changed { Fate::Changed } else { Fate::Kept })
    }

    fn leaf(
        &mut self,
        operation: &Operation,
        value: RawValue<'_>,
        at: &Trail<'_>,
        mark: usize,
        out: &mut Vec<u8>,
    ) -> Result<Fate> {
        let value_start = out.len();
        let step = operation.change(self, value, at, out)?;
        // A `$rename` of a part of `_id` is rejected at the new path, whose turn comes later.
        let is_renamed = matches!(operation, Operation::RenameFrom);
        if step != WriteStep::Keep && at.is_under_id() && self.id_is_fixed && !is_renamed {
            return Err(id_changed(at));
        }
        match step {
            WriteStep::Keep => Ok(Fate::Kept),
            WriteStep::Remove => Ok(Fate::Removed),
            WriteStep::Write(kind) => {
                out[mark] = kind.tag();
                self.check_written(operation, at, RawValue::new(kind, &out[value_start..]))?;
                Ok(Fate::Changed)
            }
        }
    }

    /// Appends a missing element, if an operator creates it; returns whether one does.
    fn create(
        &mut self,
        node: &UpdateNode,
        name: &[u8],
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = out.len();
        let mark = header(Type::Document, name, out);
        let value_start = out.len();
        let created = match node {
            UpdateNode::Leaf(operation) => operation.make(self, out)?,
            UpdateNode::Fields(fields) => {
                let fields = &*self.resolve(fields, Some(at))?;
                let doc = begin(out);
                let mut created = false;
                for (name, child) in fields.children.entries() {
                    created |= self.create(child, name, &Trail::below(Some(at), name), out)?;
                }
                end(doc, out);
                created.then_some(Type::Document)
            }
            UpdateNode::Elements(_) => return Err(array_missing(at)),
        };
        let Some(kind) = created else {
            out.truncate(start);
            return Ok(false);
        };
        out[mark] = kind.tag();
        let value = RawValue::new(kind, &out[value_start..]);
        match node {
            UpdateNode::Leaf(operation) => self.check_written(operation, at, value)?,
            _ => self.check_name(at, kind)?,
        }
        Ok(true)
    }

    /// Checks the operators at names that are not indexes of the array `parent`.
    fn blocked_names(
        &mut self,
        entries: &[(Box<[u8]>, Arc<UpdateNode>)],
        parent: Element<'_>,
        at: &Trail<'_>,
    ) -> Result<()> {
        for (name, node) in entries.iter().filter(|(name, _)| path::index(name).is_none()) {
            self.blocked(node, &Block { parent, part: name }, &Trail::below(Some(at), name))?;
        }
        Ok(())
    }

    fn blocked_fields(
        &mut self,
        fields: &Fields,
        parent: Element<'_>,
        at: &Trail<'_>,
    ) -> Result<()> {
        let fields = &*self.resolve(fields, Some(at))?;
        for (name, node) in fields.children.entries() {
            let block = Block { parent, part: name };
            self.blocked(node, &block, &Trail::below(Some(at), name))?;
        }
        Ok(())
    }

    /// Checks whether an operator on a path that cannot go on has an error.
    fn blocked(&mut self, node: &UpdateNode, block: &Block<'_>, at: &Trail<'_>) -> Result<()> {
        match node {
            UpdateNode::Leaf(operation) => operation.blocked(self, block, at),
            UpdateNode::Elements(_) => Err(array_missing(at)),
            UpdateNode::Fields(fields) => {
                let fields = &*self.resolve(fields, Some(at))?;
                for (name, node) in fields.children.entries() {
                    self.blocked(node, block, &Trail::below(Some(at), name))?;
                }
                Ok(())
            }
        }
    }

    /// Returns the fields with `$` replaced by its position.
    fn resolve<'f>(&self, fields: &'f Fields, at: Option<&Trail<'_>>) -> Result<Cow<'f, Fields>> {
        if fields.has_positional() {
            return fields.with_position(self.position, at).map(Cow::Owned);
        }
        Ok(Cow::Borrowed(fields))
    }

    fn check_written(
        &self,
        operation: &Operation,
        at: &Trail<'_>,
        value: RawValue<'_>,
    ) -> Result<()> {
        if matches!(operation, Operation::Pop(_) | Operation::Pull(_)) {
            // They leave a part of what was stored before.
            return Ok(());
        }
        if at.depth() + operation.inner_depth(value) > stored::DEPTH_MAX {
            return Err(stored::too_deep());
        }
        self.check_name(at, value.kind())
    }

    fn check_name(&self, at: &Trail<'_>, kind: Type) -> Result<()> {
        if at.depth() == 1 && at.name().first() == Some(&b'$') && !self.is_insert {
            let neighbours = stored::Neighbours::of(at.name(), self.root);
            return stored::check_dollar_name(at.name(), kind, neighbours);
        }
        Ok(())
    }

    /// Rejects a document or array under a fixed `_id` that an element was just added to.
    fn check_id_extended(
        &self,
        at: Option<&Trail<'_>>,
        kind: Type,
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(at) = at.filter(|at| at.is_under_id() && self.id_is_fixed) else { return Ok(()) };
        end(start, out);
        let value = RawValue::new(kind, &out[start..]);
        Err(id_extended(at, Element { name: at.name().into(), value }))
    }
}

/// The error of the operator that comes first in the tree's order.
#[derive(Default)]
struct FirstFailure(Option<(usize, Error)>);

impl FirstFailure {
    #[cold]
    fn note(&mut self, place: usize, error: Error) {
        if !self.is_before(place) {
            self.0 = Some((place, error));
        }
    }

    fn is_before(&self, place: usize) -> bool {
        self.0.as_ref().is_some_and(|&(first, _)| first < place)
    }

    fn result(self) -> Result<()> {
        self.0.map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Checks that two notations of one index are not both used.
fn check_distinct(next: Option<&&(u32, usize)>, index: u32, at: &Trail<'_>) -> Result<()> {
    if next.is_some_and(|&&(other, _)| other == index) {
        let name = index.to_string();
        return Err(super::tree::conflict_at(&Trail::below(Some(at), name.as_bytes())));
    }
    Ok(())
}

/// Begins a document or array at the end of `out`; returns its start.
#[inline]
fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Ends the document or array that begins at `start`.
#[inline]
fn end(start: usize, out: &mut Vec<u8>) {
    out.push(0);
    let length = i32::try_from(out.len() - start).expect("an updated document is far below 2 GiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends the head of an element; returns the position of its tag.
#[inline]
fn header(kind: Type, name: &[u8], out: &mut Vec<u8>) -> usize {
    let mark = out.len();
    out.push(kind.tag());
    out.extend_from_slice(name);
    out.push(0);
    mark
}

/// Writes a null element in place of the bytes from `mark` on.
fn write_null(mark: usize, name: &[u8], out: &mut Vec<u8>) {
    out.truncate(mark);
    header(Type::Null, name, out);
}
