//! Projections, compared with a real server's results.
//!
//! `tests/recorded.bson` is a sequence of documents, recorded from mongod 6.0.27 over generated
//! documents and projections: `d` the document, `q` the query, `p` the projection, `g` whether it
//! was a `$project` stage; and the result: `r` the document shown, or `e` with the error's code and
//! message, without the prefix that a command adds.

use marula_bson::{Doc, Value, doc};

use super::*;
use crate::filter::Filter;

static RECORDED: &[u8] = include_bytes!("tests/recorded.bson");

/// Iterates over the documents of a file.
fn documents(mut bytes: &[u8]) -> impl Iterator<Item = Doc<'_>> {
    std::iter::from_fn(move || {
        let length = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length))?;
        let (doc, rest) = bytes.split_at(length as usize);
        bytes = rest;
        Some(Doc::trusted(doc))
    })
}

fn sub<'a>(record: Doc<'a>, name: &str) -> Doc<'a> {
    match record.get(name) {
        Some(Value::Document(doc) | Value::Array(doc)) => doc,
        _ => Doc::EMPTY,
    }
}

fn run(record: Doc<'_>) -> Result<Vec<u8>> {
    let context = Context::default();
    let is_stage = record.get("g").is_some();
    let policy = if is_stage { Policy::Aggregate } else { Policy::Find };
    let mut projection = Projection::parse(sub(record, "p"), policy, &context)?;
    projection.optimize(&context)?;
    let filter = Filter::parse(sub(record, "q"), &context)?;
    let doc = sub(record, "d");
    let mut position = None;
    assert!(filter.matches_noting_as_written(doc, &mut position)?);
    let mut out = Vec::new();
    projection.apply(doc, position, &Metadata::default(), &context, &mut out)?;
    Ok(out)
}

fn difference(record: Doc<'_>) -> Option<String> {
    let error = record.get("e").and_then(|error| error.as_doc());
    match (run(record), error) {
        (Err(error), Some(expected)) => {
            let code = expected.get("c").and_then(|code| code.as_exact_i64());
            let message = expected.get("m").and_then(|text| text.as_str());
            let same = code == Some(i64::from(error.code().number()))
                && message.is_some_and(|message| message == error.message());
            (!same).then(|| format!("{error:?} instead of {expected}"))
        }
        (Err(error), None) => Some(format!("{error:?} instead of {}", sub(record, "r"))),
        (Ok(out), Some(error)) => Some(format!("{} instead of {error}", Doc::trusted(&out))),
        (Ok(out), None) => {
            let expected = sub(record, "r");
            (out != expected.as_bytes())
                .then(|| format!("{} instead of {expected}", Doc::trusted(&out)))
        }
    }
}

#[test]
fn projections_show_what_mongod_shows() {
    let mut count = 0;
    let mut differences = Vec::new();
    for record in documents(RECORDED) {
        count += 1;
        if let Some(difference) = difference(record) {
            let (doc, query, projection) = (sub(record, "d"), sub(record, "q"), sub(record, "p"));
            let stage = if record.get("g").is_some() { " in a stage" } else { "" };
            differences.push(format!("{doc} ? {query} | {projection}{stage}\n    {difference}"));
        }
    }
    assert!(count > 1000, "the file is there");
    let shown = differences.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} of {count} differ:\n{shown}", differences.len());
}

#[test]
fn a_projection_tells_what_it_reads() {
    let context = Context::default();
    for (spec, needs, plain) in [
        (doc! {}, None, false),
        (doc! { "a": 1 }, Some("a _id"), true),
        (doc! { "a": { "b": 1 }, "_id": 0 }, Some("a.b"), true),
        (doc! { "a": 0 }, None, false),
        (doc! { "a": "$b.c", "_id": 0 }, Some("b.c"), false),
        (doc! { "a": "$$ROOT" }, None, false),
        (doc! { "a": { "$slice": 1 }, "b": 1 }, Some("a b _id"), false),
    ] {
        let projection = Projection::parse(spec.as_doc(), Policy::Find, &context).unwrap();
        let found = projection
            .needs()
            .map(|paths| paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        assert_eq!(found.as_deref(), needs, "{spec:?}");
        assert_eq!(projection.is_plain_inclusion(), plain, "{spec:?}");
    }
}
