//! A document as its bytes.
//!
//! ```text
//! field     bytes  content
//! length    4      i32, little-endian, counts itself and the final NUL
//! elements  …      tag (1), name (NUL-terminated), value (size by tag)
//! end       1      NUL
//! ```

use std::fmt;
use std::ops::Deref;

use bstr::{BStr, ByteSlice};

use crate::directory::Directory;
use crate::nul::find_nul;
use crate::value::value_size;
use crate::{RawValue, Type, Value};

/// The bytes of one document, borrowed.
///
/// `PartialEq` compares bytes; the order of the query language is in [`order`](crate::order).
#[derive(Clone, Copy)]
pub struct Doc<'a>(
    /// The document, or the [record](crate::directory) that stores it.
    &'a [u8],
);

/// One field of a document: its name and its value, neither copied nor decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element<'a> {
    /// The field's name; in an array, the index in decimal.
    pub name: &'a BStr,
    /// The field's value.
    pub value: RawValue<'a>,
}

/// The number of bytes that a search prefetches ahead of a field: four cache lines.
pub(crate) const AHEAD: usize = 256;

/// The number of fields that a search passes before it checks whether the name occurs at all.
const PASSED_BEFORE_SEARCH: u32 = 6;
/// The number of remaining bytes from which on that check pays off.
const LEFT_TO_SEARCH: usize = 512;

/// The empty document.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

impl<'a> Doc<'a> {
    /// The document with no fields.
    pub const EMPTY: Doc<'static> = Doc(EMPTY);

    /// Views bytes as a document that was validated before (by `validate`, or because Marula wrote
    /// them). They may be a [record](crate::directory) with a directory, whose fields are found
    /// sooner.
    ///
    /// Every accessor is safe on any bytes: iteration ends at malformed data.
    #[inline]
    pub const fn trusted(bytes: &'a [u8]) -> Self {
        Doc(bytes)
    }

    /// All the bytes, length and terminator included.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        Directory::of(self.0).map_or(self.0, Directory::document)
    }

    /// The stored form: the document, with its directory if it has one.
    pub(crate) fn stored_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The bytes of the elements, without length and terminator.
    #[inline]
    pub fn elements_bytes(self) -> &'a [u8] {
        let bytes = self.as_bytes();
        bytes.get(4..bytes.len().saturating_sub(1)).unwrap_or(&[])
    }

    /// Whether the document has no fields.
    pub fn is_empty(self) -> bool {
        self.0.len() <= EMPTY.len()
    }

    /// The fields in order.
    #[inline]
    pub fn iter(self) -> Iter<'a> {
        Iter { rest: self.elements_bytes() }
    }

    /// The values in order; for an array, its elements.
    pub fn values(self) -> impl Iterator<Item = Value<'a>> + Clone {
        self.iter().map(|element| element.value.get())
    }

    /// The first field named `name`, decoded.
    #[inline]
    pub fn get(self, name: impl AsRef<[u8]>) -> Option<Value<'a>> {
        self.get_raw(name.as_ref()).map(RawValue::get)
    }

    /// The first field named `name`, not decoded.
    #[inline]
    pub fn get_raw(self, name: &[u8]) -> Option<RawValue<'a>> {
        self.find(name, |_| false)
    }

    /// The first field named `name`. Once, after a few fields and when many bytes are left, calls
    /// `is_absent` to find out whether the name does not occur in the remaining bytes.
    #[inline]
    pub(crate) fn find(
        self,
        name: &[u8],
        is_absent: impl Fn(&[u8]) -> bool,
    ) -> Option<RawValue<'a>> {
        if let Some(directory) = Directory::of(self.0) {
            return directory.find(name);
        }
        let mut rest = self.elements_bytes();
        let mut passed = 0;
        loop {
            // Nothing waits for the result of this load: it prefetches the memory a few fields
            // ahead.
            std::hint::black_box(rest.get(AHEAD).copied());
            let front = Front::read(rest)?;
            // The length and the first byte distinguish most names without a call that compares
            // them.
            if front.name_size == name.len()
                && name.first().is_none_or(|first| front.after_tag.first() == Some(first))
                && front.after_tag.starts_with(name)
            {
                return Some(RawValue::new(front.kind, front.after_name.get(..front.size)?));
            }
            rest = front.after_name.get(front.size..)?;
            passed += 1;
            if passed == PASSED_BEFORE_SEARCH && rest.len() >= LEFT_TO_SEARCH && is_absent(rest) {
                return None;
            }
        }
    }

    /// An owned copy.
    pub fn to_buf(self) -> DocBuf {
        DocBuf(self.as_bytes().to_vec())
    }
}

impl PartialEq for Doc<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Doc<'_> {}

impl<'a> IntoIterator for Doc<'a> {
    type Item = Element<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Doc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|element| (element.name, element.value.get())))
            .finish()
    }
}

/// The first of some elements, parsed as far as needed to find the next one.
struct Front<'a> {
    kind: Type,
    after_tag: &'a [u8],
    name_size: usize,
    after_name: &'a [u8],
    /// The size of the value, which may exceed the available bytes.
    size: usize,
}

impl<'a> Front<'a> {
    #[inline(always)]
    fn read(elements: &'a [u8]) -> Option<Front<'a>> {
        let (&tag, after_tag) = elements.split_first()?;
        let kind = Type::from_tag(tag)?;
        let name_size = find_nul(after_tag)?;
        let after_name = after_tag.get(name_size + 1..)?;
        let size = value_size(kind, after_name)?;
        Some(Front { kind, after_tag, name_size, after_name, size })
    }
}

/// The fields of a document in order.
#[derive(Clone)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iter<'a> {
    /// The fields of a slice of elements, as [`Iter::rest`] returns it.
    pub fn over(bytes: &'a [u8]) -> Self {
        Iter { rest: bytes }
    }

    /// The bytes of the elements not yet yielded.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Skips the next field; `None` when there is none.
    #[inline]
    fn pass(&mut self) -> Option<()> {
        let Front { after_name, size, .. } = Front::read(self.rest)?;
        self.rest = after_name.get(size..)?;
        Some(())
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    // Inlined, an element's parts stay in registers. Returned through memory, they cost a search
    // of an array more than its comparisons do.
    #[inline(always)]
    fn next(&mut self) -> Option<Element<'a>> {
        let Front { kind, after_tag, name_size, after_name, size } = Front::read(self.rest)?;
        let name = after_tag.get(..name_size)?;
        let (value, rest) = after_name.split_at_checked(size)?;
        self.rest = rest;
        Some(Element { name: name.as_bstr(), value: RawValue::new(kind, value) })
    }

    #[inline]
    fn nth(&mut self, count: usize) -> Option<Element<'a>> {
        for _ in 0..count {
            self.pass()?;
        }
        self.next()
    }
}

/// A document that owns its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct DocBuf(Vec<u8>);

impl DocBuf {
    /// The document with no fields.
    pub fn new() -> Self {
        DocBuf(EMPTY.to_vec())
    }

    /// Takes bytes that were validated before, or that Marula wrote.
    pub fn trusted(bytes: Vec<u8>) -> Self {
        DocBuf(bytes)
    }

    /// The document, borrowed.
    #[inline]
    pub fn as_doc(&self) -> Doc<'_> {
        Doc(&self.0)
    }

    /// The bytes themselves.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Default for DocBuf {
    fn default() -> Self {
        DocBuf::new()
    }
}

impl Deref for DocBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for DocBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_doc().fmt(f)
    }
}
