//! `$collStats`: one document about the collection that a pipeline runs on.
//!
//! The stage lists the requested parts ([`CollectionStats`]) in a [`Report`].

use marula_bson::{Doc, Element, Value};
use marula_error::{Result, errors};

use super::report::{Report, Reporting};
use super::{Parser, StagePlace, StageRow};
use crate::expression::print;
use crate::feature_version::FeatureVersion;
use crate::once::{Once, unknown_field};

pub(super) const ROW: StageRow =
    StageRow { name: "$collStats", since: FeatureVersion::V6_0, place: StagePlace::First, parse };

errors! {
    not_object(text: &str) = 5447000, "$collStats must take a nested object but found: $collStats: {text}";
    option_type(name: &str, kind: &str) = TypeMismatch, "BSON field '$collStats.{name}' is the wrong type '{kind}', expected type 'object'";
    scale_type(kind: &str) = TypeMismatch, "BSON field '$collStats.storageStats.scale' is the wrong type '{kind}', expected types '[long, int, decimal, double']";
    scale_too_small(scale: i64) = 51024, "BSON field 'scale' value must be >= 1, actual value '{scale}'";
    not_empty(text: &str) = 31170, "expected an empty object, but got {text}";
    histograms_type(kind: &str) = TypeMismatch, "Field 'histograms' should be a boolean value, but found: {kind}";
}

/// Whether latencies include histograms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Histograms(pub bool);

/// The parts that a `$collStats` asks for in addition to the collection's name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CollectionStats {
    /// `latencyStats`: the latencies of operations, with or without histograms.
    pub latencies: Option<Histograms>,
    /// `storageStats`: sizes, divided by this scale.
    pub storage_scale: Option<i64>,
    /// `count`: the number of documents.
    pub count: bool,
    /// `queryExecStats`: the number of full scans of the collection.
    pub query_exec: bool,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let (wanted, argument) = read(value)?;
    parser.push(Reporting::new("$collStats", Report::CollectionStats(wanted), argument));
    Ok(())
}

/// Returns the requested parts and the argument.
pub(super) fn read(value: Value<'_>) -> Result<(CollectionStats, Doc<'_>)> {
    let Value::Document(argument) = value else {
        return Err(not_object(&print::element(value)));
    };
    let mut wanted = CollectionStats::default();
    let mut once = Once::of("$collStats");
    for option in argument.iter() {
        let name = option.name.to_string();
        if !["latencyStats", "storageStats", "count", "queryExecStats"].contains(&name.as_str()) {
            return Err(unknown_field("$collStats", option.name));
        }
        if option.value.get().is_nullish() {
            continue;
        }
        let Value::Document(inner) = option.value.get() else {
            return Err(option_type(&name, option.value.kind().alias()));
        };
        match name.as_str() {
            "storageStats" => wanted.storage_scale = Some(scale(inner)?),
            "count" if !inner.is_empty() => {
                return Err(not_empty(&print::element(Value::Document(inner))));
            }
            "count" => wanted.count = true,
            "queryExecStats" if !inner.is_empty() => {
                return Err(not_empty(&print::element(Value::Document(inner))));
            }
            "queryExecStats" => wanted.query_exec = true,
            _ => wanted.latencies = Some(histograms(inner)?),
        }
        once.note(option.name)?;
    }
    Ok((wanted, argument))
}

/// Returns the scale of `storageStats`; other fields in it are ignored.
fn scale(options: Doc<'_>) -> Result<i64> {
    let mut once = Once::of("$collStats.storageStats");
    let is_given = |it: &Element<'_>| it.name == "scale" && !it.value.get().is_nullish();
    options.iter().filter(is_given).try_for_each(|it| once.note(it.name))?;
    let Some(scale) = options.iter().find(is_given) else { return Ok(1) };
    let scale = scale.value.get();
    let number = scale.as_f64().ok_or_else(|| scale_type(scale.kind().alias()))?;
    #[allow(clippy::cast_possible_truncation)] // towards zero and within a long, as mongod does
    let number = number as i64;
    if number < 1 { Err(scale_too_small(number)) } else { Ok(number) }
}

/// Returns whether `latencyStats` asks for histograms.
fn histograms(options: Doc<'_>) -> Result<Histograms> {
    let mut wanted = Histograms(false);
    let mut once = Once::of("$collStats.latencyStats");
    for option in options {
        if option.name != "histograms" {
            return Err(unknown_field("$collStats.latencyStats", option.name));
        }
        let Value::Boolean(histograms) = option.value.get() else {
            return Err(histograms_type(option.value.kind().alias()));
        };
        wanted = Histograms(histograms);
        once.note(option.name)?;
    }
    Ok(wanted)
}
