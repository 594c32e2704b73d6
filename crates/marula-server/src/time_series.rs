//! The options of time-series collections, checked as mongod checks them, and their statistics.
//!
//! Source: manual "Time Series Collections"; errors recorded from mongod 6.0.

use std::sync::atomic::Ordering;

use marula_bson::{ByteSlice, Doc, DocBuf, DocWriter, Value};
use marula_db::time_series::{Granularity, SPAN_SECONDS_MAX, TimeSeries, buckets_namespace};
use marula_db::{Collection, CollectionOptions, Namespace};
use marula_error::{Error, Result, codes, errors};
use marula_operation::time_series::index::about_key;
use marula_query::expression::saturated_long;
use marula_query::feature_version::FeatureVersion;

use crate::command::create::bad_enumeration;
use crate::fields::{self, Field, Types};
use crate::request::Request;

errors! {
    /// A granularity is finer than the current one.
    pub bad_transition() = InvalidOptions, "Invalid transition for timeseries.granularity. Can only transition from 'seconds' to 'minutes' or 'minutes' to 'hours'.";
    pub(crate) encrypted_not_allowed() = 6_346_401, "Encrypted fields cannot be used with views or timeseries collections";
    not_with(ns: &Namespace, field: &str) = InvalidOptions, "{ns}: 'timeseries' is not allowed with '{field}'";
    dotted(ns: &Namespace, field: &str) = InvalidOptions, "{ns}: '{field}' must be a top-level field and not contain a '.'";
    meta_is_time() = InvalidOptions, "'metaField' cannot be the same as 'timeField'";
    meta_is_id() = InvalidOptions, "'metaField' cannot be \"_id\"";
    span_fixed(default: i64) = 5_510_500, "Timeseries 'bucketMaxSpanSeconds' is not configurable to a value other than the default of {default} for the provided granularity";
    not_alongside() = InvalidOptions, "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' need to be set alongside each other";
    not_alike() = InvalidOptions, "Timeseries 'bucketRoundingSeconds' needs to be equal to 'bucketMaxSpanSeconds'";
    rounding_fixed(default: i64) = InvalidOptions, "Timeseries 'bucketRoundingSeconds' is not configurable to a value other than the default of {default} for the provided granularity";
    span_too_large(field: &str, span: i64) = 51_024, "BSON field '{field}' value must be <= 31536000, actual value '{span}'";
    /// A span is shorter than the current one.
    pub bad_span_transition() = InvalidOptions, "Invalid transition for timeseries.bucketMaxSpanSeconds and timeseries.bucketRoundingSeconds. They can only be set together, to one value that is not less than before.";
    rounding_too_small(span: i64) = 51_024, "BSON field 'bucketRoundingSeconds' value must be >= 1, actual value '{span}'";
    span_too_small(span: i64) = 51_024, "BSON field 'bucketMaxSpanSeconds' value must be >= 1, actual value '{span}'";
}

const FIELDS: &[Field] = &[
    Field::required("timeField", Types::STRING),
    Field::optional("metaField", Types::STRING),
    Field::optional("granularity", Types::STRING),
    Field::optional("bucketMaxSpanSeconds", Types::NUMBER),
    Field::optional("bucketRoundingSeconds", Types::NUMBER).since(FeatureVersion::V7_0),
];

/// The options of `create` that a time-series collection does not take.
const NOT_WITH: &[&str] = &[
    "viewOn",
    "capped",
    "validator",
    "validationLevel",
    "validationAction",
    "idIndex",
    "clusteredIndex",
    "autoIndexId",
    "changeStreamPreAndPostImages",
    "flags",
];

/// Checks `timeseries` and the other options of a `create`.
pub(crate) fn check(request: &Request<'_>, ns: &Namespace, options: Doc<'_>) -> Result<()> {
    let asked = read_buckets(request.version, options)?;
    if request.arg("encryptedFields").is_some() {
        return Err(encrypted_not_allowed());
    }
    // `capped: false` is permitted.
    let is_given = |field: &&&str| match **field {
        "capped" => request.flag("capped"),
        field => request.arg(field).is_some(),
    };
    if let Some(field) = NOT_WITH.iter().find(is_given) {
        return Err(not_with(ns, field));
    }
    check_fields(ns, options)?;
    check_buckets(asked)
}

/// Checks `timeseries` without other options, as in `$out`.
pub(crate) fn check_alone(version: FeatureVersion, ns: &Namespace, options: Doc<'_>) -> Result<()> {
    let asked = read_buckets(version, options)?;
    check_fields(ns, options)?;
    check_buckets(asked)
}

/// The options of the buckets.
#[derive(Clone, Copy)]
struct Buckets {
    granularity: Option<Granularity>,
    span: Option<i64>,
    rounding: Option<i64>,
}

