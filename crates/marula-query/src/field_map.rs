//! A map from field names, designed for passing a document's fields through it.
//!
//! Every field of a document is looked up, and most are not in the map. The usual few names are
//! therefore compared by a word made of their ends and length first; the words are adjacent in
//! memory. Many names, which only unusual clients send, are looked up by hashing.

use std::cmp::Ordering;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// The maximum number of names for a linear search.
const LINEAR_MAX: usize = 64;

/// Items by field name, in an order given by the caller.
#[derive(Clone, Debug)]
pub(crate) struct FieldMap<T> {
    words: Vec<u64>,
    entries: Vec<(Box<[u8]>, T)>,
    /// The positions of all names, if there are more than [`LINEAR_MAX`].
    places: HashTable<usize>,
    hashing: DefaultHashBuilder,
}

impl<T> Default for FieldMap<T> {
    fn default() -> Self {
        FieldMap {
            words: Vec::new(),
            entries: Vec::new(),
            places: HashTable::new(),
            hashing: DefaultHashBuilder::default(),
        }
    }
}

impl<T> FieldMap<T> {
    /// Where the item of this name is.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        if self.entries.len() > LINEAR_MAX {
            let is_same = |&at: &usize| *self.entries[at].0 == *name;
            return self.places.find(self.hashing.hash_one(name), is_same).copied();
        }
        let word = word(name);
        let mut from = 0;
        loop {
            let at = from + self.words.get(from..)?.iter().position(|&other| other == word)?;
            if *self.entries[at].0 == *name {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// The item of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&T> {
        self.find(name).map(|place| &self.entries[place].1)
    }

    /// Puts an item after all others; the name must not be there yet.
    pub(crate) fn push(&mut self, name: &[u8], item: T) {
        self.words.push(word(name));
        self.entries.push((name.into(), item));
        match self.entries.len() {
            count if count > LINEAR_MAX + 1 => self.note_place(count - 1),
            count if count > LINEAR_MAX => self.note_places(),
            _ => {}
        }
    }

    /// Brings the items into the order of their names.
    pub(crate) fn sort_by(&mut self, compare: impl Fn(&[u8], &[u8]) -> Ordering) {
        self.entries.sort_by(|(a, _), (b, _)| compare(a, b));
        self.words = self.entries.iter().map(|(name, _)| word(name)).collect();
        if self.entries.len() > LINEAR_MAX {
            self.note_places();
        }
    }

    /// The names and items in order.
    pub(crate) fn entries(&self) -> &[(Box<[u8]>, T)] {
        &self.entries
    }

    /// The items in order.
    pub(crate) fn items_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, item)| item)
    }

    /// The item at a position.
    pub(crate) fn item_mut(&mut self, at: usize) -> &mut T {
        &mut self.entries[at].1
    }

    /// The number of items.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn note_places(&mut self) {
        self.places.clear();
        (0..self.entries.len()).for_each(|at| self.note_place(at));
    }

    fn note_place(&mut self, at: usize) {
        let hash = |&at: &usize| self.hashing.hash_one(&*self.entries[at].0);
        self.places.insert_unique(hash(&at), at, hash);
    }
}

/// A word that distinguishes most names: made of the first and last eight bytes and the length.
#[inline]
fn word(name: &[u8]) -> u64 {
    const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
    let (first, last) = if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)))
    } else if let (Some(&first), Some(&last)) = (name.first(), name.last()) {
        (u64::from(first), u64::from(last) << 8 | u64::from(name[name.len() / 2]))
    } else {
        (0, 0)
    };
    (first ^ last.rotate_left(29) ^ name.len() as u64).wrapping_mul(MIX)
}

/// The items of a [`FieldMap`] that a walk has met; no allocation for the usual few.
pub(crate) struct Met {
    first: u64,
    more: Vec<u64>,
    left: usize,
}

impl Met {
    /// None of `count` items met.
    pub(crate) fn none_of(count: usize) -> Self {
        Met { first: 0, more: vec![0; count.saturating_sub(1) / 64], left: count }
    }

    /// Marks an item as met; returns whether this is the first time.
    #[inline]
    pub(crate) fn note(&mut self, at: usize) -> bool {
        let word = match (at / 64).checked_sub(1) {
            None => &mut self.first,
            Some(word) => &mut self.more[word],
        };
        let bit = 1 << (at % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.left -= usize::from(is_new);
        is_new
    }

    /// Returns whether an item was met.
    pub(crate) fn has(&self, at: usize) -> bool {
        let word = match (at / 64).checked_sub(1) {
            None => self.first,
            Some(word) => self.more[word],
        };
        word >> (at % 64) & 1 != 0
    }

    /// The number of items not met.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_are_found_and_others_are_not() {
        let names: Vec<String> = (0..40)
            .map(|n| "abcdefghijklmnopqrstuvwxyz0123456789ABCD"[..n].to_owned())
            .chain(["field1234567890".to_owned(), "field1_34567890".to_owned(), "ab".repeat(9)])
            .collect();
        let mut map = FieldMap::default();
        for name in &names {
            map.push(name.as_bytes(), name.len());
        }
        for (at, name) in names.iter().enumerate() {
            assert_eq!(map.find(name.as_bytes()), Some(at));
            assert_eq!(map.find(format!("{name}!").as_bytes()), None);
        }
        // These differ only in the middle, so they share a word.
        assert_eq!(word(b"field1234567890_x"), word(b"field1234567890_x"));
        assert_eq!(map.find(b"field12_4567890"), None);
    }

    #[test]
    fn many_names_are_found_before_and_after_they_are_sorted() {
        for count in [LINEAR_MAX, LINEAR_MAX + 1, LINEAR_MAX + 2, 1000] {
            let name = |number: usize| format!("name {number}").into_bytes();
            let mut map = FieldMap::default();
            (0..count).rev().for_each(|number| map.push(&name(number), number));
            let check = |map: &FieldMap<usize>| {
                for number in 0..count {
                    let at = map.find(&name(number)).unwrap();
                    assert_eq!(map.entries()[at].1, number);
                }
                assert_eq!(map.find(&name(count)), None);
            };
            check(&map);
            map.sort_by(|a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
            assert_eq!(map.entries()[0].1, 0);
            check(&map);
        }
    }

    #[test]
    fn met_items_are_counted_once() {
        for count in [0_usize, 1, 63, 64, 65, 128, 129, 1000] {
            let mut met = Met::none_of(count);
            for at in 0..count {
                assert!(!met.has(at));
                assert!(met.note(at) && !met.note(at));
                assert!(met.has(at));
            }
            assert_eq!(met.left(), 0);
        }
    }
}
