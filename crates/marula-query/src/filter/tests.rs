//! Filters compared with mongod's results.
//!
//! `tests/recorded.jsonl` was recorded from mongod 6.0.27 with generated documents and filters. Its
//! first line holds the documents; each other line a filter (with a collation, perhaps) and either
//! the `_id`s found, the `parsedQuery` of `explain` and the result of a positional projection of
//! `v`, or the error.
//!
//! A few lines have no `explain` or no positional result on purpose: where mongod adds conditions
//! derived from `$expr`, and in `$or` within `$or` and constants within `$nor`, which it simplifies
//! in several passes whose order is visible.

mod ends;

use marula_bson::{Doc, Value, ext_json};

use super::{Filter, Purpose};
use crate::collation::Collation;
use crate::context::Context;

const RECORDED: &str = include_str!("tests/recorded.jsonl");

/// A check of a recorded line; returns the difference, if any.
type Check = fn(&[Doc<'_>], Doc<'_>, &Filter) -> Result<(), String>;

fn context(case: Doc<'_>) -> Context {
    let collation = case.get("collation").and_then(|spec| spec.as_doc());
    let collation = collation.and_then(|spec| Collation::parse(spec, "x").unwrap());
    Context { collation, ..Context::default() }
}

/// Runs `check` on every line that has a field `field`, and reports the first differences.
fn check_lines(field: &str, count_min: usize, check: Check) {
    let mut lines = RECORDED.lines();
    let head = ext_json::parse(lines.next().unwrap()).unwrap();
    let docs: Vec<Doc<'_>> = head
        .as_doc()
        .get("docs")
        .and_then(|docs| docs.as_array())
        .unwrap()
        .values()
        .map(|doc| doc.as_doc().unwrap())
        .collect();
    let (mut count, mut differences) = (0, Vec::new());
    for (number, line) in (2..).zip(lines) {
        let case = ext_json::parse(line).unwrap();
        let case = case.as_doc();
        if case.get(field).is_none() {
            continue;
        }
        count += 1;
        let filter = case.get("filter").and_then(|filter| filter.as_doc()).unwrap();
        let outcome = Filter::parse_for_positions(filter, &context(case))
            .map_err(|error| format!("{error}"))
            .and_then(|parsed| check(&docs, case, &parsed));
        if let Err(difference) = outcome {
            differences.push(format!("line {number}: {filter}: {difference}"));
        }
    }
    assert!(count >= count_min, "only {count} lines have {field}");
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences[..differences.len().min(60)].join("\n")
    );
}

fn id(doc: Doc<'_>) -> i64 {
    doc.get("_id").and_then(|id| id.as_exact_i64()).unwrap()
}

#[test]
fn filters_match_the_documents_that_mongod_finds() {
    check_lines("ids", 3000, |docs, case, filter| {
        let wanted: Vec<i64> = match case.get("ids") {
            Some(Value::Array(ids)) => ids.values().filter_map(|id| id.as_exact_i64()).collect(),
            _ => docs.iter().map(|doc| id(*doc)).collect(),
        };
        let mut found = Vec::new();
        for doc in docs {
            if filter.matches(*doc).map_err(|error| error.to_string())? {
                found.push(id(*doc));
            }
        }
        if found == wanted {
            return Ok(());
        }
        let extra: Vec<_> = found.iter().filter(|id| !wanted.contains(id)).collect();
        let missing: Vec<_> = wanted.iter().filter(|id| !found.contains(id)).collect();
        Err(format!("too many {extra:?}, too few {missing:?}"))
    });
}

#[test]
fn filters_print_as_explain_shows_them() {
    check_lines("explain", 3000, |_, case, filter| {
        let wanted = case.get("explain").and_then(|explain| explain.as_doc()).unwrap();
        let printed = filter.to_doc();
        if printed.as_doc() == wanted {
            return Ok(());
        }
        Err(format!("printed {} instead of {wanted}", printed.as_doc()))
    });
}

