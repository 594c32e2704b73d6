//! Time-series collections: measurements stored in buckets, many per document.
//!
//! The collection that a client sees as `weather` is an entry without documents, like a view, that
//! unpacks `system.buckets.weather`. There each document is a bucket: the measurements of one
//! *meta* value over a span of time, field by field.
//!
//! `bucket` builds and extends a bucket's document; `open` remembers the open bucket of each meta
//! value. docs/file-formats.md describes the layout of a bucket.

pub mod bucket;
pub mod open;

use marula_bson::{Doc, DocBuf, Value, doc};

use crate::namespace::Namespace;

/// The prefix of the name of a bucket collection.
pub const BUCKETS_PREFIX: &str = "system.buckets.";

/// The expected interval between measurements; it determines the rounding of a bucket's start and
/// its maximum span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[allow(missing_docs)]
pub enum Granularity {
    #[default]
    Seconds,
    Minutes,
    Hours,
}

impl Granularity {
    /// The granularity with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "seconds" => Some(Granularity::Seconds),
            "minutes" => Some(Granularity::Minutes),
            "hours" => Some(Granularity::Hours),
            _ => None,
        }
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Granularity::Seconds => "seconds",
            Granularity::Minutes => "minutes",
            Granularity::Hours => "hours",
        }
    }

    /// The maximum span of a bucket. Source: manual "Set Granularity for Time Series Data".
    pub const fn span_seconds(self) -> i32 {
        match self {
            Granularity::Seconds => 3_600,
            Granularity::Minutes => 86_400,
            Granularity::Hours => 2_592_000,
        }
    }

    /// The unit that the start of a bucket is rounded down to.
    pub const fn rounding_seconds(self) -> i32 {
        match self {
            Granularity::Seconds => 60,
            Granularity::Minutes => 3_600,
            Granularity::Hours => 86_400,
        }
    }
}

/// The maximum configurable span of a bucket. Source: manual "Set Granularity for Time Series
/// Data": a year.
pub const SPAN_SECONDS_MAX: i32 = 31_536_000;

/// The span of time that a bucket covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bucketing {
    /// The span of a granularity.
    Granularity(Granularity),
    /// The value of `bucketMaxSpanSeconds` and `bucketRoundingSeconds`, which must be equal: the
    /// buckets of a meta value do not overlap. Introduced in MongoDB 6.3.
    Seconds(i32),
}

impl Bucketing {
    /// The maximum span of a bucket.
    pub const fn span_seconds(self) -> i32 {
        match self {
            Bucketing::Granularity(granularity) => granularity.span_seconds(),
            Bucketing::Seconds(seconds) => seconds,
        }
    }

    /// The unit that the start of a bucket is rounded down to.
    pub const fn rounding_seconds(self) -> i32 {
        match self {
            Bucketing::Granularity(granularity) => granularity.rounding_seconds(),
            Bucketing::Seconds(seconds) => seconds,
        }
    }

    /// The start of a bucket whose first measurement is at `time_ms`.
    pub fn round_down(self, time_ms: i64) -> i64 {
        let rounding_ms = i64::from(self.rounding_seconds()) * 1_000;
        time_ms.saturating_sub(time_ms.rem_euclid(rounding_ms))
    }
}

/// The option `timeseries`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeSeries {
    /// The field of the time.
    pub time_field: String,
    /// The meta field, if any.
    pub meta_field: Option<String>,
    /// The span of time that a bucket covers.
    pub bucketing: Bucketing,
    /// Whether a bucket may start before 1970 or after 2038; the seconds in its `_id` are then
    /// meaningless.
    pub extended_range: bool,
}

impl TimeSeries {
    /// Parses the option, which has been checked.
    pub fn parse(options: Doc<'_>) -> Option<Self> {
        let text = |name: &str| options.get(name)?.as_str().map(|text| text.to_string());
        let seconds = options
            .get("bucketRoundingSeconds")
            .and_then(|seconds| seconds.as_exact_i64())
            .and_then(|seconds| i32::try_from(seconds).ok())
            .filter(|seconds| (1..=SPAN_SECONDS_MAX).contains(seconds));
        let granularity = text("granularity").and_then(|name| Granularity::from_name(&name));
        Some(TimeSeries {
            time_field: text("timeField")?,
            meta_field: text("metaField"),
            bucketing: match (granularity, seconds) {
                (None, Some(seconds)) => Bucketing::Seconds(seconds),
                (granularity, _) => Bucketing::Granularity(granularity.unwrap_or_default()),
            },
            extended_range: options.get("extendedRange").is_some_and(|flag| flag.is_truthy()),
        })
    }

