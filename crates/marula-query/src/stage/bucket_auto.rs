//! `$bucketAuto`: groups by ranges of a value with about equal numbers of documents.

use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::key_string::encode_part;
use marula_bson::{Doc, DocWriter, Value, ValueBuf, order};
use marula_error::{Result, errors};

use super::bucket::is_expression;
use super::granularity::Granularity;
use super::group::{Field, parse_field};
use super::needs::{Gives, Needs};
use super::source::check_size;
use super::{Env, Parser, Source, Stage, StagePlace, StageRow, Step};
use crate::accumulator::Accumulator;
use crate::context::Context;
use crate::expression::number::short_double_text;
use crate::expression::{Arena, Expression, Frame, print};
use crate::feature_version::FeatureVersion;
use crate::meter;
use crate::spill::{ExternalSort, Front, Rows};

pub(super) const ROW: StageRow = StageRow {
    name: "$bucketAuto",
    since: FeatureVersion::V6_0,
    place: StagePlace::Anywhere,
    parse,
};

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
    let (mut group_by, mut buckets, mut granularity) = (None, None, None);
    // Those of an output that is given twice follow each other.
    let mut fields: Vec<Field> = Vec::new();
    for element in spec {
        let value = element.value.get();
        let kind = value.kind().alias();
        match &**element.name {
            b"groupBy" => {
                if !is_expression(value) || value.as_str().is_some_and(|text| text == "$") {
                    return Err(group_by_not_expression(&print::element(value)));
                }
                group_by = Some(Expression::parse(value, &mut parser.scope())?);
            }
            b"buckets" => buckets = Some(read_buckets(value)?),
            b"output" => {
                let doc = value.as_doc().ok_or_else(|| output_not_object(kind))?;
                for field in doc {
                    fields.push(parse_field(field.name, field.value.get(), parser)?);
                }
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
    let buckets = usize::try_from(buckets)
        .ok()
        .filter(|&count| count > 0)
        .ok_or_else(|| buckets_not_positive(buckets))?;
    // An empty output is the same as none.
    if fields.is_empty() {
        fields.push((b"count".to_vec().into(), Accumulator::counting()));
    }
    fields.iter_mut().try_for_each(|(_, accumulator)| accumulator.fix_count(parser.context))?;
    parser.push(BucketAuto { group_by, buckets, fields, granularity });
    Ok(())
}

fn read_buckets(value: Value<'_>) -> Result<i32> {
    if !value.kind().is_number() {
        return Err(buckets_not_number(value.kind().alias()));
    }
    let count = value.as_exact_i64().and_then(|count| i32::try_from(count).ok());
    let shown = || match value {
        Value::Double(number) => short_double_text(number),
        Value::Decimal128(number) => short_double_text(number.to_f64()),
        value => print::element(value),
    };
    count.ok_or_else(|| buckets_not_int(&shown()))
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

    fn reads(&self, needs: &mut Needs) -> Gives {
        needs.expression(&self.group_by);
        self.fields.iter().for_each(|(_, accumulator)| accumulator.reads(needs));
        Gives::Noted
    }

    fn start(self: Arc<Self>, input: Box<dyn Source>, env: &Env) -> Result<Box<dyn Source>> {
        let sort = ExternalSort::new(&env.context, env.stage_bytes_max, None);
        Ok(Box::new(Bucketing {
            input,
            stage: self,
            context: Arc::clone(&env.context),
            count: 0,
            rows: Rows::Coming(sort),
            filled: 0,
            min: None,
            arena: Arena::new(),
            key: Vec::new(),
            out: Vec::new(),
        }))
    }
}

struct Bucketing {
    input: Box<dyn Source>,
    stage: Arc<BucketAuto>,
    context: Arc<Context>,
    /// The number of documents.
    count: usize,
    /// Documents with their values: `{ v: <value>, d: <document> }`, sorted by the values; without
    /// `v` if the value is missing.
    rows: Rows<Front>,
    /// The number of buckets so far.
    filled: usize,
    /// The start of the next bucket, if boundaries are rounded.
    min: Option<ValueBuf>,
    arena: Arena,
    key: Vec<u8>,
    out: Vec<u8>,
}

/// Returns a field of the current row.
fn field<'f>(front: &'f Front, name: &str) -> Option<Value<'f>> {
    front.row().and_then(|(_, row)| Doc::trusted(row).get(name))
}

/// Returns the value of the current row; a missing one counts as null.
fn value(front: &Front) -> Option<Value<'_>> {
    front.row().map(|_| field(front, "v").unwrap_or(Value::Null))
}

