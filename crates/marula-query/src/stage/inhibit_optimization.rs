//! `$_internalInhibitOptimization`: passes documents on; no stage is moved across it, and later
//! stages do not report the fields they read.
//!
//! A pipeline with it between all its stages runs as it is written, which shows whether the
//! optimizer changes a result.

use std::sync::Arc;

use marula_bson::{Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Env, Parser, Source, Stage, StagePlace, StageRow};
use crate::expression::print;
use crate::feature_version::FeatureVersion;

pub(super) const ROW: StageRow = StageRow {
    name: "$_internalInhibitOptimization",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse,
};

errors! {
    not_object(text: &str) = TypeMismatch, "$_internalInhibitOptimization must take a nested object but found: $_internalInhibitOptimization: {text}";
    not_empty(text: &str) = FailedToParse, "$_internalInhibitOptimization must take an empty object but found: {text}";
}

#[derive(Debug)]
struct InhibitOptimization;

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    match value {
        Value::Document(spec) if spec.is_empty() => {
            parser.push(InhibitOptimization);
            Ok(())
        }
        Value::Document(_) => Err(not_empty(&print::element(value))),
        _ => Err(not_object(&print::element(value))),
    }
}

impl Stage for InhibitOptimization {
    fn name(&self) -> &'static str {
        ROW.name
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|_| {})
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Ok(input)
    }
}
