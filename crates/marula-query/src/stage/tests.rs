//! Pipelines, compared with results recorded from mongod 6.0.
//!
//! A case is a document `{ p: <pipeline>, d: [<document>, …], r: [<result>, …] }`, or with `code`
//! and `msg` instead of `r` if it is an error. `recorded.bson` is a sequence of cases.

mod ends;
mod joined;
mod rearranged;

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value, doc};
use marula_error::Result;

use super::source::Documents;
use super::world::{Nowhere, STAGE_BYTES_MAX};
use super::{Env, Pipeline, Step};
use crate::context::Context;
use crate::feature_version::FeatureVersion;
use crate::spill::Limits;
use crate::spill::memory::MemoryDisk;

fn env(stage_bytes_max: usize) -> Env {
    let limits = Limits {
        sort_bytes_max: stage_bytes_max,
        group_bytes_max: stage_bytes_max,
        ..Limits::default()
    };
    let context = Arc::new(Context { limits, ..Context::default() });
    Env { context, world: Arc::new(Nowhere), stage_bytes_max }
}

/// Returns an environment whose sorts and groups hold `bytes_max` bytes and use a disk beyond that.
fn env_with_disk(bytes_max: usize) -> Env {
    let mut env = env(bytes_max);
    let mut context = Context::clone(&env.context);
    context.limits.disk = Some(Arc::new(MemoryDisk));
    env.context = Arc::new(context);
    env
}

fn array<'d>(case: Doc<'d>, name: &str) -> Doc<'d> {
    case.get(name).and_then(|value| value.as_array()).expect("a case has its arrays")
}

fn run(pipeline: Doc<'_>, documents: Doc<'_>, env: &Env) -> Result<Vec<DocBuf>> {
    let pipeline = Pipeline::parse(pipeline, &env.context)?.rearranged(&env.context);
    let documents = documents.values().map(|doc| doc.as_doc().expect("a document").to_buf());
    let mut source = pipeline.run(Box::new(Documents::new(documents.collect())), env)?;
    let mut found = Vec::new();
    while source.advance()? == Step::Document {
        found.push(source.doc().to_buf());
    }
    Ok(found)
}

/// Returns the difference of a case's result, if there is one.
fn check(case: Doc<'_>) -> Option<String> {
    let env = env(STAGE_BYTES_MAX);
    let got = run(array(case, "p"), array(case, "d"), &env);
    let code = case.get("code").map(|code| code.as_exact_i64().expect("a code is a number"));
    let is_same = match (&got, code) {
        (Ok(got), None) => {
            let want = array(case, "r").values().map(|doc| doc.as_doc().expect("a document"));
            want.map(|doc| doc.to_buf()).eq(got.iter().cloned())
        }
        (Err(error), Some(code)) => {
            let message = case.get("msg").and_then(|text| text.as_str()).expect("a text");
            i64::from(error.code().number()) == code && error.message().as_bytes() == &**message
        }
        _ => false,
    };
    let want = code.map_or_else(
        || format!("{}", Value::Array(array(case, "r"))),
        |code| format!("{code} {}", case.get("msg").unwrap_or(Value::Null)),
    );
    let shown = || format!("{}\n  want {want}\n  got  {got:?}", Value::Array(array(case, "p")));
    (!is_same).then(shown)
}

#[test]
fn results_are_as_recorded() {
    let mut cases: &[u8] = include_bytes!("tests/recorded.bson");
    let mut count = 0;
    let mut wrong = Vec::new();
    while let Some(size) = cases.first_chunk::<4>() {
        let size = usize::try_from(u32::from_le_bytes(*size)).expect("a size fits");
        let (case, rest) = cases.split_at(size);
        cases = rest;
        count += 1;
        wrong.extend(check(Doc::trusted(case)));
    }
    assert!(wrong.is_empty(), "{} of {count} cases differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn blocking_stages_stop_at_their_memory_limit() {
    let documents = marula_bson::doc! { "d": [{ "a": 1 }, { "a": 2 }, { "a": 3 }] };
    for pipeline in [
        marula_bson::doc! { "p": [{ "$sort": { "a": 1 } }] },
        marula_bson::doc! { "p": [{ "$group": { "_id": "$a" } }] },
        marula_bson::doc! { "p": [{ "$sample": { "size": 3 } }] },
    ] {
        let (pipeline, documents) = (pipeline.as_doc(), documents.as_doc());
        let few = run(array(pipeline, "p"), array(documents, "d"), &env(32));
        let code = few.expect_err("three documents pass 32 bytes").code();
        assert_eq!(code.number(), 292, "{pipeline:?}");
        assert_eq!(
            run(array(pipeline, "p"), array(documents, "d"), &env(4096)).map(|d| d.len()),
            Ok(3)
        );
    }
}

/// Returns results without their order, which a `$group` does not promise; an array of `$addToSet`
/// has none either.
fn unordered(results: &[DocBuf]) -> Vec<String> {
    let field = |element: marula_bson::Element<'_>| {
        let mut text = element.to_string();
        if element.name == "set" {
            let mut letters: Vec<char> = text.chars().collect();
            letters.sort_unstable();
            text = letters.into_iter().collect();
        }
        text
    };
    let text = |doc: &DocBuf| doc.as_doc().iter().map(field).collect::<Vec<_>>().join(", ");
    let mut texts: Vec<String> = results.iter().map(text).collect();
    texts.sort_unstable();
    texts
}

