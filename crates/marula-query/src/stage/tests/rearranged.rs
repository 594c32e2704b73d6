//! Rearranged pipelines: the new order of stages, and that the result stays the same.

use marula_bson::{Doc, DocBuf, Value, doc, ext_json};
use marula_error::Result;
use proptest::prelude::*;
use proptest::sample::select;

use super::{Documents, Pipeline, STAGE_BYTES_MAX, Step, env};
use crate::context::Context;
use crate::stage::Kind;

/// Parses a pipeline written as JSON.
fn parse(stages: &str) -> Pipeline {
    let text = format!("{{\"p\": {stages}}}");
    let spec = ext_json::parse(&text).expect("it is JSON");
    let stages = spec.as_doc().get("p").and_then(|value: Value<'_>| value.as_array());
    Pipeline::parse(stages.expect("it is an array"), &Context::default()).expect("it is right")
}

/// Returns the stages in printed form, without a `$match` at the front, which is printed as the
/// query that it becomes.
fn shown(pipeline: &Pipeline) -> DocBuf {
    let printed = pipeline.print();
    let stages = printed.get().as_array().expect("stages are an array");
    DocBuf::build(|out| {
        let mut array = out.begin_array("p");
        for (at, (stage, printed)) in pipeline.stages().iter().zip(stages.values()).enumerate() {
            match stage.kind() {
                Kind::Match(filter) if at == 0 => {
                    array.push(&doc! { "$match": (&filter.to_doc()) })
                }
                _ => array.push(printed),
            };
        }
    })
}

/// Checks the rearranged form of a pipeline.
fn check(stages: &str, expected: &str) {
    let rearranged = parse(stages).rearranged(&Context::default());
    let expected = ext_json::parse(&format!("{{\"p\": {expected}}}")).expect("it is JSON");
    assert_eq!(shown(&rearranged).as_doc().to_string(), expected.as_doc().to_string(), "{stages}");
}

/// Forms that `explain` of mongod 6.0 shows.
#[test]
fn conditions_move_to_the_front() {
    let eq = r#"{"$match": {"a": {"$eq": 1}}}"#;
    let z = r#"{"$match": {"z": {"$eq": 2}}}"#;
    for (stage, printed) in [
        (r#"{"$sort": {"b": 1}}"#, r#"{"$sort": {"sortKey": {"b": 1}}}"#),
        (r#"{"$addFields": {"z": 1}}"#, r#"{"$addFields": {"z": {"$const": 1}}}"#),
        (r#"{"$unwind": "$z"}"#, r#"{"$unwind": {"path": "$z"}}"#),
        (r#"{"$project": {"a": 1}}"#, r#"{"$project": {"_id": true, "a": true}}"#),
        (r#"{"$project": {"z": 0}}"#, r#"{"$project": {"z": false, "_id": true}}"#),
        (
            r#"{"$lookup": {"from": "o", "localField": "x", "foreignField": "y", "as": "z"}}"#,
            r#"{"$lookup": {"from": "o", "as": "z", "localField": "x", "foreignField": "y"}}"#,
        ),
    ] {
        check(&format!("[{stage}, {eq}]"), &format!("[{eq}, {printed}]"));
        if !stage.contains("$sort") {
            check(
                &format!(r#"[{stage}, {{"$match": {{"a": 1, "z": 2}}}}]"#),
                &format!("[{eq}, {printed}, {z}]"),
            );
            let either = r#"{"$match": {"$or": [{"a": {"$eq": 1}}, {"z": {"$eq": 2}}]}}"#;
            check(&format!("[{stage}, {either}]"), &format!("[{printed}, {either}]"));
        }
    }
    // A search's metadata, which no document has, is the same before any stage.
    let score = r#"{"$match": {"$expr": {"$gt": [{"$meta": "searchScore"}, {"$const": 0}]}}}"#;
    let group = r#"{"$group": {"_id": "$z"}}"#;
    check(&format!("[{group}, {score}]"), &format!("[{score}, {group}]"));
    let limit = r#"{"$limit": {"$numberLong": "3"}}"#;
    check(&format!("[{limit}, {eq}]"), &format!("[{limit}, {eq}]"));
    check(
        r#"[{"$match": {"a": 1}}, {"$sort": {"b": 1}}, {"$match": {"z": 2}}]"#,
        r#"[{"$match": {"$and": [{"a": {"$eq": 1}}, {"z": {"$eq": 2}}]}},
            {"$sort": {"sortKey": {"b": 1}}}]"#,
    );
}

#[test]
fn conditions_follow_a_field_to_its_name_before() {
    check(
        r#"[{"$addFields": {"z": "$a"}}, {"$match": {"z.d": 2, "a": 1}}]"#,
        r#"[{"$match": {"$and": [{"a": {"$eq": 1}}, {"a.d": {"$eq": 2}}]}},
            {"$addFields": {"z": "$a"}}]"#,
    );
    check(
        r#"[{"$project": {"z": "$a"}}, {"$match": {"z": 2, "a": 1}}]"#,
        r#"[{"$match": {"a": {"$eq": 2}}}, {"$project": {"_id": true, "z": "$a"}},
            {"$match": {"a": {"$eq": 1}}}]"#,
    );
    let deep = r#"[{"$addFields": {"z": "$a.b"}}, {"$match": {"z": {"$eq": 2}}}]"#;
    check(deep, deep);
}

#[test]
fn conditions_on_the_key_of_a_group_choose_its_documents() {
    let group = r#"{"$group": {"_id": "$a", "n": {"$sum": "$b"}}}"#;
    check(
        &format!(r#"[{group}, {{"$sort": {{"n": -1}}}}, {{"$match": {{"_id": 1, "n": 3}}}}]"#),
        &format!(
            r#"[{{"$match": {{"a": {{"$eq": 1}}}}}}, {group}, {{"$match": {{"n": {{"$eq": 3}}}}}},
                {{"$sort": {{"sortKey": {{"n": -1}}}}}}]"#
        ),
    );
    let pair = r#"{"$group": {"_id": {"x": "$a", "y": "$b"}}}"#;
    check(
        &format!(r#"[{pair}, {{"$match": {{"_id.x": 1}}}}]"#),
        &format!(r#"[{{"$match": {{"a": {{"$eq": 1}}}}}}, {pair}]"#),
    );
    // The key of a document without the field is null, which exists.
    for stays in
        [r#"{"$match": {"_id": {"$exists": true}}}"#, r#"{"$match": {"_id": {"$type": [10]}}}"#]
    {
        check(&format!("[{group}, {stays}]"), &format!("[{group}, {stays}]"));
    }
}

#[test]
fn limits_and_sorts_move_to_the_front() {
    let number = |count: u32| format!(r#"{{"$numberLong": "{count}"}}"#);
    let sort = |count: u32| {
        format!(r#"{{"$sort": {{"sortKey": {{"a": 1}}, "limit": {}}}}}"#, number(count))
    };
    let by_a = r#"{"$sort": {"a": 1}}"#;
    check(
        r#"[{"$sort": {"a": 1}}, {"$addFields": {"z": "$b"}}, {"$skip": 1}, {"$limit": 3}]"#,
        &format!(r#"[{}, {{"$skip": {}}}, {{"$addFields": {{"z": "$b"}}}}]"#, sort(4), number(1)),
    );
    let lookup = r#"{"$lookup": {"from": "o", "as": "z", "localField": "x", "foreignField": "y"}}"#;
    check(&format!(r#"[{lookup}, {by_a}, {{"$limit": 3}}]"#), &format!("[{}, {lookup}]", sort(3)));
    let unwind = r#"{"$unwind": {"path": "$t"}}"#;
    let sorted = r#"{"$sort": {"sortKey": {"a": 1}}}"#;
    check(&format!("[{unwind}, {by_a}]"), &format!("[{sorted}, {unwind}]"));
    check(
        &format!(r#"[{unwind}, {by_a}, {{"$match": {{"t": 1}}}}, {{"$limit": 3}}]"#),
        &format!(
            r#"[{sorted}, {unwind}, {{"$match": {{"t": {{"$eq": 1}}}}}}, {{"$limit": {}}}]"#,
            number(3)
        ),
    );
    check(
        r#"[{"$sort": {"b": 1}}, {"$sort": {"a": 1}}, {"$limit": 7}, {"$limit": 3}]"#,
        &format!("[{}]", sort(3)),
    );
    check(
        &format!(r#"[{by_a}, {{"$limit": 5}}, {{"$skip": 2}}, {{"$limit": 2}}, {{"$limit": 9}}]"#),
        &format!(r#"[{}, {{"$skip": {}}}]"#, sort(4), number(2)),
    );
    check(r#"[{"$skip": 3}, {"$skip": 4}]"#, &format!(r#"[{{"$skip": {}}}]"#, number(7)));
    let kept = format!(r#"[{{"$skip": {}}}, {{"$limit": {}}}]"#, number(3), number(4));
    check(&kept, &kept);
}

/// Forms that `explain` of mongod 6.0 shows.
#[test]
fn densified_documents_are_in_order() {
    let densify = |partition: &str, bounds: &str| {
        let range = format!(r#"{{"step": {{"$numberInt": "1"}}, "bounds": {bounds}}}"#);
        let fields = format!(r#""field": "d", "partitionByFields": {partition}, "range": {range}"#);
        let order = if partition == "[]" || bounds == "\"full\"" { "" } else { r#""x": 1, "# };
        let sort = format!(r#"{{"$sort": {{"sortKey": {{{order}"d": 1}}}}}}"#);
        let stage = format!("{{\"$densify\": {{{fields}}}}}");
        (stage, format!("{sort}, {{\"$_internalDensify\": {{{fields}}}}}"))
    };
    for (partition, bounds, sort, goes) in [
        ("[]", "\"full\"", r#"{"d": 1}"#, true),
        ("[]", "\"full\"", r#"{"d": -1}"#, false),
        ("[]", "\"full\"", r#"{"d": 1, "_id": 1}"#, false),
        (r#"["x"]"#, "\"partition\"", r#"{"x": 1}"#, true),
        (r#"["x"]"#, "\"partition\"", r#"{"x": 1, "d": 1}"#, true),
        (r#"["x"]"#, "\"partition\"", r#"{"d": 1}"#, false),
        (r#"["x"]"#, "\"full\"", r#"{"d": 1}"#, false),
    ] {
        let (stage, printed) = densify(partition, bounds);
        let left =
            if goes { String::new() } else { format!(r#", {{"$sort": {{"sortKey": {sort}}}}}"#) };
        check(&format!(r#"[{stage}, {{"$sort": {sort}}}]"#), &format!("[{printed}{left}]"));
    }
    let (stage, printed) = densify("[]", "\"full\"");
    let limit = r#"{"$limit": {"$numberLong": "3"}}"#;
    check(
        &format!(r#"[{stage}, {{"$sort": {{"d": 1}}}}, {limit}]"#),
        &format!("[{printed}, {limit}]"),
    );
}

/// Forms that `explain` of mongod 6.0 shows.
#[test]
fn windows_have_a_sort_before_them() {
    let all = r#""window": {"documents": ["unbounded", "unbounded"]}"#;
    let n = format!(r#""output": {{"n": {{"$push": "$c", {all}}}}}"#);
    let windows = |fields: &str| format!(r#"{{"$setWindowFields": {{{fields}{n}}}}}"#);
    let printed = |fields: &str| format!(r#"{{"$_internalSetWindowFields": {{{fields}{n}}}}}"#);
    let sort = |key: &str| format!(r#"{{"$sort": {{"sortKey": {key}}}}}"#);
    for (fields, order) in [
        (r#""partitionBy": "$a", "sortBy": {"b": 1}, "#, r#"{"a": 1, "b": 1}"#),
        (r#""partitionBy": "$a", "sortBy": {"a": -1}, "#, r#"{"a": -1}"#),
        (r#""partitionBy": "$a", "sortBy": {"b": 1, "a": -1}, "#, r#"{"a": -1, "b": 1}"#),
        (r#""partitionBy": "$a.b", "#, r#"{"a.b": 1}"#),
        (r#""sortBy": {"b": -1}, "#, r#"{"b": -1}"#),
    ] {
        let expected = format!("{}, {}", sort(order), printed(fields));
        check(&format!("[{}]", windows(fields)), &format!("[{expected}]"));
    }
    check(&format!("[{}]", windows("")), &format!("[{}]", printed("")));
    let one = r#""partitionBy": {"$add": [1, 2]}, "#;
    check(&format!("[{}]", windows(one)), &format!("[{}]", printed("")));

    let key = "__internal_setWindowFields_partition_key";
    let computed = r#""partitionBy": {"$toLower": "$a"}, "sortBy": {"b": 1}, "#;
    let instead = format!(r#""partitionBy": "${key}", "sortBy": {{"b": 1}}, "#);
    let expected = format!(
        r#"[{{"$addFields": {{"{key}": {{"$toLower": ["$a"]}}}}}}, {}, {}, {{"$project": {{"{key}": false, "_id": true}}}}]"#,
        sort(&format!(r#"{{"{key}": 1, "b": 1}}"#)),
        printed(&instead),
    );
    check(&format!("[{}]", windows(computed)), &expected);

    // A later sort is removed, replaces the one before, or stays.
    let fields = r#""partitionBy": "$a", "sortBy": {"b": 1}, "#;
    let (stage, shown) = (windows(fields), printed(fields));
    let own = r#"{"a": 1, "b": 1}"#;
    let limit = r#"{"$limit": {"$numberLong": "3"}}"#;
    for (later, before, behind) in [
        (r#"{"a": 1}"#, own, false),
        (own, own, false),
        (r#"{"a": 1, "b": 1, "d": -1}"#, r#"{"a": 1, "b": 1, "d": -1}"#, false),
        (r#"{"a": -1}"#, own, true),
        (r#"{"b": 1}"#, own, true),
        (r#"{"a": 1, "c": 1}"#, own, true),
        (r#"{"a": 1, "b": 1, "n": 1}"#, own, true),
        (r#"{"a": 1, "b": 1, "n.x": 1}"#, own, true),
    ] {
        let left = if behind { format!(", {}", sort(later)) } else { String::new() };
        let expected = format!("{}, {shown}{left}", sort(before));
        check(&format!(r#"[{stage}, {{"$sort": {later}}}]"#), &format!("[{expected}]"));
        if !behind {
            let expected = format!("[{expected}, {limit}]");
            check(&format!(r#"[{stage}, {{"$sort": {later}}}, {limit}]"#), &expected);
        }
    }
    let unwind = r#"{"$unwind": {"path": "$c"}}"#;
    let longer = r#"{"a": 1, "b": 1, "d": -1}"#;
    let expected = format!("[{}, {unwind}, {shown}, {}]", sort(own), sort(longer));
    check(&format!(r#"[{unwind}, {stage}, {{"$sort": {longer}}}]"#), &expected);
    let unsorted = windows("");
    check(
        &format!(r#"[{unsorted}, {{"$sort": {{"a": 1}}}}]"#),
        &format!(r#"[{}, {}]"#, printed(""), sort(r#"{"a": 1}"#)),
    );
}

/// Forms that `explain` of mongod 6.0 shows.
#[test]
fn joined_documents_are_unwound_one_by_one() {
    let start = r#"{"$lookup": {"from": "o", "as": "z", "localField": "x", "foreignField": "y""#;
    let plain = r#""unwinding": {"preserveNullAndEmptyArrays": false}"#;
    let unwind = r#"{"$unwind": "$z"}"#;
    let becomes = |behind: &str, expected: &str| {
        check(&format!("[{start}}}}}, {behind}]"), &format!("[{expected}]"));
    };
    becomes(unwind, &format!("{start}, {plain}}}}}"));
    becomes(
        r#"{"$unwind": {"path": "$z", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "i"}},
           {"$match": {"z.d": 1}}"#,
        &format!(
            r#"{start}, "unwinding": {{"preserveNullAndEmptyArrays": true, "includeArrayIndex": "i"}}}}}},
               {{"$match": {{"z.d": {{"$eq": 1}}}}}}"#
        ),
    );
    let piped = |conditions: &str| {
        format!(r#"{start}, "let": {{}}, "pipeline": [{{"$match": {conditions}}}], {plain}}}}}"#)
    };
    becomes(
        &format!(
            r#"{unwind}, {{"$match": {{"z.d": {{"$gt": 1}}, "z": 3, "b": 1}}}}, {{"$match": {{"z.c": 2}}}}"#
        ),
        &format!(
            r#"{{"$match": {{"b": {{"$eq": 1}}}}}}, {}, {{"$match": {{"z": {{"$eq": 3}}}}}}"#,
            piped(r#"{"$and": [{"c": {"$eq": 2}}, {"d": {"$gt": 1}}]}"#)
        ),
    );
    becomes(
        &format!(r#"{unwind}, {{"$match": {{"$or": [{{"z.c": 1}}, {{"z.d.0": 2}}]}}}}"#),
        &piped(r#"{"$or": [{"c": {"$eq": 1}}, {"d.0": {"$eq": 2}}]}"#),
    );
    for stays in [
        r#"{"$match": {"z.d": {"$elemMatch": {"$gt": 1}}}}"#,
        r#"{"$match": {"$or": [{"a": {"$eq": 1}}, {"z.d": {"$eq": 2}}]}}"#,
    ] {
        becomes(&format!("{unwind}, {stays}"), &format!("{start}, {plain}}}}}, {stays}"));
    }
    let expr = r#"{"$expr": {"$eq": ["$z.d", {"$const": 1}]}}"#;
    let says = r#"{"z.d": {"$_internalExprEq": 1}}"#;
    becomes(
        &format!(r#"{unwind}, {{"$match": {expr}}}"#),
        &format!(r#"{start}, {plain}}}}}, {{"$match": {{"$and": [{says}, {expr}]}}}}"#),
    );
    let other = r#"{"$unwind": {"path": "$t"}}"#;
    becomes(other, &format!("{start}}}}}, {other}"));
    becomes(
        r#"{"$match": {"b": 1}}, {"$sort": {"a": 1}}, {"$unwind": "$z"}"#,
        &format!(
            r#"{{"$match": {{"b": {{"$eq": 1}}}}}}, {{"$sort": {{"sortKey": {{"a": 1}}}}}},
               {start}, {plain}}}}}"#
        ),
    );
    let graph = r#"{"$graphLookup": {"from": "o", "as": "z.y", "connectToField": "q", "connectFromField": "k", "startWith": "$a""#;
    check(
        &format!(r#"[{graph}}}}}, {{"$unwind": "$z.y"}}, {{"$match": {{"z.y.d": 1, "b": 1}}}}]"#),
        &format!(
            r#"[{{"$match": {{"b": {{"$eq": 1}}}}}}, {graph}, {plain}}}}},
                {{"$match": {{"z.y.d": {{"$eq": 1}}}}}}]"#
        ),
    );
}

fn value() -> impl Strategy<Value = String> {
    let plain = [
        "null",
        "0",
        "1",
        "2",
        "1.0",
        "\"x\"",
        "[]",
        "[1]",
        "[1, 2]",
        "[[1]]",
        "[null]",
        "{}",
        "{\"d\": 1}",
        "{\"d\": null}",
        "{\"d\": [1, 2]}",
        "[{\"d\": 1}, 2]",
        "[{}, 1]",
    ];
    select(plain.to_vec()).prop_map(str::to_owned)
}

fn path() -> impl Strategy<Value = &'static str> {
    select(&["a", "b", "z", "t", "a.d", "z.d", "b.e", "_id", "_id.d", "_id.x", "n", "t.0"][..])
}

fn document() -> impl Strategy<Value = String> {
    let field = |name: &'static str| {
        prop::option::weighted(0.8, value())
            .prop_map(move |value| value.map(|value| format!("\"{name}\": {value}")))
    };
    (field("a"), field("b"), field("t"), field("z")).prop_map(|fields| {
        let (a, b, t, z) = fields;
        [a, b, t, z].into_iter().flatten().collect::<Vec<_>>().join(", ")
    })
}

fn condition() -> impl Strategy<Value = String> {
    let operator = select(&["$eq", "$ne", "$gt", "$lte", "$in", "$exists", "$type", "$not"][..]);
    let simple = (path(), operator, value()).prop_map(|(path, operator, value)| {
        let operand = match operator {
            "$in" => format!("[{value}, 1]"),
            "$exists" => (value.len() > 3).to_string(),
            "$type" => (if value.len() > 3 { "10" } else { "\"number\"" }).to_owned(),
            "$not" => format!("{{\"$gte\": {value}}}"),
            _ => value,
        };
        format!("{{\"{path}\": {{\"{operator}\": {operand}}}}}")
    });
    let expression = (path(), value()).prop_map(|(path, value)| {
        format!("{{\"$expr\": {{\"$lt\": [\"${path}\", {{\"$literal\": {value}}}]}}}}")
    });
    let leaf = prop_oneof![5 => simple, 1 => expression];
    leaf.prop_recursive(2, 6, 3, |inner| {
        (select(&["$and", "$or", "$nor"][..]), prop::collection::vec(inner, 1..3))
            .prop_map(|(name, list)| format!("{{\"{name}\": [{}]}}", list.join(", ")))
    })
}

/// Generates a `$lookup` of some documents, with an `$unwind` of its array.
fn joined() -> impl Strategy<Value = String> {
    let documents =
        r#"{"$documents": [{"d": 1, "e": 0}, {"d": [1, 2]}, {"e": null}, {"d": {"d": 1}}]}"#;
    let unwinds = [
        r#"{"$unwind": "$z"}"#,
        r#"{"$unwind": "$z"}"#,
        r#"{"$unwind": {"path": "$z", "includeArrayIndex": "n"}}"#,
        r#"{"$unwind": {"path": "$z", "preserveNullAndEmptyArrays": true}}"#,
        r#"{"$unwind": {"path": "$z", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "z.n"}}"#,
    ];
    (value(), select(unwinds.to_vec()), prop::option::of(condition())).prop_map(
        move |(value, unwind, condition)| {
            let given = format!(r#"{{"$match": {{"$expr": {{"$lte": ["$d", {{"$ifNull": ["$$v", {{"$literal": {value}}}]}}]}}}}}}"#);
            let lookup = format!(
                r#"{{"$lookup": {{"let": {{"v": "$b"}}, "pipeline": [{documents}, {given}], "as": "z"}}}}"#
            );
            let condition = condition.map(|it| format!(r#", {{"$match": {it}}}"#));
            format!("{lookup}, {unwind}{}", condition.unwrap_or_default())
        },
    )
}

fn stage() -> impl Strategy<Value = String> {
    let other = [
        r#"{"$addFields": {"z": "$a"}}"#,
        r#"{"$addFields": {"z": "$a", "a": "$b"}}"#,
        r#"{"$addFields": {"a.d": "$b", "n": {"$ifNull": ["$b", 7]}}}"#,
        r#"{"$addFields": {"z": "$missing"}}"#,
        r#"{"$project": {"a": 1, "z": "$b"}}"#,
        r#"{"$project": {"a.d": 1, "b": 1}}"#,
        r#"{"$project": {"z": "$a", "t": "$t", "n": {"$type": "$b"}}}"#,
        r#"{"$project": {"b": 0}}"#,
        r#"{"$project": {"a.d": 0}}"#,
        r#"{"$unset": ["z", "t"]}"#,
        r#"{"$unwind": "$t"}"#,
        r#"{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": true}}"#,
        r#"{"$unwind": {"path": "$t", "includeArrayIndex": "n"}}"#,
        r#"{"$lookup": {"from": "o", "localField": "a", "foreignField": "b", "as": "z"}}"#,
        r#"{"$group": {"_id": "$a", "n": {"$sum": 1}, "b": {"$first": "$b"}}}"#,
        r#"{"$group": {"_id": {"x": "$a"}, "a": {"$last": "$t"}}}"#,
        r#"{"$group": {"_id": {"x": "$a", "d": "$b"}, "n": {"$sum": 1}}}"#,
        r#"{"$sort": {"a": 1, "_id": 1}}"#,
        r#"{"$sort": {"b": -1, "_id": 1}}"#,
        r#"{"$sort": {"_id": -1}}"#,
        r#"{"$limit": 4}"#,
        r#"{"$limit": 2}"#,
        r#"{"$skip": 1}"#,
        r#"{"$skip": 2}"#,
    ];
    prop_oneof![
        2 => condition().prop_map(|condition| format!("{{\"$match\": {condition}}}")),
        3 => select(other.to_vec()).prop_map(str::to_owned),
        1 => joined(),
    ]
}

/// Returns a pipeline's result.
fn answer(pipeline: &Pipeline, documents: &[DocBuf]) -> Result<Vec<DocBuf>> {
    let env = env(STAGE_BYTES_MAX);
    let mut source = pipeline.run(Box::new(Documents::new(documents.to_vec())), &env)?;
    let mut found = Vec::new();
    loop {
        match source.advance()? {
            Step::Document => found.push(source.doc().to_buf()),
            Step::Pause | Step::End => return Ok(found),
        }
    }
}

/// Returns whether a sort failed that came after an `$unwind` that drops all documents: mongod
/// moves it to the front too, and fails in the same way.
fn is_sorted_earlier(got: &Result<Vec<DocBuf>>) -> bool {
    got.as_ref().is_err_and(|error| error.to_string().contains("parallel arrays"))
}

/// Returns whether a sort by `_id` may get documents that it does not order, which then come in any
/// order: arrays that a `$group` made `_id` are ordered by one element.
fn may_tie(stages: &[String], documents: &[DocBuf]) -> bool {
    let groups = |stage: &String| stage.starts_with(r#"{"$group": {"_id": "$a""#);
    let group = stages.iter().position(groups);
    let sorts = |group: usize| stages[group..].iter().any(|stage| stage.starts_with(r#"{"$sort""#));
    let has_array = |doc: &DocBuf| {
        doc.as_doc().iter().any(|element| matches!(element.value.get(), Value::Array(_)))
    };
    // Among the documents unwound from one, the first of two sorts determines the order if the
    // second does not.
    let is_sort = |stage: &&String| stage.starts_with(r#"{"$sort""#);
    let unwind = stages.iter().position(|stage| stage.starts_with(r#"{"$unwind""#));
    let sorts_twice = |unwind: usize| stages[unwind..].iter().filter(is_sort).count() > 1;
    (group.is_some_and(sorts) || unwind.is_some_and(sorts_twice)) && documents.iter().any(has_array)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_result_stays_the_same(
        stages in prop::collection::vec(stage(), 2..7),
        documents in prop::collection::vec(document(), 1..9),
    ) {
        let documents: Vec<DocBuf> = documents
            .iter()
            .enumerate()
            .map(|(id, fields)| {
                let comma = if fields.is_empty() { "" } else { ", " };
                ext_json::parse(&format!("{{\"_id\": {id}{comma}{fields}}}")).expect("it is JSON")
            })
            .collect();
        prop_assume!(!may_tie(&stages, &documents));
        let text = format!("[{}]", stages.join(", "));
        let pipeline = parse(&text);
        let rearranged = pipeline.clone().rearranged(&Context::default());
        // An error of a document that is not in the result may come later or not at all.
        if let Ok(expected) = answer(&pipeline, &documents) {
            let shown = |found: &[DocBuf]| {
                found.iter().map(|doc: &DocBuf| Doc::to_string(&doc.as_doc())).collect::<Vec<_>>()
            };
            let got = answer(&rearranged, &documents);
            prop_assume!(!is_sorted_earlier(&got));
            prop_assert_eq!(
                got.ok().as_deref().map(shown),
                Some(shown(&expected)),
                "{} became {:?} over {:?}", text, rearranged, shown(&documents)
            );
        }
    }
}
