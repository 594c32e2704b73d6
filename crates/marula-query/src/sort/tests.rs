use std::cmp::Ordering;

use marula_bson::{DocBuf, doc};

use super::SortPattern;
use crate::context::Context;

fn parse(pattern: &DocBuf) -> Result<SortPattern, (i32, String)> {
    SortPattern::parse(pattern.as_doc(), &Context::default())
        .map_err(|error| (error.code().number(), error.message().to_owned()))
}

/// Checks that the documents sort in the order of `ids`; equal ones keep the order of their ids.
fn check(docs: &[DocBuf], pattern: &DocBuf, ids: &[usize]) {
    let parsed = parse(pattern).unwrap();
    let mut keyed: Vec<(Vec<u8>, usize)> = Vec::new();
    for (index, doc) in docs.iter().enumerate() {
        let mut key = Vec::new();
        parsed.write_key(doc.as_doc(), &mut key).unwrap();
        keyed.push((key, index + 1));
    }
    for (a_key, a) in &keyed {
        for (b_key, b) in &keyed {
            let order = parsed.compare(docs[a - 1].as_doc(), docs[b - 1].as_doc()).unwrap();
            assert_eq!(order, a_key.cmp(b_key), "{a} and {b} by {}", pattern.as_doc());
        }
    }
    keyed.sort();
    let sorted: Vec<usize> = keyed.into_iter().map(|(_, index)| index).collect();
    assert_eq!(sorted, ids, "by {}", pattern.as_doc());
}

/// Recorded from mongod 6.0.
#[test]
fn documents_sort_by_the_least_of_their_keys() {
    let docs = [
        doc! { "a": [3, 1] },
        doc! { "a": 2 },
        doc! {},
        doc! { "a": null },
        doc! { "a": [] },
        doc! { "a": [[0]] },
        doc! { "a": [{ "x": 1, "y": 5 }, { "x": 2, "y": 0 }] },
        doc! { "a": [{ "x": 1, "y": 6 }] },
        doc! { "a": { "x": 1, "y": [5, 4] } },
        doc! { "a": [5, { "x": 0 }] },
        doc! { "a": [[{ "x": -1 }]] },
        doc! { "a": [null] },
        doc! { "a": [[]] },
        doc! { "a": { "x": [] } },
        doc! { "a": [{ "x": [9, 7] }] },
    ];
    check(&docs, &doc! { "a": 1 }, &[5, 3, 4, 12, 1, 2, 10, 7, 8, 9, 14, 15, 13, 6, 11]);
    check(&docs, &doc! { "a": -1 }, &[11, 6, 13, 15, 14, 7, 9, 8, 10, 1, 2, 3, 4, 12, 5]);
    check(&docs, &doc! { "a.x": 1 }, &[14, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 7, 8, 9, 15]);
    check(&docs, &doc! { "a.x": -1 }, &[15, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 11, 12, 13, 14]);
    check(
        &docs,
        &doc! { "a.x": 1, "a.y": 1 },
        &[14, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 9, 7, 8, 15],
    );
    check(
        &docs,
        &doc! { "a.x": 1, "a.y": -1 },
        &[14, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 8, 7, 9, 15],
    );
    check(
        &docs,
        &doc! { "a.x": -1, "a.y": 1 },
        &[15, 7, 9, 8, 10, 1, 2, 3, 4, 5, 6, 11, 12, 13, 14],
    );
    check(&docs, &doc! { "a": 1, "a.x": 1 }, &[5, 3, 4, 12, 1, 2, 10, 7, 8, 9, 14, 15, 13, 6, 11]);
    check(&docs, &doc! { "a.x": 1, "a": 1 }, &[14, 5, 3, 4, 12, 1, 2, 10, 13, 6, 11, 7, 8, 9, 15]);
}

