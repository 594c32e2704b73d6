//! Updates, compared with a real server's results.
//!
//! `tests/recorded.bson` is a sequence of documents, recorded from mongod 6.0.27 over generated
//! documents, queries and updates: `d` the document, `q` the query, `u` the update, `f` the array
//! filters, `x` whether it was an upsert into an empty collection; and the result: `r` the document
//! afterwards (of an upsert without the `_id` that the server made) and `n` whether it counted as
//! modified, or `e` with the error's code and message.

mod ends;

use marula_bson::{Doc, DocBuf, Value, doc};

use super::*;
use crate::filter::{Filter, Purpose};

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

/// Applies a record's update: returns whether it modified the document, and the document
/// afterwards.
fn run(record: Doc<'_>) -> Result<(bool, Vec<u8>)> {
    let context = Context::default();
    let query = sub(record, "q");
    let options = UpdateOptions {
        array_filters: record.get("f").and_then(|filters| filters.as_array()),
        ..UpdateOptions::default()
    };
    let update =
        Update::parse(record.get("u").expect("a record has an update"), &options, &context)?;
    let is_upsert = record.get("x").is_some();
    let purpose = if is_upsert { Purpose::Upsert } else { Purpose::Any };
    let filter = Filter::draft(query, purpose, &context)?.finish(&context)?;
    let mut out = Vec::new();
    if is_upsert {
        update.upsert(&filter, &context, &mut out)?;
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

/// Returns the difference to a record's result, if there is one.
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

/// Returns a context with a fixed time and a variable.
fn moment() -> Context {
    Context { now_ms: 1_600_000_000_500, ..Context::default() }
}

fn applied(update: Value<'_>, old: &DocBuf, options: &UpdateOptions<'_>) -> Result<DocBuf> {
    let context = moment();
    let update = Update::parse(update, options, &context)?;
    let mut out = Vec::new();
    let applied = update.apply(old.as_doc(), &Matched::default(), &context, &mut out)?;
    Ok(if applied.changed { DocBuf::trusted(out) } else { old.clone() })
}

const PLAIN: UpdateOptions<'static> = UpdateOptions {
    array_filters: None,
    constants: None,
    multi: false,
    empty_timestamps: EmptyTimestamps::Filled,
    origin: Origin::Client,
};

#[test]
fn the_current_time_comes_from_the_context() {
    let seconds = 1_600_000_000_u64;
    let old = doc! { "_id": 1 };
    let update = doc! { "$currentDate": { "a": true, "b": { "$type": "timestamp" } } };
    let new = applied(Value::from(&update), &old, &PLAIN).unwrap();
    assert_eq!(new.as_doc().get("a"), Some(Value::DateTime(1_600_000_000_500)));
    assert_eq!(new.as_doc().get("b"), Some(Value::Timestamp(seconds << 32 | 1)));

    // Only top-level fields, and only zero.
    let replacement = doc! {
        "a": Value::Timestamp(0),
        "b": { "c": Value::Timestamp(0) },
        "d": Value::Timestamp(7),
    };
    let new = applied(Value::from(&replacement), &old, &PLAIN).unwrap();
    let expected = doc! {
        "_id": 1,
        "a": Value::Timestamp(seconds << 32 | 1),
        "b": { "c": Value::Timestamp(0) },
        "d": Value::Timestamp(7),
    };
    assert_eq!(new, expected);

    // Not if the client asks to keep it.
    let kept = UpdateOptions { empty_timestamps: EmptyTimestamps::Kept, ..PLAIN };
    let new = applied(Value::from(&replacement), &old, &kept).unwrap();
    assert_eq!(new.as_doc().get("a"), Some(Value::Timestamp(0)));
}

#[test]
fn pipelines_and_options_are_checked() {
    let old = doc! { "_id": 1, "a": 2 };
    let pipeline = doc! { "p": [{ "$set": { "b": "$$x" } }, { "$unset": "a" }] };
    let constants = doc! { "x": 5 };
    let filters = doc! { "0": { "i": 1 } };
    let stages = pipeline.as_doc().get("p").unwrap();
    let with_constants = UpdateOptions { constants: Some(constants.as_doc()), ..PLAIN };
    assert_eq!(applied(stages, &old, &with_constants).unwrap(), doc! { "_id": 1, "b": 5 });
    assert_eq!(applied(stages, &old, &PLAIN).unwrap_err().code().number(), 17276);
    let set = doc! { "$set": { "a": 1 } };
    let replacement = doc! { "a": 1 };
    let with_filters = UpdateOptions { array_filters: Some(filters.as_doc()), ..PLAIN };
    let multi = UpdateOptions { multi: true, ..PLAIN };
    for (update, options, code) in [
        (Value::from(&set), with_constants, 51198),
        (stages, with_filters, 9),
        (Value::from(&replacement), multi, 9),
        (Value::Int32(1), PLAIN, 9),
    ] {
        let error = applied(update, &old, &options).unwrap_err();
        assert_eq!(error.code().number(), code, "{error:?}");
    }
    for (stage, code) in [
        (doc! { "p": [{ "$match": {} }] }, 72),
        (doc! { "p": [{ "$nope": {} }] }, 40324),
        (doc! { "p": [{ "$set": { "_id": 2 } }] }, 66),
        (doc! { "p": [{ "$set": { "_id": [1] } }] }, 53),
    ] {
        let error = applied(stage.as_doc().get("p").unwrap(), &old, &PLAIN).unwrap_err();
        assert_eq!(error.code().number(), code, "{error:?}");
    }
}

#[test]
fn depth_size_and_padding_have_limits() {
    let old = doc! { "_id": 1, "a": [1] };
    let set = |path: &str, value: Value<'_>| {
        let update = DocBuf::build(|update| {
            update.begin_doc("$set").append(path, value);
        });
        applied(Value::from(&update), &old, &PLAIN).map_err(|error| error.code().number())
    };
    let path = |count: usize| vec!["y"; count].join(".");
    assert!(set(&path(180), Value::Null).is_ok());
    assert_eq!(set(&path(181), Value::Null), Err(15));
    assert_eq!(set(&path(100_000), Value::Null), Err(15));
    let nested = doc! { "b": 1 };
    assert!(set(&path(179), Value::from(&nested)).is_ok());
    assert_eq!(set(&path(180), Value::from(&nested)), Err(15));
    assert!(set("a.1500001", Value::Null).is_ok());
    assert_eq!(set("a.1500002", Value::Null), Err(34));
    let text = "x".repeat(16 * 1024 * 1024);
    assert_eq!(set("b", Value::from(text.as_str())), Err(17419));
    // Two notations of one index.
    let update = doc! { "$set": { "a.0": 5, "a.00": 6 } };
    assert_eq!(applied(Value::from(&update), &old, &PLAIN).unwrap_err().code().number(), 40);
}

