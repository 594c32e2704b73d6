//! `$_internalUnpackBucket`: the measurements of time-series buckets, one document each.
//!
//! A measurement has its time first, then the meta value, then the other fields in the order of the
//! bucket. The format of a bucket is in docs/file-formats.md.
//!
//! The stages around it decide how much work this is: `push` translates conditions on measurements
//! to conditions on buckets, `digest` finds stages that need only a part of the measurements,
//! and `time_order` those that can use the order of buckets. `unpacking` is the walk over them.

mod digest;
mod push;
mod time_order;
mod unpacking;

use std::sync::Arc;

use marula_bson::{ArrayWriter, BStr, Doc, DocBuf, Value, ValueBuf};
use marula_error::{Result, errors};

use super::near_measurements::near_measurements;
use super::{Env, Kind, Parser, Pipeline, Source, Stage, StagePlace, StageRow};
use crate::context::Context;
use crate::feature_version::FeatureVersion;
use digest::Digest;
pub use time_order::LatestOfEach;
pub(super) use time_order::TimeOrder;
use unpacking::Unpacking;

pub(super) const ROW: StageRow = StageRow {
    name: "$_internalUnpackBucket",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse,
};

errors! {
    not_object(kind: &str) = 5346500, "$_internalUnpackBucket specification must be an object, got: {kind}";
    time_field_type(kind: &str) = 5346504, "timeField field must be a string, got: {kind}";
    meta_field_type(kind: &str) = 5346505, "metaField field must be a string, got: {kind}";
    unknown_field(name: &str) = 5346506, "unrecognized parameter to $_internalUnpackBucket: {name}";
    no_time_field() = 5346508, "The $_internalUnpackBucket stage requires a timeField parameter";
    span_type(kind: &str) = 5510600, "bucketMaxSpanSeconds field must be an integer, got: {kind}";
    span_too_small() = 5510601, "bucketMaxSpanSeconds field must be greater than zero";
    no_span() = 5510602, "The $_internalUnpackBucket stage requires a bucketMaxSpanSeconds parameter";
    include_and_exclude() = 5408000, "The $_internalUnpackBucket stage expects at most one of include/exclude parameters to be specified";
    fields_type(name: &str) = 5346501, "include or exclude field element must be a string, in {name}";
    unexpected_meta() = 5369601, "The $_internalUnpackBucket stage expects buckets to have missing metadata regions if the metaField parameter is not provided";
    not_a_bucket() = 10065, "invalid parameter: expected an object ()";
    /// Buckets that another server compressed.
    compressed() = NotImplemented, "compressed time-series buckets are not available on this server";
}

/// Returns a pipeline on buckets in the form in which it is executed: a search by distance on
/// measurements as stages that can be executed, and the buckets unpacked no further than the stages
/// after need it. Any other pipeline is returned unchanged.
///
/// Errors: those of [`near_measurements`].
pub fn over_buckets(pipeline: Pipeline, context: &Context) -> Result<Pipeline> {
    let pipeline = near_measurements(pipeline, context)?;
    let stages = pipeline.stages();
    let unpacks = stages.iter().enumerate().find_map(|(at, stage)| match stage.kind() {
        Kind::Unpack(unpack) => Some((at, unpack)),
        _ => None,
    });
    let Some((at, unpack)) = unpacks else { return Ok(pipeline) };
    let mut whole = stages.to_vec();
    let after = &stages[at + 1..];
    // At the front, the query fulfils the condition on the meta value.
    let read_after = if at == 0 { unpack.after_meta_condition(after) } else { after };
    whole[at] = Arc::new(unpack.narrowed(read_after));
    Ok(Pipeline::from_stages(whole).asking(pipeline.asked()))
}

