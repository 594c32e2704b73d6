//! One bucket: parses its document, adds measurements, and writes it again.

use std::cmp::Ordering;
use std::collections::HashMap;

use marula_bson::order::{canonical_class, compare};
use marula_bson::{Collator, Doc, DocBuf, DocWriter, ObjectId, RawValue, Type, Value, ValueBuf};
use marula_error::Result;

use super::{Bucketing, TimeSeries};

/// The maximum number of measurements of a bucket. Source: manual "Time Series Collection
/// Limitations" and mongod's default of `timeseriesBucketMaxCount`.
const MEASUREMENTS_MAX: usize = 1_000;
/// The maximum size of a bucket's measurements. Source: mongod's default of
/// `timeseriesBucketMaxSize`.
const BYTES_MAX: usize = 125 * 1024;

/// The reason why a bucket does not accept a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// It has the maximum number of measurements.
    Count,
    /// A field has another type.
    Schema,
    /// It has the maximum size.
    Size,
    /// The measurement is later than the end of the bucket's span.
    TimeForward,
    /// The measurement is earlier than the start of the bucket.
    TimeBackward,
}

/// A parsed bucket.
pub struct Bucket {
    id: ObjectId,
    meta: Option<ValueBuf>,
    bucketing: Bucketing,
    start_ms: i64,
    count: usize,
    data_bytes: usize,
    fields: Vec<Field>,
    places: HashMap<Box<[u8]>, usize>,
}

/// A field of the measurements.
struct Field {
    name: Box<[u8]>,
    /// The elements of the field's `data` document, each named by its measurement's number.
    elements: Vec<u8>,
    /// The last measurement that was added with the field; `None` if none was since the bucket was
    /// loaded.
    last: Option<usize>,
    min: ValueBuf,
    max: ValueBuf,
}

