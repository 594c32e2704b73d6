//! `$_internalUnpackBucket`: the measurements of time-series buckets, one document each.
//!
//! A measurement has its time first, then the meta value, then the other fields in the order of the
//! bucket. The format of a bucket is in docs/file-formats.md.

mod push;

use std::sync::Arc;

use marula_bson::doc::Iter;
use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Env, Kind, Parser, Source, Stage, StagePlace, StageRow, Step};

use crate::feature_version::FeatureVersion;

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

/// A parsed `$_internalUnpackBucket`.
#[derive(Debug)]
pub struct UnpackBucket {
    time_field: Box<[u8]>,
    meta_field: Option<Box<[u8]>>,
    span_seconds: i64,
    uses_extended_range: bool,
    shown: Shown,
    argument: DocBuf,
}

/// The fields of a measurement that are shown.
#[derive(Debug)]
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
        if self.argument.as_doc().get("include").is_none() {
            shown.push(
                "exclude",
                self.argument.as_doc().get("exclude").unwrap_or(Value::Array(Doc::EMPTY)),
            );
        }
        for element in self.argument.as_doc() {
            if element.name != "exclude" {
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
        Ok(Box::new(Unpacking {
            input,
            stage: self,
            bytes: Vec::new(),
            times: Column::default(),
            columns: Vec::new(),
            meta: None,
            out: Vec::new(),
        }))
    }
}

/// The values of one field: elements in `Unpacking::bytes`, each with its measurement's number as
/// its name.
#[derive(Default)]
struct Column {
    name: Box<[u8]>,
    next: usize,
    end: usize,
}

struct Unpacking {
    input: Box<dyn Source>,
    stage: Arc<UnpackBucket>,
    /// The elements of the bucket's columns, copied because the input may move on.
    bytes: Vec<u8>,
    times: Column,
    columns: Vec<Column>,
    meta: Option<ValueBuf>,
    out: Vec<u8>,
}

impl Unpacking {
    /// Reads the columns of the input's document.
    fn take_in(&mut self) -> Result<()> {
        let bucket = self.input.doc();
        let control = bucket.get("control").and_then(|control| control.as_doc());
        let version = control.and_then(|control| control.get("version"));
        if version.is_some_and(|version| version.as_exact_i64() == Some(2)) {
            return Err(compressed());
        }
        let data = bucket.get("data").and_then(|data| data.as_doc()).ok_or_else(not_a_bucket)?;
        let meta = bucket.get("meta");
        if meta.is_some() && self.stage.meta_field.is_none() {
            return Err(unexpected_meta());
        }
        let meta_field = self.stage.meta_field.as_deref();
        let shows_meta = meta_field.is_some_and(|field| self.stage.shown.has(field));
        self.meta = meta.filter(|_| shows_meta).map(|meta| meta.to_buf());
        self.bytes.clear();
        self.columns.clear();
        self.times = Column::default();
        for field in data {
            let is_time = **field.name == *self.stage.time_field;
            let Some(values) = field.value.get().as_doc() else { continue };
            if !is_time && !self.stage.shown.has(field.name) {
                continue;
            }
            let next = self.bytes.len();
            self.bytes.extend_from_slice(values.elements_bytes());
            let end = self.bytes.len();
            let column = Column { name: field.name.to_vec().into_boxed_slice(), next, end };
            match is_time {
                true => self.times = column,
                false => self.columns.push(column),
            }
        }
        Ok(())
    }

    /// Writes the next measurement of the bucket; returns `false` if there is none.
    fn write_next(&mut self) -> bool {
        let mut times = Iter::over(&self.bytes[self.times.next..self.times.end]);
        let Some(time) = times.next() else { return false };
        self.times.next = self.times.end - times.rest().len();
        self.out.clear();
        let mut out = DocWriter::new(&mut self.out);
        if self.stage.shown.has(&self.stage.time_field) {
            out.append_raw(&self.stage.time_field, time.value);
        }
        if let (Some(meta), Some(field)) = (&self.meta, &self.stage.meta_field) {
            out.append(field, meta);
        }
        for column in &mut self.columns {
            let mut values = Iter::over(&self.bytes[column.next..column.end]);
            if let Some(value) = values.next()
                && value.name == time.name
            {
                out.append_raw(&column.name, value.value);
                column.next = column.end - values.rest().len();
            }
        }
        true
    }
}

impl Source for Unpacking {
    fn pull(&mut self) -> Result<Step> {
        while !self.write_next() {
            match self.input.advance()? {
                Step::Document => self.take_in()?,
                step => return Ok(step),
            }
        }
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }
}
