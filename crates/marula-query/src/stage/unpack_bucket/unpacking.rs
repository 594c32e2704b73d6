//! The walk over buckets and their measurements.

use std::sync::Arc;

use marula_bson::doc::Iter;
use marula_bson::{BStr, Doc, DocBuf, DocWriter, Value, ValueBuf};
use marula_error::Result;

use super::digest::{Digest, Extremes};
use super::push::is_bounded;
use super::{UnpackBucket, compressed, not_a_bucket, unexpected_meta};
use crate::known::Known;
use crate::stage::{Source, Step};

/// The values of one field: elements in `Unpacking::bytes`, each with its measurement's number as
/// its name.
#[derive(Default)]
struct Column {
    name: Box<[u8]>,
    next: usize,
    end: usize,
}

pub(super) struct Unpacking {
    input: Box<dyn Source>,
    stage: Arc<UnpackBucket>,
    shows_time: bool,
    /// The elements of the bucket's columns, copied because the input may move on.
    bytes: Vec<u8>,
    times: Column,
    columns: Vec<Column>,
    meta: Option<ValueBuf>,
    /// The bound of the bucket's measurements, if the buckets come in an order.
    known: Option<Known>,
    out: Vec<u8>,
}

impl Unpacking {
    pub(super) fn new(input: Box<dyn Source>, stage: Arc<UnpackBucket>) -> Self {
        Unpacking {
            input,
            shows_time: stage.shown.has(&stage.time_field),
            stage,
            bytes: Vec::new(),
            times: Column::default(),
            columns: Vec::new(),
            meta: None,
            known: None,
            out: Vec::new(),
        }
    }

    /// Reads the columns of the input's document.
    fn take_in(&mut self) -> Result<()> {
        let UnpackBucket { meta_field, time_field, shown, digest, time_order, .. } = &*self.stage;
        let bucket = self.input.doc();
        let control = bucket.get("control").and_then(|control| control.as_doc());
        let version = control.and_then(|control| control.get("version"));
        if version.is_some_and(|version| version.as_exact_i64() == Some(2)) {
            return Err(compressed());
        }
        let data = bucket.get("data").and_then(|data| data.as_doc()).ok_or_else(not_a_bucket)?;
        let meta = bucket.get("meta");
        if meta.is_some() && meta_field.is_none() {
            return Err(unexpected_meta());
        }
        let shows_meta = meta_field.as_deref().is_some_and(|field| shown.has(field));
        self.meta = meta.filter(|_| shows_meta).map(|meta| meta.to_buf());
        let bound_ms = time_order.and_then(|order| order.bound_ms(bucket, time_field));
        self.known = bound_ms.map(|ms| Known { bound_ms: Some(ms), ..Known::default() });
        self.bytes.clear();
        self.columns.clear();
        self.times = Column::default();
        if let (Digest::Extremes(extremes), Some(control)) = (digest, control) {
            if let Some(columns) = extreme_columns(control, time_field, extremes, &mut self.bytes) {
                (self.times, self.columns) = columns;
                return Ok(());
            }
            self.bytes.clear();
        }
        let latest = match digest {
            Digest::Latest { takes_last } => latest(data, time_field, *takes_last),
            _ => None,
        };
        for field in data {
            let is_time = **field.name == **time_field;
            let Some(values) = field.value.get().as_doc() else { continue };
            if !is_time && !shown.has(field.name) {
                continue;
            }
            let elements = match latest {
                Some(number) => element(values, number),
                None => values.elements_bytes(),
            };
            let column = column(field.name, elements, &mut self.bytes);
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
        if self.shows_time {
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

    fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }
}

/// Returns the columns of one or two measurements with the extremes of a bucket: the times, and
/// those of the fields; `None` if some extreme may be no value of a measurement.
fn extreme_columns(
    control: Doc<'_>,
    time_field: &[u8],
    extremes: &Extremes,
    bytes: &mut Vec<u8>,
) -> Option<(Column, Vec<Column>)> {
    let (min, max) = (control.get("min")?.as_doc()?, control.get("max")?.as_doc()?);
    let time = max.get(time_field)?;
    let mut sides = vec![(min, &extremes.least), (max, &extremes.greatest)];
    sides.retain(|(_, fields)| !fields.is_empty());
    let times = DocBuf::build(|out| {
        for number in 0..sides.len().max(1) {
            out.append(number.to_string(), time);
        }
    });
    let mut columns = Vec::new();
    for (number, (values, fields)) in sides.into_iter().enumerate() {
        let number = number.to_string();
        for field in fields.iter().filter(|field| ***field != *time_field) {
            let Some(value) = values.get(field) else { continue };
            if !is_bounded(value.kind()) {
                return None;
            }
            let one = DocBuf::build(|out| {
                out.append(&number, value);
            });
            columns.push(column(field, one.as_doc().elements_bytes(), bytes));
        }
    }
    Some((column(time_field, times.as_doc().elements_bytes(), bytes), columns))
}

/// Adds a column of these elements.
fn column(name: &[u8], elements: &[u8], bytes: &mut Vec<u8>) -> Column {
    let next = bytes.len();
    bytes.extend_from_slice(elements);
    Column { name: name.into(), next, end: bytes.len() }
}

/// Returns the number of the latest measurement; `None` if a time is no date.
fn latest<'d>(data: Doc<'d>, time_field: &[u8], takes_last: bool) -> Option<&'d BStr> {
    let mut latest: Option<(i64, &BStr)> = None;
    for time in data.get(time_field)?.as_doc()? {
        let Value::DateTime(time_ms) = time.value.get() else { return None };
        let is_later = latest.is_none_or(|(best_ms, _)| match takes_last {
            true => time_ms >= best_ms,
            false => time_ms > best_ms,
        });
        if is_later {
            latest = Some((time_ms, time.name));
        }
    }
    latest.map(|(_, number)| number)
}

/// Returns the bytes of the element with a name; none if there is no such element.
fn element<'d>(values: Doc<'d>, name: &BStr) -> &'d [u8] {
    let mut elements = Iter::over(values.elements_bytes());
    loop {
        let from = elements.rest();
        match elements.next() {
            Some(element) if element.name == name => {
                return &from[..from.len() - elements.rest().len()];
            }
            Some(_) => {}
            None => return &[],
        }
    }
}
