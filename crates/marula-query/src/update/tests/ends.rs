//! Every operator of updates ends when its operation must, however long the document is.

use std::collections::BTreeSet;

use marula_bson::ext_json;

use super::super::{Matched, Update, UpdateOptions, operator};
use crate::context::Context;
use crate::meter::tests::{is_in_time, long_document};

/// An update with each operator, of long values; `MANY` means twenty thousand numbers.
const UPDATES: &[(&str, &str)] = &[
    ("$addToSet", r#"{"$addToSet": {"list": {"$each": [MANY]}}}"#),
    ("$addToSet", r#"{"$addToSet": {"pairs": {"k": "x", "v": 1}}}"#),
    ("$bit", r#"{"$bit": {"list.$[]": {"xor": 1}}}"#),
    ("$currentDate", r#"{"$currentDate": {"list.$[]": true}}"#),
    ("$inc", r#"{"$inc": {"pairs.$[].v": 1}}"#),
    ("$max", r#"{"$max": {"list.$[]": 1000000}}"#),
    ("$min", r#"{"$min": {"list.$[]": 5}}"#),
    ("$mul", r#"{"$mul": {"list.$[one]": 2}}"#),
    ("$pop", r#"{"$pop": {"list": -1}}"#),
    ("$pull", r#"{"$pull": {"pairs": {"k": {"$regex": "(a|b|ab)*c"}, "v": {"$gt": 5}}}}"#),
    ("$pullAll", r#"{"$pullAll": {"list": [MANY]}}"#),
    ("$pullAll", r#"{"$pullAll": {"pairs": [{"k": "1"}, MANY]}}"#),
    ("$push", r#"{"$push": {"list": {"$each": [MANY], "$sort": -1, "$slice": 5000}}}"#),
    ("$push", r#"{"$push": {"pairs": {"$each": [], "$sort": {"k": 1}}}}"#),
    ("$rename", r#"{"$rename": {"list": "renamed"}}"#),
    ("$set", r#"{"$set": {"pairs.$[one].v": 1}}"#),
    ("$setOnInsert", r#"{"$setOnInsert": {"x": 1}}"#),
    ("$unset", r#"{"$unset": {"pairs.$[].v": 1}}"#),
];

fn many() -> String {
    let numbers: Vec<String> = (300_000..320_000).map(|number: i32| number.to_string()).collect();
    numbers.join(",")
}

#[test]
fn every_operator_is_in_the_table() {
    let rows: BTreeSet<&str> = operator::names().collect();
    let known: BTreeSet<&str> = UPDATES.iter().map(|(name, _)| *name).collect();
    let missing: Vec<_> = rows.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_operator_ends_soon_after_its_limit() {
    let document = long_document();
    let filters = ext_json::parse(r#"{"f": [{"$and": [{"one": {"$exists": true}}]}]}"#).unwrap();
    let filters = filters.as_doc().get("f").and_then(|filters| filters.as_array());
    let many = many();
    let late: Vec<&str> = UPDATES
        .iter()
        .filter(|(_, text)| {
            let spec = ext_json::parse(&format!(r#"{{"u": {}}}"#, text.replace("MANY", &many)));
            let spec = spec.expect(text);
            let has_filter = text.contains("[one]");
            let options = UpdateOptions {
                array_filters: filters.filter(|_| has_filter),
                ..UpdateOptions::default()
            };
            let context = Context::default();
            let update = spec.as_doc().get("u").expect("it is there");
            let update = Update::parse(update, &options, &context).expect(text);
            !is_in_time(|| {
                let matched = Matched::default();
                update.apply(document.as_doc(), &matched, &context, &mut Vec::new()).map(drop).ok();
            })
        })
        .map(|(_, text)| *text)
        .collect();
    assert!(late.is_empty(), "{late:?}");
}
