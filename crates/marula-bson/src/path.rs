//! Dotted field paths, split once, and the values they reach in a document.
//!
//! A [`FieldPath`] is its parts. [`FieldPath::walk`] visits the values that a query condition on
//! the path tests: every *leaf*, through arrays of documents, and every branch where the path ends
//! too early as *missing*. Nothing is copied. Indexes and sorts interpret a path differently:
//! [`FieldPath::keys`].

mod finder;
mod keys;

use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;

use bstr::ByteSlice;

use crate::{Doc, RawValue, Type};

use finder::NameFinder;
pub use keys::AmbiguousField;

/// The maximum depth of a walk; validation rejects deeper documents.
const DEPTH_MAX: u32 = 256;

/// A dotted path such as `a.b.0`, split at parse time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FieldPath {
    parts: Vec<Box<[u8]>>,
    /// For each part, the array index that it denotes in canonical form.
    indexes: Vec<Option<u32>>,
    /// Searches the first part in a document's bytes.
    finder: NameFinder,
}

/// A value that a path reaches in one branch of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf<'a> {
    /// The value at the end of the path; `None` when the path ends too early.
    pub value: Option<RawValue<'a>>,
    /// Whether a condition is also tested on the elements of the value if it is an array. `false`
    /// when the last part of the path selected the value from an array by its index.
    pub expands: bool,
    /// The index of this leaf's element in the outermost array that was passed without naming an
    /// index. The positional operator `$` refers to it; when there is none, `$` refers to the index
    /// of the matching element within an expanding leaf.
    pub outer_index: Option<usize>,
}

impl FieldPath {
    /// Splits `text` at its dots. Empty parts are kept; the caller decides what they mean.
    pub fn new(text: impl AsRef<[u8]>) -> Self {
        let parts: Vec<Box<[u8]>> =
            text.as_ref().split(|&byte| byte == b'.').map(Into::into).collect();
        let indexes = parts.iter().map(|part| array_index(part)).collect();
        FieldPath { parts, indexes, finder: NameFinder::default() }
    }

    /// The parts in order; at least one.
    pub fn parts(&self) -> &[Box<[u8]>] {
        &self.parts
    }

    /// For each part, the array index that it denotes, if any.
    pub fn indexes(&self) -> &[Option<u32>] {
        &self.indexes
    }

    /// The name before the first dot.
    pub fn first(&self) -> &[u8] {
        self.parts.first().map_or(&[], |part| part)
    }

    /// The field of `doc` that the path starts with.
    ///
    /// Same as a lookup by name, but when many documents are read, as in a scan, it finds out
    /// sooner that a large one does not have the field.
    #[inline]
    pub fn first_field<'a>(&self, doc: Doc<'a>) -> Option<RawValue<'a>> {
        let name = self.first();
        doc.find(name, |rest| self.finder.is_absent(name, rest))
    }

    /// Returns whether the path has no dot.
    pub fn is_single(&self) -> bool {
        self.parts.len() == 1
    }

    /// Returns whether `self` equals `other` or leads to a part of the value that `other` names.
    pub fn starts_with(&self, other: &FieldPath) -> bool {
        self.parts.starts_with(&other.parts)
    }

    /// The value that the path reaches through documents alone, without entering arrays.
    pub fn get<'a>(&self, doc: Doc<'a>) -> Option<RawValue<'a>> {
        let (last, parents) = self.parts.split_last()?;
        let mut doc = doc;
        for part in parents {
            let value = doc.get_raw(part)?;
            if value.kind() != Type::Document {
                return None;
            }
            doc = Doc::trusted(value.bytes());
        }
        doc.get_raw(last)
    }

    /// Visits every leaf that a query condition on the path tests, until `visit` breaks.
    ///
    /// - In a document, a part is a field name. A field that is absent, or is a scalar while parts
    ///   remain, is one missing leaf.
    /// - In an array with parts remaining, every element that is a document is entered with the
    ///   same parts (so a number is a field name there). The element whose index is the next part
    ///   is entered with the part consumed: it is a leaf that does not expand if this was the last
    ///   part, else a document or an array that the walk enters. Other elements (scalars, arrays
    ///   whose index was not named) are skipped and are not missing: `{"a.b": null}` does not match
    ///   `{a: []}` nor `{a: [1]}`, but does `{a: [{}]}`.
    /// - A leaf that is an array is visited once; where it `expands`, the caller tests its elements
    ///   as well.
    /// - An empty last part at an array is the array itself, expanding.
    ///
    /// A leaf to which several routes lead is visited for each of them, unless they are thousands.
    ///
    /// Source: mongod 6.0, queried over documents of these forms.
    pub fn walk<'a, B>(
        &self,
        doc: Doc<'a>,
        visit: impl FnMut(Leaf<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let tail = Tail { parts: &self.parts, indexes: &self.indexes };
        Walk::new(visit).doc(doc, tail, None, 0)
    }

    /// Like [`FieldPath::walk`], but also visits the elements of expanding arrays, before their
    /// array.
    ///
    /// `visit` returns whether to stop; the result is whether it did.
    pub fn any_value<'a>(
        &self,
        doc: Doc<'a>,
        mut visit: impl FnMut(Option<RawValue<'a>>) -> bool,
    ) -> bool {
        let mut check =
            |value| if visit(value) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        self.walk(doc, |leaf| {
            if let Some(array) = leaf.expanding_array() {
                for element in array {
                    check(Some(element.value))?;
                }
            }
            check(leaf.value)
        })
        .is_break()
    }
}

