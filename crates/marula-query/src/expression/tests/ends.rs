//! Every operator can be interrupted, however long its input is.
//!
//! The tables list a call of each operator. An operator on long input is called once with it and
//! must count its work. An operator on numbers, dates and similar values is called for each element
//! of a long array.

use std::collections::BTreeSet;

use marula_bson::{Doc, ext_json};
use marula_error::{Result, codes};

use super::super::operators::FAMILIES;
use super::super::{Arena, Expression, Frame, Scope};
use crate::context::Context;
use crate::feature_version::FeatureVersion;
use crate::meter;
use crate::meter::tests::{EndsAfter, long_document};

/// Calls with long input.
const LONG: &[(&str, &str)] = &[
    ("$allElementsTrue", r#"["$list"]"#),
    ("$anyElementTrue", r#"["$zeros"]"#),
    ("$arrayElemAt", r#"["$list", -1]"#),
    ("$arrayToObject", r#""$pairs""#),
    ("$avg", r#""$list""#),
    ("$binarySize", r#""$text""#),
    ("$bsonSize", r#""$$ROOT""#),
    ("$concat", r#"["$text", "$text"]"#),
    ("$concatArrays", r#"["$list", "$list"]"#),
    ("$filter", r#"{"input": "$list", "cond": true}"#),
    ("$first", r#""$list""#),
    ("$firstN", r#"{"n": 9, "input": "$list"}"#),
    ("$function", r#"{"body": "function() { for (;;) {} }", "args": [], "lang": "js"}"#),
    ("$in", r#"[-1, "$list"]"#),
    ("$indexOfArray", r#"["$list", -1]"#),
    ("$indexOfBytes", r#"["$text", "c"]"#),
    ("$indexOfCP", r#"["$text", "c"]"#),
    ("$isArray", r#"["$list"]"#),
    ("$last", r#""$list""#),
    ("$lastN", r#"{"n": 9, "input": "$list"}"#),
    ("$ltrim", r#"{"input": "$text", "chars": "ab"}"#),
    ("$map", r#"{"input": "$list", "in": 1}"#),
    ("$max", r#""$list""#),
    ("$maxN", r#"{"n": 9, "input": "$list"}"#),
    ("$median", r#"{"input": "$list", "method": "approximate"}"#),
    ("$mergeObjects", r#"["$$ROOT", "$$ROOT"]"#),
    ("$min", r#""$list""#),
    ("$minN", r#"{"n": 9, "input": "$list"}"#),
    ("$objectToArray", r#""$$ROOT""#),
    ("$percentile", r#"{"input": "$list", "p": [0.5], "method": "approximate"}"#),
    ("$range", "[0, 1000000]"),
    ("$reduce", r#"{"input": "$list", "initialValue": 0, "in": 1}"#),
    ("$regexFind", r#"{"input": "$text", "regex": "[^c]*+[cd]"}"#),
    ("$regexFindAll", r#"{"input": "$text", "regex": "[ab]"}"#),
    ("$regexMatch", r#"{"input": "$text", "regex": "[^c]*+[cd]"}"#),
    ("$replaceAll", r#"{"input": "$text", "find": "a", "replacement": "c"}"#),
    ("$replaceOne", r#"{"input": "$text", "find": "c", "replacement": "d"}"#),
    ("$reverseArray", r#""$list""#),
    ("$rtrim", r#"{"input": "$text", "chars": "ab"}"#),
    ("$setDifference", r#"["$list", []]"#),
    ("$setEquals", r#"["$list", "$list"]"#),
    ("$setIntersection", r#"["$list", "$list"]"#),
    ("$setIsSubset", r#"["$list", "$list"]"#),
    ("$setUnion", r#"["$list", "$list"]"#),
    ("$size", r#""$list""#),
    ("$slice", r#"["$list", 100000]"#),
    ("$sortArray", r#"{"input": "$list", "sortBy": -1}"#),
    ("$split", r#"["$text", "a"]"#),
    ("$stdDevPop", r#""$list""#),
    ("$stdDevSamp", r#""$list""#),
    ("$strLenBytes", r#""$text""#),
    ("$strLenCP", r#""$text""#),
    ("$strcasecmp", r#"["$text", "$text"]"#),
    ("$substr", r#"["$text", 1, -1]"#),
    ("$substrBytes", r#"["$text", 1, 100000]"#),
    ("$substrCP", r#"["$text", 1, 100000]"#),
    ("$sum", r#""$list""#),
    ("$toHashedIndexKey", r#""$list""#),
    ("$toLower", r#""$text""#),
    ("$toString", r#""$text""#),
    ("$toUpper", r#""$text""#),
    ("$trim", r#"{"input": "$text", "chars": "ab"}"#),
    ("$zip", r#"{"inputs": ["$list", "$list"]}"#),
    ("$_internalFindAllValuesAtPath", r#""list""#),
];

/// Calls with short input.
const SHORT: &[(&str, &str)] = &[
    ("$abs", "1"),
    ("$acos", "1"),
    ("$acosh", "1"),
    ("$add", "[1, 2]"),
    ("$and", "[true, false]"),
    ("$asin", "1"),
    ("$asinh", "1"),
    ("$atan", "1"),
    ("$atan2", "[1, 1]"),
    ("$atanh", "0"),
    ("$bitAnd", "[1, 2]"),
    ("$bitNot", "1"),
    ("$bitOr", "[1, 2]"),
    ("$bitXor", "[1, 2]"),
    ("$ceil", "1.5"),
    ("$cmp", "[1, 2]"),
    ("$cond", "[true, 1, 2]"),
    ("$const", "1"),
    ("$convert", r#"{"input": 1, "to": "string"}"#),
    ("$cos", "1"),
    ("$cosh", "1"),
    ("$dateAdd", r#"{"startDate": "$date", "unit": "day", "amount": 1}"#),
    ("$dateDiff", r#"{"startDate": "$date", "endDate": "$date", "unit": "day"}"#),
    ("$dateFromParts", r#"{"year": 2020}"#),
    ("$dateFromString", r#"{"dateString": "Jan 1st 2020, 10 pm"}"#),
    ("$dateSubtract", r#"{"startDate": "$date", "unit": "day", "amount": 1}"#),
    ("$dateToParts", r#"{"date": "$date"}"#),
    ("$dateToString", r#"{"date": "$date"}"#),
    ("$dateTrunc", r#"{"date": "$date", "unit": "day"}"#),
    ("$dayOfMonth", r#""$date""#),
    ("$dayOfWeek", r#""$date""#),
    ("$dayOfYear", r#""$date""#),
    ("$degreesToRadians", "1"),
    ("$divide", "[1, 2]"),
    ("$eq", "[1, 2]"),
    ("$exp", "1"),
    ("$floor", "1.5"),
    ("$getField", r#"{"field": "a", "input": {"a": 1}}"#),
    ("$gt", "[1, 2]"),
    ("$gte", "[1, 2]"),
    ("$hour", r#""$date""#),
    ("$ifNull", "[null, 1]"),
    ("$isNumber", "1"),
    ("$isoDayOfWeek", r#""$date""#),
    ("$isoWeek", r#""$date""#),
    ("$isoWeekYear", r#""$date""#),
    ("$let", r#"{"vars": {"a": 1}, "in": "$$a"}"#),
    ("$literal", "1"),
    ("$ln", "1"),
    ("$log", "[8, 2]"),
    ("$log10", "1"),
    ("$lt", "[1, 2]"),
    ("$lte", "[1, 2]"),
    ("$millisecond", r#""$date""#),
    ("$minute", r#""$date""#),
    ("$mod", "[5, 2]"),
    ("$month", r#""$date""#),
    ("$multiply", "[5, 2]"),
    ("$ne", "[5, 2]"),
    ("$not", "[true]"),
    ("$or", "[true, false]"),
    ("$pow", "[5, 2]"),
    ("$radiansToDegrees", "1"),
    ("$rand", "{}"),
    ("$round", "[1.5]"),
    ("$second", r#""$date""#),
    ("$setField", r#"{"field": "a", "input": {"b": 1}, "value": 1}"#),
    ("$sin", "1"),
    ("$sinh", "1"),
    ("$sqrt", "4"),
    ("$subtract", "[1, 2]"),
    ("$switch", r#"{"branches": [{"case": true, "then": 1}]}"#),
    ("$tan", "1"),
    ("$tanh", "1"),
    ("$toBool", "1"),
    ("$toDate", "0"),
    ("$toDecimal", "1"),
    ("$toDouble", "1"),
    ("$toInt", "1"),
    ("$toLong", "1"),
    ("$toObjectId", r#""507f1f77bcf86cd799439011""#),
    ("$toUUID", r#""00000000-0000-4000-8000-000000000000""#),
    ("$trunc", "[1.5]"),
    ("$tsIncrement", r#"{"$literal": {"$timestamp": {"t": 1, "i": 1}}}"#),
    ("$tsSecond", r#"{"$literal": {"$timestamp": {"t": 1, "i": 1}}}"#),
    ("$type", "1"),
    ("$unsetField", r#"{"field": "a", "input": {"b": 1}}"#),
    ("$week", r#""$date""#),
    ("$year", r#""$date""#),
];

/// Functions whose work is done by the engine, not by their own code.
const FUNCTIONS: &[&str] = &[
    "function(a) { return 1 }",
    "function(a) { return a }",
    "function() { const a = []; for (let i = 0; i < 3e6; i++) a.push(i); return a }",
    "function() { const a = {}; for (let i = 0; i < 1e6; i++) a['f' + i] = 1; return a }",
    "function() { const b = BinData(0, 'AAAA'.repeat(2e6)); for (;;) b.hex() }",
    "function() { const b = 'AAAA'.repeat(2e6); for (;;) BinData(0, b).base64() }",
    "function() { const a = 'ab'.repeat(4e6); for (;;) a.replaceAll('a', 'cc') }",
    "function() { const a = 'ab'.repeat(4e6); for (;;) a.replace(/b/g, 'c') }",
    "function() { const a = 'ab'.repeat(4e6); for (;;) a.split('a').join('c') }",
    "function() { const a = 'a'.repeat(5e7), b = 'a'.repeat(1e6) + 'b'; for (;;) a.indexOf(b) }",
    "function() { const a = 'a'.repeat(5e7), b = 'a'.repeat(1e6) + 'b'; for (;;) a.lastIndexOf(b) }",
    "function() { return /(a+a+)+b/.test('a'.repeat(300)) }",
    "function() { return 'a'.repeat(300).match(/(a|b|ab)*c/) }",
    "function() { for (;;) 'ab'.repeat(3e7).padEnd(9e7, 'cd').padStart(1e8) }",
    "function() { const a = 3n ** 50000n; for (;;) { const b = a * a } }",
    "function() { const a = []; for (let i = 0; i < 1e6; i++) a.push((i * 7919) % 1e6); for (;;) a.sort() }",
    "function() { const a = new Array(3e6).fill(1); for (;;) a.reverse().indexOf(2) }",
    "function() { const a = new Array(1e6).fill({x: 1}); for (;;) JSON.stringify(a) }",
    "function() { const a = JSON.stringify(new Array(1e6).fill({x: 1})); for (;;) JSON.parse(a) }",
    "function() { for (;;) tojson(new Array(1e5).fill(NumberLong(5))) }",
    "function() { sleep(3600000) }",
];

/// Operators that read metadata, which no document has here.
const NEVER_RUN: &[&str] = &["$meta"];

fn parse(text: &str, context: &Context) -> Result<Expression> {
    let spec = ext_json::parse(&format!(r#"{{"e": {text}}}"#)).expect(text);
    Expression::parse(spec.as_doc().get("e").unwrap(), &mut Scope::new(context))
}

/// An environment in which every operator exists, including those of later releases.
fn newest() -> Context {
    Context { version: FeatureVersion::V8_0, ..Context::default() }
}

/// Every call with long input, and every short call for each element of a long array.
fn calls() -> impl Iterator<Item = String> {
    let calls = LONG.iter().map(|(name, argument)| format!(r#"{{"{name}": {argument}}}"#));
    let each = SHORT.iter().map(|(name, argument)| {
        format!(r#"{{"$map": {{"input": "$list", "in": {{"{name}": {argument}}}}}}}"#)
    });
    calls.chain(each)
}

/// The result of an expression whose operation must end at once.
fn end_of(text: &str, doc: Doc<'_>) -> Result<()> {
    let context = newest();
    let expression = parse(text, &context)?;
    let arena = Arena::new();
    let _metered = meter::begin(EndsAfter::questions(0));
    let evaluated = expression.eval(&Frame::new(doc, &arena, &context));
    evaluated.map(drop)
}

#[test]
fn every_operator_has_its_place_in_the_table() {
    let rows = FAMILIES.iter().flat_map(|rows| rows.iter());
    let rows: BTreeSet<&str> = rows.map(|row| row.name).collect();
    let known = LONG.iter().chain(SHORT).map(|(name, _)| *name);
    let known: BTreeSet<&str> = known.chain(NEVER_RUN.iter().copied()).collect();
    let missing: Vec<_> = rows.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_operator_ends_when_its_operation_must() {
    let document = long_document();
    let mut wrong = Vec::new();
    for call in calls() {
        match end_of(&call, document.as_doc()) {
            Err(error) if error.code() == codes::Interrupted => {}
            other => wrong.push(format!("{call}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_operator_ends_soon_after_its_limit() {
    let document = long_document();
    let context = newest();
    let late: Vec<String> = calls()
        .filter(|call| {
            let expression = parse(call, &context).expect(call);
            !meter::tests::is_in_time(|| {
                let arena = Arena::new();
                let frame = Frame::new(document.as_doc(), &arena, &context);
                expression.eval(&frame).map(drop).ok();
            })
        })
        .collect();
    assert!(late.is_empty(), "{}", late.join("\n"));
}

#[test]
fn every_function_of_javascript_ends_soon_after_its_limit() {
    let document = long_document();
    let context = newest();
    let late: Vec<&&str> = FUNCTIONS
        .iter()
        .filter(|body| {
            let text = format!(
                r#"{{"$function": {{"body": "{body}", "args": ["$list"], "lang": "js"}}}}"#
            );
            let expression = parse(&text, &context).expect(body);
            !meter::tests::is_in_time(|| {
                let arena = Arena::new();
                let frame = Frame::new(document.as_doc(), &arena, &context);
                expression.eval(&frame).map(drop).ok();
            })
        })
        .collect();
    assert!(late.is_empty(), "{late:#?}");
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_written() {
    let long = r#"{"$range": [0, 100000]}"#;
    let document = long_document();
    for (text, code) in [
        (format!(r#"{{"$map": {{"input": {long}, "in": {long}}}}}"#), 146),
        (r#"{"$map": {"input": "$list", "in": "$text"}}"#.to_owned(), 13548),
        (r#"{"$zip": {"inputs": ["$list", "$list"], "x": 1}}"#.to_owned(), 34464),
        (
            r#"{"$replaceAll": {"input": "$text", "find": "a", "replacement": "$text"}}"#
                .to_owned(),
            13548,
        ),
        (r#"{"$concat": ["$text", "$text", "$text", "$text", "$text", "$text", "$text", "$text", "$text"]}"#.to_owned(), 16493),
        (r#"{"$reduce": {"input": "$list", "initialValue": "x", "in": {"$concat": ["$$value", "$$value"]}}}"#.to_owned(), 16493),
        (r#"{"$reduce": {"input": "$list", "initialValue": ["x"], "in": {"$concatArrays": ["$$value", "$$value"]}}}"#.to_owned(), 13548),
    ] {
        let context = Context::default();
        let expression = parse(&text, &context).and_then(|expression| {
            let arena = Arena::new();
            expression.eval(&Frame::new(document.as_doc(), &arena, &context)).map(drop)
        });
        let error = expression.expect_err(&text);
        assert_eq!(error.code().number(), code, "{text}: {error}");
    }
}
