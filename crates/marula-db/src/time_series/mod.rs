//! Time-series collections: measurements stored many to a document, in buckets.
//!
//! What a client sees as `weather` is an entry without documents, like a view, that unpacks
//! `system.buckets.weather`. There each document is a bucket: the measurements of one *meta* value
//! over a span of time, field by field.
//!
//! `bucket` builds and extends a bucket's document, `open` remembers which bucket of a meta value
//! takes more. The layout of a bucket is in docs/file-formats.md.

pub mod bucket;
pub mod open;

use marula_bson::{Doc, DocBuf, Value, doc};

use crate::namespace::Namespace;

/// What the name of a collection of buckets begins with.
pub const BUCKETS_PREFIX: &str = "system.buckets.";

/// How close together measurements come: how far a bucket's start is rounded, and how long it may
/// span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[allow(missing_docs)]
pub enum Granularity {
    #[default]
    Seconds,
    Minutes,
    Hours,
}

impl Granularity {
    /// The granularity of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "seconds" => Some(Granularity::Seconds),
            "minutes" => Some(Granularity::Minutes),
            "hours" => Some(Granularity::Hours),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Granularity::Seconds => "seconds",
            Granularity::Minutes => "minutes",
            Granularity::Hours => "hours",
        }
    }

    /// How long a bucket spans at most. Source: manual "Set Granularity for Time Series Data".
    pub const fn span_seconds(self) -> i32 {
        match self {
            Granularity::Seconds => 3_600,
            Granularity::Minutes => 86_400,
            Granularity::Hours => 2_592_000,
        }
    }

    /// What the start of a bucket is rounded down to.
    pub const fn rounding_seconds(self) -> i32 {
        match self {
            Granularity::Seconds => 60,
            Granularity::Minutes => 3_600,
            Granularity::Hours => 86_400,
        }
    }
}

/// The longest span that a bucket may be given. Source: manual "Set Granularity for Time Series
/// Data": a year.
pub const SPAN_SECONDS_MAX: i32 = 31_536_000;

/// Which span of time a bucket covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bucketing {
    /// As a granularity has it.
    Granularity(Granularity),
    /// As `bucketMaxSpanSeconds` and `bucketRoundingSeconds` say, which are alike: the buckets of a
    /// meta value do not overlap. MongoDB has it since 6.3.
    Seconds(i32),
}

impl Bucketing {
    /// How long a bucket spans at most.
    pub const fn span_seconds(self) -> i32 {
        match self {
            Bucketing::Granularity(granularity) => granularity.span_seconds(),
            Bucketing::Seconds(seconds) => seconds,
        }
    }

    /// What the start of a bucket is rounded down to.
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
    /// The field of the moment.
    pub time_field: String,
    /// The field of what is measured, where there is one.
    pub meta_field: Option<String>,
    /// Which span of time a bucket covers.
    pub bucketing: Bucketing,
    /// Whether a bucket may begin before 1970 or after 2038: the seconds in its `_id` then say
    /// nothing.
    pub extended_range: bool,
}

impl TimeSeries {
    /// Reads the option, already checked.
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

    /// The longest span of a bucket.
    pub fn span_ms(&self) -> i64 {
        i64::from(self.bucketing.span_seconds()) * 1_000
    }

    /// The option as `listCollections` shows it.
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

    /// The option as the catalogue keeps it.
    pub fn to_stored_doc(&self) -> DocBuf {
        let mut document = self.to_doc();
        if self.extended_range {
            document.push("extendedRange", true);
        }
        document
    }

    /// The pipeline that shows the measurements of the buckets: an array of stages.
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

    /// What every document of the buckets must look like.
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

/// Whether the seconds of a moment do not fit the first half of an ObjectId's range.
pub fn is_extended(time_ms: i64) -> bool {
    !(0..=i64::from(i32::MAX) * 1_000).contains(&time_ms)
}

/// Where the buckets of a time-series collection are.
pub fn buckets_namespace(ns: &Namespace) -> marula_error::Result<Namespace> {
    Namespace::new(ns.db(), &format!("{BUCKETS_PREFIX}{}", ns.collection()))
}

/// The time-series collection that shows the buckets in `ns`; `None` where these are no buckets.
pub fn shown_namespace(ns: &Namespace) -> Option<Namespace> {
    let name = ns.collection().strip_prefix(BUCKETS_PREFIX)?;
    Namespace::new(ns.db(), name).ok()
}

/// A meta value with the fields of its documents in order of their names, so that the order in
/// which a client writes them makes no difference.
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
