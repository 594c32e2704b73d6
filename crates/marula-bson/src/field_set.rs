//! A set of field names, found in one walk of a document.
//!
//! A caller that needs a few fields of a large document repeatedly extracts them first: the extract
//! fits the processor's cache, and each later lookup is short. A caller that needs each field once
//! looks all of them up at once.

use crate::doc::AHEAD;
use crate::nul::find_nul;
use crate::value::value_size;
use crate::{Doc, DocWriter, RawValue, Type};

/// The maximum number of names: one bit of a word for each.
const NAMES_MAX: usize = 32;

/// A set of top-level field names.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct FieldSet {
    names: Vec<Name>,
    /// One bit per length of a name in the set; the last bit represents all longer names.
    lengths: u64,
    /// Whether all fields of a name are taken, not only the first.
    every: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Name {
    /// The first bytes of the name, zero-padded: they distinguish most names without a call.
    word: u64,
    text: Box<[u8]>,
}

impl FieldSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        FieldSet::default()
    }

    /// Adds a name; returns `false` if the set is full.
    pub fn insert(&mut self, name: &[u8]) -> bool {
        if self.place(name).is_some() {
            return true;
        }
        if self.names.len() == NAMES_MAX {
            return false;
        }
        self.lengths |= length_bit(name.len());
        self.names.push(Name { word: word(name, name.len()), text: name.into() });
        true
    }

    /// Takes every field of a name from now on, where a document repeats it.
    pub fn want_every(&mut self) {
        self.every = true;
    }

    /// Adds the names of another set; returns `false` if the set is full.
    pub fn extend(&mut self, other: &FieldSet) -> bool {
        self.every |= other.every;
        other.names().all(|name| self.insert(name))
    }

    /// The names in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(|name| &*name.text)
    }

    /// The position of a name in insertion order.
    pub fn place(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|known| *known.text == *name)
    }

    /// Appends a document to `out` with the fields of the set, in the order of `doc`.
    pub fn copy(&self, doc: Doc<'_>, out: &mut Vec<u8>) {
        let mut out = DocWriter::new(out);
        self.walk(doc.elements_bytes(), |_, element, _| {
            out.append_elements(element);
        });
    }

    /// Stores the value of each field in `found`, at the position of its name; entries of absent
    /// fields are unchanged.
    #[inline]
    pub fn find<'a>(&self, doc: Doc<'a>, found: &mut [Option<RawValue<'a>>]) {
        self.walk(doc.elements_bytes(), |place, _, value| {
            if let Some(slot) = found.get_mut(place) {
                *slot = Some(value);
            }
        });
    }

    /// Calls `take` with the position of the name, the bytes and the value of each element of the
    /// set. The walk ends at malformed bytes, like a lookup.
    #[inline]
    fn walk<'a>(&self, elements: &'a [u8], take: impl FnMut(usize, &'a [u8], RawValue<'a>)) {
        let _ = self.walk_elements(elements, take);
    }

    /// [`walk`](FieldSet::walk); `None` when the bytes end before all names are found.
    #[inline]
    fn walk_elements<'a>(
        &self,
        mut rest: &'a [u8],
        mut take: impl FnMut(usize, &'a [u8], RawValue<'a>),
    ) -> Option<()> {
        let mut wanted = (1_u64 << self.names.len()) - 1;
        while wanted != 0 {
            let (&tag, after_tag) = rest.split_first()?;
            // Nothing waits for the result of this load: it prefetches the memory a few fields
            // ahead.
            std::hint::black_box(rest.get(AHEAD).copied());
            let kind = Type::from_tag(tag)?;
            let name_size = find_nul(after_tag)?;
            let size = value_size(kind, after_tag.get(name_size + 1..)?)?;
            let (element, after) = rest.split_at_checked(name_size + 2 + size)?;
            rest = after;
            // The length excludes most names without a look at their bytes.
            if self.lengths & length_bit(name_size) == 0 {
                continue;
            }
            let word = word(after_tag, name_size);
            let rest_of_name = after_tag.get(WORD..name_size);
            let is_this = |name: &Name| {
                name.word == word
                    && name.text.len() == name_size
                    && (name_size <= WORD || name.text.get(WORD..) == rest_of_name)
            };
            let Some(place) = self.names.iter().position(is_this) else { continue };
            let bit = 1 << place;
            if wanted & bit != 0 {
                take(place, element, RawValue::new(kind, element.get(name_size + 2..)?));
                if !self.every {
                    wanted &= !bit;
                }
            }
        }
        Some(())
    }
}

