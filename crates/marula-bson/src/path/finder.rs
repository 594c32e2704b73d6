//! Finds out that a name does not occur in a document's bytes, without walking its fields.
//!
//! A walk waits for memory field by field, since the position of each field follows from the one
//! before. A vectorized search for the name and its NUL reads straight through. When it finds
//! nothing, no field has the name; a hit may be the end of a string, and the walk continues.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use memchr::memmem::Finder;

/// The number of documents walked before the first search: building a searcher costs as much as a
/// walk.
const WALKS_FIRST: u32 = 8;
/// The number of documents walked after a search found the name: the next ones probably have it
/// too.
const WALKS_AFTER_FINDING: u32 = 256;

/// Searches for one name once that pays off. It is a cache: clones start empty, and all compare
/// equal.
pub(super) struct NameFinder {
    /// The number of documents to walk before the next search.
    walks_left: AtomicU32,
    /// Boxed because it is large and most paths never search.
    finder: OnceLock<Box<Finder<'static>>>,
}

impl Default for NameFinder {
    fn default() -> Self {
        NameFinder { walks_left: AtomicU32::new(WALKS_FIRST), finder: OnceLock::new() }
    }
}

impl NameFinder {
    /// Returns `true` only if `name`, followed by a NUL, does not occur in `bytes`; `false` may
    /// also mean that it was not searched.
    #[inline]
    pub(super) fn is_absent(&self, name: &[u8], bytes: &[u8]) -> bool {
        let walks_left = self.walks_left.load(Ordering::Relaxed);
        if walks_left > 0 {
            // Threads that share the path may lose a decrement; that costs at most one walk.
            self.walks_left.store(walks_left - 1, Ordering::Relaxed);
            return false;
        }
        let make = || Box::new(Finder::new(&[name, &[0]].concat()).into_owned());
        let finder = self.finder.get_or_init(make);
        let is_absent = finder.find(bytes).is_none();
        if !is_absent {
            self.walks_left.store(WALKS_AFTER_FINDING, Ordering::Relaxed);
        }
        is_absent
    }
}

impl Clone for NameFinder {
    fn clone(&self) -> Self {
        NameFinder::default()
    }
}

impl PartialEq for NameFinder {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for NameFinder {}

impl Hash for NameFinder {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Debug for NameFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

#[cfg(test)]
mod tests {
    use crate::{DocBuf, FieldPath, Value};

    #[test]
    fn a_field_is_found_or_not_whatever_was_asked_before() {
        let text = "x".repeat(100);
        let large = DocBuf::build(|doc| {
            for number in 0..30 {
                doc.append(format!("field{number}"), &text);
            }
            doc.append("trap", "it ends like late");
            doc.append("late", 7);
        });
        let small = crate::doc! { "late": 1 };
        for (name, in_large, in_small) in [
            ("late", Some(Value::Int32(7)), Some(Value::Int32(1))),
            ("field29", Some(Value::from(&text)), None),
            ("field2", Some(Value::from(&text)), None),
            ("absent", None, None),
            ("like late", None, None),
            ("ate", None, None),
        ] {
            let path = FieldPath::new(name);
            for _ in 0..20 {
                assert_eq!(path.first_field(large.as_doc()).map(|value| value.get()), in_large);
                assert_eq!(path.first_field(small.as_doc()).map(|value| value.get()), in_small);
            }
        }
    }
}