impl Bucket {
    /// An empty bucket that starts with a measurement at `time_ms`.
    pub fn begin(options: &TimeSeries, meta: Option<ValueBuf>, time_ms: i64) -> Self {
        let start_ms = options.bucketing.round_down(time_ms);
        // Times outside the range are truncated to the 32 bits of an ObjectId.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let seconds = start_ms.div_euclid(1_000) as u32;
        Bucket {
            id: ObjectId::generate(seconds),
            meta,
            bucketing: options.bucketing,
            start_ms,
            count: 0,
            data_bytes: 0,
            fields: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Parses a bucket's document. `None` if the bucket is closed or was not made by this module.
    pub fn load(options: &TimeSeries, document: Doc<'_>) -> Option<Self> {
        let Some(Value::ObjectId(id)) = document.get("_id") else { return None };
        let control = document.get("control")?.as_doc()?;
        let is_closed = control.get("closed").is_some_and(|closed| closed.is_truthy());
        if is_closed || control.get("version")?.as_exact_i64() != Some(1) {
            return None;
        }
        let (min, max) = (control.get("min")?.as_doc()?, control.get("max")?.as_doc()?);
        let data = document.get("data")?.as_doc()?;
        let Some(Value::DateTime(start_ms)) = min.get(&options.time_field) else { return None };
        let mut bucket = Bucket {
            id,
            meta: document.get("meta").map(|meta| meta.to_buf()),
            bucketing: options.bucketing,
            start_ms,
            count: data.get(&options.time_field)?.as_doc()?.iter().count(),
            data_bytes: 0,
            fields: Vec::new(),
            places: HashMap::new(),
        };
        for field in data {
            let name: &[u8] = field.name;
            let elements = field.value.get().as_doc()?.elements_bytes().to_vec();
            bucket.data_bytes += elements.len();
            bucket.places.insert(name.into(), bucket.fields.len());
            bucket.fields.push(Field {
                name: name.into(),
                elements,
                last: None,
                min: min.get(field.name)?.to_buf(),
                max: max.get(field.name)?.to_buf(),
            });
        }
        Some(bucket)
    }

    /// The bucket's `_id`.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The meta value.
    pub fn meta(&self) -> Option<&ValueBuf> {
        self.meta.as_ref()
    }

    /// Adds a measurement. An empty bucket accepts any.
    pub fn push(
        &mut self,
        options: &TimeSeries,
        measurement: Doc<'_>,
        time_ms: i64,
        collator: Option<&dyn Collator>,
    ) -> std::result::Result<(), Full> {
        if self.count > 0 {
            self.check(options, measurement, time_ms, self.count.to_string().len())?;
        }
        self.add(options, measurement, collator);
        Ok(())
    }

    /// Adds a measurement that fits.
    fn add(&mut self, options: &TimeSeries, measurement: Doc<'_>, collator: Option<&dyn Collator>) {
        let is_meta =
            |name: &[u8]| options.meta_field.as_ref().is_some_and(|meta| meta.as_bytes() == name);
        let is_time = |name: &[u8]| options.time_field.as_bytes() == name;
        let number = self.count.to_string();
        for element in measurement {
            let name: &[u8] = element.name;
            if is_meta(name) {
                continue;
            }
            let place = match self.places.get(name) {
                Some(&place) => place,
                None => {
                    let value = element.value.get();
                    let min = if is_time(name) { Value::DateTime(self.start_ms) } else { value };
                    self.places.insert(name.into(), self.fields.len());
                    self.fields.push(Field {
                        name: name.into(),
                        elements: Vec::new(),
                        last: None,
                        min: min.to_buf(),
                        max: value.to_buf(),
                    });
                    self.fields.len() - 1
                }
            };
            let field = &mut self.fields[place];
            // A second element would be read as that of the next measurement.
            if field.last.replace(self.count) == Some(self.count) {
                continue;
            }
            let before = field.elements.len();
            append_element(&mut field.elements, number.as_bytes(), element.value);
            self.data_bytes += field.elements.len() - before;
            let value = element.value.get();
            if let Some(min) = merged(field.min.get(), value, Ordering::Less, collator) {
                field.min = min;
            }
            if let Some(max) = merged(field.max.get(), value, Ordering::Greater, collator) {
                field.max = max;
            }
        }
        self.count += 1;
    }

    /// Rebuilds a document's bucket from the measurements for which `keep` returns `true`; returns
    /// it with the number of removed measurements, and no bucket if none is kept. `None` if this
    /// module did not make the document.
    pub fn keeping(
        options: &TimeSeries,
        document: Doc<'_>,
        collator: Option<&dyn Collator>,
        keep: &mut dyn FnMut(Doc<'_>) -> Result<bool>,
    ) -> Result<Option<(Option<Bucket>, usize)>> {
        let Some((mut kept, measurements)) = split(options, document) else {
            return Ok(None);
        };
        let mut removed = 0;
        for measurement in &measurements {
            match keep(measurement.as_doc())? {
                true => kept.add(options, measurement.as_doc(), collator),
                false => removed += 1,
            }
        }
        Ok(Some((Some(kept).filter(|kept| kept.count > 0), removed)))
    }

    /// Checks that another measurement fits.
    fn check(
        &self,
        options: &TimeSeries,
        measurement: Doc<'_>,
        time_ms: i64,
        digits: usize,
    ) -> std::result::Result<(), Full> {
        let mut bytes = 0;
        for element in measurement {
            let name: &[u8] = element.name;
            if options.meta_field.as_ref().is_some_and(|meta| meta.as_bytes() == name) {
                continue;
            }
            bytes += element.value.bytes().len() + digits + 2;
            if let Some(&place) = self.places.get(name)
                && !is_alike(self.fields[place].min.get(), element.value.get())
            {
                return Err(Full::Schema);
            }
        }
        let span_ms = i64::from(self.bucketing.span_seconds()) * 1_000;
        match time_ms {
            _ if self.count >= MEASUREMENTS_MAX => Err(Full::Count),
            _ if self.data_bytes + bytes > BYTES_MAX => Err(Full::Size),
            time if time < self.start_ms => Err(Full::TimeBackward),
            time if time.saturating_sub(self.start_ms) >= span_ms => Err(Full::TimeForward),
            _ => Ok(()),
        }
    }

    /// Writes the bucket's document into `out`, which is cleared first.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        let mut document = DocWriter::new(out);
        document.append("_id", self.id);
        let mut control = document.begin_doc("control");
        control.append("version", 1);
        let mut min = control.begin_doc("min");
        for field in &self.fields {
            min.append(&field.name, field.min.get());
        }
        min.finish();
        let mut max = control.begin_doc("max");
        for field in &self.fields {
            max.append(&field.name, field.max.get());
        }
        max.finish();
        control.finish();
        if let Some(meta) = &self.meta {
            document.append("meta", meta.get());
        }
        let mut data = document.begin_doc("data");
        for field in &self.fields {
            data.begin_doc(&field.name).append_elements(&field.elements);
        }
        data.finish();
        document.finish();
    }
}

/// Splits a bucket's document into an empty bucket and its measurements.
fn split(options: &TimeSeries, document: Doc<'_>) -> Option<(Bucket, Vec<DocBuf>)> {
    let Some(Value::ObjectId(id)) = document.get("_id") else { return None };
    let control = document.get("control")?.as_doc()?;
    if control.get("version")?.as_exact_i64() != Some(1) {
        return None;
    }
    let start = control.get("min")?.as_doc()?.get(&options.time_field)?;
    let Value::DateTime(start_ms) = start else { return None };
    let meta = document.get("meta");
    let data = document.get("data")?.as_doc()?;
    let times = data.get(&options.time_field)?.as_doc()?;
    let places: HashMap<&[u8], usize> =
        times.iter().enumerate().map(|(at, time)| (&**time.name, at)).collect();
    let mut measurements = vec![DocBuf::new(); places.len()];
    for column in data {
        for element in column.value.get().as_doc()? {
            let name: &[u8] = element.name;
            measurements[*places.get(name)?].push(column.name, element.value.get());
        }
    }
    if let (Some(name), Some(meta)) = (&options.meta_field, meta) {
        measurements.iter_mut().for_each(|measurement| measurement.push(name, meta));
    }
    let bucket = Bucket {
        id,
        meta: meta.map(|meta| meta.to_buf()),
        bucketing: options.bucketing,
        start_ms,
        count: 0,
        data_bytes: 0,
        fields: Vec::new(),
        places: HashMap::new(),
    };
    Some((bucket, measurements))
}

/// The number of measurements in a bucket's document.
pub fn count(options: &TimeSeries, document: Doc<'_>) -> usize {
    let data = document.get("data").and_then(|data| data.as_doc());
    let times = data.and_then(|data| data.get(&options.time_field));
    times.and_then(|times| times.as_doc()).map_or(0, |times| times.iter().count())
}

fn append_element(out: &mut Vec<u8>, name: &[u8], value: RawValue<'_>) {
    out.push(value.kind().tag());
    out.extend_from_slice(name);
    out.push(0);
    out.extend_from_slice(value.bytes());
}

/// Returns whether two values may be in one column: they have the same class, and so have their
/// fields with equal names.
fn is_alike(a: Value<'_>, b: Value<'_>) -> bool {
    let same_fields = |a: Doc<'_>, b: Doc<'_>| {
        b.iter()
            .all(|field| a.get(field.name).is_none_or(|known| is_alike(known, field.value.get())))
    };
    match (a, b) {
        (Value::Document(a), Value::Document(b)) | (Value::Array(a), Value::Array(b)) => {
            same_fields(a, b)
        }
        (a, b) => canonical_class(a.kind()) == canonical_class(b.kind()),
    }
}

/// The lesser, or greater, of two values: documents field by field, arrays element by element.
/// `None` means that the old value stays.
fn merged(
    old: Value<'_>,
    new: Value<'_>,
    wanted: Ordering,
    collator: Option<&dyn Collator>,
) -> Option<ValueBuf> {
    match (old, new) {
        (Value::Document(old), Value::Document(new)) => {
            let document = merged_fields(old, new, wanted, collator);
            Some(Value::Document(document.as_doc()).to_buf())
        }
        (Value::Array(old), Value::Array(new)) => {
            let array = merged_fields(old, new, wanted, collator);
            Some(Value::Array(array.as_doc()).to_buf())
        }
        (old, new) => (compare(new, old, collator) == wanted).then(|| new.to_buf()),
    }
}

fn merged_fields(
    old: Doc<'_>,
    new: Doc<'_>,
    wanted: Ordering,
    collator: Option<&dyn Collator>,
) -> DocBuf {
    let mut document = DocBuf::new();
    for field in old {
        let value = field.value.get();
        let better = new.get(field.name).and_then(|other| merged(value, other, wanted, collator));
        document.push(field.name, better.as_ref().map_or(value, |better| better.get()));
    }
    for field in new {
        if old.get_raw(field.name).is_none() {
            document.push(field.name, field.value.get());
        }
    }
    document
}

/// The time of a measurement, if its time field holds a date.
pub fn time_of(options: &TimeSeries, measurement: Doc<'_>) -> Option<i64> {
    let raw = measurement.get_raw(options.time_field.as_bytes())?;
    match raw.kind() {
        Type::DateTime => match raw.get() {
            Value::DateTime(time) => Some(time),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