/// The number of bytes of a name that are compared at once.
const WORD: usize = size_of::<u64>();

/// The first bytes of the name at the front of `bytes`, zero-padded.
#[inline]
fn word(bytes: &[u8], size: usize) -> u64 {
    let unused = WORD.saturating_sub(size);
    match bytes.first_chunk::<WORD>() {
        // The bytes after a short name are shifted out.
        Some(chunk) if unused < WORD => u64::from_le_bytes(*chunk) << (8 * unused) >> (8 * unused),
        _ => bytes.iter().take(size.min(WORD)).rfold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DocBuf, doc};

    fn check(names: &[&str], every: bool, from: &DocBuf, expected: &DocBuf) {
        let mut set = FieldSet::new();
        names.iter().for_each(|name| assert!(set.insert(name.as_bytes())));
        if every {
            set.want_every();
        }
        let mut out = vec![7];
        set.copy(from.as_doc(), &mut out);
        assert_eq!(out[1..], **expected, "{names:?}");
    }

    #[test]
    fn the_fields_come_in_the_order_of_the_document() {
        let document = doc! { "_id": 1, "a": [1, 2], "ab": "x", "b": { "c": 1 }, "d": null };
        check(&["b", "a"], false, &document, &doc! { "a": [1, 2], "b": { "c": 1 } });
        check(&["d", "none"], false, &document, &doc! { "d": null });
        check(&[], false, &document, &doc! {});
        check(&["_id", "_id"], true, &document, &doc! { "_id": 1 });
    }

    #[test]
    fn names_of_any_length_are_told_apart() {
        let text = "abcdefghijklmnopqrstuvwxyz";
        let document = DocBuf::build(|out| {
            for length in 0..=text.len() {
                out.append(&text[..length], length as i32);
                out.append(format!("{}!", &text[..length]), -1);
            }
        });
        for length in 0..=text.len() {
            let mut set = FieldSet::new();
            set.insert(b"nowhere");
            set.insert(&text.as_bytes()[..length]);
            let mut found = [None; 2];
            set.find(document.as_doc(), &mut found);
            let found = found.map(|value| value.map(RawValue::get));
            assert_eq!(found, [None, Some(crate::Value::Int32(length as i32))]);
        }
    }

    #[test]
    fn of_fields_of_one_name_the_first_is_taken_or_all() {
        let document = DocBuf::build(|out| {
            out.append("a", 1).append("b", 2).append("a", 3);
        });
        check(&["a"], false, &document, &doc! { "a": 1 });
        let both = DocBuf::build(|out| {
            out.append("a", 1).append("a", 3);
        });
        check(&["a"], true, &document, &both);
    }

    #[test]
    fn broken_bytes_end_the_walk() {
        let whole = doc! { "a": 1, "b": "text" };
        let mut set = FieldSet::new();
        set.insert(b"b");
        for length in 0..whole.len() {
            let mut out = Vec::new();
            set.copy(Doc::trusted(&whole[..length]), &mut out);
            assert_eq!(out, *doc! {});
        }
    }

    #[test]
    fn a_set_has_an_end() {
        let mut set = FieldSet::new();
        assert!((0..NAMES_MAX).all(|number| set.insert(number.to_string().as_bytes())));
        assert!(!set.insert(b"one more") && set.insert(b"0"));
    }
}
