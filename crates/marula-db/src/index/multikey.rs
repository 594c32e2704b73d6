//! Where documents have arrays on the paths of an index: what a document has, and the marks of all.
//!
//! Most indexes mark a component of the path of one of their parts. A wildcard index has no paths of its own, so it
//! marks the whole path of each array that it met.

use std::collections::BTreeSet;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use marula_bson::FieldPath;

/// Path components beyond this one share its mark.
const COMPONENT_LAST: usize = 63;

/// The array paths that a wildcard index marks at most. Beyond, every path counts as one.
const PATHS_MAX: usize = 10_000;

/// In place of a part's number: a path follows.
const PATH_MARK: u8 = 0xFF;

/// Where a document has arrays.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Multikey {
    /// For each part of the index, a bit per path component.
    pub parts: Vec<u64>,
    /// Of a wildcard index: the paths, with dots.
    pub paths: BTreeSet<Vec<u8>>,
}

impl Multikey {
    pub(super) fn clear(&mut self, parts: usize) {
        self.parts.clear();
        self.parts.resize(parts, 0);
        self.paths.clear();
    }

    /// Adds what another document has.
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

/// The marks of an index in memory.
#[derive(Default)]
pub(super) struct Marks {
    parts: Vec<AtomicU64>,
    paths: RwLock<BTreeSet<Vec<u8>>>,
}

impl Marks {
    pub(super) fn new(parts: usize) -> Self {
        let parts = (0..parts).map(|_| AtomicU64::new(0)).collect();
        Marks { parts, paths: RwLock::default() }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeSet<Vec<u8>>> {
        // A set that a panic interrupted is whole all the same.
        self.paths.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a mark as the store has it: what follows the index's ident.
    pub(super) fn load(&self, mark: &[u8]) {
        match *mark {
            [PATH_MARK, ref path @ ..] => {
                self.insert(path);
            }
            [part, component] => {
                if let Some(bits) = self.parts.get(usize::from(part)) {
                    bits.fetch_or(component_bit(usize::from(component)), Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }

    /// Whether the path is new.
    fn insert(&self, path: &[u8]) -> bool {
        let mut paths = self.paths.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        paths.len() < PATHS_MAX && paths.insert(path.to_vec())
    }

    pub(super) fn is_any(&self) -> bool {
        self.parts.iter().any(|bits| bits.load(Ordering::Acquire) != 0) || !self.read().is_empty()
    }

    pub(super) fn parts(&self) -> Vec<u64> {
        self.parts.iter().map(|bits| bits.load(Ordering::Acquire)).collect()
    }

    pub(super) fn path(&self, path: &FieldPath) -> u64 {
        let paths = self.read();
        let is_full = paths.len() >= PATHS_MAX;
        let mut text = Vec::new();
        let mut bits = 0;
        for (position, part) in path.parts().iter().enumerate() {
            if position > 0 {
                text.push(b'.');
            }
            text.extend_from_slice(part);
            if is_full || paths.contains(&text) {
                bits |= component_bit(position);
            }
        }
        bits
    }

    /// Whether something of `found` is not marked yet.
    pub(super) fn lacks(&self, found: &Multikey) -> bool {
        let lacks_part = (self.parts.iter().zip(&found.parts))
            .any(|(known, found)| found & !known.load(Ordering::Acquire) != 0);
        if lacks_part || found.paths.is_empty() {
            return lacks_part;
        }
        let paths = self.read();
        paths.len() < PATHS_MAX && found.paths.iter().any(|path| !paths.contains(path))
    }

    /// Adds `found`; what is new is given to `write` as the store is to have it.
    pub(super) fn add(&self, found: &Multikey, write: &mut dyn FnMut(&[u8])) {
        for (part, (known, &found)) in self.parts.iter().zip(&found.parts).enumerate() {
            let new = found & !known.load(Ordering::Acquire);
            for component in (0..64u8).filter(|component| new & (1 << component) != 0) {
                write(&[u8::try_from(part).expect("an index has at most 32 parts"), component]);
            }
            if new != 0 {
                known.fetch_or(new, Ordering::AcqRel);
            }
        }
        for path in &found.paths {
            if self.insert(path) {
                write(&[&[PATH_MARK], path.as_slice()].concat());
            }
        }
    }
}

/// The bit of the path component with this index.
pub(super) fn component_bit(component: usize) -> u64 {
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
        assert!(!marks.lacks(&found));
        assert_eq!(stored.len(), 4);

        let again = Marks::new(2);
        stored.iter().for_each(|mark| again.load(mark));
        assert!(!again.lacks(&found));
        assert_eq!(again.parts(), [0b101, 0]);
        assert_eq!(again.path(&FieldPath::new("a.b.c")), 0b101);
        assert_eq!(again.path(&FieldPath::new("b")), 0);
    }

    #[test]
    fn beyond_the_most_paths_all_count() {
        let marks = Marks::new(1);
        let name = |number: usize| format!("p{number}").into_bytes();
        let found = Multikey { parts: vec![0], paths: (0..PATHS_MAX + 5).map(name).collect() };
        let mut stored = 0;
        marks.add(&found, &mut |_| stored += 1);
        assert_eq!(stored, PATHS_MAX);
        assert!(!marks.lacks(&found));
        assert_eq!(marks.path(&FieldPath::new("other.b")), 0b11);
    }
}