impl<'a> Leaf<'a> {
    /// The array whose elements a condition is tested on, if the leaf is one.
    pub fn expanding_array(&self) -> Option<Doc<'a>> {
        let value = self.value?;
        (self.expands && value.kind() == Type::Array).then(|| Doc::trusted(value.bytes()))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(f, "{dot}{}", part.as_bstr())?;
        }
        Ok(())
    }
}

/// The array index that a path part denotes: digits without a leading zero, within u32.
pub fn array_index(part: &[u8]) -> Option<u32> {
    if part.is_empty() || part.len() > 10 || (part.first() == Some(&b'0') && part.len() > 1) {
        return None;
    }
    part.iter().try_fold(0_u32, |index, byte| {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
        index.checked_mul(10)?.checked_add(digit)
    })
}

/// The remaining parts of a path; never empty.
#[derive(Clone, Copy)]
struct Tail<'p> {
    parts: &'p [Box<[u8]>],
    indexes: &'p [Option<u32>],
}

impl<'p> Tail<'p> {
    fn name(self) -> &'p [u8] {
        self.parts.first().map_or(&[], |part| part)
    }

    fn index(self) -> Option<usize> {
        (*self.indexes.first()?).map(|index| index as usize)
    }

    /// The parts after the first; `None` when that was the last.
    fn rest(self) -> Option<Tail<'p>> {
        match (self.parts, self.indexes) {
            ([_, parts @ ..], [_, indexes @ ..]) if !parts.is_empty() => {
                Some(Tail { parts, indexes })
            }
            _ => None,
        }
    }
}

/// The number of times that a walk may read a number in both ways before it notes where it has
/// been.
const FORKS_MAX: u32 = 1_000;
/// The number of arrays that it notes at a time, so that a hostile document takes 16 MB at most.
const NOTED_MAX: usize = 1 << 20;

/// A walk along a path.
///
/// A number names an element of an array and a field of its documents, so that the routes through
/// nested arrays double with each one, while the arrays are few. The rest of the path leads from an
/// array to the same values on every route: after many forks, an array is entered once with each
/// rest.
struct Walk<V> {
    visit: V,
    forks: u32,
    /// The arrays that were entered, by their address, and the lengths of the rests.
    noted: Option<HashSet<(usize, usize)>>,
}

impl<V> Walk<V> {
    fn new(visit: V) -> Self {
        Walk { visit, forks: 0, noted: None }
    }

    fn doc<'a, B>(
        &mut self,
        mut doc: Doc<'a>,
        mut tail: Tail<'_>,
        outer_index: Option<usize>,
        depth: u32,
    ) -> ControlFlow<B>
    where
        V: FnMut(Leaf<'a>) -> ControlFlow<B>,
    {
        loop {
            let value = doc.get_raw(tail.name());
            let (value, rest) = match (value, tail.rest()) {
                (Some(value), Some(rest)) => (value, rest),
                (value, _) => return (self.visit)(Leaf { value, expands: true, outer_index }),
            };
            tail = rest;
            match value.kind() {
                Type::Document => doc = Doc::trusted(value.bytes()),
                Type::Array => {
                    let array = Doc::trusted(value.bytes());
                    return self.array(array, tail, outer_index, depth + 1);
                }
                _ => return (self.visit)(Leaf { value: None, expands: true, outer_index }),
            }
        }
    }

    fn array<'a, B>(
        &mut self,
        array: Doc<'a>,
        tail: Tail<'_>,
        outer_index: Option<usize>,
        depth: u32,
    ) -> ControlFlow<B>
    where
        V: FnMut(Leaf<'a>) -> ControlFlow<B>,
    {
        if depth > DEPTH_MAX || (self.forks > FORKS_MAX && self.was_at(array, tail)) {
            return ControlFlow::Continue(());
        }
        let rest = tail.rest();
        if rest.is_none() && tail.name().is_empty() {
            let value = Some(RawValue::new(Type::Array, array.as_bytes()));
            return (self.visit)(Leaf { value, expands: true, outer_index });
        }
        let named_index = tail.index();
        for (index, element) in array.iter().enumerate() {
            let value = element.value;
            let is_doc = value.kind() == Type::Document;
            let inner = Doc::trusted(value.bytes());
            if is_doc {
                self.doc(inner, tail, outer_index.or(Some(index)), depth)?;
            }
            if named_index != Some(index) {
                continue;
            }
            match rest {
                None => (self.visit)(Leaf { value: Some(value), expands: false, outer_index })?,
                Some(rest) if is_doc => {
                    self.forks = self.forks.saturating_add(1);
                    self.doc(inner, rest, outer_index, depth)?;
                }
                Some(rest) if value.kind() == Type::Array => {
                    self.array(inner, rest, outer_index, depth + 1)?;
                }
                Some(_) => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Notes that an array is entered; returns whether it was before, with the same rest.
    #[cold]
    fn was_at(&mut self, array: Doc<'_>, tail: Tail<'_>) -> bool {
        let noted = self.noted.get_or_insert_default();
        if noted.len() >= NOTED_MAX {
            noted.clear();
        }
        !noted.insert((array.as_bytes().as_ptr().addr(), tail.parts.len()))
    }
}

#[cfg(test)]
mod tests;