    /// The maximum span of a bucket.
    pub fn span_ms(&self) -> i64 {
        i64::from(self.bucketing.span_seconds()) * 1_000
    }

    /// The option as shown by `listCollections`.
    pub fn to_doc(&self) -> DocBuf {
        DocBuf::build(|out| {
            out.append("timeField", self.time_field.as_str());
            if let Some(meta) = &self.meta_field {
                out.append("metaField", meta.as_str());
            }
            match self.bucketing {
                Bucketing::Granularity(granularity) => {
                    out.append("granularity", granularity.name());
                }
                Bucketing::Seconds(seconds) => {
                    out.append("bucketRoundingSeconds", seconds);
                }
            }
            out.append("bucketMaxSpanSeconds", self.bucketing.span_seconds());
        })
    }

    /// The option as stored in the catalogue.
    pub fn to_stored_doc(&self) -> DocBuf {
        let mut document = self.to_doc();
        if self.extended_range {
            document.push("extendedRange", true);
        }
        document
    }

    /// The pipeline that unpacks the measurements of the buckets: an array of stages.
    pub fn pipeline(&self) -> DocBuf {
        let unpack = DocBuf::build(|out| {
            out.append("timeField", self.time_field.as_str());
            if let Some(meta) = &self.meta_field {
                out.append("metaField", meta.as_str());
            }
            out.append("bucketMaxSpanSeconds", self.bucketing.span_seconds());
            if self.extended_range {
                out.append("usesExtendedRange", true);
            }
        });
        doc! { "0": { "$_internalUnpackBucket": &unpack } }
    }

    /// The validator for documents of the bucket collection.
    pub fn validator(&self) -> DocBuf {
        let moment = DocBuf::build(|out| {
            out.append("bsonType", "object");
            out.begin_array("required").push(self.time_field.as_str());
            let mut properties = out.begin_doc("properties");
            properties.append(&self.time_field, &doc! { "bsonType": "date" });
        });
        let control = doc! {
            "bsonType": "object",
            "required": ["version", "min", "max"],
            "properties": {
                "version": { "bsonType": "number" },
                "min": &moment,
                "max": &moment,
                "closed": { "bsonType": "bool" },
                "count": { "bsonType": "number", "minimum": 1 }
            },
            "additionalProperties": false
        };
        doc! {
            "$jsonSchema": {
                "bsonType": "object",
                "required": ["_id", "control", "data"],
                "properties": {
                    "_id": { "bsonType": "objectId" },
                    "control": &control,
                    "data": { "bsonType": "object" },
                    "meta": {}
                },
                "additionalProperties": false
            }
        }
    }
}

/// Returns whether the seconds of a time are outside the positive range of a signed 32-bit integer.
pub fn is_extended(time_ms: i64) -> bool {
    !(0..=i64::from(i32::MAX) * 1_000).contains(&time_ms)
}

/// The namespace of the buckets of a time-series collection.
pub fn buckets_namespace(ns: &Namespace) -> marula_error::Result<Namespace> {
    Namespace::new(ns.db(), &format!("{BUCKETS_PREFIX}{}", ns.collection()))
}

/// The time-series collection over the buckets in `ns`; `None` if `ns` is not a bucket collection.
pub fn shown_namespace(ns: &Namespace) -> Option<Namespace> {
    let name = ns.collection().strip_prefix(BUCKETS_PREFIX)?;
    Namespace::new(ns.db(), name).ok()
}

/// A meta value with the fields of its documents sorted by name, so that the field order in a
/// client's document is irrelevant.
pub fn normalize(value: Value<'_>, out: &mut DocBuf) {
    out.push("meta", sorted(value).get());
}

fn sorted(value: Value<'_>) -> marula_bson::ValueBuf {
    match value {
        Value::Document(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by(|a, b| a.name.cmp(b.name));
            let mut document = DocBuf::new();
            for field in fields {
                document.push(field.name, sorted(field.value.get()).get());
            }
            Value::Document(document.as_doc()).to_buf()
        }
        Value::Array(items) => {
            let mut array = DocBuf::new();
            for item in items {
                array.push(item.name, sorted(item.value.get()).get());
            }
            Value::Array(array.as_doc()).to_buf()
        }
        other => other.to_buf(),
    }
}
