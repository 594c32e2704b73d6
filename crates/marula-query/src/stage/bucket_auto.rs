//! `$bucketAuto`: groups by ranges of a value that hold about as many documents each.

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::bucket::is_expression;
use super::granularity::Granularity;
use super::group::{Field, parse_field};
use super::source::check_size;
use super::{Env, Parser, Place, Row, Source, Stage, Step};
use crate::accumulator::Accumulator;
use crate::context::Context;
use crate::expression::{Arena, Expression, Frame, print};

pub(super) const ROW: Row = Row { name: "$bucketAuto", place: Place::Anywhere, parse };

errors! {
    group_by_not_expression(text: &str) = 40239, "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or an expression object, but found: {text}";
    not_object(kind: &str) = 40240, "The argument to $bucketAuto must be an object, but found type: {kind}";
    buckets_not_number(kind: &str) = 40241, "The $bucketAuto 'buckets' field must be a numeric value, but found type: {kind}";
    buckets_not_int(text: &str) = 40242, "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {text}";
    buckets_not_positive(count: i32) = 40243, "The $bucketAuto 'buckets' field must be greater than 0, but found: {count}";
    output_not_object(kind: &str) = 40244, "The $bucketAuto 'output' field must be an object, but found type: {kind}";
    unknown_option(name: &str) = 40245, "Unrecognized option to $bucketAuto: {name}";
    missing_option() = 40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified";
    granularity_not_string(kind: &str) = 40261, "The $bucketAuto 'granularity' field must be a string, but found type: {kind}";
    too_much_memory(limit: usize) = QueryExceededMemoryLimitNoDiskUseAllowed, "Sort exceeded memory limit of {limit} bytes, but did not opt in to external sorting.";
}

/// A parsed `$bucketAuto`.
#[derive(Debug)]
pub(super) struct BucketAuto {
    group_by: Expression,
    buckets: usize,
    fields: Vec<Field>,
    granularity: Option<Granularity>,
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(not_object(value.kind().alias()));
    };
    let (mut group_by, mut buckets, mut fields, mut granularity) = (None, None, None, None);
    for element in spec {
        let value = element.value.get();
        let kind = value.kind().alias();
        match &**element.name {
            b"groupBy" => {
                if !is_expression(value) {
                    return Err(group_by_not_expression(&print::element(value)));
                }
                group_by = Some(Expression::parse(value, &mut parser.scope())?);
            }
            b"buckets" => buckets = Some(read_buckets(value)?),
            b"output" => {
                let doc = value.as_doc().ok_or_else(|| output_not_object(kind))?;
                let parsed: Result<Vec<Field>> = doc
                    .iter()
                    .map(|field| parse_field(field.name, field.value.get(), parser))
                    .collect();
                fields = Some(parsed?);
            }
            b"granularity" => {
                let name = value.as_str().ok_or_else(|| granularity_not_string(kind))?;
                granularity = Some(Granularity::parse(&name.to_string())?);
            }
            name => return Err(unknown_option(&name.to_str_lossy())),
        }
    }
    let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
        return Err(missing_option());
    };
    let counting = || vec![(b"count".to_vec().into(), Accumulator::counting())];
    let fields = fields.unwrap_or_else(counting);
    parser.push(BucketAuto { group_by, buckets, fields, granularity });
    Ok(())
}

fn read_buckets(value: Value<'_>) -> Result<usize> {
    if !value.kind().is_number() {
        return Err(buckets_not_number(value.kind().alias()));
    }
    let count = value.as_exact_i64().and_then(|count| i32::try_from(count).ok());
    let count = count.ok_or_else(|| buckets_not_int(&print::element(value)))?;
    usize::try_from(count)
        .ok()
        .filter(|&count| count > 0)
        .ok_or_else(|| buckets_not_positive(count))
}

impl Stage for BucketAuto {
    fn name(&self) -> &'static str {
        "$bucketAuto"
    }

    fn print(&self) -> ValueBuf {
        super::pipeline::printed(|out| {
            out.append("groupBy", &self.group_by.print());
            out.append("buckets", i32::try_from(self.buckets).unwrap_or(i32::MAX));
            if let Some(granularity) = self.granularity {
                out.append("granularity", granularity.name());
            }
            let mut output = out.begin_doc("output");
            for (name, accumulator) in &self.fields {
                output.append(name, &accumulator.print());
            }
        })
    }

    fn optimize(&mut self, context: &Context) -> Result<()> {
        self.group_by.optimize(context)?;
        self.fields.iter_mut().try_for_each(|(_, accumulator)| accumulator.optimize(context))
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        Ok(Box::new(Bucketing {
            input,
            stage: self,
            context: Arc::clone(&env.context),
            bytes_max: env.stage_bytes_max,
            entries: Vec::new(),
            size: 0,
            is_sorted: false,
            next: 0,
            filled: 0,
            min: None,
            out: Vec::new(),
        }))
    }
}

