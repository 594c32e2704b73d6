//! The paths of update operators: `a.b`, `a.0`, `a.$`, `a.$[]`, `a.$[id]`.

use std::cmp::Ordering;

use bstr::{BStr, ByteSlice};
use marula_error::{Result, errors};

use super::stored;

errors! {
    /// A path is empty.
    path_empty() = EmptyFieldName, "An empty update path is not valid.";
    /// A path has an empty part.
    part_empty(path: &BStr) = EmptyFieldName, "The update path '{path}' contains an empty field name, which is not allowed.";
    /// A path begins with `$`.
    positional_first(path: &BStr) = BadValue, "Cannot have positional (i.e. '$') element in the first position in path '{path}'";
    /// A path has more than one `$`.
    positional_twice(path: &BStr) = BadValue, "Too many positional (i.e. '$') elements found in path '{path}'";
    /// A path begins with `$[id]`.
    identifier_first(path: &BStr) = BadValue, "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '{path}'";
}

/// One part of an update's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part<'p> {
    /// A field's name, or the index of an array's element.
    Name(&'p [u8]),
    /// `$`: the array index that the filter recorded.
    Positional,
    /// `$[id]`: the elements that an array filter matches; `$[]`, without an identifier, is every
    /// element.
    Elements(&'p [u8]),
}

impl<'p> Part<'p> {
    fn new(text: &'p [u8]) -> Self {
        match text {
            b"$" => Part::Positional,
            [b'$', b'[', id @ .., b']'] => Part::Elements(id),
            name => Part::Name(name),
        }
    }
}

/// Splits a path that [`check_names`] has accepted.
pub(super) fn parts(path: &[u8]) -> Result<Vec<Part<'_>>> {
    let parts: Vec<Part<'_>> = split(path).collect();
    if let Some(Part::Elements(_)) = parts.first() {
        return Err(identifier_first(path.as_bstr()));
    }
    Ok(parts)
}

/// Checks the rules for paths of all operators: no part is empty, and `$` is only at valid
/// positions.
pub(super) fn check_names(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(path_empty());
    }
    let (mut count, mut positional_count) = (0, 0);
    for part in path.split(|&byte| byte == b'.') {
        if part.is_empty() {
            return Err(part_empty(path.as_bstr()));
        }
        positional_count += usize::from(part == b"$");
        count += 1;
    }
    if positional_count > 1 {
        return Err(positional_twice(path.as_bstr()));
    }
    if path == b"$" || path.starts_with(b"$.") {
        return Err(positional_first(path.as_bstr()));
    }
    if count > stored::PATH_PARTS_MAX {
        return Err(stored::too_deep());
    }
    Ok(())
}

/// Returns whether a part of the path is neither a name nor an index.
pub(super) fn is_dynamic(path: &[u8]) -> bool {
    split(path).any(|part| !matches!(part, Part::Name(_)))
}

fn split(path: &[u8]) -> impl Iterator<Item = Part<'_>> {
    path.split(|&byte| byte == b'.').map(Part::new)
}

/// Returns the array index of a part; leading zeros are allowed here, unlike in a filter.
pub(super) fn index(name: &[u8]) -> Option<u32> {
    let is_number = !name.is_empty() && name.iter().all(u8::is_ascii_digit);
    is_number.then(|| name.to_str().ok()?.parse().ok()).flatten()
}

/// Compares names in the order in which operators act on the fields of one document, which is the
/// order of the fields they add.
///
/// Names are ordered by their bytes; among those that begin with a digit other than zero, the
/// shorter comes first, so that numbers are ordered as numbers.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let starts_number = |name: &[u8]| matches!(name.first(), Some(b'1'..=b'9'));
    if starts_number(a) && starts_number(b) {
        return a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    }
    a.cmp(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart() {
        let parts = parts(b"a.$.0.$[].$[id].$x.$[y").unwrap();
        assert_eq!(
            parts,
            [
                Part::Name(b"a"),
                Part::Positional,
                Part::Name(b"0"),
                Part::Elements(b""),
                Part::Elements(b"id"),
                Part::Name(b"$x"),
                Part::Name(b"$[y"),
            ]
        );
        assert!(is_dynamic(b"a.$[]") && is_dynamic(b"a.$") && !is_dynamic(b"a.$b"));
        for (text, expected) in
            [("0", Some(0)), ("007", Some(7)), ("4294967296", None), ("-1", None), ("", None)]
        {
            assert_eq!(index(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn names_are_ordered_as_mongod_adds_them() {
        let ascending = [
            " ",
            "-1",
            "001",
            "01",
            "1",
            "2",
            "9",
            "10",
            "1a",
            "9b",
            "10b",
            "18446744073709551615",
            "Z",
            "_",
            "a",
            "a1",
            "a10",
            "a2",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a.as_bytes(), b.as_bytes()), i.cmp(&j), "{a} {b}");
            }
        }
    }
}
