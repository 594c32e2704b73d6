//! `$lookup` caches the part that is the same for every document: the result equals that of each
//! document alone.

use marula_bson::{DocBuf, Value, ext_json};
use proptest::prelude::*;
use proptest::sample::select;

use super::{STAGE_BYTES_MAX, env, run};

const DOCUMENTS: &str =
    r#"{"$documents": [{"d": 1, "e": [2, 1]}, {"d": 2, "e": []}, {"d": 2, "e": [3]}, {"e": [1]}]}"#;

/// Returns a lookup through these stages after some documents.
fn lookup(stages: &[&str], unwind: &str) -> String {
    let stages: String = stages.iter().map(|stage| format!(", {stage}")).collect();
    format!(
        r#"[{{"$lookup": {{"let": {{"v": "$a", "let": "$b"}}, "pipeline": [{DOCUMENTS}{stages}], "as": "z"}}}}{unwind}]"#
    )
}

fn array(text: &str) -> DocBuf {
    ext_json::parse(&format!("{{\"p\": {text}}}")).expect("it is JSON")
}

fn answer(pipeline: &str, documents: &[DocBuf]) -> Option<Vec<DocBuf>> {
    let pipeline = array(pipeline);
    let pipeline = pipeline.as_doc().get("p").and_then(|stages: Value<'_>| stages.as_array())?;
    let given = DocBuf::build(|out| {
        let mut list = out.begin_array("d");
        documents.iter().for_each(|document| {
            list.push(document);
        });
    });
    let given = given.as_doc().get("d").and_then(|documents| documents.as_array())?;
    run(pipeline, given, &env(STAGE_BYTES_MAX)).ok()
}

fn stage() -> impl Strategy<Value = &'static str> {
    select(
        &[
            r#"{"$match": {"d": {"$gt": 1}}}"#,
            r#"{"$match": {"$expr": {"$gte": ["$d", "$$v"]}}}"#,
            r#"{"$match": {"$expr": {"$ne": ["$d", "$$let"]}}}"#,
            r#"{"$unwind": "$e"}"#,
            r#"{"$addFields": {"f": "$$v.x"}}"#,
            r#"{"$addFields": {"f": {"$literal": "$$v"}}}"#,
            r#"{"$addFields": {"d": {"$add": ["$d", 1]}}}"#,
            r#"{"$group": {"_id": "$d", "n": {"$sum": 1}}}"#,
            r#"{"$group": {"_id": "$d", "n": {"$sum": "$$v"}}}"#,
            r#"{"$sort": {"d": -1}}"#,
            r#"{"$sort": {"_id": 1}}"#,
            r#"{"$limit": 2}"#,
            r#"{"$project": {"d": 1, "g": {"$map": {"input": "$e", "as": "v", "in": "$$v"}}}}"#,
            r#"{"$lookup": {"pipeline": [{"$documents": [{"h": 1}]}, {"$addFields": {"h": "$$v"}}], "as": "i"}}"#,
            r#"{"$facet": {"j": [{"$match": {"$expr": {"$eq": ["$d", "$$let"]}}}], "k": [{"$count": "n"}]}}"#,
        ][..],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..Default::default() })]

    #[test]
    fn documents_are_joined_as_each_on_its_own(
        stages in prop::collection::vec(stage(), 0..4),
        unwind in select(&["", r#", {"$unwind": "$z"}"#, r#", {"$unwind": "$z"}, {"$match": {"z.d": 2}}"#][..]),
        values in prop::collection::vec((0..4, 0..3), 2..5),
    ) {
        let documents: Vec<DocBuf> = values
            .iter()
            .map(|(a, b)| ext_json::parse(&format!("{{\"a\": {a}, \"b\": {b}}}")).expect("it is JSON"))
            .collect();
        let pipeline = lookup(&stages, unwind);
        let alone: Option<Vec<Vec<DocBuf>>> = documents
            .iter()
            .map(|document| answer(&pipeline, std::slice::from_ref(document)))
            .collect();
        prop_assert_eq!(answer(&pipeline, &documents), alone.map(|it| it.concat()), "{}", pipeline);
    }
}

/// A random part is evaluated again for every document.
#[test]
fn random_parts_are_not_cached() {
    let documents: Vec<DocBuf> = (0..8).map(|a| array(&a.to_string())).collect();
    for stage in
        [r#"{"$addFields": {"r": {"$rand": {}}}}"#, r#"{"$group": {"_id": {"$rand": {}}}}"#]
    {
        let pipeline = format!(
            r#"[{{"$lookup": {{"pipeline": [{DOCUMENTS}, {stage}], "as": "z"}}}}, {{"$project": {{"p": 0}}}}]"#
        );
        let mut found = answer(&pipeline, &documents).expect("it runs");
        found.sort_by(|one, other| one.as_doc().as_bytes().cmp(other.as_doc().as_bytes()));
        found.dedup();
        assert_eq!(found.len(), documents.len(), "{stage}");
    }
}
