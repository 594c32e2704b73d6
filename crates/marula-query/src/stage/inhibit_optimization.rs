//! `$_internalInhibitOptimization`: passes documents on; no stage is moved across it, and none
//! behind it says what is read.
//!
//! A pipeline with it between all its stages is carried out as it is written: what an answer owes
//! to rearranging shows by it.

use std::sync::Arc;

use marula_bson::{Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Env, Parser, Place, Row, Source, Stage};
use crate::expression::print;
use crate::feature_version::FeatureVersion;

pub(super) const ROW: Row = Row {
    name: "$_internalInhibitOptimization",
    since: FeatureVersion::V6_0,
    place: Place::Anywhere,
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
