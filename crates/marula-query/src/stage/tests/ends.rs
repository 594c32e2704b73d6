//! Every stage ends when its operation must, whatever its input.

use std::collections::BTreeSet;
use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value, doc, ext_json};
use marula_error::{Result, codes};

use super::super::world::STAGE_BYTES_MAX;
use super::super::{Env, InsertStatement, Pipeline, Replacement, STAGES, Source, Step, World};
use super::env;
use crate::context::Context;
use crate::feature_version::FeatureVersion;
use crate::meter::tests::EndsAfter;
use crate::{accumulator, meter, window};

/// A number of documents that no operation here may reach.
const ENDLESS: u64 = 2_000_000;

/// A source of documents without an end.
struct Endless {
    count: u64,
    /// The document after which it ends after all.
    last: u64,
    document: DocBuf,
}

impl Endless {
    fn boxed() -> Box<dyn Source> {
        Box::new(Endless { count: 0, last: u64::MAX, document: DocBuf::new() })
    }

    /// The first documents of it.
    fn first(count: u64) -> Box<dyn Source> {
        Box::new(Endless { count: 0, last: count, document: DocBuf::new() })
    }
}

impl Source for Endless {
    fn pull(&mut self) -> Result<Step> {
        if self.count == self.last {
            return Ok(Step::End);
        }
        self.count += 1;
        assert!(self.count < ENDLESS, "a pipeline that must end goes on");
        let count = i64::try_from(self.count).unwrap();
        self.document = doc! {
            "_id": count,
            "a": count % 7,
            "list": [1, 2, 3],
            "time": Value::DateTime(count * 1_000),
            // A bucket of a time series too.
            "control": { "version": 1 },
            "data": { "time": { "0": Value::DateTime(count * 1_000) } },
        };
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        self.document.as_doc()
    }
}

/// A world in which every collection has no end and accepts all writes.
struct EndlessWorld;

struct Taken;