fn document(front: &Front) -> Doc<'_> {
    field(front, "d").and_then(|document| document.as_doc()).unwrap_or(Doc::EMPTY)
}

impl Bucketing {
    fn take_in(&mut self) -> Result<Step> {
        let Rows::Coming(sort) = &mut self.rows else { return Ok(Step::End) };
        loop {
            match self.input.advance()? {
                Step::Document => {}
                step => return Ok(step),
            }
            let document = self.input.doc();
            self.arena.reset();
            let frame = Frame::new(document, &self.arena, &self.context);
            let value = self.stage.group_by.eval(&frame)?;
            if let Some(granularity) = self.stage.granularity {
                granularity.check(value)?;
            }
            self.key.clear();
            let ordered = value.unwrap_or(Value::Null);
            encode_part(ordered, false, self.context.collator(), &mut self.key);
            self.out.clear();
            let mut row = DocWriter::new(&mut self.out);
            if let Some(value) = value {
                row.append("v", value);
            }
            row.append("d", document);
            row.finish();
            sort.push(&self.key, &[&self.out])?;
            self.count += 1;
        }
    }

    /// Writes the next bucket; returns `false` if every document is in a bucket.
    fn write(&mut self) -> Result<bool> {
        let Bucketing { stage, context, arena, .. } = self;
        let Rows::Sorted(front) = &mut self.rows else { return Ok(false) };
        let Some(first) = value(front).map(|value| value.to_buf()) else { return Ok(false) };
        let min = match (self.min.take(), stage.granularity) {
            (Some(min), Some(_)) => min,
            (None, Some(granularity)) => granularity.down(first.get())?.to_buf(),
            (_, None) => first.clone(),
        };
        let collator = context.collator();
        let less = |a: Value<'_>, b: Value<'_>| order::compare(a, b, collator).is_lt();
        let mut states = Vec::with_capacity(stage.fields.len());
        for (_, accumulator) in &stage.fields {
            states.push(accumulator.start(Value::Null, context)?);
        }
        let mut last = first;
        let mut take = |front: &mut Front, last: &mut ValueBuf| -> Result<()> {
            arena.reset();
            let frame = Frame::new(document(front), arena, context);
            for ((_, accumulator), state) in stage.fields.iter().zip(&mut states) {
                accumulator.add(&mut **state, &frame)?;
            }
            if let Some(value) = value(front) {
                *last = value.to_buf();
            }
            front.advance()
        };
        // Rounds half up.
        let size = ((2 * self.count + stage.buckets) / (2 * stage.buckets)).max(1);
        let is_last = self.filled + 1 == stage.buckets;
        let mut taken = 0;
        while front.row().is_some() && (is_last || taken < size) {
            take(front, &mut last)?;
            taken += 1;
            meter::spend(meter::DOCUMENT)?;
        }
        let max = match stage.granularity {
            None => {
                while value(front).is_some_and(|value| !less(last.get(), value)) {
                    take(front, &mut last)?;
                }
                value(front).map_or_else(|| last.clone(), |value| value.to_buf())
            }
            Some(granularity) => {
                let mut boundary = granularity.up(last.get())?.to_buf();
                if boundary.get().as_f64() == Some(0.0) {
                    // No boundary is above zero and below the next value, so zero belongs to this
                    // bucket.
                    while value(front).is_some_and(|value| value.as_f64() == Some(0.0)) {
                        take(front, &mut last)?;
                    }
                    if let Some(value) = value(front) {
                        boundary = granularity.down(value)?.to_buf();
                    }
                }
                while value(front).is_some_and(|value| less(value, boundary.get())) {
                    take(front, &mut last)?;
                }
                boundary
            }
        };
        self.out.clear();
        let mut out = DocWriter::new(&mut self.out);
        out.begin_doc("_id").append("min", &min).append("max", &max);
        for ((name, _), state) in stage.fields.iter().zip(&states) {
            out.append(name, state.result(&self.arena)?);
        }
        out.finish();
        self.min = Some(max);
        self.filled += 1;
        check_size(self.out.len())?;
        Ok(true)
    }
}

impl Source for Bucketing {
    fn pull(&mut self) -> Result<Step> {
        if self.take_in()? == Step::Pause {
            return Ok(Step::Pause);
        }
        self.rows.settle(Front::new)?;
        Ok(if self.write()? { Step::Document } else { Step::End })
    }

    fn doc(&self) -> Doc<'_> {
        Doc::trusted(&self.out)
    }
}