fn read_buckets(version: FeatureVersion, options: Doc<'_>) -> Result<Buckets> {
    fields::check_doc_in(version, "create.timeseries", FIELDS, options)?;
    let text =
        |name: &str| options.get(name).and_then(|text| text.as_str()).map(|text| text.to_string());
    let granularity = match text("granularity") {
        None => None,
        Some(name) => {
            let known = Granularity::from_name(&name);
            Some(known.ok_or_else(|| bad_enumeration(&name, "create.timeseries.granularity"))?)
        }
    };
    let (span, rounding) = seconds_of(options)?;
    Ok(Buckets { granularity, span, rounding })
}

fn check_fields(ns: &Namespace, options: Doc<'_>) -> Result<()> {
    let text =
        |name: &str| options.get(name).and_then(|text| text.as_str()).map(|text| text.to_string());
    let time = text("timeField").unwrap_or_default();
    if time.contains('.') {
        return Err(dotted(ns, "timeField"));
    }
    if let Some(meta) = text("metaField") {
        if meta == "_id" {
            return Err(meta_is_id());
        }
        if meta == time {
            return Err(meta_is_time());
        }
        if meta.contains('.') {
            return Err(dotted(ns, "metaField"));
        }
    }
    Ok(())
}

fn check_buckets(Buckets { granularity, span, rounding }: Buckets) -> Result<()> {
    match ((span, rounding), granularity) {
        ((Some(span), Some(rounding)), None) if span != rounding => Err(not_alike()),
        ((Some(_), Some(_)), None) | ((None, None), _) => Ok(()),
        ((None, Some(_)), None) => Err(not_alongside()),
        ((span, rounding), granularity) => {
            let granularity = granularity.unwrap_or_default();
            let default = i64::from(granularity.span_seconds());
            let rounding_default = i64::from(granularity.rounding_seconds());
            match (span, rounding) {
                (Some(span), _) if span != default => Err(span_fixed(default)),
                (_, Some(rounding)) if rounding != rounding_default => {
                    Err(rounding_fixed(rounding_default))
                }
                _ => Ok(()),
            }
        }
    }
}

/// Returns `bucketMaxSpanSeconds` and `bucketRoundingSeconds`, if they are given.
///
/// Errors: a span that is too short, or longer than a year.
pub(crate) fn seconds_of(options: Doc<'_>) -> Result<(Option<i64>, Option<i64>)> {
    #[allow(clippy::cast_possible_truncation)]
    let read = |name: &str| match options.get(name).and_then(|span| span.as_f64()) {
        Some(span) if (span as i64) < 1 => Err(match name {
            "bucketMaxSpanSeconds" => span_too_small(span as i64),
            _ => rounding_too_small(span as i64),
        }),
        // 6.0 has another message for a long span.
        Some(span)
            if span as i64 > i64::from(SPAN_SECONDS_MAX) && name != "bucketMaxSpanSeconds" =>
        {
            Err(span_too_large(name, span as i64))
        }
        span => Ok(span.map(|span| span as i64)),
    };
    Ok((read("bucketMaxSpanSeconds")?, read("bucketRoundingSeconds")?))
}

/// Returns the options of the buckets of a new collection, in the order in which `listCollections`
/// shows them.
///
/// Errors: those of the collation.
pub(crate) fn bucket_options(
    request: Option<&Request<'_>>,
    options: Doc<'_>,
) -> Result<CollectionOptions> {
    let arg = |name: &str| request.and_then(|request| request.arg(name));
    let time_series = TimeSeries::parse(options).expect("the options have been checked");
    let document = DocBuf::build(|out| {
        for name in ["storageEngine", "indexOptionDefaults"] {
            if let Some(Value::Document(value)) = arg(name)
                && !value.is_empty()
            {
                out.append(name, value);
            }
        }
        out.append("validator", &time_series.validator());
        if let Some(collation) = arg("collation") {
            out.append("collation", collation);
        }
        out.append("clusteredIndex", true);
        if let Some(seconds) = arg("expireAfterSeconds").and_then(saturated_long) {
            out.append("expireAfterSeconds", seconds);
        }
        out.append("timeseries", &time_series.to_stored_doc());
    });
    CollectionOptions::parse(document.as_doc())
}

/// Returns the options of the collection itself as `listCollections` shows them, derived from those
/// of its buckets.
pub(crate) fn shown_options(buckets: &Collection) -> DocBuf {
    let state = buckets.state();
    DocBuf::build(|out| {
        for element in state.options.document.as_doc() {
            match &**element.name {
                b"validator" | b"clusteredIndex" => {}
                b"timeseries" => {
                    if let Some(time_series) = &state.options.time_series {
                        out.append("timeseries", &time_series.to_doc());
                    }
                }
                _ => {
                    out.append_raw(element.name, element.value);
                }
            }
        }
    })
}