/// A law over values of every type: a filter for the value that `$set` wrote matches, whatever the
/// path.
#[test]
fn a_set_value_is_found() {
    let id = marula_bson::ObjectId::from_bytes([7; 12]);
    let inner = doc! { "x": 1, "y": [1, 2] };
    let array = doc! { "0": 1, "1": "a" };
    let values = [
        Value::Int32(7),
        Value::Int64(1 << 40),
        Value::Double(-0.0),
        Value::Double(f64::NAN),
        Value::Decimal128("1.50".parse().expect("a decimal")),
        Value::from("text"),
        Value::Boolean(false),
        Value::Null,
        Value::MinKey,
        Value::MaxKey,
        Value::DateTime(i64::MIN),
        Value::Timestamp(1),
        Value::ObjectId(id),
        Value::Document(inner.as_doc()),
        Value::Array(array.as_doc()),
    ];
    let documents = [
        doc! { "_id": 1 },
        doc! { "_id": 1, "a": { "b": "old" } },
        doc! { "_id": 1, "a": [{ "b": 1 }, 2], "z": 1 },
    ];
    let context = Context::default();
    let options = UpdateOptions::default();
    for (value, document) in values.iter().flat_map(|v| documents.iter().map(move |d| (v, d))) {
        for path in ["c", "c.d.e", "a.0.b", "z"] {
            let set = DocBuf::build(|out| {
                out.append("_id", 1);
                out.append(path, *value);
            });
            let filter = Filter::parse(set.as_doc(), &context).expect("equalities");
            let set = DocBuf::build(|out| {
                out.begin_doc("$set").append(path, *value);
            });
            let update = Value::Document(set.as_doc());
            let update = Update::parse(update, &options, &context).expect("a good update");
            let mut out = Vec::new();
            let applied = update.apply(document.as_doc(), &Matched::default(), &context, &mut out);
            if applied.expect("the path is viable").changed {
                let after = Doc::trusted(&out);
                assert!(filter.matches(after).expect("no expression"), "{set:?} made {after:?}");
            }
        }
    }
}
