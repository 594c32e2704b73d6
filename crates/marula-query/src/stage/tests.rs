//! Pipelines against answers recorded from mongod 6.0.
//!
//! A case is a document `{ p: <pipeline>, d: [<document>, …], r: [<result>, …] }`, or with `code` and `msg` in
//! place of `r` where it is an error. `recorded.bson` holds the cases one after another.

use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value};
use marula_error::Result;

use super::source::Documents;
use super::world::{Nowhere, STAGE_BYTES_MAX};
use super::{Env, Pipeline, Step};
use crate::context::Context;

fn env(stage_bytes_max: usize) -> Env {
    Env { context: Arc::new(Context::default()), world: Arc::new(Nowhere), stage_bytes_max }
}

fn array<'d>(case: Doc<'d>, name: &str) -> Doc<'d> {
    case.get(name).and_then(|value| value.as_array()).expect("a case has its arrays")
}

fn run(pipeline: Doc<'_>, documents: Doc<'_>, env: &Env) -> Result<Vec<DocBuf>> {
    let pipeline = Pipeline::parse(pipeline, &env.context)?;
    let documents = documents.values().map(|doc| doc.as_doc().expect("a document").to_buf());
    let mut source = pipeline.run(Box::new(Documents::new(documents.collect())), env)?;
    let mut found = Vec::new();
    while source.advance()? == Step::Document {
        found.push(source.doc().to_buf());
    }
    Ok(found)
}

/// What a case got wrong, if anything.
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
fn cases_answer_as_recorded() {
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