/// Returns the options of the buckets as `listCollections` shows them.
pub(crate) fn shown_bucket_options(buckets: &Collection) -> DocBuf {
    let state = buckets.state();
    match &state.options.time_series {
        Some(time_series) if time_series.extended_range => {
            let shown = TimeSeries { extended_range: false, ..time_series.clone() };
            marula_db::catalog::time_series::with_time_series(&state.options.document, &shown)
        }
        _ => state.options.document.clone(),
    }
}

/// Writes the section `timeseries` of `collStats`.
pub(crate) fn write_statistics(buckets: &Collection, out: &mut DocWriter<'_>) {
    let counters = &buckets.open_buckets().counters;
    let of = |counter: &std::sync::atomic::AtomicI64| counter.load(Ordering::Relaxed);
    let mut section = out.begin_doc("timeseries");
    let ns = buckets.namespace();
    section.append("bucketsNs", ns.as_str());
    let (count, size) = (buckets.count(), buckets.size_bytes());
    let mut append = |name: &str, number: i64| {
        section.append(name, Value::whole(number));
    };
    append("bucketCount", count);
    if count > 0 {
        append("avgBucketSize", size / count);
    }
    let (inserts, updates) = (of(&counters.bucket_inserts), of(&counters.bucket_updates));
    let (commits, measurements) = (inserts + updates, of(&counters.measurements));
    append("numBucketInserts", inserts);
    append("numBucketUpdates", updates);
    append("numBucketsOpenedDueToMetadata", of(&counters.opened_due_to_metadata));
    append("numBucketsClosedDueToCount", of(&counters.closed_due_to_count));
    append("numBucketsClosedDueToSchemaChange", of(&counters.closed_due_to_schema));
    append("numBucketsClosedDueToSize", of(&counters.closed_due_to_size));
    append("numBucketsClosedDueToTimeForward", of(&counters.closed_due_to_time_forward));
    append("numBucketsClosedDueToTimeBackward", of(&counters.closed_due_to_time_backward));
    append("numBucketsClosedDueToMemoryThreshold", of(&counters.closed_due_to_memory));
    append("numCommits", commits);
    append("numWaits", 0);
    append("numMeasurementsCommitted", measurements);
    if commits > 0 {
        append("avgNumMeasurementsPerCommit", measurements / commits);
    }
    // Buckets are not compressed individually: the store compresses all of them.
    for name in [
        "numMeasurementsGroupCommitted",
        "numBytesUncompressed",
        "numBytesCompressed",
        "numSubObjCompressionRestart",
        "numCompressedBuckets",
        "numUncompressedBuckets",
        "numFailedDecompressBuckets",
    ] {
        append(name, 0);
    }
}

/// Returns the namespace of a collection's data: that of the buckets for a time-series collection.
pub(crate) fn data_namespace(db: &marula_db::Db, ns: &Namespace) -> Result<Namespace> {
    match db.collection(ns) {
        Some(collection) if is_shown(&collection) => buckets_namespace(ns),
        _ => Ok(ns.clone()),
    }
}

/// Returns whether a collection is a time-series collection as clients see it, not its buckets.
pub(crate) fn is_shown(collection: &Collection) -> bool {
    let state = collection.state();
    state.options.view.is_some() && state.options.time_series.is_some()
}

/// Returns an error about a key pattern with the whole request, as mongod does.
pub(crate) fn quoting(error: Error, request: &Request<'_>) -> Error {
    let shown = DocBuf::build(|out| {
        out.append("createIndexes", request.collection_name().unwrap_or_default());
        out.append("v", request.arg("v").unwrap_or(2.into()));
        if let Some(indexes) = request.arg("indexes") {
            out.append("indexes", indexes);
        }
        out.append("ignoreUnknownIndexOptions", request.flag("ignoreUnknownIndexOptions"));
        for name in ["commitQuorum", "isTimeseriesNamespace", "collectionUUID"] {
            if let Some(value) = request.arg(name) {
                out.append(name, value);
            }
        }
    });
    let code = error.code();
    about_key(error, code, shown.as_doc())
}

/// Returns an error about a key pattern that should name an index: no index has it.
pub(crate) fn not_found(error: Error, request: &Request<'_>) -> Error {
    let shown = DocBuf::build(|out| {
        for field in request.body {
            if field.name == request.first.name || request.arg(&field.name.to_str_lossy()).is_some()
            {
                out.append_raw(field.name, field.value);
            }
        }
    });
    about_key(error, codes::IndexNotFound, shown.as_doc())
}
