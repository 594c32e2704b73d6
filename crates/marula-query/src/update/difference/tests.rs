//! Differences in the form that mongod 6.0 writes.

use marula_bson::{Doc, DocBuf, Value, doc};

use super::super::{Matched, Update, UpdateOptions};
use crate::context::Context;

fn difference(old: &DocBuf, update: Value<'_>, array_filters: Option<Doc<'_>>) -> Option<DocBuf> {
    let context = Context::default();
    let options = UpdateOptions { array_filters, ..UpdateOptions::default() };
    let update = Update::parse(update, &options, &context).unwrap();
    let (matched, mut new) = (Matched::default(), Vec::new());
    let applied = update.apply(old.as_doc(), &matched, &context, &mut new).unwrap();
    assert!(applied.changed);
    update.difference(old.as_doc(), Doc::trusted(&new), &matched).unwrap()
}

fn old() -> DocBuf {
    doc! {
        "_id": 1, "a": 1, "b": 2, "r": [1, 2, 3], "o": { "p": {}, "q": 1 }, "e": [],
        "m": [[1, 2], { "x": 1 }], "s": [{ "x": 1, "y": [1] }, { "x": 2, "y": [2] }]
    }
}

#[track_caller]
fn check(update: DocBuf, diff: DocBuf) {
    let found = difference(&old(), Value::Document(update.as_doc()), None);
    assert_eq!(found, Some(doc! { "$v": 2, "diff": diff.as_doc() }));
}

#[test]
fn fields_are_removed_set_and_added_where_their_path_begins_to_be_new() {
    check(
        doc! { "$set": { "y": 1, "x": 2, "b": 3 }, "$unset": { "a": 1 }, "$push": { "r": 4 } },
        doc! { "d": { "a": false }, "u": { "b": 3 }, "i": { "x": 2, "y": 1 }, "sr": { "a": true, "u3": 4 } },
    );
    check(doc! { "$set": { "n.x": 1, "n.y": 2 } }, doc! { "i": { "n": { "x": 1, "y": 2 } } });
    check(doc! { "$set": { "o.p.q": 5 } }, doc! { "so": { "sp": { "i": { "q": 5 } } } });
    check(doc! { "$set": { "o": { "q": 2 } } }, doc! { "u": { "o": { "q": 2 } } });
    check(
        doc! { "$rename": { "o.q": "o.p.k" } },
        doc! { "so": { "d": { "q": false }, "sp": { "i": { "k": 1 } } } },
    );
}

#[test]
fn elements_of_arrays_are_written_by_index() {
    check(doc! { "$set": { "r.5": 9 } }, doc! { "sr": { "a": true, "u5": 9 } });
    check(doc! { "$unset": { "r.1": 1 } }, doc! { "sr": { "a": true, "u1": Value::Null } });
    check(
        doc! { "$set": { "m.1.z": 2, "m.2.y": 5 }, "$inc": { "m.0.0": 1 } },
        doc! { "sm": { "a": true, "s0": { "a": true, "u0": 2 }, "s1": { "i": { "z": 2 } }, "u2": { "y": 5 } } },
    );
}

#[test]
fn a_push_that_only_appends_is_written_as_added_elements() {
    check(
        doc! { "$push": { "r": { "$each": [4, 5], "$slice": 9 } } },
        doc! { "sr": { "a": true, "u3": 4, "u4": 5 } },
    );
    check(
        doc! { "$push": { "r": { "$each": [4], "$position": 3 } } },
        doc! { "u": { "r": [1, 2, 3, 4] } },
    );
    check(
        doc! { "$push": { "r": { "$each": [4, 5], "$slice": 3 } } },
        doc! { "u": { "r": [1, 2, 3] } },
    );
    check(doc! { "$push": { "e": 1 } }, doc! { "u": { "e": [1] } });
    check(doc! { "$addToSet": { "r": 7 } }, doc! { "u": { "r": [1, 2, 3, 7] } });
}

#[test]
fn one_chosen_element_is_written_alone_and_several_as_the_array() {
    let check = |update: DocBuf, filters: DocBuf, diff: DocBuf| {
        let filters = filters.as_doc().get("f").and_then(|list| list.as_array());
        let found = difference(&old(), Value::Document(update.as_doc()), filters);
        assert_eq!(found, Some(doc! { "$v": 2, "diff": diff.as_doc() }));
    };
    check(
        doc! { "$set": { "s.$[i].x": 6 } },
        doc! { "f": [{ "i.x": 2 }] },
        doc! { "ss": { "a": true, "s1": { "u": { "x": 6 } } } },
    );
    // Of two chosen elements one changes.
    check(
        doc! { "$set": { "s.$[].x": 2 } },
        doc! { "f": [] },
        doc! { "ss": { "a": true, "u0": { "x": 2, "y": [1] } } },
    );
    check(doc! { "$inc": { "r.$[]": 5 } }, doc! { "f": [] }, doc! { "u": { "r": [6, 7, 8] } });
}

#[test]
fn a_pipeline_is_written_as_the_shorter_of_difference_and_document() {
    let long = "x".repeat(100);
    let check = |old: DocBuf, new: DocBuf, expected: Option<DocBuf>| {
        let stages = doc! { "s": [{ "$replaceWith": { "$literal": new.as_doc() } }] };
        let found = difference(&old, stages.as_doc().get("s").unwrap(), None);
        assert_eq!(
            found,
            expected.map(|diff| doc! { "$v": 2, "diff": diff.as_doc() }),
            "{old:?} {new:?}"
        );
    };
    let l = long.as_str();
    check(
        doc! { "_id": 1, "a": 1, "b": 2, "c": 3, "L": l },
        doc! { "_id": 1, "L": l, "c": 4, "a": 1 },
        Some(doc! { "d": { "b": false }, "i": { "c": 4, "a": 1 } }),
    );
    check(doc! { "_id": 1, "a": 1, "L": l }, doc! { "_id": 1, "a": 1, "z": 1, "L": l }, None);
    check(
        doc! { "_id": 1, "r": [1, 2, 3], "L": l },
        doc! { "_id": 1, "r": [1, 2], "L": l },
        Some(doc! { "sr": { "a": true, "l": 2 } }),
    );
    check(
        doc! { "_id": 1, "a": { "b": 1, "c": 2 }, "L": l },
        doc! { "_id": 1, "a": { "b": 2, "c": 2 }, "L": l },
        Some(doc! { "u": { "a": { "b": 2, "c": 2 } } }),
    );
    // The document has 35 bytes, and then 36.
    let small = |a: i32, p: &str| doc! { "_id": 1, "a": a, "p": p, "q": 5 };
    check(
        doc! { "_id": 1, "a": 1, "b": 1, "c": 1 },
        doc! { "_id": 1, "a": 2, "b": 1, "c": 1 },
        None,
    );
    check(small(1, ""), small(2, ""), Some(doc! { "u": { "a": 2 } }));
}
