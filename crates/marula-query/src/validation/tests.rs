//! Validators, compared with mongod.
//!
//! `tests/recorded.jsonl` was recorded from mongod 6.0.27. Its first line has documents. Each other
//! line has a validator, and either the error of `create`, or which documents were stored and which
//! were not, those with the `details` of their failure.
//!
//! Not included: how mongod reports `properties` with dotted names that lead through arrays of
//! documents, where one element decides the match and another is shown.

use marula_bson::{Doc, Value, ext_json};
use marula_error::Result;

use super::{allowed, failure};
use crate::context::Context;
use crate::filter::Filter;

const RECORDED: &str = include_str!("tests/recorded.jsonl");

fn context() -> Context {
    // Some time after 2020, for `$$NOW`.
    Context { now_ms: 1_700_000_000_000, ..Context::default() }
}

fn parse(validator: Doc<'_>) -> Result<Filter> {
    let filter = Filter::parse_as_written(validator, &context());
    allowed::check(validator)?;
    filter
}

/// A check of a line; returns the differences.
type Check = fn(&[Doc<'_>], Doc<'_>, Doc<'_>) -> Vec<String>;

/// Runs `check` on every line that has the field `field`, and fails with the first differences.
fn check_lines(field: &str, count_min: usize, check: Check) {
    let mut lines = RECORDED.lines();
    let head = ext_json::parse(lines.next().unwrap()).unwrap();
    let docs = head.as_doc().get("docs").and_then(|docs| docs.as_array()).unwrap();
    let docs: Vec<Doc<'_>> = docs.values().map(|doc| doc.as_doc().unwrap()).collect();
    let (mut count, mut differences) = (0, Vec::new());
    for line in lines {
        let case = ext_json::parse(line).unwrap();
        let case = case.as_doc();
        if case.get(field).is_none() {
            continue;
        }
        count += 1;
        let validator = case.get("validator").and_then(|validator| validator.as_doc()).unwrap();
        let found = check(&docs, validator, case).into_iter();
        differences.extend(found.map(|difference| format!("{validator}: {difference}")));
    }
    assert!(count >= count_min, "only {count} lines have {field}");
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences[..differences.len().min(60)].join("\n")
    );
}

/// Returns the document with a number.
fn numbered<'d>(docs: &[Doc<'d>], number: Option<Value<'_>>) -> Doc<'d> {
    docs[usize::try_from(number.and_then(|number| number.as_exact_i64()).unwrap()).unwrap()]
}

fn holds(filter: &Filter, doc: Doc<'_>) -> bool {
    filter.matches_as_written(doc).unwrap_or(false)
}

#[test]
fn validators_hold_for_the_documents_that_mongod_stores() {
    check_lines("matched", 300, |docs, validator, case| {
        let filter = parse(validator).unwrap();
        let matched = case.get("matched").and_then(|matched| matched.as_array()).unwrap();
        let matched = matched.values().map(|number| numbered(docs, Some(number)));
        matched
            .filter(|doc| !holds(&filter, *doc))
            .map(|doc| format!("{doc} does not match"))
            .collect()
    });
}

#[test]
fn failures_are_reported_as_in_mongod() {
    check_lines("failed", 300, |docs, validator, case| {
        let filter = parse(validator).unwrap();
        let mut differences = Vec::new();
        for pair in case.get("failed").and_then(|failed| failed.as_array()).unwrap().values() {
            let mut pair = pair.as_array().unwrap().values();
            let doc = numbered(docs, pair.next());
            let wanted = pair.next().unwrap();
            if holds(&filter, doc) {
                differences.push(format!("{doc} matches"));
                continue;
            }
            let info = failure(validator, &context(), doc).unwrap();
            let details = info.as_doc().get("details").unwrap();
            let is_noted = info.as_doc().get("note").is_some();
            let is_error = wanted.as_doc().is_some_and(|error| error.get("errmsg").is_some());
            if details.to_buf() != wanted.to_buf() || is_noted != is_error {
                differences.push(format!("{doc}:\n   {details}\n   {wanted}"));
            }
        }
        differences
    });
}

#[test]
fn wrong_validators_are_refused_in_the_words_of_mongod() {
    check_lines("code", 300, |_, validator, case| {
        let code = case.get("code").and_then(|code| code.as_exact_i64()).unwrap();
        let message = case.get("message").and_then(|message| message.as_str()).unwrap();
        match parse(validator) {
            Ok(_) => vec![format!("no error instead of {code}: {message}")],
            Err(error)
                if i64::from(error.code().number()) == code && message == error.message() =>
            {
                Vec::new()
            }
            Err(error) => vec![format!("{error} instead of {code}: {message}")],
        }
    });
}

/// Checks the fields of the failure of a document with a long string.
fn check_large(validator: &str, length: usize, fields: &[&str]) {
    let validator = ext_json::parse(validator).unwrap();
    let doc =
        ext_json::parse(&format!("{{\"_id\": 1, \"a\": [\"{}\"]}}", "x".repeat(length))).unwrap();
    let info = failure(validator.as_doc(), &context(), doc.as_doc()).unwrap();
    let names: Vec<String> = info.as_doc().iter().map(|field| field.name.to_string()).collect();
    assert_eq!(names, fields, "{validator:?} {length}");
}

#[test]
fn a_report_that_is_too_large_loses_its_values_and_then_its_details() {
    let full = ["failingDocumentId", "details"];
    let truncated = ["failingDocumentId", "truncated", "details"];
    let noted = ["failingDocumentId", "note"];
    check_large(r#"{"a": {"$type": "int"}}"#, 12_000_000, &full);
    check_large(r#"{"a": {"$type": "int"}}"#, 12_600_000, &truncated);
    check_large(r#"{"a": {"$type": "int"}, "a.0": {"$eq": 1}}"#, 6_000_000, &full);
    check_large(r#"{"a": {"$type": "int"}, "a.0": {"$eq": 1}}"#, 6_300_000, &truncated);
    let schema = r#"{"$jsonSchema": {"properties": {"a": {"minItems": 2}}}}"#;
    check_large(schema, 12_000_000, &full);
    check_large(schema, 12_600_000, &noted);
}

#[test]
fn a_report_stops_at_its_limit_though_every_clause_shows_the_document() {
    let clauses = vec![r#"{"a": {"$type": "int"}}"#; 2000].join(",");
    check_large(
        &format!("{{\"$and\": [{clauses}]}}"),
        1_000_000,
        &["failingDocumentId", "truncated", "details"],
    );
    let schemas = vec![r#"{"properties": {"a": {"maxItems": 0}}}"#; 2000].join(",");
    check_large(
        &format!("{{\"$jsonSchema\": {{\"allOf\": [{schemas}]}}}}"),
        1_000_000,
        &["failingDocumentId", "note"],
    );
}