#[test]
fn filters_note_the_array_element_that_matched() {
    check_lines("positional", 300, |docs, case, filter| {
        for shown in case.get("positional").and_then(|pairs| pairs.as_array()).unwrap().values() {
            let mut pair = shown.as_array().unwrap().values();
            let wanted_id = pair.next().and_then(|id| id.as_exact_i64()).unwrap();
            let wanted = pair.next().unwrap();
            let doc = *docs.iter().find(|doc| id(**doc) == wanted_id).unwrap();
            let Some(array) = doc.get("v").and_then(|v| v.as_array()) else { continue };
            let mut position = None;
            let matched = filter.matches_noting_as_written(doc, &mut position);
            assert!(matched.is_ok_and(|matched| matched), "{wanted_id} matches");
            let element = position.and_then(|at| array.values().nth(at));
            let wanted = wanted.as_array().and_then(|shown| shown.values().next());
            if element.map(|value| value.to_buf()) != wanted.map(|value| value.to_buf()) {
                return Err(format!("{wanted_id}: noted {position:?}, wanted {wanted:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn wrong_filters_are_refused_in_the_words_of_mongod() {
    let mut differences = Vec::new();
    let mut count = 0;
    for line in RECORDED.lines().skip(1) {
        let case = ext_json::parse(line).unwrap();
        let case = case.as_doc();
        let Some(Value::Int32(code)) = case.get("code") else { continue };
        count += 1;
        let filter = case.get("filter").and_then(|filter| filter.as_doc()).unwrap();
        let message = case.get("message").and_then(|message| message.as_str()).unwrap();
        let outcome = match Filter::parse(filter, &context(case)) {
            Ok(_) => "no error".to_owned(),
            Err(error) if error.code().number() == code && message == error.message() => continue,
            Err(error) => error.to_string(),
        };
        differences.push(format!("{filter}: {outcome} instead of {code}: {message}"));
    }
    assert!(count > 300, "only {count} lines have an error");
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences[..differences.len().min(80)].join("\n")
    );
}

#[test]
fn filters_of_one_shape_share_a_hash() {
    let hash = |text: &str| {
        let doc = ext_json::parse(text).unwrap();
        Filter::parse(doc.as_doc(), &Context::default()).unwrap().shape_hash()
    };
    let same = [
        [r#"{"a": 1, "b": {"$gt": 2}}"#, r#"{"b": {"$gt": 7}, "a": 2.5}"#],
        [r#"{"$or": [{"a": 1, "b": 1}]}"#, r#"{"$and": [{"a": 2}, {"b": 3}]}"#],
        [r#"{"a": {"$in": [3]}}"#, r#"{"a": 1}"#],
        [r#"{"a": 1}"#, r#"{"a": null}"#],
        [r#"{"a": {"$in": [3, 4]}}"#, r#"{"a": {"$in": [null, "x", 5]}}"#],
        [r#"{"$or": [{"a": 1}, {"b": 1, "c": 1}]}"#, r#"{"$or": [{"c": 2, "b": "x"}, {"a": 2}]}"#],
    ];
    let different = [
        [r#"{"a": 1}"#, r#"{"b": 1}"#],
        [
            r#"{"a": {"$in": [3, 4]}}"#,
            r#"{"a": {"$in": [3, {"$regularExpression": {"pattern": "x", "options": ""}}]}}"#,
        ],
        [r#"{"a": {"$gt": 1}}"#, r#"{"a": {"$gte": 1}}"#],
        [r#"{"$or": [{"a": 1}, {"b": 1}]}"#, r#"{"$and": [{"a": 1}, {"b": 1}]}"#],
        [r#"{"a": {"$elemMatch": {"b": 1}}}"#, r#"{"a": {"$elemMatch": {"c": 1}}}"#],
    ];
    for [a, b] in same {
        assert_eq!(hash(a), hash(b), "{a} and {b}");
    }
    for [a, b] in different {
        assert_ne!(hash(a), hash(b), "{a} and {b}");
    }
}

#[test]
fn an_or_of_very_many_branches_is_joined_at_once() {
    let branches: Vec<String> = (0..60_000).map(|at| format!("{{\"f{at}\": 1}}")).collect();
    let text = format!("{{\"$or\": [{}]}}", branches.join(","));
    let doc = ext_json::parse(&text).unwrap();
    let filter = Filter::parse(doc.as_doc(), &Context::default()).unwrap();
    let matching = ext_json::parse(r#"{"f59999": 1}"#).unwrap();
    assert!(filter.matches(matching.as_doc()).unwrap());
}

/// The trees in `explain` of mongod 6.0: of a query, and of a `$match` after another stage.
#[test]
fn a_stage_keeps_the_order_of_the_text() {
    let check = |filter: &str, query: &str, stage: &str| {
        let doc = ext_json::parse(filter).unwrap();
        let context = Context::default();
        let draft = Filter::draft(doc.as_doc(), Purpose::Any, &context).unwrap();
        let filter = draft.finish_for_stage(&context).unwrap();
        let shown =
            [filter.to_doc(), filter.for_stage().to_doc()].map(|it| it.as_doc().to_string());
        let wanted = [query, stage].map(|text| ext_json::parse(text).unwrap().as_doc().to_string());
        assert_eq!(shown, wanted, "{}", doc.as_doc());
    };
    check(
        r#"{"$and": [{"$and": [{"b": 1}, {"c": 2}]}, {"d": {"$size": 1}}, {"a": {"$gt": 5}}]}"#,
        r#"{"$and": [{"d": {"$size": 1}}, {"b": {"$eq": 1}}, {"c": {"$eq": 2}}, {"a": {"$gt": 5}}]}"#,
        r#"{"$and": [{"d": {"$size": 1}}, {"a": {"$gt": 5}}, {"b": {"$eq": 1}}, {"c": {"$eq": 2}}]}"#,
    );
    check(
        r#"{"a": {"$all": [1, 2], "$gt": 3}, "b": 1}"#,
        r#"{"$and": [{"a": {"$eq": 1}}, {"a": {"$eq": 2}}, {"b": {"$eq": 1}}, {"a": {"$gt": 3}}]}"#,
        r#"{"$and": [{"a": {"$gt": 3}}, {"b": {"$eq": 1}}, {"a": {"$eq": 1}}, {"a": {"$eq": 2}}]}"#,
    );
    check(
        r#"{"$expr": {"$eq": ["$b", {"$const": 1}]}, "a": 1}"#,
        r#"{"$and": [{"a": {"$eq": 1}}, {"$expr": {"$eq": ["$b", {"$const": 1}]}}]}"#,
        r#"{"$and": [{"a": {"$eq": 1}}, {"b": {"$_internalExprEq": 1}}, {"$expr": {"$eq": ["$b", {"$const": 1}]}}]}"#,
    );
    // Equalities are joined on the path of the first one, and for a stage once more.
    check(
        r#"{"$or": [{"a": 0}, {"b": 1}, {"a": 2}, {"b": 3}]}"#,
        r#"{"$or": [{"b": {"$eq": 1}}, {"b": {"$eq": 3}}, {"a": {"$in": [0, 2]}}]}"#,
        r#"{"$or": [{"b": {"$in": [1, 3]}}, {"a": {"$in": [0, 2]}}]}"#,
    );
    check(
        r#"{"$or": [{"z": 0}, {"a": 1}, {"b": 2}, {"a": 3}]}"#,
        r#"{"$or": [{"a": {"$eq": 1}}, {"a": {"$eq": 3}}, {"b": {"$eq": 2}}, {"z": {"$eq": 0}}]}"#,
        r#"{"$or": [{"z": {"$eq": 0}}, {"a": {"$eq": 1}}, {"b": {"$eq": 2}}, {"a": {"$eq": 3}}]}"#,
    );
    check(
        r#"{"$or": [{"w": null}, {"v": 1}, {"$or": [{"w": null}, {"v": 2}]}]}"#,
        r#"{"$or": [{"v": {"$eq": 1}}, {"v": {"$eq": 2}}, {"w": {"$in": [null]}}]}"#,
        r#"{"$or": [{"w": {"$eq": null}}, {"v": {"$eq": 1}}, {"v": {"$eq": 2}}]}"#,
    );
}
