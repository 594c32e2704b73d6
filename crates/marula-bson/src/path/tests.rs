use std::ops::ControlFlow;

use crate::{DocBuf, FieldPath, RawValue, Value, doc, order};

/// The leaves of `path`: `-` for missing, a trailing `*` for an array that expands.
fn seen(doc: &DocBuf, path: &str) -> Vec<String> {
    let mut seen = Vec::new();
    let _ = FieldPath::new(path).walk(doc.as_doc(), |leaf| {
        let star = if leaf.expanding_array().is_some() { "*" } else { "" };
        let text = leaf.value.map_or("-".into(), |value| value.get().to_string());
        let outer = leaf.outer_index.map_or(String::new(), |index| format!("{index}:"));
        seen.push(format!("{outer}{text}{star}"));
        ControlFlow::<()>::Continue(())
    });
    seen
}

fn check(doc: DocBuf, path: &str, expected: &[&str]) {
    assert_eq!(seen(&doc, path), expected, "{path} of {doc:?}");
}

#[test]
fn a_walk_sees_what_a_condition_sees() {
    check(doc! {}, "a.b", &["-"]);
    check(doc! { "a": 1 }, "a.b", &["-"]);
    check(doc! { "a": { "b": [1] } }, "a.b", &["[ 1 ]*"]);
    check(doc! { "a": [] }, "a.b", &[]);
    check(doc! { "a": [1, null] }, "a.b", &[]);
    check(doc! { "a": [1, {}, { "b": 2 }] }, "a.b", &["1:-", "2:2"]);
    check(doc! { "a": [[{ "b": 1 }]] }, "a.b", &[]);
    check(doc! { "a": [{ "b": [{ "c": 1 }, { "c": 2 }] }] }, "a.b.c", &["0:1", "0:2"]);
    check(doc! { "a": { "b": [0, { "c": 2 }] } }, "a.b.c", &["1:2"]);
}

#[test]
fn numbers_in_a_path_are_indexes_and_names() {
    check(doc! { "a": [5, 6] }, "a.1", &["6"]);
    check(doc! { "a": [[1, 2], 3] }, "a.0", &["[ 1, 2 ]"]);
    check(doc! { "a": [[1, 2], 3] }, "a.0.1", &["2"]);
    check(doc! { "a": [{ "0": [1] }] }, "a.0", &["0:[ 1 ]*", "{ 0: [ 1 ] }"]);
    check(doc! { "a": [{ "b": 1 }] }, "a.0.b", &["0:-", "1"]);
    check(doc! { "a": [[{ "b": 1 }]] }, "a.0.b", &["0:1"]);
    check(doc! { "a": [1] }, "a.0.b", &[]);
    check(doc! { "a": { "0": { "b": 1 } } }, "a.0.b", &["1"]);
    check(doc! { "a": [1] }, "a.00", &[]);
    check(doc! { "a": [1] }, "a.4294967296", &[]);
}

#[test]
fn numbers_through_nested_arrays_are_walked_in_a_short_time() {
    // The routes through these arrays are as many as the ways to choose 32 of 48 parts.
    let mut doc = doc! { "0": 7 };
    for _ in 0..32 {
        let array = doc! { "0": &doc };
        doc = doc! { "0": (Value::Array(array.as_doc())) };
    }
    let mut leaves = 0_u32;
    let path = FieldPath::new(vec!["0"; 48].join("."));
    let walked = path.walk(doc.as_doc(), |_| {
        leaves += 1;
        ControlFlow::<()>::Continue(())
    });
    assert!(walked.is_continue());
    assert!((1..200_000).contains(&leaves), "{leaves} leaves");
    // A walk that reaches the number still finds it.
    let path = FieldPath::new(vec!["0"; 40].join("."));
    let is_seven =
        |value: Option<RawValue<'_>>| value.is_some_and(|it| it.get() == Value::Int32(7));
    assert!(path.any_value(doc.as_doc(), is_seven));
}

#[test]
fn an_empty_last_part_is_the_array_itself() {
    check(doc! { "a": [{ "": 1 }] }, "a.", &["[ { : 1 } ]*"]);
    check(doc! { "a": [[1]] }, "a.0.", &["[ 1 ]*"]);
    check(doc! { "a": { "": 1 } }, "a.", &["1"]);
    check(doc! { "a": [[1]] }, "a..", &[]);
}

#[test]
fn any_value_stops_at_the_first() {
    let doc = doc! { "a": [{ "b": [1, 2] }, { "b": 3 }] };
    let mut count = 0;
    let found = FieldPath::new("a.b").any_value(doc.as_doc(), |value| {
        count += 1;
        value.is_some_and(|value| value.get() == Value::Int32(2))
    });
    assert!(found);
    assert_eq!(count, 2);
    assert!(!FieldPath::new("a.b").any_value(doc.as_doc(), |value| value.is_none()));
}

#[test]
fn indexes_are_canonical() {
    use super::array_index;
    for (text, expected) in [
        ("0", Some(0)),
        ("10", Some(10)),
        ("4294967295", Some(u32::MAX)),
        ("4294967296", None),
        ("99999999999", None),
        ("00", None),
        ("01", None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1a", None),
    ] {
        assert_eq!(array_index(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn keys_are_those_of_an_index() {
    let check = |doc: DocBuf, path: &str, expected: &[Value<'_>]| {
        let path = FieldPath::new(path);
        let mut keys = Vec::new();
        path.keys(doc.as_doc(), |key| keys.push(key.to_buf())).unwrap();
        assert_eq!(keys.len(), expected.len(), "{path} of {doc:?}: {keys:?}");
        for (key, expected) in keys.iter().zip(expected) {
            assert!(order::equal(key.get(), *expected, None), "{path} of {doc:?}: {keys:?}");
        }
    };
    let (null, undefined, one) = (Value::Null, Value::Undefined, Value::Int32(1));
    check(doc! {}, "a", &[null]);
    check(doc! { "a": 1 }, "a.b", &[null]);
    check(doc! { "a": [] }, "a", &[undefined]);
    check(doc! { "a": [] }, "a.b", &[null]);
    check(doc! { "a": [] }, "a.0", &[null]);
    check(doc! { "a": [{ "b": [] }] }, "a.b", &[undefined]);
    check(doc! { "a": [[]] }, "a.0", &[undefined]);
    check(doc! { "a": [[]] }, "a.0.0", &[null]);
    check(doc! { "a": [[1], 1] }, "a.0.0", &[one]);
    check(doc! { "a": [1, { "b": 1 }] }, "a.b", &[null, one]);
    check(doc! { "a": [{ "b": [1, null] }] }, "a.b", &[one, null]);
    check(doc! { "a": [{ "2": 1 }, 5] }, "a.2", &[one, null]);
    check(doc! { "a": [[{ "b": 1 }, [{ "b": 1 }]]] }, "a.0.b", &[one, null]);
    let inner = doc! { "a": [[1, 2]] };
    let array = inner.as_doc().get("a").unwrap().as_array().unwrap().values().next().unwrap();
    check(inner.clone(), "a.0", &[array]);
}

#[test]
fn a_number_that_is_index_and_name_has_no_keys() {
    let doc = doc! { "a": [5, { "0": 1 }] };
    let path = FieldPath::new("a.0");
    let error = path.keys(doc.as_doc(), |_| {}).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Ambiguous field name found in array (do not use numeric field names in embedded elements \
         in an array), field: '0' for array: { 0: 5, 1: { 0: 1 } }"
    );
}
