//! Geometry in filters compared with mongod's results.
//!
//! `tests/recorded.jsonl` was recorded from mongod 6.0.27, with generated places all over the
//! globe, in a city, near the origin of the plane, and at whole degrees, where points lie on
//! borders. Its first line holds the documents; each other line a filter and either the `_id`s
//! found or the error.

use marula_bson::{Doc, Value, ext_json};

use crate::context::Context;
use crate::filter::Filter;

const RECORDED: &str = include_str!("tests/recorded.jsonl");

fn id(doc: Doc<'_>) -> i64 {
    doc.get("_id").and_then(|id| id.as_exact_i64()).unwrap()
}

/// The result in the form of the recorded line.
fn answer(filter: Doc<'_>, docs: &[Doc<'_>]) -> Result<Vec<i64>, (i32, String)> {
    let filter = Filter::parse(filter, &Context::default())
        .map_err(|error| (error.code().number(), error.message().to_owned()))?;
    Ok(docs.iter().filter(|doc| filter.matches(**doc).unwrap()).map(|doc| id(*doc)).collect())
}

#[test]
fn places_are_found_and_refused_as_by_mongod() {
    let mut lines = RECORDED.lines();
    let head = ext_json::parse(lines.next().unwrap()).unwrap();
    let docs = head.as_doc().get("docs").and_then(|docs| docs.as_array()).unwrap();
    let docs: Vec<Doc<'_>> = docs.values().map(|doc| doc.as_doc().unwrap()).collect();
    let (mut count, mut differences) = (0, Vec::new());
    for line in lines {
        let case = ext_json::parse(line).unwrap();
        let case = case.as_doc();
        let filter = case.get("filter").and_then(|filter| filter.as_doc()).unwrap();
        let wanted = match (case.get("ids"), case.get("code"), case.get("message")) {
            (Some(Value::Array(ids)), _, _) => {
                Ok(ids.values().filter_map(|id| id.as_exact_i64()).collect())
            }
            (_, Some(Value::Int32(code)), Some(Value::String(text))) => {
                Err((code, text.to_string()))
            }
            _ => panic!("a line without an answer: {line}"),
        };
        count += 1;
        let found = answer(filter, &docs);
        if found != wanted {
            differences.push(format!("{filter}\n   {found:?}\n   instead of {wanted:?}"));
        }
    }
    assert!(count > 900, "only {count} lines");
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences[..differences.len().min(40)].join("\n")
    );
}

/// mongod's results: left of a polygon, a point is found where the crossing of an edge overflows.
#[test]
fn a_polygon_with_a_corner_far_away_holds_points_beside_it() {
    for (corners, point, is_inside) in [
        (vec![[f64::MAX, 0.5], [0.0, 2.0], [2.0, 0.5]], [-0.5, 2.0], true),
        (vec![[f64::MAX, 0.5], [0.0, 2.0], [2.0, 0.5]], [-0.5, 2.1], false),
        (vec![[f64::MAX, -5.0], [5.0, 5.0], [5.0, -5.0], [10.0, 0.0]], [1.0, 5.0], true),
        (vec![[1e9, 0.5], [0.0, 2.0], [2.0, 0.5]], [-0.5, 2.0], false),
    ] {
        let text = format!("{{\"p\": {{\"$geoWithin\": {{\"$polygon\": {corners:?}}}}}}}");
        let filter = ext_json::parse(&text).unwrap();
        let filter = Filter::parse(filter.as_doc(), &Context::default()).unwrap();
        let doc = ext_json::parse(&format!("{{\"p\": {point:?}}}")).unwrap();
        assert_eq!(filter.matches(doc.as_doc()).unwrap(), is_inside, "{text} {point:?}");
    }
}