/// Returns documents whose fields have few values, several, or as many as there are documents.
fn documents() -> DocBuf {
    DocBuf::build(|out| {
        let mut array = out.begin_array("d");
        for n in 0..700 {
            let mut doc = array.begin_doc();
            doc.append("_id", n).append("g", n * 7_919 % 211).append("h", n % 3);
            doc.append("x", f64::from(n % 50) / 4.0);
            doc.append("s", format!("text {}", n % 11).as_str());
            if n % 5 == 0 {
                doc.append("rare", n);
            }
            match n % 9 {
                0 => {}
                1 => {
                    doc.append("mixed", Value::Null);
                }
                2 => {
                    doc.append("mixed", &doc! { "k": (n % 4) });
                }
                3 => {
                    doc.begin_array("mixed").push(n % 40).push(1);
                }
                4 => {
                    doc.append("mixed", f64::from(n % 40));
                }
                _ => {
                    doc.append("mixed", n % 40);
                }
            }
        }
    })
}

/// Runs a pipeline with memory for all documents, for some and for almost none.
fn check_memory(pipeline: &DocBuf) {
    let documents = documents();
    let documents = array(documents.as_doc(), "d");
    let stages = array(pipeline.as_doc(), "p");
    let expected = unordered(&run(stages, documents, &env(STAGE_BYTES_MAX)).unwrap());
    for bytes_max in [2_000_000, 50_000, 3_000, 1] {
        let got = unordered(&run(stages, documents, &env_with_disk(bytes_max)).unwrap());
        assert_eq!(got.len(), expected.len(), "{bytes_max} bytes: {}", pipeline.as_doc());
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got, expected, "{bytes_max} bytes: {}", pipeline.as_doc());
        }
    }
}

#[test]
fn groups_do_not_depend_on_memory() {
    let accumulators = marula_bson::doc! {
        "sum": { "$sum": "$x" }, "avg": { "$avg": "$x" }, "n": { "$count": {} },
        "min": { "$min": "$_id" }, "max": { "$max": "$rare" }, "first": { "$first": "$rare" },
        "last": { "$last": "$_id" }, "push": { "$push": { "a": "$_id", "r": "$rare" } },
        "set": { "$addToSet": "$h" }, "dev": { "$stdDevPop": "$x" },
        "merge": { "$mergeObjects": { "$arrayToObject": [[["$s", "$_id"]]] } },
        "top": { "$top": { "sortBy": { "x": -1, "_id": 1 }, "output": "$_id" } },
        "firsts": { "$firstN": { "n": 2, "input": "$_id" } },
        "mins": { "$minN": { "n": 2, "input": "$x" } },
        "bottoms": { "$bottomN": { "n": 2, "sortBy": { "_id": 1 }, "output": ["$_id", "$s"] } }
    };
    let check = |key: Value<'_>, sort: Option<&DocBuf>| {
        check_memory(&DocBuf::build(|out| {
            let mut pipeline = out.begin_array("p");
            if let Some(sort) = sort {
                pipeline.begin_doc().append("$sort", sort);
            }
            let mut stage = pipeline.begin_doc();
            let mut spec = stage.begin_doc("$group");
            spec.append("_id", key);
            spec.append_elements(accumulators.as_doc().elements_bytes());
        }));
    };
    for field in ["g", "rare", "h", "none", "_id", "mixed"] {
        let path = format!("${field}");
        check(path.as_str().into(), None);
        for direction in [1, -1] {
            let sort = DocBuf::build(|out| {
                out.append(field, direction);
            });
            check(path.as_str().into(), Some(&sort));
            check((&doc! { "k": (path.as_str()) }).into(), Some(&sort));
        }
    }
}

/// If documents come in the order of the key, only a part of the groups is in memory at once.
#[test]
fn groups_in_order_leave_before_the_input_ends() {
    let mut env = env(STAGE_BYTES_MAX);
    let mut context = Context::clone(&env.context);
    context.limits.group_bytes_max = 5_000;
    env.context = Arc::new(context);
    let documents = documents();
    let documents = array(documents.as_doc(), "d");
    let groups = |sort: DocBuf| {
        let pipeline = doc! { "p": [{ "$sort": &sort }, { "$group": { "_id": "$_id", "x": { "$sum": "$x" } } }] };
        run(array(pipeline.as_doc(), "p"), documents, &env)
    };
    let found = groups(doc! { "_id": -1, "g": 1 }).unwrap();
    let ids: Vec<_> = found.iter().filter_map(|doc| doc.as_doc().get("_id")).collect();
    assert_eq!(ids, (0..700).rev().map(Value::Int32).collect::<Vec<_>>());
    assert_eq!(groups(doc! { "g": 1, "_id": 1 }).unwrap_err().code().number(), 292);
}

