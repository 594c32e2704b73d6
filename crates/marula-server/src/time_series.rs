//! The options of a time-series collection: checked as mongod checks them, so that a wrong one is told of as such.
//!
//! Source: manual "Time Series Collections"; errors recorded from mongod 6.0.

use marula_bson::Doc;
use marula_db::Namespace;
use marula_error::{Result, errors};

use crate::command::create::bad_enumeration;
use crate::command::fields::{self, Field, Types};
use crate::request::Request;

errors! {
    not_with(ns: &Namespace, field: &str) = InvalidOptions, "{ns}: 'timeseries' is not allowed with '{field}'";
    dotted(ns: &Namespace, field: &str) = InvalidOptions, "{ns}: '{field}' must be a top-level field and not contain a '.'";
    meta_is_time() = InvalidOptions, "'metaField' cannot be the same as 'timeField'";
    meta_is_id() = InvalidOptions, "'metaField' cannot be \"_id\"";
    span_fixed(default: i64) = 5_510_500, "Timeseries 'bucketMaxSpanSeconds' is not configurable to a value other than the default of {default} for the provided granularity";
    span_too_small(span: i64) = 51_024, "BSON field 'bucketMaxSpanSeconds' value must be >= 1, actual value '{span}'";
}

const FIELDS: &[Field] = &[
    Field::required("timeField", Types::STRING),
    Field::optional("metaField", Types::STRING),
    Field::optional("granularity", Types::STRING),
    Field::optional("bucketMaxSpanSeconds", Types::NUMBER),
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
];

/// The longest span of a bucket by granularity. Source: manual "Set Granularity for Time Series Data".
const SPANS: &[(&str, i64)] = &[("seconds", 3_600), ("minutes", 86_400), ("hours", 2_592_000)];

/// Checks `timeseries` and what stands beside it in a `create`.
pub fn check(request: &Request<'_>, ns: &Namespace, options: Doc<'_>) -> Result<()> {
    fields::check_doc("create.timeseries", FIELDS, options)?;
    let text =
        |name: &str| options.get(name).and_then(|text| text.as_str()).map(|text| text.to_string());
    let granularity = text("granularity").unwrap_or_else(|| "seconds".to_owned());
    let span = SPANS.iter().find(|(name, _)| *name == granularity).map(|(_, span)| *span);
    let span =
        span.ok_or_else(|| bad_enumeration(&granularity, "create.timeseries.granularity"))?;
    #[allow(clippy::cast_possible_truncation)]
    let asked =
        options.get("bucketMaxSpanSeconds").and_then(|span| span.as_f64()).map(|span| span as i64);
    if let Some(asked @ ..1) = asked {
        return Err(span_too_small(asked));
    }
    if let Some(field) = NOT_WITH.iter().find(|field| request.arg(field).is_some()) {
        return Err(not_with(ns, field));
    }
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
    if asked.is_some_and(|asked| asked != span) {
        return Err(span_fixed(span));
    }
    Ok(())
}
