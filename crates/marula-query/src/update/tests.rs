//! Updates, replayed as a real server answered them.
//!
//! `tests/recorded.bson` holds documents one after another, recorded from mongod 6.0.27 over generated documents,
//! queries and updates: `d` the document, `q` the query, `u` the update, `f` the array filters, `x` whether it
//! was an upsert into an empty collection; and the answer: `r` the document afterwards (of an upsert without
//! the `_id` that the server made) and `n` whether it counted as modified, or `e` with the error's code and message.

use marula_bson::{Doc, Value};

use super::*;
use crate::filter::Filter;

static RECORDED: &[u8] = include_bytes!("tests/recorded.bson");

/// The documents of a file of documents.
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

/// What the update makes of a record: modified or not, and the document afterwards.
fn run(record: Doc<'_>) -> Result<(bool, Vec<u8>)> {
    let context = Context::default();
    let query = sub(record, "q");
    let options = UpdateOptions {
        array_filters: record.get("f").and_then(|filters| filters.as_array()),
        constants: None,
        multi: false,
    };
    let update =
        Update::parse(record.get("u").expect("a record has an update"), &options, &context)?;
    let filter = Filter::parse(query, &context)?;
    let mut out = Vec::new();
    if record.get("x").is_some() {
        check_upsert_query(query)?;
        update.upsert(query, &context, &mut out)?;
        return Ok((true, out));
    }
    let doc = sub(record, "d");
    let mut matched = Matched::default();
    assert!(filter.matches_noting(doc, &mut matched.position)?, "{query}");
    let applied = update.apply(doc, &matched, &context, &mut out)?;
    if !applied.changed {
        assert!(out.is_empty());
        out.extend_from_slice(doc.as_bytes());
    }
    Ok((applied.changed, out))
}

/// What is wrong with the answer to a record, if anything.
fn difference(record: Doc<'_>) -> Option<String> {
    let answer = run(record);
    let error = record.get("e").and_then(|error| error.as_doc());
    match (answer, error) {
        (Err(error), Some(expected)) => {
            let code = expected.get("c").and_then(|code| code.as_exact_i64());
            let message = expected.get("m").and_then(|text| text.as_str());
            let same = code == Some(i64::from(error.code().number()))
                && message.is_some_and(|message| message == error.message());
            (!same).then(|| format!("{error:?} instead of {expected}"))
        }
        (Err(error), None) => Some(format!("{error:?} instead of {}", sub(record, "r"))),
        (Ok((_, out)), Some(error)) => Some(format!("{} instead of {error}", Doc::trusted(&out))),
        (Ok((modified, out)), None) => {
            let expected = sub(record, "r");
            let was_modified = record.get("n").is_none_or(|flag| flag.is_truthy());
            let same = out == expected.as_bytes() && modified == was_modified;
            (!same).then(|| {
                let out = Doc::trusted(&out);
                format!("{modified} {out} instead of {was_modified} {expected}")
            })
        }
    }
}

#[test]
fn updates_do_what_mongod_does() {
    let mut count = 0;
    let mut differences = Vec::new();
    for record in documents(RECORDED) {
        count += 1;
        if let Some(difference) = difference(record) {
            let (doc, query, update) = (sub(record, "d"), sub(record, "q"), sub(record, "u"));
            let filters = sub(record, "f");
            differences.push(format!("{doc} ? {query} ! {update} {filters}\n    {difference}"));
        }
    }
    assert!(count > 1000, "the file is there");
    let shown = differences.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} of {count} differ:\n{shown}", differences.len());
}
