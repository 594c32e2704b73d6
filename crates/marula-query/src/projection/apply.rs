//! Applies a projection to a document's bytes.
//!
//! The walk goes through the document's fields once. It copies runs of unchanged fields in one
//! piece. Computed fields follow in the order of the projection, unless they replace a field.
//!
//! A document may have several fields of one name. All of them are omitted if that name is; an
//! inclusion ends after as many fields as it has names, as in mongod.

use marula_bson::{ArrayWriter, Doc, DocWriter, Element, RawValue, Type, Value};
use marula_error::{Result, errors};

use super::Projection;
use super::metadata::Metadata;
use super::tree::{Child, Computed, Node};
use crate::context::Context;
use crate::expression::frame::check_room;
use crate::expression::{Arena, Frame};
use crate::field_map::Met;

errors! {
    /// The filter noted no array index, so a positional `$` has none.
    no_position() = 51246, "positional operator '.$' couldn't find a matching element in the array";
    /// The array index that the filter noted is beyond the array at a positional `$`.
    position_mismatch() = 51247, "positional operator '.$' element mismatch";
}

pub(super) fn apply(
    projection: &Projection,
    doc: Doc<'_>,
    position: Option<usize>,
    metadata: &Metadata<'_>,
    context: &Context,
    out: &mut Vec<u8>,
) -> Result<()> {
    let arena = Arena::new();
    let known = metadata.to_known();
    let frame = Frame::new(doc, &arena, context).with_known(known.as_ref());
    let walk = Walk { inclusion: projection.inclusion, position, metadata, frame };
    let place = WalkState { positional: projection.positional.as_deref(), slices: true };
    let root = &projection.root;
    walk.document(root, doc, place, &mut DocWriter::new(out)).map_err(|error| {
        // Of several failures the projection's first is reported, whatever the order of the
        // document's fields.
        walk.first_failure(root, Value::Document(doc)).err().unwrap_or(error)
    })
}

struct Walk<'a, 'm> {
    inclusion: bool,
    position: Option<usize>,
    metadata: &'m Metadata<'a>,
    frame: Frame<'a>,
}

/// The state of the walk at a level of the document.
#[derive(Clone, Copy)]
struct WalkState<'p> {
    /// The rest of the path of a positional `$`, until the walk enters an array on it.
    positional: Option<&'p [Box<[u8]>]>,
    /// Whether `$slice` still applies: it does not reach into arrays of arrays.
    slices: bool,
}

impl<'p> WalkState<'p> {
    fn below(self, name: &[u8]) -> WalkState<'p> {
        let positional = match self.positional {
            Some([first, rest @ ..]) if **first == *name => Some(rest),
            _ => None,
        };
        WalkState { positional, ..self }
    }
}

/// The shown part of a value.
enum Shown<'a> {
    /// The whole value.
    All,
    /// The part that the node chooses.
    Chosen(&'a Node),
}