struct Bucketing {
    input: Box<dyn Source>,
    stage: Arc<BucketAuto>,
    context: Arc<Context>,
    bytes_max: usize,
    /// Values and their documents, sorted once all are there.
    entries: Vec<(ValueBuf, DocBuf)>,
    size: usize,
    is_sorted: bool,
    /// The first document that is in no bucket yet.
    next: usize,
    /// How many buckets there are so far.
    filled: usize,
    /// Where the next bucket starts, if boundaries are rounded.
    min: Option<ValueBuf>,
    out: Vec<u8>,
}

impl Bucketing {
    fn take_in(&mut self) -> Result<()> {
        let document = self.input.doc();
        let arena = Arena::new();
        let frame = Frame::new(document, &arena, &self.context);
        let value = self.stage.group_by.eval(&frame)?.unwrap_or(Value::Null).to_buf();
        self.size += document.as_bytes().len() + value.as_raw().bytes().len() + 64;
        if self.size > self.bytes_max {
            return Err(too_much_memory(self.bytes_max));
        }
        self.entries.push((value, document.to_buf()));
        Ok(())
    }

    /// The end of the bucket that starts at `next`, and its greatest boundary.
    fn bounds(&self) -> Result<(usize, ValueBuf)> {
        let collator = self.context.collator();
        let count = self.entries.len();
        let value = |at: usize| self.entries[at].0.get();
        let less = |a: Value<'_>, b: Value<'_>| order::compare(a, b, collator).is_lt();
        // Half a document more makes a document more, as rounding does.
        let size = ((2 * count + self.stage.buckets) / (2 * self.stage.buckets)).max(1);
        let is_last = self.filled + 1 == self.stage.buckets;
        let mut end = if is_last { count } else { (self.next + size).min(count) };
        let Some(granularity) = self.stage.granularity else {
            while end < count && !less(value(end - 1), value(end)) {
                end += 1;
            }
            let max = if end < count { value(end) } else { value(count - 1) };
            return Ok((end, max.to_buf()));
        };
        let mut boundary = granularity.up(value(end - 1))?.to_buf();
        if boundary.get().as_f64() == Some(0.0) {
            // Nothing lies above zero but below the next value: the boundary is below that.
            while end < count && value(end).as_f64() == Some(0.0) {
                end += 1;
            }
            if end < count {
                boundary = granularity.down(value(end))?.to_buf();
            }
        }
        while end < count && less(value(end), boundary.get()) {
            end += 1;
        }
        Ok((end, boundary))
    }

    /// Writes the next bucket.
    fn write(&mut self) -> Result<()> {
        let (end, max) = self.bounds()?;
        let first = self.entries[self.next].0.clone();
        let min = match (self.min.take(), self.stage.granularity) {
            (Some(min), Some(_)) => min,
            (None, Some(granularity)) => granularity.down(first.get())?.to_buf(),
            (_, None) => first,
        };
        let mut arena = Arena::new();
        let mut states = Vec::with_capacity(self.stage.fields.len());
        for (_, accumulator) in &self.stage.fields {
            states.push(accumulator.start(Value::Null, &self.context)?);
        }
        for (_, document) in &self.entries[self.next..end] {
            arena.reset();
            let frame = Frame::new(document.as_doc(), &arena, &self.context);
            for ((_, accumulator), state) in self.stage.fields.iter().zip(&mut states) {
                accumulator.add(&mut **state, &frame)?;
            }
        }
        self.out.clear();
        let mut out = DocWriter::new(&mut self.out);
        out.begin_doc("_id").append("min", &min).append("max", &max);
        for ((name, _), state) in self.stage.fields.iter().zip(&states) {
            out.append(name, state.result(&arena)?);
        }
        out.finish();
        self.min = Some(max);
        self.next = end;
        self.filled += 1;
        check_size(self.out.len())
    }
}

impl Source for Bucketing {
    fn advance(&mut self) -> Result<Step> {
        while !self.is_sorted {
            match self.input.advance()? {
                Step::Document => self.take_in()?,
                Step::Pause => return Ok(Step::Pause),
                Step::End => {
                    let collator = self.context.collator();
                    self.entries.sort_by(|a, b| order::compare(a.0.get(), b.0.get(), collator));
                    self.is_sorted = true;
                }
            }
        }
        if self.next >= self.entries.len() {
            return Ok(Step::End);
        }
        self.write()?;
        Ok(Step::Document)
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }
}