#[test]
fn sorts_buckets_and_windows_do_not_depend_on_memory() {
    use marula_bson::doc;
    check_memory(&doc! { "p": [{ "$sort": { "s": 1 } }, { "$limit": 70 }] });
    let output = doc! { "n": { "$sum": 1 }, "ids": { "$push": "$_id" } };
    check_memory(&doc! { "p": [
    { "$bucketAuto": { "groupBy": "$x", "buckets": 7, "output": &output } }] });
    check_memory(&doc! { "p": [
    { "$bucketAuto": { "groupBy": "$x", "buckets": 4, "granularity": "R5" } }] });
    let output = doc! {
        "r": { "$rank": {} },
        "run": { "$sum": "$x", "window": { "documents": ["unbounded", "current"] } }
    };
    check_memory(&doc! { "p": [
    { "$setWindowFields": { "partitionBy": "$g", "sortBy": { "x": 1 }, "output": &output } }] });
    // A sample is random; a sample of all documents is not.
    let (sample, all) = (doc! { "p": [{ "$sample": { "size": 5_000 } }] }, documents());
    let (sample, all) = (array(sample.as_doc(), "p"), array(all.as_doc(), "d"));
    let found = unordered(&run(sample, all, &env_with_disk(3_000)).unwrap());
    assert_eq!(found, unordered(&run(sample, all, &env(STAGE_BYTES_MAX)).unwrap()));
    assert_eq!(found.len(), 700);
    // The output of a sort is in order too.
    let (sort, documents) = (doc! { "p": [{ "$sort": { "x": 1, "s": -1 } }] }, documents());
    let (sort, documents) = (array(sort.as_doc(), "p"), array(documents.as_doc(), "d"));
    let expected = run(sort, documents, &env(STAGE_BYTES_MAX)).unwrap();
    assert_eq!(run(sort, documents, &env_with_disk(3_000)).unwrap(), expected);
}

#[test]
fn a_partition_of_windows_has_a_limit_of_its_own() {
    use marula_bson::doc;
    let mut env = env_with_disk(3_000);
    let mut context = Context::clone(&env.context);
    context.limits.window_bytes_max = 10_000;
    env.context = Arc::new(context);
    let output = doc! { "n": { "$sum": 1 } };
    let by = |field: &str| doc! { "p": [{ "$setWindowFields": { "partitionBy": field, "output": &output } }] };
    let documents = documents();
    let documents = array(documents.as_doc(), "d");
    let small = by("$g");
    assert!(run(array(small.as_doc(), "p"), documents, &env).is_ok());
    let large = by("$h");
    let error = run(array(large.as_doc(), "p"), documents, &env).unwrap_err();
    assert_eq!(error.code().number(), 5_414_201);
}

#[test]
fn percentiles_of_groups_and_windows_are_there_since_7_0() {
    let documents = doc! { "d": [
        { "_id": 1, "g": "a", "x": 5 }, { "_id": 2, "g": "a", "x": 1 }, { "_id": 3, "g": "a", "x": 3.5 },
        { "_id": 4, "g": "b", "x": "no number" }, { "_id": 5, "g": "b" }
    ] };
    let group = doc! { "p": [
        { "$group": {
            "_id": "$g",
            "m": { "$median": { "input": "$x", "method": "approximate" } },
            "p": { "$percentile": { "input": "$x", "p": [0, 0.9], "method": "approximate" } }
        } },
        { "$sort": { "_id": 1 } }
    ] };
    let window = doc! { "p": [
        { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "m": {
            "$median": { "input": "$x", "method": "approximate" },
            "window": { "documents": [-1, 0] }
        } } } },
        { "$project": { "_id": 1, "m": 1 } }
    ] };
    let answer = |pipeline: &DocBuf, version| {
        let mut env = env(STAGE_BYTES_MAX);
        env.context = Arc::new(Context { version, ..Context::clone(&env.context) });
        run(array(pipeline.as_doc(), "p"), array(documents.as_doc(), "d"), &env)
    };
    let newer = |pipeline| answer(pipeline, FeatureVersion::V7_0).unwrap();
    assert_eq!(
        newer(&group),
        [
            doc! { "_id": "a", "m": 3.5, "p": [1.0, 5.0] },
            doc! { "_id": "b", "m": null, "p": [null, null] },
        ]
    );
    assert_eq!(
        newer(&window),
        [
            doc! { "_id": 1, "m": 5.0 },
            doc! { "_id": 2, "m": 1.0 },
            doc! { "_id": 3, "m": 1.0 },
            doc! { "_id": 4, "m": 3.5 },
            doc! { "_id": 5, "m": null },
        ]
    );
    let older = |pipeline| answer(pipeline, FeatureVersion::V6_0).unwrap_err().message().to_owned();
    assert_eq!(older(&group), "unknown group operator '$median'");
    assert_eq!(older(&window), "Unrecognized window function, $median");
}