impl Replacement for Taken {
    fn insert(&mut self, _: Doc<'_>) -> Result<()> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl World for EndlessWorld {
    fn aggregate(
        self: std::sync::Arc<Self>,
        _: Option<&str>,
        _: &str,
        pipeline: Pipeline,
    ) -> Result<Box<dyn Source>> {
        let env = Env { world: self, ..env(STAGE_BYTES_MAX) };
        pipeline.run(Endless::boxed(), &env)
    }

    fn replace_collection(
        &self,
        _: &str,
        _: &str,
        _: Option<Doc<'_>>,
    ) -> Result<Box<dyn Replacement>> {
        Ok(Box::new(Taken))
    }

    fn has_unique_index(&self, _: &str, _: &str, _: &[String]) -> Result<bool> {
        Ok(true)
    }

    fn update_one(
        &self,
        _: &str,
        _: &str,
        _: Doc<'_>,
        _: Value<'_>,
        _: Doc<'_>,
        _: bool,
    ) -> Result<bool> {
        Ok(true)
    }

    fn upsert_one(&self, _: &str, _: &str, _: Doc<'_>, _: Value<'_>) -> Result<()> {
        Ok(())
    }

    fn insert_one(&self, _: &str, _: &str, _: Doc<'_>, _: InsertStatement) -> Result<()> {
        Ok(())
    }

    fn check_interrupt(&self) -> Result<()> {
        meter::settle()
    }
}

/// For each stage, an argument with which it runs as long as there is input.
const ARGUMENTS: &[(&str, &str)] = &[
    ("$_internalInhibitOptimization", "{}"),
    (
        "$_internalUnpackBucket",
        r#"{"exclude": [], "timeField": "time", "bucketMaxSpanSeconds": 3600}"#,
    ),
    ("$addFields", r#"{"b": {"$add": ["$a", 1]}}"#),
    ("$bucket", r#"{"groupBy": "$a", "boundaries": [0, 3, 10]}"#),
    ("$bucketAuto", r#"{"groupBy": "$a", "buckets": 3}"#),
    ("$collStats", "{}"),
    ("$count", r#""n""#),
    ("$densify", r#"{"field": "a", "range": {"step": 1, "bounds": [0, 2000000000]}}"#),
    ("$documents", r#"{"$map": {"input": {"$range": [0, 1000000]}, "in": {"a": "$$this"}}}"#),
    ("$facet", r#"{"one": [{"$match": {"a": -1}}], "two": [{"$skip": 1000000000}]}"#),
    ("$fill", r#"{"sortBy": {"_id": 1}, "output": {"b": {"method": "locf"}}}"#),
    (
        "$graphLookup",
        r#"{"from": "c", "startWith": "$a", "connectFromField": "_id", "connectToField": "a", "as": "g"}"#,
    ),
    ("$group", r#"{"_id": "$a", "n": {"$sum": 1}}"#),
    ("$indexStats", "{}"),
    ("$limit", "4000000000"),
    ("$lookup", r#"{"from": "c", "pipeline": [{"$match": {"a": -1}}], "as": "found"}"#),
    ("$match", r#"{"b": 1}"#),
    ("$merge", r#"{"into": "other"}"#),
    ("$out", r#""other""#),
    ("$planCacheStats", "{}"),
    ("$project", r#"{"a": 1}"#),
    ("$redact", r#""$$PRUNE""#),
    ("$replaceRoot", r#"{"newRoot": {"a": "$a"}}"#),
    ("$replaceWith", r#"{"a": "$a"}"#),
    ("$sample", r#"{"size": 3}"#),
    ("$set", r#"{"b": {"$add": ["$a", 1]}}"#),
    (
        "$setWindowFields",
        r#"{"partitionBy": "$a", "sortBy": {"_id": 1}, "output": {"b": {"$sum": "$a", "window": {"documents": [-1, 1]}}}}"#,
    ),
    ("$skip", "4000000000"),
    ("$sort", r#"{"a": 1}"#),
    ("$sortByCount", r#""$a""#),
    ("$unionWith", r#""c""#),
    ("$unset", r#""a""#),
    ("$unwind", r#""$list""#),
];

/// For each accumulator, an argument.
const ACCUMULATORS: &[(&str, &str)] = &[
    (
        "$accumulator",
        r#"{"init": "function() { return 0 }", "accumulate": "function(n, a) { for (;;); }", "accumulateArgs": ["$a"], "merge": "function(n, m) { return n + m }", "lang": "js"}"#,
    ),
    ("$addToSet", r#"{"$mod": ["$_id", 100000]}"#),
    ("$avg", r#""$_id""#),
    ("$bottom", r#"{"sortBy": {"a": 1}, "output": "$_id"}"#),
    ("$bottomN", r#"{"n": 5000, "sortBy": {"_id": 1}, "output": "$_id"}"#),
    ("$count", "{}"),
    ("$first", r#""$_id""#),
    ("$firstN", r#"{"n": 100000, "input": "$_id"}"#),
    ("$last", r#""$_id""#),
    ("$lastN", r#"{"n": 100000, "input": "$_id"}"#),
    ("$max", r#""$_id""#),
    ("$maxN", r#"{"n": 5000, "input": "$_id"}"#),
    ("$median", r#"{"input": "$_id", "method": "approximate"}"#),
    ("$mergeObjects", r#""$$ROOT""#),
    ("$min", r#""$_id""#),
    ("$minN", r#"{"n": 5000, "input": {"$subtract": [0, "$_id"]}}"#),
    ("$percentile", r#"{"input": "$_id", "p": [0.5, 0.9], "method": "approximate"}"#),
    ("$push", r#""$a""#),
    ("$stdDevPop", r#""$_id""#),
    ("$stdDevSamp", r#""$_id""#),
    ("$sum", r#""$_id""#),
    ("$top", r#"{"sortBy": {"a": 1}, "output": "$_id"}"#),
    ("$topN", r#"{"n": 5000, "sortBy": {"_id": -1}, "output": "$_id"}"#),
];

/// For each function that computes windows only, its definition. Accumulators are functions, too.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        "$covariancePop",
        r#"{"$covariancePop": ["$_id", "$a"], "window": {"documents": [-500, 500]}}"#,
    ),
    (
        "$covarianceSamp",
        r#"{"$covarianceSamp": ["$_id", "$a"], "window": {"documents": [-500, 500]}}"#,
    ),
    ("$denseRank", r#"{"$denseRank": {}}"#),
    ("$derivative", r#"{"$derivative": {"input": "$a"}, "window": {"range": [-500, 500]}}"#),
    ("$documentNumber", r#"{"$documentNumber": {}}"#),
    ("$expMovingAvg", r#"{"$expMovingAvg": {"input": "$a", "N": 9}}"#),
    ("$integral", r#"{"$integral": {"input": "$a"}, "window": {"range": [-500, 500]}}"#),
    ("$linearFill", r#"{"$linearFill": "$a"}"#),
    ("$locf", r#"{"$locf": "$a"}"#),
    ("$rank", r#"{"$rank": {}}"#),
    ("$shift", r#"{"$shift": {"output": "$a", "by": -100}}"#),
];

/// The number of documents of a partition.
const PARTITION: u64 = 20_000;

/// Stages that never run here, with the reason.
const NEVER_RUN: &[(&str, &str)] = &[
    ("$changeStream", "its events are made by who runs it, who asks for each few"),
    ("$changeStreamSplitLargeEvent", "looks at one event at a time"),
    ("$currentOp", "the server writes its few documents"),
    ("$geoNear", "the server reads the index for it"),
    ("$_internalListCluster", "the server writes its few documents"),
    ("$_internalListTransactions", "the server writes its documents"),
    ("$listCatalog", "the server writes its documents"),
    ("$listSampledQueries", "answers nothing"),
    ("$listLocalSessions", "the server writes its few documents"),
    ("$listSearchIndexes", "refused: there are no search indexes"),
    ("$listSessions", "the server writes its few documents"),
    ("$operationMetrics", "refused"),
    ("$querySettings", "refused"),
    ("$queryStats", "refused"),
    ("$search", "refused: there are no search indexes"),
    ("$searchMeta", "refused: there are no search indexes"),
    ("$shardedDataDistribution", "answers nothing"),
    ("$vectorSearch", "refused: there are no search indexes"),
];

/// Runs a pipeline of one stage to its end, over documents without an end.
fn run(name: &str, argument: &str) -> Result<()> {
    run_over(Endless::boxed(), &format!(r#"{{"{name}": {argument}}}"#))
}

fn run_over(input: Box<dyn Source>, stage: &str) -> Result<()> {
    let spec = ext_json::parse(&format!(r#"{{"p": [{stage}]}}"#)).expect(stage);
    let mut env = Env { world: std::sync::Arc::new(EndlessWorld), ..env(STAGE_BYTES_MAX) };
    env.context =
        Arc::new(Context { version: FeatureVersion::V8_0, ..Context::clone(&env.context) });
    let stages = spec.as_doc().get("p").and_then(|stages| stages.as_array()).unwrap();
    let pipeline = Pipeline::parse(stages, &env.context)?.rearranged(&env.context);
    let mut source = pipeline.run(input, &env)?;
    while source.advance()? != Step::End {}
    Ok(())
}

/// Returns the code with which the pipeline ends, if its operation must end after a few checks.
fn end_of(name: &str, argument: &str) -> i32 {
    let _metered = meter::begin(EndsAfter::questions(3));
    run(name, argument).expect_err(name).code().number()
}

#[test]
fn every_stage_is_in_the_table() {
    let rows = STAGES.iter().flat_map(|rows| rows.iter());
    let rows: BTreeSet<&str> = rows.map(|row| row.name).collect();
    let known = ARGUMENTS.iter().chain(NEVER_RUN).map(|(name, _)| *name);
    let known: BTreeSet<&str> = known.collect();
    let missing: Vec<_> = rows.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_stage_ends_when_its_operation_must() {
    let mut wrong = Vec::new();
    for (name, argument) in ARGUMENTS {
        let code = end_of(name, argument);
        if code != codes::Interrupted.number() {
            wrong.push((name, code));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_stage_ends_soon_after_its_limit() {
    let late: Vec<&str> = ARGUMENTS
        .iter()
        .filter(|(name, argument)| {
            !meter::tests::is_in_time(|| {
                let ended = run(name, argument).expect_err(name);
                assert_eq!(ended.code(), codes::Interrupted, "{name}");
            })
        })
        .map(|(name, _)| *name)
        .collect();
    assert!(late.is_empty(), "{late:?}");
}

#[test]
fn every_accumulator_and_function_is_in_a_table() {
    let rows: BTreeSet<&str> = accumulator::names().into_iter().collect();
    let known: BTreeSet<&str> = ACCUMULATORS.iter().map(|(name, _)| *name).collect();
    let missing: Vec<_> = rows.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let rows: BTreeSet<&str> = window::function_names().collect();
    let known: BTreeSet<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
    let missing: Vec<_> = rows.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_accumulator_ends_soon_after_its_limit() {
    let late: Vec<&str> = ACCUMULATORS
        .iter()
        .filter(|(name, argument)| {
            let stage = format!(r#"{{"$group": {{"_id": null, "x": {{"{name}": {argument}}}}}}}"#);
            !meter::tests::is_in_time(|| {
                let ended = run_over(Endless::boxed(), &stage).expect_err(name);
                assert_eq!(ended.code(), codes::Interrupted, "{name}: {ended}");
            })
        })
        .map(|(name, _)| *name)
        .collect();
    assert!(late.is_empty(), "{late:?}");
}

/// The documents of a partition are finite, and more than can be computed before the limit.
#[test]
fn every_window_function_ends_soon_after_its_limit() {
    let accumulated = ACCUMULATORS
        .iter()
        .filter(|(name, _)| !window::NOT_IN_WINDOWS.contains(&name.as_bytes()))
        .map(|(name, argument)| {
            let window = r#"{"documents": [-500, 500]}"#;
            (*name, format!(r#"{{"{name}": {argument}, "window": {window}}}"#))
        });
    let functions = FUNCTIONS.iter().map(|(name, output)| (*name, (*output).to_owned()));
    let late: Vec<&str> = accumulated
        .chain(functions)
        .filter(|(name, output)| {
            let stage = format!(
                r#"{{"$setWindowFields": {{"sortBy": {{"_id": 1}}, "output": {{"x": {output}}}}}}}"#
            );
            !meter::tests::is_in_time(|| {
                if let Err(ended) = run_over(Endless::first(PARTITION), &stage) {
                    assert_eq!(ended.code(), codes::Interrupted, "{name}: {ended}");
                }
            })
        })
        .map(|(name, _)| name)
        .collect();
    assert!(late.is_empty(), "{late:?}");
}
