//! Every operator of filters ends when its operation must, however long the document is.

use std::collections::BTreeSet;

use marula_bson::ext_json;

use super::super::{Filter, parse};
use crate::context::Context;
use crate::meter;
use crate::meter::tests::{is_in_time, long_document};

/// A filter with each operator, which looks at all of a long value.
const FILTERS: &[(&str, &str)] = &[
    ("$all", r#"{"list": {"$all": [1, 200000, -1]}}"#),
    ("$alwaysFalse", r#"{"$alwaysFalse": 1}"#),
    ("$alwaysTrue", r#"{"$alwaysTrue": 1}"#),
    ("$and", r#"{"$and": [{"list": 200000}, {"list": -1}]}"#),
    ("$bitsAllClear", r#"{"list": {"$bitsAllClear": 262143}}"#),
    ("$bitsAllSet", r#"{"list": {"$bitsAllSet": [60]}}"#),
    ("$bitsAnyClear", r#"{"list": {"$bitsAnyClear": 0}}"#),
    ("$bitsAnySet", r#"{"list": {"$bitsAnySet": [60]}}"#),
    ("$comment", r#"{"$comment": "x"}"#),
    ("$elemMatch", r#"{"pairs": {"$elemMatch": {"v": -1, "k": {"$regex": "^x"}}}}"#),
    ("$eq", r#"{"list": {"$eq": -1}}"#),
    ("$exists", r#"{"pairs.x": {"$exists": true}}"#),
    ("$expr", r#"{"$expr": {"$in": [-1, "$list"]}}"#),
    (
        "$geoIntersects",
        r#"{"pairs": {"$geoIntersects": {"$geometry": {"type": "Point", "coordinates": [1, 1]}}}}"#,
    ),
    ("$geoWithin", r#"{"pairs": {"$geoWithin": {"$centerSphere": [[0, 0], 0.1]}}}"#),
    ("$gt", r#"{"list": {"$gt": 1000000}}"#),
    ("$gte", r#"{"list": {"$gte": 1000000}}"#),
    (
        "$in",
        r#"{"pairs.k": {"$in": ["x", "y", {"$regularExpression": {"pattern": "^x", "options": ""}}]}}"#,
    ),
    (
        "$jsonSchema",
        r#"{"$jsonSchema": {"properties": {"list": {"uniqueItems": true, "items": {"minimum": 0}}, "pairs": {"uniqueItems": true}}}}"#,
    ),
    ("$lt", r#"{"list": {"$lt": -1}}"#),
    ("$lte", r#"{"list": {"$lte": -1}}"#),
    ("$mod", r#"{"list": {"$mod": [1000000, 999999]}}"#),
    ("$ne", r#"{"list": {"$ne": -1}}"#),
    (
        "$nin",
        r#"{"pairs.k": {"$nin": ["x", {"$regularExpression": {"pattern": "^x", "options": ""}}]}}"#,
    ),
    ("$nor", r#"{"$nor": [{"list": -1}, {"pairs.v": -1}]}"#),
    ("$not", r#"{"pairs.v": {"$not": {"$gt": 1000000}}}"#),
    ("$or", r#"{"$or": [{"list": -1}, {"pairs.v": -1}, {"pairs.k": "x"}]}"#),
    ("$regex", r#"{"text": {"$regex": "[^c]*+[cd]"}}"#),
    ("$sampleRate", r#"{"$sampleRate": 0.5}"#),
    ("$size", r#"{"list": {"$size": 1}}"#),
    ("$type", r#"{"list": {"$type": "string"}}"#),
    ("$where", r#"{"$where": "function() { for (;;) {} }"}"#),
    ("$within", r#"{"pairs": {"$within": {"$box": [[0, 0], [1, 1]]}}}"#),
];

/// Operators that never run here, with the reason.
const NEVER_RUN: &[(&str, &str)] = &[("$text", "an index evaluates it")];

#[test]
fn every_operator_is_in_the_table() {
    let rows: BTreeSet<&str> = parse::operator_names().collect();
    let known: BTreeSet<&str> = FILTERS.iter().chain(NEVER_RUN).map(|(name, _)| *name).collect();
    let missing: Vec<_> = rows.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_operator_ends_soon_after_its_limit() {
    let document = long_document();
    let late: Vec<&str> = FILTERS
        .iter()
        .filter(|(name, text)| {
            let filter = ext_json::parse(text).expect(name);
            let filter = Filter::parse(filter.as_doc(), &Context::default()).expect(name);
            !is_in_time(|| {
                // An executor checks once a document.
                while filter.matches(document.as_doc()).is_ok() && meter::settle().is_ok() {}
            })
        })
        .map(|(name, _)| *name)
        .collect();
    assert!(late.is_empty(), "{late:?}");
}
