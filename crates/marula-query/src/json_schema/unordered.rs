//! Equality that ignores the order of an object's fields, for `enum` and `uniqueItems`.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hasher};

use marula_bson::order::{self, canonical_class};
use marula_bson::{Doc, Element, RawValue, Type};

/// The maximum depth of comparison; validation rejects deeper documents.
const DEPTH_MAX: u32 = 256;

/// Returns whether two values are equal, whatever the order of fields in objects.
pub(crate) fn equal(a: RawValue<'_>, b: RawValue<'_>) -> bool {
    equal_at(a, b, 0)
}

fn equal_at(a: RawValue<'_>, b: RawValue<'_>, depth: u32) -> bool {
    if a == b || depth >= DEPTH_MAX {
        return true;
    }
    if canonical_class(a.kind()) != canonical_class(b.kind()) {
        return false;
    }
    let (left, right) = (Doc::trusted(a.bytes()), Doc::trusted(b.bytes()));
    match a.kind() {
        Type::Document => {
            let (left, right) = (sorted(left), sorted(right));
            left.len() == right.len()
                && left
                    .iter()
                    .zip(&right)
                    .all(|(a, b)| a.name == b.name && equal_at(a.value, b.value, depth + 1))
        }
        Type::Array => {
            let (mut left, mut right) = (left.iter(), right.iter());
            loop {
                match (left.next(), right.next()) {
                    (None, None) => return true,
                    (Some(a), Some(b)) if equal_at(a.value, b.value, depth + 1) => {}
                    _ => return false,
                }
            }
        }
        _ => order::equal(a.get(), b.get(), None),
    }
}

fn sorted(doc: Doc<'_>) -> Vec<Element<'_>> {
    let mut elements: Vec<_> = doc.iter().collect();
    elements.sort_by(|a, b| a.name.cmp(b.name));
    elements
}

/// Returns the first value of an array that equals an earlier one.
pub(crate) fn first_duplicate(array: Doc<'_>) -> Option<RawValue<'_>> {
    // The state is random, so that a client cannot construct colliding values.
    let state = RandomState::new();
    let mut seen: HashMap<u64, Vec<RawValue<'_>>> = HashMap::new();
    for Element { value, .. } in array {
        match seen.entry(hash(value, &state, 0)) {
            Entry::Vacant(entry) => {
                entry.insert(vec![value]);
            }
            Entry::Occupied(mut entry) => {
                if entry.get().iter().any(|earlier| equal(*earlier, value)) {
                    return Some(value);
                }
                entry.get_mut().push(value);
            }
        }
    }
    None
}

/// Returns a hash that is equal for equal values. It adds up the fields' hashes, so their order is
/// irrelevant.
fn hash(value: RawValue<'_>, state: &RandomState, depth: u32) -> u64 {
    let inner = Doc::trusted(value.bytes());
    let mut hasher = state.build_hasher();
    match value.kind() {
        Type::Document if depth < DEPTH_MAX => inner.iter().fold(1, |sum: u64, element| {
            let mut hasher = state.build_hasher();
            hasher.write(element.name);
            hasher.write_u64(hash(element.value, state, depth + 1));
            sum.wrapping_add(hasher.finish())
        }),
        Type::Array if depth < DEPTH_MAX => {
            inner.iter().for_each(|element| {
                hasher.write_u64(hash(element.value, state, depth + 1));
            });
            hasher.finish()
        }
        _ => {
            order::hash(value.get(), None, &mut hasher);
            hasher.finish()
        }
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::ext_json;

    use super::*;

    fn check(array: &str, duplicate: Option<&str>) {
        let doc = ext_json::parse(&format!("{{\"a\": {array}}}")).unwrap();
        let array = doc.as_doc().get("a").and_then(|a| a.as_array()).unwrap();
        let found = first_duplicate(array).map(|value| value.get().to_string());
        assert_eq!(found.as_deref(), duplicate, "{array:?}");
    }

    #[test]
    fn duplicates_are_found_whatever_the_order_of_fields() {
        check("[]", None);
        check("[1, 2, 3]", None);
        check("[1, 2, 2, 1]", Some("2"));
        check(r#"[{"a": 1, "b": 2}, {"b": 2, "a": 1}]"#, Some("{ b: 2, a: 1 }"));
        check(r#"[{"a": 1, "b": 2}, {"a": 2, "b": 1}]"#, None);
        check(
            r#"[{"x": {"a": 1, "b": 2}}, {"x": {"b": 2.0, "a": 1}}]"#,
            Some("{ x: { b: 2.0, a: 1 } }"),
        );
        check("[[1, 2], [2, 1]]", None);
        check("[[1], [1.0]]", Some("[ 1.0 ]"));
        check(r#"["a", "A", null, false, 0]"#, None);
    }
}