#[test]
fn arrays_that_do_not_belong_together_are_an_error() {
    let doc = doc! {
        "a": [1, 2], "b": [3], "c": { "x": [1], "y": [2] }, "d": [{ "x": [1], "y": [2] }],
        "e": [], "f": [], "g": [{ "0": 1 }],
    };
    let error = |pattern: DocBuf| {
        let mut key = Vec::new();
        let error = parse(&pattern).unwrap().write_key(doc.as_doc(), &mut key).unwrap_err();
        (error.code().number(), error.message().to_owned())
    };
    let parallel = (2, "cannot sort with keys that are parallel arrays".to_owned());
    assert_eq!(error(doc! { "a": 1, "b": 1 }), parallel);
    assert_eq!(error(doc! { "c.x": 1, "c.y": 1 }), parallel);
    assert_eq!(error(doc! { "d.x": 1, "d.y": 1 }), parallel);
    assert_eq!(error(doc! { "e": 1, "f": 1 }), parallel);
    assert_eq!(error(doc! { "a": 1, "e": 1 }), parallel);
    let ambiguous = "Ambiguous field name found in array (do not use numeric field names in embedded \
                     elements in an array), field: '0' for array: { 0: { 0: 1 } }";
    assert_eq!(error(doc! { "g.0": 1 }), (16746, ambiguous.to_owned()));
    let order = parse(&doc! { "a": 1, "z": 1 }).unwrap().compare(doc.as_doc(), doc.as_doc());
    assert_eq!(order.unwrap(), Ordering::Equal);
}

#[test]
fn wrong_patterns_are_refused_in_the_words_of_mongod() {
    let code = |pattern: DocBuf| parse(&pattern).unwrap_err();
    assert_eq!(
        code(doc! { "a": "x" }),
        (15974, "Illegal key in $sort specification: a: \"x\"".to_owned())
    );
    assert_eq!(code(doc! { "a": 0 }).0, 15975);
    assert_eq!(code(doc! { "a": 2 }).0, 15975);
    assert_eq!(code(doc! { "a": f64::NAN }).0, 15975);
    assert_eq!(code(doc! { "a": {} }).0, 17312);
    assert_eq!(
        code(doc! { "a": { "$meta": 1 } }),
        (31138, "Illegal $meta sort: $meta: 1".to_owned())
    );
    assert_eq!(code(doc! { "a": { "$meta": "textScore", "b": 1 } }).0, 9);
    assert_eq!(code(doc! { "a": { "$meta": "searchScore" } }).0, 31218);
    assert_eq!(code(doc! { "": 1 }).0, 40352);
    assert_eq!(code(doc! { "a.": 1 }).0, 40353);
    assert_eq!(code(doc! { "a..b": 1 }).0, 15998);
    assert_eq!(code(doc! { "$a": 1 }).0, 16410);
    let many = |count: usize| {
        DocBuf::build(|out| {
            (0..count).for_each(|at| {
                out.append(format!("f{at}"), 1);
            })
        })
    };
    assert_eq!(code(many(33)).0, 13103);
    assert_eq!(parse(&many(32)).unwrap().parts().len(), 32);
    assert!(parse(&doc! { "a": 1.5, "b": -1.5, "c": { "$meta": "randVal" } }).is_ok());
}

/// Recorded from mongod 6.0: an array element that a path chooses by number is an array that the
/// path reaches, also if the path ends there.
#[test]
fn parts_that_meet_two_arrays_are_refused() {
    let docs = [doc! { "b": [[1], 1, [2]] }, doc! { "b": [[], { "a": 1 }, []] }];
    for (pattern, is_refused) in [
        (doc! { "b.2": 1, "b.0": 1 }, true),
        (doc! { "b": 1, "b.0": 1, "b.2": 1 }, true),
        (doc! { "b.a": 1, "b.0": 1, "b.2": 1 }, true),
        (doc! { "b.0": 1, "b.2.a": 1 }, true),
        (doc! { "b.0": 1, "b.0.a": 1, "b.2": 1 }, true),
        (doc! { "b.a": 1, "b.0": 1 }, false),
        (doc! { "b.0": 1, "b.1": 1 }, false),
        (doc! { "b.0": 1, "b.0.a": 1 }, false),
        (doc! { "c.0": 1, "b.0": 1 }, false),
    ] {
        let parsed = parse(&pattern).unwrap();
        for doc in &docs {
            let outcome = parsed.write_key(doc.as_doc(), &mut Vec::new());
            assert_eq!(outcome.is_err(), is_refused, "{} of {}", pattern.as_doc(), doc.as_doc());
        }
    }
}
