//! The path components at which documents have arrays: per document, and the marks of an index for
//! all documents.
//!
//! Most indexes mark a component of the path of one of their parts. A wildcard index has no fixed
//! paths, so it marks the whole path of each array, and of each array with arrays as elements:
//! elements of those can be queried by number but have no entry of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use marula_bson::FieldPath;
use parking_lot::RwLock;

use super::{IndexKind, IndexSpec};

/// Components after this one share its mark.
const COMPONENT_LAST: usize = 63;

/// The maximum number of array paths that a wildcard index marks. Beyond it, every path counts as
/// marked.
const PATHS_MAX: usize = 10_000;

/// Upper bound on the spellings returned per path.
const NAMES_MAX: usize = 256;

/// Used instead of the number of a part: a path follows.
const PATH_MARK: u8 = 0xFF;

/// Follows the path of an array that contains arrays. No field name contains this byte.
const NESTED: u8 = 0;

/// Used instead of a path: all entries of the index were written by a version that marks arrays
/// within arrays.
const MARKS_NESTED: &[u8] = &[NESTED];

/// The path components at which a document has arrays.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Multikey {
    /// For each part of the index, one bit per path component.
    pub parts: Vec<u64>,
    /// For a wildcard index: the dotted paths.
    pub paths: BTreeSet<Vec<u8>>,
}

impl Multikey {
    pub(super) fn clear(&mut self, parts: usize) {
        self.parts.clear();
        self.parts.resize(parts, 0);
        self.paths.clear();
    }

    /// Adds an array at `path`, for a wildcard index.
    pub(super) fn add_path(&mut self, path: &[u8]) {
        if !self.paths.contains(path) {
            self.paths.insert(path.to_vec());
        }
    }

    /// Adds that the array at `path` contains an array.
    pub(super) fn add_nested(&mut self, path: &mut Vec<u8>) {
        path.push(NESTED);
        self.add_path(path);
        path.pop();
    }

    /// The marks of an empty index: nested arrays will be marked.
    pub(crate) fn of_new(spec: &IndexSpec) -> Self {
        let mut multikey = Multikey::default();
        if matches!(spec.kind, IndexKind::Wildcard(_)) {
            multikey.add_path(MARKS_NESTED);
        }
        multikey
    }

    /// Adds the arrays of another document.
    pub fn merge(&mut self, other: &Multikey) {
        if self.parts.len() < other.parts.len() {
            self.parts.resize(other.parts.len(), 0);
        }
        for (known, found) in self.parts.iter_mut().zip(&other.parts) {
            *known |= found;
        }
        for path in &other.paths {
            if self.paths.len() >= PATHS_MAX {
                return;
            }
            if !self.paths.contains(path) {
                self.paths.insert(path.clone());
            }
        }
    }
}

/// The components of a queried path at which documents of a wildcard index have arrays, one bit
/// each.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct PathArrays {
    /// Components at which some document has an array.
    pub arrays: u64,
    /// Components at which some document may have an array that contains arrays.
    pub nested: u64,
    /// Numeric components after an array: positions in it, or field names of its elements.
    pub places: u64,
    /// The spellings that entries may have for the path, in order: with and without array
    /// positions.
    pub names: Vec<Vec<u8>>,
    /// There are more spellings than [`NAMES_MAX`]; `names` is empty.
    pub is_vague: bool,
}

/// The marks of an index in memory.
///
/// A mark is *seen* as soon as a write is about to make entries that need it, so that no reader
/// meets them without the mark. It is *stored* once a transaction that wrote it was committed;
/// until then every write that needs it writes it too.
#[derive(Default)]
pub(super) struct Marks {
    parts: Vec<PartMarks>,
    /// For each seen path, whether it is stored.
    paths: RwLock<BTreeMap<Vec<u8>, bool>>,
}

/// For one part of the index, one bit per path component.
#[derive(Default)]
struct PartMarks {
    seen: AtomicU64,
    stored: AtomicU64,
}

impl Marks {
    pub(super) fn new(parts: usize) -> Self {
        let parts = (0..parts).map(|_| PartMarks::default()).collect();
        Marks { parts, paths: RwLock::default() }
    }