/// A parsed `$_internalUnpackBucket`.
#[derive(Clone, Debug)]
pub struct UnpackBucket {
    time_field: Box<[u8]>,
    meta_field: Option<Box<[u8]>>,
    span_seconds: i64,
    uses_extended_range: bool,
    shown: Shown,
    /// The measurements that the stages after it need.
    digest: Digest,
    /// The order in which the buckets come, if the stages after it use it.
    time_order: Option<TimeOrder>,
    argument: DocBuf,
}

/// The fields of a measurement that are shown.
#[derive(Clone, Debug)]
enum Shown {
    AllBut(Vec<Box<[u8]>>),
    Only(Vec<Box<[u8]>>),
}

impl Shown {
    fn has(&self, name: &[u8]) -> bool {
        match self {
            Shown::AllBut(names) => !names.iter().any(|other| **other == *name),
            Shown::Only(names) => names.iter().any(|other| **other == *name),
        }
    }
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(argument) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let (mut time_field, mut meta_field, mut span_seconds) = (None, None, None);
    let (mut shown, mut uses_extended_range) = (None, false);
    for element in argument {
        let value = element.value.get();
        let kind = value.kind().alias();
        match &**element.name {
            b"timeField" => {
                let name = value.as_str().ok_or_else(|| time_field_type(kind))?;
                time_field = Some(name.to_vec().into_boxed_slice());
            }
            b"metaField" => {
                let name = value.as_str().ok_or_else(|| meta_field_type(kind))?;
                meta_field = Some(name.to_vec().into_boxed_slice());
            }
            b"bucketMaxSpanSeconds" => {
                let span = value.as_exact_i64().ok_or_else(|| span_type(kind))?;
                if span <= 0 {
                    return Err(span_too_small());
                }
                span_seconds = Some(span);
            }
            name @ (b"include" | b"exclude") => {
                let names = names(&element.name.to_string(), value)?;
                let found =
                    if name == b"include" { Shown::Only(names) } else { Shown::AllBut(names) };
                if shown.replace(found).is_some() {
                    return Err(include_and_exclude());
                }
            }
            b"usesExtendedRange" => uses_extended_range = value.is_truthy(),
            b"assumeNoMixedSchemaData" => {}
            _ => return Err(unknown_field(&element.name.to_string())),
        }
    }
    parser.push(UnpackBucket {
        time_field: time_field.ok_or_else(no_time_field)?,
        meta_field,
        span_seconds: span_seconds.ok_or_else(no_span)?,
        uses_extended_range,
        shown: shown.unwrap_or(Shown::AllBut(Vec::new())),
        digest: Digest::Whole,
        time_order: None,
        argument: argument.to_buf(),
    });
    Ok(())
}

fn names(place: &str, value: Value<'_>) -> Result<Vec<Box<[u8]>>> {
    let array = value.as_array().ok_or_else(|| fields_type(place))?;
    let name = |item: Value<'_>| {
        item.as_str().map(|name| name.to_vec().into_boxed_slice()).ok_or_else(|| fields_type(place))
    };
    array.values().map(name).collect()
}

impl Stage for UnpackBucket {
    fn name(&self) -> &'static str {
        ROW.name
    }

    fn print(&self) -> ValueBuf {
        let mut shown = DocBuf::new();
        let (name, fields) = match &self.shown {
            Shown::AllBut(fields) => ("exclude", fields),
            Shown::Only(fields) => ("include", fields),
        };
        let mut listed = Vec::new();
        let mut list = ArrayWriter::new(&mut listed);
        fields.iter().for_each(|field| {
            list.push(Value::String(BStr::new(field)));
        });
        list.finish();
        shown.push(name, Value::Array(Doc::trusted(&listed)));
        for element in self.argument.as_doc() {
            if element.name != "exclude" && element.name != "include" {
                shown.push(element.name, element.value.get());
            }
        }
        if self.argument.as_doc().get("assumeNoMixedSchemaData").is_none() {
            shown.push("assumeNoMixedSchemaData", true);
        }
        Value::Document(shown.as_doc()).to_buf()
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Unpack(self)
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, _: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Unpacking::new(input, self)))
    }
}
