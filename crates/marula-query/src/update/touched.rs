//! The parts of documents that an update may write, so that indexes on other fields are not
//! updated.

use std::sync::Arc;

use marula_bson::FieldPath;

/// The paths that an update may have written. Cloning it copies no path.
#[derive(Clone, Debug)]
pub enum Touched {
    /// Any path.
    All,
    /// These paths and their subfields.
    Paths(Arc<[FieldPath]>),
}

impl Touched {
    /// Returns whether the keys of an index on `path` may have changed.
    ///
    /// Array indexes and positional parts are not field names, so they are skipped on both sides. A
    /// write to a numbered element may add an element, and with it each field that an index expects
    /// in an element: it counts as a write to the whole array.
    pub fn may_affect(&self, path: &FieldPath) -> bool {
        match self {
            Touched::All => true,
            Touched::Paths(paths) => paths.iter().any(|written| overlaps(written, path)),
        }
    }
}

/// Returns whether one path is a prefix of the other, or they are equal.
fn overlaps(written: &FieldPath, index: &FieldPath) -> bool {
    let mut written = names(up_to_number(written));
    let mut index = names(index.parts());
    loop {
        match (written.next(), index.next()) {
            (Some(_), Some(b"$**")) | (None, _) | (_, None) => return true,
            (Some(a), Some(b)) if a != b => return false,
            _ => {}
        }
    }
}

/// Returns the parts before the first that may be an array index. The first part is always a field:
/// a document is not an array.
fn up_to_number(path: &FieldPath) -> &[Box<[u8]>] {
    let parts = path.parts();
    let number = parts.iter().skip(1).position(|part| is_number(part));
    &parts[..number.map_or(parts.len(), |at| at + 1)]
}

fn is_number(part: &[u8]) -> bool {
    part.iter().all(u8::is_ascii_digit)
}

/// Returns the parts of a path that can only be field names.
fn names(parts: &[Box<[u8]>]) -> impl Iterator<Item = &[u8]> {
    parts.iter().map(|part| &**part).filter(|part| {
        let positional = *part == b"$" || part.starts_with(b"$[");
        !positional && !is_number(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_indexes_on_or_around_written_paths_are_affected() {
        for (written, index, expected) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a", "ab", false),
            ("a.b", "a", true),
            ("a", "a.b", true),
            ("a.b", "a.c", false),
            ("a.0.b", "a.b", true),
            ("a.$.b", "a.b", true),
            ("a.$[].b", "a.c", false),
            ("a.$[x]", "a.c", true),
            ("a.b", "a.0.b", true),
            ("a.1", "a.0", true),
            ("a.1.c", "a.b", true),
            ("a.1.c", "a.b.d", true),
            ("a.b.1.c", "a.d", false),
            ("a.b.1.c", "a.b.d", true),
            ("a.$.c", "a.b", false),
            ("a.$.c.1.d", "a.c.e", true),
            ("1.c", "1.b", false),
            ("x", "$**", true),
            ("x", "a.$**", false),
            ("a.b", "a.$**", true),
        ] {
            let touched = Touched::Paths([FieldPath::new(written)].into());
            assert_eq!(touched.may_affect(&FieldPath::new(index)), expected, "{written} {index}");
        }
        assert!(Touched::All.may_affect(&FieldPath::new("a")));
    }
}