    /// For a wildcard index: the number of stored array paths.
    pub(super) fn path_count(&self) -> usize {
        let paths = self.paths.read();
        paths.iter().filter(|(path, is_stored)| **is_stored && !path.contains(&NESTED)).count()
    }

    /// Adds a stored mark; `mark` is the key after the index's ident.
    pub(super) fn load(&self, mark: &[u8]) {
        match *mark {
            [PATH_MARK, ref path @ ..] => {
                let mut paths = self.paths.write();
                if paths.len() < PATHS_MAX {
                    paths.insert(path.to_vec(), true);
                }
            }
            [part, component] => {
                if let Some(bits) = self.parts.get(usize::from(part)) {
                    let bit = component_bit(usize::from(component));
                    bits.seen.fetch_or(bit, Ordering::Relaxed);
                    bits.stored.fetch_or(bit, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }

    pub(super) fn is_any(&self) -> bool {
        self.parts.iter().any(|bits| bits.seen.load(Ordering::Acquire) != 0)
            || self.paths.read().keys().any(|path| path != MARKS_NESTED)
    }

    pub(super) fn parts(&self) -> Vec<u64> {
        self.parts.iter().map(|bits| bits.seen.load(Ordering::Acquire)).collect()
    }

    pub(super) fn path(&self, path: &FieldPath) -> PathArrays {
        let paths = self.paths.read();
        let is_full = paths.len() >= PATHS_MAX;
        let mut found = PathArrays::default();
        // The possible spellings up to this component: a number after an array is a position in it,
        // or a field name.
        let mut texts: Vec<Vec<u8>> = vec![Vec::new()];
        for (position, part) in path.parts().iter().enumerate() {
            let follows_array = position > 0 && found.arrays & component_bit(position - 1) != 0;
            let is_place = follows_array && path.indexes()[position].is_some();
            let without = if is_place { texts.clone() } else { Vec::new() };
            found.places |= u64::from(is_place) * component_bit(position);
            for text in &mut texts {
                if position > 0 {
                    text.push(b'.');
                }
                text.extend_from_slice(part);
                if is_full || paths.contains_key(text) {
                    found.arrays |= component_bit(position);
                }
                text.push(NESTED);
                if is_full || paths.contains_key(text) || !paths.contains_key(MARKS_NESTED) {
                    found.nested |= component_bit(position);
                }
                text.pop();
            }
            texts.extend(without);
            if texts.len() > NAMES_MAX {
                return PathArrays { is_vague: true, ..found };
            }
        }
        texts.sort();
        PathArrays { names: texts, ..found }
    }

    /// Returns whether some of `found` is not stored yet.
    pub(super) fn lacks(&self, found: &Multikey) -> bool {
        let lacks_part = (self.parts.iter().zip(&found.parts))
            .any(|(known, found)| found & !known.stored.load(Ordering::Acquire) != 0);
        if lacks_part || found.paths.is_empty() {
            return lacks_part;
        }
        let paths = self.paths.read();
        let marks_nested = paths.contains_key(MARKS_NESTED);
        let matters = |path: &&Vec<u8>| marks_nested || path.last() != Some(&NESTED);
        let is_full = paths.len() >= PATHS_MAX;
        found.paths.iter().filter(matters).any(|path| match paths.get(path) {
            Some(is_stored) => !is_stored,
            None => !is_full,
        })
    }

    /// Marks `found` as seen; calls `write` with the stored form of marks that are not stored yet.
    pub(super) fn add(&self, found: &Multikey, write: &mut dyn FnMut(&[u8])) {
        for (part, (known, &found)) in self.parts.iter().zip(&found.parts).enumerate() {
            let new = found & !known.stored.load(Ordering::Acquire);
            for component in (0..64u8).filter(|component| new & (1 << component) != 0) {
                write(&[u8::try_from(part).expect("an index has at most 32 parts"), component]);
            }
            if new != 0 {
                known.seen.fetch_or(new, Ordering::AcqRel);
            }
        }
        if found.paths.is_empty() {
            return;
        }
        let mut paths = self.paths.write();
        for path in &found.paths {
            let is_full = paths.len() >= PATHS_MAX;
            let is_stored = match paths.get(path) {
                Some(is_stored) => *is_stored,
                None if is_full => continue,
                None => *paths.entry(path.clone()).or_insert(false),
            };
            if !is_stored {
                write(&[&[PATH_MARK], path.as_slice()].concat());
            }
        }
    }

    /// Records that a transaction in which [`Marks::add`] wrote `found` was committed.
    pub(super) fn note_stored(&self, found: &Multikey) {
        for (known, &found) in self.parts.iter().zip(&found.parts) {
            known.stored.fetch_or(found, Ordering::AcqRel);
        }
        if found.paths.is_empty() {
            return;
        }
        let mut paths = self.paths.write();
        for path in &found.paths {
            if let Some(is_stored) = paths.get_mut(path) {
                *is_stored = true;
            }
        }
    }
}

/// The bit of a path component.
pub fn component_bit(component: usize) -> u64 {
    1 << component.min(COMPONENT_LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_what_the_store_keeps() {
        let found = Multikey {
            parts: vec![0b101, 0],
            paths: [b"a".to_vec(), b"a.b.c".to_vec()].into_iter().collect(),
        };
        let marks = Marks::new(2);
        assert!(marks.lacks(&found));
        let mut stored = Vec::new();
        marks.add(&found, &mut |mark| stored.push(mark.to_vec()));
        marks.note_stored(&found);
        assert!(!marks.lacks(&found));
        assert_eq!(stored.len(), 4);

        let again = Marks::new(2);
        stored.iter().for_each(|mark| again.load(mark));
        assert!(!again.lacks(&found));
        assert_eq!(again.parts(), [0b101, 0]);
        assert_eq!(again.path(&FieldPath::new("a.b.c")).arrays, 0b101);
        assert_eq!(again.path(&FieldPath::new("b")).arrays, 0);
    }

    #[test]
    fn a_mark_is_written_until_it_is_stored() {
        let found = Multikey { parts: vec![0b1], paths: [b"a".to_vec()].into_iter().collect() };
        let marks = Marks::new(1);
        let count = |marks: &Marks| {
            let mut written = 0;
            marks.add(&found, &mut |_| written += 1);
            written
        };
        // The transaction of the first write fails: readers see the mark, and the next write stores
        // it.
        assert_eq!(count(&marks), 2);
        assert_eq!(marks.parts(), [0b1]);
        assert!(marks.lacks(&found));
        assert_eq!(count(&marks), 2);
        marks.note_stored(&found);
        assert!(!marks.lacks(&found));
        assert_eq!(count(&marks), 0);
    }

    #[test]
    fn beyond_the_most_paths_all_count() {
        let marks = Marks::new(1);
        let name = |number: usize| format!("p{number}").into_bytes();
        let found = Multikey { parts: vec![0], paths: (0..PATHS_MAX + 5).map(name).collect() };
        let mut stored = 0;
        marks.add(&found, &mut |_| stored += 1);
        marks.note_stored(&found);
        assert_eq!(stored, PATHS_MAX);
        assert!(!marks.lacks(&found));
        assert_eq!(marks.path(&FieldPath::new("other.b")).arrays, 0b11);
    }

    #[test]
    fn a_number_behind_an_array_is_a_place_or_a_name() {
        let mut found = Multikey { parts: vec![0], ..Multikey::default() };
        found.add_path(MARKS_NESTED);
        for path in ["a", "a.b"] {
            found.add_path(path.as_bytes());
        }
        found.add_nested(&mut b"a.b".to_vec());
        let marks = Marks::new(1);
        assert!(!marks.is_any());
        marks.add(&found, &mut |_| {});
        assert!(marks.is_any());
        let check = |path: &str, arrays, nested, places, names: &[&str]| {
            let found = marks.path(&FieldPath::new(path));
            let told: Vec<_> =
                found.names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            assert_eq!((found.arrays, found.nested, found.places), (arrays, nested, places));
            assert_eq!(told, names);
        };
        check("a.0.b", 0b101, 0b100, 0b010, &["a.0.b", "a.b"]);
        check("a.b.1", 0b011, 0b010, 0b100, &["a.b", "a.b.1"]);
        check("a.0", 0b01, 0, 0b10, &["a", "a.0"]);
        check("c.0", 0, 0, 0, &["c.0"]);
        check("a.00", 0b01, 0, 0, &["a.00"]);
        // An index without the marker may contain nested arrays anywhere.
        assert_eq!(Marks::new(1).path(&FieldPath::new("a")).nested, 1);
    }
}