impl<'a> Walk<'a, '_> {
    fn document(
        &self,
        node: &'a Node,
        doc: Doc<'_>,
        place: WalkState<'_>,
        out: &mut DocWriter<'_>,
    ) -> Result<()> {
        let entries = node.children.entries();
        let body = doc.elements_bytes();
        let mut met = Met::none_of(entries.len());
        // The number of fields that are still looked for.
        let mut left = match (self.inclusion, node.omits) {
            (true, _) => node.copied,
            (false, true) => usize::MAX,
            (false, false) => entries.len(),
        };
        let mut iter = doc.iter();
        // The start of the current run of fields to copy unchanged.
        let mut run = None;
        loop {
            let from = body.len() - iter.rest().len();
            if left == 0 {
                run = run.or((!self.inclusion).then_some(from));
                flush(&mut run, body, if self.inclusion { from } else { body.len() }, out);
                break;
            }
            let Some(element) = iter.next() else {
                flush(&mut run, body, from, out);
                break;
            };
            let found = node.children.find(element.name);
            let child = found.map(|at| &entries[at].1);
            if let Some(at) = found {
                let is_new = met.note(at);
                let is_computed = matches!(child, Some(Child::Computed(_)));
                left -= usize::from(if self.inclusion { !is_computed } else { is_new });
            }
            if self.keeps(child, element.value, place, element.name) {
                run = run.or(Some(from));
                continue;
            }
            flush(&mut run, body, from, out);
            if let Some(child) = child {
                self.child(child, element, place.below(element.name), out)?;
            }
        }
        if node.computes { self.computed(node, &met, out) } else { Ok(()) }
    }

    /// Returns whether a field is shown unchanged.
    #[inline]
    fn keeps(
        &self,
        child: Option<&Child>,
        value: RawValue<'_>,
        place: WalkState<'_>,
        name: &[u8],
    ) -> bool {
        match child {
            None => !self.inclusion,
            Some(Child::Keep) => {
                place.positional.is_none()
                    || value.kind() != Type::Array
                    || place.below(name).positional.is_none()
            }
            Some(Child::Drop | Child::Computed(_)) => false,
            Some(Child::Slice(_)) => !place.slices || value.kind() != Type::Array,
            Some(Child::Inner(inner)) => {
                let is_scalar = !matches!(value.kind(), Type::Document | Type::Array);
                is_scalar && !self.inclusion && !inner.computes
            }
        }
    }

    /// Writes the shown part of an existing field that is not shown unchanged.
    fn child(
        &self,
        child: &'a Child,
        element: Element<'_>,
        place: WalkState<'_>,
        out: &mut DocWriter<'_>,
    ) -> Result<()> {
        let (name, value) = (element.name, element.value);
        let inner_doc = Doc::trusted(value.bytes());
        match child {
            Child::Drop => Ok(()),
            Child::Keep => self.array(&Shown::All, inner_doc, place, &mut out.begin_array(name)),
            Child::Slice(slice) => {
                slice.write(inner_doc, &mut out.begin_array(name));
                Ok(())
            }
            // With inclusion the new field comes after the existing ones.
            Child::Computed(_) if self.inclusion => Ok(()),
            Child::Computed(computed) => self.append(computed, name, out),
            Child::Inner(node) => match value.kind() {
                Type::Document => self.document(node, inner_doc, place, &mut out.begin_doc(name)),
                Type::Array => {
                    let mut array = out.begin_array(name);
                    self.array(&Shown::Chosen(node), inner_doc, place, &mut array)
                }
                _ if node.computes => {
                    self.document(node, Doc::EMPTY, place, &mut out.begin_doc(name))
                }
                _ => Ok(()),
            },
        }
    }

    /// Writes the shown part of an array's elements.
    fn array(
        &self,
        shown: &Shown<'a>,
        array: Doc<'_>,
        place: WalkState<'_>,
        out: &mut ArrayWriter<'_>,
    ) -> Result<()> {
        let inside = WalkState { positional: None, ..place };
        if place.positional.is_none() {
            return array
                .iter()
                .try_for_each(|element| self.item(shown, element.value, inside, out));
        }
        let position = self.position.ok_or_else(no_position)?;
        let element = array.iter().nth(position).ok_or_else(position_mismatch)?;
        let is_container = matches!(element.value.kind(), Type::Document | Type::Array);
        match shown {
            // An element that has no fields to choose from shows nothing.
            Shown::Chosen(node) if self.inclusion && !is_container && !node.computes => {
                Err(position_mismatch())
            }
            _ => self.item(shown, element.value, inside, out),
        }
    }

    /// Writes the shown part of one element of an array.
    fn item(
        &self,
        shown: &Shown<'a>,
        value: RawValue<'_>,
        place: WalkState<'_>,
        out: &mut ArrayWriter<'_>,
    ) -> Result<()> {
        let inner = Doc::trusted(value.bytes());
        match (shown, value.kind()) {
            (Shown::All, _) => {
                out.push_raw(value);
                Ok(())
            }
            (Shown::Chosen(node), Type::Document) => {
                self.document(node, inner, place, &mut out.begin_doc())
            }
            (Shown::Chosen(_), Type::Array) => {
                let place = WalkState { slices: false, ..place };
                self.array(shown, inner, place, &mut out.begin_array())
            }
            (Shown::Chosen(node), _) if node.computes => {
                self.document(node, Doc::EMPTY, place, &mut out.begin_doc())
            }
            (Shown::Chosen(_), _) if self.inclusion => Ok(()),
            (Shown::Chosen(_), _) => {
                out.push_raw(value);
                Ok(())
            }
        }
    }

    /// Writes the computed fields that replaced no existing field.
    fn computed(&self, node: &'a Node, met: &Met, out: &mut DocWriter<'_>) -> Result<()> {
        for (at, (name, child)) in node.children.entries().iter().enumerate() {
            match child {
                Child::Computed(computed) if self.inclusion || !met.has(at) => {
                    self.append(computed, name, out)?;
                }
                Child::Inner(inner) if inner.computes && !met.has(at) => {
                    let place = WalkState { positional: None, slices: false };
                    self.document(inner, Doc::EMPTY, place, &mut out.begin_doc(name))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails with the error of the first of the node's computed fields that fails for `value`.
    #[cold]
    fn first_failure(&self, node: &'a Node, value: Value<'_>) -> Result<()> {
        if let Value::Array(items) = value {
            return items.values().try_for_each(|item| self.first_failure(node, item));
        }
        for (name, child) in node.children.entries() {
            match child {
                Child::Computed(computed) => {
                    self.append(computed, name, &mut DocWriter::new(&mut Vec::new()))?;
                }
                Child::Inner(inner) if inner.computes => {
                    let below = value.as_doc().and_then(|doc| doc.get(name)).unwrap_or(Value::Null);
                    self.first_failure(inner, below)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn append(&self, computed: &'a Computed, name: &[u8], out: &mut DocWriter<'_>) -> Result<()> {
        let value: Option<Value<'_>> = match computed {
            Computed::Expression(expression) => expression.eval(&self.frame)?,
            Computed::Meta(meta) => self.metadata.get(*meta),
            Computed::ElemMatch { name: field, filter } => {
                if let Some(position) = Computed::elem_match_place(filter, self.frame.root)?
                    && let Some(Value::Array(array)) = self.frame.root.get(field)
                    && let Some(element) = array.iter().nth(position)
                {
                    out.begin_array(name).push_raw(element.value);
                }
                return Ok(());
            }
        };
        if let Some(value) = value {
            check_room(out.buffered(), value)?;
            out.append(name, value);
        }
        Ok(())
    }
}

/// Copies the fields from the start of a run to `end`.
#[inline]
fn flush(run: &mut Option<usize>, body: &[u8], end: usize, out: &mut DocWriter<'_>) {
    if let Some(start) = run.take() {
        out.append_elements(&body[start..end]);
    }
}
